/* test_history.c: what the daemon keeps of what happens: a ring of bounded size, and records of
 * what a client does. With a real scheduler; the tests set the time. */
#include "unit.h"

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/history/history.h"
#include "daemon/history/record_ring.h"
#include "daemon/state/client.h"

#define ALICE 1000u
#define BOB   1001u

static struct config config;
static struct server server;
static struct client client;
static struct ring_copy kept;
static struct history_program *programs;
static uint64_t now_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
        *ret = (struct timespec){(time_t)(now_ns / NSEC_PER_SEC), (long)(now_ns % NSEC_PER_SEC)};
        return 0;
}

struct client *server_find(const struct server *s, sched_client id)
{
        return id == client.id ? &client : NULL;
}

static int begin(void **state)
{
        struct sched_config sched;

        now_ns = NSEC_PER_SEC;
        memset(&config, 0, sizeof(config));
        sched_config_default(&sched);
        config.sched = sched;
        server = (struct server){.config = &config,
                                 .sched = sched_new(&sched),
                                 .users = users_new(8),
                                 .history = ring_new(),
                                 .clients = &client};
        client = (struct client){
                .server = &server, .name = "train", .peer = {.pid = 7, .uid = ALICE}};
        memset(client.gpu_of, 0xff, sizeof(client.gpu_of)); /* sets each entry to -1 */
        client.gpu_of[0] = 0;
        assert_true(server.sched && server.users && server.history);
        assert_int_equal(users_connect(server.users, USERS_UID(ALICE), now_ns, &client.user), 0);
        assert_int_equal(sched_gpu_add(server.sched, 0, 16 * GIB), 0);
        assert_int_equal(
                sched_client_add(server.sched, (struct sched_origin){0}, 0, now_ns, &client.id), 0);
        assert_int_equal(sched_client_attach(
                                 server.sched, client.id, 0,
                                 &(struct sched_attach){.usage = {.allocated = GIB, .backed = GIB},
                                                        .running = true,
                                                        .run = true},
                                 now_ns, &server.actions),
                         0);
        history_event(&server);
        programs = NULL;
        return 0;
}

static int end(void **state)
{
        free(programs);
        ring_free(server.history);
        users_free(server.users);
        sched_free(server.sched);
        return 0;
}

/* Copies the ring for a viewer of this uid. Returns the records; *ret_n of them. */
static const struct history_record *copy(uid_t viewer, size_t *ret_n)
{
        const struct peer peer = {.uid = viewer, .outside = true};

        free(programs);
        programs = history_copy(&server, &peer, &kept);
        assert_non_null(programs);
        *ret_n = kept.records;
        return (const struct history_record *)(programs + kept.programs);
}

static void idle(bool is_so)
{
        struct sched_look look;
        struct sched_client_view v;

        assert_int_equal(sched_client_view(server.sched, client.id, now_ns, &v), 0);
        assert_int_equal(
                sched_client_idle(server.sched, client.id, v.lease, is_so, now_ns, &server.actions),
                0);
        assert_int_equal(sched_client_look(server.sched, client.id, &look), 0);
        assert_int_equal(look.idle, is_so);
        history_event(&server);
}

static void report(uint64_t backed, uint64_t moved_out, uint64_t moved_in)
{
        const struct sched_usage u = {
                .allocated = GIB, .backed = backed, .moved_out = moved_out, .moved_in = moved_in};

        assert_int_equal(
                sched_client_usage(server.sched, client.id, 0, &u, 0, 0, now_ns, &server.actions),
                0);
        history_client(&client);
}

static void a_program_enters_with_its_name_and_state(void **state)
{
        size_t n;
        const struct history_record *r = copy(ALICE, &n);

        assert_int_equal(n, 1);
        assert_int_equal(kept.programs, 1);
        assert_string_equal(programs[0].name, "train");
        assert_int_equal(programs[0].pid, 7);
        assert_int_equal(r->kind, HISTORY_STATE);
        assert_int_equal(r->before, HISTORY_ABSENT);
        assert_int_equal(r->state, HISTORY_RUNNING);
        assert_int_equal(r->value, GIB);
        assert_int_equal(r->time_ns, now_ns);
}

