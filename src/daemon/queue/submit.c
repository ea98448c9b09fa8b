/* submit.c: owns the connections of submitted jobs. Must never start a program, keep a job whose
 * connection has ended, or let one user fill the queue. */
#include "daemon/queue/submit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/text.h"
#include "daemon/people/hangup.h"
#include "daemon/people/users.h"
#include "daemon/queue/state.h"
#include "daemon/state/answer.h"
#include "sched/sched.h"

#define FILES_MAX (64u << 20) /* bytes of all job files */
#define FILE_S    10u         /* seconds in which an announced job file has to come */
#define OUT_MAX   16384u      /* bytes that a reader may leave unread */
/* Lines that one connection may send in a second. A job sends one a second. If the daemon stood
 * still, the missed ones come at once, as many as a socket holds. */
#define LINES_MAX     400u
#define SECOND_US     UINT64_C(1000000)
#define RETURNS_NS    (60 * NSEC_PER_SEC) /* jobs of an earlier daemon come back within this time */
#define BOUND_DEFAULT 0.7

struct submission *submission_find(const struct submits *all, uint32_t id)
{
        for (struct submission *m = id ? all->list : NULL; m; m = m->next)
                if (m->id == id)
                        return m;
        return NULL;
}

bool submit_busy(const struct server *s)
{
        return s->submits && s->submits->list;
}

bool submit_runs(const struct server *s)
{
        const struct queue *q = s->submits ? s->submits->queue : NULL;

        for (const struct queue_job *j = NULL; submit_busy(s) && (j = queue_next(q, j));)
                if (j->gpu >= 0)
                        return true;
        return false;
}

/* ---- writing ---- */

