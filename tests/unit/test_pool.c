/* test_pool.c: pools while other threads are at them: what is given up, waited for or destroyed in
 * the middle of something is neither forgotten nor used when it is gone. */
#include "unit.h"

#include <pthread.h>
#include <semaphore.h>

#include "base/macros.h"
#include "preload/agent.h"
#include "preload/core.h"
#include "preload/gate.h"
#include "preload/hooks.h"
#include "preload/pool.h"
#include "preload/quiet.h"
#include "preload/swap.h"

#define STREAMS 20u /* more than are kept for nothing */

struct core core;
struct real_driver real;
_Atomic uint32_t gate_bits;

static struct gpu *const gpu = &core.gpus[0];
static bool capturing, busy;    /* some stream; all streams have work */
static void (*recording)(void); /* while an event is recorded, without the lock */
static void (*releasing)(void); /* while memory is given back */
static void (*waiting)(void);   /* while a thread waits for something */
static cuuint64_t threshold;
static unsigned events, events_destroyed, discarded;
static sem_t waits, resume;
static pthread_t thread;

/* ---- what a pool asks of its neighbours ---- */

void core_wait(struct core_wait *w, uint64_t timeout_ns)
{
        if (waiting) {
                waiting();
                return;
        }
        lock_release(&core.lock);
        (void)sem_post(&waits);
        (void)sem_wait(&resume);
        lock_acquire(&core.lock);
}

void agent_kick(void)
{
}

void agent_figures(struct gpu *g)
{
}

void gate_shut(enum gate_bits why)
{
}

bool quiet_capturing(void)
{
        return capturing;
}

bool quiet_is_capturing(CUstream stream)
{
        return false;
}

