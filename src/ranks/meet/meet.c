/* meet.c: owns a rank's end of its meetings, and the thread that reads for it and serves. Must
 * never make a CUDA call. */
#include "ranks/meet/meet.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "ranks/meet/meet_server.h"

#define OFTEN_MS  1
#define SELDOM_MS 256

struct meet {
        struct meet *next;
        int fd, rank, n;
        bool lost, cancelled;
        _Atomic uint64_t uses; /* the fewest collectives after which a rank has left; UINT64_MAX: no
                                  rank has left. Once one has, the serving process may end, too */
        unsigned told;         /* how many ranks have told in this round */
        struct said said[MEET_RANKS_MAX];
        int fds[MEET_RANKS_MAX][MEET_FDS];
        pthread_cond_t changed;
        void (*on_lost)(void *context, int rank);
        int lost_rank; /* the rank whose process has ended; -1: none has, or it is not known */
        void *context;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct meet *meetings;
static struct server *servers;
static bool thread_runs;
static int wake_fd = -EBADF;
static _Atomic(bool (*)(void)) often;

static void wake(void)
{
        const uint64_t one = 1;

        if (write(wake_fd, &one, sizeof(one)) < 0)
                return; /* it is awake already */
}

static void lose(struct meet *m, bool is_error, int rank)
{
        if (m->lost)
                return;
        m->lost = true;
        m->lost_rank = rank;
        (void)pthread_cond_broadcast(&m->changed);
        if (is_error && m->on_lost)
                m->on_lost(m->context, rank);
}

/* Handles all messages that have come in for this rank. */
static void read_meeting(struct meet *m)
{
        struct said said;
        uint64_t uses;
        int fds[MEET_FDS], r;

        while ((r = said_receive(m->fd, &said, fds)) > 0) {
                if (said.kind == SAID_LEAVE) {
                        said_close(fds);
                        (void)memcpy(&uses, said.data, sizeof(uses));
                        atomic_store(&m->uses, MIN(uses, atomic_load(&m->uses)));
                        continue;
                }
                if (said.kind == SAID_LOST || said.rank < 0 || said.rank >= m->n) {
                        said_close(fds);
                        lose(m, true, said.kind == SAID_LOST && said.rank < m->n ? said.rank : -1);
                        continue;
                }
                m->said[said.rank] = said;
                (void)memcpy(m->fds[said.rank], fds, sizeof(fds));
                m->told++;
                (void)pthread_cond_broadcast(&m->changed);
        }
        if (r != -EAGAIN)
                lose(m, atomic_load(&m->uses) == UINT64_MAX, -1);
}

/* Fills fds with what the thread waits for. Returns how many; 0: there is no memory. ret_soon: a
 * server has more to send soon. */
static unsigned list_descriptors(struct pollfd **fds, unsigned *room, bool *ret_soon)
{
        unsigned n = 1;

        *ret_soon = false;
        for (struct server *s = servers; s; s = s->next) {
                n += server_descriptors(s, NULL);
                *ret_soon = *ret_soon || s->behind;
        }
        for (struct meet *m = meetings; m; m = m->next)
                n++;
        if (n > *room) {
                struct pollfd *more = realloc(*fds, n * sizeof(**fds));

                if (!more)
                        return 0;
                *fds = more;
                *room = n;
        }
        n = 0;
        (*fds)[n++] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
        for (struct server *s = servers; s; s = s->next)
                n += server_descriptors(s, *fds + n);
        for (struct meet *m = meetings; m; m = m->next)
                (*fds)[n++] = (struct pollfd){.fd = m->lost ? -1 : m->fd, .events = POLLIN};
        return n;
}

static void step_servers(void)
{
        struct server **at = &servers;

        while (*at) {
                struct server *s = *at;

                if (server_step(s)) {
                        at = &s->next;
                } else {
                        *at = s->next;
                        server_free(s);
                }
        }
}

static void serve_all(void)
{
        step_servers();
        for (struct meet *m = meetings; m; m = m->next)
                if (!m->lost)
                        read_meeting(m);
}

static void *thread_main(void *unused)
{
        struct pollfd *fds = NULL;
        unsigned room = 0;
        int pause_ms = OFTEN_MS;
        uint64_t count;

        (void)unused;
        for (;;) {
                bool (*f)(void) = atomic_load(&often);
                bool soon;
                unsigned n;

                (void)pthread_mutex_lock(&lock);
                n = list_descriptors(&fds, &room, &soon);
                (void)pthread_mutex_unlock(&lock);
                (void)poll(fds, n, soon || n == 0 ? OFTEN_MS : f ? pause_ms : -1);
                pause_ms = !f || f() ? OFTEN_MS : MIN(2 * pause_ms, SELDOM_MS);
                (void)pthread_mutex_lock(&lock);
                while (read(wake_fd, &count, sizeof(count)) > 0)
                        continue;
                serve_all();
                (void)pthread_mutex_unlock(&lock);
        }
        return NULL;
}

/* In the child of a fork all meetings belong to the parent. A copy of a connection that stays open
 * would hide the parent's end from the others. */
static void forget(void)
{
        const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

        for (struct server *s = servers; s; s = s->next)
                server_close(s);
        for (struct meet *m = meetings; m; m = m->next) {
                (void)close(m->fd);
                m->fd = -EBADF;
        }
        if (wake_fd >= 0)
                (void)close(wake_fd);
        servers = NULL;
        meetings = NULL;
        wake_fd = -EBADF;
        thread_runs = false;
        lock = fresh;
}

/* Starts the thread, with all signals blocked: they are the program's. Lock held. */
static int start_thread(void)
{
        static bool told_fork;
        sigset_t all, before;
        pthread_t thread;
        int r;

        if (thread_runs)
                return 0;
        if (!told_fork && pthread_atfork(NULL, NULL, forget) != 0)
                return -ENOMEM;
        told_fork = true;
        wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (wake_fd < 0)
                return -errno;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_BLOCK, &all, &before);
        r = pthread_create(&thread, NULL, thread_main, NULL);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (r != 0) {
                (void)close(wake_fd);
                wake_fd = -EBADF;
                return -r;
        }
        (void)pthread_detach(thread);
        thread_runs = true;
        return 0;
}

