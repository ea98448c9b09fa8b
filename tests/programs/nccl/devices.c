/* devices.c: the checks of processes that have several ranks, each with a device of its own. One
 * thread calls for all of them, so the calls are in groups. */
#include <dlfcn.h>
#include <string.h>

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
                parts_end(parts, n);
        }
        use_own_device(r);
        lobby_meet();
}
