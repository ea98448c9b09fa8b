/* test_agent.c: when memory may leave and come back, the course of drains, the loss and return of
 * the daemon, and how long the agent sleeps. */
#include "unit.h"

#include "agent_bench.h"

#include <errno.h>
#include <unistd.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/neighbours.h"
#include "preload/agent/agent.h"
#include "preload/stream/gate.h"
#include "preload/state/request.h"
#include "preload/state/daemon.h"

/* ---- joining ---- */

static void it_says_who_it_is_and_what_it_has(void **state)
{
        const struct wire_message *m = said(WIRE_HELLO);

        assert_non_null(m);
        assert_int_equal(m->HELLO.magic, WIRE_MAGIC);
        assert_int_equal(m->HELLO.major, WIRE_MAJOR);
        assert_int_equal(m->HELLO.minor, WIRE_MINOR);
        assert_int_equal(m->HELLO.pid, getpid());
        assert_int_equal(m->HELLO.previous_instance, 0);
        assert_string_equal(m->HELLO.name, "unit");
        assert_int_equal(times_said(WIRE_ATTACH), 0);
        gpu->unevictable = gpu->unevictable_requested = 3 * MIB;
        put(EXTENT_RESIDENT);
        welcome();
        m = said(WIRE_ATTACH);
        assert_int_equal(m->ATTACH.allocated, 32 * MIB);
        assert_int_equal(m->ATTACH.backed, 32 * MIB);
        assert_int_equal(m->ATTACH.unevictable, 3 * MIB);
        assert_int_equal(m->ATTACH.arena, 5 * MIB);
        assert_int_equal(m->ATTACH.total_bytes, GIB);
        assert_false(gpu->managed);
        /* Before the answer it may use only what it has. */
        assert_int_equal(gpu->commit, 32 * MIB);
        assert_int_equal(gpu->limit, 32 * MIB);
        assert_int_equal(gpu->unevictable_allowed, 3 * MIB);
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
        lock_acquire(&core_lock);
        agent_attach(gpu);
        lock_release(&core_lock);
        assert_true(gpu->managed);
        assert_int_equal(times_said(WIRE_ATTACH), 1); /* it was requested already */
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
        assert_int_equal(gpu->unevictable_allowed, UINT64_MAX);
        assert_true(gpu->managed);
        assert_int_equal(gpu->visible, GIB);
        assert_true(core.running);
        assert_false(atomic_load(&gate_bits) & GATE_NO_LEASE);
        assert_int_equal(core.host.most, 3 * GIB);
        /* And it shares the GPU again when there is a daemon. */
        connects = 0;
        now_ns += 100 * NSEC_PER_SEC;
        rounds(1);
        welcome();
        attached();
        assert_int_equal(gpu->limit, 0); /* what it has */
        assert_int_equal(gpu->commit_requested, 32 * MIB);
}

/* ---- turns ---- */

static void memory_comes_back_for_whoever_waits_and_no_one_else(void **state)
{
        begin_attached();
        assert_true(steps_restore);
        want_to_run(0);
        assert_false(steps_restore);
        assert_true(steps_evict); /* as far as the limit allows */
        want_to_run(1);
        assert_true(steps_restore);
}

/* The lease has come, and half of the memory is still out: no more may leave. */
static void nothing_leaves_while_it_holds_a_lease(void **state)
{
        begin_attached();
        put(EXTENT_EVICTED);
        want_to_run(1);
        grant();
        assert_int_equal(core.lease, LEASE);
        assert_false(core.running);
        want_to_run(0); /* the waiting program has ended */
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
        assert_true(atomic_load(&gate_bits) & GATE_UNBACKED); /* new memory is missing */
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
        quiesce_now = QUIESCE_DONE;
        rounds(3);
        assert_int_equal(times_said(WIRE_DRAINED), 0); /* a thread is inside */
        inside = false;
        quiesce_now = QUIESCE_BUSY;
        rounds(3);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        assert_false(steps_evict || steps_restore);
        quiesce_now = QUIESCE_DONE;
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
        end_turn(LEASE); /* a repeated order counts from the first */
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
        core.waiters = 1;
        rounds(1);
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 1);
}

/* Work in flight may wait for work held at the gate. */
static void a_drain_without_progress_fails_while_threads_wait(void **state)
{
        uint32_t heard;

        begin_running();
        end_turn(LEASE);
        core.waiters = 1;
        now_ns += 2 * NSEC_PER_SEC;
        rounds(2);
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 0); /* patience */
        now_ns++;
        heard = bell_listen(&core.changed);
        rounds(1);
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 1);
        assert_int_equal(said(WIRE_DRAIN_FAILED)->DRAIN_FAILED.lease, LEASE);
        assert_int_equal(said(WIRE_DRAIN_FAILED)->DRAIN_FAILED.reason, WIRE_DRAIN_NO_PROGRESS);
        assert_int_equal(said(WIRE_DRAIN_FAILED)->DRAIN_FAILED.after_ns, now_ns - agent.revoked_ns);
        assert_false(agent.revoking);
        assert_true(core.running);
        assert_int_equal(core.lease, LEASE);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_false(atomic_load(&gate_bits) & GATE_NO_LEASE);
}

