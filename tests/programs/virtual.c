/* virtual: memory that the program reserves, creates and maps itself, in the ways of real programs.
 * Every round checks and rewrites all of it, as fill does, and changes the mappings. --how:
 *
 *   segments  a long reservation that grows and shrinks by handles (expandable segments)
 *   pages     handles that wander between addresses; one page of zeros is mapped wherever nothing
 *             else is (page tables for caches)
 *   sleep     everything is copied to the host and released, and restored at the same addresses
 *             (sleep modes of inference servers)
 *   one       one handle of all the memory, released while it is mapped; it is mapped twice,
 *             and the second mapping is read-only
 *   threads   as pages, by four threads at the same time
 *   export    handles that can be shared; some are exported, and mapped a second time */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc both = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static const CUmemAccessDesc reading = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                        CU_MEM_ACCESS_FLAGS_PROT_READ};

static struct blocks b;
static CUdeviceptr base;                      /* a reservation of twice the memory */
static CUmemGenericAllocationHandle *handles; /* the handle of each block */
static uint64_t random_state;

static void map(CUdeviceptr at, CUmemGenericAllocationHandle h, uint64_t bytes,
                const CUmemAccessDesc *access)
{
        TRY(cu.MemMap(at, bytes, 0, h, 0));
        TRY(cu.MemSetAccess(at, bytes, access, 1));
}

static void block_create(size_t i)
{
        TRY(cu.MemCreate(&handles[i], options.block, &prop, 0));
        map(b.block[i].at, handles[i], options.block, &both);
}

static void block_destroy(size_t i)
{
        TRY(cu.MemUnmap(b.block[i].at, options.block));
        TRY(cu.MemRelease(handles[i]));
}

static void prepare(void)
{
        b.n = (size_t)(options.bytes / options.block);
        b.block = calloc(b.n, sizeof(*b.block));
        handles = calloc(b.n, sizeof(*handles));
        if (!b.block || !handles || b.n < 2)
                program_fail(PROGRAM_EXIT_SETUP, "too little memory");
        TRY(cu.MemAddressReserve(&base, 2 * b.n * options.block, 0, 0, 0));
        for (size_t i = 0; i < b.n; i++)
                b.block[i] = (struct block){.at = base + i * options.block,
                                            .bytes = options.block,
                                            .origin = pattern_origin(i)};
        b.verdict = verdict_new();
        TRY(cu.StreamCreate(&b.stream, CU_STREAM_NON_BLOCKING));
}

/* ---- between two rounds; the memory has the contents of `round` ---- */

/* Recreates blocks. Kernels are the first to use a new block, as in allocators. */
static void segments(uint64_t round)
{
        for (size_t n = 0; n < b.n / 3 + 1; n++) {
                size_t i = program_random(&random_state) % b.n;
                const struct block *k = &b.block[i];

                TRY(cu.StreamSynchronize(b.stream)); /* the block filled last may be this one */
                block_destroy(i);
                block_create(i);
                launch_fill(k->at, k->bytes, k->origin, pattern_key(options.seed, round), b.stream);
        }
}

#define WANDER_MAX 512u /* limit of the blocks that wander between two rounds */

static CUdeviceptr *holes;

static void holes_begin(void)
{
        holes = calloc(b.n, sizeof(*holes));
        if (!holes)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        for (size_t i = 0; i < b.n; i++)
                holes[i] = base + (b.n + i) * options.block;
}

static CUmemGenericAllocationHandle zeros;

static void pages_begin(void)
{
        CUmemGenericAllocationHandle again;

        TRY(cu.MemCreate(&zeros, options.block, &prop, 0));
        for (size_t i = 0; i < b.n; i++)
                TRY(cu.MemMap(base + (b.n + i) * options.block, options.block, 0, zeros, 0));
        TRY(cu.MemSetAccess(base + b.n * options.block, b.n * options.block, &both, 1));
        TRY(cu.MemsetD8Async(base + b.n * options.block, 0, options.block, b.stream));
        TRY(cu.MemRetainAllocationHandle(&again, (void *)(uintptr_t)base));
        if (again != handles[0])
                program_fail(PROGRAM_EXIT_WRONG, "another handle at the same address");
        TRY(cu.MemRelease(again));
        TRY(cu.StreamSynchronize(b.stream));
        holes_begin();
}

/* Swaps the addresses of a block and a page of zeros. */
static void wander(struct block *k, CUdeviceptr *hole)
{
        CUdeviceptr at = k->at;

        TRY(cu.MemUnmap(k->at, options.block));
        TRY(cu.MemUnmap(*hole, options.block));
        map(*hole, handles[k - b.block], options.block, &both);
        map(k->at, zeros, options.block, &both);
        k->at = *hole;
        *hole = at;
}

static void pages(uint64_t round)
{
        uint64_t word = 1;

        for (size_t n = 0; n < MIN(b.n / 2 + 1, WANDER_MAX); n++) {
                CUdeviceptr *hole = &holes[program_random(&random_state) % b.n];

                wander(&b.block[program_random(&random_state) % b.n], hole);
                TRY(cu.MemcpyDtoH(&word, *hole + options.block - sizeof(word), sizeof(word)));
                if (word != 0)
                        program_fail(PROGRAM_EXIT_WRONG, "round %llu: no zeros at %#llx",
                                     (unsigned long long)round, (unsigned long long)*hole);
        }
}

/* A thread with blocks of its own. All threads share the page of zeros, and check their blocks. */
struct walker {
        pthread_t thread;
        size_t first, count;
        uint64_t random, round;
};

