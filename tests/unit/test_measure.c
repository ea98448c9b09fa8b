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
        unsigned listings, told_fixed, told_foreign;
        uint64_t foreign_told;
} now;
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
        for (unsigned i = 0; i < CLIENTS; i++)
                ret_list[i] = (struct nvml_process){1000 + i, MIB};
        *ret_n = CLIENTS;
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
                assert_false(measure_is_gone(&server, &clients[i], &sure));
        assert_in_range(now.listings, 1, CLIENTS / 10);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(fixed_bytes_are_told_when_they_have_changed, begin),
                cmocka_unit_test_setup(what_was_short_is_forgotten_at_the_next_look, begin),
                cmocka_unit_test_setup(many_ends_are_looked_up_at_once, begin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
