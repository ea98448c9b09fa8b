/* test_freeze_known.c: the next process knows the stored result for a driver and a GPU, and no
 * file, whatever it contains, blocks a process or makes it fail. */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/freeze_known.h"

#define DRIVER "580.159.04"

static const uint8_t first[16] = {0xab, 0x01, [15] = 0xff}, second[16] = {0xab, 0x02, [15] = 0xff};
#define FIRST  "ab0100000000000000000000000000ff"
#define SECOND "ab0200000000000000000000000000ff"

static char folder[64], file[PATH_MAX], text[65536], why[FREEZE_WHY_MAX];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
        return remove(path);
}

static int begin(void **state)
{
        (void)strcpy(folder, "/tmp/test_freeze_known.XXXXXX");
        assert_non_null(mkdtemp(folder));
        (void)setenv("XDG_CACHE_HOME", folder, 1);
        (void)unsetenv("HOME");
        (void)snprintf(file, sizeof(file), "%s/sublet/freezing", folder);
        (void)memset(why, 'x', sizeof(why) - 1);
        return 0;
}

static int end(void **state)
{
        return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Returns the text of the file; "": there is no file. */
static const char *content(void)
{
        int fd = open(file, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;

        if (fd >= 0)
                (void)close(fd);
        text[MAX(n, (ssize_t)0)] = '\0';
        return text;
}

static void write_file(const char *data, size_t n)
{
        char parent[PATH_MAX];
        int fd;

        (void)snprintf(parent, sizeof(parent), "%s/sublet", folder);
        (void)mkdir(parent, 0700);
        fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, data, n), n);
        (void)close(fd);
}

static unsigned files(void)
{
        char parent[PATH_MAX];
        const struct dirent *e;
        unsigned n = 0;
        DIR *d;

        (void)snprintf(parent, sizeof(parent), "%s/sublet", folder);
        d = opendir(parent);
        while (d && (e = readdir(d)))
                n += e->d_name[0] != '.';
        if (d)
                (void)closedir(d);
        return n;
}

/* Checks that the file has these two lines and no other, in either order. */
static void check_lines(const char *a, const char *b)
{
        assert_int_equal(strlen(content()), strlen(a) + strlen(b));
        assert_non_null(strstr(text, a));
        assert_non_null(strstr(text, b));
}

/* ---- results ---- */

static void nothing_is_known_at_first(void **state)
{
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_NOT_KNOWN);
        assert_string_equal(why, "");
        assert_int_equal(files(), 0);
}

static void a_stored_result_is_read_back(void **state)
{
        struct stat st;

        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_WORKS);
        assert_string_equal(why, "");
        freeze_learn(DRIVER, second, FREEZE_FAILS, "the kernel ran on");
        assert_int_equal(freeze_known(DRIVER, second, why), FREEZE_FAILS);
        assert_string_equal(why, "the kernel ran on");
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_WORKS);
        check_lines(DRIVER " " FIRST " works with the hand\n",
                    DRIVER " " SECOND " the kernel ran on\n");
        assert_int_equal(files(), 1); /* no temporary file is left */
        assert_int_equal(stat(file, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
}

static void a_driver_that_does_not_count_is_told_apart(void **state)
{
        freeze_learn(DRIVER, first, FREEZE_WORKS_ALONE, "");
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_WORKS_ALONE);
        assert_string_equal(content(), DRIVER " " FIRST " works without the hand\n");
        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_WORKS);
}

static void results_of_different_drivers_are_kept_apart(void **state)
{
        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        assert_int_equal(freeze_known("580.159", first, why), FREEZE_NOT_KNOWN);
        assert_int_equal(freeze_known("580.159.041", first, why), FREEZE_NOT_KNOWN);
        assert_int_equal(freeze_known("", first, why), FREEZE_NOT_KNOWN);
        freeze_learn("595.45.04", first, FREEZE_FAILS, "it did not go on");
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_WORKS);
        assert_int_equal(freeze_known("595.45.04", first, why), FREEZE_FAILS);
        freeze_learn("", second, FREEZE_FAILS, "nobody knows of which");
        assert_null(strstr(content(), "nobody"));
}

