/* streams.c: the checks of order: several streams, groups, communicators, graphs, and repetition.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/splitmix.h"
#include "checks.h"

static struct operation on(const struct rank *r, enum collective what, int type, size_t count,
                           uint64_t seed)
{
        return (struct operation){.what = what,
                                  .type = type,
                                  .count = count,
                                  .seed = seed,
                                  .comm = r->comm,
                                  .rank = r->rank,
                                  .n = r->n,
                                  .in_place = what == BCAST,
                                  .stream = r->stream[0]};
}

static size_t some_count(void)
{
        return settings.counts[settings.count_n - 1] / 2 + 1;
}

/* Operations of one communicator in several streams, the default stream too. */
void check_streams(struct rank *r)
{
        struct operation o[8];

        for (size_t i = 0; i < ARRAY_SIZE(o); i++) {
                o[i] = on(r, i % 3 == 1 ? ALL_GATHER : ALL_REDUCE, ncclFloat32, some_count() + i,
                          i);
                o[i].stream = i == 3 ? NULL : r->stream[i % ARRAY_SIZE(r->stream)];
                operation_prepare(&o[i]);
        }
        for (size_t i = 0; i < ARRAY_SIZE(o); i++)
                operation_call(&o[i]);
        for (size_t i = ARRAY_SIZE(o); i-- > 0;) {
                operation_check(&o[i]);
                operation_free(&o[i]);
        }
}

/* Inputs are written and results are read in the stream, without a wait between: an operation
 * begins after what was in its stream before, and ends before what comes after. */
void check_stream_order(struct rank *r)
{
        enum { STEPS = 20 };
        size_t count = some_count();
        CUdeviceptr in, out, kept;
        float *got = malloc(STEPS * count * sizeof(*got));

        if (!got)
                fatal("no host memory");
        CUDA(cu.MemAlloc(&in, count * 4));
        CUDA(cu.MemAlloc(&out, count * 4));
        CUDA(cu.MemAlloc(&kept, STEPS * count * 4));
        at("all-reduces with copies between");
        for (int i = 0; i < STEPS; i++) {
                float v = (float)(i * 10 + r->rank);
                unsigned bits;

                memcpy(&bits, &v, 4);
                CUDA(cu.MemsetD32Async(in, bits, count, r->stream[1]));
                NCCL(nccl.AllReduce((void *)(uintptr_t)in, (void *)(uintptr_t)out, count,
                                    ncclFloat32, ncclSum, r->comm, r->stream[1]));
                CUDA(cu.MemsetD32Async(in, 0xffffffff, count, r->stream[1]));
                CUDA(cu.MemcpyDtoDAsync(kept + (size_t)i * count * 4, out, count * 4,
                                        r->stream[1]));
        }
        CUDA(cu.StreamSynchronize(r->stream[1]));
        CUDA(cu.MemcpyDtoH(got, kept, STEPS * count * 4));
        for (int i = 0; i < STEPS; i++) {
                float sum = (float)(i * 10 * r->n + r->n * (r->n - 1) / 2);

                for (size_t e = 0; e < count; e++)
                        if (got[(size_t)i * count + e] != sum) {
                                wrong("step %d, element %zu: %g, not %g", i, e,
                                      (double)got[(size_t)i * count + e], (double)sum);
                                break;
                        }
                count_case();
        }
        CUDA(cu.MemFree(in));
        CUDA(cu.MemFree(out));
        CUDA(cu.MemFree(kept));
        free(got);
}

static void do_group(struct operation *o, size_t n, bool nested)
{
        for (size_t i = 0; i < n; i++)
                operation_prepare(&o[i]);
        NCCL(nccl.GroupStart());
        for (size_t i = 0; i < n; i++) {
                if (nested)
                        NCCL(nccl.GroupStart());
                operation_call(&o[i]);
                if (nested)
                        NCCL(nccl.GroupEnd());
        }
        at("the end of a group of %zu", n);
        NCCL(nccl.GroupEnd());
        for (size_t i = 0; i < n; i++)
                operation_check(&o[i]);
        for (size_t i = 0; i < n; i++)
                operation_free(&o[i]);
}

