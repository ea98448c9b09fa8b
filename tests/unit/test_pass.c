/* test_pass.c: memory handed from one client to the next. What nobody of the same tenant gets is
 * closed before any client is told that the bytes are free. */
#include "unit.h"

#include <fcntl.h>
#include <unistd.h>

#include "daemon/state/client.h"
#include "daemon/state/pass.h"
#include "daemon/state/server.h"

#define UNIT (2 * MIB)

enum { FROM, NEXT, CLIENTS };
static struct server server;
static struct client clients[CLIENTS];
static bool same_tenant;
static int first; /* descriptors that were handed in: this one, and the ones after it */

struct client *server_find(const struct server *s, sched_client id)
{
        return id && id <= CLIENTS ? &clients[id - 1] : NULL;
}

bool peer_same_tenant(const struct peer *a, const struct peer *b)
{
        return same_tenant;
}

static int begin(void **state)
{
        server = (struct server){0};
        same_tenant = true;
        for (unsigned i = 0; i < CLIENTS; i++)
                clients[i] = (struct client){.id = i + 1};
        return 0;
}

/* Hands in n descriptors, and a raised limit of the next client. */
static void hand_in(unsigned n, uint64_t raise)
{
        for (unsigned i = 0; i < n; i++) {
                server.pass.fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
                assert_true(server.pass.fds[i] >= 0);
        }
        first = server.pass.fds[0];
        server.pass.n = n;
        clients[NEXT].accounts[0].limit_told = GIB;
        server.actions.n = 1;
        server.actions.list[0] = (struct sched_action){
                .type = SCHED_DO_LIMIT, .client = clients[NEXT].id, .limit.backed = GIB + raise};
        pass_begin(&server, &clients[FROM], 0, UNIT);
        pass_match(&server);
}

static bool is_open(int fd)
{
        return fcntl(fd, F_GETFD) >= 0;
}

static void the_next_client_gets_as_many_as_its_limit_rises_by(void **state)
{
        hand_in(3, 2 * UNIT + 1);
        assert_ptr_equal(server.pass.to, &clients[NEXT]);
        assert_int_equal(server.pass.n, 2);
        assert_true(is_open(first) && is_open(first + 1) && !is_open(first + 2));
        pass_end(&server);
        assert_false(is_open(first) || is_open(first + 1));
}

static void check_nobody_gets_any(uint64_t raise)
{
        hand_in(2, raise);
        assert_null(server.pass.to);
        assert_false(is_open(first) || is_open(first + 1));
        assert_int_equal(server.pass.n, 0);
}

static void what_nobody_gets_is_closed_at_once(void **state)
{
        check_nobody_gets_any(UNIT - 1);
        clients[NEXT].accounts[0].ordinal = -1;
        check_nobody_gets_any(UNIT);
        clients[NEXT].accounts[0].ordinal = 0;
        same_tenant = false;
        check_nobody_gets_any(UNIT);
}

static void a_client_gets_none_of_its_own(void **state)
{
        clients[NEXT].id = 0;
        hand_in(1, UNIT);
        assert_null(server.pass.to);
        server.actions.list[0].client = clients[FROM].id;
        hand_in(1, UNIT);
        assert_null(server.pass.to);
        assert_false(is_open(first));
}

static void an_event_without_memory_keeps_nothing(void **state)
{
        hand_in(1, UNIT);
        pass_begin(&server, &clients[FROM], 0, 0);
        assert_false(is_open(first));
}

#define TEST(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(the_next_client_gets_as_many_as_its_limit_rises_by),
                TEST(what_nobody_gets_is_closed_at_once),
                TEST(a_client_gets_none_of_its_own),
                TEST(an_event_without_memory_keeps_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
