/* test_hooks_pool.c: calls for stream-ordered memory are served from the heap, with the right
 * stream and pool, or left to the driver. */
#include "unit.h"

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/pool/pool.h"
#include "preload/stream/quiesce.h"
#include "preload/pool/late_frees.h"

#define STREAM   ((CUstream)(uintptr_t)0x1000)
#define NONE     ((CUstream)(uintptr_t)0x2000) /* a stream that the driver does not know */
#define ELSE     ((CUstream)(uintptr_t)0x3000) /* a stream on GPU 1 */
#define CONTEXT  ((CUcontext)(uintptr_t)0xc0)
#define CONTEXT1 ((CUcontext)(uintptr_t)0xc1)
#define OURS     ((CUmemoryPool)(uintptr_t)0xa0)
#define DEFAULT1 ((CUmemoryPool)(uintptr_t)0xd1)
#define DEFAULT  ((CUmemoryPool)(uintptr_t)0xd0)
#define THEIRS   ((CUmemoryPool)(uintptr_t)0xe0)
#define DRIVERS  UINT64_C(0x900000) /* address that the driver allocates */
#define AT       UINT64_C(0x700000) /* address that our pools allocate */

static struct gpu *const gpu = &core.gpus[0];
static CUcontext current;
static CUresult answer, pool_answer;
static bool forbidden, handed_over;
static unsigned of_driver;
static struct pool_stream named; /* stream of the last call to a pool */
static CUmemoryPool asked;       /* pool of that call */
static uint64_t bytes_asked, kept;
static unsigned marks, born, died, set, later;
static bool died_handed_over;
static struct heap_place place;

/* ---- pools ---- */

static struct pool *as_pool(CUmemoryPool handle)
{
        return (struct pool *)handle;
}

struct pool *pool_find(CUmemoryPool handle)
{
        assert_int_not_equal(atomic_load(&core_lock.word), 0);
        return handle == OURS || handle == DEFAULT || handle == DEFAULT1 ? as_pool(handle) : NULL;
}

CUresult pool_allocate(struct pool *p, const struct pool_stream *s, uint64_t bytes,
                       CUdeviceptr *ret)
{
        assert_int_equal(*ret, 0);
        asked = (CUmemoryPool)p;
        named = *s;
        bytes_asked = bytes;
        if (pool_answer == CUDA_SUCCESS)
                *ret = AT;
        return pool_answer;
}

CUresult pool_free(const struct block *b, CUdeviceptr address, const struct pool_stream *s)
{
        assert_ptr_equal(b, place.block);
        assert_int_equal(address, AT);
        named = *s;
        return pool_answer;
}

void pool_mark(const struct block *b, const struct pool_stream *s)
{
        assert_ptr_equal(b, place.block);
        assert_ptr_equal(s->handle, CU_STREAM_PER_THREAD);
        marks++;
}

void pool_born(CUmemoryPool handle, const CUmemPoolProps *props)
{
        assert_int_not_equal(atomic_load(&core_lock.word), 0);
        asked = handle;
        born++;
}

void pool_dies(CUmemoryPool handle, bool over)
{
        asked = handle;
        died_handed_over = over;
        died++;
}

void pool_hand_over(struct pool *p)
{
        asked = (CUmemoryPool)p;
        handed_over = true;
}

struct gpu *pool_gpu(const struct pool *p)
{
        return gpu;
}

bool pool_get(struct pool *p, CUmemPool_attribute which, cuuint64_t *ret)
{
        asked = (CUmemoryPool)p;
        *ret = 5;
        return true;
}

void pool_set(struct pool *p, CUmemPool_attribute which, const void *value)
{
        asked = (CUmemoryPool)p;
        set++;
}

void pool_trim(struct pool *p, uint64_t keep)
{
        asked = (CUmemoryPool)p;
        kept = keep;
}

static struct pool_stream waited_for; /* of the last call that waited; all zero: for an event */
static uint64_t waited_frees;
static unsigned waited;
static bool all_waited;

bool pool_awaited(const struct pool_stream *s, uint64_t frees)
{
        want_lock();
        waited_for = s ? *s : (struct pool_stream){0};
        waited_frees = frees;
        waited++;
        return true;
}

