/* small: makes many small allocations, frees some and makes them again. No two may share a byte;
 * each must be aligned and keep its contents. */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "program.h"

struct piece {
        CUdeviceptr at;
        uint32_t bytes;
        uint32_t round;
};

enum { BYTES_MAX = 16384, ALIGNMENT = 256 };

static int by_address(const void *a, const void *b)
{
        const struct piece *x = *(const struct piece *const *)a;
        const struct piece *y = *(const struct piece *const *)b;

        return x->at < y->at ? -1 : x->at > y->at;
}

static void piece_contents(uint8_t *to, const struct piece *p, size_t index)
{
        uint64_t key = pattern_key(options.seed, p->round);

        for (uint32_t i = 0; i < p->bytes; i += 8) {
                uint64_t x = pattern_word(pattern_origin(index) + i, key);

                memcpy(to + i, &x, MIN(8U, p->bytes - i));
        }
}

static void piece_new(struct piece *p, size_t index, uint32_t round, uint64_t *random)
{
        uint8_t contents[BYTES_MAX];

        p->bytes = 1 + (uint32_t)(program_random(random) % (BYTES_MAX - 1));
        p->round = round;
        TRY(cu.MemAlloc(&p->at, p->bytes));
        if (p->at % ALIGNMENT)
                program_fail(PROGRAM_EXIT_WRONG, "%#llx: not aligned", p->at);
        piece_contents(contents, p, index);
        TRY(cu.MemcpyHtoD(p->at, contents, p->bytes));
}

static void check_apart(struct piece *piece, size_t n)
{
        struct piece **sorted = calloc(n, sizeof(struct piece *));

        if (!sorted)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        for (size_t i = 0; i < n; i++)
                sorted[i] = &piece[i];
        qsort(sorted, n, sizeof(struct piece *), by_address);
        for (size_t i = 1; i < n; i++)
                if (sorted[i - 1]->at + sorted[i - 1]->bytes > sorted[i]->at)
                        program_fail(PROGRAM_EXIT_WRONG, "%#llx: two allocations overlap",
                                     sorted[i]->at);
        free(sorted);
}

int main(int argc, char **argv)
{
        uint8_t got[BYTES_MAX], want[BYTES_MAX];
        struct piece *piece;
        uint64_t random, round = 0, sum = 0;
        size_t n;

        program_begin(argc, argv, &(struct options){.count = 2000, .rounds = 4}, false);
        random = options.seed + 1;
        n = (size_t)options.count;
        piece = calloc(n, sizeof(*piece));
        if (!piece)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        for (size_t i = 0; i < n; i++)
                piece_new(&piece[i], i, 0, &random);
        for (; program_more(round); round++) {
                check_apart(piece, n);
                for (size_t i = 0; i < n; i++) {
                        struct piece *p = &piece[i];

                        if (program_random(&random) % 2)
                                continue;
                        TRY(cu.MemcpyDtoH(got, p->at, p->bytes));
                        piece_contents(want, p, i);
                        if (memcmp(got, want, p->bytes) != 0)
                                program_fail(PROGRAM_EXIT_WRONG, "allocation %zu: wrong", i);
                        sum = sum * 31 + p->bytes + got[p->bytes - 1];
                        TRY(cu.MemFree(p->at));
                        piece_new(p, i, (uint32_t)round + 1, &random);
                }
        }
        program_say("sum", "\"rounds\":%llu,\"sum\":\"%016llx\"", (unsigned long long)round,
                    (unsigned long long)sum);
        for (size_t i = 0; i < n; i++)
                TRY(cu.MemFree(piece[i].at));
        free(piece);
        program_end();
}
