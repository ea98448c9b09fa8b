/* devices.c: the checks of processes that have several ranks, each with a device of its own. Calls
 * that one thread makes for all of them are in groups. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "checks.h"
#include "cudart/cudart.h"

/* A rank of this process. */
struct part {
        int device, rank;
        ncclComm_t comm;
        CUstream stream;
};

static struct {
        int (*count)(int *count), (*set)(int device);
} runtime;

/* Devices are those of the runtime library, if there is one. */
static int device_count(const struct rank *r)
{
        void *library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
        int n = r->devices;

        if (!library)
                return n;
        *(void **)&runtime.count = dlsym(library, "cudaGetDeviceCount");
        *(void **)&runtime.set = dlsym(library, "cudaSetDevice");
        if (!runtime.count || !runtime.set || runtime.count(&n) != RUNTIME_SUCCESS)
                fatal("the CUDA runtime library does not start");
        return n;
}

static void use_device(int device)
{
        CUcontext context;

        if (runtime.set) {
                if (runtime.set(device) != RUNTIME_SUCCESS)
                        fatal("cudaSetDevice(%d) fails", device);
                return;
        }
        CUDA(cu.DevicePrimaryCtxRetain(&context, device));
        CUDA(cu.CtxSetCurrent(context));
}

static void use_own_device(const struct rank *r)
{
        use_device(r->ordinal);
        CUDA(cu.CtxSetCurrent(r->context));
}

/* Numbers the ranks from `first`, and gives them devices in the order of the ranks or in the
 * opposite one. */
static void parts_begin(struct part *parts, int first, int n, bool reversed)
{
        for (int i = 0; i < n; i++) {
                parts[i].rank = first + i;
                parts[i].device = reversed ? n - 1 - i : first + i;
                parts[i].comm = NULL;
                use_device(parts[i].device);
                CUDA(cu.StreamCreate(&parts[i].stream, CU_STREAM_NON_BLOCKING));
        }
}

/* Compares the communicators' own words with what was asked for. */
static void look_at(const struct part *parts, int n, int all)
{
        for (int i = 0; i < n; i++) {
                int count = -1, rank = -1, device = -1;

                if (!parts[i].comm)
                        fatal("no communicator for rank %d", parts[i].rank);
                NCCL(nccl.CommCount(parts[i].comm, &count));
                NCCL(nccl.CommUserRank(parts[i].comm, &rank));
                NCCL(nccl.CommCuDevice(parts[i].comm, &device));
                EXPECT(count == all && rank == parts[i].rank && device == parts[i].device,
                       "rank %d of %d on device %d, not %d of %d on %d", rank, count, device,
                       parts[i].rank, all, parts[i].device);
        }
}

/* One operation of all ranks of this process. */
static void group(const struct part *parts, int n, int all, struct operation o, bool by_default)
{
        struct operation each[RANKS_MAX];

        for (int i = 0; i < n; i++) {
                use_device(parts[i].device);
                each[i] = o;
                each[i].comm = parts[i].comm;
                each[i].rank = parts[i].rank;
                each[i].n = all;
                each[i].stream = by_default ? NULL : parts[i].stream;
                operation_prepare(&each[i]);
        }
        NCCL(nccl.GroupStart());
        for (int i = n - 1; i >= 0; i--)
                operation_call(&each[i]);
        at("the end of a group of %d ranks", n);
        NCCL(nccl.GroupEnd());
        for (int i = 0; i < n; i++) {
                use_device(parts[i].device);
                operation_check(&each[i]);
                operation_free(&each[i]);
        }
}

/* by_default: in the default stream, which is one stream for all devices of a card. */
static void try_all(const struct part *parts, int n, int all, bool by_default)
{
        for (int what = 0; what < COLLECTIVES; what++) {
                struct operation o = {.what = (enum collective)what,
                                      .type = what % 2 ? ncclInt32 : ncclFloat16,
                                      .op = what == REDUCE_SCATTER ? MAX : SUM,
                                      .count = 1003,
                                      .root = all - 1,
                                      .seed = 8,
                                      .in_place = what == BCAST};

                if (!operation_exists(o.what))
                        continue;
                group(parts, n, all, o, by_default);
                if (what == ALL_REDUCE) {
                        o.op = PREMUL_HOST;
                        o.in_place = true;
                        group(parts, n, all, o, by_default);
                }
        }
}

static void comms_end(struct part *parts, int n)
{
        at("finalize in a group");
        NCCL(nccl.GroupStart());
        for (int i = 0; i < n; i++)
                NCCL(nccl.CommFinalize(parts[i].comm));
        NCCL(nccl.GroupEnd());
        for (int i = 0; i < n; i++)
                NCCL(nccl.CommDestroy(parts[i].comm));
}

static void parts_end(struct part *parts, int n)
{
        comms_end(parts, n);
        for (int i = 0; i < n; i++)
                CUDA(cu.StreamDestroy(parts[i].stream));
}

