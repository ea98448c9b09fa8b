/* test_agent_turns.c: the agent and the other modules in each round of its loop: the module that
 * began a drain, the modules that keep memory in place, and the time of the next round. */
#include "unit.h"

#include "agent_bench.h"

#include <errno.h>
#include <unistd.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/agent/agent.h"
#include "preload/stream/gate.h"
#include "preload/state/request.h"
#include "preload/state/daemon.h"

#define MS NSEC_PER_MSEC

/* ---- drains ---- */

static void a_drain_begun_by_another_module_is_not_reported(void **state)
{
        bool *const whose[] = {&beside.torture_drains, &beside.overflow_drains};

        for (unsigned i = 0; i < ARRAY_SIZE(whose); i++) {
                if (i)
                        assert_int_equal(end_agent(state) + begin_agent(state), 0);
                begin_running();
                *whose[i] = true;
                end_turn(LEASE);
                quiesce_now = QUIESCE_DONE;
                rounds(1);
                assert_false(agent.revoking);
                assert_int_equal(core.lease, LEASE);
                beside.hidden = "some"; /* a drain that fails is not reported either */
                agent_begin_drain(NSEC_PER_SEC, false);
                rounds(1);
                assert_false(agent.revoking);
                assert_int_equal(times_said(WIRE_DRAINED) + times_said(WIRE_DRAIN_FAILED), 0);
                beside.hidden = NULL;
                core.running = true;
        }
}

/* No event marks the end of the library's work. */
static void a_drain_beside_a_library_with_hidden_work_fails_at_once(void **state)
{
        begin_running();
        quiesce_now = QUIESCE_DONE;
        beside.hidden = "libother.so";
        end_turn(LEASE);
        assert_int_equal(said(WIRE_DRAIN_FAILED)->DRAIN_FAILED.reason, WIRE_DRAIN_HIDDEN);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        assert_true(core.running);
}

static void drain(void)
{
        grant();
        put(EXTENT_RESIDENT);
        rounds(1);
        assert_true(core.running);
        core.waiters = 1;
        quiesce_now = QUIESCE_BUSY;
        end_turn(LEASE);
        assert_true(agent.revoking);
}

static void finish_drain(void)
{
        quiesce_now = QUIESCE_DONE;
        rounds(2);
        assert_false(agent.revoking);
}

