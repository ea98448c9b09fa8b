/* test_overflow_bounds.c: places of buffers during trials, and when the daemon promises less
 * memory; the order of buffers, and buffers that never move. */
#include "unit.h"

#include "overflow_bench.h"

#include <errno.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "heap_end.h"
#include "preload/agent/agent_state.h"
#include "preload/process/mode.h"
#include "preload/overflow/overflow.h"
#include "preload/overflow/profile.h"
#include "preload/stream/quiesce.h"
#include "preload/state/daemon.h"
#include "preload/state/request.h"

/* ---- trials ---- */

static void trials_have_one_buffer_on_the_card_and_the_others_off_it(void **state)
{
        struct buffer *a = on_card(24 * MIB), *b = on_host(16 * MIB), *c = on_card(8 * MIB);

        trial_room = 24 * MIB;
        tried[0] = block_of(a);
        on_trial = block_of(b);
        arrange();
        assert_int_equal(bytes_on_card(a), 0);
        assert_int_equal(bytes_on_card(b), 16 * MIB);
        /* The buffer c is not tried: it lies where it would without trials. */
        assert_int_equal(bytes_on_card(c), 8 * MIB);
        /* The baseline of a trial: no tried buffer is on the card. */
        tried[1] = block_of(b);
        on_trial = NULL;
        gpu->commit_used_ns = 0;
        arrange();
        assert_int_equal(bytes_on_card(b), 0);
        assert_int_equal(bytes_on_card(c), 8 * MIB);
        assert_int_not_equal(gpu->commit_used_ns, 0); /* keeps the commit for the buffer's return */
        trial_room = 0;
        tried[0] = tried[1] = NULL;
        arrange();
        assert_int_equal(bytes_on_card(a) + bytes_on_card(b), 40 * MIB);
}

/* Buffers that are not tried leave room for the tried one, but no more than half of the card. */
static void trials_keep_room_for_the_buffer_on_trial(void **state)
{
        struct buffer *free_one = on_card(40 * MIB), *large = on_host(48 * MIB);

        trial_room = 16 * MIB;
        tried[0] = block_of(large);
        arrange();
        assert_int_equal(bytes_on_card(free_one), 40 * MIB); /* 48 MiB are left for it */
        trial_room = 48 * MIB;
        arrange();
        assert_int_equal(bytes_on_card(free_one), 32 * MIB);
        on_trial = block_of(large);
        arrange();
        assert_true(bytes_on_card(large) >= 32 * MIB);
        trial_room = 0;
        on_trial = tried[0] = NULL;
        arrange();
}

static void buffers_in_place_are_arranged_at_once(void **state)
{
        uint32_t before = bell_listen(&core.changed);

        (void)on_card(8 * MIB);
        placings = 0;
        lock_acquire(&core_lock);
        overflow_arrange();
        lock_release(&core_lock);
        step();
        assert_false(overflow_is_arranging());
        assert_true(overflow_is_arranged());
        assert_int_equal(own_drains.begun, 0);
        assert_int_equal(placings, 1);
        assert_int_not_equal(bell_listen(&core.changed), before);
}

static void an_arrangement_without_host_memory_fails(void **state)
{
        struct buffer *a = on_card(24 * MIB);

        trial_room = 24 * MIB;
        tried[0] = block_of(a);
        core.host.allowed = 24 * MIB + 2 * EXTENT - 1; /* two extents may be moving */
        lock_acquire(&core_lock);
        overflow_arrange();
        lock_release(&core_lock);
        step();
        assert_false((overflow_own() != OWN_NONE));
        assert_false(overflow_is_arranging());
        assert_false(overflow_is_arranged());
        assert_int_equal(bytes_on_card(a), 24 * MIB);
        core.host.allowed++;
        lock_acquire(&core_lock);
        overflow_arrange();
        lock_release(&core_lock);
        step();
        assert_true((overflow_own() != OWN_NONE));
        drained();
        while (overflow_move())
                ;
        assert_int_equal(bytes_on_card(a), 0);
        trial_room = 0;
        tried[0] = NULL;
}

static void an_interrupted_arrangement_has_failed(void **state)
{
        (void)on_host(16 * MIB);
        lock_acquire(&core_lock);
        overflow_arrange();
        lock_release(&core_lock);
        step();
        drained();
        assert_true(overflow_move());
        lock_acquire(&core_lock);
        overflow_cancel();
        lock_release(&core_lock);
        assert_false(overflow_is_arranging());
        assert_false(overflow_is_arranged());
        assert_true(overflow_next_ns() > now_ns);
        assert_true(overflow_next_ns() <= now_ns + NSEC_PER_SEC);
        arrange();
        assert_false(overflow_is_arranged()); /* no thread asked for an arrangement */
}

