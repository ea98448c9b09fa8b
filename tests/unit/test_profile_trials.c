/* test_profile_trials.c: a program that repeats itself is timed with its buffers in several places,
 * and the file says what each buffer saves; no disturbance stops the program. */
#include "unit.h"

#include "profile_bench.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/stream/gate.h"
#include "preload/process/mode.h"
#include "preload/overflow/overflow.h"
#include "preload/overflow/profile.h"
#include "preload/overflow/profile_file.h"
#include "preload/stream/quiesce.h"

static void the_saving_of_each_buffer_is_written(void **state)
{
        struct buffer *none = allocate(40 * MIB, 0), *much, *some;

        begin_to_learn();
        much = allocate(20 * MIB, 6 * MS);
        some = allocate(20 * MIB, 2 * MS);
        (void)steps_until(is_tried, 100);
        assert_int_equal(profile_room(), 20 * MIB); /* the earlier buffer is not tried */
        (void)steps_until(is_over, 1000);
        assert_int_equal(file_of(path).count, 2);
        check_saved(20 * MIB, 1, 6 * MS);
        check_saved(20 * MIB, 2, 2 * MS);
        assert_int_equal(block_of(none)->use, 0);
        assert_true(block_of(much)->use > block_of(some)->use);
        assert_true(block_of(some)->use > 0);
        assert_int_equal(profile_place(block_of(much)), PROFILE_FREE);
        assert_false(is_tried());
        assert_int_not_equal(changes, 0); /* every buffer may have to move now */
        changes = 0;
        (void)steps_until(is_over, 1);
        profile_exits();
        assert_int_equal(file_of(path).count, 2);
}

static void a_buffer_that_saves_nothing_comes_last(void **state)
{
        struct buffer *useless, *useful;

        begin_to_learn();
        useless = allocate(40 * MIB, 0);
        useful = allocate(20 * MIB, 6 * MS);
        (void)steps_until(is_over, 1000);
        assert_int_equal(block_of(useless)->use, -1);
        assert_true(block_of(useful)->use > 0);
        assert_int_equal(file_of(path).buffers[0].bytes, 20 * MIB);
}

static void at_most_one_tried_buffer_is_on_the_card(void **state)
{
        unsigned seen = 0;

        begin_to_learn();
        for (unsigned i = 0; i < 3; i++)
                (void)allocate((30 - i) * MIB, (1 + i) * MS);
        (void)steps_until(is_tried, 100);
        for (unsigned n = 0; n < 1000 && !is_over(); n++, step('s')) {
                unsigned cards = 0;

                for (unsigned i = 0; i < buffer_count; i++) {
                        enum profile_place p = profile_place(block_of(&buffers[i]));

                        assert_int_not_equal(p, PROFILE_FREE);
                        cards += p == PROFILE_CARD;
                        seen |= (p == PROFILE_CARD) << i;
                }
                assert_true(cards <= 1);
                assert_int_equal(profile_room(), 30 * MIB); /* room for the largest buffer */
        }
        assert_true(is_over());
        assert_int_equal(seen, 7);
}

/* Each sample covers many short steps, which differ little. */
static void short_steps_are_timed_several_at_a_time(void **state)
{
        unsigned n;

        begin_to_learn();
        ground_ns = 400 * NSEC_PER_USEC;
        (void)allocate(30 * MIB, 100 * NSEC_PER_USEC);
        (void)steps_until(is_tried, 100);
        n = steps_until(is_over, 10000);
        assert_in_range(n, 6 * 50, 10 * 52); /* 20 ms for each sample */
        check_saved(30 * MIB, 1, 100 * NSEC_PER_USEC);
}

static void long_steps_are_timed_one_by_one(void **state)
{
        begin_to_learn();
        ground_ns = 2 * NSEC_PER_SEC;
        (void)allocate(30 * MIB, NSEC_PER_SEC);
        (void)steps_until(is_tried, 100);
        /* A sample takes one step, after one step to settle; the first sample is taken twice. */
        assert_in_range(steps_until(is_over, 100), 12, 22);
        check_saved(30 * MIB, 1, NSEC_PER_SEC);
}