static void a_new_result_replaces_the_old_one(void **state)
{
        freeze_learn(DRIVER, first, FREEZE_FAILS, "a");
        freeze_learn(DRIVER, second, FREEZE_FAILS, "b");
        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        check_lines(DRIVER " " SECOND " b\n", DRIVER " " FIRST " works with the hand\n");
        freeze_learn(DRIVER, second, FREEZE_WORKS, "");
        freeze_learn(DRIVER, second, FREEZE_FAILS, "c");
        check_lines(DRIVER " " FIRST " works with the hand\n", DRIVER " " SECOND " c\n");
}

/* ---- the path of the file ---- */

static void without_an_absolute_cache_path_no_result_is_kept(void **state)
{
        static const char *const caches[] = {NULL, "", "relative/path"};

        for (size_t i = 0; i < ARRAY_SIZE(caches); i++) {
                if (caches[i])
                        (void)setenv("XDG_CACHE_HOME", caches[i], 1);
                else
                        (void)unsetenv("XDG_CACHE_HOME");
                freeze_learn(DRIVER, first, FREEZE_WORKS, "");
                assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_NOT_KNOWN);
        }
        (void)setenv("HOME", "also/relative", 1);
        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_NOT_KNOWN);
        assert_int_equal(access("relative", F_OK), -1);
        assert_int_equal(access("also", F_OK), -1);
}

static void folders_are_made_in_the_home(void **state)
{
        struct stat st;

        (void)unsetenv("XDG_CACHE_HOME");
        (void)setenv("HOME", folder, 1);
        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_WORKS);
        (void)snprintf(file, sizeof(file), "%s/.cache/sublet/freezing", folder);
        assert_string_equal(content(), DRIVER " " FIRST " works with the hand\n");
        (void)snprintf(file, sizeof(file), "%s/.cache/sublet", folder);
        assert_int_equal(stat(file, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
}

static void a_home_that_is_not_there_is_not_made(void **state)
{
        char home[PATH_MAX];

        (void)snprintf(home, sizeof(home), "%s/none", folder);
        (void)unsetenv("XDG_CACHE_HOME");
        (void)setenv("HOME", home, 1);
        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_NOT_KNOWN);
        assert_int_equal(access(home, F_OK), -1);
}

static void a_folder_that_cannot_be_made_is_no_error(void **state)
{
        (void)setenv("XDG_CACHE_HOME", "/proc/self", 1);
        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_NOT_KNOWN);
        (void)setenv("XDG_CACHE_HOME", "/proc/self/a/b/c", 1);
        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_NOT_KNOWN);
}

static void a_path_that_is_too_long_keeps_no_result(void **state)
{
        char *path = malloc(PATH_MAX + 64);

        assert_non_null(path);
        for (size_t n = PATH_MAX - 64; n < PATH_MAX + 32; n++) {
                (void)memset(path, 'a', n);
                path[0] = '/';
                path[n] = '\0';
                (void)setenv("XDG_CACHE_HOME", path, 1);
                freeze_learn(DRIVER, first, FREEZE_WORKS, "");
                assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_NOT_KNOWN);
        }
        free(path);
}

/* ---- the contents of the file ---- */

static void broken_lines_are_not_known_and_do_no_harm(void **state)
{
        static const char *const broken[] = {
                DRIVER " " FIRST " \n",    DRIVER " " FIRST "\n",
                DRIVER " " FIRST,          DRIVER "  " FIRST " works with the hand\n",
                "works with the hand\n",   "\n\n\n",
                "\0\0works with the hand", " ",
                "\xff\xfe\x00\x80\n",      DRIVER " ab01 works with the hand\n"};

        for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
                write_file(broken[i], strlen(broken[i]));
                assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_NOT_KNOWN);
                assert_string_equal(why, "");
                freeze_learn(DRIVER, first, FREEZE_FAILS, "x");
                assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_FAILS);
                assert_string_equal(why, "x");
        }
        write_file(DRIVER " " FIRST " works with the hand",
                   strlen(DRIVER " " FIRST " works with the hand")); /* no newline at the end */
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_WORKS);
}

