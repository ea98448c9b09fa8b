/* agent_bench.c: the daemon, the clock and fakes of other modules, for the tests of the agent. */
#include "unit.h"

#include "agent_bench.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "heap_end.h"
#include "preload/agent/agent.h"
#include "preload/agent/agent_state.h"
#include "preload/stream/throttle.h"
#include "preload/stream/gate.h"
#include "preload/process/link.h"
#include "preload/process/name.h"
#include "preload/move/export.h"
#include "preload/move/caches.h"
#include "preload/process/hidden.h"
#include "preload/share/ipc.h"
#include "preload/process/libc_compat.h"
#include "preload/agent/audit.h"
#include "preload/move/swap.h"
#include "preload/state/request.h"
#include "preload/state/daemon.h"

struct extent *extent; /* first extent of the heap's only block */

/* ---- the clock, and the agent's sleep ---- */

uint64_t now_ns;
uint64_t slept_ns; /* timeout of the agent's last sleep */
static sem_t asleep, go;
static const char *wrong; /* fault seen in the agent's thread, which cannot fail a test */

int clock_gettime(clockid_t which, struct timespec *ret)
{
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask)
{
        if (atomic_load(&core_lock.word) != 0)
                wrong = "it sleeps with the lock held";
        slept_ns = ts ? (uint64_t)ts->tv_sec * NSEC_PER_SEC + (uint64_t)ts->tv_nsec : UINT64_MAX;
        (void)sem_post(&asleep);
        while (sem_wait(&go) < 0)
                ;
        return 0;
}

/* The test fails at the end of the round. */
void is_wrong(const char *what)
{
        if (!wrong)
                wrong = what;
}

void rounds(unsigned n)
{
        while (n-- > 0) {
                (void)sem_post(&go);
                while (sem_wait(&asleep) < 0)
                        ;
                if (wrong)
                        fail_msg("%s", wrong);
        }
}

bool is_kicked(void)
{
        struct pollfd p = {.fd = request_fd(), .events = POLLIN};

        return poll(&p, 1, 0) == 1;
}

void woken(void)
{
        if (!is_kicked())
                fail_msg("the agent would sleep on");
        rounds(1);
}

void one_round(const struct core_wait *w)
{
        woken();
}

/* ---- the daemon ---- */

struct wire_message sent[SENT_MOST], box[BOX_MOST];
int box_fds[BOX_MOST];
unsigned sent_count, sent_fds, box_first, box_count;
int connects, sends; /* results of the next connection attempts and of the next sends */
unsigned send_tries;
bool breaks; /* the next read finds the connection lost */

int link_connect(char where[static 128], int *ret_fd)
{
        if (atomic_load(&core_lock.word) != 0)
                wrong = "it connects with the lock held";
        (void)strcpy(where, "nowhere");
        if (connects < 0)
                return connects;
        *ret_fd = eventfd(0, EFD_CLOEXEC);
        return 0;
}

const char *refuses; /* the system call that the next connection attempts may not make */

const char *link_refused(void)
{
        return refuses;
}