static void flush(struct submission *m)
{
        m->dead = m->dead || outbox_flush(&m->out, m->fd) < 0;
        (void)sd_event_source_set_io_events(m->io, m->out.bytes ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void submission_send(struct submission *m, json_t *json)
{
        _cleanup_free_ char *text =
                json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
        const size_t n = text ? strlen(text) : 0;

        json_decref(json);
        if (text)
                text[n] = '\n'; /* replaces the NUL */
        if (text && outbox_put(&m->out, text, n + 1, OUT_MAX))
                flush(m);
        else
                m->dead = true; /* it does not read */
}

/* ---- the order ---- */

static json_t *read_ways(const struct server *s, const json_t *list, unsigned *ret)
{
        unsigned ways = list ? 0 : QUEUE_ALL_WAYS;
        const json_t *one;
        size_t i;

        json_array_foreach (list, i, one) {
                const char *name = json_string_value(one);
                enum way way;

                if (!name || way_read(name, &way) < 0)
                        return answer_error("\"ways\" is a list of sliced, shared and turns");
                ways |= 1u << way;
        }
        if (ways == 1u << WAY_SHARED && !s->config->mps)
                return answer_error(
                        "the owner of this daemon does not allow MPS (its key mps): choose "
                        "another way");
        if (!s->config->mps)
                ways &= ~(1u << WAY_SHARED);
        if (!ways)
                return answer_error("\"ways\" is a list of sliced, shared and turns");
        *ret = ways;
        return NULL;
}

static uint64_t user_number(const struct peer *p)
{
        const struct users_key key = users_key_of(p);

        return key.tenant ^ ((uint64_t)key.uid << 32 | key.uid);
}

static json_t *read_wish(const struct server *s, const json_t *order, const struct peer *peer,
                         struct queue_wish *ret)
{
        const char *name = json_string_value(json_object_get(order, "name"));
        const json_t *bound = json_object_get(order, "bound");

        if (!name || !*name || strlen(name) >= sizeof(ret->name) || !text_is_clean(name))
                return answer_error("\"name\" is 1 to %zu bytes of text", sizeof(ret->name) - 1);
        (void)strcpy(ret->name, name);
        ret->bound = bound ? json_number_value(bound) : BOUND_DEFAULT;
        if (!(ret->bound >= 0.01 && ret->bound <= 0.99))
                return answer_error("\"bound\" is a number from 0.01 to 0.99");
        ret->user = user_number(peer);
        return read_ways(s, json_object_get(order, "ways"), &ret->ways);
}

static int gpu_named(const struct server *s, const char *uuid)
{
        for (unsigned i = 0; uuid && i < s->gpus.n; i++)
                if (s->gpus.list[i].present && strcmp(s->gpus.list[i].uuid_text, uuid) == 0)
                        return (int)i;
        return -1;
}

/* Reads where the job runs already. The job keeps others from a GPU, so it must have a program that
 * runs. */
static json_t *read_running(const struct server *s, const json_t *running, const struct peer *peer,
                            struct submission *m)
{
        const char *way = json_string_value(json_object_get(running, "way"));
        const json_int_t pid = json_integer_value(json_object_get(running, "pid"));

        m->returns_to = -1;
        if (!running)
                return NULL;
        if (clock_now_ns() - s->started_ns > RETURNS_NS)
                return answer_error(
                        "jobs of an earlier daemon come back within a minute of its end: "
                        "this job goes on outside of the queue");
        m->returns_to = gpu_named(s, json_string_value(json_object_get(running, "gpu")));
        if (m->returns_to < 0 || !way || way_read(way, &m->returns_way) < 0)
                return answer_error(
                        "this machine has no GPU of this name: the job goes on outside of "
                        "the queue");
        if (pid <= 0 || pid > INT32_MAX || !submit_has_program(peer, (pid_t)pid))
                return answer_error(
                        "process %lld is no running program that this job has started: the "
                        "job goes on outside of the queue",
                        (long long)pid);
        return NULL;
}

static json_t *room_for(const struct submits *all, const struct submission *m)
{
        unsigned of_user = 0, n = 0;

        for (const struct submission *other = all->list; other; other = other->next) {
                n += !other->dead;
                of_user += !other->dead && other->wish.user == m->wish.user;
        }
        if (of_user >= QUEUE_OF_USER)
                return answer_error(
                        "one user may have %u jobs that wait or run: wait for one to end",
                        QUEUE_OF_USER);
        if (n >= QUEUE_JOBS_MAX || all->file_bytes + m->file_size > FILES_MAX)
                return answer_error("the queue is full: try again later");
        return NULL;
}

static json_t *read_order(const struct server *s, const json_t *order, const struct peer *peer,
                          struct submission *m)
{
        const json_t *bytes = json_object_get(order, "bytes");
        json_t *wrong = read_wish(s, order, peer, &m->wish);

        if (!wrong)
                wrong = read_running(s, json_object_get(order, "running"), peer, m);
        if (!wrong && bytes &&
            (!json_is_integer(bytes) || json_integer_value(bytes) < 0 ||
             json_integer_value(bytes) > SUBMIT_FILE_MAX))
                wrong = answer_error("a job file has at most %u KiB", SUBMIT_FILE_MAX >> 10);
        m->file_size = wrong ? 0 : (size_t)json_integer_value(bytes);
        return wrong ? wrong : room_for(s->submits, m);
}

/* ---- reading ---- */

static const char *machine_gpu(const struct server *s)
{
        for (unsigned i = 0; i < s->gpus.n; i++)
                if (s->gpus.list[i].present)
                        return s->gpus.list[i].name;
        return "";
}

static bool pass_file(struct submission *m)
{
        return matcher_add(m->all->matcher, m->id, m->file, m->file_size,
                           machine_gpu(m->all->server));
}

/* Puts a job whose file is complete into the queue. */
static void enter(struct submission *m)
{
        struct submits *all = m->all;
        const uint64_t now_ns = clock_now_ns();
        int r;

        m->wish.measured = m->file_size > 0;
        submit_look_at_gpus(all, false);
        if (m->returns_to >= 0)
                r = queue_return(all->queue, &m->wish, (unsigned)m->returns_to, m->returns_way,
                                 now_ns, &m->id);
        else
                r = queue_come(all->queue, &m->wish, now_ns, &m->id);
        if (r < 0) {
                submission_send(m, answer_error("the queue takes no more jobs: %s", strerror(-r)));
                m->dead = true;
                return;
        }
        if (m->returns_to >= 0)
                all->returned++;
        log_info("job %u (%s) of process %d %s", m->id, m->wish.name, (int)m->peer.pid,
                 m->returns_to >= 0 ? "comes back" : "is submitted");
        if (m->wish.measured)
                (void)pass_file(m);
        all->dirty = true;
}

static void take_line(struct submission *m, const char *line, uint64_t now_ns)
{
        json_t *json = json_loads(line, 0, NULL);
        const json_t *progress = json_object_get(json, "progress");

        if (now_ns - m->lines_ns >= NSEC_PER_SEC) {
                m->lines_ns = now_ns;
                m->lines = 0;
        }
        if (!json_is_object(json) || ++m->lines > LINES_MAX)
                m->dead = true;
        else if (json_is_number(progress))
                queue_observe(m->all->queue, m->id, json_number_value(progress), now_ns);
        json_decref(json);
}

static void take_lines(struct submission *m)
{
        const uint64_t now_ns = clock_now_ns();
        char *end;

        while (!m->dead && (end = memchr(m->line, '\n', m->used))) {
                const size_t rest = m->used - (size_t)(end + 1 - m->line);

                *end = '\0';
                take_line(m, m->line, now_ns);
                memmove(m->line, end + 1, rest);
                m->used = rest;
        }
        if (m->used == sizeof(m->line))
                m->dead = true;
}

/* Reads once, so that no connection holds up the loop. */
static int on_io(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct submission *m = userdata;
        const uint64_t began = clock_now_ns();
        const bool reads_file = !m->id;
        struct iovec data = {reads_file ? m->file + m->file_got : m->line + m->used,
                             reads_file ? m->file_size - m->file_got : sizeof(m->line) - m->used};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
        union hangup_room room;
        ssize_t n;

        if (m->dead)
                return 0;
        if (events & EPOLLOUT)
                flush(m);
        hangup_expect(&h, &room);
        n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n >= 0 && hangup_take(&h))
                m->dead = true; /* no job brings descriptors */
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
                m->dead = true;
        if (n > 0 && reads_file) {
                m->file_got += (size_t)n;
                if (m->file_got == m->file_size)
                        enter(m);
        } else if (n > 0) {
                m->used += (size_t)n;
                take_lines(m);
        }
        m->all->dirty |= m->dead;
        users_charge_since(m->all->server->users, users_key_of(&m->peer), began, clock_now_ns());
        return 0;
}

json_t *submit_take(struct server *s, json_t *order, const struct peer *peer, int fd)
{
        struct submits *all = s->submits;
        struct submission *m = calloc(1, sizeof(*m));
        json_t *wrong;
        int r = -ENOMEM;

        if (!m)
                return answer_error("out of memory");
        m->all = all;
        m->peer = *peer;
        m->peer.pidfd = -EBADF;
        m->fd = fd;
        wrong = read_order(s, order, peer, m);
        if (wrong) {
                free(m);
                return wrong;
        }
        m->file = malloc(m->file_size + 1);
        if (m->file)
                r = sd_event_add_io(s->event, &m->io, fd, EPOLLIN, on_io, m);
        if (r < 0) {
                free(m->file);
                free(m);
                return answer_error("%s", strerror(-r));
        }
        all->file_bytes += m->file_size;
        m->next = all->list;
        all->list = m;
        server_arm_once(all->timer, true, SECOND_US);
        submission_send(m, json_pack("{sb}", "submitted", 1));
        if (m->file_size == 0)
                enter(m);
        return NULL;
}

/* ---- settling ---- */

static void end_submission(struct submission *m)
{
        struct submits *all = m->all;

        if (m->id) {
                log_info("job %u (%s) is gone", m->id, m->wish.name);
                queue_leave(all->queue, m->id);
                matcher_forget(all->matcher, m->id);
                all->dirty = true;
        }
        all->file_bytes -= m->file_size;
        (void)sd_event_source_disable_unref(m->io);
        (void)hangup_close(m->fd);
        free(m->file);
        free(m->out.bytes);
        free(m);
}

static void sweep(struct submits *all)
{
        bool files = false;

        for (struct submission **p = &all->list; *p;) {
                struct submission *m = *p;

                if (!m->dead) {
                        files |= m->wish.measured;
                        p = &m->next;
                        continue;
                }
                *p = m->next;
                end_submission(m);
        }
        if (!files)
                matcher_rest(all->matcher);
}

static void start(struct submits *all, const struct queue_start *what)
{
        struct submission *m = submission_find(all, what->id);
        const struct submission *beside = submission_find(all, what->beside);
        const char *uuid = all->server->gpus.list[what->gpu].uuid_text;
        const char *name = beside ? submission_name(beside, &m->peer) : NULL;

        if (beside)
                log_info("job %u (%s) starts on GPU %u beside job %u (%s), %s, with a predicted "
                         "progress of %.2f",
                         what->id, m->wish.name, what->gpu, what->beside, beside->wish.name,
                         way_names[what->way], what->progress);
        else
                log_info("job %u (%s) starts on GPU %u alone%s", what->id, m->wish.name, what->gpu,
                         what->way == WAY_SHARED ? " in half of the SMs" : "");
        submission_send(m, json_pack("{s{ss ss ss? so}}", "start", "gpu", uuid, "way",
                                     way_names[what->way], "beside", name, "progress",
                                     submit_number(what->progress)));
}

/* After a crash, jobs that run come back first: until then GPUs only seem free. */
static bool waits_for_return(const struct server *s)
{
        return clock_now_ns() < s->return_until_ns;
}

static void decide(struct submits *all)
{
        static struct queue_start starts[QUEUE_JOBS_MAX];
        struct server *s = all->server;
        bool follow = false;
        unsigned n;

        if (waits_for_return(s))
                return;
        queue_host_set(all->queue, (double)sched_host_free(s->sched));
        if (!all->answered && !all->unanswered && queue_wants_offers(all->queue))
                follow = matcher_ask(all->matcher, all->queue, submit_capacity(s));
        n = queue_decide(all->queue, all->offers, all->n_offers, follow, clock_now_ns(), starts);
        all->n_offers = 0;
        all->answered = all->unanswered = false;
        for (unsigned i = 0; i < n; i++)
                start(all, &starts[i]);
        all->dirty = false;
}

static void tell_reasons(struct submits *all)
{
        for (struct submission *m = all->list; m; m = m->next) {
                const struct queue_job *j = queue_find(all->queue, m->id);
                char why[SUBMIT_SAID_MAX] = "";

                if (!j || j->gpu >= 0 || m->dead)
                        continue;
                submit_reason(m, why);
                if (strcmp(why, m->said) == 0)
                        continue;
                (void)strcpy(m->said, why);
                submission_send(m, json_pack("{ss sb}", "waits", why, "no_gpu",
                                             !*machine_gpu(all->server)));
        }
}

void submit_settle(struct server *s)
{
        struct submits *all = s->submits;

        if (!all->list)
                return;
        sweep(all);
        if (!all->dirty)
                return;
        submit_look_at_gpus(all, false);
        decide(all);
        submit_apply_turns(all);
        submit_count(all, &s->jobs);
        server_arm_once(all->timer, all->list, SECOND_US);
}

static void log_turn(const struct submits *all, const struct queue_turn *t)
{
        const struct queue_gpu *g = queue_gpu(all->queue, t->gpu);
        const struct queue_job *a = queue_find(all->queue, g->jobs[0]);
        const struct queue_job *b = queue_find(all->queue, g->jobs[1]);

        log_notice("jobs %u (%s) and %u (%s) on GPU %u %s: they progress at %.2f and %.2f, and are "
                   "to keep %.2f and %.2f",
                   a->id, a->wish.name, b->id, b->wish.name, t->gpu,
                   t->on ? "go over to turns" : "go back from turns, which did not help",
                   a->observed, b->observed, a->wish.bound, b->wish.bound);
}

/* An announced file takes room from files of others, so it must come in time. The timer counts
 * seconds in which the daemon runs: a file that came while the daemon stood still is not late. */
static void end_late_files(struct submits *all)
{
        for (struct submission *m = all->list; m; m = m->next) {
                if (m->id || m->dead || ++m->file_s <= FILE_S)
                        continue;
                submission_send(
                        m, answer_error("the job file has not come within %u s: submit the job "
                                        "again",
                                        FILE_S));
                m->dead = true;
        }
}

/* Once a second while there are jobs. */
static int on_second(sd_event_source *src, uint64_t usec, void *userdata)
{
        struct submits *all = userdata;
        struct queue_turn turns[QUEUE_GPUS_MAX];
        unsigned n;

        end_late_files(all);
        submit_look_at_gpus(all, true);
        n = queue_tick(all->queue, clock_now_ns(), turns);
        for (unsigned i = 0; i < n; i++)
                log_turn(all, &turns[i]);
        tell_reasons(all);
        all->dirty = true; /* programs of others, and the helper, may have changed */
        return 0;
}

/* ---- the helper ---- */

static void on_offers(void *userdata, const struct queue_offer *offers, unsigned n)
{
        struct submits *all = userdata;

        for (unsigned i = 0; i < n; i++)
                all->offers[i] = offers[i];
        all->n_offers = n;
        all->answered = offers;
        all->unanswered = !offers;
        all->dirty = true;
}

static void on_refused(void *userdata, uint32_t id, const char *why)
{
        struct submits *all = userdata;
        struct submission *m = submission_find(all, id);
        char sentence[256];

        if (!m)
                return;
        (void)text_copy(sentence, sizeof(sentence), why);
        log_info("the file of job %u (%s) cannot be used: %s", id, m->wish.name, sentence);
        queue_unmeasured(all->queue, id);
        submission_send(m, json_pack("{ss}", "warning", sentence));
        all->dirty = true;
}

static void on_refill(void *userdata)
{
        const struct submits *all = userdata;

        for (struct submission *m = all->list; m; m = m->next) {
                const struct queue_job *j = queue_find(all->queue, m->id);

                if (!m->dead && j && j->wish.measured)
                        (void)pass_file(m);
        }
}

int submit_new(struct server *s)
{
        struct submits *all = calloc(1, sizeof(*all));
        const struct matcher_calls calls = {on_offers, on_refused, on_refill, all};
        int r;

        s->submits = all;
        if (!all)
                return -ENOMEM;
        all->server = s;
        all->queue = queue_new();
        if (!all->queue)
                return -ENOMEM;
        r = matcher_new(s->event, &calls, &all->matcher);
        if (r >= 0)
                r = sd_event_add_time_relative(s->event, &all->timer, CLOCK_MONOTONIC, 0, 1000,
                                               on_second, all);
        return r < 0 ? r : sd_event_source_set_enabled(all->timer, SD_EVENT_OFF);
}

void submit_free(struct server *s)
{
        struct submits *all = s->submits;

        if (!all)
                return;
        for (struct submission *m = all->list; m; m = m->next)
                m->dead = true;
        if (all->matcher)
                sweep(all);
        matcher_free(all->matcher);
        (void)sd_event_source_disable_unref(all->timer);
        queue_free(all->queue);
        free(all);
        s->submits = NULL;
}
