/* test_agent_talk.c: requests to the daemon and reports to it: room, figures, memory handed over;
 * and the answers that waiting threads get. */
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

/* ---- room ---- */

static const uint64_t *asked; /* the daemon's limit, at each request */

static void answer_commit(const struct core_wait *w)
{
        forget_sent();
        woken();
        if (!said(WIRE_REQUEST))
                return;
        if (*asked) {
                limit(*asked, 64 * MIB, 300 * MIB, 9);
        } else {
                struct wire_message *m = tell(WIRE_REFUSED);

                m->REFUSED.code = WIRE_REFUSED_COMMIT;
                m->REFUSED.of = said(WIRE_REQUEST)->header.sequence;
                rounds(1);
        }
        asked++;
}

static int ask_commit(uint64_t bytes)
{
        int r;

        lock_acquire(&core_lock);
        r = request_commit(gpu, bytes);
        lock_release(&core_lock);
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
        assert_int_equal(gpu->commit_requested, 96 * MIB);
}

static void the_refusal_of_an_earlier_request_is_no_answer(void **state)
{
        struct wire_message *m;
        unsigned before;

        begin_running();
        gpu->commit_requested = 128 * MIB;
        gpu->request_dirty = true;
        wake();
        before = gpu->refused_commit.count;
        m = tell(WIRE_REFUSED);
        m->REFUSED.code = WIRE_REFUSED_COMMIT;
        m->REFUSED.of = said(WIRE_REQUEST)->header.sequence - 1;
        rounds(1);
        assert_int_equal(gpu->refused_commit.count, before);
        assert_int_equal(gpu->commit_requested, 128 * MIB);
        m = tell(WIRE_REFUSED);
        m->REFUSED.code = WIRE_REFUSED_COMMIT;
        m->REFUSED.of = said(WIRE_REQUEST)->header.sequence;
        rounds(1);
        assert_int_equal(gpu->refused_commit.count, before + 1);
        assert_int_equal(gpu->refused_commit.bytes, 128 * MIB);
        assert_int_equal(gpu->commit_requested, gpu->commit);
}

static bool allows_unevictable;

static void answer_unevictable(const struct core_wait *w)
{
        struct wire_message *m;

        forget_sent();
        woken();
        if (!said(WIRE_REQUEST))
                return;
        if (allows_unevictable) {
                limit(64 * MIB, 64 * MIB, said(WIRE_REQUEST)->REQUEST.unevictable, 9);
                return;
        }
        m = tell(WIRE_REFUSED);
        m->REFUSED.code = WIRE_REFUSED_UNEVICTABLE;
        m->REFUSED.of = said(WIRE_REQUEST)->header.sequence;
        rounds(1);
}

static void room_for_what_cannot_be_moved_is_taken_once_it_is_there(void **state)
{
        uint32_t heard;

        begin_running();
        lock_acquire(&core_lock);
        assert_int_equal(request_unevictable(gpu, 300 * MIB), 0); /* is there */
        assert_int_equal(gpu->unevictable, 300 * MIB);
        meanwhile = answer_unevictable;
        allows_unevictable = true;
        assert_int_equal(request_unevictable(gpu, 20 * MIB), 0);
        assert_int_equal(gpu->unevictable, 320 * MIB);
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.unevictable, 320 * MIB);
        allows_unevictable = false;
        assert_int_equal(request_unevictable(gpu, 50 * MIB), -ENOMEM);
        assert_int_equal(gpu->unevictable, 320 * MIB);
        assert_int_equal(gpu->unevictable_requested, 320 * MIB);
        heard = bell_listen(&core.changed);
        request_return_unevictable(gpu, 100 * MIB);
        assert_int_equal(gpu->unevictable, 220 * MIB);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        request_return_unevictable(gpu, 900 * MIB);
        assert_int_equal(gpu->unevictable, 0);
        lock_release(&core_lock);
        now_ns += NSEC_PER_SEC;
        rounds(1);
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.unevictable, 0);
        assert_int_equal(said(WIRE_USAGE)->USAGE.unevictable, 0);
}

