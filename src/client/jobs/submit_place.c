/* submit_place.c: owns the connection to the daemon's queue. Must never wait for ever. */
#include "client/jobs/submit_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ask/ask.h"
#include "base/macros.h"
#include "client/common/cli.h"
#include "client/talk/control_order.h"
#include "client/launch/launch_gpu.h"

static json_t *order_of(const struct place *p)
{
        json_t *order = json_copy(p->order);

        if (*p->gpu)
                (void)json_object_set_new(
                        order, "running",
                        json_pack("{ss ss si}", "gpu", p->gpu, "way", p->way, "pid", (int)p->pid));
        return order;
}

/* Gives the order, and waits for the answer. */
static int give(struct place *p, struct ask_talk *talk, json_t **ret_answer)
{
        json_t *order = order_of(p);
        int r = ask_begin(p->dir, p->kind, order, true, talk);

        json_decref(order);
        if (r < 0)
                return r;
        r = ask_more(talk, true, ret_answer);
        if (r < 0)
                ask_end(talk);
        return MIN(r, 0);
}

/* Sends the job file, which the daemon reads after it has answered. */
static int send_file(struct place *p)
{
        for (size_t done = 0; done < p->file_size;) {
                const ssize_t n = send(p->fd, p->file + done, p->file_size - done, MSG_NOSIGNAL);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                done += (size_t)n;
        }
        return 0;
}

/* Keeps the connection, and what came behind the answer. */
static int keep(struct place *p, struct ask_talk *talk)
{
        p->used = MIN(talk->used - talk->line, sizeof(p->line));
        memcpy(p->line, talk->text + talk->line, p->used);
        p->fd = fcntl(talk->fd, F_DUPFD_CLOEXEC, 0); /* ask_end() closes the other */
        ask_end(talk);
        if (p->fd < 0 || send_file(p) < 0) {
                place_leave(p);
                return -EAGAIN;
        }
        return 0;
}

int place_take(struct place *p, bool first)
{
        struct ask_talk talk;
        json_t *answer = NULL;
        int r = give(p, &talk, &answer);
        const bool comes = !*p->gpu && gpu_daemon_comes(p->launch, p->dir, p->kind, r);

        for (unsigned n = 0; first && comes && gpu_await_daemon(r, n); n++)
                r = give(p, &talk, &answer);
        if (r < 0 && !first)
                return -EAGAIN;
        if (r < 0)
                return control_answered(r, p->dir, true, NULL, &answer) == CLI_OK ? 0 : -EACCES;
        if (json_object_get(answer, "error")) {
                (void)control_answered(0, p->dir, true, answer, &answer);
                ask_end(&talk);
                return -EACCES;
        }
        json_decref(answer);
        return keep(p, &talk);
}

int place_read(struct place *p, json_t **ret)
{
        for (;;) {
                char *end = memchr(p->line, '\n', p->used);
                ssize_t n;

                if (end) {
                        const size_t length = (size_t)(end - p->line);

                        *ret = json_loadb(p->line, length, 0, NULL);
                        p->used -= length + 1;
                        memmove(p->line, end + 1, p->used);
                        if (json_is_object(*ret))
                                return 1;
                        json_decref(*ret);
                        break;
                }
                if (p->used == sizeof(p->line))
                        break;
                n = recv(p->fd, p->line + p->used, sizeof(p->line) - p->used, MSG_DONTWAIT);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return 0;
                if (n <= 0)
                        break;
                p->used += (size_t)n;
        }
        place_leave(p);
        return -ECONNRESET;
}

void place_tell_progress(struct place *p, double progress)
{
        char line[64];
        const int n = snprintf(line, sizeof(line), "{\"progress\":%.4f}\n", progress);

        /* If the daemon does not read, or has ended, the next figure will do. */
        (void)send(p->fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void place_leave(struct place *p)
{
        if (p->fd >= 0)
                (void)close(p->fd);
        p->fd = -EBADF;
        p->used = 0;
}
