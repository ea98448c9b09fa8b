/* blocks.c: launches the kernels; allocates, fills and checks memory that follows the pattern. */
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "program.h"

struct kernels kernels;

extern const char kernels_ptx[]; /* kernels_ptx.S: the text of kernels.ptx, with a NUL */

void kernels_load(struct kernels *k)
{
        const struct {
                const char *name;
                CUfunction *function;
        } table[] = {
                {"fill", &k->fill},       {"verify", &k->verify}, {"step", &k->step},
                {"advance", &k->advance}, {"add", &k->add},       {"spin", &k->spin},
                {"stamp", &k->stamp},     {"tiny", &k->tiny},     {"reduce", &k->reduce},
                {"await", &k->await},
        };

        TRY(cu.ModuleLoadData(&k->module, kernels_ptx));
        for (size_t i = 0; i < ARRAY_SIZE(table); i++)
                TRY(cu.ModuleGetFunction(table[i].function, k->module, table[i].name));
}

/* Returns a number of thread blocks: enough to fill any card, but few for little memory, because a
 * thread costs more time than a word. */
unsigned kernels_grid(uint64_t words)
{
        return (unsigned)MIN(MAX(words / (THREADS * UINT64_C(64)), UINT64_C(1)), UINT64_C(1056));
}

static void launch(CUfunction f, uint64_t words, void **parameters, CUstream s)
{
        TRY(cu.LaunchKernel(f, kernels_grid(words), 1, 1, THREADS, 1, 1, 0, s, parameters, NULL));
}

void launch_fill(CUdeviceptr at, uint64_t bytes, uint64_t origin, uint64_t key, CUstream s)
{
        uint64_t words = bytes / 8;

        launch(kernels.fill, words, (void *[]){&at, &words, &origin, &key}, s);
}

void launch_verify(CUdeviceptr at, uint64_t bytes, uint64_t origin, uint64_t key,
                   CUdeviceptr verdict, CUstream s)
{
        uint64_t words = bytes / 8;

        launch(kernels.verify, words, (void *[]){&at, &words, &origin, &key, &verdict}, s);
}

void launch_step(CUdeviceptr at, uint64_t bytes, uint64_t origin, uint64_t key, uint64_t next_key,
                 CUdeviceptr verdict, CUstream s)
{
        uint64_t words = bytes / 8;

        launch(kernels.step, words, (void *[]){&at, &words, &origin, &key, &next_key, &verdict}, s);
}

void launch_advance(CUdeviceptr at, uint64_t bytes, uint64_t addend, CUstream s)
{
        uint64_t words = bytes / 8;

        launch(kernels.advance, words, (void *[]){&at, &words, &addend}, s);
}

void launch_add(CUdeviceptr to, CUdeviceptr from, uint64_t bytes, CUstream s)
{
        uint64_t words = bytes / 8;

        launch(kernels.add, words, (void *[]){&to, &from, &words}, s);
}

void launch_spin(uint64_t ns, CUdeviceptr counter, CUstream s)
{
        TRY(cu.LaunchKernel(kernels.spin, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&ns, &counter}, NULL));
}

void launch_stamp(uint64_t ns, CUdeviceptr out, CUstream s)
{
        TRY(cu.LaunchKernel(kernels.stamp, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&ns, &out}, NULL));
}

void launch_tiny(CUdeviceptr counter, CUstream s)
{
        TRY(cu.LaunchKernel(kernels.tiny, 1, 1, 1, 32, 1, 1, 0, s, (void *[]){&counter}, NULL));
}

void launch_await(CUdeviceptr flag, uint32_t value, CUdeviceptr answer, uint32_t answer_value,
                  uint64_t most_ns, CUdeviceptr late, CUstream s)
{
        TRY(cu.LaunchKernel(kernels.await, 1, 1, 1, 1, 1, 1, 0, s,
                            (void *[]){&flag, &value, &answer, &answer_value, &most_ns, &late},
                            NULL));
}

static const struct verdict verdict_clear = {.first_bad = UINT64_MAX};

CUdeviceptr verdict_new(void)
{
        CUdeviceptr v;

        TRY(cu.MemAlloc(&v, sizeof(struct verdict)));
        TRY(cu.MemcpyHtoD(v, &verdict_clear, sizeof(verdict_clear)));
        TRY(cu.CtxSynchronize()); /* non-blocking streams do not wait for this copy */
        return v;
}

