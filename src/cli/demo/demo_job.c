/* demo_job.c: sublet-demo-job, the program that the demo runs twice on one card: an ordinary
 * program of the driver API that knows nothing of sublet. It fills SIZE of GPU memory with values
 * computed from position and round. Then it pauses and computes in turn, PHASES times. Each round
 * of computing checks all values before it writes the next ones. Must never keep a copy of the
 * values: it has to read back what the card kept.
 *
 *     sublet-demo-job SIZE [KEY [PHASES [SECONDS [ROUNDS]]]]
 *
 * SECONDS is the length of a pause. ROUNDS is the number of rounds in a phase; without it, or if it
 * is 0, the first phase runs the rounds that begin within half of SECONDS, and the others run as
 * many.
 *
 * Prints one line a step to stdout: "allocated BYTES", "pause", "compute", "round N", "done ROUNDS
 * MISMATCHES DIGEST", or "memory BYTES" (BYTES were allocated when memory ran out), "failed CALL
 * RESULT". Exit status 0; 1 after "failed"; 2 for wrong arguments. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"

#define BLOCKS               8
#define THREADS              256
#define GROUPS               512
#define RESULT_OUT_OF_MEMORY 2

#define DEFAULT_KEY     "1"
#define DEFAULT_PHASES  "30"
#define DEFAULT_SECONDS "1"
#define DEFAULT_ROUNDS  "0"

/* The calls, as the driver API reference declares them. */
typedef uint64_t device_ptr;
#define DRIVER_CALLS(X)                                                                     \
        X(cuInit, "cuInit", (unsigned flags))                                               \
        X(cuDeviceGet, "cuDeviceGet", (int *device, int ordinal))                           \
        X(cuCtxCreate, "cuCtxCreate_v2", (void **context, unsigned flags, int device))      \
        X(cuCtxDestroy, "cuCtxDestroy_v2", (void *context))                                 \
        X(cuCtxSynchronize, "cuCtxSynchronize", (void))                                     \
        X(cuModuleLoadData, "cuModuleLoadData", (void **module, const void *image))         \
        X(cuModuleGetFunction, "cuModuleGetFunction",                                       \
          (void **function, void *module, const char *name))                                \
        X(cuMemAlloc, "cuMemAlloc_v2", (device_ptr * address, size_t bytes))                \
        X(cuMemFree, "cuMemFree_v2", (device_ptr address))                                  \
        X(cuMemsetD8, "cuMemsetD8_v2", (device_ptr address, unsigned char value, size_t n)) \
        X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *to, device_ptr from, size_t bytes))       \
        X(cuLaunchKernel, "cuLaunchKernel",                                                 \
          (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
           unsigned bz, unsigned shared, void *stream, void **parameters, void **extra))

static struct {
#define X(name, symbol, parameters) int(*name) parameters;
        DRIVER_CALLS(X)
#undef X
} driver;

/* fill(base, words, piece, origin, key): word i becomes mix(origin + i, key).
 * check(base, words, piece, origin, key, verdict): verdict[0] += words that differ, verdict[1] +=
 * the sum of all words. In both, each thread block handles `piece` words. mix() multiplies and
 * folds twice: it is cheap, and no two positions of a round have the same word. */
static const char kernels[] =
        ".version 6.4\n"
        ".target sm_60\n"
        ".address_size 64\n"
#define PROLOGUE                                                                  \
        "  .reg .pred %p<3>;\n"                                                   \
        "  .reg .b32 %r<4>;\n"                                                    \
        "  .reg .b64 %rd<17>;\n"                                                  \
        "  ld.param.u64 %rd1, [base];\n"                                          \
        "  ld.param.u64 %rd2, [words];\n"                                         \
        "  ld.param.u64 %rd16, [piece];\n"                                        \
        "  ld.param.u64 %rd3, [origin];\n"                                        \
        "  ld.param.u64 %rd4, [key];\n"                                           \
        "  cvta.to.global.u64 %rd1, %rd1;\n"                                      \
        "  mov.u32 %r1, %ctaid.x;\n"                                              \
        "  mov.u32 %r2, %ntid.x;\n"                                               \
        "  mov.u32 %r3, %tid.x;\n"                                                \
        "  cvt.u64.u32 %rd5, %r1;\n"                                              \
        "  mul.lo.s64 %rd5, %rd5, %rd16;\n"                                       \
        "  add.s64 %rd6, %rd5, %rd16;\n"                                          \
        "  min.u64 %rd2, %rd2, %rd6;\n" /* rd2: the end of the piece */           \
        "  cvt.u64.u32 %rd6, %r3;\n"                                              \
        "  add.s64 %rd5, %rd5, %rd6;\n" /* rd5: index of the word */              \
        "  cvt.u64.u32 %rd6, %r2;\n"    /* rd6: step to the thread's next word */ \
        "  shl.b64 %rd7, %rd5, 3;\n"                                              \
        "  add.s64 %rd7, %rd1, %rd7;\n" /* rd7: address of the word */            \
        "  shl.b64 %rd8, %rd6, 3;\n"
