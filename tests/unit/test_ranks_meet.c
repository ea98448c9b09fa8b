/* test_ranks_meet.c: ranks meet, and each learns at once that another rank's process has ended,
 * also if that process is the one that serves the name. */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "ranks/meet/meet.h"
#include "ranks/meet/meet_server.h"

#define PATIENCE_MS 10000

static void nap(void)
{
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void note(void *context, int rank)
{
        atomic_store((atomic_bool *)context, true);
}

/* Serves a name, and is rank 0 of two. It leaves and ends at once, or waits until it is killed. */
static pid_t start_server(bool leaves, uint8_t ret_name[static MEET_NAME])
{
        int at[2];
        pid_t pid;

        assert_int_equal(pipe(at), 0);
        pid = fork();
        if (pid == 0) {
                struct meet *m;
                int mine = 0, all[2];

                if (meet_serve_new(ret_name) < 0 || meet_join(ret_name, 0, 2, NULL, NULL, &m) < 0 ||
                    write(at[1], ret_name, MEET_NAME) != MEET_NAME ||
                    meet_all(m, &mine, sizeof(mine), NULL, 0, all, NULL) < 0)
                        _exit(1);
                if (leaves) {
                        meet_leave(m, 0);
                        _exit(0);
                }
                for (;;)
                        (void)pause();
        }
        assert_int_equal(read(at[0], ret_name, MEET_NAME), MEET_NAME);
        (void)close(at[0]);
        (void)close(at[1]);
        return pid;
}

/* Returns rank 1, after it has met rank 0. */
static struct meet *meet_server(const uint8_t name[static MEET_NAME], atomic_bool *lost)
{
        struct meet *m;
        int mine = 1, all[2];

        assert_int_equal(meet_join(name, 1, 2, note, lost, &m), 0);
        assert_int_equal(meet_all(m, &mine, sizeof(mine), NULL, 0, all, NULL), 0);
        return m;
}

static void a_rank_learns_that_the_serving_process_has_ended(void **state)
{
        uint8_t name[MEET_NAME];
        const pid_t server = start_server(false, name);
        atomic_bool lost = false;
        struct meet *m = meet_server(name, &lost);
        int mine = 1, all[2];

        assert_false(lost);
        assert_int_equal(kill(server, SIGKILL), 0);
        assert_int_equal(waitpid(server, NULL, 0), server);
        for (int i = 0; i < PATIENCE_MS && !lost; i++)
                nap();
        assert_true(lost);
        assert_int_equal(meet_lost(m), -1); /* nobody is left to say whose process it was */
        assert_int_equal(meet_all(m, &mine, sizeof(mine), NULL, 0, all, NULL), -ECONNRESET);
        meet_leave(m, 0);
}

static void a_serving_process_that_leaves_before_it_ends_is_no_error(void **state)
{
        uint8_t name[MEET_NAME];
        const pid_t server = start_server(true, name);
        atomic_bool lost = false;
        struct meet *m = meet_server(name, &lost);
        int mine = 1, all[2];

        assert_int_equal(waitpid(server, NULL, 0), server);
        assert_int_equal(meet_all(m, &mine, sizeof(mine), NULL, 0, all, NULL), -ECONNRESET);
        assert_false(lost);
        meet_leave(m, 0);
}

static void ranks_learn_how_much_those_that_left_have_done(void **state)
{
        static const uint64_t done[] = {7, 5};
        uint8_t name[MEET_NAME];
        struct meet *m[3];

        assert_int_equal(meet_serve_new(name), 0);
        for (int i = 0; i < 3; i++)
                assert_int_equal(meet_join(name, i, 3, NULL, NULL, &m[i]), 0);
        assert_true(meet_uses(m[2]) == UINT64_MAX);
        for (int i = 0; i < 2; i++) {
                meet_leave(m[i], done[i]);
                for (int n = 0; n < PATIENCE_MS && meet_uses(m[2]) != done[i]; n++)
                        nap();
                assert_int_equal(meet_uses(m[2]), done[i]);
        }
        meet_leave(m[2], 9);
}

/* A rank that leaves has not read yet that others have left. */
static void ranks_that_leave_together_are_no_error(void **state)
{
        for (int round = 0; round < 200; round++) {
                uint8_t name[MEET_NAME];
                atomic_bool lost = false;
                struct meet *m[3];

                assert_int_equal(meet_serve_new(name), 0);
                for (int i = 0; i < 3; i++)
                        assert_int_equal(meet_join(name, i, 3, note, &lost, &m[i]), 0);
                for (int i = 0; i < 3; i++)
                        meet_leave(m[i], 0);
                assert_false(lost);
        }
}

static void the_others_learn_which_rank_has_ended(void **state)
{
        uint8_t name[MEET_NAME];
        struct meet *m[2];
        int mine = 0, all[3];
        pid_t pid;

        assert_int_equal(meet_serve_new(name), 0);
        pid = fork();
        if (pid == 0) {
                int fd = server_connect(name);
                const struct said hello = {.kind = SAID_HELLO, .rank = 1, .n = 3};

                _exit(fd >= 0 && said_send(fd, &hello, NULL, 0) == 0 ? 0 : 1);
        }
        for (int i = 0; i < 2; i++)
                assert_int_equal(meet_join(name, 2 * i, 3, NULL, NULL, &m[i]), 0);
        assert_int_equal(meet_all(m[0], &mine, sizeof(mine), NULL, 0, all, NULL), -ECONNRESET);
        assert_int_equal(meet_lost(m[0]), 1);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        for (int i = 0; i < 2; i++)
                meet_leave(m[i], 0);
}

#define RANKS 8

static void set_limit(rlim_t descriptors)
{
        struct rlimit limit;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        limit.rlim_cur = descriptors;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* A step of the server that may have few descriptors on their way. The ranks read when it is over.
 */
static void serve_with_few(struct server *s, const int fds[static RANKS],
                           unsigned got[static RANKS])
{
        set_limit(40);
        assert_true(server_step(s));
        set_limit(400);
        for (int i = 0; i < RANKS; i++) {
                struct said said;
                int came[MEET_FDS];

                while (said_receive(fds[i], &said, came) > 0) {
                        assert_int_equal(said.kind, SAID_TELL);
                        assert_int_equal(said.rank, got[i]);
                        assert_true(came[0] >= 0 && came[1] >= 0);
                        said_close(came);
                        got[i]++;
                }
        }
}

/* The kernel lets a user without privileges have at most RLIMIT_NOFILE descriptors on their way. */
static void ranks_get_more_descriptors_than_may_be_on_their_way(void **state)
{
        struct server *s;
        uint8_t name[MEET_NAME] = {1};
        int fds[RANKS];
        unsigned got[RANKS] = {0};

        if (geteuid() == 0)
                assert_int_equal(setresuid(65534, 65534, 65534), 0);
        assert_int_equal(server_new(name, &s), 0);
        for (int i = 0; i < RANKS; i++) {
                const struct said hello = {.kind = SAID_HELLO, .rank = i, .n = RANKS};
                const struct said tell = {.kind = SAID_TELL};

                fds[i] = server_connect(name);
                assert_true(fds[i] >= 0);
                assert_int_equal(said_send(fds[i], &hello, NULL, 0), 0);
                assert_int_equal(said_send(fds[i], &tell, (int[]){0, 1}, 2), 0);
        }
        for (int round = 0; round < 20; round++)
                serve_with_few(s, fds, got);
        for (int i = 0; i < RANKS; i++)
                assert_int_equal(got[i], RANKS);
        server_free(s);
}

/* They never say who they are. A rank that comes behind them gets its seat once one has gone. */
static void a_server_does_not_spin_when_too_many_connect(void **state)
{
        struct pollfd polled[1 + 2 * MEET_RANKS_MAX];
        struct server *s;
        uint8_t name[MEET_NAME] = {2};
        int fds[MEET_RANKS_MAX + 1];
        const struct said hello = {.kind = SAID_HELLO, .rank = 0, .n = 2};

        assert_int_equal(server_new(name, &s), 0);
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
                fds[i] = server_connect(name);
                assert_true(fds[i] >= 0);
                assert_true(server_step(s));
        }
        assert_int_equal(said_send(fds[MEET_RANKS_MAX], &hello, NULL, 0), 0);
        assert_true(server_step(s));
        assert_int_equal(poll(polled, server_descriptors(s, polled), 0), 0);
        (void)close(fds[0]);
        assert_int_equal(poll(polled, server_descriptors(s, polled), 0), 1);
        assert_true(server_step(s));
        assert_true(server_step(s));
        assert_true(s->seats[0].here);
        server_free(s);
}

static _Atomic unsigned calls;
static struct timespec called[10];

static bool has_nothing_to_do(void)
{
        const unsigned n = atomic_load(&calls);

        if (n < ARRAY_SIZE(called))
                (void)clock_gettime(CLOCK_MONOTONIC, &called[n]);
        atomic_store(&calls, n + 1);
        return false;
}

static int64_t ms_between(unsigned a, unsigned b)
{
        return (called[b].tv_sec - called[a].tv_sec) * 1000 +
               (called[b].tv_nsec - called[a].tv_nsec) / 1000000;
}

/* An aborted communicator whose graphs may be launched again needs it as long as the program
 * runs. */
static void a_function_without_work_is_called_ever_more_seldom(void **state)
{
        uint8_t name[MEET_NAME];

        assert_int_equal(meet_serve_new(name), 0);
        meet_call_often(has_nothing_to_do);
        for (unsigned i = 0; i < PATIENCE_MS && atomic_load(&calls) < ARRAY_SIZE(called); i++)
                nap();
        meet_call_often(NULL);
        assert_true(atomic_load(&calls) >= ARRAY_SIZE(called));
        assert_true(ms_between(7, 8) >= 128);
        assert_true(ms_between(8, 9) >= 255);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_rank_learns_that_the_serving_process_has_ended),
                cmocka_unit_test(a_serving_process_that_leaves_before_it_ends_is_no_error),
                cmocka_unit_test(ranks_that_leave_together_are_no_error),
                cmocka_unit_test(the_others_learn_which_rank_has_ended),
                cmocka_unit_test(ranks_learn_how_much_those_that_left_have_done),
                cmocka_unit_test(ranks_get_more_descriptors_than_may_be_on_their_way),
                cmocka_unit_test(a_server_does_not_spin_when_too_many_connect),
                cmocka_unit_test(a_function_without_work_is_called_ever_more_seldom),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
