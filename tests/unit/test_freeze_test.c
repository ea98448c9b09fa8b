/* test_freeze_test.c: the test of freezing tells each way in which it can fail, leaves the program
 * running, and waits for its own kernel alone. */
#include "unit.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "preload/driver/real.h"
#include "preload/freeze/freeze_test.h"
#include "preload/rm/rm.h"

#define CONTEXT(i) ((CUcontext)(uintptr_t)(0xc0 + (i)))
#define STREAM     ((CUstream)(uintptr_t)0x51)
#define ROUNDS     6u /* freezes of one test, the last one for the counting */

struct real_driver real;

/* The kernel counts once for each moment that passes while it runs. */
static struct gpu_model {
        uint32_t shared[2]; /* the kernel's count, and whether it is to end */
        bool launched, stands;
        bool runs_on;     /* although it is frozen */
        bool stays;       /* although it was thawed */
        bool writes_late; /* a last count arrives after it stands */
        uint64_t slow_ns; /* it begins, and goes on after a thaw, only after this time */
        uint64_t from_ns; /* when it counts again */
} kernel;
static uint64_t now_ns, frozen_ns, shortest_ns, longest_ns;
static bool is_flag; /* RM does not count: one enabling undoes all disablings */
static unsigned disablings;
static unsigned freezes, thaws, loads, calls, call_that_fails, contexts, channels;
static unsigned queries; /* since the last nap */
static int refusal;

/* ---- fakes of other modules, and the time ---- */

