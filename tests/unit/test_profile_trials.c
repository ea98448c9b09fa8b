/* test_profile_trials.c: a program that repeats itself is timed with its buffers here and there,
 * and what each of them saves is in the file; whatever comes in between, the program goes on. Each
 * test is a process of its own, as each program has one profile. */
#include "unit.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/neighbours.h"
#include "preload/gate.h"
#include "preload/mode.h"
#include "preload/overflow.h"
#include "preload/profile.h"
#include "preload/profile_file.h"
#include "preload/quiet.h"

#define CARD    (128 * MIB)
#define MS      NSEC_PER_MSEC
#define BUFFERS 8u
#define STEP    20u /* submissions of one */

static struct gpu *const gpu = &core.gpus[0];
static enum memory_mode mode = MEMORY_OVERFLOW;
static char folder[] = "/tmp/test_profile_XXXXXX";
static char path[64];

/* What each buffer saves of a step when it is on the card. */
static struct buffer {
        CUdeviceptr at;
        uint64_t bytes, saves_ns;
} buffers[BUFFERS];
static unsigned buffer_count;
static uint64_t ground_ns = 30 * MS;

/* ---- neighbours ---- */

static uint64_t now_ns = 1000 * NSEC_PER_SEC;
static uint64_t flight_ns; /* what is in flight takes so long yet; UINT64_MAX: it does not end */
static bool arranging, arranged, never_arranged;
static uint64_t card_bytes = UINT64_MAX; /* of a buffer at most */
static unsigned arrangements, changes, waits;
static void (*waiting)(void);