static void savings_of_a_part_are_scaled_to_the_buffer(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        card_bytes = 8 * MIB;
        (void)steps_until(is_over, 1000);
        check_saved(32 * MIB, 1, 8 * MS);
}

static void a_buffer_that_never_fits_gets_no_result(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        (void)allocate(6 * MIB, 2 * MS);
        card_bytes = 6 * MIB; /* less than one extent of the larger buffer */
        (void)steps_until(is_over, 1000);
        assert_int_equal(file_of(path).count, 1);
        check_saved(6 * MIB, 1, 2 * MS);
}

static void a_buffer_that_is_freed_is_tried_no_more(void **state)
{
        struct buffer *b;

        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        b = allocate(6 * MIB, 2 * MS);
        (void)steps_until(is_tried, 100);
        end_of_life(b);
        (void)steps_until(is_over, 1000);
        assert_int_equal(file_of(path).count, 1);
        check_saved(32 * MIB, 1, 8 * MS);
}

static void buffers_that_cannot_be_arranged_end_the_trials(void **state)
{
        struct stat st;

        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        never_arranged = true;
        (void)steps_until(is_over, 1000);
        assert_int_equal(arrangements, 4);
        assert_true(waits > 4 * 60); /* each arrangement is awaited for 20 s */
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, 0);
        profile_exits();
        assert_int_equal(stat(path, &st), -1); /* the file is removed, because nothing was found */
}

static void an_earlier_profile_survives_failed_trials(void **state)
{
        static const char text[] = "sublet profile 1\n";
        int fd = open(path, O_WRONLY | O_CREAT, 0644);
        struct stat st;

        assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
        (void)close(fd);
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        never_arranged = true;
        (void)steps_until(is_over, 1000);
        profile_exits();
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, sizeof(text) - 1);
}

static void work_that_waits_for_later_work_ends_the_trials(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        (void)steps_until(is_tried, 100);
        flight_ns = UINT64_MAX;
        (void)steps_until(is_over, 10);
}

static void only_the_largest_buffer_is_tried_on_a_full_host(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        (void)allocate(16 * MIB, 6 * MS);
        core.host.allowed = 2 * HEAP_EXTENT_MAX + 34 * MIB;
        (void)steps_until(is_over, 1000);
        assert_int_equal(file_of(path).count, 1);
        check_saved(32 * MIB, 1, 8 * MS);
}

static void trials_do_not_begin_without_host_memory(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        core.host.allowed = 2 * HEAP_EXTENT_MAX + 34 * MIB - 1;
        (void)steps_until(is_over, 100);
        assert_int_equal(arrangements, 0);
}

static void buffers_on_the_host_need_no_more_host_memory(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        core.host.allowed = 2 * HEAP_EXTENT_MAX + 34 * MIB;
        gpu->heap.mapped = 32 * MIB;
        (void)steps_until(is_over, 1000);
        assert_int_not_equal(arrangements, 0);
        gpu->heap.mapped = 0;
}

static void only_one_of_two_processes_writes_the_profile(void **state)
{
        int fd = open(path, O_WRONLY | O_CREAT, 0644);

        assert_int_equal(flock(fd, LOCK_EX), 0);
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        (void)steps_until(is_over, 100);
        assert_int_equal(arrangements, 0);
        assert_int_equal(lseek(fd, 0, SEEK_END), 0);
        profile_exits();
        assert_int_equal(access(path, F_OK), 0); /* the file belongs to the other process */
        (void)close(fd);
}

static void trials_do_not_begin_without_a_writable_file(void **state)
{
        assert_int_equal(setenv("SUBLET_PROFILE", "/nonexistent/profile", 1), 0);
        profile_setup();
        (void)allocate(32 * MIB, 8 * MS);
        (void)steps_until(is_over, 100);
        assert_int_equal(arrangements, 0);
}

static void a_program_without_buffers_is_tried_when_it_has_some(void **state)
{
        begin_to_learn();
        for (unsigned i = 0; i < 100; i++)
                step('s');
        assert_false(is_over());
        assert_false(is_tried());
        (void)allocate(32 * MIB, 8 * MS);
        (void)steps_until(is_over, 1000);
        check_saved(32 * MIB, 1, 8 * MS);
}

