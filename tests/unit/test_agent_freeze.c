/* test_agent_freeze.c: a program that is frozen instead of drained, a paused one, and the reports
 * about both. */
#include "unit.h"

#include "freeze_bench.h"

#include <errno.h>

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/stream/gate.h"
#include "preload/state/daemon.h"
#include "preload/state/request.h"

static bool gate_is_shut(void)
{
        return atomic_load(&gate_bits) & GATE_NO_LEASE;
}

static void lock_and(void (*f)(void))
{
        lock_acquire(&core_lock);
        f();
        lock_release(&core_lock);
}

static int begin(void **state)
{
        begin_freezer(WIRE_FREEZE_OFF);
        return begin_agent(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end_agent)

/* ---- ranks that wait for each other on the GPU ---- */

/* Begins with a rank that has its turn, and work in flight that waits for another rank. */
static void begin_waiting(void)
{
        fake_front = fake_front_waits = true;
        begin_frozen(WIRE_FREEZE_MOVE);
}

static void ticks(unsigned n)
{
        while (n-- > 0) {
                now_ns += RANK_TICK_NS;
                rounds(1);
        }
}

static void rest(void)
{
        for (unsigned i = 0; i < 200 && !times_said(WIRE_IDLE); i++)
                ticks(1);
        assert_int_equal(times_said(WIRE_IDLE), 1);
        forget_sent();
}

static void give_way_as_waiting(void)
{
        rest();
        end_turn(LEASE);
        put(EXTENT_EVICTED);
        assert_true(freezer.stands);
        forget_sent();
}

static bool asks(void)
{
        return times_said(WIRE_REQUEST) > 0 && said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN;
}

static void a_rank_whose_work_only_waits_is_idle_after_a_moment(void **state)
{
        begin_waiting();
        submissions++;
        ticks(1); /* the submission is seen */
        ticks(WAITS_NS / RANK_TICK_NS - 1);
        assert_int_equal(times_said(WIRE_IDLE), 0);
        ticks(1);
        assert_int_equal(times_said(WIRE_IDLE), 1);
        ticks(3);
        assert_int_equal(times_said(WIRE_IDLE) + times_said(WIRE_ACTIVE), 1);
        assert_int_equal(slept_ns, RANK_TICK_NS); /* nobody tells that the wait is over */
}

static void a_thread_in_the_driver_does_not_keep_a_waiting_rank_from_being_idle(void **state)
{
        begin_waiting();
        anybody_inside = true; /* it waits for the work, or the queue is full */
        rest();
        ticks(2);
        assert_int_equal(times_said(WIRE_ACTIVE), 0);
        submissions++; /* it has returned */
        ticks(1);
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
        assert_false(atomic_load(&gate_bits) & GATE_TELL);
}

static void work_beside_the_wait_keeps_a_rank_from_being_idle(void **state)
{
        begin_waiting();
        for (unsigned i = 0; i < 20; i++) {
                if (last_wait && i % 2)
                        last_wait->progress++; /* a stream has run empty */
                ticks(1);
        }
        for (unsigned i = 0; i < 20; i++) {
                submissions++;
                ticks(1);
        }
        assert_int_equal(times_said(WIRE_IDLE), 0);
        rest();
}

static void a_rank_is_active_again_when_its_wait_is_over(void **state)
{
        begin_waiting();
        rest();
        fake_front_waits = false;
        ticks(1);
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
        assert_false(atomic_load(&gate_bits) & GATE_TELL);
        fake_front_waits = true;
        forget_sent();
        rest();
        last_wait->progress++;
        ticks(1);
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
        forget_sent();
        rest();
        submits();
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
        assert_false(agent.waits);
}

/* The drain would wait for the other ranks. */
static void a_waiting_rank_that_must_be_drained_is_not_idle(void **state)
{
        begin_waiting();
        freezer.ready = false;
        ticks(20);
        assert_int_equal(times_said(WIRE_IDLE), 0);
        freezer.ready = true;
        gpu->mover = NULL;
        gpu->mover_ns = UINT64_MAX;
        ticks(20);
        assert_int_equal(times_said(WIRE_IDLE), 0);
}

static void a_drain_of_a_waiting_rank_fails_and_the_rank_is_active(void **state)
{
        begin_waiting();
        rest();
        freezer.begins = false;
        end_turn(LEASE);
        assert_true(agent.revoking);
        now_ns += 2 * NSEC_PER_SEC + 1;
        rounds(1);
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 1);
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
        assert_true(core.running);
        forget_sent();
        rest(); /* and idle again, so it is asked again */
}

static void a_rank_that_gave_way_asks_when_its_wait_is_over(void **state)
{
        begin_waiting();
        give_way_as_waiting();
        ticks(10);
        assert_false(asks());
        fake_front_waits = false;
        ticks(1);
        assert_true(asks());
        fake_front_waits = true; /* for something else: the request stands */
        ticks(10);
        assert_true(agent_wants_to_run());
}

static void come_back(void)
{
        limit(64 * MIB, 64 * MIB, 700 * MIB, 3);
        put(EXTENT_RESIDENT);
        grant();
        assert_true(core.running && !freezer.stands);
        core.waiters = 0;
        forget_sent();
}

/* A thread at the gate may hold work that the others wait for, and frozen work may be more than the
 * wait. */
static void a_rank_that_waits_on_asks_for_ever_longer_turns(void **state)
{
        uint64_t span_ns = WAITS_NS;

        begin_waiting();
        for (unsigned turn = 0; turn < 10; turn++) {
                give_way_as_waiting();
                core.waiters = turn % 2;
                for (uint64_t ns = RANK_TICK_NS; ns < WAITS_AWAY * span_ns; ns += RANK_TICK_NS)
                        ticks(1);
                assert_false(asks());
                ticks(1);
                assert_true(asks());
                span_ns = MIN(2 * span_ns, (uint64_t)WAITS_MOST_NS);
                come_back();
                for (uint64_t ns = RANK_TICK_NS; ns < span_ns; ns += RANK_TICK_NS)
                        ticks(1);
                assert_int_equal(times_said(WIRE_IDLE), 0);
        }
        fake_front_waits = false;
        ticks(1);
        assert_int_equal(agent.waits_ns, WAITS_NS);
}

