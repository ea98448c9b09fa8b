/* test_control_order.c: an order to the daemon and its answer, which a test sets. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ask/ask.h"
#include "base/macros.h"
#include "client/talk/control_order.h"
#include "cli_bench.h"

static char dir[] = "/tmp/sublet-control-XXXXXX";
static struct {
        const char *answers[3]; /* pieces of the answer; after them the peer hangs up */
        size_t padding;         /* number of letters after the first piece */
        unsigned later;         /* so many questions are refused before, with "later" */
        char heard[256];
        int fd;
} peer;

static char *path_of(const char *name)
{
        static char path[sizeof(((struct sockaddr_un *)0)->sun_path)];

        (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
        return path;
}

/* Returns a connection whose question stands in peer.heard. */
static int hear(void)
{
        int fd = accept(peer.fd, NULL, NULL);
        size_t n = 0;

        while (n + 1 < sizeof(peer.heard) && !memchr(peer.heard, '\n', n)) {
                ssize_t r = recv(fd, peer.heard + n, sizeof(peer.heard) - 1 - n, 0);

                if (r <= 0)
                        break;
                n += (size_t)r;
        }
        peer.heard[n] = 0;
        return fd;
}

static void *answer(void *unused)
{
        static const char later[] = "{\"error\":\"too many\",\"later\":true}\n";
        int fd;

        while (fd = hear(), peer.later > 0) {
                peer.later--;
                (void)send(fd, later, strlen(later), MSG_NOSIGNAL);
                (void)close(fd);
        }
        for (unsigned i = 0; i < ARRAY_SIZE(peer.answers) && peer.answers[i]; i++) {
                const char *text = peer.answers[i];

                (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
                if (i == 0 && peer.padding) {
                        char *letters = malloc(peer.padding);

                        memset(letters, 'x', peer.padding);
                        (void)send(fd, letters, peer.padding, MSG_NOSIGNAL);
                        free(letters);
                } else {
                        (void)usleep(2000); /* so that the pieces arrive one by one */
                }
        }
        (void)close(fd);
        return NULL;
}

static void listen_as(const char *name)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};

        (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path_of(name));
        peer.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(peer.fd, (struct sockaddr *)&a, sizeof(a)), 0);
        assert_int_equal(listen(peer.fd, 1), 0);
}

static int begin(void **state)
{
        memset(&peer, 0, sizeof(peer));
        (void)strcpy(dir + strlen(dir) - 6, "XXXXXX");
        assert_non_null(mkdtemp(dir));
        listen_as(PATHS_CONTROL_SOCKET);
        (void)unsetenv("SUBLET_DIR");
        (void)unsetenv("XDG_RUNTIME_DIR");
        (void)unsetenv("SIMCUDA_SESSION");
        return cli_bench_begin(state);
}

static int end(void **state)
{
        (void)close(peer.fd);
        (void)unlink(path_of(PATHS_CONTROL_SOCKET));
        return rmdir(dir);
}

static json_t *status_order(void)
{
        return json_pack("{ss}", "order", "status");
}

/* Calls ask_daemon(), which gets these pieces. *ret: the number "n" in the answer, or -1. */
static int ask(const char *first, const char *second, const char *third, int *ret)
{
        json_t *got = NULL;
        pthread_t thread;
        int r;

        peer.answers[0] = first;
        peer.answers[1] = second;
        peer.answers[2] = third;
        assert_int_equal(pthread_create(&thread, NULL, answer, NULL), 0);
        r = ask_daemon(dir, PATHS_PRIVATE, status_order(), &got);
        assert_int_equal(pthread_join(thread, NULL), 0);
        *ret = r == 0 ? (int)json_integer_value(json_object_get(got, "n")) : -1;
        json_decref(got);
        return r;
}

static void an_order_and_its_answer_are_one_line_each(void **state)
{
        int n;

        assert_int_equal(ask("{\"n\":5}\n", NULL, NULL, &n), 0);
        assert_int_equal(n, 5);
        assert_string_equal(peer.heard, "{\"order\":\"status\"}\n");
        assert_int_equal(ask("{\"n\"", ":6}", "\n", &n), 0);
        assert_int_equal(n, 6);
        assert_int_equal(ask("{\"n\":7}", NULL, NULL, &n),
                         0); /* hanging up ends the line as well */
        assert_int_equal(n, 7);
}

static void an_order_is_repeated_while_the_daemon_answers_later(void **state)
{
        int n;

        peer.later = 2;
        assert_int_equal(ask("{\"n\":5}\n", NULL, NULL, &n), 0);
        assert_int_equal(n, 5);
        assert_int_equal(peer.later, 0);
}

