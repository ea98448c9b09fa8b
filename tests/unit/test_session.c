/* test_session.c: the daemon answers each message, with a real scheduler. Messages out of order and
 * impossible figures are refused, and no client gets what belongs to another. */
#include "unit.h"

#include <errno.h>
#include <signal.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/shares.h"
#include "daemon/net/peer_daemons.h"
#include "daemon/state/client.h"
#include "fakes/daemon.h"
#include "daemon/net/broker.h"
#include "daemon/net/session.h"
#include "daemon/ledger/entitlement.h"
#include "daemon/ledger/event.h"
#include "daemon/ledger/card_figures.h"

#define CARD    (16 * GIB)
#define SENT    128u
#define CLIENTS 3u
#define MILLION 1000000u

static struct config config;
static struct place *const place = (struct place *)(uintptr_t)1;
static struct server server;
static struct client clients[CLIENTS];
static struct {
        const struct client *to;
        struct wire_message m;
} sent[SENT];
static unsigned sent_count, killed, measured_soon, rises;
static bool helps;
static uint64_t needed; /* bytes that a program needs to run */

/* ---- fakes of other modules ---- */

void client_send(struct client *c, struct wire_message *m)
{
        assert_true(sent_count < SENT);
        sent[sent_count].to = c;
        sent[sent_count++].m = *m;
}

void client_send_with(struct client *c, struct wire_message *m, const int *fds, unsigned n_fds)
{
        client_send(c, m);
}

void client_refuse(struct client *c, enum wire_refusal code, const char *text)
{
        event_refuse(c, WIRE_NO_GPU, code, 0, text);
        client_drop(c, text);
}

struct client *server_find(const struct server *s, sched_client id)
{
        for (unsigned i = 0; i < CLIENTS; i++)
                if (id && clients[i].id == id && !clients[i].gone)
                        return &clients[i];
        return NULL;
}

void server_measure_soon(struct server *s)
{
        measured_soon++;
}

uint64_t figures_excess(const struct client_account *acc)
{
        return acc->excess[0];
}

uint64_t figures_excess_soon(const struct client_account *acc)
{
        return acc->excess[1];
}

void figures_rise(struct server *s, unsigned gpu)
{
        rises++;
}

bool peer_daemons_exist(struct server *s)
{
        return helps;
}

void peer_daemons_did_not_help(struct server *s, unsigned gpu)
{
}

bool peer_daemons_may_help(struct server *s, unsigned gpu, uint64_t commit)
{
        return helps;
}

void pass_begin(struct server *s, struct client *from, unsigned gpu, uint64_t bytes)
{
}

void pass_match(struct server *s)
{
}

int broker_name(struct client *c, const struct wire_message *m)
{
        return 0;
}

int broker_peer(struct client *c, const struct wire_message *m)
{
        return 0;
}

void place_mark(struct place *p, bool present)
{
}

int peer_kill(int pidfd, int signal)
{
        assert_int_equal(signal, SIGKILL);
        killed++;
        return 0;
}

bool peer_same_user(const struct peer *a, const struct peer *b)
{
        return a->uid == b->uid;
}

bool peer_same_account(const struct peer *a, const struct peer *b)
{
        return a->tenant.kind == TENANT_POD ? tenant_same(&a->tenant, &b->tenant)
                                            : a->uid == b->uid;
}

bool peer_has_right(const struct peer *by, const struct peer *of)
{
        return by->trusted || by->uid == of->uid;
}

enum peer_knowledge peer_may_know(const struct peer *by, const struct peer *of, bool names)
{
        return peer_has_right(by, of) ? PEER_KNOWS_ALL
               : names                ? PEER_KNOWS_NAME
                                      : PEER_KNOWS_NOTHING;
}

/* ---- scenes ---- */

static int begin(void **state)
{
        static struct client *by_slot[64];
        struct sched_config sched;

        memset(by_slot, 0, sizeof(by_slot));
        memset(&config, 0, sizeof(config));
        sched_config_default(&sched);
        sched.clients_max = 32;
        sched.host_budget_bytes = 64 * GIB;
        config.sched = sched;
        config.freeze = WIRE_FREEZE_MOVE;
        config.unevictable_per_user_permille = 25;
        config.host_per_user_permille = 500;
        server = (struct server){.config = &config,
                                 .place = place,
                                 .sched = sched_new(&sched),
                                 .instance = 99,
                                 .host_budget_bytes = 64 * GIB,
                                 .by_slot = by_slot};
        assert_non_null(server.sched);
        server.gpus.config = &config;
        for (unsigned i = 0; i < CLIENTS; i++) {
                struct client *c = &clients[i];

                *c = (struct client){
                        .server = &server,
                        .peer = {.pid = (pid_t)(100 + i), .uid = 1000, .pidfd = 5, .trusted = true},
                        .user = (struct user *)(uintptr_t)1};
                for (unsigned g = 0; g < WIRE_GPUS_MAX; g++)
                        c->gpu_of[g] = -1;
                for (unsigned g = 0; g < SCHED_GPUS_MAX; g++)
                        c->accounts[g].ordinal = -1;
                c->next = i + 1 < CLIENTS ? &clients[i + 1] : NULL;
        }
        server.clients = &clients[0];
        needed = sent_count = killed = measured_soon = rises = 0;
        helps = false;
        return 0;
}

