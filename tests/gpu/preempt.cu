// preempt.cu: a program for measurements of who has the GPU when. Its kernels note their progress by the GPU's own
// clock. It works for --ms, keeps --depth kernels queued, and idles for --gap-ms after each. With --requests, it waits
// for each kernel, and notes how long that took. Each kernel takes as long as it had at the beginning, when the GPU must
// be free. Prints one JSON object a line; "go BASE_NS SECONDS" on stdin lets it begin. See preempt.py.
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vector>

#define TRY(call)                                                                                        \
        do {                                                                                             \
                cudaError_t e_ = (call);                                                                 \
                if (e_ != cudaSuccess) {                                                                 \
                        printf("{\"event\":\"error\",\"call\":\"%s\",\"error\":\"%s\"}\n", #call,        \
                               cudaGetErrorName(e_));                                                    \
                        exit(4);                                                                         \
                }                                                                                        \
        } while (0)

constexpr uint64_t BIN_NS = 5000000, BINS = 200000;
constexpr int THREADS = 256, WORDS = 1 << 20;

__device__ static uint64_t gpu_ns()
{
        uint64_t ns;

        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
        return ns;
}

__global__ void clock_kernel(uint64_t *out)
{
        *out = gpu_ns();
}

// in_place: the result depends on the old value, so the kernel could not be begun again. Otherwise it could.
__global__ void work(uint64_t steps, bool in_place, const uint32_t *from, uint32_t *to, uint32_t *bins, uint64_t base_ns,
                     volatile uint32_t *stop, const volatile uint32_t *asked)
{
        const uint32_t at = (blockIdx.x * THREADS + threadIdx.x) % WORDS;
        uint32_t x = in_place ? to[at] : from[at];

        for (uint64_t step = 0; step < steps; step++) {
                for (int i = 0; i < 256; i++)
                        x = x * 1664525u + (x >> 13); /* no compiler shortens this */
                if (in_place)
                        to[at] = x;
                if (threadIdx.x == 0) { /* blocks do not all go on at the same speed */
                        const uint64_t bin = (gpu_ns() - base_ns) / BIN_NS;

                        if (bin < BINS)
                                atomicAdd(&bins[bin], 1);
                        else if (bin == BINS)
                                x++;
                }
                /* If all threads read the host's memory, it takes 9 to 45 ms to preempt them (measured). */
                if (threadIdx.x == 0 && blockIdx.x == 0 && step % 128 == 127 && *asked)
                        *stop = 1;
                if (step % 128 == 127 && *stop)
                        break;
        }
        to[at] = x;
}

