/* test_moves.c: memory that leaves the card and comes back, with all modules that take part and a
 * driver that has memory: whatever fails, the program finds what it wrote, and the accounts match
 * what the driver has given out. */
#include "unit.h"

#include "moves_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/host.h"
#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/move/extent.h"
#include "preload/stream/gate.h"
#include "preload/state/home.h"
#include "preload/move/kept_copies.h"
#include "preload/move/export.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/move/swap_state.h"
#include "preload/move/unchanged.h"

static void contents_come_back_to_their_address(void **state)
{
        (void)allocate(10);
        (void)allocate(3);
        look_at_figures();
        restore_to(UINT64_MAX);
        check_told();
        run_program();
        look_at_figures();
        evict_to(0);
        check_told();
        assert_int_equal(driver.used, 0);
        assert_int_equal(gpu->heap.backed, 0);
        assert_int_equal(gpu->moved_out, 13 * PAGE);
        restore_to(UINT64_MAX);
        run_program();
        assert_int_equal(gpu->moved_in, 13 * PAGE);
        /* No host copy is kept: a change of the contents would go unnoticed. */
        assert_int_equal(extent_of(&things[0], 0)->host.count, 0);
        assert_int_equal(trace_count("evict_begin"), 1);
        assert_int_equal(trace_count("evict_end"), 1);
        assert_int_equal(trace_count("restore_end"), 2); /* the first restore was of new memory */
}

static void no_more_memory_moves_than_the_limit_demands(void **state)
{
        for (unsigned i = 0; i < 6; i++)
                (void)allocate(4);
        restore_to(UINT64_MAX);
        run_program();
        evict_to(5 * EXTENT - PAGE);
        assert_int_equal(gpu->heap.backed, 4 * EXTENT);
        restore_to(5 * EXTENT);
        assert_int_equal(gpu->heap.backed, 5 * EXTENT);
        restore_to(6 * EXTENT - 1);
        assert_int_equal(gpu->heap.backed, 5 * EXTENT);
        restore_to(UINT64_MAX);
        run_program();
}

/* Others see it on the card, as with the driver. */
static void new_memory_of_a_running_program_is_backed_at_once_within_the_limit(void **state)
{
        (void)allocate(4);
        (void)allocate(4);
        lock_acquire(&core_lock);
        gpu->limit = EXTENT;
        swap_back_new(gpu);
        assert_int_equal(gpu->heap.backed, 0);
        core.running = true;
        fake_capturing = true;
        swap_back_new(gpu);
        assert_int_equal(gpu->heap.backed, 0);
        fake_capturing = false;
        swap_back_new(gpu);
        assert_int_equal(gpu->heap.backed, EXTENT);
        gpu->limit = UINT64_MAX;
        swap_back_new(gpu);
        core.running = false;
        lock_release(&core_lock);
        assert_int_equal(driver.used, 2 * EXTENT);
        run_program();
}

static void no_memory_moves_unasked(void **state)
{
        (void)allocate(4);
        (void)allocate(4);
        restore_to(UINT64_MAX);
        gpu->limit = EXTENT;
        assert_int_equal(move(false, false), SWAP_NOTHING);
        assert_int_equal(gpu->heap.backed, 2 * EXTENT);
        evict_to(EXTENT);
        gpu->limit = UINT64_MAX;
        assert_int_equal(move(true, false), SWAP_NOTHING);
        assert_int_equal(gpu->heap.backed, EXTENT);
}

/* If only some memory is managed, the library must restore it; if all is managed, the driver moves
 * a page when the program touches it. */
