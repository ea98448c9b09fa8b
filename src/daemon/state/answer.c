/* answer.c: owns the form of an answer that is an error. Must never give a peer the program of
 * another user. */
#include "daemon/state/answer.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

#include "daemon/people/peer.h"
#include "daemon/state/client.h"
#include "daemon/state/server.h"

json_t *answer_error(const char *format, ...)
{
        char sentence[512];
        va_list args;

        va_start(args, format);
        (void)vsnprintf(sentence, sizeof(sentence), format, args);
        va_end(args);
        return json_pack("{s:s}", "error", sentence);
}

json_t *answer_later(const char *why)
{
        return json_pack("{s:s, s:b}", "error", why, "later", 1);
}

struct client *answer_program(const struct server *s, const json_t *order, const struct peer *by,
                              const char *no_pid, const char *may, json_t **ret_answer)
{
        const json_t *number = json_object_get(order, "pid");
        const json_int_t pid = json_integer_value(number);
        struct client *c = NULL;

        if (!json_is_integer(number) || pid <= 0 || pid > INT_MAX)
                *ret_answer = answer_error("%s", no_pid);
        else if (!(c = client_of_process(s, (pid_t)pid)))
                *ret_answer = answer_error("no program with pid %d shares a GPU under this daemon: "
                                           "sublet status shows the pids",
                                           (int)pid);
        if (!c || peer_has_right(by, &c->peer))
                return c;
        *ret_answer = answer_error("process %d is another user's: only that user, the daemon's own "
                                   "user and root may %s",
                                   (int)pid, may);
        return NULL;
}
