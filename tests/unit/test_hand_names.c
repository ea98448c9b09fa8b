/* test_hand_names.c: one order of the hand disables or enables each channel of a page exactly once,
 * whatever the page says and whichever channels are missing. The fake RM counts as the real one
 * does (docs/measurements/hand.md). */
#include "unit.h"

#include <errno.h>
#include <limits.h>

#include "base/macros.h"
#include "daemon/hand/hand_names.h"

#define CLIENT 0xc1d00001u
#define OTHER  0xc1d00002u
#define FIRST  0x5c000001u

static struct hand_page page;
static struct hand_clients proved;

/* ---- the fake RM ---- */

static struct channel {
        uint32_t client, channel, device;
        unsigned count;
        bool stands;
} channels[HAND_CHANNELS];
static uint32_t channel_count;
static uint32_t refusal; /* RM's answer from now on; 0: none */
static unsigned calls, longest, too_many, gpus = HAND_GPUS;
static void (*in_call)(const struct hand_call *c); /* before RM acts */

static struct channel *find(uint32_t device, uint32_t client, uint32_t channel)
{
        for (uint32_t i = 0; i < channel_count; i++)
                if (channels[i].client == client && channels[i].channel == channel &&
                    channels[i].device == device)
                        return &channels[i];
        return NULL;
}

static uint32_t change(void *userdata, const struct hand_call *c, bool disable)
{
        uint32_t n = 0;

        assert_ptr_equal(userdata, &calls);
        assert_in_range(c->count, 1, RM_DISABLE_CHANNELS_MAX);
        assert_true(c->device < HAND_GPUS);
        assert_int_equal(page.busy, 1);
        calls++;
        longest = MAX(longest, c->count);
        if (in_call)
                in_call(c);
        if (refusal)
                return refusal;
        if (c->device >= gpus)
                return RM_NO_OBJECT;
        while (n < c->count && find(c->device, c->clients[n], c->channels[n]))
                n++;
        for (uint32_t i = 0; i < n; i++) {
                struct channel *x = find(c->device, c->clients[i], c->channels[i]);

                if (disable)
                        x->count++;
                else if (x->count > 0)
                        x->count--;
                else
                        too_many++;
                x->stands = x->count > 0 && (x->stands || (disable && n == c->count));
        }
        return n == c->count ? 0 : RM_NO_CHANNEL;
}

/* ---- a page ---- */

static void name_at(uint32_t i, uint32_t device, uint32_t client, uint32_t channel)
{
        page.names[i].name = (uint64_t)client << 32 | channel;
        page.names[i].device = device;
        page.top = MAX(page.top, i + 1);
}

/* Makes channels and writes their names. */
static void make(uint32_t count, uint32_t device)
{
        for (uint32_t i = 0; i < count; i++) {
                const uint32_t at = channel_count++;

                channels[at] = (struct channel){CLIENT, FIRST + at, device, 0, false};
                name_at(at, device, CLIENT, FIRST + at);
        }
}

static void lose(uint32_t i)
{
        channels[i].client = 0;
}

static int off(void)
{
        const int r = hand_names_off(&page, &proved, change, &calls);

        assert_int_equal(page.busy, 0);
        assert_int_equal(page.holds, 1);
        return r;
}

static int on(void)
{
        const int r = hand_names_on(&page, &proved, change, &calls);

        assert_int_equal(page.busy, 0);
        assert_int_equal(page.holds, 0);
        return r;
}

/* Each channel has this count, and stands if it is not 0. */
static void check_counts(unsigned count)
{
        for (uint32_t i = 0; i < channel_count; i++) {
                if (!channels[i].client)
                        continue;
                assert_int_equal(channels[i].count, count);
                assert_int_equal(channels[i].stands, count > 0);
        }
        assert_int_equal(too_many, 0);
}

static int begin(void **state)
{
        memset(&page, 0, sizeof(page));
        memset(channels, 0, sizeof(channels));
        proved = (struct hand_clients){1, {CLIENT}};
        channel_count = refusal = 0;
        calls = longest = too_many = 0;
        gpus = HAND_GPUS;
        in_call = NULL;
        return 0;
}

/* ---- tests ---- */

static void a_page_without_names_needs_no_call(void **state)
{
        assert_int_equal(off(), 0);
        assert_int_equal(on(), 0);
        assert_int_equal(calls, 0);
}