static void a_thread_waiting_at_the_end_of_a_turn_requests_another(void **state)
{
        core.gpu_count = 1;
        begin_running();
        drain();
        forget_sent();
        finish_drain();
        assert_int_equal(times_said(WIRE_DRAINED), 1);
        assert_true(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
        drain();
        core.waiters = 0;
        forget_sent();
        finish_drain();
        assert_int_equal(times_said(WIRE_REQUEST), 0);
        rounds(1);
}

/* ---- idleness ---- */

static void a_program_that_submits_nothing_is_idle_at_the_first_check(void **state)
{
        submissions = 5; /* submissions of earlier turns */
        begin_running();
        quiesce_now = QUIESCE_DONE;
        now_ns += TICK_NS - 1;
        rounds(1);
        assert_int_equal(times_said(WIRE_IDLE), 0);
        now_ns++;
        rounds(1);
        assert_int_equal(times_said(WIRE_IDLE), 1);
}

static void a_wait_for_idleness_begins_anew_after_a_submission(void **state)
{
        begin_running();
        now_ns += TICK_NS;
        rounds(1);
        assert_ptr_equal(last_wait, &agent.probe);
        last_wait = NULL;
        now_ns += TICK_NS;
        rounds(1);
        assert_null(last_wait); /* the same wait goes on */
        submissions++;
        now_ns += TICK_NS;
        rounds(1);
        quiesce_now = QUIESCE_DONE;
        assert_null(last_wait);
        now_ns += TICK_NS;
        rounds(1);
        assert_ptr_equal(last_wait, &agent.probe);
        assert_int_equal(times_said(WIRE_IDLE), 1);
}

static void a_program_that_is_idle_is_active_again_with_its_next_turn(void **state)
{
        begin_running();
        quiesce_now = QUIESCE_DONE;
        now_ns += TICK_NS;
        rounds(1);
        assert_int_equal(times_said(WIRE_IDLE), 1);
        end_turn(LEASE);
        assert_false(atomic_load(&gate_bits) & GATE_TELL); /* there is nothing to report */
        assert_false(agent.idle_said);
        rounds(1);
        core.waiters = 1;
        grant();
        core.waiters = 0;
        assert_true(core.running);
        now_ns += TICK_NS;
        rounds(1);
        assert_int_equal(times_said(WIRE_IDLE), 2);
}

/* ---- who moves memory ---- */

static void torture_evicts_and_restores_memory_and_then_the_program_runs(void **state)
{
        begin_running();
        beside.torture_restored = 0;
        core.running = false; /* so that the bench lets memory leave */
        core.lease = 0;
        beside.torture = OWN_RESTORES;
        agent.revoking = true;
        quiesce_now = QUIESCE_BUSY;
        rounds(1);
        assert_false(steps_evict || steps_restore);
        agent.revoking = false;
        beside.torture = OWN_EVICTS;
        step_now = SWAP_COPYING;
        rounds(1);
        assert_true(steps_evict && !steps_restore);
        assert_int_equal(beside.torture_evicted, 0); /* not before all memory is out */
        step_now = SWAP_LATER;
        put(EXTENT_EVICTED);
        rounds(1);
        assert_int_equal(beside.torture_evicted, 1);
        assert_int_equal(slept_ns, 0);
        assert_false(core.running);
        rounds(1);
        assert_true(steps_restore && !steps_evict);
        assert_int_equal(beside.torture_restored, 0);
        step_now = SWAP_NOTHING;
        put(EXTENT_RESIDENT);
        rounds(1);
        assert_int_equal(beside.torture_restored, 1);
        assert_true(core.running);
}

static void nothing_runs_while_buffers_move_between_card_and_host(void **state)
{
        begin_attached();
        limit(64 * MIB, 64 * MIB, 300 * MIB, 2);
        put(EXTENT_RESIDENT);
        beside.overflow_holds = true;
        grant();
        assert_false(core.running);
        beside.overflow_holds = false;
        core.lease = 0; /* so that the bench lets memory leave */
        beside.torture = OWN_EVICTS;
        step_now = SWAP_COPYING; /* the eviction has not ended yet */
        rounds(1);
        assert_false(core.running);
        beside.torture = OWN_RESTORES;
        rounds(1);
        assert_true(core.running);
        assert_int_equal(beside.torture_restored, 1);
        beside.overflow_moves = true;
        rounds(1);
        assert_int_equal(slept_ns, 0); /* more buffers are to be moved */
}

/* Otherwise the first eviction would have to pin it while others wait. */
static void host_memory_is_pinned_ahead_while_others_may_wait(void **state)
{
        unsigned left;

        begin_running();
        beside.pins = 1000;
        rounds(3);
        assert_int_equal(beside.pins, 1000);
        tell(WIRE_CONTESTED)->CONTESTED.contested = WIRE_CONTESTED_MAY;
        gpu->grew_ns = now_ns;
        rounds(1);
        assert_int_equal(beside.pins, 1000); /* the program grows */
        assert_int_equal(slept_ns, 10 * NSEC_PER_MSEC);
        now_ns += 200 * NSEC_PER_MSEC;
        rounds(1);
        assert_in_range(beside.pins, 2, 999);
        assert_int_equal(slept_ns, 10 * NSEC_PER_MSEC); /* then there may be more to pin */
        drain();
        left = beside.pins;
        rounds(3);
        assert_int_equal(beside.pins, left);
        beside.pins = 0;
}

static void exit_while(enum wire_contested contested, enum quiescence work)
{
        begin_running();
        tell(WIRE_CONTESTED)->CONTESTED.contested = contested;
        rounds(1);
        quiesce_now = work;
        beside.let_go = 0;
        forget_sent();
        assert_int_equal(end_agent(NULL), 0);
}

/* The kernel may take seconds to end a process that has much host memory pinned. */
static void a_process_that_exits_gives_its_memory_back_while_others_may_wait(void **state)
{
        exit_while(WIRE_CONTESTED_NOT, QUIESCE_DONE);
        assert_int_equal(beside.let_go, 0);
        assert_int_equal(begin_agent(state), 0);
        exit_while(WIRE_CONTESTED_NOW,
                   QUIESCE_BUSY); /* kernels that still run may use the memory */
        assert_int_equal(beside.let_go, 0);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        assert_int_equal(begin_agent(state), 0);
        exit_while(WIRE_CONTESTED_MAY, QUIESCE_DONE);
        assert_int_equal(beside.let_go, 1);
        assert_int_equal(beside.unpinned, 1);
        assert_int_equal(said(WIRE_DRAINED)->DRAINED.lease, LEASE);
        quiesce_now = QUIESCE_BUSY;
        assert_int_equal(begin_agent(state), 0);
}

/* Unused memory that frameworks cache has to be freed first. */
static void an_eviction_waits_for_caches_and_a_restore_does_not(void **state)
{
        begin_attached();
        want_to_run(0);
        assert_true(beside.may_evict);
        beside.caches_hold = true;
        rounds(1);
        assert_false(steps_evict);
        assert_int_equal(slept_ns, 100 * NSEC_PER_USEC);
        want_to_run(1);
        assert_true(steps_restore);
        beside.caches_hold = false;
        want_to_run(0);
        assert_true(steps_evict);
}

static void memory_of_a_gpu_that_is_not_shared_is_not_moved(void **state)
{
        begin_attached();
        beside.steps = 0;
        rounds(1);
        assert_int_equal(beside.steps, 1);
        gpu->managed = false;
        rounds(1);
        assert_int_equal(beside.steps, 1);
        gpu->managed = true;
}

/* ---- the time of the next round ---- */

static void the_agent_wakes_when_another_module_is_due(void **state)
{
        uint64_t *const in[] = {&beside.pool_ns, &beside.unevictable_ns};
        uint64_t *const at[] = {&beside.torture_ns, &beside.overflow_ns};

        begin_attached();
        want_to_run(0);
        now_ns += 5 * NSEC_PER_SEC;
        rounds(2);
        assert_true(slept_ns > FOR_EVER);
        for (unsigned i = 0; i < 2; i++) {
                *in[i] = 7 * MS;
                rounds(1);
                assert_int_equal(slept_ns, 7 * MS);
                *in[i] = UINT64_MAX;
                *at[i] = now_ns + 9 * MS;
                rounds(1);
                assert_int_equal(slept_ns, 9 * MS);
                *at[i] = now_ns - 1;
                rounds(1);
                assert_int_equal(slept_ns, 0);
                *at[i] = UINT64_MAX;
                beside.poisoned = true;
                rounds(1);
                assert_int_equal(slept_ns, 10 * MS);
                *in[1 - i] = 3 * MS;
                rounds(1);
                assert_int_equal(slept_ns, 3 * MS);
                *in[1 - i] = UINT64_MAX;
                beside.poisoned = false;
        }
        beside.others_speak = true;
        rounds(1);
        assert_int_equal(slept_ns, 0);
        beside.others_speak = false;
        beside.ipc_told = 0;
        rounds(1);
        assert_true(slept_ns > FOR_EVER);
        assert_int_equal(beside.ipc_told, 1); /* ipc_told() was called, after all reports */
}

static void a_drain_is_checked_less_often_the_longer_it_lasts(void **state)
{
        begin_running();
        drain();
        now_ns += 160 * NSEC_PER_USEC;
        rounds(1);
        assert_int_equal(slept_ns, 20 * NSEC_PER_USEC);
        now_ns += 3840 * NSEC_PER_USEC;
        rounds(1);
        assert_int_equal(slept_ns, 500 * NSEC_PER_USEC);
        step_now = SWAP_COPYING;
        rounds(1);
        assert_int_equal(slept_ns, 100 * NSEC_PER_USEC);
        step_now = SWAP_NOTHING;
}

static void an_idle_program_is_not_checked(void **state)
{
        begin_running();
        quiesce_now = QUIESCE_DONE;
        now_ns += TICK_NS;
        rounds(1);
        rounds(1);
        assert_true(slept_ns > FOR_EVER);
        submits();
        rounds(1);
        assert_int_equal(slept_ns, TICK_NS);
}

/* ---- start and end of the agent ---- */

static void an_agent_that_cannot_be_started_leaves_nothing_behind(void **state)
{
        unsigned before;

        request_close();
        before = open_descriptors();
        agent.started = false;
        beside.thread_fails = EAGAIN;
        assert_false(agent_start());
        assert_int_equal(request_fd(), -1);
        assert_int_equal(open_descriptors(), before);
        lock_acquire(&core_lock);
        gpu->managed = false;
        agent_attach(gpu); /* returns, as no agent will answer */
        lock_release(&core_lock);
        assert_true(core_passive());
        core.bystander = false;
        agent.started = true;
}

static void a_child_closes_its_parents_descriptors(void **state)
{
        unsigned before;

        begin_attached();
        before = open_descriptors();
        passed_add(&gpu->leaving, driver_foreign(MIB * 2, 1));
        passed_add(&gpu->passed, driver_foreign(MIB * 2, 1));
        agent_forget();
        assert_int_equal(open_descriptors(), before - 1); /* the connection to the daemon */
        assert_int_equal(beside.ipc_forgotten, 1);
        assert_int_equal(daemon_line.fd, -1);
        assert_int_equal(gpu->leaving.count + gpu->passed.count, 0);
        agent_forget(); /* a second call does nothing */
        assert_int_equal(open_descriptors(), before - 1);
        request_close();
        request_close(); /* a second call does nothing */
        assert_int_equal(open_descriptors(), before - 2);
        request_kick(); /* must do no harm */
}

static void the_last_figures_are_traced_unless_the_gpu_failed(void **state)
{
        begin_running();
        assert_int_equal(end_agent(state), 0);
        assert_int_equal(beside.audit_last, 1);
        assert_int_equal(daemon_line.link, LINK_REFUSED);
        assert_int_equal(begin_agent(state), 0);
        begin_running();
        core.bystander = true;
        assert_int_equal(end_agent(state), 0);
        assert_int_equal(beside.audit_last, 0);
        assert_int_equal(begin_agent(state), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                AGENT_TEST(a_drain_begun_by_another_module_is_not_reported),
                AGENT_TEST(a_drain_beside_a_library_with_hidden_work_fails_at_once),
                AGENT_TEST(a_thread_waiting_at_the_end_of_a_turn_requests_another),
                AGENT_TEST(a_program_that_submits_nothing_is_idle_at_the_first_check),
                AGENT_TEST(a_wait_for_idleness_begins_anew_after_a_submission),
                AGENT_TEST(a_program_that_is_idle_is_active_again_with_its_next_turn),
                AGENT_TEST(torture_evicts_and_restores_memory_and_then_the_program_runs),
                AGENT_TEST(nothing_runs_while_buffers_move_between_card_and_host),
                AGENT_TEST(an_eviction_waits_for_caches_and_a_restore_does_not),
                AGENT_TEST(host_memory_is_pinned_ahead_while_others_may_wait),
                AGENT_TEST(a_process_that_exits_gives_its_memory_back_while_others_may_wait),
                AGENT_TEST(memory_of_a_gpu_that_is_not_shared_is_not_moved),
                AGENT_TEST(the_agent_wakes_when_another_module_is_due),
                AGENT_TEST(a_drain_is_checked_less_often_the_longer_it_lasts),
                AGENT_TEST(an_idle_program_is_not_checked),
                AGENT_TEST(an_agent_that_cannot_be_started_leaves_nothing_behind),
                AGENT_TEST(a_child_closes_its_parents_descriptors),
                AGENT_TEST(the_last_figures_are_traced_unless_the_gpu_failed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
