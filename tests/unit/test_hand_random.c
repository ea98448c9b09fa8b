/* test_hand_random.c: threads of a program make, free and switch channels, the library freezes and
 * thaws the program, and a hand takes it off the GPU and lets it run, all at the same time. While
 * one of the two holds the program, none of its channels runs; and each undoes exactly its own.
 * HAND_SEED=N: another sequence. */
#include "unit.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "hand_bench.h"

#define CLIENT  0xc1d00001u
#define GROUP   0x5c000100u
#define MAKERS  2u
#define TEST_NS (NSEC_PER_SEC / 2)
#define TIMES   20u /* least number of freezes, and of holds */

static _Atomic bool over;
static _Atomic unsigned freezes, holds, wrong;
static uint32_t first_seed;

static uint32_t draw(uint32_t *seed, uint32_t below)
{
        *seed = *seed * 1664525u + 1013904223u;
        return (*seed >> 8) % below;
}

static void nap_us(uint32_t us)
{
        const struct timespec nap = {.tv_nsec = us * NSEC_PER_USEC};

        if (us > 0)
                (void)nanosleep(&nap, NULL);
}

/* cmocka counts a failure only in the thread that runs the test. */
static void expect(bool right, const char *what)
{
        if (!right && atomic_fetch_add(&wrong, 1) < 5)
                print_error("%s\n", what);
}

static void make_group(int fd, uint32_t client, uint32_t group, uint32_t *seed)
{
        const uint32_t engine = 1 + draw(seed, 2) * 10, channels = draw(seed, 12);

        (void)made(fd, client, DEVICE, group, 0xa06c, engine);
        for (uint32_t i = 0; i < channels; i++)
                (void)made(fd, client, group, group + 1 + i, CHANNEL, 0);
}

static void make_client(int fd, uint32_t client)
{
        (void)made(fd, 0, 0, client, 0x41, 0);
        (void)made(fd, client, client, DEVICE, 0x80, 0);
        (void)made(fd, client, DEVICE, SUBDEVICE, 0x2080, 0);
}

/* A thread of the program, with handles of its own. */
static void *makes_and_frees(void *argument)
{
        const uint32_t number = (uint32_t)(uintptr_t)argument, client = CLIENT + number;
        const int fd = 5 + (int)number;
        uint32_t seed = first_seed + number;

        rm_make_for(CHANNELS_PROGRAM);
        while (!over) {
                const uint32_t group = GROUP + draw(&seed, 4) * 0x100,
                               channel = group + 1 + draw(&seed, 12);

                if (!rm_has(client, group))
                        make_group(fd, client, group, &seed);
                else if (draw(&seed, 3) == 0)
                        (void)freed(fd, client, draw(&seed, 2) ? group : channel);
                else if (draw(&seed, 2))
                        (void)made(fd, client, group, group + 0x20 + draw(&seed, 8), CHANNEL, 0);
                else if (rm_has(client, channel) &&
                         libcuda_controls(fd, client, channel, draw(&seed, 2)) == 0)
                        for (unsigned i = 0; i < 2; i++)
                                (void)libcuda_controls(fd, client, channel, false);
                if (draw(&seed, 64) == 0) {
                        (void)freed(fd, client, client);
                        make_client(fd, client);
                }
                nap_us(draw(&seed, 8) ? 0 : draw(&seed, 100));
        }
        return NULL;
}

/* The agent's thread. */
static void *freezes_and_thaws(void *unused)
{
        uint32_t seed = first_seed + 100;

        while (!over) {
                rm_hand_ready(true);
                if (rm_freeze() == 0) {
                        freezes++;
                        for (unsigned i = 0; i < 4; i++) {
                                expect(rm_running_told() == 0, "a channel runs in a freeze");
                                nap_us(draw(&seed, 200));
                        }
                }
                expect(rm_thaw() == 0, "a thaw fails");
                nap_us(draw(&seed, 300));
        }
        return NULL;
}

/* RM has counted a call of the hand's in part, and the hand is killed. */
static void die_within_a_call(void)
{
        const uint32_t of[] = {CLIENT, CLIENT, CLIENT}, list[] = {GROUP + 1, GROUP + 2, 77};

        bench_page->busy = 1;
        (void)rm_of_the_hand(3, of, list, true);
        bench_hand_dies();
}

static void takes_and_lets_go(bool dies)
{
        const uint64_t until_ns = clock_now_ns() + TEST_NS;
        uint32_t seed = first_seed + 200;

        while (clock_now_ns() < until_ns || freezes < TIMES || holds < TIMES) {
                if (bench_page->ready) {
                        expect(bench_hand_off() == 0, "the hand cannot take the program");
                        holds++;
                        for (unsigned i = 0; i < 4; i++) {
                                expect(rm_running_told() == 0, "a channel runs in a hold");
                                nap_us(draw(&seed, 200));
                        }
                }
                if (dies && bench_page->ready && draw(&seed, 4) == 0) {
                        if (draw(&seed, 2))
                                die_within_a_call();
                        else
                                bench_hand_dies();
                        assert_true(bench_hand_offered());
                } else {
                        expect(bench_hand_on() == 0, "the hand cannot let the program run");
                }
                nap_us(draw(&seed, 300));
        }
}

static void run_all(bool dies)
{
        pthread_t makers[MAKERS], freezer;

        over = false;
        freezes = holds = wrong = 0;
        print_message("seed %u\n", first_seed);
        for (uint32_t i = 0; i < MAKERS; i++)
                made_client(5 + (int)i, CLIENT + i);
        bench_proved = (struct hand_clients){MAKERS, {CLIENT, CLIENT + 1}};
        assert_true(bench_hand_offered());
        for (uintptr_t i = 0; i < MAKERS; i++)
                assert_int_equal(pthread_create(&makers[i], NULL, makes_and_frees, (void *)i), 0);
        assert_int_equal(pthread_create(&freezer, NULL, freezes_and_thaws, NULL), 0);
        takes_and_lets_go(dies);
        over = true;
        for (unsigned i = 0; i < MAKERS; i++)
                assert_int_equal(pthread_join(makers[i], NULL), 0);
        assert_int_equal(pthread_join(freezer, NULL), 0);
        assert_int_equal(wrong, 0);
        assert_int_equal(rm_counted(), 0);
        assert_int_equal(rm_standing(), 0);
        assert_int_equal(rm_channels(), rm_known());
}

static void neither_undoes_what_the_other_has_done(void **state)
{
        run_all(false);
        assert_int_equal(rm_bench.too_many, 0);
}

static void a_hand_that_dies_takes_nothing_with_it(void **state)
{
        run_all(true);
}

static int begin(void **state)
{
        const char *seed = getenv("HAND_SEED");

        first_seed = seed ? (uint32_t)strtoul(seed, NULL, 10) : 1;
        return begin_rm(state);
}

static int end(void **state)
{
        if (bench_page)
                bench_hand_dies();
        return end_rm(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(neither_undoes_what_the_other_has_done),
                TEST(a_hand_that_dies_takes_nothing_with_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
