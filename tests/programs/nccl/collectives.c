/* collectives.c: the checks that do every collective with every type, operation and count. */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "checks.h"

/* Tables of all operations with large counts would take long, and say little that smaller ones and
 * check_big() do not. */
#define MANY_ELEMENTS 10000

static struct operation plain(const struct rank *r, enum collective what, int type, size_t count)
{
        return (struct operation){
                .what = what,
                .type = type,
                .count = count,
                .seed = (uint64_t)what * 1000 + (uint64_t)type * 31 + count,
                .comm = r->comm,
                .rank = r->rank,
                .n = r->n,
                .stream = r->stream[0],
                .in_place = what == BCAST,
        };
}

static bool may_be_in_place(enum collective what)
{
        return what != BCAST && what != ALL_TO_ALL && what != SEND_TO_NEXT;
}

static void do_both_places(struct operation *o)
{
        operation_do(o);
        if (!may_be_in_place(o->what))
                return;
        o->in_place = true;
        o->seed++;
        operation_do(o);
        o->in_place = false;
}

static void do_reductions(const struct rank *r, enum collective what)
{
        for (int type = 0; type < ncclNumTypes; type++)
                for (int c = 0; settings.types[type] && c < settings.count_n; c++)
                        for (int op = 0; op < OPS; op++) {
                                struct operation o = plain(r, what, type, settings.counts[c]);

                                if (o.count > MANY_ELEMENTS && op != SUM && op != (type + 1) % OPS)
                                        continue;
                                o.op = (enum op)op;
                                o.root = what == REDUCE ? (op + type) % r->n : 0;
                                o.shift = (unsigned)(op + c) % 3;
                                do_both_places(&o);
                        }
}

static void do_copies(const struct rank *r, enum collective what, bool has_root)
{
        if (!operation_exists(what)) {
                skip("this NCCL has no %s", collective_names[what]);
                return;
        }
        for (int type = 0; type < ncclNumTypes; type++)
                for (int c = 0; settings.types[type] && c < settings.count_n; c++) {
                        struct operation o = plain(r, what, type, settings.counts[c]);

                        o.shift = (unsigned)(type + c) % 3;
                        o.root = has_root ? (type + c) % r->n : 0;
                        do_both_places(&o);
                        if (has_root && type == ncclFloat32)
                                for (o.root = 0; o.root < r->n; o.root++)
                                        operation_do(&o);
                }
}

void check_all_reduce(struct rank *r)
{
        do_reductions(r, ALL_REDUCE);
}

void check_reduce(struct rank *r)
{
        do_reductions(r, REDUCE);
}

void check_reduce_scatter(struct rank *r)
{
        do_reductions(r, REDUCE_SCATTER);
}

void check_all_gather(struct rank *r)
{
        do_copies(r, ALL_GATHER, false);
}

void check_broadcast(struct rank *r)
{
        do_copies(r, BROADCAST, true);
        do_copies(r, BCAST, true);
}

void check_gather_scatter(struct rank *r)
{
        do_copies(r, GATHER, true);
        do_copies(r, SCATTER, true);
}

void check_all_to_all(struct rank *r)
{
        do_copies(r, ALL_TO_ALL, false);
}

/* Buffers larger than the library's own, with a length that is no multiple of anything. */
void check_big(struct rank *r)
{
        static const struct {
                enum collective what;
                int type;
                enum op op;
                bool in_place;
        } cases[] = {
                {ALL_REDUCE, ncclFloat32, SUM, false},
                {ALL_REDUCE, ncclBfloat16, AVG, true},
                {ALL_REDUCE, ncclInt8, MAX, true},
                {ALL_REDUCE, ncclFloat64, PREMUL_HOST, false},
                {REDUCE, ncclFloat16, SUM, false},
                {REDUCE_SCATTER, ncclFloat32, SUM, true},
                {ALL_GATHER, ncclFloat32, SUM, true},
                {BROADCAST, ncclUint8, SUM, false},
                {ALL_TO_ALL, ncclInt32, SUM, false},
                {SEND_TO_NEXT, ncclInt64, SUM, false},
        };

        if (!settings.big) {
                skip("--big is 0");
                return;
        }
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct operation o = plain(r, cases[i].what, cases[i].type, 0);
                size_t blocks =
                        o.what == REDUCE_SCATTER || o.what == ALL_GATHER || o.what == ALL_TO_ALL
                                ? (size_t)r->n
                                : 1;

                if (!operation_exists(o.what))
                        continue;
                o.op = cases[i].op;
                o.in_place = cases[i].in_place;
                o.root = r->n - 1;
                /* --big counts elements of 4 bytes in the whole buffer. */
                o.count = settings.big * 4 / types[o.type].bytes / blocks + 7;
                operation_do(&o);
        }
}

/* ---- send and receive ---- */

void check_ring(struct rank *r)
{
        for (int type = 0; type < ncclNumTypes; type++)
                for (int c = 0; settings.types[type] && c < settings.count_n; c++) {
                        struct operation o = plain(r, SEND_TO_NEXT, type, settings.counts[c]);

                        o.shift = (unsigned)(type + c) % 3;
                        operation_do(&o);
                }
}

struct parts {
        CUdeviceptr send, recv;
        unsigned char *data, *got;
        size_t bytes;
};

static struct parts parts_new(size_t bytes)
{
        struct parts p = {.bytes = bytes, .data = malloc(bytes + 1), .got = malloc(bytes + 1)};

