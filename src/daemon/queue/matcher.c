/* matcher.c: owns the process that proposes pairs, and the time limits on it. Must never wait for
 * that process, never have more than one, and never trust what it says. */
#include "daemon/queue/matcher.h"

#include <errno.h>
#include <grp.h>
#include <linux/limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/oom.h"
#include "base/text.h"
#include "daemon/people/child_process.h"
#include "daemon/state/outbox.h"

#define LATE_NS     (2 * NSEC_PER_SEC) /* time after which a question is given up */
#define WAIT_NS     NSEC_PER_SEC       /* pause before the next try, doubled each time */
#define WAIT_MAX_NS (64 * NSEC_PER_SEC)
#define ANSWER_MAX  (1u << 20)
#define OUT_MAX     (128u << 20) /* bytes not read by the helper: a full queue's files, twice */
#define ASKED_MAX   128u         /* waiting jobs of a question: the first ones */
#define NOBODY      65534
#define PROGRAM     "sublet-pairing"
#define CANNOT_TELL PROGRAM " does not read, or there is no memory for it"

struct matcher {
        sd_event *event;
        struct matcher_calls calls;
        struct child_process process;
        char path[PATH_MAX]; /* of its program */
        sd_event_source *timer;
        struct outbox out;
        char *in;
        size_t in_used;
        uint64_t question; /* its number */
        bool asked;
        bool said; /* the log says that there is no helper */
        uint64_t wait_ns, next_ns;
};

/* ---- the process ---- */

/* Finds the helper: in a build tree beside this program, in an installation beside sublet's other
 * parts. */
static int find_program(char ret[static PATH_MAX])
{
        static const char *const places[] = {SUBLET_FROM_BIN_TO_PRIVATE "/" PROGRAM, PROGRAM};
        char folder[PATH_MAX - 256], path[PATH_MAX];
        const ssize_t n = readlink("/proc/self/exe", folder, sizeof(folder) - 1);

        if (n < 0)
                return -errno;
        folder[n] = '\0';
        *strrchr(folder, '/') = '\0';
        for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
                (void)snprintf(path, sizeof(path), "%s/%s", folder, places[i]);
                if (realpath(path, ret))
                        return 0;
        }
        return -ENOENT;
}

/* The helper reads files of all users, so the helper of a daemon of root gives its rights up. It
 * becomes nobody, or, if the service may not change its user, root without capabilities. */
static void drop_rights(void)
{
        if (geteuid() == 0) {
                (void)setgroups(0, NULL);
                (void)!setresgid(NOBODY, NOBODY, NOBODY);
                (void)!setresuid(NOBODY, NOBODY, NOBODY);
        }
        child_process_drop_capabilities();
}

/* The helper starts in its own folder and finds its models from there, because the user nobody may
 * not enter all folders above it. /root is such a folder.
 */
static void become_helper(int fd, pid_t parent, void *userdata)
{
        struct matcher *m = userdata;
        char *name = strrchr(m->path, '/');
        sigset_t none;

        *name++ = '\0';
        oom_spare_no_more();
        if (chdir(*m->path ? m->path : "/") < 0)
                _exit(127);
        drop_rights();
        child_process_begin(fd, parent);
        (void)sigemptyset(&none);
        if (dup2(CHILD_FD, STDIN_FILENO) < 0 || dup2(CHILD_FD, STDOUT_FILENO) < 0 ||
            sigprocmask(SIG_SETMASK, &none, NULL) < 0)
                _exit(EXIT_FAILURE);
        (void)close(CHILD_FD);
        (void)signal(SIGPIPE, SIG_DFL);
        (void)setenv("OMP_WAIT_POLICY", "PASSIVE", 1); /* else the helper would exec itself */
        (void)execl(name, PROGRAM, "serve", (char *)NULL);
        _exit(127);
}

static void arm(struct matcher *m, uint64_t after_ns)
{
        (void)sd_event_source_set_time_relative(m->timer, after_ns / NSEC_PER_USEC);
        (void)sd_event_source_set_enabled(m->timer, SD_EVENT_ONESHOT);
}

static void drop_process(struct matcher *m)
{
        child_process_drop(&m->process);
        (void)sd_event_source_set_enabled(m->timer, SD_EVENT_OFF);
        free(m->out.bytes);
        m->out = (struct outbox){0};
        m->in_used = 0;
        m->asked = false;
}

/* Ends a helper that has failed. It is started again after a pause. */
static void fail_helper(struct matcher *m, const char *why)
{
        const bool asked = m->asked;

        drop_process(m);
        m->wait_ns = MIN(MAX(2 * m->wait_ns, WAIT_NS), WAIT_MAX_NS);
        m->next_ns = clock_now_ns() + m->wait_ns;
        if (!m->said)
                log_warning("%s: until it answers, each submitted job gets a GPU alone", why);
        m->said = true;
        if (asked)
                m->calls.offers(m->calls.userdata, NULL, 0);
}