/* ---- bounds ---- */

static void buffers_that_no_longer_fit_stay_in_host_memory(void **state)
{
        struct buffer *b = on_host(32 * MIB);

        /* Moves exactly the bytes that the limit has room for. */
        gpu->limit = EXTENT;
        move_all();
        assert_int_equal(bytes_on_card(b), EXTENT);
        gpu->limit = 3 * EXTENT - 1;
        lock_acquire(&core_lock);
        overflow_changed(gpu);
        lock_release(&core_lock);
        move_all();
        assert_int_equal(bytes_on_card(b), 2 * EXTENT);
        /* The limit is lower by the time of the move. */
        gpu->limit = 64 * MIB;
        lock_acquire(&core_lock);
        overflow_changed(gpu);
        lock_release(&core_lock);
        step();
        gpu->commit = 3 * EXTENT;
        drained();
        while (overflow_move())
                ;
        assert_int_equal(bytes_on_card(b), 3 * EXTENT);
        check_accounts();
        check_contents();
}

static uint64_t left_of(uint64_t promised)
{
        uint64_t bytes;

        lock_acquire(&core_lock);
        request_room(gpu);
        bytes = overflow_free(gpu, promised);
        lock_release(&core_lock);
        assert_int_equal(core.host.taking, 0);
        return bytes;
}

/* As on_host(), for a buffer that may have no memory yet. */
static int place(uint64_t bytes)
{
        struct buffer *b = &buffers[buffer_count];
        int r;

        lock_acquire(&core_lock);
        r = overflow_allocate(gpu, bytes, NULL, &b->at);
        lock_release(&core_lock);
        b->bytes = bytes;
        buffer_count += r == 0;
        return r;
}

static void a_buffer_that_the_host_alone_cannot_hold_begins_on_the_card(void **state)
{
        const struct buffer *a = on_card(16 * MIB), *b = &buffers[buffer_count];
        const uint64_t room = 64 * MIB;

        gpu->visible = daemon_room = gpu_room = room;
        core.host.allowed = core.host.most = daemon_host = 20 * MIB;
        assert_int_equal(left_of(room), (48 + 20) * MIB);
        assert_int_equal(left_of(room - 2 * MIB), (40 + 20) * MIB); /* whole extents */
        assert_int_equal(place(70 * MIB), -ENOMEM);
        gpu_room = 56 * MIB; /* the daemon grants less than it said: another program was faster */
        assert_int_equal(place(68 * MIB), -ENOMEM);
        assert_int_equal(left_of(room), (48 + 20) * MIB);
        gpu_room = room;
        assert_int_equal(place(68 * MIB), 0);
        assert_int_equal(gpu->heap.allocated, a->bytes + 48 * MIB);
        assert_int_equal(gpu->heap.mapped, 20 * MIB);
        assert_int_equal(heap_missing(&gpu->heap), 48 * MIB);
        for (unsigned i = 0; i < 9; i++)
                assert_int_equal(block_of(b)->extents[i].state,
                                 i < 6 ? EXTENT_UNBACKED : EXTENT_MAPPED);
        assert_int_equal(left_of(room), 0);
        end_buffer(gpu, buffers[--buffer_count].at);
        check_accounts();
        arrange();
}

static void buffers_leave_only_into_promised_host_memory(void **state)
{
        struct buffer *a = on_card(16 * MIB);

        trial_room = 16 * MIB;
        tried[0] = block_of(a);
        step();
        assert_false((overflow_own() != OWN_NONE));
        lock_acquire(&core_lock);
        overflow_arrange();
        lock_release(&core_lock);
        step();
        drained();
        core.host.allowed = EXTENT; /* the promise shrinks during the move */
        while (overflow_move())
                ;
        assert_int_equal(bytes_on_card(a), EXTENT);
        check_accounts();
        core.host.allowed = GIB;
        trial_room = 0;
        tried[0] = NULL;
        arrange();
}

static void busy_and_exported_extents_do_not_move(void **state)
{
        struct buffer *b = on_host(32 * MIB);
        struct block *block = block_of(b);

        step();
        drained();
        block->extents[0].busy = true;
        block->extents[1].stay = (struct stay *)(uintptr_t)1;
        while (overflow_move())
                ;
        assert_int_equal(bytes_on_card(b), 16 * MIB);
        assert_int_equal(block->extents[0].state, EXTENT_MAPPED);
        assert_int_equal(block->extents[1].state, EXTENT_MAPPED);
        block->extents[0].busy = false;
        block->extents[1].stay = NULL;
        check_accounts();
}

