/* test_moves_ends.c: memory at its first restore, at the gate, and at its end, when it is freed,
 * handed over or disowned; and preparations that the first move needs. */
#include "unit.h"

#include "moves_bench.h"

#include <errno.h>
#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "heap_end.h"
#include "preload/freeze/mover.h"
#include "preload/move/extent.h"
#include "preload/stream/gate.h"
#include "preload/move/export.h"
#include "preload/move/swap.h"
#include "preload/move/swap_state.h"

static void new_memory_is_backed_at_the_gate(void **state)
{
        core.running = true;
        (void)allocate(9);
        (void)allocate(2);
        atomic_store(&gate_bits, GATE_UNBACKED);
        fake_gate_owner(0);
        assert_int_equal(heap_missing(&gpu->heap), 0);
        assert_int_equal(atomic_load(&gate_bits), 0);
        assert_int_equal(core.waiters, 0);
        run_program();
        /* Without the lease new memory waits for the agent. */
        core.running = false;
        (void)allocate(2);
        atomic_store(&gate_bits, GATE_UNBACKED);
        fake_gate_owner(0);
        assert_int_equal(heap_missing(&gpu->heap), 2 * PAGE);
        assert_int_equal(atomic_load(&gate_bits), GATE_UNBACKED);
        assert_int_equal(core.waiters, 0);
}

static void the_limit_rises(const struct core_wait *w)
{
        assert_int_equal(core.waiters, 1);
        assert_true(gpu->heap.backed <= gpu->limit);
        assert_int_not_equal(request_kicks, 0); /* the agent knows that room is missing */
        gpu->limit += EXTENT;
        driver.card = CARD;
        bell_ring(&core.changed);
}

static void the_gate_waits_until_the_limit_allows_new_memory(void **state)
{
        core.running = true;
        (void)allocate(9);
        gpu->limit = 0;
        meanwhile = the_limit_rises;
        driver.card = EXTENT;
        request_kicks = 0;
        fake_gate_owner(0);
        assert_int_equal(heap_missing(&gpu->heap), 0);
        assert_int_equal(gpu->limit, 3 * EXTENT);
        assert_int_not_equal(request_kicks, 0);
        meanwhile = agent_goes_on;
}

static void a_block_is_backed_unless_the_card_is_full(void **state)
{
        struct thing *a = allocate(8), *b = allocate(8);

        driver.card = 3 * EXTENT;
        lock_acquire(&core_lock);
        assert_int_equal(swap_back_block(gpu, block_of(a)), 0);
        assert_int_equal(gpu->heap.resident, 2 * EXTENT);
        assert_int_equal(swap_back_block(gpu, block_of(b)), -ENOMEM);
        lock_release(&core_lock);
        check_accounts();
        driver.card = CARD;
}

static void handed_over_memory_makes_room_for_new_memory(void **state)
{
        struct thing *t = allocate(8);
        unsigned before = open_descriptors();

        for (unsigned i = 0; i < 3; i++)
                passed_add(&gpu->passed, driver_foreign(EXTENT, 1));
        gpu->limit = 3 * EXTENT;
        lock_acquire(&core_lock);
        assert_int_equal(swap_back_block(gpu, block_of(t)), 0);
        lock_release(&core_lock);
        assert_int_equal(gpu->heap.resident, 2 * EXTENT);
        assert_int_equal(gpu->passed.count, 1);
        assert_int_equal(open_descriptors(), before + 1);
        gpu->limit = UINT64_MAX;
        passed_close(&gpu->passed);
        run_program();
}

static void memory_handed_over_leaves_the_accounts(void **state)
{
        struct thing *t = allocate(8);
        struct block *b = block_of(t);
        CUmemGenericAllocationHandle one, two;
        CUdeviceptr at = t->at;

        restore_to(UINT64_MAX);
        thing_count = 0;
        one = driver_handle(at);
        two = driver_handle(at + EXTENT);
        b->dying = true;
        look_at_figures();
        lock_acquire(&core_lock);
        swap_hand_over(gpu, b);
        lock_release(&core_lock);
        check_told();
        assert_int_equal(gpu->heap.backed, 0);
        assert_int_equal(gpu->heap.resident, 0);
        assert_int_equal(gpu->heap.allocated, 0);
        assert_int_equal(driver.used, 2 * EXTENT);
        (void)real.cuMemUnmap(at, EXTENT);
        (void)real.cuMemUnmap(at + EXTENT, EXTENT);
        (void)real.cuMemRelease(one);
        (void)real.cuMemRelease(two);
}

