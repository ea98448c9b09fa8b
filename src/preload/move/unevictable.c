/* unevictable.c: owns the list of unevictable memory, by handle. Must never call the driver. */
#include "preload/move/unevictable.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/state/request.h"

#define BUCKETS 1024u /* a power of two: thousands of textures are looked up quickly */

/* How long the room for a call is kept. By then the daemon counts the bytes that were used: it
 * measures the card once a second, and uses the lowest of three figures. */
#define ROOM_KEPT_NS (6 * NSEC_PER_SEC)

/* The room for a call grows by the factor ROOM_GROWS from try to try. If the daemon refuses the
 * added bytes, fewer are requested, down to 1 / ROOM_LEAST of them: a nearly full card may still
 * have enough, but a few bytes more would not help. */
#define ROOM_GROWS 4
#define ROOM_LEAST 16

struct unevictable {
        struct unevictable *next;
        const void *handle;
        CUcontext owner;
        struct gpu *gpu;
        uint64_t bytes;
};

static struct unevictable *buckets[BUCKETS];

static struct unevictable **bucket_of(const void *handle)
{
        return &buckets[(((uintptr_t)handle >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40) % BUCKETS];
}

int unevictable_ask_room(struct gpu *g, uint64_t *room)
{
        uint64_t more = *room ? *room * (ROOM_GROWS - 1) : MAX(g->context_bytes / 2, 32 * MIB);
        uint64_t least = more / ROOM_LEAST;
        int r;

        do
                r = request_unevictable(g, more);
        while (r < 0 && (more /= 2) >= least);
        if (r < 0)
                return r;
        *room += more;
        g->unevictable_room += more;
        g->unevictable_room_ns = clock_now_ns();
        return 0;
}

void unevictable_return_room(struct gpu *g, uint64_t *room)
{
        uint64_t bytes =
                MIN(g->unevictable_room, *room); /* the agent may have returned the room already */

        *room = 0;
        g->unevictable_room -= bytes;
        request_return_unevictable(g, bytes);
}

uint64_t unevictable_tend(uint64_t now_ns)
{
        uint64_t next = UINT64_MAX;

        for (unsigned i = 0; i < core.gpu_count; i++) {
                struct gpu *g = &core.gpus[i];
                uint64_t until = g->unevictable_room_ns + ROOM_KEPT_NS;

                if (!g->unevictable_room)
                        continue;
                if (now_ns < until) {
                        next = MIN(next, until - now_ns);
                        continue;
                }
                request_return_unevictable(g, g->unevictable_room);
                g->unevictable_room = 0;
        }
        return next;
}

struct unevictable *unevictable_ask(struct gpu *g, CUcontext owner, uint64_t bytes)
{
        struct unevictable *f = malloc(sizeof(*f));

        if (!f)
                return NULL;
        *f = (struct unevictable){.owner = owner, .gpu = g, .bytes = bytes};
        if (request_unevictable(g, bytes) == 0)
                return f;
        free(f);
        return NULL;
}

void unevictable_list(struct unevictable *f, const void *handle)
{
        struct unevictable **bucket = bucket_of(handle);

        if (!f)
                return;
        f->handle = handle;
        f->next = *bucket;
        *bucket = f;
}

struct unevictable *unevictable_unlist(const void *handle)
{
        struct unevictable **link = bucket_of(handle), *f;

        while (*link && (*link)->handle != handle)
                link = &(*link)->next;
        f = *link;
        if (f)
                *link = f->next;
        return f;
}

void unevictable_return(struct unevictable *f)
{
        if (!f)
                return;
        request_return_unevictable(f->gpu, f->bytes);
        free(f);
}

uint64_t unevictable_forget_context(CUcontext owner)
{
        uint64_t bytes = 0;

        for (unsigned i = 0; i < BUCKETS; i++)
                for (struct unevictable **link = &buckets[i], *f; (f = *link);) {
                        if (f->owner != owner) {
                                link = &f->next;
                                continue;
                        }
                        *link = f->next;
                        bytes += f->bytes;
                        free(f);
                }
        return bytes;
}
