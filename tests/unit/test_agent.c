/* test_agent.c: the agent, one round of its loop at a time, with a daemon that is a list of
 * messages and a clock that is a number: when memory may leave and come back, what a drain comes
 * to, what is said, and that whoever waits for an answer hears of it. */
#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/host.h"
#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/neighbours.h"
#include "preload/agent.h"
#include "preload/agent_state.h"
#include "preload/bound.h"
#include "preload/gate.h"
#include "preload/link.h"
#include "preload/name.h"
#include "preload/pin.h"
#include "preload/swap.h"

#define SENT_MOST 256u
#define BOX_MOST  32u
#define LEASE     UINT64_C(77)
#define INSTANCE  UINT64_C(4711)
#define FOR_EVER  (UINT64_MAX / 2)

static struct gpu *const gpu = &core.gpus[0];
static struct extent *extent; /* the first of the heap's only block */

/* ---- the clock, and the agent's sleep ---- */

static uint64_t now_ns;
static uint64_t slept_ns; /* how long it wanted to, last */
static sem_t asleep, go;
static const char *wrong; /* seen in the agent's thread, where no test can fail */

int clock_gettime(clockid_t which, struct timespec *ret)
{
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask)
{
        if (atomic_load(&core.lock.word) != 0)
                wrong = "it sleeps with the lock held";
        slept_ns = ts ? (uint64_t)ts->tv_sec * NSEC_PER_SEC + (uint64_t)ts->tv_nsec : UINT64_MAX;
        (void)sem_post(&asleep);
        while (sem_wait(&go) < 0)
                ;
        return 0;
}

static void rounds(unsigned n)
{
        while (n-- > 0) {
                (void)sem_post(&go);
                while (sem_wait(&asleep) < 0)
                        ;
                if (wrong)
                        fail_msg("%s", wrong);
        }
}

static void one_round(const struct core_wait *w)
{
        rounds(1);
}

/* ---- the daemon ---- */

static struct wire_message sent[SENT_MOST], box[BOX_MOST];
static int box_fds[BOX_MOST];
static unsigned sent_count, sent_fds, box_first, box_count;
static int connects, sends; /* what trying that answers */
static bool breaks;         /* the connection, when next read from */

int link_connect(char where[static 128], int *ret_fd)
{
        if (atomic_load(&core.lock.word) != 0)
                wrong = "it connects with the lock held";
        (void)strcpy(where, "nowhere");
        if (connects < 0)
                return connects;
        *ret_fd = eventfd(0, EFD_CLOEXEC);
        return 0;
}

int link_send(int fd, const struct wire_message *m, const int *fds, unsigned n_fds)
{
        if (sends < 0 && (sends != -EPERM || n_fds))
                return sends;
        if (sent_count < SENT_MOST)
                sent[sent_count++] = *m;
        else
                wrong = "it says too much";
        sent_fds = n_fds;
        return 0;
}

int link_receive(int fd, enum wire_direction direction, struct wire_message *ret,
                 struct passed *ret_came)
{
        ret_came->count = 0;
        if (breaks) {
                breaks = false;
                return -ECONNRESET;
        }
        if (box_first == box_count)
                return 0;
        *ret = box[box_first];
        if (box_fds[box_first] >= 0)
                passed_add(ret_came, box_fds[box_first]);
        box_first++;
        return 1;
}

static struct wire_message *tell(unsigned type)
{
        struct wire_message *m;

        if (box_first == box_count)
                box_first = box_count = 0;
        assert_true(box_count < BOX_MOST);
        box_fds[box_count] = -1;
        m = &box[box_count++];
        *m = (struct wire_message){.header = {.type = (uint16_t)type}};
        return m;
}

/* The last one of a type since forget_sent(); NULL: there was none. */
static const struct wire_message *said(unsigned type)
{
        for (unsigned i = sent_count; i-- > 0;)
                if (sent[i].header.type == type)
                        return &sent[i];
        return NULL;
}

static unsigned times_said(unsigned type)
{
        unsigned n = 0;

        for (unsigned i = 0; i < sent_count; i++)
                n += sent[i].header.type == type;
        return n;
}

static void forget_sent(void)
{
        sent_count = 0;
}

/* ---- other neighbours ---- */

static bool inside, steps_evict, steps_restore;
static unsigned defaults;
static uint64_t submissions, bound_now;
static enum quiet quiet_now;
static enum swap_progress step_now;
static struct quiet_wait *last_wait;

static bool submits_at_last;

void gate_shut(enum gate_bits why)
{
        atomic_fetch_or(&gate_bits, why);
        submissions += submits_at_last && why == GATE_TELL;
}

bool gate_anybody_inside(void)
{
        return inside;
}

unsigned gate_default_streams(void)
{
        return defaults;
}

uint64_t gate_submissions(void)
{
        return submissions;
}

static void (*while_it_begins)(void);

void quiet_begin(struct quiet_wait *w, bool still)
{
        if (!still)
                wrong = "it waits beside a program that goes on";
        *w = (struct quiet_wait){.still = still};
        last_wait = w;
        if (while_it_begins)
                while_it_begins(); /* older drivers: the lock is given up */
        while_it_begins = NULL;
}

enum quiet quiet_poll(struct quiet_wait *w)
{
        return fake_capturing ? QUIET_CAPTURE : quiet_now;
}

void bound_set(uint64_t bound_ns)
{
        bound_now = bound_ns;
}

enum swap_progress swap_step(struct gpu *g, bool may_evict, bool restore)
{
        steps_evict = may_evict;
        steps_restore = restore;
        if (may_evict && (core.running || core.lease))
                wrong = "memory leaves that is in use";
        return step_now;
}

void swap_trim_arena(struct gpu *g)
{
}

uint64_t swap_arena_bytes(const struct gpu *g)
{
        return 5 * MIB;
}

void name_of_program(char *ret, size_t n)
{
        (void)snprintf(ret, n, "unit");
}

int host_memory_read(struct host_memory *ret)
{
        return 0;
}

uint64_t host_memory_room(const struct host_memory *m)
{
        return 3 * GIB;
}

/* ---- scenes ---- */

static void wake(void)
{
        lock_acquire(&core.lock);
        agent_kick();
        lock_release(&core.lock);
        rounds(1);
}

static void put(enum extent_state state)
{
        struct heap *h = &gpu->heap;

        for (unsigned i = 0; i < extent->block->extent_count; i++)
                extent->block->extents[i].state = state;
        h->backed = h->resident = state == EXTENT_RESIDENT ? h->allocated : 0;
}

