/* test_agent_talk.c: requests and reports to the daemon about room, figures and memory handed over,
 * and the answers that waiting threads get. */
#include "unit.h"

#include "agent_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/agent/agent.h"
#include "preload/heap/lent.h"
#include "preload/stream/gate.h"
#include "preload/state/request.h"

/* ---- room ---- */

static const uint64_t *asked; /* the limits with which the daemon answers the next requests */

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
        assert_int_equal(ask_commit(64 * MIB), 0); /* granted already */
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

static void unevictable_room_is_taken_once_it_is_granted(void **state)
{
        uint32_t heard;

        begin_running();
        lock_acquire(&core_lock);
        assert_int_equal(request_unevictable(gpu, 300 * MIB), 0); /* granted already */
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

static void answer_room(const struct core_wait *w)
{
        struct wire_message *m;

        forget_sent();
        woken();
        assert_true(said(WIRE_USAGE)->header.sequence < said(WIRE_ROOM)->header.sequence);
        m = tell(WIRE_ROOM_LEFT);
        m->ROOM_LEFT.commit = 48 * MIB;
        m->ROOM_LEFT.host = 3 * GIB;
        m->ROOM_LEFT.ask = said(WIRE_ROOM)->ROOM.ask;
        rounds(1);
}

static void time_passes(const struct core_wait *w)
{
        now_ns += NSEC_PER_SEC / 4;
        if (is_kicked())
                woken();
}

static void lose_the_daemon(const struct core_wait *w)
{
        breaks = true;
        rounds(1);
}

static void the_daemon_says_how_much_room_is_left(void **state)
{
        begin_running();
        gpu->usage_dirty = true; /* so that the answer counts what was freed just now */
        meanwhile = answer_room;
        lock_acquire(&core_lock);
        request_room(gpu);
        assert_int_equal(gpu->room, 48 * MIB);
        assert_int_equal(gpu->room_host, 3 * GIB);
        meanwhile = time_passes; /* a daemon that does not answer holds nobody up */
        request_room(gpu);
        assert_int_equal(gpu->room, UINT64_MAX);
        assert_int_equal(gpu->room_host, UINT64_MAX);
        meanwhile = lose_the_daemon;
        request_room(gpu);
        assert_int_equal(gpu->room, UINT64_MAX);
        lock_release(&core_lock);
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
        assert_false(request_may_map(8 * MIB)); /* not granted, so it is requested */
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
        assert_int_equal(gpu->commit, 512 * MIB); /* a thread is about to use the room */
        gpu->commit_askers = 0;
        rounds(1);
        assert_int_equal(gpu->commit, 64 * MIB); /* a block more than the program uses */
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.commit, 64 * MIB);
        /* A LIMIT that was on its way does not grant the room again. */
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

static void figures_are_reported_at_intervals_unless_a_thread_waits(void **state)
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

/* Otherwise the daemon would grant a turn before the memory is back. */
static void memory_on_its_way_in_is_not_reported_as_backed(void **state)
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
        limit(64 * MIB, 16 * MIB, 300 * MIB, 3); /* the memory has to leave */
        assert_int_equal(said(WIRE_USAGE)->USAGE.backed, 32 * MIB);
        limit(64 * MIB, 64 * MIB, 300 * MIB, 4);
        assert_int_equal(said(WIRE_USAGE)->USAGE.backed, 8 * MIB);
        core.running = true; /* threads of a running program wait for new memory */
        gpu->usage_dirty = true;
        rounds(1);
        assert_int_equal(said(WIRE_USAGE)->USAGE.backed, 32 * MIB);
}

static void a_request_to_run_states_the_bytes_needed(void **state)
{
        begin_attached();
        assert_true(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.need, 32 * MIB);
        forget_sent();
        rounds(3);
        assert_int_equal(times_said(WIRE_REQUEST), 0); /* the request is not repeated */
        gpu->heap.allocated += 2 * MIB;
        rounds(1);
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.need, 34 * MIB);
        gpu->heap.allocated -= 2 * MIB;
}

static void memory_to_hand_over_travels_with_the_figures(void **state)
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