static int end(void **state)
{
        sched_free(server.sched);
        return 0;
}

static const struct wire_message *said(const struct client *to, unsigned type)
{
        for (unsigned i = sent_count; i-- > 0;)
                if (sent[i].to == to && sent[i].m.header.type == type)
                        return &sent[i].m;
        return NULL;
}

static struct wire_message message(unsigned type, unsigned gpu)
{
        static uint32_t sequence;

        return (struct wire_message){
                .header = {(uint16_t)type, (uint16_t)gpu, ++sequence + MILLION}};
}

static int hello(struct client *c, unsigned protocol)
{
        struct wire_message m = message(WIRE_HELLO, WIRE_NO_GPU);

        m.HELLO.magic = WIRE_MAGIC;
        m.HELLO.protocol = protocol;
        (void)snprintf(m.HELLO.name, sizeof(m.HELLO.name), "p%d", (int)c->peer.pid);
        return session_handle(c, &m);
}

static struct wire_message attach_message(unsigned ordinal, uint8_t card)
{
        struct wire_message m = message(WIRE_ATTACH, ordinal);

        memset(m.ATTACH.uuid, card, sizeof(m.ATTACH.uuid));
        m.ATTACH.total_bytes = CARD;
        return m;
}

static int attach(struct client *c, unsigned ordinal, uint8_t card)
{
        struct wire_message m = attach_message(ordinal, card);

        return session_handle(c, &m);
}

static void join(struct client *c)
{
        assert_int_equal(hello(c, WIRE_VERSION), 0);
        assert_int_equal(attach(c, 0, 1), 0);
}

static int want(struct client *c, uint64_t commit, uint64_t unevictable, bool run)
{
        struct wire_message m = message(WIRE_REQUEST, 0);

        m.REQUEST.commit = commit;
        m.REQUEST.unevictable = unevictable;
        m.REQUEST.need = needed;
        m.REQUEST.flags = run ? WIRE_FLAG_RUN : 0;
        return session_handle(c, &m);
}

/* ---- tests ---- */

static void put_in(struct client *c, enum tenant_kind kind, const char *id, uid_t uid)
{
        c->peer.tenant = (struct tenant){.kind = kind};
        (void)snprintf(c->peer.tenant.id, sizeof(c->peer.tenant.id), "%s", id);
        c->peer.uid = uid;
        c->peer.container = (ino_t)(7 + (c - clients)); /* each has a pid namespace */
}

static void a_pod_is_a_user_and_a_job_is_as_a_container_of_its_user(void **state)
{
        struct sched_origin o[CLIENTS];

        put_in(&clients[0], TENANT_POD, "a", 0);
        put_in(&clients[1], TENANT_POD, "a", 5);
        put_in(&clients[2], TENANT_POD, "b", 0);
        for (unsigned i = 0; i < CLIENTS; i++)
                o[i] = entitlement_origin(&clients[i]);
        assert_true(o[0].uid > UINT32_MAX && o[0].uid == o[1].uid && o[0].uid != o[2].uid);
        assert_true(o[0].container == 0 && o[1].container == 0);

        put_in(&clients[0], TENANT_JOB, "5", 1000);
        put_in(&clients[1], TENANT_JOB, "5", 1000);
        put_in(&clients[2], TENANT_JOB, "6", 1000);
        for (unsigned i = 0; i < CLIENTS; i++)
                o[i] = entitlement_origin(&clients[i]);
        assert_true(o[0].uid == 1000 && o[2].uid == 1000);
        assert_true(o[0].container && o[0].container == o[1].container);
        assert_true(o[2].container && o[2].container != o[0].container);

        put_in(&clients[0], TENANT_NONE, "", 1000);
        o[0] = entitlement_origin(&clients[0]);
        assert_true(o[0].uid == 1000 && o[0].container == 7);
}

static void the_cap_of_everybody_is_one_for_a_pod_and_not_for_all_roots(void **state)
{
        char why[160];

        config.classes.unmatched.memory_cap = 4 * GIB;
        put_in(&clients[0], TENANT_POD, "a", 0);
        put_in(&clients[1], TENANT_POD, "a", 5);
        put_in(&clients[2], TENANT_POD, "b", 0);
        for (unsigned i = 0; i < CLIENTS; i++)
                join(&clients[i]);
        assert_int_equal(want(&clients[0], 3 * GIB, 0, false), 0);
        assert_false(entitlement_fits(&clients[1], 0, 2 * GIB, false, why));
        assert_true(entitlement_fits(&clients[1], 0, GIB, false, why));
        assert_true(entitlement_fits(&clients[2], 0, 4 * GIB, false, why));
}

