/* test_gpus.c: the table of cards, with a real scheduler: NVML's figures take precedence, and the
 * figure of one client does not bind another client. */
#include "unit.h"

#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/uuid.h"
#include "daemon/cards/gpus.h"

#define CARD  (16 * GIB)
#define START (100 * NSEC_PER_SEC)
#define KEPT  (10 * NSEC_PER_SEC) /* time that a card without clients is kept */

static struct config config;
static struct gpus gpus;
static struct sched *sched;
static struct nvml_look shown;

static int begin(void **state)
{
        struct sched_config c;

        sched_config_default(&c);
        c.clients_max = 32;
        sched = sched_new(&c);
        assert_non_null(sched);
        memset(&config, 0, sizeof(config));
        memset(&gpus, 0, sizeof(gpus));
        memset(&shown, 0, sizeof(shown));
        gpus.config = &config;
        return 0;
}

static int end(void **state)
{
        sched_free(sched);
        return 0;
}

static const uint8_t *uuid_of(uint8_t card)
{
        static uint8_t uuid[16];

        memset(uuid, card, sizeof(uuid));
        return uuid;
}

/* Adds a card to those that NVML shows. */
static void show(uint8_t card, uint64_t bytes)
{
        struct nvml_card *c = &shown.cards[shown.n++];

        *c = (struct nvml_card){.measured = true, .total_bytes = bytes};
        memcpy(c->uuid, uuid_of(card), sizeof(c->uuid));
        (void)uuid_format(c->uuid, c->uuid_text);
        (void)snprintf(c->name, sizeof(c->name), "card %u", card);
}

static void look(void)
{
        gpus_take(&gpus, &shown, sched, START);
}

static int bring(uint8_t card, uint64_t bytes, unsigned *ret)
{
        return gpus_find(&gpus, uuid_of(card), bytes, true, sched, START, ret);
}

static unsigned brought(uint8_t card, uint64_t bytes)
{
        unsigned at = SCHED_GPUS_MAX;

        assert_int_equal(bring(card, bytes, &at), 0);
        assert_true(at < gpus.n && gpus.list[at].present);
        return at;
}

static sched_client use(unsigned gpu)
{
        static struct sched_actions out;
        struct sched_attach a = {0};
        sched_client id;

        out.n = 0;
        assert_int_equal(sched_client_add(sched, (struct sched_origin){.uid = 1}, 0, START, &id),
                         0);
        assert_int_equal(sched_client_attach(sched, id, gpu, &a, START, &out), 0);
        return id;
}

static void leave(sched_client id)
{
        static struct sched_actions out;

        out.n = 0;
        sched_client_gone(sched, id, START, &out);
}

static uint64_t total_of(unsigned gpu)
{
        struct sched_gpu_view v;

        return sched_gpu_view(sched, gpu, &v) == 0 ? v.total : 0;
}

static void the_last_compute_mode_that_nvml_told_holds(void **state)
{
        unsigned at;

        at = brought(7, CARD); /* NVML does not list this one */
        assert_int_equal(gpus.list[at].compute_mode, COMPUTE_MODE_UNKNOWN);
        show(1, CARD);
        shown.cards[0].compute_mode = COMPUTE_MODE_EXCLUSIVE_PROCESS;
        look();
        at = (unsigned)gpus_named(&gpus, uuid_of(1));
        assert_int_equal(gpus.list[at].compute_mode, COMPUTE_MODE_EXCLUSIVE_PROCESS);
        shown.cards[0].compute_mode = COMPUTE_MODE_UNKNOWN;
        look();
        assert_int_equal(gpus.list[at].compute_mode, COMPUTE_MODE_EXCLUSIVE_PROCESS);
        shown.cards[0].compute_mode = COMPUTE_MODE_DEFAULT;
        look();
        assert_int_equal(gpus.list[at].compute_mode, COMPUTE_MODE_DEFAULT);
}

static void nvmls_cards_are_there_before_any_client(void **state)
{
        unsigned at;

        show(1, CARD);
        show(2, 2 * CARD);
        look();
        assert_int_equal(gpus.n, 2);
        assert_true(gpus.list[0].vouched && gpus.list[1].vouched);
        assert_int_equal(gpus.list[1].nvml_index, 1);
        assert_string_equal(gpus.list[1].name, "card 2");
        assert_string_equal(gpus.list[1].uuid_text, shown.cards[1].uuid_text);
        assert_int_equal(total_of(0), CARD);
        assert_int_equal(total_of(1), 2 * CARD);
        assert_false(gpus.list[0].corrected);
        /* The card has NVML's size, whatever a client reports, and does not count as the user's. */
        assert_int_equal(gpus_find(&gpus, uuid_of(2), 1, false, sched, START, &at), 0);
        assert_int_equal(at, 1);
        look();
        assert_int_equal(gpus.n, 2);
        assert_false(gpus.list[0].corrected || gpus.list[0].displaced);
}