static void memory_handed_over_is_kept_if_its_size_matches(void **state)
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
        m = tell(WIRE_GRANT); /* a message that must carry no descriptor */
        box_fds[box_count - 1] = driver_foreign(MIB * 2, 1);
        rounds(1);
        assert_int_equal(open_descriptors(), before + 1);
}

static void fewer_exported_bytes_are_reported_before_usage_and_more_after(void **state)
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

/* ---- answers to waiting threads ---- */

static unsigned step;

static void refuse_then_take_then_allow(const struct core_wait *w)
{
        switch (step++) {
        case 0:
                gpu->refused_unevictable.bytes = 400 * MIB; /* a request of another thread */
                gpu->refused_unevictable.count++;
                break;
        case 1: /* a third thread takes bytes of the room */
                gpu->unevictable = gpu->unevictable_requested = gpu->unevictable_allowed =
                        450 * MIB;
                break;
        default:
                woken();
                limit(64 * MIB, 64 * MIB, said(WIRE_REQUEST)->REQUEST.unevictable, 9);
        }
        bell_ring(&core.changed);
}

/* The refused request was for 400 MiB, more than this thread needed then. When the thread wakes it
 * needs 800 MiB in all, which nobody has requested yet. */
static void a_refusal_of_fewer_bytes_does_not_answer_a_later_need(void **state)
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
        assert_int_equal(said(WIRE_USAGE)->USAGE.unevictable, 800 * MIB); /* reported unasked */
}

static void a_thread_of_a_process_that_ends_gets_no_room(const struct core_wait *w)
{
        core.bystander = true;
        bell_ring(&core.changed);
}

static void no_thread_waits_for_room_in_a_bystander(void **state)
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

static void figures_report_the_state_of_the_program(void **state)
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
        anybody_inside = true;
        limit(64 * MIB, 16 * MIB, 300 * MIB, 4);
        assert_int_equal(said(WIRE_USAGE)->USAGE.flags,
                         WIRE_FLAG_RUN | WIRE_FLAG_IDLE | WIRE_FLAG_POISONED);
        agent.idle = false;
        core.waiters = 0;
}

static void managed_memory_is_reported_when_it_changes(void **state)
{
        begin_running();
        gpu->heap.managed_bytes = 4 * MIB;
        rounds(2);
        assert_int_equal(times_said(WIRE_MANAGED), 1);
        assert_int_equal(said(WIRE_MANAGED)->MANAGED.bytes, 4 * MIB);
        gpu->heap.managed_bytes = 0;
        rounds(1);
        assert_int_equal(times_said(WIRE_MANAGED), 2);
        gpu->heap.managed_left = 6 * MIB;
        rounds(2);
        assert_int_equal(times_said(WIRE_MANAGED), 3);
        assert_int_equal(said(WIRE_MANAGED)->MANAGED.left, 6 * MIB);
        gpu->heap.managed_left = 0;
}

static void host_memory_is_reported_only_if_a_gpu_overflows(void **state)
{
        begin_running();
        core.host.wanted = 3 * MIB;
        rounds(1);
        assert_int_equal(times_said(WIRE_HOST), 0); /* no GPU of the program overflows */
        gpu->overflow = true;
        rounds(2);
        assert_int_equal(times_said(WIRE_HOST), 1);
        gpu->heap.mapped = core.host.taking = 2 * MIB; /* 2 MiB mapped, 2 MiB to come */
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

static void a_host_limit_answers_the_last_request(void **state)
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
        assert_int_equal(core.host.refused.count, before); /* all bytes were granted */
        m = tell(WIRE_HOST_LIMIT);
        m->HOST_LIMIT.bytes = 7 * MIB;
        m->HOST_LIMIT.of = agent.host_sequence;
        rounds(1);
        assert_int_equal(core.host.refused.count, before + 1);
        assert_int_equal(core.host.refused.bytes, 8 * MIB);
        assert_int_equal(core.host.wanted, 7 * MIB);
        forget_sent();
        rounds(1);
        assert_int_equal(times_said(WIRE_HOST), 0); /* the daemon knows the lower figure */
}

/* ---- the host pool ---- */

