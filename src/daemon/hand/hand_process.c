/* hand_process.c: owns the hand's programs, and the two threads that make its calls. The main
 * thread must never make a request to a device.
 * Why: docs/decisions.md, "The daemon's hand". */
#include "daemon/hand/hand_process.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <seccomp.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/hand/hand_names.h"
#include "daemon/people/child_process.h"

#define CHILD_NAME   "subletd-hand"
#define PROGRAMS_MAX 1024
#define LOOK_NS      (2 * NSEC_PER_MSEC) /* least pause between two looks at one page */
#define LOOK_MAX_NS  NSEC_PER_SEC        /* most, for a program that is ready by turns */
#define LINGER_MS    10000 /* a hand without programs ends, so that it keeps no GPU awake */

enum job_kind { JOB_NONE, JOB_OFF, JOB_ON, JOB_PROVE };

struct job {
        enum job_kind kind; /* JOB_NONE: nothing is under way */
        bool done;
        bool late_told;
        int result;
        uint64_t began_ns, took_ns;
        unsigned proof;
        struct hand_clients proved;
        struct job *next; /* in the thread's queue */
        struct program *of;
};

struct program {
        uint64_t id;
        int line; /* to the program; -EBADF: closed */
        struct hand_page *page;
        bool used, closing, broken;
        bool wanted, off;             /* whether it is to be off, and whether it is */
        bool ready;                   /* as the daemon was told */
        uint64_t looked_ns, pause_ns; /* when its page was looked at last; until the next time */
        bool rung;                    /* it has rung since then */
        struct proof {
                uint32_t client, secret;
                bool proved;
        } proofs[HAND_CLIENTS];
        struct job switches, proves;
};

/* A thread with a client of RM's own: calls of one client wait for each other. */
struct thread {
        struct hand_rm rm;
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct job *first, **last;
};

static struct {
        struct program programs[PROGRAMS_MAX];
        struct thread switcher, prover;
        int finished; /* eventfd: a thread has finished a job */
} hand = {
        .switcher = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER},
        .prover = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER},
};

/* ---- the threads ---- */

static uint32_t change(void *rm, const struct hand_call *c, bool disable)
{
        return hand_rm_switch(rm, c, disable);
}

static int carry_out(struct thread *t, struct job *j)
{
        struct program *p = j->of;

        switch (j->kind) {
        case JOB_OFF:
                return hand_names_off(p->page, &j->proved, change, &t->rm);
        case JOB_ON:
                return hand_names_on(p->page, &j->proved, change, &t->rm);
        case JOB_PROVE:
                return hand_rm_sees(&t->rm, p->proofs[j->proof].client, p->proofs[j->proof].secret)
                               ? 0
                               : -EACCES;
        case JOB_NONE:
                break;
        }
        return -EINVAL;
}

static void *work(void *userdata)
{
        struct thread *t = userdata;
        const uint64_t one = 1;

        for (;;) {
                struct job *j;

                (void)pthread_mutex_lock(&t->lock);
                while (!t->first)
                        (void)pthread_cond_wait(&t->changed, &t->lock);
                j = t->first;
                t->first = j->next;
                if (!t->first)
                        t->last = &t->first;
                (void)pthread_mutex_unlock(&t->lock);
                j->result = carry_out(t, j);
                j->took_ns = clock_now_ns() - j->began_ns;
                __atomic_store_n(&j->done, true, __ATOMIC_RELEASE);
                (void)!write(hand.finished, &one, sizeof(one));
        }
        return NULL;
}

static void start(struct thread *t, struct job *j, enum job_kind kind)
{
        j->kind = kind;
        j->done = j->late_told = false;
        j->began_ns = clock_now_ns();
        j->next = NULL;
        (void)pthread_mutex_lock(&t->lock);
        *t->last = j;
        t->last = &j->next;
        (void)pthread_cond_signal(&t->changed);
        (void)pthread_mutex_unlock(&t->lock);
}

/* ---- reports ---- */

/* The daemon reads at once; if it does not, its hand ends, and the programs go on. */
static void report(uint64_t id, enum hand_what what, int error, uint64_t ns)
{
        const struct hand_packet m = {.id = id, .ns = ns, .what = what, .error = error};

        if (send(CHILD_FD, &m, sizeof(m), MSG_NOSIGNAL) != (ssize_t)sizeof(m))
                _exit(EXIT_FAILURE);
}

