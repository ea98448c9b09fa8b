/* fixed.c: owns the list of what is fixed, by handle. Must never call the driver. */
#include "preload/fixed.h"

#include <stdlib.h>

#include "base/macros.h"
#include "preload/agent.h"
#include "preload/core.h"

#define BUCKETS                                                                          \
        1024u /* a power of two: programs with thousands of textures look one up quickly \
               */

struct fixed {
        struct fixed *next;
        const void *handle;
        CUcontext owner;
        struct gpu *gpu;
        uint64_t bytes;
};

static struct fixed *buckets[BUCKETS];

static struct fixed **bucket_of(const void *handle)
{
        return &buckets[(((uintptr_t)handle >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40) % BUCKETS];
}

struct fixed *fixed_ask(struct gpu *g, CUcontext owner, uint64_t bytes)
{
        struct fixed *f = malloc(sizeof(*f));

        if (!f)
                return NULL;
        *f = (struct fixed){.owner = owner, .gpu = g, .bytes = bytes};
        if (agent_take_fixed(g, bytes) == 0)
                return f;
        free(f);
        return NULL;
}

void fixed_list(struct fixed *f, const void *handle)
{
        struct fixed **bucket = bucket_of(handle);

        if (!f)
                return;
        f->handle = handle;
        f->next = *bucket;
        *bucket = f;
}

struct fixed *fixed_unlist(const void *handle)
{
        struct fixed **link = bucket_of(handle), *f;

        while (*link && (*link)->handle != handle)
                link = &(*link)->next;
        f = *link;
        if (f)
                *link = f->next;
        return f;
}

void fixed_return(struct fixed *f)
{
        if (!f)
                return;
        agent_return_fixed(f->gpu, f->bytes);
        free(f);
}

void fixed_return_context(CUcontext owner)
{
        for (unsigned i = 0; i < BUCKETS; i++)
                for (struct fixed **link = &buckets[i], *f; (f = *link);) {
                        if (f->owner != owner) {
                                link = &f->next;
                                continue;
                        }
                        *link = f->next;
                        fixed_return(f);
                }
}
