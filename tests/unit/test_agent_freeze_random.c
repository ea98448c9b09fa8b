/* test_agent_freeze_random.c: random orders of a daemon and random acts of a program. A program
 * with evicted memory must not be thawed, memory must not leave under running work, and a paused
 * program must not run. When all goes well again, the program must run.
 *
 * test_agent_freeze_random [SEED [STEPS]] */
#include "unit.h"

#include "freeze_bench.h"

#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/stream/gate.h"
#include "preload/state/request.h"
#include "preload/state/daemon.h"

#define STEPS   100000u
#define EPISODE 250u /* steps of one process */
#define HISTORY 40u
#define MEMORY  (128 * MIB)

static uint32_t seed, first_seed = 1;
static unsigned steps_wanted = STEPS, step;
static bool work;      /* the program has work on the GPU */
static uint64_t lease; /* the last lease granted */
static const char *history[HISTORY];
static unsigned moves, frozen_moves, drains, thaws, pauses; /* totals of the whole test */
static bool done;

static uint32_t draw(uint32_t below)
{
        seed = seed * 1664525u + 1013904223u;
        return (seed >> 8) % below;
}

static void note(const char *what)
{
        history[step % HISTORY] = what;
}

/* ---- memory ---- */

static struct extent *pick(enum extent_state state, bool busy)
{
        struct extent *e, *found = NULL;
        struct heap_cursor c = {0};
        unsigned n = 0;

        while ((e = heap_walk(&gpu->heap, &c)))
                if (e->state == state && e->busy == busy && draw(++n) == 0)
                        found = e;
        return found;
}

static void account(void)
{
        const struct extent *e;
        struct heap_cursor c = {0};

        gpu->heap.backed = gpu->heap.resident = 0;
        while ((e = heap_walk(&gpu->heap, &c))) {
                gpu->heap.backed += e->state == EXTENT_RESIDENT || e->busy ? e->bytes : 0;
                gpu->heap.resident += e->state == EXTENT_RESIDENT && !e->busy ? e->bytes : 0;
        }
}

/* Caller holds core_lock. */
static void get_memory(void)
{
        struct extent *e;
        struct heap_cursor c = {0};
        CUdeviceptr at;
        uint64_t cost;

        while (gpu->heap.allocated < MEMORY)
                assert_int_equal(heap_allocate(&gpu->heap, 32 * MIB, NULL, UINT64_MAX, &at, &cost),
                                 0);
        while ((e = heap_walk(&gpu->heap, &c)))
                e->state = EXTENT_RESIDENT;
        account();
}

static void check_move(bool leaves)
{
        if (freezer.stands && !gpu->mover)
                is_wrong("memory moves by channels that stand");
        if (freezer.stands && freezer.making != CHANNELS_MOVER)
                is_wrong("memory moves by channels of the program's");
        if (leaves && work && !freezer.stands)
                is_wrong("memory leaves under work that runs");
        if (leaves && work && freezer.stands && !freezer.sure)
                is_wrong("memory leaves before it was seen that it can");
}

/* Ends the move of an extent that is on its way, or begins a move. */
static enum swap_progress move(bool may_evict, bool restore)
{
        struct extent *e = pick(EXTENT_RESIDENT, true);

        if (e && draw(2)) { /* an eviction ends */
                e->busy = false;
                e->state = EXTENT_EVICTED;
        } else if ((e = pick(EXTENT_EVICTED, true)) && draw(2)) { /* a restore ends */
                e->busy = false;
                e->state = EXTENT_RESIDENT;
        } else if (may_evict && gpu->heap.backed > gpu->limit &&
                   (e = pick(EXTENT_RESIDENT, false))) {
                check_move(true);
                e->busy = true;
        } else if (restore && (e = pick(EXTENT_EVICTED, false)) &&
                   gpu->heap.backed + e->bytes <= gpu->limit) {
                check_move(false);
                e->busy = true;
        } else {
                return SWAP_NOTHING;
        }
        account();
        moves++;
        frozen_moves += freezer.stands && work;
        return draw(2) ? SWAP_MORE : SWAP_COPYING;
}

/* ---- the program ---- */

static void program(void)
{
        if (!core.running) {
                if (draw(4) == 0)
                        core.waiters = draw(3);
        } else {
                core.waiters = 0;
                if (draw(2))
                        work = true;
                anybody_inside = draw(4) == 0;
        }
        /* The work ends by itself, except while the program is frozen. */
        if (!freezer.stands && draw(3) == 0)
                work = anybody_inside = false;
        quiesce_now = work ? QUIESCE_BUSY : QUIESCE_DONE;
        if (core.running)
                fake_capturing = draw(20) == 0;
        submissions += core.running && draw(4) != 0;
        if (draw(8) == 0)
                fake_front_waits = fake_front && !fake_front_waits;
}