static void want_to_run(unsigned waiters)
{
        core.waiters = waiters;
        wake();
}

static void limit(uint64_t commit, uint64_t backed, uint64_t fixed, uint32_t sequence)
{
        struct wire_message *m = tell(WIRE_LIMIT);

        m->header.sequence = sequence;
        m->LIMIT.commit = commit;
        m->LIMIT.backed = backed;
        m->LIMIT.fixed = fixed;
        m->LIMIT.visible_bytes = 900 * MIB;
        m->LIMIT.arena = UINT64_MAX;
        rounds(1);
}

static void grant(void)
{
        tell(WIRE_GRANT)->GRANT.lease = LEASE;
        rounds(1);
}

static void end_turn(uint64_t lease)
{
        struct wire_message *m = tell(WIRE_REVOKE);

        m->REVOKE.lease = lease;
        m->REVOKE.patience_ns = 2 * NSEC_PER_SEC;
        rounds(1);
}

static void welcome(void)
{
        struct wire_message *m = tell(WIRE_WELCOME);

        m->WELCOME.magic = WIRE_MAGIC;
        m->WELCOME.instance = INSTANCE;
        m->WELCOME.major = WIRE_MAJOR;
        m->WELCOME.minor = WIRE_MINOR;
        rounds(1);
}

static void attached(void)
{
        struct wire_message *m = tell(WIRE_ATTACHED);

        m->ATTACHED.visible_bytes = 900 * MIB;
        m->ATTACHED.context_bytes = 300 * MIB;
        m->ATTACHED.block_bytes = 32 * MIB;
        m->ATTACHED.bound_ns = 10 * NSEC_PER_MSEC;
        rounds(1);
}

/* Waits for a turn: nothing of its 32 MiB is there. */
static void begin_attached(void)
{
        rounds(1);
        welcome();
        attached();
        gpu->commit_wanted = 64 * MIB;
        limit(64 * MIB, 0, 300 * MIB, 1);
        want_to_run(1);
}

static void begin_running(void)
{
        begin_attached();
        limit(64 * MIB, 64 * MIB, 300 * MIB, 2);
        put(EXTENT_RESIDENT);
        grant();
        core.waiters = 0;
        assert_true(core.running);
        rounds(1);
        forget_sent();
}

static int begin(void **state)
{
        CUdeviceptr at;
        uint64_t cost;
        struct heap_cursor c = {0};

        core = (struct core){.gpu_count = 1};
        agent = (struct agent_state){.fd = -1, .wake = -1};
        driver_reset(GIB);
        trace_reset();
        atomic_store(&gate_bits, GATE_NO_LEASE);
        now_ns = 1000 * NSEC_PER_SEC;
        wrong = NULL;
        sent_count = box_first = box_count = 0;
        connects = sends = 0;
        breaks = inside = fake_capturing = steps_evict = steps_restore = false;
        defaults = 0;
        submissions = bound_now = 0;
        quiet_now = QUIET_BUSY;
        step_now = SWAP_NOTHING;
        meanwhile = one_round;
        gpu->known = true;
        gpu->total = GIB;
        gpu->own_limit = UINT64_MAX;
        heap_init(&gpu->heap, GIB);
        assert_int_equal(heap_allocate(&gpu->heap, 32 * MIB, NULL, UINT64_MAX, &at, &cost), 0);
        extent = heap_walk(&gpu->heap, &c);
        (void)sem_init(&asleep, 0, 0);
        (void)sem_init(&go, 0, 0);
        lock_acquire(&core.lock);
        assert_int_equal(agent_start(), 0);
        assert_int_equal(agent_start(), 0); /* once */
        lock_release(&core.lock);
        while (sem_wait(&asleep) < 0)
                ;
        return 0;
}

static int end(void **state)
{
        atomic_store(&core.exiter, 1);
        (void)sem_post(&go);
        agent_stop();
        assert_false(agent.started);
        assert_int_equal(agent.fd, -1);
        assert_int_equal(sem_trywait(&asleep), -1);
        passed_close(&gpu->leaving);
        passed_close(&gpu->passed);
        (void)close(agent.wake);
        return 0;
}

/* ---- joining ---- */

static void it_says_who_it_is_and_what_it_has(void **state)
{
        const struct wire_message *m = said(WIRE_HELLO);

        assert_non_null(m);
        assert_int_equal(m->HELLO.magic, WIRE_MAGIC);
        assert_int_equal(m->HELLO.major, WIRE_MAJOR);
        assert_int_equal(m->HELLO.pid, getpid());
        assert_int_equal(m->HELLO.previous_instance, 0);
        assert_string_equal(m->HELLO.name, "unit");
        assert_int_equal(times_said(WIRE_ATTACH), 0);
        gpu->fixed = gpu->fixed_wanted = 3 * MIB;
        put(EXTENT_RESIDENT);
        welcome();
        m = said(WIRE_ATTACH);
        assert_int_equal(m->ATTACH.allocated, 32 * MIB);
        assert_int_equal(m->ATTACH.backed, 32 * MIB);
        assert_int_equal(m->ATTACH.fixed, 3 * MIB);
        assert_int_equal(m->ATTACH.arena, 5 * MIB);
        assert_int_equal(m->ATTACH.total_bytes, GIB);
        assert_false(gpu->managed);
        /* Before the answer it has what it has and no more. */
        assert_int_equal(gpu->commit, 32 * MIB);
        assert_int_equal(gpu->limit, 32 * MIB);
        assert_int_equal(gpu->fixed_allowed, 3 * MIB);
        attached();
        assert_true(gpu->managed && gpu->attached);
        assert_int_equal(gpu->visible, 900 * MIB);
        assert_int_equal(gpu->block_bytes, 32 * MIB);
        assert_true(atomic_load(&gate_bits) & GATE_NO_LEASE);
}

static void a_thread_that_attaches_waits_for_the_answer(void **state)
{
        welcome();
        (void)tell(WIRE_ATTACHED);
        lock_acquire(&core.lock);
        agent_attach(gpu);
        lock_release(&core.lock);
        assert_true(gpu->managed);
        assert_int_equal(times_said(WIRE_ATTACH), 1); /* it was asked for already */
}

