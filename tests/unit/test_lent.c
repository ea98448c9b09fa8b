/* test_lent.c: memory that the daemon lends is mapped in the order of its offsets, each once, and
 * is gone from the memfd when it is given back. With real memfds, filled by the test. */
#include "unit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "preload/heap/lent.h"

#define UNIT (2 * MIB)

static int file; /* the daemon's descriptor */
static uint64_t now_ns = NSEC_PER_SEC;
static uint32_t pool;

int clock_gettime(clockid_t which, struct timespec *ret)
{
        *ret = (struct timespec){.tv_sec = (time_t)(now_ns / NSEC_PER_SEC),
                                 .tv_nsec = (long)(now_ns % NSEC_PER_SEC)};
        return 0;
}

static uint64_t blocks(int fd)
{
        struct stat st;

        assert_int_equal(fstat(fd, &st), 0);
        return (uint64_t)st.st_blocks * 512;
}

static int new_file(void)
{
        const int fd = memfd_create("pool", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)GIB), 0);
        return fd;
}

static void fill(uint64_t from, uint64_t to)
{
        assert_int_equal(fallocate(file, 0, (off_t)from, (off_t)(to - from)), 0);
        lent_filled(to, false);
}

static void check_said(uint64_t to, uint64_t kept)
{
        uint64_t said_to = 1, said_kept = 1;

        assert_true(lent_to_say(&said_to, &said_kept));
        assert_int_equal(said_to, to);
        assert_int_equal(said_kept, kept);
        assert_false(lent_to_say(&said_to, &said_kept));
}

/* Another daemon each time, as nothing else begins anew. */
static int begin(void **state)
{
        now_ns += NSEC_PER_SEC;
        file = new_file();
        lent_told(dup(file), 100 * UNIT, 0);
        check_said(0, 0);
        return 0;
}

static int end(void **state)
{
        uint64_t most, left = lent_left(&most);

        assert_int_equal(left, most); /* each test gives all back */
        assert_int_equal(blocks(file), 0);
        (void)close(file);
        return 0;
}

static void memory_is_asked_for_once_and_mapped_when_it_is_there(void **state)
{
        uint64_t most, to, kept;
        char *a, *b;

        assert_true(lent_is_there());
        assert_int_equal(lent_want(3 * UNIT), LENT_ASKED);
        check_said(3 * UNIT, 0);
        assert_int_equal(lent_want(2 * UNIT), LENT_ASKED);
        assert_false(lent_to_say(&to, &kept));
        assert_null(lent_map(UNIT, &pool));
        fill(0, UNIT);
        assert_int_equal(lent_ready(), UNIT);
        assert_int_equal(lent_want(3 * UNIT), LENT_READY);
        assert_null(lent_map(2 * UNIT, &pool));
        a = lent_map(UNIT, &pool);
        assert_non_null(a);
        assert_int_equal((uintptr_t)a % UNIT, 0);
        assert_int_equal(lent_want(2 * UNIT), LENT_ASKED);
        fill(UNIT, 3 * UNIT);
        b = lent_map(2 * UNIT, &pool);
        assert_non_null(b);
        assert_int_equal(lent_left(&most), 97 * UNIT);
        memset(a, 1, UNIT);
        memset(b, 2, 2 * UNIT);
        assert_int_equal(blocks(file), 3 * UNIT);
        lent_unmap(a, UNIT, pool);
        assert_int_equal(blocks(file), 2 * UNIT);
        /* The next memory has other offsets, and is zero. */
        assert_int_equal(lent_want(UNIT), LENT_ASKED);
        check_said(4 * UNIT, 0);
        fill(3 * UNIT, 4 * UNIT);
        a = lent_map(UNIT, &pool);
        assert_non_null(a);
        for (uint64_t i = 0; i < UNIT; i += 512)
                assert_int_equal(a[i], 0);
        lent_unmap(a, UNIT, pool);
        lent_unmap(b, 2 * UNIT, pool);
}

static void after_a_refusal_it_is_asked_again_later(void **state)
{
        uint64_t to, kept;
        char *a;

        assert_int_equal(lent_want(4 * UNIT), LENT_ASKED);
        check_said(4 * UNIT, 0);
        fill(0, UNIT);
        lent_filled(UNIT, true);
        assert_int_equal(lent_want(4 * UNIT), LENT_READY); /* what has come */
        a = lent_map(UNIT, &pool);
        assert_int_equal(lent_want(3 * UNIT), LENT_NONE);
        assert_false(lent_to_say(&to, &kept));
        now_ns += 100 * NSEC_PER_MSEC;
        assert_int_equal(lent_want(3 * UNIT), LENT_ASKED);
        check_said(4 * UNIT, 0);
        lent_filled(UNIT, true);
        /* The daemon has more to lend now. */
        lent_told(-1, 200 * UNIT, UNIT);
        assert_int_equal(lent_want(3 * UNIT), LENT_ASKED);
        check_said(4 * UNIT, 0);
        /* It lends no more at all. */
        lent_told(-1, 0, UNIT);
        assert_int_equal(lent_want(3 * UNIT), LENT_NONE);
        assert_false(lent_is_there());
        lent_unmap(a, UNIT, pool);
}

