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
        bool fails;
        unsigned listed, asked, told_fixed, told_foreign;
        uint64_t foreign_told;
} now;
static const struct config config = {.sched.grace_ns = 5 * NSEC_PER_SEC};
static struct server server;
static struct client clients[CLIENTS];

/* ---- NVML ---- */

static struct nvml_look shown;

bool reader_ask(struct reader *r)
{
        now.asked++;
        return true;
}

/* What NVML says now. */
static void look(bool sample)
{
        struct nvml_card *card = &shown.cards[0];

        shown.n = 1;
        card->measured = !now.fails;
        card->listed = !now.fails;
        card->total_bytes = TOTAL;
        card->used_bytes = now.fails ? TOTAL : now.foreign + CLIENTS * MIB;
        card->n_processes = now.listed;
        for (unsigned i = 0; i < now.listed; i++)
                card->processes[i] = (struct nvml_process){1000 + i, MIB};
        server.look = &shown;
        server.look_ns = clock_now_ns();
        measure_looked(&server, sample);
}

static void period(void)
{
        measure_period(&server);
        look(true);
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
        server.gpus.n = 1;
        server.gpus.list[0].present = true;
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
                period();
        assert_int_equal(now.told_fixed, CLIENTS);
}

/* Where what others use has risen by too little to be told. */
static void what_was_short_is_forgotten_at_the_next_look(void **state)
{
        period();
        now.foreign = 4 * MIB;
        for (unsigned second = 0; second < 4; second++) {
                unsigned before = now.told_foreign;

                period();
                assert_int_equal(now.told_foreign, before + 1);
        }
        assert_int_equal(now.foreign_told, 0);
        now.foreign = GIB;
        for (unsigned second = 0; second < 4; second++)
                period();
        assert_int_equal(now.foreign_told, GIB);
}

/* What was under way when somebody asked does not show why he asked. */
static void only_a_later_look_shows_a_rise(void **state)
{
        period();
        now.foreign = GIB;
        measure_rise(&server, 0);
        assert_int_equal(now.asked, 1);
        server.gpus.list[0].rise_ns += NSEC_PER_SEC; /* after the look below */
        look(false);
        assert_int_equal(now.foreign_told, 0);
        server.gpus.list[0].rise_ns -= NSEC_PER_SEC;
        look(false);
        assert_int_equal(now.foreign_told, GIB);
        now.foreign = 0;
        measure_fall(&server, 0);
        look(false);
        assert_int_equal(now.foreign_told, 0);
}

/* The figures that come with a failure are none. */
static void a_failed_reading_changes_nothing(void **state)
{
        uint64_t measured_ns;

        now.foreign = GIB;
        period();
        assert_int_equal(now.foreign_told, GIB);
        measured_ns = server.gpus.list[0].measured_ns;
        now.fails = true;
        for (unsigned second = 0; second < 5; second++)
                period();
        measure_rise(&server, 0);
        measure_fall(&server, 0);
        look(false);
        assert_int_equal(measure_now(&server, 0), GIB);
        assert_int_equal(measure_most(&server, &clients[0], 0), UINT64_MAX);
        assert_int_equal(now.foreign_told, GIB);
        assert_int_equal(server.gpus.list[0].measured_ns, measured_ns);
        assert_int_equal(now.told_fixed, 0);
}

static void what_was_short_is_forgotten_when_readings_fail(void **state)
{
        unsigned before;

        period();
        now.fails = true;
        before = now.told_foreign;
        for (unsigned second = 0; second < 30; second++)
                period();
        assert_int_equal(now.told_foreign, before + 3);
        server.look = NULL; /* late, or gone */
        for (unsigned second = 0; second < 10; second++)
                measure_period(&server);
        assert_int_equal(now.told_foreign, before + 4);
}

/* With a look that is newer than all others. */
static bool is_gone(struct client *c, uint64_t ago_ns)
{
        bool sure, gone;

        look(false);
        gone = measure_is_gone(&server, c, server.look_ns - ago_ns, &sure);
        return gone && sure;
}

static void a_look_from_before_the_end_does_not_say_what_is_left(void **state)
{
        struct client *c = &clients[CLIENTS - 1];
        bool sure;

        look(false);
        assert_false(measure_is_gone(&server, c, server.look_ns + 1, &sure));
        now.listed--;
        look(false);
        assert_false(measure_is_gone(&server, c, server.look_ns + 1, &sure));
        assert_true(measure_is_gone(&server, c, server.look_ns, &sure));
}

static void whom_nvml_names_no_longer_is_gone(void **state)
{
        struct client *c = &clients[CLIENTS - 1];

        period();
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
        period();
        assert_false(is_gone(c, 2 * config.sched.grace_ns));
        now.listed = CLIENTS - 1;
        period();
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
                cmocka_unit_test_setup(only_a_later_look_shows_a_rise, begin),
                cmocka_unit_test_setup(a_failed_reading_changes_nothing, begin),
                cmocka_unit_test_setup(what_was_short_is_forgotten_when_readings_fail, begin),
                cmocka_unit_test_setup(a_look_from_before_the_end_does_not_say_what_is_left, begin),
                cmocka_unit_test_setup(whom_nvml_names_no_longer_is_gone, begin),
                cmocka_unit_test_setup(whom_nvml_has_never_named_is_gone_if_others_are_named,
                                       begin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
