/* test_turns.c: clients' messages are read in turns, with a real event loop, real users and clients
 * that only count. A look at the cards leads to the right steps. */
#include "unit.h"

#include <systemd/sd-event.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/ledger/reserve.h"
#include "daemon/net/peer_daemons.h"
#include "daemon/state/client.h"
#include "fakes/daemon.h"
#include "daemon/net/read_turns.h"
#include "daemon/net/session.h"
#include "daemon/net/looks.h"
#include "daemon/ledger/card_figures.h"
#include "daemon/net/client_connection.h"

#define CLIENTS 5u

static struct config config;
static struct server server;
static struct client clients[CLIENTS];
static struct {
        unsigned left[CLIENTS]; /* messages that wait */
        unsigned order[64], n;  /* clients in the order in which they were read */
        uint64_t lasts_ns[CLIENTS];
        char steps[256]; /* names of the steps that a look led to */
        bool asks;
        unsigned restarts;
} now;

/* ---- fakes of other modules ---- */

bool client_turn(struct client *c)
{
        unsigned at = (unsigned)(c - clients);
        uint64_t began = clock_now_ns();

        assert_true(now.n < ARRAY_SIZE(now.order));
        now.order[now.n++] = at;
        while (clock_now_ns() - began < now.lasts_ns[at])
                ;
        return --now.left[at] > 0;
}

static void step(const char *what)
{
        size_t n = strlen(now.steps);

        (void)snprintf(now.steps + n, sizeof(now.steps) - n, "%s ", what);
}

void client_looked(struct client *c)
{
        if (c == clients)
                step("clients");
}

void client_check_left(struct client *c)
{
        if (c == clients)
                step("left");
}

void gpus_take(struct gpus *g, const struct nvml_look *look, struct sched *sched, uint64_t now_ns)
{
        step("cards");
}

void gpus_forget(struct gpus *g, struct sched *sched, uint64_t now_ns)
{
        step("forget");
}

void figures_looked(struct server *s, bool sample)
{
        step(sample ? "sample" : "measure");
}

void peer_daemons_tick(struct server *s)
{
        step("tick");
}

void reserve_prune(struct server *s)
{
}

void session_resume(struct server *s)
{
        step("resume");
}

void server_open_doors(struct server *s)
{
        step("doors");
        s->open = true;
}

bool reader_ask(struct reader *r)
{
        step("ask");
        return now.asks;
}

void reader_restart(struct reader *r)
{
        now.restarts++;
}

void sched_gpu_total(struct sched *s, unsigned gpu, uint64_t total_bytes, uint64_t now_ns,
                     struct sched_actions *out)
{
        assert_true(event_open);
        assert_int_equal(gpu, 1);
        assert_int_equal(total_bytes, GIB);
        step("total");
}

/* ---- scenes ---- */

/* Clients 0 to 2 belong to Ada, 3 and 4 to Bob. */
static int begin(void **state)
{
        memset(&now, 0, sizeof(now));
        event_open = false;
        server = (struct server){.config = &config, .users = users_new(100), .clients = clients};
        assert_non_null(server.users);
        assert_true(sd_event_new(&server.event) >= 0);
        assert_int_equal(MIN(read_turns_open(&server), 0), 0);
        for (unsigned i = 0; i < CLIENTS; i++) {
                clients[i] = (struct client){.server = &server,
                                             .next = i + 1 < CLIENTS ? &clients[i + 1] : NULL};
                for (unsigned g = 0; g < SCHED_GPUS_MAX; g++)
                        clients[i].accounts[g].ordinal = -1;
                assert_int_equal(users_connect(server.users, USERS_UID(i < 3 ? 1 : 2),
                                               clock_now_ns(), &clients[i].user),
                                 0);
        }
        return 0;
}

static int end(void **state)
{
        read_turns_close(&server);
        (void)sd_event_unref(server.event);
        users_free(server.users);
        return 0;
}

static void waits(unsigned client, unsigned messages)
{
        now.left[client] = messages;
        read_turns_wait(&clients[client]);
}

static unsigned left(void)
{
        unsigned n = 0;

        for (unsigned i = 0; i < CLIENTS; i++)
                n += clients[i].turn_waits;
        return n;
}

/* Runs the event loop until no message waits. Nothing more may happen afterwards. */
static void run(void)
{
        for (unsigned i = 0; left() && i < 1000; i++)
                assert_true(sd_event_run(server.event, UINT64_MAX) >= 0);
        assert_int_equal(left(), 0);
        assert_null(server.turns);
        while (sd_event_run(server.event, 0) > 0)
                ;
}

