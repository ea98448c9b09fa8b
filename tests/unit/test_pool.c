/* test_pool.c: other threads use pools at the same time. Memory, events and pools that are freed in
 * the middle of another operation are neither lost nor used after their end. */
#include "unit.h"

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "base/macros.h"
#include "pool_bench.h"
#include "preload/stream/gate.h"

#define STREAMS 20u /* more streams than a pool remembers without freed memory */

static sem_t waits, resume;
static pthread_t thread;

/* A thread that waits sleeps until the test resumes it. */
static void wait_for_the_test(const struct core_wait *w)
{
        (void)sem_post(&waits);
        (void)sem_wait(&resume);
}

static int begin_threads(void **state)
{
        (void)sem_init(&waits, 0, 0);
        (void)sem_init(&resume, 0, 0);
        (void)alarm(60); /* ends the test if a thread is never woken */
        (void)begin_pools(state);
        meanwhile = wait_for_the_test;
        return 0;
}

/* Lets time pass, at least as much as the agent sleeps. */
static void nap(void)
{
        clock_ns += 100 * NSEC_PER_MSEC;
}

static void destroy_the_second(void)
{
        releasing = NULL;
        pool_dies(handle_of(2), false);
}

static void a_pool_destroyed_while_another_gives_memory_back_is_freed_too(void **state)
{
        struct pool *first = pool_made(1), *second = pool_made(2);
        cuuint64_t all = UINT64_MAX;

        /* The second pool keeps its memory. */
        pool_set(second, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
        piece_free(piece(second, 2), 2);
        piece_free(piece(first, 1), 1);
        (void)pool_awaited(NULL, 0);
        releasing = destroy_the_second;
        while (releasing) {
                assert_true(pool_tend(clock_now_ns()) != UINT64_MAX);
                nap();
        }
        while (discarded == 0) {
                assert_true(pool_tend(clock_now_ns()) != UINT64_MAX || discarded > 0);
                nap();
        }
}

static void *begin_a_capture(void *unused)
{
        lock_acquire(&core_lock);
        pool_await_records();
        fake_capturing = true;
        lock_release(&core_lock);
        return NULL;
}

static void start_to_begin_a_capture(void)
{
        recording = NULL;
        assert_int_equal(pthread_create(&thread, NULL, begin_a_capture, NULL), 0);
        (void)sem_wait(&waits);
        assert_false(fake_capturing);
}

static void a_capture_waits_until_our_event_is_recorded(void **state)
{
        struct pool *p = pool_made(1);

        all_busy();
        piece_free(piece(p, 0), 0);
        recording = start_to_begin_a_capture;
        (void)pool_reclaim(gpu, 1);
        assert_null(recording);
        lock_release(&core_lock);
        (void)sem_post(&resume);
        assert_int_equal(pthread_join(thread, NULL), 0);
        lock_acquire(&core_lock);
        assert_true(fake_capturing);
        all_done();
        fake_capturing = false;
}

static void a_threshold_set_before_the_gpu_was_used_holds(void **state)
{
        struct pool *p;

        threshold = UINT64_MAX;
        p = pool_made(1);
        piece_free(piece(p, 0), 0);
        assert_int_equal(attribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
        assert_int_equal(gpu->heap.allocated, 32 * MIB);
}

static void a_pool_of_a_failed_gpu_leaves_allocations_to_the_driver(void **state)
{
        struct pool *p = pool_made(1);
        struct pool_stream s = stream_of(0);
        CUdeviceptr at = piece(p, 0);
        uint64_t before = gpu->heap.allocated;

        gpu->error = CUDA_ERROR_ILLEGAL_ADDRESS;
        assert_int_equal(pool_allocate(p, &s, MIB, &at), CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(gpu->heap.allocated, before);
        gpu->error = CUDA_SUCCESS;
        piece_free(at, 0);
}

static void *destroy_its_stream(void *unused)
{
        lock_acquire(&core_lock);
        pool_stream_dies(stream_of(0).handle);
        lock_release(&core_lock);
        return NULL;
}

static void start_to_destroy_its_stream(void)
{
        recording = NULL;
        assert_int_equal(pthread_create(&thread, NULL, destroy_its_stream, NULL), 0);
        (void)sem_wait(&waits);
}

static void a_stream_stays_until_a_waiting_thread_goes_on(void **state)
{
        struct pool *p = pool_made(1);
        CUdeviceptr at[STREAMS];

        for (unsigned i = 0; i < STREAMS; i++)
                at[i] = piece(p, i);
        all_busy();
        piece_free(at[0], 0);
        recording = start_to_destroy_its_stream;
        (void)pool_reclaim(gpu, 1);
        assert_null(recording);
        for (unsigned i = 1; i < STREAMS; i++)
                piece_free(at[i], i);
        all_done();
        pool_trim(p, 0); /* all freed memory is ready again, on every stream */
        assert_int_equal(events_destroyed, 0);
        lock_release(&core_lock);
        (void)sem_post(&resume);
        assert_int_equal(pthread_join(thread, NULL), 0);
        lock_acquire(&core_lock);
}

static void memory_freed_on_a_stream_that_ends_during_a_capture_is_reusable(void **state)
{
        struct pool *p = pool_made(1);
        CUdeviceptr at = piece(p, 0);

        all_busy();
        fake_capturing = true;
        piece_free(at, 0);
        pool_stream_dies(stream_of(0).handle);
        all_done();
        fake_capturing = false;
        pool_trim(p, 0);
        assert_int_equal(gpu->heap.allocated, 0);
}

static struct extent *moving;

static void arrive(const struct core_wait *w)
{
        meanwhile = NULL;
        moving->busy = false;
        bell_ring(&core.changed);
}

static void freed_memory_that_moves_is_given_back_after_its_move(void **state)
{
        struct pool *p = pool_made(1);
        CUdeviceptr at = piece(p, 0);

        moving = extent_at(at);
        piece_free(at, 0);
        (void)pool_awaited(NULL, 0);
        moving->busy = true;
        meanwhile = arrive;
        assert_int_equal(attribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
        assert_null(meanwhile);
        assert_int_equal(gpu->heap.allocated, 0);
}

static void a_new_pool_may_have_the_handle_of_one_handed_over(void **state)
{
        pool_hand_over(pool_made(1));
        assert_null(pool_find(handle_of(1)));
        assert_non_null(pool_made(1)); /* another thread makes a pool of the same handle first */
        pool_dies(handle_of(1), true);
        assert_non_null(pool_find(handle_of(1)));
        piece_free(piece(pool_find(handle_of(1)), 1), 1);
        pool_dies(handle_of(1), false);
        assert_null(pool_find(handle_of(1)));
}

#define THREAD_TEST(name) cmocka_unit_test_setup_teardown(name, begin_threads, end_pools)

int main(void)
{
        const struct CMUnitTest tests[] = {
                THREAD_TEST(a_pool_destroyed_while_another_gives_memory_back_is_freed_too),
                THREAD_TEST(a_capture_waits_until_our_event_is_recorded),
                THREAD_TEST(a_threshold_set_before_the_gpu_was_used_holds),
                THREAD_TEST(a_pool_of_a_failed_gpu_leaves_allocations_to_the_driver),
                THREAD_TEST(a_stream_stays_until_a_waiting_thread_goes_on),
                THREAD_TEST(memory_freed_on_a_stream_that_ends_during_a_capture_is_reusable),
                THREAD_TEST(freed_memory_that_moves_is_given_back_after_its_move),
                THREAD_TEST(a_new_pool_may_have_the_handle_of_one_handed_over),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
