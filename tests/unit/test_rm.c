/* test_rm.c: libcuda's channels are off the GPU when rm_freeze() returns, and on the GPU after
 * rm_thaw(). */
#include "unit.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "rm_bench.h"

#define CLIENT 0xc1d00001u
#define GROUP  0x5c000100u
#define COPIES 11u /* a copy engine */

static const struct rm_call *last_call(void)
{
        assert_true(rm_bench.count > 0 && rm_bench.count <= CALLS_MOST);
        return &rm_bench.calls[rm_bench.count - 1];
}

/* ---- recorded channels ---- */

static void a_process_without_channels_freezes_at_once(void **state)
{
        assert_int_equal(rm_freeze(), 0);
        assert_true(rm_is_frozen());
        assert_int_equal(rm_thaw(), 0);
        assert_false(rm_is_frozen());
        made_client(5, CLIENT);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_bench.count, 0);
}

static void all_channels_of_the_program_freeze_and_thaw(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, COPIES, 4);
        made_group(5, CLIENT, GROUP + 0x100, 1, 8);
        assert_int_equal(rm_channels(), 12);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_standing(), 12);
        assert_int_equal(rm_bench.count, 1);
        assert_int_equal(last_call()->fd, 5);
        assert_int_equal(last_call()->client, CLIENT);
        assert_int_equal(last_call()->subdevice, SUBDEVICE);
        assert_int_equal(last_call()->channels[0], GROUP + 0x101); /* the group that computes */
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_standing(), 0);
        assert_int_equal(rm_bench.count, 2);
}

static void a_slice_is_for_the_groups_of_the_program_that_compute(void **state)
{
        const unsigned before = rm_groups_made();

        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, COPIES, 2);
        made_group(5, CLIENT, GROUP + 0x100, 1, 2);
        rm_make_for(CHANNELS_MOVER);
        made_group(5, CLIENT, GROUP + 0x200, 1, 2);
        rm_make_for(CHANNELS_PROGRAM);
        assert_int_equal(rm_groups_made(), before + 2);
        rm_slice(10000);
        assert_int_equal(rm_slice_of(CLIENT, GROUP), RM_OWN_SLICE_US);
        assert_int_equal(rm_slice_of(CLIENT, GROUP + 0x100), 10000);
        assert_int_equal(rm_slice_of(CLIENT, GROUP + 0x200), RM_OWN_SLICE_US);
        rm_slice(0);
        assert_int_equal(rm_slice_of(CLIENT, GROUP + 0x100), RM_OWN_SLICE_US);
}

static void freezing_twice_is_freezing_once(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 2);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_standing(), 2);
        assert_int_equal(rm_count(CLIENT, GROUP + 1), 1);
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_counted(), 0);
        assert_int_equal(rm_thaw(), 0);
}

static void freed_channels_are_not_named_to_rm(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 4);
        made_group(5, CLIENT, GROUP + 0x100, COPIES, 4);
        assert_int_equal(freed(5, CLIENT, GROUP + 2), 0);
        assert_int_equal(freed(5, CLIENT, GROUP + 0x100), 0);
        assert_int_equal(rm_channels(), 3);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_bench.count, 1);
        assert_int_equal(last_call()->count, 3);
        assert_int_equal(freed(5, CLIENT, DEVICE), 0); /* frees the device during the freeze */
        assert_int_equal(rm_channels(), 0);
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_bench.count, 1);
}

/* If RM refuses a free, the object still exists. */
static void channels_whose_free_failed_stay_in_the_ledger(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 1);
        assert_int_not_equal(freed(5, CLIENT, GROUP + 9), 0);
        rm_bench.closed = 5;
        assert_int_equal(freed(5, CLIENT, GROUP), -EBADF);
        rm_bench.closed = -1;
        assert_int_equal(rm_channels(), 1);
}

static void each_client_and_gpu_has_calls_of_its_own(void **state)
{
        const uint32_t second = DEVICE + 1;

        for (uint32_t i = 0; i < 3; i++) {
                made_client(5 + (int)i, CLIENT + i);
                made_group(5 + (int)i, CLIENT + i, GROUP, 1, 8);
        }
        assert_int_equal(made(5, CLIENT, CLIENT, second, 0x80, 0), 0);
        assert_int_equal(made(5, CLIENT, second, SUBDEVICE + 1, 0x2080, 0), 0);
        assert_int_equal(made(5, CLIENT, second, GROUP + 0x100, 0xa06c, 1), 0);
        assert_int_equal(made(5, CLIENT, GROUP + 0x100, GROUP + 0x101, CHANNEL, 0), 0);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_standing(), 25);
        assert_int_equal(rm_bench.count, 4);
        for (unsigned i = 0; i < rm_bench.count; i++) {
                const struct rm_call *c = &rm_bench.calls[i];

                assert_int_equal(c->fd, 5 + (int)(c->client - CLIENT));
                assert_int_equal(c->subdevice, c->count == 1 ? SUBDEVICE + 1 : SUBDEVICE);
        }
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_standing(), 0);
}

