/* test_agent.c: when memory may leave and come back, the course of drains, the loss and return of
 * the daemon, and how long the agent sleeps. */
#include "unit.h"

#include "agent_bench.h"

#include <errno.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/stop.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/agent/agent.h"
#include "preload/stream/gate.h"
#include "preload/state/request.h"
#include "preload/state/daemon.h"

/* ---- joining ---- */

static void hello_names_the_process_and_attach_reports_its_memory(void **state)
{
        const struct wire_message *m = said(WIRE_HELLO);

        assert_non_null(m);
        assert_int_equal(m->HELLO.magic, WIRE_MAGIC);
        assert_int_equal(m->HELLO.protocol, WIRE_VERSION);
        assert_int_equal(m->HELLO.takes_turns, 0);
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
        /* Until the daemon answers, the program may use only the memory that it has. */
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
        assert_int_equal(times_said(WIRE_ATTACH), 1); /* the agent had sent it already */
}

static void without_a_daemon_a_program_gets_the_whole_card(void **state)
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
        /* The program shares the GPU again when there is a daemon. */
        connects = 0;
        now_ns += 100 * NSEC_PER_SEC;
        rounds(1);
        welcome();
        attached();
        assert_int_equal(gpu->limit, 0); /* the resident bytes */
        assert_int_equal(gpu->commit_requested, 32 * MIB);
}

/* ---- turns ---- */

static void memory_is_restored_only_while_a_thread_waits(void **state)
{
        begin_attached();
        assert_true(steps_restore);
        want_to_run(0);
        assert_false(steps_restore);
        assert_true(steps_evict); /* memory above the limit may leave */
        want_to_run(1);
        assert_true(steps_restore);
}

static void begin_with_a_lease_and_evicted_memory(void)
{
        begin_attached();
        put(EXTENT_EVICTED);
        want_to_run(1);
        grant();
        assert_int_equal(core.lease, LEASE);
        assert_false(core.running);
}

/* A lease arrives while the memory is still evicted: from then on no more may leave. */
static void a_program_with_a_lease_evicts_nothing(void **state)
{
        begin_with_a_lease_and_evicted_memory();
        want_to_run(0); /* the waiting thread has ended */
        assert_false(steps_evict);
        assert_true(steps_restore);
        put(EXTENT_RESIDENT);
        rounds(1);
        assert_true(core.running);
        rounds(1);
        assert_false(steps_evict || steps_restore);
}

static void a_program_runs_once_all_its_memory_is_restored(void **state)
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
        assert_true(atomic_load(&gate_bits) & GATE_UNBACKED); /* new memory is not backed yet */
        core.running = false;
        put(EXTENT_RESIDENT);
        rounds(1);
        assert_int_equal(atomic_load(&gate_bits), 0);
}

static void a_turn_ends_when_the_submitted_work_has_ended(void **state)
{
        begin_running();
        anybody_inside = true;
        end_turn(LEASE);
        assert_false(core.running);
        assert_true(atomic_load(&gate_bits) & GATE_NO_LEASE);
        assert_false(steps_evict);
        quiesce_now = QUIESCE_DONE;
        rounds(3);
        assert_int_equal(times_said(WIRE_DRAINED), 0); /* a thread is inside the driver */
        anybody_inside = false;
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

static void a_revocation_of_another_lease_is_ignored(void **state)
{
        begin_running();
        end_turn(LEASE + 1);
        assert_true(core.running);
        assert_false(agent.revoking);
        end_turn(LEASE);
        assert_true(agent.revoking);
        rounds(1);
        now_ns += NSEC_PER_MSEC;
        end_turn(LEASE); /* a repeated order keeps the time of the first one */
        assert_int_equal(agent.revoked_ns, now_ns - NSEC_PER_MSEC);
}

static void a_drain_awaits_a_long_kernel_while_no_thread_waits(void **state)
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
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 0); /* the patience is not over */
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
        anybody_inside = true;
}

/* A thread that captures passes the gate at any time. */
static void a_thread_that_goes_inside_while_a_wait_begins_is_waited_for(void **state)
{
        begin_running();
        quiesce_now = QUIESCE_DONE;
        while_it_begins = one_goes_inside;
        end_turn(LEASE);
        rounds(1);
        assert_null(while_it_begins);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        anybody_inside = false;
        rounds(1);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
}

static void a_drain_cancelled_while_its_wait_begins_keeps_the_turn(void **state)
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

/* The drain fails although the capturing thread makes more calls. */
static void a_capture_that_does_not_end_fails_the_drain(void **state)
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
        assert_int_equal(times_said(WIRE_IDLE), 1); /* not reported again */
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
                anybody_inside = i % 3 == 1;
                fake_capturing = i % 3 == 2;
                if (i > 6)
                        submissions++;
                rounds(1);
        }
        assert_int_equal(times_said(WIRE_IDLE), 0);
        assert_false(atomic_load(&gate_bits) & GATE_TELL);
}