/* All ranks are in this process. The children are in the order of the ranks. */
static void split(const struct part *parts, int n)
{
        struct part children[RANKS_MAX], odd[RANKS_MAX];
        int odds = 0, evens = 0;

        at("split in a group");
        memcpy(children, parts, (size_t)n * sizeof(*parts));
        NCCL(nccl.GroupStart());
        for (int i = 0; i < n; i++)
                NCCL(nccl.CommSplit(parts[i].comm, i % 2, 0, &children[i].comm, NULL));
        NCCL(nccl.GroupEnd());
        for (int i = 0; i < n; i++) {
                children[i].rank = i / 2;
                if (i % 2)
                        odd[odds++] = children[i];
                else
                        children[evens++] = children[i];
        }
        look_at(odd, odds, odds);
        look_at(children, evens, evens);
        try_all(odd, odds, odds, false);
        try_all(children, evens, evens, false);
        comms_end(odd, odds);
        comms_end(children, evens);
}

static void shrink(const struct part *parts, int n)
{
        struct part rest[RANKS_MAX];
        int last = n - 1;

        at("shrink in a group");
        memcpy(rest, parts, (size_t)n * sizeof(*parts));
        NCCL(nccl.GroupStart());
        for (int i = 0; i < last; i++)
                NCCL(nccl.CommShrink(parts[i].comm, &last, 1, &rest[i].comm, NULL,
                                     NCCL_SHRINK_DEFAULT));
        NCCL(nccl.GroupEnd());
        look_at(rest, last, last);
        try_all(rest, last, last, false);
        comms_end(rest, last);
}

/* ncclCommInitAll(), with a list of devices or without. */
static void init_all(const struct rank *r, struct part *parts, int n, bool listed)
{
        int list[RANKS_MAX];
        ncclComm_t comms[RANKS_MAX] = {NULL};
        CUcontext now = NULL;

        for (int i = 0; i < n; i++)
                list[i] = parts[i].device;
        use_own_device(r);
        at("init of all of %d devices", n);
        NCCL(nccl.CommInitAll(comms, n, listed ? list : NULL));
        CUDA(cu.CtxGetCurrent(&now));
        EXPECT(now == r->context, "ncclCommInitAll left another context");
        for (int i = 0; i < n; i++)
                parts[i].comm = comms[i];
        look_at(parts, n, n);
}

/* These are `n` of all ranks. */
static void init_each(struct part *parts, int n, int all, ncclUniqueId id)
{
        at("inits of %d of %d ranks in a group", n, all);
        NCCL(nccl.GroupStart());
        for (int i = 0; i < n; i++) {
                use_device(parts[i].device);
                NCCL(nccl.CommInitRank(&parts[i].comm, all, id, parts[i].rank));
        }
        NCCL(nccl.GroupEnd());
        look_at(parts, n, all);
}

/* A thread for each rank. */
struct worker {
        pthread_t thread;
        pthread_barrier_t *all;
        struct part part;
        int rank, n;
        ncclUniqueId id;
};

static void meet(const struct worker *w)
{
        (void)pthread_barrier_wait(w->all);
}

/* Nothing here may wait for all streams of the card, because those of the other threads may wait
 * for this one: memory comes before all calls and goes after them, and the kernels of this type are
 * loaded. */
static void *work(void *argument)
{
        struct worker *w = argument;
        struct operation o[COLLECTIVES];

        parts_begin(&w->part, w->rank, 1, false);
        NCCL(nccl.CommInitRank(&w->part.comm, w->n, w->id, w->rank));
        look_at(&w->part, 1, w->n);
        for (int i = 0; i < COLLECTIVES; i++) {
                o[i] = (struct operation){.what = operation_exists(i) ? (enum collective)i : REDUCE,
                                          .type = ncclInt32,
                                          .count = 1003,
                                          .in_place = i == BCAST,
                                          .comm = w->part.comm,
                                          .rank = w->rank,
                                          .n = w->n,
                                          .stream = w->part.stream};
                operation_prepare(&o[i]);
        }
        meet(w);
        for (int round = 0; round < 3; round++)
                for (int i = 0; i < COLLECTIVES; i++)
                        if (i != BCAST || round == 0) /* which replaces its input */
                                operation_call(&o[i]);
        CUDA(cu.StreamSynchronize(w->part.stream));
        meet(w);
        for (int i = 0; i < COLLECTIVES; i++) {
                operation_check(&o[i]);
                operation_free(&o[i]);
        }
        meet(w);
        parts_end(&w->part, 1);
        return NULL;
}

static void try_threads(int n)
{
        struct worker workers[RANKS_MAX];
        pthread_barrier_t all;
        ncclUniqueId id;

        NCCL(nccl.GetUniqueId(&id));
        (void)pthread_barrier_init(&all, NULL, (unsigned)n);
        for (int i = 0; i < n; i++) {
                workers[i] = (struct worker){.all = &all, .rank = i, .n = n, .id = id};
                if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
                        fatal("no thread");
        }
        for (int i = 0; i < n; i++)
                (void)pthread_join(workers[i].thread, NULL);
        (void)pthread_barrier_destroy(&all);
}

