/* test_measure.c: the daemon interprets NVML's figures and reports them to the scheduler. The fakes
 * of both only count requests and reports. */
#include "unit.h"

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/state/client.h"
#include "fakes/daemon.h"
#include "daemon/ledger/card_figures.h"

#define CLIENTS 100
#define TOTAL   (8 * GIB)

static struct {
        uint64_t foreign; /* foreign bytes on the card */
        bool fails;
        unsigned listed, told_unevictable, told_foreign;
        bool unevictable_before; /* the last reports gave unevictable before foreign bytes */
        uint64_t unevictable;    /* unevictable bytes last reported for a client */
        struct sched_account_view account;
        enum sched_state state;
        uint64_t foreign_told;
} now;
static const struct config config = {.sched.grace_ns = 5 * NSEC_PER_SEC};
static struct server server;
static struct client clients[CLIENTS];

/* ---- NVML ---- */

static struct nvml_look shown;

/* Delivers NVML's present figures. */
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
        figures_looked(&server, sample);
        assert_false(event_open); /* figures_looked() has ended its event */
}

static void period(void)
{
        figures_period(&server);
        look(true);
}

/* ---- the scheduler ---- */

int sched_client_view(const struct sched *s, sched_client id, uint64_t now_ns,
                      struct sched_client_view *ret)
{
        *ret = (struct sched_client_view){.state = now.state};
        return 0;
}

int sched_account_view(const struct sched *s, sched_client id, unsigned gpu,
                       struct sched_account_view *ret)
{
        *ret = now.account;
        return 0;
}

void sched_client_unevictable(struct sched *s, sched_client id, unsigned gpu,
                              uint64_t unevictable_bytes, uint64_t now_ns,
                              struct sched_actions *out)
{
        assert_true(event_open);
        now.unevictable = unevictable_bytes;
        now.unevictable_before = true;
        now.told_unevictable++;
}

void sched_gpu_foreign(struct sched *s, unsigned gpu, uint64_t foreign_bytes, uint64_t now_ns,
                       struct sched_actions *out)
{
        assert_true(event_open);
        now.unevictable_before = false;
        now.told_foreign++;
        now.foreign_told = foreign_bytes;
}

/* ---- tests ---- */

