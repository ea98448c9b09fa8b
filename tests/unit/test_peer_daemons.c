/* test_peer_daemons.c: a daemon reacts to the needs of peer daemons and reports its own, with real
 * sockets, a real scheduler and a clock that a test moves. */
#include "unit.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/net/peer_daemons.h"
#include "daemon/state/client.h"
#include "fakes/daemon.h"
#include "daemon/ledger/event.h"

#define CARD  (16 * GIB)
#define MAGIC UINT32_C(0x4e4c4253)

/* The message of docs/protocol.md, "Between daemons". */
struct packet {
        uint32_t magic, version;
        uint8_t uuid[16];
        uint64_t bytes;
};

static struct config config;
static struct server server;
static struct client client;
static struct {
        uint64_t ns;    /* the clock */
        uint64_t limit; /* the client's limit, as last sent */
        uint32_t sequence;
        bool revoked;
} now;
static int peer;
static uint64_t peer_instance;

/* ---- fakes of other modules ---- */

int clock_gettime(clockid_t id, struct timespec *ret)
{
        *ret = (struct timespec){.tv_sec = (time_t)(now.ns / NSEC_PER_SEC),
                                 .tv_nsec = (long)(now.ns % NSEC_PER_SEC)};
        return 0;
}

void event_end(struct server *s)
{
        for (unsigned i = 0; i < s->actions.n; i++) {
                const struct sched_action *a = &s->actions.list[i];

                if (a->type == SCHED_DO_LIMIT) {
                        now.limit = a->limit.backed;
                        now.sequence = a->limit.sequence;
                }
                now.revoked |= a->type == SCHED_DO_REVOKE;
        }
        s->actions.n = 0;
        event_open = false;
        events++;
}

/* ---- scenes ---- */

static socklen_t name_of(uint64_t instance, struct sockaddr_un *a)
{
        *a = (struct sockaddr_un){.sun_family = AF_UNIX};
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                           (size_t)snprintf(a->sun_path + 1, 100, "sublet-daemon/%016llx",
                                            (unsigned long long)instance));
}

static int begin(void **state)
{
        struct sched_config sched;
        struct sockaddr_un a;
        uint64_t instance;
        socklen_t size;

        assert_int_equal(getrandom(&instance, sizeof(instance), 0), sizeof(instance));
        memset(&now, 0, sizeof(now));
        event_open = false;
        events = 0;
        now.ns = 1000 * NSEC_PER_SEC;
        sched_config_default(&sched);
        sched.clients_max = 64;
        sched.host_budget_bytes = 64 * GIB;
        config = (struct config){.sched = sched};
        server = (struct server){.config = &config,
                                 .sched = sched_new(&sched),
                                 .users = users_new(10),
                                 .instance = instance / 2 * 2 + 1};
        assert_true(server.sched && server.users);
        assert_true(sd_event_new(&server.event) >= 0);
        server.gpus.n = 1;
        server.gpus.list[0] = (struct gpu){.present = true, .vouched = true, .total_bytes = CARD};
        /* A UUID that no other daemon on this machine uses. */
        memset(server.gpus.list[0].uuid, 0xa5, 16);
        memcpy(server.gpus.list[0].uuid, &server.instance, 8);
        assert_int_equal(sched_gpu_add(server.sched, 0, CARD), 0);
        assert_int_equal(peer_daemons_open(&server), 0);
        peer_instance = server.instance + 1;
        size = name_of(peer_instance, &a);
        peer = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        return bind(peer, (struct sockaddr *)&a, size);
}

static int end(void **state)
{
        peer_daemons_close(&server);
        peer_daemons_close(&server); /* closing twice must work */
        (void)sd_event_unref(server.event);
        users_free(server.users);
        sched_free(server.sched);
        return peer >= 0 ? close(peer) : 0;
}

static struct packet need_of(uint64_t bytes)
{
        struct packet m = {.magic = MAGIC, .version = 1, .bytes = bytes};

        memcpy(m.uuid, server.gpus.list[0].uuid, 16);
        return m;
}

static void send_bytes(const void *bytes, size_t n)
{
        struct sockaddr_un a;
        socklen_t size = name_of(server.instance, &a);

        assert_int_equal(sendto(peer, bytes, n, 0, (struct sockaddr *)&a, size), n);
        while (sd_event_run(server.event, 0) > 0)
                ;
}

static void say(uint64_t bytes)
{
        const struct packet m = need_of(bytes);

        send_bytes(&m, sizeof(m));
}

static void tick(uint64_t ns)
{
        now.ns += ns;
        peer_daemons_tick(&server);
        assert_false(event_open);
        event_begin(&server);
        sched_tick(server.sched, now.ns, &server.actions);
        event_end(&server);
}