static void host_memory_that_is_wanted_is_asked_for(void **state)
{
        const int file = memfd_create("pool", MFD_CLOEXEC);
        struct wire_message *m;
        uint32_t pool;
        char *memory;

        assert_int_equal(ftruncate(file, 64 * MIB), 0);
        begin_attached();
        assert_int_equal(lent_want(4 * MIB), LENT_NONE);
        m = tell(WIRE_HOST_POOL);
        m->HOST_POOL.bytes = 32 * MIB;
        box_fds[box_count - 1] = dup(file);
        rounds(1);
        assert_int_equal(said(WIRE_FILL)->FILL.end, 0); /* nothing is kept of an earlier daemon */
        assert_int_equal(lent_want(4 * MIB), LENT_ASKED);
        forget_sent();
        rounds(2);
        assert_int_equal(times_said(WIRE_FILL), 1);
        assert_int_equal(said(WIRE_FILL)->FILL.end, 4 * MIB);
        assert_int_equal(fallocate(file, 0, 0, 4 * MIB), 0);
        m = tell(WIRE_FILLED);
        m->FILLED.filled = m->FILLED.end = 4 * MIB;
        rounds(1);
        assert_int_equal(lent_ready(), 4 * MIB);
        memory = lent_map(2 * MIB, &pool);
        assert_non_null(memory);
        m = tell(WIRE_FILLED);
        m->FILLED.filled = m->FILLED.end = 4 * MIB;
        m->FILLED.refused = 1;
        rounds(1);
        breaks = true;
        rounds(1);
        assert_false(lent_is_there());
        assert_int_equal(lent_ready(), 0);
        lent_unmap(memory, 2 * MIB, pool);
        (void)close(file);
}

/* ---- limits ---- */

static void a_lower_limit_makes_the_program_ask_again(void **state)
{
        begin_attached();
        limit(64 * MIB, 64 * MIB, 300 * MIB, 2);
        forget_sent();
        limit(64 * MIB, 32 * MIB, 300 * MIB, 3); /* all memory still fits */
        assert_int_equal(times_said(WIRE_REQUEST), 0);
        limit(64 * MIB, 16 * MIB, 300 * MIB, 4);
        assert_int_equal(times_said(WIRE_REQUEST), 1);
        limit(64 * MIB, 16 * MIB, 300 * MIB, 5); /* not lower than before */
        assert_int_equal(times_said(WIRE_REQUEST), 1);
}

static void a_lowered_commit_is_requested_again_only_for_a_waiting_thread(void **state)
{
        begin_running();
        gpu->commit_requested = 128 * MIB;
        limit(128 * MIB, 64 * MIB, 300 * MIB, 3);
        assert_int_equal(gpu->commit, 128 * MIB);
        assert_int_equal(room_changes, 2); /* two higher commits: the first one and this */
        forget_sent();
        limit(96 * MIB, 64 * MIB, 300 * MIB, 4);
        assert_int_equal(times_said(WIRE_REQUEST), 0);
        gpu->commit_askers = 1;
        limit(80 * MIB, 64 * MIB, 300 * MIB, 5);
        assert_int_equal(times_said(WIRE_REQUEST), 1);
        assert_int_equal(room_changes, 2);
        gpu->commit_askers = 0;
}

static void a_limit_says_how_large_the_card_looks(void **state)
{
        struct wire_message *m;

        begin_running();
        m = tell(WIRE_LIMIT);
        m->LIMIT.commit = m->LIMIT.backed = 64 * MIB;
        m->LIMIT.visible_bytes = 700 * MIB;
        rounds(1);
        assert_int_equal(gpu->visible, 700 * MIB);
}

/* The daemon ignores a request that is already granted, and may take the grant back. */
static void a_running_program_requests_missing_memory_every_second(void **state)
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
        gpu->heap.allocated -= 2 * MIB; /* no memory is missing any more */
        now_ns += NSEC_PER_SEC;
        rounds(2);
        assert_int_equal(times_said(WIRE_REQUEST), 2);
        core.waiters = 0;
}

static void exported_bytes_are_reported_after_the_usage_that_includes_them(void **state)
{
        begin_running();
        gpu->export_requested = 8 * MIB;
        gpu->usage_dirty = true; /* USAGE, which includes these bytes, has to come first */
        gpu->told.usage_ns = now_ns;
        gpu->told.exported = 4 * MIB;
        rounds(1);
        assert_int_equal(sent[0].header.type, WIRE_USAGE);
        assert_int_equal(said(WIRE_EXPORT)->EXPORT.bytes, 8 * MIB);
        assert_int_equal(said(WIRE_EXPORT)->EXPORT.flags, 0);
        gpu->export_requested = gpu->told.exported = 0;
}

