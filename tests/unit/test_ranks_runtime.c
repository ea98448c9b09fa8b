/* test_ranks_runtime.c: the runtime library, which asks for contexts that do not exist yet, knows
 * the contexts of two devices of one card once they are there. */
#include "unit.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ranks/devices/cards.h"
#include "ranks/devices/runtime.h"

/* Devices 0 and 2 are on card 0, and 1 is alone on card 1. */
#define COUNT 3
static const CUdevice card[COUNT] = {0, 1, 0};
static CUdevice first;
static unsigned ranks = COUNT, asked;
static struct identity identity;

unsigned cards_ranks(void)
{
        return ranks;
}

unsigned devices_count(void)
{
        return COUNT;
}

CUdevice devices_card(CUdevice device)
{
        return device < COUNT ? card[device] : 99;
}

bool devices_share(CUdevice a, CUdevice b)
{
        return card[a] == card[b];
}

const struct identity *devices_identity(CUdevice device)
{
        return device < COUNT ? &identity : NULL;
}

CUdevice devices_first(CUdevice device)
{
        return card[device] == 0 ? first : -1;
}

#define OF_CARD(n) ((CUcontext)(uintptr_t)(0x1000 + (n)))

static CUresult primary(CUcontext *ret, CUdevice device)
{
        asked++;
        *ret = OF_CARD(device);
        return device == 99 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

static const uintptr_t driver[5] = {sizeof(driver), 7, (uintptr_t)primary, 8, 9};
static const CUuuid id = {{(char)0x6b, (char)0xd5, (char)0xfb, (char)0x6c, (char)0x5b, (char)0xf4,
                           (char)0xe7, (char)0x4a, (char)0x89, (char)0x87, (char)0xd9, (char)0x39,
                           (char)0x12, (char)0xfd, (char)0x9d, (char)0xf9}};

static CUresult ask(CUcontext *ret, CUdevice device)
{
        const uintptr_t *table = runtime_table(&id, driver);

        return ((CUresult(*)(CUcontext *, CUdevice))table[2])(ret, device);
}

static int begin(void **state)
{
        first = -1;
        asked = 0;
        ranks = COUNT;
        return 0;
}

static void only_the_one_function_of_the_one_table_is_replaced(void **state)
{
        static const uintptr_t small[2] = {sizeof(small), 1};
        const uintptr_t *table = runtime_table(&id, driver);
        CUuuid other = id;

        assert_memory_equal(&table[3], &driver[3], 2 * sizeof(*table));
        assert_int_equal(table[0], driver[0]);
        assert_int_equal(table[1], driver[1]);
        assert_int_not_equal(table[2], driver[2]);
        other.bytes[15] ^= 1;
        assert_ptr_equal(runtime_table(&other, driver), driver);
        assert_ptr_equal(runtime_table(&id, small), small);
        ranks = 0;
        assert_ptr_equal(runtime_table(&id, driver), driver);
}

static void devices_of_one_card_have_different_contexts(void **state)
{
        CUcontext at[COUNT];

        for (CUdevice d = 0; d < COUNT; d++)
                assert_int_equal(ask(&at[d], d), CUDA_SUCCESS);
        assert_ptr_not_equal(at[0], at[2]);
        assert_true(runtime_is_name(at[0]) && runtime_is_name(at[2]));
        assert_ptr_equal(at[1], OF_CARD(1)); /* it is alone on its card */
        runtime_learn(2, OF_CARD(0));
        assert_ptr_equal(at[2], OF_CARD(0));
        assert_true(runtime_is_name(at[0]));
        runtime_learn(0, OF_CARD(5));
        runtime_learn(0, OF_CARD(6)); /* it was reset, and made again */
        assert_ptr_equal(at[0], OF_CARD(6));
        assert_ptr_equal(at[2], OF_CARD(0));
}

static void the_device_that_is_used_first_has_the_cards_context(void **state)
{
        CUcontext at;

        first = 2;
        assert_int_equal(ask(&at, 2), CUDA_SUCCESS);
        assert_ptr_equal(at, OF_CARD(0));
        assert_int_equal(ask(&at, 7), CUDA_ERROR_INVALID_DEVICE);
        assert_int_equal(asked, 2);
}

static void memory_that_holds_something_else_stays_as_it_is(void **state)
{
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        CUcontext *at =
                mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CUcontext other;

        assert_ptr_not_equal(at, MAP_FAILED);
        assert_int_equal(ask(at, 2), CUDA_SUCCESS);
        assert_int_equal(ask(&other, 2), CUDA_SUCCESS);
        other = OF_CARD(9);
        assert_int_equal(munmap(at, page), 0); /* the library was unloaded */
        runtime_learn(2, OF_CARD(0));
        assert_ptr_equal(other, OF_CARD(9));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(only_the_one_function_of_the_one_table_is_replaced, begin),
                cmocka_unit_test_setup(devices_of_one_card_have_different_contexts, begin),
                cmocka_unit_test_setup(the_device_that_is_used_first_has_the_cards_context, begin),
                cmocka_unit_test_setup(memory_that_holds_something_else_stays_as_it_is, begin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
