/* driver.c: owns the memory and streams of the fake driver in unit tests. A test must never be able
 * to touch unmapped memory. */
#include "unit.h"

#include "fakes/driver.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/macros.h"
#include "preload/state/core.h"

#define PAGE       HEAP_GRANULARITY
#define PAGES_MOST 64u
#define HANDLES    512u
#define MAPPINGS   1024u
#define MANAGED    64u
#define QUEUE      4096u
#define FDS        1024
#define EVENTS     128u
#define ADDRESSES  UINT64_C(0x700000000000)

struct memory {
        uint64_t bytes, words[PAGES_MOST];
        unsigned mapped;
        bool handle; /* its handle has not been released */
        bool imported;
        CUmemAllocationProp prop;
        CUmemGenericAllocationHandle name;
};

struct place {
        CUdeviceptr at;
        uint64_t bytes;
        struct memory *memory; /* NULL: the record is free */
        uint32_t access;       /* bit n: device n has access */
};

static struct place places[MAPPINGS];
static struct memory memories[HANDLES];
static struct memory passed_on[FDS]; /* exported memory, by descriptor; bytes 0: none */

static struct {
        CUdeviceptr at;
        uint64_t bytes;
        uint64_t words[PAGES_MOST];
        CUdevice where[PAGES_MOST];
} managed[MANAGED];
static unsigned managed_count;

enum work { TO_HOST, TO_CARD, WITHIN, ZERO, PREFETCH, RECORD };
static struct job {
        enum work work;
        CUstream stream;
        CUdeviceptr to, from;
        char *host;
        uint64_t bytes;
        CUdevice where;
        unsigned event;
} queue[QUEUE];
static unsigned queued;

static struct {
        bool made;
        unsigned pending; /* records of this event that streams have not reached */
} events[EVENTS];

struct driver driver;
static CUdeviceptr next_address;
static uint64_t names;
static CUcontext contexts[16];
static unsigned context_depth;

/* ---- failures ---- */

static bool fails(const char *name)
{
        if (driver.unlocked && atomic_load(&core_lock.word) != 0)
                fail_msg("%s with the lock held", name);
        driver.calls++;
        if (!driver.dead && (!driver.fail_at || driver.calls < driver.fail_at ||
                             driver.calls > driver.fail_at + driver.more))
                return false;
        driver.failed = name;
        return true;
}

/* Checks the lock in a call that cannot fail. */
static void check(const char *name)
{
        if (driver.unlocked && atomic_load(&core_lock.word) != 0)
                fail_msg("%s with the lock held", name);
}

/* The same for a call that takes memory away. */
static bool end_fails(const char *name)
{
        if (driver.ends_fail)
                return fails(name);
        check(name);
        return false;
}

void driver_fail(unsigned nth, CUresult error)
{
        driver.fail_at = nth ? driver.calls + nth : 0;
        driver.error = error;
        driver.failed = NULL;
}

/* ---- memory ---- */

static struct memory *memory_of(CUmemGenericAllocationHandle name)
{
        for (unsigned i = 0; i < HANDLES; i++)
                if (memories[i].bytes && memories[i].handle && memories[i].name == name)
                        return &memories[i];
        return NULL;
}

static uint64_t *counter(const struct memory *m)
{
        return m->prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? &driver.used : &driver.host;
}

static void memory_drop(struct memory *m)
{
        if (m->handle || m->mapped)
                return;
        *counter(m) -= m->bytes;
        m->bytes = 0;
}

static struct memory *memory_new(uint64_t bytes, const CUmemAllocationProp *prop)
{
        assert_true(bytes > 0 && bytes % PAGE == 0 && bytes / PAGE <= PAGES_MOST);
        for (unsigned i = 0; i < HANDLES; i++) {
                struct memory *m = &memories[i];

                if (m->bytes)
                        continue;
                *m = (struct memory){
                        .bytes = bytes, .handle = true, .prop = *prop, .name = 0x1000 + ++names};
                *counter(m) += bytes;
                return m;
        }
        fail_msg("more than %u handles", HANDLES);
        return NULL;
}