/* Returns how much the client is told that it could have in all. */
static uint64_t room(struct client *c)
{
        struct wire_message m = message(WIRE_ROOM, 0);

        m.ROOM.ask = 7;
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(said(c, WIRE_ROOM_LEFT)->ROOM_LEFT.ask, 7);
        return said(c, WIRE_ROOM_LEFT)->ROOM_LEFT.commit;
}

static bool is_granted(struct client *c, uint64_t commit)
{
        sent_count = 0;
        assert_int_equal(want(c, commit, 0, false), 0);
        return !said(c, WIRE_REFUSED);
}

/* Reports so many allocated bytes, and gives the rest of an earlier, larger commit back. */
static void acknowledge(struct client *c, uint64_t allocated)
{
        struct wire_message m = message(WIRE_USAGE, 0);

        m.USAGE.allocated = allocated;
        m.USAGE.limit_sequence = said(c, WIRE_LIMIT)->header.sequence;
        assert_int_equal(session_handle(c, &m), 0);
}

static void what_is_said_to_be_left_is_granted_and_no_more(void **state)
{
        uint64_t left;

        for (unsigned i = 0; i < 2; i++)
                join(&clients[i]);
        left = room(&clients[0]); /* of the card */
        assert_true(left > CARD / 10 * 9 - 2 * MIB && left < CARD);
        assert_false(is_granted(&clients[0], left + 2 * MIB));
        assert_true(is_granted(&clients[0], left));
        assert_int_equal(room(&clients[0]), left);
        assert_int_equal(room(&clients[1]), left); /* they may take turns */
        assert_int_equal(said(&clients[1], WIRE_ROOM_LEFT)->ROOM_LEFT.host, 64 * GIB);
        config.classes.unmatched.memory_cap = 4 * GIB + MIB;
        assert_true(is_granted(&clients[0], 3 * GIB));
        acknowledge(&clients[0], 0);
        left = room(&clients[1]);
        assert_int_equal(left, GIB);
        assert_true(is_granted(&clients[1], left));
        assert_false(is_granted(&clients[1], left + 2 * MIB));
        assert_int_equal(room(&clients[0]), 3 * GIB);
}

#define CONTEXT (384 * MIB) /* expected on this card */

static void measured_bytes_count_for_a_cap_but_take_nothing_back(void **state)
{
        struct client *a = &clients[0], *b = &clients[1];

        config.classes.unmatched.memory_cap = 4 * GIB;
        join(a);
        join(b);
        assert_true(is_granted(a, 2 * GIB));
        a->accounts[0].excess[0] = a->accounts[0].excess[1] = CONTEXT + 3 * GIB;
        assert_int_equal(room(b), 0);
        assert_int_equal(room(a), 2 * GIB);
        assert_true(is_granted(a, GIB)); /* it gives memory back, and takes it again */
        assert_int_equal(room(a), 2 * GIB);
        assert_true(is_granted(a, 2 * GIB));
        assert_false(is_granted(a, 2 * GIB + 2 * MIB));
        a->accounts[0].excess[0] = a->accounts[0].excess[1] = CONTEXT + GIB;
        assert_int_equal(room(a), 3 * GIB);
}

static void a_rise_shows_in_the_answers_before_it_counts(void **state)
{
        struct client *a = &clients[0], *b = &clients[1];

        config.classes.unmatched.memory_cap = 4 * GIB;
        join(a);
        join(b);
        assert_int_equal(room(a), 4 * GIB);
        a->accounts[0].excess[1] = CONTEXT + GIB;
        assert_int_equal(room(a), 3 * GIB);
        assert_int_equal(room(b), 3 * GIB);
        assert_true(is_granted(a, 4 * GIB)); /* as an earlier answer said */
}

static void no_cap_counts_the_second_context_that_freezing_needs(void **state)
{
        struct wire_message m;
        struct client *c = &clients[0];

        config.classes.unmatched.memory_cap = 4 * GIB;
        join(c);
        assert_true(is_granted(c, 4 * GIB));
        acknowledge(c, 4 * GIB);
        m = message(WIRE_REQUEST, 0);
        m.REQUEST.unevictable = CONTEXT;
        assert_int_equal(session_handle(c, &m), 0);
        m = message(WIRE_REQUEST, 0);
        m.REQUEST.unevictable = 2 * CONTEXT + 2 * MIB;
        m.REQUEST.flags = WIRE_FLAG_SPARE_REQUEST;
        assert_int_equal(session_handle(c, &m), 0);
        assert_null(said(c, WIRE_REFUSED));
        assert_null(said(c, WIRE_NOTICE));
        assert_int_equal(room(c), 4 * GIB);
}