static void managed_memory_of_the_programs_own_is_disowned(void **state)
{
        struct thing *t = adopt(6);

        restore_to(UINT64_MAX);
        look_at_figures();
        lock_acquire(&core_lock);
        swap_disown(gpu, heap_adopted(&gpu->heap, t->at, 1));
        lock_release(&core_lock);
        check_told();
        thing_count = 0;
        assert_int_equal(gpu->heap.managed_bytes, 0);
        assert_int_equal(core.unbooked, 0);
        check_accounts();
        /* The memory belongs to the program again. */
        assert_int_not_equal(driver_where(t->at), CU_DEVICE_INVALID);
}

/* However memory goes, the daemon gets the new figures, and threads that wait for room or for the
 * extent are woken. */
static void freed_memory_is_reported_to_the_daemon(void **state)
{
        struct thing *t = allocate(4), *evicted = allocate(4), *managed;
        struct block *pool = heap_take_pool(&gpu->heap, EXTENT, EXTENT);
        struct block *b = block_of(t), *out = block_of(evicted), *dead;

        restore_to(UINT64_MAX);
        evict_to(EXTENT);
        assert_int_equal(out->extents[0].state, EXTENT_EVICTED);
        gpu->limit = UINT64_MAX;
        lock_acquire(&core_lock);
        heap_use(&gpu->heap, pool, pool->address, PAGE);
        assert_int_equal(swap_back_block(gpu, pool), 0);
        heap_unuse(pool, pool->address, PAGE);
        look_at_figures();
        swap_unused(gpu, &pool->extents[0]); /* unused memory stays for later allocations */
        assert_int_equal(pool->extents[0].state, EXTENT_RESIDENT);
        swap_release(gpu, &pool->extents[0]);
        check_told();
        assert_int_equal(gpu->heap.allocated, 2 * EXTENT);
        heap_bury(&gpu->heap, pool);
        assert_int_equal(heap_free(&gpu->heap, evicted->at, &dead), 0);
        look_at_figures();
        swap_discard(gpu, out);
        check_told();
        assert_int_equal(gpu->heap.allocated, EXTENT);
        assert_int_equal(heap_free(&gpu->heap, t->at, &dead), 0);
        look_at_figures();
        swap_discard(gpu, b);
        check_told();
        lock_release(&core_lock);
        thing_count = 0;
        check_accounts();
        managed = adopt(4);
        restore_to(UINT64_MAX);
        look_at_figures();
        lock_acquire(&core_lock);
        swap_discard(gpu, heap_adopted(&gpu->heap, managed->at, 1));
        lock_release(&core_lock);
        check_told();
        assert_int_equal(driver_where(managed->at), CU_DEVICE_INVALID);
        assert_int_equal(gpu->heap.managed_bytes, 0);
        assert_int_equal(core.unbooked, 0);
        thing_count = 0;
        check_accounts();
}

/* Only the extents themselves record that their memory is mapped host memory. */
static void mapped_host_memory_is_given_back_to_the_host(void **state)
{
        struct block *b, *dead;

        b = heap_allocate_aside(&gpu->heap, 2 * EXTENT, NULL, 0);
        for (unsigned i = 0; i < 2; i++) {
                struct extent *e = &b->extents[i];

                assert_int_equal(extent_map_host(gpu, e), CUDA_SUCCESS);
                e->state = EXTENT_MAPPED;
                e->busy = false;
                gpu->heap.mapped += e->bytes;
        }
        assert_int_equal(driver.host, 2 * EXTENT);
        lock_acquire(&core_lock);
        assert_int_equal(heap_free(&gpu->heap, b->address, &dead), 0);
        swap_discard(gpu, b);
        lock_release(&core_lock);
        assert_int_equal(gpu->heap.mapped, 0);
        assert_int_equal(driver.host, 0);
        check_accounts();
}

/* Other memory is evicted to make room for exported memory. */
static void other_memory_leaves_for_exported_memory(void **state)
{
        struct thing *a = allocate(4), *b = allocate(4);
        struct export *p;

        restore_to(UINT64_MAX);
        run_program();
        evict_to(EXTENT);
        if (extent_of(a, 0)->state != EXTENT_RESIDENT) {
                struct thing *other = a;

                a = b;
                b = other;
        }
        p = export_take(gpu, block_of(b), b->at, 1);
        export_allowed(gpu, EXTENT);
        (void)move(true, false);
        assert_int_equal(export_state(p), EXPORT_READY);
        assert_int_equal(extent_of(b, 0)->state, EXTENT_RESIDENT);
        assert_int_equal(extent_of(a, 0)->state, EXTENT_EVICTED);
        export_release(p);
        restore_to(UINT64_MAX);
        run_program();
}

