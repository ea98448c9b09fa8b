/* test_unchanged.c: the GPU fingerprints extents only if that is worth its time, with a driver
 * whose speed the test sets. test_fingerprint.c tests the fingerprints. */
#include "unit.h"

#include <stdbool.h>

#include "preload/heap/heap.h"
#include "preload/driver/real.h"
#include "preload/move/trouble.h"
#include "preload/move/unchanged.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

struct real_driver real;

static struct {
        unsigned loads, unloads, launches, events, host, streams;
        bool done;               /* launched work is done */
        float trial_ms, slow_ms; /* GPU time: trial_ms for the trial piece, slow_ms for an extent */
        CUresult load, query;
        unsigned awaited; /* waits for the end of the stream's work */
        unsigned chunks;  /* number of chunks in the last launch */
} driver;

/* Fakes of the driver calls in unchanged.c; handles are never dereferenced. */
static CUresult fake_load(CUmodule *ret, const void *text)
{
        driver.loads++;
        *ret = (CUmodule)0x10;
        return driver.load;
}

static CUresult fake_unload(CUmodule m)
{
        driver.unloads++;
        return CUDA_SUCCESS;
}

static CUresult fake_function(CUfunction *ret, CUmodule m, const char *name)
{
        assert_string_equal(name, FINGERPRINT_KERNEL);
        *ret = (CUfunction)0x20;
        return CUDA_SUCCESS;
}

static CUresult fake_global(CUdeviceptr *ret, size_t *ret_bytes, CUmodule m, const char *name)
{
        struct fingerprint_key *k = fingerprint_key_draw();
        uint64_t bytes;

        (void)fingerprint_key_powers(k, &bytes);
        free(k);
        *ret = 0x30;
        *ret_bytes = bytes;
        return CUDA_SUCCESS;
}

static CUresult fake_upload(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
        return CUDA_SUCCESS;
}

static CUresult fake_stream(CUstream *ret, unsigned flags)
{
        assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
        driver.streams++;
        *ret = (CUstream)0x40;
        return CUDA_SUCCESS;
}

static CUresult fake_stream_destroy(CUstream s)
{
        assert_int_equal(driver.streams--, 1);
        return CUDA_SUCCESS;
}

static CUresult fake_stream_call(CUstream s)
{
        return CUDA_SUCCESS;
}

static CUresult fake_host_alloc(void **ret, size_t bytes, unsigned flags)
{
        driver.host++;
        *ret = calloc(1, bytes);
        return CUDA_SUCCESS;
}

static CUresult fake_host_free(void *p)
{
        driver.host--;
        free(p);
        return CUDA_SUCCESS;
}

static CUresult fake_host_device(CUdeviceptr *ret, void *host, unsigned flags)
{
        *ret = (CUdeviceptr)(uintptr_t)host;
        return CUDA_SUCCESS;
}

static CUresult fake_event_create(CUevent *ret, unsigned flags)
{
        *ret = (CUevent)(uintptr_t)(0x100 + ++driver.events);
        return CUDA_SUCCESS;
}

static CUresult fake_event_destroy(CUevent e)
{
        driver.events--;
        return CUDA_SUCCESS;
}

static CUresult fake_record(CUevent e, CUstream s)
{
        return CUDA_SUCCESS;
}

static CUresult fake_query(CUevent e)
{
        if (driver.query)
                return driver.query;
        return driver.done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult fake_elapsed(float *ret_ms, CUevent from, CUevent to)
{
        *ret_ms = driver.chunks == 1 ? driver.trial_ms : driver.slow_ms;
        return CUDA_SUCCESS;
}

static CUresult fake_launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                            unsigned by, unsigned bz, unsigned shared, CUstream s,
                            void **parameters, void **extra)
{
        assert_int_equal(bx, FINGERPRINT_BLOCK_THREADS);
        driver.launches++;
        driver.chunks = gx;
        return CUDA_SUCCESS;
}

