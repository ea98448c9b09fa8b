/* unchanged.c: owns the kernel, the stream and the answers with which the GPU is asked about
 * extents. Must never make a hand-off slower: the kernel is loaded only once a process has moved
 * enough memory, and is not used while the GPU answers slowly.
 * Why: docs/decisions.md, "A kernel checks whether memory has changed". */
#include "preload/move/unchanged.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/settings.h"
#include "preload/heap/heap.h"
#include "preload/driver/real.h"
#include "preload/move/trouble.h"

/* NOLINTNEXTLINE(misc-redundant-expression): the constants may change independently */
_Static_assert(HEAP_EXTENT_MAX <= FINGERPRINT_MAX && HEAP_GRANULARITY == FINGERPRINT_PAGE,
               "every extent can be asked about at once, and its pages are the kernel's");

/* The driver takes some 30 ms to translate the kernel; about LOAD_AFTER_BYTES are copied in that
 * time. */
#define LOAD_AFTER_BYTES (UINT64_C(1) << 30)

/* A small piece is tried first: a whole extent would take long where kernels are interpreted or
 * other programs keep the GPU busy. The piece lies in host memory, so that no extent waits for
 * it. */
#define TRIAL_NS  (200 * NSEC_PER_USEC)
#define TRIAL     UNCHANGED_SLOTS     /* slot of the piece */
#define FASTER    10.0                /* asking must be this many times as fast as copying */
#define OVERHEAD  1e5                 /* ns that asking may take in addition, as its fixed cost */
#define PAUSE_MIN (UINT64_C(1) << 30) /* bytes to copy without asking after a failed try */
#define PAUSE_MAX (UINT64_C(64) << 30)
#define BUS_FIRST 50.0 /* assumed speed of the bus in bytes a ns, until a copy was measured */

struct answers {
        uint64_t sums[UNCHANGED_SLOTS + 1][8];
        uint8_t piece[FINGERPRINT_CHUNK];
};

struct unchanged {
        bool always;      /* ask, whatever the cost */
        bool trusted;     /* the last answer came in time */
        bool on_trial;    /* the answer about the piece is awaited */
        uint64_t without; /* evicted bytes since asking was given up */
        uint64_t pause;   /* evicted bytes before the next try */
        double bus;       /* speed of the bus in bytes a ns, from recent copies */
        struct fingerprint_key *key;

        /* Objects in the context; module is NULL if there are none. */
        CUmodule module;
        CUfunction kernel;
        CUstream stream;
        struct answers *answers; /* in pinned host memory */
        CUdeviceptr answers_device;
        struct {
                CUevent begin, end;
                uint64_t bytes;
        } slots[UNCHANGED_SLOTS + 1];
};

struct unchanged *unchanged_new(void)
{
        enum { AUTO, ALWAYS, NEVER } request = setting_choice(SETTING_UNCHANGED);
        struct unchanged *u;

        if (request == NEVER)
                return NULL;
        u = calloc(1, sizeof(*u));
        if (!u)
                return NULL;
        u->always = request == ALWAYS;
        u->pause = u->always ? 0 : LOAD_AFTER_BYTES;
        u->bus = BUS_FIRST;
        return u;
}

/* ---- objects in the context ---- */

static void unload(struct unchanged *u)
{
        for (unsigned i = 0; i <= UNCHANGED_SLOTS; i++) {
                if (u->slots[i].begin)
                        (void)real.cuEventDestroy_v2(u->slots[i].begin);
                if (u->slots[i].end)
                        (void)real.cuEventDestroy_v2(u->slots[i].end);
        }
        if (u->stream)
                (void)real.cuStreamDestroy_v2(u->stream);
        if (u->answers)
                (void)real.cuMemFreeHost(u->answers);
        if (u->module)
                (void)real.cuModuleUnload(u->module);
        unchanged_leave(u);
}

static CUresult load_kernel(struct unchanged *u)
{
        const void *powers;
        CUdeviceptr there;
        uint64_t bytes;
        size_t room;
        CUresult r;

        r = real.cuModuleLoadData(&u->module, fingerprint_ptx);
        if (r != CUDA_SUCCESS) {
                u->module = NULL;
                return r;
        }
        r = real.cuModuleGetFunction(&u->kernel, u->module, FINGERPRINT_KERNEL);
        if (r != CUDA_SUCCESS)
                return r;
        r = real.cuModuleGetGlobal_v2(&there, &room, u->module, FINGERPRINT_POWERS_VARIABLE);
        if (r != CUDA_SUCCESS)
                return r;
        powers = fingerprint_key_powers(u->key, &bytes);
        return bytes == room ? real.cuMemcpyHtoDAsync_v2(there, powers, bytes, u->stream)
                             : CUDA_ERROR_INVALID_VALUE;
}

static CUresult load_rest(struct unchanged *u)
{
        CUresult r = real.cuStreamCreate(&u->stream, CU_STREAM_NON_BLOCKING);

        if (r != CUDA_SUCCESS) {
                u->stream = NULL;
                return r;
        }
        r = real.cuMemHostAlloc((void **)&u->answers, sizeof(*u->answers),
                                CU_MEMHOSTALLOC_DEVICEMAP);
        if (r != CUDA_SUCCESS) {
                u->answers = NULL;
                return r;
        }
        r = real.cuMemHostGetDevicePointer_v2(&u->answers_device, u->answers, 0);
        for (unsigned i = 0; i <= UNCHANGED_SLOTS && r == CUDA_SUCCESS; i++) {
                r = real.cuEventCreate(&u->slots[i].begin, CU_EVENT_DEFAULT);
                if (r == CUDA_SUCCESS)
                        r = real.cuEventCreate(&u->slots[i].end, CU_EVENT_DEFAULT);
        }
        return r;
}