#define MIX                                              \
        "  add.s64 %rd9, %rd3, %rd5;\n"                  \
        "  xor.b64 %rd9, %rd9, %rd4;\n"                  \
        "  mul.lo.s64 %rd9, %rd9, 0x9fb21c651e98df25;\n" \
        "  shr.u64 %rd10, %rd9, 32;\n"                   \
        "  xor.b64 %rd9, %rd9, %rd10;\n"                 \
        "  mul.lo.s64 %rd9, %rd9, 0xd6e8feb86659fd93;\n"
#define NEXT                            \
        "  add.s64 %rd5, %rd5, %rd6;\n" \
        "  add.s64 %rd7, %rd7, %rd8;\n" \
        "  setp.lt.u64 %p1, %rd5, %rd2;\n"
        ".visible .entry fill(.param .u64 base, .param .u64 words, .param .u64 piece,\n"
        "                     .param .u64 origin, .param .u64 key)\n"
        "{\n" PROLOGUE "  setp.ge.u64 %p1, %rd5, %rd2;\n"
        "  @%p1 bra END;\n"
        "LOOP:\n" MIX "  st.global.u64 [%rd7], %rd9;\n" NEXT "  @%p1 bra LOOP;\n"
        "END:\n"
        "  ret;\n"
        "}\n"
        ".visible .entry check(.param .u64 base, .param .u64 words, .param .u64 piece,\n"
        "                      .param .u64 origin, .param .u64 key, .param .u64 verdict)\n"
        "{\n" PROLOGUE "  ld.param.u64 %rd11, [verdict];\n"
        "  cvta.to.global.u64 %rd11, %rd11;\n"
        "  mov.u64 %rd12, 0;\n" /* rd12: words that differ */
        "  mov.u64 %rd13, 0;\n" /* rd13: the sum of the words */
        "  setp.ge.u64 %p1, %rd5, %rd2;\n"
        "  @%p1 bra END;\n"
        "LOOP:\n" MIX "  ld.global.u64 %rd14, [%rd7];\n"
        "  add.s64 %rd13, %rd13, %rd14;\n"
        "  setp.ne.s64 %p2, %rd14, %rd9;\n"
        "  selp.u64 %rd15, 1, 0, %p2;\n"
        "  add.s64 %rd12, %rd12, %rd15;\n" NEXT "  @%p1 bra LOOP;\n"
        "  atom.global.add.u64 %rd14, [%rd11], %rd12;\n"
        "  atom.global.add.u64 %rd14, [%rd11+8], %rd13;\n"
        "END:\n"
        "  ret;\n"
        "}\n";

static void say_failed(const char *call, int result)
{
        (void)printf("failed %s %d\n", call, result);
        exit(EXIT_FAILURE);
}