static void without_a_daemon_a_program_has_the_card(void **state)
{
        breaks = true;
        connects = -ENOENT;
        rounds(1);
        now_ns += 20 * NSEC_PER_SEC;
        rounds(1);
        assert_int_equal(gpu->limit, UINT64_MAX);
        assert_int_equal(gpu->commit, UINT64_MAX);
        assert_int_equal(gpu->fixed_allowed, UINT64_MAX);
        assert_true(gpu->managed);
        assert_int_equal(gpu->visible, GIB);
        assert_true(core.running);
        assert_false(atomic_load(&gate_bits) & GATE_NO_LEASE);
        assert_int_equal(core.host.most, 3 * GIB);
        /* And shares it again when there is one. */
        connects = 0;
        now_ns += 100 * NSEC_PER_SEC;
        rounds(1);
        welcome();
        attached();
        assert_int_equal(gpu->limit, 0); /* what it has */
        assert_int_equal(gpu->commit_wanted, 32 * MIB);
}

/* ---- turns ---- */

static void memory_comes_back_for_whoever_waits_and_no_one_else(void **state)
{
        begin_attached();
        assert_true(steps_restore);
        want_to_run(0);
        assert_false(steps_restore);
        assert_true(steps_evict); /* as far as the limit says */
        want_to_run(1);
        assert_true(steps_restore);
}

/* The lease has come, and half of the memory is still out: nothing may leave again. */
static void nothing_leaves_while_it_holds_a_lease(void **state)
{
        begin_attached();
        put(EXTENT_EVICTED);
        want_to_run(1);
        grant();
        assert_int_equal(core.lease, LEASE);
        assert_false(core.running);
        want_to_run(0); /* whoever waited has gone */
        assert_false(steps_evict);
        assert_true(steps_restore);
        put(EXTENT_RESIDENT);
        rounds(1);
        assert_true(core.running);
        rounds(1);
        assert_false(steps_evict || steps_restore);
}

static void it_runs_once_all_is_back(void **state)
{
        uint32_t heard;

        begin_attached();
        atomic_fetch_or(&gate_bits, GATE_UNBACKED);
        put(EXTENT_RESIDENT);
        extent->state = EXTENT_EVICTED;
        gpu->heap.resident -= extent->bytes;
        grant();
        assert_false(core.running);
        extent->state = EXTENT_RESIDENT;
        extent->busy = true;
        rounds(1);
        assert_false(core.running);
        assert_true(atomic_load(&gate_bits) & GATE_NO_LEASE);
        extent->busy = false;
        heard = bell_listen(&core.changed);
        rounds(1);
        assert_true(core.running);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_false(atomic_load(&gate_bits) & GATE_NO_LEASE);
        assert_true(atomic_load(&gate_bits) & GATE_UNBACKED); /* what is new is missing */
        core.running = false;
        put(EXTENT_RESIDENT);
        rounds(1);
        assert_int_equal(atomic_load(&gate_bits), 0);
}

static void a_turn_ends_when_the_work_has(void **state)
{
        begin_running();
        inside = true;
        end_turn(LEASE);
        assert_false(core.running);
        assert_true(atomic_load(&gate_bits) & GATE_NO_LEASE);
        assert_false(steps_evict);
        quiet_now = QUIET_DONE;
        rounds(3);
        assert_int_equal(times_said(WIRE_DRAINED), 0); /* a thread is inside */
        inside = false;
        quiet_now = QUIET_BUSY;
        rounds(3);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        assert_false(steps_evict || steps_restore);
        quiet_now = QUIET_DONE;
        now_ns += 5 * NSEC_PER_MSEC;
        rounds(1);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
        assert_int_equal(said(WIRE_DRAINED)->DRAINED.lease, LEASE);
        assert_int_equal(core.lease, 0);
        assert_int_equal(agent.last_drain_ns, 5 * NSEC_PER_MSEC);
        assert_true(steps_evict);
        assert_int_equal(trace_count("drain_end"), 1);
}

static void a_revocation_of_another_lease_means_nothing(void **state)
{
        begin_running();
        end_turn(LEASE + 1);
        assert_true(core.running);
        assert_false(agent.revoking);
        end_turn(LEASE);
        assert_true(agent.revoking);
        rounds(1);
        now_ns += NSEC_PER_MSEC;
        end_turn(LEASE); /* said twice, it goes on from the first */
        assert_int_equal(agent.revoked_ns, now_ns - NSEC_PER_MSEC);
}

static void a_long_kernel_that_nobody_waits_behind_is_awaited(void **state)
{
        begin_running();
        end_turn(LEASE);
        for (unsigned i = 0; i < 20; i++) {
                now_ns += NSEC_PER_SEC;
                rounds(1);
        }
        assert_true(agent.revoking);
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 0);
        assert_int_equal(core.pass_round, 0);
}

/* Work in flight may wait for what is held at the gate. */
static void threads_at_the_gate_are_let_through_before_a_drain_fails(void **state)
{
        uint32_t heard;

        begin_running();
        end_turn(LEASE);
        core.waiters = 1;
        now_ns += 1900 * NSEC_PER_MSEC;
        rounds(1);
        assert_int_equal(core.pass_round, 0); /* patience */
        now_ns += 200 * NSEC_PER_MSEC;
        heard = bell_listen(&core.changed);
        rounds(1);
        assert_int_equal(core.pass_round, 1);
        assert_true(core.passing);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        rounds(2);
        assert_int_equal(core.pass_round, 1); /* not at once again */
        for (unsigned i = 0; i < 7; i++) {
                now_ns += 200 * NSEC_PER_MSEC;
                rounds(1);
        }
        assert_int_equal(core.pass_round, 8);
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 0);
        now_ns += 200 * NSEC_PER_MSEC;
        heard = bell_listen(&core.changed);
        rounds(1);
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 1);
        assert_int_equal(said(WIRE_DRAIN_FAILED)->DRAIN_FAILED.lease, LEASE);
        assert_int_equal(said(WIRE_DRAIN_FAILED)->DRAIN_FAILED.reason, WIRE_DRAIN_NO_PROGRESS);
        assert_int_equal(said(WIRE_DRAIN_FAILED)->DRAIN_FAILED.after_ns, now_ns - agent.revoked_ns);
        assert_true(core.running);
        assert_false(core.passing);
        assert_int_equal(core.lease, LEASE);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_false(atomic_load(&gate_bits) & GATE_NO_LEASE);
}