/* Returns the bytes of the last message to the peer; 0: none came since the last call. */
static uint64_t told(void)
{
        struct packet m;
        uint64_t bytes = 0;

        while (recv(peer, &m, sizeof(m), 0) == sizeof(m))
                if (m.magic == MAGIC && m.version == 1 &&
                    memcmp(m.uuid, server.gpus.list[0].uuid, 16) == 0)
                        bytes = m.bytes;
        return bytes;
}

static void foreign(uint64_t bytes)
{
        event_begin(&server);
        sched_gpu_foreign(server.sched, 0, bytes, now.ns, &server.actions);
        event_end(&server);
}

static void want(uint64_t commit, bool run)
{
        const struct sched_request w = {.commit = commit, .run = run, .need = run ? commit : 0};

        event_begin(&server);
        assert_int_equal(
                sched_client_request(server.sched, client.id, 0, &w, now.ns, &server.actions), 0);
        event_end(&server);
}

static void use(uint64_t backed)
{
        struct sched_usage u = {.allocated = 8 * GIB, .backed = backed};

        event_begin(&server);
        assert_int_equal(sched_client_usage(server.sched, client.id, 0, &u, now.sequence, 0, now.ns,
                                            &server.actions),
                         0);
        event_end(&server);
}

/* Adds a client that holds 8 GiB and has no lease. */
static void join(void)
{
        struct sched_attach a = {.usage = {.allocated = 8 * GIB, .backed = 8 * GIB}};

        client = (struct client){.server = &server};
        event_begin(&server);
        assert_int_equal(sched_client_add(server.sched, (struct sched_origin){.uid = 1}, 0, now.ns,
                                          &client.id),
                         0);
        assert_int_equal(
                sched_client_attach(server.sched, client.id, 0, &a, now.ns, &server.actions), 0);
        event_end(&server);
        server.clients = &client;
        assert_int_equal(now.limit, 8 * GIB);
}

/* ---- giving way ---- */

static void an_idle_client_gives_way_to_the_need_of_a_peer_daemon(void **state)
{
        join();
        now.ns += 60 * NSEC_PER_SEC;
        say(3 * GIB);
        /* A message alone moves nothing; the next tick does. */
        assert_int_equal(now.limit, 8 * GIB);
        tick(0);
        assert_int_equal(now.limit, 5 * GIB);
}

static void a_repeated_need_moves_no_more_memory_within_3_seconds(void **state)
{
        join();
        now.ns += 60 * NSEC_PER_SEC;
        say(GIB);
        tick(0);
        assert_int_equal(now.limit, 7 * GIB);
        use(7 * GIB);
        for (unsigned i = 0; i < 100; i++) {
                say(GIB);
                tick(29 * NSEC_PER_MSEC);
        }
        assert_int_equal(now.limit, 7 * GIB);
        tick(NSEC_PER_SEC);
        assert_int_equal(now.limit, 6 * GIB);
}

static void a_need_that_is_not_repeated_expires(void **state)
{
        join();
        say(GIB); /* too soon: the client's memory was just in use */
        tick(0);
        assert_int_equal(now.limit, 8 * GIB);
        tick(3 * NSEC_PER_SEC + 1);
        tick(60 * NSEC_PER_SEC);
        assert_int_equal(now.limit, 8 * GIB);
}

static void a_need_beyond_all_bounds_moves_all_memory_of_an_idle_client(void **state)
{
        join();
        now.ns += 60 * NSEC_PER_SEC;
        say(UINT64_MAX);
        tick(0);
        assert_int_equal(now.limit, 0);
}

static void a_busy_client_keeps_its_memory_and_its_turn(void **state)
{
        join();
        want(0, true);
        now.ns += 60 * NSEC_PER_SEC;
        for (unsigned i = 0; i < 20; i++) {
                say(UINT64_MAX);
                tick(NSEC_PER_SEC);
        }
        assert_int_equal(now.limit, 8 * GIB);
        assert_false(now.revoked);
}

/* Says every second for so long that somebody waits for 64 MiB. taken: the memory that is given is
 * taken. Returns what the client has lost. */
static uint64_t claim(unsigned seconds, bool taken)
{
        for (unsigned i = 0; i < seconds; i++) {
                say(64 * MIB);
                tick(NSEC_PER_SEC);
                use(now.limit);
                if (taken)
                        foreign(8 * GIB - now.limit);
        }
        return 8 * GIB - now.limit;
}

static void memory_that_nobody_takes_is_given_ever_less_often(void **state)
{
        uint64_t lost;

        join();
        now.ns += 60 * NSEC_PER_SEC;
        lost = claim(25, false);
        assert_true(lost >= 7 * 64 * MIB && lost <= 9 * 64 * MIB);
        assert_int_equal(claim(50, false), lost);             /* it rests */
        assert_true(claim(30, false) >= lost * 2 - 64 * MIB); /* and is followed again */
        lost = claim(0, false);
        assert_int_equal(claim(110, false), lost); /* the rest is longer now */
        assert_true(claim(3600, false) <= lost + 6 * 8 * 64 * MIB);
}

