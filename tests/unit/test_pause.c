/* test_pause.c: orders to pause a program, with a real scheduler. They survive lost connections and
 * restarts of the daemon, and the client's reports confirm or end them. */
#include "unit.h"

#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/state/client.h"
#include "fakes/daemon.h"
#include "daemon/ledger/pause.h"

#define PID 4242

static struct server server;
static struct client earlier, now; /* two connections of one process; the newer one is first */
static const struct peer root = {.uid = 0, .trusted = true};
static struct config configuration;
static unsigned told, last_told, mosts, last_most;

void client_send(struct client *c, struct wire_message *m)
{
        if (m->header.type == WIRE_FREEZE) {
                assert_int_equal(m->header.gpu, WIRE_NO_GPU);
                mosts++;
                last_most = (unsigned)m->FREEZE.mode;
                return;
        }
        assert_int_equal(m->header.type, WIRE_PAUSE);
        assert_ptr_equal(c, &now);
        told++;
        last_told = (unsigned)m->PAUSE.paused;
}

static void new_client(struct client *c)
{
        *c = (struct client){
                .server = &server, .fd = 3, .peer = {.pid = PID, .uid = 1000}, .greeted = true};
        (void)strcpy(c->name, "train.py");
}

static int begin(void **state)
{
        struct sched_config config;

        sched_config_default(&config);
        configuration.freeze = WIRE_FREEZE_MOVE;
        mosts = 0;
        server = (struct server){.sched = sched_new(&config), .config = &configuration};
        assert_non_null(server.sched);
        assert_int_equal(sched_gpu_add(server.sched, 0, 16 * GIB), 0);
        new_client(&now);
        server.clients = &now;
        told = 0;
        return sched_client_add(server.sched, (struct sched_origin){.uid = 1000}, 0, clock_now_ns(),
                                &now.id);
}

static int end(void **state)
{
        sched_free(server.sched);
        return 0;
}

static int say(uint32_t why, uint32_t mode, const char *off)
{
        struct wire_message m = {
                .header = {WIRE_FROZEN, WIRE_NO_GPU, 1},
                .FROZEN = {.for_ns = why && !off[0] ? 1 : 0, .why = why, .mode = mode},
        };

        (void)snprintf(m.FROZEN.off, sizeof(m.FROZEN.off), "%s", off);
        return pause_frozen(&now, &m);
}

static int set(bool paused)
{
        return pause_set(client_of_process(&server, PID), paused, &root);
}

static void an_order_is_sent_each_time_and_its_repetition_is_reported(void **state)
{
        assert_int_equal(set(false), 1);
        assert_int_equal(set(true), 0);
        assert_int_equal(last_told, 1);
        assert_int_equal(set(true), 1);
        assert_int_equal(set(false), 0);
        assert_int_equal(last_told, 0);
        assert_int_equal(told, 4);
}

static void a_client_is_told_if_the_daemon_allows_less_than_moving(void **state)
{
        pause_greeted(&now);
        assert_int_equal(mosts, 0);
        configuration.freeze = WIRE_FREEZE_PARK;
        pause_greeted(&now);
        assert_int_equal(mosts, 1);
        assert_int_equal(last_most, WIRE_FREEZE_PARK);
        configuration.freeze = WIRE_FREEZE_OFF;
        pause_greeted(&now);
        assert_int_equal(mosts, 2);
        assert_int_equal(last_most, WIRE_FREEZE_OFF);
}

static void an_order_that_cannot_be_carried_out_returns_the_reason(void **state)
{
        assert_int_equal(set(true), 0);
        assert_int_equal(set(false), 0);

        assert_int_equal(say(0, WIRE_FREEZE_OFF, ""), 0);
        assert_int_equal(set(true), -EPERM);
        assert_int_equal(say(0, WIRE_FREEZE_PARK, "the driver is not known"), 0);
        assert_int_equal(set(true), -EOPNOTSUPP);
        assert_int_equal(say(0, WIRE_FREEZE_OFF, "the driver is not known"), 0);
        assert_int_equal(set(true), -EOPNOTSUPP);
        assert_int_equal(told, 2);
        assert_false(now.pause.ordered);
}

