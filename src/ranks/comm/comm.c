/* comm.c: owns the communicators after they are made. Must never free what a stream still uses. */
#include "ranks/comm/comm.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "ranks/comm/comm_state.h"
#include "ranks/events/event_values.h"
#include "ranks/real/real_nccl.h"
#include "ranks/real/real_functions.h"

#define COMM_MAGIC UINT64_C(0x73756c62656d6f63)
/* How long an aborted or destroyed communicator's streams may take to end. */
#define LEAVE_NS (10 * NSEC_PER_SEC)
#define NAP_NS   NSEC_PER_MSEC

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm *all;
static pid_t owner; /* the process that made the communicators in `all` */

/* ---- errors ---- */

static pthread_mutex_t errors = PTHREAD_MUTEX_INITIALIZER;
static char last_error[COMM_WHY_MAX]; /* the last of any thread: another thread may ask for it */

const char *comm_last_error(void)
{
        static __thread char copy[sizeof(last_error)];

        (void)pthread_mutex_lock(&errors);
        (void)memcpy(copy, last_error, sizeof(copy));
        (void)pthread_mutex_unlock(&errors);
        return copy;
}

static void set_last_error(const char text[static COMM_WHY_MAX])
{
        (void)pthread_mutex_lock(&errors);
        (void)memcpy(last_error, text, sizeof(last_error));
        (void)pthread_mutex_unlock(&errors);
}

ncclResult_t comm_fail(ncclResult_t result, const char *format, ...)
{
        char text[COMM_WHY_MAX] = "";
        va_list args;

        va_start(args, format);
        (void)vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        set_last_error(text);
        /* NCCL's other errors are the program's own, and it learns them from NCCL's functions. */
        log_write(result == ncclInvalidUsage || result == ncclSystemError ? LOG_LEVEL_WARNING
                                                                          : LOG_LEVEL_INFO,
                  "%s", text);
        return result;
}

