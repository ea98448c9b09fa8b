/* contexts_bench.h: a fake driver with a primary context, green contexts and streams. The tests
 * check which memory ends with a context, and which modules learn of its end. Each test begins with
 * the primary context retained once. */
#pragma once

#include <pthread.h>

#include "fakes/preload.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/stream/quiesce.h"

#define PRIMARY  ((CUcontext)(uintptr_t)0x1000)
#define PART     ((CUcontext)(uintptr_t)0x2000) /* the context of GREEN */
#define GREEN    ((CUgreenCtx)(uintptr_t)0x3000)
#define OF_GL    ((CUcontext)(uintptr_t)0x5000)
#define OF_VDPAU ((CUcontext)(uintptr_t)0x6000)
#define STREAM   ((CUstream)(uintptr_t)0x4000)

static struct gpu *const gpu = &core.gpus[0];

/* Calls that the fake modules received. */
extern _Atomic unsigned updates; /* calls of peer_update() */
extern unsigned passed;          /* threads that passed the gate */
extern unsigned exits;           /* calls of core_expect_exit() */
extern struct gate_thread at_the_gate;
extern CUcontext bound_lost, pools_lost;
extern CUstream bound_stream_lost, pool_stream_lost;
extern CUstream queried, capture_asked; /* queried: the stream that a drain queried */

/* The fake driver. */
extern unsigned calls; /* calls that return driver_says */
extern CUresult driver_says;
extern unsigned parts, held; /* green contexts; the driver's count of primary retains */
extern CUstreamCaptureStatus capture_status;
CUresult fake_begin_capture(CUstream stream, CUstreamCaptureMode mode);

/* Events that a test arranges. */
extern uint64_t arrays;    /* bytes of arrays that end with a context */
extern CUcontext other;    /* context that ends while another one ends */
extern bool in_line;       /* a thread may wait for another thread */
extern _Atomic bool waits; /* a thread waits for another thread */
extern pthread_t second;   /* the second thread */
extern void (*while_it_releases)(void);
void start_second(void);
void *retain(void *unused);

int one_context(void **state);
int no_context(void **state);

#define CONTEXT_TEST(name) cmocka_unit_test_setup_teardown(name, one_context, no_context)