static void tell_ready(struct program *p, bool ready, int error)
{
        if (p->ready == ready && !error)
                return;
        p->ready = ready;
        report(p->id, ready ? HAND_READY : HAND_NOT_READY, error, 0);
}

/* ---- programs ---- */

static void forget(struct program *p)
{
        if (p->line >= 0)
                (void)close(p->line);
        (void)munmap(p->page, sizeof(*p->page));
        *p = (struct program){.line = -EBADF};
}

static void ring(const struct program *p)
{
        const char byte = 1;

        (void)send(p->line, &byte, sizeof(byte), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Finds the proof of a client, or asks the program for one. NULL: there is no place for it. */
static struct proof *proof_of(struct program *p, uint32_t client, bool *ret_asks)
{
        struct proof *unused = NULL;
        struct hand_proof *told;

        for (unsigned i = 0; i < HAND_CLIENTS; i++) {
                if (p->proofs[i].client == client)
                        return &p->proofs[i];
                if (!p->proofs[i].client && !unused)
                        unused = &p->proofs[i];
        }
        if (!unused)
                return NULL;
        *unused = (struct proof){.client = client};
        while (!unused->secret)
                if (getrandom(&unused->secret, sizeof(unused->secret), 0) < 0)
                        return NULL;
        /* Handles that no driver chooses by itself. */
        unused->secret = (unused->secret & 0x0fffffffU) | 0x60000000U;
        told = &p->page->proofs[unused - p->proofs];
        atomic_store(&told->made, 0);
        atomic_store(&told->proved, 0);
        atomic_store(&told->secret, unused->secret);
        atomic_store(&told->client, client);
        *ret_asks = true;
        return unused;
}

/* Looks at the page: are all clients of RM that it names proved to be the program's? */
static void look(struct program *p)
{
        uint32_t clients[HAND_CLIENTS];
        const unsigned n = hand_names_clients(p->page, clients);
        const uint64_t now = clock_now_ns();
        bool ready = n > 0 && n <= HAND_CLIENTS && atomic_load(&p->page->ready), asks = false;

        p->rung = false;
        if (now - p->looked_ns > 2 * LOOK_MAX_NS)
                p->pause_ns = LOOK_NS;
        p->looked_ns = now;
        for (unsigned i = 0; i < MIN(n, (unsigned)HAND_CLIENTS); i++) {
                struct proof *f = proof_of(p, clients[i], &asks);
                const unsigned at = f ? (unsigned)(f - p->proofs) : 0;

                ready = ready && f && f->proved;
                if (f && !f->proved && p->proves.kind == JOB_NONE &&
                    atomic_load(&p->page->proofs[at].made) == f->secret) {
                        p->proves.proof = at;
                        start(&hand.prover, &p->proves, JOB_PROVE);
                }
        }
        if (asks)
                ring(p);
        if (!ready)
                p->wanted = false;
        if (!ready && p->ready) /* each turn costs the daemon a round of the scheduler */
                p->pause_ns = MIN(2 * p->pause_ns, LOOK_MAX_NS);
        tell_ready(p, ready, 0);
}

static void start_switch(struct program *p)
{
        struct hand_clients *proved = &p->switches.proved;

        proved->count = 0;
        for (unsigned i = 0; i < HAND_CLIENTS; i++)
                if (p->proofs[i].proved)
                        proved->clients[proved->count++] = p->proofs[i].client;
        start(&hand.switcher, &p->switches, p->off ? JOB_ON : JOB_OFF);
}

/* Does what is due for a program. */
static void tend(struct program *p)
{
        const bool free = p->switches.kind == JOB_NONE;

        if (p->rung && !p->closing && !p->broken && clock_now_ns() - p->looked_ns >= p->pause_ns)
                look(p);
        if (free && !p->broken && p->off != (p->wanted && !p->closing))
                start_switch(p);
        else if (free && p->proves.kind == JOB_NONE && (p->closing || p->broken))
                forget(p);
}

static void finish_switch(struct program *p)
{
        struct job *j = &p->switches;

        if (j->result < 0) {
                /* The program's end of the line sees the end, and the program helps itself. */
                p->broken = true;
                tell_ready(p, false, j->result);
        } else {
                p->off = j->kind == JOB_OFF;
                report(p->id, HAND_DONE, 0, j->took_ns);
        }
        j->kind = JOB_NONE;
}

static void finish_proof(struct program *p)
{
        struct job *j = &p->proves;
        struct proof *f = &p->proofs[j->proof];

        if (j->result == 0) {
                f->proved = true;
                atomic_store(&p->page->proofs[j->proof].proved, 1);
                ring(p);
        } else {
                log_debug("program %llu has not proved that client 0x%x is its own",
                          (unsigned long long)p->id, f->client);
        }
        j->kind = JOB_NONE;
        p->rung = p->rung || j->result == 0;
}

static bool is_done(struct job *j)
{
        return j->kind != JOB_NONE && __atomic_load_n(&j->done, __ATOMIC_ACQUIRE);
}

static void tend_all(void)
{
        const uint64_t now = clock_now_ns();

        for (unsigned i = 0; i < PROGRAMS_MAX; i++) {
                struct program *p = &hand.programs[i];
                struct job *j = &p->switches;

                if (!p->used)
                        continue;
                if (is_done(j))
                        finish_switch(p);
                if (is_done(&p->proves))
                        finish_proof(p);
                if (j->kind != JOB_NONE && !j->late_told && now - j->began_ns > HAND_LATE_NS) {
                        j->late_told = true;
                        report(p->id, HAND_LATE, 0, now - j->began_ns);
                }
                tend(p);
        }
}

/* ---- orders ---- */

static struct program *find(uint64_t id)
{
        for (unsigned i = 0; i < PROGRAMS_MAX; i++)
                if (hand.programs[i].used && hand.programs[i].id == id && !hand.programs[i].closing)
                        return &hand.programs[i];
        return NULL;
}

static void add(uint64_t id, int page, int line)
{
        struct program *p = NULL;
        void *map;

        for (unsigned i = 0; i < PROGRAMS_MAX && !p; i++)
                if (!hand.programs[i].used)
                        p = &hand.programs[i];
        map = p ? mmap(NULL, sizeof(struct hand_page), PROT_READ | PROT_WRITE, MAP_SHARED, page, 0)
                : MAP_FAILED;
        (void)close(page);
        if (map == MAP_FAILED) {
                (void)close(line);
                return;
        }
        *p = (struct program){.used = true,
                              .id = id,
                              .line = line,
                              .page = map,
                              .rung = true,
                              .pause_ns = LOOK_NS};
        p->switches.of = p->proves.of = p;
}

/* False: the daemon has ended. */
static bool receive_order(void)
{
        struct hand_packet o;
        union descriptors room;
        struct iovec data = {&o, sizeof(o)};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
        int fds[2] = {-EBADF, -EBADF};
        struct program *p;
        ssize_t n;

        descriptors_expect(&h, &room);
        n = recvmsg(CHILD_FD, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return true;
        if (n != (ssize_t)sizeof(o))
                return false;
        if (o.what == HAND_ADD) {
                if (descriptors_take(&h, 2, fds) == 2)
                        add(o.id, fds[0], fds[1]);
                return true;
        }
        p = find(o.id);
        if (!p)
                return true;
        p->closing = p->closing || o.what == HAND_DROP;
        p->wanted = o.what == HAND_TAKE && p->ready && !p->broken;
        tend(p);
        return true;
}

/* Reads what a program rings, at most so often as the daemon can bear. */
static void hear(struct program *p)
{
        char bytes[64];
        const ssize_t n = recv(p->line, bytes, sizeof(bytes), MSG_DONTWAIT);

        if (n > 0)
                p->rung = true;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
                p->closing = true;
        if (p->closing)
                tell_ready(p, false, 0);
}

/* ---- the process ---- */

static bool allow(scmp_filter_ctx f, int call)
{
        return seccomp_rule_add(f, SCMP_ACT_ALLOW, call, 0) == 0;
}

/* From here on: talk, wait, map pages, and two requests. */
static bool close_in(void)
{
        static const int calls[] = {
                SCMP_SYS(read),
                SCMP_SYS(write),
                SCMP_SYS(recvmsg),
                SCMP_SYS(recvfrom),
                SCMP_SYS(sendmsg),
                SCMP_SYS(sendto),
                SCMP_SYS(poll),
                SCMP_SYS(ppoll),
                SCMP_SYS(futex),
                SCMP_SYS(close),
                SCMP_SYS(mmap),
                SCMP_SYS(munmap),
                SCMP_SYS(madvise),
                SCMP_SYS(mprotect),
                SCMP_SYS(brk),
                SCMP_SYS(getrandom),
                SCMP_SYS(clock_gettime),
                SCMP_SYS(clock_nanosleep),
                SCMP_SYS(nanosleep),
                SCMP_SYS(restart_syscall),
                SCMP_SYS(rt_sigreturn),
                SCMP_SYS(exit),
                SCMP_SYS(exit_group),
                SCMP_SYS(sched_yield),
                /* A thread that has just been started makes these; without them libc ends the
                   process. */
                SCMP_SYS(rseq),
                SCMP_SYS(set_robust_list),
                SCMP_SYS(gettid),
        };
        scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
        bool ok = f && seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1) == 0;

        for (unsigned i = 0; ok && i < ARRAY_SIZE(calls); i++)
                ok = allow(f, calls[i]);
        for (unsigned i = 0; ok && i < ARRAY_SIZE(hand_rm_requests); i++)
                ok = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                                      SCMP_A1(SCMP_CMP_EQ, hand_rm_requests[i])) == 0;
        ok = ok && seccomp_load(f) == 0;
        seccomp_release(f);
        return ok;
}

/* 0 or -errno, as HAND_BEGUN reports it. */
static int begin(void)
{
        struct thread *const threads[] = {&hand.switcher, &hand.prover};
        pthread_t id;
        int r = hand_rm_setup();

        hand.finished = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(threads); i++)
                r = hand_rm_new(&threads[i]->rm);
        if (r == 0 && !hand_rm_is_right(&hand.prover.rm, &hand.switcher.rm))
                r = -EPROTO;
        child_process_drop_capabilities(); /* of this thread, and so of those that it starts */
        for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(threads); i++) {
                threads[i]->last = &threads[i]->first;
                r = pthread_create(&id, NULL, work, threads[i]) == 0 ? 0 : -EAGAIN;
        }
        if (r == 0 && (hand.finished < 0 || !close_in()))
                r = -ENOTSUP;
        return r;
}