/* Without it, it could not give way, and the others would wait for ever. */
static void a_rank_needs_its_second_context_more_than_the_share_allows(void **state)
{
        begin_waiting();
        agent.takes_turns = gpu->request_dirty = true;
        wake();
        assert_true(gpu->mover_room > 0);
        assert_true(!(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_SPARE));
        agent.takes_turns = false;
        gpu->request_dirty = true;
        wake();
        assert_true(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_SPARE);
}

/* ---- a turn that ends ---- */

/* The program's work never ends, so a drain would not end either. */
static void a_program_that_must_give_way_is_frozen_and_not_drained(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        end_turn(LEASE);
        assert_int_equal(freezer.begun, 1);
        assert_int_equal(freezer.confirmed, 1);
        assert_true(freezer.stands);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
        assert_int_equal(said(WIRE_DRAINED)->DRAINED.lease, LEASE);
        assert_true(gate_is_shut() && !core.running && core.lease == 0);
        assert_false(agent.revoking);
        assert_true(steps_evict);
}

static void a_frozen_program_goes_on_only_when_its_memory_is_back(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        end_turn(LEASE);
        assert_true(freezer.stands);
        put(EXTENT_EVICTED);
        limit(64 * MIB, 64 * MIB, 700 * MIB, 3);
        grant();
        assert_true(freezer.stands && !core.running);
        assert_true(steps_restore && !steps_evict);
        extent->busy = true; /* the last extent is on its way */
        put(EXTENT_RESIDENT);
        wake();
        assert_true(freezer.stands && gate_is_shut());
        extent->busy = false;
        wake();
        assert_false(freezer.stands);
        assert_int_equal(freezer.ended, 1);
        assert_true(core.running && !gate_is_shut());
        assert_false(agent.unfinished);
}

static enum swap_progress step_of_the_movers(bool may_evict, bool restore)
{
        if (freezer.making != CHANNELS_MOVER)
                is_wrong("channels that are made now would be the program's");
        return SWAP_NOTHING;
}

static void memory_moves_under_the_watchdog_and_by_the_movers_channels(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        assert_int_equal(freezer.watched, 0);
        steps = step_of_the_movers;
        end_turn(LEASE);
        assert_true(freezer.watched > 0);
        assert_int_equal(freezer.making, CHANNELS_PROGRAM);
}

