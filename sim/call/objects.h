/* objects.h: contexts, streams and events as the simulator keeps them.
 *
 * All of them need sim.lock unless said otherwise. Destroyed streams and events go to a free list,
 * never to the allocator, and the numbers of a stream's operations only grow. So a point of a
 * stream destroyed long ago still compares correctly. */
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
        struct CUctx_st *green_of;   /* green context: the primary one, which owns its memory */
        struct CUctx_st *greens;     /* primary context: the first of its green contexts */
        struct CUctx_st *next_green; /* green context: the next one of the same primary context */
        unsigned processors;         /* green context: its number of processors */
        _Atomic bool alive;
        unsigned retained; /* primary context: number of retains */
        unsigned attached; /* number of users besides the thread that made the context */
        unsigned flags, api_version;
        uint64_t id;
        uint64_t charged;
        _Atomic int *error; /* sticky CUresult of the device in this process; read without lock */
        struct CUstream_st *legacy;
        struct CUstream_st *streams; /* all streams, legacy and per-thread streams included */
        struct CUstream_st *gather;  /* a stream that waits for all others; NULL: none yet */
        struct CUstream_st *hold;    /* a stream that all others wait for; NULL: none */
        struct CUmod_st *modules;
        struct queues queues;
        CUcontext next_gone, next_of_all;
        size_t limit[16];
};

/* The end of one operation of a stream. A point with stream NULL is always reached. */
struct point {
        struct CUstream_st *stream;
        uint64_t number;
};

struct CUstream_st {
        _Atomic uint32_t magic; /* this and `destroyed` are also read without the lock */
        CUcontext context;
        unsigned flags; /* CU_STREAM_NON_BLOCKING or 0 */
        int priority;
        uint64_t id;
        bool legacy;
        _Atomic bool destroyed; /* the stream goes to the free list when its work is done */
        struct op *first, **last;
        uint64_t submitted, done;
        bool worker;  /* the stream has a thread */
        bool waiting; /* the thread waits for work or for another stream */
        pthread_cond_t wake;
        struct capture *capture;
        struct CUgraphNode_st **tail; /* predecessors of the next captured node */
        size_t tails;
        struct point *heard; /* the last point of each other stream that this one waited for */
        size_t heards;
        struct CUstream_st *next_of_context, *next_free, *next_all;
};

struct CUevent_st {
        uint32_t magic;
        CUcontext context;
        unsigned flags;
        struct point point; /* the point of the last record */
        uint64_t records; /* number of records, which tells old time stamps from the current one */
        bool recorded;
        uint64_t stamp_ns;
        struct shared_event *shared; /* state in shared memory; NULL: not an interprocess event */
        int shared_fd;               /* its file, if this process made the event; otherwise -1 */
        /* For an event that was recorded in a capture: `tail` has the predecessors of the next node
         * of a stream that waits for the event. */
        uint64_t capture_id;
        struct capture *capture;
        struct CUgraphNode_st **tail;
        size_t tails;
        struct CUevent_st *next_free, *next_all;
};

/* ---- current.c ---- */
CUcontext context_current(void);
/* Checks a handle. NULL means the current context. */
CUresult context_check(CUcontext handle, CUcontext *ret_context);
/* Returns the context that owns memory, modules and events: for a green context the primary one. */
CUcontext context_owner(CUcontext c);
/* Returns the program's handle of a green context; NULL: c is not green. */
static inline CUgreenCtx context_as_green(CUcontext c)
{
        return c->green_of ? (CUgreenCtx)(void *)c : NULL;
}
/* Pushes c on the calling thread's stack of contexts. Returns false if the stack is full. */
bool context_push(CUcontext c);
/* Pops the calling thread's current context. */
void context_pop(void);
/* Makes c fail with an error, unless it has failed before. */
void context_fail(CUcontext c, CUresult error);
/* True when running work should stop: the process is exiting or the context has failed. */
static inline bool context_cancelled(CUcontext c)
{
        return sim_cancelled(c->error);
}
/* Like context_cancelled(), but first waits while the channel of the work is disabled. Call it
 * between two steps of work, when the work uses no memory. */
bool context_stopped(CUcontext c);

/* ---- device.c ---- */
#define DEVICE_PROCESSORS 132 /* multiprocessors of an H200 */
CUresult device_check(CUdevice device);
/* Returns the CUDA version of this driver. It answers no call for a later one. */
int device_driver_version(void);

/* Begins entry points that take a device: calls api_enter(), and checks the device. */
CUresult device_enter(const char *function, CUdevice device);
