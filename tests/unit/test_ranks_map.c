/* test_ranks_map.c: devices of a job are dealt out to the cards, have names of their own that all
 * processes agree on, and are selected as the driver selects cards. */
#include "unit.h"

#include <errno.h>

#include "base/macros.h"
#include "ranks/devices/map.h"

static struct identity card_of(unsigned i)
{
        struct identity own = {"GPU", {0x10, 0x20, (uint8_t)i}, 0, 0x17 + i, 0};

        memset(own.uuid + 3, 0xa5, sizeof(own.uuid) - 3);
        return own;
}

static bool has_address(const struct identity *a, const struct identity *b)
{
        return a->domain == b->domain && a->bus == b->bus && a->slot == b->slot;
}

static void devices_are_dealt_out_in_turn(void **state)
{
        const unsigned expected[] = {0, 1, 2, 0, 1, 2, 0};

        for (unsigned i = 0; i < ARRAY_SIZE(expected); i++)
                assert_int_equal(map_card(i, 3), expected[i]);
        assert_int_equal(map_card(5, 1), 0);
        assert_int_equal(map_card(5, 0), 0);
}

static void the_first_device_of_a_card_is_called_as_the_card(void **state)
{
        for (unsigned i = 0; i < 3; i++) {
                const struct identity card = card_of(i), own = map_identity(&card, i, 3, false);

                assert_memory_equal(&own, &card, sizeof(own));
        }
}

static void all_devices_have_different_names(void **state)
{
        for (unsigned cards = 1; cards <= 8; cards++) {
                struct identity all[DEVICES_MAX];

                for (unsigned i = 0; i < DEVICES_MAX; i++) {
                        const struct identity card = card_of(i % cards);

                        all[i] = map_identity(&card, i, cards, false);
                        assert_true(all[i].domain <= 0xffff);
                }
                for (unsigned i = 0; i < DEVICES_MAX; i++)
                        for (unsigned k = 0; k < i; k++) {
                                assert_memory_not_equal(all[i].uuid, all[k].uuid, 16);
                                assert_false(has_address(&all[i], &all[k]));
                        }
        }
}

static void instances_of_one_gpu_have_different_addresses(void **state)
{
        struct identity all[DEVICES_MAX];

        for (unsigned i = 0; i < DEVICES_MAX; i++) {
                struct identity instance = card_of(i % 7);

                instance.bus = 0x17;
                all[i] = map_identity(&instance, i, 7, true);
                for (unsigned k = 0; k < i; k++)
                        assert_false(has_address(&all[i], &all[k]));
                if (i < 7)
                        assert_memory_equal(all[i].uuid, instance.uuid, 16);
        }
}

static void a_copys_name_is_the_same_everywhere(void **state)
{
        const struct identity card = card_of(0);
        struct identity copy = map_identity(&card, 3, 1, false), read;
        char text[UUID_TEXT_MAX];

        map_uuid_text(&copy, text);
        assert_string_equal(text, "GPU-99af6497-f296-09b3-0c2b-d448fb85280c");
        assert_true(map_read_uuid(text, &read));
        assert_memory_equal(read.uuid, copy.uuid, 16);
        assert_int_equal(copy.domain, 0x300);
}

static void uuids_are_read_as_nvml_writes_them(void **state)
{
        static const char *const bad[] = {"",
                                          "GPU-",
                                          "4ce57efd-d272-4861-89f5-cdc5e2f1cb12",
                                          "GPU-4ce57efd-d272-4861-89f5-cdc5e2f1cb1",
                                          "GPU-4ce57efd-d272-4861-89f5-cdc5e2f1cb123",
                                          "GPU-4ce57efd-d272-4861-89f5-cdc5e2f1cb1g",
                                          "MIG-GPU-4ce57efd-d272-4861-89f5-cdc5e2f1cb12/1/0"};
        struct identity read;
        char text[UUID_TEXT_MAX];

        assert_true(map_read_uuid("MIG-4CE57EFD-d272-4861-89f5-cdc5e2f1cb12", &read));
        map_uuid_text(&read, text);
        assert_string_equal(text, "MIG-4ce57efd-d272-4861-89f5-cdc5e2f1cb12");
        for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
                assert_false(map_read_uuid(bad[i], &read));
}