static void only_large_unneeded_room_is_given_back(void **state)
{
        begin_running();
        now_ns += 10 * NSEC_PER_SEC;
        for (unsigned i = 0; i < 6; i++) {
                /* The program uses 32 MiB and keeps a block more. Two blocks beyond that are not
                 * worth a message. */
                gpu->commit = gpu->commit_requested = 128 * MIB + (i > 0);
                gpu->commit_askers = i == 1;
                beside.overflow_holds = i == 2;
                gpu->commit_kept = i == 3 ? 65 * MIB : 0;
                gpu->commit_requested += i == 4; /* a request for more is under way */
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
        assert_int_equal(times_said(WIRE_SPARED), 1); /* the figures have not changed */
        gpu->spared_in++;
        limit(64 * MIB, 64 * MIB, 300 * MIB, 6);
        assert_int_equal(times_said(WIRE_SPARED), 2);
        breaks = true; /* a new daemon does not know these figures */
        rounds(1);
        now_ns += 10 * NSEC_PER_SEC;
        rounds(1);
        welcome();
        attached();
        limit(64 * MIB, 64 * MIB, 300 * MIB, 1);
        assert_int_equal(times_said(WIRE_SPARED), 3);
}

static void the_way_of_sharing_memory_is_reported_when_it_changes(void **state)
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
        gpu->keep = UINT64_MAX; /* keep all buffers on the card */
        gpu->heap.mapped = MIB;
        rounds(2);
        assert_int_equal(times_said(WIRE_SELF), 4);
        assert_int_equal(said(WIRE_SELF)->SELF.overflow, MIB);
        assert_int_equal(said(WIRE_SELF)->SELF.keep, 0);
        gpu->heap.mapped = 0;
}

/* The time that the program was stopped does not count. */
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
        agent.idle_said = true; /* from here on the program is idle in its turn */
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
                AGENT_TEST(unevictable_room_is_taken_once_it_is_granted),
                AGENT_TEST(the_daemon_says_how_much_room_is_left),
                AGENT_TEST(host_memory_is_asked_for_before_it_is_mapped),
                AGENT_TEST(host_memory_that_is_wanted_is_asked_for),
                AGENT_TEST(room_that_is_not_used_is_given_back_after_a_while),
                AGENT_TEST(a_limit_is_acknowledged_with_true_figures),
                AGENT_TEST(figures_are_reported_at_intervals_unless_a_thread_waits),
                AGENT_TEST(memory_on_its_way_in_is_not_reported_as_backed),
                AGENT_TEST(a_request_to_run_states_the_bytes_needed),
                AGENT_TEST(memory_to_hand_over_travels_with_the_figures),
                AGENT_TEST(memory_handed_over_is_kept_if_its_size_matches),
                AGENT_TEST(fewer_exported_bytes_are_reported_before_usage_and_more_after),
                AGENT_TEST(a_refusal_of_fewer_bytes_does_not_answer_a_later_need),
                AGENT_TEST(no_thread_waits_for_room_in_a_bystander),
                AGENT_TEST(figures_report_the_state_of_the_program),
                AGENT_TEST(managed_memory_is_reported_when_it_changes),
                AGENT_TEST(host_memory_is_reported_only_if_a_gpu_overflows),
                AGENT_TEST(a_host_limit_answers_the_last_request),
                AGENT_TEST(a_lower_limit_makes_the_program_ask_again),
                AGENT_TEST(a_lowered_commit_is_requested_again_only_for_a_waiting_thread),
                AGENT_TEST(a_limit_says_how_large_the_card_looks),
                AGENT_TEST(a_running_program_requests_missing_memory_every_second),
                AGENT_TEST(exported_bytes_are_reported_after_the_usage_that_includes_them),
                AGENT_TEST(only_large_unneeded_room_is_given_back),
                AGENT_TEST(bytes_without_a_copy_are_reported_with_the_figures),
                AGENT_TEST(the_way_of_sharing_memory_is_reported_when_it_changes),
                AGENT_TEST(another_daemon_hears_how_long_the_program_has_run),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
