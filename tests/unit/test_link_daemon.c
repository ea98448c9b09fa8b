/* test_link_daemon.c: a program finds, starts and connects to a daemon. This test is the daemon,
 * too: started under that name it listens, or reports why it cannot. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "fakes/driver.h"
#include "preload/process/link.h"

static char dir[64];
static char where[128];
static unsigned naps;

static bool hopeless; /* no daemon listens, however long a program waits */

int nanosleep(const struct timespec *nap, struct timespec *rest)
{
        const struct timespec shorter = {.tv_nsec = hopeless ? 1 : nap->tv_nsec};

        naps++;
        return (int)syscall(SYS_nanosleep, &shorter, rest);
}

/* ---- as the daemon ---- */

static int listen_in(const char *in)
{
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/client.sock", in);
        if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 4) < 0)
                return -1;
        return fd;
}

/* Sends one letter to the first connection: y if the daemon was started with the right arguments
 * and environment, otherwise n. */
static int be_the_daemon(char **argv)
{
        bool good = strcmp(argv[1], "--private") == 0 && strcmp(argv[2], "--dir") == 0 &&
                    !argv[4] && !getenv("LD_PRELOAD") && getenv("KEPT");
        int fd, peer;

        (void)alarm(30);
        if (getenv("REFUSES")) {
                char path[80];

                (void)dprintf(STDERR_FILENO, "no GPU");
                (void)snprintf(path, sizeof(path), "%s/refused", argv[3]);
                return mkdir(path, 0700) < 0;
        }
        fd = listen_in(argv[3]);
        peer = accept(fd, NULL, NULL);
        return peer >= 0 && write(peer, good ? "y" : "n", 1) == 1 ? 0 : 1;
}

/* ---- finding and starting a daemon ---- */

static int begin(void **state)
{
        (void)snprintf(dir, sizeof(dir), "/tmp/sublet-test-XXXXXX");
        assert_non_null(mkdtemp(dir));
        assert_int_equal(setenv("SUBLET_DIR", dir, 1), 0);
        assert_int_equal(setenv("SUBLET_DAEMON", "/proc/self/exe", 1), 0);
        assert_int_equal(setenv("LD_PRELOAD", "", 1), 0);
        assert_int_equal(setenv("KEPT", "1", 1), 0);
        naps = 0;
        hopeless = false;
        return 0;
}

static int end(void **state)
{
        char path[80];

        (void)snprintf(path, sizeof(path), "%s/client.sock", dir);
        (void)unlink(path);
        (void)rmdir(dir);
        (void)unsetenv("LD_PRELOAD");
        (void)unsetenv("REFUSES");
        return 0;
}

/* The first test: later ones have seen a daemon fail, which keeps the next one silent, too. */
static void a_daemon_prints_nothing_into_a_file_that_is_no_stderr(void **state)
{
        int fd = -1, kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10), r;
        struct stat st = {0};
        char refused[80];

        hopeless = true;
        (void)snprintf(refused, sizeof(refused), "%s/refused", dir);
        assert_int_equal(setenv("REFUSES", "1", 1), 0);
        log_guard_stderr();
        (void)close(STDERR_FILENO);
        if (open("/tmp", O_TMPFILE | O_RDWR, 0600) != STDERR_FILENO)
                _exit(99); /* nobody would see a message */
        r = link_connect(where, &fd);
        while (rmdir(refused) < 0)
                (void)sched_yield();
        (void)fstat(STDERR_FILENO, &st);
        assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
        (void)close(kept);
        assert_int_equal(r, -ENOENT);
        assert_int_equal(st.st_size, 0);
}

static volatile sig_atomic_t children;

static void child_ended(int number)
{
        children++;
}

static void a_missing_daemon_is_started_and_is_no_child_of_the_program(void **state)
{
        unsigned before = open_descriptors();
        char letter = 0;
        int fd = -1;

        (void)signal(SIGCHLD, child_ended);
        assert_int_equal(link_connect(where, &fd), 0);
        assert_string_equal(where, dir);
        while (read(fd, &letter, 1) < 0)
                assert_int_equal(errno, EAGAIN);
        assert_int_equal(letter, 'y');
        assert_int_equal(waitpid(-1, NULL, __WALL), -1);
        assert_int_equal(errno, ECHILD);
        assert_int_equal(children, 0);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
        (void)close(fd);
        assert_int_equal(open_descriptors(), before);
        (void)signal(SIGCHLD, SIG_DFL);
}

static void a_running_daemon_is_used(void **state)
{
        int listening = listen_in(dir), fd = -1;

        assert_true(listening >= 0);
        assert_int_equal(setenv("SUBLET_DAEMON", "/bin/false", 1), 0);
        assert_int_equal(link_connect(where, &fd), 0);
        assert_int_equal(naps, 0);
        (void)close(fd);
        (void)close(listening);
}

static void no_daemon_is_started_without_a_path_or_a_private_directory(void **state)
{
        int fd = -1;

        assert_int_equal(setenv("SUBLET_DAEMON", "/nonexistent/subletd", 1), 0);
        assert_int_equal(link_connect(where, &fd), -ENOENT);
        assert_int_equal(unsetenv("SUBLET_DAEMON"), 0);
        assert_int_equal(link_connect(where, &fd), -ENOENT);
        assert_int_equal(setenv("SUBLET_DAEMON", "/proc/self/exe", 1), 0);
        assert_int_equal(chmod(dir, 0755), 0); /* other users may enter the directory */
        assert_int_equal(link_connect(where, &fd), -ENOENT);
        assert_int_equal(fd, -1);
        assert_int_equal(naps, 0);
        assert_int_equal(chmod(dir, 0700), 0);
        assert_int_equal(
                setenv("SUBLET_DIR",
                       "/tmp/a-name-that-is-too-long-for-the-address-of-a-socket-0123456789"
                       "0123456789012345678901234567890123456789",
                       1),
                0);
        assert_int_equal(link_connect(where, &fd), -ENAMETOOLONG);
}