static void each_disabling_is_undone_exactly(void **state)
{
        make(10, 0);
        channels[3].count = 1; /* the library's */
        channels[3].stands = true;
        assert_int_equal(off(), 0);
        assert_int_equal(calls, 1);
        assert_int_equal(channels[3].count, 2);
        channels[3].count--;
        check_counts(1);
        channels[3].count++;
        assert_int_equal(on(), 0);
        assert_int_equal(calls, 2);
        assert_int_equal(channels[3].count, 1);
        assert_true(channels[3].stands);
        channels[3] = (struct channel){CLIENT, FIRST + 3, 0, 0, false};
        check_counts(0);
}

static void the_same_order_again_changes_nothing(void **state)
{
        make(70, 0);
        for (unsigned i = 0; i < 3; i++) {
                assert_int_equal(off(), 0);
                check_counts(1);
        }
        assert_int_equal(calls, 2);
        for (unsigned i = 0; i < 3; i++) {
                assert_int_equal(on(), 0);
                check_counts(0);
        }
        assert_int_equal(calls, 4);
}

static void a_repeated_order_takes_the_new_channels(void **state)
{
        make(3, 0);
        assert_int_equal(off(), 0);
        make(3, 0);
        assert_int_equal(off(), 0);
        check_counts(1);
        assert_int_equal(on(), 0);
        check_counts(0);
}

static void a_call_names_at_most_as_many_channels_as_rm_takes(void **state)
{
        static const uint32_t counts[] = {1, 63, 64, 65, 128, 129, 1000};

        for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
                (void)begin(state);
                make(counts[i], 0);
                assert_int_equal(off(), 0);
                check_counts(1);
                assert_int_equal(calls, (counts[i] + 63) / 64);
                assert_true(longest <= 64);
                assert_int_equal(on(), 0);
                check_counts(0);
        }
}

static void each_gpu_has_calls_of_its_own(void **state)
{
        for (unsigned i = 0; i < 100; i++) /* by turns */
                make(1, i % 3 == 2 ? HAND_GPUS - 1 : i % 3);
        assert_int_equal(off(), 0);
        check_counts(1);
        assert_int_equal(calls, 3);
        assert_int_equal(on(), 0);
        check_counts(0);
}

static void a_wrong_number_of_a_gpu_concerns_no_other_channel(void **state)
{
        static const uint32_t wrong[] = {HAND_GPUS, HAND_GPUS + 1, INT32_MAX, UINT32_MAX};

        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                (void)begin(state);
                make(3, 0);
                page.names[1].device = wrong[i];
                assert_int_equal(off(), 0);
                assert_int_equal(channels[0].count, 1);
                assert_int_equal(channels[1].count, 0);
                assert_int_equal(channels[2].count, 1);
                assert_int_equal(on(), 0);
                check_counts(0);
        }
}

static void a_gpu_that_is_not_there_is_left_out(void **state)
{
        gpus = 2;
        make(3, 1);
        make(3, 2);
        assert_int_equal(off(), 0);
        for (unsigned i = 0; i < 6; i++) {
                assert_int_equal(channels[i].count, i < 3);
                assert_int_equal(page.names[i].off, i < 3 ? HAND_OFF : HAND_RUNS);
        }
        assert_int_equal(on(), 0);
        check_counts(0);
}

static void the_array_bounds_the_names(void **state)
{
        uint32_t ret[HAND_CLIENTS];

        make(HAND_CHANNELS, 0);
        page.top = UINT32_MAX;
        assert_int_equal(hand_names_clients(&page, ret), 1);
        assert_int_equal(off(), 0);
        check_counts(1);
        assert_int_equal(calls, HAND_CHANNELS / 64);
        page.top = HAND_CHANNELS + 1;
        assert_int_equal(on(), 0);
        check_counts(0);
}

static void names_beyond_the_top_are_unused(void **state)
{
        make(4, 0);
        page.top = 2;
        assert_int_equal(off(), 0);
        assert_int_equal(channels[1].count, 1);
        assert_int_equal(channels[2].count, 0);
}

/* Otherwise a program that has proved its own client could stop others' programs. */
static void names_of_clients_that_are_not_proved_are_ignored(void **state)
{
        make(4, 0);
        for (uint32_t i = 1; i < 3; i++) {
                channels[i].client = OTHER;
                name_at(i, 0, OTHER, channels[i].channel);
        }
        assert_int_equal(off(), 0);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(channels[i].count, i == 0 || i == 3);
        channels[1].count = channels[2].count = 1; /* frozen by their own library */
        page.names[1].off = page.names[2].off = HAND_OFF;
        assert_int_equal(on(), 0);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(channels[i].count, i == 1 || i == 2);
        proved = (struct hand_clients){0};
        calls = 0;
        assert_int_equal(off(), 0);
        assert_int_equal(calls, 0);
}