int clock_gettime(clockid_t which, struct timespec *ret)
{
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

enum memory_mode mode_memory(void)
{
        return mode;
}

void quiet_begin(struct quiet_wait *w, bool still)
{
        assert_false(still);
}

enum quiet quiet_poll(struct quiet_wait *w)
{
        uint64_t passes =
                flight_ns == UINT64_MAX ? NSEC_PER_SEC : MIN(flight_ns, MAX(flight_ns / 4, 2 * MS));

        if (fake_capturing)
                return QUIET_CAPTURE;
        if (flight_ns == 0)
                return QUIET_DONE;
        now_ns += passes;
        flight_ns -= flight_ns == UINT64_MAX ? 0 : passes;
        return QUIET_BUSY;
}

bool overflow_places(const struct block *b)
{
        return b->kind == BLOCK_LARGE && !b->dying;
}

void overflow_changed(struct gpu *g)
{
        changes++;
}

void overflow_arrange(void)
{
        assert_int_equal(flight_ns, 0);
        arrangements++;
        arranging = true;
        arranged = false;
}

bool overflow_is_arranging(void)
{
        return arranging;
}

bool overflow_is_arranged(void)
{
        return arranged;
}

/* Buffers change sides while the program's thread waits for that; it takes its time. */
static void arrange(const struct core_wait *w)
{
        assert_int_equal(core.waiters, 1);
        waits++;
        now_ns += 300 * MS;
        bell_ring(&core.changed);
        if (waiting)
                waiting();
        if (never_arranged)
                return;
        for (size_t i = 0; i < gpu->heap.count; i++) {
                struct block *b = gpu->heap.blocks[i];
                uint64_t here = 0;

                for (unsigned k = 0; overflow_places(b) && k < b->extent_count; k++) {
                        struct extent *e = &b->extents[k];
                        bool card =
                                profile_place(b) == PROFILE_CARD && here + e->bytes <= card_bytes;

                        e->state = card ? EXTENT_RESIDENT : EXTENT_MAPPED;
                        here += card ? e->bytes : 0;
                }
        }
        arranging = false;
        arranged = true;
}

/* ---- the program ---- */

static struct block *block_of(const struct buffer *b)
{
        struct heap_place p;

        assert_true(heap_find(&gpu->heap, b->at, &p));
        return p.block;
}

static struct buffer *allocate(uint64_t bytes, uint64_t saves_ns)
{
        struct buffer *b = &buffers[buffer_count++];
        uint64_t cost;

        lock_acquire(&core.lock);
        assert_int_equal(heap_allocate(&gpu->heap, bytes, NULL, UINT64_MAX, &b->at, &cost), 0);
        b->bytes = bytes;
        b->saves_ns = saves_ns;
        profile_allocated(gpu, block_of(b));
        lock_release(&core.lock);
        return b;
}

static void end_of_life(const struct buffer *b)
{
        struct block *dead;

        assert_int_equal(heap_free(&gpu->heap, b->at, &dead), 0);
        heap_bury(&gpu->heap, dead);
}

static uint64_t step_ns(void)
{
        uint64_t ns = ground_ns;

        for (struct buffer *b = buffers; b < buffers + buffer_count; b++) {
                struct heap_place p;
                uint64_t here = 0;

                if (!heap_find(&gpu->heap, b->at, &p))
                        continue;
                for (unsigned k = 0; k < p.block->extent_count; k++)
                        here += p.block->extents[k].state == EXTENT_RESIDENT
                                        ? p.block->extents[k].bytes
                                        : 0;
                ns -= b->saves_ns * here / b->bytes;
        }
        return ns;
}

static void submit(char work)
{
        profile_submission((uint64_t)work << 20);
        if (flight_ns != UINT64_MAX)
                flight_ns += step_ns() / STEP;
        assert_int_equal(core.waiters, 0);
        assert_int_equal(atomic_load(&core.lock.word), 0);
}

static void step(char begins_with)
{
        submit(begins_with);
        for (unsigned i = 1; i < STEP; i++)
                submit('k');
}

static bool is_tried(void)
{
        return profile_room() > 0;
}

static bool is_over(void)
{
        return !(atomic_load(&gate_bits) & GATE_PROFILE);
}

/* How many steps it was until then. */
static unsigned steps_until(bool (*done)(void), unsigned most)
{
        unsigned n = 0;

        for (; !done() && n < most; n++)
                step('s');
        assert_true(done());
        return n;
}

static struct profile_list file_of(const char *name)
{
        static char text[PROFILE_TEXT_MAX + 1];
        struct profile_list list = {0};
        struct profile_bad bad = {0};
        int fd = open(name, O_RDONLY);
        ssize_t n = read(fd, text, sizeof(text));

        assert_true(n >= 0);
        (void)close(fd);
        if (n > 0)
                assert_int_equal(profile_parse(text, (size_t)n, &list, &bad), 0);
        assert_int_equal(bad.lines, 0);
        return list;
}

static void check_saved(uint64_t bytes, uint64_t nth, uint64_t ns)
{
        struct profile_list list = file_of(path);

        for (size_t i = 0; i < list.count; i++)
                if (list.buffers[i].bytes == bytes && list.buffers[i].nth == nth) {
                        assert_in_range(list.buffers[i].saved_ns, ns - ns / 100, ns + ns / 100);
                        return;
                }
        fail_msg("no buffer of %llu bytes", (unsigned long long)bytes);
}

static void begin_to_learn(void)
{
        assert_int_equal(setenv("SUBLET_PROFILE", path, 1), 0);
        profile_setup();
        assert_false(is_over());
        assert_false(is_tried());
}

static int begin(void **state)
{
        core = (struct core){.gpu_count = 1};
        driver_reset(CARD);
        gpu->known = gpu->managed = gpu->overflow = true;
        heap_init(&gpu->heap, CARD);
        core.running = true;
        core.lease = 1;
        core.host.allowed = GIB;
        meanwhile = arrange;
        assert_non_null(mkdtemp(folder));
        (void)snprintf(path, sizeof(path), "%s/profile", folder);
        return 0;
}

static int end(void **state)
{
        assert_int_equal(core.host.taking, 0);
        (void)unlink(path);
        assert_int_equal(rmdir(folder), 0);
        return 0;
}

/* ---- the tests ---- */

static void what_each_buffer_saves_is_found_and_written(void **state)
{
        struct buffer *none = allocate(40 * MIB, 0), *much, *some;

        begin_to_learn();
        much = allocate(20 * MIB, 6 * MS);
        some = allocate(20 * MIB, 2 * MS);
        (void)steps_until(is_tried, 100);
        assert_int_equal(profile_room(), 20 * MIB); /* the other is of before */
        (void)steps_until(is_over, 1000);
        assert_int_equal(file_of(path).count, 2);
        check_saved(20 * MIB, 1, 6 * MS);
        check_saved(20 * MIB, 2, 2 * MS);
        assert_int_equal(block_of(none)->use, 0);
        assert_true(block_of(much)->use > block_of(some)->use);
        assert_true(block_of(some)->use > 0);
        assert_int_equal(profile_place(block_of(much)), PROFILE_FREE);
        assert_false(is_tried());
        assert_int_not_equal(changes, 0); /* all may lie elsewhere now */
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

static void while_buffers_are_tried_one_at_most_is_on_the_card(void **state)
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
                assert_int_equal(profile_room(), 30 * MIB); /* of the largest */
        }
        assert_true(is_over());
        assert_int_equal(seen, 7);
}

