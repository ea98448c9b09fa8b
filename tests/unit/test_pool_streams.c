/* test_pool_streams.c: a stream reuses memory that another stream freed, but not too early. */
#include "unit.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "pool_bench.h"

static const struct pool_stream *s0, *s1;
static struct pool *p;

static int begin(void **state)
{
        static struct pool_stream first, second;

        first = stream_of(0);
        second = stream_of(1);
        s0 = &first;
        s1 = &second;
        (void)begin_pools(state);
        threshold = UINT64_MAX; /* pools keep all memory */
        p = pool_made(1);
        return 0;
}

/* Takes an extent and frees it behind unfinished work of the stream. */
static CUdeviceptr freed_behind_work(const struct pool_stream *s)
{
        CUdeviceptr at = take(p, s, WHOLE);

        stream_put(s);
        give(at, s);
        return at;
}

static void a_stream_reuses_its_own_freed_memory_at_once(void **state)
{
        CUdeviceptr at = freed_behind_work(s0);

        assert_int_equal(whole(p, 0), at);
        assert_int_equal(asked, 0);
        assert_int_equal(gpu->heap.allocated, WHOLE);
}

static void another_stream_gets_freed_memory_when_the_free_is_reached(void **state)
{
        CUdeviceptr at = freed_behind_work(s0);

        assert_int_not_equal(whole(p, 1), at);
        stream_done(s0);
        assert_int_equal(whole(p, 1), at);
        assert_int_equal(waits_put, 0);
}

static void an_event_tells_how_far_a_busy_stream_is(void **state)
{
        CUdeviceptr late = whole(p, 0), between = whole(p, 1), at = freed_behind_work(s0);

        assert_int_equal(between, late + WHOLE); /* keeps the two frees of stream 0 apart */
        assert_int_not_equal(whole(p, 1), at);
        assert_int_equal(events, 1);
        stream_put(s0);
        give(late, s0);
        assert_int_not_equal(whole(p, 1), at); /* the later free does not move the event */
        stream_step(s0);
        assert_int_equal(whole(p, 1), at);
        assert_int_not_equal(whole(p, 1), late);
        stream_step(s0);
        assert_int_equal(whole(p, 1), late);
        assert_int_equal(events, 1);
}

static void what_a_busy_stream_frees_later_gets_an_event_of_its_own(void **state)
{
        CUdeviceptr late = whole(p, 0), between = whole(p, 1), at = freed_behind_work(s0);

        assert_int_equal(between, late + WHOLE); /* keeps the two frees of stream 0 apart */
        assert_int_not_equal(whole(p, 1), at);
        stream_put(s0);
        give(late, s0);
        stream_step(s0);
        assert_int_equal(whole(p, 1), at);
        stream_put(s0); /* the stream stays busy */
        stream_step(s0);
        assert_int_equal(whole(p, 1), late);
}

static CUdeviceptr freed_meanwhile;

static void free_more(void)
{
        recording = NULL;
        lock_acquire(&core_lock);
        stream_put(s0);
        give(freed_meanwhile, s0);
        lock_release(&core_lock);
}

static void an_event_does_not_cover_what_is_freed_while_it_is_recorded(void **state)
{
        CUdeviceptr at;

        freed_meanwhile = whole(p, 0);
        (void)whole(p, 1); /* keeps the two frees of stream 0 apart */
        at = freed_behind_work(s0);
        recording = free_more;
        (void)whole(p, 1);
        stream_step(s0);
        assert_int_equal(whole(p, 1), at);
        assert_int_not_equal(whole(p, 1), freed_meanwhile);
}

static void memory_behind_an_event_that_failed_waits_for_the_stream(void **state)
{
        CUdeviceptr at = freed_behind_work(s0);

        record_error = CUDA_ERROR_OUT_OF_MEMORY;
        (void)whole(p, 1);
        assert_int_not_equal(whole(p, 1), at);
        stream_done(s0);
        assert_int_equal(whole(p, 1), at);
}

static void no_stream_is_queried_during_a_capture(void **state)
{
        CUdeviceptr at = freed_behind_work(s0);

        stream_done(s0);
        fake_capturing = true;
        assert_int_not_equal(whole(p, 1), at);
        pool_trim(p, 0);
        assert_int_equal(asked, 0);
        fake_capturing = false;
        assert_int_equal(whole(p, 1), at);
}