static uint64_t host_allows;

static void answer_host(const struct core_wait *w)
{
        struct wire_message *m;

        forget_sent();
        if (w)
                woken();
        else
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
        lock_acquire(&core_lock);
        assert_int_equal(request_host(10 * MIB), 0);
        assert_int_equal(core.host.taking, 10 * MIB);
        assert_int_equal(core.host.most, 7 * GIB);
        assert_int_equal(core.host.allowed, 14 * MIB);
        assert_int_equal(request_host(10 * MIB), -ENOMEM);
        assert_int_equal(core.host.taking, 10 * MIB);
        assert_true(request_may_map(6 * MIB));
        assert_false(request_may_map(8 * MIB)); /* is asked for */
        lock_release(&core_lock);
        host_allows = GIB;
        answer_host(NULL);
        assert_int_equal(said(WIRE_HOST)->HOST.held, 4 * MIB);
        assert_int_equal(said(WIRE_HOST)->HOST.wanted, 22 * MIB);
        assert_true(request_may_map(8 * MIB));
        core.host.taking = 0;
}

static void room_that_is_not_used_is_given_back_after_a_while(void **state)
{
        begin_running();
        gpu->commit_requested = 512 * MIB;
        gpu->commit_used_ns = now_ns;
        limit(512 * MIB, 512 * MIB, 300 * MIB, 3);
        forget_sent();
        wake();
        assert_int_equal(gpu->commit, 512 * MIB);
        assert_in_range(slept_ns, 1, NSEC_PER_SEC);
        now_ns += NSEC_PER_SEC;
        gpu->commit_askers = 1;
        rounds(1);
        assert_int_equal(gpu->commit, 512 * MIB); /* a thread is about to use it */
        gpu->commit_askers = 0;
        rounds(1);
        assert_int_equal(gpu->commit, 64 * MIB); /* a block more than it uses */
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.commit, 64 * MIB);
        /* A LIMIT that was on its way grants nothing again. */
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
        lock_acquire(&core_lock);
        request_report(gpu);
        lock_release(&core_lock);
        rounds(1);
        assert_true(said(WIRE_USAGE)->USAGE.flags & WIRE_FLAG_STAYS);
}

static void figures_are_told_at_intervals_unless_somebody_waits(void **state)
{
        begin_running();
        now_ns += NSEC_PER_SEC;
        for (unsigned i = 0; i < 2; i++) {
                lock_acquire(&core_lock);
                request_report(gpu);
                lock_release(&core_lock);
                woken();
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
        lock_acquire(&core_lock);
        request_report(gpu);
        lock_release(&core_lock);
        rounds(1);
        assert_int_equal(said(WIRE_USAGE)->USAGE.backed, 8 * MIB);
        limit(64 * MIB, 16 * MIB, 300 * MIB, 3); /* it leaves */
        assert_int_equal(said(WIRE_USAGE)->USAGE.backed, 32 * MIB);
        limit(64 * MIB, 64 * MIB, 300 * MIB, 4);
        assert_int_equal(said(WIRE_USAGE)->USAGE.backed, 8 * MIB);
        core.running = true; /* and threads wait for new memory */
        gpu->usage_dirty = true;
        rounds(1);
        assert_int_equal(said(WIRE_USAGE)->USAGE.backed, 32 * MIB);
}

static void a_want_says_what_is_needed_to_run(void **state)
{
        begin_attached();
        assert_true(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.need, 32 * MIB);
        forget_sent();
        rounds(3);
        assert_int_equal(times_said(WIRE_REQUEST), 0); /* once */
        gpu->heap.allocated += 2 * MIB;
        rounds(1);
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.need, 34 * MIB);
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
        /* The kernel refuses the descriptor: the figures go without it. */
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
        m = tell(WIRE_GRANT); /* no descriptor goes along with that */
        box_fds[box_count - 1] = driver_foreign(MIB * 2, 1);
        rounds(1);
        assert_int_equal(open_descriptors(), before + 1);
}