static void a_program_that_submits_at_the_last_moment_is_not_idle(void **state)
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

/* ---- the loss and return of the daemon ---- */

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
        assert_in_range(slept_ns, 1, 2 * NSEC_PER_SEC); /* until the next connection attempt */
        for (unsigned i = 0; i < 20; i++) {
                now_ns += NSEC_PER_SEC;
                rounds(1);
        }
        assert_int_equal(gpu->limit, UINT64_MAX); /* the program may grow */
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
                         0); /* the new daemon has sent no limit yet */
        connects = -ECONNREFUSED;
        breaks = true;
        rounds(1);
        assert_in_range(slept_ns, 1, 100 * NSEC_PER_MSEC); /* the first attempt comes soon */
}

static void a_waiting_program_moves_nothing_without_the_daemon(void **state)
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

static void the_agent_sleeps_until_memory_can_move(void **state)
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

static void the_agent_checks_a_drain_often(void **state)
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
        assert_int_equal(times_said(WIRE_WHO), 1); /* not asked again */
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
        m->HOLDER.uid = UINT32_MAX;
        m->HOLDER.flags = WIRE_HOLDER_OTHER_USER | WIRE_HOLDER_STUCK;
        rounds(1);
        assert_string_equal(
                core.holder.text,
                "process 42, of another user, pod or container, holds it and cannot give way now");
        m = tell(WIRE_HOLDER);
        m->HOLDER.pid = 42;
        m->HOLDER.flags = WIRE_HOLDER_STUCK;
        m->HOLDER.stop = STOP_SIGNAL;
        (void)strcpy(m->HOLDER.name, "train");
        rounds(1);
        assert_string_equal(core.holder.text, "process 42 (train) holds it and is stopped "
                                              "(Ctrl-Z): `fg`, or `kill -CONT 42`");
        m = tell(WIRE_HOLDER);
        m->HOLDER.pid = 42;
        m->HOLDER.uid = 1001;
        m->HOLDER.flags = WIRE_HOLDER_OTHER_USER;
        (void)strcpy(m->HOLDER.name, "train");
        rounds(1);
        assert_string_equal(core.holder.text, "process 42 (train) of user 1001 holds it");
        (void)tell(WIRE_HOLDER);
        rounds(1);
        assert_string_equal(core.holder.text, "no single program holds it");
        tell(WIRE_HOLDER)->HOLDER.foreign = 181 * MIB;
        rounds(1);
        assert_string_equal(core.holder.text,
                            "no single program of its daemon holds it, and programs outside hold "
                            "181 MiB of the GPU");
        tell(WIRE_HOLDER)->HOLDER.flags = WIRE_HOLDER_MAXIMUM;
        rounds(1);
        assert_string_equal(core.holder.text,
                            "it has used all of the GPU time that its maximum allows");
        m = tell(WIRE_HOLDER);
        m->HOLDER.flags = WIRE_HOLDER_FOREIGN;
        m->HOLDER.foreign = 181 * MIB;
        rounds(1);
        assert_string_equal(core.holder.text,
                            "programs outside sublet hold 181 MiB of the GPU, and take no turns; "
                            "end them, or start them with `sublet run`");
        m = tell(WIRE_HOLDER);
        m->HOLDER.flags = WIRE_HOLDER_FOREIGN | WIRE_HOLDER_PEERS;
        m->HOLDER.foreign = 181 * MIB;
        rounds(1);
        assert_string_equal(core.holder.text,
                            "programs of another daemon hold 181 MiB of the GPU; users take turns "
                            "only under one daemon: `subletd` as root, or `subletd --shared` and "
                            "SUBLET_DIR");
        breaks = true;
        connects = -ENOENT;
        rounds(1);
        ask_holder();
        assert_true(core.holder.known);
        assert_string_equal(core.holder.text, "no daemon answers in nowhere");
}

static void failed_creates_are_reported_at_intervals(void **state)
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

static void missing_host_memory_is_reported_at_intervals_while_memory_must_leave(void **state)
{
        begin_attached();
        now_ns += NSEC_PER_SEC;
        gpu->limit = gpu->heap.backed;
        gpu->host_short = true;
        rounds(1);
        assert_int_equal(times_said(WIRE_HOST_SHORT), 0);
        gpu->heap.backed += 8 * MIB;
        for (unsigned i = 0; i < 5; i++) {
                gpu->host_short = true;
                rounds(1);
        }
        assert_int_equal(times_said(WIRE_HOST_SHORT), 1);
        assert_int_equal(said(WIRE_HOST_SHORT)->HOST_SHORT.bytes,
                         8 * MIB + 2 * gpu->heap.extent_bytes);
        now_ns += 100 * NSEC_PER_MSEC;
        gpu->host_short = true;
        rounds(1);
        assert_int_equal(times_said(WIRE_HOST_SHORT), 2);
        gpu->heap.backed -= 8 * MIB;
}