static void a_threads_stream_is_queried_only_through_its_event(void **state)
{
        const struct pool_stream mine = stream_default(CU_STREAM_PER_THREAD, 1, 1);
        CUdeviceptr at = freed_behind_work(&mine);

        stream_done(&mine);
        assert_int_not_equal(whole(p, 1), at);
        assert_int_equal(events, 0);
        stream_put(&mine);
        pool_mark(extent_at(whole(p, 2))->block, &mine);
        assert_int_equal(events, 1);
        assert_int_not_equal(whole(p, 1), at);
        stream_done(&mine);
        assert_int_equal(whole(p, 1), at);
}

static void a_stream_that_has_freed_nothing_is_not_marked(void **state)
{
        const struct pool_stream mine = stream_default(CU_STREAM_PER_THREAD, 1, 1);
        struct block other = {.kind = BLOCK_LARGE};

        pool_mark(extent_at(whole(p, 1))->block, &mine);
        pool_mark(&other, &mine);
        assert_int_equal(events, 0);
}

/* Checks that a stream does not at once get memory that another stream has freed. */
static void assert_strangers(const struct pool_stream *a, const struct pool_stream *b)
{
        CUdeviceptr at = freed_behind_work(a);

        assert_int_not_equal(take(p, b, WHOLE), at);
        assert_int_equal(take(p, a, WHOLE), at);
}

static void default_streams_differ_by_context_and_thread(void **state)
{
        const struct pool_stream legacy[] = {stream_default(CU_STREAM_LEGACY, 1, 0),
                                             stream_default(CU_STREAM_LEGACY, 2, 0)};
        const struct pool_stream own[] = {stream_default(CU_STREAM_PER_THREAD, 1, 1),
                                          stream_default(CU_STREAM_PER_THREAD, 1, 2),
                                          stream_default(CU_STREAM_PER_THREAD, 2, 1)};

        assert_strangers(&legacy[0], &legacy[1]);
        assert_strangers(&legacy[0], &own[0]);
        assert_strangers(&own[0], &own[1]);
        assert_strangers(&own[0], &own[2]);
}

static void a_new_stream_does_not_inherit_from_an_ended_one(void **state)
{
        CUdeviceptr at = freed_behind_work(s0);

        stream_end(s0);
        assert_int_equal(events, 1);
        assert_int_not_equal(whole(p, 0), at);
        assert_int_not_equal(whole(p, 1), at);
        all_done();
        assert_int_equal(whole(p, 0), at);
        assert_int_equal(events_destroyed, 1); /* the event is destroyed with the stream */
}

static void a_stream_that_ends_idle_leaves_no_event(void **state)
{
        CUdeviceptr at = freed_behind_work(s0);

        stream_done(s0);
        stream_end(s0);
        assert_int_equal(events, 0);
        assert_int_equal(whole(p, 1), at);
}

static void a_stream_that_ends_behind_its_event_gets_no_second_event(void **state)
{
        CUdeviceptr at = freed_behind_work(s0);

        (void)whole(p, 1);
        stream_put(s0);
        record_error = CUDA_ERROR_INVALID_HANDLE;
        stream_end(s0);
        record_error = CUDA_SUCCESS;
        all_done();
        assert_int_equal(whole(p, 1), at);
}

static void the_end_of_a_stream_affects_no_other_stream(void **state)
{
        struct pool *second = pool_made(2);
        CUdeviceptr at = freed_behind_work(s0), other = whole(second, 1);

        stream_put(s1);
        give(other, s1);
        stream_end(s1); /* only the second pool knows the stream */
        assert_int_equal(whole(p, 0), at);
        assert_int_not_equal(whole(second, 2), other);
        all_done();
        assert_int_equal(whole(second, 2), other);
}

static void the_end_of_a_context_is_the_end_of_its_work(void **state)
{
        const struct pool_stream elsewhere = stream_default(CU_STREAM_LEGACY, 2, 0);
        CUdeviceptr at = freed_behind_work(s0);

        assert_int_not_equal(take(p, &elsewhere, WHOLE), at);
        assert_int_equal(events, 1);
        context_end(3);
        assert_int_not_equal(take(p, &elsewhere, WHOLE), at);
        context_end(1);
        assert_int_equal(take(p, &elsewhere, WHOLE), at);
        context_now(4); /* in context 4, the same handle is a new stream */
        stream_put(s0);
        give(at, s0);
        assert_int_not_equal(take(p, &elsewhere, WHOLE), at);
        assert_int_equal(events_destroyed, 0); /* the first event ended with its context */
}