static void less_that_is_exported_is_said_before_the_figures_and_more_after(void **state)
{
        begin_running();
        gpu->export_requested = 8 * MIB;
        gpu->usage_dirty = true;
        rounds(1);
        assert_int_equal(sent_count, 2);
        assert_int_equal(sent[0].header.type, WIRE_USAGE);
        assert_int_equal(sent[1].header.type, WIRE_EXPORT);
        assert_int_equal(sent[1].EXPORT.bytes, 8 * MIB);
        tell(WIRE_EXPORTED)->EXPORTED.bytes = 8 * MIB;
        rounds(1);
        assert_int_equal(gpu->export_allowed, 8 * MIB);
        forget_sent();
        gpu->export_requested = 0;
        gpu->usage_dirty = true;
        core.waiters = 1;
        rounds(1);
        assert_int_equal(sent[0].header.type, WIRE_EXPORT);
        assert_int_equal(sent[0].EXPORT.bytes, 0);
        assert_int_equal(gpu->export_allowed, 0);
}

/* ---- answers, and what has changed meanwhile ---- */

static unsigned step;

static void refuse_then_take_then_allow(const struct core_wait *w)
{
        switch (step++) {
        case 0:
                gpu->refused_unevictable.bytes = 400 * MIB; /* of another thread's */
                gpu->refused_unevictable.count++;
                break;
        case 1: /* a third thread takes some */
                gpu->unevictable = gpu->unevictable_requested = gpu->unevictable_allowed =
                        450 * MIB;
                break;
        default:
                woken();
                limit(64 * MIB, 64 * MIB, said(WIRE_REQUEST)->REQUEST.unevictable, 9);
        }
        bell_ring(&core.changed);
}

/* It was more than this thread wanted then; what it needs by now is not yet requested. */
static void a_refusal_that_was_heard_is_no_answer_to_what_is_needed_later(void **state)
{
        begin_running();
        step = 0;
        meanwhile = refuse_then_take_then_allow;
        lock_acquire(&core_lock);
        assert_int_equal(request_unevictable(gpu, 350 * MIB), 0);
        lock_release(&core_lock);
        assert_int_equal(gpu->unevictable, 800 * MIB);
        now_ns += NSEC_PER_MSEC;
        rounds(1);
        assert_int_equal(said(WIRE_USAGE)->USAGE.unevictable, 800 * MIB); /* told by itself */
}

static void a_thread_of_a_process_that_ends_gets_no_room(const struct core_wait *w)
{
        core.bystander = true;
        bell_ring(&core.changed);
}

static void nobody_waits_for_room_in_a_bystander(void **state)
{
        begin_running();
        meanwhile = a_thread_of_a_process_that_ends_gets_no_room;
        lock_acquire(&core_lock);
        assert_int_equal(request_unevictable(gpu, GIB), -ENOMEM);
        core.bystander = false;
        assert_int_equal(request_commit(gpu, GIB), -ENOMEM);
        core.bystander = false;
        assert_int_equal(request_host(GIB), -ENOMEM);
        core.bystander = false;
        gpu->managed = false;
        agent_attach(gpu);
        assert_false(gpu->managed);
        core.bystander = false;
        lock_release(&core_lock);
        assert_int_equal(gpu->unevictable, 0);
        assert_int_equal(gpu->commit_askers, 0);
        assert_int_equal(core.host.taking, 0);
        gpu->managed = true;
}

/* ---- more figures ---- */

static void figures_say_in_what_state_the_program_is(void **state)
{
        begin_running();
        agent.last_drain_ns = 17;
        limit(64 * MIB, 64 * MIB, 300 * MIB, 3);
        assert_int_equal(said(WIRE_USAGE)->USAGE.flags, WIRE_FLAG_RUNNING);
        assert_int_equal(said(WIRE_USAGE)->USAGE.drain_ns, 17);
        gpu->error = CUDA_ERROR_ASSERT;
        agent.idle = true;
        core.running = false;
        core.waiters = 1;
        inside = true;
        limit(64 * MIB, 16 * MIB, 300 * MIB, 4);
        assert_int_equal(said(WIRE_USAGE)->USAGE.flags,
                         WIRE_FLAG_RUN | WIRE_FLAG_IDLE | WIRE_FLAG_POISONED);
        agent.idle = false;
        core.waiters = 0;
}

