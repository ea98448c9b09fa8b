/* test_contexts.c: what comes to its end, and who has to hear of it: green contexts and what is
 * kept of their streams, releases that the driver refuses, captures. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>

#include "base/macros.h"
#include "preload/agent.h"
#include "preload/bound.h"
#include "preload/fixed.h"
#include "preload/gate.h"
#include "preload/hooks.h"
#include "preload/ipc.h"
#include "preload/peer.h"
#include "preload/poison.h"
#include "preload/pool.h"
#include "preload/quiet.h"
#include "preload/swap.h"

#define PRIMARY  ((CUcontext)(uintptr_t)0x1000)
#define PART     ((CUcontext)(uintptr_t)0x2000) /* as a context */
#define GREEN    ((CUgreenCtx)(uintptr_t)0x3000)
#define OF_GL    ((CUcontext)(uintptr_t)0x5000)
#define OF_VDPAU ((CUcontext)(uintptr_t)0x6000)
#define STREAM   ((CUstream)(uintptr_t)0x4000)

struct core core;
struct real_driver real;
_Atomic uint32_t gate_bits;
__thread struct gate_thread *gate_self __attribute__((tls_model("initial-exec")));

static struct gpu *const gpu = &core.gpus[0];
static unsigned kicks, discarded, parts;
static unsigned held;   /* as the driver counts it: the primary context */
static uint64_t arrays; /* bytes that end with a context */
static CUcontext pools_lost;
static CUcontext other; /* ends while another one does */
static bool awaited;    /* pools put no more events into streams, since a capture is counted */
static _Atomic unsigned asked; /* for room */
static bool in_line;           /* a thread may wait for another one */
static _Atomic bool waits;     /* it does */
static pthread_t second;

/* ---- what they ask of their neighbours ---- */

int core_setup(void)
{
        return 0;
}

void core_expect_exit(void)
{
}

struct gpu *core_attach(CUdevice device)
{
        return gpu;
}

void core_wait(struct core_wait *w, uint64_t timeout_ns)
{
        if (!in_line)
                fail_msg("nobody is to wait for %s", w->what);
        waits = true;
        lock_release(&core.lock);
        (void)sched_yield();
        lock_acquire(&core.lock);
}

void agent_kick(void)
{
        kicks++;
}

static void *retain(void *unused)
{
        CUcontext context;

        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
        return NULL;
}

/* The answer comes when another thread that wants the context waits or has asked, too. */
int agent_take_fixed(struct gpu *g, uint64_t more)
{
        asked++;
        if (in_line && asked == 1) {
                assert_int_equal(pthread_create(&second, NULL, retain, NULL), 0);
                while (!waits && asked == 1) {
                        lock_release(&core.lock);
                        (void)sched_yield();
                        lock_acquire(&core.lock);
                }
        }
        g->fixed += more;
        return 0;
}

void agent_return_fixed(struct gpu *g, uint64_t bytes)
{
        g->fixed -= bytes;
}

void bound_forget(CUcontext context)
{
}

void bound_forget_stream(CUstream stream)
{
}

uint64_t fixed_forget_context(CUcontext owner)
{
        return arrays;
}

struct gate_thread gate_interrupted;
struct gate_thread *gate_enter_slow(struct gate_thread *t, CUstream stream, uint64_t work,
                                    bool may_end)
{
        return NULL;
}

bool gate_anybody_inside(void)
{
        return false;
}

unsigned gate_default_streams(void)
{
        return 0;
}

uint64_t gate_submissions(void)
{
        return 0;
}

void ipc_context_dies(CUcontext context)
{
        CUcontext too = other;

        if (!too)
                return;
        other = NULL;
        lock_release(&core.lock);
        assert_int_equal(hook_cuCtxDestroy_v2(too), CUDA_SUCCESS);
        lock_acquire(&core.lock);
}

void peer_update(void)
{
}

bool poison_note(struct gpu *g, CUresult r)
{
        return false;
}

void pool_stream_dies(CUstream stream)
{
}

void pool_context_dies(CUcontext context)
{
        pools_lost = context;
}

void pool_await_records(void)
{
        awaited = quiet_capturing();
}

void swap_discard(struct gpu *g, struct block *b)
{
        discarded++;
        heap_bury(&g->heap, b);
}

void swap_retire(struct gpu *g)
{
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

static CUresult fake_of_stream(CUstream stream)
{
        return CUDA_SUCCESS;
}

static CUresult fake_is_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
        *ret = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        return CUDA_SUCCESS;
}

