/* memory: allocations of all sizes, made and freed in turns, pitched and 3D allocations, sets, host memory
 * of every kind. */
#include "runtime.cuh"

int main(void)
{
        std::vector<uint32_t *> held;
        std::vector<size_t> words;
        uint32_t *pinned, *mapped, *mapped_there, *registered, *sum;
        cudaPitchedPtr volume;
        size_t pitch, free_bytes, total;
        char *rows;

        for (unsigned i = 0; i < 120; i++) {
                size_t n = (size_t)1 << (i % 19 + 2);
                uint32_t *p;

                TRY(cudaMalloc(&p, n * 4));
                fill<<<32, 256>>>(p, n, i);
                held.push_back(p);
                words.push_back(n);
                if (i % 3 == 2) {
                        size_t k = i * 7 % held.size();

                        TRY(cudaFree(held[k]));
                        held.erase(held.begin() + (long)k);
                        words.erase(words.begin() + (long)k);
                }
        }
        for (unsigned round = 0; round < 5; round++)
                for (size_t i = 0; i < held.size(); i++)
                        step<<<32, 256>>>(held[i], words[i], round);
        for (size_t i = 0; i < held.size(); i++)
                say("held", sum_on_card(held[i], words[i]));

        TRY(cudaMallocPitch(&rows, &pitch, 1000, 100));
        TRY(cudaMemset2D(rows, pitch, 7, 1000, 100));
        TRY(cudaMemset2D(rows + 10 * pitch + 30, pitch, 9, 500, 50));
        TRY(cudaMemset(rows, 1, 17));
        std::vector<char> host(1000 * 100);
        TRY(cudaMemcpy2D(host.data(), 1000, rows, pitch, 1000, 100, cudaMemcpyDeviceToHost));
        say("pitched", sum_of(host));
        TRY(cudaMalloc3D(&volume, make_cudaExtent(256, 32, 16)));
        TRY(cudaMemset3D(volume, 3, make_cudaExtent(256, 32, 16)));
        TRY(cudaMemset3D(volume, 5, make_cudaExtent(100, 16, 8)));
        cudaMemcpy3DParms p = {};
        host.resize(256 * 32 * 16);
        p.srcPtr = volume;
        p.dstPtr = make_cudaPitchedPtr(host.data(), 256, 256, 32);
        p.extent = make_cudaExtent(256, 32, 16);
        p.kind = cudaMemcpyDeviceToHost;
        TRY(cudaMemcpy3D(&p));
        say("volume", sum_of(host));

        TRY(cudaMallocHost(&pinned, 1 << 20));
        TRY(cudaHostAlloc(&mapped, 1 << 20, cudaHostAllocMapped | cudaHostAllocPortable));
        TRY(cudaHostGetDevicePointer(&mapped_there, mapped, 0));
        registered = (uint32_t *)aligned_alloc(4096, 1 << 20);
        memset(registered, 2, 1 << 20);
        memset(pinned, 1, 1 << 20);
        memset(mapped, 4, 1 << 20);
        TRY(cudaHostRegister(registered, 1 << 20, cudaHostRegisterDefault));
        TRY(cudaMalloc(&sum, 1 << 20));
        for (unsigned i = 0; i < 40; i++) {
                TRY(cudaMemcpyAsync(sum, i % 2 ? pinned : registered, 1 << 20, cudaMemcpyDefault));
                step<<<64, 256>>>(sum, 1 << 18, i);
                step<<<64, 256>>>(mapped_there, 1 << 18, i);
                TRY(cudaMemcpyAsync(i % 2 ? registered : pinned, sum, 1 << 20, cudaMemcpyDefault));
        }
        TRY(cudaDeviceSynchronize());
        say("pinned", sum_of(pinned, 1 << 20));
        say("mapped", sum_of(mapped, 1 << 20));
        say("registered", sum_of(registered, 1 << 20));
        TRY(cudaHostUnregister(registered));
        TRY(cudaFreeHost(pinned));
        TRY(cudaFreeHost(mapped));
        TRY(cudaMemGetInfo(&free_bytes, &total));
        if (free_bytes == 0 || free_bytes > total)
                fail("more is free than there is");
        if (cudaMalloc(&sum, (size_t)1 << 44) != cudaErrorMemoryAllocation)
                fail("16 TiB were not refused");
        (void)cudaGetLastError();
        for (uint32_t *q : held)
                TRY(cudaFree(q));
        return done();
}