/* All samples are of many steps then, with little to tell them by. */
static void short_steps_are_timed_several_at_a_time(void **state)
{
        unsigned n;

        begin_to_learn();
        ground_ns = 400 * NSEC_PER_USEC;
        (void)allocate(30 * MIB, 100 * NSEC_PER_USEC);
        (void)steps_until(is_tried, 100);
        n = steps_until(is_over, 10000);
        assert_in_range(n, 6 * 50, 10 * 52); /* 20 ms each */
        check_saved(30 * MIB, 1, 100 * NSEC_PER_USEC);
}

static void long_steps_are_timed_one_by_one(void **state)
{
        begin_to_learn();
        ground_ns = 2 * NSEC_PER_SEC;
        (void)allocate(30 * MIB, NSEC_PER_SEC);
        (void)steps_until(is_tried, 100);
        /* Each is of one step and of one before it, the first is taken twice. */
        assert_in_range(steps_until(is_over, 100), 12, 22);
        check_saved(30 * MIB, 1, NSEC_PER_SEC);
}

static void where_the_card_has_no_room_for_all_of_it_the_rest_counts_as_much(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        card_bytes = 8 * MIB;
        (void)steps_until(is_over, 1000);
        check_saved(32 * MIB, 1, 8 * MS);
}

static void of_a_buffer_that_cannot_come_nothing_is_said(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        (void)allocate(6 * MIB, 2 * MS);
        card_bytes = 6 * MIB; /* one extent of the larger one is more */
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

static void buffers_that_never_lie_as_they_shall_end_the_trials(void **state)
{
        struct stat st;

        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        never_arranged = true;
        (void)steps_until(is_over, 1000);
        assert_int_equal(arrangements, 4);
        assert_true(waits > 4 * 60); /* each for 20 s */
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, 0);
        profile_exits();
        assert_int_equal(stat(path, &st), -1); /* nothing was found */
}

static void a_profile_of_before_outlives_trials_that_come_to_nothing(void **state)
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

static void a_full_host_leaves_the_largest_to_be_tried(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        (void)allocate(16 * MIB, 6 * MS);
        core.host.allowed = 2 * HEAP_EXTENT_MAX + 34 * MIB;
        (void)steps_until(is_over, 1000);
        assert_int_equal(file_of(path).count, 1);
        check_saved(32 * MIB, 1, 8 * MS);
}

static void a_host_without_room_ends_it_before_it_begins(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        core.host.allowed = 2 * HEAP_EXTENT_MAX + 34 * MIB - 1;
        (void)steps_until(is_over, 100);
        assert_int_equal(arrangements, 0);
}

static void what_lies_on_the_host_already_need_not_be_asked_for(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        core.host.allowed = 2 * HEAP_EXTENT_MAX + 34 * MIB;
        gpu->heap.mapped = 32 * MIB;
        (void)steps_until(is_over, 1000);
        assert_int_not_equal(arrangements, 0);
        gpu->heap.mapped = 0;
}

static void of_two_processes_one_writes(void **state)
{
        int fd = open(path, O_WRONLY | O_CREAT, 0644);

        assert_int_equal(flock(fd, LOCK_EX), 0);
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        (void)steps_until(is_over, 100);
        assert_int_equal(arrangements, 0);
        assert_int_equal(lseek(fd, 0, SEEK_END), 0);
        profile_exits();
        assert_int_equal(access(path, F_OK), 0); /* it is the other's */
        (void)close(fd);
}

