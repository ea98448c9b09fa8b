/* driver.h: a driver for unit tests that has memory: handles, mappings, streams, events, contexts.
 *
 * Each page of HEAP_GRANULARITY holds one word, its first. What is put into a stream happens when
 * driver_run() or a synchronize says so, and meets the mappings of that moment: a copy from or to
 * memory that was unmapped too early fails the test. Any call that may fail can be made to. Not
 * thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/driver/real.h"

struct driver {
        uint64_t card;   /* bytes of memory that it has */
        uint64_t used;   /* of that, created and not given back */
        uint64_t host;   /* the same of host memory; it has as much as one wants */
        unsigned device; /* that copies */
        bool unlocked;   /* no call may come with core_lock held */
        bool no_numa;    /* host memory cannot be asked for by node */

        unsigned calls;   /* that could have failed */
        unsigned fail_at; /* the number of the one that does; 0: none */
        CUresult error;   /* ... with this */
        const char *failed;
        bool dead; /* a context has failed, and all that is asked of it */

        unsigned reservations, streams, events, registered; /* there are now */
        unsigned relaxed; /* cuThreadExchangeStreamCaptureMode() calls not undone */
        unsigned copied_out, copied_in, cleared; /* pages, in all */
        CUcontext current;
};

extern struct driver driver;

/* A new one, in `real`. */
void driver_reset(uint64_t card_bytes);
/* Make one of the next calls fail: 1 is the very next. */
void driver_fail(unsigned nth, CUresult error);
/* A context fails: what is in streams never happens, and what is asked of them fails. */
void driver_die(CUresult error);
/* Perform the oldest n of what is in streams. Returns how many are left. */
unsigned driver_run(unsigned n);
/* The word of the page there, as GPU `device` sees it. NULL: it sees nothing. */
uint64_t *driver_word(CUdeviceptr at, unsigned device);
/* The handle that is mapped there; 0: none. */
CUmemGenericAllocationHandle driver_handle(CUdeviceptr at);
/* What it was created with; NULL: it is no handle. */
const CUmemAllocationProp *driver_prop(CUmemGenericAllocationHandle handle);
/* Handles and mappings that are there. */
unsigned driver_handles(void);
unsigned driver_mappings(void);
/* Managed memory of so many bytes, on the host; and where a page of it is. */
CUdeviceptr driver_managed(uint64_t bytes);
CUdevice driver_where(CUdeviceptr at);
/* A descriptor of another process's memory, each page of which holds the word. */
int driver_foreign(uint64_t bytes, uint64_t word);
/* How many descriptors this process has open. */
unsigned open_descriptors(void);