static void whoever_was_let_through_is_waited_for_anew(void **state)
{
        begin_running();
        end_turn(LEASE);
        core.waiters = 1;
        now_ns += 3 * NSEC_PER_SEC;
        rounds(1);
        assert_int_equal(core.pass_round, 1);
        core.passed = true;
        last_wait = NULL;
        quiet_now = QUIET_DONE;
        rounds(1);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        assert_false(core.passed);
        rounds(1);
        assert_ptr_equal(last_wait, &agent.drain); /* begun again */
        assert_int_equal(times_said(WIRE_DRAINED), 1);
        assert_false(core.passing);
        /* The next drain is stuck sooner. */
        assert_int_not_equal(agent.entangled, 0);
        grant();
        quiet_now = QUIET_BUSY;
        core.waiters = 1;
        end_turn(LEASE);
        now_ns += 150 * NSEC_PER_MSEC;
        rounds(1);
        assert_int_equal(core.pass_round, 2);
}

static void one_is_let_through(void)
{
        core.passed = true;
}

static void work_let_through_while_a_wait_begins_is_waited_for(void **state)
{
        begin_running();
        quiet_now = QUIET_DONE;
        while_it_begins = one_is_let_through;
        end_turn(LEASE);
        rounds(1);
        assert_null(while_it_begins);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        rounds(2);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
}

static void a_drain_that_is_cancelled_while_its_wait_begins_is_over(void **state)
{
        begin_running();
        quiet_now = QUIET_DONE;
        while_it_begins = agent_end_drain;
        end_turn(LEASE);
        rounds(1);
        assert_null(while_it_begins);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        assert_int_equal(core.lease, LEASE);
        assert_true(core.running);
}

static void progress_renews_the_patience(void **state)
{
        begin_running();
        end_turn(LEASE);
        core.waiters = 1;
        for (unsigned i = 0; i < 10; i++) {
                now_ns += 1500 * NSEC_PER_MSEC;
                agent.drain.progress++;
                rounds(1);
        }
        assert_int_equal(core.pass_round, 0);
        for (unsigned i = 0; i < 10; i++) {
                now_ns += 1500 * NSEC_PER_MSEC;
                submissions++; /* a thread has left the driver */
                rounds(1);
        }
        assert_int_equal(core.pass_round, 0);
}

/* Not even if it goes on capturing. */
static void a_capture_that_does_not_end_is_a_failed_drain(void **state)
{
        begin_running();
        fake_capturing = true;
        end_turn(LEASE);
        for (unsigned i = 0; i < 3; i++) {
                now_ns += 900 * NSEC_PER_MSEC;
                submissions++;
                assert_int_equal(times_said(WIRE_DRAIN_FAILED), 0);
                rounds(1);
        }
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 1);
        assert_int_equal(said(WIRE_DRAIN_FAILED)->DRAIN_FAILED.reason, WIRE_DRAIN_CAPTURE);
        assert_int_equal(core.pass_round, 0);
        assert_true(core.running);
}

static void a_program_with_nothing_in_flight_is_idle_until_it_submits(void **state)
{
        begin_running();
        quiet_now = QUIET_DONE;
        submissions = 5;
        for (unsigned i = 0; i < 2; i++) {
                now_ns += TICK_NS;
                rounds(1);
        }
        assert_int_equal(times_said(WIRE_IDLE), 1);
        assert_int_equal(said(WIRE_IDLE)->IDLE.lease, LEASE);
        assert_true(atomic_load(&gate_bits) & GATE_TELL);
        now_ns += TICK_NS;
        rounds(1);
        assert_int_equal(times_said(WIRE_IDLE), 1); /* once */
        agent_active();
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
        assert_int_equal(said(WIRE_ACTIVE)->ACTIVE.lease, LEASE);
        assert_false(atomic_load(&gate_bits) & GATE_TELL);
        agent_active();
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
        rounds(1);
        assert_int_equal(times_said(WIRE_IDLE), 1);
}

static void a_busy_program_is_not_idle(void **state)
{
        begin_running();
        for (unsigned i = 0; i < 12; i++) {
                now_ns += TICK_NS;
                quiet_now = i % 3 == 0 ? QUIET_BUSY : QUIET_DONE;
                inside = i % 3 == 1;
                fake_capturing = i % 3 == 2;
                if (i > 6)
                        submissions++;
                rounds(1);
        }
        assert_int_equal(times_said(WIRE_IDLE), 0);
        assert_false(atomic_load(&gate_bits) & GATE_TELL);
}

static void whoever_submits_at_the_last_moment_is_not_idle(void **state)
{
        begin_running();
        quiet_now = QUIET_DONE;
        submits_at_last = true;
        for (unsigned i = 0; i < 4; i++) {
                now_ns += TICK_NS;
                rounds(1);
        }
        submits_at_last = false;
        assert_int_equal(times_said(WIRE_IDLE), 0);
        assert_false(agent.idle || agent.idle_said);
        assert_false(atomic_load(&gate_bits) & GATE_TELL);
}

static void a_contested_card_keeps_work_in_flight_short(void **state)
{
        begin_running();
        tell(WIRE_CONTESTED)->CONTESTED.contested = WIRE_CONTESTED_NOW;
        rounds(1);
        assert_int_equal(bound_now, 10 * NSEC_PER_MSEC);
        tell(WIRE_CONTESTED)->CONTESTED.contested = WIRE_CONTESTED_MAY;
        rounds(1);
        assert_int_equal(bound_now, 10 * NSEC_PER_MSEC * WIRE_MAY_TIMES);
        tell(WIRE_CONTESTED);
        rounds(1);
        assert_int_equal(bound_now, 0);
}

/* ---- the daemon goes, and comes back ---- */

static void whoever_runs_goes_on_without_the_daemon(void **state)
{
        begin_running();
        tell(WIRE_CONTESTED)->CONTESTED.contested = WIRE_CONTESTED_NOW;
        rounds(1);
        breaks = true;
        connects = -ECONNREFUSED;
        rounds(1);
        assert_int_equal(agent.link, LINK_DOWN);
        assert_true(core.running);
        assert_int_equal(bound_now, 0);
        assert_int_equal(gpu->limit, 64 * MIB);
        assert_in_range(slept_ns, 1, 2 * NSEC_PER_SEC); /* it tries again */
        for (unsigned i = 0; i < 20; i++) {
                now_ns += NSEC_PER_SEC;
                rounds(1);
        }
        assert_int_equal(gpu->limit, UINT64_MAX); /* and grows */
        connects = 0;
        forget_sent();
        now_ns += 40 * NSEC_PER_SEC;
        rounds(1);
        assert_int_equal(said(WIRE_HELLO)->HELLO.previous_instance, INSTANCE);
        welcome();
        assert_true(said(WIRE_ATTACH)->ATTACH.flags & WIRE_FLAG_RUNNING);
        assert_int_equal(said(WIRE_ATTACH)->ATTACH.backed, 32 * MIB);
        assert_int_equal(core.lease, 0);
        assert_int_equal(gpu->limit, 32 * MIB);
        attached();
        now_ns += NSEC_PER_SEC;
        gpu->usage_dirty = true;
        rounds(1);
        assert_int_equal(said(WIRE_USAGE)->USAGE.limit_sequence, 0); /* it has heard of none yet */
        connects = -ECONNREFUSED;
        breaks = true;
        rounds(1);
        assert_in_range(slept_ns, 1, 100 * NSEC_PER_MSEC); /* at first it looks again soon */
}