static void a_file_that_cannot_be_written_ends_it(void **state)
{
        assert_int_equal(setenv("SUBLET_PROFILE", "/nonexistent/profile", 1), 0);
        profile_setup();
        (void)allocate(32 * MIB, 8 * MS);
        (void)steps_until(is_over, 100);
        assert_int_equal(arrangements, 0);
}

static void a_program_without_buffers_is_looked_at_again_later(void **state)
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
        /* What comes and goes within what there was is no growth. */
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

/* Another thread of the program submits meanwhile. */
static void another_thread_submits(void)
{
        unsigned before = arrangements;

        profile_submission((uint64_t)'s' << 20);
        assert_int_equal(arrangements, before);
}

static void one_thread_at_a_time_is_at_it(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        waiting = another_thread_submits;
        (void)steps_until(is_over, 1000);
        assert_int_not_equal(waits, 0);
        check_saved(32 * MIB, 1, 8 * MS);
}

/* Others have the card in the middle of each first sample. */
static void what_is_timed_while_others_had_the_card_is_timed_again(void **state)
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

/* What was taken for steps are layers: every fourth begins another way. */
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

static void what_comes_too_seldom_is_no_step(void **state)
{
        ground_ns = 4 * NSEC_PER_SEC;
        go_on_with_layers();
        for (unsigned i = 0; i < 4; i++)
                check_saved((32 - 4 * i) * MIB, 1, 4 * MS);
}

static void a_program_that_goes_on_to_something_else_is_learnt_anew(void **state)
{
        begin_to_learn();
        (void)allocate(32 * MIB, 8 * MS);
        (void)steps_until(is_tried, 100);
        changes = 0;
        for (unsigned i = 0; i < 5000 && is_tried(); i++)
                submit('z');
        assert_false(is_tried());
        assert_int_not_equal(changes, 0); /* they may lie as they like again */
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
        assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0); /* it has let go of it */
        (void)close(fd);
}

/* ---- what an earlier run has found ---- */

static void write_profile(const char *text, size_t bytes)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

        assert_int_equal(write(fd, text, bytes), bytes);
        (void)close(fd);
        assert_int_equal(setenv("SUBLET_PROFILE_FILE", path, 1), 0);
}

static void buffers_of_a_profile_are_known_by_gpu_size_and_number(void **state)
{
        static const char text[] = "sublet profile 1\n"
                                   "gpu=0 bytes=4194304 nth=2 saved_ns=1000 noise_ns=1\n"
                                   "gpu=1 bytes=6291456 nth=1 saved_ns=1000 noise_ns=1\n"
                                   "gpu=0 bytes=8388608 nth=1 saved_ns=0 noise_ns=1\n";
        struct buffer *first, *second, *other, *useless;

        write_profile(text, sizeof(text) - 1);
        profile_setup();
        assert_true(is_over()); /* nothing is tried */
        first = allocate(4 * MIB, 0);
        second = allocate(4 * MIB, 0);
        other = allocate(6 * MIB, 0);
        useless = allocate(8 * MIB, 0);
        assert_int_equal(block_of(first)->nth, 1);
        assert_int_equal(block_of(second)->nth, 2);
        assert_int_equal(block_of(first)->use, 0);
        assert_true(block_of(second)->use > 0);
        assert_int_equal(block_of(other)->use, 0);
        assert_int_equal(block_of(useless)->use, -1);
        for (unsigned i = 0; i < 100; i++)
                step('s');
        assert_int_equal(arrangements, 0);
        profile_placing(); /* tells how many are known */
}

static void a_profile_may_be_just_so_large(void **state)
{
        static const char line[] = "gpu=0 bytes=4194304 nth=1 saved_ns=1000 noise_ns=1\n";
        char *text = malloc(PROFILE_TEXT_MAX + 1);
        size_t n = (size_t)snprintf(text, PROFILE_TEXT_MAX, "sublet profile 1\n%s#", line);

        memset(text + n, '.', PROFILE_TEXT_MAX + 1 - n);
        write_profile(text, PROFILE_TEXT_MAX + 1);
        profile_setup();
        assert_int_equal(block_of(allocate(4 * MIB, 0))->use, 0);
        write_profile(text, PROFILE_TEXT_MAX);
        profile_setup();
        end_of_life(&buffers[0]);
        free(text);
}