/* ---- the daemon ---- */

static void say_limit(uint64_t bytes)
{
        struct wire_message *m = tell(WIRE_LIMIT);

        m->header.sequence = 1 + step;
        m->LIMIT.commit = MEMORY;
        m->LIMIT.backed = bytes;
        m->LIMIT.unevictable = 700 * MIB;
        m->LIMIT.visible_bytes = 900 * MIB;
}

static void say_welcome(void)
{
        struct wire_message *m = tell(WIRE_WELCOME);

        m->WELCOME.magic = WIRE_MAGIC;
        m->WELCOME.instance = INSTANCE + draw(2);
        m->WELCOME.protocol = WIRE_VERSION;
        m = tell(WIRE_ATTACHED);
        m->ATTACHED.visible_bytes = 900 * MIB;
        m->ATTACHED.context_bytes = 300 * MIB;
        m->ATTACHED.block_bytes = 32 * MIB;
}

static void say_hello_back(void)
{
        if (draw(80) == 0) {
                note("REFUSED");
                tell(WIRE_REFUSED)->REFUSED.code = WIRE_REFUSED_VERSION;
        } else {
                note("WELCOME");
                say_welcome();
        }
}

static void say_something(void)
{
        struct wire_message *m;

        switch (draw(7)) {
        case 0:
                note("PAUSE");
                tell(WIRE_PAUSE)->PAUSE.paused = draw(3) == 0;
                break;
        case 1:
        case 2:
                note("REVOKE");
                m = tell(WIRE_REVOKE);
                m->REVOKE.lease = draw(8) ? core.lease : lease - 1;
                m->REVOKE.patience_ns = draw(2) * NSEC_PER_SEC;
                break;
        case 3:
        case 4:
                if (core.lease || agent.revoking)
                        break;
                note("GRANT");
                say_limit(MEMORY);
                tell(WIRE_GRANT)->GRANT.lease = ++lease;
                break;
        case 5:
                note("LIMIT");
                /* A daemon sends lower limits only to programs without a turn. */
                say_limit(core.lease ? MEMORY : draw(3) ? 0 : draw(5) * 32 * MIB);
                break;
        default:
                if (draw(3))
                        break;
                note("contact breaks");
                breaks = true;
                connects = draw(2) ? 0 : -ECONNREFUSED;
        }
}

/* ---- what happens while the lock is given up ---- */

static void something_else(void)
{
        struct wire_message m = {0};

        if (draw(4))
                return;
        lock_acquire(&core_lock);
        switch (draw(3)) {
        case 0:
                agent_pause(draw(3) == 0);
                break;
        case 1:
                if (agent.revoking)
                        agent_end_drain();
                break;
        default:
                sends = -EPIPE; /* a thread of the program finds the connection lost */
                request_report(gpu);
                (void)daemon_say(&m, WIRE_NAME);
                sends = 0;
        }
        lock_release(&core_lock);
}

static void freezer_changes(void)
{
        if (draw(40) == 0)
                freezer.begins = !freezer.begins;
        if (draw(20) == 0)
                freezer.confirms = !freezer.confirms;
        if (draw(40) == 0)
                freezer.ready = !freezer.ready;
        if (draw(400) == 0) { /* freezing is turned off for good */
                note("freezing is turned off");
                freezer.mode = WIRE_FREEZE_OFF;
        }
        if (draw(200) == 0)
                beside.hidden = beside.hidden ? NULL : "libnccl";
}

/* ---- what must hold after each round ---- */

static void check(void)
{
        bool shut = atomic_load(&gate_bits) & GATE_NO_LEASE;

        assert_false(core.running && agent.paused);
        assert_false(core.running && freezer.stands);
        assert_false(core.running && some_is_away() && !agent.revoking);
        assert_true(core.running != shut);
        assert_false(agent.revoking && core.running);
}

static void one_step(void)
{
        note("");
        program();
        freezer_changes();
        if (daemon_line.link == LINK_HELLO)
                say_hello_back();
        else if (daemon_line.link == LINK_UP && draw(2) == 0)
                say_something();
        else if (daemon_line.link == LINK_DOWN && draw(2) == 0)
                connects = 0;
        sent_count = 0;
        pauses += agent.paused;
        now_ns += draw(16) ? draw(20) * NSEC_PER_MSEC : draw(12) * NSEC_PER_SEC;
        wake();
        rounds(draw(4));                   /* memory moves */
        if (daemon_line.link == LINK_DOWN) /* the agent's random delays must not change the walk */
                agent.retry_ns = now_ns + draw(1000) * NSEC_PER_MSEC;
        drains += times_said(WIRE_DRAINED);
        check();
}