static void managed_memory_is_sent_to_the_host_and_fetched_from_there(void **state)
{
        struct thing *t = adopt(4);

        (void)allocate(2);
        gpu->home.answer = HOME_LEAVES;
        restore_to(UINT64_MAX);
        run_program();
        evict_to(0);
        see_who_is_out();
        assert_true(t->was_out[0] && t->was_out[3]);
        assert_int_equal(gpu->moved_out, 2 * PAGE); /* the driver moves managed memory */
        restore_to(UINT64_MAX);
        run_program();
        assert_int_equal(driver_where(t->at), 0);
        evict_to(0);
        gpu->heap.managed = true;
        restore_to(UINT64_MAX);
        assert_int_equal(driver_where(t->at), CU_DEVICE_CPU);
        run_program();
        gpu->heap.managed = false;
}

static void managed_memory_leaves_once_a_trial_shows_that_it_can(void **state)
{
        (void)adopt(4);
        restore_to(UINT64_MAX);
        gpu->limit = 0;
        /* The first step finds out whether managed memory leaves. */
        assert_int_equal(swap_step(gpu, true, false), SWAP_LATER);
        assert_int_equal(gpu->home.answer, HOME_LEAVES);
        evict_to(0);
        assert_int_equal(gpu->heap.backed, 0);
}

static void managed_memory_stays_if_the_card_keeps_its_pages(void **state)
{
        (void)adopt(4);
        gpu->home.answer = HOME_STAYS;
        restore_to(UINT64_MAX);
        evict_to(0);
        assert_int_equal(gpu->heap.backed, EXTENT);
        assert_true(gpu->stays);
        gpu->limit = UINT64_MAX;
        (void)swap_step(gpu, true, false);
        assert_false(gpu->stays);
}

static void memory_without_contents_is_not_copied(void **state)
{
        struct block *pool = heap_take_pool(&gpu->heap, 4 * EXTENT, EXTENT);
        struct thing *t;

        heap_use(&gpu->heap, pool, pool->address, 5 * PAGE);
        t = add(pool->address, 5);
        t->pool = pool;
        restore_to(UINT64_MAX);
        run_program();
        evict_to(0);
        assert_int_equal(driver.copied_out, 5); /* 5 of 8 pages are in use */
        restore_to(UINT64_MAX);
        run_program();
        lock_acquire(&core_lock);
        unuse(t, false);
        lock_release(&core_lock);
        thing_count = 0;
        evict_to(0);
        assert_int_equal(driver.copied_out, 5);
        assert_int_equal(gpu->heap.allocated, 0);
        heap_bury(&gpu->heap, pool);
}

/* The thread that marked an extent busy continues with it unchanged. */
static void unused_memory_is_forgotten_only_after_its_move_ends(void **state)
{
        struct block *pool = heap_take_pool(&gpu->heap, EXTENT, EXTENT);
        struct thing *t;

        heap_use(&gpu->heap, pool, pool->address, EXTENT);
        t = add(pool->address, 4);
        t->pool = pool;
        restore_to(UINT64_MAX);
        run_program();
        evict_to(0);
        gpu->limit = UINT64_MAX;
        assert_int_equal(swap_step(gpu, false, true), SWAP_MORE);
        assert_true(pool->extents[0].busy);
        lock_acquire(&core_lock);
        unuse(t, true);
        lock_release(&core_lock);
        thing_count = 0;
        assert_true(pool->extents[0].busy);
        assert_true(pool->extents[0].counted);
        assert_int_equal(gpu->heap.allocated, EXTENT);
        (void)driver_run(UINT32_MAX);
        (void)move(false, true);
        assert_false(pool->extents[0].busy);
        evict_to(0);
        assert_int_equal(gpu->heap.allocated, 0);
        heap_bury(&gpu->heap, pool);
}

static void unused_evicted_contents_are_dropped_at_once(void **state)
{
        struct block *pool = heap_take_pool(&gpu->heap, EXTENT, EXTENT);
        struct thing *t;

        heap_use(&gpu->heap, pool, pool->address, EXTENT);
        t = add(pool->address, 4);
        t->pool = pool;
        restore_to(UINT64_MAX);
        run_program();
        evict_to(0);
        assert_int_equal(pool->extents[0].state, EXTENT_EVICTED);
        gpu->usage_dirty = false;
        lock_acquire(&core_lock);
        unuse(t, false);
        lock_release(&core_lock);
        assert_true(gpu->usage_dirty);
        thing_count = 0;
        assert_int_equal(pool->extents[0].state, EXTENT_UNBACKED);
        assert_int_equal(gpu->heap.allocated, 0);
        heap_bury(&gpu->heap, pool);
}

