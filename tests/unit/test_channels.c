/* test_channels.c: the ledger of a process's channels, and the calls that pass their handles to
 * RM. */
#include "unit.h"

#include <string.h>

#include "base/macros.h"
#include "preload/rm/channels.h"

#define COMPUTE_CHANNEL 0xc86f
#define CALLS           8

static struct channels ledger;
static struct channels_call calls[CALLS];
static size_t n;

static int clean(void **state)
{
        memset(&ledger, 0, sizeof(ledger));
        memset(calls, 0xff, sizeof(calls));
        return 0;
}

static void made(uint32_t client, uint32_t parent, uint32_t object, uint32_t class, uint32_t engine)
{
        channels_enter(&ledger, &(struct channels_made){.fd = 5,
                                                        .client = client,
                                                        .parent = parent,
                                                        .object = object,
                                                        .class = class,
                                                        .engine = engine});
}

/* Makes a client with one device and its subdevice. */
static void made_client(uint32_t client)
{
        made(0, 0, client, RM_CLASS_CLIENT_USER, 0);
        made(client, client, 0x10, RM_CLASS_DEVICE, 0);
        made(client, 0x10, 0x20, RM_CLASS_SUBDEVICE, 0);
}

static void made_group(uint32_t client, uint32_t group, uint32_t engine, uint32_t channels)
{
        made(client, 0x10, group, RM_CLASS_GROUP, engine);
        for (uint32_t i = 0; i < channels; i++)
                made(client, group, group + 1 + i, COMPUTE_CHANNEL, 0);
}

static bool list(enum channels_owner owner)
{
        return channels_calls(&ledger, owner, CHANNELS_ALL, calls, CALLS, &n);
}

static bool listed(uint32_t client, uint32_t channel)
{
        for (size_t i = 0; i < n; i++)
                for (uint32_t k = 0; k < calls[i].count; k++)
                        if (calls[i].client == client && calls[i].channels[k] == channel)
                                return true;
        return false;
}

static void a_process_without_channels_needs_no_call(void **state)
{
        assert_true(list(CHANNELS_PROGRAM));
        assert_int_equal(n, 0);
        made_client(1);
        assert_true(list(CHANNELS_PROGRAM));
        assert_int_equal(n, 0);
}

static void all_groups_of_a_subdevice_share_a_call(void **state)
{
        made_client(1);
        made_group(1, 0x100, RM_ENGINE_GRAPHICS_LAST + 3, 4);
        made_group(1, 0x200, RM_ENGINE_GRAPHICS, 8);
        assert_true(list(CHANNELS_PROGRAM));
        assert_int_equal(n, 1);
        assert_int_equal(calls[0].fd, 5);
        assert_int_equal(calls[0].client, 1);
        assert_int_equal(calls[0].subdevice, 0x20);
        assert_int_equal(calls[0].count, 12);
        assert_int_equal(ledger.count, 12);
        /* Compute channels go off first, so that they submit no more copies. */
        assert_int_equal(calls[0].channels[0], 0x201);
        assert_int_equal(calls[0].channels[8], 0x101);
}

static void each_subdevice_and_each_client_has_calls_of_its_own(void **state)
{
        made_client(1);
        made(1, 1, 0x11, RM_CLASS_DEVICE, 0);
        made(1, 0x11, 0x21, RM_CLASS_SUBDEVICE, 0);
        made_client(2);
        made_group(1, 0x100, RM_ENGINE_GRAPHICS, 1);
        made(1, 0x11, 0x200, RM_CLASS_GROUP, RM_ENGINE_GRAPHICS);
        made(1, 0x200, 0x201, COMPUTE_CHANNEL, 0);
        made_group(2, 0x100, RM_ENGINE_GRAPHICS, 1);
        assert_true(list(CHANNELS_PROGRAM));
        assert_int_equal(n, 3);
        for (size_t i = 0; i < n; i++)
                assert_int_equal(calls[i].count, 1);
        assert_int_equal(calls[1].subdevice, 0x21);
        assert_int_equal(calls[2].client, 2);
}

