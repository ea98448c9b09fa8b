/* driver.h: a driver with memory for unit tests: handles, mappings, streams, events, contexts.
 *
 * Each page of HEAP_GRANULARITY holds one word. Work in a stream runs at driver_run() or a
 * synchronize, with the mappings of that moment: a copy from or to memory that was unmapped too
 * early fails the test. A test can fail any call that may fail. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/driver/real.h"

struct driver {
        uint64_t card;   /* bytes of memory on the card */
        uint64_t used;   /* bytes created on the card and not released */
        uint64_t host;   /* the same of host memory, which is unlimited */
        unsigned device; /* device that performs the copies */
        bool unlocked;   /* fails the test if a call comes with core_lock held */
        bool no_numa;    /* host memory cannot be created on a chosen node */

        unsigned calls;   /* calls so far that could have failed */
        unsigned fail_at; /* number of the call to fail; 0: none */
        CUresult error;   /* result of that call */
        const char *failed;
        bool dead; /* a context has failed; every call for it fails */

        unsigned reservations, streams, events, registered; /* numbers that exist now */
        unsigned relaxed; /* cuThreadExchangeStreamCaptureMode() calls not undone */
        unsigned copied_out, copied_in, cleared; /* pages, in total */
        CUcontext current;
};

extern struct driver driver;

/* Makes a new driver, and fills `real`. */
void driver_reset(uint64_t card_bytes);
/* Makes the nth of the next calls fail; 1 is the very next. */
void driver_fail(unsigned nth, CUresult error);
/* Fails a context: work in streams never runs, and calls for it fail. */
void driver_die(CUresult error);
/* Runs the oldest n jobs of all streams. Returns the number that is left. */
unsigned driver_run(unsigned n);
/* The word of the page there, as GPU `device` sees it; NULL: no access. */
uint64_t *driver_word(CUdeviceptr at, unsigned device);
/* The handle mapped there; 0: none. */
CUmemGenericAllocationHandle driver_handle(CUdeviceptr at);
/* The properties it was created with; NULL: not a handle. */
const CUmemAllocationProp *driver_prop(CUmemGenericAllocationHandle handle);
/* The number of handles and of mappings that exist. */
unsigned driver_handles(void);
unsigned driver_mappings(void);
/* Managed memory of so many bytes, on the host; and where a page of it is now. */
CUdeviceptr driver_managed(uint64_t bytes);
CUdevice driver_where(CUdeviceptr at);
/* A descriptor of another process's memory with this word in each page. */
int driver_foreign(uint64_t bytes, uint64_t word);
/* The number of descriptors that this process has open. */
unsigned open_descriptors(void);
