/* test_heap_scarce.c: whenever there is no memory for the heap's accounts, the call fails and the
 * accounts are as before; with memory it goes on. */
#include "unit.h"

#include <errno.h>

#include "base/macros.h"
#include "preload/heap/heap.h"
#include "preload/heap/suballocator.h"
#include "preload/driver/real.h"
#include "preload/heap/slab.h"

struct real_driver real;

/* The linker's names for what the heap calls, and for the C library's functions. */
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);

static unsigned asked, fails_at; /* the number of the one that fails; 0: none */
static unsigned reservations;
static CUdeviceptr next_address;
static struct heap heap;
static struct suballocator suballocator;

void *__wrap_calloc(size_t n, size_t bytes)
{
        return ++asked == fails_at ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
        return ++asked == fails_at ? NULL : __real_realloc(p, bytes);
}

static CUresult fake_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr request,
                             unsigned long long flags)
{
        *ret = next_address;
        next_address += 2 * bytes;
        reservations++;
        return CUDA_SUCCESS;
}

static CUresult fake_unreserve(CUdeviceptr at, size_t bytes)
{
        reservations--;
        return CUDA_SUCCESS;
}

/* Blocks do not overlap, the counts add up, and everything reserved is there. */
static void check_accounts(void)
{
        struct heap_cursor c = {0};
        uint64_t allocated = 0, managed = 0, reserved = 0;
        struct extent *e;

        while ((e = heap_walk(&heap, &c))) {
                assert_ptr_equal(e->block->extents + e->offset / e->block->extent_bytes, e);
                allocated += e->counted ? e->bytes : 0;
                managed += e->counted && e->managed ? e->bytes : 0;
        }
        for (size_t i = 0; i < heap.count; i++) {
                const struct block *b = heap.blocks[i];

                reserved += b->managed ? 0 : b->bytes;
                if (i > 0)
                        assert_true(heap.blocks[i - 1]->address + heap.blocks[i - 1]->bytes <=
                                    b->address);
        }
        assert_int_equal(heap.allocated, allocated);
        assert_int_equal(heap.managed_bytes, managed);
        assert_int_equal(reserved, reservations * heap.reserve_bytes);
}

/* ---- what takes memory for the accounts; each can be undone ---- */

static CUdeviceptr at;
static struct block *block;

static int allocate(uint64_t bytes)
{
        uint64_t cost;

        return heap_allocate(&heap, bytes, NULL, UINT64_MAX, &at, &cost);
}

static int take_large(void)
{
        return allocate(300 * MIB);
}

static int take_small(void)
{
        return allocate(1000);
}

static void undo_allocation(void)
{
        struct block *dead = NULL;

        assert_int_equal(heap_free(&heap, at, &dead), 0);
        if (dead)
                heap_bury(&heap, dead);
}

static int take_aside(void)
{
        block = heap_allocate_aside(&heap, 300 * MIB, NULL, 0);
        return block ? 0 : -ENOMEM;
}

static int take_pool(void)
{
        block = heap_take_pool(&heap, 300 * MIB, 32 * MIB);
        return block ? 0 : -ENOMEM;
}

static int create(void)
{
        return heap_create(&heap, 300 * MIB, NULL, UINT64_MAX, &block);
}

static void undo_block(void)
{
        heap_bury(&heap, block);
}

static int adopt(void)
{
        uint64_t cost;
        int r = heap_adopt(&heap, UINT64_C(1) << 50, 5 * MIB, NULL, UINT64_MAX, &cost);

        block = heap_adopted(&heap, 0, UINT64_MAX);
        assert_int_equal(block != NULL, r == 0);
        return r;
}

static void undo_adoption(void)
{
        heap.allocated -= block->bytes;
        heap.managed_bytes -= block->bytes;
        heap_withdraw(&heap, block);
}

static int provide(void)
{
        return heap_provide(&heap, UINT64_C(1) << 51, 4 * MIB);
}