/* The copy may be the first use of the context, and each preparation for it may fail. */
static void a_copy_to_another_address_prepares_its_context(void **state)
{
        struct thing *t = allocate(4);
        struct extent *e = extent_of(t, 0);
        struct extent other = {.bytes = EXTENT, .block = e->block};
        unsigned n = 1;

        gpu->limit = UINT64_MAX;
        lock_acquire(&core_lock);
        assert_int_equal(swap_back_block(gpu, e->block), 0);
        lock_release(&core_lock);
        run_program();
        assert_int_equal(real.cuMemAddressReserve(&other.address, EXTENT, PAGE, 0, 0),
                         CUDA_SUCCESS);
        assert_int_equal(extent_map(gpu, &other, -EBADF), CUDA_SUCCESS);
        for (;; n++) {
                uint32_t before = bell_listen(&core.changed);
                CUresult r;

                driver_fail(n, CUDA_ERROR_LAUNCH_TIMEOUT);
                r = swap_carry(gpu, e, other.address);
                assert_int_not_equal(bell_listen(&core.changed), before);
                assert_false(gpu->context_kept);
                assert_int_equal(r, driver.failed ? CUDA_ERROR_LAUNCH_TIMEOUT : CUDA_SUCCESS);
                if (!driver.failed)
                        break;
        }
        assert_true(n > TRANSFERS_MAX);
        assert_int_equal(driver_run(0), 0);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(*driver_word(other.address + i * PAGE, 0),
                                 *driver_word(t->at + i * PAGE, 0));
        assert_int_equal(extent_unmap(gpu, &other), CUDA_SUCCESS);
}

static void its_turn_comes(const struct core_wait *w)
{
        assert_int_equal(core.waiters, 1);
        assert_int_not_equal(request_kicks, 0);
        core.giveway.out = false;
        bell_ring(&core.changed);
}

static void a_block_is_backed_once_the_process_no_longer_gives_way(void **state)
{
        struct thing *t = allocate(4);

        core.giveway.out = true; /* the thread must wait until it may take memory */
        meanwhile = its_turn_comes;
        lock_acquire(&core_lock);
        assert_int_equal(swap_back_block(gpu, block_of(t)), 0);
        assert_false(core.giveway.out);
        /* A block that is resident stays as it is. */
        assert_int_equal(swap_back_block(gpu, block_of(t)), 0);
        lock_release(&core_lock);
        assert_int_equal(gpu->heap.resident, EXTENT);
        check_accounts();
}

static struct gpu *const second = &core.gpus[1];
static void more_is_new_on_the_first(const struct core_wait *w)
{
        if (second->limit == 0)
                (void)allocate(4);
        second->limit = UINT64_MAX;
        bell_ring(&core.changed);
}

/* While a thread waits for one GPU, memory may become missing on another: the gate stays shut. */
static void the_gate_opens_when_nothing_is_missing_on_any_gpu(void **state)
{
        CUdeviceptr at;
        uint64_t cost;
        struct block *dead;

        core.gpu_count = 2;
        core.running = true;
        second->own_limit = UINT64_MAX;
        heap_init(&second->heap, CARD);
        swap_learn(second);
        assert_int_equal(heap_allocate(&second->heap, EXTENT, NULL, UINT64_MAX, &at, &cost), 0);
        /* A GPU whose memory we do not manage delays nobody. */
        atomic_store(&gate_bits, GATE_UNBACKED);
        fake_gate_owner(0);
        assert_int_equal(atomic_load(&gate_bits), 0);
        second->managed = true;
        meanwhile = more_is_new_on_the_first;
        atomic_store(&gate_bits, GATE_UNBACKED);
        fake_gate_owner(0);
        assert_int_equal(heap_missing(&second->heap), 0);
        assert_int_equal(heap_missing(&gpu->heap), EXTENT);
        assert_int_equal(atomic_load(&gate_bits), GATE_UNBACKED);
        fake_gate_owner(0);
        assert_int_equal(atomic_load(&gate_bits), 0);
        meanwhile = agent_goes_on;
        lock_acquire(&core_lock);
        assert_int_equal(heap_free(&second->heap, at, &dead), 0);
        swap_discard(second, dead);
        lock_release(&core_lock);
        core.gpu_count = 1;
        check_accounts();
        free(second->swap->arena);
        free(second->swap);
        heap_end(&second->heap);
}

