/* test_place.c: other processes see a consistent directory while a daemon's sockets come and go. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/setup/daemon_folder.h"

static const char *const sockets[] = {PATHS_CLIENT_SOCKET, PATHS_CONTROL_SOCKET,
                                      PATHS_STATUS_SOCKET};
static char dir[64];
static bool looking;
static unsigned looked;

static struct sockaddr_un address_of(const char *name)
{
        struct sockaddr_un sa = {.sun_family = AF_UNIX};

        assert_int_equal(paths_join(dir, name, sa.sun_path, sizeof(sa.sun_path)), 0);
        return sa;
}

/* Connects to a socket of the directory. Returns 0 if a daemon listens there. */
static int knock(const char *name)
{
        const struct sockaddr_un sa = address_of(name);
        int type = strstr(name, PATHS_CLIENT_SOCKET) ? SOCK_SEQPACKET : SOCK_STREAM;
        int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0), r;

        assert_true(fd >= 0);
        r = connect(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0 ? -errno : 0;
        assert_int_equal(close(fd), 0);
        return r;
}

/* Wraps listen(), because a program or a command may try to connect between bind() and listen(). */
int listen(int fd, int backlog)
{
        int served = looking ? knock(PATHS_CLIENT_SOCKET) : 0;

        looked += looking;
        for (size_t i = 0; looking && i < ARRAY_SIZE(sockets); i++)
                if (served == 0)
                        assert_int_equal(knock(sockets[i]), 0);
                else if (knock(sockets[i]) != 0)
                        assert_int_equal(knock(sockets[i]), -ENOENT);
        return (int)syscall(SYS_listen, fd, backlog);
}

/* Wraps rename(), because a client that finds the clients' socket may hand the folder for
 * containers to a container at once. */