static void a_client_is_greeted_once_and_in_its_protocol_version(void **state)
{
        struct client *c = &clients[0];

        assert_int_equal(hello(c, WIRE_VERSION), 0);
        assert_int_equal(said(c, WIRE_WELCOME)->WELCOME.instance, 99);
        assert_int_equal(said(c, WIRE_WELCOME)->WELCOME.magic, WIRE_MAGIC);
        assert_int_equal(said(c, WIRE_WELCOME)->WELCOME.protocol, WIRE_VERSION);
        assert_string_equal(c->name, "p100");
        assert_int_equal(hello(c, WIRE_VERSION), -EPROTO);
        assert_true(c->dropped);
        assert_int_equal(said(c, WIRE_REFUSED)->REFUSED.code, WIRE_REFUSED_PROTOCOL);
        c = &clients[1];
        assert_int_equal(hello(c, WIRE_VERSION + 1), -EPROTONOSUPPORT);
        assert_int_equal(said(c, WIRE_REFUSED)->REFUSED.code, WIRE_REFUSED_VERSION);
        assert_false(c->greeted);
        assert_null(said(c, WIRE_WELCOME));
}

/* docs/protocol.md says which message each message must follow. */
static void messages_out_of_order_are_refused(void **state)
{
        static const struct {
                unsigned type;
                bool up;
                enum wire_scope scope;
        } rows[] = {
#define WIRE(name, number, direction, scope, fields) \
        {number, WIRE_##direction == WIRE_UP, WIRE_SCOPE_##scope},
#include "wire/wire_messages.def"
#undef WIRE
                {0, false, WIRE_SCOPE_FIRST},
                {200, false, WIRE_SCOPE_FIRST},
                {65535, false, WIRE_SCOPE_FIRST},
        };
        enum { NEW, GREETED, ON_GPU_3, ENDS };
        struct client *c = &clients[0];

        for (unsigned stage = NEW; stage < ENDS; stage++) {
                if (stage == GREETED)
                        assert_int_equal(hello(c, WIRE_VERSION), 0);
                if (stage == ON_GPU_3)
                        assert_int_equal(attach(c, 3, 1), 0);
                for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
                        for (unsigned gpu = 0; gpu <= WIRE_GPUS_MAX; gpu++) {
                                struct wire_message m = message(rows[i].type, gpu);
                                const bool may[] = {
                                        [WIRE_SCOPE_FIRST] = stage == NEW,
                                        [WIRE_SCOPE_PROCESS] = stage > NEW,
                                        [WIRE_SCOPE_NEW_GPU] = stage > NEW,
                                        [WIRE_SCOPE_ANY_GPU] = stage == ON_GPU_3,
                                        [WIRE_SCOPE_GPU] = stage == ON_GPU_3 && gpu == 3,
                                };

                                c->dropped = false;
                                if (rows[i].up && may[rows[i].scope]) {
                                        if (rows[i].scope == WIRE_SCOPE_FIRST ||
                                            rows[i].scope == WIRE_SCOPE_NEW_GPU)
                                                continue;
                                        assert_int_not_equal(session_handle(c, &m), -EPROTO);
                                } else {
                                        assert_int_equal(session_handle(c, &m), -EPROTO);
                                        assert_true(c->dropped);
                                }
                                sent_count = 0;
                        }
        }
}

static void an_attached_gpu_is_confirmed_and_charged(void **state)
{
        struct client *c = &clients[0];
        struct wire_message m = attach_message(5, 1);
        struct sched_account_view v;

        assert_int_equal(hello(c, WIRE_VERSION), 0);
        m.ATTACH.allocated = m.ATTACH.backed = 100 * MIB;
        m.ATTACH.unevictable = 10 * MIB;
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(said(c, WIRE_ATTACHED)->header.gpu, 5);
        assert_true(said(c, WIRE_ATTACHED)->ATTACHED.visible_bytes > 14 * GIB);
        assert_int_not_equal(said(c, WIRE_ATTACHED)->ATTACHED.bound_ns, 0);
        assert_int_equal(sched_account_view(server.sched, c->id, 0, &v), 0);
        assert_int_equal(v.usage.backed, 100 * MIB);
        assert_int_equal(v.usage.unevictable, 10 * MIB);
        assert_int_equal(server.n_attached, 1);
        assert_int_equal(measured_soon, 1);
        assert_int_equal(attach(c, 5, 2), -EEXIST); /* the GPU's number is taken */
        c->dropped = false;
        assert_int_equal(attach(c, 6, 1), -EEXIST); /* the card is attached already */
        c->dropped = false;
        assert_int_equal(attach(c, 6, 2), 0);
        assert_int_equal(server.n_attached, 1);
        m = attach_message(7, 3);
        m.ATTACH.total_bytes = 1; /* no card has so little */
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(said(c, WIRE_REFUSED)->REFUSED.code, WIRE_REFUSED_GPU);
        assert_int_equal(said(c, WIRE_REFUSED)->REFUSED.of, m.header.sequence);
        assert_false(c->dropped);
}

static void a_program_that_fits_gets_a_limit_and_a_lease(void **state)
{
        struct client *c = &clients[0];
        const struct wire_message *m;

        join(c);
        assert_int_equal(want(c, GIB, 0, true), 0);
        m = said(c, WIRE_LIMIT);
        assert_true(m && m->LIMIT.commit >= GIB);
        assert_int_equal(m->header.gpu, 0);
        assert_int_equal(c->accounts[0].limit_told, m->LIMIT.backed);
        assert_non_null(said(c, WIRE_GRANT));
        assert_int_not_equal(said(c, WIRE_GRANT)->GRANT.lease, 0);
        sent_count = 0;
        assert_int_equal(want(c, UINT64_MAX / 2, 0, true), 0);
        assert_int_equal(said(c, WIRE_REFUSED)->REFUSED.code, WIRE_REFUSED_COMMIT);
        assert_int_equal(want(c, 0, CARD, true), 0);
        assert_int_equal(said(c, WIRE_REFUSED)->REFUSED.code, WIRE_REFUSED_UNEVICTABLE);
        assert_false(c->dropped);
}

static void unevictable_bytes_of_a_user_are_limited(void **state)
{
        struct client *c = &clients[0];
        struct wire_message m = message(WIRE_EXPORT, 0);
        uint64_t share = CARD / 1000 * 25;

        c->peer.trusted = clients[1].peer.trusted = false;
        join(c);
        join(&clients[1]);
        assert_int_equal(want(c, 0, share + MIB, false), 0);
        assert_int_equal(said(c, WIRE_REFUSED)->REFUSED.code, WIRE_REFUSED_UNEVICTABLE);
        sent_count = 0;
        assert_int_equal(want(c, 0, share / 2, false), 0);
        assert_null(said(c, WIRE_REFUSED));
        /* All programs of a user share one limit. */
        assert_int_equal(want(&clients[1], 0, share / 2 + MIB, false), 0);
        assert_int_equal(said(&clients[1], WIRE_REFUSED)->REFUSED.code, WIRE_REFUSED_UNEVICTABLE);
        m.EXPORT.bytes = share;
        sent_count = 0;
        assert_int_equal(session_handle(&clients[1], &m), 0);
        assert_int_equal(said(&clients[1], WIRE_REFUSED)->REFUSED.code, WIRE_REFUSED_EXPORT);
}

static void commits_of_a_user_need_no_more_host_memory_than_its_share(void **state)
{
        struct client *c = &clients[1];

        config.host_per_user_permille = 100; /* 6.4 GiB */
        clients[0].peer.trusted = c->peer.trusted = false;
        join(&clients[0]);
        join(c);
        assert_true(is_granted(&clients[0], 12 * GIB));
        assert_false(is_granted(c, 12 * GIB));
        assert_int_equal(said(c, WIRE_REFUSED)->REFUSED.code, WIRE_REFUSED_COMMIT);
        assert_non_null(strstr(said(c, WIRE_REFUSED)->REFUSED.text, "host_memory_per_user"));
        assert_true(is_granted(c, 8 * GIB));
}

static void descriptors_are_accepted_only_from_the_daemons_user(void **state)
{
        struct client *c = &clients[0];
        struct wire_message m;

        join(c);
        m = message(WIRE_USAGE, 0);
        m.USAGE.pass_bytes = 2 * MIB;
        assert_int_equal(session_handle(c, &m), 0);
        assert_null(said(c, WIRE_REFUSED));
        c->peer.trusted = false;
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(said(c, WIRE_REFUSED)->REFUSED.code, WIRE_REFUSED_PASS);
        assert_int_equal(said(c, WIRE_REFUSED)->REFUSED.of, m.header.sequence);
}

static void only_trusted_clients_get_positive_priorities(void **state)
{
        static const struct {
                int32_t requested;
                bool trusted;
                int gets;
        } cases[] = {{5, true, 5},
                     {5, false, 0},
                     {-5, false, -5},
                     {-5, true, -5},
                     {0, true, 0},
                     {SHARES_PRIORITY_MAX + 9, true, SHARES_PRIORITY_MAX},
                     {-SHARES_PRIORITY_MAX - 9, false, -SHARES_PRIORITY_MAX}};

        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
                struct client *c = &clients[0];
                struct wire_message m = message(WIRE_HELLO, WIRE_NO_GPU);
                char text[80];

                c->greeted = false;
                c->peer.trusted = cases[i].trusted;
                m.HELLO.magic = WIRE_MAGIC;
                m.HELLO.protocol = WIRE_VERSION;
                m.HELLO.priority = (uint32_t)cases[i].requested;
                sent_count = 0;
                assert_int_equal(session_handle(c, &m), 0);
                assert_int_equal(c->priority, cases[i].gets);
                assert_int_equal(said(c, WIRE_NOTICE) != NULL,
                                 cases[i].requested > 0 && cases[i].gets < cases[i].requested);
                (void)snprintf(text, sizeof(text), "this program asked for priority %d and gets %d",
                               cases[i].requested, cases[i].gets);
                if (said(c, WIRE_NOTICE))
                        assert_int_equal(
                                strncmp(said(c, WIRE_NOTICE)->NOTICE.text, text, strlen(text)), 0);
        }
}