static void only_large_buffers_of_the_program_move(void **state)
{
        struct block b = {.kind = BLOCK_LARGE};

        assert_true(overflow_places(&b));
        b.dying = true;
        assert_false(overflow_places(&b));
        b = (struct block){.kind = BLOCK_LARGE, .managed = true};
        assert_false(overflow_places(&b));
        b = (struct block){.kind = BLOCK_LARGE, .held = true};
        assert_false(overflow_places(&b));
        b = (struct block){.kind = BLOCK_SLAB};
        assert_false(overflow_places(&b));
}

static void large_buffers_are_reported_to_the_profile(void **state)
{
        struct buffer *large = on_card(2 * MIB);

        lock_acquire(&core_lock);
        profiled = NULL;
        overflow_allocated(gpu, large->at, 2 * MIB);
        assert_ptr_equal(profiled, block_of(large));
        profiled = NULL;
        overflow_allocated(gpu, large->at, HEAP_SMALL_MAX);
        overflow_allocated(gpu, large->at + CARD, 2 * MIB);
        assert_null(profiled);
        overflow_allocated(gpu, large->at, HEAP_SMALL_MAX + 1);
        assert_ptr_equal(profiled, block_of(large));
        lock_release(&core_lock);
}

static void a_program_without_buffers_on_the_host_is_not_disturbed(void **state)
{
        (void)on_card(16 * MIB);
        step();
        request_kicks = 0;
        lock_acquire(&core_lock);
        overflow_changed(gpu);
        lock_release(&core_lock);
        assert_int_equal(request_kicks, 0);
        assert_int_equal(overflow_next_ns(), UINT64_MAX);
        (void)on_host(1);
        assert_int_not_equal(request_kicks, 0);
        assert_true(overflow_next_ns() > now_ns); /* programs allocate many buffers in a row */
        assert_true(overflow_next_ns() < now_ns + NSEC_PER_SEC);
        lock_acquire(&core_lock);
        overflow_step(overflow_next_ns() - 1);
        assert_int_equal(own_drains.begun, 0);
        overflow_step(overflow_next_ns());
        assert_int_equal(own_drains.begun, 1);
        assert_true(overflow_drain_failed());
        agent_end_drain();
        gpu->overflow = false;
        request_kicks = 0;
        overflow_changed(gpu);
        assert_int_equal(request_kicks, 0);
        gpu->overflow = true;
        lock_release(&core_lock);
}

/* After a change, drains are retried as soon as they were at first. */
static void a_change_resets_the_delay_of_failed_drains(void **state)
{
        uint64_t first = 0;

        (void)on_host(EXTENT);
        for (unsigned i = 0; i < 4; i++) {
                step();
                lock_acquire(&core_lock);
                agent_end_drain();
                assert_true(overflow_drain_failed());
                lock_release(&core_lock);
                if (i == 0)
                        first = overflow_next_ns() - now_ns;
        }
        assert_int_equal(overflow_next_ns() - now_ns, 8 * first);
        lock_acquire(&core_lock);
        overflow_changed(gpu);
        lock_release(&core_lock);
        step();
        lock_acquire(&core_lock);
        agent_end_drain();
        assert_true(overflow_drain_failed());
        lock_release(&core_lock);
        assert_int_equal(overflow_next_ns() - now_ns, first);
}

static void no_lease_is_needed_without_a_daemon(void **state)
{
        (void)on_host(EXTENT);
        core.lease = 0;
        daemon_line.link = LINK_HELLO; /* the daemon's answer is expected */
        step();
        assert_false((overflow_own() != OWN_NONE));
        daemon_line.link = LINK_DOWN;
        step();
        assert_true((overflow_own() != OWN_NONE));
        drained();
        while (overflow_move())
                ;
        check_accounts();
}

static void the_most_valuable_buffer_comes_first(void **state)
{
        struct buffer *a = on_host(32 * MIB), *b = on_host(32 * MIB), *c = on_host(24 * MIB);

        gpu->commit = gpu->limit = 34 * MIB; /* room for one buffer */
        arrange();
        assert_int_equal(bytes_on_card(c), 24 * MIB); /* the smallest buffer */
        block_of(b)->use = 5;
        arrange();
        assert_int_equal(bytes_on_card(b), 32 * MIB); /* a buffer known to be used */
        block_of(c)->use = -1;
        block_of(b)->use = 0;
        arrange();
        assert_int_equal(bytes_on_card(a), 32 * MIB); /* the first of equal buffers */
        assert_int_equal(sublet_buffer_priority(c->at + 5, 1), 0);
        arrange();
        assert_int_equal(bytes_on_card(c), 24 * MIB); /* the program's priority decides */
        atomic_store(&core.bystander, true);
        assert_int_equal(sublet_buffer_priority(a->at, 2), 0);
        atomic_store(&core.bystander, false);
        assert_int_equal(block_of(a)->priority, 0);
}