static void a_program_that_is_still_growing_is_not_tried(void **state)
{
        begin_to_learn();
        for (unsigned i = 0; i < 5; i++) {
                (void)allocate(6 * MIB, MS);
                for (unsigned k = 0; k < 3; k++)
                        step('s');
                assert_false(is_tried());
        }
        (void)steps_until(is_tried, 100);
        /* Freeing and allocating within the former size is no growth. */
        end_of_life(&buffers[--buffer_count]);
        (void)allocate(6 * MIB, MS);
        assert_true(is_tried());
}

static void a_program_that_may_not_run_is_not_timed(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        core.running = false;
        for (unsigned i = 0; i < 50; i++)
                step('s');
        core.running = true;
        fake_capturing = true;
        for (unsigned i = 0; i < 50; i++)
                step('s');
        assert_false(is_tried());
        fake_capturing = false;
        (void)steps_until(is_over, 1000);
        check_saved(32 * MIB, 1, 8 * MS);
}

/* Called while a thread waits for buffers to move: another thread of the program submits work. */
static void another_thread_submits(void)
{
        unsigned before = arrangements;

        profile_submission((uint64_t)'s' << 20);
        assert_int_equal(arrangements, before);
}

static void only_one_thread_at_a_time_arranges_buffers(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        waiting = another_thread_submits;
        (void)steps_until(is_over, 1000);
        assert_int_not_equal(waits, 0);
        check_saved(32 * MIB, 1, 8 * MS);
}

/* Other programs have the card in the middle of each first sample. */
static void samples_with_other_programs_on_the_card_are_repeated(void **state)
{
        unsigned seen = 0, after = 0;

        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        (void)steps_until(is_tried, 100);
        for (unsigned n = 0; n < 1000 && !is_over(); n++) {
                step('s');
                after = seen == arrangements ? after + 1 : 0;
                seen = arrangements;
                if (after == 1) {
                        core.lease++;
                        flight_ns += NSEC_PER_SEC * (1 + n % 3);
                }
        }
        assert_true(is_over());
        check_saved(32 * MIB, 1, 8 * MS);
}

/* Lets the profile find layers and take them for steps: every fourth one begins with other work. */
static void go_on_with_layers(void)
{
        begin_to_learn();
        for (unsigned i = 0; i < 4; i++)
                (void)allocate((32 - 4 * i) * MIB, 4 * MS);
        (void)steps_until(is_tried, 100);
        for (unsigned n = 0; n < 4000 && !is_over(); n++) {
                if (n % 4 == 0)
                        submit('x');
                step('s');
        }
        assert_true(is_over());
}

static void a_longer_step_is_tried_anew(void **state)
{
        go_on_with_layers();
        for (unsigned i = 0; i < 4; i++)
                check_saved((32 - 4 * i) * MIB, 1, 16 * MS + 4 * MS / STEP);
}

static void work_that_repeats_too_seldom_is_no_step(void **state)
{
        ground_ns = 4 * NSEC_PER_SEC;
        go_on_with_layers();
        for (unsigned i = 0; i < 4; i++)
                check_saved((32 - 4 * i) * MIB, 1, 4 * MS);
}

static void a_program_with_new_work_is_tried_anew(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        (void)steps_until(is_tried, 100);
        changes = 0;
        for (unsigned i = 0; i < 5000 && is_tried(); i++)
                submit('z');
        assert_false(is_tried());
        assert_int_not_equal(changes, 0); /* buffers may lie anywhere again */
        assert_int_equal(profile_place(block_of(&buffers[0])), PROFILE_FREE);
        assert_false(is_over());
        for (unsigned n = 0; n < 1000 && !is_over(); n++)
                step('t');
        assert_true(is_over());
        check_saved(32 * MIB, 1, 8 * MS);
}

static void a_child_after_fork_writes_nothing(void **state)
{
        int fd;

        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        (void)steps_until(is_tried, 100);
        profile_forget();
        assert_false(is_tried());
        arrangements = 0;
        for (unsigned i = 0; i < 100; i++)
                step('s');
        assert_int_equal(arrangements, 0);
        fd = open(path, O_WRONLY);
        assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0); /* the profile has released its lock */
        (void)close(fd);
}