static void more_channels_than_one_call_takes_need_several_calls(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, COPIES, 100);
        made_group(5, CLIENT, GROUP + 0x100, 1, 100);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_standing(), 200);
        assert_int_equal(rm_bench.count, 4);
        assert_int_equal(rm_bench.calls[0].channels[0], GROUP + 0x101);
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_standing(), 0);
        /* Thaw in reverse order: copies must be able to run when computing groups do. */
        for (unsigned i = 0; i < 4; i++)
                assert_memory_equal(rm_bench.calls[4 + i].channels, rm_bench.calls[3 - i].channels,
                                    sizeof(uint32_t));
}

static void no_channel_is_frozen_if_the_ledger_has_overflowed(void **state)
{
        /* This runs in a child, because the ledger never forgets that it has missed a channel. */
        pid_t child = fork();
        int status = 0;

        assert_true(child >= 0);
        if (child == 0) {
                made_client(5, CLIENT);
                (void)made(5, CLIENT, DEVICE, GROUP, 0xa06c, 1);
                for (uint32_t i = 0; i < CHANNELS_OBJECTS_MAX; i++)
                        (void)made(5, CLIENT, GROUP, GROUP + 1 + i, CHANNEL, 0);
                _exit(rm_freeze() == -EOVERFLOW && !rm_is_frozen() && rm_standing() == 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
}

/* ---- channels of the program and of the mover ---- */

static void the_movers_channels_run_on(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 2);
        rm_make_for(CHANNELS_MOVER);
        made_group(5, CLIENT, GROUP + 0x100, 1, 2);
        rm_make_for(CHANNELS_PROGRAM);
        /* A thread that nobody marked as the mover's makes a channel in the mover's group. */
        assert_int_equal(made(5, CLIENT, GROUP + 0x100, GROUP + 0x110, CHANNEL, 0), 0);
        assert_int_equal(rm_freeze(), 0);
        assert_true(rm_stands(CLIENT, GROUP + 1) && rm_stands(CLIENT, GROUP + 2));
        assert_int_equal(rm_standing(), 2);
        /* Channels that the mover makes while the program is frozen run, too. */
        rm_make_for(CHANNELS_MOVER);
        made_group(5, CLIENT, GROUP + 0x200, COPIES, 2);
        rm_make_for(CHANNELS_PROGRAM);
        assert_int_equal(made(5, CLIENT, GROUP + 0x200, GROUP + 0x210, CHANNEL, 0), 0);
        assert_int_equal(rm_standing(), 2);
        assert_int_equal(rm_bench.count, 1);
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_standing(), 0);
        assert_int_equal(last_call()->count, 2);
}

static void a_channel_made_during_a_freeze_is_frozen_at_once(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 1);
        assert_int_equal(rm_freeze(), 0);
        made_group(5, CLIENT, GROUP + 0x100, COPIES, 3);
        assert_int_equal(rm_standing(), 4);
        made_client(6, CLIENT + 1);
        made_group(6, CLIENT + 1, GROUP, 1, 1);
        assert_true(rm_stands(CLIENT + 1, GROUP + 1));
        assert_int_equal(last_call()->fd, 6);
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_standing(), 0);
        made_group(5, CLIENT, GROUP + 0x200, COPIES, 1);
        assert_int_equal(rm_standing(), 0);
}

/* ---- answers of RM ---- */

static void a_refusal_is_an_error(void **state)
{
        static const struct {
                uint32_t status;
                int r;
        } rows[] = {{0x1b, -EPERM}, {0x56, -EOPNOTSUPP}, {0x65, -ETIMEDOUT}, {0x1f, -EIO},
                    {0x40, -EIO},   {0x62, -EIO},        {0x0f, -EIO}};

        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 100);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                rm_bench.refuses = rows[i].status;
                assert_int_equal(rm_freeze(), rows[i].r);
                assert_false(rm_is_frozen());
                rm_bench.refuses = 0;
                assert_int_equal(rm_thaw(), 0);
                assert_int_equal(rm_standing(), 0);
        }
}

