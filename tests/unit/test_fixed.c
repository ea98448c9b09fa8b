/* test_fixed.c: what cannot be moved is counted from before it is made until it is gone, and room
 * for a call of the driver's own goes back whether it was enough or not. */
#include "unit.h"

#include <errno.h>

#include "base/macros.h"
#include "fakes/neighbours.h"
#include "preload/move/fixed.h"
#include "preload/state/request.h"

#define OWNER   ((CUcontext)(uintptr_t)0x1000)
#define ANOTHER ((CUcontext)(uintptr_t)0x2000)
#define HANDLES 3000u /* several in each bucket */

static struct gpu *const gpu = &core.gpus[0];
static uint64_t now_ns, room; /* that can be had */
static unsigned asks;

int clock_gettime(clockid_t which, struct timespec *ret)
{
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

int request_fixed(struct gpu *g, uint64_t more)
{
        asks++;
        if (g->fixed + more > room)
                return -ENOMEM;
        g->fixed += more;
        return 0;
}

static int begin(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 2};
        gpu->context_bytes = 300 * MIB;
        now_ns = 1000 * NSEC_PER_SEC;
        room = GIB;
        asks = 0;
        return 0;
}

static const void *handle(unsigned i)
{
        return (const void *)(uintptr_t)(0x10000 + 16u * i);
}

static void what_is_made_counts_until_it_is_gone(void **state)
{
        for (unsigned i = 0; i < HANDLES; i++) {
                struct fixed *f = fixed_ask(gpu, OWNER, i);

                assert_non_null(f);
                fixed_list(f, handle(i));
        }
        assert_int_equal(gpu->fixed, (uint64_t)HANDLES * (HANDLES - 1) / 2);
        assert_null(fixed_unlist(handle(HANDLES)));
        for (unsigned i = 0; i < HANDLES; i++) {
                uint64_t before = gpu->fixed;
                struct fixed *f = fixed_unlist(handle(i));

                assert_non_null(f);
                assert_null(fixed_unlist(handle(i))); /* the driver may give it to somebody else */
                assert_int_equal(gpu->fixed, before);
                fixed_return(f);
                assert_int_equal(gpu->fixed, before - i);
        }
        assert_int_equal(gpu->fixed, 0);
}

static void what_there_is_no_room_for_is_not_made(void **state)
{
        room = 5 * MIB;
        assert_null(fixed_ask(gpu, OWNER, 6 * MIB));
        assert_int_equal(gpu->fixed, 0);
        fixed_list(NULL, handle(1)); /* nothing to count */
        assert_null(fixed_unlist(handle(1)));
        fixed_return(NULL);
}

static void what_belongs_to_a_context_ends_with_it(void **state)
{
        for (unsigned i = 0; i < HANDLES; i++)
                fixed_list(fixed_ask(gpu, i % 3 ? OWNER : ANOTHER, 10), handle(i));
        assert_int_equal(fixed_forget_context(OWNER), HANDLES / 3 * 2 * 10);
        assert_int_equal(gpu->fixed, HANDLES * 10); /* the caller gives it back */
        assert_int_equal(fixed_forget_context(OWNER), 0);
        assert_null(fixed_unlist(handle(1)));
        assert_int_equal(fixed_forget_context(ANOTHER), HANDLES / 3 * 10);
        assert_null(fixed_unlist(handle(0)));
        assert_int_equal(fixed_forget_context(ANOTHER), 0);
}

/* The driver does not say how much it lacks. */
static void room_for_a_call_grows_fourfold(void **state)
{
        uint64_t mine = 0;

        assert_int_equal(fixed_ask_room(gpu, &mine), 0);
        assert_int_equal(mine, 150 * MIB); /* half of a context */
        assert_int_equal(fixed_ask_room(gpu, &mine), 0);
        assert_int_equal(mine, 600 * MIB);
        assert_int_equal(gpu->fixed, 600 * MIB);
        assert_int_equal(gpu->fixed_room, 600 * MIB);
        fixed_return_room(gpu, &mine);
        assert_int_equal(mine + gpu->fixed + gpu->fixed_room, 0);
        gpu->context_bytes = 0;
        assert_int_equal(fixed_ask_room(gpu, &mine), 0);
        assert_int_equal(mine, 32 * MIB);
        fixed_return_room(gpu, &mine);
}

static void the_last_of_the_card_counts_but_a_step_a_byte_does_not(void **state)
{
        uint64_t mine = 0;

        room = 10 * MIB; /* a sixteenth of 150 MiB is less */
        assert_int_equal(fixed_ask_room(gpu, &mine), 0);
        assert_int_equal(mine, 150 * MIB / 16);
        assert_int_equal(asks, 5);
        fixed_return_room(gpu, &mine);
        room = 9 * MIB;
        asks = 0;
        assert_int_equal(fixed_ask_room(gpu, &mine), -ENOMEM);
        assert_int_equal(asks, 5);
        assert_int_equal(mine + gpu->fixed + gpu->fixed_room, 0);
}

/* The daemon has measured by then what came of it. */
static void room_for_a_call_goes_back_after_a_while(void **state)
{
        struct gpu *other = &core.gpus[1];
        uint64_t mine = 0, others = 0;

        assert_int_equal(fixed_tend(now_ns), UINT64_MAX);
        assert_int_equal(fixed_ask_room(gpu, &mine), 0);
        now_ns += NSEC_PER_SEC;
        assert_int_equal(fixed_ask_room(other, &others), 0);
        assert_int_equal(fixed_tend(now_ns), 5 * NSEC_PER_SEC);
        now_ns += 5 * NSEC_PER_SEC - 1;
        assert_int_equal(fixed_tend(now_ns), 1);
        assert_int_equal(gpu->fixed, mine);
        now_ns++;
        assert_int_equal(fixed_tend(now_ns), NSEC_PER_SEC);
        assert_int_equal(gpu->fixed + gpu->fixed_room, 0);
        assert_int_equal(other->fixed, others);
        fixed_return_room(gpu, &mine); /* not twice */
        assert_int_equal(gpu->fixed + mine, 0);
        assert_int_equal(fixed_tend(now_ns + NSEC_PER_SEC), UINT64_MAX);
        assert_int_equal(other->fixed, 0);
}

#define FIXED_TEST(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
        const struct CMUnitTest tests[] = {
                FIXED_TEST(what_is_made_counts_until_it_is_gone),
                FIXED_TEST(what_there_is_no_room_for_is_not_made),
                FIXED_TEST(what_belongs_to_a_context_ends_with_it),
                FIXED_TEST(room_for_a_call_grows_fourfold),
                FIXED_TEST(the_last_of_the_card_counts_but_a_step_a_byte_does_not),
                FIXED_TEST(room_for_a_call_goes_back_after_a_while),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