static void managed_memory_is_told_when_it_changes(void **state)
{
        begin_running();
        gpu->heap.managed_bytes = 4 * MIB;
        rounds(2);
        assert_int_equal(times_said(WIRE_MANAGED), 1);
        assert_int_equal(said(WIRE_MANAGED)->MANAGED.bytes, 4 * MIB);
        gpu->heap.managed_bytes = 0;
        rounds(1);
        assert_int_equal(times_said(WIRE_MANAGED), 2);
}

static void host_memory_is_told_by_whoever_uses_some(void **state)
{
        begin_running();
        core.host.wanted = 3 * MIB;
        rounds(1);
        assert_int_equal(times_said(WIRE_HOST), 0); /* none of its GPUs overflows */
        gpu->overflow = true;
        rounds(2);
        assert_int_equal(times_said(WIRE_HOST), 1);
        gpu->heap.mapped = core.host.taking = 2 * MIB; /* one mapped, one to come */
        core.host.wanted = 4 * MIB;
        rounds(2);
        assert_int_equal(times_said(WIRE_HOST), 2);
        assert_int_equal(said(WIRE_HOST)->HOST.held, 2 * MIB);
        gpu->heap.mapped = MIB; /* lower figures are sent without a request */
        rounds(2);
        assert_int_equal(times_said(WIRE_HOST), 3);
        assert_int_equal(said(WIRE_HOST)->HOST.held, MIB);
        gpu->heap.mapped = core.host.taking = 0;
}

static void a_host_limit_answers_what_was_asked_last(void **state)
{
        struct wire_message *m;
        unsigned before = core.host.refused.count;

        begin_running();
        gpu->overflow = true;
        core.host.wanted = 8 * MIB;
        rounds(1);
        m = tell(WIRE_HOST_LIMIT);
        m->HOST_LIMIT.bytes = 2 * MIB;
        m->HOST_LIMIT.of = agent.host_sequence - 1;
        rounds(1);
        assert_int_equal(core.host.allowed, 2 * MIB);
        assert_int_equal(core.host.refused.count, before);
        m = tell(WIRE_HOST_LIMIT);
        m->HOST_LIMIT.bytes = 8 * MIB;
        m->HOST_LIMIT.of = agent.host_sequence;
        rounds(1);
        assert_int_equal(core.host.refused.count, before); /* all of it */
        m = tell(WIRE_HOST_LIMIT);
        m->HOST_LIMIT.bytes = 7 * MIB;
        m->HOST_LIMIT.of = agent.host_sequence;
        rounds(1);
        assert_int_equal(core.host.refused.count, before + 1);
        assert_int_equal(core.host.refused.bytes, 8 * MIB);
        assert_int_equal(core.host.wanted, 7 * MIB);
        forget_sent();
        rounds(1);
        assert_int_equal(times_said(WIRE_HOST), 0); /* the daemon knows that */
}

/* ---- limits ---- */

static void a_lower_limit_makes_the_program_ask_again(void **state)
{
        begin_attached();
        limit(64 * MIB, 64 * MIB, 300 * MIB, 2);
        forget_sent();
        limit(64 * MIB, 32 * MIB, 300 * MIB, 3); /* all of it fits */
        assert_int_equal(times_said(WIRE_REQUEST), 0);
        limit(64 * MIB, 16 * MIB, 300 * MIB, 4);
        assert_int_equal(times_said(WIRE_REQUEST), 1);
        limit(64 * MIB, 16 * MIB, 300 * MIB, 5); /* no less */
        assert_int_equal(times_said(WIRE_REQUEST), 1);
}