static void a_long_reason_is_cut(void **state)
{
        char line[4096];
        int n = snprintf(line, sizeof(line), DRIVER " " FIRST " ");

        (void)memset(line + n, 'y', sizeof(line) - (size_t)n);
        write_file(line, sizeof(line));
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_FAILS);
        assert_int_equal(strlen(why), FREEZE_WHY_MAX - 1);
}

static void only_the_beginning_of_a_huge_file_is_read(void **state)
{
        const size_t n = 4u << 20;
        char *data = malloc(n);
        struct stat st;

        assert_non_null(data);
        for (size_t i = 0; i < n; i++)
                data[i] = i % 80 == 79 ? '\n' : 'z';
        write_file(data, n);
        free(data);
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_NOT_KNOWN);
        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        assert_int_equal(stat(file, &st), 0);
        assert_true(st.st_size < 32768);
}

static void a_path_that_is_no_file_does_not_block(void **state)
{
        char other[PATH_MAX];

        write_file("", 0);
        assert_int_equal(unlink(file), 0);
        assert_int_equal(mkfifo(file, 0600), 0);
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_NOT_KNOWN);
        freeze_learn(DRIVER, first, FREEZE_WORKS, ""); /* a file replaces the pipe */
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_WORKS);

        assert_int_equal(unlink(file), 0);
        assert_int_equal(mkdir(file, 0700), 0);
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_NOT_KNOWN);
        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        assert_int_equal(files(), 1); /* the temporary file was removed again */
        assert_int_equal(rmdir(file), 0);

        (void)snprintf(other, sizeof(other), "%s/other", folder);
        assert_int_equal(symlink(other, file), 0);
        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        assert_int_equal(access(other, F_OK), -1);
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_WORKS);
}

static void a_file_that_may_not_be_read_is_not_known(void **state)
{
        if (geteuid() == 0)
                skip();
        freeze_learn(DRIVER, first, FREEZE_WORKS, "");
        assert_int_equal(chmod(file, 0), 0);
        assert_int_equal(freeze_known(DRIVER, first, why), FREEZE_NOT_KNOWN);
}

/* When the file is full its oldest lines go, and the newest results stay known. */
static void the_newest_results_survive_a_full_file(void **state)
{
        char driver[32];

        for (unsigned i = 0; i < 600; i++) {
                (void)snprintf(driver, sizeof(driver), "580.%u", i);
                freeze_learn(driver, first, FREEZE_FAILS, "a reason of some length, as they are");
                assert_int_equal(freeze_known(driver, first, why), FREEZE_FAILS);
        }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        const struct CMUnitTest tests[] = {
                TEST(nothing_is_known_at_first),
                TEST(a_stored_result_is_read_back),
                TEST(a_driver_that_does_not_count_is_told_apart),
                TEST(results_of_different_drivers_are_kept_apart),
                TEST(a_new_result_replaces_the_old_one),
                TEST(without_an_absolute_cache_path_no_result_is_kept),
                TEST(folders_are_made_in_the_home),
                TEST(a_home_that_is_not_there_is_not_made),
                TEST(a_folder_that_cannot_be_made_is_no_error),
                TEST(a_path_that_is_too_long_keeps_no_result),
                TEST(broken_lines_are_not_known_and_do_no_harm),
                TEST(a_long_reason_is_cut),
                TEST(only_the_beginning_of_a_huge_file_is_read),
                TEST(a_path_that_is_no_file_does_not_block),
                TEST(a_file_that_may_not_be_read_is_not_known),
                TEST(the_newest_results_survive_a_full_file),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
