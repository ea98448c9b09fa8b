/* test_mover.c: a mover, the second context of a process, frees all that it takes, whichever call
 * fails. Its canary tries every call that moves memory. */
#include "unit.h"

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/freeze.h"
#include "fakes/preload.h"
#include "preload/state/core.h"
#include "preload/freeze/mover.h"

#define CONTEXT ((CUcontext)(uintptr_t)0xd0)
#define THEIRS  ((CUcontext)(uintptr_t)0xc0) /* the thread's context before the mover's */
#define TOLD    64u

static struct gpu *const gpu = &core.gpus[0];
static unsigned contexts, hosts, limits, own_calls, own_fails;
static bool no_limits, copies_nothing;
static bool on_its_way; /* a copy to the card has begun, and its end was not seen yet */
static __typeof__(real.cuMemcpyHtoDAsync_v2) copy_to_card;
static __typeof__(real.cuMemUnmap) unmap;
static const char *told[TOLD];
static unsigned told_count;
static uint32_t host[(2 << 20) / 4];

/* Fails one of the calls of the driver that fakes/driver.h lacks. */
static bool fails(void)
{
        return ++own_calls == own_fails;
}

static CUresult fake_create(CUcontext *ret, unsigned flags, CUdevice device)
{
        assert_int_equal(freezer.making, CHANNELS_MOVER);
        assert_int_equal(device, gpu->index);
        if (fails())
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (real.cuCtxPushCurrent_v2(CONTEXT) != CUDA_SUCCESS)
                return driver.error;
        *ret = CONTEXT;
        contexts++;
        return CUDA_SUCCESS;
}

static CUresult fake_destroy(CUcontext c)
{
        assert_ptr_equal(c, CONTEXT);
        contexts--;
        return CUDA_SUCCESS;
}

static CUresult fake_limit(CUlimit which, size_t value)
{
        assert_ptr_equal(driver.current, CONTEXT);
        assert_true(value <= 4096);
        limits++;
        return no_limits ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_SUCCESS;
}

static CUresult fake_host(void **ret, size_t bytes, unsigned flags)
{
        assert_ptr_equal(driver.current, CONTEXT);
        if (fails())
                return CUDA_ERROR_OUT_OF_MEMORY;
        assert_true(bytes <= sizeof(host));
        *ret = host;
        hosts++;
        return CUDA_SUCCESS;
}

static CUresult fake_free_host(void *p)
{
        assert_ptr_equal(p, host);
        hosts--;
        return CUDA_SUCCESS;
}

static CUresult fake_nothing(void *to, CUdeviceptr from, size_t bytes, CUstream s)
{
        assert_true(copies_nothing);
        return CUDA_SUCCESS;
}

static void tell(const char *call)
{
        assert_true(told_count < TOLD);
        told[told_count++] = call;
}

/* The first query finds the stream busy, as if other programs had the GPU. */
static CUresult fake_query(CUstream s)
{
        static unsigned asked;

        if (++asked % 2)
                return CUDA_ERROR_NOT_READY;
        on_its_way = false;
        return real.cuStreamSynchronize(s);
}

static CUresult fake_to_card(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
        const CUresult r = copy_to_card(to, from, bytes, s);

        on_its_way = r == CUDA_SUCCESS;
        return r;
}

/* On a card the copy would fault, and end the contexts of the process. */
static CUresult fake_unmap(CUdeviceptr at, size_t bytes)
{
        assert_false(on_its_way);
        return unmap(at, bytes);
}

static int begin(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1};
        driver_reset(GIB);
        driver.unlocked = true;
        driver.current = THEIRS;
        contexts = hosts = limits = own_calls = own_fails = told_count = 0;
        no_limits = copies_nothing = on_its_way = false;
        freezer.making = CHANNELS_PROGRAM;
        memset(host, 0, sizeof(host));
        real.cuCtxCreate_v2 = fake_create;
        real.cuCtxDestroy_v2 = fake_destroy;
        real.cuCtxSetLimit = fake_limit;
        real.cuMemHostAlloc = fake_host;
        real.cuMemFreeHost = fake_free_host;
        real.cuStreamQuery = fake_query;
        copy_to_card = real.cuMemcpyHtoDAsync_v2;
        unmap = real.cuMemUnmap;
        real.cuMemcpyHtoDAsync_v2 = fake_to_card;
        real.cuMemUnmap = fake_unmap;
        return 0;
}

