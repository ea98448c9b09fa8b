/* freeze_test.c: owns the kernel of the test. Must leave no kernel running and no channel frozen,
 * and must not wait for the program's work. */
#include "preload/freeze/freeze_test.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/macros.h"
#include "preload/driver/real.h"
#include "preload/process/nap.h"
#include "preload/rm/rm.h"

#define TIMES    5u
#define START_NS (500 * NSEC_PER_MSEC)
#define STAND_NS (3 * NSEC_PER_MSEC)
#define GO_ON_NS NSEC_PER_SEC
#define POST_NS  (200 * NSEC_PER_USEC) /* within this time the kernel's last writes arrive */
#define NAP_NS   (20 * NSEC_PER_USEC)

/* The kernel counts in host memory until `end` is set, at most to 4,000,000: that takes a few
 * seconds, because each round reads over the bus. */
static const char kernel[] = ".version 6.0\n"
                             ".target sm_50\n"
                             ".address_size 64\n"
                             ".visible .entry sublet_count(.param .u64 at)\n"
                             "{\n"
                             ".reg .u64 %a;\n"
                             ".reg .u32 %n, %end;\n"
                             ".reg .pred %more;\n"
                             "ld.param.u64 %a, [at];\n"
                             "mov.u32 %n, 0;\n"
                             "LOOP:\n"
                             "add.u32 %n, %n, 1;\n"
                             "st.volatile.global.u32 [%a], %n;\n"
                             "ld.volatile.global.u32 %end, [%a+4];\n"
                             "setp.ne.u32 %more, %end, 0;\n"
                             "@%more bra END;\n"
                             "setp.lt.u32 %more, %n, 4000000;\n"
                             "@%more bra LOOP;\n"
                             "END:\n"
                             "ret;\n"
                             "}\n";

struct shared {
        _Atomic uint32_t count, end;
};

/* The test's objects stay until the context ends: freeing them would wait for all work of the
 * program. */
static struct test {
        CUcontext context; /* the context that the kernel is loaded in; NULL: not loaded */
        bool launched;     /* the kernel is launched and not known to have ended */
        CUmodule module;
        CUfunction function;
        CUstream stream;
        struct shared *shared;
        CUdeviceptr there;
} test;

static CUresult load(struct test *t)
{
        CUresult r = real.cuModuleLoadData(&t->module, kernel);

        if (r != CUDA_SUCCESS) {
                t->module = NULL;
                return r;
        }
        r = real.cuModuleGetFunction(&t->function, t->module, "sublet_count");
        if (r != CUDA_SUCCESS)
                return r;
        r = real.cuStreamCreate(&t->stream, CU_STREAM_NON_BLOCKING);
        if (r != CUDA_SUCCESS) {
                t->stream = NULL;
                return r;
        }
        r = real.cuMemHostAlloc((void **)&t->shared, sizeof(*t->shared), CU_MEMHOSTALLOC_DEVICEMAP);
        if (r != CUDA_SUCCESS) {
                t->shared = NULL;
                return r;
        }
        return real.cuMemHostGetDevicePointer_v2(&t->there, t->shared, 0);
}

/* True if the kernel counts on from `from` within this time. */
static bool counts(struct test *t, uint32_t from, uint64_t most_ns)
{
        const uint64_t until = clock_now_ns() + most_ns;

        while (atomic_load(&t->shared->count) == from) {
                if (clock_now_ns() > until)
                        return false;
                (void)nap(NAP_NS);
        }
        return true;
}

/* Freezes and thaws the kernel once. *ret_wait: the longest time so far that the kernel took to
 * count on after a thaw. */
static enum freeze_result freeze_once(struct test *t, uint64_t *ret_wait, int *ret_error)
{
        uint32_t count;
        uint64_t began;
        bool stood;