uint64_t verdict_take(CUdeviceptr verdict, uint64_t round, CUstream s)
{
        struct verdict v;

        TRY(cu.MemcpyDtoHAsync(&v, verdict, sizeof(v), s));
        TRY(cu.MemcpyHtoDAsync(verdict, &verdict_clear, sizeof(v), s));
        TRY(cu.StreamSynchronize(s));
        if (v.mismatches)
                program_fail(PROGRAM_EXIT_WRONG, "round %llu: %llu words wrong, the first at %#llx",
                             (unsigned long long)round, (unsigned long long)v.mismatches,
                             (unsigned long long)v.first_bad);
        return v.sum;
}

void blocks_allocate(struct blocks *b, uint64_t bytes, uint64_t block_bytes, size_t first)
{
        b->n = (size_t)((bytes + block_bytes - 1) / block_bytes);
        b->block = calloc(b->n, sizeof(*b->block));
        if (!b->block)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        for (size_t i = 0; i < b->n; i++) {
                struct block *k = &b->block[i];

                k->bytes = MIN(block_bytes, bytes - i * block_bytes) & ~UINT64_C(7);
                k->origin = pattern_origin(first + i);
                TRY(cu.MemAlloc(&k->at, k->bytes));
        }
        b->verdict = verdict_new();
        TRY(cu.StreamCreate(&b->stream, CU_STREAM_NON_BLOCKING));
}

void blocks_fill(struct blocks *b, uint64_t round)
{
        uint64_t key = pattern_key(options.seed, round);

        for (size_t i = 0; i < b->n; i++)
                launch_fill(b->block[i].at, b->block[i].bytes, b->block[i].origin, key, b->stream);
        TRY(cu.StreamSynchronize(b->stream));
}

uint64_t blocks_step(struct blocks *b, uint64_t round)
{
        uint64_t key = pattern_key(options.seed, round);
        uint64_t next_key = pattern_key(options.seed, round + 1);

        for (size_t i = 0; i < b->n; i++)
                launch_step(b->block[i].at, b->block[i].bytes, b->block[i].origin, key, next_key,
                            b->verdict, b->stream);
        return verdict_take(b->verdict, round, b->stream);
}

uint64_t blocks_verify(struct blocks *b, uint64_t round)
{
        uint64_t key = pattern_key(options.seed, round);

        for (size_t i = 0; i < b->n; i++)
                launch_verify(b->block[i].at, b->block[i].bytes, b->block[i].origin, key,
                              b->verdict, b->stream);
        return verdict_take(b->verdict, round, b->stream);
}

void blocks_sample(const struct blocks *b, uint64_t round, const char *path)
{
        uint64_t random = options.seed + 1;
        uint8_t *buffer = malloc(options.sample_bytes);
        FILE *f = fopen(path, "wb");

        if (!buffer || !f)
                program_fail(PROGRAM_EXIT_SETUP, "%s: cannot write", path);
        for (size_t i = 0; i < b->n; i++) {
                const struct block *k = &b->block[i];
                uint64_t bytes = MIN(options.sample_bytes, k->bytes) & ~UINT64_C(7);
                uint64_t room = (k->bytes - bytes) / 8;
                uint64_t offset = room ? program_random(&random) % (room + 1) * 8 : 0;
                struct sample_header h = {.magic = SAMPLE_MAGIC,
                                          .origin = k->origin + offset,
                                          .bytes = bytes,
                                          .key = pattern_key(options.seed, round)};

                TRY(cu.MemcpyDtoH(buffer, k->at + offset, bytes));
                if (fwrite(&h, sizeof(h), 1, f) != 1 || fwrite(buffer, bytes, 1, f) != 1)
                        program_fail(PROGRAM_EXIT_SETUP, "%s: cannot write", path);
        }
        if (fclose(f))
                program_fail(PROGRAM_EXIT_SETUP, "%s: cannot write", path);
        free(buffer);
}

void blocks_free(struct blocks *b)
{
        for (size_t i = 0; i < b->n; i++)
                TRY(cu.MemFree(b->block[i].at));
        TRY(cu.MemFree(b->verdict));
        TRY(cu.StreamDestroy(b->stream));
        free(b->block);
        *b = (struct blocks){0};
}

uint64_t pattern_sum(uint64_t origin, uint64_t bytes, uint64_t key)
{
        uint64_t sum = 0;

        for (uint64_t i = 0; i < bytes / 8; i++)
                sum += pattern_word(origin + 8 * i, key);
        return sum;
}
