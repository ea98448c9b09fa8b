/* contexts_bench.c: fakes of the driver and of other modules, for the tests of contexts and
 * streams. */
#include "unit.h"

#include "contexts_bench.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "base/macros.h"
#include "heap_end.h"
#include "preload/stream/throttle.h"
#include "preload/move/unevictable.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/share/ipc.h"
#include "preload/share/peer_access.h"
#include "preload/pool/late_frees.h"
#include "preload/pool/pool.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/state/request.h"

unsigned exits;
unsigned parts, passed;
_Atomic unsigned updates;
unsigned calls; /* driver calls that return driver_says */
CUresult driver_says;
CUcontext bound_lost;
CUstream bound_stream_lost, pool_stream_lost, queried;
unsigned held;   /* the driver's count of retains of the primary context */
uint64_t arrays; /* bytes of arrays that end with a context */
CUcontext pools_lost;
CUcontext other;     /* context that ends while another one ends */
static bool awaited; /* a capture is counted: pools put no more events into streams */
bool in_line;        /* a thread may wait for another thread */
_Atomic bool waits;  /* a thread waits for another thread */
pthread_t second;

/* ---- fakes of other modules ---- */

void core_expect_exit(void)
{
        assert_int_equal(calls, 1); /* the driver has registered its own exit first */
        exits++;
}

void core_wait(struct core_wait *w, uint64_t timeout_ns)
{
        if (!in_line)
                fail_msg("nobody is to wait for %s", w->what);
        waits = true;
        lock_release(&core_lock);
        (void)sched_yield();
        lock_acquire(&core_lock);
}

void request_kick(void)
{
        want_lock();
        request_kicks++;
}

void *retain(void *unused)
{
        CUcontext context;

        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
        return NULL;
}

void (*while_it_releases)(void);

/* Starts a second thread that retains the same context, in the first request for room. Returns once
 * that thread waits, or requests room as well. */
void start_second(void)
{
        if (unevictable_asks != 1)
                return;
        assert_int_equal(pthread_create(&second, NULL, retain, NULL), 0);
        while (!waits && unevictable_asks == 1) {
                lock_release(&core_lock);
                (void)sched_yield();
                lock_acquire(&core_lock);
        }
}

void throttle_forget(CUcontext context)
{
        bound_lost = context;
}

void throttle_forget_stream(CUstream stream)
{
        bound_stream_lost = stream;
}

uint64_t unevictable_forget_context(CUcontext owner)
{
        want_lock();
        return arrays;
}

struct gate_thread at_the_gate;
struct gate_thread *gate_enter_slow(struct gate_thread *t, CUstream stream, uint64_t work,
                                    bool may_end)
{
        passed++;
        at_the_gate.inside++;
        return &at_the_gate;
}

void ipc_context_dies(CUcontext context)
{
        CUcontext too = other;

        want_lock();
        if (!too)
                return;
        other = NULL;
        lock_release(&core_lock);
        assert_int_equal(hook_cuCtxDestroy_v2(too), CUDA_SUCCESS);
        lock_acquire(&core_lock);
}

void peer_update(void)
{
        updates++;
}

void pool_stream_dies(CUstream stream)
{
        want_lock();
        pool_stream_lost = stream;
}

void late_stream_dies(CUstream stream)
{
        want_lock();
        assert_ptr_equal(stream, pool_stream_lost);
}

void pool_context_dies(CUcontext context)
{
        want_lock();
        pools_lost = context;
}

void pool_await_records(void)
{
        want_lock();
        awaited = quiesce_capturing();
}

void swap_retire(struct gpu *g)
{
        want_lock();
        g->context = NULL;
}

/* ---- the driver, with the primary context alive ---- */

static CUresult fake_relax(CUstreamCaptureMode *mode)
{
        return CUDA_SUCCESS;
}

static CUresult fake_push(CUcontext context)
{
        return CUDA_SUCCESS;
}

static CUresult fake_current(CUcontext *ret)
{
        *ret = PRIMARY;
        return CUDA_SUCCESS;
}

static CUresult fake_event(CUevent *ret, unsigned flags)
{
        return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult fake_stream(CUstream *ret, unsigned flags)
{
        *ret = STREAM;
        return CUDA_SUCCESS;
}

static CUresult fake_urgent_stream(CUstream *ret, unsigned flags, int priority)
{
        *ret = STREAM;
        return CUDA_SUCCESS;
}

static CUresult fake_of_stream(CUstream stream)
{
        return CUDA_SUCCESS;
}

static CUresult fake_query(CUstream stream)
{
        if (stream == STREAM)
                queried = stream;
        return CUDA_SUCCESS;
}

CUstreamCaptureStatus capture_status;
CUstream capture_asked;

static CUresult fake_is_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
        capture_asked = stream;
        *ret = capture_status;
        return CUDA_SUCCESS;
}

CUresult fake_begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
        assert_true(awaited);
        assert_int_equal(at_the_gate.inside, 0); /* a drain can end during the wait */
        awaited = false;
        return mode == CU_STREAM_CAPTURE_MODE_GLOBAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_retain(CUcontext *ret, CUdevice device)
{
        calls++;
        if (driver_says != CUDA_SUCCESS)
                return driver_says;
        held++;
        *ret = PRIMARY;
        return CUDA_SUCCESS;
}

