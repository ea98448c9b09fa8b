/* test_giveway.c: of two programs that have half of what each needs, one gives way and the other
 * gets all, whatever numbers are drawn. */
#include "unit.h"

#include "base/clock.h"
#include "base/macros.h"
#include "preload/state/giveway.h"

#define MS NSEC_PER_MSEC

static void a_program_that_makes_progress_stays(void **state)
{
        struct giveway w = {0};
        uint64_t now = 5 * NSEC_PER_SEC, backed = 0;

        for (unsigned i = 0; i < 100; i++, now += 900 * MS)
                assert_false(giveway_step(&w, true, ++backed, now, 0));
        assert_false(giveway_step(&w, true, backed, now - 1, 0));
        assert_true(giveway_step(&w, true, backed, now + 200 * MS, 0));
}

/* Giving way takes time, too; each time the program stays away longer, but not for ever. */
static void who_moved_out_comes_back_later_each_time(void **state)
{
        static const uint64_t seconds[] = {1, 2, 4, 8, 16, 16, 16};
        struct giveway w = {0};
        uint64_t now = NSEC_PER_SEC;

        for (unsigned i = 0; i < ARRAY_SIZE(seconds); i++) {
                assert_false(giveway_step(&w, true, 7, now, 0));
                assert_true(giveway_step(&w, true, 7, now += NSEC_PER_SEC, 0));
                for (unsigned left = 7; left-- > 0;)
                        assert_true(giveway_step(&w, true, left, now += 900 * MS, 0));
                assert_int_equal(w.until_ns, now + seconds[i] * NSEC_PER_SEC);
                assert_true(giveway_step(&w, true, 0, w.until_ns - 1, 0));
                now = w.until_ns;
                assert_false(giveway_step(&w, true, 0, now, 0));
                now += MS;
        }
}

/* If no daemon sees it come in, the one that starts then must not wait for the end of a pause. */
static void without_waiting_threads_memory_stays_evicted(void **state)
{
        struct giveway w = {0};
        uint64_t now = NSEC_PER_SEC;

        assert_false(giveway_step(&w, false, 7, now, 0));
        assert_true(giveway_step(&w, false, 7, now += NSEC_PER_SEC, 0));
        for (unsigned i = 0; i < 100; i++) {
                assert_true(giveway_step(&w, false, 0, now += NSEC_PER_SEC, 0));
                assert_true(w.until_ns > now);
        }
        assert_false(giveway_step(&w, true, 0, now, 0));
        assert_int_equal(w.times, 0);
        assert_int_equal(w.until_ns, now + NSEC_PER_SEC);
}

struct side {
        struct giveway w;
        uint64_t has;
};

/* One step of one of them, every 10 ms: it takes or gives back what the bus moves in that time. */
static bool move(struct side *s, uint64_t needs, uint64_t *free_bytes, uint64_t now,
                 uint32_t random)
{
        bool out = giveway_step(&s->w, true, s->has, now, random);

        if (out && s->has > 0) {
                s->has--;
                ++*free_bytes;
        } else if (!out && *free_bytes > 0 && s->has < needs) {
                s->has++;
                --*free_bytes;
        }
        return s->has == needs;
}

static void one_of_several_gets_all(void **state)
{
        enum { SIDES = 4, CARD = 100, NEEDS = 60 };

        for (uint64_t seed = 1; seed <= 200; seed++) {
                struct side s[SIDES] = {0};
                uint64_t now = NSEC_PER_SEC, free_bytes = CARD % SIDES, random = seed;
                bool done = false;

                for (unsigned i = 0; i < SIDES; i++)
                        s[i].has = CARD / SIDES;
                for (unsigned n = 0; n < 6000 && !done; n++, now += 10 * MS)
                        for (unsigned i = 0; i < SIDES && !done; i++) {
                                random = random * UINT64_C(6364136223846793005) + 1442695041;
                                done = move(&s[i], NEEDS, &free_bytes, now,
                                            (uint32_t)(random >> 32));
                        }
                assert_true(done); /* within a minute */
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_program_that_makes_progress_stays),
                cmocka_unit_test(who_moved_out_comes_back_later_each_time),
                cmocka_unit_test(without_waiting_threads_memory_stays_evicted),
                cmocka_unit_test(one_of_several_gets_all),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