static CUresult fake_create(CUmemGenericAllocationHandle *ret, size_t bytes,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
        struct memory *m;

        if (fails("cuMemCreate"))
                return driver.error;
        if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && driver.used + bytes > driver.card)
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && driver.no_numa)
                return CUDA_ERROR_INVALID_VALUE;
        m = memory_new(bytes, prop);
        for (unsigned i = 0; i < PAGES_MOST; i++)
                /* Contents of another process, which new memory may have. */
                m->words[i] = UINT64_C(0xdead0000) + i;
        *ret = m->name;
        return CUDA_SUCCESS;
}

static CUresult fake_release(CUmemGenericAllocationHandle name)
{
        struct memory *m = memory_of(name);

        if (end_fails("cuMemRelease"))
                return driver.error;
        assert_non_null(m);
        m->handle = false;
        memory_drop(m);
        return CUDA_SUCCESS;
}

static struct place *place_of(CUdeviceptr at)
{
        for (unsigned i = 0; i < MAPPINGS; i++)
                if (places[i].memory && at - places[i].at < places[i].bytes)
                        return &places[i];
        return NULL;
}

static CUresult fake_map(CUdeviceptr at, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle name, unsigned long long flags)
{
        struct memory *m = memory_of(name);

        if (fails("cuMemMap"))
                return driver.error;
        assert_non_null(m);
        assert_true(at >= ADDRESSES && bytes <= m->bytes && offset == 0);
        if (driver.ends_fail && place_of(at))
                return CUDA_ERROR_INVALID_VALUE;
        for (uint64_t i = 0; i < bytes; i += PAGE)
                assert_null(place_of(at + i));
        for (unsigned i = 0; i < MAPPINGS; i++)
                if (!places[i].memory) {
                        places[i] = (struct place){.at = at, .bytes = bytes, .memory = m};
                        m->mapped++;
                        return CUDA_SUCCESS;
                }
        fail_msg("more than %u mappings", MAPPINGS);
        return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
        if (fails("cuMemSetAccess"))
                return driver.error;
        for (CUdeviceptr end = at + bytes; at < end;) {
                struct place *p = place_of(at);

                assert_non_null(p);
                assert_true(p->at == at && at + p->bytes <= end);
                for (size_t i = 0; i < count; i++) {
                        assert_int_equal(desc[i].location.type, CU_MEM_LOCATION_TYPE_DEVICE);
                        p->access &= ~(UINT32_C(1) << desc[i].location.id);
                        if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                                p->access |= UINT32_C(1) << desc[i].location.id;
                }
                at += p->bytes;
        }
        return CUDA_SUCCESS;
}

static CUresult fake_unmap(CUdeviceptr at, size_t bytes)
{
        struct place *p = place_of(at);

        if (end_fails("cuMemUnmap"))
                return driver.error;
        if (!p) /* the library tries this after each failed map */
                return CUDA_ERROR_INVALID_VALUE;
        assert_true(p->at == at && p->bytes == bytes);
        p->memory->mapped--;
        memory_drop(p->memory);
        p->memory = NULL;
        return CUDA_SUCCESS;
}

static CUresult fake_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr request,
                             unsigned long long flags)
{
        if (fails("cuMemAddressReserve"))
                return driver.error;
        *ret = next_address;
        next_address += align_up(bytes, PAGE) + 16 * PAGE;
        driver.reservations++;
        return CUDA_SUCCESS;
}

static CUresult fake_unreserve(CUdeviceptr at, size_t bytes)
{
        check("cuMemAddressFree");
        for (uint64_t i = 0; i < bytes; i += PAGE)
                assert_null(place_of(at + i));
        driver.reservations--;
        return CUDA_SUCCESS;
}

static CUresult fake_export(void *ret, CUmemGenericAllocationHandle name,
                            CUmemAllocationHandleType type, unsigned long long flags)
{
        const struct memory *m = memory_of(name);
        int fd;

        if (fails("cuMemExportToShareableHandle"))
                return driver.error;
        assert_non_null(m);
        if (m->imported || !(m->prop.requestedHandleTypes & (unsigned)type))
                return CUDA_ERROR_INVALID_VALUE;
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0 && fd < FDS);
        passed_on[fd] = *m;
        *(int *)ret = fd;
        return CUDA_SUCCESS;
}