static void another_user_sees_no_name(void **state)
{
        size_t n;

        (void)copy(BOB, &n);
        assert_int_equal(programs[0].pid, 7);
        assert_string_equal(programs[0].name, "");
        assert_int_equal(programs[0].uid, UINT32_MAX);
}

static void a_short_gap_is_no_record_and_a_long_one_begins_when_it_began(void **state)
{
        const struct history_record *r;
        uint64_t began;
        size_t n;

        for (unsigned i = 0; i < 100; i++) {
                idle(i % 2 == 0);
                now_ns += 20 * NSEC_PER_MSEC;
        }
        (void)copy(ALICE, &n);
        assert_int_equal(n, 1);
        began = now_ns;
        idle(true);
        now_ns += 150 * NSEC_PER_MSEC;
        idle(false);
        r = copy(ALICE, &n);
        assert_int_equal(n, 3);
        assert_int_equal(r[1].time_ns, began);
        assert_int_equal(r[1].marks, HISTORY_UNUSED);
        assert_int_equal(r[2].time_ns, now_ns);
        assert_int_equal(r[2].marks, 0);
        assert_int_equal(r[2].before_marks, HISTORY_UNUSED);
}

static void moved_bytes_are_summed_up_until_the_next_record(void **state)
{
        const struct history_record *r;
        uint64_t out = 0, moved_in = 0;
        size_t n;

        for (unsigned i = 1; i <= 50; i++) {
                report(GIB - i * MIB, i * MIB, i * KIB);
                now_ns += 10 * NSEC_PER_MSEC;
                if (i % 25 == 0)
                        history_period(&server);
        }
        r = copy(ALICE, &n);
        assert_int_equal(n, 1 + 2 * 2);
        for (size_t i = 1; i < n; i++) {
                out += r[i].kind == HISTORY_OUT ? r[i].value : 0;
                moved_in += r[i].kind == HISTORY_IN ? r[i].value : 0;
        }
        assert_int_equal(out, 50 * MIB);
        assert_int_equal(moved_in, 50 * KIB);
        assert_int_equal(r[n - 1].more, GIB - 50 * MIB);
}

static void memory_that_grows_is_noted_in_steps(void **state)
{
        size_t n;

        report(GIB - 16 * GIB / 64 + 1, 0, 0);
        history_period(&server);
        (void)copy(ALICE, &n);
        assert_int_equal(n, 1);
        report(GIB - 16 * GIB / 64, 0, 0);
        history_period(&server);
        assert_int_equal(copy(ALICE, &n)[1].kind, HISTORY_MEMORY);
        assert_int_equal(n, 2);
}

static void an_order_is_noted_with_who_gave_it_for_those_who_may_know(void **state)
{
        const struct peer root = {.uid = 0, .pid = 42, .trusted = true, .outside = true};
        const struct history_record *r;
        char who[HISTORY_WHO_MAX];
        size_t n;

        assert_string_equal(history_order(&server, &client, HISTORY_PAUSE, &root, who),
                            "by user 0, process 42");
        r = copy(ALICE, &n);
        assert_int_equal(r[n - 1].kind, HISTORY_ORDER);
        assert_int_equal(r[n - 1].state, HISTORY_PAUSE);
        assert_int_equal(r[n - 1].value, 0);
        assert_int_equal(r[n - 1].more, 42);
        r = copy(BOB, &n);
        assert_int_equal(r[n - 1].kind, HISTORY_ORDER);
        assert_int_equal(r[n - 1].value, UINT32_MAX);
        assert_int_equal(r[n - 1].more, 0);
        (void)history_order(&server, NULL, HISTORY_SET, &root, who);
        r = copy(ALICE, &n);
        assert_int_equal(r[n - 1].program, HISTORY_NO_PROGRAM);
        assert_int_equal(r[n - 1].value, UINT32_MAX); /* she gives no orders here */
}

/* One user cannot push the records of others out at once; the next period tells his state. */
static void a_user_has_a_thousand_records_a_second(void **state)
{
        const struct history_record *r;
        size_t n;

        for (unsigned i = 0; i < 50001; i++) {
                client.pause.ordered = !client.pause.ordered;
                history_client(&client);
        }
        for (unsigned i = 0; i < 100; i++)
                (void)copy(BOB, &n); /* a viewer who asks all the time adds none */
        assert_true(n > 900 && n < 1010);
        history_period(&server);
        r = copy(ALICE, &n);
        assert_int_equal(r[n - 1].marks, HISTORY_PAUSED);
}

