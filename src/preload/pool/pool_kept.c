/* pool_kept.c: owns the memory that is freed in stream order while frozen work may still use it.
 * Must never drop its contents while that work is frozen. */
#include <stdlib.h>

#include "preload/state/core.h"
#include "preload/heap/heap.h"
#include "preload/pool/pool_state.h"

struct kept {
        struct pool *pool;
        struct block *block; /* NULL: the block has been discarded */
        CUdeviceptr at;
        uint64_t bytes;
};

static bool holding;
static struct kept *list;
static size_t count, room;

bool pool_keep(struct pool *p, struct block *b, CUdeviceptr at, uint64_t bytes)
{
        if (!holding)
                return false;
        if (count == room) {
                size_t more = room ? 2 * room : 256;
                struct kept *bigger = realloc(list, more * sizeof(*list));

                if (!bigger)
                        return true; /* not listed, so never given back; but no contents are lost */
                list = bigger;
                room = more;
        }
        list[count++] = (struct kept){p, b, at, bytes};
        return true;
}

void pool_forget_kept(const struct block *b)
{
        for (size_t i = 0; i < count; i++)
                if (list[i].block == b)
                        list[i].block = NULL;
}

void pool_hold(void)
{
        if (holding)
                return;
        holding = true;
        for (struct pool *p = pools; p; p = p->next) {
                (void)pool_look(p, false);
                for (struct pool_free_list *l = p->free_lists; l; l = l->next)
                        for (struct suballocation *n = l->free.oldest; n; n = n->newer) {
                                heap_use(&p->gpu->heap, n->chunk->block, n->address, n->bytes);
                                (void)pool_keep(p, n->chunk->block, n->address, n->bytes);
                        }
        }
}

void pool_let(void)
{
        holding = false;
        for (size_t i = 0; i < count; i++) {
                const struct kept *k = &list[i];

                if (!k->block)
                        continue;
                heap_unuse(k->block, k->at, k->bytes);
                pool_drop_idle(k->pool, k->block, k->at, k->bytes);
        }
        count = 0;
}
