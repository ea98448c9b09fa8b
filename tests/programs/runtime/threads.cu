/* threads: four threads allocate, launch and copy at the same time, each on its default stream. Built
 * twice: with --default-stream per-thread each thread has a default stream of its own. */
#include "runtime.cuh"

#include <thread>

enum { THREADS = 4, WORDS = 1 << 18 };

static void work(unsigned number, uint64_t *ret_sum)
{
        std::vector<uint32_t> host(WORDS);
        uint32_t *a, *b;

        TRY(cudaMalloc(&a, WORDS * 4));
        fill<<<32, 256>>>(a, WORDS, number);
        for (unsigned i = 0; i < 60; i++) {
                TRY(cudaMalloc(&b, WORDS * 4));
                TRY(cudaMemcpyAsync(b, a, WORDS * 4, cudaMemcpyDeviceToDevice));
                step<<<32, 256>>>(b, WORDS, i);
                TRY(cudaMemcpyAsync(a, b, WORDS * 4, cudaMemcpyDeviceToDevice));
                if (i % 10 == 9) {
                        TRY(cudaMemcpy(host.data(), a, WORDS * 4, cudaMemcpyDeviceToHost));
                        host[i] += number;
                        TRY(cudaMemcpy(a, host.data(), WORDS * 4, cudaMemcpyHostToDevice));
                }
                TRY(cudaFree(b));
        }
        TRY(cudaStreamSynchronize(0));
        TRY(cudaMemcpy(host.data(), a, WORDS * 4, cudaMemcpyDeviceToHost));
        *ret_sum = sum_of(host);
}

int main(void)
{
        std::vector<std::thread> threads;
        uint64_t sums[THREADS];

        for (unsigned i = 0; i < THREADS; i++)
                threads.emplace_back(work, i, &sums[i]);
        for (std::thread &t : threads)
                t.join();
        for (uint64_t s : sums)
                say("thread", s);
        return done();
}
