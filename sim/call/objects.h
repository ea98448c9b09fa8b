/* objects.h: contexts, streams and events as the simulator keeps them.
 *
 * All of it under sim.lock unless said otherwise. Streams and events go to a free list, never to
 * the allocator, and the numbers of a stream's operations only grow: so a point of a stream
 * destroyed long ago still compares correctly. */
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
        struct CUctx_st *green_of; /* of a green context: the primary one, which owns its memory */
        struct CUctx_st *greens, *next_green; /* of a primary context: its green ones */
        unsigned processors;                  /* of a green one */
        _Atomic bool alive;
        unsigned retained; /* primary: by cuDevicePrimaryCtxRetain */
        unsigned attached; /* besides the thread that made it */
        unsigned flags, api_version;
        uint64_t id;
        uint64_t charged;
        _Atomic int *error; /* the device's error in this process: a sticky CUresult; read without
                               the lock */
        struct CUstream_st *legacy;
        struct CUstream_st *streams; /* including legacy and per-thread streams */
        struct CUstream_st *gather;  /* a stream that waits for all of them; NULL: not needed yet */
        struct CUstream_st *hold;    /* a stream that all of them wait for; NULL: none */
        struct CUmod_st *modules;
        struct queues queues;
        CUcontext next_gone;
        size_t limit[16];
};

/* The end of one operation of a stream. stream NULL: always reached. */
struct point {
        struct CUstream_st *stream;
        uint64_t number;
};

struct CUstream_st {
        _Atomic uint32_t magic; /* this and `destroyed` are also read without the lock */
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
        struct CUgraphNode_st **tail; /* while capturing: the nodes that its next node follows */
        size_t tails;
        struct point *
                heard; /* for each other stream the last point of it that this one has waited for */
        size_t heards;
        struct CUstream_st *next_of_context, *next_free, *next_all;
};

struct CUevent_st {
        uint32_t magic;
        CUcontext context;
        unsigned flags;
        struct point point; /* of its last record */
        uint64_t records; /* how often it was recorded: tells an old time stamp from the current one
                           */
        bool recorded;
        uint64_t stamp_ns;
        struct shared_event *shared; /* shared_event.c; NULL: no other process has opened it */
        int shared_fd;               /* of events made here; otherwise -1 */
        /* Recorded in a capture: the nodes that the next node of a waiting stream follows. */
        uint64_t capture_id;
        struct capture *capture;
        struct CUgraphNode_st **tail;
        size_t tails;
        struct CUevent_st *next_free, *next_all;
};

/* ---- current.c ---- */
CUcontext context_current(void);
/* A NULL handle means the current context. */
CUresult context_check(CUcontext handle, CUcontext *ret_context);
/* The context that owns memory, modules and events: the primary one for a green one. */
CUcontext context_owner(CUcontext c);
/* The program's handle for it; NULL: it is not green. */
static inline CUgreenCtx context_as_green(CUcontext c)
{
        return c->green_of ? (CUgreenCtx)(void *)c : NULL;
}
/* Push it on the calling thread's stack of contexts. False: the stack is full. */
bool context_push(CUcontext c);
/* Pop the calling thread's current context. */
void context_pop(void);
/* The first error counts. */
void context_fail(CUcontext c, CUresult error);
/* True when running work should give up: the process is leaving or the context has failed. */
static inline bool context_cancelled(CUcontext c)
{
        return sim_cancelled(c->error);
}
/* The same, called between two steps of work that uses no memory at that moment: it waits here
 * while its channel is disabled. */
bool context_stopped(CUcontext c);

/* ---- device.c ---- */
#define DEVICE_PROCESSORS 132 /* as an H200 has */
CUresult device_check(CUdevice device);

/* The start of entry points with a device: api_enter(), then the device. */
CUresult device_enter(const char *function, CUdevice device);