static bool wants_to_run(void)
{
        bool r;

        lock_acquire(&core_lock);
        r = agent_wants_to_run();
        lock_release(&core_lock);
        return r;
}

/* Lets the daemon grant everything, and lets work end unless the program is frozen. A wait for
 * other ranks goes on. */
static void all_is_well(void)
{
        freezer.while_it_begins = freezer.while_it_confirms = NULL;
        freezer.begins = freezer.confirms = freezer.ready = true;
        beside.hidden = NULL;
        fake_capturing = breaks = false;
        connects = 0;
        tell(WIRE_PAUSE)->PAUSE.paused = 0;
        for (unsigned i = 0; i < 400 && !core.running; i++) {
                step++;
                note("all is well");
                forget_sent();
                /* A program that is frozen with work in flight requests a turn without waiters. */
                core.waiters = !(work && freezer.stands);
                if (!freezer.stands)
                        work = anybody_inside = false;
                quiesce_now = work ? QUIESCE_BUSY : QUIESCE_DONE;
                if (daemon_line.link == LINK_HELLO) {
                        say_welcome();
                        tell(WIRE_PAUSE)->PAUSE.paused = 0;
                } else if (daemon_line.link == LINK_UP && !core.lease && !agent.revoking &&
                           wants_to_run()) {
                        say_limit(MEMORY);
                        tell(WIRE_GRANT)->GRANT.lease = ++lease;
                } else if (daemon_line.link == LINK_UP) {
                        say_limit(MEMORY);
                }
                now_ns += 100 * NSEC_PER_MSEC;
                wake();
                check();
        }
        assert_true(core.running);
        assert_false(freezer.stands || some_is_away());
}

static void begin_episode(void)
{
        static const enum wire_freeze modes[] = {WIRE_FREEZE_OFF, WIRE_FREEZE_PARK,
                                                 WIRE_FREEZE_MOVE, WIRE_FREEZE_MOVE};

        assert_int_equal(begin_agent(NULL), 0);
        begin_frozen(modes[draw(ARRAY_SIZE(modes))]);
        freezer.while_it_begins = freezer.while_it_confirms = something_else;
        if (draw(4) == 0) {
                gpu->mover = NULL;
                gpu->mover_room = 0;
                gpu->mover_ns = UINT64_MAX;
        }
        work = false;
        fake_front = draw(2) == 0;
        lease = LEASE;
        lock_acquire(&core_lock);
        get_memory();
        lock_release(&core_lock);
        say_limit(MEMORY);
        rounds(1);
        steps = move;
}

/* Prints the steps that led to a failure, for the search for its cause. */
static int tell_how(void **state)
{
        if (done)
                return 0;
        print_message("seed %u, step %u, mode %d, mover %d, paused %d, lease %d, link %d, work %d, "
                      "stands %d, last:\n",
                      first_seed, step, (int)freezer.mode, gpu->mover != NULL, agent.paused,
                      core.lease != 0, (int)daemon_line.link, work, freezer.stands);
        for (unsigned i = step > HISTORY ? step - HISTORY : 0; i <= step; i++)
                if (history[i % HISTORY] && *history[i % HISTORY])
                        print_message("  %u: %s\n", i, history[i % HISTORY]);
        return 0;
}

static void thaws_wait_for_memory_and_paused_programs_never_run(void **state)
{

        seed = first_seed;
        while (step < steps_wanted) {
                begin_episode();
                for (unsigned until = step + EPISODE; step < until; step++)
                        one_step();
                if (daemon_line.link != LINK_REFUSED) /* a refused link stays refused */
                        all_is_well();
                thaws += freezer.ended;
                assert_int_equal(end_agent(NULL), 0);
        }
        print_message("%u moves, %u of them while frozen; %u drains, %u thaws, %u steps paused\n",
                      moves, frozen_moves, drains, thaws, pauses);
        if (steps_wanted >= STEPS) {
                assert_true(moves > steps_wanted / 50 && frozen_moves > steps_wanted / 500);
                assert_true(drains > steps_wanted / 100 && pauses > steps_wanted / 100);
                assert_true(thaws > steps_wanted / 300);
        }
        done = true;
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(thaws_wait_for_memory_and_paused_programs_never_run,
                                          tell_how),
        };

        if (argc > 1)
                first_seed = (uint32_t)strtoul(argv[1], NULL, 10);
        if (argc > 2)
                steps_wanted = (unsigned)strtoul(argv[2], NULL, 10);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
