/* test_arena.c: the arena hands out host memory once, with all pages present, and gives it back to
 * the system in whole segments. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/host.h"
#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/heap/arena.h"
#include "preload/heap/lent.h"
#include "preload/process/libc_compat.h"

#define UNIT (2 * MIB)

static bool no_threads, refuses;
static _Atomic unsigned threads;
static pthread_t started[64];
static unsigned started_count;
static _Atomic unsigned registered;
static _Atomic bool pinning_waits; /* until the test goes on */
static CUcontext const context = (CUcontext)(uintptr_t)7;

/* Several threads call these, so they are not those of the fake driver. */
static CUresult fake_register(void *p, size_t bytes, unsigned flags)
{
        while (pinning_waits)
                (void)sched_yield();
        if (refuses)
                return CUDA_ERROR_OUT_OF_MEMORY;
        registered++;
        return CUDA_SUCCESS;
}

static CUresult fake_unregister(void *p)
{
        registered--;
        return CUDA_SUCCESS;
}

static CUresult fake_get_current(CUcontext *ret)
{
        *ret = context;
        return CUDA_SUCCESS;
}

static CUresult fake_set_current(CUcontext c)
{
        assert_ptr_equal(c, context);
        return CUDA_SUCCESS;
}

static CUresult fake_relax(CUstreamCaptureMode *mode)
{
        return CUDA_SUCCESS;
}

int compat_thread_start(void *(*start)(void *), void *argument)
{
        assert_true(started_count < ARRAY_SIZE(started));
        if (no_threads || pthread_create(&started[started_count], NULL, start, argument) != 0)
                return EAGAIN;
        threads++;
        started_count++;
        return 0;
}

/* Returns five processors: the tests expect that many, whatever the machine has. */
int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *ret)
{
        CPU_ZERO(ret);
        for (int i = 0; i < 5; i++)
                CPU_SET(i, ret);
        return 0;
}

/* The host as each look finds it: it offers at most so much at a time, and after some looks other
 * programs have taken the rest. */
static uint64_t share_most;
static unsigned looks, looks_with_room;

uint64_t host_memory_share(const struct host_memory *m)
{
        looks++;
        if (looks > looks_with_room)
                host_room = 0;
        return MIN(host_room, share_most);
}

static struct arena *arena;

static int begin(void **state)
{
        real.cuMemHostRegister_v2 = fake_register;
        real.cuMemHostUnregister = fake_unregister;
        real.cuCtxGetCurrent = fake_get_current;
        real.cuCtxSetCurrent = fake_set_current;
        real.cuThreadExchangeStreamCaptureMode = fake_relax;
        host_room = share_most = UINT64_MAX;
        host_total = 0;
        looks = 0;
        looks_with_room = UINT_MAX;
        no_host_figures = no_threads = refuses = false;
        threads = 0;
        arena = arena_new(8 * MIB);
        assert_non_null(arena);
        return 0;
}

static int end(void **state)
{
        arena_trim(arena, 0);
        while (started_count) /* a stack that goes later would disturb the next test */
                assert_int_equal(pthread_join(started[--started_count], NULL), 0);
        assert_int_equal(arena_bytes(arena), 0);
        assert_int_equal(registered, 0);
        free(arena);
        return 0;
}

/* Checks that each page exists, and that no other thread writes into the room. */
static void check_room(const struct arena_room *r, uint64_t bytes, unsigned char mark)
{
        unsigned char there[8 * MIB / 4096];
        uint64_t sum = 0;

        for (unsigned i = 0; i < r->count; i++) {
                const struct arena_piece *p = &r->pieces[i];

                assert_int_equal(p->bytes % UNIT, 0);
                assert_int_equal((uintptr_t)p->host % UNIT, 0);
                for (uint64_t at = 0; at < p->bytes; at += 8 * MIB) {
                        uint64_t n = MIN(p->bytes - at, 8 * MIB);

                        assert_int_equal(mincore(p->host + at, n, there), 0);
                        for (uint64_t k = 0; k < n / 4096; k++)
                                assert_int_equal(there[k] & 1, 1);
                        for (uint64_t k = 0; mark && k < n; k += UNIT)
                                p->host[at + k] = (char)mark;
                }
                sum += p->bytes;
        }
        assert_int_equal(sum, bytes);
}