static uint64_t gib_ns(unsigned at)
{
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_view(sched, at, &v), 0);
        return v.gib_ns;
}

static void memory_is_expected_to_move_at_the_rate_of_the_cards_link(void **state)
{
        unsigned known = brought(1, CARD), unknown = brought(2, CARD);

        show(1, CARD);
        shown.cards[0].bus_bytes_s = 4 * GIB;
        show(3, CARD);
        shown.cards[1].bus_bytes_s = 8 * GIB;
        look();
        assert_int_equal(gib_ns(known), NSEC_PER_SEC / 4);
        assert_int_equal(gib_ns(unknown), GIB / 20);
        assert_int_equal(gib_ns((unsigned)gpus_named(&gpus, uuid_of(3))), NSEC_PER_SEC / 8);
}

static void a_card_that_nvml_no_longer_shows_stays_without_a_number(void **state)
{
        show(1, CARD);
        show(2, CARD);
        look();
        shown.cards[0] = shown.cards[1];
        shown.n = 1;
        look();
        assert_int_equal(gpus.n, 2);
        assert_int_equal(gpus.list[0].nvml_index, -1);
        assert_int_equal(gpus.list[1].nvml_index, 0);
        assert_int_equal(gpus_named(&gpus, uuid_of(1)), 0);
        gpus_forget(&gpus, sched, START + 2 * KEPT);
        assert_int_equal(gpus.n, 2);
}

static void a_card_whose_memory_cannot_be_read_is_not_added(void **state)
{
        show(1, CARD);
        shown.cards[0].measured = false;
        look();
        assert_int_equal(gpus.n, 0);
        shown.cards[0].measured = true;
        look();
        assert_int_equal(gpus.n, 1);
        /* A known card keeps its last size. */
        shown.cards[0].measured = false;
        shown.cards[0].total_bytes = 0;
        look();
        assert_int_equal(gpus.list[0].nvml_index, 0);
        assert_int_equal(gpus.list[0].total_bytes, CARD);
}

static void clients_that_report_the_same_size_share_a_card(void **state)
{
        unsigned a = brought(7, CARD), other = brought(7, CARD / 2), at;

        assert_int_equal(a, 0);
        assert_int_equal(other, 1);
        assert_int_equal(brought(7, CARD), a);
        assert_int_equal(brought(7, CARD / 2), other);
        assert_int_equal(brought(8, CARD), 2);
        assert_int_equal(gpus.list[a].nvml_index, -1);
        assert_false(gpus.list[a].vouched);
        assert_string_equal(gpus.list[2].name, "GPU 2");
        assert_string_equal(gpus.list[a].uuid_text, "GPU-07070707-0707-0707-0707-070707070707");
        assert_int_equal(total_of(other), CARD / 2);
        /* A user who may add no more cards may use the cards in the table. */
        assert_int_equal(gpus_find(&gpus, uuid_of(7), CARD / 2, false, sched, START, &at), 0);
        assert_int_equal(at, other);
        assert_int_equal(gpus_find(&gpus, uuid_of(7), CARD / 4, false, sched, START, &at), -EUSERS);
        assert_int_equal(gpus.n, 3);
}

static void cards_of_impossible_sizes_are_refused(void **state)
{
        const uint64_t least = 16 * MIB, most = UINT64_C(1) << 50;
        unsigned at;

        assert_int_equal(bring(1, least - 1, &at), -EINVAL);
        assert_int_equal(bring(1, most + 1, &at), -EINVAL);
        assert_int_equal(gpus.n, 0);
        (void)brought(1, least);
        (void)brought(2, most);
        show(3, least - 1);
        show(4, most + 1);
        look();
        assert_int_equal(gpus.n, 2);
        show(5, least);
        show(6, most);
        look();
        assert_int_equal(gpus.n, 4);
}

