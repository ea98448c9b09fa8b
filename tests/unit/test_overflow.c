/* test_overflow.c: buffers lie on the card or in host memory, in the right places, and move there.
 * No failure or interruption loses contents. */
#include "unit.h"

#include "overflow_bench.h"

#include <errno.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/agent/agent_state.h"
#include "preload/process/mode.h"
#include "preload/overflow/overflow.h"
#include "preload/overflow/profile.h"
#include "preload/stream/quiesce.h"

static void a_card_that_cannot_map_host_memory_has_no_overflow(void **state)
{
        for (unsigned n = 1; n <= 5;
             n++) { /* the failing call: of reserve, create, map, access, reserve */
                unsigned before;

                gpu->overflow = false;
                before = driver.reservations;
                driver_fail(n, CUDA_ERROR_NOT_SUPPORTED);
                driver.no_numa = true;
                lock_acquire(&core_lock);
                overflow_learn(gpu);
                lock_release(&core_lock);
                driver.no_numa = false;
                if (gpu->overflow)
                        continue; /* only the first of two ways to create failed */
                assert_int_equal(gpu->keep, UINT64_MAX);
                assert_int_equal(driver_handles(), 0);
                assert_int_equal(driver_mappings(), 0);
                assert_in_range(driver.reservations, before, before + 1);
        }
        driver_fail(0, CUDA_SUCCESS);
        fake_mode = MEMORY_SWAP;
        gpu->overflow = false;
        lock_acquire(&core_lock);
        overflow_learn(gpu);
        lock_release(&core_lock);
        assert_false(gpu->overflow);
}

static void buffers_that_do_not_fit_lie_in_host_memory(void **state)
{
        struct buffer *b = on_host(20 * MIB);
        uint32_t heard = bell_listen(&core.changed);

        assert_non_null(b);
        assert_int_equal(gpu->heap.mapped, 20 * MIB);
        assert_int_equal(gpu->heap.allocated, 0);
        check_accounts();
        check_contents();
        assert_non_null(on_host(EXTENT));
        assert_int_not_equal(bell_listen(&core.changed), heard);
}

static void host_memory_that_is_not_promised_is_not_taken(void **state)
{
        core.host.allowed = 20 * MIB;
        assert_non_null(on_host(16 * MIB));
        assert_null(on_host(6 * MIB));
        check_accounts();
        assert_non_null(on_host(4 * MIB));
        check_accounts();
}

/* Some pieces may be mapped when a later one fails. */
static void a_failed_allocation_gives_all_its_memory_back(void **state)
{
        unsigned n = 1;

        for (;; n++) {
                struct buffer *b;

                driver_fail(n, CUDA_ERROR_OUT_OF_MEMORY);
                b = on_host(20 * MIB);
                check_accounts();
                if (b && !driver.failed)
                        break;
                if (b) { /* memory of any node was used instead */
                        assert_string_equal(driver.failed, "cuMemCreate");
                        end_buffer(gpu, b->at);
                        buffer_count--;
                } else {
                        assert_int_equal(gpu->heap.mapped, 0);
                        assert_int_equal(driver_handles(), 0);
                }
        }
        assert_in_range(n, 9, 14); /* three pieces of three calls each */
        assert_int_not_equal(discarded, 0);
}

static void buffers_come_to_the_card_as_far_as_there_is_room(void **state)
{
        struct buffer *a = on_host(16 * MIB), *b = on_host(64 * MIB);

        arrange();
        assert_int_equal(bytes_on_card(a), 16 * MIB); /* the smaller buffer first */
        assert_int_equal(bytes_on_card(b), 48 * MIB);
        assert_true(gpu->heap.allocated <= gpu->commit);
        assert_int_equal(own_drains.begun, own_drains.ended);
        carried = 0;
        arrange();
        assert_int_equal(carried, 0); /* everything is in place already */
        gpu->commit = gpu->limit = 128 * MIB;
        arrange();
        assert_int_equal(bytes_on_card(b), 64 * MIB);
}

static void a_buffer_that_is_worth_more_takes_anothers_place(void **state)
{
        struct buffer *a = on_card(40 * MIB), *b = on_host(40 * MIB);

        arrange();
        assert_int_equal(bytes_on_card(a), 40 * MIB);
        assert_int_equal(sublet_buffer_priority(b->at, 1), 0);
        arrange();
        assert_int_equal(bytes_on_card(b), 40 * MIB);
        assert_int_equal(bytes_on_card(a), 24 * MIB);
        assert_int_equal(sublet_buffer_priority(0x1234, 1), -1);
        assert_int_equal(sublet_buffer_priority(b->at, -1), 0);
        arrange();
        assert_int_equal(bytes_on_card(a), 40 * MIB);
}