static void one_goes_inside(void)
{
        inside = true;
}

/* A thread that captures passes at any time. */
static void a_thread_that_goes_inside_while_a_wait_begins_is_waited_for(void **state)
{
        begin_running();
        quiesce_now = QUIESCE_DONE;
        while_it_begins = one_goes_inside;
        end_turn(LEASE);
        rounds(1);
        assert_null(while_it_begins);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        inside = false;
        rounds(1);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
}

static void a_drain_that_is_cancelled_while_its_wait_begins_is_over(void **state)
{
        begin_running();
        quiesce_now = QUIESCE_DONE;
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
        for (unsigned i = 0; i < 10; i++) {
                now_ns += 1500 * NSEC_PER_MSEC;
                submissions++; /* a thread has left the driver */
                rounds(1);
        }
        assert_true(agent.revoking);
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 0);
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
        assert_true(core.running);
}

static void a_program_with_nothing_in_flight_is_idle_until_it_submits(void **state)
{
        begin_running();
        quiesce_now = QUIESCE_DONE;
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
        submits();
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
        assert_int_equal(said(WIRE_ACTIVE)->ACTIVE.lease, LEASE);
        assert_false(atomic_load(&gate_bits) & GATE_TELL);
        submits();
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
        rounds(1);
        assert_int_equal(times_said(WIRE_IDLE), 1);
}