int meet_serve(const uint8_t name[static MEET_NAME])
{
        struct server *s = NULL;
        int r;

        (void)pthread_mutex_lock(&lock);
        r = start_thread();
        if (r == 0)
                r = server_new(name, &s);
        if (r == 0) {
                s->next = servers;
                servers = s;
                wake();
        }
        (void)pthread_mutex_unlock(&lock);
        return r;
}

int meet_serve_new(uint8_t ret_name[static MEET_NAME])
{
        if (getrandom(ret_name, MEET_NAME, 0) != MEET_NAME)
                return -errno;
        return meet_serve(ret_name);
}

static struct meet *meet_new(int rank, int n)
{
        struct meet *m = calloc(1, sizeof(*m));

        if (!m)
                return NULL;
        m->rank = rank;
        m->n = n;
        m->uses = UINT64_MAX;
        (void)memset(m->fds, 0xff, sizeof(m->fds));
        (void)pthread_cond_init(&m->changed, NULL);
        return m;
}

int meet_join(const uint8_t name[static MEET_NAME], int rank, int n,
              void (*on_lost)(void *context, int lost), void *context, struct meet **ret)
{
        const struct said hello = {.kind = SAID_HELLO, .rank = rank, .n = n};
        _cleanup_close_ int fd = -EBADF;
        struct meet *m;
        int r;

        fd = server_connect(name);
        if (fd < 0)
                return fd;
        r = said_send(fd, &hello, NULL, 0);
        if (r < 0)
                return r;
        m = meet_new(rank, n);
        if (!m)
                return -ENOMEM;
        m->lost_rank = -1;
        m->on_lost = on_lost;
        m->context = context;
        m->fd = TAKE_FD(fd);
        (void)pthread_mutex_lock(&lock);
        r = start_thread();
        if (r == 0) {
                m->next = meetings;
                meetings = m;
                wake();
        }
        (void)pthread_mutex_unlock(&lock);
        if (r < 0) {
                (void)close(m->fd);
                free(m);
                return r;
        }
        *ret = m;
        return 0;
}