/* Programs try to start a daemon every few seconds. The reason for a failure is printed once. */
static void a_failed_start_of_the_daemon_is_printed_once(void **state)
{
        int ends[2], fd = -1, stderr_before = dup(STDERR_FILENO);
        char text[32], refused[80];

        hopeless = true;
        (void)snprintf(refused, sizeof(refused), "%s/refused", dir);
        assert_int_equal(setenv("REFUSES", "1", 1), 0);
        assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
        for (unsigned i = 0; i < 2; i++) {
                int r;

                naps = 0;
                assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
                r = link_connect(where, &fd);
                assert_int_equal(dup2(stderr_before, STDERR_FILENO), STDERR_FILENO);
                assert_int_equal(r, -ENOENT);
                assert_int_equal(naps, 600);
                while (rmdir(refused) < 0)
                        (void)sched_yield();
                assert_int_equal(read(ends[0], text, sizeof(text)), i ? -1 : 6);
        }
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)close(stderr_before);
}

/* ---- exchanging messages ---- */

static int pair[2];

static int begin_pair(void **state)
{
        return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int end_pair(void **state)
{
        (void)close(pair[0]);
        (void)close(pair[1]);
        return 0;
}

static const struct wire_message message = {.header = {.type = WIRE_REVOKE, .gpu = WIRE_NO_GPU},
                                            .REVOKE = {.lease = 7, .patience_ns = 8}};

static void a_message_arrives_with_its_descriptors(void **state)
{
        unsigned before = open_descriptors();
        struct wire_message m;
        struct passed came;

        /* No message has been sent yet. */
        assert_int_equal(link_receive(pair[1], WIRE_DOWN, &m, &came), 0);
        assert_int_equal(came.count, 0);
        assert_int_equal(link_send(pair[0], &message, pair, 2), 0);
        assert_int_equal(link_send(pair[0], &message, NULL, 0), 0);
        assert_int_equal(link_receive(pair[1], WIRE_DOWN, &m, &came), 1);
        assert_int_equal(m.REVOKE.lease, 7);
        assert_int_equal(m.REVOKE.patience_ns, 8);
        assert_int_equal(came.count, 2);
        assert_int_equal(open_descriptors(), before + 2);
        assert_true(fcntl(came.fds[1], F_GETFD) & FD_CLOEXEC);
        passed_close(&came);
        assert_int_equal(link_receive(pair[1], WIRE_DOWN, &m, &came), 1);
        assert_int_equal(came.count, 0);
        assert_int_equal(link_receive(pair[1], WIRE_DOWN, &m, &came), 0);
}

static void invalid_messages_leave_no_descriptor_open(void **state)
{
        unsigned before = open_descriptors();
        struct wire_message m = {.header = {.type = 9999}};
        char large[WIRE_SIZE_MAX + 100] = {0};
        struct passed came;

        assert_int_equal(link_send(pair[0], &m, NULL, 0), -EINVAL);
        assert_int_equal(link_send(pair[0], &message, pair, 1), 0);
        /* A daemon gets no message of this type. */
        assert_int_equal(link_receive(pair[1], WIRE_UP, &m, &came), -EBADMSG);
        assert_int_equal(came.count, 0);
        assert_int_equal(open_descriptors(), before);
        assert_int_equal(send(pair[0], large, sizeof(large), 0), sizeof(large));
        assert_int_equal(link_receive(pair[1], WIRE_DOWN, &m, &came), -EBADMSG);
}

static void sending_does_not_wait_for_a_full_or_closed_peer(void **state)
{
        struct wire_message m;
        struct passed came;
        unsigned sent = 0;
        int r;

        while ((r = link_send(pair[0], &message, NULL, 0)) == 0 && sent < 100000)
                sent++;
        assert_int_equal(r, -EAGAIN);
        while (link_receive(pair[1], WIRE_DOWN, &m, &came) == 1)
                sent--;
        assert_int_equal(sent, 0);
        (void)close(pair[1]);
        /* The call returns an error and raises no SIGPIPE. */
        assert_int_equal(link_send(pair[0], &message, NULL, 0), -EPIPE);
        assert_int_equal(link_receive(pair[0], WIRE_DOWN, &m, &came), -EPIPE);
        pair[1] = -1;
        assert_int_equal(link_receive(-1, WIRE_DOWN, &m, &came), -EBADF);
}

#define FIND_TEST(name)  cmocka_unit_test_setup_teardown(name, begin, end)
#define SPEAK_TEST(name) cmocka_unit_test_setup_teardown(name, begin_pair, end_pair)

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                FIND_TEST(a_daemon_prints_nothing_into_a_file_that_is_no_stderr),
                FIND_TEST(a_missing_daemon_is_started_and_is_no_child_of_the_program),
                FIND_TEST(a_running_daemon_is_used),
                FIND_TEST(no_daemon_is_started_without_a_path_or_a_private_directory),
                FIND_TEST(a_failed_start_of_the_daemon_is_printed_once),
                SPEAK_TEST(a_message_arrives_with_its_descriptors),
                SPEAK_TEST(invalid_messages_leave_no_descriptor_open),
                SPEAK_TEST(sending_does_not_wait_for_a_full_or_closed_peer),
        };

        if (strcmp(argv[0], "subletd") == 0)
                return be_the_daemon(argv);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
