/* test_paths.c: a program chooses the daemon's directory, and trusts only some directories. */
#include "base/daemon_paths.h"
#include "base/places.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static char base[64]; /* this test's own directory */

static int setup(void **state)
{
        strcpy(base, "/tmp/test_paths.XXXXXX");
        return mkdtemp(base) ? 0 : -1;
}

static int teardown(void **state)
{
        char command[96];

        (void)snprintf(command, sizeof(command), "rm -rf %s", base);
        return system(command);
}

static const char *below(const char *name)
{
        static char path[4][160];
        static unsigned next;
        char *p = path[next++ % 4];

        (void)snprintf(p, sizeof(path[0]), "%s/%s", base, name);
        return p;
}

static int listen_in(const char *in)
{
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        assert_int_equal(paths_join(in, PATHS_CLIENT_SOCKET, sa.sun_path, sizeof(sa.sun_path)), 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
        assert_int_equal(listen(fd, 4), 0);
        return fd;
}

static void a_named_directory_takes_precedence(void **state)
{
        struct paths_input in = {
                .named = "/srv/x", .system = "/", .runtime = base, .uid = getuid()};
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;

        assert_int_equal(paths_choose(&in, dir, sizeof(dir), &kind), 0);
        assert_string_equal(dir, "/srv/x");
        assert_int_equal(kind, PATHS_NAMED);
}

static void a_private_daemon_does_not_do_where_the_owner_requires_sharing(void **state)
{
        struct paths_input in = {
                .system = "/no/such", .runtime = base, .uid = getuid(), .required = true};
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;

        assert_int_equal(paths_choose(&in, dir, sizeof(dir), &kind), 0);
        assert_string_equal(dir, "/no/such");
        assert_int_equal(kind, PATHS_SYSTEM);
        in.required = false;
        assert_int_equal(paths_choose(&in, dir, sizeof(dir), &kind), 0);
        assert_int_equal(kind, PATHS_PRIVATE);
        in.named = "/srv/x";
        in.required = true;
        assert_int_equal(paths_choose(&in, dir, sizeof(dir), &kind), 0);
        assert_int_equal(kind, PATHS_NAMED);
}

static void the_option_takes_precedence_over_the_environment(void **state)
{
        char dir[PATHS_DIR_MAX];

        assert_int_equal(setenv("SUBLET_DIR", "/from/environment", 1), 0);
        assert_int_equal(paths_daemon_dir("/from/option", dir, sizeof(dir), NULL), 0);
        assert_string_equal(dir, "/from/option");
        assert_int_equal(paths_daemon_dir(NULL, dir, sizeof(dir), NULL), 0);
        assert_string_equal(dir, "/from/environment");
}

static void the_system_directory_takes_precedence_over_the_private_one(void **state)
{
        struct paths_input in = {.system = below("system"), .runtime = base, .uid = getuid()};
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;

        assert_int_equal(paths_choose(&in, dir, sizeof(dir), &kind), 0);
        assert_int_equal(kind, PATHS_PRIVATE);
        assert_string_equal(dir, below("sublet"));

        /* A directory without a socket is left over. */
        assert_int_equal(mkdir(in.system, 0755), 0);
        assert_int_equal(paths_choose(&in, dir, sizeof(dir), &kind), 0);
        assert_int_equal(kind, PATHS_PRIVATE);

        (void)close(listen_in(in.system));
        assert_int_equal(paths_choose(&in, dir, sizeof(dir), &kind), 0);
        assert_int_equal(kind, PATHS_SYSTEM);
        assert_string_equal(dir, in.system);
}

/* A container that has a folder mounted sees a daemon's sockets come and go there. */
static void a_mounted_system_directory_counts_without_a_socket(void **state)
{
        struct paths_input in = {.system = "/proc", .runtime = base, .uid = getuid()};
        char dir[PATHS_DIR_MAX];
        enum paths_kind kind;

        assert_int_equal(paths_choose(&in, dir, sizeof(dir), &kind), 0);
        assert_int_equal(kind, PATHS_SYSTEM);
}

static void a_login_directory_is_used_without_the_variable(void **state)
{
        struct paths_input in = {.logins = base, .uid = getuid()};
        char dir[PATHS_DIR_MAX], login[80], want[96];

        (void)snprintf(want, sizeof(want), "/tmp/sublet-%u", (unsigned)in.uid);
        assert_int_equal(paths_choose(&in, dir, sizeof(dir), NULL), 0);
        assert_string_equal(dir, want);
        (void)snprintf(login, sizeof(login), "%s/%u", base, (unsigned)in.uid);
        assert_int_equal(mkdir(login, 0700), 0);
        (void)snprintf(want, sizeof(want), "%s/sublet", login);
        assert_int_equal(paths_choose(&in, dir, sizeof(dir), NULL), 0);
        assert_string_equal(dir, want);
        in.runtime = base;
        assert_int_equal(paths_choose(&in, dir, sizeof(dir), NULL), 0);
        assert_string_equal(dir, below("sublet"));
}

static void a_daemon_is_joined_where_it_answers(void **state)
{
        struct paths_input in = {.runtime = base, .logins = base, .uid = getuid()};
        char dir[PATHS_DIR_MAX] = "unchanged", login[80], second[96];
        struct private_place places[PLACES_MAX];
        int fd;

        (void)snprintf(login, sizeof(login), "%s/%u", base, (unsigned)in.uid);
        (void)snprintf(second, sizeof(second), "%s/sublet", login);
        assert_int_equal(mkdir(login, 0700), 0);
        assert_int_equal(mkdir(second, 0700), 0);
        fd = listen_in(second);
        places_find(&in, dir, sizeof(dir));
        assert_string_equal(dir, second);
        assert_in_range(places_look(&in, places), 2, PLACES_MAX);
        assert_string_equal(places[0].dir, below("sublet"));
        assert_int_equal(places[0].error, -ENOENT);
        assert_string_equal(places[1].dir, second);
        assert_int_equal(places[1].error, 0);

        /* Two names of one folder are one place. */
        in.runtime = below("link");
        assert_int_equal(symlink(login, in.runtime), 0);
        (void)places_look(&in, places);
        assert_string_equal(places[0].dir, below("link/sublet"));
        assert_string_not_equal(places[1].dir, second);

        in.runtime = NULL;
        assert_int_equal(chmod(second, 0755), 0); /* others may enter */
        (void)places_look(&in, places);
        assert_int_equal(places[0].error, -EACCES);
        assert_int_equal(chmod(second, 0700), 0);
        (void)close(fd);
        (void)places_look(&in, places);
        assert_int_equal(places[0].error, -ECONNREFUSED);
}

static void a_missing_or_foreign_runtime_directory_is_not_used(void **state)
{
        struct paths_input in = {.named = "", .uid = getuid()};
        char dir[PATHS_DIR_MAX], want[64];
        const char *const unusable[] = {NULL, "", "relative", below("absent"), base};

        for (unsigned i = 0; i < sizeof(unusable) / sizeof(unusable[0]); i++) {
                in.runtime = unusable[i];
                if (in.runtime == base)
                        /* The directory exists, but belongs to another user. */
                        in.uid = getuid() + 1;
                assert_int_equal(paths_choose(&in, dir, sizeof(dir), NULL), 0);
                (void)snprintf(want, sizeof(want), "/tmp/sublet-%u", (unsigned)in.uid);
                assert_string_equal(dir, want);
        }
}

static void a_name_too_long_for_a_socket_is_refused(void **state)
{
        struct paths_input in = {.uid = getuid()};
        char dir[PATHS_DIR_MAX], name[256], socket_path[256], wide[256];

        memset(name, 'x', sizeof(name));
        name[0] = '/';
        name[PATHS_DIR_MAX] = 0;
        in.named = name;
        assert_int_equal(paths_choose(&in, dir, sizeof(dir), NULL), -ENAMETOOLONG);
        assert_int_equal(paths_choose(&in, wide, sizeof(wide), NULL), -ENAMETOOLONG);

        name[PATHS_DIR_MAX - 1] = 0;
        assert_int_equal(paths_choose(&in, dir, sizeof(dir), NULL), 0);
        assert_int_equal(paths_join(dir, PATHS_CONTROL_SOCKET, socket_path, sizeof(socket_path)),
                         0);
        assert_true(strlen(socket_path) < sizeof(((struct sockaddr_un *)0)->sun_path));
}

static void only_a_directory_closed_to_others_is_private(void **state)
{
        const char *ours = below("ours"), *link = below("link");

        assert_int_equal(paths_check_private(ours, getuid()), -ENOENT);
        assert_int_equal(paths_make_private(ours, getuid()), 0);
        assert_int_equal(paths_make_private(ours, getuid()), 0);
        assert_int_equal(paths_check_private(ours, getuid() + 1), -EPERM);
        assert_int_equal(symlink(ours, link), 0);
        assert_int_equal(paths_check_private(link, getuid()), -ENOTDIR);
        assert_int_equal(chmod(ours, 0710), 0);
        assert_int_equal(paths_make_private(ours, getuid()), -EACCES);
        assert_int_equal(paths_make_private(below("absent/deeper"), getuid()), -ENOENT);
}

static void the_simulator_has_a_directory_of_its_own(void **state)
{
        struct paths_input in = {.runtime = base, .uid = getuid()};
        char dir[PATHS_DIR_MAX], want[64];

        assert_int_equal(paths_private_dir(&in, "-sim", dir, sizeof(dir)), 0);
        assert_string_equal(dir, below("sublet-sim"));
        in.runtime = NULL;
        (void)snprintf(want, sizeof(want), "/tmp/sublet-sim-%u", (unsigned)in.uid);
        assert_int_equal(paths_private_dir(&in, "-sim", dir, sizeof(dir)), 0);
        assert_string_equal(dir, want);
}

static void a_message_names_the_option_that_finds_the_daemon(void **state)
{
        char option[PATHS_OPTION_MAX];

        assert_int_equal(setenv("XDG_RUNTIME_DIR", base, 1), 0);
        assert_int_equal(unsetenv("SUBLET_DIR"), 0);
        assert_string_equal(paths_option(option), "");
        assert_int_equal(setenv("SUBLET_DIR", below("sublet-sim"), 1), 0);
        assert_string_equal(paths_option(option), " --sim");
        assert_int_equal(setenv("SUBLET_DIR", "/srv/x", 1), 0);
        assert_string_equal(paths_option(option), " --daemon /srv/x");
        assert_int_equal(unsetenv("SUBLET_DIR"), 0);
        assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_named_directory_takes_precedence, setup,
                                                teardown),
                cmocka_unit_test(a_private_daemon_does_not_do_where_the_owner_requires_sharing),
                cmocka_unit_test(the_option_takes_precedence_over_the_environment),
                cmocka_unit_test_setup_teardown(
                        the_system_directory_takes_precedence_over_the_private_one, setup,
                        teardown),
                cmocka_unit_test_setup_teardown(a_mounted_system_directory_counts_without_a_socket,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(a_login_directory_is_used_without_the_variable,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(a_daemon_is_joined_where_it_answers, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_missing_or_foreign_runtime_directory_is_not_used,
                                                setup, teardown),
                cmocka_unit_test(a_name_too_long_for_a_socket_is_refused),
                cmocka_unit_test_setup_teardown(only_a_directory_closed_to_others_is_private, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(the_simulator_has_a_directory_of_its_own, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_message_names_the_option_that_finds_the_daemon,
                                                setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