/* Hands what all ranks have told to the caller, and begins the next round. Lock held. */
static void take_round(struct meet *m, unsigned bytes, void *all, int *all_fds)
{
        for (int i = 0; i < m->n; i++) {
                (void)memcpy((char *)all + (size_t)i * bytes, m->said[i].data, bytes);
                if (all_fds)
                        (void)memcpy(all_fds + i * MEET_FDS, m->fds[i], sizeof(m->fds[i]));
                else
                        said_close(m->fds[i]);
                (void)memset(m->fds[i], 0xff, sizeof(m->fds[i]));
        }
        m->told = 0;
}

/* Waits while too many descriptors of this user are on their way, as the server does. Lock held. */
static int tell(struct meet *m, const struct said *said, const int *fds, unsigned n_fds)
{
        const struct timespec nap = {.tv_nsec = OFTEN_MS * NSEC_PER_MSEC};
        int r;

        while (!m->lost && !m->cancelled) {
                r = said_send(m->fd, said, fds, n_fds);
                if (r != -ETOOMANYREFS)
                        /* EPIPE: the connection has ended, and the thread has not read that yet. */
                        return r == -EPIPE ? -ECONNRESET : r;
                (void)pthread_mutex_unlock(&lock);
                (void)nanosleep(&nap, NULL);
                (void)pthread_mutex_lock(&lock);
        }
        return m->lost ? -ECONNRESET : -ECANCELED;
}

int meet_all(struct meet *m, const void *mine, unsigned bytes, const int *fds, unsigned n_fds,
             void *all, int *all_fds)
{
        struct said said = {.kind = SAID_TELL, .rank = m->rank};
        int r;

        if (bytes > MEET_TOLD_MAX)
                return -EMSGSIZE;
        (void)memcpy(said.data, mine, bytes);
        (void)pthread_mutex_lock(&lock);
        r = tell(m, &said, fds, n_fds);
        while (r == 0 && m->told < (unsigned)m->n) {
                if (m->lost)
                        r = -ECONNRESET;
                else if (m->cancelled)
                        r = -ECANCELED;
                else
                        (void)pthread_cond_wait(&m->changed, &lock);
        }
        if (r == 0)
                take_round(m, bytes, all, all_fds);
        (void)pthread_mutex_unlock(&lock);
        return r;
}

int meet_lost(struct meet *m)
{
        int rank;

        (void)pthread_mutex_lock(&lock);
        rank = m->lost_rank;
        (void)pthread_mutex_unlock(&lock);
        return rank;
}

void meet_cancel(struct meet *m)
{
        (void)pthread_mutex_lock(&lock);
        m->cancelled = true;
        (void)pthread_cond_broadcast(&m->changed);
        (void)pthread_mutex_unlock(&lock);
}

/* Tells the others that this rank leaves. Lock held. */
static void say_leave(struct meet *m, uint64_t uses)
{
        struct said bye = {.kind = SAID_LEAVE};

        (void)memcpy(bye.data, &uses, sizeof(uses));
        (void)said_send(m->fd, &bye, NULL, 0);
        step_servers(); /* pass it on now: the process may end before the thread runs */
}

bool meet_say_leave(struct meet *m, uint64_t uses)
{
        struct timespec until;

        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        if (pthread_mutex_timedlock(&lock, &until) != 0)
                return false;
        say_leave(m, uses);
        (void)pthread_mutex_unlock(&lock);
        return true;
}

uint64_t meet_uses(struct meet *m)
{
        return atomic_load_explicit(&m->uses, memory_order_relaxed);
}

void meet_leave(struct meet *m, uint64_t uses)
{
        if (!m)
                return;
        (void)pthread_mutex_lock(&lock);
        for (struct meet **at = &meetings; *at; at = &(*at)->next)
                if (*at == m) {
                        *at = m->next;
                        break;
                }
        say_leave(m, uses);
        if (m->fd >= 0)
                (void)close(m->fd);
        wake();
        (void)pthread_mutex_unlock(&lock);
        for (int i = 0; i < m->n; i++)
                said_close(m->fds[i]);
        (void)pthread_cond_destroy(&m->changed);
        free(m);
}

void meet_call_often(bool (*f)(void))
{
        atomic_store(&often, f);
        (void)pthread_mutex_lock(&lock);
        if (thread_runs)
                wake();
        (void)pthread_mutex_unlock(&lock);
}