static void a_call_holds_as_many_channels_as_rm_takes(void **state)
{
        made_client(1);
        made_group(1, 0x1000, RM_ENGINE_GRAPHICS, RM_DISABLE_CHANNELS_MAX);
        assert_true(list(CHANNELS_PROGRAM));
        assert_int_equal(n, 1);
        made(1, 0x1000, 0x2000, COMPUTE_CHANNEL, 0);
        assert_true(list(CHANNELS_PROGRAM));
        assert_int_equal(n, 2);
        assert_int_equal(calls[0].count, RM_DISABLE_CHANNELS_MAX);
        assert_int_equal(calls[1].count, 1);
}

static void a_list_too_short_for_all_calls_is_incomplete(void **state)
{
        for (uint32_t client = 1; client <= CALLS; client++) {
                made_client(client);
                made_group(client, 0x100, RM_ENGINE_GRAPHICS, 1);
        }
        assert_true(list(CHANNELS_PROGRAM));
        assert_int_equal(n, CALLS);
        made_client(CALLS + 1);
        made_group(CALLS + 1, 0x100, RM_ENGINE_GRAPHICS, 1);
        assert_false(list(CHANNELS_PROGRAM));
        assert_int_equal(n, CALLS);
}

static void a_channel_of_an_unknown_subdevice_fails_the_list(void **state)
{
        made(0, 0, 1, RM_CLASS_CLIENT, 0);
        made(1, 1, 0x10, RM_CLASS_DEVICE, 0);
        made_group(1, 0x100, RM_ENGINE_GRAPHICS, 1);
        assert_false(list(CHANNELS_PROGRAM));
        made(1, 0x10, 0x20, RM_CLASS_SUBDEVICE, 0);
        assert_true(list(CHANNELS_PROGRAM));
}

static void made_by_mover(uint32_t parent, uint32_t object, uint32_t class)
{
        channels_enter(&ledger, &(struct channels_made){.fd = 5,
                                                        .client = 1,
                                                        .parent = parent,
                                                        .object = object,
                                                        .class = class,
                                                        .engine = RM_ENGINE_GRAPHICS,
                                                        .owner = CHANNELS_MOVER});
}

static void the_movers_channels_are_not_the_programs(void **state)
{
        made_client(1);
        made_group(1, 0x100, RM_ENGINE_GRAPHICS, 1);
        made_by_mover(0x10, 0x900, RM_CLASS_GROUP);
        made_by_mover(0x900, 0x901, COMPUTE_CHANNEL);
        assert_true(list(CHANNELS_PROGRAM));
        assert_true(listed(1, 0x101));
        assert_false(listed(1, 0x901));
        assert_true(list(CHANNELS_MOVER));
        assert_false(listed(1, 0x101));
        assert_true(listed(1, 0x901));
}

static void a_channel_has_its_groups_owner_whichever_thread_makes_it(void **state)
{
        struct channels_call call;

        made_client(1);
        made_group(1, 0x100, RM_ENGINE_GRAPHICS, 0);
        made_by_mover(0x10, 0x900, RM_CLASS_GROUP);
        made(1, 0x900, 0x901, COMPUTE_CHANNEL, 0);
        made_by_mover(0x100, 0x101, COMPUTE_CHANNEL);
        assert_true(list(CHANNELS_PROGRAM));
        assert_true(listed(1, 0x101) && !listed(1, 0x901));
        assert_false(channels_call_of(&ledger, 1, 0x901, CHANNELS_PROGRAM, &call));
        assert_true(channels_call_of(&ledger, 1, 0x901, CHANNELS_MOVER, &call));
        assert_int_equal(call.count, 1);
        assert_int_equal(call.channels[0], 0x901);
        assert_int_equal(call.subdevice, 0x20);
}

static void freeing_an_object_also_removes_its_children(void **state)
{
        made_client(1);
        made_client(2);
        made_group(1, 0x100, RM_ENGINE_GRAPHICS, 2);
        made_group(1, 0x200, RM_ENGINE_GRAPHICS, 2);
        made_group(2, 0x100, RM_ENGINE_GRAPHICS, 2);
        channels_remove(&ledger, 1, 0x102);
        assert_int_equal(ledger.count, 5);
        channels_remove(&ledger, 1, 0x100);
        assert_int_equal(ledger.count, 4);
        channels_remove(&ledger, 1, 0x100);
        channels_remove(&ledger, 1, 0xdead);
        assert_int_equal(ledger.count, 4);
        assert_true(list(CHANNELS_PROGRAM));
        assert_true(listed(1, 0x201) && listed(2, 0x101) && !listed(1, 0x101));
        channels_remove(&ledger, 1, 0x10);
        assert_int_equal(ledger.count, 2);
        channels_remove(&ledger, 2, 2);
        assert_int_equal(ledger.count, 0);
        assert_true(list(CHANNELS_PROGRAM));
        assert_int_equal(n, 0);
}

