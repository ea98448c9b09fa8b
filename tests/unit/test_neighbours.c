/* test_neighbours.c: what a daemon makes of other daemons' notes, with real sockets, a real
 * scheduler and a clock that a test moves. Nobody is believed more than that he would like bytes,
 * and nobody keeps what he does not take. */
#include "unit.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/client.h"

#define CARD (16 * GIB)

/* docs/protocol.md, "Between daemons" */
struct note {
        uint32_t magic;
        uint16_t version, kind;
        uint8_t uuid[16];
        uint64_t bytes, since_ns;
};
enum { NEED = 1, HAVE, LEFT };

static struct config config;
static struct server server;
static struct {
        uint64_t ns; /* the clock */
        uint64_t foreign;
        bool looks; /* a look can be had */
        bool event; /* what follows from one is not yet carried out */
        unsigned asked, falls, resumed;
} now;
static struct peer_daemon {
        uint64_t instance;
        int fd;
} peer, second;

/* ---- neighbours ---- */

int clock_gettime(clockid_t id, struct timespec *ret)
{
        *ret = (struct timespec){.tv_sec = (time_t)(now.ns / NSEC_PER_SEC),
                                 .tv_nsec = (long)(now.ns % NSEC_PER_SEC)};
        return 0;
}

uint64_t measure_now(struct server *s, unsigned gpu)
{
        return gpu == 0 ? now.foreign : CARD; /* the second card is full */
}

uint64_t measure_newest(const struct gpu *g)
{
        return now.foreign;
}

void measure_fall(struct server *s, unsigned gpu)
{
        now.falls++;
}

bool reader_ask(struct reader *r)
{
        now.asked++;
        return now.looks;
}

void session_resume(struct server *s)
{
        now.resumed++;
}

void session_begin(struct server *s)
{
        s->actions.n = 0;
        s->actions.more = false;
        now.event = true;
}

void session_perform(struct server *s)
{
        s->stirred = true;
        for (unsigned i = 0; i < s->actions.n; i++)
                neighbours_act(s, &s->actions.list[i]);
        session_begin(s);
        now.event = false;
}

/* ---- scenes ---- */

static struct peer_daemon open_peer(const char *name)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        struct peer_daemon p = {.instance = server.instance + 1 + (*name == 'b')};
        socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                                     (size_t)snprintf(a.sun_path + 1, 100, "sublet-daemon/%016llx",
                                                      (unsigned long long)p.instance));

        p.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_int_equal(bind(p.fd, (struct sockaddr *)&a, size), 0);
        return p;
}

static int begin(void **state)
{
        struct sched_config sched;

        uint64_t instance;

        assert_int_equal(getrandom(&instance, sizeof(instance), 0), sizeof(instance));
        memset(&now, 0, sizeof(now));
        now.ns = 1000 * NSEC_PER_SEC;
        now.looks = false; /* what a note asks for is done at once */
        sched_config_default(&sched);
        sched.clients_max = 64;
        sched.host_budget_bytes = 64 * GIB;
        config = (struct config){.sched = sched};
        server = (struct server){.config = &config,
                                 .sched = sched_new(&sched),
                                 .users = users_new(10),
                                 .instance = instance / 4 * 4 + 1, /* the peers' are the next two */
                                 .n_attached = 1};
        assert_true(server.sched && server.users);
        assert_true(sd_event_new(&server.event) >= 0);
        server.gpus.n = 1;
        server.gpus.list[0] = (struct gpu){.present = true, .vouched = true, .total_bytes = CARD};
        /* No other daemon on this machine has this card. */
        memset(server.gpus.list[0].uuid, 0xa5, 16);
        memcpy(server.gpus.list[0].uuid, &server.instance, 8);
        assert_int_equal(sched_gpu_add(server.sched, 0, CARD), 0);
        assert_int_equal(neighbours_open(&server), 0);
        peer = open_peer("a");
        second = open_peer("b");
        return 0;
}

static int end(void **state)
{
        neighbours_close(&server);
        neighbours_close(&server); /* once is enough */
        (void)sd_event_unref(server.event);
        users_free(server.users);
        sched_free(server.sched);
        (void)close(peer.fd);
        return close(second.fd);
}

static void settle(void)
{
        while (sd_event_run(server.event, 0) > 0)
                ;
        neighbours_settle(&server);
        assert_false(now.event);
}

static struct note note_of(unsigned kind, uint64_t bytes, uint64_t since_ns)
{
        struct note n = {0x4e4c4253, 2, (uint16_t)kind, {0}, bytes, since_ns};