static bool is_marked(const struct arena_room *r, unsigned char mark)
{
        for (unsigned i = 0; i < r->count; i++)
                for (uint64_t k = 0; k < r->pieces[i].bytes; k += UNIT)
                        if ((unsigned char)r->pieces[i].host[k] != mark)
                                return false;
        return true;
}

static void each_page_exists_and_is_handed_out_once(void **state)
{
        struct arena_room rooms[12];

        for (unsigned i = 0; i < ARRAY_SIZE(rooms); i++) {
                assert_int_equal(arena_take(arena, (1 + i % 3) * UNIT, &rooms[i]), 0);
                check_room(&rooms[i], (1 + i % 3) * UNIT, (unsigned char)(i + 1));
        }
        assert_int_equal(arena_bytes(arena), 48 * MIB); /* 24 units, four in a segment */
        assert_int_equal(registered, 6);
        for (unsigned i = 0; i < ARRAY_SIZE(rooms); i++) {
                assert_true(is_marked(&rooms[i], (unsigned char)(i + 1)));
                arena_give(arena, &rooms[i]);
                assert_int_equal(rooms[i].count, 0);
                assert_null(rooms[i].pieces);
        }
        assert_int_equal(arena_bytes(arena), 48 * MIB); /* the segments are kept for later */
}

static void room_that_was_given_back_is_used_again(void **state)
{
        struct arena_room all[8], two, none = {0};

        for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
                assert_int_equal(arena_take(arena, UNIT, &all[i]), 0);
        for (unsigned round = 0; round < 3; round++) {
                /* Two gaps that are apart make one room of two pieces. */
                arena_give(arena, &all[1]);
                arena_give(arena, &all[6]);
                assert_int_equal(arena_take(arena, 2 * UNIT, &two), 0);
                check_room(&two, 2 * UNIT, 99);
                assert_int_equal(two.count, 2);
                assert_int_equal(arena_bytes(arena), 16 * MIB);
                arena_give(arena, &two);
                assert_int_equal(arena_take(arena, UNIT, &all[1]), 0);
                assert_int_equal(arena_take(arena, UNIT, &all[6]), 0);
                assert_ptr_not_equal(all[1].pieces[0].host, all[6].pieces[0].host);
                assert_int_equal(arena_bytes(arena), 16 * MIB);
        }
        /* All units are taken, so one more needs a new segment. */
        assert_int_equal(arena_take(arena, UNIT, &two), 0);
        assert_int_equal(arena_bytes(arena), 24 * MIB);
        arena_give(arena, &two);
        arena_give(arena, &none);
        for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
                arena_give(arena, &all[i]);
}

static void adjacent_units_form_one_piece(void **state)
{
        struct arena_room a, b;

        assert_int_equal(arena_take(arena, 3 * UNIT, &a), 0);
        assert_int_equal(a.count, 1);
        assert_int_equal(arena_take(arena, 3 * UNIT, &b), 0);
        assert_int_equal(b.count, 2); /* the last unit of a segment, and two of another */
        arena_give(arena, &a);
        arena_give(arena, &b);
        assert_int_equal(arena_take(arena, 4 * UNIT, &a), 0);
        assert_int_equal(a.count, 1);
        arena_give(arena, &a);
}