static void whoever_waits_stays_as_it_is_without_the_daemon(void **state)
{
        begin_attached();
        breaks = true;
        connects = -ECONNREFUSED;
        rounds(1);
        for (unsigned i = 0; i < 20; i++) {
                now_ns += NSEC_PER_SEC;
                rounds(1);
                assert_false(core.running);
                assert_false(steps_evict || steps_restore);
        }
        assert_int_equal(gpu->limit, 0);
}

static void a_drain_for_a_daemon_that_is_gone_ends(void **state)
{
        uint32_t heard;

        begin_running();
        end_turn(LEASE);
        assert_true(agent.revoking);
        breaks = true;
        connects = -ECONNREFUSED;
        heard = bell_listen(&core.changed);
        rounds(1);
        assert_false(agent.revoking);
        assert_true(core.running);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_false(atomic_load(&gate_bits) & GATE_NO_LEASE);
}

static void a_daemon_that_does_not_read_is_lost(void **state)
{
        begin_running();
        sends = -EPIPE;
        agent_active();
        agent.idle_said = true;
        agent_active();
        assert_int_equal(agent.link, LINK_DOWN);
        sends = 0;
}

/* ---- room ---- */

static const uint64_t *asked; /* what the daemon allows, each time that it is asked */

static void answer_commit(const struct core_wait *w)
{
        forget_sent();
        rounds(1);
        if (!said(WIRE_WANT))
                return;
        if (*asked) {
                limit(*asked, 64 * MIB, 300 * MIB, 9);
        } else {
                struct wire_message *m = tell(WIRE_REFUSED);

                m->REFUSED.code = WIRE_REFUSED_COMMIT;
                m->REFUSED.of = said(WIRE_WANT)->header.sequence;
                rounds(1);
        }
        asked++;
}

static int ask_commit(uint64_t bytes)
{
        int r;

        lock_acquire(&core.lock);
        r = agent_ask_commit(gpu, bytes);
        lock_release(&core.lock);
        assert_int_equal(gpu->commit_askers, 0);
        return r;
}

static void room_to_allocate_is_asked_for_and_waited_for(void **state)
{
        static const uint64_t answers[] = {80 * MIB, 96 * MIB, 0};

        begin_running();
        asked = answers;
        meanwhile = answer_commit;
        assert_int_equal(ask_commit(64 * MIB), 0); /* is there */
        assert_ptr_equal(asked, answers);
        assert_int_equal(ask_commit(80 * MIB), 0);
        assert_int_equal(gpu->commit, 80 * MIB);
        assert_int_equal(ask_commit(96 * MIB), 0);
        assert_int_equal(ask_commit(128 * MIB), -ENOMEM);
        assert_int_equal(gpu->commit, 96 * MIB);
        assert_int_equal(gpu->commit_wanted, 96 * MIB);
}

static void the_refusal_of_an_earlier_request_is_no_answer(void **state)
{
        struct wire_message *m;
        unsigned before;

        begin_running();
        gpu->commit_wanted = 128 * MIB;
        gpu->want_dirty = true;
        wake();
        before = gpu->refused_commit.count;
        m = tell(WIRE_REFUSED);
        m->REFUSED.code = WIRE_REFUSED_COMMIT;
        m->REFUSED.of = said(WIRE_WANT)->header.sequence - 1;
        rounds(1);
        assert_int_equal(gpu->refused_commit.count, before);
        assert_int_equal(gpu->commit_wanted, 128 * MIB);
        m = tell(WIRE_REFUSED);
        m->REFUSED.code = WIRE_REFUSED_COMMIT;
        m->REFUSED.of = said(WIRE_WANT)->header.sequence;
        rounds(1);
        assert_int_equal(gpu->refused_commit.count, before + 1);
        assert_int_equal(gpu->refused_commit.bytes, 128 * MIB);
        assert_int_equal(gpu->commit_wanted, gpu->commit);
}

static bool allows_fixed;

static void answer_fixed(const struct core_wait *w)
{
        struct wire_message *m;

        forget_sent();
        rounds(1);
        if (!said(WIRE_WANT))
                return;
        if (allows_fixed) {
                limit(64 * MIB, 64 * MIB, said(WIRE_WANT)->WANT.fixed, 9);
                return;
        }
        m = tell(WIRE_REFUSED);
        m->REFUSED.code = WIRE_REFUSED_FIXED;
        m->REFUSED.of = said(WIRE_WANT)->header.sequence;
        rounds(1);
}

static void room_for_what_cannot_be_moved_is_taken_once_it_is_there(void **state)
{
        uint32_t heard;

        begin_running();
        lock_acquire(&core.lock);
        assert_int_equal(agent_take_fixed(gpu, 300 * MIB), 0); /* is there */
        assert_int_equal(gpu->fixed, 300 * MIB);
        meanwhile = answer_fixed;
        allows_fixed = true;
        assert_int_equal(agent_take_fixed(gpu, 20 * MIB), 0);
        assert_int_equal(gpu->fixed, 320 * MIB);
        assert_int_equal(said(WIRE_WANT)->WANT.fixed, 320 * MIB);
        allows_fixed = false;
        assert_int_equal(agent_take_fixed(gpu, 50 * MIB), -ENOMEM);
        assert_int_equal(gpu->fixed, 320 * MIB);
        assert_int_equal(gpu->fixed_wanted, 320 * MIB);
        heard = bell_listen(&core.changed);
        agent_return_fixed(gpu, 100 * MIB);
        assert_int_equal(gpu->fixed, 220 * MIB);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        agent_return_fixed(gpu, 900 * MIB);
        assert_int_equal(gpu->fixed, 0);
        lock_release(&core.lock);
        now_ns += NSEC_PER_SEC;
        rounds(1);
        assert_int_equal(said(WIRE_WANT)->WANT.fixed, 0);
        assert_int_equal(said(WIRE_USAGE)->USAGE.fixed, 0);
}