        memcpy(n.uuid, server.gpus.list[0].uuid, 16);
        return n;
}

static void send_bytes(int fd, const void *bytes, size_t n)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                                     (size_t)snprintf(a.sun_path + 1, 100, "sublet-daemon/%016llx",
                                                      (unsigned long long)server.instance));

        assert_int_equal(sendto(fd, bytes, n, 0, (struct sockaddr *)&a, size), n);
        settle();
}

static void say(const struct peer_daemon *p, unsigned kind, uint64_t bytes, uint64_t since_ns)
{
        const struct note n = note_of(kind, bytes, since_ns);

        send_bytes(p->fd, &n, sizeof(n));
}

/* The last note of this kind that p has got; false: none since the last question. */
static bool got(const struct peer_daemon *p, unsigned kind, struct note *ret)
{
        struct note n;
        bool any = false;

        while (recv(p->fd, &n, sizeof(n), 0) == sizeof(n))
                if (n.kind == kind && memcmp(n.uuid, server.gpus.list[0].uuid, 16) == 0) {
                        *ret = n;
                        any = true;
                }
        return any;
}

static bool is_left(const struct peer_daemon *p)
{
        struct note n;

        return got(p, LEFT, &n);
}

/* Bytes that the ledger keeps for others. */
static uint64_t charged(void)
{
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_view(server.sched, 0, &v), 0);
        return v.charged;
}

static uint64_t movable(void)
{
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_view(server.sched, 0, &v), 0);
        return v.movable;
}

static void pass(uint64_t ns)
{
        now.ns += ns;
        neighbours_tick(&server);
        settle();
}

static void others_use(uint64_t bytes)
{
        now.foreign = server.gpus.list[0].foreign_told = bytes;
        session_begin(&server);
        sched_gpu_foreign(server.sched, 0, bytes, now.ns, &server.actions);
        session_perform(&server);
}

/* ---- lending ---- */

static void what_a_daemon_needs_is_left_to_it(void **state)
{
        struct note n;

        say(&peer, NEED, 4 * GIB, 7);
        assert_true(got(&peer, HAVE, &n));
        assert_int_equal(n.bytes, 0); /* our clients have nothing to move away */
        assert_int_equal(charged(), 4 * GIB);
        say(&peer, NEED, 4 * GIB, 7); /* notes are repeated, and change nothing */
        assert_int_equal(charged(), 4 * GIB);
        pass(0);
        assert_true(got(&peer, LEFT, &n)); /* as is this one */
        assert_int_equal(n.bytes, 4 * GIB);
        assert_int_equal(n.magic, 0x4e4c4253);
        assert_int_equal(n.version, 2);
}

static void what_was_left_is_not_promised_twice(void **state)
{
        others_use(GIB);
        say(&peer, NEED, 4 * GIB, 7);
        say(&second, NEED, 2 * GIB, 8);
        assert_int_equal(charged(), 6 * GIB);
        /* The lent bytes are theirs already. */
        assert_int_equal(neighbours_absorb(&server, 0, GIB), GIB);
        assert_int_equal(neighbours_absorb(&server, 0, 7 * GIB), GIB);
        assert_int_equal(neighbours_absorb(&server, 0, 7 * GIB + MIB), GIB + MIB);
        assert_int_equal(neighbours_absorb(&server, 0, GIB / 2), GIB / 2); /* less is news */
        assert_int_equal(neighbours_absorb(&server, 1, 3 * GIB), 3 * GIB);
}

static void what_is_taken_is_others_use_and_no_loan_any_more(void **state)
{
        say(&peer, NEED, 4 * GIB, 7);
        assert_true(is_left(&peer));
        now.foreign = 4 * GIB;
        pass(NSEC_PER_SEC);
        assert_int_equal(charged(), 0);
        assert_int_equal(server.gpus.list[0].foreign_told, 4 * GIB);
        assert_false(is_left(&peer));
        say(&peer, NEED, GIB, 9); /* nobody is shunned for it */
        assert_int_equal(charged(), GIB);
}

static void what_is_taken_in_part_is_kept_for_longer(void **state)
{
        say(&peer, NEED, 4 * GIB, 7);
        now.foreign = GIB;
        pass(1900 * NSEC_PER_MSEC);
        assert_int_equal(charged(), 4 * GIB);
        now.foreign = 2 * GIB;
        pass(1900 * NSEC_PER_MSEC);
        say(&peer, NEED, 2 * GIB, 7); /* what it still lacks */
        now.foreign += MIB;           /* too little to count as taking */
        pass(1900 * NSEC_PER_MSEC);
        assert_int_equal(charged(), 4 * GIB);
        pass(200 * NSEC_PER_MSEC);
        assert_int_equal(charged(), 0);
        assert_int_equal(server.gpus.list[0].foreign_told, now.foreign);
        say(&peer, NEED, GIB, 9); /* it took something */
        assert_int_equal(charged(), GIB);
}