static void an_ended_process_gets_no_order(void **state)
{
        assert_null(client_of_process(&server, PID + 1));
        now.exited = true;
        assert_null(client_of_process(&server, PID));
        now.exited = false;
        now.id = 0; /* the process uses no GPU yet, so status does not show it */
        assert_null(client_of_process(&server, PID));
}

/* The record keeps the order; the new connection receives it when its first GPU is attached. */
static void a_process_that_reconnects_gets_the_order_again(void **state)
{
        sched_client id = now.id;

        assert_int_equal(set(true), 0);
        earlier = now;
        earlier.fd = -EBADF;
        new_client(&now);
        now.next = &earlier;
        now.former = &earlier;
        pause_greeted(&now);
        assert_int_equal(told, 1);
        now.id = id;
        pause_attached(&now);
        assert_int_equal(told, 2);
        assert_int_equal(last_told, 1);
        pause_attached(&now); /* the process attaches a second GPU */
        assert_int_equal(told, 2);
}

static void a_program_resumed_while_disconnected_goes_on(void **state)
{
        sched_client id = now.id;

        assert_int_equal(set(true), 0);
        now.fd = -EBADF; /* the connection is lost */
        assert_int_equal(set(false), 0);
        assert_int_equal(told, 1);
        earlier = now;
        new_client(&now);
        now.next = &earlier;
        now.former = &earlier;
        pause_greeted(&now);
        now.id = id;
        pause_attached(&now);
        assert_int_equal(told, 1);
        assert_int_equal(say(WIRE_FROZEN_PAUSED, WIRE_FREEZE_PARK, ""), 0);
        assert_int_equal(told, 2);
        assert_int_equal(last_told, 0);
        assert_int_equal(say(WIRE_FROZEN_PAUSED, WIRE_FREEZE_PARK, ""), 0);
        assert_int_equal(told, 2); /* the order is sent only once */
        assert_false(now.pause.ordered);
}

/* A process may have two connections: the new one receives the order, and the old record, which
 * status still shows, keeps the order. */
static void an_order_between_two_connections_is_not_lost(void **state)
{
        sched_client id = now.id;

        earlier = now;
        earlier.dropped = true;
        new_client(&now);
        now.next = &earlier;
        now.former = &earlier;
        pause_greeted(&now);
        assert_int_equal(set(true), 0);
        assert_int_equal(told, 0);
        now.id = id;
        pause_attached(&now);
        assert_int_equal(told, 1);
        assert_int_equal(last_told, 1);
}

static void a_restarted_daemon_believes_a_paused_process(void **state)
{
        assert_int_equal(say(WIRE_FROZEN_PAUSED, WIRE_FREEZE_MOVE, ""), 0);
        assert_true(now.pause.ordered);
        assert_int_equal(told, 0);
        assert_int_equal(set(false), 0);
        assert_int_equal(last_told, 0);
        /* The client sent this report before it received the order. */
        assert_int_equal(say(WIRE_FROZEN_PAUSED, WIRE_FREEZE_MOVE, ""), 0);
        assert_false(now.pause.ordered);
        assert_int_equal(told, 1);
}

static void a_client_that_cannot_be_frozen_is_not_paused(void **state)
{
        assert_int_equal(set(true), 0);
        assert_int_equal(say(0, WIRE_FREEZE_PARK, "it did not stop"), 0);
        assert_false(now.pause.ordered);
        assert_int_equal(told, 2); /* it may not have read the order when it refused */
        assert_int_equal(last_told, 0);

        assert_int_equal(say(0, WIRE_FREEZE_PARK, ""), 0);
        assert_int_equal(set(true), 0);
        assert_int_equal(say(WIRE_FROZEN_PAUSED, WIRE_FREEZE_OFF, "it did not stop"), 0);
        assert_false(now.pause.ordered);
        /* The daemon withdraws the order: the program would wait at the gate for nothing. */
        assert_int_equal(told, 4);
        assert_int_equal(last_told, 0);
        assert_int_equal(say(WIRE_FROZEN_PAUSED, WIRE_FREEZE_OFF, "it did not stop"), 0);
        assert_int_equal(told, 4); /* the report is older than the withdrawal */
}