        *ret_error = rm_freeze();
        /* rm_freeze() also succeeds if no channel is known, as with an unknown driver. */
        if (*ret_error < 0 || rm_channels() == 0) {
                (void)rm_thaw();
                return *ret_error < 0 ? FREEZE_TEST_REFUSED : FREEZE_TEST_NO_CHANNEL;
        }
        (void)nap(POST_NS);
        count = atomic_load(&t->shared->count);
        stood = !counts(t, count, MAX(STAND_NS, 2 * *ret_wait));
        began = clock_now_ns();
        *ret_error = rm_thaw();
        if (!counts(t, count, GO_ON_NS))
                return FREEZE_TEST_STOOD_STILL;
        *ret_wait = MAX(*ret_wait, clock_now_ns() - began);
        return stood ? FREEZE_TEST_PASSED : FREEZE_TEST_RAN_ON;
}

/* Freezes the kernel several times. A kernel that gets no time on a busy GPU looks frozen too. So
 * each freeze lasts longer than the kernel ever took to count on after a thaw. */
static enum freeze_result freeze_it(struct test *t, int *ret_error)
{
        enum freeze_result result = FREEZE_TEST_PASSED;
        uint64_t wait = 0;

        for (unsigned i = 0; i < TIMES && result == FREEZE_TEST_PASSED; i++)
                result = freeze_once(t, &wait, ret_error);
        return result;
}

/* True if a kernel that was frozen twice and thawed once stands still. */
static bool frozen_twice_stands(struct test *t)
{
        bool stood;

        if (rm_freeze() < 0) {
                (void)rm_thaw(); /* some channels may have stopped */
                return false;
        }
        rm_freeze_more(true);
        rm_freeze_more(false);
        (void)nap(POST_NS);
        stood = !counts(t, atomic_load(&t->shared->count), STAND_NS);
        (void)rm_thaw();
        return stood && counts(t, atomic_load(&t->shared->count), GO_ON_NS);
}

static enum freeze_result run(struct test *t, int *ret_error, bool *ret_counts)
{
        void *parameters[] = {&t->there};
        enum freeze_result result = FREEZE_TEST_BUSY;

        atomic_store(&t->shared->count, 0);
        atomic_store(&t->shared->end, 0);
        if (real.cuLaunchKernel(t->function, 1, 1, 1, 1, 1, 1, 0, t->stream, parameters, NULL) !=
            CUDA_SUCCESS)
                return FREEZE_TEST_NO_KERNEL;
        t->launched = true;
        if (counts(t, 0, START_NS))
                result = freeze_it(t, ret_error);
        *ret_counts = result == FREEZE_TEST_PASSED && frozen_twice_stands(t);
        return result;
}

/* Ends the kernel and waits for it. False: it has not ended in time, so the GPU is busy. */
static bool end(struct test *t)
{
        const uint64_t until = clock_now_ns() + START_NS;

        if (!t->launched)
                return true;
        atomic_store(&t->shared->end, 1);
        while (real.cuStreamQuery(t->stream) == CUDA_ERROR_NOT_READY) {
                if (clock_now_ns() > until)
                        return false;
                (void)nap(NAP_NS);
        }
        t->launched = false;
        return true;
}

static enum freeze_result test_in(CUcontext context, int *ret_error, bool *ret_counts)
{
        enum freeze_result result;

        if (!end(&test)) /* the kernel of the last test, which may be on another GPU */
                return FREEZE_TEST_BUSY;
        if (test.context != context) {
                test = (struct test){0};
                if (load(&test) != CUDA_SUCCESS)
                        return FREEZE_TEST_NO_KERNEL;
                test.context = context;
        }
        result = run(&test, ret_error, ret_counts);
        (void)end(&test);
        return result;
}

enum freeze_result freeze_test(CUcontext context, int *ret_error, bool *ret_counts)
{
        enum freeze_result result;
        CUcontext popped;

        *ret_error = 0;
        *ret_counts = false;
        if (real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
                return FREEZE_TEST_BUSY;
        result = test_in(context, ret_error, ret_counts);
        (void)real.cuCtxPopCurrent_v2(&popped);
        return result;
}

void freeze_test_forget(CUcontext context)
{
        if (test.context == context)
                test = (struct test){0};
}