static CUresult fake_begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
        assert_true(awaited);
        awaited = false;
        return mode == CU_STREAM_CAPTURE_MODE_GLOBAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_retain(CUcontext *ret, CUdevice device)
{
        held++;
        *ret = PRIMARY;
        return CUDA_SUCCESS;
}

/* What is about to end is in the books still, and they are told to nobody. */
static void check_end(void)
{
        assert_int_equal(gpu->fixed, gpu->context_bytes + arrays);
        assert_int_equal(core.unbooked, 1);
}

/* Counts, though refused: pool_facts.txt, green_released. */
static CUresult fake_release(CUdevice device)
{
        if (held == 0)
                return CUDA_ERROR_INVALID_CONTEXT;
        if (--held > 0)
                return CUDA_SUCCESS;
        if (parts)
                return CUDA_ERROR_NOT_PERMITTED;
        check_end();
        return CUDA_SUCCESS;
}

static CUresult fake_destroy(CUcontext context)
{
        return CUDA_SUCCESS;
}

static CUresult fake_of_gl(CUcontext *ret, unsigned flags, CUdevice device)
{
        *ret = OF_GL;
        return CUDA_SUCCESS;
}

static CUresult fake_of_vdpau(CUcontext *ret, unsigned flags, CUdevice device, uint32_t video,
                              void *function)
{
        assert_int_equal(video, 7);
        assert_ptr_equal(function, &parts);
        *ret = OF_VDPAU;
        return CUDA_SUCCESS;
}

