/* communicators.c: the checks that make, ask, split and end communicators, and of wrong arguments.
 */
#include <string.h>

#include "base/macros.h"
#include "checks.h"

void try_comm(const struct rank *r, ncclComm_t comm, int rank, int n)
{
        for (int i = 0; i < 3; i++) {
                struct operation o = {.what = i == 1 ? ALL_GATHER : ALL_REDUCE,
                                      .type = ncclFloat32,
                                      .op = i == 2 ? MAX : SUM,
                                      .count = 1000,
                                      .seed = (uint64_t)i + 77,
                                      .comm = comm,
                                      .rank = rank,
                                      .n = n,
                                      .stream = r->stream[0]};

                operation_do(&o);
        }
}

void check_versions(struct rank *r)
{
        int version = 0;

        (void)r;
        NCCL(nccl.GetVersion(&version));
        EXPECT(version >= 21800 && version < 100000, "version %d", version);
        note("version %d", version);
        for (int i = 0; i < ncclNumResults; i++) {
                const char *text = nccl.GetErrorString((ncclResult_t)i);

                EXPECT(text && *text, "no text for result %d", i);
                for (int j = 0; j < i && text; j++)
                        EXPECT(strcmp(text, nccl.GetErrorString((ncclResult_t)j)) != 0,
                               "results %d and %d have one text", i, j);
        }
        EXPECT(nccl.GetErrorString((ncclResult_t)1234) != NULL, "no text for an unknown result");
        (void)nccl.GetLastError(NULL);
        count_case();
}

void check_properties(struct rank *r)
{
        int n = -1, rank = -1, device = -1;
        ncclResult_t error = ncclNumResults;

        NCCL(nccl.CommCount(r->comm, &n));
        NCCL(nccl.CommUserRank(r->comm, &rank));
        NCCL(nccl.CommCuDevice(r->comm, &device));
        NCCL(nccl.CommGetAsyncError(r->comm, &error));
        EXPECT(n == r->n, "%d ranks, not %d", n, r->n);
        EXPECT(rank == r->rank, "rank %d, not %d", rank, r->rank);
        EXPECT(device == r->ordinal, "device %d, not %d", device, r->ordinal);
        EXPECT(error == ncclSuccess, "the communicator has error %d", (int)error);
        EXPECT(nccl.GetLastError(r->comm) != NULL, "no last error");
        count_case();
}

