/* failures.c: the checks in which a rank ends, stays away or aborts. Each has processes of its own,
 * because the communicator of all ranks is of no use afterwards. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "checks.h"

#define LIMIT_S 15.0 /* in which errors are to be seen and streams are to end */

static struct operation sum(const struct rank *r, ncclComm_t comm, int n, CUstream s)
{
        return (struct operation){.what = ALL_REDUCE,
                                  .type = ncclFloat32,
                                  .op = SUM,
                                  .count = 3000,
                                  .seed = 4,
                                  .comm = comm,
                                  .rank = r->rank,
                                  .n = n,
                                  .stream = s};
}

static void await_error(const struct rank *r)
{
        uint64_t end = program_now_ns() + (uint64_t)(LIMIT_S * settings.patience * 1e9);
        uint64_t began = program_now_ns();
        ncclResult_t error = ncclSuccess;

        at("waiting for the communicator's error");
        while (error == ncclSuccess || error == ncclInProgress) {
                if (program_now_ns() > end) {
                        wrong("no error after %.0f s", LIMIT_S * settings.patience);
                        return;
                }
                ANSWERS(ncclSuccess, nccl.CommGetAsyncError(r->comm, &error));
                lobby_nap();
        }
        note("error %d after %.0f ms: %s", (int)error, (double)(program_now_ns() - began) / 1e6,
             nccl.GetLastError(r->comm));
}

/* Aborts, and expects that the streams end and that the context is still of use. */
static void abort_comm(struct rank *r)
{
        uint64_t began = program_now_ns();
        int in = 42, out = 0;
        CUdeviceptr memory;

        at("abort");
        ANSWERS(ncclSuccess, nccl.CommAbort(r->comm));
        r->comm = NULL;
        EXPECT((double)(program_now_ns() - began) < LIMIT_S * settings.patience * 1e9,
               "abort took %.1f s", (double)(program_now_ns() - began) / 1e9);
        for (int i = 0; i < 3; i++) {
                at("waiting for stream %d after the abort", i);
                if (!stream_ends(r->stream[i], LIMIT_S))
                        fatal("stream %d has not ended %.0f s after the abort", i,
                              LIMIT_S * settings.patience);
        }
        at("using the context after the abort");
        CUDA(cu.MemAlloc(&memory, 4));
        CUDA(cu.MemcpyHtoD(memory, &in, 4));
        CUDA(cu.MemcpyDtoH(&out, memory, 4));
        EXPECT(out == in, "memory is wrong after the abort");
        CUDA(cu.MemFree(memory));
        count_case();
}

/* The ranks that are left make a communicator of their own. */
static void go_on_without_last(struct rank *r)
{
        struct operation o;
        ncclComm_t comm;
        ncclUniqueId id;

        if (r->n < 2)
                return;
        id = id_from(r, 0);
        at("a communicator of the ranks that are left");
        NCCL(nccl.CommInitRank(&comm, r->n - 1, id, r->rank));
        o = sum(r, comm, r->n - 1, r->stream[0]);
        operation_do(&o);
        NCCL(nccl.CommDestroy(comm));
}

static void use_once(struct rank *r)
{
        struct operation o = sum(r, r->comm, r->n, r->stream[0]);

        operation_do(&o);
        lobby_meet();
}

static void end_last(const struct rank *r, bool by_signal)
{
        if (r->rank != r->n - 1)
                return;
        lobby_leave();
        if (by_signal)
                (void)raise(SIGKILL);
        _exit(0);
}

/* The last rank is killed while the others wait for it in two operations. */
static void kill_last(struct rank *r, struct operation ret[2])
{
        use_once(r);
        for (int i = 0; i < 2; i++) {
                ret[i] = sum(r, r->comm, r->n, r->stream[i]);
                operation_prepare(&ret[i]);
        }
        for (int i = 0; i < 2 && r->rank != r->n - 1; i++)
                operation_call(&ret[i]);
        lobby_meet(); /* the others have called both, perhaps after waiting for their turn */
        end_last(r, true);
        await_error(r);
}

void check_killed(struct rank *r)
{
        struct operation o[2];

        kill_last(r, o);
        abort_comm(r);
        go_on_without_last(r);
}

/* The last rank is killed with operations of its own on their way. */
void check_killed_amid(struct rank *r)
{
        struct operation o = sum(r, r->comm, r->n, r->stream[0]);

        use_once(r);
        operation_prepare(&o);
        for (int i = 0; i < 40; i++) {
                ncclResult_t result, error = ncclSuccess;

                if (i == 20)
                        end_last(r, true);
                at("all-reduce %d", i);
                o.stream = r->stream[i % 3];
                result = nccl.AllReduce((void *)(uintptr_t)o.send, (void *)(uintptr_t)o.recv,
                                        o.count, o.type, ncclSum, r->comm, o.stream);
                (void)nccl.CommGetAsyncError(r->comm, &error);
                if (result != ncclSuccess || error != ncclSuccess)
                        break; /* as a program does that looks */
        }
        await_error(r);
        abort_comm(r);
        go_on_without_last(r);
}

/* The last rank ends well, but without destroying its communicator, while the others rest. */
void check_left(struct rank *r)
{
        struct operation o = sum(r, r->comm, r->n, r->stream[0]);

        use_once(r);
        operation_prepare(&o);
        end_last(r, false);
        (void)usleep(200000);
        at("all-reduce without the last rank");
        (void)nccl.AllReduce((void *)(uintptr_t)o.send, (void *)(uintptr_t)o.recv, o.count, o.type,
                             ncclSum, r->comm, o.stream); /* may answer the error, too */
        await_error(r);
        abort_comm(r);
        go_on_without_last(r);
}

