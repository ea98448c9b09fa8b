/* function.c: attributes and occupancy of kernels. */
#include <string.h>

#include "base/macros.h"
#include "sim/kernel/launch.h"
#include "sim/kernel/module.h"
#include "sim/queue/work.h"

#define SHARED_OPTIN  232448
#define SHARED_OF_SM  233472
#define THREADS_OF_SM 2048
#define BLOCKS_OF_SM  32

size_t function_parameter_bytes(CUfunction f)
{
        return f->info->parameter_bytes;
}

CUresult function_resolve(CUcontext c, CUfunction handle, CUfunction *ret_function)
{
        if (!handle)
                return CUDA_ERROR_INVALID_HANDLE;
        if (handle->magic == MAGIC_KERNEL)
                return kernel_function(c, (CUkernel)(void *)handle, ret_function);
        if (handle->magic != MAGIC_FUNCTION)
                return CUDA_ERROR_INVALID_HANDLE;
        *ret_function = handle;
        return CUDA_SUCCESS;
}

static CUresult function_enter(const char *name, CUfunction *func)
{
        CUcontext c;
        CUresult r = api_enter(name, API_CONTEXT, &c);

        return r != CUDA_SUCCESS ? r : function_resolve(c, *func, func);
}

EXPORT CUresult cuFuncGetAttribute(int *ret_value, CUfunction_attribute attribute, CUfunction func)
{
        CUresult r = function_enter(__func__, &func);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_value || (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX)
                return CUDA_ERROR_INVALID_VALUE;
        switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
                *ret_value = (int)func->info->max_threads;
                break;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
                *ret_value = (int)func->info->static_shared_bytes;
                break;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
                *ret_value = (int)func->info->local_bytes;
                break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS:
                *ret_value = 32;
                break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
                *ret_value = 90;
                break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
                *ret_value = func->dynamic_shared_most;
                break;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
                *ret_value = func->carveout;
                break;
        default:
                *ret_value = 0;
        }
        return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction func, CUfunction_attribute attribute, int value)
{
        CUresult r = function_enter(__func__, &func);

        if (r != CUDA_SUCCESS)
                return r;
        if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
                if (value < 0 || (unsigned)value + func->info->static_shared_bytes > SHARED_OPTIN)
                        return CUDA_ERROR_INVALID_VALUE;
                func->dynamic_shared_most = value;
        } else if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
                func->carveout = value;
        } else {
                return CUDA_ERROR_INVALID_VALUE;
        }
        return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetCacheConfig(CUfunction func, CUfunc_cache config)
{
        return function_enter(__func__, &func);
}

EXPORT CUresult cuFuncGetModule(CUmodule *module, CUfunction func)
{
        CUresult r = function_enter(__func__, &func);

        if (r != CUDA_SUCCESS)
                return r;
        if (!module)
                return CUDA_ERROR_INVALID_VALUE;
        *module = func->module;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction func)
{
        CUresult r = function_enter(__func__, &func);

        if (r != CUDA_SUCCESS)
                return r;
        if (!name)
                return CUDA_ERROR_INVALID_VALUE;
        *name = func->info->name;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction func, size_t param_index, size_t *param_offset,
                                   size_t *param_size)
{
        CUresult r = function_enter(__func__, &func);

        if (r != CUDA_SUCCESS)
                return r;
        if (!param_offset || param_index >= func->info->parameters)
                return CUDA_ERROR_INVALID_VALUE;
        *param_offset = func->info->parameter[param_index].offset;
        if (param_size)
                *param_size = func->info->parameter[param_index].bytes;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!function || function->magic != MAGIC_FUNCTION) /* a kernel's handle, for example */
                return CUDA_ERROR_INVALID_HANDLE;
        if (!state)
                return CUDA_ERROR_INVALID_VALUE;
        *state = CU_FUNCTION_LOADING_STATE_LOADED;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncLoad(CUfunction function)
{
        return function_enter(__func__, &function);
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *block_count,
                                                                     CUfunction func,
                                                                     int block_size,
                                                                     size_t dynamic_smem_size,
                                                                     unsigned int flags)
{
        CUresult r = function_enter(__func__, &func);
        size_t shared;
        int blocks;

        if (r != CUDA_SUCCESS)
                return r;
        if (!block_count || block_size <= 0)
                return CUDA_ERROR_INVALID_VALUE;
        shared = func->info->static_shared_bytes + dynamic_smem_size;
        blocks = MIN(THREADS_OF_SM / (int)align_up((uint64_t)block_size, 32), BLOCKS_OF_SM);
        if (shared)
                blocks = MIN(blocks, (int)(SHARED_OF_SM / (shared + 1024)));
        *block_count = (unsigned)block_size > func->info->max_threads ? 0 : blocks;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *block_count, CUfunction func,
                                                            int block_size,
                                                            size_t dynamic_smem_size)
{
        return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(block_count, func, block_size,
                                                                    dynamic_smem_size, 0);
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(
        int *min_grid_size, int *block_size, CUfunction func,
        CUoccupancyB2DSize block_size_to_dynamic_smem_size, size_t dynamic_smem_size,
        int block_size_limit, unsigned int flags)
{
        CUresult r = function_enter(__func__, &func);
        int best = 0, most = 0;

        if (r != CUDA_SUCCESS)
                return r;
        if (!min_grid_size || !block_size)
                return CUDA_ERROR_INVALID_VALUE;
        if (block_size_limit <= 0 || (unsigned)block_size_limit > func->info->max_threads)
                block_size_limit = (int)func->info->max_threads;
        /* Find the block size that keeps most threads of a multiprocessor busy. */
        for (int size = block_size_limit / 32 * 32; size > 0; size -= 32) {
                size_t shared = block_size_to_dynamic_smem_size
                                        ? block_size_to_dynamic_smem_size(size)
                                        : dynamic_smem_size;
                int blocks = 0;

                r = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, func, size, shared);
                if (r != CUDA_SUCCESS)
                        return r;
                if (blocks * size > most) {
                        most = blocks * size;
                        best = size;
                }
        }
        *block_size = best;
        *min_grid_size = best ? most / best * DEVICE_PROCESSORS : 0;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *min_grid_size, int *block_size,
                                                 CUfunction func,
                                                 CUoccupancyB2DSize block_size_to_dynamic_smem_size,
                                                 size_t dynamic_smem_size, int block_size_limit)
{
        return cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid_size, block_size, func,
                                                         block_size_to_dynamic_smem_size,
                                                         dynamic_smem_size, block_size_limit, 0);
}