/* A later mover's context may have the same handle. */
static void a_mover_that_is_left_takes_no_streams_along(void **state)
{
        struct mover *m = (struct mover *)(uintptr_t)0xd0;

        context.handle = mover_context(m);
        (void)allocate(12);
        restore_to(UINT64_MAX);
        run_program();
        gpu->limit = 0;
        (void)swap_step(gpu, true, false);
        swap_leave_mover(gpu, (struct mover *)NULL); /* another one */
        assert_int_not_equal(driver.streams, 0);
        swap_leave_mover(gpu, m);
        assert_int_equal(driver.streams, 0);
        assert_int_equal(driver.events, 0);
        check_accounts();
        evict_to(0);
        assert_int_equal(driver.streams, 2);
        restore_to(UINT64_MAX);
        run_program();
}

/* The largest extent has as many pages as a word has bits: all of them are copied, and no more. */
static void the_largest_extent_moves_whole(void **state)
{
        CUdeviceptr at;
        uint64_t cost;
        struct block *dead;

        driver_reset(4 * GIB);
        gpu->total = 2 * GIB;
        heap_init(&gpu->heap, gpu->total);
        assert_int_equal(gpu->heap.extent_bytes, HEAP_EXTENT_MAX);
        assert_int_equal(heap_allocate(&gpu->heap, HEAP_EXTENT_MAX, NULL, UINT64_MAX, &at, &cost),
                         0);
        restore_to(UINT64_MAX);
        for (unsigned i = 0; i < 64; i++)
                *driver_word(at + i * PAGE, 0) = 1000 + i;
        evict_to(0);
        assert_int_equal(driver.copied_out, 64);
        assert_int_equal(gpu->moved_out, HEAP_EXTENT_MAX);
        restore_to(UINT64_MAX);
        assert_int_equal(driver.copied_in, 64);
        for (unsigned i = 0; i < 64; i++)
                assert_int_equal(*driver_word(at + i * PAGE, 0), 1000 + i);
        lock_acquire(&core_lock);
        assert_int_equal(heap_free(&gpu->heap, at, &dead), 0);
        swap_discard(gpu, dead);
        lock_release(&core_lock);
        check_accounts();
}

/* Memory that the program has not mapped is copied through our own mapping, which may fail. */
static void memory_without_an_address_moves_through_a_window(void **state)
{
        struct block *b;
        unsigned n = 1;

        assert_int_equal(heap_create(&gpu->heap, EXTENT, NULL, UINT64_MAX, &b), 0);
        restore_to(UINT64_MAX);
        (void)swap_step(gpu, true, false); /* creates the streams */
        gpu->limit = 0;
        for (;; n++) {
                enum swap_progress p;

                driver_fail(n, CUDA_ERROR_OUT_OF_MEMORY);
                p = swap_step(gpu, true, false);
                if (!driver.failed || strcmp(driver.failed, "cuMemHostRegister") == 0)
                        break;
                assert_int_equal(p, SWAP_LATER);
                assert_int_equal(gpu->heap.resident, EXTENT);
                assert_int_equal(driver_mappings(), 0);
                check_accounts();
        }
        assert_true(n > 2); /* failures of reserve and map */
        driver_fail(0, CUDA_SUCCESS);
        evict_to(0);
        assert_int_equal(driver.copied_out, 4);
        assert_int_equal(driver_mappings(), 0);
        restore_to(UINT64_MAX);
        assert_int_equal(driver.copied_in, 4);
        assert_int_equal(driver_mappings(), 0);
        b->dying = true;
        lock_acquire(&core_lock);
        swap_discard(gpu, b);
        lock_release(&core_lock);
        check_accounts();
        (void)real.cuMemAddressFree(gpu->windows, EXTENT_WINDOWS * EXTENT);
        gpu->windows = 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                MOVE_TEST(new_memory_is_backed_at_the_gate),
                MOVE_TEST(the_gate_waits_until_the_limit_allows_new_memory),
                MOVE_TEST(a_block_is_backed_unless_the_card_is_full),
                MOVE_TEST(handed_over_memory_makes_room_for_new_memory),
                MOVE_TEST(memory_handed_over_leaves_the_accounts),
                MOVE_TEST(managed_memory_of_the_programs_own_is_disowned),
                MOVE_TEST(freed_memory_is_reported_to_the_daemon),
                MOVE_TEST(mapped_host_memory_is_given_back_to_the_host),
                MOVE_TEST(other_memory_leaves_for_exported_memory),
                MOVE_TEST(a_copy_to_another_address_prepares_its_context),
                MOVE_TEST(a_block_is_backed_once_the_process_no_longer_gives_way),
                MOVE_TEST(the_gate_opens_when_nothing_is_missing_on_any_gpu),
                MOVE_TEST(a_mover_that_is_left_takes_no_streams_along),
                MOVE_TEST(the_largest_extent_moves_whole),
                MOVE_TEST(memory_without_an_address_moves_through_a_window),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