static void a_large_request_takes_several_segments(void **state)
{
        struct arena_room a, b;

        assert_int_equal(arena_take(arena, 65 * UNIT, &a), 0);
        assert_int_equal(arena_bytes(arena), 65 * UNIT);
        assert_int_equal(a.count, 17);
        check_room(&a, 65 * UNIT, 7);
        arena_give(arena, &a);
        assert_int_equal(arena_take(arena, 64 * UNIT, &a), 0);
        assert_int_equal(arena_take(arena, UNIT, &b), 0);
        assert_int_equal(arena_bytes(arena), 65 * UNIT);
        check_room(&a, 64 * UNIT, 7);
        check_room(&b, UNIT, 8);
        assert_true(is_marked(&a, 7));
        arena_give(arena, &a);
        arena_give(arena, &b);
}

/* Such segments have more units than a word has bits. */
static void large_segments_are_used_to_the_last_unit(void **state)
{
        struct arena *large = arena_new(130 * UNIT);
        struct arena_room rooms[2];

        assert_int_equal(arena_take(large, 10 * 130 * UNIT, &rooms[0]), 0);
        assert_int_equal(rooms[0].count, 10);
        arena_give(large, &rooms[0]);
        assert_int_equal(arena_take(large, 65 * UNIT, &rooms[0]), 0);
        assert_int_equal(arena_take(large, (10 * 130 - 65) * UNIT, &rooms[1]), 0);
        check_room(&rooms[0], 65 * UNIT, 7);
        check_room(&rooms[1], (10 * 130 - 65) * UNIT, 8);
        assert_true(is_marked(&rooms[0], 7));
        assert_int_equal(arena_bytes(large), 10 * 130 * UNIT);
        arena_give(large, &rooms[0]);
        arena_give(large, &rooms[1]);
        arena_trim(large, 0);
        free(large);
}

static void small_segments_are_whole_units(void **state)
{
        struct arena *odd = arena_new(3 * MIB);
        struct arena_room r;

        assert_int_equal(arena_take(odd, UNIT, &r), 0);
        assert_int_equal(arena_bytes(odd), 4 * MIB);
        arena_give(odd, &r);
        arena_trim(odd, 0);
        free(odd);
}

static void an_arena_takes_no_more_than_the_host_has(void **state)
{
        struct arena_room a, b;

        host_room = 8 * MIB - 1; /* a segment has as much */
        assert_int_equal(arena_take(arena, UNIT, &a), -ENOMEM);
        assert_int_equal(arena_bytes(arena), 0);
        host_room = 8 * MIB;
        assert_int_equal(arena_take(arena, 3 * UNIT, &a), 0);
        host_room = 0;
        assert_int_equal(arena_take(arena, 2 * UNIT, &b), -ENOMEM); /* only one unit is free */
        assert_int_equal(arena_take(arena, UNIT, &b), 0);
        check_room(&b, UNIT, 1);
        arena_give(arena, &a);
        arena_give(arena, &b);
        no_host_figures = true; /* without figures of the host the arena tries to map memory */
        assert_int_equal(arena_take(arena, 5 * UNIT, &a), 0);
        arena_give(arena, &a);
}

/* Programs that look at the same moment see the same room. */
static void the_host_is_looked_at_again_after_each_share(void **state)
{
        struct arena_room r;

        share_most = 8 * UNIT;
        assert_int_equal(arena_take(arena, 12 * UNIT, &r), 0);
        assert_int_equal(looks, 3); /* each as soon as less than half of the share is left */
        arena_give(arena, &r);
        share_most = UNIT; /* six units of the last share are left, but it is an old one */
        assert_int_equal(arena_take(arena, 20 * UNIT, &r), 0);
        assert_int_equal(looks, 11);
        arena_give(arena, &r);
}

/* If all programs gave back what they have touched, all would begin again at once. */
static void what_was_touched_before_the_room_ended_stays(void **state)
{
        struct arena_room a, b;

        no_threads = true;
        share_most = UNIT;
        looks_with_room = 6;
        assert_int_equal(arena_take(arena, 20 * UNIT, &a), -ENOMEM);
        assert_int_equal(looks, 7);
        assert_int_equal(arena_bytes(arena), 6 * UNIT); /* a segment, and half of another */
        assert_int_equal(registered, 2);
        assert_int_equal(arena_take(arena, 6 * UNIT, &a), 0);
        check_room(&a, 6 * UNIT, 5);
        assert_int_equal(arena_take(arena, UNIT, &b), -ENOMEM);
        arena_give(arena, &a);
}