/* Runs trials in which way(true) disturbs one of three steps. */
static void step_through(void (*way)(bool in_it))
{
        uint32_t random = 1;

        begin_to_learn();
        for (unsigned i = 0; i < 4; i++)
                (void)allocate((32 - 4 * i) * MIB, 4 * MS);
        (void)steps_until(is_tried, 100);
        for (unsigned n = 0; n < 4000 && !is_over(); n++) {
                random = random * 1664525u + 1013904223u;
                for (unsigned i = 0; i < STEP; i++) {
                        way((random >> 16) % 3 == 0);
                        submit(i == 0 ? 's' : 'k');
                        way(false);
                }
        }
        assert_true(is_over());
        for (unsigned i = 0; i < 4; i++)
                check_saved((32 - 4 * i) * MIB, 1, 4 * MS);
}

static void begins_a_capture(bool in_it)
{
        captures = in_it;
        fake_capturing = false;
}

static void a_sample_interrupted_by_a_capture_is_repeated(void **state)
{
        step_through(begins_a_capture);
}

static void captures_all(bool in_it)
{
        fake_capturing = in_it;
}

static void captured_steps_are_in_no_sample(void **state)
{
        step_through(captures_all);
}

static void may_not_run(bool in_it)
{
        core.running = !in_it;
}

static void waiting_steps_are_in_no_sample(void **state)
{
        step_through(may_not_run);
}

static void buffers_that_live_for_one_step_are_no_growth(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        (void)allocate(6 * MIB, 0);
        for (unsigned n = 0; n < 100 && !is_tried(); n++) {
                end_of_life(&buffers[--buffer_count]);
                (void)allocate(6 * MIB, 0);
                step('s');
        }
        assert_true(is_tried());
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                PROFILE_TEST(the_saving_of_each_buffer_is_written),
                PROFILE_TEST(a_buffer_that_saves_nothing_comes_last),
                PROFILE_TEST(at_most_one_tried_buffer_is_on_the_card),
                PROFILE_TEST(short_steps_are_timed_several_at_a_time),
                PROFILE_TEST(long_steps_are_timed_one_by_one),
                PROFILE_TEST(savings_of_a_part_are_scaled_to_the_buffer),
                PROFILE_TEST(a_buffer_that_never_fits_gets_no_result),
                PROFILE_TEST(a_buffer_that_is_freed_is_tried_no_more),
                PROFILE_TEST(buffers_that_cannot_be_arranged_end_the_trials),
                PROFILE_TEST(an_earlier_profile_survives_failed_trials),
                PROFILE_TEST(work_that_waits_for_later_work_ends_the_trials),
                PROFILE_TEST(only_the_largest_buffer_is_tried_on_a_full_host),
                PROFILE_TEST(trials_do_not_begin_without_host_memory),
                PROFILE_TEST(buffers_on_the_host_need_no_more_host_memory),
                PROFILE_TEST(only_one_of_two_processes_writes_the_profile),
                PROFILE_TEST(trials_do_not_begin_without_a_writable_file),
                PROFILE_TEST(a_program_without_buffers_is_tried_when_it_has_some),
                PROFILE_TEST(a_program_that_is_still_growing_is_not_tried),
                PROFILE_TEST(a_program_that_may_not_run_is_not_timed),
                PROFILE_TEST(only_one_thread_at_a_time_arranges_buffers),
                PROFILE_TEST(samples_with_other_programs_on_the_card_are_repeated),
                PROFILE_TEST(a_longer_step_is_tried_anew),
                PROFILE_TEST(work_that_repeats_too_seldom_is_no_step),
                PROFILE_TEST(a_program_with_new_work_is_tried_anew),
                PROFILE_TEST(a_child_after_fork_writes_nothing),
                PROFILE_TEST(a_sample_interrupted_by_a_capture_is_repeated),
                PROFILE_TEST(captured_steps_are_in_no_sample),
                PROFILE_TEST(waiting_steps_are_in_no_sample),
                PROFILE_TEST(buffers_that_live_for_one_step_are_no_growth),
        };

        return run_each(tests, ARRAY_SIZE(tests));
}