static void what_is_promised_again_is_asked_for_by_whoever_waits_for_it(void **state)
{
        begin_running();
        gpu->commit_requested = 128 * MIB;
        limit(128 * MIB, 64 * MIB, 300 * MIB, 3);
        assert_int_equal(gpu->commit, 128 * MIB);
        assert_int_equal(beside.room_changed, 2); /* more than before, also at first */
        forget_sent();
        limit(96 * MIB, 64 * MIB, 300 * MIB, 4);
        assert_int_equal(times_said(WIRE_REQUEST), 0);
        gpu->commit_askers = 1;
        limit(80 * MIB, 64 * MIB, 300 * MIB, 5);
        assert_int_equal(times_said(WIRE_REQUEST), 1);
        assert_int_equal(beside.room_changed, 2);
        gpu->commit_askers = 0;
        assert_int_equal(gpu->arena_limit, UINT64_MAX);
        assert_false(gpu->arena_trims);
}

static void more_than_the_arena_may_hold_is_trimmed(void **state)
{
        begin_running();
        for (unsigned i = 0; i < 2; i++) {
                struct wire_message *m = tell(WIRE_LIMIT);

                m->LIMIT.commit = m->LIMIT.backed = 64 * MIB;
                m->LIMIT.arena = 5 * MIB - i;
                m->LIMIT.visible_bytes = 700 * MIB;
                rounds(1);
                assert_int_equal(gpu->visible, 700 * MIB);
                assert_int_equal(gpu->arena_trims, i);
        }
}

/* The daemon ignores a request that is already granted, and may take the grant back. */
static void memory_that_is_missed_while_it_runs_is_asked_for_every_second(void **state)
{
        begin_running();
        gpu->heap.allocated += 2 * MIB;
        core.waiters = 1;
        rounds(1);
        assert_int_equal(times_said(WIRE_REQUEST), 1);
        now_ns += NSEC_PER_SEC - 1;
        rounds(1);
        assert_int_equal(times_said(WIRE_REQUEST), 1);
        now_ns++;
        rounds(1);
        assert_int_equal(times_said(WIRE_REQUEST), 2);
        gpu->heap.allocated -= 2 * MIB; /* nothing is missing any more */
        now_ns += NSEC_PER_SEC;
        rounds(2);
        assert_int_equal(times_said(WIRE_REQUEST), 2);
        core.waiters = 0;
}

static void exported_bytes_are_told_after_what_they_are_part_of(void **state)
{
        begin_running();
        gpu->export_requested = 8 * MIB;
        gpu->usage_dirty = true; /* the figure that includes it comes first */
        agent.usage_ns[0] = now_ns;
        gpu->export_said = 4 * MIB;
        rounds(1);
        assert_int_equal(sent[0].header.type, WIRE_USAGE);
        assert_int_equal(said(WIRE_EXPORT)->EXPORT.bytes, 8 * MIB);
        assert_int_equal(said(WIRE_EXPORT)->EXPORT.flags, 0);
        gpu->export_requested = gpu->export_said = 0;
}

static void room_is_given_back_only_where_it_is_much_and_nobody_needs_it(void **state)
{
        begin_running();
        now_ns += 10 * NSEC_PER_SEC;
        for (unsigned i = 0; i < 6; i++) {
                /* In use: 32 MiB; kept: a block more; two blocks are not worth a message. */
                gpu->commit = gpu->commit_requested = 128 * MIB + (i > 0);
                gpu->commit_askers = i == 1;
                beside.overflow_holds = i == 2;
                gpu->commit_kept = i == 3 ? 65 * MIB : 0;
                gpu->commit_requested += i == 4; /* it is asking for more */
                wake();
                assert_int_equal(gpu->commit, i == 5 ? 64 * MIB : 128 * MIB + (i > 0));
        }
}

/* ---- for people alone ---- */