static void makers_together_touch_no_more_than_the_shares(void **state)
{
        struct arena_room r;
        uint64_t made;

        share_most = 3 * UNIT;
        looks_with_room = 4;
        assert_int_equal(arena_take(arena, 40 * UNIT, &r), -ENOMEM);
        assert_int_equal(threads, 5);
        made = arena_bytes(arena); /* a maker looks before its share is used up */
        assert_in_range(made, 4 * 2 * UNIT, 4 * 3 * UNIT);
        assert_int_equal(arena_take(arena, made, &r), 0);
        check_room(&r, made, 5);
        arena_give(arena, &r);
}

static void memory_is_made_by_several_threads_if_they_start(void **state)
{
        struct arena_room r;

        assert_int_equal(arena_take(arena, 40 * UNIT, &r), 0);
        assert_int_equal(threads, 5); /* one for each processor */
        check_room(&r, 40 * UNIT, 0);
        arena_give(arena, &r);
        arena_trim(arena, 0);
        threads = 0;
        assert_int_equal(arena_take(arena, 8 * UNIT, &r), 0);
        assert_int_equal(threads, 1); /* one for at least 16 MiB */
        arena_give(arena, &r);
        arena_trim(arena, 0);
        no_threads = true;
        assert_int_equal(arena_take(arena, 9 * UNIT, &r), 0);
        check_room(&r, 9 * UNIT, 0);
        arena_give(arena, &r);
}

static void *take_much(void *ret)
{
        assert_int_equal(arena_take(arena, 64 * UNIT, ret), 0);
        return NULL;
}

static void makers_that_come_later_leave_processors_to_the_earlier_ones(void **state)
{
        struct arena_room r;
        pthread_t taker;

        pinning_waits = true;
        assert_true(arena_add(arena, 64 * UNIT));
        assert_int_equal(threads, 2);
        assert_int_equal(pthread_create(&taker, NULL, take_much, &r), 0);
        while (threads < 5)
                (void)sched_yield();
        pinning_waits = false;
        assert_int_equal(pthread_join(taker, NULL), 0);
        assert_int_equal(threads, 5);
        check_room(&r, 64 * UNIT, 0);
        arena_give(arena, &r);
}

static void memory_that_cannot_be_pinned_serves_as_well(void **state)
{
        struct arena_room r;

        refuses = true;
        assert_int_equal(arena_take(arena, UNIT, &r), 0);
        check_room(&r, UNIT, 1);
        assert_int_equal(registered, 0);
        assert_false(arena_add(arena, 5 * UNIT));
        arena_give(arena, &r);
        arena_trim(arena, 0); /* the driver must not be asked to unpin it */
}

/* Each call makes only a little, so that the agent can listen to the daemon in between. */
static void memory_pinned_ahead_is_taken_later(void **state)
{
        struct arena_room r;

        assert_false(arena_add(arena, 0));
        assert_true(arena_add(arena, 100 * UNIT));
        arena_rest(arena);
        assert_in_range(arena_bytes(arena), 0, 16 * 8 * MIB);
        no_threads = true;
        while (arena_bytes(arena) < 100 * UNIT)
                assert_true(arena_add(arena, 100 * UNIT - arena_bytes(arena)));
        assert_int_equal(arena_bytes(arena), 100 * UNIT);
        host_room = 3 * UNIT - 1;
        assert_false(arena_add(arena, 3 * UNIT));
        host_room = 0;
        assert_int_equal(arena_take(arena, 100 * UNIT, &r), 0);
        check_room(&r, 100 * UNIT, 1);
        arena_give(arena, &r);
}

