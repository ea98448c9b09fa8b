/* test_client.c: a client's connection, with real sockets and users: sending, reading, and the end
 * of the connection. */
#include "unit.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/state/client.h"
#include "fakes/daemon.h"
#include "daemon/net/read_turns.h"
#include "daemon/net/session.h"
#include "daemon/ledger/card_figures.h"
#include "daemon/net/client_connection.h"

static struct config config;
static struct server server;
static struct {
        bool gone, sure;
        unsigned handled, ends, no_descriptor, waits;
        struct wire_message last;
} now;
static int program; /* the program's end of the first connection */

/* ---- fakes of other modules ---- */

int session_handle(struct client *c, const struct wire_message *m)
{
        now.handled++;
        now.last = *m;
        if (m->header.type == WIRE_HELLO)
                c->greeted = true;
        return 0;
}

bool figures_is_gone(struct server *s, struct client *c, uint64_t since_ns, bool *ret_sure)
{
        *ret_sure = now.sure;
        return now.gone;
}

void pass_end(struct server *s)
{
        now.ends++;
}

void server_no_descriptor(struct server *s)
{
        now.no_descriptor++;
}

bool server_may_accept(struct server *s)
{
        return true;
}

/* In place of read_turns.c: handles the waiting messages of the client at once. */
void read_turns_wait(struct client *c)
{
        now.waits++;
        while (client_turn(c))
                ;
}

void read_turns_leave(struct client *c)
{
}

/* ---- scenes ---- */

static int listener = -1;

/* The kernel chooses the name, because tests run at the same time. */
static struct sockaddr_un address;
static socklen_t address_size;

/* Returns the program's end of a new connection. If it was accepted, its client is the first in the
 * list. */
static int knock(void)
{
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        assert_int_equal(connect(fd, (struct sockaddr *)&address, address_size), 0);
        assert_int_equal(client_accept(NULL, listener, EPOLLIN, &server), 0);
        return fd;
}

static int begin(void **state)
{
        const struct sockaddr_un any = {.sun_family = AF_UNIX};

        memset(&now, 0, sizeof(now));
        reader_looks = false;
        reader_asks = 0;
        config = (struct config){.sched.clients_max = 2};
        server = (struct server){.config = &config, .users = users_new(3)};
        assert_non_null(server.users);
        assert_true(sd_event_new(&server.event) >= 0);
        listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_int_equal(bind(listener, (const struct sockaddr *)&any, sizeof(any.sun_family)), 0);
        address_size = sizeof(address);
        assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &address_size), 0);
        assert_int_equal(listen(listener, 8), 0);
        program = knock();
        assert_non_null(server.clients);
        return 0;
}

static int end(void **state)
{
        while (server.clients)
                client_free(server.clients);
        assert_int_equal(server.n_clients, 0);
        (void)sd_event_unref(server.event);
        users_free(server.users);
        (void)close(listener);
        return close(program);
}

/* Runs the server's events until none is pending, or a client is dropped. */
static void run(void)
{
        while (!server.marked && sd_event_run(server.event, 0) > 0)
                ;
}

static void say(int fd, unsigned type)
{
        struct wire_message m = {.header = {(uint16_t)type, WIRE_NO_GPU, 1}};
        uint8_t packet[WIRE_SIZE_MAX];
        int size;

        if (type == WIRE_HELLO)
                m.HELLO.magic = WIRE_MAGIC;
        if (type == WIRE_ATTACH)
                m.header.gpu = 0;
        size = wire_encode(&m, packet);
        assert_true(size > 0);
        assert_int_equal(send(fd, packet, (size_t)size, 0), size);
}

static bool hear(int fd, struct wire_message *ret)
{
        uint8_t packet[WIRE_SIZE_MAX];
        ssize_t n = recv(fd, packet, sizeof(packet), MSG_DONTWAIT);

        return n > 0 && wire_decode(packet, (size_t)n, WIRE_DOWN, ret) == 0;
}

static struct wire_message grant(uint64_t lease)
{
        struct wire_message m = {.header = {WIRE_GRANT, WIRE_NO_GPU, 0}};

        m.GRANT.lease = lease;
        return m;
}

/* ---- sending ---- */

static void messages_are_numbered_and_limits_keep_the_schedulers_number(void **state)
{
        struct client *c = server.clients;
        struct wire_message m = grant(5), limit = {.header = {WIRE_LIMIT, 0, 77}}, got;

        client_send(c, &m);
        client_send(c, &limit);
        client_send(c, &m);
        assert_true(hear(program, &got));
        assert_int_equal(got.header.sequence, 1);
        assert_int_equal(got.GRANT.lease, 5);
        assert_true(hear(program, &got));
        assert_int_equal(got.header.sequence, 77);
        assert_true(hear(program, &got));
        assert_int_equal(got.header.sequence, 3);
        assert_false(hear(program, &got));
}