CUresult quiet_ask_stream(CUstream stream, CUcontext context)
{
        return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult quiet_ask_event(CUevent event, CUcontext context)
{
        return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult quiet_record(CUevent *event, CUcontext context, CUstream stream)
{
        if (!*event)
                *event = (CUevent)(uintptr_t)++events;
        if (recording)
                recording();
        return CUDA_SUCCESS;
}

uint64_t hooks_allowed(const struct gpu *g)
{
        return UINT64_MAX;
}

int hooks_commit(struct gpu *g, uint64_t more)
{
        return 0;
}

bool hooks_grow(struct gpu *g, uint64_t more)
{
        return false;
}

int swap_back_block(struct gpu *g, struct block *b)
{
        return 0;
}

void swap_unused(struct gpu *g, struct extent *e)
{
}

void swap_release(struct gpu *g, struct extent *e)
{
        if (releasing)
                releasing();
        e->state = EXTENT_UNBACKED;
        heap_settle(&g->heap, e);
}

void swap_discard(struct gpu *g, struct block *b)
{
        discarded++;
        heap_bury(&g->heap, b);
}

/* ---- the driver ---- */

static CUresult fake_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr wish,
                             unsigned long long flags)
{
        static CUdeviceptr next = UINT64_C(0x700000000000);

        *ret = next;
        next += 2 * bytes;
        return CUDA_SUCCESS;
}

static CUresult fake_relax(CUstreamCaptureMode *mode)
{
        return CUDA_SUCCESS;
}

static CUresult fake_context_of(CUstream stream, CUcontext *ret)
{
        *ret = (CUcontext)(uintptr_t)1;
        return CUDA_SUCCESS;
}

static CUresult fake_event_destroy(CUevent event)
{
        events_destroyed++;
        return CUDA_SUCCESS;
}

/* As a program has set it before it has used the GPU. */
static CUresult fake_attribute(CUmemoryPool pool, CUmemPool_attribute which, void *ret)
{
        if (which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
                *(cuuint64_t *)ret = threshold;
        else
                *(int *)ret = 1;
        return CUDA_SUCCESS;
}

static CUresult fake_default_pool(CUmemoryPool *ret, CUdevice device)
{
        return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- the tests ---- */

static CUmemoryPool handle_of(unsigned number)
{
        return (CUmemoryPool)(uintptr_t)(number * 64);
}

static struct pool_stream stream_of(unsigned number)
{
        return (struct pool_stream){.handle = (CUstream)(uintptr_t)(4096 + number * 64)};
}

static struct pool *pool_made(unsigned number)
{
        const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

        pool_born(handle_of(number), &props);
        return pool_find(handle_of(number));
}

/* Allocated, as if a program had run with it. */
static CUdeviceptr piece(struct pool *p, unsigned stream)
{
        struct pool_stream s = stream_of(stream);
        struct heap_place place;
        CUdeviceptr at;

        assert_int_equal(pool_allocate(p, &s, MIB, &at), CUDA_SUCCESS);
        assert_true(heap_find(&gpu->heap, at, &place));
        for (unsigned i = 0; i < place.block->extent_count; i++)
                if (place.block->extents[i].live)
                        place.block->extents[i].state = EXTENT_RESIDENT;
        return at;
}

static void piece_free(CUdeviceptr at, unsigned stream)
{
        struct pool_stream s = stream_of(stream);
        struct heap_place place;

        assert_true(heap_find(&gpu->heap, at, &place));
        assert_int_equal(pool_free(place.block, at, &s), CUDA_SUCCESS);
}

static void rest(void)
{
        const struct timespec nap = {.tv_nsec = 10000000};

        lock_release(&core.lock);
        (void)nanosleep(&nap, NULL);
        lock_acquire(&core.lock);
}

static int one_gpu(void **state)
{
        core = (struct core){.gpu_count = 1};
        gpu->managed = true;
        gpu->total = gpu->visible = GIB;
        heap_init(&gpu->heap, GIB);
        capturing = busy = false;
        recording = releasing = NULL;
        events = events_destroyed = discarded = 0;
        (void)sem_init(&waits, 0, 0);
        (void)sem_init(&resume, 0, 0);
        real.cuMemAddressReserve = fake_reserve;
        real.cuThreadExchangeStreamCaptureMode = fake_relax;
        real.cuStreamGetCtx = fake_context_of;
        real.cuEventDestroy_v2 = fake_event_destroy;
        real.cuDeviceGetDefaultMemPool = fake_default_pool;
        real.cuMemPoolGetAttribute = fake_attribute;
        threshold = 0;
        lock_acquire(&core.lock);
        return 0;
}

/* All pools are destroyed, and gone after a while. */
static int no_gpu(void **state)
{
        while (pool_tend() != UINT64_MAX)
                rest();
        assert_int_equal(gpu->heap.allocated, 0);
        assert_int_equal(gpu->heap.count, 1);
        free(gpu->heap.blocks[0]);
        free(gpu->heap.blocks);
        lock_release(&core.lock);
        return 0;
}

static void destroy_the_second(void)
{
        releasing = NULL;
        pool_dies(handle_of(2), false);
}

static void a_pool_that_is_destroyed_while_another_is_seen_to_goes_too(void **state)
{
        struct pool *first = pool_made(1), *second = pool_made(2);
        cuuint64_t all = UINT64_MAX;

        pool_set(second, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all); /* it is let be */
        piece_free(piece(second, 2), 2);
        piece_free(piece(first, 1), 1);
        releasing = destroy_the_second;
        while (releasing) {
                assert_true(pool_tend() != UINT64_MAX);
                rest();
        }
        while (discarded == 0) {
                assert_true(pool_tend() != UINT64_MAX || discarded > 0);
                rest();
        }
        pool_dies(handle_of(1), false);
}

static void *begin_a_capture(void *unused)
{
        lock_acquire(&core.lock);
        pool_await_records();
        capturing = true;
        lock_release(&core.lock);
        return NULL;
}

static void start_to_begin_a_capture(void)
{
        recording = NULL;
        assert_int_equal(pthread_create(&thread, NULL, begin_a_capture, NULL), 0);
        (void)sem_wait(&waits);
        assert_false(capturing);
}

static void no_event_of_ours_becomes_part_of_a_capture(void **state)
{
        struct pool *p = pool_made(1);

        busy = true;
        piece_free(piece(p, 0), 0);
        recording = start_to_begin_a_capture;
        (void)pool_reclaim(gpu, 1);
        assert_null(recording);
        lock_release(&core.lock);
        (void)sem_post(&resume);
        assert_int_equal(pthread_join(thread, NULL), 0);
        lock_acquire(&core.lock);
        assert_true(capturing);
        busy = capturing = false;
        pool_dies(handle_of(1), false);
}

static void what_was_set_before_the_gpu_was_used_holds(void **state)
{
        cuuint64_t reserved;
        struct pool *p;

        threshold = UINT64_MAX;
        p = pool_made(1);
        piece_free(piece(p, 0), 0);
        assert_true(pool_get(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
        assert_int_equal(reserved, gpu->heap.allocated);
        assert_int_not_equal(reserved, 0);
        pool_dies(handle_of(1), false);
}

static void what_a_failed_gpu_would_give_out_is_the_drivers_to_answer(void **state)
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
        pool_dies(handle_of(1), false);
}

static void *destroy_its_stream(void *unused)
{
        lock_acquire(&core.lock);
        pool_stream_dies(stream_of(0).handle);
        lock_release(&core.lock);
        return NULL;
}

static void start_to_destroy_its_stream(void)
{
        recording = NULL;
        assert_int_equal(pthread_create(&thread, NULL, destroy_its_stream, NULL), 0);
        (void)sem_wait(&waits);
}

static void what_a_thread_waits_for_is_there_when_it_goes_on(void **state)
{
        struct pool *p = pool_made(1);
        CUdeviceptr at[STREAMS];

        for (unsigned i = 0; i < STREAMS; i++)
                at[i] = piece(p, i);
        busy = true;
        piece_free(at[0], 0);
        recording = start_to_destroy_its_stream;
        (void)pool_reclaim(gpu, 1);
        assert_null(recording);
        for (unsigned i = 1; i < STREAMS; i++)
                piece_free(at[i], i);
        busy = false;
        pool_trim(p, 0); /* nothing is freed and not reached any more, on any stream */
        assert_int_equal(events_destroyed, 0);
        lock_release(&core.lock);
        (void)sem_post(&resume);
        assert_int_equal(pthread_join(thread, NULL), 0);
        lock_acquire(&core.lock);
        pool_dies(handle_of(1), false);
}

static void what_was_freed_on_a_stream_that_ends_beside_a_capture_can_be_used_again(void **state)
{
        struct pool *p = pool_made(1);
        CUdeviceptr at = piece(p, 0);

        busy = capturing = true;
        piece_free(at, 0);
        pool_stream_dies(stream_of(0).handle);
        busy = capturing = false;
        pool_trim(p, 0);
        assert_int_equal(gpu->heap.allocated, 0);
        pool_dies(handle_of(1), false);
}

static struct extent *moving;

static void arrive(void)
{
        waiting = NULL;
        moving->busy = false;
}

static void what_the_agent_is_moving_is_given_back_when_that_has_come_to_its_end(void **state)
{
        struct pool *p = pool_made(1);
        CUdeviceptr at = piece(p, 0);
        struct heap_place place;
        cuuint64_t reserved = 1;

        assert_true(heap_find(&gpu->heap, at, &place));
        for (moving = place.block->extents; !moving->live;)
                moving++;
        piece_free(at, 0);
        moving->busy = true;
        waiting = arrive;
        assert_true(pool_get(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
        assert_null(waiting);
        assert_int_equal(reserved, 0);
        assert_int_equal(gpu->heap.allocated, 0);
        pool_dies(handle_of(1), false);
}

static void a_new_pool_with_the_handle_of_one_that_was_handed_over_is_ours(void **state)
{
        pool_hand_over(pool_made(1));
        assert_null(pool_find(handle_of(1)));
        assert_non_null(pool_made(1)); /* by another thread, before this one is back */
        pool_dies(handle_of(1), true);
        assert_non_null(pool_find(handle_of(1)));
        piece_free(piece(pool_find(handle_of(1)), 1), 1);
        pool_dies(handle_of(1), false);
        assert_null(pool_find(handle_of(1)));
}

#define POOL_TEST(name) cmocka_unit_test_setup_teardown(name, one_gpu, no_gpu)

int main(void)
{
        const struct CMUnitTest tests[] = {
                POOL_TEST(a_pool_that_is_destroyed_while_another_is_seen_to_goes_too),
                POOL_TEST(no_event_of_ours_becomes_part_of_a_capture),
                POOL_TEST(what_was_set_before_the_gpu_was_used_holds),
                POOL_TEST(what_a_failed_gpu_would_give_out_is_the_drivers_to_answer),
                POOL_TEST(what_a_thread_waits_for_is_there_when_it_goes_on),
                POOL_TEST(what_was_freed_on_a_stream_that_ends_beside_a_capture_can_be_used_again),
                POOL_TEST(what_the_agent_is_moving_is_given_back_when_that_has_come_to_its_end),
                POOL_TEST(a_new_pool_with_the_handle_of_one_that_was_handed_over_is_ours),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