static void missing_channels_leave_each_other_one_with_one_disabling(void **state)
{
        static const uint32_t missing[][3] = {{0, 0, 0}, {5, 5, 5},    {9, 9, 9},   {0, 4, 9},
                                              {3, 4, 5}, {63, 64, 65}, {0, 63, 99}, {64, 98, 99}};

        for (size_t i = 0; i < ARRAY_SIZE(missing); i++) {
                (void)begin(state);
                make(100, 0);
                for (unsigned k = 0; k < 3; k++)
                        lose(missing[i][k]);
                assert_int_equal(off(), 0);
                check_counts(1);
                for (unsigned k = 0; k < 3; k++)
                        assert_int_equal(page.names[missing[i][k]].off, HAND_RUNS);
                assert_int_equal(on(), 0);
                check_counts(0);
        }
}

static void channels_that_end_while_they_are_off_keep_no_other_off(void **state)
{
        static const uint32_t ended[][2] = {{0, 1}, {5, 7}, {0, 9}, {63, 64}, {64, 99}, {99, 99}};

        for (size_t i = 0; i < ARRAY_SIZE(ended); i++) {
                (void)begin(state);
                make(100, 0);
                assert_int_equal(off(), 0);
                for (unsigned k = 0; k < 2; k++)
                        lose(ended[i][k]);
                assert_int_equal(on(), 0);
                check_counts(0);
        }
}

static void a_program_that_has_ended_is_no_error(void **state)
{
        make(100, 0);
        assert_int_equal(off(), 0);
        for (uint32_t i = 0; i < 100; i++)
                lose(i);
        assert_int_equal(on(), 0);
        assert_int_equal(off(), 0);
        assert_int_equal(on(), 0);
}

/* Each call that fails costs 64 others, and other programs wait for them. */
static void a_page_full_of_wrong_names_is_given_up_soon(void **state)
{
        for (uint32_t i = 0; i < HAND_CHANNELS; i++)
                name_at(i, 0, CLIENT, FIRST + i);
        assert_int_equal(off(), -ELOOP);
        assert_true(calls < 1000);
}

static void an_error_ends_the_order(void **state)
{
        static const uint32_t errors[] = {0x1b, 0x1f, 0x40, 0x65, 0xe0000000u, 0xffffffffu};

        for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
                (void)begin(state);
                make(200, 0);
                refusal = errors[i];
                assert_int_equal(off(), -EIO);
                assert_int_equal(calls, 1);
                (void)begin(state);
                make(200, 0);
                assert_int_equal(off(), 0);
                refusal = errors[i];
                assert_int_equal(on(), -EIO);
                assert_int_equal(calls, 5);
        }
}

static void refuse_singles(const struct hand_call *c)
{
        refusal = c->count == 1 ? 0x65 : 0;
}

static void an_error_of_a_single_channel_ends_the_order(void **state)
{
        make(10, 0);
        lose(5);
        in_call = refuse_singles;
        assert_int_equal(off(), -EIO);
        assert_int_equal(calls, 3);
}

/* ---- the library writes meanwhile ---- */

static unsigned meant; /* the call in which the library acts */
static uint32_t at;    /* the entry */

/* As the library takes a name out before RM frees the channel. */
static void name_goes(const struct hand_call *c)
{
        if (calls == meant)
                page.names[at].name = 0;
}

static void a_name_that_was_withdrawn_is_not_used(void **state)
{
        make(100, 0);
        meant = 1;
        at = 80;
        in_call = name_goes;
        assert_int_equal(off(), 0);
        assert_int_equal(channels[80].count, 0);
        assert_int_equal(page.names[80].off, HAND_RUNS);
        lose(80);
        check_counts(1);
        meant = 3;
        at = 90;
        assert_int_equal(on(), 0);
        assert_int_equal(channels[90].count, 1);
        assert_int_equal(page.names[90].off, HAND_OFF); /* the library sees what is to be undone */
        lose(90);
        check_counts(0);
}

/* The channel of an entry is gone, and another one has its place. The library has seen whether the
 * hand holds the program, and has disabled the new channel. */
static void name_changes(const struct hand_call *c)
{
        struct hand_name *n = &page.names[at];
        const bool held = page.holds;

        if (calls != meant)
                return;
        lose(at);
        n->name = 0;
        n->off = hand_off_with(n->off + HAND_OFF_MASK + 1, held ? HAND_OFF : HAND_RUNS);
        channels[200] = (struct channel){CLIENT, FIRST + 200, 0, held, held};
        channel_count = 201;
        n->name = (uint64_t)CLIENT << 32 | (FIRST + 200);
}

