/* objects.h: contexts, streams and events as the simulator keeps them.
 *
 * All of it under sim.lock unless said otherwise. Streams and events are never given back to the
 * allocator (a free list keeps them), and the numbers of a stream's operations only grow, so that a
 * point of a stream destroyed long ago still compares right. */
#pragma once

#include "sim/call/call.h"
#include "sim/rm/queues.h"

#define MAGIC_CONTEXT  0x43545855u
#define MAGIC_STREAM   0x5354524du
#define MAGIC_ORPHAN   0x4f525048u /* a stream whose context is gone */
#define MAGIC_EVENT    0x45564e54u
#define MAGIC_MODULE   0x4d4f4455u
#define MAGIC_FUNCTION 0x46554e43u
#define MAGIC_LIBRARY  0x4c494252u
#define MAGIC_GRAPH    0x47524150u
#define MAGIC_EXEC     0x45584543u

struct op;
struct capture;
struct shared_event;

struct CUctx_st {
        uint32_t magic;
        unsigned device;
        bool primary;
        struct CUctx_st *green_of; /* of a green one: the primary, which its memory belongs to */
        struct CUctx_st *greens, *next_green; /* primary: those of it that live */
        unsigned processors;                  /* of a green one */
        _Atomic bool alive;
        unsigned retained; /* primary: by cuDevicePrimaryCtxRetain */
        unsigned attached; /* beside the one who made it */
        unsigned flags, api_version;
        uint64_t id;
        uint64_t charged;
        _Atomic int *error; /* its device's, for this process: a sticky CUresult; read without the
                               lock */
        struct CUstream_st *legacy;
        struct CUstream_st *streams; /* legacy and per-thread ones too */
        struct CUstream_st *gather;  /* what waits for all of them; NULL: not needed yet */
        struct CUstream_st *hold;    /* what all of them wait for; NULL: nothing ever */
        struct CUmod_st *modules;
        struct queues queues;
        CUcontext next_gone;
        size_t limit[16];
};

/* The moment an operation of a stream is done. stream NULL: always over. */
struct point {
        struct CUstream_st *stream;
        uint64_t number;
};

struct CUstream_st {
        _Atomic uint32_t magic; /* this and `destroyed`: looked at without the lock, too */
        CUcontext context;
        unsigned flags; /* CU_STREAM_NON_BLOCKING */
        int priority;
        uint64_t id;
        bool legacy;
        _Atomic bool destroyed; /* goes back to the free list when its work is done */
        struct op *first, **last;
        uint64_t submitted, done;
        bool worker;  /* it has a thread */
        bool waiting; /* the thread waits, for work or for another stream */
        pthread_cond_t wake;
        struct capture *capture;
        struct CUgraphNode_st **tail; /* while capturing: what its next node follows */
        size_t tails;
        struct point *heard; /* the last of each other stream that it has waited for */
        size_t heards;
        struct CUstream_st *next_of_context, *next_free, *next_all;
};

struct CUevent_st {
        uint32_t magic;
        CUcontext context;
        unsigned flags;
        struct point point; /* of its last record */
        uint64_t records;   /* how often recorded: tells a late stamp from the current one */
        bool recorded;
        uint64_t stamp_ns;
        struct shared_event *shared; /* ipc.c; NULL: no other process has part in it */
        int shared_fd;               /* of those made here; -1 */
        /* Recorded in a capture: what a waiting stream's next node follows. */
        uint64_t capture_id;
        struct capture *capture;
        struct CUgraphNode_st **tail;
        size_t tails;
        struct CUevent_st *next_free, *next_all;
};

/* ---- current.c ---- */
CUcontext context_current(void);
/* NULL handles mean the current one. */
CUresult context_check(CUcontext handle, CUcontext *ret_context);
/* Whose memory, modules and events a context uses: the primary one's, if it is green. */
CUcontext context_owner(CUcontext c);
/* As the program knows it; NULL: it is not green. */
static inline CUgreenCtx context_as_green(CUcontext c)
{
        return c->green_of ? (CUgreenCtx)(void *)c : NULL;
}
/* Make it the calling thread's current one, above the one that is. False: there is no place. */
bool context_push(CUcontext c);
/* The calling thread's current one is the one below from now on. */
void context_pop(void);
/* The first error stays. */
void context_fail(CUcontext c, CUresult error);
/* True when running work should give up: the process leaves or the context has failed. */
static inline bool context_cancelled(CUcontext c)
{
        return sim_cancelled(c->error);
}
/* The same, between two steps of work that uses no memory at the moment: it stands here while its
 * channel is disabled. */
bool context_stopped(CUcontext c);

/* ---- device.c ---- */
#define DEVICE_PROCESSORS 132 /* as an H200 has */
CUresult device_check(CUdevice device);

/* Where an entry point with a device begins: api_enter(), then the device. */
CUresult device_enter(const char *function, CUdevice device);
