/* managed_api.c: the program's calls about managed memory: prefetches, advice, streams. Must never
 * move bytes itself (managed.c does). */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sim/queue/capture.h"
#include "sim/space/managed.h"
#include "sim/memory/memory.h"
#include "sim/queue/stream.h"

/* Pins and returns the range of the managed allocation that holds all these bytes; NULL: none. */
static struct range *managed_pin(CUdeviceptr ptr, size_t bytes)
{
        const struct block *b;
        struct range *range = NULL;

        space_lock_shared();
        b = memory_block(ptr);
        if (b && b->kind == BLOCK_MANAGED && bytes > 0 &&
            bytes <= managed_bytes(b->range->managed) - (ptr - b->span.start)) {
                range = b->range;
                atomic_fetch_add(&range->pins, 1);
        }
        space_unlock();
        return range;
}

/* Checks an ordinal, which may be CU_DEVICE_CPU. */
static CUresult location_check(int device)
{
        return device == CU_DEVICE_CPU ? CUDA_SUCCESS : device_check(device);
}

static CUresult location_device(CUmemLocation location, int *ret_device)
{
        switch (location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
                *ret_device = location.id;
                return device_check(location.id);
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
                *ret_device = CU_DEVICE_CPU;
                return CUDA_SUCCESS;
        default:
                return CUDA_ERROR_INVALID_VALUE;
        }
}

/* ---- prefetches ---- */

static void set_prefetched(struct managed_advice *a, int device)
{
        a->prefetched = (int16_t)device;
}

static CUresult prefetch(const char *function, CUdeviceptr ptr, size_t bytes, int to,
                         CUstream stream)
{
        struct work w = {.kind = WORK_PREFETCH, .prefetch = {ptr, bytes, to}};
        struct range *range;
        CUcontext c;
        CUresult r = stream_enter(function, &stream, &c);

        if (r == CUDA_SUCCESS)
                r = location_check(to);
        if (r != CUDA_SUCCESS)
                return r;
        range = managed_pin(ptr, bytes);
        if (!range)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        r = stream_submit_free(stream, &w, false);
        pthread_mutex_unlock(&sim.lock);
        if (r == CUDA_SUCCESS)
                managed_advise(range->managed, ptr, bytes, set_prefetched, to);
        space_unpin(range);
        return r;
}

CUresult prefetch_run(CUcontext c, const struct work_prefetch *w)
{
        struct managed_hold hold = {.context = c, .device = (unsigned)w->to};
        struct range *range = managed_pin(w->start, w->bytes);
        uint64_t at = w->start, end = w->start + w->bytes;
        CUresult r = CUDA_SUCCESS;

        if (!range)
                return CUDA_ERROR_LAUNCH_FAILED;
        if (w->to == CU_DEVICE_CPU)
                r = managed_bring_home(c, range->managed, w->start, w->bytes);
        while (w->to != CU_DEVICE_CPU && r == CUDA_SUCCESS && at < end && !context_stopped(c)) {
                uint64_t n = MIN(end - at, FRAMES_BLOCK_BYTES - at % FRAMES_BLOCK_BYTES), from, to;

                if (!managed_use(&hold, range->managed, at, n, MANAGED_PREFETCH, &from, &to))
                        r = hold.error;
                managed_drop(&hold);
                at += n;
        }
        space_unpin(range);
        return r == CUDA_ERROR_DEINITIALIZED ? CUDA_SUCCESS : r;
}

EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr ptr, size_t count, CUdevice device, CUstream stream)
{
        return prefetch(__func__, ptr, count, device, stream);
}

EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr ptr, size_t count, CUmemLocation location,
                                      unsigned int flags, CUstream stream)
{
        int device = 0;
        CUresult r = flags ? CUDA_ERROR_INVALID_VALUE : location_device(location, &device);

        return r != CUDA_SUCCESS ? r : prefetch(__func__, ptr, count, device, stream);
}

/* ---- advice ---- */

static void set_read_mostly(struct managed_advice *a, int device)
{
        a->read_mostly = true;
}

static void unset_read_mostly(struct managed_advice *a, int device)
{
        a->read_mostly = false;
}

static void set_preferred(struct managed_advice *a, int device)
{
        a->preferred = (int16_t)device;
}

static void unset_preferred(struct managed_advice *a, int device)
{
        a->preferred = CU_DEVICE_INVALID;
}

static void set_accessed_by(struct managed_advice *a, int device)
{
        if (device == CU_DEVICE_CPU)
                a->accessed_by_host = true;
        else
                a->accessed_by |= (uint8_t)(1U << device);
}

static void unset_accessed_by(struct managed_advice *a, int device)
{
        if (device == CU_DEVICE_CPU)
                a->accessed_by_host = false;
        else
                a->accessed_by &= (uint8_t) ~(1U << device);
}

/* The kinds of advice, by number. */
static const struct {
        void (*change)(struct managed_advice *a, int device);
        bool of_device; /* the advice depends on the device */
} advices[] = {
        [CU_MEM_ADVISE_SET_READ_MOSTLY] = {set_read_mostly, false},
        [CU_MEM_ADVISE_UNSET_READ_MOSTLY] = {unset_read_mostly, false},
        [CU_MEM_ADVISE_SET_PREFERRED_LOCATION] = {set_preferred, true},
        [CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION] = {unset_preferred, false},
        [CU_MEM_ADVISE_SET_ACCESSED_BY] = {set_accessed_by, true},
        [CU_MEM_ADVISE_UNSET_ACCESSED_BY] = {unset_accessed_by, true},
};