int rename(const char *from, const char *to)
{
        if (looking && strcmp(to, address_of(PATHS_CLIENT_SOCKET).sun_path) == 0) {
                assert_int_equal(knock("public/client.sock"), 0);
                assert_int_equal(knock("public/status.sock"), 0);
        }
        return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int make_dir(void **state)
{
        (void)state;
        strcpy(dir, "/tmp/sublet-place-XXXXXX");
        return mkdtemp(dir) ? chmod(dir, 0755) : -1;
}

/* Removes the directory. Fails if anything but the lock is left in it. */
/* Removes the folders that a daemon leaves. */
static void remove_folders(const char *of)
{
        char path[PATHS_DIR_MAX + 8];

        (void)snprintf(path, sizeof(path), "%s/conf.d", of);
        (void)rmdir(path);
        (void)snprintf(path, sizeof(path), "%s/public", of);
        (void)rmdir(path);
}

static int remove_dir(void **state)
{
        (void)state;
        remove_folders(dir);
        return unlink(address_of("lock").sun_path) < 0 || rmdir(dir) < 0 ? -1 : 0;
}

static int open_place(struct place *ret)
{
        const struct place_options o = {.dir = dir, .shared = true, .group = (gid_t)-1};
        char error[PLACE_ERROR_MAX];

        return place_open(&o, ret, error);
}

static void every_socket_in_the_directory_has_a_listening_daemon(void **state)
{
        struct place p;

        (void)state;
        looking = true;
        assert_int_equal(open_place(&p), 0);
        looking = false;
        assert_int_equal(looked, ARRAY_SIZE(sockets));
        for (size_t i = 0; i < ARRAY_SIZE(sockets); i++)
                assert_int_equal(knock(sockets[i]), 0);
        place_close(&p, true);
}

static void sockets_of_a_killed_daemon_are_replaced(void **state)
{
        static const char *const unfinished[] = {"client.new", "control.new", "status.new"};
        struct place p;

        (void)state;
        assert_int_equal(open_place(&p), 0);
        place_close(&p, false);
        for (size_t i = 0; i < ARRAY_SIZE(sockets); i++) {
                assert_int_equal(knock(sockets[i]), -ECONNREFUSED);
                assert_int_equal(
                        link(address_of(sockets[i]).sun_path, address_of(unfinished[i]).sun_path),
                        0);
        }
        assert_int_equal(open_place(&p), 0);
        for (size_t i = 0; i < ARRAY_SIZE(sockets); i++)
                assert_int_equal(knock(sockets[i]), 0);
        place_close(&p, true);
}

static void the_folder_for_containers_follows_the_daemon(void **state)
{
        struct place p;

        (void)state;
        for (int restart = 0; restart < 2; restart++) {
                assert_int_equal(open_place(&p), 0);
                assert_int_equal(knock("public/client.sock"), 0);
                assert_int_equal(knock("public/status.sock"), 0);
                assert_int_equal(knock("public/control.sock"), -ENOENT);
                place_close(&p, false); /* killed */
                assert_int_equal(knock("public/client.sock"), -ECONNREFUSED);
        }
        assert_int_equal(open_place(&p), 0);
        place_close(&p, true);
        assert_int_equal(knock("public/client.sock"), -ENOENT);
        assert_int_equal(knock("public/status.sock"), -ENOENT);
}

static void the_folder_of_settings_is_its_owners_alone(void **state)
{
        struct place p;
        struct stat st;

        (void)state;
        assert_int_equal(open_place(&p), 0);
        assert_int_equal(stat(address_of(PATHS_CONFIG).sun_path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
        place_close(&p, true);
}

static void a_daemon_that_cannot_serve_removes_its_sockets(void **state)
{
        const struct sockaddr_un sa = address_of(PATHS_CLIENT_SOCKET);
        struct place p;

        (void)state;
        assert_int_equal(close(creat(sa.sun_path, 0600)), 0);
        assert_int_equal(open_place(&p), -EEXIST);
        assert_int_equal(unlink(sa.sun_path), 0); /* a file that is not ours must survive */
}

/* Starts a private daemon in a directory with this mode. Returns 0 if it starts. */
static int open_private(const char *where, mode_t mode)
{
        const struct place_options o = {.dir = where, .group = (gid_t)-1};
        char error[PLACE_ERROR_MAX] = "";
        struct place p;
        int r;

        assert_int_equal(chmod(dir, mode), 0);
        r = place_open(&o, &p, error);
        assert_int_equal(*error != '\0', r < 0);
        if (r == 0)
                place_close(&p, true);
        return r;
}

/* Removes a directory that a daemon made inside the test's, with its lock. Makes a lock in the
 * test's directory, because remove_dir() expects one. */
static void remove_made(const char *made)
{
        char lock[PATHS_DIR_MAX + 8];

        (void)snprintf(lock, sizeof(lock), "%s/lock", made);
        assert_int_equal(unlink(lock), 0);
        remove_folders(made);
        assert_int_equal(rmdir(made), 0);
        assert_int_equal(close(creat(address_of("lock").sun_path, 0600)), 0);
}

static void a_directory_open_to_others_is_not_used_and_stays_empty(void **state)
{
        (void)state;
        assert_true(open_private(dir, 0755) < 0);
        assert_true(open_private(dir, 0710) < 0);
        assert_int_equal(access(address_of("lock").sun_path, F_OK), -1);
        assert_int_equal(open_private(dir, 0700), 0);
}

static void a_directory_is_made_for_its_user_alone(void **state)
{
        char made[96];
        struct stat st;

        (void)state;
        (void)snprintf(made, sizeof(made), "%s/made", dir);
        assert_int_equal(open_private(made, 0700), 0);
        assert_int_equal(stat(made, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
        remove_made(made);
}

static void one_character_decides_whether_sockets_fit_the_name(void **state)
{
        char longest[PATHS_DIR_MAX + 1];
        size_t n = strlen(dir);

        (void)state;
        (void)snprintf(longest, sizeof(longest), "%s/", dir);
        memset(longest + n + 1, 'x', sizeof(longest) - n - 2);
        longest[sizeof(longest) - 1] = '\0';
        assert_int_equal(strlen(longest), PATHS_DIR_MAX);
        assert_int_equal(open_private(longest, 0700), -ENAMETOOLONG);
        longest[PATHS_DIR_MAX - 1] = '\0';
        assert_int_equal(open_private(longest, 0700), 0);
        remove_made(longest);
}

static void the_next_daemon_reads_promises_and_settings_of_a_killed_one(void **state)
{
        uint64_t promised = 7;
        char text[64] = "";
        struct place p;
        FILE *kept;

        (void)state;
        assert_int_equal(open_place(&p), 0);
        assert_false(place_was_busy(&p, &promised));
        assert_int_equal(promised, 0);
        assert_null(place_kept(&p));
        p.promised_bytes = 12345678901;
        place_mark(&p, true);
        place_keep(&p, "quantum = 3 s\n");
        place_close(&p, false);

        assert_int_equal(open_place(&p), 0);
        assert_true(place_was_busy(&p, &promised));
        assert_int_equal(promised, 12345678901);
        kept = place_kept(&p);
        assert_non_null(kept);
        assert_non_null(fgets(text, sizeof(text), kept));
        assert_string_equal(text, "quantum = 3 s\n");
        assert_int_equal(fclose(kept), 0);
        place_mark(&p, true);
        place_mark(&p, false);
        place_keep(&p, "");
        assert_false(place_was_busy(&p, &promised));
        assert_null(place_kept(&p));
        place_close(&p, true);
}

static void a_second_daemon_is_refused_and_names_the_first(void **state)
{
        const struct place_options o = {.dir = dir, .shared = true, .group = (gid_t)-1};
        char error[PLACE_ERROR_MAX] = "", pid[32];
        struct place p, other;

        (void)state;
        assert_false(place_answers(dir));
        assert_int_equal(open_place(&p), 0);
        assert_true(place_answers(dir));
        assert_int_equal(place_open(&o, &other, error), -EALREADY);
        (void)snprintf(pid, sizeof(pid), "pid %d)", (int)getpid());
        assert_non_null(strstr(error, pid));
        assert_true(place_answers(dir));
        place_close(&p, false);
        assert_false(place_answers(dir)); /* the sockets of the closed daemon remain */
        assert_int_equal(open_place(&p), 0);
        place_close(&p, true);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
        const struct CMUnitTest tests[] = {
                TEST(every_socket_in_the_directory_has_a_listening_daemon),
                TEST(sockets_of_a_killed_daemon_are_replaced),
                TEST(the_folder_for_containers_follows_the_daemon),
                TEST(the_folder_of_settings_is_its_owners_alone),
                TEST(a_daemon_that_cannot_serve_removes_its_sockets),
                TEST(a_directory_open_to_others_is_not_used_and_stays_empty),
                TEST(a_directory_is_made_for_its_user_alone),
                TEST(the_next_daemon_reads_promises_and_settings_of_a_killed_one),
                TEST(a_second_daemon_is_refused_and_names_the_first),
                TEST(one_character_decides_whether_sockets_fit_the_name),
        };
#undef TEST

        return cmocka_run_group_tests(tests, NULL, NULL);
}
