/* test_preemption.c: what the daemon knows of its hand's programs, with a real scheduler and a fake
 * hand. Only the hand's word lets the scheduler preempt a program. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/hand/hand.h"
#include "daemon/ledger/event.h"
#include "daemon/ledger/preemption.h"
#include "fakes/daemon.h"

#define CLIENTS 2

static struct server server;
static struct client clients[CLIENTS]; /* the first one has the higher priority */
static struct config configuration;

/* ---- the fake hand ---- */

static struct hand_calls calls;
static unsigned added, dropped;
static int refusal; /* result of hand_add() */
static int sent[2]; /* the descriptors of the last offer */

int hand_new(sd_event *event, const struct hand_calls *c, void *userdata, struct hand **ret)
{
        assert_ptr_equal(userdata, &server);
        calls = *c;
        *ret = (struct hand *)&calls;
        return 0;
}

int hand_add(struct hand *h, uint64_t id, int ret_fds[static 2])
{
        if (refusal < 0)
                return refusal;
        added++;
        return pipe2(ret_fds, O_CLOEXEC) < 0 ? -errno : 0;
}

void hand_drop(struct hand *h, uint64_t id)
{
        dropped++;
}

void client_send_with(struct client *c, struct wire_message *m, const int *fds, unsigned n_fds)
{
        assert_int_equal(m->header.type, WIRE_HAND);
        assert_int_equal(m->header.gpu, WIRE_NO_GPU);
        assert_int_equal(n_fds, 2);
        memcpy(sent, fds, sizeof(sent));
        assert_true(fcntl(sent[0], F_GETFD) >= 0 && fcntl(sent[1], F_GETFD) >= 0);
}

struct client *server_find(const struct server *s, sched_client id)
{
        for (unsigned i = 0; i < CLIENTS; i++)
                if (clients[i].id && clients[i].id == id)
                        return &clients[i];
        return NULL;
}

/* ---- the bench ---- */

static unsigned let_go; /* calls of event_note_preempted() */

void event_note_preempted(struct client *c, bool off)
{
        assert_false(off);
        let_go++;
}

static void attach(struct client *c, int priority)
{
        const struct sched_attach a = {.usage = {.allocated = GIB, .backed = GIB}, .run = true};
        const struct sched_origin user = {.uid = 1000};

        *c = (struct client){.server = &server, .fd = 3, .next = server.clients};
        assert_int_equal(sched_client_add(server.sched, user, priority, clock_now_ns(), &c->id), 0);
        event_begin(&server);
        assert_int_equal(
                sched_client_attach(server.sched, c->id, 0, &a, clock_now_ns(), &server.actions),
                0);
        event_end(&server);
        server.clients = c;
}

static int begin(void **state)
{
        struct sched_config config;

        sched_config_default(&config);
        configuration.freeze = WIRE_FREEZE_MOVE;
        server = (struct server){.sched = sched_new(&config), .config = &configuration};
        assert_non_null(server.sched);
        assert_int_equal(sched_gpu_add(server.sched, 0, 16 * GIB), 0);
        for (unsigned i = 0; i < CLIENTS; i++)
                attach(&clients[i], i == 0);
        added = dropped = let_go = events = 0;
        refusal = 0;
        return preemption_new(&server);
}

static int end(void **state)
{
        sched_free(server.sched);
        return 0;
}

/* True if the scheduler keeps the client of the lower priority off the GPU. */
static bool is_preempted(void)
{
        struct sched_client_view v;

        assert_int_equal(sched_client_view(server.sched, clients[1].id, clock_now_ns(), &v), 0);
        return v.preempted;
}

static void offer_all(void)
{
        preemption_offer_all(&server);
        assert_int_equal(added, CLIENTS);
        for (unsigned i = 0; i < CLIENTS; i++)
                calls.ready(&server, clients[i].id, true);
        assert_true(is_preempted());
}

/* ---- offers ---- */

static void a_client_gets_one_offer_and_the_daemon_keeps_no_descriptor(void **state)
{
        preemption_offer(&clients[0]);
        preemption_offer(&clients[0]);
        assert_int_equal(added, 1);
        assert_true(clients[0].hand.offered);
        assert_int_equal(fcntl(sent[0], F_GETFD), -1);
        assert_int_equal(fcntl(sent[1], F_GETFD), -1);
}

