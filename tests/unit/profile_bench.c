/* profile_bench.c: the program, the clock and the fakes of other modules for the profile's
 * tests. */
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
#include "preload/overflow/overflow.h"
#include "preload/overflow/profile.h"
#include "preload/overflow/profile_file.h"
#include "preload/stream/quiesce.h"

char path[64];
static char folder[] = "/tmp/test_profile_XXXXXX";

struct buffer buffers[BUFFERS];
unsigned buffer_count;
uint64_t ground_ns = 30 * MS;

/* ---- fakes of other modules ---- */

uint64_t now_ns = 1000 * NSEC_PER_SEC;
uint64_t flight_ns, card_bytes = UINT64_MAX;
bool never_arranged, captures;
unsigned arrangements, changes, waits;
void (*waiting)(void);
static bool arranging, arranged;

int clock_gettime(clockid_t which, struct timespec *ret)
{
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

enum quiescence quiesce_poll(struct quiesce_wait *w)
{
        uint64_t passes =
                flight_ns == UINT64_MAX ? NSEC_PER_SEC : MIN(flight_ns, MAX(flight_ns / 4, 2 * MS));

        fake_capturing = fake_capturing || captures;
        if (fake_capturing)
                return QUIESCE_CAPTURE;
        if (flight_ns == 0)
                return QUIESCE_DONE;
        now_ns += passes;
        flight_ns -= flight_ns == UINT64_MAX ? 0 : passes;
        return QUIESCE_BUSY;
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

/* Moves buffers to the card or the host while the program's thread waits; takes 300 ms. */
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

struct block *block_of(const struct buffer *b)
{
        struct heap_place p;

        assert_true(heap_find(&gpu->heap, b->at, &p));
        return p.block;
}

struct buffer *allocate(uint64_t bytes, uint64_t saves_ns)
{
        struct buffer *b = &buffers[buffer_count++];
        uint64_t cost;

        lock_acquire(&core_lock);
        assert_int_equal(heap_allocate(&gpu->heap, bytes, NULL, UINT64_MAX, &b->at, &cost), 0);
        b->bytes = bytes;
        b->saves_ns = saves_ns;
        profile_allocated(gpu, block_of(b));
        lock_release(&core_lock);
        return b;
}

void end_of_life(const struct buffer *b)
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

void submit(char work)
{
        profile_submission((uint64_t)work << 20);
        if (flight_ns != UINT64_MAX)
                flight_ns += step_ns() / STEP;
        assert_int_equal(core.waiters, 0);
        assert_int_equal(atomic_load(&core_lock.word), 0);
}

void step(char begins_with)
{
        submit(begins_with);
        for (unsigned i = 1; i < STEP; i++)
                submit('k');
}

bool is_tried(void)
{
        return profile_room() > 0;
}

bool is_over(void)
{
        return !(atomic_load(&gate_bits) & GATE_PROFILE);
}

unsigned steps_until(bool (*done)(void), unsigned most)
{
        unsigned n = 0;

        for (; !done() && n < most; n++)
                step('s');
        assert_true(done());
        return n;
}

struct profile_list file_of(const char *name)
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

void check_saved(uint64_t bytes, uint64_t nth, uint64_t ns)
{
        struct profile_list list = file_of(path);

        for (size_t i = 0; i < list.count; i++)
                if (list.buffers[i].bytes == bytes && list.buffers[i].nth == nth) {
                        assert_in_range(list.buffers[i].saved_ns, ns - ns / 100, ns + ns / 100);
                        return;
                }
        fail_msg("no buffer of %llu bytes", (unsigned long long)bytes);
}

void begin_to_learn(void)
{
        assert_int_equal(setenv("SUBLET_PROFILE", path, 1), 0);
        profile_setup();
        assert_false(is_over());
        assert_false(is_tried());
}

int begin_profile(void **state)
{
        core_lock = (struct lock){0};
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

int end_profile(void **state)
{
        assert_int_equal(core.host.taking, 0);
        (void)unlink(path);
        assert_int_equal(rmdir(folder), 0);
        return 0;
}

int run_each(const struct CMUnitTest *tests, unsigned count)
{
        int failed = 0;

        for (unsigned i = 0; i < count; i++) {
                const struct CMUnitTest one[] = {tests[i]};
                int status = 1;
                pid_t child = fork();

                if (child == 0)
                        _exit(cmocka_run_group_tests_name(one[0].name, one, NULL, NULL) != 0);
                failed += child < 0 || waitpid(child, &status, 0) != child || status != 0;
        }
        return failed;
}