static void read_in(const unsigned *order, unsigned n)
{
        assert_int_equal(now.n, n);
        assert_memory_equal(now.order, order, n * sizeof(*order));
}
#define READ_IN(...) \
        read_in((const unsigned[]){__VA_ARGS__}, ARRAY_SIZE(((const unsigned[]){__VA_ARGS__})))

/* ---- tests ---- */

static void a_users_clients_are_read_in_turns(void **state)
{
        waits(0, 3);
        waits(1, 1);
        waits(2, 2);
        run();
        READ_IN(0, 1, 2, 0, 2, 0);
}

static void a_client_that_waits_already_keeps_its_place(void **state)
{
        waits(0, 2);
        waits(1, 1);
        read_turns_wait(&clients[0]);
        read_turns_wait(&clients[1]);
        run();
        READ_IN(0, 1, 0);
        now.n = 0;
        waits(1, 1); /* client 1 is read again later */
        run();
        READ_IN(1);
}

/* A user that has used more time is read after the others. */
static void the_user_that_has_used_least_is_read_first(void **state)
{
        users_charge(clients[0].user, 40 * NSEC_PER_MSEC, clock_now_ns());
        waits(0, 1);
        waits(1, 1);
        waits(3, 2);
        waits(4, 1);
        run();
        READ_IN(3, 4, 3, 0, 1);
        users_charge(clients[3].user, 49 * NSEC_PER_MSEC, clock_now_ns());
        now.n = 0;
        waits(3, 1);
        waits(0, 1);
        run();
        READ_IN(0, 3);
}

static void a_turn_ends_after_its_time_and_is_charged(void **state)
{
        int64_t before = users_credit(clients[0].user, clock_now_ns());

        now.lasts_ns[0] = now.lasts_ns[1] = 2 * TURN_NS;
        waits(0, 2);
        waits(1, 1);
        waits(3, 1);
        run();
        READ_IN(0, 3, 1, 0); /* Bob's client is read before Ada's next one */
        assert_in_range(before - users_credit(clients[0].user, clock_now_ns()), 1,
                        10 * NSEC_PER_SEC);
}

static void a_client_that_leaves_is_not_read(void **state)
{
        waits(0, 1);
        waits(1, 1);
        waits(2, 1);
        read_turns_leave(&clients[1]);
        read_turns_leave(&clients[3]); /* has no message waiting */
        assert_true(clients[0].turn_waits);
        clients[1].turn_waits = false;
        run();
        READ_IN(0, 2);
        now.n = 0;
        waits(0, 1);
        waits(1, 1);
        read_turns_leave(&clients[1]); /* client 1 is the last one that waits */
        clients[1].turn_waits = false;
        waits(2, 1);
        run();
        READ_IN(0, 2);
}

static void a_user_leaves_the_order_with_its_last_client(void **state)
{
        waits(0, 1);
        waits(3, 1);
        read_turns_leave(&clients[0]);
        clients[0].turn_waits = false;
        run();
        READ_IN(3);
        now.n = 0;
        waits(0, 1);
        waits(3, 1);
        read_turns_leave(&clients[3]);
        clients[3].turn_waits = false;
        run();
        READ_IN(0);
        waits(0, 1);
        read_turns_leave(&clients[0]);
        assert_null(server.turns);
}

static struct nvml_look shown;

static void told(uint64_t asked_ns)
{
        now.steps[0] = 0;
        looks_told(&server, &shown, asked_ns);
        assert_false(event_open);
}

static void the_cards_are_updated_before_waiting_clients(void **state)
{
        shown = (struct nvml_look){.n = 1};
        shown.cards[0].measured = true;
        told(5);
        assert_string_equal(now.steps, "cards measure clients doors ");
        assert_ptr_equal(server.look, &shown);
        assert_int_equal(server.look_ns, 5);
        now.steps[0] = 0;
        looks_told(&server, NULL, 6); /* no look this time */
        assert_string_equal(now.steps, "clients doors ");
        assert_null(server.look);
}

