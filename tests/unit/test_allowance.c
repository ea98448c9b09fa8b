/* test_allowance.c: the memory that the programs of one user may hold together, with a real
 * scheduler. */
#include "unit.h"

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/state/client.h"
#include "fakes/daemon.h"
#include "daemon/ledger/allowance.h"

#define CARD    (16 * GIB)
#define CLIENTS 4u
#define CARDS   2u
#define ADA     ((struct user *)(uintptr_t)1)
#define BOB     ((struct user *)(uintptr_t)2)
#define NOW     (100 * NSEC_PER_SEC)

static struct config config;
static struct server server;
static struct client clients[CLIENTS];
static struct client *const a = &clients[0], *const b = &clients[1], *const other = &clients[2],
                            *const fresh = &clients[3]; /* a client without an attached GPU */
static const uint64_t share = CARD / 1000 * 25, host_share = 64 * GIB / 1000 * 500;

static void done(void)
{
        server.actions.n = 0;
}

static void attach(struct client *c, unsigned gpu)
{
        const struct sched_attach at = {0};

        if (!c->id)
                assert_int_equal(sched_client_add(server.sched, (struct sched_origin){.uid = 1000},
                                                  0, NOW, &c->id),
                                 0);
        assert_int_equal(sched_client_attach(server.sched, c->id, gpu, &at, NOW, &server.actions),
                         0);
        c->accounts[gpu].ordinal = (int)gpu;
        done();
}

/* Ada has two programs, Bob one; neither user is the daemon's own. */
static int begin(void **state)
{
        struct sched_config sched;

        sched_config_default(&sched);
        sched.clients_max = 32;
        sched.host_budget_bytes = 64 * GIB;
        config = (struct config){
                .sched = sched, .unevictable_per_user_permille = 25, .host_per_user_permille = 500};
        server = (struct server){.config = &config,
                                 .sched = sched_new(&sched),
                                 .clients = clients,
                                 .host_budget_bytes = 64 * GIB};
        assert_non_null(server.sched);
        most = UINT64_MAX;
        server.gpus.n = CARDS;
        for (unsigned g = 0; g < CARDS; g++) {
                server.gpus.list[g] = (struct gpu){.present = true, .total_bytes = CARD};
                assert_int_equal(sched_gpu_add(server.sched, g, CARD), 0);
        }
        for (unsigned i = 0; i < CLIENTS; i++) {
                clients[i] = (struct client){.server = &server,
                                             .next = i + 1 < CLIENTS ? &clients[i + 1] : NULL,
                                             .user = &clients[i] == other ? BOB : ADA};
                for (unsigned g = 0; g < SCHED_GPUS_MAX; g++)
                        clients[i].accounts[g].ordinal = -1;
        }
        attach(a, 0);
        attach(b, 0);
        attach(other, 0);
        return 0;
}

static int end(void **state)
{
        sched_free(server.sched);
        return 0;
}

static void want(struct client *c, unsigned gpu, uint64_t commit, uint64_t unevictable)
{
        const struct sched_request w = {.commit = commit, .unevictable = unevictable};

        assert_int_equal(sched_client_request(server.sched, c->id, gpu, &w, NOW, &server.actions),
                         0);
        done();
}

static void use(struct client *c, unsigned gpu, const struct sched_usage *u)
{
        assert_int_equal(
                sched_client_usage(server.sched, c->id, gpu, u, 0, 0, NOW, &server.actions), 0);
        done();
}

static struct sched_account_view account(const struct client *c, unsigned gpu)
{
        struct sched_account_view v;

        assert_int_equal(sched_account_view(server.sched, c->id, gpu, &v), 0);
        return v;
}

static uint64_t visible(void)
{
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_view(server.sched, 0, &v), 0);
        return v.visible;
}

static void the_daemons_own_user_has_no_bound(void **state)
{
        struct sched_usage u = {.allocated = 5 * CARD, .backed = 4 * CARD, .unevictable = CARD};

        a->peer.trusted = true;
        assert_false(allowance_applies(a));
        assert_true(allowance_applies(b));
        assert_int_equal(allowance_unevictable(a, 0), UINT64_MAX);
        assert_int_equal(allowance_exported(a, 0), UINT64_MAX);
        assert_int_equal(allowance_host(a), UINT64_MAX);
        assert_true(allowance_commit(a, 0, 1000 * CARD));
        allowance_claim(a, 0, &u);
        allowance_usage(a, 0, &u);
        assert_int_equal(u.allocated, 5 * CARD);
        assert_int_equal(u.backed, 4 * CARD);
        assert_int_equal(u.unevictable, CARD);
}