void check_groups(struct rank *r)
{
        static const enum collective whats[] = {ALL_REDUCE,     ALL_GATHER,   REDUCE,
                                                BROADCAST,      ALL_REDUCE,   BCAST,
                                                REDUCE_SCATTER, SEND_TO_NEXT, SEND_TO_NEXT};
        struct operation o[ARRAY_SIZE(whats)];

        for (int round = 0; round < 3; round++) {
                for (size_t i = 0; i < ARRAY_SIZE(whats); i++) {
                        o[i] = on(r, whats[i], (int)i % ncclNumTypes, 1 + i * 171, i);
                        o[i].root = (int)i % r->n;
                        if (round == 2) /* several streams in one group */
                                o[i].stream = r->stream[i % ARRAY_SIZE(r->stream)];
                }
                do_group(o, ARRAY_SIZE(o), round == 1);
        }
        at("an empty group");
        NCCL(nccl.GroupStart());
        NCCL(nccl.GroupEnd());
        for (size_t i = 0; i < 4; i++) /* many equal ones, as of a model's small layers */
                o[i] = on(r, ALL_REDUCE, ncclBfloat16, 17, i);
        do_group(o, 4, false);
}

void check_two_communicators(struct rank *r)
{
        ncclComm_t other = comm_of_all(r, true);
        struct operation o[6];

        for (int grouped = 0; grouped < 2; grouped++) {
                for (size_t i = 0; i < ARRAY_SIZE(o); i++) {
                        o[i] = on(r,
                                  i == 4  ? SEND_TO_NEXT
                                  : i % 3 ? ALL_REDUCE
                                          : ALL_GATHER,
                                  ncclInt32, some_count(), i);
                        if (i % 2) {
                                o[i].comm = other;
                                o[i].rank = r->n - 1 - r->rank;
                                o[i].stream = r->stream[1];
                        }
                }
                if (grouped) {
                        do_group(o, ARRAY_SIZE(o), false);
                        continue;
                }
                for (size_t i = 0; i < ARRAY_SIZE(o); i++)
                        operation_prepare(&o[i]);
                for (size_t i = 0; i < ARRAY_SIZE(o); i++)
                        operation_call(&o[i]);
                for (size_t i = 0; i < ARRAY_SIZE(o); i++) {
                        operation_check(&o[i]);
                        operation_free(&o[i]);
                }
        }
        NCCL(nccl.CommDestroy(other));
}

bool equal_on_all_ranks(const struct rank *r, uint64_t digest)
{
        bool equal = true;

        lobby->seat[r->rank].digest = digest;
        lobby_meet();
        for (int i = 0; i < r->n; i++)
                equal = equal && lobby->seat[i].digest == digest;
        lobby_meet();
        return equal;
}

static CUdeviceptr random_input(const struct rank *r, int type, size_t count, uint64_t seed)
{
        size_t bytes = count * types[type].bytes;
        void *data = malloc(bytes);
        CUdeviceptr p;

        if (!data)
                fatal("no host memory");
        values_random(type, seed, r->rank, count, data);
        CUDA(cu.MemAlloc(&p, bytes));
        CUDA(cu.MemcpyHtoD(p, data, bytes));
        free(data);
        return p;
}

static uint64_t hash_of(const unsigned char *data, size_t bytes)
{
        uint64_t h = 1;

        for (size_t i = 0; i < bytes; i++)
                h = splitmix(h ^ data[i]);
        return h;
}

/* Random numbers, whose sums are rounded: near the exact sum, and bit by bit the same on all ranks
 * and each time. */