static void expected_memory_is_made_ahead(void **state)
{
        struct arena_room rooms[3];

        no_threads = true;
        arena_expect(arena, 12 * MIB, 8 * MIB);
        assert_int_equal(arena_take(arena, 8 * MIB, &rooms[0]), 0);
        assert_int_equal(arena_bytes(arena), 20 * MIB);
        host_room = 0;
        assert_int_equal(arena_take(arena, 12 * MIB, &rooms[1]), 0);
        check_room(&rooms[1], 12 * MIB, 1);
        assert_int_equal(arena_take(arena, 8 * MIB, &rooms[2]), -ENOMEM);
        arena_give(arena, &rooms[0]);
        arena_give(arena, &rooms[1]);
}

/* Several makers begin at once: together they take no more than the host has. */
static void nothing_is_made_if_the_host_lacks_room_for_all(void **state)
{
        struct arena_room r;

        host_room = 100 * UNIT - 1;
        assert_int_equal(arena_take(arena, 100 * UNIT, &r), -ENOMEM);
        assert_int_equal(arena_bytes(arena), 0);
        host_room++;
        assert_int_equal(arena_take(arena, 100 * UNIT, &r), 0);
        arena_give(arena, &r);
}

static void half_of_the_host_is_kept_free_of_what_may_not_be_needed(void **state)
{
        struct arena_room r;

        host_total = GIB;
        host_room = 512 * MIB + 24 * MIB - 1;
        no_threads = true;
        assert_false(arena_add(arena, 24 * MIB));
        assert_true(arena_add(arena, 20 * MIB));
        assert_int_equal(arena_bytes(arena), 20 * MIB);
        arena_expect(arena, 30 * MIB, 16 * MIB);
        assert_int_equal(arena_take(arena, 30 * MIB, &r), 0);
        assert_int_equal(arena_bytes(arena), 50 * MIB); /* nothing ahead */
        arena_give(arena, &r);
        arena_trim(arena, 0);
        host_room++;
        arena_expect(arena, 12 * MIB, 12 * MIB);
        assert_int_equal(arena_take(arena, 12 * MIB, &r), 0);
        assert_int_equal(arena_bytes(arena), 24 * MIB);
        arena_give(arena, &r);
}

static void a_trim_returns_free_segments_until_the_limit_is_met(void **state)
{
        struct arena_room rooms[4];

        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(arena_take(arena, 8 * MIB, &rooms[i]), 0);
        arena_trim(arena, 0);
        assert_int_equal(arena_bytes(arena), 32 * MIB); /* all segments are in use */
        arena_give(arena, &rooms[0]);
        arena_give(arena, &rooms[2]);
        arena_trim(arena, 32 * MIB);
        assert_int_equal(arena_bytes(arena), 32 * MIB);
        arena_trim(arena, 32 * MIB - 1);
        assert_int_equal(arena_bytes(arena), 24 * MIB);
        arena_trim(arena, 16 * MIB);
        assert_int_equal(arena_bytes(arena), 16 * MIB);
        assert_int_equal(registered, 2);
        check_room(&rooms[1], 8 * MIB, 1);
        check_room(&rooms[3], 8 * MIB, 2);
        arena_give(arena, &rooms[1]);
        arena_give(arena, &rooms[3]);
}

/* ---- memory that the daemon lends ---- */

static int lent_file = -1;

/* The daemon lends so much at most. */
static void lend(uint64_t most)
{
        lent_file = memfd_create("pool", MFD_CLOEXEC);
        assert_int_equal(ftruncate(lent_file, (off_t)GIB), 0);
        lent_told(dup(lent_file), most, 0);
}

/* Returns how far the daemon was asked to fill the memfd; 0: not at all. */
static uint64_t asked(void)
{
        uint64_t to = 0, kept;

        return lent_to_say(&to, &kept) ? to : 0;
}

