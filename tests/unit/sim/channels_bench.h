/* channels_bench.h: a simulated driver whose requests to the resource manager (RM) are seen: by
 * libsublet's own door of ioctl() and its ledger (src/preload/rm/rm.h), and by a ledger here,
 * for requests of the tests' own. */
#pragma once

#include "preload/rm/channels.h"
#include "preload/rm/rm.h"
#include "sim_unit.h"

/* The door leads to the simulator. Before cuInit, in each process. */
void bench_open(void);
/* That, and unit_begin(). */
CUcontext bench_begin(void);
/* The version that a driver has which does not tell, as /proc would say. */
void bench_say_driver(const char *version);

/* ---- what was seen ---- */

/* The channels of an owner; it is one call for up to four contexts. */
struct channels_call bench_channels(enum channels_owner owner);
/* The first object of this class that came behind so many others. */
uint32_t bench_object(uint32_t class, unsigned nth);
unsigned bench_requests(unsigned escape); /* wrapped ones too */

/* ---- requests; the status, or BENCH_FAILED and errno ---- */

#define BENCH_FAILED 0xe0000000u

uint32_t bench_control(uint32_t client, uint32_t object, uint32_t command, void *params,
                       uint32_t size);
uint32_t bench_switch(const struct channels_call *c, bool disable);
/* *object 0: RM chooses it. */
uint32_t bench_alloc(uint32_t client, uint32_t parent, uint32_t *object, uint32_t class,
                     void *params);
uint32_t bench_free(uint32_t client, uint32_t object);
/* Anything, to the control descriptor. */
int bench_ioctl(unsigned escape, void *argument, size_t bytes);
int bench_descriptor(void);

/* ---- a kernel that counts ---- */

struct counter {
        volatile uint64_t count, stop, sum;
};

/* In pinned memory, and it has begun. */
struct counter *bench_count(CUstream s);
void bench_await_progress(const struct counter *k);
bool bench_stands(const struct counter *k);
/* It ends, with the right sum. */
void bench_end_count(struct counter *k, CUstream s);
