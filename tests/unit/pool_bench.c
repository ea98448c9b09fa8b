/* pool_bench.c: the fakes that pool_bench.h describes. */
#include "unit.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "pool_bench.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/pool/room.h"

#define STREAMS_MOST 64u
#define EVENTS_MOST  128u

static struct model {
        CUstream handle;
        CUcontext context;
        uint64_t put, done;
        bool gone;
} streams[STREAMS_MOST];
static unsigned stream_count;
static CUcontext stream_context;
static uint32_t contexts_ended; /* bit n: context n has ended */
static __thread CUstreamCaptureMode capture_mode;
static uint64_t put_first; /* pieces of work in each stream that is seen for the first time */
static struct {
        struct model *stream;
        uint64_t put;
        bool destroyed;
} event_list[EVENTS_MOST];

uint64_t clock_ns;
void (*recording)(void);
void (*releasing)(void);
CUresult record_error, wait_error, context_error;
unsigned events, events_destroyed, waits_put, asked, promises, searches;
CUmemoryPool default_pool;
cuuint64_t threshold;
int may_wait;
uint64_t promise_room, other_room;
struct pool_stream waiting_stream, awaited_stream;

/* The build makes the pools call this function for the time. */
int __wrap_clock_gettime(clockid_t which, struct timespec *ret);
int __wrap_clock_gettime(clockid_t which, struct timespec *ret)
{
        *ret = (struct timespec){.tv_sec = (time_t)(clock_ns / NSEC_PER_SEC),
                                 .tv_nsec = (long)(clock_ns % NSEC_PER_SEC)};
        return 0;
}

/* ---- streams ---- */

static void assert_unlocked(void)
{
        assert_int_equal(atomic_load(&core_lock.word), 0);
}

static struct model *model_of(CUstream handle, CUcontext context)
{
        bool shared = (uintptr_t)handle <= (uintptr_t)CU_STREAM_PER_THREAD;

        for (unsigned i = 0; i < stream_count; i++)
                if (streams[i].handle == handle && (!shared || streams[i].context == context) &&
                    !streams[i].gone)
                        return &streams[i];
        assert_true(stream_count < STREAMS_MOST);
        streams[stream_count] =
                (struct model){.handle = handle, .context = context, .put = put_first};
        return &streams[stream_count++];
}

struct pool_stream stream_of(unsigned number)
{
        return (struct pool_stream){.handle = (CUstream)(uintptr_t)(4096 + number * 64)};
}

struct pool_stream stream_default(CUstream handle, unsigned context, unsigned thread)
{
        return (struct pool_stream){
                .handle = handle, .context = (CUcontext)(uintptr_t)context, .thread = thread};
}

void stream_put(const struct pool_stream *s)
{
        model_of(s->handle, s->context)->put++;
}

void stream_step(const struct pool_stream *s)
{
        struct model *m = model_of(s->handle, s->context);

        assert_true(m->done < m->put);
        m->done++;
}

void stream_done(const struct pool_stream *s)
{
        struct model *m = model_of(s->handle, s->context);

        m->done = m->put;
}

void stream_end(const struct pool_stream *s)
{
        pool_stream_dies(s->handle);
        model_of(s->handle, s->context)->gone = true;
}

void context_now(unsigned context)
{
        stream_context = (CUcontext)(uintptr_t)context;
}

void context_end(unsigned context)
{
        pool_context_dies((CUcontext)(uintptr_t)context);
        contexts_ended |= 1U << context;
}

static void assert_context(CUcontext context)
{
        assert_non_null(context);
        assert_int_equal(contexts_ended >> (uintptr_t)context & 1, 0);
}

void all_busy(void)
{
        put_first = 1;
        for (unsigned i = 0; i < stream_count; i++)
                streams[i].put++;
}

void all_done(void)
{
        put_first = 0;
        for (unsigned i = 0; i < stream_count; i++)
                streams[i].done = streams[i].put;
}