static int begin(void **state)
{
        memset(&server, 0, sizeof(server));
        memset(&now, 0, sizeof(now));
        reader_asks = 0;
        reader_looks = true;
        event_open = false;
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

/* Each report makes the scheduler walk all clients: a thousand reports a second would leave it no
 * time for anything else. */
static void unevictable_bytes_are_reported_when_they_change(void **state)
{
        for (unsigned second = 0; second < 10; second++)
                period();
        assert_int_equal(now.told_unevictable, CLIENTS);
        assert_int_equal(now.unevictable, MIB);
}

static void bytes_not_reported_as_backed_count_as_unevictable(void **state)
{
        now.account.usage.backed = MIB / 4;
        for (unsigned second = 0; second < 3; second++)
                period();
        assert_int_equal(now.told_unevictable, 0); /* one odd sample must not count */
        period();
        assert_int_equal(now.told_unevictable, CLIENTS);
        assert_int_equal(now.unevictable, MIB - MIB / 4);
        now.account.usage.backed = 2 * MIB; /* more than NVML shows yet */
        period();
        period();
        assert_int_equal(now.unevictable, 0);
}

/* A moving client holds memory that it has not reported yet, however slow the bus is. */
/* The first look finds no earlier one to compare the client's figures with. */
static void bytes_that_a_client_has_not_said_are_measured_beside_the_others(void **state)
{
        const struct client_account *acc = &clients[0].accounts[0];

        now.account.usage.backed = MIB / 4;
        now.account.unevictable_known = MIB / 2;
        period();
        period();
        assert_int_equal(figures_excess_soon(acc), 0);
        period();
        assert_int_equal(figures_excess_soon(acc), MIB / 4);
        assert_int_equal(figures_excess(acc), 0);
        period();
        assert_int_equal(figures_excess(acc), MIB / 4);
        now.account.unevictable_known = MIB; /* one odd sample */
        period();
        assert_int_equal(figures_excess_soon(acc), MIB / 4);
        assert_int_equal(figures_excess(acc), 0);
        now.account.unevictable_known = MIB / 4;
        period();
        period();
        assert_int_equal(figures_excess_soon(acc), MIB / 2);
        assert_int_equal(figures_excess(acc), 0);
}

static void moving_bytes_are_not_counted_as_unevictable(void **state)
{
        static const enum sched_state moving[] = {SCHED_EVICTING, SCHED_RESTORING};

        for (unsigned i = 0; i < ARRAY_SIZE(moving); i++) {
                now.state = moving[i];
                for (unsigned second = 0; second < 5; second++)
                        period();
        }
        assert_int_equal(now.told_unevictable, 0);
        now.state = SCHED_RUNNING;
        for (unsigned second = 0; second < 3; second++)
                period();
        assert_int_equal(now.told_unevictable, CLIENTS);
}

/* A client's reports reach a busy daemon late, so the reported figure is older than NVML's. */
static void bytes_that_a_client_moves_itself_do_not_count_as_unevictable(void **state)
{
        for (unsigned second = 0; second < 5; second++) {
                now.account.usage.moved_out += MIB;
                period();
        }
        assert_int_equal(now.told_unevictable, 0);
        for (unsigned second = 0; second < 3; second++)
                period();
        assert_int_equal(now.told_unevictable, CLIENTS);
}

/* A byte that changes from foreign to unevictable, or back, must never count as both. */
static void decreases_are_reported_before_increases(void **state)
{
        now.foreign = GIB;
        for (unsigned second = 0; second < 3; second++)
                period();
        assert_int_equal(now.foreign_told, GIB);
        now.account.usage.backed = MIB;
        period(); /* the clients must be at rest again before their bytes are measured */
        now.foreign = 0;
        period();
        assert_int_equal(now.foreign_told, 0);
        assert_true(now.unevictable_before);
        now.account.usage.backed = 0;
        period();
        now.foreign = GIB;
        for (unsigned second = 0; second < 3; second++)
                period();
        assert_int_equal(now.foreign_told, GIB);
        assert_false(now.unevictable_before);
}

/* The memory of clients that have not reconnected looks foreign. */
static void no_rise_is_reported_while_clients_reconnect_after_a_crash(void **state)
{
        server.return_until_ns = clock_now_ns() + 3600 * NSEC_PER_SEC;
        now.foreign = 2 * GIB;
        for (unsigned second = 0; second < 5; second++)
                period();
        assert_int_equal(now.foreign_told, 0);
        server.return_until_ns = 1;
        period();
        assert_int_equal(now.foreign_told, 2 * GIB);
        server.return_until_ns = clock_now_ns() + 3600 * NSEC_PER_SEC;
        now.foreign = GIB; /* a fall is reported even while clients reconnect */
        period();
        assert_int_equal(now.foreign_told, GIB);
}

/* The headroom absorbs small rises. */
static void small_rises_are_ignored_and_small_falls_are_reported(void **state)
{
        const uint64_t small = TOTAL / 256;
        unsigned before;

        period();
        now.foreign = small - 1;
        for (unsigned second = 0; second < 4; second++)
                period();
        assert_int_equal(now.foreign_told, 0);
        now.foreign = small;
        for (unsigned second = 0; second < 3; second++)
                period();
        assert_int_equal(now.foreign_told, small);
        now.foreign = small - 1;
        before = now.told_foreign;
        period();
        assert_int_equal(now.foreign_told, small - 1);
        assert_int_equal(now.told_foreign, before + 1);
}

/* A capacity below the card's size leaves the rest to foreign processes. */
static void bytes_beyond_the_capacity_are_left_to_foreign_processes(void **state)
{
        server.gpus.list[0].total_bytes = TOTAL - 2 * GIB;
        now.foreign = 3 * GIB;
        for (unsigned second = 0; second < 3; second++)
                period();
        assert_int_equal(now.foreign_told, GIB);
        now.foreign = GIB;
        period();
        assert_int_equal(now.foreign_told, 0);
}

static uint64_t newest(void)
{
        const struct gpu *g = &server.gpus.list[0];

        return g->foreign[(g->n_foreign - 1) % 3];
}

/* NVML counts managed memory for the card, but for no process. */
static void managed_memory_of_our_clients_is_not_foreign(void **state)
{
        now.account.usage.backed = MIB + MIB / 2; /* of which half a MiB is managed */
        now.foreign = GIB + 30 * MIB;
        period();
        for (unsigned i = 0; i < CLIENTS; i++)
                clients[i].accounts[0].managed = i < 20 ? MIB : 0;
        for (unsigned second = 0; second < 3; second++)
                period();
        assert_int_equal(newest(), GIB + 10 * MIB);
        clients[0].accounts[0].managed = 100 * GIB; /* counts only up to the backed bytes */
        look(true);
        assert_int_equal(newest(), GIB + 10 * MIB - MIB / 2);
        clients[1].accounts[0].managed_left = MIB; /* the driver may have them on the card */
        look(true);
        assert_int_equal(newest(), GIB + 9 * MIB - MIB / 2);
        now.foreign = 5 * MIB; /* managed bytes are at most those of no process */
        look(true);
        assert_int_equal(newest(), 0);
}

static void the_most_that_a_process_holds_includes_unattributed_bytes(void **state)
{
        const uint64_t slack = TOTAL / 256;

        now.foreign = GIB;
        look(false);
        /* NVML names the process; bytes in no process's name may be its managed memory. */
        assert_int_equal(figures_most(&server, &clients[0], 0), MIB + GIB + slack);
        now.listed = 0;
        now.account.usage.backed = MIB / 2;
        now.account.unevictable = MIB / 4;
        look(false);
        assert_int_equal(figures_most(&server, &clients[0], 0),
                         GIB + CLIENTS * MIB - (CLIENTS - 1) * (MIB * 3 / 4) + slack);
        now.account.usage.backed = GIB;
        assert_int_equal(figures_most(&server, &clients[0], 0), slack);
        server.look = NULL;
        assert_int_equal(figures_most(&server, &clients[0], 0), UINT64_MAX);
}

/* Each look tells the scheduler, even if foreign bytes have risen by too little to report. */
static void a_shortage_is_forgotten_at_the_next_look(void **state)
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

/* A look that began before the question does not show the rise that caused the question. */
static void only_a_later_look_shows_a_rise(void **state)
{
        period();
        now.foreign = GIB;
        figures_rise(&server, 0);
        assert_int_equal(reader_asks, 1);
        server.gpus.list[0].rise_ns += NSEC_PER_SEC; /* later than the look below */
        look(false);
        assert_int_equal(now.foreign_told, 0);
        server.gpus.list[0].rise_ns -= NSEC_PER_SEC;
        look(false);
        assert_int_equal(now.foreign_told, GIB);
        now.foreign = 0;
        look(false);
        assert_int_equal(now.foreign_told, GIB); /* a fall is reported at the next period */
        period();
        assert_int_equal(now.foreign_told, 0);
}

/* NVML may return figures together with an error; they are ignored. */
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
        figures_rise(&server, 0);
        look(false);
        assert_int_equal(figures_foreign(&server.gpus.list[0]), GIB);
        assert_int_equal(figures_most(&server, &clients[0], 0), UINT64_MAX);
        assert_int_equal(now.foreign_told, GIB);
        assert_int_equal(server.gpus.list[0].measured_ns, measured_ns);
        assert_int_equal(now.told_unevictable, 0);
}