static CUresult fake_import(CUmemGenericAllocationHandle *ret, void *handle,
                            CUmemAllocationHandleType type)
{
        int fd = (int)(intptr_t)handle;
        struct memory *m;

        if (fails("cuMemImportFromShareableHandle"))
                return driver.error;
        if (fcntl(fd, F_GETFD) < 0 || !passed_on[fd].bytes)
                return CUDA_ERROR_INVALID_VALUE;
        m = memory_new(passed_on[fd].bytes, &passed_on[fd].prop);
        memcpy(m->words, passed_on[fd].words, sizeof(m->words));
        m->imported = true;
        passed_on[fd].bytes = 0; /* the descriptor's number may be reused */
        *ret = m->name;
        return CUDA_SUCCESS;
}

int driver_foreign(uint64_t bytes, uint64_t word)
{
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        assert_true(fd >= 0 && fd < FDS);
        passed_on[fd] =
                (struct memory){.bytes = bytes, .prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE};
        for (unsigned i = 0; i < PAGES_MOST; i++)
                passed_on[fd].words[i] = word;
        return fd;
}

static uint64_t *managed_word(CUdeviceptr at, CUdevice **ret_where)
{
        for (unsigned i = 0; i < managed_count; i++)
                if (at - managed[i].at < managed[i].bytes) {
                        uint64_t page = (at - managed[i].at) / PAGE;

                        *ret_where = &managed[i].where[page];
                        return &managed[i].words[page];
                }
        return NULL;
}

CUdeviceptr driver_managed(uint64_t bytes)
{
        assert_true(managed_count < MANAGED && bytes <= PAGES_MOST * PAGE);
        managed[managed_count].at = next_address;
        managed[managed_count].bytes = bytes;
        for (unsigned i = 0; i < PAGES_MOST; i++)
                managed[managed_count].where[i] = CU_DEVICE_CPU;
        managed_count++;
        next_address += align_up(bytes, PAGE) + 16 * PAGE;
        return managed[managed_count - 1].at;
}

static CUresult fake_free(CUdeviceptr at)
{
        check("cuMemFree");
        for (unsigned i = 0; i < managed_count; i++)
                if (managed[i].at == at) {
                        managed[i] = managed[--managed_count];
                        return CUDA_SUCCESS;
                }
        fail_msg("free of what is not managed memory");
        return CUDA_ERROR_INVALID_VALUE;
}

CUdevice driver_where(CUdeviceptr at)
{
        CUdevice *where;

        return managed_word(at, &where) ? *where : CU_DEVICE_INVALID;
}

uint64_t *driver_word(CUdeviceptr at, unsigned device)
{
        struct place *p = place_of(at);
        CUdevice *where;

        if (!p)
                return managed_word(at, &where);
        return p->access >> device & 1 ? &p->memory->words[(at - p->at) / PAGE] : NULL;
}

CUmemGenericAllocationHandle driver_handle(CUdeviceptr at)
{
        const struct place *p = place_of(at);

        return p ? p->memory->name : 0;
}

const CUmemAllocationProp *driver_prop(CUmemGenericAllocationHandle name)
{
        const struct memory *m = memory_of(name);

        return m ? &m->prop : NULL;
}

unsigned driver_handles(void)
{
        unsigned n = 0;

        for (unsigned i = 0; i < HANDLES; i++)
                n += memories[i].bytes && memories[i].handle;
        return n;
}

unsigned driver_mappings(void)
{
        unsigned n = 0;

        for (unsigned i = 0; i < MAPPINGS; i++)
                n += places[i].memory != NULL;
        return n;
}

/* ---- streams ---- */

static void perform(const struct job *j)
{
        for (uint64_t i = 0; i < j->bytes; i += PAGE) {
                uint64_t *to = j->to ? driver_word(j->to + i, driver.device) : NULL;
                uint64_t *from = j->from ? driver_word(j->from + i, driver.device) : NULL;
                CUdevice *where;

                if ((j->to && !to) || (j->from && !from))
                        fail_msg("work in a stream meets memory that is not there");
                if (j->work == TO_HOST)
                        memcpy(j->host + i, from, sizeof(*from));
                else if (j->work == TO_CARD)
                        memcpy(to, j->host + i, sizeof(*to));
                else if (j->work == WITHIN)
                        *to = *from;
                else if (j->work == ZERO)
                        *to = 0;
                else if (j->work == PREFETCH && managed_word(j->to + i, &where))
                        *where = j->where;
        }
        if (j->work == RECORD)
                events[j->event].pending--;
        driver.copied_out += j->work == TO_HOST ? j->bytes / PAGE : 0;
        driver.copied_in += j->work == TO_CARD ? j->bytes / PAGE : 0;
        driver.cleared += j->work == ZERO ? j->bytes / PAGE : 0;
}