static void bus_ids_are_read_in_all_their_forms(void **state)
{
        static const struct {
                const char *text;
                unsigned domain, bus, slot;
        } good[] = {{"0000:17:00.0", 0, 0x17, 0},
                    {"00000300:AB:1f.0", 0x300, 0xab, 0x1f},
                    {"17:02.0", 0, 0x17, 2},
                    {"0001:17:02", 1, 0x17, 2},
                    {"17:02", 0, 0x17, 2}};
        static const char *const bad[] = {"",
                                          "17",
                                          "0000:17:00.",
                                          ":17:00",
                                          "0000:17:00.0x",
                                          "000000000:17:00.0",
                                          "0:1:2:3.0",
                                          "0000:17:.0",
                                          "gg:00"};
        unsigned domain, bus, slot;

        for (unsigned i = 0; i < ARRAY_SIZE(good); i++) {
                assert_true(map_read_bus_id(good[i].text, &domain, &bus, &slot));
                assert_int_equal(domain, good[i].domain);
                assert_int_equal(bus, good[i].bus);
                assert_int_equal(slot, good[i].slot);
        }
        for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
                if (map_read_bus_id(bad[i], &domain, &bus, &slot))
                        fail_msg("'%s' is read", bad[i]);
}

static void a_list_selects_devices_as_the_driver_does(void **state)
{
        static const struct {
                const char *list, *shown;
        } cases[] = {
                {NULL, "0123"},      {"", ""},
                {"2", "2"},          {"3,1", "31"},
                {"0,1,2,3", "0123"}, {" 1, 2", "12"},
                {"1 ,2", "12"},      {"-1", ""},
                {"1,-1,2", "1"},     {"4", ""},
                {"1,4,2", "1"},      {"1,4,1", "1"},
                {"1,", "1"},         {",1", ""},
                {"x", ""},           {"1x", ""},
                {"99999999999", ""}, {"GPU-102001", "1"},
                {"GPU-1020", ""},    {"GPU-102003,0", "30"},
                {"MIG-102002", "2"}, {"2,GPU-102002,0", "2"},
        };
        static const char *const refused[] = {"1,1", "1,1,4", "0,1,2,3,0", "GPU-102002,GPU-102002"};
        struct identity all[4];
        uint8_t shown[DEVICES_MAX];

        for (unsigned i = 0; i < 4; i++)
                all[i] = card_of(i);
        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
                const int n = map_visible(cases[i].list, all, 4, shown);

                if (n != (int)strlen(cases[i].shown))
                        fail_msg("'%s' shows %d", cases[i].list, n);
                for (int k = 0; k < n; k++)
                        assert_int_equal(shown[k], cases[i].shown[k] - '0');
        }
        for (unsigned i = 0; i < ARRAY_SIZE(refused); i++)
                assert_int_equal(map_visible(refused[i], all, 4, shown), -ENOTUNIQ);
}

static void cards_come_in_the_order_of_their_first_devices(void **state)
{
        const uint8_t devices[DEVICES_MAX] = {5, 4, 2, 3, 0};
        const uint8_t order[] = {2, 1, 0}, at[] = {0, 1, 0, 2, 2};
        uint8_t found[DEVICES_MAX], found_at[DEVICES_MAX];

        assert_int_equal(map_order(devices, 5, 3, found, found_at), 3);
        assert_memory_equal(found, order, sizeof(order));
        assert_memory_equal(found_at, at, sizeof(at));
        assert_int_equal(map_order(devices, 1, 3, found, found_at), 1);
        assert_int_equal(found[0], 2);
        assert_int_equal(map_order(devices, 0, 3, found, found_at), 0);
}

static const char *variable, *value;

static char *get(const char *name)
{
        return variable && strcmp(name, variable) == 0 ? (char *)value : NULL;
}

static void launchers_say_the_rank_on_the_machine(void **state)
{
        static const char *const names[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                            "MPI_LOCALRANKID", "SLURM_LOCALID", "PMI_LOCAL_RANK"};

        value = "5";
        for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
                variable = names[i];
                assert_int_equal(map_local_rank(get), 5);
        }
        value = "five";
        assert_int_equal(map_local_rank(get), 0);
        variable = "RANK";
        value = "5";
        assert_int_equal(map_local_rank(get), 0);
        variable = NULL;
        assert_int_equal(map_local_rank(get), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(devices_are_dealt_out_in_turn),
                cmocka_unit_test(the_first_device_of_a_card_is_called_as_the_card),
                cmocka_unit_test(all_devices_have_different_names),
                cmocka_unit_test(instances_of_one_gpu_have_different_addresses),
                cmocka_unit_test(a_copys_name_is_the_same_everywhere),
                cmocka_unit_test(uuids_are_read_as_nvml_writes_them),
                cmocka_unit_test(bus_ids_are_read_in_all_their_forms),
                cmocka_unit_test(a_list_selects_devices_as_the_driver_does),
                cmocka_unit_test(cards_come_in_the_order_of_their_first_devices),
                cmocka_unit_test(launchers_say_the_rank_on_the_machine),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