static void unchanged_memory_is_not_copied_again(void **state)
{
        struct thing *t = allocate(8);

        asks = true;
        restore_to(UINT64_MAX);
        run_program();
        for (unsigned i = 0; i < 8; i++)
                *driver_word(t->at + i * PAGE, 0) = t->words[i] = ++last_word;
        for (unsigned i = 0; i < 30; i++) {
                evict_to(0);
                restore_to(UINT64_MAX);
                for (unsigned k = 0; k < 8; k++)
                        assert_int_equal(*driver_word(t->at + k * PAGE, 0), t->words[k]);
        }
        /* Fingerprints are not compared at every eviction. */
        assert_in_range(gpu->spared_out, 60 * PAGE, 220 * PAGE);
        assert_int_equal(gpu->spared_out + gpu->moved_out, 240 * PAGE);
        assert_int_equal(gpu->moved_out, driver.copied_out * PAGE);
        *driver_word(t->at + 5 * PAGE, 0) = t->words[5] = ++last_word;
        evict_to(0);
        restore_to(UINT64_MAX);
        run_program();
}

static void zeroes_take_no_host_memory(void **state)
{
        struct thing *t = allocate(4);

        asks = surely = true;
        restore_to(UINT64_MAX);
        for (unsigned i = 0; i < 4; i++) {
                *driver_word(t->at + i * PAGE, 0) = 0;
                t->words[i] = UINT64_MAX;
        }
        host_room = 0;
        evict_to(0);
        assert_int_equal(gpu->heap.backed, 0);
        assert_int_equal(gpu->spared_out, 4 * PAGE);
        restore_to(UINT64_MAX);
        assert_int_equal(gpu->spared_in, 4 * PAGE);
        assert_int_equal(driver.cleared, 4);
        run_program();
}

static void no_memory_leaves_until_there_is_host_memory(void **state)
{
        (void)allocate(8);
        restore_to(UINT64_MAX);
        run_program();
        host_room = 0;
        gpu->usage_dirty = false;
        evict_to(0);
        assert_int_equal(gpu->heap.backed, 2 * EXTENT);
        assert_int_equal(gpu->heap.resident, 2 * EXTENT);
        assert_true(gpu->stays);
        assert_true(gpu->usage_dirty);
        run_program();
        host_room = UINT64_MAX;
        evict_to(0);
        assert_int_equal(gpu->heap.backed, 0);
        restore_to(UINT64_MAX);
        run_program();
}

/* The agent looks for room again and again, but pauses between two tries. */
static void evictions_that_find_no_host_memory_rest_between_tries(void **state)
{
        unsigned steps = 0;

        asks = surely = true;
        (void)allocate(40);
        restore_to(UINT64_MAX);
        run_program();
        host_room = 0;
        gpu->limit = 0;
        for (unsigned rests = 0; rests < 5; steps++) {
                assert_true(steps < 200);
                rests += swap_step(gpu, true, false) == SWAP_LATER;
                check_accounts();
        }
        host_room = UINT64_MAX;
        evict_to(0);
        assert_int_equal(gpu->heap.backed, 0);
}

