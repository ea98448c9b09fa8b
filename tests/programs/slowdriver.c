/* slowdriver.c: a libcuda.so.1 that loads slowly, for as long as a test wants (early.c). */
#include <stdlib.h>
#include <unistd.h>

#include "cuda/cuda_abi.h"

__attribute__((visibility("default"))) CUresult cuInit(unsigned flags);
CUresult cuInit(unsigned flags)
{
        return CUDA_SUCCESS;
}

__attribute__((constructor)) static void load(void)
{
        const char *says = getenv("SLOW_SAYS"), *waits = getenv("SLOW_WAITS");
        char c = 0;

        if (!says || !waits)
                return;
        (void)!write(atoi(says), &c, 1);
        (void)!read(atoi(waits), &c, 1);
}
