/* operation.c: one collective operation: its buffers, its call, and what must come out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "checks.h"

#define GUARD      64 /* bytes before and after the results that nobody may write */
#define GUARD_BYTE 0xa5

const char *const collective_names[COLLECTIVES] = {
        [ALL_REDUCE] = "all-reduce",
        [REDUCE] = "reduce",
        [REDUCE_SCATTER] = "reduce-scatter",
        [ALL_GATHER] = "all-gather",
        [BROADCAST] = "broadcast",
        [BCAST] = "bcast",
        [GATHER] = "gather",
        [SCATTER] = "scatter",
        [ALL_TO_ALL] = "all-to-all",
        [SEND_TO_NEXT] = "send-to-next",
};

/* How many counts of elements a rank sends and receives; 0: nothing. */
static void shape(const struct operation *o, size_t *ret_send, size_t *ret_recv)
{
        bool root = o->rank == o->root;
        size_t n = (size_t)o->n;

        switch (o->what) {
        case REDUCE:
                *ret_send = 1;
                *ret_recv = root;
                break;
        case REDUCE_SCATTER:
                *ret_send = n;
                *ret_recv = 1;
                break;
        case ALL_GATHER:
                *ret_send = 1;
                *ret_recv = n;
                break;
        case BROADCAST:
        case BCAST:
                *ret_send = root;
                *ret_recv = 1;
                break;
        case GATHER:
                *ret_send = 1;
                *ret_recv = root ? n : 0;
                break;
        case SCATTER:
                *ret_send = root ? n : 0;
                *ret_recv = 1;
                break;
        case ALL_TO_ALL:
                *ret_send = *ret_recv = n;
                break;
        default:
                *ret_send = *ret_recv = 1;
        }
}

static bool reduces(enum collective what)
{
        return what == ALL_REDUCE || what == REDUCE || what == REDUCE_SCATTER;
}

static void describe(const struct operation *o, const char *what)
{
        at("%s %s %s %s count %zu root %d%s%s seed %llu rank %d of %d", what,
           collective_names[o->what], types[o->type].name, reduces(o->what) ? op_names[o->op] : "",
           o->count, o->root, o->in_place ? " in place" : "", o->shift ? " shifted" : "",
           (unsigned long long)o->seed, o->rank, o->n);
}

static void *host(size_t bytes)
{
        void *p = malloc(bytes + 16);

        if (!p)
                fatal("no host memory");
        return p;
}

bool operation_exists(enum collective what)
{
        return what == GATHER       ? nccl.Gather != NULL
               : what == SCATTER    ? nccl.Scatter != NULL
               : what == ALL_TO_ALL ? nccl.AlltoAll != NULL
                                    : true;
}

static void make_op(struct operation *o)
{
        size_t bytes = types[o->type].bytes;
        char scalar[8];

        o->made_op = (int)o->op;
        if (!reduces(o->what) || o->op < PREMUL_HOST)
                return;
        value_encode(o->type, value_scalar(o->type, o->rank), scalar);
        if (o->op == PREMUL_HOST) {
                NCCL(nccl.RedOpCreatePreMulSum(&o->made_op, scalar, o->type,
                                               ncclScalarHostImmediate, o->comm));
                memset(scalar, 0xff, sizeof(scalar)); /* was read before the call returned */
                return;
        }
        CUDA(cu.MemAlloc(&o->scalar, 16));
        CUDA(cu.MemcpyHtoD(o->scalar, scalar, bytes));
        NCCL(nccl.RedOpCreatePreMulSum(&o->made_op, (void *)(uintptr_t)o->scalar, o->type,
                                       ncclScalarDevice, o->comm));
}

void operation_prepare(struct operation *o)
{
        size_t size = types[o->type].bytes, send_counts, recv_counts, shift = o->shift * size;
        size_t send_room, recv_room;

        shape(o, &send_counts, &recv_counts);
        o->send_bytes = send_counts * o->count * size;
        o->recv_bytes = recv_counts * o->count * size;
        o->receives = recv_counts > 0;
        send_room = align_up(o->send_bytes + shift, 256) + 256;
        recv_room = align_up(o->recv_bytes + shift + 2 * (size_t)GUARD, 256) + 256;
        if (o->in_place) {
                /* One buffer has room for both; which part of it is which depends on the rank. */
                size_t both = MAX(o->send_bytes, o->recv_bytes);
                size_t block = o->count * size, mine = (size_t)o->rank * block;
                CUdeviceptr base;

                o->memory_bytes = align_up(both + shift + 2 * (size_t)GUARD, 256) + 256;
                CUDA(cu.MemAlloc(&o->memory, o->memory_bytes));
                base = o->memory + GUARD + shift;
                o->send = o->recv = base;
                if (o->what == REDUCE_SCATTER || (o->what == SCATTER && o->rank == o->root))
                        o->recv = base + mine;
                if (o->what == ALL_GATHER || (o->what == GATHER && o->rank == o->root))
                        o->send = base + mine;
        } else {
                o->memory_bytes = send_room + recv_room;
                CUDA(cu.MemAlloc(&o->memory, o->memory_bytes));
                o->send = o->memory + shift;
                o->recv = o->memory + send_room + GUARD + shift;
        }
        make_op(o);
        operation_refill(o, o->seed);
}