static void a_handle_that_is_used_again_names_the_new_object(void **state)
{
        made_client(1);
        made_group(1, 0x100, RM_ENGINE_GRAPHICS, 2);
        /* The ledger did not see that the old group was freed. */
        made(1, 0x10, 0x100, RM_CLASS_GROUP, RM_ENGINE_GRAPHICS);
        assert_int_equal(ledger.count, 0);
        made(1, 0x100, 0x101, COMPUTE_CHANNEL, 0);
        assert_int_equal(ledger.count, 1);
        made_client(1);
        assert_int_equal(ledger.count, 0);
}

static void objects_that_hold_no_channels_are_not_kept(void **state)
{
        made_client(1);
        for (uint32_t i = 0; i < 2 * CHANNELS_OBJECTS_MAX; i++)
                made(1, 0x10, 0x1000 + i, 0x40, 0); /* an object of class memory */
        made_group(1, 0x100, RM_ENGINE_GRAPHICS, 1);
        assert_true(list(CHANNELS_PROGRAM));
        assert_int_equal(n, 1);
}

static void places_of_freed_objects_are_used_again(void **state)
{
        made_client(1);
        for (uint32_t i = 0; i < 3 * CHANNELS_OBJECTS_MAX; i++) {
                made_group(1, 0x100 + i % 7 * 0x10, RM_ENGINE_GRAPHICS, 3);
                channels_remove(&ledger, 1, 0x100 + i % 7 * 0x10);
        }
        assert_int_equal(ledger.count, 0);
        assert_false(ledger.incomplete);
        assert_true(ledger.top < 16);
}

static void a_ledger_that_overflowed_stays_incomplete(void **state)
{
        uint32_t i = 0;

        made_client(1);
        made(1, 0x10, 0x100, RM_CLASS_GROUP, RM_ENGINE_GRAPHICS);
        for (; ledger.top < CHANNELS_OBJECTS_MAX; i++)
                made(1, 0x100, 0x1000 + i, COMPUTE_CHANNEL, 0);
        assert_false(ledger.incomplete);
        made(1, 0x100, 0x1000 + i, COMPUTE_CHANNEL, 0);
        assert_true(ledger.incomplete);
        channels_remove(&ledger, 1, 0x100);
        assert_false(list(CHANNELS_PROGRAM)); /* the ledger may lack channels */
}

static void channel_classes_of_all_generations_are_known(void **state)
{
        static const uint32_t yes[] = {0xa06f, 0xb06f, 0xc06f, 0xc36f, 0xc46f,
                                       0xc56f, 0xc86f, 0xc96f, 0xca6f},
                              no[] = {0x006f, 0x506f, 0xa06c, 0xc86e, 0xcbc0, 0x1006f, 0};

        for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
                assert_true(channels_class(yes[i]));
        for (size_t i = 0; i < ARRAY_SIZE(no); i++)
                assert_false(channels_class(no[i]));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, clean)
        const struct CMUnitTest tests[] = {
                TEST(a_process_without_channels_needs_no_call),
                TEST(all_groups_of_a_subdevice_share_a_call),
                TEST(each_subdevice_and_each_client_has_calls_of_its_own),
                TEST(a_call_holds_as_many_channels_as_rm_takes),
                TEST(a_list_too_short_for_all_calls_is_incomplete),
                TEST(a_channel_of_an_unknown_subdevice_fails_the_list),
                TEST(the_movers_channels_are_not_the_programs),
                TEST(a_channel_has_its_groups_owner_whichever_thread_makes_it),
                TEST(freeing_an_object_also_removes_its_children),
                TEST(a_handle_that_is_used_again_names_the_new_object),
                TEST(objects_that_hold_no_channels_are_not_kept),
                TEST(places_of_freed_objects_are_used_again),
                TEST(a_ledger_that_overflowed_stays_incomplete),
                TEST(channel_classes_of_all_generations_are_known),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