static void a_profile_that_is_none_counts_for_nothing(void **state)
{
        static const char *const texts[] = {"", "something else\n", "sublet profile 99\n"};

        for (unsigned i = 0; i < ARRAY_SIZE(texts); i++) {
                write_profile(texts[i], strlen(texts[i]));
                profile_setup();
                assert_int_equal(block_of(allocate(4 * MIB, 0))->use, 0);
        }
        assert_int_equal(setenv("SUBLET_PROFILE_FILE", "/nonexistent/profile", 1), 0);
        profile_setup();
        assert_int_equal(block_of(allocate(4 * MIB, 0))->use, 0);
}

static void without_the_overflow_nothing_is_tried_or_known(void **state)
{
        profile_setup();
        assert_true(is_over());
        assert_int_equal(setenv("SUBLET_PROFILE", "", 1), 0);
        assert_int_equal(setenv("SUBLET_PROFILE_FILE", "", 1), 0);
        profile_setup();
        assert_true(is_over());
        assert_int_equal(setenv("SUBLET_PROFILE", path, 1), 0);
        mode = MEMORY_SWAP;
        profile_setup();
        assert_true(is_over());
        assert_int_equal(block_of(allocate(4 * MIB, 0))->nth, 0); /* nobody counts */
        for (unsigned i = 0; i < 100; i++)
                step('s');
        assert_int_equal(arrangements, 0);
        profile_exits();
        assert_int_equal(access(path, F_OK), -1);
}

#define PROFILE_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                PROFILE_TEST(what_each_buffer_saves_is_found_and_written),
                PROFILE_TEST(a_buffer_that_saves_nothing_comes_last),
                PROFILE_TEST(while_buffers_are_tried_one_at_most_is_on_the_card),
                PROFILE_TEST(short_steps_are_timed_several_at_a_time),
                PROFILE_TEST(long_steps_are_timed_one_by_one),
                PROFILE_TEST(where_the_card_has_no_room_for_all_of_it_the_rest_counts_as_much),
                PROFILE_TEST(of_a_buffer_that_cannot_come_nothing_is_said),
                PROFILE_TEST(a_buffer_that_is_freed_is_tried_no_more),
                PROFILE_TEST(buffers_that_never_lie_as_they_shall_end_the_trials),
                PROFILE_TEST(a_profile_of_before_outlives_trials_that_come_to_nothing),
                PROFILE_TEST(work_that_waits_for_later_work_ends_the_trials),
                PROFILE_TEST(a_full_host_leaves_the_largest_to_be_tried),
                PROFILE_TEST(a_host_without_room_ends_it_before_it_begins),
                PROFILE_TEST(what_lies_on_the_host_already_need_not_be_asked_for),
                PROFILE_TEST(of_two_processes_one_writes),
                PROFILE_TEST(a_file_that_cannot_be_written_ends_it),
                PROFILE_TEST(a_program_without_buffers_is_looked_at_again_later),
                PROFILE_TEST(a_program_that_is_still_growing_is_not_tried),
                PROFILE_TEST(a_program_that_may_not_run_is_not_timed),
                PROFILE_TEST(one_thread_at_a_time_is_at_it),
                PROFILE_TEST(what_is_timed_while_others_had_the_card_is_timed_again),
                PROFILE_TEST(a_longer_step_is_tried_anew),
                PROFILE_TEST(what_comes_too_seldom_is_no_step),
                PROFILE_TEST(a_program_that_goes_on_to_something_else_is_learnt_anew),
                PROFILE_TEST(a_child_after_fork_writes_nothing),
                PROFILE_TEST(buffers_of_a_profile_are_known_by_gpu_size_and_number),
                PROFILE_TEST(a_profile_may_be_just_so_large),
                PROFILE_TEST(a_profile_that_is_none_counts_for_nothing),
                PROFILE_TEST(without_the_overflow_nothing_is_tried_or_known),
        };
        int failed = 0;

        for (unsigned i = 0; i < ARRAY_SIZE(tests); i++) {
                const struct CMUnitTest one[] = {tests[i]};
                int status = 1;
                pid_t child = fork();

                if (child == 0)
                        return cmocka_run_group_tests_name(one[0].name, one, NULL, NULL);
                failed += child < 0 || waitpid(child, &status, 0) != child || status != 0;
        }
        return failed;
}
