/* cuda_pointer.h: which attributes of an address exist, and how many bytes the driver writes for
 * each. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cuda/cuda_abi.h"

#define POINTER_ATTRIBUTES (CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE + 1)

static inline bool pointer_attribute_exists(CUpointer_attribute which)
{
        return which >= CU_POINTER_ATTRIBUTE_CONTEXT && which < POINTER_ATTRIBUTES;
}

static inline void pointer_attribute_write(void *data, CUpointer_attribute which, uint64_t value)
{
        static const bool narrow[POINTER_ATTRIBUTES] = {
                [CU_POINTER_ATTRIBUTE_MEMORY_TYPE] = true,
                [CU_POINTER_ATTRIBUTE_SYNC_MEMOPS] = true,
                [CU_POINTER_ATTRIBUTE_IS_MANAGED] = true,
                [CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL] = true,
                [CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE] = true,
                [CU_POINTER_ATTRIBUTE_MAPPED] = true,
                [CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE] = true,
                [CU_POINTER_ATTRIBUTE_ACCESS_FLAGS] = true,
                [CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE] = true,
        };
        const uint32_t low = (uint32_t)value;

        if (narrow[which])
                memcpy(data, &low, sizeof(low));
        else
                memcpy(data, &value, sizeof(value));
}