static void a_client_is_told_of_the_minimum_that_its_owner_promises(void **state)
{
        struct client *c = &clients[0];
        struct wire_message m = message(WIRE_CLAIM, WIRE_NO_GPU);

        c->peer.trusted = false;
        config.classes.unmatched.minimum_permille = 205;
        assert_int_equal(hello(c, WIRE_VERSION), 0);
        m.CLAIM.minimum = 205;
        assert_int_equal(session_handle(c, &m), 0);
        assert_null(said(c, WIRE_NOTICE));
        m.CLAIM.minimum = 500;
        assert_int_equal(session_handle(c, &m), 0);
        assert_string_equal(said(c, WIRE_NOTICE)->NOTICE.text,
                            "this program asked for at least 50.0 % of the GPU and gets 20.5 %: "
                            "its owner promises no more");
}

static void join_group(struct client *c, const char *group)
{
        struct wire_message m = message(WIRE_HELLO, WIRE_NO_GPU);

        m.HELLO.magic = WIRE_MAGIC;
        m.HELLO.protocol = WIRE_VERSION;
        (void)snprintf(m.HELLO.group, sizeof(m.HELLO.group), "%s", group);
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(attach(c, 0, 1), 0);
}

/* Those of one group may allocate no more than the card together. */
static void a_group_is_of_one_user(void **state)
{
        const uint64_t bytes = CARD / 10 * 6;

        clients[1].peer.uid = 2000;
        for (unsigned i = 0; i < CLIENTS; i++) {
                join_group(&clients[i], "job");
                assert_int_equal(want(&clients[i], bytes, 0, false), 0);
        }
        assert_true(said(&clients[0], WIRE_LIMIT)->LIMIT.commit >= bytes);
        assert_true(said(&clients[1], WIRE_LIMIT)->LIMIT.commit >= bytes);
        assert_int_equal(said(&clients[2], WIRE_LIMIT)->LIMIT.commit, 0);
}