static void unpinned_host_memory_serves_evictions_as_well(void **state)
{
        (void)allocate(8);
        restore_to(UINT64_MAX);
        run_program();
        gpu->limit = 0;
        for (unsigned n = 1; driver.registered == 0 && n < 40; n++) {
                driver_fail(n, CUDA_ERROR_OUT_OF_MEMORY);
                (void)move(true, false);
                if (driver.failed && strcmp(driver.failed, "cuMemHostRegister") == 0)
                        break;
                driver_fail(0, CUDA_SUCCESS);
                restore_to(UINT64_MAX);
                swap_unpin(gpu, UINT64_MAX);
                gpu->limit = 0;
        }
        assert_non_null(driver.failed);
        assert_string_equal(driver.failed, "cuMemHostRegister");
        assert_int_equal(driver.registered, 0);
        driver_fail(0, CUDA_SUCCESS);
        evict_to(0);
        assert_int_equal(gpu->heap.backed, 0);
        restore_to(UINT64_MAX);
        run_program();
}

static void host_memory_that_others_lack_is_given_back(void **state)
{
        uint64_t evicted;

        asks = surely = true; /* host copies are kept */
        (void)allocate(40);
        restore_to(UINT64_MAX);
        run_program();
        evict_to(0);
        restore_to(UINT64_MAX);
        run_program();
        evict_to(gpu->heap.allocated - 2 * EXTENT);
        evicted = gpu->heap.allocated - gpu->heap.backed;
        assert_true(swap_arena_bytes(gpu) > evicted + EXTENT);
        assert_false(swap_unpin_step(gpu)); /* nobody has asked */
        swap_ask_unpin(gpu, GIB);
        assert_false(swap_unpin_step(gpu)); /* the host is not short */
        host_room = 0;
        swap_ask_unpin(gpu, GIB);
        gpu->usage_dirty = false;
        for (unsigned steps = 0; swap_unpin_step(gpu); steps++) {
                assert_true(steps < 100);
                check_accounts();
        }
        assert_true(gpu->usage_dirty);
        assert_in_range(swap_arena_bytes(gpu), evicted, evicted + 2 * 16 * MIB);
        host_room = UINT64_MAX;
        assert_false(swap_pin_ahead(gpu));
        restore_to(UINT64_MAX);
        run_program();
}

static void host_memory_for_an_eviction_is_pinned_ahead(void **state)
{
        uint64_t pinned;

        gpu->usage_dirty = false;
        assert_false(swap_pin_ahead(gpu)); /* no memory is on the card */
        assert_false(gpu->usage_dirty);    /* nor is there anything to report */
        (void)allocate(8);
        restore_to(UINT64_MAX);
        run_program();
        gpu->usage_dirty = false;
        while (swap_pin_ahead(gpu))
                check_accounts();
        assert_true(gpu->usage_dirty);
        pinned = swap_arena_bytes(gpu);
        assert_true(pinned >= gpu->heap.resident);
        host_room = 0;
        gpu->limit = 0;
        evict_to(0);
        assert_int_equal(gpu->heap.backed, 0);
        assert_int_equal(swap_arena_bytes(gpu), pinned);
        host_room = UINT64_MAX;
        restore_to(UINT64_MAX);
        run_program();
}

static void host_memory_for_the_whole_eviction_is_made_at_once(void **state)
{
        (void)allocate(24);
        restore_to(UINT64_MAX);
        run_program();
        gpu->limit = 0;
        while (driver.registered == 0)
                (void)swap_step(gpu, true, false);
        assert_int_equal(swap_arena_bytes(gpu), gpu->heap.allocated);
        evict_to(0);
        assert_int_equal(gpu->heap.backed, 0);
        restore_to(UINT64_MAX);
        run_program();
}

static void a_process_that_exits_lets_all_its_memory_go(void **state)
{
        (void)allocate(8);
        restore_to(UINT64_MAX);
        run_program();
        lock_acquire(&core_lock);
        swap_let_go(gpu, UINT64_MAX);
        lock_release(&core_lock);
        assert_int_equal(gpu->heap.backed, 0);
        assert_int_equal(gpu->heap.resident, 0);
        assert_int_equal(driver_mappings(), 0);
        check_accounts();
        swap_unpin(gpu, UINT64_MAX);
        assert_int_equal(driver.registered, 0);
}