static void what_is_not_taken_is_taken_back_and_its_user_shunned(void **state)
{
        say(&peer, NEED, 4 * GIB, 7);
        pass(2 * NSEC_PER_SEC);
        assert_int_equal(charged(), 4 * GIB);
        pass(1);
        assert_int_equal(charged(), 0);
        say(&peer, NEED, 4 * GIB, 7);
        say(&second, NEED, 4 * GIB, 8); /* of the same user */
        assert_int_equal(charged(), 0);
        pass(10 * NSEC_PER_SEC - 1);
        say(&peer, NEED, 4 * GIB, 7);
        assert_int_equal(charged(), 0);
        pass(1);
        say(&peer, NEED, 4 * GIB, 7);
        assert_int_equal(charged(), 4 * GIB);
}

static void whoever_is_silent_needs_nothing_any_more(void **state)
{
        others_use(CARD); /* so that nothing can be left */
        say(&peer, NEED, 4 * GIB, 7);
        assert_false(is_left(&peer));
        pass(5 * NSEC_PER_SEC);
        say(&peer, NEED, 4 * GIB, 7); /* still there */
        pass(5 * NSEC_PER_SEC);
        others_use(0);
        settle();
        assert_true(is_left(&peer));
        others_use(CARD);
        say(&second, NEED, 4 * GIB, 8);
        pass(5 * NSEC_PER_SEC + 1);
        others_use(0);
        settle();
        assert_false(is_left(&second));
        assert_int_equal(charged(), 0);
}

static void a_need_that_is_over_is_no_need(void **state)
{
        say(&peer, NEED, 4 * GIB, 7);
        say(&peer, NEED, 0, 0);
        assert_int_equal(charged(), 0);
        say(&second, NEED, 0, 0); /* nor one that never was */
        assert_int_equal(charged(), 0);
}

static void more_is_asked_for_anew_and_less_is_covered(void **state)
{
        say(&peer, NEED, 4 * GIB, 7);
        say(&peer, NEED, 3 * GIB, 7);
        assert_int_equal(charged(), 4 * GIB);
        say(&peer, NEED, 4 * GIB + 1, 7);
        assert_int_equal(charged(), 4 * GIB + 1);
        now.foreign = GIB;
        pass(0);
        say(&peer, NEED, 4 * GIB, 7); /* with a GiB taken that is one more */
        assert_int_equal(server.gpus.list[0].foreign_told, GIB);
        now.foreign = 2 * GIB;
        pass(0);
        say(&peer, NEED, 3 * GIB + CARD / 64, 7); /* both were not seen at one instant */
        assert_int_equal(server.gpus.list[0].foreign_told, GIB);
        say(&peer, NEED, UINT64_MAX, 7); /* no more than the card has */
        assert_true(charged() <= CARD);
}

static void what_a_daemon_borrowed_ends_with_it(void **state)
{
        say(&peer, NEED, 4 * GIB, 7);
        (void)close(peer.fd);
        pass(0);
        assert_int_equal(charged(), 0);
        say(&second, NEED, GIB, 8); /* its user is not shunned */
        assert_int_equal(charged(), GIB);
        peer = open_peer("a");
}

/* A program on two cards takes nothing of the first before the second is left to it. */
static void what_is_left_of_one_card_alone_need_not_be_taken(void **state)
{
        struct note n = note_of(NEED, 4 * GIB, 7);

        server.gpus.n = 2;
        server.gpus.list[1] = server.gpus.list[0];
        server.gpus.list[1].uuid[15]++;
        assert_int_equal(sched_gpu_add(server.sched, 1, CARD), 0);
        say(&peer, NEED, 4 * GIB, 7);
        n.uuid[15]++;
        send_bytes(peer.fd, &n, sizeof(n));
        pass(2 * NSEC_PER_SEC + 1);
        say(&second, NEED, GIB, 8); /* its user is not shunned for it */
        assert_true(is_left(&second));
}