static void another_group_is_another_promise(void **state)
{
        const uint64_t bytes = CARD / 10 * 6;

        join_group(&clients[0], "job");
        join_group(&clients[1], "job 2");
        join_group(&clients[2], "");
        for (unsigned i = 0; i < CLIENTS; i++) {
                assert_int_equal(want(&clients[i], bytes, 0, false), 0);
                assert_true(said(&clients[i], WIRE_LIMIT)->LIMIT.commit >= bytes);
        }
}

static void host_memory_is_promised_once(void **state)
{
        struct client *a = &clients[0], *b = &clients[1];
        struct wire_message m;

        join(a);
        join(b);
        m = message(WIRE_HOST, WIRE_NO_GPU);
        m.HOST.wanted = 40 * GIB;
        assert_int_equal(session_handle(a, &m), 0);
        assert_int_equal(said(a, WIRE_HOST_LIMIT)->HOST_LIMIT.bytes, 40 * GIB);
        assert_int_equal(said(a, WIRE_HOST_LIMIT)->HOST_LIMIT.of, m.header.sequence);
        assert_int_equal(session_handle(b, &m), 0);
        /* Less than the requested 40 GiB are left. */
        assert_int_equal(said(b, WIRE_HOST_LIMIT)->HOST_LIMIT.bytes, 0);
        assert_int_equal(server.host_mapped, 40 * GIB);
        m.HOST.wanted = 10 * GIB; /* gives 30 GiB back */
        assert_int_equal(session_handle(a, &m), 0);
        assert_int_equal(server.host_mapped, 10 * GIB);
        /* The client holds these bytes already, as after a restart of the daemon. */
        m.HOST.wanted = m.HOST.held = 30 * GIB;
        assert_int_equal(session_handle(b, &m), 0);
        assert_int_equal(b->host, 30 * GIB);
        session_host_back(b);
        assert_int_equal(server.host_mapped, 10 * GIB);
        assert_int_equal(b->host, 0);
        m.HOST.held = UINT64_MAX; /* an impossible figure */
        assert_int_equal(session_handle(b, &m), -EINVAL);
        assert_true(b->dropped);
}

static void a_request_is_kept_while_another_daemon_may_make_room(void **state)
{
        struct client *c = &clients[0];

        join(c);
        helps = true;
        assert_int_equal(want(c, GIB, 0, false), 0);
        assert_true(c->request.kept);
        assert_int_equal(c->request.commit, GIB);
        session_resume(&server);
        assert_true(c->request.kept);
        helps = false;
        sent_count = 0;
        session_resume(&server);
        assert_false(c->request.kept);
        assert_true(said(c, WIRE_LIMIT)->LIMIT.commit >= GIB);
        helps = true;
        assert_int_equal(want(c, 2 * GIB, 0, false), 0);
        assert_true(c->request.kept);
        c->request.since_ns -= 10 * NSEC_PER_SEC; /* the wait is long enough now */
        session_resume(&server);
        assert_false(c->request.kept);
}