/* Contents whose copy was in flight when the context failed stay where they were. */
static void a_failed_context_ends_the_copies_in_flight(void **state)
{
        (void)allocate(12);
        restore_to(UINT64_MAX);
        run_program();
        gpu->limit = 0;
        (void)swap_step(gpu, true, false);
        (void)swap_step(gpu, true, false);
        assert_int_equal(gpu->heap.resident, EXTENT);
        driver_die(CUDA_ERROR_LAUNCH_FAILED);
        (void)swap_step(gpu, false, false);
        assert_int_equal(gpu->error, CUDA_ERROR_LAUNCH_FAILED);
        assert_int_equal(gpu->heap.resident, 3 * EXTENT);
        check_accounts();
        driver.dead = false;
        run_program();
        evict_to(0);
        gpu->error = CUDA_SUCCESS;
        gpu->limit = UINT64_MAX;
        (void)swap_step(gpu, false, true);
        (void)swap_step(gpu, false, true);
        driver_die(CUDA_ERROR_LAUNCH_FAILED);
        (void)swap_step(gpu, false, false);
        assert_int_equal(gpu->error, CUDA_ERROR_LAUNCH_FAILED);
        assert_int_equal(gpu->heap.backed, 0);
        check_accounts();
        driver.dead = false;
        restore_to(UINT64_MAX);
        run_program();
}

static bool failed_in(const char *name)
{
        return driver.failed && strcmp(driver.failed, name) == 0;
}

/* The arena may soon use the room of a failed copy for other contents. */
static void a_failed_copy_leaves_no_work_in_its_stream(void **state)
{
        struct block *pool = heap_take_pool(&gpu->heap, EXTENT, EXTENT);
        bool out = true;

        for (unsigned i = 0; i < 2; i++) { /* a gap between the two makes two copies */
                heap_use(&gpu->heap, pool, pool->address + 2 * i * PAGE, PAGE);
                add(pool->address + 2 * i * PAGE, 1)->pool = pool;
        }
        restore_to(UINT64_MAX);
        run_program();
        for (unsigned way = 0; way < 2; way++, out = false) {
                gpu->limit = out ? 0 : UINT64_MAX;
                driver.failed = NULL;
                for (unsigned n = 1; !failed_in("cuEventRecord"); n++) {
                        driver_fail(n, CUDA_ERROR_OUT_OF_MEMORY);
                        if (swap_step(gpu, out, !out) == SWAP_LATER) {
                                assert_int_equal(driver_run(0), 0);
                                assert_int_equal(gpu->heap.resident, out ? EXTENT : 0);
                                continue;
                        }
                        assert_true(failed_in("cuMemHostRegister"));
                        evict_to(0);
                        restore_to(UINT64_MAX);
                        gpu->limit = 0;
                }
                driver_fail(0, CUDA_SUCCESS);
                evict_to(0);
        }
        restore_to(UINT64_MAX);
        run_program();
        while (thing_count)
                give_back(&things[0]);
        evict_to(0);
        heap_bury(&gpu->heap, pool);
}

static void bytes_that_could_not_be_restored_are_reported(void **state)
{
        (void)allocate(8);
        gpu->attached = true;
        driver.card = EXTENT;
        restore_to(UINT64_MAX);
        assert_int_equal(gpu->heap.backed, EXTENT);
        assert_int_equal(gpu->short_bytes, EXTENT);
        gpu->attached = false;
        driver.card = CARD;
        restore_to(UINT64_MAX);
        assert_int_equal(heap_missing(&gpu->heap), 0);
}