/* Checks that a context that is about to end still counts, and that no accounts are traced. */
static void check_end(void)
{
        assert_int_equal(gpu->unevictable, gpu->context_bytes + arrays);
        assert_int_equal(core.unbooked, 1);
}

/* The driver counts a release that it refuses: pool_facts.txt, green_released. */
static CUresult fake_release(CUdevice device)
{
        if (held == 0)
                return CUDA_ERROR_INVALID_CONTEXT;
        if (--held > 0)
                return CUDA_SUCCESS;
        if (parts)
                return CUDA_ERROR_NOT_PERMITTED;
        check_end();
        if (while_it_releases)
                while_it_releases();
        return CUDA_SUCCESS;
}

static CUresult fake_init(unsigned flags)
{
        calls++;
        assert_int_equal(flags, 5);
        return driver_says;
}

static CUresult fake_destroy(CUcontext context)
{
        return driver_says;
}

static CUresult fake_reset(CUdevice device)
{
        calls++;
        if (driver_says == CUDA_SUCCESS)
                check_end();
        return driver_says;
}

static CUresult fake_of_gl(CUcontext *ret, unsigned flags, CUdevice device)
{
        calls++;
        *ret = OF_GL;
        return driver_says;
}

static CUresult fake_attach(CUcontext *ret, unsigned flags)
{
        *ret = OF_GL;
        return driver_says;
}

static CUresult fake_of_vdpau(CUcontext *ret, unsigned flags, CUdevice device, uint32_t video,
                              void *function)
{
        assert_int_equal(video, 7);
        assert_ptr_equal(function, &parts);
        *ret = OF_VDPAU;
        return CUDA_SUCCESS;
}

static CUresult fake_part_stream(CUstream *ret, CUgreenCtx part, unsigned flags, int priority)
{
        *ret = STREAM;
        return driver_says;
}

static CUresult fake_part(CUgreenCtx *ret, CUdevResourceDesc desc, CUdevice device, unsigned flags)
{
        calls++;
        if (driver_says != CUDA_SUCCESS)
                return driver_says;
        parts++;
        held++;
        *ret = GREEN;
        return CUDA_SUCCESS;
}

static CUresult fake_no_part(CUgreenCtx part)
{
        parts--;
        if (held > 0 && --held == 0 && !parts)
                check_end();
        return CUDA_SUCCESS;
}

static CUresult fake_of_part(CUcontext *ret, CUgreenCtx part)
{
        *ret = PART;
        return CUDA_SUCCESS;
}

int one_context(void **state)
{
        CUcontext context;

        core_lock = (struct lock){0};

        core = (struct core){.gpu_count = 1};
        core_setups = exits = 0;
        gpu->known = gpu->managed = true;
        gpu->context_bytes = MIB;
        heap_init(&gpu->heap, GIB);
        parts = discarded = held = 0;
        request_kicks = 0;
        arrays = 0;
        pools_lost = bound_lost = NULL;
        bound_stream_lost = pool_stream_lost = queried = capture_asked = NULL;
        unshared = must_share = false;
        may_start = true;
        unevictable_room = UINT64_MAX;
        while_it_asks = while_it_releases = NULL;
        updates = 0;
        passed = calls = 0;
        at_the_gate.inside = 0;
        driver_says = CUDA_SUCCESS;
        capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        unevictable_asks = 0;
        real.cuThreadExchangeStreamCaptureMode = fake_relax;
        real.cuCtxPushCurrent_v2 = fake_push;
        real.cuCtxPopCurrent_v2 = real.cuCtxGetCurrent = fake_current;
        real.cuEventCreate = fake_event;
        real.cuInit = fake_init;
        real.cuStreamCreate = fake_stream;
        real.cuStreamCreateWithPriority = fake_urgent_stream;
        real.cuStreamQuery = fake_query;
        real.cuStreamDestroy_v2 = fake_of_stream;
        real.cuStreamIsCapturing = fake_is_capturing;
        real.cuStreamBeginCapture_v2 = fake_begin_capture;
        real.cuDevicePrimaryCtxRetain = fake_retain;
        real.cuDevicePrimaryCtxRelease_v2 = fake_release;
        real.cuGLCtxCreate_v2 = fake_of_gl;
        real.cuVDPAUCtxCreate_v2 = fake_of_vdpau;
        real.cuDevicePrimaryCtxReset_v2 = fake_reset;
        real.cuCtxAttach = fake_attach;
        real.cuCtxDetach = fake_destroy;
        real.cuGreenCtxStreamCreate = fake_part_stream;
        real.cuGreenCtxCreate = fake_part;
        real.cuGreenCtxDestroy = fake_no_part;
        real.cuCtxDestroy_v2 = fake_destroy;
        real.cuCtxFromGreenCtx = fake_of_part;
        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
        return 0;
}

int no_context(void **state)
{
        if (quiesce_context_primary(gpu))
                assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_null(quiesce_context_primary(gpu));
        assert_int_equal(gpu->unevictable, 0);
        assert_int_equal(core.unbooked, 0);
        heap_end(&gpu->heap);
        return 0;
}