static void undo_provision(void)
{
        heap_withdraw(&heap, heap.blocks[heap.count - 1]);
}

static int take_suballocations(void)
{
        struct suballocation *n;

        if (take_pool() < 0)
                return -ENOMEM;
        if (suballocator_add(&suballocator, block) < 0) {
                undo_block();
                return -ENOMEM;
        }
        n = suballocator_take(&suballocator, suballocator_fit(&suballocator.common, 1024, false),
                              1024);
        if (n)
                suballocator_give(&suballocator, n, &suballocator.common, 0);
        suballocator_remove(&suballocator, block->chunk);
        block->chunk = NULL;
        if (n)
                return 0;
        undo_block();
        return -ENOMEM;
}

static const struct {
        int (*act)(void);
        void (*undo)(void);
} acts[] = {
        {take_large, undo_allocation}, {take_small, undo_allocation},
        {take_aside, undo_block},      {take_pool, undo_block},
        {create, undo_block},          {adopt, undo_adoption},
        {provide, undo_provision},     {take_suballocations, undo_block},
};

static void without_memory_for_the_accounts_nothing_is_taken(void **state)
{
        for (unsigned i = 0; i < ARRAY_SIZE(acts); i++) {
                unsigned refused = 0;

                for (fails_at = 1;; fails_at++) {
                        int r;

                        asked = 0;
                        r = acts[i].act();
                        if (asked < fails_at) {
                                assert_int_equal(r, 0);
                                break;
                        }
                        check_accounts();
                        if (r == 0) { /* the failure only cost speed */
                                acts[i].undo();
                                check_accounts();
                        } else {
                                assert_int_equal(r, -ENOMEM);
                                refused++;
                        }
                        assert_int_equal(heap.allocated, 0);
                        assert_int_equal(heap.managed_bytes, 0);
                        assert_true(reservations <= 1);
                }
                check_accounts();
                acts[i].undo();
                assert_int_equal(heap.allocated, 0);
                check_accounts();
                assert_true(refused > 0);
        }
}

/* The lists of blocks grow in the middle of it. */
static void each_of_many_is_kept_whatever_fails_between(void **state)
{
        CUdeviceptr all[700];
        struct block *handles[300];

        for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
                for (fails_at = 1; allocate(2 * MIB) < 0; fails_at++, asked = 0)
                        check_accounts();
                asked = 0;
                all[i] = at;
        }
        for (unsigned i = 0; i < ARRAY_SIZE(handles); i++) {
                for (fails_at = 1; create() < 0; fails_at++, asked = 0)
                        check_accounts();
                asked = 0;
                handles[i] = block;
        }
        fails_at = 0;
        check_accounts();
        assert_int_equal(heap.handle_count, ARRAY_SIZE(handles));
        for (unsigned i = 0; i < ARRAY_SIZE(handles); i++) {
                block = handles[i * 7 % ARRAY_SIZE(handles)];
                assert_ptr_equal(heap.handles[block->index], block);
                undo_block();
        }
        for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
                at = all[i * 3 % ARRAY_SIZE(all)];
                undo_allocation();
        }
        check_accounts();
        assert_int_equal(heap.allocated, 0);
        assert_int_equal(heap.count, reservations); /* all of it is one gap again */
}

static int begin(void **state)
{
        real.cuMemAddressReserve = fake_reserve;
        real.cuMemAddressFree = fake_unreserve;
        next_address = UINT64_C(1) << 40;
        asked = fails_at = reservations = 0;
        heap_init(&heap, 16 * GIB);
        return 0;
}

static int end(void **state)
{
        suballocator_clear(&suballocator);
        for (size_t i = 0; i < heap.count; i++)
                free(heap.blocks[i]);
        free(heap.blocks);
        free(heap.handles);
        free(heap.holes);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(without_memory_for_the_accounts_nothing_is_taken,
                                                begin, end),
                cmocka_unit_test_setup_teardown(each_of_many_is_kept_whatever_fails_between, begin,
                                                end),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
