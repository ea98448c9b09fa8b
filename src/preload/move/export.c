/* export.c: owns the list of extents that must stay on the card, and the daemon's answers about
 * them. Must never report an extent as exported before the daemon has counted it as unevictable. */
#include "preload/move/export.h"

#include <stdlib.h>

#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/state/request.h"

/* An extent that must stay on the card; one record for all its exports. */
struct stay {
        struct extent *extent; /* NULL: freed, or refused */
        uint64_t bytes;
        unsigned exports;
        bool given;    /* another process or a device has the memory */
        bool ghost;    /* freed by the program, but still open elsewhere: the heap counts it */
        bool for_good; /* one of `exports` ends only when the program frees the extent */
};

struct export
{
        struct gpu *gpu;
        uint64_t bytes;
        unsigned count;
        struct stay *stays[];
};

/* True if there is no daemon to ask. Then memory never moves, as without sublet. */
static bool alone(const struct gpu *g) REQUIRES(core_lock)
{
        return g->limit == UINT64_MAX;
}

static void grant(struct gpu *g, struct extent *e) REQUIRES(core_lock)
{
        e->exported = true;
        g->export_granted += e->bytes;
}

/* Subtract the bytes from the requested ones, and from the granted ones if they were granted. */
static void withdraw(struct gpu *g, uint64_t bytes, bool granted) REQUIRES(core_lock)
{
        g->export_requested -= bytes;
        if (granted)
                g->export_granted -= bytes;
        request_kick();
        bell_ring(&core.changed);
}

static void detach(struct gpu *g, struct stay *s) REQUIRES(core_lock)
{
        if (!s->extent)
                return;
        withdraw(g, s->bytes, s->extent->exported);
        s->extent->exported = false;
        s->extent->stay = NULL;
        s->extent = NULL;
}

static void stay_release(struct gpu *g, struct stay *s) REQUIRES(core_lock)
{
        struct heap *h = &g->heap;

        if (--s->exports > 0)
                return;
        if (s->ghost) {
                h->allocated -= s->bytes;
                h->backed -= s->bytes;
                h->resident -= s->bytes;
                g->export_ghosts -= s->bytes;
                request_report(g);
                withdraw(g, s->bytes, true);
        }
        detach(g, s);
        free(s);
}

static struct stay *stay_take(struct gpu *g, struct extent *e) REQUIRES(core_lock)
{
        struct stay *s = e->stay;

        if (s) {
                s->exports++;
                return s;
        }
        s = calloc(1, sizeof(*s));
        if (!s)
                return NULL;
        *s = (struct stay){.extent = e, .bytes = e->bytes, .exports = 1};
        e->stay = s;
        g->export_requested += e->bytes;
        if (alone(g) || g->export_requested <= g->export_allowed)
                grant(g, e);
        return s;
}

void export_back(struct gpu *g)
{
        struct heap_cursor c = {0};
        struct extent *e;

        while (g->export_granted && (e = heap_walk(&g->heap, &c))) {
                if (!e->exported || e->busy || e->state == EXTENT_RESIDENT)
                        continue;
                e->exported = false;
                g->export_granted -= e->bytes;
        }
}

struct export *export_take(struct gpu *g, struct block *b, CUdeviceptr start, uint64_t bytes)
{
        unsigned first = (unsigned)((start - b->address) / b->extent_bytes);
        unsigned end = (unsigned)((start - b->address + bytes - 1) / b->extent_bytes) + 1;
        struct export *p = calloc(1, sizeof(*p) + (end - first) * sizeof(struct stay *));

        if (!p)
                return NULL;
        p->gpu = g;
        for (unsigned i = first; i < end; i++) {
                struct stay *s = stay_take(g, &b->extents[i]);

                if (!s) {
                        export_release(p);
                        return NULL;
                }
                p->bytes += s->bytes;
                p->stays[p->count++] = s;
        }
        request_kick();
        return p;
}

void export_release(struct export *p)
{
        for (unsigned i = 0; i < p->count; i++)
                stay_release(p->gpu, p->stays[i]);
        free(p);
}

enum export_state export_state(const struct export *p)
{
        enum export_state state = EXPORT_READY;

        for (unsigned i = 0; i < p->count; i++) {
                const struct stay *s = p->stays[i];

                if (s->ghost)
                        return EXPORT_GHOST;
                if (!s->extent || s->extent->state == EXTENT_MAPPED)
                        return EXPORT_REFUSED; /* memory on the host cannot be exported */
                if (!s->extent->exported || s->extent->state != EXTENT_RESIDENT || s->extent->busy)
                        state = EXPORT_WAITING;
        }
        return state;
}

unsigned export_extents(const struct export *p)
{
        return p->count;
}

struct extent *export_extent(const struct export *p, unsigned i)
{
        return p->stays[i]->extent;
}

uint64_t export_bytes(const struct export *p)
{
        return p->bytes;
}

struct gpu *export_gpu(const struct export *p)
{
        return p->gpu;
}

bool export_shares(const struct export *a, const struct export *b)
{
        for (unsigned i = 0; i < a->count; i++)
                for (unsigned k = 0; k < b->count; k++)
                        if (a->stays[i] == b->stays[k])
                                return true;
        return false;
}

void export_given(struct export *p)
{
        for (unsigned i = 0; i < p->count; i++)
                p->stays[i]->given = true;
}

void export_for_good(struct export *p)
{
        for (unsigned i = 0; i < p->count; i++) {
                struct stay *s = p->stays[i];

                if (s->for_good || !s->extent)
                        continue;
                s->for_good = true;
                s->exports++;
        }
        export_release(p);
}

void export_extent_dies(struct gpu *g, struct extent *e)
{
        struct stay *s = e->stay;

        if (!s)
                return;
        if (s->given && e->exported) {
                /* Add the ghost's bytes before the extent's own bytes are subtracted, so that the
                 * figures never lack them. */
                s->ghost = true;
                g->heap.allocated += s->bytes;
                g->heap.backed += s->bytes;
                g->heap.resident += s->bytes;
                g->export_ghosts += s->bytes;
                s->extent = NULL;
                e->exported = false;
                e->stay = NULL;
                bell_ring(&core.changed);
                request_kick();
        } else {
                detach(g, s);
        }
        if (s->for_good) {
                s->for_good = false;
                stay_release(g, s);
        }
}

/* Grant or give up each extent that was requested and not granted yet. */
static void settle(struct gpu *g, bool granted) REQUIRES(core_lock)
{
        for (size_t i = 0; i < g->heap.count; i++) {
                struct block *b = g->heap.blocks[i];

                for (unsigned k = 0; b->kind != BLOCK_FREE && k < b->extent_count; k++) {
                        struct extent *e = &b->extents[k];

                        if (!e->stay || e->exported)
                                continue;
                        if (granted)
                                grant(g, e);
                        else
                                detach(g, e->stay);
                }
        }
        bell_ring(&core.changed);
}

void export_allowed(struct gpu *g, uint64_t bytes)
{
        /* An answer for fewer bytes belongs to an earlier request; another answer follows. */
        g->export_allowed = bytes;
        if (bytes >= g->export_requested && g->export_granted < g->export_requested)
                settle(g, true);
}

void export_refused(struct gpu *g)
{
        settle(g, false);
}
