/* test_audit.c: the accounts of the card are traced while no memory comes or goes. They contain all
 * memory except managed memory. */
#include "unit.h"

#include <string.h>

#include "preload/state/core.h"
#include "preload/freeze/mover.h"
#include "preload/heap/slab.h"
#include "preload/agent/audit.h"
#include "preload/process/trace.h"

#define MIB (UINT64_C(1) << 20)

struct real_driver real;
struct core core;
struct lock core_lock;

static struct {
        unsigned lines;
        uint64_t created, on_card;
} told;

bool trace_is_on(void)
{
        return true;
}

void trace_event(const char *event, unsigned gpu, uint64_t bytes)
{
        told.lines++;
        *(strcmp(event, "created") == 0 ? &told.created : &told.on_card) = bytes;
}

uint64_t mover_bytes(const struct mover *m)
{
        return 2 * MIB;
}

static CUresult fake_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr request,
                             unsigned long long flags)
{
        *ret = 0x700000000000;
        return CUDA_SUCCESS;
}

/* Makes a block resident, as the swap engine does. */
static void arrive(struct gpu *g, struct block *b)
{
        for (unsigned i = 0; i < b->extent_count; i++) {
                b->extents[i].state = EXTENT_RESIDENT;
                g->heap.backed += b->extents[i].bytes;
                g->heap.resident += b->extents[i].bytes;
        }
}

static struct block *block_at(struct gpu *g, CUdeviceptr at)
{
        struct heap_place place;

        assert_true(heap_find(&g->heap, at, &place));
        return place.block;
}

static struct gpu *begin(struct block **ret_ours, struct block **ret_managed)
{
        struct gpu *g = &core.gpus[0];
        CUdeviceptr p;
        uint64_t cost;

        core_lock = (struct lock){0};

        core = (struct core){.gpu_count = 1};
        told.lines = 0;
        real.cuMemAddressReserve = fake_reserve;
        g->managed = true;
        heap_init(&g->heap, 64 * MIB);
        assert_int_equal(heap_allocate(&g->heap, 4 * MIB, NULL, UINT64_MAX, &p, &cost), 0);
        *ret_ours = block_at(g, p);
        assert_int_equal(heap_adopt(&g->heap, 0x5000000, 6 * MIB, NULL, UINT64_MAX, &cost), 0);
        *ret_managed = block_at(g, 0x5000000);
        arrive(g, *ret_ours);
        arrive(g, *ret_managed);
        return g;
}

static void no_figure_is_traced_while_memory_moves(void **state)
{
        struct block *ours, *managed;
        struct gpu *g = begin(&ours, &managed);

        ours->extents[0].busy = true;
        audit_tell(true);
        ours->extents[0].busy = false;
        g->heap.resident -= MIB; /* bytes of a block that the program has freed */
        audit_tell(true);
        g->heap.resident += MIB;
        core.unbooked = 1;
        audit_tell(true);
        assert_int_equal(told.lines, 0);
        core.unbooked = 0;
        g->unevictable = g->unevictable_room = 3 * MIB;
        g->unevictable_handles = 2 * MIB;
        audit_tell(false);
        assert_int_equal(told.lines, 2);
        assert_int_equal(told.created, 6 * MIB);
        assert_int_equal(told.on_card, 4 * MIB);
        audit_tell(false); /* no account has changed since the last trace */
        assert_int_equal(told.lines, 2);
        audit_tell(true);
        assert_int_equal(told.lines, 4);
}

/* A block freed while it is moved, or during a capture, stays in the accounts for a while. */
static void freed_managed_memory_is_not_counted_as_ours(void **state)
{
        struct block *ours, *managed, *dead;
        struct gpu *g = begin(&ours, &managed);

        assert_int_equal(heap_free(&g->heap, managed->address, &dead), 0);
        assert_ptr_equal(dead, managed);
        audit_tell(false);
        assert_int_equal(told.lines, 2);
        assert_int_equal(told.created, 4 * MIB);
        assert_int_equal(told.on_card, 4 * MIB);
}

static void no_figure_is_traced_while_a_freed_block_moves(void **state)
{
        struct block *ours, *managed, *dead;
        struct gpu *g = begin(&ours, &managed);

        ours->extents[0].busy = true;
        assert_int_equal(heap_free(&g->heap, ours->address, &dead), 0);
        assert_true(dead->dying);
        audit_tell(true);
        assert_int_equal(told.lines, 0);
}

static int end(void **state)
{
        struct heap *h = &core.gpus[0].heap;

        for (size_t i = 0; i < h->count; i++) {
                slab_delete(h->blocks[i]->slab);
                free(h->blocks[i]->users);
                free(h->blocks[i]->extents);
                free(h->blocks[i]);
        }
        free(h->holes);
        free(h->blocks);
        free(h->handles);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(no_figure_is_traced_while_memory_moves, end),
                cmocka_unit_test_teardown(no_figure_is_traced_while_a_freed_block_moves, end),
                cmocka_unit_test_teardown(freed_managed_memory_is_not_counted_as_ours, end),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