static uint64_t host_allows;

static void answer_host(const struct core_wait *w)
{
        struct wire_message *m;

        forget_sent();
        rounds(1);
        if (!said(WIRE_HOST))
                return;
        m = tell(WIRE_HOST_LIMIT);
        m->HOST_LIMIT.bytes = MIN(host_allows, said(WIRE_HOST)->HOST.wanted);
        m->HOST_LIMIT.most = 7 * GIB;
        m->HOST_LIMIT.of = said(WIRE_HOST)->header.sequence;
        rounds(1);
}

static void host_memory_is_asked_for_before_it_is_mapped(void **state)
{
        begin_attached();
        put(EXTENT_RESIDENT);
        gpu->overflow = true;
        gpu->heap.mapped = 4 * MIB;
        core.host.wanted = 0;
        meanwhile = answer_host;
        host_allows = 20 * MIB;
        lock_acquire(&core.lock);
        assert_int_equal(agent_ask_host(10 * MIB), 0);
        assert_int_equal(core.host.taking, 10 * MIB);
        assert_int_equal(core.host.most, 7 * GIB);
        assert_int_equal(core.host.allowed, 14 * MIB);
        assert_int_equal(agent_ask_host(10 * MIB), -ENOMEM);
        assert_int_equal(core.host.taking, 10 * MIB);
        assert_true(agent_may_map(6 * MIB));
        assert_false(agent_may_map(8 * MIB)); /* is asked for */
        lock_release(&core.lock);
        host_allows = GIB;
        answer_host(NULL);
        assert_int_equal(said(WIRE_HOST)->HOST.held, 4 * MIB);
        assert_int_equal(said(WIRE_HOST)->HOST.wanted, 22 * MIB);
        assert_true(agent_may_map(8 * MIB));
        core.host.taking = 0;
}

static void room_that_is_not_used_is_given_back_after_a_while(void **state)
{
        begin_running();
        gpu->commit_wanted = 512 * MIB;
        gpu->commit_used_ns = now_ns;
        limit(512 * MIB, 512 * MIB, 300 * MIB, 3);
        forget_sent();
        wake();
        assert_int_equal(gpu->commit, 512 * MIB);
        assert_in_range(slept_ns, 1, NSEC_PER_SEC);
        now_ns += NSEC_PER_SEC;
        gpu->commit_askers = 1;
        rounds(1);
        assert_int_equal(gpu->commit, 512 * MIB); /* somebody is about to use it */
        gpu->commit_askers = 0;
        rounds(1);
        assert_int_equal(gpu->commit, 64 * MIB); /* a block more than it uses */
        assert_int_equal(said(WIRE_WANT)->WANT.commit, 64 * MIB);
        /* A LIMIT that was on its way hands nothing out again. */
        limit(512 * MIB, 512 * MIB, 300 * MIB, 4);
        assert_int_equal(gpu->commit, 64 * MIB);
}

/* ---- figures ---- */

static void a_limit_is_acknowledged_with_true_figures(void **state)
{
        begin_running();
        gpu->moved_out = 11;
        gpu->moved_in = 12;
        limit(64 * MIB, 16 * MIB, 300 * MIB, 1234);
        assert_int_equal(said(WIRE_USAGE)->USAGE.limit_sequence, 1234);
        assert_int_equal(said(WIRE_USAGE)->USAGE.backed, 32 * MIB);
        assert_int_equal(said(WIRE_USAGE)->USAGE.allocated, 32 * MIB);
        assert_int_equal(said(WIRE_USAGE)->USAGE.moved_out, 11);
        assert_int_equal(said(WIRE_USAGE)->USAGE.moved_in, 12);
        assert_int_equal(said(WIRE_USAGE)->USAGE.arena, 5 * MIB);
        assert_false(said(WIRE_USAGE)->USAGE.flags & WIRE_FLAG_STAYS);
        gpu->stays = true;
        lock_acquire(&core.lock);
        agent_figures(gpu);
        lock_release(&core.lock);
        rounds(1);
        assert_true(said(WIRE_USAGE)->USAGE.flags & WIRE_FLAG_STAYS);
}

static void figures_are_told_at_intervals_unless_somebody_waits(void **state)
{
        begin_running();
        now_ns += NSEC_PER_SEC;
        for (unsigned i = 0; i < 2; i++) {
                lock_acquire(&core.lock);
                agent_figures(gpu);
                lock_release(&core.lock);
                rounds(1);
        }
        assert_int_equal(times_said(WIRE_USAGE), 1);
        assert_in_range(slept_ns, 1, NSEC_PER_MSEC);
        now_ns += NSEC_PER_MSEC;
        rounds(1);
        assert_int_equal(times_said(WIRE_USAGE), 2);
        rounds(1);
        assert_int_equal(times_said(WIRE_USAGE), 2);
        gpu->usage_dirty = true;
        core.waiters = 1;
        rounds(1);
        assert_int_equal(times_said(WIRE_USAGE), 3);
}

/* A grant must not come before the memory. */
static void what_is_on_its_way_in_is_not_told_as_there(void **state)
{
        begin_attached();
        limit(64 * MIB, 64 * MIB, 300 * MIB, 2);
        gpu->heap.backed = 32 * MIB;
        gpu->heap.resident = 8 * MIB;
        lock_acquire(&core.lock);
        agent_figures(gpu);
        lock_release(&core.lock);
        rounds(1);
        assert_int_equal(said(WIRE_USAGE)->USAGE.backed, 8 * MIB);
        limit(64 * MIB, 16 * MIB, 300 * MIB, 3); /* it leaves */
        assert_int_equal(said(WIRE_USAGE)->USAGE.backed, 32 * MIB);
        limit(64 * MIB, 64 * MIB, 300 * MIB, 4);
        assert_int_equal(said(WIRE_USAGE)->USAGE.backed, 8 * MIB);
        core.running = true; /* and what is new is waited for */
        gpu->usage_dirty = true;
        rounds(1);
        assert_int_equal(said(WIRE_USAGE)->USAGE.backed, 32 * MIB);
}