static void streams_without_freed_memory_are_kept(unsigned count, unsigned most)
{
        CUdeviceptr at[32];

        for (unsigned i = 0; i < count; i++)
                at[i] = piece(p, i);
        all_busy();
        for (unsigned i = 0; i < count; i++)
                piece_free(at[i], i);
        assert_false(pool_reclaim(gpu, 1));
        assert_int_equal(events, count);
        assert_int_equal(events_destroyed, 0);
        all_done();
        assert_true(pool_reclaim(gpu, 1));
        assert_int_equal(events_destroyed, count - MIN(count, most));
}

static void sixteen_streams_without_freed_memory_are_kept(void **state)
{
        streams_without_freed_memory_are_kept(16, 16);
}

static void the_seventeenth_stream_without_freed_memory_is_forgotten(void **state)
{
        streams_without_freed_memory_are_kept(17, 16);
}

/* ---- no room for more ---- */

static void no_more_than(uint64_t bytes)
{
        gpu_room = bytes;
}

static void assert_no_room(const struct pool_stream *s, uint64_t bytes)
{
        CUdeviceptr at = 1;

        assert_int_equal(pool_allocate(p, s, bytes, &at), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(at, 1);
}

static void a_stream_without_room_waits_for_the_free_of_another(void **state)
{
        CUdeviceptr at = freed_behind_work(s0);

        no_more_than(WHOLE);
        assert_int_equal(whole(p, 1), at);
        assert_int_equal(waits_put, 1);
        assert_ptr_equal(waiting_stream.handle, s1->handle);
        assert_ptr_equal(awaited_stream.handle, s0->handle);
        assert_int_equal(promises, 1);
        assert_int_equal(searches, 0);
        give(at, s1); /* the memory belongs to the second stream now */
        assert_int_equal(whole(p, 1), at);
        assert_int_equal(waits_put, 1);
}

static void a_promise_of_room_is_preferred_to_a_wait(void **state)
{
        CUdeviceptr at = freed_behind_work(s0);

        no_more_than(WHOLE);
        promise_room = WHOLE;
        assert_int_not_equal(whole(p, 1), at);
        assert_int_equal(promises, 1);
        assert_int_equal(waits_put, 0);
}

static void no_promise_is_requested_beyond_the_visible_size(void **state)
{
        CUdeviceptr at = freed_behind_work(s0);

        no_more_than(WHOLE);
        promise_room = WHOLE;
        gpu->unevictable = POOL_CARD - 2 * WHOLE + 1;
        assert_int_equal(whole(p, 1), at);
        assert_int_equal(promises, 0);
        give(at, s1);
        stream_put(s1);
        gpu->unevictable--;
        assert_int_not_equal(whole(p, 0), at);
        assert_int_equal(promises, 1);
}

static void an_event_is_recorded_again_for_a_later_free(void **state)
{
        CUdeviceptr late = whole(p, 0), between = whole(p, 1), at = freed_behind_work(s0);

        assert_int_equal(between, late + WHOLE);
        no_more_than(3 * WHOLE);
        assert_int_equal(whole(p, 1), at); /* records the event */
        stream_put(s0);
        give(late, s0);
        assert_int_equal(whole(p, 2), late); /* records the event again */
        assert_int_equal(waits_put, 2);
}

static unsigned waits;

static void all_get_done(const struct core_wait *w)
{
        waits++;
        all_done();
}

static void a_thread_waits_itself_if_streams_must_not_wait(void **state)
{
        const int no = 0;
        CUdeviceptr at = freed_behind_work(s0);

        no_more_than(WHOLE);
        pool_set(p, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no);
        waits = 0;
        meanwhile = all_get_done;
        assert_int_equal(whole(p, 1), at);
        assert_int_equal(waits, 1);
        assert_int_equal(waits_put, 0);
        assert_int_equal(searches, 1);
}

static void room_is_searched_if_a_stream_cannot_be_made_to_wait(void **state)
{
        CUdeviceptr at = freed_behind_work(s0);

        no_more_than(WHOLE);
        other_room = WHOLE;
        wait_error = CUDA_ERROR_INVALID_HANDLE;
        assert_int_not_equal(whole(p, 1), at);
        assert_int_equal(searches, 1);
        assert_int_equal(whole(p, 0), at); /* at is still on the free list of stream 0 */
}

/* Moves the clock by the time of the wait. */
static void time_passes(const struct core_wait *w)
{
        waits++;
        clock_ns += NSEC_PER_MSEC;
}

static void a_thread_waits_a_second_for_a_free_that_does_not_come(void **state)
{
        uint64_t begun = clock_ns;

        (void)freed_behind_work(s0);
        no_more_than(WHOLE);
        wait_error = CUDA_ERROR_INVALID_HANDLE;
        waits = 0;
        meanwhile = time_passes;
        assert_no_room(s1, WHOLE);
        assert_int_equal(clock_ns - begun, NSEC_PER_SEC);
        assert_int_equal(waits, 1000);
}

static void no_stream_waits_if_nothing_is_freed(void **state)
{
        (void)whole(p, 0);
        stream_put(s0);
        no_more_than(WHOLE);
        assert_no_room(s1, WHOLE);
        assert_int_equal(waits_put, 0);
}

static void no_free_is_waited_for_during_a_capture(void **state)
{
        (void)freed_behind_work(s0);
        no_more_than(WHOLE);
        fake_capturing = true;
        assert_no_room(s1, WHOLE);
        assert_int_equal(waits_put, 0);
        assert_int_equal(events, 0);
}

static void no_stream_waits_for_a_free_that_is_too_small(void **state)
{
        (void)freed_behind_work(s0);
        no_more_than(WHOLE);
        meanwhile = all_get_done;
        waits = 0;
        assert_no_room(s1, WHOLE + 1);
        assert_int_equal(waits_put, 0);
        assert_int_equal(waits, 1);
}

static void a_threads_frees_behind_its_last_event_are_not_given_away(void **state)
{
        const struct pool_stream mine = stream_default(CU_STREAM_PER_THREAD, 1, 1);
        CUdeviceptr late = take(p, &mine, WHOLE), between = piece(p, 1), at = take(p, &mine, MIB);

        (void)alarm(60);
        assert_int_equal(between, late + WHOLE);
        stream_put(&mine);
        give(at, &mine);
        pool_mark(extent_at(late)->block, &mine);
        stream_put(&mine);
        give(late, &mine); /* the event of this free cannot be recorded */
        no_more_than(2 * WHOLE);
        meanwhile = time_passes;
        assert_no_room(s1, WHOLE);
        context_end(1);
        (void)alarm(0);
}

static void memory_that_an_ended_stream_did_not_mark_is_not_given_away(void **state)
{
        CUdeviceptr late = whole(p, 0), between = whole(p, 1), at = freed_behind_work(s0);

        (void)alarm(60);
        assert_int_equal(between, late + WHOLE);
        assert_int_not_equal(whole(p, 1), at);
        stream_put(s0);
        give(late, s0);
        record_error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        stream_end(s0);
        record_error = CUDA_SUCCESS;
        no_more_than(4 * WHOLE);
        meanwhile = time_passes;
        assert_int_equal(whole(p, 1), at);
        assert_no_room(s1, WHOLE);
        context_end(1);
        assert_int_equal(take(p, s1, WHOLE), late);
        (void)alarm(0);
}

/* ---- captures that begin ---- */

static uint64_t waited_ns;

static void await_the_record(void)
{
        uint64_t begun = clock_ns;

        recording = NULL;
        lock_acquire(&core_lock);
        pool_await_records();
        lock_release(&core_lock);
        waited_ns = clock_ns - begun;
}

static void a_capture_waits_a_second_for_a_record(void **state)
{
        (void)freed_behind_work(s0);
        pool_await_records(); /* returns at once: no record is in progress */
        recording = await_the_record;
        meanwhile = time_passes;
        (void)whole(p, 1);
        assert_int_equal(waited_ns, NSEC_PER_SEC);
        pool_await_records(); /* the record has ended */
}

static void a_bystander_waits_for_no_record(void **state)
{
        (void)freed_behind_work(s0);
        atomic_store(&core.bystander, true);
        recording = await_the_record;
        (void)whole(p, 1);
        assert_int_equal(waited_ns, 0);
}

static void a_capture_waits_for_a_wait_on_another_stream(void **state)
{
        (void)freed_behind_work(s0);
        (void)whole(p, 1); /* records the event of stream 0 */
        no_more_than(2 * WHOLE);
        recording = await_the_record;
        meanwhile = time_passes;
        waited_ns = 0;
        (void)whole(p, 2);
        assert_int_equal(waited_ns, NSEC_PER_SEC);
        pool_await_records();
}

/* ---- a program that is frozen ---- */

static void contents_freed_while_frozen_are_kept_until_the_program_goes_on(void **state)
{
        CUdeviceptr before = whole(p, 0), pieces[600];
        const struct extent *extents[600], *first = extent_at(before);

        for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++) {
                pieces[i] = piece(p, 0);
                extents[i] = extent_at(pieces[i]);
        }
        stream_put(s0);
        give(before, s0);
        assert_int_equal(first->live, 0);
        pool_hold();
        for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++)
                give(pieces[i], s0);
        pool_hold(); /* changes nothing */
        assert_int_not_equal(first->live, 0);
        for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++)
                assert_int_not_equal(extents[i]->live, 0);
        pool_let();
        assert_int_equal(first->live, 0);
        for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++)
                assert_int_equal(extents[i]->live, 0);
}