static void a_refused_thaw_is_repeated_for_all_channels(void **state)
{
        made_client(5, CLIENT);
        made_client(6, CLIENT + 1);
        made_group(5, CLIENT, GROUP, 1, 4);
        made_group(6, CLIENT + 1, GROUP, 1, 4);
        assert_int_equal(rm_freeze(), 0);
        rm_bench.unrefuses = 0x65;
        rm_bench.refusals = 1;
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_standing(), 0);
}

static void a_thaw_refused_for_good_returns_the_reason(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 4);
        assert_int_equal(rm_freeze(), 0);
        rm_bench.unrefuses = 0x65;
        assert_int_equal(rm_thaw(), -ETIMEDOUT);
        assert_int_equal(rm_standing(), 4);
}

static void a_sandbox_that_forbids_the_call_is_an_error(void **state)
{
        static const struct {
                int error, r;
        } rows[] = {{EPERM, -EPERM},       {EACCES, -EPERM},      {ENOSYS, -EOPNOTSUPP},
                    {ENOTTY, -EOPNOTSUPP}, {EINVAL, -EOPNOTSUPP}, {EIO, -EIO}};

        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 4);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                rm_bench.error = rows[i].error;
                rm_bench.count = 0;
                assert_int_equal(rm_freeze(), rows[i].r);
                assert_int_equal(rm_bench.count, 1);
                assert_false(rm_is_frozen());
        }
}

static void a_program_on_an_unknown_driver_is_not_frozen(void **state)
{
        static const char *const versions[] = {"510.108.03", "521.0",  "531.10", "621.1",
                                               "625.10.01",  "5800.1", "x",      ""};

        for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
                if (!versions[i][0])
                        continue;
                assert_int_equal(say_version(versions[i]), 0);
                assert_string_equal(rm_driver(), versions[i]);
                assert_int_equal(rm_freeze(), -EPROTO);
                made_client(5, CLIENT + (uint32_t)i);
                made_group(5, CLIENT + (uint32_t)i, GROUP, 1, 2);
                assert_int_equal(rm_channels(), 0);
                assert_int_equal(rm_freeze(), -EPROTO);
                assert_false(rm_is_frozen());
                assert_int_equal(rm_bench.count, 0);
        }
}

/* ---- channels that RM has freed unseen ---- */

static unsigned meant;

static void another_thread_frees(const struct rm_call *c)
{
        if (meant == 0)
                return;
        meant--;
        rm_loses(CLIENT, GROUP + 3);
}

/* A control that fails counts for the channels before the missing one: each must count once. */
static void a_channel_that_rm_has_freed_is_left_out(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 4);
        made_group(5, CLIENT, GROUP + 0x100, COPIES, 4);
        meant = 1;
        rm_bench.before = another_thread_frees;
        assert_int_equal(rm_freeze(), 0);
        rm_bench.before = NULL;
        assert_int_equal(rm_bench.calls[0].status, 0x21);
        assert_in_range(rm_bench.count, 3, 10);
        assert_true(rm_is_frozen());
        assert_int_equal(rm_standing(), 7);
        assert_int_equal(rm_count(CLIENT, GROUP + 1), 1);
        assert_int_equal(rm_count(CLIENT, GROUP + 4), 1);
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_counted(), 0);
        assert_int_equal(rm_bench.too_many, 0);
}

static void a_channel_that_rm_has_freed_keeps_no_other_frozen(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 4);
        assert_int_equal(rm_freeze(), 0);
        meant = 1;
        rm_bench.before = another_thread_frees;
        assert_int_equal(rm_thaw(), 0);
        rm_bench.before = NULL;
        assert_int_equal(rm_counted(), 0);
        rm_loses(CLIENT, CLIENT);
        made_client(5, CLIENT); /* reuses the handles */
        made_group(5, CLIENT, GROUP, 1, 4);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_standing(), rm_known());
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_counted(), 0);
        assert_int_equal(rm_bench.too_many, 0);
}

/* Without the subdevice RM switches no channel, so the channels run. */
static void a_freeze_without_its_subdevice_fails(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 4);
        rm_loses(CLIENT, SUBDEVICE);
        assert_int_equal(rm_freeze(), -EIO);
        assert_false(rm_is_frozen());
}