static void memory_that_is_taken_is_given_for_as_long_as_it_is_needed(void **state)
{
        join();
        now.ns += 60 * NSEC_PER_SEC;
        assert_true(claim(180, true) >= 59 * 64 * MIB);
}

static void a_user_who_stays_silent_for_a_while_has_his_rest_all_the_same(void **state)
{
        uint64_t lost;

        join();
        now.ns += 60 * NSEC_PER_SEC;
        lost = claim(22, false);
        tick(30 * NSEC_PER_SEC);
        assert_int_equal(claim(20, false), lost);
}

static void malformed_needs_and_needs_for_other_cards_are_ignored(void **state)
{
        struct packet m = need_of(GIB);
        char longer[sizeof(m) + 1] = {0};
        unsigned before;

        join();
        now.ns += 60 * NSEC_PER_SEC;
        memcpy(longer, &m, sizeof(m));
        send_bytes(&m, sizeof(m) - 1);
        send_bytes(longer, sizeof(longer));
        m.magic++;
        send_bytes(&m, sizeof(m));
        m = need_of(GIB);
        m.version--;
        send_bytes(&m, sizeof(m));
        m = need_of(GIB);
        m.uuid[0]++;
        send_bytes(&m, sizeof(m));
        say(0);
        before = events;
        tick(0);
        assert_int_equal(events, before + 1); /* the event of the tick itself */
        assert_int_equal(now.limit, 8 * GIB);
}

static void a_user_that_has_used_its_time_is_ignored(void **state)
{
        struct user *user = users_find(server.users, USERS_UID(getuid()), now.ns);

        join();
        now.ns += 60 * NSEC_PER_SEC;
        users_charge(user, UINT64_MAX, now.ns);
        say(GIB);
        tick(0);
        assert_int_equal(now.limit, 8 * GIB);
        now.ns += NSEC_PER_SEC;
        say(GIB);
        tick(0);
        assert_int_equal(now.limit, 7 * GIB);
}

/* ---- reporting ---- */

static void the_bytes_that_a_client_waits_for_are_sent_each_period(void **state)
{
        struct sched_gpu_view v;

        join();
        use(8 * GIB);
        now.ns += 60 * NSEC_PER_SEC;
        foreign(12 * GIB);
        use(now.limit);
        want(8 * GIB, true);
        tick(0);
        assert_int_equal(sched_gpu_view(server.sched, 0, &v), 0);
        assert_int_equal(told(), 8 * GIB - (v.capacity - v.headroom));
        tick(NSEC_PER_SEC);
        assert_true(told() > 0); /* repeated, because a message may be lost */
        foreign(0);
        tick(NSEC_PER_SEC);
        assert_int_equal(told(), 0);
}

static void a_request_for_room_is_kept_while_peers_may_give_way(void **state)
{
        struct sched_gpu_view v;
        uint64_t fits;

        join();
        use(0);
        foreign(12 * GIB);
        assert_int_equal(sched_gpu_view(server.sched, 0, &v), 0);
        fits = v.capacity - v.headroom;
        assert_false(peer_daemons_may_help(&server, 0, fits));
        assert_true(peer_daemons_may_help(&server, 0, fits + GIB));
        /* The request exceeds what an empty card could hold. */
        assert_false(peer_daemons_may_help(&server, 0, CARD));
        /* The request is for a card that this daemon does not have. */
        assert_false(peer_daemons_may_help(&server, 1, GIB));
        client.request.kept = true;
        client.request.commit = fits + GIB;
        tick(0);
        assert_int_equal(told(), GIB);
        peer_daemons_did_not_help(&server, 0);
        assert_false(peer_daemons_may_help(&server, 0, fits + GIB));
        now.ns += 10 * NSEC_PER_SEC;
        assert_true(peer_daemons_may_help(&server, 0, fits + GIB));
}

#define PEER_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                PEER_TEST(an_idle_client_gives_way_to_the_need_of_a_peer_daemon),
                PEER_TEST(a_repeated_need_moves_no_more_memory_within_3_seconds),
                PEER_TEST(a_need_that_is_not_repeated_expires),
                PEER_TEST(a_need_beyond_all_bounds_moves_all_memory_of_an_idle_client),
                PEER_TEST(a_busy_client_keeps_its_memory_and_its_turn),
                PEER_TEST(memory_that_nobody_takes_is_given_ever_less_often),
                PEER_TEST(memory_that_is_taken_is_given_for_as_long_as_it_is_needed),
                PEER_TEST(a_user_who_stays_silent_for_a_while_has_his_rest_all_the_same),
                PEER_TEST(malformed_needs_and_needs_for_other_cards_are_ignored),
                PEER_TEST(a_user_that_has_used_its_time_is_ignored),
                PEER_TEST(the_bytes_that_a_client_waits_for_are_sent_each_period),
                PEER_TEST(a_request_for_room_is_kept_while_peers_may_give_way),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