static void a_shortage_is_forgotten_when_readings_fail(void **state)
{
        unsigned before;

        period();
        now.fails = true;
        before = now.told_foreign;
        for (unsigned second = 0; second < 30; second++)
                period();
        assert_int_equal(now.told_foreign, before + 3);
        server.look = NULL; /* the reader is late or has ended */
        for (unsigned second = 0; second < 10; second++)
                figures_period(&server);
        assert_int_equal(now.told_foreign, before + 4);
}

/* Takes a new look. Returns whether it shows for sure that the client is gone. */
static bool is_gone(struct client *c, uint64_t ago_ns)
{
        bool sure, gone;

        look(false);
        gone = figures_is_gone(&server, c, server.look_ns - ago_ns, &sure);
        return gone && sure;
}

static void a_look_before_a_clients_end_does_not_show_it_gone(void **state)
{
        struct client *c = &clients[CLIENTS - 1];
        bool sure;

        look(false);
        assert_false(figures_is_gone(&server, c, server.look_ns + 1, &sure));
        now.listed--;
        look(false);
        assert_false(figures_is_gone(&server, c, server.look_ns + 1, &sure));
        assert_true(figures_is_gone(&server, c, server.look_ns, &sure));
}

static void a_process_that_nvml_no_longer_names_is_gone(void **state)
{
        struct client *c = &clients[CLIENTS - 1];

        period();
        assert_false(is_gone(c, 0));
        now.listed--;
        assert_true(is_gone(c, 0));
        assert_false(is_gone(&clients[0], 2 * config.sched.grace_ns));
}

/* NVML's silence about a process counts after a while, and only if NVML names other clients by our
 * pids: in a container it may list no process, or use other pids. */
static void a_process_that_nvml_never_named_is_gone_if_others_are_named(void **state)
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
                cmocka_unit_test_setup(unevictable_bytes_are_reported_when_they_change, begin),
                cmocka_unit_test_setup(bytes_not_reported_as_backed_count_as_unevictable, begin),
                cmocka_unit_test_setup(
                        bytes_that_a_client_has_not_said_are_measured_beside_the_others, begin),
                cmocka_unit_test_setup(moving_bytes_are_not_counted_as_unevictable, begin),
                cmocka_unit_test_setup(bytes_that_a_client_moves_itself_do_not_count_as_unevictable,
                                       begin),
                cmocka_unit_test_setup(decreases_are_reported_before_increases, begin),
                cmocka_unit_test_setup(no_rise_is_reported_while_clients_reconnect_after_a_crash,
                                       begin),
                cmocka_unit_test_setup(small_rises_are_ignored_and_small_falls_are_reported, begin),
                cmocka_unit_test_setup(bytes_beyond_the_capacity_are_left_to_foreign_processes,
                                       begin),
                cmocka_unit_test_setup(managed_memory_of_our_clients_is_not_foreign, begin),
                cmocka_unit_test_setup(the_most_that_a_process_holds_includes_unattributed_bytes,
                                       begin),
                cmocka_unit_test_setup(a_shortage_is_forgotten_at_the_next_look, begin),
                cmocka_unit_test_setup(only_a_later_look_shows_a_rise, begin),
                cmocka_unit_test_setup(a_failed_reading_changes_nothing, begin),
                cmocka_unit_test_setup(a_shortage_is_forgotten_when_readings_fail, begin),
                cmocka_unit_test_setup(a_look_before_a_clients_end_does_not_show_it_gone, begin),
                cmocka_unit_test_setup(a_process_that_nvml_no_longer_names_is_gone, begin),
                cmocka_unit_test_setup(a_process_that_nvml_never_named_is_gone_if_others_are_named,
                                       begin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