static void the_holder_is_named_only_to_its_own_user(void **state)
{
        struct client *holder = &clients[0], *c = &clients[1];
        struct wire_message m;

        join(holder);
        join(c);
        m = message(WIRE_USAGE, 0);
        assert_int_equal(want(holder, 12 * GIB, 0, true), 0);
        m.USAGE.allocated = m.USAGE.backed = 12 * GIB;
        m.USAGE.limit_sequence = said(holder, WIRE_LIMIT)->header.sequence;
        assert_int_equal(session_handle(holder, &m), 0);
        m = message(WIRE_WHO, WIRE_NO_GPU);
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(said(c, WIRE_HOLDER)->HOLDER.pid, 0); /* c waits for nothing */
        assert_int_equal(want(c, 12 * GIB, 0, true), 0);
        m = message(WIRE_USAGE, 0);
        m.USAGE.allocated = 12 * GIB;
        m.USAGE.limit_sequence = said(c, WIRE_LIMIT) ? said(c, WIRE_LIMIT)->header.sequence : 0;
        assert_int_equal(session_handle(c, &m), 0);
        needed = 12 * GIB;
        assert_int_equal(want(c, 12 * GIB, 0, true), 0);
        m = message(WIRE_WHO, WIRE_NO_GPU);
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(said(c, WIRE_HOLDER)->HOLDER.pid, 100);
        assert_string_equal(said(c, WIRE_HOLDER)->HOLDER.name, "p100");
        c->peer.uid = 2000;
        c->peer.trusted = false;
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(said(c, WIRE_HOLDER)->HOLDER.flags, WIRE_HOLDER_OTHER_USER);
        assert_string_equal(said(c, WIRE_HOLDER)->HOLDER.name, "");
        assert_int_equal(said(c, WIRE_HOLDER)->HOLDER.uid, UINT32_MAX);
        c->peer.trusted = true;
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(said(c, WIRE_HOLDER)->HOLDER.flags, WIRE_HOLDER_OTHER_USER);
        assert_string_equal(said(c, WIRE_HOLDER)->HOLDER.name, "p100");
        assert_int_equal(said(c, WIRE_HOLDER)->HOLDER.uid, holder->peer.uid);
}

static void a_returning_program_takes_over_its_charge(void **state)
{
        struct client *old = &clients[0], *c = &clients[1];
        struct wire_message m;
        struct sched_account_view v;

        join(old);
        m = message(WIRE_USAGE, 0);
        m.USAGE.allocated = m.USAGE.backed = 0;
        assert_int_equal(session_handle(old, &m), 0);
        c->former = old;
        assert_int_equal(hello(c, WIRE_VERSION), 0);
        m = attach_message(0, 1);
        m.ATTACH.allocated = m.ATTACH.backed = 3 * GIB;
        assert_int_equal(session_handle(c, &m), 0);
        assert_true(old->lost_told);
        assert_true(old->gone); /* the former connection holds nothing any more */
        assert_null(c->former);
        assert_int_equal(sched_account_view(server.sched, c->id, 0, &v), 0);
        assert_int_equal(v.usage.backed, 3 * GIB);
}

static void a_failed_allocation_causes_a_measurement_of_the_card(void **state)
{
        struct client *c = &clients[0];
        struct wire_message m;

        join(c);
        m = message(WIRE_SHORT, 0);
        m.SHORT.bytes = GIB;
        assert_int_equal(rises, 0);
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(rises, 1);
}

static void report(struct client *c, uint64_t allocated, uint64_t backed, uint64_t arena)
{
        struct wire_message m = message(WIRE_USAGE, 0);

        m.USAGE.allocated = allocated;
        m.USAGE.backed = backed;
        m.USAGE.arena = arena;
        assert_int_equal(session_handle(c, &m), 0);
}

/* Returns whether clients[0] is asked for host memory when clients[1] lacks some. */
static bool asked_when_short(void)
{
        struct wire_message m = message(WIRE_HOST_SHORT, 0);

        m.HOST_SHORT.bytes = GIB;
        sent_count = 0;
        assert_int_equal(session_handle(&clients[1], &m), 0);
        assert_null(said(&clients[1], WIRE_UNPIN));
        assert_true(!said(&clients[0], WIRE_UNPIN) ||
                    said(&clients[0], WIRE_UNPIN)->UNPIN.bytes == GIB);
        return said(&clients[0], WIRE_UNPIN);
}

static void host_memory_is_asked_of_those_that_need_less_than_they_hold(void **state)
{
        join(&clients[0]);
        join(&clients[1]);
        report(&clients[0], GIB, 0, 2 * GIB);
        assert_false(asked_when_short()); /* the other one has nothing to evict */
        report(&clients[1], GIB, GIB, GIB);
        assert_true(asked_when_short());
        assert_false(asked_when_short()); /* no answer yet */
        report(&clients[0], GIB, 0, GIB);
        assert_false(asked_when_short()); /* it holds what it needs */
        report(&clients[0], GIB, 0, GIB + MIB);
        assert_true(asked_when_short());
}