static void *walk(void *data)
{
        struct walker *w = data;
        CUdeviceptr verdict;
        CUstream s;

        program_thread();
        TRY(cu.StreamCreate(&s, CU_STREAM_NON_BLOCKING));
        verdict = verdict_new();
        for (size_t n = 0; n < MIN(2 * w->count, WANDER_MAX); n++) {
                struct block *k = &b.block[w->first + program_random(&w->random) % w->count];

                wander(k, &holes[w->first + program_random(&w->random) % w->count]);
                launch_verify(k->at, k->bytes, k->origin, pattern_key(options.seed, w->round),
                              verdict, s);
                (void)verdict_take(verdict, w->round, s);
        }
        TRY(cu.MemFree(verdict));
        TRY(cu.StreamDestroy(s));
        return NULL;
}

static void threads(uint64_t round)
{
        struct walker walkers[4] = {0};
        const size_t each = b.n / ARRAY_SIZE(walkers);

        for (size_t i = 0; each > 0 && i < ARRAY_SIZE(walkers); i++) {
                walkers[i].first = i * each;
                walkers[i].count = each;
                walkers[i].random = options.seed * 100 + round * 10 + i + 1;
                walkers[i].round = round;
                if (pthread_create(&walkers[i].thread, NULL, walk, &walkers[i]))
                        program_fail(PROGRAM_EXIT_SETUP, "no thread");
        }
        for (size_t i = 0; each > 0 && i < ARRAY_SIZE(walkers); i++)
                (void)pthread_join(walkers[i].thread, NULL);
}

static void sleep_and_wake(uint64_t round)
{
        uint8_t *copy = malloc(options.block * b.n);

        if (!copy)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        for (size_t i = 0; i < b.n; i++) {
                TRY(cu.MemcpyDtoH(copy + i * options.block, b.block[i].at, options.block));
                block_destroy(i);
        }
        for (size_t i = 0; i < b.n; i++) {
                block_create(i);
                TRY(cu.MemcpyHtoD(b.block[i].at, copy + i * options.block, options.block));
        }
        TRY(cu.CtxSynchronize());
        free(copy);
}

static void one_begin(void)
{
        const uint64_t bytes = b.n * options.block;
        CUmemGenericAllocationHandle h;

        TRY(cu.MemCreate(&h, bytes, &prop, 0));
        map(base, h, bytes, &both);
        map(base + bytes, h, bytes, &reading);
        TRY(cu.MemRelease(h));
}

/* Makes the read-only mapping writable, and maps the other addresses again as read-only. */
static void one(uint64_t round)
{
        const uint64_t bytes = b.n * options.block;
        CUdeviceptr to = round % 2 ? base : base + bytes, from = round % 2 ? base + bytes : base;
        CUmemGenericAllocationHandle h;

        TRY(cu.MemRetainAllocationHandle(&h, (void *)(uintptr_t)(from + bytes / 2)));
        TRY(cu.MemUnmap(from, bytes));
        TRY(cu.MemSetAccess(to, bytes, &both, 1));
        map(from, h, bytes, &reading);
        TRY(cu.MemRelease(h));
        for (size_t i = 0; i < b.n; i++) {
                const struct block *k = &b.block[i];

                launch_verify(from + i * options.block, k->bytes, k->origin,
                              pattern_key(options.seed, round), b.verdict, b.stream);
                b.block[i].at = to + i * options.block;
        }
        (void)verdict_take(b.verdict, round, b.stream);
}

/* Exports one more block, and puts the imported block in its place. */
static void export(uint64_t round)
{
        const size_t i = round % b.n;
        CUmemGenericAllocationHandle in;
        int fd;

        if (round >= b.n / 4)
                return;
        TRY(cu.MemExportToShareableHandle(&fd, handles[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          0));
        TRY(cu.MemImportFromShareableHandle(&in, (void *)(intptr_t)fd,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        (void)close(fd);
        map(base + (b.n + i) * options.block, in, options.block, &both);
        TRY(cu.MemRelease(in));
        if (i % 2)
                block_destroy(i);
        b.block[i].at = base + (b.n + i) * options.block;
}

static void nothing(void)
{
}

int main(int argc, char **argv)
{
        static const char *const names[] = {"segments", "pages",  "sleep",
                                            "one",      "export", "threads"};
        static const struct {
                void (*begin)(void);
                void (*change)(uint64_t round);
        } ways[] = {{nothing, segments}, {pages_begin, pages}, {nothing, sleep_and_wake},
                    {one_begin, one},    {nothing, export},    {pages_begin, threads}};
        uint64_t round = 0, sum;
        size_t how;

        program_begin(argc, argv,
                      &(struct options){
                              .bytes = 48 * MIB, .block = 4 * MIB, .rounds = 6, .how = "segments"},
                      false);
        random_state = options.seed + 1;
        how = program_how(names, ARRAY_SIZE(names));
        if (ways[how].change == export)
                prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        prepare();
        if (ways[how].begin != one_begin)
                for (size_t i = 0; i < b.n; i++)
                        block_create(i);
        ways[how].begin();
        blocks_fill(&b, 0);
        program_say("filled", "\"at\":%llu", (unsigned long long)program_now_ns());
        while (program_more(round + 1)) {
                sum = blocks_step(&b, round);
                program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"",
                            (unsigned long long)round, (unsigned long long)sum);
                round++;
                ways[how].change(round);
                if (options.ms > 0)
                        (void)usleep((useconds_t)(options.ms * 1000));
        }
        sum = blocks_verify(&b, round);
        program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"", (unsigned long long)round,
                    (unsigned long long)sum);
        if (options.sample)
                blocks_sample(&b, round, options.sample);
        TRY(cu.MemUnmap(base, 2 * b.n * options.block));
        TRY(cu.MemAddressFree(base, 2 * b.n * options.block));
        program_end();
}