static bool load(struct unchanged *u)
{
        CUresult r;

        if (!u->key)
                u->key = fingerprint_key_draw();
        if (!u->key)
                return false;
        r = load_rest(u);
        if (r == CUDA_SUCCESS)
                r = load_kernel(u);
        if (r != CUDA_SUCCESS) {
                log_debug("the GPU cannot compare extents: CUDA error %d", (int)r);
                unload(u);
        }
        return r == CUDA_SUCCESS;
}

/* ---- asking ---- */

static bool launch(struct unchanged *u, unsigned slot, CUdeviceptr data, uint64_t bytes,
                   uint64_t pages)
{
        const struct fingerprint *step = fingerprint_key_step(u->key);
        CUdeviceptr result = u->answers_device + offsetof(struct answers, sums) +
                             slot * sizeof(u->answers->sums[0]);
        void *parameters[] = {&data, &result, &pages, (void *)(uintptr_t)step};

        if (real.cuEventRecord(u->slots[slot].begin, u->stream) != CUDA_SUCCESS ||
            real.cuLaunchKernel(u->kernel, (unsigned)(bytes / FINGERPRINT_CHUNK), 1, 1,
                                FINGERPRINT_BLOCK_THREADS, 1, 1, 0, u->stream, parameters,
                                NULL) != CUDA_SUCCESS)
                return false;
        u->slots[slot].bytes = bytes;
        if (real.cuEventRecord(u->slots[slot].end, u->stream) == CUDA_SUCCESS)
                return true;
        /* The kernel may still read memory that the caller releases next. */
        (void)trouble_await(u->stream);
        return false;
}

/* Copy without asking for a while, longer after each failed try. */
static void stand_aside(struct unchanged *u)
{
        u->trusted = false;
        u->without = 0;
        u->pause = MIN(MAX(u->pause * 2, PAUSE_MIN), PAUSE_MAX);
}

/* Measure how long the GPU took, and whether that is fast enough. */
static bool in_time(struct unchanged *u, unsigned slot, double most_ns)
{
        float ms = 0;

        if (u->always || (real.cuEventElapsedTime(&ms, u->slots[slot].begin, u->slots[slot].end) ==
                                  CUDA_SUCCESS &&
                          (double)ms * NSEC_PER_MSEC <= most_ns))
                return true;
        log_debug("asking about %llu KiB took %.3f ms: the GPU is not asked for a while",
                  (unsigned long long)(u->slots[slot].bytes >> 10), (double)ms);
        return false;
}

/* The GPU is not asked about extents now, because it was too slow or was never tried. After each
 * pause, ask about the small piece to find out whether the GPU is fast enough. True: it is. */
static bool tried(struct unchanged *u)
{
        if (!u->on_trial) {
                if (u->without >= u->pause)
                        u->on_trial = launch(u, TRIAL,
                                             u->answers_device + offsetof(struct answers, piece),
                                             FINGERPRINT_CHUNK, 1);
                return false;
        }
        if (real.cuEventQuery(u->slots[TRIAL].end) != CUDA_SUCCESS)
                return false;
        u->on_trial = false;
        u->trusted = in_time(u, TRIAL, TRIAL_NS);
        if (!u->trusted)
                stand_aside(u);
        return u->trusted;
}

bool unchanged_ask(struct unchanged *u, unsigned slot, const struct extent *e, CUdeviceptr at)
{
        if (!u)
                return false;
        u->without += e->bytes;
        if (!u->module) {
                if (u->without < u->pause)
                        return false;
                if (!load(u)) {
                        stand_aside(u);
                        return false;
                }
        }
        return (u->always || u->trusted || tried(u)) && launch(u, slot, at, e->bytes, e->kept);
}

enum unchanged_answer unchanged_answer(struct unchanged *u, unsigned slot,
                                       struct fingerprint *ret_print)
{
        CUresult r = real.cuEventQuery(u->slots[slot].end);

        if (r == CUDA_ERROR_NOT_READY)
                return UNCHANGED_WAIT;
        if (r != CUDA_SUCCESS) {
                (void)trouble_await(u->stream); /* the kernel may still read the memory */
                return UNCHANGED_FAILED;
        }
        *ret_print = fingerprint_from(u->answers->sums[slot]);
        if (in_time(u, slot, OVERHEAD + (double)u->slots[slot].bytes / (FASTER * u->bus)))
                u->pause = u->trusted ? 0 : u->pause;
        else if (u->trusted)
                stand_aside(u);
        return UNCHANGED_TOLD;
}

void unchanged_copied(struct unchanged *u, uint64_t bytes, uint64_t ns)
{
        /* The fastest recent copy shows the speed of the bus: other copies also waited for
         * something else. */
        if (u && ns)
                u->bus = MAX((double)bytes / (double)ns, u->bus * 0.99);
}

void unchanged_settle(struct unchanged *u)
{
        if (u && u->module)
                (void)trouble_await(u->stream);
}

void unchanged_leave(struct unchanged *u)
{
        if (!u)
                return;
        memset(u->slots, 0, sizeof(u->slots));
        u->stream = NULL;
        u->answers = NULL;
        u->module = NULL;
        u->on_trial = false;
}

void unchanged_forget(struct unchanged *u)
{
        if (u && u->module)
                unload(u);
}
