// preempt.cu: a program for measurements of who has the GPU when. Its kernels note their progress by the GPU's own
// clock. It works for --ms, keeps --depth kernels queued, and idles for --gap-ms after each. With --requests, it waits
// for each kernel, and notes how long that took (with --events, by two events). Each kernel takes as long as it had at
// the beginning, when the GPU must be free. Prints one JSON object a line. Each "go BASE_NS SECONDS" on stdin lets it
// work. See preempt.py.
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vector>

#include "try.cuh"

constexpr uint64_t BIN_NS = 1000000, BINS = 200000;
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

static uint64_t host_ns()
{
        timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void nap(double ms)
{
        const uint64_t ns = (uint64_t)(ms * 1e6);
        const timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

        nanosleep(&t, NULL);
}

/* ---- what it works on ---- */

static struct {
        double ms = 10, gap_ms = 0, gib = 0;
        int blocks = 0, depth = 2, in_place_percent = 0, requests = 0, maps = 0, by_events = 0;
} options;

static struct {
        cudaStream_t stream;
        uint32_t *from, *to, *bins, *stop, *asked;
        uint64_t *clock, base_ns, launched;
} gpu;

static void launch(uint64_t steps)
{
        const bool in_place = (int)(gpu.launched++ * 37 % 100) < options.in_place_percent;

        work<<<options.blocks, THREADS, 0, gpu.stream>>>(steps, in_place, gpu.from, gpu.to, gpu.bins, gpu.base_ns, gpu.stop,
                                                         gpu.asked);
        TRY(cudaGetLastError());
}

/* Returns the time until the kernel has ended, in ms. */
static double timed(uint64_t steps)
{
        const uint64_t begin = host_ns();

        launch(steps);
        TRY(cudaStreamSynchronize(gpu.stream));
        return (double)(host_ns() - begin) / 1e6;
}

static int resident_blocks()
{
        cudaDeviceProp p;
        int each;

        TRY(cudaGetDeviceProperties(&p, 0));
        TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, work, THREADS, 0));
        return each * p.multiProcessorCount;
}

static void make()
{
        void *more;

        TRY(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking));
        TRY(cudaMalloc(&gpu.from, WORDS * 4));
        TRY(cudaMalloc(&gpu.to, WORDS * 4));
        TRY(cudaMalloc(&gpu.bins, BINS * 4));
        TRY(cudaMalloc(&gpu.stop, 4));
        TRY(cudaHostAlloc(&gpu.asked, 4, cudaHostAllocMapped));
        TRY(cudaHostAlloc(&gpu.clock, 8, cudaHostAllocMapped));
        TRY(cudaMemset(gpu.from, 1, WORDS * 4));
        TRY(cudaMemset(gpu.to, 1, WORDS * 4));
        TRY(cudaMemset(gpu.bins, 0, BINS * 4));
        TRY(cudaMemset(gpu.stop, 0, 4));
        *gpu.asked = 0;
        if (options.gib > 0) {
                TRY(cudaMalloc(&more, (size_t)(options.gib * (1 << 30))));
                TRY(cudaMemset(more, 1, (size_t)(options.gib * (1 << 30))));
        }
        if (!options.blocks)
                options.blocks = resident_blocks();
}

/* Finds how long a step takes, and how the GPU's clock stands to the host's. Returns the steps of a kernel. */
static uint64_t get_ready()
{
        const uint64_t before = host_ns();

        clock_kernel<<<1, 1, 0, gpu.stream>>>(gpu.clock);
        TRY(cudaStreamSynchronize(gpu.stream));
        const uint64_t after = host_ns();
        gpu.base_ns = *gpu.clock;
        for (int i = 0; i < 20; i++)
                timed(1000);
        const double a = timed(10000), b = timed(60000), steps_ms = 50000 / (b - a);
        const uint64_t steps = (uint64_t)(steps_ms * options.ms) + 1;
        double alone_ms = 0;
        for (int i = 0; i < 5 && options.ms < 1000; i++)
                alone_ms = timed(steps);
        printf("{\"event\":\"ready\",\"gpu_ns\":%llu,\"host_ns\":%llu,\"unsure_ns\":%llu,\"steps_ms\":%.3f,\"alone_ms\":%.4f,"
               "\"blocks\":%d,\"resident\":%d}\n",
               (unsigned long long)*gpu.clock, (unsigned long long)(before + (after - before) / 2), (unsigned long long)(after - before),
               steps_ms, alone_ms, options.blocks, resident_blocks());
        return steps;
}

/* ---- ways to work; each returns the number of kernels, or of allocations ---- */

static uint64_t map_memory(uint64_t end)
{
        uint64_t n = 0;

        for (; host_ns() < end; n++) {
                void *more;

                TRY(cudaMalloc(&more, (size_t)256 << 20));
                TRY(cudaMemsetAsync(more, 1, (size_t)256 << 20, gpu.stream));
                TRY(cudaStreamSynchronize(gpu.stream));
                TRY(cudaFree(more));
                nap(options.gap_ms);
        }
        return n;
}