static void fill(uint64_t from, uint64_t to)
{
        assert_int_equal(fallocate(lent_file, 0, (off_t)from, (off_t)(to - from)), 0);
        lent_filled(to, false);
}

static uint64_t lent_blocks(void)
{
        struct stat st;

        assert_int_equal(fstat(lent_file, &st), 0);
        return (uint64_t)st.st_blocks * 512;
}

static int end_lending(void **state)
{
        (void)end(state);
        assert_int_equal(lent_blocks(), 0);
        lent_parted();
        (void)close(lent_file);
        return 0;
}

static void lent_memory_is_used_though_the_container_has_no_room(void **state)
{
        struct arena_room a, b;

        host_room = 0;
        lend(64 * MIB);
        assert_int_equal(arena_take(arena, 12 * MIB, &a), -EAGAIN);
        assert_int_equal(arena_take(arena, 12 * MIB, &a), -EAGAIN);
        assert_int_equal(asked(), 12 * MIB);
        fill(0, 8 * MIB);
        assert_int_equal(arena_take(arena, 12 * MIB, &a), -EAGAIN); /* a part has come */
        assert_int_equal(arena_bytes(arena), 8 * MIB);
        assert_int_equal(asked(), 16 * MIB); /* a whole segment */
        fill(8 * MIB, 16 * MIB);
        assert_int_equal(arena_take(arena, 12 * MIB, &a), 0);
        check_room(&a, 12 * MIB, 1);
        assert_int_equal(arena_lent(arena), 16 * MIB);
        assert_int_equal(lent_blocks(), 16 * MIB);
        assert_true(registered > 0);
        assert_true(is_marked(&a, 1));
        arena_give(arena, &a);
        assert_int_equal(arena_take(arena, 12 * MIB, &b), 0);
        arena_give(arena, &b);
        arena_trim(arena, 0);
        assert_int_equal(arena_lent(arena), 0);
        assert_int_equal(lent_blocks(), 0);
}

static void what_the_daemon_refuses_is_the_processs_own(void **state)
{
        struct arena_room a, b;

        lend(64 * MIB);
        assert_int_equal(arena_take(arena, 16 * MIB, &a), -EAGAIN);
        assert_int_equal(asked(), 16 * MIB);
        fill(0, 4 * MIB);
        lent_filled(4 * MIB, true);
        assert_int_equal(arena_take(arena, 16 * MIB, &a), 0);
        check_room(&a, 16 * MIB, 3);
        assert_int_equal(arena_lent(arena), 4 * MIB);
        host_room = 0;
        assert_int_equal(arena_take(arena, 12 * MIB, &b), -ENOMEM);
        arena_give(arena, &a);
        lent_parted(); /* the daemon is lost: what it has lent stays */
        assert_int_equal(arena_take(arena, 16 * MIB, &a), 0);
        assert_int_equal(arena_lent(arena), 4 * MIB);
        arena_give(arena, &a);
}

/* As of the host's own memory, but of what the daemon lends at most. */
static void half_of_what_is_lent_is_kept_free_of_what_may_not_be_needed(void **state)
{
        struct arena_room r;

        host_room = host_total = 0;
        no_threads = true;
        lend(64 * MIB);
        assert_false(arena_add(arena, 34 * MIB));
        assert_true(arena_add(arena, 24 * MIB));
        assert_int_equal(asked(), 24 * MIB);
        fill(0, 24 * MIB);
        assert_true(arena_add(arena, 24 * MIB));
        assert_int_equal(arena_bytes(arena), 24 * MIB);
        assert_false(arena_add(arena, 16 * MIB));
        arena_expect(arena, 40 * MIB, 16 * MIB);
        assert_int_equal(arena_take(arena, 28 * MIB, &r), -EAGAIN);
        assert_int_equal(asked(), 64 * MIB); /* the 40 MiB that are expected, and nothing ahead */
        fill(24 * MIB, 64 * MIB);
        assert_int_equal(arena_take(arena, 28 * MIB, &r), 0);
        arena_give(arena, &r);
}