#define TRY(call, ...)                                  \
        do {                                            \
                int result_ = driver.call(__VA_ARGS__); \
                if (result_ != 0)                       \
                        say_failed(#call, result_);     \
        } while (0)

static void load_driver(void)
{
        void *library = dlopen("libcuda.so.1", RTLD_NOW);

        if (!library) {
                (void)fprintf(stderr, "sublet-demo-job: %s\n", dlerror());
                exit(EXIT_FAILURE);
        }
#define X(name, symbol, parameters)                      \
        *(void **)&driver.name = dlsym(library, symbol); \
        if (!driver.name)                                \
                say_failed(symbol, -1);
        DRIVER_CALLS(X)
#undef X
}

static uint64_t round_key(uint64_t key, uint64_t round)
{
        uint64_t x = key * UINT64_C(0x9e3779b97f4a7c15) + round;

        x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        return x ^ (x >> 27);
}

struct job {
        void *fill, *check;
        device_ptr blocks[BLOCKS], verdict;
        uint64_t words, key; /* words in one block; key of the program */
        uint64_t round, mismatches, digest;
};

/* Each block has an origin of its own, so that a block that returns to the wrong place is
 * noticed. */
static void launch(const struct job *job, void *kernel, unsigned block, uint64_t round)
{
        uint64_t base = job->blocks[block], words = job->words, origin = (uint64_t)block << 40,
                 key = round_key(job->key, round), verdict = job->verdict,
                 piece = (words + GROUPS - 1) / GROUPS;
        void *parameters[] = {&base, &words, &piece, &origin, &key, &verdict};

        TRY(cuLaunchKernel, kernel, GROUPS, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL);
}

static void allocate(struct job *job, uint64_t bytes)
{
        job->words = bytes / BLOCKS / sizeof(uint64_t);
        TRY(cuMemAlloc, &job->verdict, 2 * sizeof(uint64_t));
        for (unsigned i = 0; i < BLOCKS; i++) {
                int r = driver.cuMemAlloc(&job->blocks[i], job->words * sizeof(uint64_t));

                if (r == RESULT_OUT_OF_MEMORY) {
                        (void)printf("memory %" PRIu64 "\n", i * job->words * sizeof(uint64_t));
                        exit(EXIT_SUCCESS);
                }
                if (r != 0)
                        say_failed("cuMemAlloc", r);
        }
        (void)printf("allocated %" PRIu64 "\n", BLOCKS * job->words * sizeof(uint64_t));
}

static void run_round(struct job *job)
{
        uint64_t verdict[2];

        TRY(cuMemsetD8, job->verdict, 0, sizeof(verdict));
        for (unsigned i = 0; i < BLOCKS; i++) {
                launch(job, job->check, i, job->round);
                launch(job, job->fill, i, job->round + 1);
        }
        TRY(cuMemcpyDtoH, verdict, job->verdict, sizeof(verdict));
        TRY(cuCtxSynchronize);
        job->mismatches += verdict[0];
        job->digest = round_key(job->digest ^ verdict[1], job->round);
        (void)printf("round %" PRIu64 "\n", ++job->round);
}

/* Computes on the processor or waits for data or for a person, as far as the GPU can tell. */
static void pause_for(double seconds)
{
        struct timespec t = {.tv_sec = (time_t)seconds};

        t.tv_nsec = (long)((seconds - (double)t.tv_sec) * (double)NSEC_PER_SEC);
        (void)printf("pause\n");
        (void)nanosleep(&t, NULL);
}

/* Returns how many rounds begin within the time, after running them. */
static uint64_t run_seconds(struct job *job, double seconds)
{
        uint64_t begun = clock_now_ns(), first = job->round;

        do
                run_round(job);
        while ((double)(clock_now_ns() - begun) < seconds * (double)NSEC_PER_SEC);
        return job->round - first;
}

static void run(struct job *job, uint64_t phases, double seconds, uint64_t rounds)
{
        for (unsigned i = 0; i < BLOCKS; i++)
                launch(job, job->fill, i, 0);
        for (uint64_t phase = 0; phase < phases; phase++) {
                pause_for(seconds);
                (void)printf("compute\n");
                if (!rounds)
                        rounds = run_seconds(job, seconds / 2);
                else
                        for (uint64_t i = 0; i < rounds; i++)
                                run_round(job);
        }
        for (unsigned i = 0; i < BLOCKS; i++)
                TRY(cuMemFree, job->blocks[i]);
        TRY(cuMemFree, job->verdict);
        (void)printf("done %" PRIu64 " %" PRIu64 " %016" PRIx64 "\n", job->round, job->mismatches,
                     job->digest);
}

int main(int argc, char **argv)
{
        const char *arguments[] = {NULL, DEFAULT_KEY, DEFAULT_PHASES, DEFAULT_SECONDS,
                                   DEFAULT_ROUNDS};
        struct job job = {0};
        void *context, *module;
        uint64_t bytes;
        int device;

        for (int i = 1; i < argc && i <= (int)ARRAY_SIZE(arguments); i++)
                arguments[i - 1] = argv[i];
        if (argc < 2 || argc > 1 + (int)ARRAY_SIZE(arguments) ||
            units_parse_size(arguments[0], &bytes) < 0) {
                (void)fprintf(stderr, "usage: sublet-demo-job SIZE [KEY [PHASES [SECONDS "
                                      "[ROUNDS]]]], with a SIZE such as 600MiB\n");
                return 2;
        }
        (void)setvbuf(stdout, NULL, _IOLBF, 0);
        load_driver();
        TRY(cuInit, 0);
        TRY(cuDeviceGet, &device, 0);
        TRY(cuCtxCreate, &context, 0, device);
        TRY(cuModuleLoadData, &module, kernels);
        TRY(cuModuleGetFunction, &job.fill, module, "fill");
        TRY(cuModuleGetFunction, &job.check, module, "check");
        job.key = job.digest = strtoull(arguments[1], NULL, 0);
        allocate(&job, bytes);
        run(&job, strtoull(arguments[2], NULL, 0), strtod(arguments[3], NULL),
            strtoull(arguments[4], NULL, 0));
        TRY(cuCtxDestroy, context);
        return EXIT_SUCCESS;
}
