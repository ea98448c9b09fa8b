/* sublet.h: what a program may tell sublet about its buffers. Header only, C and C++.
 *
 * Nothing has to be linked: the functions look for the preloaded library when they are called, and
 * do nothing without it. They may be called at any time, from any thread, also before the program
 * uses CUDA. On systems whose C library lacks dlsym (glibc before 2.34), link with -ldl. */
#pragma once

#include <dlfcn.h>
#include <stdint.h>

#ifndef RTLD_DEFAULT /* without _GNU_SOURCE */
#define RTLD_DEFAULT ((void *)0)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the priority of the buffer that contains this address: of the whole allocation of cuMemAlloc
 * or cudaMalloc. With `sublet run --memory overflow` a program may use more than the card, and
 * buffers of the lowest priority leave the card first. A new buffer has priority 0. Of buffers with
 * equal priority those leave first that a profile (`sublet run --profile-file`) found least useful;
 * of those that no profile knows, the largest leave first. In other modes it has no effect.
 *
 * Returns 0 (also without sublet), or -1: no buffer of more than 1 MiB contains the address.
 * Smaller buffers share memory and stay on the card. */
static inline int sublet_set_priority(const void *buffer, int priority)
{
        typedef int (*sublet_priority_fn)(uint64_t address, int priority);
        union { /* ISO C++ has no cast from an object pointer to a function pointer */
                void *found;
                sublet_priority_fn call;
        } entry;

        entry.found = dlsym(RTLD_DEFAULT, "sublet_buffer_priority");
        return entry.found ? entry.call((uint64_t)(uintptr_t)buffer, priority) : 0;
}

/* Returns 1 if the program runs under sublet, else 0. */
static inline int sublet_is_here(void)
{
        return dlsym(RTLD_DEFAULT, "sublet_buffer_priority") ? 1 : 0;
}

#ifdef __cplusplus
}
#endif