static void a_long_answer_is_read_whole(void **state)
{
        /* Lengths around the size of one read, and of several reads. */
        static const size_t paddings[] = {1,     12200,  12267,    12268,    12269, 12270,
                                          16300, 16363,  16364,    16365,    20000, 28660,
                                          32768, 200000, 5u << 20, 15u << 20};
        int n;

        for (size_t i = 0; i < ARRAY_SIZE(paddings); i++) {
                peer.padding = paddings[i];
                assert_int_equal(ask("{\"text\":\"", "\",\"n\":8}", "\n", &n), 0);
                assert_int_equal(n, 8);
        }
        peer.padding = 17u << 20; /* longer than any daemon's answer */
        assert_int_equal(ask("{\"text\":\"", "\"}\n", NULL, &n), -ENOMEM);
}

static void an_answer_that_is_no_object_is_an_error(void **state)
{
        int n;

        assert_int_equal(ask(NULL, NULL, NULL, &n), -ECONNRESET);
        assert_int_equal(ask("[]\n", NULL, NULL, &n), -EBADMSG);
        assert_int_equal(ask("SSH-2.0\n", NULL, NULL, &n), -EBADMSG);
        assert_int_equal(ask("\n", NULL, NULL, &n), -EBADMSG);
        assert_int_equal(ask("{\"n\":", NULL, NULL, &n), -EBADMSG);
}

static int unanswered(enum paths_kind kind, const char *at)
{
        json_t *got = NULL;
        int r = ask_daemon(at, kind, status_order(), &got);

        assert_null(got);
        return r;
}

static void each_cause_of_an_absent_daemon_has_its_own_error(void **state)
{
        char deep[PATHS_DIR_MAX + 32];

        (void)close(peer.fd);
        assert_int_equal(unanswered(PATHS_PRIVATE, dir), -ECONNREFUSED);
        assert_int_equal(unanswered(PATHS_NAMED, dir), -ECONNREFUSED);
        assert_int_equal(unlink(path_of(PATHS_CONTROL_SOCKET)), 0);
        assert_int_equal(unanswered(PATHS_PRIVATE, dir), -ENOENT);
        assert_int_equal(unanswered(PATHS_PRIVATE, path_of("none")), -ENOENT);
        memset(deep, 'd', sizeof(deep));
        deep[0] = '/';
        deep[sizeof(deep) - 1] = 0;
        assert_int_equal(unanswered(PATHS_NAMED, deep), -ENAMETOOLONG);
        peer.fd = -1;
}

/* Any user can create a directory /tmp/sublet-UID of another user. */
static void a_socket_in_a_directory_open_to_others_is_not_used(void **state)
{
        json_t *answer_of = NULL;
        int n;

        assert_int_equal(chmod(dir, 0755), 0);
        assert_int_equal(unanswered(PATHS_PRIVATE, dir), -EPERM);
        assert_int_equal(
                control_order(&(struct target){.daemon = "/dev/null"}, status_order(), &answer_of),
                CLI_FAILED);
        assert_int_equal(chmod(dir, 0700), 0);
        assert_int_equal(ask("{}\n", NULL, NULL, &n), 0);
}

static int bytes_of(const char *first, const char *second, void **ret_bytes)
{
        const struct target target = {.daemon = dir};
        json_t *got = NULL;
        pthread_t thread;
        int r;

        peer.answers[0] = first;
        peer.answers[1] = second;
        peer.answers[2] = NULL;
        assert_int_equal(pthread_create(&thread, NULL, answer, NULL), 0);
        r = control_order_bytes(&target, json_pack("{ss}", "order", "trace"), &got, ret_bytes);
        assert_int_equal(pthread_join(thread, NULL), 0);
        json_decref(got);
        return r;
}

static int order_to(const char *text, const char *word, json_t **ret)
{
        const struct target target = {.daemon = dir};
        pthread_t thread;
        int r;

        peer.answers[0] = text;
        peer.answers[1] = NULL;
        assert_int_equal(pthread_create(&thread, NULL, answer, NULL), 0);
        r = control_order(&target, json_pack("{ss}", "order", word), ret);
        assert_int_equal(pthread_join(thread, NULL), 0);
        return r;
}

static void bytes_may_follow_the_line_of_an_answer(void **state)
{
        static const char *const pieces[][2] = {{"{\"bytes\":5}\nabcde", NULL},
                                                {"{\"bytes\":5}\n", "abcde"},
                                                {"{\"bytes\":5}\nab", "cde-more"}};
        void *bytes = NULL;

        for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
                assert_int_equal(bytes_of(pieces[i][0], pieces[i][1], &bytes), CLI_OK);
                assert_memory_equal(bytes, "abcde", 5);
                free(bytes);
        }
        bytes = NULL;
        assert_int_equal(bytes_of("{\"bytes\":5}\nabcd", NULL, &bytes), CLI_FAILED);
        assert_int_equal(bytes_of("{\"bytes\":-1}\nabcd", NULL, &bytes), CLI_FAILED);
        assert_null(bytes);
}

