/* test_unevictable.c: unevictable memory is counted before it is made and until it is gone; room
 * for a call of the driver is returned whether it was enough or not. */
#include "unit.h"

#include <errno.h>

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/move/unevictable.h"

#define OWNER   ((CUcontext)(uintptr_t)0x1000)
#define ANOTHER ((CUcontext)(uintptr_t)0x2000)
#define HANDLES 3000u /* several in each bucket */

static struct gpu *const gpu = &core.gpus[0];
static uint64_t now_ns;

int clock_gettime(clockid_t which, struct timespec *ret)
{
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

static int begin(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 2};
        gpu->context_bytes = 300 * MIB;
        now_ns = 1000 * NSEC_PER_SEC;
        unevictable_room = GIB;
        unevictable_asks = 0;
        lock_acquire(&core_lock); /* as the callers of these functions do */
        return 0;
}

static const void *handle(unsigned i)
{
        return (const void *)(uintptr_t)(0x10000 + 16u * i);
}

static void unevictable_memory_counts_until_it_is_gone(void **state)
{
        for (unsigned i = 0; i < HANDLES; i++) {
                struct unevictable *f = unevictable_ask(gpu, OWNER, i);

                assert_non_null(f);
                unevictable_list(f, handle(i));
        }
        assert_int_equal(gpu->unevictable, (uint64_t)HANDLES * (HANDLES - 1) / 2);
        assert_null(unevictable_unlist(handle(HANDLES)));
        for (unsigned i = 0; i < HANDLES; i++) {
                uint64_t before = gpu->unevictable;
                struct unevictable *f = unevictable_unlist(handle(i));

                assert_non_null(f);
                /* The driver may give the handle's value to a new object. */
                assert_null(unevictable_unlist(handle(i)));
                assert_int_equal(gpu->unevictable, before);
                unevictable_return(f);
                assert_int_equal(gpu->unevictable, before - i);
        }
        assert_int_equal(gpu->unevictable, 0);
}

static void unevictable_memory_without_room_is_refused(void **state)
{
        unevictable_room = 5 * MIB;
        assert_null(unevictable_ask(gpu, OWNER, 6 * MIB));
        assert_int_equal(gpu->unevictable, 0);
        unevictable_list(NULL, handle(1)); /* nothing to count */
        assert_null(unevictable_unlist(handle(1)));
        unevictable_return(NULL);
}

static void unevictable_memory_of_a_context_ends_with_it(void **state)
{
        for (unsigned i = 0; i < HANDLES; i++)
                unevictable_list(unevictable_ask(gpu, i % 3 ? OWNER : ANOTHER, 10), handle(i));
        assert_int_equal(unevictable_forget_context(OWNER), HANDLES / 3 * 2 * 10);
        assert_int_equal(gpu->unevictable, HANDLES * 10); /* the caller returns the bytes */
        assert_int_equal(unevictable_forget_context(OWNER), 0);
        assert_null(unevictable_unlist(handle(1)));
        assert_int_equal(unevictable_forget_context(ANOTHER), HANDLES / 3 * 10);
        assert_null(unevictable_unlist(handle(0)));
        assert_int_equal(unevictable_forget_context(ANOTHER), 0);
}

/* The driver does not say how much memory it lacks. */
static void room_for_a_call_grows_fourfold(void **state)
{
        uint64_t mine = 0;

        assert_int_equal(unevictable_ask_room(gpu, &mine), 0);
        assert_int_equal(mine, 150 * MIB); /* half of a context */
        assert_int_equal(unevictable_ask_room(gpu, &mine), 0);
        assert_int_equal(mine, 600 * MIB);
        assert_int_equal(gpu->unevictable, 600 * MIB);
        assert_int_equal(gpu->unevictable_room, 600 * MIB);
        unevictable_return_room(gpu, &mine);
        assert_int_equal(mine + gpu->unevictable + gpu->unevictable_room, 0);
        gpu->context_bytes = 0;
        assert_int_equal(unevictable_ask_room(gpu, &mine), 0);
        assert_int_equal(mine, 32 * MIB);
        unevictable_return_room(gpu, &mine);
}

static void requests_for_room_shrink_to_a_sixteenth_and_no_further(void **state)
{
        uint64_t mine = 0;

        unevictable_room = 10 * MIB; /* a sixteenth of 150 MiB is less */
        assert_int_equal(unevictable_ask_room(gpu, &mine), 0);
        assert_int_equal(mine, 150 * MIB / 16);
        assert_int_equal(unevictable_asks, 5);
        unevictable_return_room(gpu, &mine);
        unevictable_room = 9 * MIB;
        unevictable_asks = 0;
        assert_int_equal(unevictable_ask_room(gpu, &mine), -ENOMEM);
        assert_int_equal(unevictable_asks, 5);
        assert_int_equal(mine + gpu->unevictable + gpu->unevictable_room, 0);
}

/* After a while the daemon has measured the bytes that the call left in use. */
static void room_for_a_call_is_returned_after_a_while(void **state)
{
        struct gpu *other = &core.gpus[1];
        uint64_t mine = 0, others = 0;

        assert_int_equal(unevictable_tend(now_ns), UINT64_MAX);
        assert_int_equal(unevictable_ask_room(gpu, &mine), 0);
        now_ns += NSEC_PER_SEC;
        assert_int_equal(unevictable_ask_room(other, &others), 0);
        assert_int_equal(unevictable_tend(now_ns), 5 * NSEC_PER_SEC);
        now_ns += 5 * NSEC_PER_SEC - 1;
        assert_int_equal(unevictable_tend(now_ns), 1);
        assert_int_equal(gpu->unevictable, mine);
        now_ns++;
        assert_int_equal(unevictable_tend(now_ns), NSEC_PER_SEC);
        assert_int_equal(gpu->unevictable + gpu->unevictable_room, 0);
        assert_int_equal(other->unevictable, others);
        unevictable_return_room(gpu, &mine); /* returned only once */
        assert_int_equal(gpu->unevictable + mine, 0);
        assert_int_equal(unevictable_tend(now_ns + NSEC_PER_SEC), UINT64_MAX);
        assert_int_equal(other->unevictable, 0);
}

#define UNEVICTABLE_TEST(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNEVICTABLE_TEST(unevictable_memory_counts_until_it_is_gone),
                UNEVICTABLE_TEST(unevictable_memory_without_room_is_refused),
                UNEVICTABLE_TEST(unevictable_memory_of_a_context_ends_with_it),
                UNEVICTABLE_TEST(room_for_a_call_grows_fourfold),
                UNEVICTABLE_TEST(requests_for_room_shrink_to_a_sixteenth_and_no_further),
                UNEVICTABLE_TEST(room_for_a_call_is_returned_after_a_while),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