static void check_nothing_is_left(void)
{
        assert_int_equal(contexts, 0);
        assert_int_equal(hosts, 0);
        assert_int_equal(driver_handles(), 0);
        assert_int_equal(driver_mappings(), 0);
        assert_int_equal(driver.reservations, 0);
        assert_int_equal(driver.streams, 0);
        assert_int_equal(driver.events, 0);
        assert_int_equal(driver.used, 0);
        assert_ptr_equal(driver.current, THEIRS);
        assert_int_equal(freezer.making, CHANNELS_PROGRAM);
}

static void a_mover_is_a_context_of_its_own(void **state)
{
        struct mover *m = mover_new(gpu);

        assert_non_null(m);
        assert_ptr_equal(mover_context(m), CONTEXT);
        assert_ptr_equal(driver.current, THEIRS);
        assert_int_equal(freezer.making, CHANNELS_PROGRAM);
        assert_int_equal(contexts, 1);
        assert_int_equal(limits, 3);
        assert_int_equal(driver_handles(), 1);
        assert_int_equal(driver_mappings(), 0);
        mover_free(m);
        check_nothing_is_left();
        mover_free(NULL);
}

static void a_mover_works_if_its_context_cannot_be_made_smaller(void **state)
{
        struct mover *m;

        no_limits = true;
        m = mover_new(gpu);
        assert_non_null(m);
        mover_free(m);
        check_nothing_is_left();
}

static void a_mover_that_cannot_be_made_leaves_nothing_behind(void **state)
{
        unsigned tried = 0;
        struct mover *m = NULL;

        for (unsigned n = 1; !m && n < 32; n++, tried++) {
                (void)begin(NULL);
                driver_fail(n, CUDA_ERROR_OUT_OF_MEMORY);
                m = mover_new(gpu);
                if (!m)
                        check_nothing_is_left();
        }
        assert_true(tried > 3); /* failures of push, stream, addresses, memory */
        mover_free(m);
        for (unsigned n = 1; n <= 2; n++) {
                (void)begin(NULL);
                own_fails = n;
                assert_null(mover_new(gpu));
                check_nothing_is_left();
        }
}

/* Returns the position of this call among those reported; fails the test if it is missing. */
static unsigned place_of(const char *call)
{
        for (unsigned i = 0; i < told_count; i++)
                if (strcmp(told[i], call) == 0)
                        return i;
        fail_msg("no %s", call);
        return told_count;
}

static void check_all_was_tried(void)
{
        static const char *const calls[] = {
                "cuCtxPushCurrent",     "cuMemMap",      "cuMemSetAccess", "cuMemcpyHtoDAsync_v2",
                "cuMemcpyDtoHAsync_v2", "cuStreamQuery", "cuMemUnmap"};

        for (size_t i = 1; i < ARRAY_SIZE(calls); i++)
                assert_true(place_of(calls[i - 1]) < place_of(calls[i]));
        (void)place_of("cuMemCreate");
}

static void a_canary_makes_every_call_that_moves_memory(void **state)
{
        struct mover *m = mover_new(gpu);

        assert_non_null(m);
        for (unsigned times = 0; times < 3; times++) {
                told_count = 0;
                assert_int_equal(mover_canary(m, tell), CUDA_SUCCESS);
                check_all_was_tried();
                assert_true(place_of("cuMemUnmap") < place_of("cuMemRelease"));
                assert_int_equal(driver_handles(), 1);
                assert_int_equal(driver_mappings(), 0);
                assert_ptr_equal(driver.current, THEIRS);
        }
        mover_free(m);
        check_nothing_is_left();
}