static void evicted_memory_is_handed_over_and_reused(void **state)
{
        struct thing *t = allocate(13); /* three whole extents and a page */
        unsigned before = open_descriptors();

        gpu->passes = gpu->attached = gpu->may_pass = true;
        restore_to(UINT64_MAX);
        run_program();
        for (unsigned i = 0; i < 13; i++)
                *driver_word(t->at + i * PAGE, 0) = t->words[i] = ++last_word;
        evict_to(0);
        assert_int_equal(gpu->leaving.count, 3);
        assert_int_equal(open_descriptors(), before + 3);
        passed_close(&gpu->leaving);
        /* New memory is never made of handed-over memory, which holds others' contents. */
        (void)allocate(4);
        for (unsigned i = 0; i < 5; i++)
                passed_add(&gpu->passed, driver_foreign(EXTENT, UINT64_C(0xbad)));
        restore_to(3 * EXTENT);
        assert_int_equal(gpu->passed.count, 0); /* no more fits the limit, so the rest was closed */
        assert_int_equal(open_descriptors(), before);
        assert_int_equal(gpu->heap.backed, 3 * EXTENT);
        restore_to(UINT64_MAX);
        run_program();
        /* Memory that was handed over to us is not handed over again. */
        evict_to(0);
        assert_int_equal(gpu->leaving.count, 1);
        passed_close(&gpu->leaving);
        gpu->limit = UINT64_MAX;
        /* This descriptor cannot be imported: new memory is created instead. */
        passed_add(&gpu->passed, open("/dev/null", O_RDONLY));
        restore_to(UINT64_MAX);
        run_program();
        assert_int_equal(open_descriptors(), before);
        passed_add(&gpu->passed, driver_foreign(EXTENT, 1));
        (void)move(false, true); /* nothing is to be restored, so the descriptor is closed */
        assert_int_equal(open_descriptors(), before);
}

static void exported_memory_stays_and_is_restored_first(void **state)
{
        struct thing *a = allocate(4), *b = allocate(4);
        struct export *p;

        (void)a;
        restore_to(UINT64_MAX);
        run_program();
        gpu->limit = 2 * EXTENT;
        p = export_take(gpu, block_of(b), b->at, 1);
        evict_to(0);
        assert_int_equal(gpu->heap.backed, 0); /* the daemon has not allowed the export yet */
        export_allowed(gpu, EXTENT);
        assert_int_equal(export_state(p), EXPORT_WAITING);
        gpu->limit = EXTENT;
        (void)move(true, false); /* with or without the lease */
        assert_int_equal(export_state(p), EXPORT_READY);
        assert_int_equal(extent_of(b, 0)->state, EXTENT_RESIDENT);
        evict_to(0);
        assert_int_equal(export_state(p), EXPORT_READY);
        restore_to(UINT64_MAX);
        run_program();
        export_release(p);
        evict_to(0);
        assert_int_equal(gpu->heap.backed, 0);
}

static sem_t waits, resume;

static void wait_for_the_other(const struct core_wait *w)
{
        (void)sem_post(&waits);
        (void)sem_wait(&resume);
}

static void *retire(void *unused)
{
        lock_acquire(&core_lock);
        swap_retire(gpu);
        lock_release(&core_lock);
        return NULL;
}

static CUresult (*synchronize)(CUstream s);
static pthread_t retiring;

static CUresult synchronize_while_the_context_ends(CUstream s)
{
        real.cuStreamSynchronize = synchronize;
        assert_int_equal(pthread_create(&retiring, NULL, retire, NULL), 0);
        (void)sem_wait(&waits);
        return synchronize(s);
}

/* The context ends while the agent copies in it: the thread that ends it waits, and the end of the
 * copy wakes this thread. */
