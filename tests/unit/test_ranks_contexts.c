/* test_ranks_contexts.c: two devices of one card have primary contexts of their own, and contexts,
 * handles and addresses are told apart. */
#include "unit.h"

#include <stdlib.h>

#include "ranks/devices/contexts.h"
#include "ranks/devices/runtime.h"

/* Devices 0 to 3 are on card 0. */
static CUdevice first;
static bool several;
static struct identity identity;
static unsigned created, destroyed, retained, released, last_flags;
static CUcontext current, of_pointer;

bool devices_several(CUdevice card)
{
        return several && card == 0;
}

CUdevice devices_of_card(CUdevice card)
{
        return card == 0 ? first : card;
}

CUdevice devices_card(CUdevice device)
{
        return device < 4 ? 0 : 99;
}

const struct identity *devices_identity(CUdevice device)
{
        return device < 4 ? &identity : NULL;
}

CUdevice devices_first(CUdevice device)
{
        return first;
}

bool devices_use(CUdevice device)
{
        if (first < 0)
                first = device;
        several |= device != first;
        return device == first;
}

void runtime_learn(CUdevice device, CUcontext ctx)
{
}

#define CTX(n) ((CUcontext)(uintptr_t)(0x1000 + 16 * (n)))

static CUresult create(CUcontext *ret, unsigned flags, CUdevice device)
{
        assert_int_equal(device, 0);
        last_flags = flags;
        current = *ret = CTX(++created);
        return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret)
{
        *ret = current;
        current = NULL;
        return CUDA_SUCCESS;
}

