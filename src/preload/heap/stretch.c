/* stretch.c: owns the answer to how far one call may reach from an address. Must never count two
 * allocations as one stretch, even if they adjoin. */
#include "preload/heap/heap.h"

#include "base/macros.h"

bool heap_narrow(const struct heap *h, CUdeviceptr address, struct stretch *s)
{
        size_t at = heap_locate(h, address), above = at == h->count ? 0 : at + 1;
        struct heap_place p;

        if (heap_find(h, address, &p)) {
                *s = (struct stretch){p.start, p.start + p.bytes};
                return true;
        }
        if (heap_holds(h, address))
                return false;
        if (at < h->count) {
                const struct block *b = h->blocks[at];
                const bool inside = address - b->address < b->bytes; /* the driver's own memory */

                s->from = MAX(s->from, inside ? b->address : b->address + b->bytes);
                s->to = inside ? MIN(s->to, b->address + b->bytes) : s->to;
        }
        if (above < h->count)
                s->to = MIN(s->to, h->blocks[above]->address);
        return true;
}
