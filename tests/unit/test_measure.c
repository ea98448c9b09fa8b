/* test_measure.c: what the daemon makes of NVML's figures, with an NVML and a scheduler that only
 * count how often they are asked and told. */
#include "unit.h"

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/client.h"

#define CLIENTS 100
#define TOTAL   (8 * GIB)

static struct {
        uint64_t foreign; /* on the card */
        unsigned listed, listings, told_fixed, told_foreign;
        uint64_t foreign_told;
} now;
static const struct config config = {.sched.grace_ns = 5 * NSEC_PER_SEC};
static struct server server;
static struct client clients[CLIENTS];

/* ---- NVML ---- */

int nvml_memory(const struct nvml *n, unsigned gpu, uint64_t *ret_total, uint64_t *ret_used)
{
        *ret_total = TOTAL;
        *ret_used = now.foreign + CLIENTS * MIB;
        return 0;
}

int nvml_processes(const struct nvml *n, unsigned gpu, unsigned max, struct nvml_process *ret_list,
                   unsigned *ret_n)
{
        now.listings++;
        for (unsigned i = 0; i < now.listed; i++)
                ret_list[i] = (struct nvml_process){1000 + i, MIB};
        *ret_n = now.listed;
        return 0;
}

/* ---- the scheduler ---- */

int sched_client_view(const struct sched *s, sched_client id, uint64_t now_ns,
                      struct sched_client_view *ret)
{
        *ret = (struct sched_client_view){.state = SCHED_IDLE};
        return 0;
}

int sched_account_view(const struct sched *s, sched_client id, unsigned gpu,
                       struct sched_account_view *ret)
{
        *ret = (struct sched_account_view){0};
        return 0;
}

void sched_client_fixed(struct sched *s, sched_client id, unsigned gpu, uint64_t fixed_bytes,
                        uint64_t now_ns, struct sched_actions *out)
{
        assert_int_equal(fixed_bytes, MIB);
        now.told_fixed++;
}

void sched_gpu_foreign(struct sched *s, unsigned gpu, uint64_t foreign_bytes, uint64_t now_ns,
                       struct sched_actions *out)
{
        now.told_foreign++;
        now.foreign_told = foreign_bytes;
}

void session_begin(struct server *s)
{
}

void session_perform(struct server *s)
{
}

uint64_t neighbours_absorb(const struct server *s, unsigned gpu, uint64_t foreign_bytes)
{
        return foreign_bytes;
}

/* ---- the tests ---- */

static int begin(void **state)
{
        memset(&server, 0, sizeof(server));
        memset(&now, 0, sizeof(now));
        memset(clients, 0, sizeof(clients));
        now.listed = CLIENTS;
        server.config = &config;
        server.nvml = (struct nvml *)&now; /* not looked into */
        server.gpus.n = 1;
        server.gpus.list[0].total_bytes = TOTAL;
        for (unsigned i = 0; i < CLIENTS; i++) {
                clients[i] = (struct client){.server = &server,
                                             .next = server.clients,
                                             .id = i + 1,
                                             .peer.pid = (pid_t)(1000 + i)};
                server.clients = &clients[i];
                for (unsigned g = 1; g < SCHED_GPUS_MAX; g++)
                        clients[i].accounts[g].ordinal = -1;
        }
        return 0;
}

/* Each telling costs the scheduler a pass over all clients: of a thousand, each second, nothing
 * else would be done. */
static void fixed_bytes_are_told_when_they_have_changed(void **state)
{
        for (unsigned second = 0; second < 10; second++)
                measure_all(&server);
        assert_int_equal(now.told_fixed, CLIENTS);
}

/* Where what others use has risen by too little to be told. */
static void what_was_short_is_forgotten_at_the_next_look(void **state)
{
        measure_all(&server);
        now.foreign = 4 * MIB;
        for (unsigned second = 0; second < 4; second++) {
                unsigned before = now.told_foreign;

                measure_all(&server);
                assert_int_equal(now.told_foreign, before + 1);
        }
        assert_int_equal(now.foreign_told, 0);
        now.foreign = GIB;
        for (unsigned second = 0; second < 4; second++)
                measure_all(&server);
        assert_int_equal(now.foreign_told, GIB);
}

/* A question to NVML takes milliseconds, and many may end at one moment. */
static void many_ends_are_looked_up_at_once(void **state)
{
        bool sure;

        for (unsigned i = 0; i < CLIENTS; i++)
                assert_false(measure_is_gone(&server, &clients[i], 0, &sure));
        assert_in_range(now.listings, 1, CLIENTS / 10);
}

/* With a look that is newer than all others. */
static bool is_gone(struct client *c, uint64_t ago_ns)
{
        const struct timespec look = {.tv_nsec = 11 * (long)NSEC_PER_MSEC};
        bool sure, gone;

        (void)nanosleep(&look, NULL);
        gone = measure_is_gone(&server, c, clock_now_ns() - ago_ns, &sure);
        return gone && sure;
}

static void whom_nvml_names_no_longer_is_gone(void **state)
{
        struct client *c = &clients[CLIENTS - 1];

        measure_all(&server);
        assert_false(is_gone(c, 0));
        now.listed--;
        assert_true(is_gone(c, 0));
        assert_false(is_gone(&clients[0], 2 * config.sched.grace_ns));
}

/* Of who was never seen it says something after a while, and only where it speaks of others as we
 * do: in a container it may list nobody, or by other numbers. */
static void whom_nvml_has_never_named_is_gone_if_others_are_named(void **state)
{
        struct client *c = &clients[CLIENTS - 1];

        now.listed = 0;
        measure_all(&server);
        assert_false(is_gone(c, 2 * config.sched.grace_ns));
        now.listed = CLIENTS - 1;
        measure_all(&server);
        assert_false(is_gone(c, config.sched.grace_ns / 2));
        assert_true(is_gone(c, 2 * config.sched.grace_ns));
        c->peer.pid = 0;
        assert_false(is_gone(c, 2 * config.sched.grace_ns));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(fixed_bytes_are_told_when_they_have_changed, begin),
                cmocka_unit_test_setup(what_was_short_is_forgotten_at_the_next_look, begin),
                cmocka_unit_test_setup(many_ends_are_looked_up_at_once, begin),
                cmocka_unit_test_setup(whom_nvml_names_no_longer_is_gone, begin),
                cmocka_unit_test_setup(whom_nvml_has_never_named_is_gone_if_others_are_named,
                                       begin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
