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
        uint64_t host;   /* bytes created in host memory and not released; unlimited */
        unsigned device; /* device that performs the copies */
        bool unlocked;   /* fails the test if a call comes with core_lock held */
        bool no_numa;    /* host memory cannot be created on a chosen node */
        bool ends_fail;  /* cuMemUnmap and cuMemRelease may fail, too, and what failed is in the way
                          */

        unsigned calls;   /* number of calls so far that a test could fail */
        unsigned fail_at; /* number of the call to fail; 0: none */
        unsigned more;    /* calls after it that fail, too */
        CUresult error;   /* result of that call */
        const char *failed;
        bool dead; /* a context has failed; every call for it fails */

        unsigned reservations, streams, events, registered; /* how many of each exist */
        unsigned relaxed; /* cuThreadExchangeStreamCaptureMode() calls not undone */
        unsigned copied_out, copied_in, cleared; /* pages, since driver_reset() */
        CUcontext current;
};

extern struct driver driver;

/* Starts again with an empty driver, and points the table `real` to it. */
void driver_reset(uint64_t card_bytes);
/* Makes the nth call from now fail; 1 is the next call. */
void driver_fail(unsigned nth, CUresult error);
/* Fails a context: work in streams never runs, and calls for it fail. */
void driver_die(CUresult error);
/* Runs the oldest n jobs of all streams. Returns the number of jobs left. */
unsigned driver_run(unsigned n);
/* Returns the word of the page at this address as GPU `device` sees it; NULL: no access. */
uint64_t *driver_word(CUdeviceptr at, unsigned device);
/* Returns the handle that is mapped at this address; 0: none. */
CUmemGenericAllocationHandle driver_handle(CUdeviceptr at);
/* Returns the properties that a handle was created with; NULL: not a handle. */
const CUmemAllocationProp *driver_prop(CUmemGenericAllocationHandle handle);
/* Both return how many exist. */
unsigned driver_handles(void);
unsigned driver_mappings(void);
/* Allocates managed memory, with all pages on the host. */
CUdeviceptr driver_managed(uint64_t bytes);
/* Returns the device that holds this page of managed memory. */
CUdevice driver_where(CUdeviceptr at);
/* Returns a descriptor of another process's memory with this word in each page. */
int driver_foreign(uint64_t bytes, uint64_t word);
/* Returns the number of descriptors that this process has open. */
unsigned open_descriptors(void);
