/* channels_bench.h: a simulated driver whose requests to the resource manager (RM) pass libsublet's
 * door of ioctl() and its ledger (src/preload/rm/rm.h). A second ledger here serves requests that
 * the tests make themselves. */
#pragma once

#include "preload/rm/channels.h"
#include "preload/rm/rm.h"
#include "sim_unit.h"

/* Puts the door in front of the simulator. Each process calls this before cuInit. */
void bench_open(void);
/* Calls bench_open() and unit_begin(). */
CUcontext bench_begin(void);
/* Sets the version that the library would read from /proc, for drivers that do not report it. */
void bench_say_driver(const char *version);

/* ---- requests that passed ---- */

/* Returns the channels of an owner, of at most four contexts, as parameters of one control call. */
struct channels_call bench_channels(enum channels_owner owner);
/* Returns the handle of the nth object of this class, counted from 0. */
uint32_t bench_object(uint32_t class, unsigned nth);
unsigned bench_requests(unsigned escape); /* includes wrapped requests */

/* ---- requests of the test; they return the status, or BENCH_FAILED and set errno ---- */

#define BENCH_FAILED 0xe0000000u

uint32_t bench_control(uint32_t client, uint32_t object, uint32_t command, void *params,
                       uint32_t size);
uint32_t bench_switch(const struct channels_call *c, bool disable);
/* Allocates an object. If *object is 0, RM chooses the handle. */
uint32_t bench_alloc(uint32_t client, uint32_t parent, uint32_t *object, uint32_t class,
                     void *params);
uint32_t bench_free(uint32_t client, uint32_t object);
/* Sends any request to the control descriptor. */
int bench_ioctl(unsigned escape, void *argument, size_t bytes);
int bench_descriptor(void);

/* ---- a kernel that counts ---- */

struct counter {
        volatile uint64_t count, stop, sum;
};

/* Starts the kernel, with its counter in pinned memory, and waits until it counts. */
struct counter *bench_count(CUstream s);
void bench_await_progress(const struct counter *k);
bool bench_stands(const struct counter *k);
/* Ends the kernel and checks its sum. */
void bench_end_count(struct counter *k, CUstream s);
