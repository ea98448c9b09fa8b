/* gpu_work.c: owns the memory on the card and the kernels that fill and check it. Must never keep a
 * copy of the values: it has to read back what the card kept. */
#include "lab/common/gpu_work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS              256
#define GROUPS               512
#define RESULT_OUT_OF_MEMORY 2
#define ATTACH_GLOBAL        1

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
        X(cuMemAllocManaged, "cuMemAllocManaged",                                           \
          (device_ptr * address, size_t bytes, unsigned flags))                             \
        X(cuMemFree, "cuMemFree_v2", (device_ptr address))                                  \
        X(cuMemsetD8, "cuMemsetD8_v2", (device_ptr address, unsigned char value, size_t n)) \
        X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *to, device_ptr from, size_t bytes))       \
        X(cuLaunchKernel, "cuLaunchKernel",                                                 \
          (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
           unsigned bz, unsigned shared, void *stream, void **parameters, void **extra))

#include "lab/common/lab_driver.h"

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

static void say_no_driver(const char *why)
{
        (void)fprintf(stderr, "%s: %s\n", program_invocation_short_name, why);
        exit(EXIT_FAILURE);
}

uint64_t gpu_work_mix(uint64_t key, uint64_t round)
{
        uint64_t x = key * UINT64_C(0x9e3779b97f4a7c15) + round;

        x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        return x ^ (x >> 27);
}

/* Each block has an origin of its own, so that a block that returns to the wrong place is
 * noticed. */
static void launch(const struct gpu_work *w, void *kernel, unsigned block, uint64_t round)
{
        uint64_t base = w->blocks[block], words = w->words, origin = (uint64_t)block << 40,
                 key = gpu_work_mix(w->key, round), verdict = w->verdict,
                 piece = (words + GROUPS - 1) / GROUPS;
        void *parameters[] = {&base, &words, &piece, &origin, &key, &verdict};

        TRY(cuLaunchKernel, kernel, GROUPS, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL);
}

static void allocate(struct gpu_work *w, uint64_t bytes, bool managed)
{
        w->words = bytes / GPU_WORK_BLOCKS / sizeof(uint64_t);
        TRY(cuMemAlloc, &w->verdict, 2 * sizeof(uint64_t));
        for (unsigned i = 0; i < GPU_WORK_BLOCKS; i++) {
                size_t block = w->words * sizeof(uint64_t);
                int r = managed ? driver.cuMemAllocManaged(&w->blocks[i], block, ATTACH_GLOBAL)
                                : driver.cuMemAlloc(&w->blocks[i], block);

                if (r == RESULT_OUT_OF_MEMORY) {
                        (void)printf("memory %" PRIu64 "\n", i * w->words * sizeof(uint64_t));
                        exit(EXIT_SUCCESS);
                }
                if (r != 0)
                        say_failed(managed ? "cuMemAllocManaged" : "cuMemAlloc", r);
        }
}

void gpu_work_begin(struct gpu_work *w, uint64_t bytes, uint64_t key, bool managed)
{
        void *module;
        int device;

        *w = (struct gpu_work){.key = key, .digest = key};
        load_driver();
        TRY(cuInit, 0);
        TRY(cuDeviceGet, &device, 0);
        TRY(cuCtxCreate, &w->context, 0, device);
        TRY(cuModuleLoadData, &module, kernels);
        TRY(cuModuleGetFunction, &w->fill, module, "fill");
        TRY(cuModuleGetFunction, &w->check, module, "check");
        allocate(w, bytes, managed);
}

uint64_t gpu_work_bytes(const struct gpu_work *w)
{
        return GPU_WORK_BLOCKS * w->words * sizeof(uint64_t);
}

void gpu_work_fill(struct gpu_work *w)
{
        for (unsigned i = 0; i < GPU_WORK_BLOCKS; i++)
                launch(w, w->fill, i, 0);
        TRY(cuCtxSynchronize);
}

void gpu_work_round(struct gpu_work *w)
{
        uint64_t verdict[2];

        TRY(cuMemsetD8, w->verdict, 0, sizeof(verdict));
        for (unsigned i = 0; i < GPU_WORK_BLOCKS; i++) {
                launch(w, w->check, i, w->rounds);
                launch(w, w->fill, i, w->rounds + 1);
        }
        TRY(cuMemcpyDtoH, verdict, w->verdict, sizeof(verdict));
        TRY(cuCtxSynchronize);
        w->mismatches += verdict[0];
        w->digest = gpu_work_mix(w->digest ^ verdict[1], w->rounds);
        w->rounds++;
}

void gpu_work_end(struct gpu_work *w)
{
        for (unsigned i = 0; i < GPU_WORK_BLOCKS; i++)
                TRY(cuMemFree, w->blocks[i]);
        TRY(cuMemFree, w->verdict);
        TRY(cuCtxDestroy, w->context);
}