static void a_busy_program_is_not_idle(void **state)
{
        begin_running();
        for (unsigned i = 0; i < 12; i++) {
                now_ns += TICK_NS;
                quiesce_now = i % 3 == 0 ? QUIESCE_BUSY : QUIESCE_DONE;
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
        quiesce_now = QUIESCE_DONE;
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

static void a_running_program_goes_on_without_the_daemon(void **state)
{
        begin_running();
        tell(WIRE_CONTESTED)->CONTESTED.contested = WIRE_CONTESTED_NOW;
        rounds(1);
        breaks = true;
        connects = -ECONNREFUSED;
        rounds(1);
        assert_int_equal(daemon_line.link, LINK_DOWN);
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
        assert_int_equal(said(WIRE_USAGE)->USAGE.limit_sequence,
                         0); /* it has not been told of one yet */
        connects = -ECONNREFUSED;
        breaks = true;
        rounds(1);
        assert_in_range(slept_ns, 1, 100 * NSEC_PER_MSEC); /* at first it looks again soon */
}

static void a_waiting_program_stays_as_it_is_without_the_daemon(void **state)
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
        unsigned before;
        uint32_t heard;

        begin_running();
        end_turn(LEASE);
        assert_true(agent.revoking);
        before = open_descriptors();
        breaks = true;
        connects = -ECONNREFUSED;
        heard = bell_listen(&core.changed);
        rounds(1);
        assert_int_equal(open_descriptors(), before - 1);
        assert_false(agent.revoking);
        assert_true(core.running);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_false(atomic_load(&gate_bits) & GATE_NO_LEASE);
}

static void a_daemon_that_does_not_read_is_lost(void **state)
{
        begin_running();
        sends = -EPIPE;
        agent.idle_said = true;
        submits();
        assert_int_equal(daemon_line.link, LINK_LOST);
        connects = -ENOENT;
        woken();
        assert_int_equal(daemon_line.link, LINK_DOWN);
        sends = 0;
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
                request_kick();
        assert_int_equal(read(request_fd(), &count, sizeof(count)), sizeof(count));
        assert_int_equal(count, 1);
        rounds(1);
        request_kick();
        assert_int_equal(read(request_fd(), &count, sizeof(count)), sizeof(count));
}

/* ---- the rest ---- */

static void the_process_in_the_way_is_named(void **state)
{
        struct wire_message *m;
        uint32_t heard;

        begin_attached();
        ask_holder();
        rounds(1);
        assert_int_equal(times_said(WIRE_WHO), 1); /* once */
        assert_false(core.holder.known);
        m = tell(WIRE_HOLDER);
        m->HOLDER.pid = 42;
        (void)strcpy(m->HOLDER.name, "train");
        heard = bell_listen(&core.changed);
        rounds(1);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_true(core.holder.known);
        assert_string_equal(core.holder.text, "process 42 (train) holds it");
        m = tell(WIRE_HOLDER);
        m->HOLDER.pid = 42;
        m->HOLDER.flags = WIRE_HOLDER_OTHER_USER | WIRE_HOLDER_STUCK;
        rounds(1);
        assert_string_equal(core.holder.text,
                            "process 42, another user's, holds it and cannot give way now");
        (void)tell(WIRE_HOLDER);
        rounds(1);
        assert_string_equal(core.holder.text, "nobody in particular holds it");
        m = tell(WIRE_HOLDER);
        m->HOLDER.flags = WIRE_HOLDER_FOREIGN;
        rounds(1);
        assert_string_equal(core.holder.text,
                            "programs outside its daemon hold it; users take turns only under one "
                            "daemon: `subletd` as root, or `subletd --shared` and SUBLET_DIR");
        breaks = true;
        connects = -ENOENT;
        rounds(1);
        ask_holder();
        assert_true(core.holder.known);
        assert_string_equal(core.holder.text, "no daemon answers");
}

static void a_create_that_failed_is_reported_now_and_then(void **state)
{
        begin_running();
        for (unsigned i = 0; i < 5; i++) {
                gpu->short_bytes = 2 * MIB;
                rounds(1);
        }
        assert_int_equal(times_said(WIRE_SHORT), 1);
        assert_int_equal(said(WIRE_SHORT)->SHORT.bytes, 2 * MIB);
        now_ns += 20 * NSEC_PER_MSEC;
        rounds(1);
        assert_int_equal(times_said(WIRE_SHORT), 1);
        gpu->short_bytes = 2 * MIB;
        rounds(1);
        assert_int_equal(times_said(WIRE_SHORT), 2);
}

static void messages_about_gpus_that_are_not_there_do_nothing(void **state)
{
        static const unsigned types[] = {WIRE_LIMIT, WIRE_ATTACHED, WIRE_EXPORTED, WIRE_REFUSED};

        begin_running();
        for (unsigned i = 0; i < ARRAY_SIZE(types); i++)
                for (unsigned g = 1; g < 20; g += 18) {
                        struct wire_message *m = tell(types[i]);

                        m->header.gpu = (uint16_t)g;
                        m->REFUSED.code = WIRE_REFUSED_UNEVICTABLE;
                        rounds(1);
                }
        assert_true(core.running);
        assert_int_equal(gpu->limit, 64 * MIB);
        assert_false(core.gpus[1].managed);
}

/* The daemon is of another release: the program runs without sharing, once evicted memory is back.
 */
static void a_daemon_of_another_release_leaves_the_program_alone(void **state)
{
        struct wire_message *m;

        begin_attached();
        put(EXTENT_EVICTED);
        m = tell(WIRE_REFUSED);
        m->REFUSED.code = WIRE_REFUSED_VERSION;
        (void)strcpy(m->REFUSED.text, "another release");
        rounds(1);
        assert_int_equal(daemon_line.link, LINK_REFUSED);
        assert_int_equal(gpu->limit, UINT64_MAX);
        assert_false(core.running);
        assert_true(steps_restore);
        rounds(1);
        assert_in_range(slept_ns, 1, 3 * NSEC_PER_SEC); /* it gives way if it gets no further */
        now_ns += 3 * NSEC_PER_SEC;
        rounds(1);
        assert_true(core.giveway.out);
        assert_int_equal(gpu->own_limit, 0);
        assert_true(steps_evict && !steps_restore);
        for (unsigned i = 0; i < 4 && core.giveway.out; i++) {
                now_ns += 40 * NSEC_PER_SEC;
                rounds(1);
        }
        assert_false(core.giveway.out);
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
        request_woken();
        heard = bell_listen(&core.changed);
        request_released();
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_true(is_kicked());
        core.running = true;
        request_woken();
        request_released();
        assert_false(is_kicked());
        gpu->export_requested = 1;
        request_released();
        assert_true(is_kicked());
        gpu->export_requested = 0;
        core.running = false;
}

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
                AGENT_TEST(a_drain_without_progress_fails_while_threads_wait),
                AGENT_TEST(progress_renews_the_patience),
                AGENT_TEST(a_thread_that_goes_inside_while_a_wait_begins_is_waited_for),
                AGENT_TEST(a_drain_that_is_cancelled_while_its_wait_begins_is_over),
                AGENT_TEST(a_capture_that_does_not_end_is_a_failed_drain),
                AGENT_TEST(a_program_with_nothing_in_flight_is_idle_until_it_submits),
                AGENT_TEST(a_busy_program_is_not_idle),
                AGENT_TEST(whoever_submits_at_the_last_moment_is_not_idle),
                AGENT_TEST(a_contested_card_keeps_work_in_flight_short),
                AGENT_TEST(a_running_program_goes_on_without_the_daemon),
                AGENT_TEST(a_waiting_program_stays_as_it_is_without_the_daemon),
                AGENT_TEST(a_drain_for_a_daemon_that_is_gone_ends),
                AGENT_TEST(a_daemon_that_does_not_read_is_lost),
                AGENT_TEST(it_sleeps_as_long_as_there_is_nothing_to_do),
                AGENT_TEST(a_drain_is_looked_at_often),
                AGENT_TEST(a_kick_is_written_once_until_it_is_read),
                AGENT_TEST(the_process_in_the_way_is_named),
                AGENT_TEST(a_create_that_failed_is_reported_now_and_then),
                AGENT_TEST(messages_about_gpus_that_are_not_there_do_nothing),
                AGENT_TEST(a_daemon_of_another_release_leaves_the_program_alone),
                AGENT_TEST(memory_that_is_let_go_of_wakes_whoever_may_move_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