static void refuse(int n)
{
        int list[2] = {0, n};
        ncclComm_t comms[2];

        ANSWERS(ncclInvalidArgument, nccl.CommInitAll(NULL, 2, list));
        ANSWERS(ncclInvalidArgument, nccl.CommInitAll(comms, -1, list));
        ANSWERS(ncclInvalidArgument, nccl.CommInitAll(comms, 2, list));
}

static void one_process(const struct rank *r, int n)
{
        struct part parts[RANKS_MAX];
        ncclUniqueId id;

        refuse(n);
        parts_begin(parts, 0, n, false);
        init_all(r, parts, n, false);
        try_all(parts, n, n, false);
        try_all(parts, n, n, true);
        split(parts, n);
        if (nccl.CommShrink)
                shrink(parts, n);
        try_all(parts, n, n, false);
        parts_end(parts, n);
        parts_begin(parts, 0, n, true);
        init_all(r, parts, n, true);
        try_all(parts, n, n, false);
        parts_end(parts, n);
        NCCL(nccl.GetUniqueId(&id));
        parts_begin(parts, 0, n, true);
        init_each(parts, n, n, id);
        try_all(parts, n, n, false);
        parts_end(parts, n);
        try_threads(n);
}

static bool has_devices(const struct rank *r)
{
        const bool enough = r->n > 1 && device_count(r) >= r->n;

        if (!enough)
                skip("there are not several devices");
        return enough;
}

/* The first and the last process do it at the same time. */
void check_devices(struct rank *r)
{
        if (!has_devices(r))
                return;
        if (r->rank == 0 || r->rank == r->n - 1)
                one_process(r, r->n);
        use_own_device(r);
        lobby_meet();
}

#define LATE 100000 /* microseconds, in which streams would end that do not wait */

static void send_late(const struct rank *r, const struct part *part)
{
        for (int to = 0; to < 2; to++) {
                const int value = 70 + to;
                CUdeviceptr from;

                use_device(part->device);
                CUDA(cu.MemAlloc(&from, 4));
                CUDA(cu.MemcpyHtoD(from, &value, 4));
                lobby_meet();
                at("rank %d sends late to rank %d", r->rank, to);
                NCCL(nccl.Send((void *)(uintptr_t)from, 1, ncclInt32, to, part->comm,
                               part->stream));
                CUDA(cu.StreamSynchronize(part->stream));
                CUDA(cu.MemFree(from));
        }
}

static void expect_wait(const char *what)
{
        at("the default stream, which waits for %s", what);
        (void)usleep(LATE);
        EXPECT(cu.StreamQuery(NULL) == CUDA_ERROR_NOT_READY,
               "the default stream does not wait for %s", what);
        lobby_meet();
}

/* Rank 0 gets a number from rank 2 and then gets it once more through rank 1, which gets another
 * one from rank 2. */
static void receive_late(const struct part *parts)
{
        int got[3] = {0};
        CUdeviceptr memory;
        int *to;

        use_device(parts[0].device);
        CUDA(cu.MemAlloc(&memory, sizeof(got)));
        CUDA(cu.MemcpyHtoD(memory, got, sizeof(got)));
        to = (int *)(uintptr_t)memory;
        NCCL(nccl.Recv(to, 1, ncclInt32, 2, parts[0].comm, NULL));
        NCCL(nccl.GroupStart());
        NCCL(nccl.Recv(to + 1, 1, ncclInt32, 1, parts[0].comm, NULL));
        NCCL(nccl.Send(to, 1, ncclInt32, 0, parts[1].comm, NULL));
        NCCL(nccl.Recv(to + 2, 1, ncclInt32, 2, parts[1].comm, NULL));
        NCCL(nccl.GroupEnd());
        expect_wait("the first rank");
        expect_wait("the second rank");
        CUDA(cu.StreamSynchronize(NULL));
        CUDA(cu.MemcpyDtoH(got, memory, sizeof(got)));
        EXPECT(got[0] == 70 && got[1] == 70 && got[2] == 71, "%d, %d and %d came", got[0], got[1],
               got[2]);
        CUDA(cu.MemFree(memory));
        count_case();
}

/* Two ranks of one process in the default stream of their card keep the stream's order. */
static void try_order(const struct rank *r, const struct part *parts)
{
        if (r->n < 3 || r->devices > 1)
                return;
        if (r->rank == 0) {
                receive_late(parts);
        } else if (r->rank == 2) {
                send_late(r, &parts[0]);
        } else {
                lobby_meet();
                lobby_meet();
        }
}

/* Every other process has two ranks. */
void check_devices_and_processes(struct rank *r)
{
        const int n = MIN(2, r->n - r->rank);
        struct part parts[2];
        ncclUniqueId id;

        if (!has_devices(r))
                return;
        id = id_from(r, 0);
        if (r->rank % 2 == 0) {
                parts_begin(parts, r->rank, n, false);
                init_each(parts, n, r->n, id);
                try_all(parts, n, r->n, false);
                try_all(parts, n, r->n, true);
        }
        try_order(r, parts);
        if (r->rank % 2 == 0)
                parts_end(parts, n);
        use_own_device(r);
        lobby_meet();
}