static void a_want_says_what_is_needed_to_run(void **state)
{
        begin_attached();
        assert_true(said(WIRE_WANT)->WANT.flags & WIRE_FLAG_RUN);
        assert_int_equal(said(WIRE_WANT)->WANT.need, 32 * MIB);
        forget_sent();
        rounds(3);
        assert_int_equal(times_said(WIRE_WANT), 0); /* once */
        gpu->heap.allocated += 2 * MIB;
        rounds(1);
        assert_int_equal(said(WIRE_WANT)->WANT.need, 34 * MIB);
        gpu->heap.allocated -= 2 * MIB;
}

static void evicted_memory_goes_along_with_the_figures(void **state)
{
        unsigned before;

        begin_running();
        before = open_descriptors();
        passed_add(&gpu->leaving, driver_foreign(MIB * 2, 1));
        gpu->usage_dirty = true;
        rounds(1);
        assert_int_equal(said(WIRE_USAGE)->USAGE.pass_bytes, gpu->heap.extent_bytes);
        assert_int_equal(open_descriptors(), before);
        assert_true(gpu->may_pass);
        /* Refused by the kernel: the figures go without it. */
        forget_sent();
        passed_add(&gpu->leaving, driver_foreign(MIB * 2, 1));
        gpu->usage_dirty = true;
        sends = -EPERM;
        rounds(1);
        sends = 0;
        assert_false(gpu->may_pass);
        assert_int_equal(times_said(WIRE_USAGE), 1);
        assert_int_equal(said(WIRE_USAGE)->USAGE.pass_bytes, 0);
        assert_int_equal(open_descriptors(), before);
}

static void memory_that_was_passed_on_is_kept_if_it_is_of_our_size(void **state)
{
        struct wire_message *m;
        unsigned before;

        begin_attached();
        before = open_descriptors();
        for (unsigned i = 0; i < 2; i++) {
                m = tell(WIRE_LIMIT);
                m->LIMIT.commit = m->LIMIT.backed = 64 * MIB;
                m->LIMIT.pass_bytes = i ? gpu->heap.extent_bytes : gpu->heap.extent_bytes / 2;
                box_fds[box_count - 1] = driver_foreign(MIB * 2, 1);
                rounds(1);
                assert_int_equal(gpu->passed.count, i);
                assert_int_equal(open_descriptors(), before + i);
        }
        m = tell(WIRE_GRANT); /* nothing goes along with that */
        box_fds[box_count - 1] = driver_foreign(MIB * 2, 1);
        rounds(1);
        assert_int_equal(open_descriptors(), before + 1);
}

static void less_that_is_pinned_is_said_before_the_figures_and_more_after(void **state)
{
        begin_running();
        gpu->pin_wanted = 8 * MIB;
        gpu->usage_dirty = true;
        rounds(1);
        assert_int_equal(sent_count, 2);
        assert_int_equal(sent[0].header.type, WIRE_USAGE);
        assert_int_equal(sent[1].header.type, WIRE_PIN);
        assert_int_equal(sent[1].PIN.bytes, 8 * MIB);
        tell(WIRE_PINNED)->PINNED.bytes = 8 * MIB;
        rounds(1);
        assert_int_equal(gpu->pin_allowed, 8 * MIB);
        forget_sent();
        gpu->pin_wanted = 0;
        gpu->usage_dirty = true;
        core.waiters = 1;
        rounds(1);
        assert_int_equal(sent[0].header.type, WIRE_PIN);
        assert_int_equal(sent[0].PIN.bytes, 0);
        assert_int_equal(gpu->pin_allowed, 0);
}

/* ---- sleep ---- */

static void it_sleeps_as_long_as_there_is_nothing_to_do(void **state)
{
        begin_attached();
        want_to_run(0);
        rounds(2);
        now_ns += 5 * NSEC_PER_SEC;
        rounds(2);
        assert_true(slept_ns > FOR_EVER);
        step_now = SWAP_LATER;
        rounds(1);
        assert_int_equal(slept_ns, 10 * NSEC_PER_MSEC);
        step_now = SWAP_COPYING;
        rounds(1);
        assert_int_equal(slept_ns, 100 * NSEC_PER_USEC);
        step_now = SWAP_MORE;
        rounds(1);
        assert_int_equal(slept_ns, 0);
        step_now = SWAP_NOTHING;
        rounds(1);
        assert_true(slept_ns > FOR_EVER);
}

static void a_drain_is_looked_at_often(void **state)
{
        begin_running();
        rounds(1);
        assert_in_range(slept_ns, 1, TICK_NS);
        end_turn(LEASE);
        assert_int_equal(slept_ns, 20 * NSEC_PER_USEC);
        now_ns += NSEC_PER_SEC;
        rounds(1);
        assert_int_equal(slept_ns, NSEC_PER_MSEC);
}

static void a_kick_is_written_once_until_it_is_read(void **state)
{
        uint64_t count = 0;

        begin_attached();
        for (unsigned i = 0; i < 3; i++)
                agent_kick();
        assert_int_equal(read(agent.wake, &count, sizeof(count)), sizeof(count));
        assert_int_equal(count, 1);
        rounds(1);
        agent_kick();
        assert_int_equal(read(agent.wake, &count, sizeof(count)), sizeof(count));
}

/* ---- the rest ---- */

static void whoever_is_in_the_way_is_named(void **state)
{
        struct wire_message *m;

        begin_attached();
        agent_ask_holder();
        assert_int_equal(times_said(WIRE_WHO), 1);
        assert_null(agent_holder());
        m = tell(WIRE_HOLDER);
        m->HOLDER.pid = 42;
        (void)strcpy(m->HOLDER.name, "train");
        rounds(1);
        assert_string_equal(agent_holder(), "process 42 (train) holds it");
        m = tell(WIRE_HOLDER);
        m->HOLDER.pid = 42;
        m->HOLDER.flags = WIRE_HOLDER_OTHER_USER | WIRE_HOLDER_STUCK;
        rounds(1);
        assert_string_equal(agent_holder(),
                            "process 42, another user's, holds it and cannot give way now");
        (void)tell(WIRE_HOLDER);
        rounds(1);
        assert_string_equal(agent_holder(), "nobody in particular holds it");
        breaks = true;
        connects = -ENOENT;
        rounds(1);
        assert_string_equal(agent_holder(), "no daemon answers");
}

static void a_create_that_failed_is_reported_now_and_then(void **state)
{
        begin_running();
        for (unsigned i = 0; i < 5; i++)
                agent_short(gpu, 2 * MIB);
        assert_int_equal(times_said(WIRE_SHORT), 1);
        assert_int_equal(said(WIRE_SHORT)->SHORT.bytes, 2 * MIB);
        now_ns += 20 * NSEC_PER_MSEC;
        agent_short(gpu, 2 * MIB);
        assert_int_equal(times_said(WIRE_SHORT), 2);
}