static void bytes_without_a_copy_are_reported_with_the_figures(void **state)
{
        begin_running();
        gpu->spared_out = 3;
        gpu->spared_in = 4;
        limit(64 * MIB, 64 * MIB, 300 * MIB, 4);
        assert_int_equal(said(WIRE_SPARED)->SPARED.out, 3);
        assert_int_equal(said(WIRE_SPARED)->SPARED.in, 4);
        limit(64 * MIB, 64 * MIB, 300 * MIB, 5);
        assert_int_equal(times_said(WIRE_SPARED), 1); /* has not changed */
        gpu->spared_in++;
        limit(64 * MIB, 64 * MIB, 300 * MIB, 6);
        assert_int_equal(times_said(WIRE_SPARED), 2);
        breaks = true; /* another daemon knows nothing of it */
        rounds(1);
        now_ns += 10 * NSEC_PER_SEC;
        rounds(1);
        welcome();
        attached();
        limit(64 * MIB, 64 * MIB, 300 * MIB, 1);
        assert_int_equal(times_said(WIRE_SPARED), 3);
}

static void how_memory_is_shared_is_told_when_it_changes(void **state)
{
        begin_attached();
        assert_int_equal(times_said(WIRE_SELF), 1);
        assert_int_equal(said(WIRE_SELF)->SELF.mode, WIRE_MEMORY_SWAP);
        assert_int_equal(said(WIRE_SELF)->SELF.keep, 0);
        gpu->heap.managed = true;
        rounds(2);
        assert_int_equal(times_said(WIRE_SELF), 2);
        assert_int_equal(said(WIRE_SELF)->SELF.mode, WIRE_MEMORY_MANAGED);
        gpu->heap.managed = false;
        gpu->overflow = true;
        gpu->keep = 7 * MIB;
        rounds(1);
        assert_int_equal(said(WIRE_SELF)->SELF.mode, WIRE_MEMORY_OVERFLOW);
        assert_int_equal(said(WIRE_SELF)->SELF.keep, 7 * MIB);
        gpu->keep = UINT64_MAX; /* all of it */
        gpu->heap.mapped = MIB;
        rounds(2);
        assert_int_equal(times_said(WIRE_SELF), 4);
        assert_int_equal(said(WIRE_SELF)->SELF.overflow, MIB);
        assert_int_equal(said(WIRE_SELF)->SELF.keep, 0);
        gpu->heap.mapped = 0;
}

/* Without the time in which it was stopped. */
static void another_daemon_hears_how_long_the_program_has_run(void **state)
{
        begin_running();
        rounds(1);
        for (unsigned i = 0; i < 3; i++) {
                now_ns += NSEC_PER_SEC;
                rounds(1);
        }
        now_ns += 100 * NSEC_PER_SEC;
        rounds(1);
        agent.idle_said = true; /* from here on it only holds its turn */
        rounds(1);
        now_ns += NSEC_PER_SEC;
        rounds(1);
        breaks = true;
        rounds(1);
        now_ns = agent.retry_ns;
        rounds(1);
        welcome();
        attached();
        assert_int_equal(said(WIRE_SELF)->SELF.ran_ns, 5 * NSEC_PER_SEC);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
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
                AGENT_TEST(less_that_is_exported_is_said_before_the_figures_and_more_after),
                AGENT_TEST(a_refusal_that_was_heard_is_no_answer_to_what_is_needed_later),
                AGENT_TEST(nobody_waits_for_room_in_a_bystander),
                AGENT_TEST(figures_say_in_what_state_the_program_is),
                AGENT_TEST(managed_memory_is_told_when_it_changes),
                AGENT_TEST(host_memory_is_told_by_whoever_uses_some),
                AGENT_TEST(a_host_limit_answers_what_was_asked_last),
                AGENT_TEST(a_lower_limit_makes_the_program_ask_again),
                AGENT_TEST(what_is_promised_again_is_asked_for_by_whoever_waits_for_it),
                AGENT_TEST(more_than_the_arena_may_hold_is_trimmed),
                AGENT_TEST(memory_that_is_missed_while_it_runs_is_asked_for_every_second),
                AGENT_TEST(exported_bytes_are_told_after_what_they_are_part_of),
                AGENT_TEST(room_is_given_back_only_where_it_is_much_and_nobody_needs_it),
                AGENT_TEST(bytes_without_a_copy_are_reported_with_the_figures),
                AGENT_TEST(how_memory_is_shared_is_told_when_it_changes),
                AGENT_TEST(another_daemon_hears_how_long_the_program_has_run),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