#undef POOL_TEST
#define POOL_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end_pools)

int main(void)
{
        const struct CMUnitTest tests[] = {
                POOL_TEST(a_stream_reuses_its_own_freed_memory_at_once),
                POOL_TEST(another_stream_gets_freed_memory_when_the_free_is_reached),
                POOL_TEST(an_event_tells_how_far_a_busy_stream_is),
                POOL_TEST(what_a_busy_stream_frees_later_gets_an_event_of_its_own),
                POOL_TEST(an_event_does_not_cover_what_is_freed_while_it_is_recorded),
                POOL_TEST(memory_behind_an_event_that_failed_waits_for_the_stream),
                POOL_TEST(no_stream_is_queried_during_a_capture),
                POOL_TEST(a_threads_stream_is_queried_only_through_its_event),
                POOL_TEST(a_stream_that_has_freed_nothing_is_not_marked),
                POOL_TEST(default_streams_differ_by_context_and_thread),
                POOL_TEST(a_new_stream_does_not_inherit_from_an_ended_one),
                POOL_TEST(a_stream_that_ends_idle_leaves_no_event),
                POOL_TEST(a_stream_that_ends_behind_its_event_gets_no_second_event),
                POOL_TEST(the_end_of_a_stream_affects_no_other_stream),
                POOL_TEST(the_end_of_a_context_is_the_end_of_its_work),
                POOL_TEST(sixteen_streams_without_freed_memory_are_kept),
                POOL_TEST(the_seventeenth_stream_without_freed_memory_is_forgotten),
                POOL_TEST(a_stream_without_room_waits_for_the_free_of_another),
                POOL_TEST(a_promise_of_room_is_preferred_to_a_wait),
                POOL_TEST(no_promise_is_requested_beyond_the_visible_size),
                POOL_TEST(an_event_is_recorded_again_for_a_later_free),
                POOL_TEST(a_thread_waits_itself_if_streams_must_not_wait),
                POOL_TEST(room_is_searched_if_a_stream_cannot_be_made_to_wait),
                POOL_TEST(a_thread_waits_a_second_for_a_free_that_does_not_come),
                POOL_TEST(no_stream_waits_if_nothing_is_freed),
                POOL_TEST(no_free_is_waited_for_during_a_capture),
                POOL_TEST(no_stream_waits_for_a_free_that_is_too_small),
                POOL_TEST(a_threads_frees_behind_its_last_event_are_not_given_away),
                POOL_TEST(memory_that_an_ended_stream_did_not_mark_is_not_given_away),
                POOL_TEST(a_capture_waits_a_second_for_a_record),
                POOL_TEST(a_bystander_waits_for_no_record),
                POOL_TEST(a_capture_waits_for_a_wait_on_another_stream),
                POOL_TEST(contents_freed_while_frozen_are_kept_until_the_program_goes_on),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