static void try_random(const struct rank *r, int type, size_t count, enum op op)
{
        static unsigned char parts[RANKS_MAX][8];
        size_t size = types[type].bytes, bytes = count * size;
        CUdeviceptr in = random_input(r, type, count, 3), out;
        unsigned char *got = malloc(bytes), *all = malloc(bytes * (size_t)r->n);
        uint64_t first = 0;

        if (!got || !all)
                fatal("no host memory");
        CUDA(cu.MemAlloc(&out, bytes));
        for (int round = 0; round < 3; round++) {
                uint64_t digest;

                at("%s of random %s", op_names[op], types[type].name);
                CUDA(cu.MemsetD8Async(out, 0x77, bytes, r->stream[round]));
                NCCL(nccl.AllReduce((void *)(uintptr_t)in, (void *)(uintptr_t)out, count, type,
                                    (int)op, r->comm, r->stream[round]));
                CUDA(cu.StreamSynchronize(r->stream[round]));
                CUDA(cu.MemcpyDtoH(got, out, bytes));
                digest = hash_of(got, bytes);
                EXPECT(equal_on_all_ranks(r, digest), "%s of random %s differs between ranks",
                       op_names[op], types[type].name);
                if (!round)
                        first = digest;
                EXPECT(digest == first, "%s of random %s differs from time to time", op_names[op],
                       types[type].name);
                count_case();
        }
        for (int i = 0; i < r->n; i++)
                values_random(type, 3, i, count, all + (size_t)i * bytes);
        for (size_t e = 0; e < count; e++) {
                double sum = 0, sizes = 0, value = value_decode(type, got + e * size), least;

                for (int i = 0; i < r->n; i++) {
                        double v;

                        memcpy(parts[i], all + (size_t)i * bytes + e * size, size);
                        v = value_decode(type, parts[i]);
                        sum += v;
                        sizes += v < 0 ? -v : v;
                }
                if (op == AVG) {
                        sum /= r->n;
                        sizes /= r->n;
                }
                /* A rounding of each rank's part and of each sum, by half a unit of the largest,
                 * and the least number of the type. */
                least = 1.0 / (UINT64_C(1) << (types[type].exponent_bits == 4 ? 9 : 14));
                sizes *= (r->n + 1) / (double)(UINT64_C(1) << (types[type].mantissa_bits + 1));
                if (!(value >= sum - sizes - least && value <= sum + sizes + least)) {
                        wrong("%s of random %s: element %zu is %.17g, not near %.17g", op_names[op],
                              types[type].name, e, value, sum);
                        break;
                }
        }
        CUDA(cu.MemFree(in));
        CUDA(cu.MemFree(out));
        free(got);
        free(all);
}

void check_random_numbers(struct rank *r)
{
        for (int type = ncclFloat16; type < ncclNumTypes; type++)
                if (settings.types[type]) {
                        try_random(r, type, 3001, SUM);
                        try_random(r, type, 501, AVG);
                }
}

/* The same operation many times in a row, without a wait between. */
void check_repeat(struct rank *r)
{
        struct operation o[3];
        uint64_t first[3];

        for (size_t i = 0; i < ARRAY_SIZE(o); i++) {
                o[i] = on(r, i == 1 ? REDUCE_SCATTER : ALL_REDUCE,
                          i == 2 ? ncclBfloat16 : ncclFloat32, some_count(), i);
                operation_prepare(&o[i]);
        }
        for (int round = 0; round < 30 * settings.rounds; round++)
                for (size_t i = 0; i < ARRAY_SIZE(o); i++)
                        operation_call(&o[i]);
        for (size_t i = 0; i < ARRAY_SIZE(o); i++) {
                operation_check(&o[i]);
                first[i] = operation_digest(&o[i]);
                operation_call(&o[i]);
                EXPECT(operation_digest(&o[i]) == first[i], "the results differ from time to time");
                EXPECT(i == 1 || equal_on_all_ranks(r, first[i]),
                       "the results differ between ranks");
                operation_free(&o[i]);
        }
}