void check_arguments(struct rank *r)
{
        ncclConfig_t wrong_magic = NCCL_CONFIG_INITIALIZER,
                     wrong_blocking = NCCL_CONFIG_INITIALIZER;
        ncclUniqueId id = id_from(r, 0);
        ncclComm_t comm = NULL;
        CUstream s = r->stream[0];
        CUdeviceptr memory;
        void *p;
        int i, op;

        CUDA(cu.MemAlloc(&memory, 4096));
        p = (void *)(uintptr_t)memory;
        ANSWERS(ncclInvalidArgument, nccl.GetVersion(NULL));
        ANSWERS(ncclInvalidArgument, nccl.GetUniqueId(NULL));
        ANSWERS(ncclInvalidArgument, nccl.CommInitRank(NULL, r->n, id, r->rank));
        ANSWERS(ncclInvalidArgument, nccl.CommInitRank(&comm, 0, id, 0));
        ANSWERS(ncclInvalidArgument, nccl.CommInitRank(&comm, -1, id, 0));
        ANSWERS(ncclInvalidArgument, nccl.CommInitRank(&comm, r->n, id, r->n));
        ANSWERS(ncclInvalidArgument, nccl.CommInitRank(&comm, r->n, id, -1));
        wrong_magic.magic = 1;
        ANSWERS(ncclInvalidArgument,
                nccl.CommInitRankConfig(&comm, r->n, id, r->rank, &wrong_magic));
        wrong_blocking.blocking = 5;
        ANSWERS(ncclInvalidArgument,
                nccl.CommInitRankConfig(&comm, r->n, id, r->rank, &wrong_blocking));
        ANSWERS(ncclInvalidArgument, nccl.CommCount(NULL, &i));
        ANSWERS(ncclInvalidArgument, nccl.CommCount(r->comm, NULL));
        ANSWERS(ncclInvalidArgument, nccl.CommUserRank(NULL, &i));
        ANSWERS(ncclInvalidArgument, nccl.CommUserRank(r->comm, NULL));
        ANSWERS(ncclInvalidArgument, nccl.CommCuDevice(NULL, &i));
        ANSWERS(ncclInvalidArgument, nccl.CommCuDevice(r->comm, NULL));
        ANSWERS(ncclInvalidArgument, nccl.CommGetAsyncError(NULL, (ncclResult_t *)&i));
        ANSWERS(ncclInvalidArgument, nccl.CommGetAsyncError(r->comm, NULL));
        ANSWERS(ncclInvalidArgument, nccl.CommSplit(NULL, 0, 0, &comm, NULL));
        ANSWERS(ncclInvalidArgument, nccl.CommSplit(r->comm, 0, 0, NULL, NULL));
        ANSWERS(ncclInvalidArgument, nccl.AllReduce(p, p, 1, ncclInt8, ncclSum, NULL, s));
        ANSWERS(ncclInvalidArgument, nccl.AllReduce(p, p, 1, -1, ncclSum, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.AllReduce(p, p, 1, ncclNumTypes, ncclSum, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.AllReduce(p, p, 1, ncclInt8, -1, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.AllReduce(p, p, 1, ncclInt8, 1000, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.Reduce(p, p, 1, ncclInt8, ncclSum, r->n, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.Reduce(p, p, 1, ncclInt8, ncclSum, -1, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.Broadcast(p, p, 1, ncclInt8, r->n, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.Broadcast(p, p, 1, 99, 0, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.AllGather(p, p, 1, 99, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.AllGather(p, p, 1, ncclInt8, NULL, s));
        ANSWERS(ncclInvalidArgument, nccl.ReduceScatter(p, p, 1, 99, ncclSum, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.Send(p, 1, ncclInt8, r->n, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.Send(p, 1, ncclInt8, -1, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.Recv(p, 1, ncclInt8, r->n, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.Send(p, 1, 99, 0, r->comm, s));
        ANSWERS(ncclInvalidArgument, nccl.RedOpDestroy(ncclSum, r->comm));
        ANSWERS(ncclInvalidArgument, nccl.RedOpDestroy(1000, r->comm));
        NCCL(nccl.RedOpCreatePreMulSum(&op, &(float){2}, ncclFloat32, ncclScalarHostImmediate,
                                       r->comm));
        EXPECT(op >= ncclNumOps, "a made operation has number %d", op);
        ANSWERS(ncclInvalidArgument, nccl.AllReduce(p, p, 1, ncclFloat64, op, r->comm, s));
        NCCL(nccl.RedOpDestroy(op, r->comm));
        ANSWERS(ncclInvalidArgument, nccl.AllReduce(p, p, 1, ncclFloat32, op, r->comm, s));
        ANSWERS(ncclInvalidUsage, nccl.GroupEnd());
        ANSWERS(ncclSuccess, nccl.CommDestroy(NULL));
        ANSWERS(ncclSuccess, nccl.CommAbort(NULL));
        CUDA(cu.MemFree(memory));
        lobby_meet();
        at("using the communicator after wrong calls");
        try_comm(r, r->comm, r->rank, r->n);
}

/* Numbers of made operations are used again; several exist at a time. */
void check_scalars(struct rank *r)
{
        int ops[20];

        for (int round = 0; round < 2; round++) {
                for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
                        NCCL(nccl.RedOpCreatePreMulSum(&ops[i], &(float){(float)i}, ncclFloat32,
                                                       ncclScalarHostImmediate, r->comm));
                        for (size_t j = 0; j < i; j++)
                                EXPECT(ops[i] != ops[j], "two operations have one number");
                }
                for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
                        float in = (float)(r->rank + 1), out = -1;
                        CUdeviceptr memory;

                        CUDA(cu.MemAlloc(&memory, 4));
                        CUDA(cu.MemcpyHtoD(memory, &in, 4));
                        at("scalar %zu", i);
                        NCCL(nccl.AllReduce((void *)(uintptr_t)memory, (void *)(uintptr_t)memory, 1,
                                            ncclFloat32, ops[i], r->comm, r->stream[0]));
                        /* May be destroyed as soon as the call has returned. */
                        NCCL(nccl.RedOpDestroy(ops[i], r->comm));
                        CUDA(cu.StreamSynchronize(r->stream[0]));
                        CUDA(cu.MemcpyDtoH(&out, memory, 4));
                        EXPECT(out == (float)i * (float)(r->n * (r->n + 1) / 2), "scalar %zu: %g",
                               i, (double)out);
                        CUDA(cu.MemFree(memory));
                        count_case();
                }
        }
}

void check_config(struct rank *r)
{
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm = NULL;
        ncclUniqueId id = id_from(r, r->n - 1);

        config.blocking = 1;
        config.minCTAs = 1;
        config.maxCTAs = 4;
        config.commName = "checks";
        at("init with a configuration");
        NCCL(nccl.CommInitRankConfig(&comm, r->n, id, r->rank, &config));
        EXPECT(comm != NULL, "no communicator");
        try_comm(r, comm, r->rank, r->n);
        NCCL(nccl.CommDestroy(comm));
        /* No configuration, and one of an older NCCL, which is shorter. */
        id = id_from(r, 0);
        NCCL(nccl.CommInitRankConfig(&comm, r->n, id, r->rank, NULL));
        try_comm(r, comm, r->rank, r->n);
        NCCL(nccl.CommDestroy(comm));
        id = id_from(r, 0);
        config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
        config.size = offsetof(ncclConfig_t, trafficClass);
        config.version = 21805;
        memset((char *)&config + config.size, 0x55, sizeof(config) - config.size);
        at("init with an old configuration");
        NCCL(nccl.CommInitRankConfig(&comm, r->n, id, r->rank, &config));
        try_comm(r, comm, r->rank, r->n);
        NCCL(nccl.CommDestroy(comm));
}

void check_scalable(struct rank *r)
{
        ncclUniqueId ids[2];
        ncclComm_t comm;

        if (!nccl.CommInitRankScalable) {
                skip("this NCCL has no ncclCommInitRankScalable");
                return;
        }
        for (int n = 1; n <= 2; n++) {
                if (n > r->n)
                        break;
                for (int i = 0; i < n; i++)
                        ids[i] = id_from(r, i);
                at("init with %d ids", n);
                NCCL(nccl.CommInitRankScalable(&comm, r->n, r->rank, n, ids, NULL));
                try_comm(r, comm, r->rank, r->n);
                NCCL(nccl.CommDestroy(comm));
        }
}

static void finish(ncclComm_t comm, ncclResult_t r, const char *what)
{
        ncclResult_t error = r;

        at("%s", what);
        EXPECT(r == ncclSuccess || r == ncclInProgress, "%s answered %d", what, (int)r);
        while (error == ncclInProgress) {
                ANSWERS(ncclSuccess, nccl.CommGetAsyncError(comm, &error));
                lobby_nap();
        }
        EXPECT(error == ncclSuccess, "%s ended with %d", what, (int)error);
}

/* In a communicator that does not block, calls may answer ncclInProgress. */
void check_nonblocking(struct rank *r)
{
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm = NULL, half = NULL;
        ncclUniqueId id = id_from(r, 0);
        float in = 1, out = 0;
        CUdeviceptr memory;
        ncclResult_t result;

        config.blocking = 0;
        at("an init that does not block");
        result = nccl.CommInitRankConfig(&comm, r->n, id, r->rank, &config);
        if (!comm)
                fatal("no communicator while the init is in progress");
        finish(comm, result, "init");
        CUDA(cu.MemAlloc(&memory, 4));
        CUDA(cu.MemcpyHtoD(memory, &in, 4));
        finish(comm,
               nccl.AllReduce((void *)(uintptr_t)memory, (void *)(uintptr_t)memory, 1, ncclFloat32,
                              ncclSum, comm, r->stream[0]),
               "all-reduce");
        CUDA(cu.StreamSynchronize(r->stream[0]));
        CUDA(cu.MemcpyDtoH(&out, memory, 4));
        EXPECT(out == (float)r->n, "the sum is %g", (double)out);
        count_case();
        finish(comm, nccl.CommSplit(comm, 0, r->rank, &half, NULL), "split");
        if (half)
                finish(half, ncclInProgress, "the new communicator");
        finish(half, nccl.CommFinalize(half), "finalize");
        (void)nccl.CommDestroy(half);
        finish(comm, nccl.CommFinalize(comm), "finalize");
        (void)nccl.CommDestroy(comm);
        CUDA(cu.MemFree(memory));
}

void check_split(struct rank *r)
{
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        int n = (r->n + 1 - r->rank % 2) / 2, rank = -1, count = -1;
        ncclComm_t comm = NULL, again = NULL;

        at("split by parity");
        NCCL(nccl.CommSplit(r->comm, r->rank % 2, r->rank, &comm, NULL));
        NCCL(nccl.CommUserRank(comm, &rank));
        NCCL(nccl.CommCount(comm, &count));
        EXPECT(rank == r->rank / 2 && count == n, "rank %d of %d, not %d of %d", rank, count,
               r->rank / 2, n);
        try_comm(r, comm, rank, n);
        at("split of a split, with the order reversed");
        NCCL(nccl.CommSplit(comm, 7, -rank, &again, &config));
        NCCL(nccl.CommUserRank(again, &rank));
        EXPECT(rank == n - 1 - r->rank / 2, "rank %d by key", rank);
        try_comm(r, again, rank, n);
        NCCL(nccl.CommDestroy(comm)); /* before its child */
        try_comm(r, again, rank, n);
        NCCL(nccl.CommDestroy(again));
        /* Rank 0 joins no communicator. */
        at("split without rank 0");
        comm = (ncclComm_t)&n;
        NCCL(nccl.CommSplit(r->comm, r->rank ? 3 : NCCL_SPLIT_NOCOLOR, 0, &comm, NULL));
        if (r->rank == 0) {
                EXPECT(comm == NULL, "a communicator without a color");
        } else {
                /* Equal keys: in the order of the old ranks. */
                try_comm(r, comm, r->rank - 1, r->n - 1);
                NCCL(nccl.CommDestroy(comm));
        }
        try_comm(r, r->comm, r->rank, r->n);
        at("two splits in a group");
        NCCL(nccl.GroupStart());
        NCCL(nccl.CommSplit(r->comm, 0, r->rank, &comm, NULL));
        NCCL(nccl.CommSplit(r->comm, 1, -r->rank, &again, NULL));
        NCCL(nccl.GroupEnd());
        try_comm(r, comm, r->rank, r->n);
        try_comm(r, again, r->n - 1 - r->rank, r->n);
        NCCL(nccl.CommDestroy(comm));
        NCCL(nccl.CommDestroy(again));
}

/* A communicator of one rank needs no other. */
void check_single(struct rank *r)
{
        ncclUniqueId id;
        ncclComm_t comm;

        NCCL(nccl.GetUniqueId(&id));
        NCCL(nccl.CommInitRank(&comm, 1, id, 0));
        for (int what = 0; what < COLLECTIVES; what++)
                for (int op = 0; op < OPS; op++) {
                        struct operation o = {.what = (enum collective)what,
                                              .type = op % 2 ? ncclFloat16 : ncclInt64,
                                              .op = (enum op)op,
                                              .count = 1003,
                                              .seed = 5,
                                              .comm = comm,
                                              .n = 1,
                                              .in_place = what == BCAST,
                                              .stream = r->stream[0]};

                        if (!operation_exists(o.what) || (op && what > REDUCE_SCATTER))
                                continue;
                        operation_do(&o);
                        if (what >= ALL_TO_ALL)
                                continue;
                        o.in_place = true;
                        operation_do(&o);
                }
        NCCL(nccl.CommDestroy(comm));
        at("init of all of one device");
        NCCL(nccl.CommInitAll(&comm, 1, &r->ordinal));
        try_comm(r, comm, 0, 1);
        NCCL(nccl.CommDestroy(comm));
}

/* Finalize lets operations end that are on their way; destroy may follow. */
void check_finalize(struct rank *r)
{
        for (int i = 0; i < 4; i++) {
                ncclComm_t comm = comm_of_all(r, i % 2);
                struct operation o = {.what = ALL_REDUCE,
                                      .type = ncclFloat32,
                                      .op = SUM,
                                      .count = 5000,
                                      .seed = 9,
                                      .comm = comm,
                                      .rank = i % 2 ? r->n - 1 - r->rank : r->rank,
                                      .n = r->n,
                                      .stream = r->stream[0]};

                operation_prepare(&o);
                operation_call(&o);
                at("%s with an operation on its way", i < 2 ? "finalize" : "destroy");
                if (i < 2)
                        NCCL(nccl.CommFinalize(comm));
                NCCL(nccl.CommDestroy(comm));
                operation_check(&o);
                operation_free(&o);
        }
}

/* Two communicators of this process in one group of inits. */
void check_grouped_inits(struct rank *r)
{
        ncclUniqueId id = id_from(r, 0), other = id_from(r, 0);
        ncclComm_t a = NULL, b = NULL;

        at("two inits in a group");
        NCCL(nccl.GroupStart());
        NCCL(nccl.CommInitRank(&a, r->n, id, r->rank));
        NCCL(nccl.CommInitRank(&b, r->n, other, r->n - 1 - r->rank));
        NCCL(nccl.GroupEnd());
        try_comm(r, b, r->n - 1 - r->rank, r->n);
        try_comm(r, a, r->rank, r->n);
        NCCL(nccl.CommDestroy(a));
        NCCL(nccl.CommDestroy(b));
}

/* Communicators that come and go leave nothing behind that would make the next one fail. */
void check_many_communicators(struct rank *r)
{
        ncclComm_t kept[4];

        for (int i = 0; i < 3 * settings.rounds; i++) {
                ncclComm_t comm = comm_of_all(r, i % 2);

                try_comm(r, comm, i % 2 ? r->n - 1 - r->rank : r->rank, r->n);
                NCCL(nccl.CommDestroy(comm));
        }
        for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
                kept[i] = comm_of_all(r, i % 2);
        for (size_t i = ARRAY_SIZE(kept); i-- > 0;)
                try_comm(r, kept[i], i % 2 ? r->n - 1 - r->rank : r->rank, r->n);
        for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
                NCCL(nccl.CommDestroy(kept[i]));
}

/* Memory that NCCL allocates, and memory that is registered, works as other memory does. */
void check_registered(struct rank *r)
{
        void *at_memory = NULL, *handle = NULL;
        float in = (float)(r->rank + 1), out = 0;

        if (!nccl.MemAlloc || !nccl.MemFree || !nccl.CommRegister || !nccl.CommDeregister) {
                skip("this NCCL has no ncclMemAlloc or ncclCommRegister");
                return;
        }
        NCCL(nccl.MemAlloc(&at_memory, 100000));
        NCCL(nccl.CommRegister(r->comm, at_memory, 100000, &handle));
        CUDA(cu.MemcpyHtoD((CUdeviceptr)(uintptr_t)at_memory, &in, 4));
        at("all-reduce of registered memory");
        NCCL(nccl.AllReduce(at_memory, at_memory, 1, ncclFloat32, ncclSum, r->comm, r->stream[0]));
        CUDA(cu.StreamSynchronize(r->stream[0]));
        CUDA(cu.MemcpyDtoH(&out, (CUdeviceptr)(uintptr_t)at_memory, 4));
        EXPECT(out == (float)(r->n * (r->n + 1) / 2), "the sum is %g", (double)out);
        NCCL(nccl.CommDeregister(r->comm, handle));
        NCCL(nccl.MemFree(at_memory));
        count_case();
}
