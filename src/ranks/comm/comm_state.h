/* comm_state.h: a communicator, for the files of this room. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "ranks/comm/comm.h"
#include "ranks/meet/meet.h"
#include "ranks/ring/ring.h"

struct comm_scale {
        struct comm_scale *next;
        unsigned id;
        ncclDataType_t type;
        CUdeviceptr scalar;
        uint64_t bits;
};

#define COMM_WHY_MAX 256

struct comm {
        uint64_t magic;
        ncclComm_t real;
        uint8_t name[MEET_NAME];
        int rank, n, device;
        CUcontext context;
        struct meet *meet;          /* NULL: there is one rank, or the real NCCL serves it */
        struct comm_making *making; /* a thread makes the communicator, or has made it */
        struct comm *stopper;       /* comm_stop(stopper) ends the making of this communicator */
        struct meet *being_made;    /* the meeting that comm_stop() of this communicator ends */
        bool stopped;
        atomic_uint users; /* threads that use the communicator now */
        struct ring ring;
        _Atomic ncclResult_t error;
        char why[COMM_WHY_MAX];       /* a sentence about `error`; "": none */
        CUevent last;                 /* recorded behind the last operation */
        CUevent side;                 /* orders the streams of one group */
        CUstream aside;               /* comm_go_aside(); NULL: not yet made */
        bool used;                    /* `last` is recorded */
        bool captured;                /* a graph may use the communicator at any time */
        _Atomic uint64_t collectives; /* collectives put into streams, without those of graphs */
        unsigned children;            /* communicators split off this one */
        struct comm_shrinks *shrinks;
        unsigned next_scale;
        struct comm_scale *scales;
        bool released; /* comm_abort() has ended its waits for flags */
        struct comm *next;
};

/* One of several makings at once. */
struct comm_task {
        struct comm *comm; /* comm_stop(comm) ends the task */
        ncclResult_t (*run)(struct comm *c, const void *what);
        const void *what;
        ncclResult_t result;
        pthread_t thread;
};

/* Runs all tasks, all but the first in threads of their own. Returns the first error. */
ncclResult_t comm_run_tasks(struct comm_task *tasks, unsigned n);
/* Ends the making of this communicator, or of one that is made of it. */
void comm_stop(struct comm *c);
/* Ends the thread that makes this communicator, if there is one, and waits for it. */
void comm_stop_making(struct comm *c);
ncclResult_t comm_meeting_failed(const struct comm *c, int r);
/* Handle the end of rank `lost`'s process; -1: of some rank. comm_lost() is for a communicator that
 * is made; comm_lost_fail() for one that is being made, which fails. */
void comm_lost(struct comm *c, int lost);
ncclResult_t comm_lost_fail(const struct comm *c, int lost);
/* Ends the operations in flight. No more may follow. */
void comm_end_operations(struct comm *c);
void comm_forget_shrinks(struct comm *c);
struct comm *comm_new(void);
/* Notes that this thread uses the communicator: comm_abort() waits until comm_end_use(). Fails if
 * the communicator is not made yet, or has an error. */
ncclResult_t comm_begin_use(struct comm *c);
void comm_end_use(struct comm *c);
/* Returns the place into which the real NCCL stores its communicator. NCCL may do so long after its
 * function has returned. */
ncclComm_t *comm_await_real(struct comm *c);
/* what: names what failed, as the subject of a sentence. */
ncclResult_t comm_cuda_failed(const struct comm *c, const char *what, CUresult e);
/* Make the communicator's context current, if it is not. */
CUresult comm_enter(const struct comm *c, bool *ret_pushed);
void comm_leave(bool pushed);
void comm_free_events(struct comm *c);
/* Free a communicator that could not be made. */
void comm_drop(struct comm *c);