static int fast_driver(void **state)
{
        memset(&driver, 0, sizeof(driver));
        driver.done = true;
        driver.trial_ms = 0.01f;
        driver.slow_ms = 0.05f;
        real = (struct real_driver){
                .cuModuleLoadData = fake_load,
                .cuModuleUnload = fake_unload,
                .cuModuleGetFunction = fake_function,
                .cuModuleGetGlobal_v2 = fake_global,
                .cuMemcpyHtoDAsync_v2 = fake_upload,
                .cuStreamCreate = fake_stream,
                .cuStreamDestroy_v2 = fake_stream_destroy,
                .cuStreamSynchronize = fake_stream_call,
                .cuMemHostAlloc = fake_host_alloc,
                .cuMemFreeHost = fake_host_free,
                .cuMemHostGetDevicePointer_v2 = fake_host_device,
                .cuEventCreate = fake_event_create,
                .cuEventDestroy_v2 = fake_event_destroy,
                .cuEventRecord = fake_record,
                .cuEventQuery = fake_query,
                .cuEventElapsedTime = fake_elapsed,
                .cuLaunchKernel = fake_launch,
        };
        (void)unsetenv("SUBLET_UNCHANGED");
        return 0;
}

static const struct extent extent = {
        .address = 0x7f0000000000, .bytes = 128 * MIB, .kept = UINT64_MAX};

/* Evicts so many bytes; fingerprints are done at once. Returns how many extents were
 * fingerprinted. */
static unsigned evict(struct unchanged *u, uint64_t bytes)
{
        struct fingerprint f;
        unsigned asked = 0;

        for (uint64_t b = 0; b < bytes; b += extent.bytes)
                if (unchanged_ask(u, 0, &extent, extent.address)) {
                        asked++;
                        assert_int_equal(unchanged_answer(u, 0, &f), UNCHANGED_TOLD);
                }
        return asked;
}

static void finish(struct unchanged *u)
{
        unchanged_settle(u);
        unchanged_forget(u);
        assert_int_equal(driver.loads, driver.unloads);
        assert_int_equal(driver.events, 0);
        assert_int_equal(driver.host, 0);
        assert_int_equal(driver.streams, 0);
}

static void no_module_is_loaded_before_one_gib_was_evicted(void **state)
{
        struct unchanged *u = unchanged_new();

        assert_int_equal(evict(u, GIB - extent.bytes), 0);
        assert_int_equal(driver.loads, 0);
        assert_true(evict(u, GIB) >= 6); /* the first extents pass during the trial */
        assert_int_equal(driver.loads, 1);
        assert_int_equal(evict(u, GIB), 8);
        finish(u);
}

static void slow_fingerprints_are_tried_less_and_less_often(void **state)
{
        struct unchanged *u = unchanged_new();
        unsigned launches;

        driver.trial_ms = 3;
        assert_int_equal(evict(u, 400 * GIB), 0);
        launches = driver.launches;
        assert_in_range(launches, 5, 12); /* trials at 1, 3, 7 GiB and so on, later every 64 GiB */
        assert_int_equal(driver.loads, 1);
        driver.trial_ms = 0.01f;
        assert_true(evict(u, 66 * GIB) > 0);
        finish(u);
}

static void one_slow_fingerprint_stops_fingerprinting_for_a_while(void **state)
{
        struct unchanged *u = unchanged_new();

        assert_true(evict(u, 4 * GIB) > 0);
        driver.slow_ms = 2;
        assert_int_equal(evict(u, GIB / 2), 1);
        driver.slow_ms = 0.05f;
        assert_int_equal(evict(u, GIB / 4), 0);
        assert_true(evict(u, 2 * GIB) > 0);
        assert_int_equal(evict(u, GIB), 8);
        finish(u);
}

static void fingerprints_must_be_ten_times_as_fast_as_the_bus(void **state)
{
        struct unchanged *u = unchanged_new();

        driver.slow_ms = 0.6f; /* 224 GB/s */
        for (unsigned i = 0; i < 2000; i++)
                unchanged_copied(u, 10 * MIB, 1000000); /* 10 GB/s */
        (void)evict(u, 2 * GIB);
        assert_int_equal(evict(u, GIB), 8);
        for (unsigned i = 0; i < 2000; i++)
                unchanged_copied(u, 50 * MIB, 1000000);
        assert_int_equal(evict(u, GIB), 1);
        finish(u);
}