static void a_copy_to_another_address_wakes_a_waiting_thread(void **state)
{
        struct thing *t = allocate(4);
        struct extent *e = extent_of(t, 0);
        CUdeviceptr aside;
        struct extent other;

        restore_to(UINT64_MAX);
        run_program();
        assert_int_equal(real.cuMemAddressReserve(&aside, EXTENT, PAGE, 0, 0), CUDA_SUCCESS);
        other = (struct extent){.address = aside, .bytes = EXTENT, .block = e->block};
        assert_int_equal(extent_map(gpu, &other, -EBADF), CUDA_SUCCESS);
        synchronize = real.cuStreamSynchronize;
        real.cuStreamSynchronize = synchronize_while_the_context_ends;
        meanwhile = wait_for_the_other;
        (void)sem_init(&waits, 0, 0);
        (void)sem_init(&resume, 0, 0);
        assert_int_equal(swap_carry(gpu, e, aside), CUDA_SUCCESS);
        (void)sem_post(&resume);
        assert_int_equal(pthread_join(retiring, NULL), 0);
        assert_null(gpu->context);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(*driver_word(aside + i * PAGE, 0),
                                 *driver_word(t->at + i * PAGE, 0));
        assert_int_equal(swap_carry(gpu, e, aside), CUDA_ERROR_INVALID_CONTEXT);
        assert_int_equal(extent_unmap(gpu, &other), CUDA_SUCCESS);
        gpu->context = &context;
        meanwhile = agent_goes_on;
}

/* Extents that were moving when the context ended have arrived, and the next context can move
 * them. */
static void a_context_that_ends_loses_no_contents(void **state)
{
        (void)allocate(16);
        asks = true;
        restore_to(UINT64_MAX);
        run_program();
        for (unsigned i = 0; i < 6; i++) {
                gpu->limit = i % 2 ? UINT64_MAX : 0;
                for (unsigned k = 0; k <= i; k++)
                        (void)swap_step(gpu, i % 2 == 0, i % 2);
                lock_acquire(&core_lock);
                swap_retire(gpu);
                lock_release(&core_lock);
                assert_int_equal(driver.streams, 0);
                assert_int_equal(gpu->swap->count, 0);
                check_accounts();
                assert_int_equal(move(true, true), SWAP_NOTHING); /* there is no context */
                gpu->context = &context;
        }
        assert_int_equal(forgotten > 0, true);
        restore_to(UINT64_MAX);
        run_program();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                MOVE_TEST(contents_come_back_to_their_address),
                MOVE_TEST(no_more_memory_moves_than_the_limit_demands),
                MOVE_TEST(new_memory_of_a_running_program_is_backed_at_once_within_the_limit),
                MOVE_TEST(no_memory_moves_unasked),
                MOVE_TEST(managed_memory_is_sent_to_the_host_and_fetched_from_there),
                MOVE_TEST(managed_memory_leaves_once_a_trial_shows_that_it_can),
                MOVE_TEST(managed_memory_stays_if_the_card_keeps_its_pages),
                MOVE_TEST(memory_without_contents_is_not_copied),
                MOVE_TEST(unused_memory_is_forgotten_only_after_its_move_ends),
                MOVE_TEST(unused_evicted_contents_are_dropped_at_once),
                MOVE_TEST(unchanged_memory_is_not_copied_again),
                MOVE_TEST(zeroes_take_no_host_memory),
                MOVE_TEST(no_memory_leaves_until_there_is_host_memory),
                MOVE_TEST(evictions_that_find_no_host_memory_rest_between_tries),
                MOVE_TEST(unpinned_host_memory_serves_evictions_as_well),
                MOVE_TEST(host_memory_that_others_lack_is_given_back),
                MOVE_TEST(host_memory_for_an_eviction_is_pinned_ahead),
                MOVE_TEST(host_memory_for_the_whole_eviction_is_made_at_once),
                MOVE_TEST(a_process_that_exits_lets_all_its_memory_go),
                MOVE_TEST(a_failed_context_ends_the_copies_in_flight),
                MOVE_TEST(a_failed_copy_leaves_no_work_in_its_stream),
                MOVE_TEST(bytes_that_could_not_be_restored_are_reported),
                MOVE_TEST(evicted_memory_is_handed_over_and_reused),
                MOVE_TEST(exported_memory_stays_and_is_restored_first),
                MOVE_TEST(a_copy_to_another_address_wakes_a_waiting_thread),
                MOVE_TEST(a_context_that_ends_loses_no_contents),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