        if (!p.data || !p.got)
                fatal("no host memory");
        CUDA(cu.MemAlloc(&p.send, bytes + 256));
        CUDA(cu.MemAlloc(&p.recv, bytes + 256));
        CUDA(cu.MemsetD8(p.recv, 0xa5, bytes));
        CUDA(cu.CtxSynchronize()); /* the checks' streams do not wait for the default stream */
        return p;
}

static void parts_free(struct parts *p)
{
        CUDA(cu.MemFree(p->send));
        CUDA(cu.MemFree(p->recv));
        free(p->data);
        free(p->got);
}

static const void *from_part(CUdeviceptr base, size_t offset)
{
        return (const void *)(uintptr_t)(base + offset);
}

static void *to_part(CUdeviceptr base, size_t offset)
{
        return (void *)(uintptr_t)(base + offset);
}

/* The number of bytes that rank `from` sends to rank `to`: all differ, and some are 0. */
static size_t pair_bytes(int from, int to, size_t unit)
{
        return (size_t)((from * 5 + to * 3) % 7) * unit;
}

/* Each rank sends to all ranks, itself too, in one group. Each pair has its own length. */
void check_exchange(struct rank *r)
{
        size_t units[] = {1, 333, 9000};

        for (size_t u = 0; u < ARRAY_SIZE(units); u++) {
                size_t room = 6 * units[u];
                struct parts p = parts_new(room * (size_t)r->n);

                at("exchange of %zu bytes", room);
                values_bytes(u, r->rank, p.bytes, p.data);
                CUDA(cu.MemcpyHtoD(p.send, p.data, p.bytes));
                NCCL(nccl.GroupStart());
                for (int i = 0; i < r->n; i++) {
                        int peer = (r->rank + i) % r->n;

                        NCCL(nccl.Send(from_part(p.send, (size_t)peer * room),
                                       pair_bytes(r->rank, peer, units[u]), ncclInt8, peer, r->comm,
                                       r->stream[0]));
                        NCCL(nccl.Recv(to_part(p.recv, (size_t)peer * room),
                                       pair_bytes(peer, r->rank, units[u]), ncclInt8, peer, r->comm,
                                       r->stream[0]));
                }
                NCCL(nccl.GroupEnd());
                CUDA(cu.StreamSynchronize(r->stream[0]));
                CUDA(cu.MemcpyDtoH(p.got, p.recv, p.bytes));
                for (int peer = 0; peer < r->n; peer++) {
                        size_t bytes = pair_bytes(peer, r->rank, units[u]);
                        unsigned char *got = p.got + (size_t)peer * room;

                        values_bytes(u, peer, p.bytes, p.data);
                        EXPECT(!memcmp(got, p.data + (size_t)r->rank * room, bytes),
                               "%zu bytes from rank %d to %d are wrong", bytes, peer, r->rank);
                        for (size_t b = bytes; b < room; b++)
                                EXPECT(got[b] == 0xa5, "byte %zu from rank %d was written", b,
                                       peer);
                        count_case();
                }
                parts_free(&p);
        }
}

void check_self(struct rank *r)
{
        struct parts p = parts_new(70000);

        values_bytes(1, r->rank, p.bytes, p.data);
        CUDA(cu.MemcpyHtoD(p.send, p.data, p.bytes));
        NCCL(nccl.GroupStart());
        NCCL(nccl.Recv(to_part(p.recv, 0), p.bytes, ncclUint8, r->rank, r->comm, r->stream[0]));
        NCCL(nccl.Send(from_part(p.send, 0), p.bytes, ncclUint8, r->rank, r->comm, r->stream[0]));
        NCCL(nccl.GroupEnd());
        CUDA(cu.StreamSynchronize(r->stream[0]));
        CUDA(cu.MemcpyDtoH(p.got, p.recv, p.bytes));
        EXPECT(!memcmp(p.got, p.data, p.bytes), "what a rank sends to itself is wrong");
        count_case();
        parts_free(&p);
}

/* Several messages between the same two ranks arrive in the order of the calls, in one group and in
 * several. Only ranks 0 and 1 take part. */
void check_send_order(struct rank *r)
{
        enum { MESSAGES = 9, BYTES = 5000 };
        struct parts p = parts_new((size_t)MESSAGES * BYTES);

        for (int grouped = 0; grouped < 2 && r->rank < 2 && r->n > 1; grouped++) {
                at("messages in order, %s", grouped ? "grouped" : "one by one");
                values_bytes(2, 0, p.bytes, p.data);
                CUDA(cu.MemcpyHtoD(p.send, p.data, p.bytes));
                CUDA(cu.MemsetD8(p.recv, 0, p.bytes));
                CUDA(cu.CtxSynchronize());
                if (grouped)
                        NCCL(nccl.GroupStart());
                for (size_t i = 0; i < MESSAGES; i++) {
                        size_t bytes = BYTES - 500 * i;

                        if (r->rank == 0)
                                NCCL(nccl.Send(from_part(p.send, i * BYTES), bytes, ncclUint8, 1,
                                               r->comm, r->stream[0]));
                        else
                                NCCL(nccl.Recv(to_part(p.recv, i * BYTES), bytes, ncclUint8, 0,
                                               r->comm, r->stream[0]));
                }
                if (grouped)
                        NCCL(nccl.GroupEnd());
                CUDA(cu.StreamSynchronize(r->stream[0]));
                CUDA(cu.MemcpyDtoH(p.got, p.recv, p.bytes));
                for (size_t i = 0; i < MESSAGES && r->rank == 1; i++)
                        EXPECT(!memcmp(p.got + i * BYTES, p.data + i * BYTES, BYTES - 500 * i),
                               "message %zu is wrong", i);
                count_case();
        }
        lobby_meet();
        parts_free(&p);
}
