/* entrypoint: driver functions of several versions, found by cudaGetDriverEntryPoint and used beside the
 * runtime's own. */
#include "runtime.cuh"

#include <cuda.h>

int main(void)
{
        auto allocate = entry<CUresult(CUdeviceptr *, size_t)>("cuMemAlloc", 3020);
        auto release = entry<CUresult(CUdeviceptr)>("cuMemFree", 3020);
        auto set = entry<CUresult(CUdeviceptr, unsigned, size_t, CUstream)>("cuMemsetD32Async", 3020);
        auto copy = entry<CUresult(CUdeviceptr, CUdeviceptr, size_t, CUstream)>("cuMemcpyAsync", 4000);
        auto range = entry<CUresult(CUdeviceptr *, size_t *, CUdeviceptr)>("cuMemGetAddressRange", 3020);
        cudaDriverEntryPointQueryResult found;
        CUdeviceptr p = 0, base = 0;
        size_t bytes = 0;
        void *none = NULL;
        uint32_t *at;

        TRY(cudaMalloc(&at, 1 << 20));
        fill<<<64, 256>>>(at, 1 << 18, 1);
        for (unsigned i = 0; i < 60; i++) {
                if (allocate(&p, 1 << 20) || set(p, i, 1 << 18, NULL) ||
                    copy(p + 4096, (CUdeviceptr)at, 4096 * (i + 1), NULL) ||
                    range(&base, &bytes, p + 12345))
                        fail("a driver call failed");
                if (base != p || bytes != 1 << 20)
                        fail("the range is another");
                step<<<64, 256>>>((uint32_t *)p, 1 << 18, i);
                TRY(cudaMemcpyAsync(at, (void *)p, 1 << 20, cudaMemcpyDeviceToDevice));
                if (release(p))
                        fail("it cannot be freed");
        }
        say("at", sum_on_card(at, 1 << 18));
        TRY(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &none, 12000, cudaEnableDefault, &found));
        say("none", (uint64_t)found);
        return done();
}
