/* test_home.c: the card's free memory alone tells whether managed memory that is sent home leaves
 * the card, so the test must notice when others change it meanwhile. */
#include "unit.h"

#include "base/clock.h"
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/state/home.h"

struct real_driver real;

static struct {
        uint64_t free, probe, there; /* bytes; `there`: of the probe, on the card or kept there */
        bool keeps;
        CUresult prefetch, managed;
        int64_t (*others)(unsigned n); /* bytes that others take before the n-th look at the card */
        unsigned looks, probes, touches, streams, relaxed;
        unsigned calls, fail_at; /* the number of the one that fails; 0: none */
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
        assert_int_equal(card.relaxed, 1); /* a capture forbids it */
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
        assert_int_equal(card.probe, 0); /* nothing stays behind */
        assert_int_equal(card.streams, 0);
        assert_int_equal(card.relaxed, 0);
        assert_false(gpu->home.trying);
        free(gpu);
        return 0;
}

/* Once more, after a rest. */
static enum home_answer find_out(void)
{
        gpu->home.again_ns = 0;
        home_find_out(gpu);
        return home_answer(&gpu->home);
}

static void a_card_of_ones_own_answers_at_once(void **state)
{
        assert_int_equal(find_out(), HOME_LEAVES);
        assert_int_equal(find_out(), HOME_LEAVES);
        assert_int_equal(card.probes, 1);
}

/* A no is for good. */
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

static void where_it_cannot_be_sent_home_it_stays(void **state)
{
        card.prefetch = CUDA_ERROR_NOT_SUPPORTED;
        assert_int_equal(find_out_no(), HOME_STAYS);
}

static int64_t in_and_out(unsigned n)
{
        return n % 2 ? (int64_t)(100 * MIB) : -(int64_t)(100 * MIB);
}

static void while_others_move_it_is_not_known_and_not_taken_for_no(void **state)
{
        card.others = in_and_out;
        assert_int_equal(find_out(), HOME_NOT_KNOWN);
        assert_int_equal(find_out(), HOME_NOT_KNOWN);
        card.others = NULL;
        assert_int_equal(find_out(), HOME_LEAVES);
}

/* Three looks for each try, after one at the free memory: in every other try another process does
 * what the driver would, or undoes it. */
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

static void what_others_do_by_chance_is_not_an_answer(void **state)
{
        card.keeps = true;
        card.others = as_if_it_left;
        assert_int_not_equal(find_out(), HOME_LEAVES);
        card.others = NULL;
        assert_int_equal(find_out_no(), HOME_STAYS);
}

static void nor_against_it(void **state)
{
        card.others = as_if_it_stayed;
        assert_int_not_equal(find_out(), HOME_STAYS);
        card.others = NULL;
        assert_int_equal(find_out(), HOME_LEAVES);
}

/* Another process tries, too, in step and with a piece of the same size: it touches its own as ours
 * is sent home, and sends it home as ours is touched. */
static int64_t in_step(unsigned n)
{
        unsigned look = (n - 1) % 3;

        return n == 0               ? 0
               : look == 2          ? (int64_t)card.probe
               : look == 1 && n > 3 ? -(int64_t)card.probe
                                    : 0;
}

static void two_that_try_in_step_do_not_take_each_other_for_a_no(void **state)
{
        card.others = in_step;
        assert_int_not_equal(find_out(), HOME_STAYS);
        card.others = NULL;
        assert_int_equal(find_out(), HOME_LEAVES);
}

static void on_a_full_card_it_is_tried_later(void **state)
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

static void it_rests_between_tries_that_say_nothing(void **state)
{
        card.others = in_and_out;
        home_find_out(gpu);
        gpu->home.again_ns = UINT64_MAX;
        home_find_out(gpu);
        assert_int_equal(card.probes, 1);
}

static void an_answer_takes_three_tries_more_than_say_the_contrary(void **state)
{
        assert_int_equal(find_out(), HOME_LEAVES);
        assert_int_equal(card.touches, 3);
        gpu->home = (struct home){0};
        card.touches = 0;
        card.keeps = true;
        assert_int_equal(find_out_no(), HOME_STAYS);
        assert_int_equal(card.touches, 9); /* each round anew */
}

static void a_call_that_fails_says_nothing(void **state)
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
        assert_int_equal(n, 3 + 3 * 7 + 1); /* room, stream, piece; seven calls a try */
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

static void a_sixteenth_of_difference_is_none(void **state)
{
        uint64_t bytes;

        real.cuMemAllocManaged = note_bytes;
        (void)find_out();
        real.cuMemAllocManaged = fake_managed;
        bytes = probed_bytes; /* by the clock, which stands still */
        for (unsigned i = 0; i < 2; i++) {
                gpu->home = (struct home){0};
                card.looks = 0;
                card.free = 512 * MIB;
                shift = bytes / 16 + i;
                card.others = a_little;
                assert_int_equal(find_out(), i ? HOME_NOT_KNOWN : HOME_LEAVES);
        }
}

/* In whole steps, no more than a 128th of the card, and of several sizes. */
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
                for (unsigned k = 0; k < count; k++) /* one is not taken for another */
                        for (unsigned j = 0; j < k; j++)
                                assert_true(MAX(sizes[k], sizes[j]) - MIN(sizes[k], sizes[j]) >
                                            most / 16);
        }
}

static void half_as_much_again_has_to_be_free(void **state)
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
        assert_true(gpu->home.trying); /* it belongs to the other thread */
        gpu->home.trying = false;
        gpu->home.answer = HOME_STAYS;
        assert_int_equal(find_out(), HOME_STAYS);
        assert_int_equal(card.looks, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
                TEST(a_card_of_ones_own_answers_at_once),
                TEST(a_driver_that_keeps_the_pages_is_seen_after_three_rounds),
                TEST(where_it_cannot_be_sent_home_it_stays),
                TEST(while_others_move_it_is_not_known_and_not_taken_for_no),
                TEST(what_others_do_by_chance_is_not_an_answer),
                TEST(nor_against_it),
                TEST(two_that_try_in_step_do_not_take_each_other_for_a_no),
                TEST(on_a_full_card_it_is_tried_later),
                TEST(it_rests_between_tries_that_say_nothing),
                TEST(an_answer_takes_three_tries_more_than_say_the_contrary),
                TEST(a_call_that_fails_says_nothing),
                TEST(a_sixteenth_of_difference_is_none),
                TEST(pieces_are_small_and_differ),
                TEST(half_as_much_again_has_to_be_free),
                TEST(the_rests_grow_up_to_a_second),
                TEST(one_thread_at_a_time_tries),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
