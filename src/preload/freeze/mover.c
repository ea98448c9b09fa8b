/* mover.c: owns the second context. Must never touch a stream or an event of the program.
 * Why: docs/decisions.md, "The mover is a second context of the process". */
#include "preload/freeze/mover.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/process/nap.h"
#include "preload/state/core.h"
#include "preload/stream/quiesce.h"
#include "preload/driver/real.h"
#include "preload/rm/rm.h"

#define CANARY_BYTES MOVER_SPARE_BYTES
#define CANARY_WORD  0x5ab1e7u
#define COPY_MOST_NS (2 * NSEC_PER_SEC)
#define NAP_NS       (20 * NSEC_PER_USEC)

struct mover {
        struct gpu *gpu;
        CUcontext context;
        CUstream stream;
        CUdeviceptr at;
        uint32_t *host; /* pinned memory, the other end of the copies */
        CUmemGenericAllocationHandle spare;
        bool has_spare;
        bool mapped;  /* the spare memory is mapped: a copy goes on, or unmapping failed */
        bool copying; /* the last copy has not ended yet */
};

CUcontext mover_context(const struct mover *m)
{
        return m->context;
}

CUcontext mover_context_of(const struct gpu *g)
{
        if (g->mover)
                return g->mover->context;
        return g->context ? g->context->handle : NULL;
}

/* Lowers the limits: the mover needs little stack and heap, and prints nothing. Failures are
 * ignored, because some cards refuse limits that low. */
static void set_limits(void)
{
        (void)real.cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 4096);
        (void)real.cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 4096);
        (void)real.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 256);
}

uint64_t mover_bytes(const struct mover *m)
{
        return m->has_spare ? CANARY_BYTES : 0;
}

static CUresult create(const struct mover *m, CUmemGenericAllocationHandle *ret)
{
        const CUmemAllocationProp prop = {
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)m->gpu->index},
        };

        return real.cuMemCreate(ret, CANARY_BYTES, &prop, 0);
}

/* Creates the stream, addresses and memory of mover_canary(). The mover's context must be current.
 */
static CUresult fill(struct mover *m)
{
        CUresult r = real.cuStreamCreate(&m->stream, CU_STREAM_NON_BLOCKING);

        if (r != CUDA_SUCCESS) {
                m->stream = NULL;
                return r;
        }
        r = real.cuMemAddressReserve(&m->at, CANARY_BYTES, 0, 0, 0);
        if (r != CUDA_SUCCESS) {
                m->at = 0;
                return r;
        }
        r = real.cuMemHostAlloc((void **)&m->host, CANARY_BYTES, CU_MEMHOSTALLOC_PORTABLE);
        if (r != CUDA_SUCCESS) {
                m->host = NULL;
                return r;
        }
        r = create(m, &m->spare);
        m->has_spare = r == CUDA_SUCCESS;
        return r;
}

struct mover *mover_new(struct gpu *g)
{
        struct mover *m = calloc(1, sizeof(*m));
        CUcontext popped;
        CUresult r;

        if (!m)
                return NULL;
        m->gpu = g;
        rm_make_for(CHANNELS_MOVER);
        r = real.cuCtxCreate_v2(&m->context, CU_CTX_SCHED_AUTO, (CUdevice)g->index);
        if (r == CUDA_SUCCESS) {
                set_limits();
                r = fill(m);
                (void)real.cuCtxPopCurrent_v2(&popped);
        } else {
                m->context = NULL;
        }
        rm_make_for(CHANNELS_PROGRAM);
        if (r == CUDA_SUCCESS)
                return m;
        log_debug("GPU %u: no second context: CUDA error %d", g->index, (int)r);
        mover_free(m);
        return NULL;
}

void mover_free(struct mover *m)
{
        CUcontext popped;

        if (!m)
                return;
        if (m->context && real.cuCtxPushCurrent_v2(m->context) == CUDA_SUCCESS) {
                if (m->copying)
                        (void)real.cuStreamSynchronize(m->stream);
                if (m->mapped)
                        (void)real.cuMemUnmap(m->at, CANARY_BYTES);
                if (m->host)
                        (void)real.cuMemFreeHost(m->host);
                if (m->has_spare)
                        (void)real.cuMemRelease(m->spare);
                if (m->at)
                        (void)real.cuMemAddressFree(m->at, CANARY_BYTES);
                if (m->stream)
                        (void)real.cuStreamDestroy_v2(m->stream);
                (void)real.cuCtxPopCurrent_v2(&popped);
                (void)real.cuCtxDestroy_v2(m->context);
        }
        free(m);
}