/* They follow the messages in the socket, in order. A client that does not read is dropped when its
 * queue is full. */
static void messages_that_the_socket_does_not_take_are_kept(void **state)
{
        struct client *c = server.clients;
        struct wire_message got;
        unsigned sent = 0, heard = 0;

        while (c->queue_used < CLIENT_QUEUE) {
                struct wire_message m = grant(++sent);

                client_send(c, &m);
                assert_false(c->dropped);
        }
        while (heard < sent) {
                if (!hear(program, &got)) {
                        run();
                        continue;
                }
                assert_int_equal(got.GRANT.lease, ++heard);
        }
        run();
        assert_int_equal(c->queue_used, 0);
        assert_false(hear(program, &got));
        while (!c->dropped && sent < 100000) {
                struct wire_message m = grant(++sent);

                client_send(c, &m);
        }
        assert_true(c->dropped && server.marked);
        assert_int_equal(c->queue_used, CLIENT_QUEUE);
        client_send(c, &got); /* a dropped client receives nothing */
        assert_int_equal(c->queue_used, CLIENT_QUEUE);
}

static void an_ended_client_is_dropped_at_the_next_message(void **state)
{
        struct client *c = server.clients;
        struct wire_message m = grant(1);

        (void)close(program);
        client_send(c, &m);
        assert_true(c->dropped);
        program = dup(listener);
}

static void no_message_is_handled_after_a_refusal(void **state)
{
        struct client *c = server.clients;
        struct wire_message got;

        client_refuse(c, WIRE_REFUSED_LIMIT, "too much");
        assert_true(c->dropped);
        assert_true(hear(program, &got));
        assert_int_equal(got.header.type, WIRE_REFUSED);
        assert_int_equal(got.REFUSED.magic, WIRE_MAGIC);
        assert_int_equal(got.REFUSED.code, WIRE_REFUSED_LIMIT);
        assert_int_equal(got.REFUSED.protocol, WIRE_VERSION);
        assert_string_equal(got.REFUSED.text, "too much");
        say(program, WIRE_HELLO);
        run();
        assert_int_equal(now.handled, 0);
}

/* ---- reading ---- */

static void messages_are_handled_in_their_order(void **state)
{
        say(program, WIRE_HELLO);
        say(program, WIRE_BYE);
        run();
        assert_int_equal(now.handled, 2);
        assert_int_equal(now.ends, 2); /* pass_end() closes the descriptors of each message */
        assert_int_equal(now.last.header.type, WIRE_BYE);
        assert_false(server.clients->dropped);
        run();
        assert_int_equal(now.handled, 2);
        (void)shutdown(program, SHUT_RDWR);
        run();
        assert_true(server.clients->dropped);
}

static void a_malformed_message_ends_the_connection(void **state)
{
        struct wire_message got;

        assert_int_equal(send(program, "garbage", 7, 0), 7);
        say(program, WIRE_HELLO);
        run();
        assert_true(server.clients->dropped);
        assert_true(hear(program, &got));
        assert_int_equal(got.REFUSED.code, WIRE_REFUSED_PROTOCOL);
        assert_int_equal(now.handled, 0);
}

/* The daemon uses a client's figure of a card only if NVML does not know the card. */
static void an_attach_waits_for_a_look_at_the_cards(void **state)
{
        struct client *c = server.clients;

        say(program, WIRE_HELLO);
        run();
        reader_looks = true;
        say(program, WIRE_ATTACH);
        say(program, WIRE_BYE);
        run();
        assert_int_equal(now.handled, 1);
        assert_int_equal(reader_asks, 1);
        assert_true(c->held.since_ns > 0);
        server.look = (const struct nvml_look *)&now;
        server.look_ns = c->held.since_ns - 1; /* a look that began before the message */
        client_looked(c);
        assert_int_equal(now.handled, 1);
        server.look_ns = c->held.since_ns;
        client_looked(c);
        run();
        assert_int_equal(now.handled, 3);
        assert_int_equal(now.last.header.type, WIRE_BYE);
        say(program, WIRE_ATTACH);
        run();
        server.look = NULL; /* the look has failed */
        client_looked(c);
        assert_int_equal(now.handled, 4);
        reader_looks = false;
        say(program, WIRE_ATTACH);
        run();
        assert_int_equal(now.handled, 5); /* NVML cannot be asked, so the message does not wait */
}

static void an_attach_before_the_greeting_starts_no_look_at_the_cards(void **state)
{
        reader_looks = true;
        say(program, WIRE_ATTACH);
        run();
        assert_int_equal(reader_asks, 0);
        assert_int_equal(now.handled, 1);
}

/* ---- life ---- */