static void an_entry_with_a_new_name_is_left_to_the_library(void **state)
{
        for (unsigned with = 0; with < 2; with++) { /* in each of both orders */
                (void)begin(state);
                make(10, 0);
                if (with == 1)
                        assert_int_equal(off(), 0);
                calls = 0;
                meant = 1;
                at = 5;
                in_call = name_changes;
                assert_int_equal(with == 1 ? on() : off(), 0);
                assert_int_equal(page.names[5].off & HAND_OFF_MASK, with ? HAND_RUNS : HAND_OFF);
                check_counts(with == 0);
                in_call = NULL;
                assert_int_equal(off(), 0);
                check_counts(1);
                assert_int_equal(on(), 0);
                check_counts(0);
        }
}

static void a_new_channel_is_disabled_by_one_of_the_two_sides(void **state)
{
        make(3, 0);
        page.names[1].off = HAND_PENDING; /* the library is at it */
        assert_int_equal(off(), 0);
        assert_int_equal(channels[1].count, 0);
        assert_int_equal(page.names[1].off, HAND_PENDING);
        channels[1].count = 1;
        channels[1].stands = true;
        page.names[1].off = HAND_OFF; /* the library has done it */
        check_counts(1);
        assert_int_equal(on(), 0);
        check_counts(0);
        page.names[1].off = HAND_PENDING;
        assert_int_equal(on(), 0);
        assert_int_equal(page.names[1].off, HAND_PENDING);
        assert_int_equal(too_many, 0);
}

static void look_at_the_page(const struct hand_call *c)
{
        assert_int_equal(page.holds, meant);
        for (uint32_t i = 0; i < c->count; i++)
                assert_int_equal(page.names[c->channels[i] - FIRST].off, meant ? HAND_OFF : 0);
}

/* A library that sees neither `busy` nor its entry as off frees the channel. */
static void the_page_says_beforehand_what_happens(void **state)
{
        make(100, 0);
        in_call = look_at_the_page;
        meant = 1;
        assert_int_equal(off(), 0);
        meant = 0;
        assert_int_equal(on(), 0);
}

static void the_clients_of_the_names_are_listed_once(void **state)
{
        uint32_t ret[HAND_CLIENTS];

        assert_int_equal(hand_names_clients(&page, ret), 0);
        name_at(7, 0, OTHER, 1);
        name_at(3, 0, CLIENT, 1);
        name_at(4, 0, CLIENT, 2);
        assert_int_equal(hand_names_clients(&page, ret), 2);
        assert_int_equal(ret[0], CLIENT);
        assert_int_equal(ret[1], OTHER);
        for (uint32_t i = 2; i < HAND_CLIENTS; i++)
                name_at(10 + i, 0, CLIENT + i, 1);
        assert_int_equal(hand_names_clients(&page, ret), HAND_CLIENTS);
        name_at(30, 0, CLIENT + 100, 1);
        assert_true(hand_names_clients(&page, ret) > HAND_CLIENTS);
}

#define TEST(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_page_without_names_needs_no_call),
                TEST(each_disabling_is_undone_exactly),
                TEST(the_same_order_again_changes_nothing),
                TEST(a_repeated_order_takes_the_new_channels),
                TEST(a_call_names_at_most_as_many_channels_as_rm_takes),
                TEST(each_gpu_has_calls_of_its_own),
                TEST(a_wrong_number_of_a_gpu_concerns_no_other_channel),
                TEST(a_gpu_that_is_not_there_is_left_out),
                TEST(the_array_bounds_the_names),
                TEST(names_beyond_the_top_are_unused),
                TEST(names_of_clients_that_are_not_proved_are_ignored),
                TEST(missing_channels_leave_each_other_one_with_one_disabling),
                TEST(channels_that_end_while_they_are_off_keep_no_other_off),
                TEST(a_program_that_has_ended_is_no_error),
                TEST(a_page_full_of_wrong_names_is_given_up_soon),
                TEST(an_error_ends_the_order),
                TEST(an_error_of_a_single_channel_ends_the_order),
                TEST(a_name_that_was_withdrawn_is_not_used),
                TEST(an_entry_with_a_new_name_is_left_to_the_library),
                TEST(a_new_channel_is_disabled_by_one_of_the_two_sides),
                TEST(the_page_says_beforehand_what_happens),
                TEST(the_clients_of_the_names_are_listed_once),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
