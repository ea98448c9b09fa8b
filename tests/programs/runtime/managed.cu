/* managed: a few MiB that host and card write in turns, with advice and prefetches. */
#include "runtime.cuh"

static __managed__ uint32_t counter;

static __global__ void bump(void)
{
        atomicAdd(&counter, 1u);
}

enum { WORDS = 1 << 20 };

int main(void)
{
        cudaMemLocation card = {}, host = {};
        uint32_t *m, *d;
        cudaStream_t s;

        card.type = cudaMemLocationTypeDevice;
        host.type = cudaMemLocationTypeHost;
        TRY(cudaStreamCreate(&s));
        TRY(cudaMallocManaged(&m, WORDS * 4));
        TRY(cudaMalloc(&d, WORDS * 4));
        for (uint32_t i = 0; i < WORDS; i++)
                m[i] = i;
        for (unsigned round = 0; round < 20; round++) {
                if (round % 4 == 1)
                        TRY(cudaMemPrefetchAsync(m, WORDS * 4, card, 0, s));
                if (round % 4 == 2)
                        TRY(cudaMemAdvise(m, WORDS * 4, cudaMemAdviseSetPreferredLocation, card));
                step<<<64, 256, 0, s>>>(m, WORDS, round);
                bump<<<4, 32, 0, s>>>();
                TRY(cudaMemcpyAsync(d, m, WORDS * 4, cudaMemcpyDeviceToDevice, s));
                step<<<64, 256, 0, s>>>(d, WORDS, round);
                TRY(cudaMemcpyAsync(m, d, WORDS * 2, cudaMemcpyDeviceToDevice, s));
                if (round % 4 == 3)
                        TRY(cudaMemPrefetchAsync(m, WORDS * 4, host, 0, s));
                TRY(cudaStreamSynchronize(s));
                for (uint32_t i = 0; i < WORDS; i += 1000)
                        m[i] += round;
        }
        say("managed", sum_of(m, WORDS * 4));
        say("counter", counter);
        TRY(cudaFree(m));
        return done();
}
