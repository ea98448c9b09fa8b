/* sim.h: the state of the simulated driver in one process. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "sim/session/session.h"

#define EXPORT __attribute__((visibility("default")))

/* The state of the driver. After fork() the child cannot use it. */
enum sim_state { SIM_NEW, SIM_READY, SIM_FORKED, SIM_LEFT };

/* The driver's state, one for each process, from cuInit on. */
struct sim {
        _Atomic int state;
        struct session *session;
        unsigned devices;
        /* Protects streams, events, captures, graphs and contexts; the space lock (space.h)
         * protects memory. Taken before any other lock; never held while work or user code runs. */
        pthread_mutex_t lock;
        _Atomic bool locked;  /* for a checkpoint (locked.h) */
        _Atomic bool exiting; /* the process is exiting: running kernels end, and no call waits */
};

extern struct sim sim;

/* True when running work should stop: the process is exiting, or its context has failed (*error is
 * a CUresult). */
static inline bool sim_cancelled(const _Atomic int *error)
{
        return atomic_load_explicit(&sim.exiting, memory_order_relaxed) ||
               atomic_load_explicit(error, memory_order_relaxed) != CUDA_SUCCESS;
}

/* Prints a line "simcuda: ..." on stderr, for errors that a CUresult cannot express. */
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* True in a thread that runs a host function or stream callback, which may not call the driver. */
extern __thread bool sim_in_callback;
/* Greater than 0 in _ptsz and _ptds entry points: a NULL stream means the thread's own stream. */
extern __thread unsigned sim_per_thread;