static void unfinished_work_requests_a_turn_without_waiting_threads(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        end_turn(LEASE);
        put(EXTENT_EVICTED);
        wake();
        assert_true(agent.unfinished);
        assert_non_null(said(WIRE_REQUEST));
        assert_true(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
}

static void a_program_without_work_requests_no_turn(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        quiesce_now = QUIESCE_DONE;
        end_turn(LEASE);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
        assert_false(agent.unfinished);
        put(EXTENT_EVICTED);
        gpu->request_dirty = true;
        wake();
        assert_false(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
        want_to_run(1); /* a thread wants to submit work */
        assert_true(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
}

static void work_that_a_drain_cannot_see_counts_as_unfinished(void **state)
{
        for (int which = 0; which < 3; which++) {
                begin_frozen(WIRE_FREEZE_MOVE);
                quiesce_now = QUIESCE_DONE;
                anybody_inside = which == 0;
                fake_capturing = which == 1;
                beside.hidden = which == 2 ? "libnccl" : NULL;
                end_turn(LEASE);
                assert_int_equal(times_said(WIRE_DRAINED), 1);
                assert_true(agent.unfinished);
                end_agent(NULL);
                (void)begin(NULL);
        }
}

/* ---- drains in place of freezes ---- */

static void check_plain_drain(void)
{
        end_turn(LEASE);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        assert_true(agent.revoking && gate_is_shut() && !freezer.stands);
        quiesce_now = QUIESCE_DONE;
        rounds(1);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
        assert_false(freezer.stands);
}

static void a_program_that_may_only_be_paused_is_drained_to_give_way(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        check_plain_drain();
        assert_int_equal(freezer.begun, 0);
}

static void a_program_without_a_mover_is_drained(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        gpu->mover = NULL;
        gpu->mover_room = 0;
        gpu->mover_ns = UINT64_MAX; /* no mover is tried again */
        check_plain_drain();
        assert_int_equal(freezer.begun, 0);
}

static void a_program_is_drained_before_the_self_test(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        freezer.ready = false;
        check_plain_drain();
        assert_int_equal(freezer.begun, 0);
}

static void a_program_that_cannot_be_frozen_is_drained(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        freezer.begins = false;
        check_plain_drain();
        assert_int_equal(freezer.begun, 1); /* a freeze is tried once a turn */
        assert_int_equal(freezer.confirmed, 0);
}

static void a_program_whose_memory_cannot_leave_is_drained(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        freezer.confirms = false;
        check_plain_drain();
        assert_int_equal(freezer.confirmed, 1);
        assert_int_equal(freezer.ended, 1);
}

/* The kernel of the program may run for ever. */
static void a_freeze_that_failed_is_tried_again_in_the_same_drain(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        freezer.confirms = false;
        end_turn(LEASE);
        rounds(3);
        assert_int_equal(freezer.confirmed, 1); /* the next try is not at once */
        for (unsigned tries = 2; tries <= 3; tries++) {
                now_ns += NSEC_PER_SEC;
                rounds(1);
                assert_int_equal(freezer.confirmed, tries);
                assert_true(agent.revoking && gate_is_shut() && !freezer.stands);
        }
        freezer.confirms = true;
        now_ns += NSEC_PER_SEC;
        rounds(1);
        assert_true(freezer.stands);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
}

static void a_drain_that_began_while_freezing_was_off_ends_by_freezing(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        freezer.mode = WIRE_FREEZE_OFF;
        end_turn(LEASE);
        rounds(2);
        assert_int_equal(freezer.begun, 0);
        freezer.mode = WIRE_FREEZE_MOVE;
        rounds(1);
        assert_true(freezer.stands);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
}

static void a_drain_that_lasts_makes_what_freezing_needs(void **state)
{
        unsigned prepared;

        begin_frozen(WIRE_FREEZE_MOVE);
        gpu->mover = NULL;
        gpu->mover_ns = now_ns + 50 * NSEC_PER_MSEC; /* the last one could not be made */
        gpu->unevictable_allowed = GIB;
        end_turn(LEASE);
        prepared = freezer.prepared;
        now_ns += 90 * NSEC_PER_MSEC;
        rounds(2);
        assert_int_equal(freezer.prepared, prepared); /* most drains end by then */
        assert_null(gpu->mover);
        now_ns += 20 * NSEC_PER_MSEC;
        rounds(2);
        assert_true(freezer.prepared > prepared);
        assert_non_null(gpu->mover);
        assert_true(freezer.stands);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 0);
}

static void a_new_reason_against_freezing_is_told(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        freezer.mode = WIRE_FREEZE_OFF;
        freezer.off = "one reason";
        rounds(1);
        assert_string_equal(said(WIRE_FROZEN)->FROZEN.off, "one reason");
        forget_sent();
        rounds(1);
        assert_int_equal(times_said(WIRE_FROZEN), 0);
        freezer.off = "another reason";
        rounds(1);
        assert_string_equal(said(WIRE_FROZEN)->FROZEN.off, "another reason");
}

static void a_drain_for_the_overflow_does_not_freeze_the_program(void **state)
{
        unsigned prepared;

        begin_frozen(WIRE_FREEZE_MOVE);
        beside.overflow_drains = true;
        lock_acquire(&core_lock);
        agent_begin_drain(NSEC_PER_SEC, false);
        lock_release(&core_lock);
        prepared = freezer.prepared;
        now_ns += NSEC_PER_SEC / 2;
        rounds(2);
        assert_int_equal(freezer.begun, 0);
        assert_int_equal(freezer.prepared, prepared);
        quiesce_now = QUIESCE_DONE;
        rounds(1);
        assert_false(agent.revoking);
}

/* ---- a drain called off in the middle ---- */

static void call_off(void)
{
        lock_and(agent_end_drain);
}

static void a_program_is_thawed_if_its_drain_is_called_off_while_it_freezes(void **state)
{
        for (int when = 0; when < 2; when++) {
                begin_frozen(WIRE_FREEZE_MOVE);
                if (when)
                        freezer.while_it_confirms = call_off;
                else
                        freezer.while_it_begins = call_off;
                end_turn(LEASE);
                assert_false(freezer.stands);
                assert_true(core.running && !gate_is_shut());
                assert_int_equal(times_said(WIRE_DRAINED), 0);
                assert_int_equal(times_said(WIRE_DRAIN_FAILED), 0);
                freezer.while_it_confirms = freezer.while_it_begins = NULL;
                end_turn(LEASE); /* the next end of a turn is normal again */
                assert_int_equal(times_said(WIRE_DRAINED), 1);
                end_agent(NULL);
                (void)begin(NULL);
        }
}

/* ---- the mover ---- */

static void a_mover_is_made_in_a_turn_and_returns_unused_room(void **state)
{
        begin_freezer(WIRE_FREEZE_MOVE);
        begin_attached();
        gpu->context = &context;
        gpu->unevictable = 300 * MIB;
        limit(64 * MIB, 64 * MIB, 300 * MIB, 2);
        wake();
        assert_false(gpu->mover_asks); /* no room is requested before the turn */
        put(EXTENT_RESIDENT);
        grant();
        rounds(2);
        assert_int_equal(freezer.movers, 0);
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.unevictable, 602 * MIB);
        limit(64 * MIB, 64 * MIB, 602 * MIB, 3);
        rounds(1);
        assert_int_equal(freezer.movers, 1);
        assert_int_equal(gpu->mover_room, 152 * MIB); /* half a context, and the spare 2 MiB */
        assert_int_equal(gpu->unevictable, 452 * MIB);
        rounds(3);
        assert_int_equal(freezer.movers, 1);
}

static void ask_for_a_mover(void)
{
        begin_freezer(WIRE_FREEZE_MOVE);
        begin_running();
        gpu->context = &context;
        gpu->unevictable = gpu->unevictable_allowed = 300 * MIB;
        wake();
}

static void a_mover_refused_room_is_tried_again_later(void **state)
{
        struct wire_message *m;
        uint32_t refused;

        ask_for_a_mover();
        refused = gpu->refused_unevictable.count;
        assert_true(gpu->mover_asks);
        m = tell(WIRE_REFUSED);
        m->header.gpu = 0;
        m->REFUSED.code = WIRE_REFUSED_UNEVICTABLE;
        m->REFUSED.of = gpu->told.request_sequence;
        wake();
        assert_false(gpu->mover_asks);
        assert_int_equal(gpu->refused_unevictable.count, refused); /* it refuses no thread */
        assert_int_equal(gpu->unevictable_requested, 300 * MIB);
        wake();
        assert_false(gpu->mover_asks);
        gpu->unevictable_allowed = GIB;
        wake();
        assert_int_equal(freezer.movers, 0);
        now_ns += 10 * NSEC_PER_SEC;
        wake();
        assert_int_equal(freezer.movers, 1);
}

static void a_failed_mover_requests_more_room_up_to_two_contexts(void **state)
{
        static const uint64_t more[] = {0, 75, 150, 300, 300};
        unsigned i;

        ask_for_a_mover();
        freezer.no_mover = true;
        for (i = 0; i < ARRAY_SIZE(more); i++) {
                if (i == ARRAY_SIZE(more) - 1) {
                        limit(64 * MIB, 64 * MIB, 300 * MIB, 12);
                        rounds(2);
                        assert_false(gpu->mover_asks);
                        now_ns += 10 * NSEC_PER_SEC;
                }
                rounds(2);
                assert_int_equal(said(WIRE_REQUEST)->REQUEST.unevictable,
                                 (300 + 302 + more[i]) * MIB);
                limit(64 * MIB, 64 * MIB, (300 + 302 + more[i]) * MIB, 5 + 2 * i);
                rounds(1);
        }
        freezer.no_mover = false;
        assert_int_equal(gpu->unevictable, 300 * MIB);
        now_ns += 10 * NSEC_PER_SEC;
        rounds(3);
        assert_int_equal(freezer.movers, 1);
        assert_int_equal(gpu->mover_room,
                         302 * MIB); /* half of two contexts, and the spare 2 MiB */
}

static void an_old_refusal_for_a_mover_refuses_no_threads_request(void **state)
{
        struct wire_message *m;
        uint32_t refused, earlier;

        ask_for_a_mover();
        refused = gpu->refused_unevictable.count;
        earlier = gpu->told.request_sequence;
        gpu->request_dirty = true; /* another figure of the request has changed */
        wake();
        assert_int_not_equal(gpu->told.request_sequence, earlier);
        m = tell(WIRE_REFUSED);
        m->header.gpu = 0;
        m->REFUSED.code = WIRE_REFUSED_UNEVICTABLE;
        m->REFUSED.of = earlier;
        wake();
        assert_int_equal(gpu->refused_unevictable.count, refused);
        assert_true(gpu->mover_asks); /* the last request is still unanswered */
}

static void a_request_for_a_movers_room_ends_with_the_connection(void **state)
{
        const struct wire_message *m;

        ask_for_a_mover();
        sends = -EPIPE;
        gpu->request_dirty = true;
        wake();
        sends = 0;
        woken();
        now_ns += 2 * NSEC_PER_SEC;
        rounds(1);
        welcome();
        m = said(WIRE_ATTACH);
        assert_non_null(m);
        assert_int_equal(m->ATTACH.unevictable_requested, 300 * MIB);
        assert_false(m->ATTACH.flags & WIRE_FLAG_SPARE);
}

static void a_turn_that_ends_takes_back_the_request_for_a_movers_room(void **state)
{
        ask_for_a_mover();
        assert_int_equal(gpu->unevictable_requested, 602 * MIB);
        end_turn(LEASE);
        assert_false(gpu->mover_asks);
        assert_int_equal(gpu->unevictable_requested, 300 * MIB);
}

static void a_request_for_a_movers_room_carries_its_own_flag(void **state)
{
        ask_for_a_mover();
        assert_true(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_SPARE_REQUEST);
        assert_false(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_SPARE);
        gpu->unevictable_requested = 700 * MIB; /* another thread's request is larger */
        gpu->request_dirty = true;
        wake();
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.unevictable, 700 * MIB);
        assert_false(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_SPARE_REQUEST);
}

