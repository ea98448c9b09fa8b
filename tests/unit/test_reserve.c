/* test_reserve.c: programs that start get the card with most room, and programs that start together
 * get different cards. */
#include "unit.h"

#include <errno.h>

#include "base/macros.h"
#include "daemon/ledger/reserve.h"
#include "daemon/state/client.h"
#include "fakes/daemon.h"

#define ALL   UINT32_MAX
#define CARDS 4

static struct server server;
static struct client clients[2];

static int begin(void **state)
{
        struct sched_config config;

        sched_config_default(&config);
        server = (struct server){.sched = sched_new(&config), .gpus.n = CARDS};
        assert_non_null(server.sched);
        for (unsigned i = 0; i < CARDS; i++) {
                assert_int_equal(sched_gpu_add(server.sched, i, 16 * GIB), 0);
                server.gpus.list[i].present = true;
        }
        return 0;
}

static int end(void **state)
{
        reserve_free(&server);
        sched_free(server.sched);
        return 0;
}

static int take(pid_t pid, uid_t uid, uint32_t among, unsigned *ret)
{
        const struct peer peer = {.pid = pid, .uid = uid, .pidfd = -EBADF};

        return reserve_take(&server, &peer, among, ret);
}

/* Makes a client of this process on a card, with a commit. */
static void attach(struct client *c, pid_t pid, unsigned gpu, uint64_t commit)
{
        const struct sched_attach a = {.usage = {.allocated = commit}, .idle = true};

        *c = (struct client){.server = &server, .next = server.clients, .peer = {.pid = pid}};
        for (unsigned i = 0; i < SCHED_GPUS_MAX; i++)
                c->accounts[i].ordinal = -1;
        c->accounts[gpu].ordinal = 0;
        assert_int_equal(sched_client_add(server.sched, (struct sched_origin){0}, 0, 1, &c->id), 0);
        assert_int_equal(sched_client_attach(server.sched, c->id, gpu, &a, 1, &server.actions), 0);
        server.clients = c;
}

static void a_card_without_waiters_comes_first(void **state)
{
        const struct reserve_card cards[] = {{true, 1, 2, 1, 100}, {true, 0, 9, 99, 100}};

        assert_int_equal(reserve_choose(cards, 2), 1);
}

static void among_equal_waiters_the_smallest_committed_part_comes_first(void **state)
{
        const struct reserve_card cards[] = {{true, 0, 1, 30, 100}, {true, 0, 3, 50, 200}};

        assert_int_equal(reserve_choose(cards, 2), 1);
}

static void among_equal_parts_the_fewest_clients_come_first(void **state)
{
        const struct reserve_card cards[] = {{true, 0, 2, 0, 100}, {true, 0, 1, 0, 100}};

        assert_int_equal(reserve_choose(cards, 2), 1);
        assert_int_equal(reserve_choose(cards, 1), 0);
}

static void only_eligible_cards_are_chosen(void **state)
{
        const struct reserve_card cards[] = {{0}, {true, 5, 5, 500, 100}};

        assert_int_equal(reserve_choose(cards, 2), 1);
        assert_int_equal(reserve_choose(cards, 1), -1);
        assert_int_equal(reserve_choose(cards, 0), -1);
}

static void ten_starts_spread_over_four_cards(void **state)
{
        unsigned of[CARDS] = {0}, gpu;

        for (pid_t pid = 1; pid <= 10; pid++) {
                assert_int_equal(take(pid, 1, ALL, &gpu), 0);
                of[gpu]++;
        }
        for (unsigned i = 0; i < CARDS; i++) {
                assert_int_equal(of[i], i < 2 ? 3 : 2);
                assert_int_equal(reserve_count(&server, i), of[i]);
        }
}

static void a_process_has_one_reservation(void **state)
{
        unsigned gpu;

        for (unsigned i = 0; i < 3 * RESERVE_OF_USER; i++) {
                assert_int_equal(take(7, 1, ALL, &gpu), 0);
                assert_int_equal(gpu, 0);
        }
        assert_int_equal(reserve_count(&server, 0), 1);
}

static void a_user_has_a_bounded_number_of_reservations(void **state)
{
        unsigned gpu;

        for (unsigned i = 0; i < RESERVE_OF_USER; i++)
                assert_int_equal(take((pid_t)i + 1, 1, ALL, &gpu), 0);
        assert_int_equal(take(1000, 1, ALL, &gpu), -EUSERS);
        for (unsigned i = 0; i < RESERVE_MAX - RESERVE_OF_USER; i++)
                assert_int_equal(take((pid_t)i + 2000, 2, ALL, &gpu), 0);
        assert_int_equal(take(3000, 3, ALL, &gpu), -EUSERS);
}

static void cards_that_are_not_named_or_not_here_are_not_chosen(void **state)
{
        unsigned gpu;

        assert_int_equal(take(1, 1, 1u << 2, &gpu), 0);
        assert_int_equal(gpu, 2);
        assert_int_equal(take(1, 1, 1u << 9, &gpu), -ENODEV);
        server.gpus.list[3].present = false;
        assert_int_equal(take(1, 1, 1u << 3, &gpu), -ENODEV);
}

static void a_process_that_attached_counts_with_its_guess_until_it_commits_more(void **state)
{
        const uint32_t two = 3;
        unsigned gpu;

        assert_int_equal(take(1, 1, two, &gpu), 0);
        assert_int_equal(gpu, 0);
        attach(&clients[0], 1, 0, 0);
        assert_int_equal(reserve_count(&server, 0), 0);
        assert_int_equal(take(2, 1, two, &gpu), 0);
        assert_int_equal(gpu, 1);
        assert_int_equal(take(3, 1, two, &gpu), 0);
        assert_int_equal(gpu, 0);
}

static void a_reservation_ends_when_its_process_attaches_another_card(void **state)
{
        unsigned gpu;

        assert_int_equal(take(1, 1, ALL, &gpu), 0);
        assert_int_equal(gpu, 0);
        attach(&clients[0], 1, 3, 0);
        reserve_prune(&server);
        assert_int_equal(reserve_count(&server, 0), 0);
        assert_int_equal(take(2, 1, ALL, &gpu), 0);
        assert_int_equal(gpu, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_card_without_waiters_comes_first),
                cmocka_unit_test(among_equal_waiters_the_smallest_committed_part_comes_first),
                cmocka_unit_test(among_equal_parts_the_fewest_clients_come_first),
                cmocka_unit_test(only_eligible_cards_are_chosen),
                CASE(ten_starts_spread_over_four_cards),
                CASE(a_process_has_one_reservation),
                CASE(a_user_has_a_bounded_number_of_reservations),
                CASE(cards_that_are_not_named_or_not_here_are_not_chosen),
                CASE(a_process_that_attached_counts_with_its_guess_until_it_commits_more),
                CASE(a_reservation_ends_when_its_process_attaches_another_card),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