/* A sequence of operations that a seed decides: which, how large, in which stream and communicator,
 * in a group or not. */
static void mix(const struct rank *r, ncclComm_t other, uint64_t *state)
{
        struct operation o[6];
        size_t n = 1 + splitmix_next(state) % ARRAY_SIZE(o);
        bool grouped = splitmix_next(state) % 2;

        for (size_t i = 0; i < n; i++) {
                uint64_t x = splitmix_next(state);
                size_t count = settings.counts[splitmix_next(state) % (unsigned)settings.count_n];

                o[i] = on(r, (enum collective)(x % COLLECTIVES), (int)(x / 16 % ncclNumTypes),
                          splitmix_next(state) % (count + 1), x);
                if (!operation_exists(o[i].what))
                        o[i].what = ALL_REDUCE;
                o[i].op = (enum op)(x / 1024 % OPS);
                o[i].root = (int)(x / 65536 % (unsigned)r->n);
                o[i].shift = x / 1048576 % 4;
                o[i].stream = r->stream[x / 16777216 % ARRAY_SIZE(r->stream)];
                o[i].in_place = o[i].what == BCAST || (o[i].what < ALL_TO_ALL && x / 268435456 % 2);
                if (x / UINT64_C(4294967296) % 2) {
                        o[i].comm = other;
                        o[i].rank = r->n - 1 - r->rank;
                }
        }
        if (grouped) {
                do_group(o, n, false);
                return;
        }
        for (size_t i = 0; i < n; i++)
                operation_prepare(&o[i]);
        for (size_t i = 0; i < n; i++)
                operation_call(&o[i]);
        for (size_t i = 0; i < n; i++)
                operation_check(&o[i]);
        for (size_t i = 0; i < n; i++)
                operation_free(&o[i]);
}

void check_mixture(struct rank *r)
{
        ncclComm_t other = comm_of_all(r, true);
        uint64_t state = 20;

        for (int i = 0; i < 20 * settings.rounds; i++)
                mix(r, other, &state);
        NCCL(nccl.CommDestroy(other));
}

/* Goes on until the file of --until exists: for tests that stop or disturb ranks meanwhile. */
void check_endless(struct rank *r)
{
        ncclComm_t other = comm_of_all(r, true);
        uint64_t state = 21;

        for (unsigned round = 0;; round++) {
                mix(r, other, &state);
                fill_check(r);
                lobby_meet();
                if (r->rank == 0) {
                        program_say("round", "\"round\":%u", round);
                        lobby->stop = !settings.until || access(settings.until, F_OK) == 0;
                }
                lobby_meet();
                if (lobby->stop)
                        break;
        }
        NCCL(nccl.CommDestroy(other));
}

/* ---- graphs ---- */