static void input(const struct operation *o, int rank, size_t block, void *out)
{
        size_t size = types[o->type].bytes;

        if (reduces(o->what))
                values_input(o->type, o->op, o->seed, rank, o->n, block * o->count, o->count, out);
        else
                values_bytes(o->seed + 1000 * block, rank, o->count * size, out);
}

/* The copies are not asynchronous, but come in the stream's order. */
void operation_refill(struct operation *o, uint64_t seed)
{
        size_t size = types[o->type].bytes, block_bytes = o->count * size;
        size_t blocks = block_bytes ? o->send_bytes / block_bytes : 0;
        char *data = host(o->send_bytes);

        o->seed = seed;
        describe(o, "filling for");
        for (size_t b = 0; b < blocks; b++)
                input(o, o->rank, b, data + b * block_bytes);
        CUDA(cu.StreamSynchronize(o->stream));
        CUDA(cu.MemsetD8Async(o->memory, GUARD_BYTE, o->memory_bytes, o->stream));
        if (o->send_bytes)
                CUDA(cu.MemcpyHtoDAsync(o->send, data, o->send_bytes, o->stream));
        CUDA(cu.StreamSynchronize(o->stream));
        free(data);
}

void operation_call(struct operation *o)
{
        const void *send = (const void *)(uintptr_t)o->send;
        void *recv = o->receives ? (void *)(uintptr_t)o->recv : NULL;
        size_t count = o->count;
        CUstream s = o->stream;

        describe(o, "calling");
        switch (o->what) {
        case ALL_REDUCE:
                NCCL(nccl.AllReduce(send, recv, count, o->type, o->made_op, o->comm, s));
                break;
        case REDUCE:
                NCCL(nccl.Reduce(send, recv, count, o->type, o->made_op, o->root, o->comm, s));
                break;
        case REDUCE_SCATTER:
                NCCL(nccl.ReduceScatter(send, recv, count, o->type, o->made_op, o->comm, s));
                break;
        case ALL_GATHER:
                NCCL(nccl.AllGather(send, recv, count, o->type, o->comm, s));
                break;
        case BROADCAST:
                NCCL(nccl.Broadcast(o->rank == o->root ? send : NULL, recv, count, o->type, o->root,
                                    o->comm, s));
                break;
        case BCAST:
                NCCL(nccl.Bcast(recv, count, o->type, o->root, o->comm, s));
                break;
        case GATHER:
                NCCL(nccl.Gather(send, recv, count, o->type, o->root, o->comm, s));
                break;
        case SCATTER:
                NCCL(nccl.Scatter(o->rank == o->root ? send : NULL, recv, count, o->type, o->root,
                                  o->comm, s));
                break;
        case ALL_TO_ALL:
                NCCL(nccl.AlltoAll(send, recv, count, o->type, o->comm, s));
                break;
        default:
                NCCL(nccl.GroupStart());
                NCCL(nccl.Send(send, count, o->type, (o->rank + 1) % o->n, o->comm, s));
                NCCL(nccl.Recv(recv, count, o->type, (o->rank + o->n - 1) % o->n, o->comm, s));
                NCCL(nccl.GroupEnd());
        }
}

static void expected(const struct operation *o, char *out)
{
        size_t block = o->count * types[o->type].bytes;

        switch (o->what) {
        case ALL_REDUCE:
        case REDUCE:
                values_reduced(o->type, o->op, o->seed, o->n, 0, o->count, out);
                break;
        case REDUCE_SCATTER:
                values_reduced(o->type, o->op, o->seed, o->n, (size_t)o->rank * o->count, o->count,
                               out);
                break;
        case ALL_GATHER:
        case GATHER:
                for (int i = 0; i < o->n; i++)
                        input(o, i, 0, out + (size_t)i * block);
                break;
        case BROADCAST:
        case BCAST:
                input(o, o->root, 0, out);
                break;
        case SCATTER:
                input(o, o->root, (size_t)o->rank, out);
                break;
        case ALL_TO_ALL:
                for (int i = 0; i < o->n; i++)
                        input(o, i, (size_t)o->rank, out + (size_t)i * block);
                break;
        default:
                input(o, (o->rank + o->n - 1) % o->n, 0, out);
        }
}