/* A program cannot see how much the host pool has free. */
static void memory_of_the_host_pool_is_asked_of_those_where_it_would_help(void **state)
{
        pools_attached = 0;
        join(&clients[0]);
        join(&clients[1]);
        assert_int_equal(pools_attached, 2);
        report(&clients[0], GIB, 0, 2 * GIB);
        report(&clients[1], GIB, GIB, GIB);
        pool_helps = false;
        assert_false(asked_when_short());
        pool_helps = true;
        assert_true(asked_when_short());
}

/* Many clients may repeat the message, and each look at the pools asks the kernel about all of
 * them. */
static void a_lack_of_host_memory_is_one_look_at_the_pools(void **state)
{
        for (unsigned i = 0; i < CLIENTS; i++) {
                join(&clients[i]);
                report(&clients[i], GIB, 0, 2 * GIB);
        }
        report(&clients[1], GIB, GIB, GIB);
        pool_looks = 0;
        assert_true(asked_when_short());
        assert_non_null(said(&clients[2], WIRE_UNPIN));
        assert_int_equal(pool_looks, 1);
        assert_false(asked_when_short()); /* both were asked already */
        assert_int_equal(pool_looks, 1);
}

static void a_program_that_says_bye_is_dropped(void **state)
{
        struct wire_message m = message(WIRE_BYE, WIRE_NO_GPU);

        join(&clients[0]);
        assert_int_equal(session_handle(&clients[0], &m), 0);
        assert_true(clients[0].dropped && clients[0].said_bye);
        assert_null(said(&clients[0], WIRE_REFUSED));
}

static void figures_for_the_status_are_kept(void **state)
{
        struct client *c = &clients[0];
        struct wire_message m;

        join(c);
        m = message(WIRE_SPARED, 0);
        m.SPARED.out = 5;
        m.SPARED.in = 6;
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(c->accounts[0].spared_out, 5);
        assert_int_equal(c->accounts[0].spared_in, 6);
        m = message(WIRE_MANAGED, 0);
        m.MANAGED.bytes = 7;
        m.MANAGED.left = 70;
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(c->accounts[0].managed, 7);
        assert_int_equal(c->accounts[0].managed_left, 70);
        m = message(WIRE_SELF, 0);
        m.SELF.overflow = 8;
        m.SELF.keep = 9;
        m.SELF.ran_ns = 10;
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(c->accounts[0].overflow, 8);
        assert_int_equal(c->accounts[0].keep, 9);
        assert_int_equal(c->ran_before_ns, 10);
        m.SELF.ran_ns = UINT64_MAX; /* more than the process's age */
        assert_int_equal(session_handle(c, &m), 0);
        assert_int_equal(c->ran_before_ns, AGE_NS);
}

#define SESSION_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                SESSION_TEST(a_pod_is_a_user_and_a_job_is_as_a_container_of_its_user),
                SESSION_TEST(the_cap_of_everybody_is_one_for_a_pod_and_not_for_all_roots),
                SESSION_TEST(what_is_said_to_be_left_is_granted_and_no_more),
                SESSION_TEST(measured_bytes_count_for_a_cap_but_take_nothing_back),
                SESSION_TEST(a_rise_shows_in_the_answers_before_it_counts),
                SESSION_TEST(no_cap_counts_the_second_context_that_freezing_needs),
                SESSION_TEST(a_client_is_greeted_once_and_in_its_protocol_version),
                SESSION_TEST(messages_out_of_order_are_refused),
                SESSION_TEST(an_attached_gpu_is_confirmed_and_charged),
                SESSION_TEST(a_program_that_fits_gets_a_limit_and_a_lease),
                SESSION_TEST(unevictable_bytes_of_a_user_are_limited),
                SESSION_TEST(commits_of_a_user_need_no_more_host_memory_than_its_share),
                SESSION_TEST(descriptors_are_accepted_only_from_the_daemons_user),
                SESSION_TEST(only_trusted_clients_get_positive_priorities),
                SESSION_TEST(a_client_is_told_of_the_minimum_that_its_owner_promises),
                SESSION_TEST(a_group_is_of_one_user),
                SESSION_TEST(another_group_is_another_promise),
                SESSION_TEST(host_memory_is_promised_once),
                SESSION_TEST(a_request_is_kept_while_another_daemon_may_make_room),
                SESSION_TEST(the_holder_is_named_only_to_its_own_user),
                SESSION_TEST(a_returning_program_takes_over_its_charge),
                SESSION_TEST(a_failed_allocation_causes_a_measurement_of_the_card),
                SESSION_TEST(host_memory_is_asked_of_those_that_need_less_than_they_hold),
                SESSION_TEST(memory_of_the_host_pool_is_asked_of_those_where_it_would_help),
                SESSION_TEST(a_lack_of_host_memory_is_one_look_at_the_pools),
                SESSION_TEST(a_program_that_says_bye_is_dropped),
                SESSION_TEST(figures_for_the_status_are_kept),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
