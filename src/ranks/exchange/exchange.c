/* exchange.c: owns the launches of the kernel that sends and receives. */
#include "ranks/exchange/exchange.h"

#include <string.h>

#include "base/macros.h"
#include "ranks/kernel/kernel.h"
#include "ranks/real/real_functions.h"

#define WARP 32u
/* A chain has a block for so many bytes of a piece, and a launch so many blocks for each SM. */
#define BLOCK_BYTES   (UINT64_C(64) << 10)
#define BLOCKS_MAX    32u
#define BLOCKS_PER_SM 4u
#define THREAD_BYTES  16u

extern const char exchange_ptx[] __attribute__((visibility("hidden")));

CUresult exchange_prepare(void)
{
        struct kernel k;

        return kernel_find(exchange_ptx, "exchange", &k);
}

CUresult exchange_begin(const struct exchange_place *place, const void *table, size_t bytes,
                        CUstream stream)
{
        struct {
                uint64_t word[EXCHANGE_WORDS];
        } words;
        struct kernel k;
        CUresult e = kernel_find(exchange_ptx, "exchange_write", &k);

        for (size_t at = 0; at < bytes && e == CUDA_SUCCESS; at += sizeof(words)) {
                const size_t some = MIN(bytes - at, sizeof(words));
                uint64_t to = place->table + at, bells = place->bells;
                uint32_t count = (uint32_t)(some / sizeof(words.word[0]));
                void *arguments[] = {&words, &to, &count, &bells};

                (void)memcpy(&words, (const char *)table + at, some);
                e = real_cuda()->cuLaunchKernel(k.function, 1, 1, 1, WARP, 1, 1, 0, stream,
                                                arguments, NULL);
        }
        return e;
}

CUresult exchange_advance(const struct exchange_place *place, unsigned chains, uint64_t largest,
                          CUstream stream)
{
        struct exchange_place p = *place;
        void *arguments[] = {&p};
        struct kernel k;
        CUresult e = kernel_find(exchange_ptx, "exchange", &k);
        uint64_t blocks = MIN((largest + BLOCK_BYTES - 1) / BLOCK_BYTES, (uint64_t)BLOCKS_MAX);
        uint64_t threads = (largest + THREAD_BYTES * WARP - 1) / (THREAD_BYTES * WARP) * WARP;

        if (e != CUDA_SUCCESS)
                return e;
        blocks = MIN(blocks, (uint64_t)k.multiprocessors * BLOCKS_PER_SM / chains);
        return real_cuda()->cuLaunchKernel(k.function, (unsigned)MAX(blocks, UINT64_C(1)), chains,
                                           1, (unsigned)MIN(threads, (uint64_t)EXCHANGE_THREADS), 1,
                                           1, 0, stream, arguments, NULL);
}