static uint64_t host_ns(clockid_t clock)
{
        timespec t;

        clock_gettime(clock, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void nap(double ms)
{
        const uint64_t ns = (uint64_t)(ms * 1e6);
        const timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

        nanosleep(&t, NULL);
}

int main(int argc, char **argv)
{
        double ms = 10, gap_ms = 0, gib = 0;
        int blocks = 0, depth = 2, in_place_percent = 0, requests = 0, maps = 0;

        for (int i = 1; i + 1 < argc; i += 2) {
                if (!strcmp(argv[i], "--ms")) ms = atof(argv[i + 1]);
                else if (!strcmp(argv[i], "--gap-ms")) gap_ms = atof(argv[i + 1]);
                else if (!strcmp(argv[i], "--gib")) gib = atof(argv[i + 1]);
                else if (!strcmp(argv[i], "--blocks")) blocks = atoi(argv[i + 1]);
                else if (!strcmp(argv[i], "--depth")) depth = atoi(argv[i + 1]);
                else if (!strcmp(argv[i], "--in-place")) in_place_percent = atoi(argv[i + 1]);
                else if (!strcmp(argv[i], "--requests")) requests = atoi(argv[i + 1]);
                else if (!strcmp(argv[i], "--maps")) maps = atoi(argv[i + 1]);
        }
        setvbuf(stdout, NULL, _IOLBF, 0);
        cudaDeviceProp p;
        cudaStream_t stream;
        uint32_t *from, *to, *bins, *stop, *asked;
        uint64_t *clock_out;
        void *memory = NULL;
        int resident;
        TRY(cudaGetDeviceProperties(&p, 0));
        TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        TRY(cudaMalloc(&from, WORDS * 4));
        TRY(cudaMalloc(&to, WORDS * 4));
        TRY(cudaMalloc(&bins, BINS * 4));
        TRY(cudaMemset(from, 1, WORDS * 4));
        TRY(cudaMemset(to, 1, WORDS * 4));
        TRY(cudaMemset(bins, 0, BINS * 4));
        if (gib > 0) {
                TRY(cudaMalloc(&memory, (size_t)(gib * (1 << 30))));
                TRY(cudaMemset(memory, 1, (size_t)(gib * (1 << 30))));
        }
        TRY(cudaMalloc(&stop, 4));
        TRY(cudaMemset(stop, 0, 4));
        TRY(cudaHostAlloc(&asked, 4, cudaHostAllocMapped));
        *asked = 0;
        TRY(cudaHostAlloc(&clock_out, 4096, 0));
        TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, work, THREADS, 0));
        if (!blocks)
                blocks = resident * p.multiProcessorCount;
        uint64_t base_ns = 0, launched = 0;
        auto launch = [&](uint64_t steps) {
                const bool in_place = (int)(launched++ * 37 % 100) < in_place_percent;

                work<<<blocks, THREADS, 0, stream>>>(steps, in_place, from, to, bins, base_ns, stop, asked);
                TRY(cudaGetLastError());
        };
        auto timed = [&](uint64_t steps) {
                const uint64_t begin = host_ns(CLOCK_MONOTONIC);

                launch(steps);
                TRY(cudaStreamSynchronize(stream));
                return (double)(host_ns(CLOCK_MONOTONIC) - begin) / 1e6;
        };
        /* The GPU's clock against the host's. */
        const uint64_t t0 = host_ns(CLOCK_MONOTONIC);
        clock_kernel<<<1, 1, 0, stream>>>(clock_out);
        TRY(cudaStreamSynchronize(stream));
        const uint64_t t1 = host_ns(CLOCK_MONOTONIC);
        const uint64_t gpu_at = *clock_out;
        base_ns = gpu_at;
        for (int i = 0; i < 20; i++)
                timed(1000);
        const double a = timed(10000), b = timed(60000), steps_ms = 50000 / (b - a);
        const uint64_t steps = (uint64_t)(steps_ms * ms) > 0 ? (uint64_t)(steps_ms * ms) : 1;
        double alone_ms = 0;
        for (int i = 0; i < 5 && ms < 1000; i++)
                alone_ms = timed(steps);
        TRY(cudaMemset(bins, 0, BINS * 4));
        printf("{\"event\":\"ready\",\"gpu_ns\":%llu,\"host_ns\":%llu,\"unsure_ns\":%llu,\"steps_ms\":%.3f,\"alone_ms\":%.4f,"
               "\"blocks\":%d,\"resident\":%d}\n",
               (unsigned long long)gpu_at, (unsigned long long)(t0 + (t1 - t0) / 2), (unsigned long long)(t1 - t0), steps_ms,
               alone_ms, blocks, resident * p.multiProcessorCount);
        unsigned long long base;
        double seconds;
        if (scanf("go %llu %lf", &base, &seconds) != 2)
                return 2;
        base_ns = base;
        std::vector<double> took;
        std::vector<cudaEvent_t> events((size_t)depth);
        for (auto &e : events)
                TRY(cudaEventCreateWithFlags(&e, cudaEventDisableTiming | cudaEventBlockingSync));
        const uint64_t end = host_ns(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9);
        srand(1);
        uint64_t n = 0;
        if (maps) {
                for (; host_ns(CLOCK_MONOTONIC) < end; n++) {
                        void *more;

                        TRY(cudaMalloc(&more, (size_t)256 << 20));
                        TRY(cudaMemsetAsync(more, 1, (size_t)256 << 20, stream));
                        TRY(cudaStreamSynchronize(stream));
                        TRY(cudaFree(more));
                        nap(gap_ms);
                }
        } else if (requests) {
                for (; (int)n < requests && host_ns(CLOCK_MONOTONIC) < end; n++) {
                        nap(gap_ms * (0.5 + rand() / (double)RAND_MAX));
                        took.push_back(timed(steps));
                }
        } else if (ms >= 1000) { /* one after the other; the end stops the last one */
                while (host_ns(CLOCK_MONOTONIC) < end) {
                        launch(steps);
                        n++;
                        while (cudaStreamQuery(stream) == cudaErrorNotReady) {
                                if (host_ns(CLOCK_MONOTONIC) >= end)
                                        *(volatile uint32_t *)asked = 1;
                                nap(0.5);
                        }
                }
        } else {
                for (; host_ns(CLOCK_MONOTONIC) < end; n++) {
                        cudaEvent_t &e = events[n % (uint64_t)depth];

                        if (n >= (uint64_t)depth)
                                TRY(cudaEventSynchronize(e));
                        launch(steps);
                        TRY(cudaEventRecord(e, stream));
                        if (gap_ms > 0) {
                                TRY(cudaStreamSynchronize(stream));
                                nap(gap_ms * (0.5 + rand() / (double)RAND_MAX));
                        }
                }
        }
        TRY(cudaStreamSynchronize(stream));
        std::vector<uint32_t> had(BINS);
        TRY(cudaMemcpy(had.data(), bins, BINS * 4, cudaMemcpyDeviceToHost));
        uint64_t last = 0;
        for (uint64_t i = 0; i < BINS; i++)
                last = had[i] ? i + 1 : last;
        printf("{\"event\":\"done\",\"kernels\":%llu,\"took_ms\":[", (unsigned long long)n);
        for (size_t i = 0; i < took.size(); i++)
                printf("%s%.3f", i ? "," : "", took[i]);
        printf("],\"bins\":[");
        for (uint64_t i = 0; i < last; i++)
                printf("%s%u", i ? "," : "", had[i]);
        printf("]}\n");
        return 0;
}