/* Without clients of ours the card is free anyway. */
static void where_nobody_is_nothing_is_lent(void **state)
{
        server.n_attached = 0;
        say(&peer, NEED, 4 * GIB, 7);
        assert_int_equal(charged(), 0);
        server.n_attached = 1;
        say(&peer, NEED, 4 * GIB, 7);
        assert_int_equal(charged(), 4 * GIB);
}

static void a_need_waits_for_a_look_at_the_card(void **state)
{
        now.looks = true;
        say(&peer, NEED, 4 * GIB, 7);
        assert_int_equal(now.asked, 1);
        assert_int_equal(charged(), 0);
        server.look = (const struct nvml_look *)&now;
        server.look_ns = now.ns - 1; /* was under way already */
        neighbours_looked(&server);
        assert_int_equal(charged(), 0);
        say(&peer, NEED, 5 * GIB, 7); /* the newer one holds */
        assert_int_equal(now.asked, 1);
        server.look_ns = now.ns;
        neighbours_looked(&server);
        settle();
        assert_int_equal(charged(), 5 * GIB);
        neighbours_looked(&server); /* once */
        say(&second, NEED, GIB, 8);
        server.look = NULL; /* there will be none */
        neighbours_looked(&server);
        settle();
        assert_int_equal(charged(), 6 * GIB);
        say(&peer, NEED, 0, 0); /* its end waits for one, too */
        assert_int_equal(charged(), 6 * GIB);
        neighbours_looked(&server);
        settle();
        assert_int_equal(charged(), GIB);
}

/* ---- who is heard ---- */

static void only_notes_of_daemons_about_cards_of_ours_are_heard(void **state)
{
        struct note n = note_of(NEED, 4 * GIB, 7);
        int nobody = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        char longer[sizeof(n) + 1] = {0};

        memcpy(longer, &n, sizeof(n));
        send_bytes(nobody, &n, sizeof(n)); /* a socket without a name */
        send_bytes(peer.fd, &n, sizeof(n) - 1);
        send_bytes(peer.fd, longer, sizeof(longer));
        n.magic++;
        send_bytes(peer.fd, &n, sizeof(n));
        n = note_of(NEED, 4 * GIB, 7);
        n.version++;
        send_bytes(peer.fd, &n, sizeof(n));
        n = note_of(NEED, 4 * GIB, 7);
        n.uuid[0]++;
        send_bytes(peer.fd, &n, sizeof(n));
        n = note_of(9, 4 * GIB, 7);
        send_bytes(peer.fd, &n, sizeof(n));
        assert_int_equal(charged(), 0);
        assert_false(is_left(&peer));
        (void)close(nobody);
        say(&peer, NEED, 4 * GIB, 7); /* what came before it did no harm */
        assert_int_equal(charged(), 4 * GIB);
}

static void a_user_that_has_used_its_time_is_not_heard(void **state)
{
        struct user *user = users_find(server.users, getuid(), now.ns);
        struct note n;

        users_charge(user, UINT64_MAX, now.ns);
        say(&peer, NEED, 4 * GIB, 7);
        assert_int_equal(charged(), 0);
        assert_false(got(&peer, HAVE, &n));
        now.ns += NSEC_PER_SEC;
        say(&peer, NEED, 4 * GIB, 7);
        assert_int_equal(charged(), 4 * GIB);
}

/* ---- asking ---- */

static void offers_are_believed_while_they_are_repeated(void **state)
{
        others_use(12 * GIB);
        say(&peer, HAVE, 4 * GIB, 0);
        assert_int_equal(movable(), 4 * GIB);
        assert_int_equal(now.resumed, 1); /* a request may have waited for it */
        say(&second, HAVE, 3 * GIB, 0);
        assert_int_equal(movable(), 7 * GIB);
        say(&peer, HAVE, GIB, 0); /* the newer one holds */
        assert_int_equal(movable(), 4 * GIB);
        say(&second, HAVE, UINT64_MAX, 0);
        assert_int_equal(movable(), 12 * GIB); /* not more than others use */
        say(&second, HAVE, 3 * GIB, 0);
        pass(5 * NSEC_PER_SEC);
        assert_int_equal(movable(), 4 * GIB);
        say(&peer, HAVE, GIB, 0);
        pass(1);
        assert_int_equal(movable(), GIB); /* the second was silent for too long */
        (void)close(peer.fd);
        pass(1);
        assert_int_equal(movable(), 0);
        peer = open_peer("a");
}