/* Says the first wrong element with what it should be. */
static void say_wrong(const struct operation *o, const char *got, const char *wanted, long i)
{
        const struct type *t = &types[o->type];
        size_t from = (size_t)i * t->bytes;
        uint64_t a = 0, b = 0;
        char values[96] = "";

        memcpy(&a, got + from, t->bytes);
        memcpy(&b, wanted + from, t->bytes);
        if (reduces(o->what))
                (void)snprintf(values, sizeof(values), " (%.17g, not %.17g)",
                               value_decode(o->type, got + from),
                               value_decode(o->type, wanted + from));
        wrong("%s %s %s count %zu root %d%s%s seed %llu rank %d of %d: element %ld is %#llx, not "
              "%#llx%s",
              collective_names[o->what], t->name, reduces(o->what) ? op_names[o->op] : "", o->count,
              o->root, o->in_place ? " in place" : "", o->shift ? " shifted" : "",
              (unsigned long long)o->seed, o->rank, o->n, i, (unsigned long long)a,
              (unsigned long long)b, values);
}

static void check_guards(const struct operation *o)
{
        unsigned char before[GUARD], after[GUARD];
        CUdeviceptr from = o->recv;
        size_t bytes = o->recv_bytes;

        if (o->in_place) { /* the whole buffer, because inputs stay in the rest of it */
                from = o->memory + GUARD + o->shift * (size_t)types[o->type].bytes;
                bytes = MAX(o->send_bytes, o->recv_bytes);
        }
        CUDA(cu.MemcpyDtoH(before, from - GUARD, GUARD));
        CUDA(cu.MemcpyDtoH(after, from + bytes, GUARD));
        for (int i = 0; i < GUARD; i++) {
                EXPECT(before[i] == GUARD_BYTE, "%s: byte %d before the results was written",
                       lobby->seat[my_rank].at, GUARD - i);
                EXPECT(after[i] == GUARD_BYTE, "%s: byte %d after the results was written",
                       lobby->seat[my_rank].at, i);
        }
}

void operation_check(struct operation *o)
{
        char *got, *wanted;
        long i;

        describe(o, "waiting for");
        CUDA(cu.StreamSynchronize(o->stream));
        describe(o, "checking");
        count_case();
        check_guards(o);
        if (!o->recv_bytes)
                return;
        got = host(o->recv_bytes);
        wanted = host(o->recv_bytes);
        CUDA(cu.MemcpyDtoH(got, o->recv, o->recv_bytes));
        expected(o, wanted);
        i = values_differ(o->type, got, wanted, o->recv_bytes / types[o->type].bytes,
                          reduces(o->what) ? values_tolerance(o->type, o->op, o->n) : 0);
        if (i >= 0)
                say_wrong(o, got, wanted, i);
        if (!o->in_place && o->send_bytes) { /* the inputs stay as they were */
                char *data = realloc(got, o->send_bytes + 16), *first;
                size_t block = o->count * types[o->type].bytes;

                if (!data)
                        fatal("no host memory");
                got = data;
                first = host(block);
                CUDA(cu.MemcpyDtoH(got, o->send, o->send_bytes));
                for (size_t b = 0; b < o->send_bytes / block; b++) {
                        input(o, o->rank, b, first);
                        EXPECT(!memcmp(first, got + b * block, block), "%s: the input was changed",
                               lobby->seat[my_rank].at);
                }
                free(first);
        }
        free(got);
        free(wanted);
}

/* FNV-1a of the results. */
uint64_t operation_digest(struct operation *o)
{
        unsigned char *got = host(o->recv_bytes);
        uint64_t h = UINT64_C(0xcbf29ce484222325);

        CUDA(cu.StreamSynchronize(o->stream));
        if (o->recv_bytes)
                CUDA(cu.MemcpyDtoH(got, o->recv, o->recv_bytes));
        for (size_t i = 0; i < o->recv_bytes; i++)
                h = (h ^ got[i]) * UINT64_C(0x100000001b3);
        free(got);
        return h;
}

void operation_free(struct operation *o)
{
        if (o->scalar)
                CUDA(cu.MemFree(o->scalar));
        if (reduces(o->what) && o->op >= PREMUL_HOST)
                NCCL(nccl.RedOpDestroy(o->made_op, o->comm));
        CUDA(cu.MemFree(o->memory));
        o->memory = o->scalar = 0;
}

void operation_do(struct operation *o)
{
        operation_prepare(o);
        operation_call(o);
        operation_check(o);
        operation_free(o);
}