bool late_awaited(const struct pool_stream *s, uint64_t frees)
{
        want_lock();
        assert_int_equal(frees, waited_frees);
        return all_waited;
}

/* ---- fakes of other modules ---- */

bool hooks_capture_forbids(void)
{
        return forbidden;
}

CUresult late_free(struct gpu *g, const struct heap_place *p, const struct pool_stream *s)
{
        named = *s;
        later++;
        return pool_answer == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

struct gpu *core_find(CUdeviceptr address, struct heap_place *ret)
{
        if (address < AT || address >= AT + 4096)
                return NULL;
        *ret = place;
        return gpu;
}

/* ---- the driver ---- */

static CUresult fake_current(CUcontext *ret)
{
        *ret = current;
        return CUDA_SUCCESS;
}

static CUresult fake_device(CUdevice *ret)
{
        *ret = current == CONTEXT1;
        return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult fake_context_of(CUstream stream, CUcontext *ret)
{
        *ret = stream == ELSE ? CONTEXT1 : CONTEXT;
        return stream == NONE ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUcontext under;
static CUresult fake_push(CUcontext context)
{
        assert_null(under);
        under = current;
        current = context;
        return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *ret)
{
        *ret = current;
        current = under;
        under = NULL;
        return CUDA_SUCCESS;
}

static CUresult fake_pool_of(CUmemoryPool *ret, CUdevice device)
{
        *ret = device == 1 ? DEFAULT1 : DEFAULT;
        return CUDA_SUCCESS;
}

static CUresult fake_allocate(CUdeviceptr *ret, size_t bytes, CUstream stream)
{
        of_driver++;
        if (ret)
                *ret = DRIVERS;
        return answer;
}

static CUresult fake_allocate_from(CUdeviceptr *ret, size_t bytes, CUmemoryPool pool,
                                   CUstream stream)
{
        return fake_allocate(ret, bytes, stream);
}

static CUresult fake_free(CUdeviceptr at, CUstream stream)
{
        of_driver++;
        return answer;
}

static CUresult fake_create(CUmemoryPool *ret, const CUmemPoolProps *props)
{
        of_driver++;
        *ret = OURS;
        return answer;
}

static CUresult fake_wait(CUstream stream)
{
        assert_int_equal(atomic_load(&core_lock.word), 0);
        assert_int_equal(waited, 0);
        return answer;
}

static CUresult fake_wait_all(void)
{
        return fake_wait(NULL);
}

static CUresult fake_wait_context(CUcontext context)
{
        return fake_wait(NULL);
}

static CUresult fake_wait_event(CUevent event)
{
        return fake_wait(NULL);
}

static bool locked;
static CUresult fake_destroy(CUmemoryPool pool)
{
        of_driver++;
        locked = atomic_load(&core_lock.word) != 0;
        return answer;
}

static CUresult fake_trim(CUmemoryPool pool, size_t keep)
{
        of_driver++;
        return answer;
}

static CUresult fake_attribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
        of_driver++;
        return answer;
}

static CUresult fake_access(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
        of_driver++;
        return answer;
}

static int begin(void **state)
{
        static struct block block;

        core_lock = (struct lock){0};

        core = (struct core){.gpu_count = 2};
        core.gpus[1].index = 1;
        block = (struct block){.kind = BLOCK_POOL};
        place = (struct heap_place){.start = AT, .bytes = 4096, .block = &block};
        current = CONTEXT;
        under = NULL;
        answer = pool_answer = CUDA_SUCCESS;
        forbidden = handed_over = locked = died_handed_over = false;
        fake_captured = NULL;
        more_rooms = 1;
        asked = NULL;
        of_driver = gates = core_attaches = marks = born = died = set = later = 0;
        waited = 0;
        all_waited = true;
        named = (struct pool_stream){0};
        kept = bytes_asked = 0;
        real = (struct real_driver){.cuCtxGetCurrent = fake_current,
                                    .cuCtxGetDevice = fake_device,
                                    .cuStreamGetCtx = fake_context_of,
                                    .cuCtxPushCurrent_v2 = fake_push,
                                    .cuCtxPopCurrent_v2 = fake_pop,
                                    .cuDeviceGetMemPool = fake_pool_of,
                                    .cuMemAllocAsync = fake_allocate,
                                    .cuMemAllocAsync_ptsz = fake_allocate,
                                    .cuMemAllocFromPoolAsync = fake_allocate_from,
                                    .cuMemAllocFromPoolAsync_ptsz = fake_allocate_from,
                                    .cuMemFreeAsync = fake_free,
                                    .cuMemFreeAsync_ptsz = fake_free,
                                    .cuMemPoolCreate = fake_create,
                                    .cuMemPoolDestroy = fake_destroy,
                                    .cuMemPoolTrimTo = fake_trim,
                                    .cuMemPoolSetAttribute = fake_attribute,
                                    .cuMemPoolGetAttribute = fake_attribute,
                                    .cuMemPoolSetAccess = fake_access,
                                    .cuStreamSynchronize = fake_wait,
                                    .cuStreamSynchronize_ptsz = fake_wait,
                                    .cuCtxSynchronize = fake_wait_all,
                                    .cuCtxSynchronize_v2 = fake_wait_context,
                                    .cuEventSynchronize = fake_wait_event};
        return 0;
}

static int end(void **state)
{
        assert_int_equal(atomic_load(&core_lock.word), 0);
        assert_null(under);
        return 0;
}

/* ---- allocating ---- */

static CUdeviceptr allocated(CUstream stream)
{
        CUdeviceptr at = 1;

        assert_int_equal(hook_cuMemAllocAsync(&at, 1000, stream), CUDA_SUCCESS);
        return at;
}

static CUdeviceptr allocated_from(CUmemoryPool pool, CUstream stream)
{
        CUdeviceptr at = 1;

        assert_int_equal(hook_cuMemAllocFromPoolAsync(&at, 1000, pool, stream), CUDA_SUCCESS);
        return at;
}

static void memory_comes_from_the_pool_of_the_streams_device(void **state)
{
        assert_int_equal(allocated(STREAM), AT);
        assert_ptr_equal(asked, DEFAULT);
        assert_int_equal(bytes_asked, 1000);
        assert_ptr_equal(named.handle, STREAM);
        assert_null(named.context);
        assert_int_equal(allocated(ELSE), AT); /* the current context does not matter */
        assert_ptr_equal(asked, DEFAULT1);
        assert_ptr_equal(current, CONTEXT);
        current = CONTEXT1;
        assert_int_equal(allocated(CU_STREAM_LEGACY), AT);
        assert_ptr_equal(asked, DEFAULT1);
        assert_ptr_equal(named.context, CONTEXT1);
        assert_int_equal(of_driver + gates, 0);
}

static void a_null_stream_is_the_default_stream_of_the_symbol(void **state)
{
        CUdeviceptr at;

        (void)allocated(NULL);
        assert_ptr_equal(named.handle, CU_STREAM_LEGACY);
        assert_int_equal(named.thread, 0);
        (void)allocated_from(OURS, NULL);
        assert_ptr_equal(named.handle, CU_STREAM_LEGACY);
        assert_int_equal(hook_cuMemAllocAsync_ptsz(&at, 1, NULL), CUDA_SUCCESS);
        assert_ptr_equal(named.handle, CU_STREAM_PER_THREAD);
        assert_ptr_equal(named.context, CONTEXT);
        assert_int_not_equal(named.thread, 0);
        named.handle = NULL;
        assert_int_equal(hook_cuMemAllocFromPoolAsync_ptsz(&at, 1, OURS, NULL), CUDA_SUCCESS);
        assert_ptr_equal(named.handle, CU_STREAM_PER_THREAD);
        assert_int_equal(hook_cuMemFreeAsync(AT, NULL), CUDA_SUCCESS);
        assert_ptr_equal(named.handle, CU_STREAM_LEGACY);
        assert_int_equal(hook_cuMemFreeAsync_ptsz(AT, NULL), CUDA_SUCCESS);
        assert_ptr_equal(named.handle, CU_STREAM_PER_THREAD);
        assert_int_equal(hook_cuMemFreeAsync_ptsz(AT, STREAM), CUDA_SUCCESS);
        assert_ptr_equal(named.handle, STREAM);
}

static void *name_me(void *ret)
{
        (void)allocated(CU_STREAM_PER_THREAD);
        *(uint64_t *)ret = named.thread;
        return NULL;
}

static void each_thread_has_a_number_of_its_own(void **state)
{
        uint64_t mine, others;
        pthread_t thread;

        (void)name_me(&mine);
        assert_int_equal(pthread_create(&thread, NULL, name_me, &others), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_not_equal(mine, others);
        assert_int_not_equal(others, 0);
        (void)name_me(&others);
        assert_int_equal(mine, others);
}

static void allocations_from_an_unknown_pool_go_to_the_driver(void **state)
{
        assert_int_equal(allocated_from(OURS, STREAM), AT);
        assert_ptr_equal(asked, OURS);
        assert_int_equal(core_attaches, 0);
        assert_int_equal(allocated_from(THEIRS, STREAM), DRIVERS);
        assert_int_equal(allocated_from(NULL, STREAM), DRIVERS);
        assert_int_equal(gates, 2);
}

static void allocations_that_cannot_be_served_go_to_the_driver(void **state)
{
        CUdeviceptr at;

        answer = CUDA_ERROR_INVALID_VALUE;
        assert_int_equal(hook_cuMemAllocAsync(NULL, 1, STREAM), answer);
        assert_int_equal(hook_cuMemAllocAsync(&at, 0, STREAM), answer);
        assert_int_equal(hook_cuMemAllocAsync(&at, 1, NONE), answer);
        current = NULL;
        assert_int_equal(hook_cuMemAllocAsync(&at, 1, NULL), answer);
        current = CONTEXT;
        gpu->error = CUDA_ERROR_ILLEGAL_ADDRESS;
        assert_int_equal(hook_cuMemAllocAsync(&at, 1, STREAM), answer);
        gpu->error = CUDA_SUCCESS;
        pool_answer = CUDA_ERROR_NOT_SUPPORTED;
        assert_int_equal(hook_cuMemAllocAsync(&at, 1, STREAM), answer);
        atomic_store(&core.bystander, true);
        assert_int_equal(hook_cuMemAllocAsync(&at, 1, STREAM), answer);
        assert_int_equal(of_driver, 7);
        assert_int_equal(gates, 7);
}

static void captured_calls_go_to_the_driver(void **state)
{
        fake_captured = STREAM;
        assert_int_equal(allocated(STREAM), DRIVERS);
        assert_int_equal(hook_cuMemFreeAsync(AT, STREAM), CUDA_SUCCESS);
        assert_int_equal(of_driver, 2);
        assert_int_equal(allocated(ELSE), AT);
}

static void calls_that_a_capture_forbids_fail(void **state)
{
        CUdeviceptr at = 7;

        forbidden = true;
        assert_int_equal(hook_cuMemAllocAsync(&at, 1, STREAM),
                         CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_int_equal(hook_cuMemFreeAsync(AT, STREAM), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_int_equal(at, 7);
        assert_int_equal(of_driver, 0);
}

static void an_allocation_without_memory_returns_address_zero(void **state)
{
        CUdeviceptr at = 7;

        pool_answer = CUDA_ERROR_OUT_OF_MEMORY;
        assert_int_equal(hook_cuMemAllocAsync(&at, 1, STREAM), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(at, 0);
        assert_int_equal(of_driver, 0);
}

static void a_driver_that_lacks_memory_is_asked_again(void **state)
{
        CUdeviceptr at;

        answer = CUDA_ERROR_OUT_OF_MEMORY;
        assert_int_equal(hook_cuMemAllocFromPoolAsync(&at, 1, THEIRS, STREAM), answer);
        assert_int_equal(of_driver, 2);
        assert_int_equal(hook_cuMemFreeAsync(DRIVERS, STREAM), answer);
        assert_int_equal(of_driver, 4);
        assert_int_equal(gates, 4); /* each try passes the gate: room is made outside */
}

/* ---- waiting ---- */

static uint64_t one_free(void)
{
        uint64_t number;

        lock_acquire(&core_lock);
        number = frees_next();
        lock_release(&core_lock);
        waited = 0;
        return number;
}

static void pools_hear_what_the_program_has_waited_for(void **state)
{
        uint64_t free = one_free();

        assert_int_equal(hook_cuStreamSynchronize(STREAM), CUDA_SUCCESS);
        assert_int_equal(waited, 1);
        assert_int_equal(waited_frees, free);
        assert_ptr_equal(waited_for.handle, STREAM);
        (void)one_free();
        assert_int_equal(hook_cuStreamSynchronize(NULL), CUDA_SUCCESS);
        assert_ptr_equal(waited_for.handle, CU_STREAM_LEGACY);
        assert_ptr_equal(waited_for.context, CONTEXT);
        (void)one_free();
        assert_int_equal(hook_cuStreamSynchronize_ptsz(NULL), CUDA_SUCCESS);
        assert_ptr_equal(waited_for.handle, CU_STREAM_PER_THREAD);
        (void)one_free();
        assert_int_equal(hook_cuCtxSynchronize(), CUDA_SUCCESS);
        assert_null(waited_for.handle);
        assert_ptr_equal(waited_for.context, CONTEXT);
        (void)one_free();
        assert_int_equal(hook_cuCtxSynchronize_v2(CONTEXT1), CUDA_SUCCESS);
        assert_ptr_equal(waited_for.context, CONTEXT1);
        (void)one_free();
        assert_int_equal(hook_cuCtxSynchronize_v2(NULL), CUDA_SUCCESS);
        assert_ptr_equal(waited_for.context, CONTEXT);
        (void)one_free();
        assert_int_equal(hook_cuEventSynchronize(NULL), CUDA_SUCCESS);
        assert_null(waited_for.context);
        assert_int_equal(waited, 1);
}

static void a_call_that_has_not_waited_tells_nothing(void **state)
{
        (void)one_free();
        answer = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        assert_int_equal(hook_cuStreamSynchronize(STREAM), answer);
        assert_int_equal(hook_cuCtxSynchronize(), answer);
        assert_int_equal(hook_cuEventSynchronize(NULL), answer);
        answer = CUDA_SUCCESS;
        atomic_store(&core.bystander, true);
        assert_int_equal(hook_cuStreamSynchronize(STREAM), CUDA_SUCCESS);
        assert_int_equal(waited, 0);
}

static void nothing_is_told_once_the_program_has_waited_for_all_frees(void **state)
{
        (void)one_free();
        all_waited = false;
        assert_int_equal(hook_cuCtxSynchronize(), CUDA_SUCCESS);
        waited = 0;
        all_waited = true;
        assert_int_equal(hook_cuCtxSynchronize(), CUDA_SUCCESS);
        assert_int_equal(waited, 1);
        waited = 0;
        assert_int_equal(hook_cuCtxSynchronize(), CUDA_SUCCESS);
        assert_int_equal(waited, 0);
}

/* ---- freeing ---- */

static void memory_of_a_pool_is_freed_in_the_order_of_the_stream(void **state)
{
        assert_int_equal(hook_cuMemFreeAsync(AT, STREAM), CUDA_SUCCESS);
        assert_ptr_equal(named.handle, STREAM);
        assert_int_equal(marks, 0);
        assert_int_equal(hook_cuMemFreeAsync(AT, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
        assert_int_equal(marks, 1); /* only this thread can ask the driver about its stream */
        pool_answer = CUDA_ERROR_OUT_OF_MEMORY;
        assert_int_equal(hook_cuMemFreeAsync(AT, CU_STREAM_PER_THREAD), pool_answer);
        assert_int_equal(marks, 1);
        assert_int_equal(of_driver, 0);
}

static void an_address_inside_an_allocation_is_not_freed(void **state)
{
        assert_int_equal(hook_cuMemFreeAsync(AT + 512, STREAM), CUDA_ERROR_INVALID_VALUE);
        assert_null(named.handle);
}

static void memory_of_no_pool_is_freed_when_all_work_is_done(void **state)
{
        place.block->kind = BLOCK_LARGE;
        assert_int_equal(hook_cuMemFreeAsync(AT, STREAM), CUDA_SUCCESS);
        assert_int_equal(later, 1);
        assert_ptr_equal(named.handle, STREAM);
        assert_ptr_equal(named.context, CONTEXT); /* a wait for all of the context covers it */
        pool_answer = CUDA_ERROR_OUT_OF_MEMORY;
        assert_int_equal(hook_cuMemFreeAsync(AT, STREAM), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(of_driver, 0);
}

static void memory_from_the_driver_is_freed_by_the_driver(void **state)
{
        assert_int_equal(hook_cuMemFreeAsync(DRIVERS, STREAM), CUDA_SUCCESS);
        assert_int_equal(hook_cuMemFreeAsync(0, STREAM), CUDA_SUCCESS);
        place.block->kind = BLOCK_ADOPTED;
        assert_int_equal(hook_cuMemFreeAsync(AT, STREAM), CUDA_SUCCESS);
        place.block->kind = BLOCK_POOL;
        gpu->error = CUDA_ERROR_ILLEGAL_ADDRESS;
        assert_int_equal(hook_cuMemFreeAsync(AT, STREAM), CUDA_SUCCESS);
        gpu->error = CUDA_SUCCESS;
        current = NULL;
        assert_int_equal(hook_cuMemFreeAsync(AT, NULL), CUDA_SUCCESS);
        atomic_store(&core.bystander, true);
        assert_int_equal(hook_cuMemFreeAsync(AT, STREAM), CUDA_SUCCESS);
        assert_int_equal(of_driver, 6);
        assert_int_equal(gates, 6);
        assert_int_equal(later, 0);
}

/* ---- pools ---- */

static void a_new_pool_on_a_managed_card_is_known(void **state)
{
        CUmemPoolProps props = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        CUmemoryPool pool;

        assert_int_equal(hook_cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
        assert_int_equal(born, 1);
        assert_ptr_equal(asked, OURS);
        props.location.id = 5;
        assert_int_equal(hook_cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
        props.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
        assert_int_equal(hook_cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
        props.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE};
        answer = CUDA_ERROR_INVALID_VALUE;
        assert_int_equal(hook_cuMemPoolCreate(&pool, &props), answer);
        assert_int_equal(born, 1);
        assert_int_equal(of_driver, 4);
}

static void nobody_gets_a_destroyed_pools_handle_before_it_is_gone(void **state)
{
        assert_int_equal(hook_cuMemPoolDestroy(OURS), CUDA_SUCCESS);
        assert_true(locked);
        assert_int_equal(died, 1);
        assert_ptr_equal(asked, OURS);
        assert_false(died_handed_over);
        assert_int_equal(hook_cuMemPoolDestroy(THEIRS), CUDA_SUCCESS);
        assert_false(locked); /* the driver may wait for memory of its pool */
        assert_int_equal(died, 2);
        assert_true(died_handed_over);
        answer = CUDA_ERROR_INVALID_VALUE;
        assert_int_equal(hook_cuMemPoolDestroy(OURS), answer);
        atomic_store(&core.bystander, true);
        answer = CUDA_SUCCESS;
        assert_int_equal(hook_cuMemPoolDestroy(OURS), CUDA_SUCCESS);
        assert_int_equal(died, 2);
        assert_int_equal(of_driver, 4);
}

static CUresult set_attribute(CUmemoryPool pool)
{
        cuuint64_t value = 3;

        return hook_cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
}

static cuuint64_t get_attribute(CUmemoryPool pool)
{
        cuuint64_t value = 3;

        assert_int_equal(
                hook_cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value),
                answer);
        return value;
}

static void attributes_go_to_the_driver_first(void **state)
{
        assert_int_equal(get_attribute(OURS), 5);
        assert_int_equal(get_attribute(THEIRS), 3);
        assert_int_equal(set_attribute(OURS), CUDA_SUCCESS);
        assert_int_equal(set, 1);
        assert_int_equal(hook_cuMemPoolTrimTo(OURS, 77), CUDA_SUCCESS);
        assert_int_equal(kept, 77);
        kept = 0;
        assert_int_equal(set_attribute(THEIRS), CUDA_SUCCESS);
        assert_int_equal(hook_cuMemPoolTrimTo(THEIRS, 77), CUDA_SUCCESS);
        answer = CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(get_attribute(OURS), 3);
                assert_int_equal(set_attribute(OURS), answer);
                assert_int_equal(hook_cuMemPoolTrimTo(OURS, 77), answer);
                answer = CUDA_SUCCESS;
                atomic_store(&core.bystander, true);
        }
        assert_int_equal(set, 1);
        assert_int_equal(kept, 0);
        assert_int_equal(of_driver, 12);
}

static void each_call_sets_the_library_up(void **state)
{
        CUmemPoolProps props = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        CUmemoryPool pool;

        core_setups = 0;
        (void)allocated(STREAM);
        assert_int_equal(core_setups, 1);
        (void)hook_cuMemFreeAsync(AT, STREAM);
        assert_int_equal(core_setups, 2);
        (void)hook_cuMemPoolCreate(&pool, &props);
        assert_int_equal(core_setups, 3);
        (void)hook_cuMemPoolTrimTo(OURS, 0);
        assert_int_equal(core_setups, 4);
        (void)set_attribute(OURS);
        assert_int_equal(core_setups, 5);
        (void)get_attribute(OURS);
        assert_int_equal(core_setups, 6);
        (void)hook_cuMemPoolSetAccess(OURS, NULL, 0);
        assert_int_equal(core_setups, 7);
        (void)hook_cuMemPoolDestroy(OURS);
        assert_int_equal(core_setups, 8);
}

static bool goes_over(CUmemLocation first, CUmemLocation second)
{
        const CUmemAccessDesc map[] = {{.location = first}, {.location = second}};

        handed_over = false;
        assert_int_equal(hook_cuMemPoolSetAccess(OURS, map, 2), answer);
        return handed_over;
}

static void a_pool_that_another_device_may_access_goes_to_the_driver(void **state)
{
        const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                            other = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                            host = {.type = CU_MEM_LOCATION_TYPE_HOST};

        assert_false(goes_over(here, here));
        assert_true(goes_over(here, other));
        assert_true(goes_over(other, here));
        assert_true(goes_over(here, host));
        answer = CUDA_ERROR_INVALID_VALUE;
        assert_false(goes_over(other, other));
        answer = CUDA_SUCCESS;
        handed_over = false;
        assert_int_equal(hook_cuMemPoolSetAccess(THEIRS, &(CUmemAccessDesc){.location = other}, 1),
                         CUDA_SUCCESS);
        assert_int_equal(hook_cuMemPoolSetAccess(OURS, NULL, 0), CUDA_SUCCESS);
        assert_false(handed_over);
        atomic_store(&core.bystander, true);
        assert_false(goes_over(other, other));
        assert_int_equal(of_driver, 8);
}

#define HOOK_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                HOOK_TEST(memory_comes_from_the_pool_of_the_streams_device),
                HOOK_TEST(a_null_stream_is_the_default_stream_of_the_symbol),
                HOOK_TEST(each_thread_has_a_number_of_its_own),
                HOOK_TEST(allocations_from_an_unknown_pool_go_to_the_driver),
                HOOK_TEST(allocations_that_cannot_be_served_go_to_the_driver),
                HOOK_TEST(captured_calls_go_to_the_driver),
                HOOK_TEST(calls_that_a_capture_forbids_fail),
                HOOK_TEST(an_allocation_without_memory_returns_address_zero),
                HOOK_TEST(a_driver_that_lacks_memory_is_asked_again),
                HOOK_TEST(pools_hear_what_the_program_has_waited_for),
                HOOK_TEST(a_call_that_has_not_waited_tells_nothing),
                HOOK_TEST(nothing_is_told_once_the_program_has_waited_for_all_frees),
                HOOK_TEST(memory_of_a_pool_is_freed_in_the_order_of_the_stream),
                HOOK_TEST(an_address_inside_an_allocation_is_not_freed),
                HOOK_TEST(memory_of_no_pool_is_freed_when_all_work_is_done),
                HOOK_TEST(memory_from_the_driver_is_freed_by_the_driver),
                HOOK_TEST(a_new_pool_on_a_managed_card_is_known),
                HOOK_TEST(nobody_gets_a_destroyed_pools_handle_before_it_is_gone),
                HOOK_TEST(attributes_go_to_the_driver_first),
                HOOK_TEST(each_call_sets_the_library_up),
                HOOK_TEST(a_pool_that_another_device_may_access_goes_to_the_driver),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
