/* edit: keeps a copy of its device memory on the host, changes both as the lines on stdin say, and
 * compares them:
 *
 *   random N   changes every byte, from seed N     poke OFFSET   changes one byte
 *   zero       clears every byte                   renew BLOCK   frees one block, allocates zeros
 *   wake       submits work on other memory        check         compares every byte
 *   exit       checks and leaves (so does the end of stdin)
 *
 * With --rounds it takes no orders: each round changes some bytes, or none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "program.h"

static CUdeviceptr *blocks, scratch;
static uint8_t *copy, *seen;
static uint64_t n_blocks, poked;

static CUdeviceptr device_at(uint64_t offset)
{
        return blocks[offset / options.block] + offset % options.block;
}

static void set_random(uint64_t seed)
{
        uint64_t state = seed * 2 + 1;

        for (uint64_t i = 0; i < options.bytes; i += 8) {
                uint64_t x = program_random(&state);

                memcpy(copy + i, &x, 8);
        }
        for (uint64_t i = 0; i < n_blocks; i++)
                TRY(cu.MemcpyHtoD(blocks[i], copy + i * options.block, options.block));
}

static void set_zero(uint64_t first, uint64_t count)
{
        memset(copy + first * options.block, 0, count * options.block);
        for (uint64_t i = first; i < first + count; i++)
                TRY(cu.MemsetD8(blocks[i], 0, options.block));
}

static void poke(uint64_t offset)
{
        if (offset >= options.bytes)
                program_fail(PROGRAM_EXIT_USAGE, "there are %llu bytes",
                             (unsigned long long)options.bytes);
        copy[offset] ^= (uint8_t)(1 + poked++ % 255);
        TRY(cu.MemsetD8(device_at(offset), copy[offset], 1));
}

static void renew(uint64_t i)
{
        TRY(cu.MemFree(blocks[i]));
        TRY(cu.MemAlloc(&blocks[i], options.block));
        set_zero(i, 1);
}

static void check(void)
{
        for (uint64_t i = 0; i < n_blocks; i++) {
                uint64_t at = i * options.block;

                TRY(cu.MemcpyDtoH(seen, blocks[i], options.block));
                for (uint64_t k = 0; k < options.block; k++)
                        if (seen[k] != copy[at + k])
                                program_fail(PROGRAM_EXIT_WRONG, "byte %llu is %02x, not %02x",
                                             (unsigned long long)(at + k), seen[k], copy[at + k]);
        }
}

static void obey(const char *line)
{
        unsigned long long n;

        if (sscanf(line, "random %llu", &n) == 1)
                set_random(n);
        else if (sscanf(line, "poke %llu", &n) == 1)
                poke(n);
        else if (sscanf(line, "renew %llu", &n) == 1 && n < n_blocks)
                renew(n);
        else if (!strcmp(line, "zero"))
                set_zero(0, n_blocks);
        else if (!strcmp(line, "wake"))
                TRY(cu.MemsetD8(scratch, 0, 1));
        else if (!strcmp(line, "check"))
                check();
        else
                program_fail(PROGRAM_EXIT_USAGE, "%s: unknown order", line);
}

static void by_itself(void)
{
        uint64_t state = options.seed * 2 + 1;

        for (uint64_t round = 0; program_more(round); round++) {
                uint64_t what = program_random(&state);

                switch (what % 8) {
                case 0:
                        set_random(what);
                        break;
                case 1:
                        set_zero(what / 8 % n_blocks, 1);
                        break;
                case 2:
                        renew(what / 8 % n_blocks);
                        break;
                case 3:
                case 4:
                        poke(what / 8 % options.bytes);
                        break;
                default:
                        TRY(cu.MemsetD8(scratch, 0, 1));
                }
                check();
                program_say("round", "\"round\":%llu", (unsigned long long)round);
        }
}

int main(int argc, char **argv)
{
        char line[128];

        program_begin(argc, argv, &(struct options){.bytes = 48 * MIB, .block = 4 * MIB}, false);
        n_blocks = options.bytes / options.block;
        options.bytes = n_blocks * options.block;
        blocks = calloc(n_blocks, sizeof(*blocks));
        copy = malloc(options.bytes);
        seen = malloc(options.block);
        if (!blocks || !copy || !seen)
                program_fail(PROGRAM_EXIT_SETUP, "no memory");
        TRY(cu.MemAlloc(&scratch, 1));
        for (uint64_t i = 0; i < n_blocks; i++)
                TRY(cu.MemAlloc(&blocks[i], options.block));
        set_random(options.seed);
        program_say("filled", "\"at\":%llu", (unsigned long long)program_now_ns());
        if (options.rounds)
                by_itself();
        else
                while (fgets(line, sizeof(line), stdin)) {
                        line[strcspn(line, "\n")] = '\0';
                        if (!strcmp(line, "exit"))
                                break;
                        obey(line);
                        program_say("done", "\"order\":\"%s\",\"at\":%llu", line,
                                    (unsigned long long)program_now_ns());
                }
        check();
        for (uint64_t i = 0; i < n_blocks; i++)
                TRY(cu.MemFree(blocks[i]));
        program_end();
}