int link_send(int fd, const struct wire_message *m, const int *fds, unsigned n_fds)
{
        if (atomic_load(&core_lock.word) == 0)
                wrong = "it speaks without the lock";
        if (sends < 0 && (sends != -EPERM || n_fds)) {
                int r = sends;

                if (send_tries && --send_tries == 0)
                        sends = 0;
                return r;
        }
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

struct wire_message *tell(unsigned type)
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

const struct wire_message *said(unsigned type)
{
        for (unsigned i = sent_count; i-- > 0;)
                if (sent[i].header.type == type)
                        return &sent[i];
        return NULL;
}

unsigned times_said(unsigned type)
{
        unsigned n = 0;

        for (unsigned i = 0; i < sent_count; i++)
                n += sent[i].header.type == type;
        return n;
}

void forget_sent(void)
{
        sent_count = 0;
}

/* ---- fakes of other modules ---- */

bool steps_evict, steps_restore;
uint64_t bound_now;
enum swap_progress step_now;
enum swap_progress (*steps)(bool may_evict, bool restore);
struct quiesce_wait *last_wait;

bool submits_at_last;

void gate_shut(enum gate_bits why)
{
        atomic_fetch_or(&gate_bits, why);
        submissions += submits_at_last && why == GATE_TELL;
}

void (*while_it_begins)(void);

void quiesce_begin(struct quiesce_wait *w, bool still)
{
        if (!still && !agent.revoking && !agent.paused)
                wrong = "it waits beside a program that goes on";
        *w = (struct quiesce_wait){.still = still};
        last_wait = w;
        quiesce_begins++;
        if (while_it_begins)
                while_it_begins(); /* with older drivers quiesce_begin() gives up the lock */
        while_it_begins = NULL;
}

void throttle_set(uint64_t bound_ns)
{
        bound_now = bound_ns;
}

enum swap_progress swap_step(struct gpu *g, bool may_evict, bool restore)
{
        beside.steps++;
        steps_evict = may_evict;
        steps_restore = restore;
        if (may_evict && (core.running || core.lease))
                wrong = "memory leaves that is in use";
        return steps ? steps(may_evict, restore) : step_now;
}

void swap_let_go(struct gpu *g, uint64_t until_ns)
{
        assert_false(agent.revoking);
        beside.let_go++;
        g->heap.backed = g->heap.resident = 0;
        request_report(g);
}

void swap_unpin(struct gpu *g, uint64_t until_ns)
{
        assert_int_equal(g->heap.backed, 0);
        beside.unpinned++;
}

bool swap_pin_ahead(struct gpu *g)
{
        assert_false(agent.revoking);
        return beside.pins > 0 && beside.pins-- > 1;
}

void swap_ask_unpin(struct gpu *g, uint64_t bytes)
{
        beside.unpins = bytes;
}

bool swap_unpin_step(struct gpu *g)
{
        assert_false(core.running || agent.revoking);
        beside.unpins = beside.unpins ? beside.unpins - 1 : 0;
        return beside.unpins > 0;
}

void swap_rest(struct gpu *g)
{
        beside.rests++;
}

uint64_t swap_arena_bytes(const struct gpu *g)
{
        return beside.arena;
}

bool swap_is_still(const struct gpu *g)
{
        return !beside.transfers;
}

void swap_leave_mover(struct gpu *g, const struct mover *m)
{
        want_no_lock();
}

struct beside beside;

static enum own_drain torture_own(void)
{
        return beside.torture;
}

static void torture_evicted(void)
{
        beside.torture_evicted++;
        beside.torture = OWN_RESTORES;
}

static void torture_restored(void)
{
        beside.torture_restored++;
}

static bool torture_drains(void)
{
        return beside.torture_drains;
}

static void torture_cancel(void)
{
        beside.torture_cancelled++;
}

static uint64_t torture_next_ns(void)
{
        return beside.torture_ns;
}

static enum own_drain overflow_own(void)
{
        return beside.overflow_holds ? OWN_MOVES : OWN_NONE;
}

static bool overflow_drains(void)
{
        return beside.overflow_drains;
}

static void overflow_cancel(void)
{
        beside.overflow_cancelled++;
}

static bool overflow_move(void)
{
        return beside.overflow_moves;
}

static uint64_t overflow_next_ns(void)
{
        return beside.overflow_ns;
}

static bool clean_lost(void)
{
        want_lock();
        return beside.poisoned;
}

static uint64_t tend_pool(uint64_t now)
{
        want_lock();
        return beside.pool_ns;
}

static uint64_t tend_unevictable(uint64_t now)
{
        want_lock();
        return beside.unevictable_ns;
}

const struct part parts[] = {
        {.clean = clean_lost},
        {.tend = tend_pool},
        {.tend = tend_unevictable},
        {.own = torture_own,
         .drained = torture_drains,
         .drain_failed = torture_drains,
         .cancel = torture_cancel,
         .evicted = torture_evicted,
         .restored = torture_restored,
         .next_ns = torture_next_ns},
        {.own = overflow_own,
         .drained = overflow_drains,
         .drain_failed = overflow_drains,
         .cancel = overflow_cancel,
         .daemon_lost = overflow_cancel,
         .move = overflow_move,
         .next_ns = overflow_next_ns},
};
const unsigned parts_count = ARRAY_SIZE(parts);

const char *hidden_library(void)
{
        return beside.hidden;
}

bool caches_hold(bool may_evict, uint64_t now)
{
        want_lock();
        beside.may_evict = may_evict;
        return beside.caches_hold;
}

bool ipc_step(void)
{
        want_lock();
        return beside.others_speak;
}

void ipc_told(void)
{
        want_lock();
        beside.ipc_told++;
}

void ipc_connected(void)
{
        beside.ipc_connected++;
}

void ipc_disconnected(void)
{
        beside.ipc_disconnected++;
}

void ipc_on_refused(const struct wire_message *m)
{
        beside.ipc_refused++;
}

void ipc_forget(void)
{
        beside.ipc_forgotten++;
}

void audit_tell(bool last)
{
        want_lock();
        beside.audit_last += last;
}

static pthread_t agents_thread;

int compat_thread_start(void *(*start)(void *), void *argument)
{
        return beside.thread_fails ? beside.thread_fails
                                   : pthread_create(&agents_thread, NULL, start, argument);
}

int compat_thread_try(void *(*start)(void *))
{
        return beside.thread_fails;
}

void name_of_program(char *ret, size_t n)
{
        (void)snprintf(ret, n, "unit");
}

/* ---- scenes ---- */

void submits(void)
{
        lock_acquire(&core_lock);
        gate_open(GATE_TELL);
        core.submits = true;
        request_kick();
        lock_release(&core_lock);
        rounds(1);
}

void ask_holder(void)
{
        core.holder.asked = true;
        core.holder.known = false;
        wake();
}

void wake(void)
{
        lock_acquire(&core_lock);
        request_kick();
        lock_release(&core_lock);
        rounds(1);
}

void put(enum extent_state state)
{
        struct heap *h = &gpu->heap;

        for (unsigned i = 0; i < extent->block->extent_count; i++)
                extent->block->extents[i].state = state;
        h->backed = h->resident = state == EXTENT_RESIDENT ? h->allocated : 0;
}

void want_to_run(unsigned waiters)
{
        core.waiters = waiters;
        wake();
}

void limit(uint64_t commit, uint64_t backed, uint64_t unevictable, uint32_t sequence)
{
        struct wire_message *m = tell(WIRE_LIMIT);

        m->header.sequence = sequence;
        m->LIMIT.commit = commit;
        m->LIMIT.backed = backed;
        m->LIMIT.unevictable = unevictable;
        m->LIMIT.visible_bytes = 900 * MIB;
        rounds(1);
}

void grant(void)
{
        tell(WIRE_GRANT)->GRANT.lease = LEASE;
        rounds(1);
}

void end_turn(uint64_t lease)
{
        struct wire_message *m = tell(WIRE_REVOKE);

        m->REVOKE.lease = lease;
        m->REVOKE.patience_ns = 2 * NSEC_PER_SEC;
        rounds(1);
}

void welcome(void)
{
        struct wire_message *m = tell(WIRE_WELCOME);

        m->WELCOME.magic = WIRE_MAGIC;
        m->WELCOME.instance = INSTANCE;
        m->WELCOME.protocol = WIRE_VERSION;
        rounds(1);
}

void attached(void)
{
        struct wire_message *m = tell(WIRE_ATTACHED);

        m->ATTACHED.visible_bytes = 900 * MIB;
        m->ATTACHED.context_bytes = 300 * MIB;
        m->ATTACHED.block_bytes = 32 * MIB;
        m->ATTACHED.bound_ns = 10 * NSEC_PER_MSEC;
        rounds(1);
}

void begin_attached(void)
{
        rounds(1);
        welcome();
        attached();
        gpu->commit_requested = 64 * MIB;
        limit(64 * MIB, 0, 300 * MIB, 1);
        want_to_run(1);
}

void begin_running(void)
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

int begin_agent(void **state)
{
        CUdeviceptr at;
        uint64_t cost;
        struct heap_cursor c = {0};

        core_lock = (struct lock){0};

        core = (struct core){.gpu_count = 1};
        agent = (struct agent_state){0};
        daemon_line = (struct daemon_line){.fd = -1};
        driver_reset(GIB);
        trace_reset();
        atomic_store(&gate_bits, GATE_NO_LEASE);
        now_ns = 1000 * NSEC_PER_SEC;
        wrong = NULL;
        sent_count = box_first = box_count = 0;
        connects = sends = 0;
        refuses = NULL;
        send_tries = 0;
        breaks = anybody_inside = fake_capturing = steps_evict = steps_restore = false;
        fake_front = fake_front_waits = false;
        default_streams = 0;
        submissions = bound_now = 0;
        quiesce_now = QUIESCE_BUSY;
        host_room = 3 * GIB;
        room_changes = 0;
        step_now = SWAP_NOTHING;
        steps = NULL;
        beside = (struct beside){.arena = 5 * MIB,
                                 .pool_ns = UINT64_MAX,
                                 .unevictable_ns = UINT64_MAX,
                                 .torture_ns = UINT64_MAX,
                                 .overflow_ns = UINT64_MAX};
        meanwhile = one_round;
        gpu->known = true;
        gpu->total = GIB;
        gpu->own_limit = UINT64_MAX;
        heap_init(&gpu->heap, GIB);
        assert_int_equal(heap_allocate(&gpu->heap, 32 * MIB, NULL, UINT64_MAX, &at, &cost), 0);
        extent = heap_walk(&gpu->heap, &c);
        (void)sem_init(&asleep, 0, 0);
        (void)sem_init(&go, 0, 0);
        lock_acquire(&core_lock);
        assert_true(agent_start());
        assert_true(agent_start()); /* a second start does nothing */
        lock_release(&core_lock);
        while (sem_wait(&asleep) < 0)
                ;
        return 0;
}

int end_agent(void **state)
{
        core_lock = (struct lock){0}; /* a test that failed may hold the lock */
        atomic_store(&core.exiter, 1);
        (void)sem_post(&go);
        agent_stop();
        assert_false(agent.started);
        assert_int_equal(pthread_join(agents_thread, NULL), 0);
        assert_int_equal(daemon_line.fd, -1);
        assert_int_equal(sem_trywait(&asleep), -1);
        passed_close(&gpu->leaving);
        passed_close(&gpu->passed);
        request_close();
        heap_end(&gpu->heap);
        return 0;
}