static void allow_a_thread_its_own(const struct core_wait *w)
{
        forget_sent();
        woken();
        if (!said(WIRE_REQUEST) || said(WIRE_REQUEST)->REQUEST.unevictable != 350 * MIB ||
            said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_SPARE_REQUEST)
                is_wrong("a thread's request is not said");
        wake();
        if (gpu->unevictable_requested != 350 * MIB)
                is_wrong("the mover's request takes the place of a thread's");
        limit(64 * MIB, 64 * MIB, 350 * MIB, 9);
        rounds(1);
}

static void a_threads_request_does_not_wait_for_the_movers(void **state)
{
        ask_for_a_mover();
        meanwhile = allow_a_thread_its_own;
        lock_acquire(&core_lock);
        assert_int_equal(request_unevictable(gpu, 50 * MIB), 0);
        lock_release(&core_lock);
        assert_int_equal(gpu->unevictable, 350 * MIB);
}

static void refuse_the_mover(void)
{
        struct wire_message *m = tell(WIRE_REFUSED);

        m->header.gpu = 0;
        m->REFUSED.code = WIRE_REFUSED_UNEVICTABLE;
        m->REFUSED.of = gpu->told.request_sequence;
        wake();
}

/* A thread used some of the room granted for the mover, and more was refused. */
static void a_refused_mover_returns_the_rest_of_its_grant(void **state)
{
        ask_for_a_mover();
        gpu->unevictable = 310 * MIB;
        gpu->unevictable_allowed = 602 * MIB;
        wake();
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.unevictable, 612 * MIB);
        forget_sent();
        refuse_the_mover();
        rounds(1);
        assert_int_equal(gpu->unevictable_requested, 310 * MIB);
        assert_non_null(said(WIRE_REQUEST));
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.unevictable, 310 * MIB);
}

static void a_client_with_nothing_to_spare_answers_spare(void **state)
{
        ask_for_a_mover();
        refuse_the_mover();
        rounds(1);
        forget_sent();
        tell(WIRE_SPARE)->header.gpu = 0;
        wake();
        assert_non_null(said(WIRE_REQUEST));
        assert_int_equal(
                said(WIRE_REQUEST)->REQUEST.flags & (WIRE_FLAG_SPARE | WIRE_FLAG_SPARE_REQUEST), 0);
}

/* Begins with a mover, for which the daemon grants room. */
static void have_a_mover(void)
{
        ask_for_a_mover();
        gpu->unevictable_allowed = GIB;
        rounds(2);
        assert_non_null(gpu->mover);
        assert_true(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_SPARE);
}

