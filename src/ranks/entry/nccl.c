/* nccl.c: owns NCCL's functions. Each function sees whose communicator it was given. Ranks of our
 * communicators share a card; calls for the real NCCL's communicators are passed on to it. */
#include "ranks/entry/nccl.h"

#include <limits.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "ranks/devices/devices.h"
#include "ranks/entry/group.h"
#include "ranks/real/entry.h"
#include "ranks/real/real_nccl.h"
#include "ranks/real/real_functions.h"

/* The version that ncclGetVersion() returns if there is no real NCCL. */
#define VERSION 22809

#define ENTRY_OF_TYPE(type, name, params)                                      \
        static type entry_##name params;                                       \
        extern __typeof__(entry_##name) p##name                                \
                __attribute__((alias("entry_" #name), visibility("default"))); \
        ENTRY_RETURNING(type, name, params)
#define ENTRY(name, params) ENTRY_OF_TYPE(ncclResult_t, name, params)

static ncclResult_t no_comm(const char *function)
{
        return comm_fail(ncclInvalidArgument, "%s: this is no communicator", function);
}

/* True if this rank's part of the call needs a buffer that is NULL. */
static bool lacks_buffer(const struct steps_call *c, int rank)
{
        const bool root = c->peer == rank;

        if (!c->from && c->kind != STEPS_RECEIVE && (c->kind != STEPS_BROADCAST || root))
                return true;
        return !c->to && c->kind != STEPS_SEND && (c->kind != STEPS_REDUCE || root);
}

/* Checks the arguments that all collectives share, and adds the call. */
static ncclResult_t add(const char *function, ncclComm_t handle, struct steps_call call,
                        CUstream stream)
{
        struct comm *c = comm_of(handle);

        if (!c)
                return no_comm(function);
        if (!reduce_bytes(call.op.type))
                return comm_fail(ncclInvalidArgument, "%s: there is no data type %d", function,
                                 (int)call.op.type);
        if (call.peer < 0 || call.peer >= comm_count(c))
                return comm_fail(ncclInvalidArgument, "%s: there is no rank %d among %d", function,
                                 call.peer, comm_count(c));
        if (call.count > 0 && lacks_buffer(&call, comm_rank(c)))
                return comm_fail(ncclInvalidArgument, "%s: a buffer is NULL", function);
        return group_add(c, &call, stream);
}

/* Works like add(), for a call that reduces. */
static ncclResult_t add_reduction(const char *function, ncclComm_t handle, struct steps_call call,
                                  ncclRedOp_t op, CUstream stream)
{
        struct comm *c = comm_of(handle);
        ncclResult_t result = c ? comm_reduce_op(c, op, call.op.type, &call.op) : no_comm(function);

        return result == ncclSuccess ? add(function, handle, call, stream) : result;
}

#define AT(p) ((CUdeviceptr)(uintptr_t)(p))
#define CALL(k, f, t, n, type_, peer_)        \
        ((struct steps_call){.kind = (k),     \
                             .from = AT(f),   \
                             .to = AT(t),     \
                             .count = (n),    \
                             .peer = (peer_), \
                             .op = {.type = (type_), .divide = 1}})
/* The real NCCL's communicator of a handle; NULL: there is none. */
#define REAL_OF(handle)                            \
        ({                                         \
                struct comm *c_ = comm_of(handle); \
                c_ ? comm_real(c_) : NULL;         \
        })

/* ---- the library ---- */

ENTRY(ncclGetVersion, (int *version))
{
        if (!version)
                return comm_fail(ncclInvalidArgument, "ncclGetVersion: NULL");
        *version = VERSION;
        return real_nccl_is_there() ? real_nccl()->ncclGetVersion(version) : ncclSuccess;
}

ENTRY_OF_TYPE(const char *, ncclGetErrorString, (ncclResult_t result))
{
        static const char *const texts[] = {"no error",
                                            "unhandled cuda error",
                                            "unhandled system error",
                                            "internal error",
                                            "invalid argument",
                                            "invalid usage",
                                            "remote process exited or there was a network error",
                                            "NCCL operation in progress",
                                            "timeout"};

        return (unsigned)result < ARRAY_SIZE(texts) ? texts[result] : "unknown result code";
}

ENTRY_OF_TYPE(const char *, ncclGetLastError, (ncclComm_t comm))
{
        const ncclComm_t real = REAL_OF(comm);

        return real ? real_nccl()->ncclGetLastError(real) : comm_last_error();
}

ENTRY(ncclMemAlloc, (void **ptr, size_t size))
{
        CUdeviceptr at = 0;
        CUresult e;

        if (!ptr)
                return comm_fail(ncclInvalidArgument, "ncclMemAlloc: NULL");
        e = size ? real_cuda()->cuMemAlloc_v2(&at, size) : CUDA_SUCCESS;
        *ptr = (void *)(uintptr_t)at;
        return e == CUDA_SUCCESS
                       ? ncclSuccess
                       : comm_fail(ncclUnhandledCudaError,
                                   "ncclMemAlloc of %zu bytes: CUDA error %d", size, (int)e);
}

ENTRY(ncclMemFree, (void *ptr))
{
        const CUresult e = ptr ? real_cuda()->cuMemFree_v2(AT(ptr)) : CUDA_SUCCESS;

        return e == CUDA_SUCCESS
                       ? ncclSuccess
                       : comm_fail(ncclUnhandledCudaError, "ncclMemFree: CUDA error %d", (int)e);
}

/* ---- communicators ---- */

ENTRY(ncclGetUniqueId, (ncclUniqueId * id))
{
        return id ? comm_unique_id(id) : comm_fail(ncclInvalidArgument, "ncclGetUniqueId: NULL");
}

/* Returns the program's current context; if it has none, its first device's primary context, as
 * NCCL does. */
static CUresult current_context(CUcontext *ret)
{
        CUresult e = real_cuda()->cuCtxGetCurrent(ret);

        if (e == CUDA_ERROR_NOT_INITIALIZED) {
                e = devices_init(0);
                *ret = NULL;
        }
        if (e != CUDA_SUCCESS || *ret)
                return e;
        e = real_cuda()->cuDevicePrimaryCtxRetain(ret, devices_card(0));
        return e == CUDA_SUCCESS ? real_cuda()->cuCtxSetCurrent(*ret) : e;
}

static CUresult chosen_device(int *ret)
{
        CUdevice card;
        CUresult e = real_cuda()->cuCtxGetDevice(&card);

        if (e == CUDA_SUCCESS)
                *ret = devices_of_card(card);
        return e;
}

/* device -1: the one that the thread has chosen. */
static ncclResult_t init(ncclComm_t *comm, int n, const ncclUniqueId *id, int rank,
                         ncclConfig_t *config, int device)
{
        struct comm_plan plan = {.rank = rank, .n = n, .device = device};
        ncclResult_t result;
        CUresult e;

        if (!comm)
                return comm_fail(ncclInvalidArgument, "ncclCommInitRank: NULL");
        *comm = NULL;
        if (n < 1 || rank < 0 || rank >= n)
                return comm_fail(ncclInvalidArgument,
                                 "ncclCommInitRank: there is no rank %d among %d", rank, n);
        if (n > MEET_RANKS_MAX)
                return comm_fail(ncclInvalidUsage,
                                 "%d ranks: `sublet run --ranks` serves at most %d", n,
                                 MEET_RANKS_MAX);
        if (comm_read_config(config, &plan) < 0)
                return comm_fail(ncclInvalidArgument,
                                 "ncclCommInitRankConfig: the configuration was not initialized");
        if (comm_name_of(id, plan.name) < 0)
                return comm_fail(
                        ncclInvalidUsage,
                        "this ncclUniqueId was made outside of `sublet run --ranks`; start "
                        "all ranks under it");
        e = current_context(&plan.context);
        if (e == CUDA_SUCCESS && device < 0)
                e = chosen_device(&plan.device);
        if (e != CUDA_SUCCESS)
                return comm_fail(ncclUnhandledCudaError,
                                 "rank %d of %d: ncclCommInitRank finds no context: CUDA error %d",
                                 rank, n, (int)e);
        result = group_make(&plan, comm);
        return result == ncclSuccess && plan.must_not_block ? ncclInProgress : result;
}

ENTRY(ncclCommInitRank, (ncclComm_t * comm, int n, ncclUniqueId id, int rank))
{
        return init(comm, n, &id, rank, NULL, -1);
}

ENTRY(ncclCommInitRankConfig,
      (ncclComm_t * comm, int n, ncclUniqueId id, int rank, ncclConfig_t *config))
{
        return init(comm, n, &id, rank, config, -1);
}

ENTRY(ncclCommInitRankScalable,
      (ncclComm_t * comm, int n, int rank, int n_ids, ncclUniqueId *ids, ncclConfig_t *config))
{
        if (n_ids < 1 || !ids)
                return comm_fail(ncclInvalidArgument, "ncclCommInitRankScalable: no ncclUniqueId");
        return init(comm, n, &ids[0], rank, config, -1);
}

static CUresult enter_device(int device)
{
        CUcontext context;
        CUresult e = real_cuda()->cuDevicePrimaryCtxRetain(&context, devices_card(device));

        return e == CUDA_SUCCESS ? real_cuda()->cuCtxSetCurrent(context) : e;
}

static ncclResult_t entry_ncclGroupStart(void);
static ncclResult_t entry_ncclGroupEnd(void);

/* Makes a communicator for each device, all of this process. */
ENTRY(ncclCommInitAll, (ncclComm_t * comms, int n, const int *devices))
{
        ncclUniqueId id;
        CUcontext before = NULL;
        ncclResult_t result;

        if (!comms || n < 1)
                return comm_fail(ncclInvalidArgument, "ncclCommInitAll: no communicator to make");
        result = comm_unique_id(&id);
        if (result != ncclSuccess)
                return result;
        (void)devices_init(0); /* the program may not have done so */
        (void)real_cuda()->cuCtxGetCurrent(&before);
        entry_ncclGroupStart();
        for (int i = 0; i < n && result == ncclSuccess; i++) {
                const int device = devices ? devices[i] : i;

                result = enter_device(device) == CUDA_SUCCESS
                                 ? init(&comms[i], n, &id, i, NULL, device)
                                 : comm_fail(ncclInvalidArgument,
                                             "ncclCommInitAll: there is no device %d", device);
        }
        if (result != ncclSuccess)
                group_drop();
        (void)real_cuda()->cuCtxSetCurrent(before);
        return result == ncclSuccess ? entry_ncclGroupEnd() : result;
}

ENTRY(ncclCommFinalize, (ncclComm_t comm))
{
        struct comm *c = comm_of(comm);

        if (!c)
                return no_comm("ncclCommFinalize");
        return comm_real(c) ? real_nccl()->ncclCommFinalize(comm_real(c)) : comm_error(c);
}

ENTRY(ncclCommDestroy, (ncclComm_t comm))
{
        struct comm *c = comm_of(comm);

        if (!comm)
                return ncclSuccess;
        return c ? comm_destroy(c) : no_comm("ncclCommDestroy");
}

ENTRY(ncclCommAbort, (ncclComm_t comm))
{
        struct comm *c = comm_of(comm);

        if (!comm)
                return ncclSuccess;
        return c ? comm_abort(c) : no_comm("ncclCommAbort");
}

/* Hands out a child that the real NCCL makes. If NCCL fails, it may still write into the child. */
static ncclResult_t hand_out(ncclResult_t result, struct comm *child, ncclComm_t *ret)
{
        if (result == ncclSuccess || result == ncclInProgress)
                *ret = comm_handle(child);
        return result;
}

static ncclResult_t split_real(const struct comm *c, int color, int key, ncclComm_t *ret,
                               ncclConfig_t *config)
{
        static ncclComm_t nothing;
        ncclComm_t *place = &nothing;
        struct comm *child;

        if (color == NCCL_SPLIT_NOCOLOR)
                return real_nccl()->ncclCommSplit(comm_real(c), color, key, place, config);
        child = comm_real_child(c, &place);
        if (!child)
                return comm_fail(ncclSystemError, "no memory");
        return hand_out(real_nccl()->ncclCommSplit(comm_real(c), color, key, place, config), child,
                        ret);
}

static ncclResult_t shrink_real(const struct comm *c, int *excluded, int n_excluded,
                                ncclComm_t *ret, ncclConfig_t *config, int flags)
{
        ncclComm_t *place;
        struct comm *child = comm_real_child(c, &place);

        if (!child)
                return comm_fail(ncclSystemError, "no memory");
        return hand_out(real_nccl()->ncclCommShrink(comm_real(c), excluded, n_excluded, place,
                                                    config, flags),
                        child, ret);
}

ENTRY(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *ret, ncclConfig_t *config))
{
        struct comm *c = comm_of(comm);
        struct comm_child child;
        ncclResult_t result;

        if (!c || !ret)
                return no_comm("ncclCommSplit");
        *ret = NULL;
        if (comm_real(c))
                return split_real(c, color, key, ret, config);
        result = comm_ask_split(c, color, key, &child);
        return result == ncclSuccess ? group_make_child(&child, ret) : result;
}

ENTRY(ncclCommShrink, (ncclComm_t comm, int *excluded, int n_excluded, ncclComm_t *ret,
                       ncclConfig_t *config, int flags))
{
        struct comm *c = comm_of(comm);
        struct comm_child child;
        ncclResult_t result;

        if (!c || !ret)
                return no_comm("ncclCommShrink");
        *ret = NULL;
        if (comm_real(c))
                return shrink_real(c, excluded, n_excluded, ret, config, flags);
        result = comm_ask_shrink(c, excluded, n_excluded, flags, &child);
        return result == ncclSuccess ? group_make_child(&child, ret) : result;
}

ENTRY(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error))
{
        struct comm *c = comm_of(comm);

        if (!c || !error)
                return no_comm("ncclCommGetAsyncError");
        if (comm_real(c))
                return real_nccl()->ncclCommGetAsyncError(comm_real(c), error);
        *error = comm_error(c);
        return ncclSuccess;
}

#define TELL(name, value, is_ours)                                   \
        ENTRY(name, (ncclComm_t comm, int *ret))                     \
        {                                                            \
                const struct comm *c = comm_of(comm);                \
                                                                     \
                if (!c || !ret)                                      \
                        return no_comm(#name);                       \
                if (comm_real(c) && !(is_ours))                      \
                        return real_nccl()->name(comm_real(c), ret); \
                *ret = value(c);                                     \
                return ncclSuccess;                                  \
        }
TELL(ncclCommCount, comm_count, false)
TELL(ncclCommCuDevice, comm_device, true) /* answered here: the real NCCL knows the card only */
TELL(ncclCommUserRank, comm_rank, false)

/* Registering spares the real NCCL a copy. Here every operation copies, so there is nothing to do.
 */
ENTRY(ncclCommRegister, (ncclComm_t comm, void *buffer, size_t size, void **handle))
{
        const ncclComm_t real = REAL_OF(comm);

        if (!comm_of(comm) || !handle)
                return no_comm("ncclCommRegister");
        if (real)
                return real_nccl()->ncclCommRegister(real, buffer, size, handle);
        *handle = buffer;
        return ncclSuccess;
}

ENTRY(ncclCommDeregister, (ncclComm_t comm, void *handle))
{
        const ncclComm_t real = REAL_OF(comm);

        if (!comm_of(comm))
                return no_comm("ncclCommDeregister");
        return real ? real_nccl()->ncclCommDeregister(real, handle) : ncclSuccess;
}

ENTRY(ncclCommWindowRegister,
      (ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *ret, int flags))
{
        const ncclComm_t real = REAL_OF(comm);

        if (!comm_of(comm) || !ret)
                return no_comm("ncclCommWindowRegister");
        if (real)
                return real_nccl()->ncclCommWindowRegister(real, buffer, size, ret, flags);
        *ret = (ncclWindow_t)buffer;
        return ncclSuccess;
}

ENTRY(ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window))
{
        const ncclComm_t real = REAL_OF(comm);

        if (!comm_of(comm))
                return no_comm("ncclCommWindowDeregister");
        return real ? real_nccl()->ncclCommWindowDeregister(real, window) : ncclSuccess;
}

ENTRY(ncclRedOpCreatePreMulSum, (ncclRedOp_t * op, void *scalar, ncclDataType_t type,
                                 ncclScalarResidence_t residence, ncclComm_t comm))
{
        struct comm *c = comm_of(comm);

        if (!c || !op)
                return no_comm("ncclRedOpCreatePreMulSum");
        return comm_real(c) ? real_nccl()->ncclRedOpCreatePreMulSum(op, scalar, type, residence,
                                                                    comm_real(c))
                            : comm_add_scale(c, scalar, type, residence, op);
}

ENTRY(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))
{
        struct comm *c = comm_of(comm);

        if (!c)
                return no_comm("ncclRedOpDestroy");
        return comm_real(c) ? real_nccl()->ncclRedOpDestroy(op, comm_real(c))
                            : comm_remove_scale(c, op);
}

static ncclResult_t refuse(const char *function)
{
        return comm_fail(ncclInvalidUsage,
                         "%s does not work between ranks that share a card (sublet run --ranks)",
                         function);
}

#define NCCL_OURS(name, params, args)
#define NCCL_REFUSE(name, params, args)                               \
        ENTRY(name, params)                                           \
        {                                                             \
                comm = REAL_OF(comm);                                 \
                return comm ? real_nccl()->name args : refuse(#name); \
        }
#define NCCL(name, params, args, behaviour) NCCL_##behaviour(name, params, args)
#include "ranks/real/nccl_api.def"

/* ---- operations ---- */

ENTRY(ncclReduce, (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                   int root, ncclComm_t comm, CUstream stream))
{
        const ncclComm_t real = REAL_OF(comm);

        return real ? real_nccl()->ncclReduce(from, to, count, type, op, root, real, stream)
                    : add_reduction("ncclReduce", comm,
                                    CALL(STEPS_REDUCE, from, to, count, type, root), op, stream);
}

ENTRY(ncclBroadcast, (const void *from, void *to, size_t count, ncclDataType_t type, int root,
                      ncclComm_t comm, CUstream stream))
{
        const ncclComm_t real = REAL_OF(comm);

        return real ? real_nccl()->ncclBroadcast(from, to, count, type, root, real, stream)
                    : add("ncclBroadcast", comm, CALL(STEPS_BROADCAST, from, to, count, type, root),
                          stream);
}

ENTRY(ncclBcast,
      (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, CUstream stream))
{
        return entry_ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ENTRY(ncclAllReduce, (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                      ncclComm_t comm, CUstream stream))
{
        const ncclComm_t real = REAL_OF(comm);

        return real ? real_nccl()->ncclAllReduce(from, to, count, type, op, real, stream)
                    : add_reduction("ncclAllReduce", comm,
                                    CALL(STEPS_ALL_REDUCE, from, to, count, type, 0), op, stream);
}

ENTRY(ncclReduceScatter, (const void *from, void *to, size_t count, ncclDataType_t type,
                          ncclRedOp_t op, ncclComm_t comm, CUstream stream))
{
        const ncclComm_t real = REAL_OF(comm);

        return real ? real_nccl()->ncclReduceScatter(from, to, count, type, op, real, stream)
                    : add_reduction("ncclReduceScatter", comm,
                                    CALL(STEPS_REDUCE_SCATTER, from, to, count, type, 0), op,
                                    stream);
}

ENTRY(ncclAllGather, (const void *from, void *to, size_t count, ncclDataType_t type,
                      ncclComm_t comm, CUstream stream))
{
        const ncclComm_t real = REAL_OF(comm);

        return real ? real_nccl()->ncclAllGather(from, to, count, type, real, stream)
                    : add("ncclAllGather", comm, CALL(STEPS_ALL_GATHER, from, to, count, type, 0),
                          stream);
}

ENTRY(ncclSend, (const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                 CUstream stream))
{
        const ncclComm_t real = REAL_OF(comm);

        return real ? real_nccl()->ncclSend(from, count, type, peer, real, stream)
                    : add("ncclSend", comm, CALL(STEPS_SEND, from, NULL, count, type, peer),
                          stream);
}

ENTRY(ncclRecv,
      (void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream))
{
        const ncclComm_t real = REAL_OF(comm);

        return real ? real_nccl()->ncclRecv(to, count, type, peer, real, stream)
                    : add("ncclRecv", comm, CALL(STEPS_RECEIVE, NULL, to, count, type, peer),
                          stream);
}

#define NO_ROOT INT_MIN

/* Runs a collective as sends and receives of `count` elements each. to_all: each rank, or only the
 * root if there is one, sends to all ranks; otherwise all send to the root. from_all: each rank, or
 * only the root, receives from all ranks; otherwise all receive from the root. Blocks lie in the
 * order of ranks. */
static ncclResult_t exchange(ncclComm_t comm, const void *from, bool to_all, void *to,
                             bool from_all, int root, size_t count, ncclDataType_t type,
                             CUstream stream)
{
        const struct comm *c = comm_of(comm);
        const size_t block = count * reduce_bytes(type);
        ncclResult_t result = ncclSuccess;

        if (!c)
                return no_comm("a collective operation");
        if (root != NO_ROOT && (root < 0 || root >= comm_count(c)))
                return comm_fail(ncclInvalidArgument, "there is no rank %d among %d", root,
                                 comm_count(c));
        group_start();
        for (int i = 0; i < comm_count(c) && result == ncclSuccess; i++) {
                const bool sends = to_all ? root == NO_ROOT || root == comm_rank(c) : i == root;
                const bool takes = from_all ? root == NO_ROOT || root == comm_rank(c) : i == root;

                if (sends)
                        result = entry_ncclSend((const char *)from + (to_all ? i * block : 0),
                                                count, type, i, comm, stream);
                if (takes && result == ncclSuccess)
                        result = entry_ncclRecv((char *)to + (from_all ? i * block : 0), count,
                                                type, i, comm, stream);
        }
        if (result != ncclSuccess) {
                group_drop();
                return result;
        }
        return group_end();
}

ENTRY(ncclAlltoAll, (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                     CUstream stream))
{
        const ncclComm_t real = REAL_OF(comm);

        return real ? real_nccl()->ncclAlltoAll(from, to, count, type, real, stream)
                    : exchange(comm, from, true, to, true, NO_ROOT, count, type, stream);
}

ENTRY(ncclGather, (const void *from, void *to, size_t count, ncclDataType_t type, int root,
                   ncclComm_t comm, CUstream stream))
{
        const ncclComm_t real = REAL_OF(comm);

        return real ? real_nccl()->ncclGather(from, to, count, type, root, real, stream)
                    : exchange(comm, from, false, to, true, root, count, type, stream);
}

ENTRY(ncclScatter, (const void *from, void *to, size_t count, ncclDataType_t type, int root,
                    ncclComm_t comm, CUstream stream))
{
        const ncclComm_t real = REAL_OF(comm);

        return real ? real_nccl()->ncclScatter(from, to, count, type, root, real, stream)
                    : exchange(comm, from, true, to, false, root, count, type, stream);
}

/* ---- groups ---- */

ENTRY(ncclGroupStart, (void))
{
        group_start();
        return ncclSuccess;
}

ENTRY(ncclGroupEnd, (void))
{
        return group_end();
}

/* Would return an estimate of time, which nobody has made for ranks on one card. */
ENTRY(ncclGroupSimulateEnd, (ncclSimInfo_t * info))
{
        (void)info;
        group_drop();
        return comm_fail(ncclInvalidUsage,
                         "ncclGroupSimulateEnd does not work with sublet run --ranks");
}

/* ---- look-up ---- */

void *nccl_replace(const char *symbol)
{
        static const struct entry entries[] = {
#define NCCL(name, params, args, behaviour) {#name, (void *)entry_##name},
#include "ranks/real/nccl_api.def"
                {"ncclGetErrorString", (void *)entry_ncclGetErrorString},
                {"ncclGetLastError", (void *)entry_ncclGetLastError},
        };
        return entry_find(entries, ARRAY_SIZE(entries), symbol + (symbol[0] == 'p'));
}