/* Returns how long nothing is to be done, in milliseconds; -1: until something happens; LINGER_MS:
 * there are no programs. */
static int pause_ms(void)
{
        const uint64_t now = clock_now_ns();
        uint64_t until_ns = UINT64_MAX;
        bool any = false;

        for (unsigned i = 0; i < PROGRAMS_MAX; i++) {
                const struct program *p = &hand.programs[i];

                if (!p->used)
                        continue;
                any = true;
                if (p->rung && !p->closing && !p->broken)
                        until_ns = MIN(until_ns, p->looked_ns + p->pause_ns);
                if (p->switches.kind != JOB_NONE && !p->switches.late_told)
                        until_ns = MIN(until_ns, p->switches.began_ns + HAND_LATE_NS);
        }
        if (!any)
                return LINGER_MS;
        if (until_ns == UINT64_MAX)
                return -1;
        return until_ns > now ? (int)((until_ns - now) / NSEC_PER_MSEC) + 1 : 1;
}

void hand_process(int fd, pid_t parent, void *userdata)
{
        static struct pollfd polls[PROGRAMS_MAX + 2];
        static struct program *heard[PROGRAMS_MAX];
        uint64_t count;
        int begun;

        (void)prctl(PR_SET_NAME, CHILD_NAME);
        child_process_begin(fd, parent);
        begun = begin();
        report(0, HAND_BEGUN, begun, 0);
        if (begun < 0)
                _exit(EXIT_FAILURE);
        for (;;) {
                unsigned n = 0;
                int ms, r;

                tend_all();
                polls[0] = (struct pollfd){.fd = CHILD_FD, .events = POLLIN};
                polls[1] = (struct pollfd){.fd = hand.finished, .events = POLLIN};
                for (unsigned i = 0; i < PROGRAMS_MAX; i++) {
                        struct program *p = &hand.programs[i];

                        /* One that has rung is heard again after the next look. */
                        if (!p->used || p->rung || p->closing || p->broken)
                                continue;
                        heard[n] = p;
                        polls[2 + n++] = (struct pollfd){.fd = p->line, .events = POLLIN};
                }
                ms = pause_ms();
                r = poll(polls, n + 2, ms);
                if (r < 0 && errno != EINTR)
                        _exit(EXIT_FAILURE);
                if (r == 0 && ms == LINGER_MS)
                        _exit(EXIT_SUCCESS);
                if (r <= 0)
                        continue;
                if (polls[0].revents && !receive_order())
                        _exit(EXIT_SUCCESS);
                if (polls[1].revents)
                        (void)!read(hand.finished, &count, sizeof(count));
                for (unsigned i = 0; i < n; i++)
                        if (polls[2 + i].revents && heard[i]->used)
                                hear(heard[i]);
        }
}
