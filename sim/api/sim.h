/* sim.h: what every part of the simulated driver needs: the entry points with the prototypes of
 * cuda_api.def, the way into a call, the process's state. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "sim/session/session.h"

#define EXPORT __attribute__((visibility("default")))

#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        EXPORT CUresult symbol params;
#include "cuda/cuda_api.def"
#undef CU

/* One a process, from cuInit on. */
struct sim {
        struct session *session;
        unsigned devices;
        /* Streams, events, captures, graphs, contexts: everything but memory (space.h) is under it.
         * Taken before any other lock; never held while work runs or user code is called. */
        pthread_mutex_t lock;
        _Atomic bool
                exiting; /* the process is on its way out: running kernels end, nothing waits */
};

extern struct sim sim;

enum api_flags {
        API_ANY = 0,          /* needs cuInit, no more */
        API_CONTEXT = 1 << 0, /* needs a current context that has not failed */
        API_UNSAFE = 1 << 1,  /* forbidden while a capture that forbids it goes on */
        API_BEFORE_INIT = 1 << 2,
};

/* The start of every entry point; function is __func__. What it returns other than success is the
 * call's result: not initialised, a child after fork, leaving, called from a host function, no
 * context, a context that has failed, a capture that forbids the call, an injected fault
 * (SIMCUDA_FAIL). */
CUresult api_enter(const char *function, unsigned flags, CUcontext *ret_context);

/* After cuInit, not in a child after fork, not at exit. */
bool api_usable(void);

/* A line on stderr: "simcuda: ...". For what a CUresult cannot say. */
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* True in a thread that runs a host function or a stream callback: it may not call the driver. */
extern __thread bool api_in_callback;
/* >0: a NULL stream means the thread's own (the _ptsz and _ptds entry points). */
extern __thread unsigned api_per_thread;