static void a_client_that_cannot_use_the_hand_gets_no_offer(void **state)
{
        const struct client whole = clients[0];

        clients[0].id = 0; /* it has attached no GPU */
        preemption_offer(&clients[0]);
        clients[0] = whole;
        clients[0].fd = -EBADF;
        preemption_offer(&clients[0]);
        clients[0] = whole;
        clients[0].dropped = true;
        preemption_offer(&clients[0]);
        clients[0] = whole;
        configuration.freeze = WIRE_FREEZE_OFF;
        preemption_offer(&clients[0]);
        configuration.freeze = WIRE_FREEZE_PARK;
        server.hand = NULL; /* the daemon begins */
        preemption_offer(&clients[0]);
        assert_int_equal(added, 0);
        assert_false(clients[0].hand.offered);
}

static void an_offer_that_fails_is_made_again(void **state)
{
        refusal = -EAGAIN;
        preemption_offer_all(&server);
        assert_false(clients[0].hand.offered || clients[1].hand.offered);
        refusal = 0;
        preemption_offer_all(&server);
        assert_true(clients[0].hand.offered && clients[1].hand.offered);
}

/* ---- reports ---- */

static void only_the_hands_word_lets_the_scheduler_preempt(void **state)
{
        preemption_offer_all(&server);
        assert_false(is_preempted());
        calls.ready(&server, clients[0].id, true);
        assert_false(is_preempted());
        calls.ready(&server, clients[1].id, true);
        assert_true(is_preempted());
        calls.ready(&server, clients[1].id, true); /* a repetition changes nothing */
        assert_true(is_preempted());
        calls.ready(&server, clients[1].id, false);
        assert_false(is_preempted());
        assert_int_equal(let_go, 1);
}

static void a_report_about_a_client_that_the_hand_does_not_know_has_no_effect(void **state)
{
        calls.ready(&server, clients[1].id, true); /* there was no offer */
        calls.ready(&server, UINT64_MAX, true);
        calls.done(&server, UINT64_MAX, 1);
        assert_false(clients[1].hand.ready);
        assert_int_equal(events, 0);
        preemption_offer(&clients[1]);
        preemption_forget(&clients[1]);
        calls.ready(&server, clients[1].id, true); /* it was under way */
        assert_false(clients[1].hand.ready);
        assert_int_equal(events, 0);
}

static void the_time_of_an_order_is_noted(void **state)
{
        preemption_offer(&clients[0]);
        calls.done(&server, clients[0].id, 700);
        assert_int_equal(clients[0].hand.took_ns, 700);
        assert_int_equal(clients[1].hand.took_ns, 0);
}

/* ---- ends ---- */

static void a_lost_hand_lets_all_run_and_a_new_one_is_offered(void **state)
{
        offer_all();
        calls.lost(&server);
        assert_false(is_preempted());
        assert_int_equal(let_go, CLIENTS);
        for (unsigned i = 0; i < CLIENTS; i++)
                assert_false(clients[i].hand.offered || clients[i].hand.ready);
        added = 0;
        offer_all();
}

static void a_client_that_ends_is_forgotten_once_and_others_run(void **state)
{
        offer_all();
        preemption_forget(&clients[0]);
        preemption_forget(&clients[0]);
        assert_int_equal(dropped, 1);
        assert_false(clients[0].hand.ready);
        assert_true(clients[1].hand.ready);
        calls.lost(&server);
        preemption_forget(&clients[1]); /* the hand knows it no more */
        assert_int_equal(dropped, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_client_gets_one_offer_and_the_daemon_keeps_no_descriptor),
                TEST(a_client_that_cannot_use_the_hand_gets_no_offer),
                TEST(an_offer_that_fails_is_made_again),
                TEST(only_the_hands_word_lets_the_scheduler_preempt),
                TEST(a_report_about_a_client_that_the_hand_does_not_know_has_no_effect),
                TEST(the_time_of_an_order_is_noted),
                TEST(a_lost_hand_lets_all_run_and_a_new_one_is_offered),
                TEST(a_client_that_ends_is_forgotten_once_and_others_run),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