static double some_gap()
{
        return options.gap_ms * (0.5 + rand() / (double)RAND_MAX);
}

/* Times a kernel as autotuners do. */
static double timed_by_events(uint64_t steps)
{
        cudaEvent_t a, b;
        float ms;

        TRY(cudaEventCreate(&a));
        TRY(cudaEventCreate(&b));
        TRY(cudaEventRecord(a, gpu.stream));
        launch(steps);
        TRY(cudaEventRecord(b, gpu.stream));
        TRY(cudaEventSynchronize(b));
        TRY(cudaEventElapsedTime(&ms, a, b));
        TRY(cudaEventDestroy(a));
        TRY(cudaEventDestroy(b));
        return ms;
}

static uint64_t make_requests(uint64_t steps, uint64_t end, std::vector<double> &took)
{
        while ((int)took.size() < options.requests && host_ns() < end) {
                if (options.gap_ms > 0)
                        nap(some_gap());
                took.push_back(options.by_events ? timed_by_events(steps) : timed(steps));
        }
        return took.size();
}

/* One kernel after the other; the end stops the last one. */
static uint64_t run_long_kernels(uint64_t steps, uint64_t end)
{
        uint64_t n = 0;

        for (; host_ns() < end; n++) {
                launch(steps);
                while (cudaStreamQuery(gpu.stream) == cudaErrorNotReady) {
                        if (host_ns() >= end)
                                *(volatile uint32_t *)gpu.asked = 1;
                        nap(0.5);
                }
        }
        return n;
}

static uint64_t run_kernels(uint64_t steps, uint64_t end, std::vector<cudaEvent_t> &events)
{
        uint64_t n = 0;

        for (; host_ns() < end; n++) {
                cudaEvent_t &e = events[n % events.size()];

                if (n >= events.size())
                        TRY(cudaEventSynchronize(e));
                launch(steps);
                TRY(cudaEventRecord(e, gpu.stream));
                if (options.gap_ms > 0) {
                        TRY(cudaStreamSynchronize(gpu.stream));
                        nap(some_gap());
                }
        }
        return n;
}

static void say_done(uint64_t n, double seconds, const std::vector<double> &took)
{
        std::vector<uint32_t> bins(BINS);
        uint64_t last = BINS;

        TRY(cudaMemcpy(bins.data(), gpu.bins, BINS * 4, cudaMemcpyDeviceToHost));
        while (last > 0 && !bins[last - 1])
                last--;
        printf("{\"event\":\"done\",\"kernels\":%llu,\"seconds\":%.6f,\"took_ms\":[", (unsigned long long)n, seconds);
        for (size_t i = 0; i < took.size(); i++)
                printf("%s%.3f", i ? "," : "", took[i]);
        printf("],\"bins\":[");
        for (uint64_t i = 0; i < last; i++)
                printf("%s%u", i ? "," : "", bins[i]);
        printf("]}\n");
}

int main(int argc, char **argv)
{
        const struct {
                const char *name;
                double *real;
                int *whole;
        } known[] = {{"--ms", &options.ms, NULL}, {"--gap-ms", &options.gap_ms, NULL}, {"--gib", &options.gib, NULL},
                     {"--blocks", NULL, &options.blocks}, {"--depth", NULL, &options.depth},
                     {"--in-place", NULL, &options.in_place_percent}, {"--requests", NULL, &options.requests},
                     {"--maps", NULL, &options.maps}, {"--events", NULL, &options.by_events}};

        for (int i = 1; i + 1 < argc; i += 2)
                for (const auto &o : known) {
                        if (strcmp(argv[i], o.name))
                                continue;
                        if (o.real)
                                *o.real = atof(argv[i + 1]);
                        else
                                *o.whole = atoi(argv[i + 1]);
                }
        setvbuf(stdout, NULL, _IOLBF, 0);
        make();
        const uint64_t steps = get_ready();
        std::vector<cudaEvent_t> events((size_t)options.depth);
        for (auto &e : events)
                TRY(cudaEventCreateWithFlags(&e, cudaEventDisableTiming | cudaEventBlockingSync));
        unsigned long long base_ns;
        double seconds;
        while (scanf(" go %llu %lf", &base_ns, &seconds) == 2) {
                std::vector<double> took;
                TRY(cudaMemset(gpu.bins, 0, BINS * 4));
                TRY(cudaMemset(gpu.stop, 0, 4));
                *gpu.asked = 0;
                gpu.base_ns = base_ns;
                const uint64_t begin = host_ns(), end = begin + (uint64_t)(seconds * 1e9);
                const uint64_t n = options.maps         ? map_memory(end)
                                   : options.requests   ? make_requests(steps, end, took)
                                   : options.ms >= 1000 ? run_long_kernels(steps, end)
                                                        : run_kernels(steps, end, events);
                TRY(cudaStreamSynchronize(gpu.stream));
                say_done(n, (double)(host_ns() - begin) / 1e9, took);
        }
        return 0;
}