static void assert_mover_went(void)
{
        assert_null(gpu->mover);
        assert_int_equal(gpu->mover_room, 0);
        assert_int_equal(gpu->unevictable, 300 * MIB);
        rounds(1);
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.unevictable, 300 * MIB);
        assert_false(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_SPARE);
}

static void a_mover_ends_when_others_need_its_room(void **state)
{
        have_a_mover();
        tell(WIRE_SPARE)->header.gpu = 0;
        beside.transfers = true; /* a copy is in progress */
        wake();
        assert_non_null(gpu->mover);
        beside.transfers = false;
        wake();
        assert_mover_went();
        assert_true(core.running);
        rounds(3);
        assert_int_equal(freezer.movers, 1);
        now_ns += 10 * NSEC_PER_SEC;
        rounds(2);
        assert_int_equal(freezer.movers, 2);
}

/* A thread that exports memory may copy in the mover's context. */
static void a_mover_stays_while_a_thread_holds_an_extent(void **state)
{
        have_a_mover();
        put(EXTENT_RESIDENT);
        extent->busy = true;
        tell(WIRE_SPARE)->header.gpu = 0;
        rounds(2);
        assert_non_null(gpu->mover);
        extent->busy = false;
        rounds(1);
        assert_mover_went();
}

static void a_mover_stays_until_evicted_memory_is_restored(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        end_turn(LEASE);
        put(EXTENT_EVICTED);
        tell(WIRE_SPARE)->header.gpu = 0;
        wake();
        assert_true(freezer.stands);
        assert_non_null(gpu->mover);
        put(EXTENT_RESIDENT);
        grant();
        rounds(2);
        assert_false(freezer.stands);
        assert_mover_went();
}

static void a_mover_that_cannot_be_made_returns_its_room(void **state)
{
        begin_freezer(WIRE_FREEZE_MOVE);
        freezer.no_mover = true;
        begin_running();
        gpu->context = &context;
        gpu->unevictable = 700 * MIB;
        gpu->mover_room = 400 * MIB;
        wake();
        assert_null(gpu->mover);
        assert_int_equal(gpu->mover_room, 0);
        assert_int_equal(gpu->unevictable, 300 * MIB);
        check_plain_drain();
}

/* ---- PAUSE ---- */

static void a_paused_running_program_is_frozen_and_keeps_its_turn(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        pause_program(true);
        assert_true(freezer.stands && gate_is_shut() && !core.running);
        assert_int_equal(core.lease, LEASE);
        assert_int_equal(times_said(WIRE_IDLE), 1); /* the program does not use its turn */
        assert_int_equal(freezer.confirmed, 0);     /* no memory leaves */
        rounds(3);
        assert_int_equal(freezer.begun, 1);
        assert_int_equal(times_said(WIRE_IDLE), 1);
        assert_false(steps_evict);
        pause_program(false);
        assert_false(freezer.stands);
        assert_true(core.running && !gate_is_shut());
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
}

static void without_freezing_a_paused_program_waits_at_the_gate(void **state)
{
        begin_frozen(WIRE_FREEZE_OFF);
        pause_program(true);
        assert_true(gate_is_shut() && !core.running && !freezer.stands);
        assert_int_equal(freezer.begun, 0);
        pause_program(false);
        assert_true(core.running && !gate_is_shut());
}

static void a_pause_waits_for_the_self_test(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        freezer.ready = false;
        freezer.again = true;
        pause_program(true);
        assert_true(gate_is_shut() && !freezer.stands);
        assert_true(freezer.needed > 0);
        assert_true(slept_ns <= 10 * NSEC_PER_MSEC); /* the agent tries again soon */
        freezer.ready = true;
        rounds(1);
        assert_true(freezer.stands);
}

static void resumed_while_it_freezes(void)
{
        lock_acquire(&core_lock);
        agent_pause(false);
        lock_release(&core_lock);
        freezer.while_it_begins = NULL;
}

static void a_pause_that_ends_while_it_begins_leaves_nothing_frozen(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        freezer.while_it_begins = resumed_while_it_freezes;
        pause_program(true);
        rounds(1);
        assert_false(freezer.stands);
        assert_true(core.running && !gate_is_shut());
}

static void a_repeated_pause_or_resume_acts_once(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        pause_program(true);
        pause_program(true);
        assert_int_equal(freezer.begun, 1);
        pause_program(false);
        pause_program(false);
        assert_int_equal(freezer.ended, 1);
        assert_true(core.running);
}