#define STEP(name, ...)                     \
        do {                                \
                told(#name);                \
                r = real.name(__VA_ARGS__); \
                if (r != CUDA_SUCCESS)      \
                        return r;           \
        } while (0)

/* Waits for the copies, at most COPY_MOST_NS. Copies that take longer are not an error: other
 * processes may keep the GPU busy. */
static CUresult await(const struct mover *m, void (*told)(const char *call))
{
        const uint64_t until = clock_now_ns() + COPY_MOST_NS;
        CUresult r;

        for (;;) {
                told("cuStreamQuery");
                r = real.cuStreamQuery(m->stream);
                if (r != CUDA_ERROR_NOT_READY || clock_now_ns() > until)
                        return r;
                (void)nap(NAP_NS);
        }
}

/* Waits for the word that was copied to the card and back. */
static CUresult await_word(const struct mover *m, void (*told)(const char *call))
{
        const CUresult r = await(m, told);

        return r == CUDA_SUCCESS && m->host[1] != CANARY_WORD ? CUDA_ERROR_UNKNOWN : r;
}

/* Copies a word to the card and back. The spare memory must be mapped at m->at. */
static CUresult copy_both_ways(struct mover *m, void (*told)(const char *call))
{
        const CUmemAccessDesc access = {
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)m->gpu->index},
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUresult r;

        m->host[0] = CANARY_WORD;
        m->host[1] = 0;
        STEP(cuMemSetAccess, m->at, CANARY_BYTES, &access, 1);
        STEP(cuMemcpyHtoDAsync_v2, m->at, m->host, sizeof(*m->host), m->stream);
        STEP(cuMemcpyDtoHAsync_v2, m->host + 1, m->at, sizeof(*m->host), m->stream);
        return await_word(m, told);
}

static CUresult unmap(struct mover *m, void (*told)(const char *call))
{
        CUresult r;

        STEP(cuMemUnmap, m->at, CANARY_BYTES);
        m->mapped = false;
        return CUDA_SUCCESS;
}

static CUresult use(struct mover *m, void (*told)(const char *call))
{
        CUresult r, unmapped;

        if (m->copying) {
                r = await_word(m, told);
        } else {
                r = m->mapped ? unmap(m, told) : CUDA_SUCCESS;
                if (r != CUDA_SUCCESS)
                        return r;
                STEP(cuMemMap, m->at, CANARY_BYTES, 0, m->spare, 0);
                m->mapped = true;
                r = copy_both_ways(m, told);
        }
        m->copying = r == CUDA_ERROR_NOT_READY;
        /* If only the copy back failed, the copy to the card may still be in progress. */
        if (r != CUDA_SUCCESS && !m->copying)
                m->copying = await(m, told) == CUDA_ERROR_NOT_READY;
        if (m->copying)
                return r;
        unmapped = unmap(m, told);
        return r != CUDA_SUCCESS ? r : unmapped;
}

CUresult mover_canary(struct mover *m, void (*told)(const char *call))
{
        CUmemGenericAllocationHandle fresh;
        CUcontext popped;
        CUresult r;

        told("cuCtxPushCurrent");
        r = real.cuCtxPushCurrent_v2(m->context);
        if (r != CUDA_SUCCESS)
                return r;
        r = use(m, told);
        /* On a full card cuMemCreate may fail at once; the old spare memory is kept then. */
        told("cuMemCreate");
        if (!m->mapped && create(m, &fresh) == CUDA_SUCCESS) {
                told("cuMemRelease");
                if (real.cuMemRelease(m->spare) == CUDA_SUCCESS)
                        m->spare = fresh;
                else
                        (void)real.cuMemRelease(fresh);
        }
        (void)real.cuCtxPopCurrent_v2(&popped);
        return r;
}
