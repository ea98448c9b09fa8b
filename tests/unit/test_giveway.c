/* test_giveway.c: if several programs each have only a part of their memory, some give way and one
 * gets all of its memory, whatever random numbers are drawn. */
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

/* The time away begins when all memory is out. It doubles each time, up to 16 s. */
static void a_program_stays_away_longer_each_time_it_gives_way(void **state)
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

/* When the first thread waits, the program comes back at once, without the rest of a pause. */
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

/* Plays 10 ms of one program: it takes or gives back the bytes that the bus moves in that time. */
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

static void one_of_several_programs_gets_all_its_memory(void **state)
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
                assert_true(done); /* one program got all its memory within a minute */
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_program_that_makes_progress_stays),
                cmocka_unit_test(a_program_stays_away_longer_each_time_it_gives_way),
                cmocka_unit_test(without_waiting_threads_memory_stays_evicted),
                cmocka_unit_test(one_of_several_programs_gets_all_its_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