static void a_user_cannot_take_the_rows_of_others_at_once(void **state)
{
        size_t n;

        for (unsigned i = 0; i < HISTORY_PROGRAMS; i++) {
                history_left(&client);
                history_client(&client); /* another program of the user */
                history_period(&server);
        }
        (void)copy(ALICE, &n);
        assert_true(kept.programs > 50 && kept.programs < 150);
        now_ns += 2 * NSEC_PER_SEC;
        history_client(&client);
        assert_true(client.history.entered);
}

static void a_state_that_lasts_stays_in_the_ring(void **state)
{
        const struct history_record other = {.program = HISTORY_NO_PROGRAM};
        const struct history_record *r;
        size_t n, found = 0;

        for (unsigned i = 0; i < 2 * HISTORY_RECORDS; i++) {
                ring_append(server.history, &other);
                if (i % (HISTORY_RECORDS / 8) == 0)
                        history_period(&server);
        }
        r = copy(ALICE, &n);
        assert_int_equal(n, HISTORY_RECORDS);
        for (size_t i = 0; i < n; i++)
                found += r[i].kind == HISTORY_STATE && r[i].state == HISTORY_RUNNING;
        assert_true(found > 0);
}

static void a_full_ring_keeps_the_newest(void **state)
{
        const struct history_record *r;
        size_t n;

        for (unsigned i = 0; i < HISTORY_RECORDS + 5; i++)
                ring_append(server.history,
                            &(struct history_record){.value = i, .program = HISTORY_NO_PROGRAM});
        programs = ring_copy(server.history, &kept);
        assert_non_null(programs);
        n = kept.records;
        r = (const struct history_record *)(programs + kept.programs);
        assert_int_equal(n, HISTORY_RECORDS);
        for (size_t i = 0; i < n; i++)
                assert_int_equal(r[i].value, i + 5);
}

static void the_row_that_was_free_for_longest_serves_again(void **state)
{
        static const struct peer row = {.pid = 1, .uid = ALICE};
        uint16_t rows[HISTORY_PROGRAMS];

        for (unsigned i = 1; i < HISTORY_PROGRAMS; i++)
                assert_int_equal(ring_enter(server.history, &row, "x", 10), i);
        assert_int_equal(ring_enter(server.history, &row, "x", 10), HISTORY_NO_PROGRAM);
        ring_leave(server.history, 5, 30);
        ring_leave(server.history, 9, 20);
        rows[0] = ring_enter(server.history, &row, "x", 40);
        rows[1] = ring_enter(server.history, &row, "x", 40);
        assert_int_equal(rows[0], 9);
        assert_int_equal(rows[1], 5);
}

static void the_next_daemon_ends_the_programs_of_the_last_one(void **state)
{
        size_t n;

        now_ns += 5;
        client.history.entered = false; /* the next daemon has other clients */
        client.id = 0;
        history_began(&server);
        assert_int_equal(copy(ALICE, &n)[1].kind, HISTORY_START);
        assert_int_equal(n, 2);
        assert_int_equal(programs[0].ended_ns, now_ns);
}

static void a_program_that_leaves_has_a_last_record(void **state)
{
        size_t n;

        history_left(&client);
        client.id = 0;
        assert_int_equal(copy(ALICE, &n)[1].state, HISTORY_ABSENT);
        assert_int_equal(n, 2);
        assert_int_equal(programs[0].ended_ns, now_ns);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_program_enters_with_its_name_and_state),
                TEST(another_user_sees_no_name),
                TEST(a_short_gap_is_no_record_and_a_long_one_begins_when_it_began),
                TEST(moved_bytes_are_summed_up_until_the_next_record),
                TEST(memory_that_grows_is_noted_in_steps),
                TEST(an_order_is_noted_with_who_gave_it_for_those_who_may_know),
                TEST(a_user_has_a_thousand_records_a_second),
                TEST(a_user_cannot_take_the_rows_of_others_at_once),
                TEST(a_state_that_lasts_stays_in_the_ring),
                TEST(a_full_ring_keeps_the_newest),
                TEST(the_row_that_was_free_for_longest_serves_again),
                TEST(the_next_daemon_ends_the_programs_of_the_last_one),
                TEST(a_program_that_leaves_has_a_last_record),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