static CUresult destroy(CUcontext ctx)
{
        destroyed++;
        return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *ret, CUdevice device)
{
        retained++;
        *ret = CTX(0);
        return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult release(CUdevice device)
{
        released++;
        return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult set_flags(CUdevice device, unsigned flags)
{
        last_flags = flags;
        return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ret)
{
        *ret = current;
        return CUDA_SUCCESS;
}

static CUresult get_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
        assert_int_equal(attribute, CU_POINTER_ATTRIBUTE_CONTEXT);
        *(CUcontext *)data = of_pointer;
        return CUDA_SUCCESS;
}

const struct real_cuda *real_cuda(void)
{
        static const struct real_cuda driver = {
                .cuCtxCreate_v2 = create,
                .cuCtxPopCurrent_v2 = pop,
                .cuCtxDestroy_v2 = destroy,
                .cuDevicePrimaryCtxRetain = retain,
                .cuDevicePrimaryCtxRelease_v2 = release,
                .cuDevicePrimaryCtxSetFlags_v2 = set_flags,
                .cuCtxGetCurrent = get_current,
                .cuPointerGetAttribute = get_attribute,
        };

        return &driver;
}

static int begin(void **state)
{
        first = -1;
        several = false;
        created = destroyed = retained = released = last_flags = 0;
        current = of_pointer = NULL;
        return 0;
}

static void the_first_device_has_the_cards_context_and_another_one_its_own(void **state)
{
        CUcontext a, b, again;
        unsigned flags = 9;
        int active = 9;

        assert_int_equal(primary_set_flags(2, 4), CUDA_SUCCESS);
        assert_int_equal(primary_set_flags(3, 8), CUDA_SUCCESS);
        assert_int_equal(primary_retain(&a, 2), CUDA_SUCCESS);
        assert_ptr_equal(a, CTX(0));
        assert_int_equal(last_flags, 4);
        assert_int_equal(primary_get_state(3, &flags, &active), CUDA_SUCCESS);
        assert_int_equal(flags, 8);
        assert_int_equal(active, 0);

        current = a;
        assert_int_equal(primary_retain(&b, 3), CUDA_SUCCESS);
        assert_ptr_not_equal(b, a);
        assert_int_equal(last_flags, 8);
        assert_int_equal(primary_retain(&again, 3), CUDA_SUCCESS);
        assert_ptr_equal(again, b);
        assert_int_equal(created, 1);
        assert_int_equal(contexts_device_of_context(a, 0), 2);
        assert_int_equal(contexts_device_of_context(b, 0), 3);
        current = b;
        assert_int_equal(contexts_device_of_context(NULL, 0), 3);

        assert_int_equal(primary_release(3), CUDA_SUCCESS);
        assert_int_equal(destroyed, 0);
        assert_int_equal(primary_get_state(3, &flags, &active), CUDA_SUCCESS);
        assert_int_equal(active, 1);
        assert_int_equal(primary_release(3), CUDA_SUCCESS);
        assert_int_equal(destroyed, 1);
        assert_int_equal(primary_release(3), CUDA_ERROR_INVALID_CONTEXT);
        assert_int_equal(primary_release(2), CUDA_SUCCESS);
        assert_int_equal(released, 1);
        assert_int_equal(primary_retain(&b, 9), CUDA_ERROR_INVALID_DEVICE);
}

static void a_reset_ends_the_context_however_often_it_was_retained(void **state)
{
        CUcontext a, b, c;

        assert_int_equal(primary_retain(&a, 0), CUDA_SUCCESS);
        assert_int_equal(primary_retain(&b, 1), CUDA_SUCCESS);
        assert_int_equal(primary_retain(&b, 1), CUDA_SUCCESS);
        assert_int_equal(primary_reset(1), CUDA_SUCCESS);
        assert_int_equal(destroyed, 1);
        assert_int_equal(contexts_device_of_context(b, 0), 0); /* forgotten */
        assert_int_equal(primary_retain(&c, 1), CUDA_SUCCESS);
        assert_ptr_not_equal(c, b);
        assert_int_equal(primary_reset(1), CUDA_SUCCESS);
        assert_int_equal(primary_reset(1), CUDA_SUCCESS);
        assert_int_equal(destroyed, 2);
}

static void mapped_addresses_belong_to_the_device_of_their_handle(void **state)
{
        static const char handle[3];

        first = 0;
        several = true;
        contexts_own(&handle[1], 1);
        contexts_own(&handle[2], 2);
        contexts_map(&handle[0], 0x0000, 0x1000); /* the first device's */
        contexts_map(&handle[1], 0x1000, 0x1000);
        contexts_map(&handle[1], 0x2000, 0x2000); /* joins the range before it */
        contexts_map(&handle[2], 0x4000, 0x1000);
        contexts_disown(&handle[1]); /* released while it is mapped */
        assert_int_equal(contexts_device_of_address(0x0fff, 0), 0);
        assert_int_equal(contexts_device_of_address(0x1000, 0), 1);
        assert_int_equal(contexts_device_of_address(0x3fff, 0), 1);
        assert_int_equal(contexts_device_of_address(0x4000, 0), 2);
        assert_int_equal(contexts_device_of_address(0x5000, 0), 0);
        contexts_unmap(0x2000, 0x1000); /* out of the middle */
        assert_int_equal(contexts_device_of_address(0x1fff, 0), 1);
        assert_int_equal(contexts_device_of_address(0x2000, 0), 0);
        assert_int_equal(contexts_device_of_address(0x3000, 0), 1);
        contexts_unmap(0x3000, 0x1800); /* one end of a range, and a part of the next one */
        assert_int_equal(contexts_device_of_address(0x3fff, 0), 0);
        assert_int_equal(contexts_device_of_address(0x47ff, 0), 0);
        assert_int_equal(contexts_device_of_address(0x4800, 0), 2);
        contexts_unmap(0, 0x10000);
        assert_int_equal(contexts_device_of_address(0x1000, 0), 0);
        assert_int_equal(contexts_device_of_address(0x4800, 0), 0);
        contexts_disown(&handle[2]);
}

static void other_addresses_belong_to_the_device_of_their_context(void **state)
{
        first = 0;
        several = true;
        contexts_own(CTX(7), 3);
        of_pointer = CTX(7);
        assert_int_equal(contexts_device_of_address(0x9000, 0), 3);
        contexts_copy_owner(CTX(7), CTX(8));
        contexts_disown(CTX(7));
        assert_int_equal(contexts_device_of_address(0x9000, 0), 0);
        of_pointer = CTX(8);
        assert_int_equal(contexts_device_of_address(0x9000, 0), 3);
        several = false; /* then nothing is looked up */
        assert_int_equal(contexts_device_of_address(0x9000, 0), 0);
        contexts_disown(CTX(8));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(
                        the_first_device_has_the_cards_context_and_another_one_its_own, begin),
                cmocka_unit_test_setup(a_reset_ends_the_context_however_often_it_was_retained,
                                       begin),
                cmocka_unit_test_setup(mapped_addresses_belong_to_the_device_of_their_handle,
                                       begin),
                cmocka_unit_test_setup(other_addresses_belong_to_the_device_of_their_context,
                                       begin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