static void take(unsigned i)
{
        struct job j = queue[i];

        memmove(&queue[i], &queue[i + 1], (--queued - i) * sizeof(queue[0]));
        perform(&j);
}

unsigned driver_run(unsigned n)
{
        while (n-- > 0 && queued)
                take(0);
        return queued;
}

void driver_die(CUresult error)
{
        driver.dead = true;
        driver.error = error;
        queued = 0;
        for (unsigned i = 0; i < EVENTS; i++)
                events[i].pending = 0;
}

static CUresult put(const char *name, struct job j)
{
        if (fails(name))
                return driver.error;
        assert_true(queued < QUEUE);
        assert_non_null(j.stream); /* copies must not wait in the legacy stream */
        queue[queued++] = j;
        return CUDA_SUCCESS;
}

static CUresult fake_to_host(void *host, CUdeviceptr from, size_t bytes, CUstream s)
{
        return put("cuMemcpyDtoHAsync",
                   (struct job){TO_HOST, s, .from = from, .host = host, .bytes = bytes});
}

static CUresult fake_to_card(CUdeviceptr to, const void *host, size_t bytes, CUstream s)
{
        return put("cuMemcpyHtoDAsync",
                   (struct job){TO_CARD, s, .to = to, .host = (char *)host, .bytes = bytes});
}

static CUresult fake_within(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
        return put("cuMemcpyDtoDAsync",
                   (struct job){WITHIN, s, .to = to, .from = from, .bytes = bytes});
}

static CUresult fake_fill(CUdeviceptr to, unsigned value, size_t count, CUstream s)
{
        assert_int_equal(value, 0);
        return put("cuMemsetD32Async", (struct job){ZERO, s, .to = to, .bytes = count * 4});
}

static CUresult fake_prefetch(CUdeviceptr at, size_t bytes, CUdevice where, CUstream s)
{
        return put("cuMemPrefetchAsync",
                   (struct job){PREFETCH, s, .to = at, .bytes = bytes, .where = where});
}

static CUresult fake_stream(CUstream *ret, unsigned flags)
{
        if (fails("cuStreamCreate"))
                return driver.error;
        assert_non_null(driver.current);
        driver.streams++;
        *ret = (CUstream)(uintptr_t)(0x10000 + ++names * 16);
        return CUDA_SUCCESS;
}

static bool busy(CUstream s)
{
        for (unsigned i = 0; i < queued; i++)
                if (queue[i].stream == s)
                        return true;
        return false;
}

static CUresult fake_stream_end(CUstream s)
{
        check("cuStreamDestroy");
        assert_true(driver.streams > 0);
        driver.streams--;
        return CUDA_SUCCESS;
}