static void a_paused_waiting_program_requests_no_turn(void **state)
{
        begin_freezer(WIRE_FREEZE_PARK);
        begin_attached();
        assert_true(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
        forget_sent();
        pause_program(true);
        assert_non_null(said(WIRE_REQUEST));
        assert_false(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
        /* The program keeps a grant that was on its way, but does not run. */
        limit(64 * MIB, 64 * MIB, 300 * MIB, 2);
        put(EXTENT_RESIDENT);
        grant();
        rounds(1);
        assert_false(core.running);
        assert_true(gate_is_shut());
        assert_int_equal(times_said(WIRE_IDLE), 1);
        pause_program(false);
        assert_true(core.running);
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
}

static void a_paused_evicted_program_stays_evicted_until_resumed(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        end_turn(LEASE);
        put(EXTENT_EVICTED);
        wake();
        forget_sent();
        pause_program(true);
        assert_false(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
        wake();
        assert_false(steps_restore);
        assert_true(freezer.stands);
        forget_sent();
        pause_program(false);
        assert_true(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
        assert_true(freezer.stands);
        limit(64 * MIB, 64 * MIB, 700 * MIB, 3);
        grant();
        put(EXTENT_RESIDENT);
        wake();
        assert_false(freezer.stands);
        assert_true(core.running);
}

/* ---- PAUSE and REVOKE ---- */

static void a_turn_of_a_paused_program_whose_memory_cannot_leave_does_not_end(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        pause_program(true);
        end_turn(LEASE);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 1);
        assert_int_equal(said(WIRE_DRAIN_FAILED)->DRAIN_FAILED.reason, WIRE_DRAIN_PAUSED);
        assert_true(freezer.stands && gate_is_shut() && !core.running && agent.paused);
        assert_int_equal(core.lease, LEASE);
        assert_false(steps_evict);
        pause_program(false);
        assert_true(core.running && !freezer.stands);
}

static void a_paused_program_whose_memory_can_leave_gives_way(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        pause_program(true);
        end_turn(LEASE);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
        assert_int_equal(freezer.begun, 1);
        assert_int_equal(freezer.confirmed, 1);
        assert_true(freezer.stands && agent.paused && agent.unfinished);
        assert_true(steps_evict);
        put(EXTENT_EVICTED);
        wake();
        assert_false(said(WIRE_REQUEST) && said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
        pause_program(false);
        assert_true(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
}

static void a_program_paused_during_a_drain_keeps_its_turn(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        end_turn(LEASE);
        assert_true(agent.revoking);
        pause_program(true);
        assert_int_equal(times_said(WIRE_DRAIN_FAILED), 1);
        rounds(1);
        assert_true(freezer.stands && gate_is_shut() && !core.running);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        pause_program(false);
        assert_true(core.running && !freezer.stands);
}

static void a_paused_program_that_cannot_be_moved_stays_paused(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        pause_program(true);
        freezer.confirms = false;
        end_turn(LEASE);
        assert_int_equal(times_said(WIRE_DRAINED), 0);
        assert_int_equal(said(WIRE_DRAIN_FAILED)->DRAIN_FAILED.reason, WIRE_DRAIN_PAUSED);
        rounds(1);
        assert_true(freezer.stands && gate_is_shut() && !core.running);
}

/* ---- without the daemon ---- */

static void lose_daemon(void)
{
        connects = -ECONNREFUSED;
        breaks = true;
        wake();
}

static void wait_for(uint64_t ns)
{
        for (uint64_t until = now_ns + ns; now_ns < until;) {
                now_ns += NSEC_PER_SEC;
                wake();
        }
}

static void a_paused_program_whose_daemon_is_gone_goes_on_after_a_while(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        pause_program(true);
        lose_daemon();
        wait_for(5 * NSEC_PER_SEC);
        assert_true(freezer.stands && !core.running && agent.paused);
        wait_for(10 * NSEC_PER_SEC);
        assert_false(freezer.stands);
        assert_true(core.running && !gate_is_shut() && !agent.paused);
}

static void a_paused_evicted_program_stays_evicted_without_a_daemon(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        end_turn(LEASE);
        put(EXTENT_EVICTED);
        wake();
        pause_program(true);
        lose_daemon();
        wait_for(30 * NSEC_PER_SEC);
        assert_true(freezer.stands && !core.running);
        assert_false(steps_evict);
        assert_true(gpu->limit < 64 * MIB); /* the last daemon's limit still holds */
}

static void a_paused_program_that_may_not_run_alone_stays_paused(void **state)
{
        (void)setenv("SUBLET_REQUIRE", "1", 1);
        begin_frozen(WIRE_FREEZE_PARK);
        pause_program(true);
        lose_daemon();
        wait_for(30 * NSEC_PER_SEC);
        assert_true(freezer.stands && !core.running && agent.paused);
        (void)unsetenv("SUBLET_REQUIRE");
}

/* ---- what the daemon is told ---- */

static void freezing_is_reported_when_it_changes(void **state)
{
        const struct wire_message *m;

        begin_frozen(WIRE_FREEZE_PARK);
        rounds(3);
        assert_int_equal(times_said(WIRE_FROZEN), 0);
        freezer.figures = (struct freeze_figures){.times = 3, .lost_ns = 4, .took_ns = 5};
        pause_program(true);
        m = said(WIRE_FROZEN);
        assert_non_null(m);
        assert_int_equal(m->FROZEN.mode, WIRE_FREEZE_PARK);
        assert_int_equal(m->FROZEN.why, WIRE_FROZEN_PAUSED);
        assert_true(m->FROZEN.for_ns > 0);
        assert_int_equal(m->FROZEN.times, 3);
        assert_int_equal(m->FROZEN.lost_ns, 4);
        assert_int_equal(m->FROZEN.took_ns, 5);
        assert_string_equal(m->FROZEN.off, "");
        forget_sent();
        rounds(5);
        assert_int_equal(times_said(WIRE_FROZEN), 0);
        pause_program(false);
        m = said(WIRE_FROZEN);
        assert_int_equal(m->FROZEN.why, 0);
        assert_int_equal(m->FROZEN.for_ns, 0);
        assert_int_equal(m->FROZEN.times, 4);
}

static void a_paused_program_without_its_memory_reports_both(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        end_turn(LEASE);
        assert_int_equal(said(WIRE_FROZEN)->FROZEN.why, WIRE_FROZEN_AWAY);
        pause_program(true);
        assert_int_equal(said(WIRE_FROZEN)->FROZEN.why, WIRE_FROZEN_AWAY | WIRE_FROZEN_PAUSED);
}

static void the_reason_against_freezing_is_reported(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        freezer.mode = WIRE_FREEZE_OFF;
        freezer.off = "the kernel driver does not offer it";
        wake();
        assert_int_equal(said(WIRE_FROZEN)->FROZEN.mode, WIRE_FREEZE_OFF);
        assert_string_equal(said(WIRE_FROZEN)->FROZEN.off, "the kernel driver does not offer it");
}

static void a_new_daemon_receives_the_freezing_state(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        breaks = true;
        wake();
        now_ns += 2 * NSEC_PER_SEC;
        wake();
        forget_sent();
        welcome();
        assert_int_equal(times_said(WIRE_FROZEN), 1);
        assert_int_equal(said(WIRE_FROZEN)->FROZEN.mode, WIRE_FREEZE_PARK);
}

/* The program's memory is evicted, so the agent must try nothing that could thaw the program. */
static void a_turn_revoked_before_it_begins_leaves_the_program_frozen(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        end_turn(LEASE);
        put(EXTENT_EVICTED);
        limit(64 * MIB, 64 * MIB, 700 * MIB, 3);
        grant();
        freezer.confirms = false;
        freezer.confirmed = 0;
        forget_sent();
        end_turn(LEASE);
        assert_true(freezer.stands && !core.running && gate_is_shut());
        assert_int_equal(freezer.confirmed, 0);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
}

/* The same holds for a program that is frozen instead of drained. */
static void a_lost_daemon_does_not_start_a_program_with_evicted_memory(void **state)
{
        begin_frozen(WIRE_FREEZE_OFF);
        quiesce_now = QUIESCE_DONE;
        end_turn(LEASE);
        put(EXTENT_EVICTED);
        limit(64 * MIB, 64 * MIB, 700 * MIB, 3);
        grant();
        quiesce_now = QUIESCE_BUSY;
        end_turn(LEASE);
        assert_false(agent.revoking); /* the program did not run, so the drain has ended at once */
        breaks = true;
        wake();
        assert_true(!core.running && gate_is_shut());
}

static void a_mover_ends_when_freezing_does_not_work(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        freezer.mode = WIRE_FREEZE_OFF;
        freezer.off = "it does not work";
        wake();
        rounds(1);
        assert_int_equal(freezer.movers_freed, 1);
        assert_null(gpu->mover);
        assert_int_equal(gpu->unevictable, 300 * MIB);
}

/* The program's own context restores the memory, so it must not be frozen until that is done. */
static void a_drained_program_without_a_mover_is_paused_without_being_frozen(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        quiesce_now = QUIESCE_DONE;
        end_turn(LEASE);
        assert_int_equal(times_said(WIRE_DRAINED), 1);
        put(EXTENT_EVICTED);
        wake();
        pause_program(true);
        rounds(1);
        assert_false(freezer.stands);
        pause_program(false);
        want_to_run(1);
        limit(64 * MIB, 64 * MIB, 300 * MIB, 3);
        grant();
        assert_true(steps_restore);
        assert_false(freezer.stands);
}

static void a_paused_program_keeps_its_memory_with_a_new_daemon(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        pause_program(true);
        breaks = true;
        wake();
        now_ns += 2 * NSEC_PER_SEC;
        wake();
        welcome();
        attached();
        limit(64 * MIB, 0, 300 * MIB, 1);
        rounds(2);
        assert_true(freezer.stands && agent.paused && !core.running);
        assert_false(steps_evict);
}

static void a_paused_program_goes_on_if_a_new_daemon_is_of_another_release(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        pause_program(true);
        breaks = true;
        wake();
        now_ns += 2 * NSEC_PER_SEC;
        wake();
        tell(WIRE_REFUSED)->REFUSED.code = WIRE_REFUSED_VERSION;
        rounds(2);
        assert_int_equal(daemon_line.link, LINK_REFUSED);
        assert_false(freezer.stands);
        assert_true(core.running && !gate_is_shut());
}

/* A frozen program may have threads that wait in the driver, where the agent cannot see them. */
static void a_frozen_program_requests_a_turn_even_without_work_in_flight(void **state)
{
        begin_frozen(WIRE_FREEZE_PARK);
        quiesce_now = QUIESCE_DONE;
        pause_program(true);
        assert_true(freezer.stands);
        breaks = true;
        wake();
        now_ns += 2 * NSEC_PER_SEC;
        wake();
        welcome();
        attached();
        forget_sent();
        pause_program(false);
        assert_true(!freezer.stands ||
                    (said(WIRE_REQUEST) && said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN));
}

/* ---- what the daemon allows ---- */

static void allow(enum wire_freeze most)
{
        tell(WIRE_FREEZE)->FREEZE.mode = most;
        rounds(1);
}

static void a_daemon_that_says_nothing_allows_all_freezing(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        assert_int_equal(freezer.allowed, WIRE_FREEZE_MOVE);
}

static void a_daemons_limit_on_freezing_applies_at_once(void **state)
{
        begin_freezer(WIRE_FREEZE_MOVE);
        rounds(1);
        welcome();
        allow(WIRE_FREEZE_OFF);
        assert_int_equal(freezer.allowed, WIRE_FREEZE_OFF); /* no GPU is attached yet */
        attached();
        assert_int_equal(freezer.allowed, WIRE_FREEZE_OFF);
}

/* Until it attaches, the new daemon may still send a limit on freezing of its own. */
static void an_old_daemons_limit_on_freezing_holds_until_a_new_one_attaches(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        allow(WIRE_FREEZE_PARK);
        breaks = true;
        wake();
        assert_int_equal(freezer.allowed, WIRE_FREEZE_PARK);
        now_ns += 2 * NSEC_PER_SEC;
        wake();
        welcome();
        assert_int_equal(freezer.allowed, WIRE_FREEZE_PARK);
        attached();
        assert_int_equal(freezer.allowed, WIRE_FREEZE_MOVE);
}

static void a_mover_ends_when_memory_may_no_longer_move(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        assert_non_null(gpu->mover);
        freezer.mode = WIRE_FREEZE_PARK;
        wake();
        assert_null(gpu->mover);
        assert_int_equal(freezer.movers_freed, 1);
        assert_int_equal(gpu->mover_room, 0);
        assert_int_equal(gpu->unevictable, 300 * MIB);
}

/* Freezing may also turn out to be impossible before the self-test. */
static void a_mover_ends_when_freezing_is_turned_off(void **state)
{
        begin_frozen(WIRE_FREEZE_MOVE);
        freezer.mode = WIRE_FREEZE_OFF;
        wake();
        assert_null(gpu->mover);
        assert_int_equal(freezer.movers_freed, 1);
        assert_int_equal(gpu->unevictable, 300 * MIB);
}

static void room_for_a_mover_that_is_not_made_is_given_back(void **state)
{
        begin_freezer(WIRE_FREEZE_PARK);
        begin_running();
        gpu->context = &context;
        gpu->unevictable = 700 * MIB;
        gpu->mover_room = 400 * MIB; /* room from a time when freezing was allowed */
        wake();
        assert_int_equal(freezer.movers, 0);
        assert_int_equal(gpu->mover_room, 0);
        assert_int_equal(gpu->unevictable, 300 * MIB);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_rank_whose_work_only_waits_is_idle_after_a_moment),
                TEST(a_thread_in_the_driver_does_not_keep_a_waiting_rank_from_being_idle),
                TEST(work_beside_the_wait_keeps_a_rank_from_being_idle),
                TEST(a_rank_is_active_again_when_its_wait_is_over),
                TEST(a_waiting_rank_that_must_be_drained_is_not_idle),
                TEST(a_drain_of_a_waiting_rank_fails_and_the_rank_is_active),
                TEST(a_rank_that_gave_way_asks_when_its_wait_is_over),
                TEST(a_rank_that_waits_on_asks_for_ever_longer_turns),
                TEST(a_rank_needs_its_second_context_more_than_the_share_allows),
                TEST(a_program_that_must_give_way_is_frozen_and_not_drained),
                TEST(a_frozen_program_goes_on_only_when_its_memory_is_back),
                TEST(memory_moves_under_the_watchdog_and_by_the_movers_channels),
                TEST(unfinished_work_requests_a_turn_without_waiting_threads),
                TEST(a_program_without_work_requests_no_turn),
                TEST(work_that_a_drain_cannot_see_counts_as_unfinished),
                TEST(a_program_that_may_only_be_paused_is_drained_to_give_way),
                TEST(a_program_without_a_mover_is_drained),
                TEST(a_program_is_drained_before_the_self_test),
                TEST(a_program_that_cannot_be_frozen_is_drained),
                TEST(a_program_whose_memory_cannot_leave_is_drained),
                TEST(a_freeze_that_failed_is_tried_again_in_the_same_drain),
                TEST(a_drain_that_began_while_freezing_was_off_ends_by_freezing),
                TEST(a_drain_that_lasts_makes_what_freezing_needs),
                TEST(a_new_reason_against_freezing_is_told),
                TEST(a_drain_for_the_overflow_does_not_freeze_the_program),
                TEST(a_program_is_thawed_if_its_drain_is_called_off_while_it_freezes),
                TEST(a_mover_is_made_in_a_turn_and_returns_unused_room),
                TEST(a_mover_refused_room_is_tried_again_later),
                TEST(a_failed_mover_requests_more_room_up_to_two_contexts),
                TEST(an_old_refusal_for_a_mover_refuses_no_threads_request),
                TEST(a_request_for_a_movers_room_ends_with_the_connection),
                TEST(a_turn_that_ends_takes_back_the_request_for_a_movers_room),
                TEST(a_request_for_a_movers_room_carries_its_own_flag),
                TEST(a_mover_ends_when_others_need_its_room),
                TEST(a_mover_stays_until_evicted_memory_is_restored),
                TEST(a_mover_stays_while_a_thread_holds_an_extent),
                TEST(a_threads_request_does_not_wait_for_the_movers),
                TEST(a_refused_mover_returns_the_rest_of_its_grant),
                TEST(a_client_with_nothing_to_spare_answers_spare),
                TEST(a_mover_that_cannot_be_made_returns_its_room),
                TEST(a_paused_running_program_is_frozen_and_keeps_its_turn),
                TEST(without_freezing_a_paused_program_waits_at_the_gate),
                TEST(a_pause_waits_for_the_self_test),
                TEST(a_pause_that_ends_while_it_begins_leaves_nothing_frozen),
                TEST(a_repeated_pause_or_resume_acts_once),
                TEST(a_paused_waiting_program_requests_no_turn),
                TEST(a_paused_evicted_program_stays_evicted_until_resumed),
                TEST(a_turn_of_a_paused_program_whose_memory_cannot_leave_does_not_end),
                TEST(a_paused_program_whose_memory_can_leave_gives_way),
                TEST(a_program_paused_during_a_drain_keeps_its_turn),
                TEST(a_paused_program_that_cannot_be_moved_stays_paused),
                TEST(a_paused_program_whose_daemon_is_gone_goes_on_after_a_while),
                TEST(a_paused_evicted_program_stays_evicted_without_a_daemon),
                TEST(a_paused_program_that_may_not_run_alone_stays_paused),
                TEST(freezing_is_reported_when_it_changes),
                TEST(a_paused_program_without_its_memory_reports_both),
                TEST(the_reason_against_freezing_is_reported),
                TEST(a_new_daemon_receives_the_freezing_state),
                TEST(a_turn_revoked_before_it_begins_leaves_the_program_frozen),
                TEST(a_lost_daemon_does_not_start_a_program_with_evicted_memory),
                TEST(a_mover_ends_when_freezing_does_not_work),
                TEST(a_drained_program_without_a_mover_is_paused_without_being_frozen),
                TEST(a_paused_program_keeps_its_memory_with_a_new_daemon),
                TEST(a_paused_program_goes_on_if_a_new_daemon_is_of_another_release),
                TEST(a_frozen_program_requests_a_turn_even_without_work_in_flight),
                TEST(a_daemon_that_says_nothing_allows_all_freezing),
                TEST(a_daemons_limit_on_freezing_applies_at_once),
                TEST(an_old_daemons_limit_on_freezing_holds_until_a_new_one_attaches),
                TEST(a_mover_ends_when_memory_may_no_longer_move),
                TEST(a_mover_ends_when_freezing_is_turned_off),
                TEST(room_for_a_mover_that_is_not_made_is_given_back),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