static void channels_of_a_closed_descriptor_are_gone(void **state)
{
        for (uint32_t i = 0; i < 3; i++) {
                made_client(5 + (int)i, CLIENT + i);
                made_group(5 + (int)i, CLIENT + i, GROUP, 1, 4);
        }
        rm_bench.closed = 6;
        rm_loses(CLIENT + 1, CLIENT + 1);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_standing(), 8);
        assert_int_equal(rm_channels(), 8);
        rm_bench.closed = 5;
        rm_loses(CLIENT, CLIENT);
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_standing(), 0);
        assert_int_equal(rm_channels(), 4);
}

/* ---- in a child ---- */

static void a_child_after_fork_has_no_channels_and_records_none(void **state)
{
        pid_t child;
        int status = 0;

        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 4);
        assert_int_equal(rm_freeze(), 0);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
                unsigned before;

                rm_forget();
                if (rm_is_frozen())
                        _exit(1);
                before = rm_channels();
                made_client(7, CLIENT + 7);
                made_group(7, CLIENT + 7, GROUP, 1, 4);
                if (rm_channels() > before || rm_bench.count > 1)
                        _exit(2);
                if (libcuda_controls(7, CLIENT + 7, GROUP + 1, true) != 0 ||
                    libcuda_controls(7, CLIENT + 7, GROUP + 1, false) != 0 ||
                    rm_stands(CLIENT + 7, GROUP + 1))
                        _exit(3);
                _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_standing(), 0);
}

/* A thaw that fails at one unknown channel would leave the program frozen for ever. */
static void a_lost_channel_does_not_keep_the_others_frozen(void **state)
{
        made_client(5, CLIENT);
        made_client(6, CLIENT + 1);
        made_group(5, CLIENT, GROUP, 1, 4);
        made_group(6, CLIENT + 1, GROUP, 1, 4);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_standing(), 8);
        rm_loses(CLIENT + 1, GROUP + 1);
        (void)rm_thaw();
        (void)rm_thaw();
        assert_int_equal(rm_standing(), 0);
}

/* The result 0 means that no channel runs, however many descriptors are closed. */
static void the_remaining_channels_freeze_after_descriptors_were_closed(void **state)
{
        const uint32_t clients = 60;
        int r;

        for (uint32_t i = 0; i < clients; i++) {
                int fd = i == clients - 1 ? 6 : 5;

                made_client(fd, CLIENT + i);
                made_group(fd, CLIENT + i, GROUP, 1, 1);
        }
        rm_bench.closed = 5;
        for (uint32_t i = 0; i < clients - 1; i++)
                rm_loses(CLIENT + i, CLIENT + i);
        r = rm_freeze();
        assert_int_equal(r == 0 ? rm_standing() : rm_known(), rm_known());
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                RM_TEST(a_process_without_channels_freezes_at_once),
                RM_TEST(all_channels_of_the_program_freeze_and_thaw),
                RM_TEST(a_slice_is_for_the_groups_of_the_program_that_compute),
                RM_TEST(freezing_twice_is_freezing_once),
                RM_TEST(freed_channels_are_not_named_to_rm),
                RM_TEST(channels_whose_free_failed_stay_in_the_ledger),
                RM_TEST(each_client_and_gpu_has_calls_of_its_own),
                RM_TEST(more_channels_than_one_call_takes_need_several_calls),
                RM_TEST(no_channel_is_frozen_if_the_ledger_has_overflowed),
                RM_TEST(the_movers_channels_run_on),
                RM_TEST(a_channel_made_during_a_freeze_is_frozen_at_once),
                RM_TEST(a_refusal_is_an_error),
                RM_TEST(a_refused_thaw_is_repeated_for_all_channels),
                RM_TEST(a_thaw_refused_for_good_returns_the_reason),
                RM_TEST(a_sandbox_that_forbids_the_call_is_an_error),
                RM_TEST(a_program_on_an_unknown_driver_is_not_frozen),
                RM_TEST(a_channel_that_rm_has_freed_is_left_out),
                RM_TEST(a_channel_that_rm_has_freed_keeps_no_other_frozen),
                RM_TEST(a_freeze_without_its_subdevice_fails),
                RM_TEST(channels_of_a_closed_descriptor_are_gone),
                RM_TEST(a_child_after_fork_has_no_channels_and_records_none),
                RM_TEST(a_lost_channel_does_not_keep_the_others_frozen),
                RM_TEST(the_remaining_channels_freeze_after_descriptors_were_closed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