static void a_card_in_use_keeps_its_place(void **state)
{
        sched_client id = 0;
        unsigned at;

        for (unsigned i = 0; i < SCHED_GPUS_MAX; i++) {
                assert_int_equal(brought((uint8_t)(i + 1), CARD), i);
                if (i == 5)
                        id = use(i);
                else
                        (void)use(i);
        }
        assert_int_equal(gpus.n, SCHED_GPUS_MAX);
        assert_int_equal(bring(100, CARD, &at), -ENOSPC);
        leave(id);
        assert_int_equal(brought(100, CARD), 5); /* the place of the card that no client uses */
        assert_int_equal(gpus_named(&gpus, uuid_of(6)), -1);
        assert_int_equal(gpus_named(&gpus, uuid_of(100)), 5);
        (void)use(5);
        assert_int_equal(bring(101, CARD, &at), -ENOSPC);
}

static void nvmls_figure_replaces_a_clients(void **state)
{
        unsigned far, near;

        far = brought(1, CARD);
        near = brought(1, CARD / 2);
        (void)brought(2, CARD);
        (void)use(far);
        (void)use(near);
        show(1, CARD / 2 + MIB);
        look();
        /* NVML corrects the card of the nearer size; clients of the other card have to go. */
        assert_int_equal(gpus.n, 3);
        assert_true(gpus.list[near].vouched && gpus.list[near].corrected);
        assert_false(gpus.list[near].displaced);
        assert_int_equal(gpus.list[near].total_bytes, CARD / 2 + MIB);
        assert_string_equal(gpus.list[near].name, "card 1");
        assert_int_equal(gpus.list[near].nvml_index, 0);
        assert_true(gpus.list[far].displaced);
        assert_false(gpus.list[far].vouched);
        assert_false(gpus.list[2].displaced);
        assert_int_equal(gpus_named(&gpus, uuid_of(1)), near);
        assert_int_equal(brought(1, CARD), near);
        /* A correction is reported once, and again when NVML's answer changes. */
        gpus.list[near].corrected = false;
        look();
        assert_false(gpus.list[near].corrected);
        shown.cards[0].total_bytes = CARD;
        look();
        assert_true(gpus.list[near].corrected);
        assert_int_equal(gpus.list[near].total_bytes, CARD);
}

static void nvml_corrects_the_card_of_the_nearest_size(void **state)
{
        (void)brought(1, CARD / 2);
        (void)brought(1, CARD);
        (void)brought(1, 2 * CARD);
        show(1, CARD - MIB);
        look();
        assert_true(gpus.list[1].vouched);
        assert_true(gpus.list[0].displaced && gpus.list[2].displaced);
}

/* The clients of a displaced card go first, and then the card. */
static void a_displaced_card_is_given_to_no_client(void **state)
{
        unsigned a = brought(1, CARD);

        gpus.list[a].displaced = true;
        (void)use(a);
        assert_int_not_equal(brought(1, CARD), a);
        assert_int_equal(gpus.n, 2);
}

static void a_full_table_displaces_a_card_for_nvmls(void **state)
{
        sched_client ids[SCHED_GPUS_MAX];
        unsigned displaced = 0;

        for (unsigned i = 0; i < SCHED_GPUS_MAX; i++)
                ids[i] = use(brought((uint8_t)(i + 1), CARD));
        show(200, CARD);
        look();
        for (unsigned i = 0; i < SCHED_GPUS_MAX; i++)
                displaced += gpus.list[i].displaced;
        assert_int_equal(displaced, 1);
        assert_true(gpus.list[0].displaced);
        assert_int_equal(gpus_named(&gpus, uuid_of(200)), -1);
        leave(ids[0]);
        gpus_forget(&gpus, sched, START);
        look();
        assert_int_equal(gpus_named(&gpus, uuid_of(200)), 0);
        show(201, CARD);
        look();
        assert_false(gpus.list[0].displaced); /* a card that NVML shows stays */
        assert_true(gpus.list[1].displaced);
}

static void a_card_that_only_clients_named_is_forgotten_after_a_while(void **state)
{
        unsigned used = brought(1, CARD), idle = brought(2, CARD);
        sched_client id = use(used);

        show(3, CARD);
        look();
        gpus_forget(&gpus, sched, START + KEPT - 1);
        assert_true(gpus.list[idle].present);
        gpus_forget(&gpus, sched, START + KEPT);
        assert_false(gpus.list[idle].present);
        assert_int_equal(total_of(idle), 0);
        assert_true(gpus.list[used].present && gpus.list[2].present);
        assert_int_equal(gpus.n, 3);
        leave(id); /* the card was last seen in use at START + KEPT */
        gpus_forget(&gpus, sched, START + 2 * KEPT - 1);
        assert_true(gpus.list[used].present);
        gpus_forget(&gpus, sched, START + 2 * KEPT);
        assert_false(gpus.list[used].present);
        assert_int_equal(brought(4, CARD), 0);
}