CUresult quiesce_ask_stream(CUstream stream, CUcontext context)
{
        const struct model *m = model_of(stream, context);

        asked++;
        assert_false(fake_capturing);
        /* The driver would take this handle for the calling thread's stream. */
        assert_ptr_not_equal(stream, CU_STREAM_PER_THREAD);
        assert_context(context);
        return m->done < m->put ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult quiesce_ask_event(CUevent event, CUcontext context)
{
        uintptr_t i = (uintptr_t)event;

        asked++;
        assert_false(fake_capturing);
        assert_in_range(i, 1, events);
        assert_false(event_list[i].destroyed);
        assert_context(context);
        return event_list[i].stream->done < event_list[i].put ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult quiesce_record(CUevent *event, CUcontext context, CUstream stream)
{
        struct model *m = model_of(stream, context);
        uint64_t put = m->put;
        uintptr_t i;

        assert_unlocked();
        assert_context(context);
        if (record_error)
                return record_error;
        if (!*event) {
                assert_true(events + 1 < EVENTS_MOST);
                *event = (CUevent)(uintptr_t)++events;
        }
        i = (uintptr_t)*event;
        assert_false(event_list[i].destroyed);
        event_list[i].stream = m;
        event_list[i].put = put;
        if (recording)
                recording();
        return CUDA_SUCCESS;
}

static CUresult fake_wait_event(CUstream stream, CUevent event, unsigned flags)
{
        const struct model *m = event_list[(uintptr_t)event].stream;

        assert_unlocked();
        assert_false(fake_capturing);
        assert_in_range((uintptr_t)event, 1, events);
        assert_false(event_list[(uintptr_t)event].destroyed);
        assert_int_equal(flags, 0);
        if (wait_error)
                return wait_error;
        waits_put++;
        waiting_stream = (struct pool_stream){.handle = stream};
        awaited_stream = (struct pool_stream){.handle = m->handle, .context = m->context};
        return CUDA_SUCCESS;
}

static CUresult fake_event_destroy(CUevent event)
{
        assert_in_range((uintptr_t)event, 1, events);
        assert_false(event_list[(uintptr_t)event].destroyed);
        event_list[(uintptr_t)event].destroyed = true;
        events_destroyed++;
        return CUDA_SUCCESS;
}

static CUresult fake_relax(CUstreamCaptureMode *mode)
{
        CUstreamCaptureMode before = capture_mode;

        capture_mode = *mode;
        *mode = before;
        return CUDA_SUCCESS;
}

static CUresult fake_context_of(CUstream stream, CUcontext *ret)
{
        *ret = stream_context;
        return context_error;
}

/* ---- room ---- */

static bool had_from(uint64_t *room, uint64_t more)
{
        if (*room < more)
                return false;
        *room -= more;
        gpu_room += more;
        return true;
}

int room_commit(struct gpu *g, uint64_t more)
{
        promises++;
        return had_from(&promise_room, more) ? 0 : -ENOMEM;
}

bool room_grow(struct gpu *g, uint64_t more)
{
        searches++;
        return had_from(&other_room, more);
}

void back_all(void)
{
        struct heap_cursor c = {0};

        for (struct extent *e; (e = heap_walk(&gpu->heap, &c));)
                account_back(gpu, e);
        gate_open(GATE_UNBACKED);
}

void swap_unused(struct gpu *g, struct extent *e)
{
        assert_int_equal(e->live, 0);
        if (e->busy || e->state == EXTENT_RESIDENT)
                return;
        e->state = EXTENT_UNBACKED;
        heap_settle(&g->heap, e);
}

bool swap_release(struct gpu *g, struct extent *e)
{
        assert_false(e->busy);
        assert_int_equal(e->live, 0);
        if (releasing)
                releasing();
        account_unback(g, e);
        heap_settle(&g->heap, e);
        return true;
}

static CUresult fake_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr request,
                             unsigned long long flags)
{
        static CUdeviceptr next = UINT64_C(0x700000000000);

        *ret = next;
        next += 2 * bytes;
        return CUDA_SUCCESS;
}

/* ---- pools ---- */

/* Attributes that the program set before sublet knew the pool. */
static CUresult fake_attribute(CUmemoryPool pool, CUmemPool_attribute which, void *ret)
{
        if (which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
                *(cuuint64_t *)ret = threshold;
        else
                *(int *)ret = may_wait;
        return CUDA_SUCCESS;
}

static CUresult fake_default_pool(CUmemoryPool *ret, CUdevice device)
{
        *ret = default_pool;
        return default_pool && device == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUmemoryPool handle_of(unsigned number)
{
        return (CUmemoryPool)(uintptr_t)(number * 64);
}

struct pool *pool_limited(unsigned number, uint64_t most)
{
        const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                      .maxSize = most};

        pool_born(handle_of(number), &props);
        return pool_find(handle_of(number));
}

struct pool *pool_made(unsigned number)
{
        return pool_limited(number, 0);
}

/* Memory that tests have allocated; the end of a test frees the rest of it. */
static CUdeviceptr taken[768];
static unsigned taken_count;

CUresult try_take(struct pool *p, const struct pool_stream *s, uint64_t bytes, CUdeviceptr *ret)
{
        CUresult r = pool_allocate(p, s, bytes, ret);

        if (r != CUDA_SUCCESS)
                return r;
        back_all();
        assert_true(taken_count < ARRAY_SIZE(taken));
        taken[taken_count++] = *ret;
        return r;
}

CUdeviceptr take(struct pool *p, const struct pool_stream *s, uint64_t bytes)
{
        CUdeviceptr at = 0;

        assert_int_equal(try_take(p, s, bytes, &at), CUDA_SUCCESS);
        return at;
}

CUdeviceptr piece(struct pool *p, unsigned stream)
{
        struct pool_stream s = stream_of(stream);

        return take(p, &s, MIB);
}

CUdeviceptr whole(struct pool *p, unsigned stream)
{
        struct pool_stream s = stream_of(stream);

        return take(p, &s, WHOLE);
}

struct block *block_at(CUdeviceptr at)
{
        struct heap_place place;

        assert_true(heap_find(&gpu->heap, at, &place));
        assert_int_equal(place.start, at);
        return place.block;
}

struct extent *extent_at(CUdeviceptr at)
{
        const struct block *b = block_at(at);

        return &b->extents[(at - b->address) / b->extent_bytes];
}

void give(CUdeviceptr at, const struct pool_stream *s)
{
        assert_int_equal(pool_free(block_at(at), at, s), CUDA_SUCCESS);
}

void piece_free(CUdeviceptr at, unsigned stream)
{
        struct pool_stream s = stream_of(stream);

        give(at, &s);
}

cuuint64_t attribute(struct pool *p, CUmemPool_attribute which)
{
        cuuint64_t value = UINT64_MAX;

        assert_true(pool_get(p, which, &value));
        return value;
}

void rest(void)
{
        uint64_t ns;

        for (unsigned turns = 0; (ns = pool_tend(clock_now_ns())) != UINT64_MAX; turns++) {
                assert_true(turns < 1000);
                clock_ns += ns;
        }
}

int begin_pools(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1};
        gpu->managed = true;
        gpu->total = gpu->visible = POOL_CARD;
        gpu->own_limit = UINT64_MAX;
        heap_init(&gpu->heap, POOL_CARD);
        atomic_store(&gate_bits, 0);
        clock_ns = NSEC_PER_SEC;
        context_now(1);
        contexts_ended = 0;
        capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        fake_capturing = false;
        recording = releasing = NULL;
        meanwhile = NULL;
        record_error = wait_error = context_error = CUDA_SUCCESS;
        events = events_destroyed = discarded = waits_put = asked = promises = searches = 0;
        stream_count = taken_count = put_first = 0;
        memset(event_list, 0, sizeof(event_list));
        default_pool = NULL;
        threshold = 0;
        may_wait = 1;
        back_answer = 0;
        gpu_room = UINT64_MAX;
        promise_room = other_room = 0;
        request_kicks = 0;
        real = (struct real_driver){.cuMemAddressReserve = fake_reserve,
                                    .cuThreadExchangeStreamCaptureMode = fake_relax,
                                    .cuStreamGetCtx = fake_context_of,
                                    .cuStreamWaitEvent = fake_wait_event,
                                    .cuEventDestroy_v2 = fake_event_destroy,
                                    .cuDeviceGetDefaultMemPool = fake_default_pool,
                                    .cuMemPoolGetAttribute = fake_attribute};
        lock_acquire(&core_lock);
        return 0;
}

int end_pools(void **state)
{
        struct heap_place place;

        fake_capturing = false;
        gpu->error = CUDA_SUCCESS;
        all_done();
        for (unsigned i = 0; i < taken_count; i++)
                if (heap_find(&gpu->heap, taken[i], &place))
                        assert_int_equal(pool_free(place.block, taken[i], NULL), CUDA_SUCCESS);
        for (unsigned i = 1; i < 8; i++) {
                pool_dies(handle_of(i), true);
                pool_dies(handle_of(i), false);
        }
        rest();
        assert_int_equal(capture_mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
        assert_int_equal(gpu->heap.allocated, 0);
        assert_int_equal(gpu->heap.backed, 0);
        for (size_t i = 0; i < gpu->heap.count; i++) {
                assert_int_equal(gpu->heap.blocks[i]->kind, BLOCK_FREE);
                free(gpu->heap.blocks[i]);
        }
        free(gpu->heap.blocks);
        lock_release(&core_lock);
        return 0;
}