static void memory_of_an_earlier_daemon_stays(void **state)
{
        const int earlier = file;
        uint32_t first, second;
        char *a, *b;

        assert_int_equal(lent_want(4 * UNIT), LENT_ASKED);
        check_said(4 * UNIT, 0);
        fill(0, 4 * UNIT);
        a = lent_map(UNIT, &first);
        memset(a, 5, UNIT);
        lent_parted();
        assert_int_equal(lent_want(UNIT), LENT_NONE);
        assert_null(lent_map(UNIT, &first));
        file = new_file();
        lent_told(dup(file), 100 * UNIT, 0);
        check_said(0, UNIT);
        assert_int_equal(blocks(earlier), UNIT); /* what was not mapped was given back */
        assert_int_equal(lent_want(UNIT), LENT_ASKED);
        check_said(UNIT, UNIT);
        fill(0, UNIT);
        b = lent_map(UNIT, &second);
        assert_int_not_equal(first, second);
        for (uint64_t i = 0; i < UNIT; i++)
                assert_int_equal(a[i], 5);
        lent_unmap(a, UNIT, first);
        check_said(UNIT, 0);
        assert_int_equal(blocks(earlier), 0);
        assert_int_equal(blocks(file), UNIT);
        lent_unmap(b, UNIT, second);
        (void)close(earlier);
}

/* The connection was lost, but the daemon lives. */
static void the_same_memfd_goes_on_where_it_was(void **state)
{
        char *a, *b;

        assert_int_equal(lent_want(2 * UNIT), LENT_ASKED);
        check_said(2 * UNIT, 0);
        fill(0, UNIT);
        a = lent_map(UNIT, &pool);
        lent_parted();
        assert_int_equal(fallocate(file, 0, UNIT, UNIT), 0); /* nobody said so */
        lent_told(dup(file), 100 * UNIT, 2 * UNIT);
        check_said(2 * UNIT, 0);
        assert_int_equal(lent_want(UNIT), LENT_READY);
        b = lent_map(UNIT, &pool);
        lent_unmap(a, UNIT, pool);
        lent_unmap(b, UNIT, pool);
}

/* Some programs close all descriptors, and open files of their own. */
static void a_file_of_the_program_is_never_taken_for_the_memfd(void **state)
{
        int mine = -1;
        struct stat ours, st;

        assert_int_equal(fstat(file, &ours), 0);
        assert_int_equal(lent_want(UNIT), LENT_ASKED);
        check_said(UNIT, 0);
        fill(0, UNIT);
        for (int fd = 3; fd < 256; fd++)
                if (fd != file && fstat(fd, &st) == 0 && st.st_ino == ours.st_ino) {
                        mine = new_file();
                        assert_int_equal(dup2(mine, fd), fd);
                        (void)close(mine);
                        mine = fd;
                }
        assert_true(mine >= 0);
        assert_null(lent_map(UNIT, &pool));
        assert_int_equal(lent_want(UNIT), LENT_NONE);
        lent_told(dup(file), 100 * UNIT, UNIT);
        assert_int_equal(fcntl(mine, F_GETFD), 0); /* it is still open */
        check_said(UNIT, 0);
        assert_int_equal(lent_want(UNIT), LENT_READY);
        lent_unmap(lent_map(UNIT, &pool), UNIT, pool);
        (void)close(mine);
}

/* Another process lacks it. */
static void what_is_ready_can_be_given_back(void **state)
{
        char *a;

        assert_int_equal(lent_want(4 * UNIT), LENT_ASKED);
        check_said(4 * UNIT, 0);
        fill(0, 3 * UNIT);
        a = lent_map(UNIT, &pool);
        assert_int_equal(lent_give_back(), 2 * UNIT);
        assert_int_equal(blocks(file), UNIT);
        assert_int_equal(lent_give_back(), 0);
        check_said(3 * UNIT, 0); /* no more is wanted */
        assert_int_equal(lent_want(UNIT), LENT_ASKED);
        check_said(4 * UNIT, 0);
        lent_unmap(a, UNIT, pool);
}

static void locked_memory_is_given_back_too(void **state)
{
        char *a;

        assert_int_equal(lent_want(UNIT), LENT_ASKED);
        check_said(UNIT, 0);
        fill(0, UNIT);
        a = lent_map(UNIT, &pool);
        if (mlock(a, UNIT) < 0)
                print_message("no memory can be locked here\n");
        lent_unmap(a, UNIT, pool);
        assert_int_equal(blocks(file), 0);
}

#define LENT_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                LENT_TEST(memory_is_asked_for_once_and_mapped_when_it_is_there),
                LENT_TEST(after_a_refusal_it_is_asked_again_later),
                LENT_TEST(memory_of_an_earlier_daemon_stays),
                LENT_TEST(the_same_memfd_goes_on_where_it_was),
                LENT_TEST(a_file_of_the_program_is_never_taken_for_the_memfd),
                LENT_TEST(what_is_ready_can_be_given_back),
                LENT_TEST(locked_memory_is_given_back_too),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