static void a_users_programs_share_one_allowance_of_unevictable_bytes(void **state)
{
        struct sched_export p = {.bytes = 10 * MIB};

        assert_int_equal(allowance_unevictable(a, 0), share);
        assert_int_equal(allowance_exported(a, 0), share);
        want(b, 0, 0, 100 * MIB);
        want(other, 0, 0, 50 * MIB); /* bytes of another user do not count */
        assert_int_equal(allowance_unevictable(a, 0), share - 100 * MIB);
        assert_int_equal(allowance_unevictable(b, 0),
                         share); /* the allowance includes the client's own bytes */
        assert_int_equal(allowance_unevictable(other, 0), share);
        assert_int_equal(allowance_unevictable(fresh, 0), share - 100 * MIB);
        assert_int_equal(allowance_unevictable(a, 1), share); /* each card has its own share */
        /* Exported bytes and unevictable bytes share one allowance. */
        want(a, 0, 100 * MIB, 30 * MIB);
        use(a, 0, &(struct sched_usage){.allocated = 100 * MIB});
        assert_int_equal(sched_client_export(server.sched, a->id, 0, &p, NOW, &server.actions), 0);
        assert_int_equal(account(a, 0).exported_asked, 10 * MIB);
        assert_int_equal(allowance_unevictable(a, 0), share - 110 * MIB);
        assert_int_equal(allowance_exported(a, 0), share - 130 * MIB);
        assert_int_equal(allowance_unevictable(b, 0), share - 40 * MIB);
        want(b, 0, 0, share);
        assert_int_equal(allowance_unevictable(a, 0), 0);
        config.unevictable_per_user_permille = 1;
        assert_int_equal(allowance_unevictable(a, 0), 0); /* never below 0 */
}

/* Bytes beyond the visible size of the card may have to lie in host memory. */
static void commit_beyond_the_card_is_charged_to_the_users_host_share(void **state)
{
        uint64_t all = visible() + host_share;

        assert_true(allowance_commit(a, 0, all));
        assert_false(allowance_commit(a, 0, all + 1));
        want(b, 0, GIB, 0);
        assert_true(allowance_commit(a, 0, all - GIB));
        assert_false(allowance_commit(a, 0, all - GIB + 1));
        want(other, 0, 2 * GIB, 0);
        assert_true(allowance_commit(a, 0, all - GIB));
        /* Mapped host memory counts in the same allowance. */
        b->host = 3 * GIB;
        other->host = GIB;
        assert_true(allowance_commit(a, 0, all - 4 * GIB));
        assert_false(allowance_commit(a, 0, all - 4 * GIB + 1));
        a->host = GIB;
        assert_false(allowance_commit(a, 0, all - 4 * GIB));
        /* A request that is held back counts as if it were made. */
        b->request.kept = true;
        b->request.commit = 5 * GIB;
        assert_true(allowance_commit(a, 0, all - 9 * GIB));
        assert_false(allowance_commit(a, 0, all - 9 * GIB + 1));
        b->request.gpu = 1;
        assert_true(allowance_commit(a, 0, all - 5 * GIB));
        b->request.gpu = 0;
        b->request.commit = GIB / 2; /* less than the client has already */
        assert_true(allowance_commit(a, 0, all - 5 * GIB));
        assert_false(allowance_commit(a, 0, all - 5 * GIB + 1));
}

static void each_cards_size_is_allowed_before_host_memory_is_charged(void **state)
{
        attach(a, 1);
        attach(b, 1);
        want(a, 1, visible(), 0);
        assert_true(allowance_commit(a, 0, visible() + host_share));
        want(b, 1, GIB, 0);
        assert_true(allowance_commit(a, 0, visible() + host_share - GIB));
        assert_false(allowance_commit(a, 0, visible() + host_share - GIB + 1));
}

static void a_program_gets_the_host_memory_that_the_users_others_leave(void **state)
{
        assert_int_equal(allowance_host(a), host_share);
        a->host = 7 * GIB; /* the allowance includes the client's own bytes */
        assert_int_equal(allowance_host(a), host_share);
        b->host = 2 * GIB;
        other->host = 20 * GIB;
        assert_int_equal(allowance_host(a), host_share - 2 * GIB);
        want(a, 0, visible(), 0);
        assert_int_equal(allowance_host(a), host_share - 2 * GIB);
        want(b, 0, GIB, 0);
        assert_int_equal(allowance_host(a), host_share - 3 * GIB);
        b->host = 64 * GIB;
        assert_int_equal(allowance_host(a), 0);
}

