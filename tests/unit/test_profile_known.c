/* test_profile_known.c: the results of an earlier run are used as far as the file makes sense, and
 * nothing happens unless a setting asks for it. */
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
        assert_true(is_over()); /* no trials */
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
        profile_placing(); /* logs how many buffers are known */
}

static void a_profile_may_have_the_maximum_size_and_no_more(void **state)
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

static void an_invalid_profile_counts_for_nothing(void **state)
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

static void no_buffer_is_tried_or_known_outside_overflow_mode(void **state)
{
        profile_setup();
        assert_true(is_over());
        assert_int_equal(setenv("SUBLET_PROFILE", "", 1), 0);
        assert_int_equal(setenv("SUBLET_PROFILE_FILE", "", 1), 0);
        profile_setup();
        assert_true(is_over());
        assert_int_equal(setenv("SUBLET_PROFILE", path, 1), 0);
        fake_mode = MEMORY_SWAP;
        profile_setup();
        assert_true(is_over());
        assert_int_equal(block_of(allocate(4 * MIB, 0))->nth, 0); /* buffers are not counted */
        for (unsigned i = 0; i < 100; i++)
                step('s');
        assert_int_equal(arrangements, 0);
        profile_exits();
        assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                PROFILE_TEST(buffers_of_a_profile_are_known_by_gpu_size_and_number),
                PROFILE_TEST(a_profile_may_have_the_maximum_size_and_no_more),
                PROFILE_TEST(an_invalid_profile_counts_for_nothing),
                PROFILE_TEST(no_buffer_is_tried_or_known_outside_overflow_mode),
        };

        return run_each(tests, ARRAY_SIZE(tests));
}
