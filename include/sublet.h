/* sublet.h: what a program may tell sublet about its buffers. Header only, C and C++.
 *
 * Nothing has to be linked, and nothing happens where sublet is not: the functions look for the
 * preloaded library when they are called, and do nothing without it. They may be called at
 * any time, from any thread, also before the program uses CUDA. On systems whose C library has no
 * dlsym of its own (glibc before 2.34), link with -ldl. */
#pragma once

#include <dlfcn.h>
#include <stdint.h>

#ifndef RTLD_DEFAULT /* without _GNU_SOURCE */
#define RTLD_DEFAULT ((void *)0)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Set the priority of the buffer that an address lies in: of the whole allocation, as cuMemAlloc or
 * cudaMalloc made it. With `sublet run --memory overflow`, where a program may use more than the
 * card, buffers of a lower priority leave the card first; 0 is what a buffer has at first.
 * Among equals those leave first that a profile (`sublet run --profile-file`) found of least use,
 * and of what is not known the largest. In other modes it changes nothing.
 *
 * Returns 0 (also without sublet), or -1: no buffer of more than 1 MiB lies there. Smaller ones
 * share memory and stay on the card. */
static inline int sublet_set_priority(const void *buffer, int priority)
{
        typedef int (*sublet_priority_fn)(uint64_t address, int priority);
        union { /* ISO C++ has no cast from an object's address to a function's */
                void *found;
                sublet_priority_fn call;
        } entry;

        entry.found = dlsym(RTLD_DEFAULT, "sublet_buffer_priority");
        return entry.found ? entry.call((uint64_t)(uintptr_t)buffer, priority) : 0;
}

/* Whether sublet is there: 1 or 0. */
static inline int sublet_is_here(void)
{
        return dlsym(RTLD_DEFAULT, "sublet_buffer_priority") ? 1 : 0;
}

#ifdef __cplusplus
}
#endif