int clock_gettime(clockid_t which, struct timespec *ret)
{
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

static void pass(uint64_t ns)
{
        now_ns += ns;
        if (kernel.writes_late && kernel.stands && now_ns >= frozen_ns + 100 * NSEC_PER_USEC) {
                kernel.shared[0]++;
                kernel.writes_late = false;
        }
        if (!kernel.launched || (kernel.stands && !kernel.runs_on) || now_ns < kernel.from_ns)
                return;
        if (kernel.shared[1])
                kernel.launched = false;
        else
                kernel.shared[0]++;
}

/* The module sleeps by this call alone. */
long syscall(long number, ...)
{
        const struct timespec *nap;
        va_list args;

        assert_int_equal(number, SYS_nanosleep);
        va_start(args, number);
        nap = va_arg(args, const struct timespec *);
        va_end(args);
        pass((uint64_t)nap->tv_nsec);
        queries = 0;
        return 0;
}

int rm_freeze(void)
{
        freezes++;
        frozen_ns = now_ns;
        kernel.stands = true;
        disablings = 1;
        return refusal;
}

void rm_freeze_more(bool more)
{
        disablings = more ? disablings + 1 : is_flag ? 0 : disablings - 1;
        kernel.stands = disablings > 0;
}

int rm_thaw(void)
{
        thaws++;
        shortest_ns = MIN(shortest_ns, now_ns - frozen_ns);
        longest_ns = MAX(longest_ns, now_ns - frozen_ns);
        disablings = 0;
        kernel.stands = kernel.stays;
        kernel.from_ns = now_ns + kernel.slow_ns;
        return 0;
}

unsigned rm_channels(void)
{
        return channels;
}

static CUresult result(void)
{
        assert_int_equal(contexts, 1);
        return ++calls == call_that_fails ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult fake_load(CUmodule *ret, const void *image)
{
        loads++;
        assert_non_null(strstr(image, "sublet_count"));
        return result();
}

static CUresult fake_function(CUfunction *ret, CUmodule module, const char *name)
{
        return result();
}

static CUresult fake_stream(CUstream *ret, unsigned flags)
{
        assert_int_equal(flags, CU_STREAM_NON_BLOCKING); /* the program's work may never end */
        *ret = STREAM;
        return result();
}

static CUresult fake_host(void **ret, size_t bytes, unsigned flags)
{
        assert_int_equal(bytes, sizeof(kernel.shared));
        *ret = kernel.shared;
        return result();
}

static CUresult fake_device_pointer(CUdeviceptr *ret, void *host, unsigned flags)
{
        assert_ptr_equal(host, kernel.shared);
        *ret = 7;
        return result();
}

static CUresult fake_launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                            unsigned by, unsigned bz, unsigned shared, CUstream s,
                            void **parameters, void **extra)
{
        CUresult r = result();

        assert_ptr_equal(s, STREAM);
        assert_int_equal(*(CUdeviceptr *)parameters[0], 7);
        assert_false(kernel.launched);
        if (r == CUDA_SUCCESS) {
                kernel.launched = true;
                kernel.from_ns = now_ns + kernel.slow_ns;
        }
        return r;
}

static CUresult fake_query(CUstream s)
{
        assert_ptr_equal(s, STREAM);
        assert_true(++queries < 10); /* it sleeps between two looks */
        return kernel.launched ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult fake_push(CUcontext c)
{
        contexts++;
        return result();
}

static CUresult fake_pop(CUcontext *ret)
{
        contexts--;
        return CUDA_SUCCESS;
}

/* ---- scenes ---- */

static int begin(void **state)
{
        kernel = (struct gpu_model){0};
        now_ns = 1000 * NSEC_PER_SEC;
        freezes = thaws = loads = calls = call_that_fails = contexts = queries = 0;
        longest_ns = 0;
        shortest_ns = UINT64_MAX;
        channels = 3;
        refusal = 0;
        is_flag = false;
        disablings = 0;
        real = (struct real_driver){.cuModuleLoadData = fake_load,
                                    .cuModuleGetFunction = fake_function,
                                    .cuStreamCreate = fake_stream,
                                    .cuMemHostAlloc = fake_host,
                                    .cuMemHostGetDevicePointer_v2 = fake_device_pointer,
                                    .cuLaunchKernel = fake_launch,
                                    .cuStreamQuery = fake_query,
                                    .cuCtxPushCurrent_v2 = fake_push,
                                    .cuCtxPopCurrent_v2 = fake_pop};
        (void)alarm(
                60); /* a module that forgets to sleep never ends, because only naps take time */
        return 0;
}

static int end(void **state)
{
        for (unsigned i = 0; i < 2; i++)
                freeze_test_forget(CONTEXT(i));
        (void)alarm(0);
        return 0;
}

/* Runs the test, which leaves nothing frozen and no kernel running. */
static enum freeze_result run(unsigned context, int error)
{
        int seen = 1;
        bool counts = !is_flag;
        enum freeze_result r = freeze_test(CONTEXT(context), &seen, &counts);

        assert_int_equal(counts, r == FREEZE_TEST_PASSED && !is_flag);
        assert_int_equal(seen, error);
        assert_int_equal(contexts, 0);
        assert_int_equal(freezes, thaws);
        assert_int_equal(kernel.stands, kernel.stays);
        return r;
}

/* ---- tests ---- */

static void a_kernel_that_stands_and_goes_on_passes(void **state)
{
        assert_int_equal(run(0, 0), FREEZE_TEST_PASSED);
        assert_int_equal(freezes, ROUNDS);
        assert_true(shortest_ns >= 3 * NSEC_PER_MSEC);
        assert_false(kernel.launched);
}

/* Then the daemon's hand may not act beside the library. */
static void a_driver_that_does_not_count_is_told(void **state)
{
        is_flag = true;
        assert_int_equal(run(0, 0), FREEZE_TEST_PASSED);
        assert_int_equal(freezes, ROUNDS);
        assert_false(kernel.launched);
}

static void a_write_on_its_way_when_the_kernel_is_frozen_is_no_count(void **state)
{
        kernel.writes_late = true;
        assert_int_equal(run(0, 0), FREEZE_TEST_PASSED);
        assert_false(kernel.writes_late);
}

/* Otherwise a kernel that gets no time on a busy GPU would look frozen. */
static void a_freeze_lasts_longer_than_the_kernel_takes_to_go_on(void **state)
{
        kernel.slow_ns = 40 * NSEC_PER_MSEC;
        assert_int_equal(run(0, 0), FREEZE_TEST_PASSED);
        assert_true(longest_ns >= 80 * NSEC_PER_MSEC);
        assert_true(longest_ns < 120 * NSEC_PER_MSEC);
}

static void a_kernel_that_runs_on_fails(void **state)
{
        kernel.runs_on = true;
        assert_int_equal(run(0, 0), FREEZE_TEST_RAN_ON);
        assert_int_equal(freezes, 1);
        assert_false(kernel.launched);
}

static void a_kernel_that_does_not_go_on_fails(void **state)
{
        kernel.stays = true;
        assert_int_equal(run(0, 0), FREEZE_TEST_STOOD_STILL);
        assert_int_equal(freezes, 1);
        assert_true(now_ns >= 1001 * NSEC_PER_SEC); /* it had time */
}

static void a_refused_freeze_is_undone(void **state)
{
        refusal = -EPERM;
        assert_int_equal(run(0, -EPERM), FREEZE_TEST_REFUSED);
        assert_int_equal(thaws, 1);
        assert_false(kernel.launched);
}

static void without_a_channel_nothing_is_known(void **state)
{
        channels = 0;
        assert_int_equal(run(0, 0), FREEZE_TEST_NO_CHANNEL);
        assert_int_equal(thaws, 1);
        assert_false(kernel.launched);
}

/* A kernel that the GPU has not begun yet may begin at any time, with the objects that it has. */
static void a_test_on_a_busy_gpu_waits_for_the_kernel_of_the_last_one(void **state)
{
        kernel.slow_ns = 2 * NSEC_PER_SEC;
        assert_int_equal(run(0, 0), FREEZE_TEST_BUSY);
        assert_int_equal(freezes, 0);
        assert_true(kernel.launched);
        assert_int_equal(run(1, 0), FREEZE_TEST_BUSY);
        assert_int_equal(loads, 1);
        pass(NSEC_PER_SEC);
        kernel.slow_ns = 0;
        assert_int_equal(run(0, 0), FREEZE_TEST_PASSED);
        assert_int_equal(loads, 1);
}

static void what_is_loaded_serves_until_its_context_ends(void **state)
{
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(run(0, 0), FREEZE_TEST_PASSED);
        freeze_test_forget(CONTEXT(1)); /* another context */
        assert_int_equal(run(0, 0), FREEZE_TEST_PASSED);
        assert_int_equal(loads, 1);
        freeze_test_forget(CONTEXT(0));
        assert_int_equal(run(0, 0), FREEZE_TEST_PASSED); /* a new context with the same handle */
        assert_int_equal(loads, 2);
        assert_int_equal(run(1, 0), FREEZE_TEST_PASSED);
        assert_int_equal(loads, 3);
}

static void a_call_that_fails_is_made_again_by_the_next_test(void **state)
{
        for (unsigned n = 2; n <= 7; n++) { /* calls: push, five to load, launch */
                freeze_test_forget(CONTEXT(0));
                calls = 0;
                call_that_fails = n;
                assert_int_equal(run(0, 0), FREEZE_TEST_NO_KERNEL);
                assert_int_equal(calls, n);
                call_that_fails = 0;
                assert_int_equal(run(0, 0), FREEZE_TEST_PASSED);
        }
        assert_int_equal(loads, 2 * 6 - 1); /* a failed launch loads nothing again */
}

static void a_context_that_cannot_be_used_tells_nothing(void **state)
{
        bool counts = true;
        int error;

        call_that_fails = 1;
        assert_int_equal(freeze_test(CONTEXT(0), &error, &counts), FREEZE_TEST_BUSY);
        assert_false(counts);
        assert_int_equal(error, 0);
        assert_int_equal(calls, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_kernel_that_stands_and_goes_on_passes),
                TEST(a_driver_that_does_not_count_is_told),
                TEST(a_write_on_its_way_when_the_kernel_is_frozen_is_no_count),
                TEST(a_freeze_lasts_longer_than_the_kernel_takes_to_go_on),
                TEST(a_kernel_that_runs_on_fails),
                TEST(a_kernel_that_does_not_go_on_fails),
                TEST(a_refused_freeze_is_undone),
                TEST(without_a_channel_nothing_is_known),
                TEST(a_test_on_a_busy_gpu_waits_for_the_kernel_of_the_last_one),
                TEST(what_is_loaded_serves_until_its_context_ends),
                TEST(a_call_that_fails_is_made_again_by_the_next_test),
                TEST(a_context_that_cannot_be_used_tells_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