static CUgraphExec capture(const struct rank *r, struct operation *o, size_t n, bool grouped)
{
        CUgraphExec exec;
        CUgraph graph;

        at("capturing %zu operations", n);
        CUDA(cu.StreamBeginCapture(r->stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        if (grouped)
                NCCL(nccl.GroupStart());
        for (size_t i = 0; i < n; i++)
                operation_call(&o[i]);
        if (grouped)
                NCCL(nccl.GroupEnd());
        CUDA(cu.StreamEndCapture(r->stream[0], &graph));
        CUDA(cu.GraphInstantiateWithFlags(&exec, graph, 0));
        CUDA(cu.GraphDestroy(graph));
        return exec;
}

static size_t for_graph(const struct rank *r, struct operation *o)
{
        static const enum collective whats[] = {ALL_REDUCE,     ALL_GATHER, SEND_TO_NEXT,
                                                REDUCE_SCATTER, BROADCAST,  REDUCE};

        for (size_t i = 0; i < ARRAY_SIZE(whats); i++) {
                o[i] = on(r, whats[i], i == 3 ? ncclBfloat16 : ncclFloat32, 700 + i, i);
                o[i].root = (int)i % r->n;
                o[i].op = i == 0 ? PREMUL_HOST : SUM;
                operation_prepare(&o[i]);
        }
        return ARRAY_SIZE(whats);
}

/* A graph of operations, launched three times or more with other inputs. */
void check_graph(struct rank *r)
{
        for (int grouped = 0; grouped < 2; grouped++) {
                struct operation o[8];
                size_t n = for_graph(r, o);
                CUgraphExec exec = capture(r, o, n, grouped);

                for (uint64_t round = 0; round < 3 * (uint64_t)settings.rounds; round++) {
                        for (size_t i = 0; i < n; i++)
                                operation_refill(&o[i], round * 100 + i);
                        at("launching the graph, round %llu", (unsigned long long)round);
                        CUDA(cu.GraphLaunch(exec, r->stream[0]));
                        for (size_t i = 0; i < n; i++)
                                operation_check(&o[i]);
                }
                at("launching the graph five times without a wait");
                for (int i = 0; i < 5; i++)
                        CUDA(cu.GraphLaunch(exec, r->stream[0]));
                for (size_t i = 0; i < n; i++)
                        operation_check(&o[i]);
                CUDA(cu.GraphExecDestroy(exec));
                for (size_t i = 0; i < n; i++)
                        operation_free(&o[i]);
        }
}

/* Two graphs and operations outside of graphs, in turns. */
void check_graph_mixed(struct rank *r)
{
        struct operation a[8], b[8], c = on(r, ALL_REDUCE, ncclInt64, 99, 5);
        size_t n = for_graph(r, a), m = for_graph(r, b);
        CUgraphExec first = capture(r, a, n, true), second = capture(r, b, m, false);

        operation_prepare(&c);
        for (uint64_t round = 0; round < 4; round++) {
                for (size_t i = 0; i < n; i++)
                        operation_refill(&a[i], round * 77 + i);
                for (size_t i = 0; i < m; i++)
                        operation_refill(&b[i], round * 55 + i);
                operation_refill(&c, round);
                CUDA(cu.GraphLaunch(second, r->stream[0]));
                operation_call(&c);
                CUDA(cu.GraphLaunch(first, r->stream[0]));
                operation_check(&c);
                if (round % 2)
                        CUDA(cu.GraphLaunch(second, r->stream[0]));
                for (size_t i = 0; i < n; i++)
                        operation_check(&a[i]);
                for (size_t i = 0; i < m; i++)
                        operation_check(&b[i]);
        }
        CUDA(cu.GraphExecDestroy(first));
        CUDA(cu.GraphExecDestroy(second));
        operation_free(&c);
        for (size_t i = 0; i < n; i++)
                operation_free(&a[i]);
        for (size_t i = 0; i < m; i++)
                operation_free(&b[i]);
}

/* ---- waiting ---- */

static double processor_s(void)
{
        struct rusage u;

        (void)getrusage(RUSAGE_SELF, &u);
        return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* While an operation waits for the last rank, no thread of the others is busy. */
void check_wait_is_idle(struct rank *r)
{
        struct operation o = on(r, ALL_REDUCE, ncclFloat32, 1000, 1);
        const double wait_s = 1.5;
        double before, used;

        operation_prepare(&o);
        lobby_meet();
        if (r->rank < r->n - 1)
                operation_call(&o);
        before = processor_s();
        at("waiting for the last rank");
        (void)usleep((useconds_t)(wait_s * 1e6));
        used = processor_s() - before;
        note("%.0f ms of processor time in %.0f ms", used * 1e3, wait_s * 1e3);
        EXPECT(used < wait_s / 4, "waiting used %.0f ms of processor time in %.0f ms", used * 1e3,
               wait_s * 1e3);
        if (r->rank == r->n - 1)
                operation_call(&o);
        operation_check(&o);
        operation_free(&o);
}