static void others_are_asked_where_what_they_use_is_in_the_way(void **state)
{
        struct sched_gpu_view v;
        struct note n;
        uint64_t fits;

        others_use(12 * GIB);
        assert_int_equal(sched_gpu_view(server.sched, 0, &v), 0);
        fits = v.capacity - v.headroom;
        assert_false(neighbours_may_help(&server, 0, fits)); /* it fits beside them */
        assert_false(got(&peer, NEED, &n));
        assert_true(neighbours_may_help(&server, 0, fits + 1));
        assert_true(got(&peer, NEED, &n));
        assert_true(neighbours_may_help(&server, 0, fits + 12 * GIB));
        assert_false(neighbours_may_help(&server, 0, fits + 12 * GIB + 1)); /* nor without them */
        assert_false(neighbours_may_help(&server, 0, CARD + 1));
        assert_false(neighbours_may_help(&server, 1, GIB)); /* no card of ours */
        say(&peer, HAVE, 12 * GIB, 0);
        assert_false(neighbours_may_help(&server, 0, fits + 1)); /* they have answered for it */
}

static void what_a_client_lacks_is_told_until_it_has_it(void **state)
{
        struct sched_attach a = {0};
        struct sched_want w = {.commit = 8 * GIB};
        struct sched_usage u = {.allocated = 8 * GIB};
        sched_client id;
        struct note n;

        others_use(12 * GIB);
        say(&peer, LEFT, GIB, 0); /* nothing is needed */
        assert_int_equal(now.falls, 0);
        say(&peer, HAVE, 12 * GIB, 0);
        session_begin(&server);
        assert_int_equal(sched_client_add(server.sched, 1, 0, now.ns, &id), 0);
        assert_int_equal(sched_client_attach(server.sched, id, 0, &a, now.ns, &server.actions), 0);
        assert_int_equal(sched_client_want(server.sched, id, 0, &w, now.ns, &server.actions), 0);
        assert_int_equal(sched_client_usage(server.sched, id, 0, &u, 0, 0, now.ns, &server.actions),
                         0);
        w.run = true;
        w.need = 8 * GIB;
        assert_int_equal(sched_client_want(server.sched, id, 0, &w, now.ns, &server.actions), 0);
        session_perform(&server);
        settle();
        assert_true(got(&peer, NEED, &n));
        assert_true(n.bytes > 3 * GIB && n.bytes <= 8 * GIB);
        assert_int_equal(n.since_ns, now.ns);
        server.stirred = true;
        settle();
        assert_false(got(&peer, NEED, &n)); /* not again before it is time */
        now.ns += NSEC_PER_SEC;
        server.stirred = true;
        settle();
        assert_true(got(&second, NEED, &n)); /* notes may be lost */
        say(&peer, LEFT, GIB, 0);
        assert_int_equal(now.falls, 1);
        session_begin(&server);
        sched_client_gone(server.sched, id, now.ns, &server.actions);
        session_perform(&server);
        settle();
        assert_true(got(&peer, NEED, &n));
        assert_int_equal(n.bytes, 0); /* it is over */
        say(&peer, LEFT, GIB, 0);
        assert_int_equal(now.falls, 1);
}

#define NEIGHBOURS_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                NEIGHBOURS_TEST(what_a_daemon_needs_is_left_to_it),
                NEIGHBOURS_TEST(what_was_left_is_not_promised_twice),
                NEIGHBOURS_TEST(what_is_taken_is_others_use_and_no_loan_any_more),
                NEIGHBOURS_TEST(what_is_taken_in_part_is_kept_for_longer),
                NEIGHBOURS_TEST(what_is_not_taken_is_taken_back_and_its_user_shunned),
                NEIGHBOURS_TEST(whoever_is_silent_needs_nothing_any_more),
                NEIGHBOURS_TEST(a_need_that_is_over_is_no_need),
                NEIGHBOURS_TEST(more_is_asked_for_anew_and_less_is_covered),
                NEIGHBOURS_TEST(what_a_daemon_borrowed_ends_with_it),
                NEIGHBOURS_TEST(what_is_left_of_one_card_alone_need_not_be_taken),
                NEIGHBOURS_TEST(where_nobody_is_nothing_is_lent),
                NEIGHBOURS_TEST(a_need_waits_for_a_look_at_the_card),
                NEIGHBOURS_TEST(only_notes_of_daemons_about_cards_of_ours_are_heard),
                NEIGHBOURS_TEST(a_user_that_has_used_its_time_is_not_heard),
                NEIGHBOURS_TEST(offers_are_believed_while_they_are_repeated),
                NEIGHBOURS_TEST(others_are_asked_where_what_they_use_is_in_the_way),
                NEIGHBOURS_TEST(what_a_client_lacks_is_told_until_it_has_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