static void a_refusal_fails_with_the_daemons_sentence(void **state)
{
        json_t *got = NULL;

        assert_int_equal(order_to("{\"error\":\"not now\"}\n", "stop", &got), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "refuses: not now"));
        assert_non_null(strstr(cli_bench.said, dir));
        assert_null(got);
        assert_int_equal(order_to("{\"n\":1}\n", "stop", &got), CLI_OK);
        assert_int_equal(json_integer_value(json_object_get(got, "n")), 1);
        json_decref(got);
        assert_int_equal(cli_bench.failures, 1);
}

static void every_failure_names_its_cause_and_the_daemon(void **state)
{
        const struct target target = {.daemon = dir};
        json_t *got = NULL;

        assert_int_equal(order_to(NULL, "stop", &got), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "hung up without an answer"));
        assert_int_equal(order_to("[]\n", "stop", &got), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "does not speak the language"));
        (void)close(peer.fd);
        assert_int_equal(control_order(&target, status_order(), &got), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "nobody listens"));
        assert_int_equal(unlink(path_of(PATHS_CONTROL_SOCKET)), 0);
        assert_int_equal(control_order(&target, status_order(), &got), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "no subletd is running"));
        assert_non_null(strstr(cli_bench.said, dir));
        assert_null(got);
        peer.fd = -1;
}

static int choose(struct target *target, const char *option)
{
        static const struct cli_command command = {"stop", NULL, "", "", daemon_options};
        char *argv[] = {(char *)"stop", (char *)option, NULL};

        return cli_parse(&command, 2, argv, OPTIONS_NO_WORDS, target, NULL);
}

static void options_and_session_choose_the_daemon(void **state)
{
        struct target t = {0};
        char at[PATHS_DIR_MAX], expected[PATHS_DIR_MAX], deep[PATHS_DIR_MAX + 1];
        enum paths_kind kind = PATHS_SYSTEM;
        char named[sizeof("--daemon=") + PATHS_DIR_MAX];
        json_t *got = NULL;

        (void)snprintf(named, sizeof(named), "--daemon=%s", dir);
        assert_int_equal(choose(&t, "--daemon="), CLI_USAGE);
        assert_int_equal(choose(&t, "--sim"), CLI_OK);
        assert_int_equal(target_dir(&t, at, &kind), CLI_OK);
        (void)snprintf(expected, sizeof(expected), "/tmp/sublet-sim-%u", (unsigned)getuid());
        assert_string_equal(at, expected);
        assert_int_equal(kind, PATHS_PRIVATE);
        (void)setenv("SIMCUDA_SESSION", "s", 1);
        assert_int_equal(target_dir(&t, at, &kind), CLI_OK);
        assert_non_null(strstr(at, "-sim-s-"));
        assert_int_equal(choose(&t, "--sim=session=+t"), CLI_OK);
        assert_int_equal(target_dir(&t, at, &kind), CLI_OK);
        assert_non_null(strstr(at, "-sim-+t-"));
        assert_int_equal(choose(&t, "--sim=memory=1GiB"), CLI_USAGE);
        /* A directory given by name takes precedence. */
        assert_int_equal(choose(&t, named), CLI_OK);
        assert_int_equal(target_dir(&t, at, &kind), CLI_OK);
        assert_string_equal(at, dir);
        assert_int_equal(kind, PATHS_NAMED);
        memset(deep, 'd', sizeof(deep));
        deep[0] = '/';
        deep[PATHS_DIR_MAX] = 0;
        t.daemon = deep;
        assert_int_equal(target_dir(&t, at, &kind), CLI_USAGE);
        assert_int_equal(control_order(&t, status_order(), &got), CLI_USAGE);
        assert_null(got);
}

#define CONTROL_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                CONTROL_TEST(an_order_and_its_answer_are_one_line_each),
                CONTROL_TEST(an_order_is_repeated_while_the_daemon_answers_later),
                CONTROL_TEST(a_long_answer_is_read_whole),
                CONTROL_TEST(bytes_may_follow_the_line_of_an_answer),
                CONTROL_TEST(an_answer_that_is_no_object_is_an_error),
                CONTROL_TEST(each_cause_of_an_absent_daemon_has_its_own_error),
                CONTROL_TEST(a_socket_in_a_directory_open_to_others_is_not_used),
                CONTROL_TEST(a_refusal_fails_with_the_daemons_sentence),
                CONTROL_TEST(every_failure_names_its_cause_and_the_daemon),
                CONTROL_TEST(options_and_session_choose_the_daemon),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