static void messages_about_gpus_that_are_not_there_do_nothing(void **state)
{
        static const unsigned types[] = {WIRE_LIMIT, WIRE_ATTACHED, WIRE_PINNED, WIRE_REFUSED};

        begin_running();
        for (unsigned i = 0; i < ARRAY_SIZE(types); i++)
                for (unsigned g = 1; g < 20; g += 18) {
                        struct wire_message *m = tell(types[i]);

                        m->header.gpu = (uint16_t)g;
                        m->REFUSED.code = WIRE_REFUSED_FIXED;
                        rounds(1);
                }
        assert_true(core.running);
        assert_int_equal(gpu->limit, 64 * MIB);
        assert_false(core.gpus[1].managed);
}

/* Of another release: the program runs without sharing, once what was moved out is back. */
static void a_daemon_of_another_release_leaves_the_program_alone(void **state)
{
        struct wire_message *m;

        begin_attached();
        put(EXTENT_EVICTED);
        m = tell(WIRE_REFUSED);
        m->REFUSED.code = WIRE_REFUSED_VERSION;
        (void)strcpy(m->REFUSED.text, "another release");
        rounds(1);
        assert_int_equal(agent.link, LINK_REFUSED);
        assert_int_equal(gpu->limit, UINT64_MAX);
        assert_false(core.running);
        assert_true(steps_restore);
        rounds(1);
        assert_in_range(slept_ns, 1, 3 * NSEC_PER_SEC); /* it gives way if it gets no further */
        now_ns += 3 * NSEC_PER_SEC;
        rounds(1);
        assert_true(agent.giveway.out);
        assert_int_equal(gpu->own_limit, 0);
        assert_true(steps_evict && !steps_restore);
        for (unsigned i = 0; i < 4 && agent.giveway.out; i++) {
                now_ns += 40 * NSEC_PER_SEC;
                rounds(1);
        }
        assert_false(agent.giveway.out);
        assert_int_equal(gpu->own_limit, UINT64_MAX);
        put(EXTENT_RESIDENT);
        rounds(1);
        assert_true(core.running);
        assert_int_equal(times_said(WIRE_HELLO), 1); /* it is not asked again */
}

static void memory_that_is_let_go_of_wakes_whoever_may_move_it(void **state)
{
        uint32_t heard;

        begin_attached();
        atomic_store(&agent.kicked, false);
        heard = bell_listen(&core.changed);
        agent_released();
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_true(agent.kicked);
        core.running = true;
        atomic_store(&agent.kicked, false);
        agent_released();
        assert_false(agent.kicked);
        gpu->pin_wanted = 1;
        agent_released();
        assert_true(agent.kicked);
        gpu->pin_wanted = 0;
        core.running = false;
}

#define AGENT_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                AGENT_TEST(it_says_who_it_is_and_what_it_has),
                AGENT_TEST(a_thread_that_attaches_waits_for_the_answer),
                AGENT_TEST(without_a_daemon_a_program_has_the_card),
                AGENT_TEST(memory_comes_back_for_whoever_waits_and_no_one_else),
                AGENT_TEST(nothing_leaves_while_it_holds_a_lease),
                AGENT_TEST(it_runs_once_all_is_back),
                AGENT_TEST(a_turn_ends_when_the_work_has),
                AGENT_TEST(a_revocation_of_another_lease_means_nothing),
                AGENT_TEST(a_long_kernel_that_nobody_waits_behind_is_awaited),
                AGENT_TEST(threads_at_the_gate_are_let_through_before_a_drain_fails),
                AGENT_TEST(whoever_was_let_through_is_waited_for_anew),
                AGENT_TEST(progress_renews_the_patience),
                AGENT_TEST(work_let_through_while_a_wait_begins_is_waited_for),
                AGENT_TEST(a_drain_that_is_cancelled_while_its_wait_begins_is_over),
                AGENT_TEST(a_capture_that_does_not_end_is_a_failed_drain),
                AGENT_TEST(a_program_with_nothing_in_flight_is_idle_until_it_submits),
                AGENT_TEST(a_busy_program_is_not_idle),
                AGENT_TEST(whoever_submits_at_the_last_moment_is_not_idle),
                AGENT_TEST(a_contested_card_keeps_work_in_flight_short),
                AGENT_TEST(whoever_runs_goes_on_without_the_daemon),
                AGENT_TEST(whoever_waits_stays_as_it_is_without_the_daemon),
                AGENT_TEST(a_drain_for_a_daemon_that_is_gone_ends),
                AGENT_TEST(a_daemon_that_does_not_read_is_lost),
                AGENT_TEST(room_to_allocate_is_asked_for_and_waited_for),
                AGENT_TEST(the_refusal_of_an_earlier_request_is_no_answer),
                AGENT_TEST(room_for_what_cannot_be_moved_is_taken_once_it_is_there),
                AGENT_TEST(host_memory_is_asked_for_before_it_is_mapped),
                AGENT_TEST(room_that_is_not_used_is_given_back_after_a_while),
                AGENT_TEST(a_limit_is_acknowledged_with_true_figures),
                AGENT_TEST(figures_are_told_at_intervals_unless_somebody_waits),
                AGENT_TEST(what_is_on_its_way_in_is_not_told_as_there),
                AGENT_TEST(a_want_says_what_is_needed_to_run),
                AGENT_TEST(evicted_memory_goes_along_with_the_figures),
                AGENT_TEST(memory_that_was_passed_on_is_kept_if_it_is_of_our_size),
                AGENT_TEST(less_that_is_pinned_is_said_before_the_figures_and_more_after),
                AGENT_TEST(it_sleeps_as_long_as_there_is_nothing_to_do),
                AGENT_TEST(a_drain_is_looked_at_often),
                AGENT_TEST(a_kick_is_written_once_until_it_is_read),
                AGENT_TEST(whoever_is_in_the_way_is_named),
                AGENT_TEST(a_create_that_failed_is_reported_now_and_then),
                AGENT_TEST(messages_about_gpus_that_are_not_there_do_nothing),
                AGENT_TEST(a_daemon_of_another_release_leaves_the_program_alone),
                AGENT_TEST(memory_that_is_let_go_of_wakes_whoever_may_move_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