/* Makes the communicator useless for good. The first reason stays. */
static void fail_for_good(struct comm *c, ncclResult_t error, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static void fail_for_good(struct comm *c, ncclResult_t error, const char *format, ...)
{
        char text[COMM_WHY_MAX] = "";
        ncclResult_t none = ncclSuccess;
        va_list args;

        va_start(args, format);
        (void)vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        (void)pthread_mutex_lock(&errors);
        if (atomic_compare_exchange_strong(&c->error, &none, error))
                (void)memcpy(c->why, text, sizeof(text));
        (void)pthread_mutex_unlock(&errors);
}

static void describe_lost(const struct comm *c, int lost, char ret[static COMM_WHY_MAX])
{
        if (lost >= 0)
                (void)snprintf(ret, COMM_WHY_MAX,
                               "rank %d of %d: the process of rank %d has ended, see its output",
                               c->rank, c->n, lost);
        else
                (void)snprintf(ret, COMM_WHY_MAX,
                               "rank %d of %d: the process of another rank has ended, see their "
                               "output",
                               c->rank, c->n);
}

void comm_lost(struct comm *c, int lost)
{
        char text[COMM_WHY_MAX];

        describe_lost(c, lost, text);
        fail_for_good(c, ncclRemoteError, "%s", text);
}

ncclResult_t comm_lost_fail(const struct comm *c, int lost)
{
        char text[COMM_WHY_MAX];

        describe_lost(c, lost, text);
        return comm_fail(ncclRemoteError, "%s", text);
}

ncclResult_t comm_cuda_failed(const struct comm *c, const char *what, CUresult e)
{
        const char *text = NULL;

        (void)real_cuda()->cuGetErrorString(e, &text);
        return comm_fail(ncclUnhandledCudaError, "rank %d of %d: %s failed: CUDA error %d, %s%s",
                         c->rank, c->n, what, (int)e, text ? text : "unknown",
                         e == CUDA_ERROR_OUT_OF_MEMORY
                                 ? "; run fewer ranks, or raise unevictable_share (sublet status "
                                   "shows what cannot leave the card)"
                                 : "");
}

/* ---- what a program holds ---- */

static void leave_at_end(void)
{
        comm_leave_all(true);
}

/* In the child of a fork all communicators belong to the parent. Lock held. */
static void leave_at_exit(void)
{
        static bool told;

        if (owner != getpid())
                all = NULL;
        owner = getpid();
        if (!told)
                told = atexit(leave_at_end) == 0;
}

struct comm *comm_new(void)
{
        struct comm *c = calloc(1, sizeof(*c));

        if (!c)
                return NULL;
        c->magic = COMM_MAGIC;
        (void)pthread_mutex_lock(&lock);
        leave_at_exit();
        c->next = all;
        all = c;
        (void)pthread_mutex_unlock(&lock);
        return c;
}

static void forget(struct comm *c)
{
        (void)pthread_mutex_lock(&lock);
        for (struct comm **at = &all; *at; at = &(*at)->next)
                if (*at == c) {
                        *at = c->next;
                        break;
                }
        (void)pthread_mutex_unlock(&lock);
        free(c);
}

struct comm *comm_of(ncclComm_t handle)
{
        struct comm *c = (struct comm *)handle;

        return c && c->magic == COMM_MAGIC ? c : NULL;
}

ncclComm_t comm_handle(struct comm *c)
{
        return (ncclComm_t)c;
}

ncclComm_t comm_real(const struct comm *c)
{
        return __atomic_load_n(&c->real, __ATOMIC_ACQUIRE);
}

struct comm *comm_real_child(const struct comm *parent, ncclComm_t **ret_place)
{
        struct comm *c = comm_new();

        if (!c)
                return NULL;
        c->device = parent->device;
        c->error = ncclInProgress; /* holds until the real NCCL has stored its handle */
        *ret_place = &c->real;
        return c;
}

static atomic_bool any_is_real;

bool comm_any_is_real(void)
{
        return atomic_load_explicit(&any_is_real, memory_order_relaxed);
}

ncclComm_t *comm_await_real(struct comm *c)
{
        atomic_store(&any_is_real, true);
        return &c->real;
}

int comm_rank(const struct comm *c)
{
        return c->rank;
}

int comm_count(const struct comm *c)
{
        return c->n;
}

int comm_device(const struct comm *c)
{
        return c->device;
}

/* True if another rank has left after fewer collectives than this rank has begun. */
static bool is_left(struct comm *c)
{
        return c->meet && atomic_load(&c->collectives) > meet_uses(c->meet);
}

/* Makes the communicator's reason the last error. */
static void tell_why(const struct comm *c)
{
        char text[COMM_WHY_MAX];

        (void)pthread_mutex_lock(&errors);
        (void)memcpy(text, c->why, sizeof(text));
        (void)pthread_mutex_unlock(&errors);
        if (!text[0])
                (void)snprintf(text, sizeof(text), "rank %d of %d: the communicator has ended",
                               c->rank, c->n);
        set_last_error(text);
}

/* Counts as a use of the communicator, because comm_destroy() and comm_abort() unmap what this
 * reads. */
ncclResult_t comm_error(struct comm *c)
{
        ncclResult_t error;

        (void)atomic_fetch_add(&c->users, 1);
        if (ring_is_released(&c->ring))
                fail_for_good(c, ncclRemoteError,
                              "rank %d of %d: another rank has aborted the communicator", c->rank,
                              c->n);
        else if (is_left(c))
                fail_for_good(
                        c, ncclRemoteError,
                        "rank %d of %d: another rank has destroyed its communicator before this "
                        "rank's last operation",
                        c->rank, c->n);
        error = atomic_load(&c->error);
        if (error != ncclSuccess && error != ncclInProgress)
                tell_why(c);
        comm_end_use(c);
        return error;
}

ncclResult_t comm_begin_use(struct comm *c)
{
        ncclResult_t error;

        (void)atomic_fetch_add(&c->users, 1); /* comm_abort() sets the error, then reads users */
        error = comm_error(c);
        return error == ncclInProgress
                       ? comm_fail(ncclInvalidArgument, "the communicator is not made yet")
                       : error;
}

void comm_end_use(struct comm *c)
{
        (void)atomic_fetch_sub(&c->users, 1);
}

/* ---- streams ---- */

CUresult comm_enter(const struct comm *c, bool *ret_pushed)
{
        CUcontext now = NULL;
        CUresult e = real_cuda()->cuCtxGetCurrent(&now);

        *ret_pushed = false;
        if (e != CUDA_SUCCESS || now == c->context)
                return e;
        e = real_cuda()->cuCtxPushCurrent_v2(c->context);
        *ret_pushed = e == CUDA_SUCCESS;
        return e;
}

void comm_leave(bool pushed)
{
        CUcontext popped;

        if (pushed)
                (void)real_cuda()->cuCtxPopCurrent_v2(&popped);
}

/* Has this stream wait for the communicator's last operation. Handles do not tell whether that
 * operation was in the same stream: they are used again, and CU_STREAM_PER_THREAD names many. A
 * captured stream cannot wait for work that is not captured; NCCL's rule that a program orders its
 * streams holds. */
static CUresult follow_last(struct comm *c, CUstream stream, bool *ret_captured)
{
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        CUresult e = real_cuda()->cuStreamIsCapturing(stream, &status);

        *ret_captured = status != CU_STREAM_CAPTURE_STATUS_NONE;
        if (e != CUDA_SUCCESS || *ret_captured || !c->used)
                return e;
        return events_wait(stream, c->last);
}

static CUresult follow(struct comm *c, CUstream leader, CUstream follower)
{
        CUresult e = events_record(c->side, leader);

        return e == CUDA_SUCCESS ? events_wait(follower, c->side) : e;
}

/* Has streams[0] follow the others, or the others follow it. */
static CUresult follow_all(struct comm *c, const CUstream *streams, unsigned n, bool others_follow)
{
        CUresult e = CUDA_SUCCESS;

        for (unsigned i = 1; i < n && e == CUDA_SUCCESS; i++)
                if (streams[i] != streams[0] && streams[i] != streams[i - 1])
                        e = others_follow ? follow(c, streams[0], streams[i])
                                          : follow(c, streams[i], streams[0]);
        return e;
}

static CUresult put_in_streams(struct comm *c, const struct steps_call *calls, unsigned n,
                               const CUstream *streams)
{
        const bool point = calls[0].kind == STEPS_SEND || calls[0].kind == STEPS_RECEIVE;
        CUresult e = follow_all(c, streams, n, false);

        if (e == CUDA_SUCCESS)
                e = point ? steps_point_to_point(&c->ring, calls, n, streams[0])
                          : steps_collective(&c->ring, calls, streams[0]);
        return e == CUDA_SUCCESS ? follow_all(c, streams, n, true) : e;
}

/* A part of a failed operation may be in the stream, and use the ring there. Flags of the missing
 * part would be taken for flags of the next operation. So the communicator runs no more operations.
 */
static CUresult end_operation(struct comm *c, CUresult e, CUstream stream)
{
        const CUresult recorded = events_record(c->last, stream);

        c->used = true;
        if (e == CUDA_SUCCESS)
                e = recorded;
        if (e != CUDA_SUCCESS)
                fail_for_good(c, ncclUnhandledCudaError,
                              "rank %d of %d: an earlier operation failed with CUDA error %d",
                              c->rank, c->n, (int)e);
        return e;
}

static ncclResult_t run(struct comm *c, const struct steps_call *calls, unsigned n,
                        const CUstream *streams)
{
        bool pushed, captured = false;
        CUresult e = comm_enter(c, &pushed);

        if (e == CUDA_SUCCESS)
                e = follow_last(c, streams[0], &captured);
        c->captured = c->captured || captured;
        if (c->n > 1)
                events_note_wait(streams[0], captured);
        if (e == CUDA_SUCCESS) {
                e = put_in_streams(c, calls, n, streams);
                if (!captured && calls[0].kind != STEPS_SEND && calls[0].kind != STEPS_RECEIVE)
                        (void)atomic_fetch_add(&c->collectives, 1);
                if (!captured) /* what is captured runs only if the capture ends well */
                        e = end_operation(c, e, streams[0]);
        }
        comm_leave(pushed);
        return e == CUDA_SUCCESS ? ncclSuccess : comm_cuda_failed(c, "an operation", e);
}

ncclResult_t comm_run(struct comm *c, const struct steps_call *calls, unsigned n,
                      const CUstream *streams)
{
        ncclResult_t result = comm_begin_use(c);

        if (result == ncclSuccess)
                result = run(c, calls, n, streams);
        comm_end_use(c);
        return result;
}

ncclResult_t comm_prepare(const struct comm *c, const struct steps_call *call)
{
        bool pushed;
        CUresult e = comm_enter(c, &pushed);

        if (e == CUDA_SUCCESS && c->n > 1)
                e = steps_prepare(call);
        comm_leave(pushed);
        return e == CUDA_SUCCESS ? ncclSuccess
                                 : comm_cuda_failed(c, "loading the kernels of an operation", e);
}

bool comm_is_before(const struct comm *a, const struct comm *b)
{
        return memcmp(a->name, b->name, MEET_NAME) < 0;
}

bool comm_is_beside(const struct comm *a, const struct comm *b)
{
        return a != b && a->context == b->context && memcmp(a->name, b->name, MEET_NAME) == 0;
}

ncclResult_t comm_go_aside(struct comm *c, CUstream stream, CUstream *ret)
{
        CUresult e;
        bool pushed;

        e = comm_enter(c, &pushed);
        if (e == CUDA_SUCCESS && !c->aside)
                e = real_cuda()->cuStreamCreate(&c->aside, CU_STREAM_NON_BLOCKING);
        if (e == CUDA_SUCCESS)
                e = follow(c, stream, c->aside);
        comm_leave(pushed);
        *ret = c->aside;
        return e == CUDA_SUCCESS ? ncclSuccess
                                 : comm_cuda_failed(c, "a stream beside the program's", e);
}

ncclResult_t comm_come_back(struct comm *c, CUstream stream)
{
        bool pushed;
        CUresult e = comm_enter(c, &pushed);

        if (e == CUDA_SUCCESS)
                e = follow(c, c->aside, stream);
        comm_leave(pushed);
        return e == CUDA_SUCCESS ? ncclSuccess
                                 : comm_cuda_failed(c, "a stream beside the program's", e);
}

/* ---- the end ---- */

static void nap(void)
{
        const struct timespec ts = {.tv_nsec = NAP_NS};

        (void)nanosleep(&ts, NULL);
}

/* True if no thread is in a function that uses the communicator. A thread may wait in one for
 * seconds, at libsublet's gate. */
static bool is_unused(struct comm *c)
{
        const uint64_t until = clock_now_ns() + LEAVE_NS;

        while (atomic_load(&c->users) > 0)
                if (clock_now_ns() < until)
                        nap();
                else
                        return false;
        return true;
}

/* True if no stream uses the communicator's memory any more. */
static bool has_ended(struct comm *c)
{
        const uint64_t until = clock_now_ns() + LEAVE_NS;
        CUresult e;

        if (!c->used)
                return true;
        while ((e = real_cuda()->cuEventQuery(c->last)) == CUDA_ERROR_NOT_READY)
                if (clock_now_ns() < until)
                        nap();
                else
                        return false;
        return e == CUDA_SUCCESS;
}

void comm_free_events(struct comm *c)
{
        if (c->last)
                (void)events_destroy(c->last);
        if (c->side)
                (void)events_destroy(c->side);
        c->last = c->side = NULL;
}

/* True if no operation of this rank is in a stream, and no graph can put one there. */
static bool is_idle(struct comm *c)
{
        bool pushed = false, idle;

        idle = atomic_load(&c->users) == 0 && !c->captured &&
               comm_enter(c, &pushed) == CUDA_SUCCESS &&
               (!c->used || real_cuda()->cuEventQuery(c->last) == CUDA_SUCCESS);
        comm_leave(pushed);
        return idle;
}

/* Ends the waits in the streams of aborted communicators. It is called again and again, because a
 * graph may be replayed for ever. True: some stream had waited. */
static bool release_aborted(void)
{
        bool any = false;

        (void)pthread_mutex_lock(&lock);
        for (struct comm *c = all; c; c = c->next)
                if (c->released)
                        any = ring_release(&c->ring) || any;
        (void)pthread_mutex_unlock(&lock);
        return any;
}

/* Calls meet_call_often() with the lock held, so that the calls keep the order of the changes. */
static void set_released(struct comm *c, bool released)
{
        bool any = false;

        (void)pthread_mutex_lock(&lock);
        c->released = released;
        for (struct comm *other = all; other && !any; other = other->next)
                any = other->released;
        meet_call_often(any ? release_aborted : NULL);
        (void)pthread_mutex_unlock(&lock);
}

/* False: a stream still uses the communicator's memory, so this memory stays for ever. */
static bool free_resources(struct comm *c)
{
        bool pushed = false, ended;

        ended = comm_enter(c, &pushed) == CUDA_SUCCESS && has_ended(c);
        if (ended) {
                if (c->n > 1) {
                        set_released(c, false); /* nobody may release a ring that is gone */
                        ring_free(&c->ring);
                }
                comm_free_events(c);
                if (c->aside)
                        (void)events_destroy_stream(c->aside);
        }
        comm_leave(pushed);
        return ended;
}

static ncclResult_t destroy_real(struct comm *c, ncclResult_t (*f)(ncclComm_t))
{
        const ncclResult_t result = f(c->real);

        forget(c);
        return result;
}

/* The program's handle is invalid from now on. */
static void comm_free(struct comm *c, bool ended)
{
        c->magic = 0;
        if (!ended || atomic_load(&c->error) == ncclInProgress)
                return; /* a stream still uses it, or the real NCCL will store into it */
        while (c->scales) {
                struct comm_scale *s = c->scales;

                c->scales = s->next;
                free(s);
        }
        comm_forget_shrinks(c);
        forget(c);
}

/* Waits for this rank's operations, as long as the other ranks can still take part: they may have
 * to wait for their turns. */
static void await_operations(struct comm *c)
{
        bool pushed;

        if (comm_enter(c, &pushed) == CUDA_SUCCESS)
                while (c->used && comm_error(c) == ncclSuccess &&
                       real_cuda()->cuEventQuery(c->last) == CUDA_ERROR_NOT_READY)
                        nap();
        comm_leave(pushed);
}

ncclResult_t comm_destroy(struct comm *c)
{
        ncclResult_t none = ncclSuccess;
        bool ended;

        comm_stop_making(c);
        if (c->real)
                return destroy_real(c, real_nccl()->ncclCommDestroy);
        await_operations(c);
        (void)atomic_compare_exchange_strong(&c->error, &none, ncclInternalError);
        ended = is_unused(c) && free_resources(c);
        meet_leave(c->meet, c->collectives);
        comm_free(c, ended);
        return ncclSuccess;
}

void comm_drop(struct comm *c)
{
        comm_stop_making(c);
        meet_leave(c->meet, 0);
        c->meet = NULL;
        if (c->real)
                (void)real_nccl()->ncclCommAbort(c->real);
        comm_free(c, free_resources(c));
}

void comm_end_operations(struct comm *c)
{
        ncclResult_t none = ncclSuccess;
        bool pushed = false;

        /* The flags are set without the other ranks, so the rings are of no more use. */
        (void)atomic_compare_exchange_strong(&c->error, &none, ncclInternalError);
        if (c->n > 1)
                set_released(c, true);
        if (comm_enter(c, &pushed) == CUDA_SUCCESS)
                (void)has_ended(c);
        comm_leave(pushed);
}

ncclResult_t comm_abort(struct comm *c)
{
        bool ended;

        comm_stop_making(c);
        if (c->real)
                return destroy_real(c, real_nccl()->ncclCommAbort);
        atomic_store(&c->error, ncclInternalError);
        if (c->meet)
                meet_cancel(c->meet);
        comm_stop(c);
        if (c->n > 1 && !is_idle(c))
                set_released(c, true);
        if (!is_unused(c))
                return ncclSuccess;
        /* A graph that runs now or later needs the flags to end its waits, so they stay. */
        ended = !c->captured && free_resources(c);
        meet_leave(c->meet, c->collectives);
        comm_free(c, ended);
        return ncclSuccess;
}

static bool is_done(struct comm *c, bool may_ask)
{
        return (atomic_load(&c->users) == 0 && !c->captured &&
                (!c->used || events_has_passed(c->last))) ||
               (may_ask && is_idle(c));
}

void comm_leave_all(bool may_ask)
{
        if (getpid() != owner || pthread_mutex_trylock(&lock) != 0)
                return;
        for (struct comm *c = all; c; c = c->next)
                if (c->magic && atomic_load(&c->error) == ncclSuccess && c->meet &&
                    is_done(c, may_ask) && !meet_say_leave(c->meet, atomic_load(&c->collectives)))
                        break;
        (void)pthread_mutex_unlock(&lock);
}

/* ---- operations ---- */

ncclResult_t comm_add_scale(struct comm *c, const void *scalar, ncclDataType_t type,
                            ncclScalarResidence_t residence, ncclRedOp_t *ret)
{
        struct comm_scale *s;

        if (!scalar || !reduce_bytes(type) || residence > ncclScalarHostImmediate)
                return comm_fail(ncclInvalidArgument,
                                 "ncclRedOpCreatePreMulSum: no such scalar, type or residence");
        s = calloc(1, sizeof(*s));
        if (!s)
                return comm_fail(ncclSystemError, "no memory");
        s->type = type;
        s->id = c->next_scale++;
        if (residence == ncclScalarHostImmediate)
                (void)memcpy(&s->bits, scalar, reduce_bytes(type));
        else
                s->scalar = (CUdeviceptr)(uintptr_t)scalar;
        s->next = c->scales;
        c->scales = s;
        *ret = (ncclRedOp_t)(ncclNumOps + s->id);
        return ncclSuccess;
}

ncclResult_t comm_remove_scale(struct comm *c, ncclRedOp_t op)
{
        for (struct comm_scale **at = &c->scales; *at; at = &(*at)->next)
                if ((unsigned)ncclNumOps + (*at)->id == (unsigned)op) {
                        struct comm_scale *s = *at;

                        *at = s->next;
                        free(s);
                        return ncclSuccess;
                }
        return comm_fail(ncclInvalidArgument, "there is no operation %d to destroy", (int)op);
}

ncclResult_t comm_reduce_op(const struct comm *c, ncclRedOp_t op, ncclDataType_t type,
                            struct reduce_op *ret)
{
        static const uint8_t kinds[] = {REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN,
                                        REDUCE_SUM};

        *ret = (struct reduce_op){.type = type, .divide = 1};
        if (!reduce_bytes(type))
                return comm_fail(ncclInvalidArgument, "there is no data type %d", (int)type);
        if ((unsigned)op < ncclNumOps) {
                ret->kind = kinds[op];
                if (op == ncclAvg)
                        ret->divide = (uint32_t)c->n;
                return ncclSuccess;
        }
        for (const struct comm_scale *s = c->scales; s; s = s->next)
                if ((unsigned)ncclNumOps + s->id == (unsigned)op) {
                        if (s->type != type)
                                break;
                        ret->scales = true;
                        ret->scalar = s->scalar;
                        ret->bits = s->bits;
                        return ncclSuccess;
                }
        return comm_fail(ncclInvalidArgument, "there is no operation %d for data type %d", (int)op,
                         (int)type);
}