static void the_setting_limits_the_bytes_kept_on_the_card(void **state)
{
        static const struct {
                const char *text;
                uint64_t keep;
        } keeps[] = {{"24MiB", 24 * MIB},
                     {"25MiB", 24 * MIB},
                     {"0", 24 * MIB},
                     {"", 24 * MIB},
                     {"much", 24 * MIB}};

        for (unsigned i = 0; i < ARRAY_SIZE(keeps); i++) {
                assert_int_equal(setenv("SUBLET_KEEP", keeps[i].text, 1), 0);
                overflow_setup();
                lock_acquire(&core_lock);
                overflow_learn(gpu);
                lock_release(&core_lock);
                assert_int_equal(gpu->keep, keeps[i].keep);
        }
        fake_mode = MEMORY_SWAP;
        assert_int_equal(setenv("SUBLET_KEEP", "48MiB", 1), 0);
        overflow_setup();
        fake_mode = MEMORY_OVERFLOW;
        lock_acquire(&core_lock);
        overflow_learn(gpu);
        lock_release(&core_lock);
        assert_int_equal(gpu->keep, 24 * MIB); /* the setting counts in overflow mode only */
        assert_int_equal(unsetenv("SUBLET_KEEP"), 0);
        overflow_setup();
        (void)on_host(64 * MIB);
        arrange();
        assert_int_equal(gpu->heap.allocated, 24 * MIB);
}

/* A GPU that must be left alone, or lacks host memory, does not hold up the others. */
static void each_gpu_is_arranged_by_itself(void **state)
{
        struct gpu *second = &core.gpus[1];
        struct buffer *b = on_host(EXTENT);
        CUdeviceptr at;

        core.gpu_count = 2;
        *second = (struct gpu){.index = 1, .known = true, .managed = true, .own_limit = UINT64_MAX};
        second->visible = CARD; /* the daemon promises nothing on it */
        heap_init(&second->heap, CARD);
        lock_acquire(&core_lock);
        overflow_learn(second);
        lock_release(&core_lock);
        lock_acquire(&core_lock);
        assert_int_equal(overflow_allocate(second, EXTENT, NULL, &at), 0);
        lock_release(&core_lock);
        move_all();
        assert_int_equal(bytes_on_card(b), EXTENT);
        assert_int_equal(second->heap.mapped, EXTENT);
        end_buffer(second, at);
        heap_end(&second->heap);
        core.gpu_count = 1;
        check_accounts();
        check_contents();
}

static void slabs_and_buffers_that_are_held_stay_on_the_card(void **state)
{
        struct buffer *small = on_card(1000), *held = on_card(8 * MIB), *other = on_host(64 * MIB);

        block_of(held)->held = true;
        assert_int_equal(sublet_buffer_priority(other->at, 5), 0);
        arrange();
        assert_int_not_equal(bytes_on_card(small), 0);
        assert_int_equal(bytes_on_card(held), 8 * MIB);
        assert_true(bytes_on_card(other) > 0);
        assert_true(gpu->heap.allocated <= 64 * MIB);
        block_of(held)->held = false;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                OVERFLOW_TEST(trials_have_one_buffer_on_the_card_and_the_others_off_it),
                OVERFLOW_TEST(trials_keep_room_for_the_buffer_on_trial),
                OVERFLOW_TEST(buffers_in_place_are_arranged_at_once),
                OVERFLOW_TEST(an_arrangement_without_host_memory_fails),
                OVERFLOW_TEST(an_interrupted_arrangement_has_failed),
                OVERFLOW_TEST(buffers_that_no_longer_fit_stay_in_host_memory),
                OVERFLOW_TEST(a_buffer_that_the_host_alone_cannot_hold_begins_on_the_card),
                OVERFLOW_TEST(buffers_leave_only_into_promised_host_memory),
                OVERFLOW_TEST(busy_and_exported_extents_do_not_move),
                OVERFLOW_TEST(only_large_buffers_of_the_program_move),
                OVERFLOW_TEST(large_buffers_are_reported_to_the_profile),
                OVERFLOW_TEST(a_program_without_buffers_on_the_host_is_not_disturbed),
                OVERFLOW_TEST(a_change_resets_the_delay_of_failed_drains),
                OVERFLOW_TEST(no_lease_is_needed_without_a_daemon),
                OVERFLOW_TEST(the_most_valuable_buffer_comes_first),
                OVERFLOW_TEST(the_setting_limits_the_bytes_kept_on_the_card),
                OVERFLOW_TEST(each_gpu_is_arranged_by_itself),
                OVERFLOW_TEST(slabs_and_buffers_that_are_held_stay_on_the_card),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