static void buffers_do_not_move_for_bytes_that_the_daemon_wants_back(void **state)
{
        struct buffer *a = on_card(60 * MIB);

        (void)on_host(64 * MIB);
        /* The daemon asks for bytes back: evictions give them, not moves of buffers. */
        gpu->commit = 32 * MIB;
        gpu->limit = 60 * MIB;
        arrange();
        assert_int_equal(bytes_on_card(a), 60 * MIB);
        assert_int_equal(carried, 0);
        assert_int_equal(own_drains.begun, 0);
}

static void buffers_that_other_processes_have_open_stay(void **state)
{
        struct buffer *a = on_card(40 * MIB), *b = on_host(40 * MIB);
        struct stay *stay = (struct stay *)(uintptr_t)1;

        for (unsigned i = 0; i < block_of(a)->extent_count; i++)
                block_of(a)->extents[i].stay = stay;
        assert_int_equal(sublet_buffer_priority(b->at, 5), 0);
        arrange();
        assert_int_equal(bytes_on_card(a), 40 * MIB);
        for (unsigned i = 0; i < block_of(a)->extent_count; i++)
                block_of(a)->extents[i].stay = NULL;
}

static void a_failed_move_leaves_the_buffer_in_its_place(void **state)
{
        unsigned n;

        for (n = 1; n < 40; n++) {
                struct buffer *b = on_host(EXTENT);

                lock_acquire(&core_lock);
                overflow_changed(gpu);
                lock_release(&core_lock);
                step();
                assert_true((overflow_own() != OWN_NONE));
                drained();
                driver_fail(n, CUDA_ERROR_OUT_OF_MEMORY);
                while (overflow_move())
                        ;
                check_accounts();
                check_contents();
                assert_int_equal(bytes_on_card(b), driver.failed ? 0 : EXTENT);
                assert_false((overflow_own() != OWN_NONE));
                assert_int_equal(own_drains.ended, n);
                end_buffer(gpu, b->at);
                buffer_count--;
                if (!driver.failed)
                        break;
        }
        assert_in_range(n, 5, 8); /* failures of create, map, access; map, access */
        driver_fail(0, CUDA_SUCCESS);
        carry_fails = CUDA_ERROR_UNKNOWN;
        (void)on_host(EXTENT);
        arrange();
        assert_int_equal(gpu->heap.mapped, EXTENT);
}

static void buffers_move_only_while_the_program_runs(void **state)
{
        (void)on_host(EXTENT);
        core.running = false;
        step();
        assert_false((overflow_own() != OWN_NONE));
        core.running = true;
        agent.revoking = true;
        step();
        assert_false((overflow_own() != OWN_NONE));
        agent.revoking = false;
        fake_capturing = true;
        step();
        assert_false((overflow_own() != OWN_NONE));
        fake_capturing = false;
        core.lease = 0;
        step();
        assert_false((overflow_own() != OWN_NONE));
        assert_true(overflow_next_ns() < UINT64_MAX);
        core.lease = 1;
        step();
        assert_true((overflow_own() != OWN_NONE));
        assert_int_equal(overflow_next_ns(), UINT64_MAX);
        drained();
        assert_int_equal(overflow_next_ns(), 0);
        while (overflow_move())
                ;
        assert_int_equal(overflow_next_ns(), UINT64_MAX); /* everything is in place */
        (void)on_host(EXTENT);
        assert_true(overflow_next_ns() < UINT64_MAX);
        arrange();
}

static void drains_for_other_purposes_move_no_buffers(void **state)
{
        lock_acquire(&core_lock);
        assert_false(overflow_drained());
        assert_false(overflow_drain_failed());
        overflow_cancel();
        lock_release(&core_lock);
        assert_int_equal(own_drains.ended, 0);
        assert_false(overflow_move());
}