static bool advice_known(CUmem_advise advice)
{
        return (unsigned)advice < ARRAY_SIZE(advices) && advices[advice].change;
}

static CUresult advise(const char *function, CUdeviceptr ptr, size_t count, CUmem_advise advice,
                       int device)
{
        CUresult r = api_enter(function, API_CONTEXT, NULL);
        struct range *range;

        if (r == CUDA_SUCCESS && !advice_known(advice))
                r = CUDA_ERROR_INVALID_VALUE;
        if (r == CUDA_SUCCESS && advices[advice].of_device)
                r = location_check(device);
        if (r != CUDA_SUCCESS)
                return r;
        range = managed_pin(ptr, count);
        if (!range)
                return CUDA_ERROR_INVALID_VALUE;
        managed_advise(range->managed, ptr, count, advices[advice].change, device);
        space_unpin(range);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAdvise(CUdeviceptr ptr, size_t count, CUmem_advise advice, CUdevice device)
{
        return advise(__func__, ptr, count, advice, device);
}

EXPORT CUresult cuMemAdvise_v2(CUdeviceptr ptr, size_t count, CUmem_advise advice,
                               CUmemLocation location)
{
        int device = CU_DEVICE_CPU;
        CUresult r = CUDA_SUCCESS;

        if (advice_known(advice) && advices[advice].of_device)
                r = location_device(location, &device);
        return r != CUDA_SUCCESS ? r : advise(__func__, ptr, count, advice, device);
}

static int location_type(int device)
{
        return device == CU_DEVICE_INVALID ? CU_MEM_LOCATION_TYPE_INVALID
               : device == CU_DEVICE_CPU   ? CU_MEM_LOCATION_TYPE_HOST
                                           : CU_MEM_LOCATION_TYPE_DEVICE;
}

static CUresult range_attribute(const struct managed_advice *a, CUmem_range_attribute which,
                                int *data, size_t size)
{
        size_t n = size / sizeof(int), i = 0;

        if (!data || size == 0 || size % sizeof(int) ||
            (which != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY && n != 1))
                return CUDA_ERROR_INVALID_VALUE;
        switch (which) {
        case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
                *data = a->read_mostly;
                break;
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
                *data = a->preferred;
                break;
        case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
                for (int d = 0; d < (int)sim.devices && i < n; d++)
                        if (a->accessed_by >> d & 1)
                                data[i++] = d;
                if (a->accessed_by_host && i < n)
                        data[i++] = CU_DEVICE_CPU;
                while (i < n)
                        data[i++] = CU_DEVICE_INVALID;
                break;
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
                *data = a->prefetched;
                break;
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
                *data = location_type(a->preferred);
                break;
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
                *data = location_type(a->prefetched);
                break;
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
                *data = a->preferred < 0 ? 0 : a->preferred;
                break;
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
                *data = a->prefetched < 0 ? 0 : a->prefetched;
                break;
        default:
                return CUDA_ERROR_INVALID_VALUE;
        }
        return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRangeGetAttributes(void **data, size_t *data_sizes,
                                        CUmem_range_attribute *attributes, size_t attribute_count,
                                        CUdeviceptr ptr, size_t count)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);
        struct managed_advice a;
        struct range *range;

        if (r != CUDA_SUCCESS)
                return r;
        if (!data || !data_sizes || !attributes || attribute_count == 0)
                return CUDA_ERROR_INVALID_VALUE;
        range = managed_pin(ptr, count);
        if (!range)
                return CUDA_ERROR_INVALID_VALUE;
        a = managed_advice_of(range->managed, ptr, count);
        for (size_t i = 0; i < attribute_count && r == CUDA_SUCCESS; i++)
                r = range_attribute(&a, attributes[i], data[i], data_sizes[i]);
        space_unpin(range);
        return r;
}

EXPORT CUresult cuMemRangeGetAttribute(void *data, size_t data_size,
                                       CUmem_range_attribute attribute, CUdeviceptr ptr,
                                       size_t count)
{
        return cuMemRangeGetAttributes(&data, &data_size, &attribute, 1, ptr, count);
}

/* ---- streams ---- */

/* The simulated cards let all streams and the processor use managed memory at the same time. So the
 * attached stream is only stored, and no call waits because of it. */
EXPORT CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr ptr, size_t length,
                                       unsigned int flags)
{
        struct work w = {.kind = WORK_EMPTY};
        struct range *range;
        bool legacy = !stream;
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if ((flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
             flags != CU_MEM_ATTACH_SINGLE) ||
            (flags == CU_MEM_ATTACH_SINGLE && legacy && !sim_per_thread))
                return CUDA_ERROR_INVALID_VALUE;
        range = managed_pin(ptr, length ? length : 1);
        if (!range)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        r = stream_submit_free(stream, &w, false);
        pthread_mutex_unlock(&sim.lock);
        if (r == CUDA_SUCCESS)
                managed_attach(range->managed, flags);
        space_unpin(range);
        return r;
}
