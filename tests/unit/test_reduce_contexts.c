/* test_reduce_contexts.c: the kernels that reduce belong to a context. The driver is a fake that
 * counts the modules that are loaded. */
#include "unit.h"

#include "base/macros.h"
#include "ranks/real/real_functions.h"
#include "ranks/reduce/reduce.h"

static CUcontext current = (CUcontext)(uintptr_t)0xc0;
static unsigned long long id;
static unsigned loads;
static int multiprocessors = 2;
static unsigned blocks;

static CUresult get_current(CUcontext *ret)
{
        *ret = current;
        return CUDA_SUCCESS;
}

static CUresult get_id(CUcontext context, unsigned long long *ret)
{
        assert_ptr_equal(context, current);
        *ret = id;
        return id ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult get_device(CUdevice *ret)
{
        *ret = 0;
        return CUDA_SUCCESS;
}

static CUresult get_attribute(int *ret, CUdevice_attribute attribute, CUdevice device)
{
        *ret = multiprocessors;
        return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
        return CUDA_SUCCESS;
}

static CUresult load(CUmodule *ret, const void *image)
{
        *ret = (CUmodule)(uintptr_t)++loads;
        return CUDA_SUCCESS;
}

/* A function is known by the module that it is of. */
static CUresult get_function(CUfunction *ret, CUmodule module, const char *name)
{
        *ret = (CUfunction)(void *)module;
        return CUDA_SUCCESS;
}

static CUresult launch(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                       CUstream stream, void **arguments, void **extra)
{
        assert_int_equal((uintptr_t)f, loads); /* of the module that was loaded last */
        blocks = grid_x;
        return CUDA_SUCCESS;
}

const struct real_cuda *real_cuda(void)
{
        static const struct real_cuda table = {.cuCtxGetCurrent = get_current,
                                               .cuCtxGetId = get_id,
                                               .cuCtxGetDevice = get_device,
                                               .cuDeviceGetAttribute = get_attribute,
                                               .cuThreadExchangeStreamCaptureMode = exchange_mode,
                                               .cuModuleLoadData = load,
                                               .cuModuleGetFunction = get_function,
                                               .cuLaunchKernel = launch};

        return &table;
}

/* Returns the number of modules that this reduction has loaded. */
static unsigned reduce(void)
{
        const struct reduce_op op = {.type = ncclFloat32, .divide = 1};
        const CUdeviceptr from[2] = {0x1000, 0x2000};
        const unsigned before = loads;

        assert_int_equal(reduce_launch(&op, from, 2, 0x3000, 0, 1 << 20, NULL), CUDA_SUCCESS);
        return loads - before;
}

static void kernels_are_loaded_once_for_a_context(void **state)
{
        id = 1;
        assert_int_equal(reduce(), 1);
        assert_int_equal(reduce(), 0);
}

static void a_new_context_with_the_handle_of_an_ended_one_gets_kernels_of_its_own(void **state)
{
        const unsigned few = blocks;

        id = 2;
        multiprocessors = 4;
        assert_int_equal(reduce(), 1);
        assert_int_equal(blocks, 2 * few);
        assert_int_equal(reduce(), 0);
}

static void a_driver_without_ids_tells_contexts_by_their_handles(void **state)
{
        id = 0;
        current = (CUcontext)(uintptr_t)0xc1;
        assert_int_equal(reduce(), 1);
        assert_int_equal(reduce(), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(kernels_are_loaded_once_for_a_context),
                cmocka_unit_test(
                        a_new_context_with_the_handle_of_an_ended_one_gets_kernels_of_its_own),
                cmocka_unit_test(a_driver_without_ids_tells_contexts_by_their_handles),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
