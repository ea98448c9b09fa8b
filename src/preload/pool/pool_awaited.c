/* pool_awaited.c: owns the record of which freed memory a call of the program has waited for, and
 * of which memory the program is told. Must never decide which stream may use memory: that depends
 * on whether a stream has reached a free (pool.c). */
#include "base/macros.h"
#include "preload/heap/heap.h"
#include "preload/pool/pool_state.h"

static bool all_awaited(const struct pool *p)
{
        for (const struct pool_free_list *l = p->free_lists; l; l = l->next)
                if (l->awaited < l->freed)
                        return false;
        return true;
}

uint64_t pool_told(const struct pool *p)
{
        uint64_t sum = 0;

        for (const struct chunk *c = p->suballocator.chunks; c; c = c->next)
                for (unsigned i = 0; i < c->block->extent_count; i++)
                        if (c->block->extents[i].told)
                                sum += c->block->extents[i].bytes;
        return sum;
}

void pool_note_used(struct block *b, CUdeviceptr at, uint64_t bytes)
{
        uint64_t i = (at - b->address) / b->extent_bytes,
                 last = (at + bytes - 1 - b->address) / b->extent_bytes;

        for (; i <= last; i++)
                b->extents[i].told = true;
}

void pool_note_unawaited(const struct pool_free_list *l, struct block *b, CUdeviceptr at,
                         uint64_t bytes)
{
        uint64_t i = (at - b->address) / b->extent_bytes,
                 last = (at + bytes - 1 - b->address) / b->extent_bytes;

        for (; i <= last; i++) {
                uint32_t *by = &b->extents[i].unawaited;

                *by = *by == 0 || *by == l->name ? l->name : UNAWAITED_MANY;
        }
}

void pool_settle_frees(struct pool *p, struct pool_free_list *l)
{
        bool all;

        if (l->awaited == l->freed)
                return;
        l->awaited = l->freed;
        all = all_awaited(p);
        for (const struct chunk *c = p->suballocator.chunks; c; c = c->next)
                for (unsigned i = 0; i < c->block->extent_count; i++) {
                        uint32_t *by = &c->block->extents[i].unawaited;

                        if (*by == l->name || (*by == UNAWAITED_MANY && all))
                                *by = 0;
                }
        if (p->threshold != UINT64_MAX)
                pool_tend_soon();
}

bool pool_awaited(const struct pool_stream *s, uint64_t frees)
{
        bool all = true;

        for (struct pool *p = pools; p; p = p->next) {
                if (!s)
                        (void)pool_look(p, false);
                for (struct pool_free_list *l = p->free_lists; l; l = l->next) {
                        if (s && (l->gone || !frees_covers(s, &l->stream)))
                                continue;
                        if (s)
                                l->done = MAX(l->done, MIN(l->freed, frees));
                        if ((s ? frees : l->done) >= l->freed)
                                pool_settle_frees(p, l);
                        suballocator_pass(&l->free, l->done, &p->suballocator.common, 0);
                }
                all = all && all_awaited(p);
        }
        return all;
}
