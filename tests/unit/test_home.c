/* test_home.c: only the card's free memory shows whether managed memory that is prefetched to the
 * host leaves the card. So a try must notice if other processes change the free memory. */
#include "unit.h"

#include "base/clock.h"
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/state/home.h"

struct real_driver real;

static struct {
        uint64_t free, probe, there; /* bytes; `there`: bytes of the probe on the card */
        bool keeps;
        CUresult prefetch, managed;
        int64_t (*others)(unsigned n); /* bytes that others take before the n-th look at the card */
        unsigned looks, probes, touches, streams, relaxed;
        unsigned calls, fail_at; /* fail_at: number of the call that fails; 0: none */
} card;

static uint64_t now_ns = 1000 * NSEC_PER_SEC;

int clock_gettime(clockid_t which, struct timespec *ret)
{
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

static bool fails(void)
{
        return ++card.calls == card.fail_at;
}

static CUresult fake_info(size_t *ret_free, size_t *ret_total)
{
        if (card.others)
                card.free -= (uint64_t)card.others(card.looks);
        card.looks++;
        if (fails())
                return CUDA_ERROR_UNKNOWN;
        *ret_free = card.free;
        *ret_total = GIB;
        return CUDA_SUCCESS;
}

static CUresult fake_managed(CUdeviceptr *ret, size_t bytes, unsigned flags)
{
        assert_int_equal(card.relaxed, 1); /* a capture would forbid the call */
        if (card.managed != CUDA_SUCCESS)
                return card.managed;
        if (fails())
                return CUDA_ERROR_UNKNOWN;
        card.probes++;
        card.probe = bytes;
        *ret = 0x1000;
        return CUDA_SUCCESS;
}

static CUresult fake_free(CUdeviceptr p)
{
        card.free += card.there;
        card.probe = card.there = 0;
        return CUDA_SUCCESS;
}

static CUresult fake_touch(CUdeviceptr p, unsigned char value, size_t bytes, CUstream s)
{
        assert_int_equal(bytes, card.probe);
        card.touches++;
        if (fails())
                return CUDA_ERROR_UNKNOWN;
        card.free -= bytes - card.there;
        card.there = bytes;
        return CUDA_SUCCESS;
}

static CUresult fake_home(CUdeviceptr p, size_t bytes, CUdevice to, CUstream s)
{
        assert_int_equal(to, CU_DEVICE_CPU);
        if (fails())
                return CUDA_ERROR_UNKNOWN;
        if (card.prefetch == CUDA_SUCCESS && !card.keeps) {
                card.free += card.there;
                card.there = 0;
        }
        return card.prefetch;
}

static CUresult fake_stream(CUstream *ret, unsigned flags)
{
        if (fails())
                return CUDA_ERROR_UNKNOWN;
        card.streams++;
        *ret = (CUstream)0x40;
        return CUDA_SUCCESS;
}

static CUresult fake_synchronize(CUstream s)
{
        return fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult fake_stream_end(CUstream s)
{
        card.streams--;
        return CUDA_SUCCESS;
}

static CUresult fake_mode(CUstreamCaptureMode *mode)
{
        static CUstreamCaptureMode now = CU_STREAM_CAPTURE_MODE_GLOBAL;
        CUstreamCaptureMode before = now;

        now = *mode;
        *mode = before;
        card.relaxed += now == CU_STREAM_CAPTURE_MODE_RELAXED;
        card.relaxed -= before == CU_STREAM_CAPTURE_MODE_RELAXED;
        return CUDA_SUCCESS;
}

static struct gpu *gpu;

static int setup(void **state)
{
        real.cuMemGetInfo_v2 = fake_info;
        real.cuMemAllocManaged = fake_managed;
        real.cuMemFree_v2 = fake_free;
        real.cuMemsetD8Async = fake_touch;
        real.cuMemPrefetchAsync = fake_home;
        real.cuStreamCreate = fake_stream;
        real.cuStreamSynchronize = fake_synchronize;
        real.cuStreamDestroy_v2 = fake_stream_end;
        real.cuThreadExchangeStreamCaptureMode = fake_mode;
        memset(&card, 0, sizeof(card));
        card.free = 512 * MIB;
        gpu = calloc(1, sizeof(*gpu));
        gpu->total = GIB;
        return gpu ? 0 : -1;
}

static int teardown(void **state)
{
        assert_int_equal(card.probe, 0); /* the probe was freed */
        assert_int_equal(card.streams, 0);
        assert_int_equal(card.relaxed, 0);
        assert_false(gpu->home.trying);
        free(gpu);
        return 0;
}

/* Tries once more, as if a rest were over, and returns the answer. */
static enum home_answer find_out(void)
{
        gpu->home.again_ns = 0;
        home_find_out(gpu);
        return home_answer(&gpu->home);
}

static void a_card_without_other_users_answers_at_once(void **state)
{
        assert_int_equal(find_out(), HOME_LEAVES);
        assert_int_equal(find_out(), HOME_LEAVES);
        assert_int_equal(card.probes, 1);
}

/* Runs the three rounds that the answer "stays" needs; returns the last answer. */
static enum home_answer find_out_no(void)
{
        assert_int_equal(find_out(), HOME_NOT_KNOWN);
        assert_int_equal(find_out(), HOME_NOT_KNOWN);
        return find_out();
}

static void a_driver_that_keeps_the_pages_is_seen_after_three_rounds(void **state)
{
        card.keeps = true;
        assert_int_equal(find_out_no(), HOME_STAYS);
        assert_int_equal(find_out(), HOME_STAYS);
        assert_int_equal(card.probes, 3);
}

static void memory_that_cannot_be_prefetched_to_the_host_stays(void **state)
{
        card.prefetch = CUDA_ERROR_NOT_SUPPORTED;
        assert_int_equal(find_out_no(), HOME_STAYS);
}

static int64_t in_and_out(unsigned n)
{
        return n % 2 ? (int64_t)(100 * MIB) : -(int64_t)(100 * MIB);
}

static void no_answer_is_found_while_others_move_memory(void **state)
{
        card.others = in_and_out;
        assert_int_equal(find_out(), HOME_NOT_KNOWN);
        assert_int_equal(find_out(), HOME_NOT_KNOWN);
        card.others = NULL;
        assert_int_equal(find_out(), HOME_LEAVES);
}

/* A try looks three times at the free memory, after one look before all tries. In every other try
 * another process frees memory as the driver would, or undoes the driver's change. */
static int64_t as_if_it_left(unsigned n)
{
        unsigned look = (n - 1) % 6;

        return n == 0 ? 0 : look == 1 ? (int64_t)card.probe : look == 2 ? -(int64_t)card.probe : 0;
}

static int64_t as_if_it_stayed(unsigned n)
{
        unsigned look = (n - 1) % 6;

        return n == 0 ? 0 : look == 2 ? (int64_t)card.probe : look == 3 ? -(int64_t)card.probe : 0;
}

static void chance_moves_of_others_do_not_prove_that_memory_leaves(void **state)
{
        card.keeps = true;
        card.others = as_if_it_left;
        assert_int_not_equal(find_out(), HOME_LEAVES);
        card.others = NULL;
        assert_int_equal(find_out_no(), HOME_STAYS);
}

static void chance_moves_of_others_do_not_prove_that_memory_stays(void **state)
{
        card.others = as_if_it_stayed;
        assert_int_not_equal(find_out(), HOME_STAYS);
        card.others = NULL;
        assert_int_equal(find_out(), HOME_LEAVES);
}

/* Another process tries in step, with a piece of the same size. It touches its piece when ours is
 * prefetched to the host, and prefetches its piece when ours is touched. */
static int64_t in_step(unsigned n)
{
        unsigned look = (n - 1) % 3;

        return n == 0               ? 0
               : look == 2          ? (int64_t)card.probe
               : look == 1 && n > 3 ? -(int64_t)card.probe
                                    : 0;
}

static void two_processes_trying_in_step_do_not_answer_no(void **state)
{
        card.others = in_step;
        assert_int_not_equal(find_out(), HOME_STAYS);
        card.others = NULL;
        assert_int_equal(find_out(), HOME_LEAVES);
}

static void a_full_card_is_tried_later(void **state)
{
        card.free = MIB;
        assert_int_equal(find_out(), HOME_NOT_KNOWN);
        assert_int_equal(card.probes, 0);
        card.free = 512 * MIB;
        card.managed = CUDA_ERROR_OUT_OF_MEMORY;
        assert_int_equal(find_out(), HOME_NOT_KNOWN);
        card.managed = CUDA_SUCCESS;
        assert_int_equal(find_out(), HOME_LEAVES);
}

static void a_rest_follows_a_try_without_an_answer(void **state)
{
        card.others = in_and_out;
        home_find_out(gpu);
        gpu->home.again_ns = UINT64_MAX;
        home_find_out(gpu);
        assert_int_equal(card.probes, 1);
}

static void an_answer_needs_three_more_tries_for_it_than_against(void **state)
{
        assert_int_equal(find_out(), HOME_LEAVES);
        assert_int_equal(card.touches, 3);
        gpu->home = (struct home){0};
        card.touches = 0;
        card.keeps = true;
        assert_int_equal(find_out_no(), HOME_STAYS);
        assert_int_equal(card.touches, 9); /* three rounds of three tries */
}

static void a_failed_call_is_no_answer(void **state)
{
        unsigned n = 1;

        for (;; n++) {
                enum home_answer a;

                card.calls = 0;
                card.fail_at = n;
                gpu->home = (struct home){0};
                a = find_out();
                assert_int_equal(card.streams, 0);
                assert_int_equal(card.probe, 0);
                if (card.calls < n)
                        break;
                assert_int_equal(a, n <= 3 ? HOME_NOT_KNOWN : HOME_LEAVES);
                card.keeps = true;
                card.calls = 0;
                gpu->home = (struct home){0};
                assert_int_equal(find_out(), HOME_NOT_KNOWN);
                card.keeps = false;
        }
        assert_int_equal(n, 3 + 3 * 7 + 1); /* calls: room, stream, piece; then seven in a try */
        card.fail_at = 0;
        gpu->home = (struct home){0};
        card.prefetch = CUDA_ERROR_UNKNOWN;
        for (unsigned i = 0; i < 5; i++)
                assert_int_equal(find_out(), HOME_NOT_KNOWN);
}

static uint64_t probed_bytes;
static CUresult note_bytes(CUdeviceptr *ret, size_t bytes, unsigned flags)
{
        probed_bytes = bytes;
        return CUDA_ERROR_OUT_OF_MEMORY;
}

static uint64_t shift;
static int64_t a_little(unsigned n)
{
        return n > 0 && (n - 1) % 3 == 1 ? (int64_t)shift : 0;
}

static void a_difference_of_a_sixteenth_is_ignored(void **state)
{
        uint64_t bytes;

        real.cuMemAllocManaged = note_bytes;
        (void)find_out();
        real.cuMemAllocManaged = fake_managed;
        bytes = probed_bytes; /* the size depends on the clock, which does not advance here */
        for (unsigned i = 0; i < 2; i++) {
                gpu->home = (struct home){0};
                card.looks = 0;
                card.free = 512 * MIB;
                shift = bytes / 16 + i;
                card.others = a_little;
                assert_int_equal(find_out(), i ? HOME_NOT_KNOWN : HOME_LEAVES);
        }
}

/* Pieces are multiples of 64 KiB, at most a 128th of the card, and have four sizes. */
static void pieces_are_small_and_differ(void **state)
{
        static const uint64_t totals[] = {GIB, GIB + 5 * MIB, 24 * GIB, 140 * GIB};

        real.cuMemAllocManaged = note_bytes;
        card.free = 100 * GIB;
        for (unsigned i = 0; i < ARRAY_SIZE(totals); i++) {
                uint64_t sizes[4] = {0}, most = MIN(totals[i] / 128, 34 * MIB);
                unsigned count = 0;

                gpu->total = totals[i];
                for (unsigned n = 0; n < 200; n++, now_ns += 12345) {
                        unsigned k = 0;

                        (void)find_out();
                        assert_in_range(probed_bytes, most / 2, most);
                        assert_int_equal(probed_bytes % (64 * KIB), 0);
                        while (k < count && sizes[k] != probed_bytes)
                                k++;
                        assert_true(k < ARRAY_SIZE(sizes));
                        sizes[k] = probed_bytes;
                        count = MAX(count, k + 1);
                }
                assert_int_equal(count, 4);
                for (unsigned k = 0; k < count; k++) /* sizes must differ by more than a 16th */
                        for (unsigned j = 0; j < k; j++)
                                assert_true(MAX(sizes[k], sizes[j]) - MIN(sizes[k], sizes[j]) >
                                            most / 16);
        }
}

static void a_try_needs_half_as_much_again_free(void **state)
{
        real.cuMemAllocManaged = note_bytes;
        (void)find_out();
        real.cuMemAllocManaged = fake_managed;
        card.free = probed_bytes + probed_bytes / 2 - 1;
        assert_int_equal(find_out(), HOME_NOT_KNOWN);
        assert_int_equal(card.probes, 0);
        card.free++;
        assert_int_equal(find_out(), HOME_LEAVES);
}

static void the_rests_grow_up_to_a_second(void **state)
{
        card.managed = CUDA_ERROR_OUT_OF_MEMORY;
        for (unsigned i = 0; i < 12; i++) {
                unsigned looks = card.looks;

                home_find_out(gpu);
                assert_int_equal(card.looks, looks + 1);
                assert_int_equal(gpu->home.again_ns - now_ns, 10 * NSEC_PER_MSEC << MIN(i, 7u));
                now_ns = gpu->home.again_ns - 1;
                home_find_out(gpu);
                assert_int_equal(card.looks, looks + 1);
                now_ns++;
        }
}

static void one_thread_at_a_time_tries(void **state)
{
        gpu->home.trying = true;
        assert_int_equal(find_out(), HOME_NOT_KNOWN);
        assert_int_equal(card.looks, 0);
        assert_true(gpu->home.trying); /* the other thread resets the flag */
        gpu->home.trying = false;
        gpu->home.answer = HOME_STAYS;
        assert_int_equal(find_out(), HOME_STAYS);
        assert_int_equal(card.looks, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
                TEST(a_card_without_other_users_answers_at_once),
                TEST(a_driver_that_keeps_the_pages_is_seen_after_three_rounds),
                TEST(memory_that_cannot_be_prefetched_to_the_host_stays),
                TEST(no_answer_is_found_while_others_move_memory),
                TEST(chance_moves_of_others_do_not_prove_that_memory_leaves),
                TEST(chance_moves_of_others_do_not_prove_that_memory_stays),
                TEST(two_processes_trying_in_step_do_not_answer_no),
                TEST(a_full_card_is_tried_later),
                TEST(a_rest_follows_a_try_without_an_answer),
                TEST(an_answer_needs_three_more_tries_for_it_than_against),
                TEST(a_failed_call_is_no_answer),
                TEST(a_difference_of_a_sixteenth_is_ignored),
                TEST(pieces_are_small_and_differ),
                TEST(a_try_needs_half_as_much_again_free),
                TEST(the_rests_grow_up_to_a_second),
                TEST(one_thread_at_a_time_tries),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
