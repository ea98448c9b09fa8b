/* test_clients.c: who gets a place at a server, and who has to give one up. */
#include "unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "kubernetes/serve/serve_clients.h"

#define SECOND NSEC_PER_SEC

static struct clients *clients;
static uint64_t now;
static int fds;

static int set_up(void **state)
{
        clients = clients_new();
        now = 1000 * SECOND;
        return clients ? 0 : -1;
}

static int tear_down(void **state)
{
        clients_free(clients);
        return 0;
}

static struct client *come_from(const char *address)
{
        struct sockaddr_storage from = {.ss_family = AF_INET};

        assert_int_equal(inet_pton(AF_INET, address, &((struct sockaddr_in *)&from)->sin_addr), 1);
        return clients_come(clients, ++fds, &from, sizeof(struct sockaddr_in), now);
}

static struct client *serve(const char *address, enum client_phase phase)
{
        struct client *k = come_from(address);

        assert_ptr_equal(clients_next(clients, now), k);
        clients_set_phase(k, phase, now);
        return k;
}

static void fill(const char *address, enum client_phase phase, struct client *ret[static 256])
{
        for (unsigned i = 0; i < CLIENTS_PLACES; i++)
                ret[i] = serve(address, phase);
}

static void leave_all(struct client *all[static 256])
{
        for (unsigned i = 0; i < CLIENTS_PLACES; i++)
                if (all[i])
                        clients_leave(clients, all[i]);
}

static void a_free_place_goes_to_the_address_with_the_fewest(void **state)
{
        struct client *all[CLIENTS_PLACES], *greedy, *other;

        fill("10.0.0.1", CLIENT_ASKS, all);
        greedy = come_from("10.0.0.1");
        other = come_from("10.0.0.2");
        assert_null(clients_next(clients, now));
        clients_leave(clients, all[7]);
        all[7] = NULL;
        assert_ptr_equal(clients_next(clients, now), other);
        assert_null(clients_next(clients, now));
        clients_leave(clients, other);
        assert_ptr_equal(clients_next(clients, now), greedy);
        clients_leave(clients, greedy);
        leave_all(all);
}

static void one_that_stands_still_gives_its_place_to_another_address(void **state)
{
        struct client *all[CLIENTS_PLACES], *other;

        fill("10.0.0.1", CLIENT_BEGINS, all);
        clients_set_phase(all[9], CLIENT_BEGINS, now - 1); /* the oldest */
        other = come_from("10.0.0.2");
        assert_null(clients_to_end(clients, false, now));
        now += CLIENTS_SCARCE_NS + 1;
        assert_ptr_equal(clients_to_end(clients, false, now), all[9]);
        clients_end(clients, all[9]);
        assert_null(clients_to_end(clients, false, now)); /* one place for one */
        clients_leave(clients, other);
        leave_all(all);
}

static void an_address_does_not_drive_out_its_own_requests(void **state)
{
        struct client *all[CLIENTS_PLACES], *own;

        fill("10.0.0.1", CLIENT_ASKS, all);
        own = come_from("10.0.0.1");
        now += CLIENTS_SCARCE_NS + 1;
        assert_null(clients_to_end(clients, false, now));
        clients_set_phase(all[3], CLIENT_IDLE, now);
        assert_ptr_equal(clients_to_end(clients, false, now), all[3]);
        clients_end(clients, all[3]);
        assert_null(clients_to_end(clients, false, now));
        clients_leave(clients, own);
        leave_all(all);
}

static void an_address_with_few_places_keeps_them(void **state)
{
        struct client *all[CLIENTS_PLACES], *few, *other;

        fill("10.0.0.1", CLIENT_ASKS, all);
        clients_leave(clients, all[0]);
        all[0] = NULL;
        now -= 2 * SECOND;
        few = serve("10.0.0.3", CLIENT_ASKS); /* the oldest of all */
        now += 3 * SECOND + 1;
        other = come_from("10.0.0.2");
        assert_ptr_not_equal(clients_to_end(clients, false, now), few);
        assert_non_null(clients_to_end(clients, false, now));
        clients_leave(clients, other);
        clients_leave(clients, few);
        leave_all(all);
}

static void an_idle_connection_makes_no_place_for_an_address_with_more(void **state)
{
        struct client *all[CLIENTS_PLACES], *idle, *greedy;

        fill("10.0.0.1", CLIENT_ASKS, all);
        clients_leave(clients, all[0]);
        all[0] = NULL;
        idle = serve("10.0.0.3", CLIENT_IDLE);
        greedy = come_from("10.0.0.1");
        assert_null(clients_to_end(clients, false, now + SECOND));
        clients_leave(clients, greedy);
        clients_leave(clients, idle);
        leave_all(all);
}

static void each_phase_has_its_limit(void **state)
{
        static const struct {
                enum client_phase phase;
                uint64_t limit_ns;
        } rows[] = {{CLIENT_BEGINS, CLIENTS_HEADER_NS},
                    {CLIENT_ASKS, CLIENTS_REQUEST_NS},
                    {CLIENT_IDLE, CLIENTS_IDLE_NS}};

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct client *k = serve("10.0.0.1", rows[i].phase);

                assert_null(clients_to_end(clients, false, now + rows[i].limit_ns));
                assert_ptr_equal(clients_to_end(clients, false, now + rows[i].limit_ns + 1), k);
                clients_set_phase(k, CLIENT_HELD, now);
                assert_null(clients_to_end(clients, false, now + 1000 * SECOND));
                clients_set_phase(k, CLIENT_IDLE, now);
                assert_ptr_equal(clients_to_end(clients, true, now + 1), k);
                clients_end(clients, k);
                assert_null(clients_to_end(clients, true, now + 1));
                clients_leave(clients, k);
        }
}

static void the_address_that_waits_most_is_turned_away(void **state)
{
        struct client *all[CLIENTS_PLACES], *first = NULL, *k;

        fill("10.0.0.1", CLIENT_ASKS, all);
        first = come_from("10.0.0.2");
        for (unsigned i = 0; i < CLIENTS_WAITING; i++) {
                assert_null(clients_surplus(clients));
                k = come_from("10.0.0.1");
        }
        assert_ptr_equal(clients_surplus(clients), k);
        clients_leave(clients, k);
        assert_null(clients_surplus(clients));
        k = come_from("10.0.0.2");
        assert_ptr_not_equal(clients_surplus(clients), k);
        assert_ptr_not_equal(clients_surplus(clients), first);
        leave_all(all);
        while ((k = clients_next(clients, now)))
                clients_leave(clients, k);
        assert_int_equal(clients_count(clients), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        const struct CMUnitTest tests[] = {
                TEST(a_free_place_goes_to_the_address_with_the_fewest),
                TEST(one_that_stands_still_gives_its_place_to_another_address),
                TEST(an_address_does_not_drive_out_its_own_requests),
                TEST(an_address_with_few_places_keeps_them),
                TEST(an_idle_connection_makes_no_place_for_an_address_with_more),
                TEST(each_phase_has_its_limit),
                TEST(the_address_that_waits_most_is_turned_away),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