static void evictions_do_not_wait_for_a_trial_on_a_busy_gpu(void **state)
{
        struct unchanged *u = unchanged_new();

        driver.done = false;
        assert_int_equal(evict(u, 4 * GIB), 0);
        assert_int_equal(driver.launches, 1); /* the trial piece, not done yet */
        driver.done = true;
        driver.trial_ms = 8; /* other programs had the GPU in between */
        assert_int_equal(evict(u, GIB / 2), 0);
        finish(u);
}

static void a_requested_fingerprint_can_take_its_time(void **state)
{
        struct unchanged *u = unchanged_new();
        struct fingerprint f;

        assert_true(evict(u, 4 * GIB) > 0);
        driver.done = false;
        assert_true(unchanged_ask(u, 3, &extent, extent.address));
        assert_int_equal(driver.chunks, extent.bytes / FINGERPRINT_CHUNK);
        assert_int_equal(unchanged_answer(u, 3, &f), UNCHANGED_WAIT);
        driver.done = true;
        assert_int_equal(unchanged_answer(u, 3, &f), UNCHANGED_TOLD);
        finish(u);
}

CUresult trouble_await(CUstream s)
{
        driver.awaited++;
        return real.cuStreamSynchronize(s);
}

/* The caller releases the memory next. */
static void no_kernel_runs_when_its_answer_is_given_up(void **state)
{
        struct unchanged *u = unchanged_new();
        struct fingerprint f;

        assert_true(evict(u, 4 * GIB) > 0);
        assert_true(unchanged_ask(u, 3, &extent, extent.address));
        driver.query = CUDA_ERROR_UNKNOWN;
        driver.awaited = 0;
        assert_int_equal(unchanged_answer(u, 3, &f), UNCHANGED_FAILED);
        assert_int_equal(driver.awaited, 1);
        driver.query = CUDA_SUCCESS;
        finish(u);
}

static void a_module_that_does_not_load_is_tried_again_later(void **state)
{
        struct unchanged *u = unchanged_new();

        driver.load = CUDA_ERROR_OUT_OF_MEMORY;
        assert_int_equal(evict(u, 2 * GIB), 0);
        assert_int_equal(driver.loads, 1);
        assert_int_equal(driver.events, 0);
        assert_int_equal(driver.host, 0);
        driver.load = CUDA_SUCCESS;
        assert_true(evict(u, 4 * GIB) > 0);
        assert_int_equal(driver.loads, 2);
        driver.loads--; /* the failed load leaves nothing to unload */
        finish(u);
}

static void the_module_is_loaded_again_for_another_context(void **state)
{
        struct unchanged *u = unchanged_new();

        assert_true(evict(u, 2 * GIB) > 0);
        unchanged_settle(u);
        unchanged_forget(u);
        assert_int_equal(evict(u, GIB), 8);
        assert_int_equal(driver.loads, 2);
        finish(u);
}

static void the_settings_always_and_never_are_obeyed(void **state)
{
        struct unchanged *u;

        (void)setenv("SUBLET_UNCHANGED", "always", 1);
        driver.slow_ms = 1000;
        u = unchanged_new();
        assert_int_equal(evict(u, GIB), 8);
        finish(u);
        (void)setenv("SUBLET_UNCHANGED", "never", 1);
        u = unchanged_new();
        assert_int_equal(evict(u, 100 * GIB), 0);
        assert_int_equal(driver.loads, 1);
}

#define TEST(name) cmocka_unit_test_setup(name, fast_driver)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(no_module_is_loaded_before_one_gib_was_evicted),
                TEST(slow_fingerprints_are_tried_less_and_less_often),
                TEST(one_slow_fingerprint_stops_fingerprinting_for_a_while),
                TEST(fingerprints_must_be_ten_times_as_fast_as_the_bus),
                TEST(evictions_do_not_wait_for_a_trial_on_a_busy_gpu),
                TEST(a_requested_fingerprint_can_take_its_time),
                TEST(no_kernel_runs_when_its_answer_is_given_up),
                TEST(a_module_that_does_not_load_is_tried_again_later),
                TEST(the_module_is_loaded_again_for_another_context),
                TEST(the_settings_always_and_never_are_obeyed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