/* Fails each call of a canary in turn and checks which failures the canary reports. */
static void a_failed_canary_is_reported_and_leaves_nothing_mapped(void **state)
{
        unsigned failed = 0, n = 1;

        for (;; n++) {
                const char *driver_failed;
                struct mover *m;
                CUresult r;

                (void)begin(NULL);
                m = mover_new(gpu);
                assert_non_null(m);
                driver_fail(n, CUDA_ERROR_LAUNCH_FAILED);
                r = mover_canary(m, tell);
                driver_failed = driver.failed;
                driver_fail(0, CUDA_SUCCESS);
                assert_int_equal(driver_mappings(), 0);
                assert_ptr_equal(driver.current, THEIRS);
                failed += r == CUDA_ERROR_LAUNCH_FAILED;
                assert_true(driver_handles() <= 1);
                mover_free(m);
                check_nothing_is_left();
                if (!driver_failed)
                        break;
                /* A lack of memory says nothing about whether calls end. */
                assert_int_equal(r, strcmp(driver_failed, "cuMemCreate") == 0
                                            ? CUDA_SUCCESS
                                            : CUDA_ERROR_LAUNCH_FAILED);
        }
        assert_int_equal(failed, 5); /* failures of push, map, access, two copies */
        assert_int_equal(n, failed + 2);
}

/* Memory that an unmap or a release left behind is found by the next canary. */
static void a_call_that_fails_once_costs_the_canary_no_memory(void **state)
{
        for (unsigned n = 1;; n++) {
                struct mover *m;
                bool failed;

                (void)begin(NULL);
                m = mover_new(gpu);
                assert_non_null(m);
                driver.ends_fail = true;
                driver_fail(n, CUDA_ERROR_UNKNOWN);
                (void)mover_canary(m, tell);
                failed = driver.failed;
                driver_fail(0, CUDA_SUCCESS);
                for (unsigned times = 0; times < 2; times++) {
                        assert_int_equal(mover_canary(m, tell), CUDA_SUCCESS);
                        assert_int_equal(driver_handles(), 1);
                        assert_int_equal(driver_mappings(), 0);
                }
                mover_free(m);
                check_nothing_is_left();
                if (!failed)
                        break;
                assert_true(n < 20);
        }
}

static void a_canary_fails_if_its_contents_come_back_changed(void **state)
{
        struct mover *m = mover_new(gpu);

        assert_int_equal(mover_canary(m, tell), CUDA_SUCCESS); /* leaves its word in the host */
        copies_nothing = true;
        real.cuMemcpyDtoHAsync_v2 = fake_nothing;
        assert_int_equal(mover_canary(m, tell), CUDA_ERROR_UNKNOWN);
        mover_free(m);
        check_nothing_is_left();
}

/* With the whole card in use the canary gets no memory, which is no failure. */
static void a_full_card_is_no_failure_of_the_canary(void **state)
{
        struct mover *m = mover_new(gpu);

        driver.card = 0;
        for (unsigned times = 0; times < 3; times++)
                assert_int_equal(mover_canary(m, tell), CUDA_SUCCESS);
        driver.card = GIB;
        assert_int_equal(mover_canary(m, tell), CUDA_SUCCESS);
        told_count = 0;
        assert_int_equal(mover_canary(m, tell), CUDA_SUCCESS);
        check_all_was_tried();
        assert_int_equal(driver_handles(), 1);
        mover_free(m);
        check_nothing_is_left();
}

/* Otherwise memory would leave although the mover's calls have never been seen to end. */
static void a_canary_on_a_full_card_tries_every_call(void **state)
{
        struct mover *m = mover_new(gpu);

        driver.card = 0;
        for (unsigned times = 0; times < 3; times++) {
                told_count = 0;
                assert_int_equal(mover_canary(m, tell), CUDA_SUCCESS);
                check_all_was_tried();
        }
        mover_free(m);
        check_nothing_is_left();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
        const struct CMUnitTest tests[] = {
                TEST(a_mover_is_a_context_of_its_own),
                TEST(a_mover_works_if_its_context_cannot_be_made_smaller),
                TEST(a_mover_that_cannot_be_made_leaves_nothing_behind),
                TEST(a_canary_makes_every_call_that_moves_memory),
                TEST(a_failed_canary_is_reported_and_leaves_nothing_mapped),
                TEST(a_call_that_fails_once_costs_the_canary_no_memory),
                TEST(a_canary_fails_if_its_contents_come_back_changed),
                TEST(a_full_card_is_no_failure_of_the_canary),
                TEST(a_canary_on_a_full_card_tries_every_call),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
