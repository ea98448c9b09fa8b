/* oom: allocates until the card is full, twice, and compares the driver's figures with its own:
 * the free bytes fall by the allocated bytes, an allocation is refused only when no block is free,
 * and all bytes are free again after the frees. */
#include <stdlib.h>

#include "base/macros.h"
#include "program.h"

enum { BLOCKS_MAX = 1 << 20 };

static void info(uint64_t *ret_free, uint64_t *ret_total)
{
        size_t free_bytes, total_bytes;

        TRY(cu.MemGetInfo(&free_bytes, &total_bytes));
        if (free_bytes > total_bytes)
                program_fail(PROGRAM_EXIT_WRONG, "more free than there is");
        *ret_free = free_bytes;
        *ret_total = total_bytes;
}

int main(int argc, char **argv)
{
        uint64_t total, total_before, free_before, free_now, slack, block;
        size_t device_total;
        CUdeviceptr *at = malloc(BLOCKS_MAX * sizeof(*at));
        CUdevice device;

        program_begin(argc, argv, &(struct options){.block = 4 * MIB, .rounds = 2}, false);
        if (!at)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        TRY(cu.DeviceGet(&device, 0));
        TRY(cu.DeviceTotalMem(&device_total, device));
        info(&free_before, &total_before);
        if (device_total != total_before)
                program_fail(PROGRAM_EXIT_WRONG, "cuDeviceTotalMem and cuMemGetInfo differ");
        block = options.block;
        /* Bytes that the driver may round up or keep for itself. */
        slack = MAX(total_before / 64, 4 * MIB);
        for (uint64_t round = 0; program_more(round); round++) {
                uint64_t taken = 0;
                CUresult r = CUDA_SUCCESS;
                size_t n = 0;

                while (n < BLOCKS_MAX) {
                        r = cu.MemAlloc(&at[n], block);
                        if (r != CUDA_SUCCESS)
                                break;
                        TRY(cu.MemsetD8(at[n], (unsigned char)n, block));
                        n++;
                        taken += block;
                }
                if (r != CUDA_ERROR_OUT_OF_MEMORY)
                        program_fail(PROGRAM_EXIT_WRONG, "error %d, not out of memory", (int)r);
                info(&free_now, &total);
                if (total != total_before)
                        program_fail(PROGRAM_EXIT_WRONG, "the card changed its size");
                if (free_now > block + slack)
                        program_fail(PROGRAM_EXIT_WRONG, "out of memory with %llu bytes free",
                                     (unsigned long long)free_now);
                if (free_now + taken > free_before + slack ||
                    free_now + taken + slack < free_before)
                        program_fail(PROGRAM_EXIT_WRONG, "free %llu + taken %llu is not %llu",
                                     (unsigned long long)free_now, (unsigned long long)taken,
                                     (unsigned long long)free_before);
                for (size_t i = 0; i < n; i++) {
                        unsigned char first, last;

                        TRY(cu.MemcpyDtoH(&first, at[i], 1));
                        TRY(cu.MemcpyDtoH(&last, at[i] + block - 1, 1));
                        if (first != (unsigned char)i || last != first)
                                program_fail(PROGRAM_EXIT_WRONG, "block %zu: wrong", i);
                        TRY(cu.MemFree(at[i]));
                }
                info(&free_now, &total);
                if (free_now + slack < free_before)
                        program_fail(PROGRAM_EXIT_WRONG, "%llu bytes did not come back",
                                     (unsigned long long)(free_before - free_now));
                program_say("full", "\"round\":%llu,\"total\":%llu,\"taken\":%llu",
                            (unsigned long long)round, (unsigned long long)total,
                            (unsigned long long)taken);
        }
        free(at);
        program_end();
}