static void a_period_ends_with_its_own_look(void **state)
{
        shown = (struct nvml_look){.n = 1};
        shown.cards[0].measured = true;
        server.sample_ns = 10;
        told(9);
        assert_string_equal(now.steps, "cards measure clients doors ");
        assert_int_equal(server.sample_ns, 10);
        told(10);
        assert_string_equal(now.steps, "cards sample clients left tick resume forget doors ");
        assert_int_equal(server.sample_ns, 0);
        server.sample_ns = 10;
        now.steps[0] = 0;
        looks_told(&server, NULL, 10);
        assert_string_equal(now.steps, "clients left tick resume forget doors ");
}

static void a_sample_is_requested_if_nvml_can_answer(void **state)
{
        now.asks = true;
        server.open = true;
        looks_sample(&server); /* nobody has a GPU, and NVML does not run */
        assert_string_equal(now.steps, "doors left tick resume forget ");
        assert_int_equal(server.sample_ns, 0);
        now.steps[0] = 0;
        server.n_attached = 1;
        looks_sample(&server);
        assert_string_equal(now.steps, "ask ");
        assert_true(server.sample_ns > 0);
        server.sample_ns = 7;
        looks_sample(&server); /* the earlier sample is still due */
        assert_int_equal(server.sample_ns, 7);
        now.steps[0] = 0;
        server.n_attached = 0;
        server.look = &shown;
        looks_sample(&server);
        assert_string_equal(now.steps, "ask ");
        server.look = NULL;
        server.open = false; /* as before the first sample of all */
        now.steps[0] = 0;
        looks_sample(&server);
        assert_string_equal(now.steps, "ask ");
        now.asks = false;
        now.steps[0] = 0;
        looks_sample(&server);
        assert_string_equal(now.steps, "ask doors left tick resume forget ");
}

static void a_corrected_total_is_reported_once(void **state)
{
        shown = (struct nvml_look){.n = 1};
        server.gpus.n = 3;
        server.gpus.list[1] = (struct gpu){.present = true, .corrected = true, .total_bytes = GIB};
        told(1);
        assert_string_equal(now.steps, "cards total measure clients doors ");
        told(2);
        assert_string_equal(now.steps, "cards measure clients doors ");
}

static void clients_of_a_displaced_card_are_dropped(void **state)
{
        shown = (struct nvml_look){.n = 1};
        server.gpus.n = 2;
        server.gpus.list[1].displaced = true;
        clients[0].accounts[0].ordinal = 0;
        clients[1].accounts[1].ordinal = 0;
        clients[2].accounts[0].ordinal = clients[2].accounts[1].ordinal = 5;
        told(1);
        for (unsigned i = 0; i < CLIENTS; i++) {
                assert_int_equal(clients[i].dropped, i == 1 || i == 2);
                assert_int_equal(clients[i].gone, i == 1 || i == 2);
        }
}

/* The driver may have been unloaded beneath NVML. */
static void nvml_is_restarted_after_ten_looks_without_a_card(void **state)
{
        shown = (struct nvml_look){.n = 2};
        for (unsigned i = 1; i <= 25; i++) {
                server.sample_ns = 1;
                told(i);
                assert_int_equal(now.restarts, i / 10);
        }
        told(100); /* this look is no sample */
        looks_told(&server, NULL, 101);
        assert_int_equal(now.restarts, 2);
        shown.cards[1].measured = true; /* one measured card is enough */
        server.sample_ns = 1;
        told(26);
        assert_int_equal(server.blind, 0);
        shown.cards[1].measured = false;
        for (unsigned i = 1; i <= 10; i++) {
                assert_int_equal(now.restarts, 2);
                server.sample_ns = 1;
                told(100 + i);
        }
        assert_int_equal(now.restarts, 3);
}

#define TURNS_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TURNS_TEST(a_users_clients_are_read_in_turns),
                TURNS_TEST(a_client_that_waits_already_keeps_its_place),
                TURNS_TEST(the_user_that_has_used_least_is_read_first),
                TURNS_TEST(a_turn_ends_after_its_time_and_is_charged),
                TURNS_TEST(a_client_that_leaves_is_not_read),
                TURNS_TEST(a_user_leaves_the_order_with_its_last_client),
                TURNS_TEST(the_cards_are_updated_before_waiting_clients),
                TURNS_TEST(a_period_ends_with_its_own_look),
                TURNS_TEST(a_sample_is_requested_if_nvml_can_answer),
                TURNS_TEST(a_corrected_total_is_reported_once),
                TURNS_TEST(clients_of_a_displaced_card_are_dropped),
                TURNS_TEST(nvml_is_restarted_after_ten_looks_without_a_card),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