static int on_io(sd_event_source *src, int fd, uint32_t events, void *userdata);

static int start_process(struct matcher *m)
{
        const int r = find_program(m->path);

        return r < 0 ? r
                     : child_process_start(&m->process, m->event, SOCK_STREAM, on_io, become_helper,
                                           m);
}

/* Returns whether there is a process to talk to; starts it if need be. */
static bool ready(struct matcher *m)
{
        int r;

        if (m->process.fd >= 0)
                return true;
        if (m->process.pid > 0 || clock_now_ns() < m->next_ns)
                return false;
        r = start_process(m);
        if (r < 0) {
                fail_helper(m, r == -ENOENT ? "no " PROGRAM
                                              " is installed, which says which jobs go well "
                                              "together"
                                            : "cannot start " PROGRAM);
                return false;
        }
        m->calls.refill(m->calls.userdata);
        return m->process.fd >= 0;
}

/* ---- talking ---- */

static void flush(struct matcher *m)
{
        if (outbox_flush(&m->out, m->process.fd) < 0)
                return; /* on_io() sees the end of the connection, too */
        (void)sd_event_source_set_io_events(m->process.io,
                                            m->out.bytes ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Takes over the object. */
static bool put_line(struct matcher *m, json_t *json)
{
        _cleanup_free_ char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

        json_decref(json);
        return text && outbox_put(&m->out, text, strlen(text), OUT_MAX) &&
               outbox_put(&m->out, "\n", 1, OUT_MAX);
}

bool matcher_add(struct matcher *m, uint32_t id, const char *file, size_t size, const char *gpu)
{
        const bool began = m->process.fd < 0;

        if (!ready(m))
                return false;
        if (began) /* refill() has passed all files, this one, too */
                return true;
        if (!put_line(m, json_pack("{sI sI ss}", "add", (json_int_t)id, "bytes", (json_int_t)size,
                                   "gpu", gpu)) ||
            !outbox_put(&m->out, file, size, OUT_MAX)) {
                fail_helper(m, CANNOT_TELL);
                return false;
        }
        flush(m);
        return true;
}

void matcher_forget(struct matcher *m, uint32_t id)
{
        if (m->process.fd < 0)
                return;
        /* Half a line would spoil the next one. */
        if (put_line(m, json_pack("{sI}", "forget", (json_int_t)id)))
                flush(m);
        else
                fail_helper(m, CANNOT_TELL);
}

static json_t *jobs_json(const struct queue *q)
{
        json_t *list = json_array();
        unsigned asked = 0;

        for (const struct queue_job *j = NULL; (j = queue_next(q, j));) {
                if (!j->wish.measured || (j->gpu >= 0 ? !queue_is_open(q, j) : asked >= ASKED_MAX))
                        continue;
                asked += j->gpu < 0;
                (void)json_array_append_new(
                        list, json_pack("{sI sb sf si sI sI}", "id", (json_int_t)j->id, "runs",
                                        j->gpu >= 0, "bound", j->wish.bound, "ways",
                                        (int)queue_ways(j), "user", (json_int_t)j->wish.user, "key",
                                        (json_int_t)queue_key(j)));
        }
        return list;
}

static json_t *ratios_json(const struct queue *q)
{
        json_t *list = json_array();

        for (unsigned i = 0; i < QUEUE_KNOWN; i++) {
                struct queue_ratio_row row;

                if (queue_known(q, i, &row))
                        (void)json_array_append_new(
                                list, json_pack("[I, I, i, f]", (json_int_t)row.job,
                                                (json_int_t)row.beside, (int)row.way, row.ratio));
        }
        return list;
}

static unsigned waiting(const struct queue *q)
{
        unsigned n = 0;

        for (const struct queue_job *j = NULL; (j = queue_next(q, j));)
                n += j->gpu < 0;
        return n;
}

bool matcher_ask(struct matcher *m, const struct queue *q, double capacity_bytes)
{
        if (m->asked)
                return true;
        if (!ready(m))
                return false;
        if (!put_line(m, json_pack("{sI si si sf sf so so}", "question", (json_int_t)++m->question,
                                   "gpus", (int)queue_free_gpus(q), "waiting", (int)waiting(q),
                                   "host_bytes", queue_host_left(q), "capacity", capacity_bytes,
                                   "jobs", jobs_json(q), "ratios", ratios_json(q)))) {
                fail_helper(m, CANNOT_TELL);
                return false;
        }
        m->asked = true;
        arm(m, LATE_NS);
        flush(m);
        return true;
}

/* ---- answers ---- */

static bool read_offer(const json_t *one, struct queue_offer *ret)
{
        const json_t *progress = json_object_get(one, "progress");
        const char *way = json_string_value(json_object_get(one, "way"));

        *ret = (struct queue_offer){
                .a = (uint32_t)json_integer_value(json_object_get(one, "a")),
                .b = (uint32_t)json_integer_value(json_object_get(one, "b")),
                .progress = {json_number_value(json_array_get(progress, 0)),
                             json_number_value(json_array_get(progress, 1))},
                .host_bytes = json_number_value(json_object_get(one, "host_bytes")),
        };
        return way && way_read(way, &ret->way) == 0;
}

static void take_answer(struct matcher *m, const json_t *answer)
{
        static struct queue_offer offers[QUEUE_JOBS_MAX];
        const json_t *pairs = json_object_get(answer, "pairs"), *one;
        const char *error = json_string_value(json_object_get(answer, "error"));
        char clean[256]; /* what users wrote may be part of it */
        unsigned n = 0;
        size_t i;

        json_array_foreach (pairs, i, one)
                if (n < ARRAY_SIZE(offers) && read_offer(one, &offers[n]))
                        n++;
        if (error)
                log_info("%s cannot pair the jobs: %s", PROGRAM,
                         text_copy(clean, sizeof(clean), error));
        if (m->said)
                log_notice("%s answers again", PROGRAM);
        m->said = false;
        m->wait_ns = 0;
        m->asked = false;
        (void)sd_event_source_set_enabled(m->timer, SD_EVENT_OFF);
        m->calls.offers(m->calls.userdata, offers, n);
}

/* Handles a line of the helper. False: the line is no answer. */
static bool take_line(struct matcher *m, const char *line, size_t n)
{
        json_t *answer = json_loadb(line, n, 0, NULL);
        const json_t *added = json_object_get(answer, "added");
        const char *error = json_string_value(json_object_get(answer, "error"));
        bool good = true;

        if (added && error)
                m->calls.refused(m->calls.userdata, (uint32_t)json_integer_value(added), error);
        else if (!added && m->asked &&
                 (uint64_t)json_integer_value(json_object_get(answer, "answer")) == m->question)
                take_answer(m, answer);
        else
                good = added;
        json_decref(answer);
        return good;
}

static void take_lines(struct matcher *m)
{
        char *end;

        while (m->process.fd >= 0 && (end = memchr(m->in, '\n', m->in_used))) {
                const size_t length = (size_t)(end - m->in), rest = m->in_used - length - 1;

                if (!take_line(m, m->in, length)) {
                        fail_helper(m, PROGRAM " does not speak this daemon's language");
                        return;
                }
                memmove(m->in, end + 1, rest);
                m->in_used = rest;
        }
        if (m->in_used == ANSWER_MAX)
                fail_helper(m, PROGRAM " says too much");
}

static int on_io(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct matcher *m = userdata;
        ssize_t n;

        if (events & EPOLLOUT)
                flush(m);
        n = recv(fd, m->in + m->in_used, ANSWER_MAX - m->in_used, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n <= 0) {
                fail_helper(m, PROGRAM " has ended");
                return 0;
        }
        m->in_used += (size_t)n;
        take_lines(m);
        return 0;
}

static int on_timer(sd_event_source *src, uint64_t usec, void *userdata)
{
        fail_helper(userdata, PROGRAM " did not answer within 2 s");
        return 0;
}

/* ---- for the daemon ---- */

void matcher_rest(struct matcher *m)
{
        if (m->process.fd >= 0 && !m->asked)
                drop_process(m);
}

bool matcher_runs(const struct matcher *m)
{
        return m->process.fd >= 0;
}

int matcher_new(sd_event *event, const struct matcher_calls *calls, struct matcher **ret)
{
        struct matcher *m = calloc(1, sizeof(*m));
        int r = -ENOMEM;

        if (!m)
                return r;
        m->event = event;
        m->calls = *calls;
        child_process_init(&m->process);
        m->in = malloc(ANSWER_MAX);
        if (m->in)
                r = sd_event_add_time_relative(event, &m->timer, CLOCK_MONOTONIC, 0, 1000, on_timer,
                                               m);
        if (r >= 0)
                r = sd_event_source_set_enabled(m->timer, SD_EVENT_OFF);
        if (r < 0) {
                matcher_free(m);
                return r;
        }
        *ret = m;
        return 0;
}

void matcher_free(struct matcher *m)
{
        if (!m)
                return;
        drop_process(m);
        child_process_free(&m->process);
        (void)sd_event_source_disable_unref(m->timer);
        free(m->in);
        free(m);
}