/* The last rank lives, but never calls. That is no error until the others abort. */
void check_absent(struct rank *r)
{
        struct operation o = sum(r, r->comm, r->n, r->stream[0]);

        use_once(r);
        operation_prepare(&o);
        if (r->rank < r->n - 1) {
                uint64_t end = program_now_ns() + 1000000000;

                operation_call(&o);
                at("an operation that cannot end");
                while (program_now_ns() < end) {
                        ncclResult_t error = ncclNumResults;

                        ANSWERS(ncclSuccess, nccl.CommGetAsyncError(r->comm, &error));
                        EXPECT(error == ncclSuccess, "error %d while a rank is late", (int)error);
                        EXPECT(cu.StreamQuery(r->stream[0]) == CUDA_ERROR_NOT_READY,
                               "the operation ended without the last rank");
                        lobby_nap();
                }
                lobby_meet(); /* an abort is an error for the others */
                abort_comm(r);
                lobby_meet();
        } else {
                lobby_meet();
                lobby_meet();
                abort_comm(r);
        }
        lobby_meet();
}

/* The last rank never joins the communicator. The others give up. */
void check_absent_at_init(struct rank *r)
{
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm = NULL, other = NULL;
        ncclUniqueId id = id_from(r, 0);
        int last = r->n - 1;
        uint64_t began;
        ncclResult_t result, error = ncclNumResults;

        config.blocking = 0;
        if (r->rank < r->n - 1) {
                at("an init that does not block");
                result = nccl.CommInitRankConfig(&comm, r->n, id, r->rank, &config);
                EXPECT(result == ncclSuccess || result == ncclInProgress, "init answered %d",
                       (int)result);
                if (!comm)
                        fatal("no communicator while the init is in progress");
                (void)usleep(500000);
                ANSWERS(ncclSuccess, nccl.CommGetAsyncError(comm, &error));
                EXPECT(error == ncclInProgress, "the init is in state %d, not in progress",
                       (int)error);
                at("calls during an init");
                ANSWERS(ncclInvalidArgument, nccl.CommSplit(comm, 0, 0, &other, NULL));
                if (nccl.CommShrink)
                        ANSWERS(ncclInvalidArgument,
                                nccl.CommShrink(comm, &last, 1, &other, NULL, NCCL_SHRINK_ABORT));
                at("abort of an init");
                began = program_now_ns();
                ANSWERS(ncclSuccess, nccl.CommAbort(comm));
                EXPECT((double)(program_now_ns() - began) < LIMIT_S * settings.patience * 1e9,
                       "abort took %.1f s", (double)(program_now_ns() - began) / 1e9);
                count_case();
        }
        lobby_meet();
        use_once(r);
}

/* Communicators are aborted again and again while their operations wait. */
void check_abort_often(struct rank *r)
{
        for (int i = 0; i < 200 * settings.rounds; i++) {
                ncclComm_t comm = comm_of_all(r, i % 2);
                struct operation o = sum(r, comm, r->n, r->stream[i % 3]);

                operation_prepare(&o);
                if (r->rank < r->n - 1)
                        operation_call(&o);
                lobby_meet();
                at("abort %d", i);
                ANSWERS(ncclSuccess, nccl.CommAbort(comm));
                if (!stream_ends(o.stream, LIMIT_S))
                        fatal("the stream has not ended after abort %d", i);
                operation_free(&o);
                count_case();
        }
}

void check_abort_idle(struct rank *r)
{
        use_once(r);
        lobby_meet();
        abort_comm(r);
        lobby_meet();
        r->comm = comm_of_all(r, true);
        NCCL(nccl.CommAbort(r->comm));
        r->comm = NULL;
}

/* The ranks that are left shrink the communicator, which ends its operations. */
static void shrink_without_last(struct rank *r, const struct operation *waits, int waiting)
{
        int last = r->n - 1;
        struct operation o;
        ncclComm_t comm = NULL;

        at("shrink after a failure");
        NCCL(nccl.CommShrink(r->comm, &last, 1, &comm, NULL, NCCL_SHRINK_ABORT));
        for (int i = 0; i < waiting; i++)
                if (!stream_ends(waits[i].stream, LIMIT_S))
                        fatal("stream %d has not ended %.0f s after the shrink", i,
                              LIMIT_S * settings.patience);
        for (int i = 0; i < 3; i++) { /* in the streams that waited */
                o = sum(r, comm, r->n - 1, r->stream[i]);
                operation_do(&o);
        }
        at("the end of the communicator that was shrunk");
        abort_comm(r);
        operation_do(&o);
        NCCL(nccl.CommDestroy(comm));
}

static bool can_shrink(const struct rank *r)
{
        if (!nccl.CommShrink || r->n < 2)
                skip(r->n < 2 ? "one rank cannot be excluded" : "this NCCL has no ncclCommShrink");
        return nccl.CommShrink && r->n > 1;
}

/* The last rank lives, but never calls. */
void check_shrink_absent(struct rank *r)
{
        struct operation o[2];

        if (!can_shrink(r))
                return;
        use_once(r);
        for (int i = 0; i < 2; i++) {
                o[i] = sum(r, r->comm, r->n, r->stream[i]);
                operation_prepare(&o[i]);
                if (r->rank < r->n - 1)
                        operation_call(&o[i]);
        }
        lobby_meet(); /* an abort is an error for the others */
        if (r->rank < r->n - 1)
                shrink_without_last(r, o, 2);
        lobby_meet();
        if (r->rank == r->n - 1)
                abort_comm(r);
        lobby_meet();
}

void check_shrink_killed(struct rank *r)
{
        struct operation o[2];

        if (!can_shrink(r))
                return;
        kill_last(r, o);
        shrink_without_last(r, o, 2);
}