/* The driver waits for all work in flight while it unpins. */
static void host_memory_is_given_back_when_the_program_does_not_run(void **state)
{
        begin_running();
        tell(WIRE_UNPIN)->UNPIN.bytes = 3;
        rounds(3);
        assert_int_equal(beside.unpins, 3);
        quiesce_now = QUIESCE_DONE;
        end_turn(core.lease);
        rounds(4);
        assert_false(core.running);
        assert_int_equal(beside.unpins, 0);
}

/* The others cannot make room for it before. */
static void host_memory_is_given_back_while_memory_is_restored(void **state)
{
        begin_with_a_lease_and_evicted_memory();
        tell(WIRE_UNPIN)->UNPIN.bytes = 3;
        rounds(4);
        assert_false(core.running);
        assert_int_equal(beside.unpins, 0);
        extent->state = EXTENT_RESIDENT;
}

static void messages_about_unknown_gpus_are_ignored(void **state)
{
        begin_running();
        for (unsigned type = 1; type < 256; type++) {
                if (!wire_name(type) ||
                    (type != WIRE_REFUSED && wire_scope(type) != WIRE_SCOPE_GPU))
                        continue;
                for (unsigned g = 1; g < 20; g += 18) {
                        struct wire_message *m = tell(type);

                        m->header.gpu = (uint16_t)g;
                        m->REFUSED.code = WIRE_REFUSED_UNEVICTABLE;
                        rounds(1);
                }
        }
        assert_true(core.running);
        assert_int_equal(gpu->limit, 64 * MIB);
        assert_false(core.gpus[1].managed);
}

/* The program runs without sharing once its evicted memory is back. */
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
        assert_in_range(slept_ns, 1, 3 * NSEC_PER_SEC); /* time until it gives way */
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
        assert_int_equal(times_said(WIRE_HELLO), 1); /* the agent does not connect again */
}

static void released_memory_wakes_the_agent_if_it_may_move(void **state)
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
                AGENT_TEST(hello_names_the_process_and_attach_reports_its_memory),
                AGENT_TEST(a_thread_that_attaches_waits_for_the_answer),
                AGENT_TEST(without_a_daemon_a_program_gets_the_whole_card),
                AGENT_TEST(memory_is_restored_only_while_a_thread_waits),
                AGENT_TEST(a_program_with_a_lease_evicts_nothing),
                AGENT_TEST(a_program_runs_once_all_its_memory_is_restored),
                AGENT_TEST(a_turn_ends_when_the_submitted_work_has_ended),
                AGENT_TEST(a_revocation_of_another_lease_is_ignored),
                AGENT_TEST(a_drain_awaits_a_long_kernel_while_no_thread_waits),
                AGENT_TEST(a_drain_without_progress_fails_while_threads_wait),
                AGENT_TEST(progress_renews_the_patience),
                AGENT_TEST(a_thread_that_goes_inside_while_a_wait_begins_is_waited_for),
                AGENT_TEST(a_drain_cancelled_while_its_wait_begins_keeps_the_turn),
                AGENT_TEST(a_capture_that_does_not_end_fails_the_drain),
                AGENT_TEST(a_program_with_nothing_in_flight_is_idle_until_it_submits),
                AGENT_TEST(a_busy_program_is_not_idle),
                AGENT_TEST(a_program_that_submits_at_the_last_moment_is_not_idle),
                AGENT_TEST(a_contested_card_keeps_work_in_flight_short),
                AGENT_TEST(a_running_program_goes_on_without_the_daemon),
                AGENT_TEST(a_waiting_program_moves_nothing_without_the_daemon),
                AGENT_TEST(a_drain_for_a_daemon_that_is_gone_ends),
                AGENT_TEST(a_daemon_that_does_not_read_is_lost),
                AGENT_TEST(the_agent_sleeps_until_memory_can_move),
                AGENT_TEST(the_agent_checks_a_drain_often),
                AGENT_TEST(a_kick_is_written_once_until_it_is_read),
                AGENT_TEST(the_process_in_the_way_is_named),
                AGENT_TEST(failed_creates_are_reported_at_intervals),
                AGENT_TEST(missing_host_memory_is_reported_at_intervals_while_memory_must_leave),
                AGENT_TEST(host_memory_is_given_back_when_the_program_does_not_run),
                AGENT_TEST(host_memory_is_given_back_while_memory_is_restored),
                AGENT_TEST(messages_about_unknown_gpus_are_ignored),
                AGENT_TEST(a_daemon_of_another_release_leaves_the_program_alone),
                AGENT_TEST(released_memory_wakes_the_agent_if_it_may_move),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
