/* control_order.c: owns the words in which a failed order is told. Must never print a daemon's
 * answer that is no error. */
#include "client/talk/control_order.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/places.h"
#include "ask/ask.h"
#include "client/common/cli.h"
#include "client/talk/simulator_dir.h"

const struct option_row daemon_options[] = {TARGET_OPTION_ROWS(0), {0}};

int target_set_sim(const struct option_row *row, void *target, const char *value)
{
        struct target *t = target;

        t->simulated = true;
        if (value && strncmp(value, "session=", 8) != 0)
                return cli_fail(CLI_USAGE, "--sim takes session=NAME here, not '%s'", value);
        t->session = value ? value + 8 : NULL;
        return CLI_OK;
}

/* Tells where the daemon is, if not at the usual place. Tells it once: some commands ask every
 * second. */
static void tell_place(const char *dir)
{
        static bool told;
        const struct paths_input in = paths_input_here();
        char named[PATHS_DIR_MAX];

        if (told || paths_private_dir(&in, "", named, sizeof(named)) < 0 || strcmp(named, dir) == 0)
                return;
        told = true;
        (void)cli_fail(CLI_OK,
                       "your daemon is in %s; this environment names %s, where none answers", dir,
                       named);
}

int target_can_make(const char *dir)
{
        char above[PATHS_DIR_MAX];
        const char *slash = strrchr(dir, '/');
        struct statvfs fs;

        /* "/name" is below "/". */
        (void)snprintf(above, sizeof(above), "%.*s",
                       (int)(slash ? MAX(slash - dir, (ptrdiff_t)1) : 1), slash ? dir : ".");
        if (access(above, W_OK | X_OK) < 0)
                return -errno;
        return statvfs(above, &fs) == 0 && fs.f_files > 0 && fs.f_favail == 0 ? -ENOSPC : 0;
}

int target_dir(const struct target *target, char ret[static PATHS_DIR_MAX],
               enum paths_kind *ret_kind)
{
        if (target->simulated && !target->daemon) {
                *ret_kind = PATHS_PRIVATE;
                return simulator_dir(target->session ? target->session : getenv("SIMCUDA_SESSION"),
                                     ret);
        }
        if (paths_daemon_dir(target->daemon, ret, PATHS_DIR_MAX, ret_kind) < 0)
                return cli_fail(CLI_USAGE,
                                "the name of the directory '%s%s' is too long for a socket: choose "
                                "a shorter one",
                                target->daemon ? target->daemon : ret, target->daemon ? "" : "...");
        /* Uses the words of sublet run, which starts no daemon there. */
        if (target->daemon && access(target->daemon, F_OK) < 0 && errno == ENOENT)
                return cli_fail(CLI_USAGE, "--daemon: there is no directory '%s'", target->daemon);
        if (*ret_kind == PATHS_PRIVATE)
                tell_place(ret);
        return CLI_OK;
}

static int explain(int r, const char *dir, bool public)
{
        const int folder = paths_check_private(dir, getuid());

        if (r == -EACCES && public)
                return cli_fail(CLI_FAILED,
                                "no permission for %s: the daemon there is another user's, or of a "
                                "group that you are not in",
                                dir);
        if ((r == -ENOENT || r == -ECONNREFUSED) && strcmp(dir, PATHS_SYSTEM_DIR) == 0)
                return cli_fail(CLI_FAILED, "no subletd is running at %s; %s", dir,
                                paths_system_remedy());
        if (r == -ENOENT && folder != 0 && folder != -ENOENT)
                return cli_fail(CLI_FAILED,
                                "no subletd is running at %s; start one: subletd --dir %s", dir,
                                dir);
        switch (r) {
        case -ENOENT:
        case -ENOTDIR:
                if (folder == -ENOTDIR)
                        return cli_fail(CLI_FAILED,
                                        "no subletd is running at %s, which is no directory: name "
                                        "another one",
                                        dir);
                if (folder == -ENOENT && target_can_make(dir) < 0)
                        return cli_fail(CLI_FAILED,
                                        "no subletd is running at %s, and the directory cannot be "
                                        "made (%s): name another one",
                                        dir, strerror(-target_can_make(dir)));
                return cli_fail(CLI_FAILED,
                                "no subletd is running at %s; that is normal until the first "
                                "program under sublet run, which starts one",
                                dir);
        case -ECONNREFUSED:
                return cli_fail(CLI_FAILED, "no subletd is running at %s: nobody listens on its %s",
                                dir, PATHS_CONTROL_SOCKET);
        case -EACCES:
                return cli_fail(CLI_FAILED,
                                "no permission for %s/%s: only the daemon's own user and root may "
                                "give orders",
                                dir, PATHS_CONTROL_SOCKET);
        case -EPERM:
                return cli_fail(CLI_FAILED,
                                "%s is not a directory that only you can enter, so the daemon in "
                                "it is not asked: sublet doctor says what to do",
                                dir);
        case -ETIMEDOUT:
                return cli_fail(
                        CLI_FAILED,
                        "the subletd at %s did not answer within %d s: " TARGET_SILENT_REMEDY, dir,
                        ASK_TIMEOUT_S);
        case -EBADMSG:
                return cli_fail(CLI_FAILED,
                                "what answers at %s does not speak the language of this release "
                                "(%s)",
                                dir, SUBLET_VERSION);
        case -ECONNRESET:
        case -EPIPE:
                return cli_fail(CLI_FAILED,
                                "the subletd at %s hung up without an answer: only its own user "
                                "and root may give orders",
                                dir);
        default:
                return cli_fail(CLI_FAILED, "cannot ask the subletd at %s: %s", dir, strerror(-r));
        }
}

int control_answered(int r, const char *dir, bool public, json_t *answer, json_t **ret_answer)
{
        const char *error;

        if (r < 0)
                return explain(r, dir, public);
        error = json_string_value(json_object_get(answer, "error"));
        if (error) {
                r = cli_fail(CLI_FAILED, "the subletd at %s refuses: %s", dir, error);
                json_decref(answer);
                return r;
        }
        *ret_answer = answer;
        return CLI_OK;
}

int control_order_bytes(const struct target *target, json_t *order, json_t **ret_answer,
                        void **ret_bytes)
{
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;
        json_t *answer = NULL;
        bool public = ask_is_public(order);
        int r;

        r = target_dir(target, dir, &kind);
        if (r != CLI_OK) {
                json_decref(order);
                return r;
        }
        r = ask_daemon_bytes(dir, kind, order, &answer, ret_bytes);
        return control_answered(r, dir, public, answer, ret_answer);
}

int control_order(const struct target *target, json_t *order, json_t **ret_answer)
{
        return control_order_bytes(target, order, ret_answer, NULL);
}