static void a_drain_that_fails_is_tried_again_later_each_time(void **state)
{
        uint64_t last = 0;

        (void)on_host(EXTENT);
        for (unsigned i = 0; i < 8; i++) {
                uint64_t now, wait;

                step();
                assert_true((overflow_own() != OWN_NONE));
                lock_acquire(&core_lock);
                agent_end_drain(); /* the agent does this first */
                assert_true(overflow_drain_failed());
                now = clock_now_ns();
                lock_release(&core_lock);
                assert_false((overflow_own() != OWN_NONE));
                assert_false(overflow_drained());
                wait = overflow_next_ns() - now;
                assert_true(wait <= 30 * NSEC_PER_SEC);
                assert_true(wait > last || last > 29 * NSEC_PER_SEC);
                last = wait;
        }
        assert_true(last > 29 * NSEC_PER_SEC);
        agent.revoking = false;
        core.running = true;
        arrange();
        assert_int_equal(gpu->heap.mapped, 0);
}

static void no_buffer_moves_after_a_cancel(void **state)
{
        struct buffer *b = on_host(32 * MIB);

        step();
        drained();
        assert_true(overflow_move());
        lock_acquire(&core_lock);
        overflow_cancel();
        lock_release(&core_lock);
        assert_false((overflow_own() != OWN_NONE));
        assert_int_equal(own_drains.ended, 1);
        assert_false(overflow_move());
        assert_int_equal(bytes_on_card(b), EXTENT);
        check_accounts();
        check_contents();
        arrange();
}

static void cancel(void)
{
        lock_acquire(&core_lock);
        overflow_cancel();
        lock_release(&core_lock);
}

static CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                          unsigned long long);

static CUresult create_while_the_daemon_goes(CUmemGenericAllocationHandle *ret, size_t bytes,
                                             const CUmemAllocationProp *prop,
                                             unsigned long long flags)
{
        real.cuMemCreate = create;
        cancel();
        assert_int_equal(own_drains.ended, 0); /* nobody may run before the buffer is in place */
        return create(ret, bytes, prop, flags);
}

static void a_buffer_in_transit_arrives_before_the_program_runs(void **state)
{
        struct buffer *b = on_host(32 * MIB);

        step();
        drained();
        create = real.cuMemCreate;
        real.cuMemCreate = create_while_the_daemon_goes;
        assert_true(overflow_move());
        assert_int_equal(own_drains.ended, 1);
        assert_false((overflow_own() != OWN_NONE));
        assert_int_equal(bytes_on_card(b), EXTENT);
        check_accounts();
        check_contents();
        assert_false(overflow_move());
        arrange();
        assert_int_equal(bytes_on_card(b), 32 * MIB);
}

static CUresult create_while_the_program_allocates(CUmemGenericAllocationHandle *ret, size_t bytes,
                                                   const CUmemAllocationProp *prop,
                                                   unsigned long long flags)
{
        uint64_t room = MIN(gpu->commit, overflow_card_most(gpu, bytes)), cost;
        CUdeviceptr at;

        real.cuMemCreate = create;
        assert_int_equal(heap_allocate(&gpu->heap, bytes, NULL, room, &at, &cost), -ENOSPC);
        return create(ret, bytes, prop, flags);
}

/* Otherwise more would lie on the card than the program may have, and it would never run again. */
static void the_room_of_a_buffer_in_transit_is_taken(void **state)
{
        struct buffer *b = on_host(EXTENT);

        gpu->keep = EXTENT;
        step();
        drained();
        create = real.cuMemCreate;
        real.cuMemCreate = create_while_the_program_allocates;
        assert_true(overflow_move());
        assert_int_equal(bytes_on_card(b), EXTENT);
        assert_false(overflow_move());
        check_accounts();
        check_contents();
}

static struct extent *claimed;

static CUresult create_while_the_agent_claims(CUmemGenericAllocationHandle *ret, size_t bytes,
                                              const CUmemAllocationProp *prop,
                                              unsigned long long flags)
{
        struct heap_cursor c = {0};

        real.cuMemCreate = create;
        lock_acquire(&core_lock);
        while ((claimed = heap_walk(&gpu->heap, &c)) && claimed->busy)
                ;
        claimed->busy = true;
        lock_release(&core_lock);
        return create(ret, bytes, prop, flags);
}