static void a_process_has_one_connection(void **state)
{
        struct client *first = server.clients, *second;
        int fd;

        first->id = 9; /* the scheduler knows the first client */
        fd = knock();
        second = server.clients;
        assert_ptr_not_equal(second, first);
        assert_int_equal(server.n_clients, 2);
        assert_true(first->dropped);
        assert_ptr_equal(second->former, first);
        assert_ptr_equal(first->previous, second);
        client_free(first);
        assert_null(second->former);
        assert_int_equal(server.n_clients, 1);
        assert_null(second->next);
        assert_false(second->dropped);
        (void)close(fd);
}

static void an_empty_former_record_is_not_linked(void **state)
{
        struct client *first = server.clients;
        int fd = knock();

        assert_true(first->dropped);
        assert_null(server.clients->former);
        (void)close(fd);
}

static void too_many_connections_of_a_user_are_refused_with_a_reason(void **state)
{
        struct wire_message got;
        int fds[3];

        fds[0] = knock();
        fds[1] = knock();
        assert_int_equal(server.n_clients, 3);
        fds[2] = knock();
        assert_int_equal(server.n_clients, 3);
        assert_true(hear(fds[2], &got));
        assert_int_equal(got.REFUSED.code, WIRE_REFUSED_LIMIT);
        assert_non_null(strstr(got.REFUSED.text, "its user has too many"));
        (void)close(fds[2]);
        client_free(server.clients);
        fds[2] = knock(); /* accepted, as one connection has ended */
        assert_int_equal(server.n_clients, 3);
        for (unsigned i = 0; i < 3; i++)
                (void)close(fds[i]);
}

static void too_many_connections_in_all_are_refused(void **state)
{
        struct wire_message got;
        int fd;

        config.sched.clients_max = 0;
        for (unsigned i = 0; i < 10; i++) { /* a refused connection must not count for the user */
                fd = knock();
                assert_true(hear(fd, &got));
                assert_string_equal(
                        got.REFUSED.text,
                        "the daemon has too many connections: end programs, or raise its key "
                        "clients_max");
                assert_int_equal(recv(fd, &got, 1, 0), 0);
                (void)close(fd);
        }
        config.sched.clients_max = 1;
        fd = knock();
        assert_int_equal(server.n_clients, 2);
        (void)close(fd);
}

static void a_client_is_gone_when_its_memory_is_surely_free(void **state)
{
        struct client *c = server.clients;

        client_check_gone(c); /* NVML still shows memory of the process */
        assert_true(c->ended && !c->gone);
        assert_int_equal(reader_asks, 1);
        now.gone = true;
        client_looked(c); /* NVML is not sure, and half a second has not passed */
        assert_false(c->gone);
        c->ended_ns -= NSEC_PER_SEC;
        client_looked(c);
        assert_true(c->gone && server.marked);
}

static void a_client_that_nvml_no_longer_names_is_gone_at_once(void **state)
{
        struct client *c = server.clients;

        now.gone = now.sure = true;
        client_check_gone(c);
        assert_true(c->gone);
        client_check_gone(c);
        assert_int_equal(reader_asks, 0);
}

/* After exec the process still lives, but its library is gone. */
static void a_process_without_a_connection_may_have_left_its_memory(void **state)
{
        struct client *c = server.clients;

        now.gone = now.sure = true;
        c->id = 9;
        client_check_left(c);
        assert_false(c->gone); /* the connection still exists */
        client_close(c);
        assert_int_equal(c->fd, -EBADF);
        client_close(c);
        now.sure = false;
        client_check_left(c);
        assert_false(c->gone);
        now.sure = true;
        now.gone = false;
        client_check_left(c);
        assert_false(c->gone);
        now.gone = true;
        c->id = 0;
        client_check_left(c);
        assert_false(c->gone);
        c->id = 9;
        client_check_left(c);
        assert_true(c->gone);
}

#define CLIENT_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                CLIENT_TEST(messages_are_numbered_and_limits_keep_the_schedulers_number),
                CLIENT_TEST(messages_that_the_socket_does_not_take_are_kept),
                CLIENT_TEST(an_ended_client_is_dropped_at_the_next_message),
                CLIENT_TEST(no_message_is_handled_after_a_refusal),
                CLIENT_TEST(messages_are_handled_in_their_order),
                CLIENT_TEST(a_malformed_message_ends_the_connection),
                CLIENT_TEST(an_attach_waits_for_a_look_at_the_cards),
                CLIENT_TEST(an_attach_before_the_greeting_starts_no_look_at_the_cards),
                CLIENT_TEST(a_process_has_one_connection),
                CLIENT_TEST(an_empty_former_record_is_not_linked),
                CLIENT_TEST(too_many_connections_of_a_user_are_refused_with_a_reason),
                CLIENT_TEST(too_many_connections_in_all_are_refused),
                CLIENT_TEST(a_client_is_gone_when_its_memory_is_surely_free),
                CLIENT_TEST(a_client_that_nvml_no_longer_names_is_gone_at_once),
                CLIENT_TEST(a_process_without_a_connection_may_have_left_its_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
