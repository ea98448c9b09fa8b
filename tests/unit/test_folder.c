/* test_folder.c: a file comes into the daemon's folder whole, or not at all. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ask/conf_folder.h"

static char dir[] = "/tmp/slt-folder-XXXXXX";
static int folder;

static int begin(void **state)
{
        (void)strcpy(dir + strlen(dir) - 6, "XXXXXX");
        assert_non_null(mkdtemp(dir));
        folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(folder >= 0);
        return 0;
}

static int end(void **state)
{
        char command[64];

        (void)close(folder);
        (void)snprintf(command, sizeof(command), "rm -rf %s", dir);
        return system(command);
}

static void holds(const char *name, const char *text)
{
        char got[64] = "";
        int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(read(fd, got, sizeof(got) - 1), strlen(text));
        assert_string_equal(got, text);
        (void)close(fd);
}

static void only_the_daemon_may_read_the_file_whatever_the_umask(void **state)
{
        const uid_t daemon = geteuid() == 0 ? 65534 : geteuid();
        const mode_t before = umask(0);
        struct stat st;
        int r;

        assert_int_equal(fchown(folder, daemon, (gid_t)-1), 0);
        r = folder_put(folder, ".a", "a", "one", 3);
        (void)umask(before);
        assert_int_equal(r, 0);
        holds("a", "one");
        assert_int_equal(fstatat(folder, "a", &st, 0), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(st.st_uid, daemon);
        assert_int_equal(faccessat(folder, ".a", F_OK, 0), -1);
}

static void what_a_killed_program_left_is_replaced_and_no_link_is_followed(void **state)
{
        assert_int_equal(folder_put(folder, ".a", "victim", "victim", 6), 0);
        assert_int_equal(symlinkat("victim", folder, ".a"), 0);
        assert_int_equal(folder_put(folder, ".a", "a", "two", 3), 0);
        holds("victim", "victim");
        holds("a", "two");
}

static void a_file_that_cannot_be_put_leaves_nothing(void **state)
{
        assert_int_equal(mkdirat(folder, "a", 0700), 0);
        assert_int_equal(folder_put(folder, ".a", "a", "three", 5), -EISDIR);
        assert_int_equal(faccessat(folder, ".a", F_OK, 0), -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(only_the_daemon_may_read_the_file_whatever_the_umask),
                TEST(what_a_killed_program_left_is_replaced_and_no_link_is_followed),
                TEST(a_file_that_cannot_be_put_leaves_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