static uint64_t mapped_bytes(void)
{
        unsigned long pages = 0;
        FILE *f = fopen("/proc/self/statm", "r");

        assert_int_equal(fscanf(f, "%lu", &pages), 1);
        (void)fclose(f);
        return pages * 4096;
}

/* Pages that were mapped beyond a segment to align it do not stay, either. */
static void a_trim_leaves_no_addresses_behind(void **state)
{
        struct arena_room r;
        uint64_t before;

        no_threads = true; /* stacks of threads would stay mapped */
        for (unsigned i = 0; i < 8; i++) {
                if (i == 1)
                        before = mapped_bytes();
                assert_int_equal(arena_take(arena, 8 * MIB, &r), 0);
                if (i > 1)
                        assert_in_range(mapped_bytes(), before, before + 9 * MIB);
                arena_give(arena, &r);
                arena_trim(arena, 0);
        }
        assert_in_range(mapped_bytes(), before - MIB, before + MIB);
}

/* A fork does not copy segments, and a core file does not contain them. */
static void segments_are_neither_inherited_nor_dumped(void **state)
{
        struct arena_room r;
        FILE *f = fopen("/proc/self/smaps", "r");
        char line[512];
        bool here = false, seen = false;

        assert_int_equal(arena_take(arena, UNIT, &r), 0);
        while (fgets(line, sizeof(line), f)) {
                unsigned long from, to;

                if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
                        here = (uintptr_t)r.pieces[0].host >= from &&
                               (uintptr_t)r.pieces[0].host < to;
                if (!here || strncmp(line, "VmFlags:", 8) != 0)
                        continue;
                seen = true;
                assert_non_null(strstr(line, " dc"));
                assert_non_null(strstr(line, " dd"));
        }
        (void)fclose(f);
        assert_true(seen);
        arena_give(arena, &r);
}

#define ARENA_TEST(name)   cmocka_unit_test_setup_teardown(name, begin, end)
#define LENDING_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end_lending)

int main(void)
{
        const struct CMUnitTest tests[] = {
                ARENA_TEST(each_page_exists_and_is_handed_out_once),
                ARENA_TEST(room_that_was_given_back_is_used_again),
                ARENA_TEST(adjacent_units_form_one_piece),
                ARENA_TEST(a_large_request_takes_several_segments),
                ARENA_TEST(large_segments_are_used_to_the_last_unit),
                ARENA_TEST(small_segments_are_whole_units),
                ARENA_TEST(an_arena_takes_no_more_than_the_host_has),
                ARENA_TEST(the_host_is_looked_at_again_after_each_share),
                ARENA_TEST(what_was_touched_before_the_room_ended_stays),
                ARENA_TEST(makers_together_touch_no_more_than_the_shares),
                ARENA_TEST(memory_is_made_by_several_threads_if_they_start),
                ARENA_TEST(makers_that_come_later_leave_processors_to_the_earlier_ones),
                ARENA_TEST(memory_that_cannot_be_pinned_serves_as_well),
                ARENA_TEST(expected_memory_is_made_ahead),
                ARENA_TEST(nothing_is_made_if_the_host_lacks_room_for_all),
                ARENA_TEST(half_of_the_host_is_kept_free_of_what_may_not_be_needed),
                ARENA_TEST(memory_pinned_ahead_is_taken_later),
                ARENA_TEST(a_trim_returns_free_segments_until_the_limit_is_met),
                LENDING_TEST(lent_memory_is_used_though_the_container_has_no_room),
                LENDING_TEST(what_the_daemon_refuses_is_the_processs_own),
                LENDING_TEST(half_of_what_is_lent_is_kept_free_of_what_may_not_be_needed),
                ARENA_TEST(a_trim_leaves_no_addresses_behind),
                ARENA_TEST(segments_are_neither_inherited_nor_dumped),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