static void a_claim_is_bounded_by_nvml_and_the_users_share(void **state)
{
        struct sched_usage u = {.allocated = 3 * CARD, .backed = 2 * CARD, .unevictable = 2 * CARD};

        allowance_claim(fresh, 0, &u);
        assert_int_equal(u.allocated, visible());
        assert_int_equal(u.backed, visible());
        assert_int_equal(u.unevictable, share);
        most = 2 * GIB + 10 * MIB; /* NVML's figure, for backed and unevictable bytes together */
        u = (struct sched_usage){.allocated = 4 * GIB, .backed = 2 * GIB, .unevictable = 20 * MIB};
        allowance_claim(fresh, 0, &u);
        assert_int_equal(u.allocated, 4 * GIB);
        assert_int_equal(u.backed, 2 * GIB);
        assert_int_equal(u.unevictable, 10 * MIB);
        u = (struct sched_usage){.allocated = 4 * GIB, .backed = 3 * GIB, .unevictable = 1};
        allowance_claim(fresh, 0, &u);
        assert_int_equal(u.backed, most);
        assert_int_equal(u.unevictable, 0);
        u = (struct sched_usage){.allocated = GIB, .backed = 2 * GIB};
        allowance_claim(fresh, 0, &u);
        assert_int_equal(u.backed, GIB);
        /* Figures beyond the user's share of host memory are not believed. */
        config.host_per_user_permille = 0;
        want(b, 0, visible(), 0);
        u = (struct sched_usage){.allocated = GIB, .backed = GIB, .unevictable = MIB};
        allowance_claim(fresh, 0, &u);
        assert_int_equal(u.allocated, 0);
        assert_int_equal(u.backed, 0);
        assert_int_equal(u.unevictable, MIB);
        u = (struct sched_usage){.allocated = GIB};
        allowance_claim(fresh, SCHED_GPUS_MAX - 1, &u); /* a card that the daemon does not know */
        assert_int_equal(u.allocated, GIB);
}

static void reported_usage_is_bounded_by_what_was_allowed(void **state)
{
        struct sched_usage u = {.allocated = 5 * GIB, .backed = 5 * GIB, .unevictable = CARD};

        want(a, 0, 2 * GIB, 0);
        allowance_usage(a, 0, &u);
        assert_int_equal(u.allocated, account(a, 0).commit_held);
        assert_true(u.backed <= account(a, 0).charge - account(a, 0).unevictable);
        assert_true(u.backed <= u.allocated);
        assert_int_equal(u.unevictable, share);
        u = (struct sched_usage){.allocated = GIB, .backed = GIB / 2, .unevictable = MIB};
        allowance_usage(a, 0, &u);
        assert_int_equal(u.allocated, GIB);
        assert_int_equal(u.unevictable, MIB);
        /* A later request of the user's other programs does not reduce reported usage. */
        u = (struct sched_usage){.unevictable = 200 * MIB};
        want(a, 0, 2 * GIB, 200 * MIB);
        use(a, 0, &u);
        assert_true(account(a, 0).unevictable >= 200 * MIB);
        want(b, 0, 0, share);
        u.unevictable = 300 * MIB;
        allowance_usage(a, 0, &u);
        assert_int_equal(u.unevictable, account(a, 0).unevictable);
        u = (struct sched_usage){.allocated = 9 * GIB};
        allowance_usage(fresh, 0, &u); /* a client without an account on the card */
        assert_int_equal(u.allocated, 9 * GIB);
}

static void a_user_may_name_cards_for_at_most_half_of_the_table(void **state)
{
        struct gpu *list = server.gpus.list;

        for (unsigned i = 0; i < SCHED_GPUS_MAX / 2; i++) {
                assert_true(allowance_card(a));
                list[i].present = true;
                server.gpus.n = MAX(server.gpus.n, i + 1);
                clients[i % 2].accounts[i].ordinal = 0; /* named by either of Ada's programs */
        }
        assert_false(allowance_card(a));
        assert_false(allowance_card(b));
        assert_true(allowance_card(other));
        list[3].vouched = true; /* NVML shows the card */
        assert_true(allowance_card(a));
        list[3].vouched = false;
        list[3].present = false;
        assert_true(allowance_card(a));
        list[3].present = true;
        clients[1].accounts[3].ordinal = -1;
        other->accounts[3].ordinal = 0; /* now only Bob names the card */
        assert_true(allowance_card(a));
        fresh->accounts[3].ordinal = 1;
        assert_false(allowance_card(a));
        a->peer.trusted = true;
        assert_true(allowance_card(a));
}

#define ALLOWANCE_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                ALLOWANCE_TEST(the_daemons_own_user_has_no_bound),
                ALLOWANCE_TEST(a_users_programs_share_one_allowance_of_unevictable_bytes),
                ALLOWANCE_TEST(commit_beyond_the_card_is_charged_to_the_users_host_share),
                ALLOWANCE_TEST(each_cards_size_is_allowed_before_host_memory_is_charged),
                ALLOWANCE_TEST(a_program_gets_the_host_memory_that_the_users_others_leave),
                ALLOWANCE_TEST(a_claim_is_bounded_by_nvml_and_the_users_share),
                ALLOWANCE_TEST(reported_usage_is_bounded_by_what_was_allowed),
                ALLOWANCE_TEST(a_user_may_name_cards_for_at_most_half_of_the_table),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