/* A reason against the next pause does not end the present one. */
static void a_frozen_client_stays_paused_whatever_mode_it_reports(void **state)
{
        struct wire_message m = {
                .header = {WIRE_FROZEN, WIRE_NO_GPU, 1},
                .FROZEN = {.for_ns = 1, .why = WIRE_FROZEN_PAUSED, .mode = WIRE_FREEZE_OFF},
        };

        assert_int_equal(set(true), 0);
        assert_int_equal(pause_frozen(&now, &m), 0);
        assert_true(now.pause.ordered);
        assert_int_equal(told, 1);
}

static void figures_are_no_older_than_the_process(void **state)
{
        const struct wire_message m = {
                .header = {WIRE_FROZEN, WIRE_NO_GPU, 1},
                .FROZEN = {.for_ns = UINT64_MAX,
                           .lost_ns = UINT64_MAX,
                           .took_ns = UINT64_MAX,
                           .why = WIRE_FROZEN_AWAY,
                           .mode = UINT32_MAX},
        };

        assert_int_equal(pause_frozen(&now, &m), 0);
        assert_true(clock_now_ns() - now.frozen.since_ns <= AGE_NS + NSEC_PER_SEC);
        assert_int_equal(now.frozen.lost_ns, AGE_NS);
        assert_int_equal(now.frozen.took_ns, AGE_NS);
        assert_false(now.pause.ordered);
}

static bool stands(void)
{
        struct sched_client_view v;

        assert_int_equal(sched_client_view(server.sched, now.id, clock_now_ns(), &v), 0);
        return v.flags & SCHED_UNPREEMPTIBLE;
}

/* Gives the client a lease. */
static void run(void)
{
        const struct sched_attach a = {.running = true, .run = true};

        assert_int_equal(
                sched_client_attach(server.sched, now.id, 0, &a, clock_now_ns(), &server.actions),
                0);
}

static void only_a_paused_client_may_refuse_to_give_way(void **state)
{
        run();
        pause_refused(&now);
        assert_false(stands());
        assert_int_equal(set(true), 0);
        pause_refused(&now);
        assert_true(stands());
        assert_int_equal(say(WIRE_FROZEN_PAUSED, WIRE_FREEZE_PARK, ""), 0);
        assert_true(stands());
        assert_int_equal(set(false), 0);
        assert_false(stands());
}

static void a_client_that_goes_on_by_itself_can_be_asked_again(void **state)
{
        run();
        assert_int_equal(set(true), 0);
        pause_refused(&now);
        assert_true(stands());
        assert_int_equal(say(0, WIRE_FREEZE_PARK, ""), 0);
        assert_false(stands());
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
        const struct CMUnitTest tests[] = {
                TEST(an_order_is_sent_each_time_and_its_repetition_is_reported),
                TEST(a_client_is_told_if_the_daemon_allows_less_than_moving),
                TEST(an_order_that_cannot_be_carried_out_returns_the_reason),
                TEST(an_ended_process_gets_no_order),
                TEST(a_process_that_reconnects_gets_the_order_again),
                TEST(a_program_resumed_while_disconnected_goes_on),
                TEST(an_order_between_two_connections_is_not_lost),
                TEST(a_restarted_daemon_believes_a_paused_process),
                TEST(a_client_that_cannot_be_frozen_is_not_paused),
                TEST(a_frozen_client_stays_paused_whatever_mode_it_reports),
                TEST(figures_are_no_older_than_the_process),
                TEST(only_a_paused_client_may_refuse_to_give_way),
                TEST(a_client_that_goes_on_by_itself_can_be_asked_again),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