static void a_part_that_gets_memory_of_the_card_stays_the_agents(void **state)
{
        CUdeviceptr at;
        struct heap_place p;

        core.host.allowed = EXTENT;
        create = real.cuMemCreate;
        real.cuMemCreate = create_while_the_agent_claims;
        lock_acquire(&core_lock);
        assert_int_equal(overflow_allocate(gpu, 2 * EXTENT, NULL, &at), 0);
        lock_release(&core_lock);
        assert_true(heap_find(&gpu->heap, at, &p));
        assert_ptr_equal(claimed, &p.block->extents[0]);
        assert_true(claimed->busy);
        assert_int_not_equal(claimed->state, EXTENT_MAPPED);
        assert_int_equal(gpu->heap.mapped, EXTENT);
        claimed->busy = false;
        check_accounts();
        end_buffer(gpu, at);
}

static void trials_learn_when_buffers_are_arranged(void **state)
{
        uint32_t heard;

        (void)on_host(EXTENT);
        lock_acquire(&core_lock);
        overflow_arrange();
        assert_true(overflow_is_arranging());
        assert_false(overflow_is_arranged());
        overflow_changed(gpu); /* does not delay the arrangement */
        assert_int_equal(overflow_next_ns(), 0);
        lock_release(&core_lock);
        step();
        assert_true(overflow_is_arranging());
        drained();
        assert_true(overflow_move());
        heard = bell_listen(&core.changed);
        assert_false(overflow_move());
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_true(overflow_is_arranged());
        /* The drain fails. */
        (void)on_host(EXTENT);
        lock_acquire(&core_lock);
        overflow_arrange();
        lock_release(&core_lock);
        step();
        lock_acquire(&core_lock);
        heard = bell_listen(&core.changed);
        assert_true(overflow_drain_failed());
        assert_int_not_equal(bell_listen(&core.changed), heard);
        lock_release(&core_lock);
        assert_false(overflow_is_arranging());
        assert_false(overflow_is_arranged());
        agent.revoking = false;
        core.running = true;
}

static void small_allocations_keep_a_part_of_the_card(void **state)
{
        assert_int_equal(overflow_card_most(gpu, 1), CARD);
        assert_int_equal(overflow_card_most(gpu, 2 * MIB), CARD - 2 * MIB);
        gpu->unevictable = 28 * MIB;
        assert_int_equal(overflow_card_most(gpu, 1), 100 * MIB);
        gpu->keep = 50 * MIB;
        assert_int_equal(overflow_card_most(gpu, 1), 50 * MIB);
}

static void bytes_in_host_memory_are_requested_from_the_daemon(void **state)
{
        (void)on_host(96 * MIB);
        gpu->attached = true;
        arrange();
        assert_int_equal(gpu->commit_requested, 96 * MIB);
        assert_true(gpu->request_dirty);
        gpu->request_dirty = false;
        arrange();
        assert_false(gpu->request_dirty); /* requests once only */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                OVERFLOW_TEST(a_card_that_cannot_map_host_memory_has_no_overflow),
                OVERFLOW_TEST(buffers_that_do_not_fit_lie_in_host_memory),
                OVERFLOW_TEST(host_memory_that_is_not_promised_is_not_taken),
                OVERFLOW_TEST(a_failed_allocation_gives_all_its_memory_back),
                OVERFLOW_TEST(buffers_come_to_the_card_as_far_as_there_is_room),
                OVERFLOW_TEST(a_buffer_that_is_worth_more_takes_anothers_place),
                OVERFLOW_TEST(buffers_do_not_move_for_bytes_that_the_daemon_wants_back),
                OVERFLOW_TEST(buffers_that_other_processes_have_open_stay),
                OVERFLOW_TEST(a_failed_move_leaves_the_buffer_in_its_place),
                OVERFLOW_TEST(buffers_move_only_while_the_program_runs),
                OVERFLOW_TEST(drains_for_other_purposes_move_no_buffers),
                OVERFLOW_TEST(a_drain_that_fails_is_tried_again_later_each_time),
                OVERFLOW_TEST(no_buffer_moves_after_a_cancel),
                OVERFLOW_TEST(a_buffer_in_transit_arrives_before_the_program_runs),
                OVERFLOW_TEST(the_room_of_a_buffer_in_transit_is_taken),
                OVERFLOW_TEST(a_part_that_gets_memory_of_the_card_stays_the_agents),
                OVERFLOW_TEST(trials_learn_when_buffers_are_arranged),
                OVERFLOW_TEST(small_allocations_keep_a_part_of_the_card),
                OVERFLOW_TEST(bytes_in_host_memory_are_requested_from_the_daemon),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