static CUresult fake_part(CUgreenCtx *ret, CUdevResourceDesc desc, CUdevice device, unsigned flags)
{
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

/* ---- the tests ---- */

static int one_context(void **state)
{
        CUcontext context;

        core = (struct core){.gpu_count = 1};
        gpu->known = gpu->managed = true;
        gpu->context_bytes = MIB;
        heap_init(&gpu->heap, GIB);
        parts = discarded = kicks = held = 0;
        arrays = 0;
        pools_lost = NULL;
        real.cuThreadExchangeStreamCaptureMode = fake_relax;
        real.cuCtxPushCurrent_v2 = fake_push;
        real.cuCtxPopCurrent_v2 = real.cuCtxGetCurrent = fake_current;
        real.cuEventCreate = fake_event;
        real.cuStreamCreate = fake_stream;
        real.cuStreamQuery = real.cuStreamDestroy_v2 = fake_of_stream;
        real.cuStreamIsCapturing = fake_is_capturing;
        real.cuStreamBeginCapture_v2 = fake_begin_capture;
        real.cuDevicePrimaryCtxRetain = fake_retain;
        real.cuDevicePrimaryCtxRelease_v2 = fake_release;
        real.cuGLCtxCreate_v2 = fake_of_gl;
        real.cuVDPAUCtxCreate_v2 = fake_of_vdpau;
        real.cuGreenCtxCreate = fake_part;
        real.cuGreenCtxDestroy = fake_no_part;
        real.cuCtxDestroy_v2 = fake_destroy;
        real.cuCtxFromGreenCtx = fake_of_part;
        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
        return 0;
}

static int no_context(void **state)
{
        if (quiet_context_primary(gpu))
                assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_null(quiet_context_primary(gpu));
        assert_int_equal(gpu->fixed, 0);
        assert_int_equal(core.unbooked, 0);
        return 0;
}

/* Both the driver's answers, as measured. */
static void a_release_that_is_refused_ends_nothing_but_counts(void **state)
{
        CUcontext context;
        CUgreenCtx part;

        assert_int_equal(hook_cuGreenCtxCreate(&part, NULL, 0, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_NOT_PERMITTED);
        assert_non_null(quiet_context_primary(gpu));
        assert_int_equal(hook_cuGreenCtxDestroy(part), CUDA_SUCCESS);
        assert_non_null(quiet_context_primary(gpu)); /* until it is retained and released again */
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
        assert_non_null(quiet_context_primary(gpu));
        assert_int_equal(hook_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
}

static void the_last_green_context_ends_the_primary_one_that_nobody_else_holds(void **state)
{
        CUgreenCtx first, another;

        arrays = 3 * MIB;
        gpu->fixed += arrays;
        assert_int_equal(hook_cuGreenCtxCreate(&first, NULL, 0, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuGreenCtxCreate(&another, NULL, 0, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_int_equal(hook_cuGreenCtxDestroy(first), CUDA_SUCCESS);
        assert_non_null(quiet_context_primary(gpu));
        assert_int_equal(hook_cuGreenCtxDestroy(another), CUDA_SUCCESS);
        assert_null(quiet_context_primary(gpu));
}

static void what_ends_with_a_context_is_given_back_after_it(void **state)
{
        arrays = 3 * MIB;
        gpu->fixed += arrays;
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS); /* check_end() */
        assert_null(quiet_context_primary(gpu));
}

static void threads_that_want_one_context_need_room_for_one(void **state)
{
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        asked = 0;
        waits = false;
        in_line = true;
        (void)retain(NULL);
        (void)pthread_join(second, NULL);
        in_line = false;
        assert_int_equal(asked, 1);
        assert_int_equal(gpu->fixed, gpu->context_bytes);
        assert_int_equal(hook_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS); /* of two */
        assert_non_null(quiet_context_primary(gpu));
}

/* Work in them is waited for like that in all others. */
static void contexts_of_graphics_are_known(void **state)
{
        CUcontext c;

        assert_int_equal(hook_cuGLCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
        assert_non_null(quiet_context(OF_GL));
        assert_int_equal(hook_cuVDPAUCtxCreate_v2(&c, 0, 0, 7, &parts), CUDA_SUCCESS);
        assert_non_null(quiet_context(OF_VDPAU));
        assert_int_equal(hook_cuCtxDestroy_v2(OF_GL), CUDA_SUCCESS);
        assert_int_equal(hook_cuCtxDestroy_v2(OF_VDPAU), CUDA_SUCCESS);
        assert_null(quiet_context(OF_GL));
}

static void two_contexts_that_end_at_once_leave_none_of_them_behind(void **state)
{
        CUcontext c;

        assert_int_equal(hook_cuGLCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuVDPAUCtxCreate_v2(&c, 0, 0, 7, &parts), CUDA_SUCCESS);
        gpu->context = quiet_context(OF_GL);
        other = OF_VDPAU;
        assert_int_equal(hook_cuCtxDestroy_v2(OF_GL), CUDA_SUCCESS);
        assert_null(other);
        assert_ptr_equal(gpu->context, quiet_context_primary(gpu));
}

static void what_was_freed_on_streams_of_a_green_context_goes_with_it(void **state)
{
        CUgreenCtx part;

        assert_int_equal(hook_cuGreenCtxCreate(&part, NULL, 0, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuGreenCtxDestroy(part), CUDA_SUCCESS);
        assert_ptr_equal(pools_lost, PART);
}

static void a_capture_that_ends_with_its_stream_wakes_the_agent(void **state)
{
        CUstream stream;

        assert_int_equal(hook_cuStreamCreate(&stream, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                         CUDA_SUCCESS);
        assert_true(quiet_capturing());
        kicks = 0;
        assert_int_equal(hook_cuStreamDestroy_v2(stream), CUDA_SUCCESS);
        assert_false(quiet_capturing());
        assert_int_not_equal(kicks, 0);
}

static void a_capture_that_does_not_begin_wakes_the_agent(void **state)
{
        kicks = 0;
        assert_int_equal(
                hook_cuStreamBeginCapture_v2(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                CUDA_ERROR_INVALID_VALUE);
        assert_int_not_equal(kicks, 0);
}

#define CONTEXT_TEST(name) cmocka_unit_test_setup_teardown(name, one_context, no_context)

int main(void)
{
        const struct CMUnitTest tests[] = {
                CONTEXT_TEST(a_release_that_is_refused_ends_nothing_but_counts),
                CONTEXT_TEST(the_last_green_context_ends_the_primary_one_that_nobody_else_holds),
                CONTEXT_TEST(what_ends_with_a_context_is_given_back_after_it),
                CONTEXT_TEST(threads_that_want_one_context_need_room_for_one),
                CONTEXT_TEST(contexts_of_graphics_are_known),
                CONTEXT_TEST(two_contexts_that_end_at_once_leave_none_of_them_behind),
                CONTEXT_TEST(what_was_freed_on_streams_of_a_green_context_goes_with_it),
                CONTEXT_TEST(a_capture_that_ends_with_its_stream_wakes_the_agent),
                CONTEXT_TEST(a_capture_that_does_not_begin_wakes_the_agent),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