static void the_table_ends_with_its_last_card(void **state)
{
        sched_client id;

        (void)brought(1, CARD);
        (void)brought(2, CARD);
        id = use(brought(3, CARD));
        gpus_forget(&gpus, sched, START + KEPT);
        assert_int_equal(gpus.n, 3);
        leave(id);
        gpus_forget(&gpus, sched, START + 2 * KEPT);
        assert_int_equal(gpus.n, 0);
}

static void set_capacity(const char *gpu, uint64_t bytes)
{
        struct config_capacity *e = &config.capacities[config.n_capacities++];

        (void)snprintf(e->gpu, sizeof(e->gpu), "%s", gpu);
        e->bytes = bytes;
}

/* The number in the setting is NVML's, and not the place in the table. */
static void a_capacity_is_set_by_nvmls_number(void **state)
{
        (void)brought(9, CARD); /* takes the first place in the table */
        set_capacity("0", 4 * GIB);
        show(1, CARD);
        look();
        assert_int_equal(gpus_named(&gpus, uuid_of(1)), 1);
        assert_int_equal(total_of(1), 4 * GIB);
        assert_int_equal(total_of(0), CARD);
}

static void a_set_capacity_replaces_the_size_of_the_card(void **state)
{
        set_capacity("1", 4 * GIB);
        set_capacity("GPU-05050505-0505-0505-0505-050505050505", 20 * GIB);
        show(1, CARD);
        show(2, CARD);
        look();
        assert_int_equal(total_of(0), CARD);
        assert_int_equal(total_of(1), 4 * GIB);
        assert_int_equal(gpus.list[1].driver_bytes, CARD);
        /* A setting above a client's figure counts as well. */
        assert_int_equal(total_of(brought(5, CARD)), 20 * GIB);
        assert_int_equal(brought(5, CARD), 2);
        assert_int_equal(brought(5, CARD / 2), 2); /* the same card, as the setting is its size */
        /* NVML's size bounds the setting. */
        show(5, CARD);
        look();
        assert_int_equal(gpus.list[2].total_bytes, CARD);
        shown.cards[2].total_bytes = 20 * GIB;
        look();
        assert_int_equal(gpus.list[2].total_bytes, 20 * GIB);
}

/* The figures were measured on cards of 140 GiB; small cards are simulated. */
static void contexts_and_blocks_depend_on_the_size_of_the_card(void **state)
{
        assert_int_equal(gpus_context_bytes(4 * GIB), 384 * MIB);
        assert_int_equal(gpus_context_bytes(4 * GIB - 256), 16 * MIB - 1);
        assert_int_equal(gpus_context_bytes(24 * GIB), 384 * MIB);
        assert_int_equal(gpus_context_bytes(80 * GIB), 544 * MIB);
        assert_int_equal(gpus_block_bytes(64 * MIB), 2 * MIB);
        assert_int_equal(gpus_block_bytes(GIB), 2 * MIB);
        assert_int_equal(gpus_block_bytes(GIB + 512), 4 * MIB);
        assert_int_equal(gpus_block_bytes(64 * GIB), 128 * MIB);
        assert_int_equal(gpus_block_bytes(1024 * GIB), 256 * MIB);
}

#define GPUS_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                GPUS_TEST(the_last_compute_mode_that_nvml_told_holds),
                GPUS_TEST(nvmls_cards_are_there_before_any_client),
                GPUS_TEST(memory_is_expected_to_move_at_the_rate_of_the_cards_link),
                GPUS_TEST(a_card_that_nvml_no_longer_shows_stays_without_a_number),
                GPUS_TEST(a_card_whose_memory_cannot_be_read_is_not_added),
                GPUS_TEST(clients_that_report_the_same_size_share_a_card),
                GPUS_TEST(cards_of_impossible_sizes_are_refused),
                GPUS_TEST(a_card_in_use_keeps_its_place),
                GPUS_TEST(nvmls_figure_replaces_a_clients),
                GPUS_TEST(nvml_corrects_the_card_of_the_nearest_size),
                GPUS_TEST(a_displaced_card_is_given_to_no_client),
                GPUS_TEST(a_full_table_displaces_a_card_for_nvmls),
                GPUS_TEST(a_card_that_only_clients_named_is_forgotten_after_a_while),
                GPUS_TEST(the_table_ends_with_its_last_card),
                GPUS_TEST(a_capacity_is_set_by_nvmls_number),
                GPUS_TEST(a_set_capacity_replaces_the_size_of_the_card),
                GPUS_TEST(contexts_and_blocks_depend_on_the_size_of_the_card),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
