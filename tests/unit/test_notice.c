/* test_notice.c: long waits for a turn are told soon, but never so often that they fill a log. */
#include "unit.h"

#include "base/clock.h"
#include "preload/state/notice.h"

#define S NSEC_PER_SEC

static struct notice n;
static uint64_t waited, next;

static enum notice_act at(uint64_t seconds, enum notice_doing doing, bool known)
{
        return notice_step(&n, doing, known, seconds * S, &waited, &next);
}

static int begin(void **state)
{
        n = (struct notice){0};
        return 0;
}

/* Begins to wait at this time. Returns after how many seconds the wait is told. */
static uint64_t told_after(uint64_t seconds)
{
        uint64_t due;

        assert_int_equal(at(seconds, NOTICE_WAITS, true), NOTICE_NOTHING);
        due = next;
        assert_int_equal(at(due / S - 1, NOTICE_WAITS, true), NOTICE_NOTHING);
        assert_int_equal(at(due / S, NOTICE_WAITS, true), NOTICE_ASK);
        assert_int_equal(at(due / S, NOTICE_WAITS, true), NOTICE_TELL);
        return waited / S;
}

static void a_wait_is_told_once_and_so_is_its_end(void **state)
{
        assert_int_equal(at(99, NOTICE_RUNS, false), NOTICE_NOTHING);
        assert_int_equal(at(100, NOTICE_WAITS, false), NOTICE_NOTHING);
        assert_int_equal(next, 105 * S);
        assert_int_equal(at(105, NOTICE_WAITS, false), NOTICE_ASK);
        assert_int_equal(at(106, NOTICE_WAITS, true), NOTICE_TELL);
        assert_int_equal(waited, 6 * S);
        assert_int_equal(at(140, NOTICE_WAITS, true), NOTICE_NOTHING);
        assert_int_equal(next, UINT64_MAX);
        assert_int_equal(at(150, NOTICE_RUNS, true), NOTICE_OVER);
        assert_int_equal(waited, 50 * S);
        assert_int_equal(at(151, NOTICE_RUNS, true), NOTICE_NOTHING);
}

static void a_daemon_that_does_not_answer_delays_the_message_by_two_seconds(void **state)
{
        (void)at(100, NOTICE_WAITS, false);
        assert_int_equal(at(105, NOTICE_WAITS, false), NOTICE_ASK);
        assert_int_equal(at(106, NOTICE_WAITS, false), NOTICE_NOTHING);
        assert_int_equal(next, 107 * S);
        assert_int_equal(at(107, NOTICE_WAITS, false), NOTICE_TELL);
}

static void the_end_of_a_short_wait_or_of_an_interrupted_wait_is_not_told(void **state)
{
        (void)at(100, NOTICE_WAITS, true);
        assert_int_equal(at(104, NOTICE_RUNS, true), NOTICE_NOTHING);
        (void)told_after(200);
        assert_int_equal(at(210, NOTICE_RESTS, true), NOTICE_NOTHING);
        assert_int_equal(at(211, NOTICE_RUNS, true), NOTICE_NOTHING);
}

static void a_program_that_computes_on_and_on_is_told_every_ten_minutes(void **state)
{
        unsigned told = 0;

        for (uint64_t t = 1000; t < 1000 + 3600; t += 20) { /* an hour in turns of ten seconds */
                (void)at(t, NOTICE_WAITS, true);
                if (at(t + 5, NOTICE_WAITS, true) == NOTICE_ASK)
                        told += at(t + 5, NOTICE_WAITS, true) == NOTICE_TELL;
                (void)at(t + 10, NOTICE_RUNS, true);
                (void)at(t + 19, NOTICE_RESTS, true); /* for less than a second */
                (void)notice_step(&n, NOTICE_RUNS, true, (t + 20) * S - 1, &waited, &next);
        }
        assert_int_equal(told, 6);
}

static void a_wait_after_a_rest_is_told_again_half_a_minute_after_the_last(void **state)
{
        assert_int_equal(told_after(100), 5);
        (void)at(106, NOTICE_RUNS, true);
        (void)at(107, NOTICE_RESTS, true);
        (void)at(108, NOTICE_RUNS, true);
        assert_int_equal(told_after(110), 25);
        (void)at(136, NOTICE_RUNS, true);
        (void)at(137, NOTICE_RESTS, true);
        assert_int_equal(told_after(300), 5);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(a_wait_is_told_once_and_so_is_its_end, begin),
                cmocka_unit_test_setup(
                        a_daemon_that_does_not_answer_delays_the_message_by_two_seconds, begin),
                cmocka_unit_test_setup(
                        the_end_of_a_short_wait_or_of_an_interrupted_wait_is_not_told, begin),
                cmocka_unit_test_setup(a_program_that_computes_on_and_on_is_told_every_ten_minutes,
                                       begin),
                cmocka_unit_test_setup(
                        a_wait_after_a_rest_is_told_again_half_a_minute_after_the_last, begin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
