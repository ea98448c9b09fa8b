/* contexts_bench.h: a driver with a primary context, green contexts and streams, for tests of what
 * ends with them and which modules are informed. Each test begins with the primary context retained
 * once. */
#pragma once

#include <pthread.h>

#include "fakes/neighbours.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/stream/quiesce.h"

#define PRIMARY  ((CUcontext)(uintptr_t)0x1000)
#define PART     ((CUcontext)(uintptr_t)0x2000) /* as a context */
#define GREEN    ((CUgreenCtx)(uintptr_t)0x3000)
#define OF_GL    ((CUcontext)(uintptr_t)0x5000)
#define OF_VDPAU ((CUcontext)(uintptr_t)0x6000)
#define STREAM   ((CUstream)(uintptr_t)0x4000)

static struct gpu *const gpu = &core.gpus[0];

/* What was done. */
extern unsigned kicks, discarded; /* the agent's, swap_discard() */
extern _Atomic unsigned updates;  /* peer_update() */
extern unsigned passed;           /* the gate */
extern unsigned exits;            /* core_expect_exit() */
extern struct gate_thread at_the_gate;
extern _Atomic unsigned asked; /* for room */
extern CUcontext bound_lost, pools_lost;
extern CUstream bound_stream_lost, pool_stream_lost;
extern CUstream queried, capture_asked; /* queried by a drain */

/* The driver. */
extern unsigned calls; /* calls that return driver_says */
extern CUresult driver_says;
extern unsigned parts,
        held; /* green contexts; and by the driver's count: retains of the primary context */
extern CUstreamCaptureStatus capture_status;
CUresult fake_begin_capture(CUstream stream, CUstreamCaptureMode mode);

/* What happens meanwhile. */
extern bool no_room, unshared;
extern uint64_t submissions;
extern uint64_t arrays;    /* bytes that end with a context */
extern CUcontext other;    /* ends while another one does */
extern bool in_line;       /* a thread may wait for another one, */
extern _Atomic bool waits; /* it does, */
extern pthread_t second;   /* which one */
extern void (*while_it_asks)(void), (*while_it_releases)(void);
void *retain(void *unused);

int one_context(void **state);
int no_context(void **state);

#define CONTEXT_TEST(name) cmocka_unit_test_setup_teardown(name, one_context, no_context)