static CUresult fake_stream_query(CUstream s)
{
        check("cuStreamQuery");
        return driver.dead ? driver.error : busy(s) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult fake_stream_wait(CUstream s)
{
        check("cuStreamSynchronize");
        for (unsigned i = 0; i < queued;)
                if (queue[i].stream == s)
                        take(i);
                else
                        i++;
        return driver.dead ? driver.error : CUDA_SUCCESS;
}

static CUresult fake_event(CUevent *ret, unsigned flags)
{
        if (fails("cuEventCreate"))
                return driver.error;
        for (unsigned i = 1; i < EVENTS; i++)
                if (!events[i].made) {
                        events[i].made = true;
                        events[i].pending = 0;
                        driver.events++;
                        *ret = (CUevent)(uintptr_t)i;
                        return CUDA_SUCCESS;
                }
        fail_msg("more than %u events", EVENTS);
        return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_event_end(CUevent e)
{
        check("cuEventDestroy");
        assert_true(events[(uintptr_t)e].made);
        events[(uintptr_t)e].made = false;
        driver.events--;
        return CUDA_SUCCESS;
}

static CUresult fake_record(CUevent e, CUstream s)
{
        CUresult r;

        assert_true(events[(uintptr_t)e].made);
        r = put("cuEventRecord", (struct job){RECORD, s, .event = (unsigned)(uintptr_t)e});
        events[(uintptr_t)e].pending += r == CUDA_SUCCESS;
        return r;
}

static CUresult fake_event_query(CUevent e)
{
        check("cuEventQuery");
        assert_true(events[(uintptr_t)e].made);
        if (driver.dead)
                return driver.error;
        return events[(uintptr_t)e].pending ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

/* ---- contexts and other calls ---- */

static CUresult fake_set(CUcontext c)
{
        if (fails("cuCtxSetCurrent") && !driver.dead)
                return driver.error;
        driver.current = c;
        return CUDA_SUCCESS;
}

static CUresult fake_push(CUcontext c)
{
        if (fails("cuCtxPushCurrent"))
                return driver.error;
        assert_true(context_depth < ARRAY_SIZE(contexts));
        contexts[context_depth++] = driver.current;
        driver.current = c;
        return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *ret)
{
        assert_true(context_depth > 0);
        *ret = driver.current;
        driver.current = contexts[--context_depth];
        return CUDA_SUCCESS;
}

static CUresult fake_get(CUcontext *ret)
{
        *ret = driver.current;
        return CUDA_SUCCESS;
}

static CUresult fake_relax(CUstreamCaptureMode *mode)
{
        static CUstreamCaptureMode now;
        CUstreamCaptureMode before = now;

        now = *mode;
        *mode = before;
        driver.relaxed = now == CU_STREAM_CAPTURE_MODE_RELAXED;
        return CUDA_SUCCESS;
}

static CUresult fake_attribute(int *ret, CUdevice_attribute which, CUdevice device)
{
        *ret = which == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID ? 3 : 0;
        return CUDA_SUCCESS;
}

static CUresult fake_register(void *p, size_t bytes, unsigned flags)
{
        if (fails("cuMemHostRegister"))
                return driver.error;
        driver.registered++;
        return CUDA_SUCCESS;
}

static CUresult fake_unregister(void *p)
{
        assert_true(driver.registered > 0);
        driver.registered--;
        return CUDA_SUCCESS;
}

void driver_reset(uint64_t card_bytes)
{
        memset(places, 0, sizeof(places));
        memset(memories, 0, sizeof(memories));
        memset(passed_on, 0, sizeof(passed_on));
        memset(events, 0, sizeof(events));
        managed_count = queued = context_depth = 0;
        next_address = ADDRESSES;
        driver = (struct driver){.card = card_bytes};
        real.cuMemCreate = fake_create;
        real.cuMemRelease = fake_release;
        real.cuMemMap = fake_map;
        real.cuMemUnmap = fake_unmap;
        real.cuMemSetAccess = fake_access;
        real.cuMemAddressReserve = fake_reserve;
        real.cuMemAddressFree = fake_unreserve;
        real.cuMemExportToShareableHandle = fake_export;
        real.cuMemImportFromShareableHandle = fake_import;
        real.cuMemFree_v2 = fake_free;
        real.cuMemcpyDtoHAsync_v2 = fake_to_host;
        real.cuMemcpyHtoDAsync_v2 = fake_to_card;
        real.cuMemcpyDtoDAsync_v2 = fake_within;
        real.cuMemsetD32Async = fake_fill;
        real.cuMemPrefetchAsync = fake_prefetch;
        real.cuStreamCreate = fake_stream;
        real.cuStreamDestroy_v2 = fake_stream_end;
        real.cuStreamQuery = fake_stream_query;
        real.cuStreamSynchronize = fake_stream_wait;
        real.cuEventCreate = fake_event;
        real.cuEventDestroy_v2 = fake_event_end;
        real.cuEventRecord = fake_record;
        real.cuEventQuery = fake_event_query;
        real.cuCtxSetCurrent = fake_set;
        real.cuCtxPushCurrent_v2 = fake_push;
        real.cuCtxPopCurrent_v2 = fake_pop;
        real.cuCtxGetCurrent = fake_get;
        real.cuThreadExchangeStreamCaptureMode = fake_relax;
        real.cuDeviceGetAttribute = fake_attribute;
        real.cuMemHostRegister_v2 = fake_register;
        real.cuMemHostUnregister = fake_unregister;
}

unsigned open_descriptors(void)
{
        DIR *d = opendir("/proc/self/fd");
        unsigned n = 0;

        assert_non_null(d);
        while (readdir(d))
                n++;
        (void)closedir(d);
        return n;
}
