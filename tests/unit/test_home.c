/* test_home.c: whether managed memory that is sent home leaves the card is found out from the
 * card's free memory alone, and so not while others change that as well. */
#include "unit.h"

#include "preload/core.h"
#include "preload/home.h"

struct real_driver real;

static struct {
        uint64_t free, probe, there; /* bytes; `there`: of the probe, on the card or kept there */
        bool keeps;
        CUresult prefetch, managed;
        int64_t (*others)(unsigned n); /* what they take before the n-th look at the card */
        unsigned looks, probes;
} card;

static CUresult fake_info(size_t *ret_free, size_t *ret_total)
{
        if (card.others)
                card.free -= (uint64_t)card.others(card.looks);
        card.looks++;
        *ret_free = card.free;
        *ret_total = GIB;
        return CUDA_SUCCESS;
}

static CUresult fake_managed(CUdeviceptr *ret, size_t bytes, unsigned flags)
{
        if (card.managed != CUDA_SUCCESS)
                return card.managed;
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
        card.free -= bytes - card.there;
        card.there = bytes;
        return CUDA_SUCCESS;
}

static CUresult fake_home(CUdeviceptr p, size_t bytes, CUdevice to, CUstream s)
{
        assert_int_equal(to, CU_DEVICE_CPU);
        if (card.prefetch == CUDA_SUCCESS && !card.keeps) {
                card.free += card.there;
                card.there = 0;
        }
        return card.prefetch;
}

static CUresult fake_stream(CUstream *ret, unsigned flags)
{
        *ret = (CUstream)0x40;
        return CUDA_SUCCESS;
}

static CUresult fake_stream_call(CUstream s)
{
        return CUDA_SUCCESS;
}

static CUresult fake_mode(CUstreamCaptureMode *mode)
{
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
        real.cuStreamSynchronize = real.cuStreamDestroy_v2 = fake_stream_call;
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
        free(gpu);
        return 0;
}

/* Once more, when it has rested. */
static enum home_answer find_out(void)
{
        gpu->home.again_ns = 0;
        home_find_out(gpu);
        return home_answer(&gpu->home);
}

static void test_a_card_of_ones_own_answers_at_once(void **state)
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

static void test_a_driver_that_keeps_the_pages_is_seen_after_three_rounds(void **state)
{
        card.keeps = true;
        assert_int_equal(find_out_no(), HOME_STAYS);
        assert_int_equal(find_out(), HOME_STAYS);
        assert_int_equal(card.probes, 3);
}

static void test_where_it_cannot_be_sent_home_it_stays(void **state)
{
        card.prefetch = CUDA_ERROR_NOT_SUPPORTED;
        assert_int_equal(find_out_no(), HOME_STAYS);
}

static int64_t in_and_out(unsigned n)
{
        return n % 2 ? (int64_t)(100 * MIB) : -(int64_t)(100 * MIB);
}

static void test_while_others_move_it_is_not_known_and_not_taken_for_no(void **state)
{
        card.others = in_and_out;
        assert_int_equal(find_out(), HOME_NOT_KNOWN);
        assert_int_equal(find_out(), HOME_NOT_KNOWN);
        card.others = NULL;
        assert_int_equal(find_out(), HOME_LEAVES);
}

/* Three looks a try, after one at what is free: in every other try another process does what the
 * driver would, or undoes it. */
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

static void test_what_others_do_by_chance_is_not_an_answer(void **state)
{
        card.keeps = true;
        card.others = as_if_it_left;
        assert_int_not_equal(find_out(), HOME_LEAVES);
        card.others = NULL;
        assert_int_equal(find_out_no(), HOME_STAYS);
}

static void test_nor_against_it(void **state)
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

static void test_two_that_try_in_step_do_not_take_each_other_for_a_no(void **state)
{
        card.others = in_step;
        assert_int_not_equal(find_out(), HOME_STAYS);
        card.others = NULL;
        assert_int_equal(find_out(), HOME_LEAVES);
}

static void test_on_a_full_card_it_is_tried_later(void **state)
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

static void test_it_rests_between_tries_that_say_nothing(void **state)
{
        card.others = in_and_out;
        home_find_out(gpu);
        gpu->home.again_ns = UINT64_MAX;
        home_find_out(gpu);
        assert_int_equal(card.probes, 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
                TEST(test_a_card_of_ones_own_answers_at_once),
                TEST(test_a_driver_that_keeps_the_pages_is_seen_after_three_rounds),
                TEST(test_where_it_cannot_be_sent_home_it_stays),
                TEST(test_while_others_move_it_is_not_known_and_not_taken_for_no),
                TEST(test_what_others_do_by_chance_is_not_an_answer),
                TEST(test_nor_against_it),
                TEST(test_two_that_try_in_step_do_not_take_each_other_for_a_no),
                TEST(test_on_a_full_card_it_is_tried_later),
                TEST(test_it_rests_between_tries_that_say_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
