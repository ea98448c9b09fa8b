/* test_freeze.c: the conditions for freezing a program, freezing and thawing, and the outcome of a
 * freeze that goes wrong. The tables of channels, the file of results and the watchdog are real; a
 * test sets the answers of the self-test and the mover. Each test is a process of its own, because
 * freezing that is turned off stays off. */
#include "unit.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/freeze/freeze.h"
#include "base/freeze_known.h"
#include "preload/freeze/freeze_test.h"
#include "preload/stream/gate.h"
#include "preload/freeze/mover.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "rm_bench.h"

#define CLIENT 0xc1d00001u
#define GROUP  0x5c000100u
#define DRIVER "580.159.04"

static struct context contexts[2] = {{.handle = (CUcontext)(uintptr_t)0xc0},
                                     {.handle = (CUcontext)(uintptr_t)0xc1}};
static char folder[64], log_text[8192];
static FILE *log_file;
static int true_stderr;
static _Atomic uint64_t skew_ns; /* time by which the fake clock is ahead */

/* The results of the self-test and the canaries. */
static enum freeze_result test_results[2];
static int test_error;
static bool driver_counts = true; /* what the self-test says of RM */
static unsigned tests_run, kept;
static bool context_ends;
static CUresult canary_error;
/* The number of canaries that fail with canary_error. */
static unsigned errors_left = UINT_MAX;
static unsigned canaries, waits; /* waits: number of canaries that wait for a thaw */
static void (*in_canary)(void);
static unsigned looks; /* number of checks that find a thread looking up addresses */

int clock_gettime(clockid_t which, struct timespec *ret)
{
        int r = (int)syscall(SYS_clock_gettime, which, ret);
        uint64_t ns = (uint64_t)ret->tv_sec * NSEC_PER_SEC + (uint64_t)ret->tv_nsec + skew_ns;

        ret->tv_sec = (time_t)(ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(ns % NSEC_PER_SEC);
        return r;
}

/* ---- fakes of other modules ---- */

bool core_keep_context(struct gpu *g)
{
        kept += !context_ends;
        return !context_ends;
}

void core_let_context(struct gpu *g)
{
        kept--;
}

enum freeze_result freeze_test(CUcontext context, int *ret_error, bool *ret_counts)
{
        want_no_lock();
        assert_int_equal(kept, 1);
        tests_run++;
        *ret_error = test_error;
        *ret_counts = driver_counts;
        return test_results[context == contexts[1].handle];
}

bool gate_anybody_looks(void)
{
        want_no_lock();
        return looks > 0 && looks-- > 0;
}

CUresult mover_canary(struct mover *m, void (*told)(const char *call))
{
        const struct timespec nap = {.tv_nsec = NSEC_PER_MSEC};

        want_no_lock();
        canaries++;
        told("cuMemUnmap");
        if (in_canary)
                in_canary();
        if (waits > 0) { /* a thread of the frozen program holds a lock of libcuda */
                waits--;
                while (rm_is_frozen())
                        (void)nanosleep(&nap, NULL);
        }
        if (errors_left == 0)
                return CUDA_SUCCESS;
        errors_left -= errors_left != UINT_MAX;
        return canary_error;
}

/* ---- a process ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
        return remove(path);
}

static void give_context(unsigned i)
{
        struct gpu *g = &core.gpus[i];

        g->context = &contexts[i];
        g->mover = (struct mover *)(uintptr_t)0xd0;
        g->uuid[0] = (uint8_t)(i + 1);
}

static int begin(void **state)
{
        (void)strcpy(folder, "/tmp/test_freeze.XXXXXX");
        if (!mkdtemp(folder) || begin_rm(state) < 0)
                return -1;
        (void)setenv("XDG_CACHE_HOME", folder, 1);
        true_stderr = dup(STDERR_FILENO);
        log_file = tmpfile();
        if (!log_file || dup2(fileno(log_file), STDERR_FILENO) < 0)
                return -1;
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1};
        for (unsigned i = 0; i < ARRAY_SIZE(core.gpus); i++)
                core.gpus[i].index = i;
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 8);
        lock_acquire(&core_lock);
        return 0;
}

static const char *said(void)
{
        ssize_t n = pread(fileno(log_file), log_text, sizeof(log_text) - 1, 0);

        log_text[MAX(n, (ssize_t)0)] = '\0';
        return log_text;
}

static int end(void **state)
{
        (void)dup2(true_stderr, STDERR_FILENO); /* cmocka may still have buffered output */
        return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void begin_mode(const char *mode)
{
        (void)setenv("SUBLET_FREEZE", mode, 1);
        freeze_setup();
        give_context(0);
}

/* Begins with a GPU that another process has tested with success. */
static void begin_ready(const char *mode)
{
        begin_mode(mode);
        freeze_learn(DRIVER, core.gpus[0].uuid, FREEZE_WORKS, "");
        assert_false(freeze_prepare(true));
        assert_true(freeze_is_ready());
        assert_int_equal(tests_run, 0);
}

static unsigned times_said(const char *what)
{
        unsigned n = 0;

        for (const char *at = said(); (at = strstr(at, what)); at++)
                n++;
        return n;
}

static enum freeze_known known(unsigned i)
{
        char why[FREEZE_WHY_MAX];

        return freeze_known(DRIVER, core.gpus[i].uuid, why);
}

static unsigned is_mode(const char *mode)
{
        return strcmp(getenv("SUBLET_FREEZE"), mode) == 0;
}

static void check_off(const char *why)
{
        assert_int_equal(freeze_mode(), WIRE_FREEZE_OFF);
        assert_string_equal(freeze_off(), why);
        assert_false(freeze_is_ready());
        assert_false(freeze_begin());
        assert_false(freeze_stands());
        assert_int_equal(rm_standing(), 0);
        /* In mode "move" the reason is printed once. In other modes the person who pauses the
         * program is told the reason. */
        assert_int_equal(times_said("this program is not frozen on the GPU"), is_mode("move"));
        assert_int_equal(times_said(why), is_mode("move"));
}

/* ---- what the user requests ---- */

static void by_default_a_program_is_frozen_to_give_way(void **state)
{
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
        (void)unsetenv("SUBLET_FREEZE");
        freeze_setup();
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
        (void)setenv("SUBLET_FREEZE", "", 1);
        freeze_setup();
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
        assert_string_equal(freeze_off(), "");
        assert_string_equal(said(), "");
}

static void freezing_that_was_not_requested_is_turned_off_silently(void **state)
{
        (void)setenv("SUBLET_FREEZE", "", 1);
        (void)setenv("CUDA_INJECTION64_PATH", "/lib/libprofiler.so", 1);
        freeze_setup();
        assert_int_equal(freeze_mode(), WIRE_FREEZE_OFF);
        assert_string_not_equal(freeze_off(), "");
        assert_string_equal(said(), "");
        (void)unsetenv("CUDA_INJECTION64_PATH");
}

static void each_word_of_the_variable_sets_its_mode(void **state)
{
        (void)setenv("SUBLET_FREEZE", "move", 1);
        freeze_setup();
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
        (void)setenv("SUBLET_FREEZE", "park", 1);
        freeze_setup();
        assert_int_equal(freeze_mode(), WIRE_FREEZE_PARK);
        (void)setenv("SUBLET_FREEZE", "off", 1);
        freeze_setup();
        assert_int_equal(freeze_mode(), WIRE_FREEZE_OFF);
        assert_string_equal(freeze_off(), ""); /* off on request needs no reason */
        assert_string_equal(said(), "");
}

static void an_unknown_word_is_reported_and_the_default_holds(void **state)
{
        (void)setenv("SUBLET_FREEZE", "Move", 1);
        freeze_setup();
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
        assert_int_equal(times_said("SUBLET_FREEZE is off, park or move, not 'Move': move applies"),
                         1);
}

static void with_freezing_off_there_is_no_test_and_no_freeze(void **state)
{
        begin_mode("off");
        assert_false(freeze_is_ready());
        assert_false(freeze_prepare(true));
        assert_int_equal(tests_run, 0);
        assert_false(freeze_begin());
        assert_int_equal(rm_bench.count, 0);
}

static void the_owner_of_the_machine_may_allow_less(void **state)
{
        static const char *const off = "the daemon's configuration says freeze = off";

        begin_ready("move");
        freeze_allow(WIRE_FREEZE_PARK);
        assert_int_equal(freeze_mode(), WIRE_FREEZE_PARK);
        assert_string_equal(freeze_off(), "");
        assert_true(freeze_is_ready());
        freeze_allow(WIRE_FREEZE_OFF);
        assert_int_equal(freeze_mode(), WIRE_FREEZE_OFF);
        assert_string_equal(freeze_off(), off);
        assert_false(freeze_is_ready());
        assert_false(freeze_prepare(true));
        assert_false(freeze_begin());
        freeze_allow(WIRE_FREEZE_MOVE); /* the daemon may raise its limit again */
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
        assert_string_equal(freeze_off(), "");
        assert_true(freeze_begin());
        freeze_allow(WIRE_FREEZE_OFF);
        assert_true(freeze_stands()); /* the program stays frozen until its memory is back */
        freeze_end();
        assert_int_equal(rm_standing(), 0);
        assert_string_equal(said(), "");
}

static void no_more_is_allowed_than_is_requested(void **state)
{
        begin_mode("park");
        freeze_allow(WIRE_FREEZE_MOVE);
        assert_int_equal(freeze_mode(), WIRE_FREEZE_PARK);
        begin_mode("off");
        freeze_allow(WIRE_FREEZE_OFF);
        assert_string_equal(freeze_off(), ""); /* the user has turned freezing off */
}

/* ---- for sublet doctor ---- */

static int ask_now(unsigned i, struct freeze_answer *ret)
{
        int r;

        lock_release(&core_lock);
        r = sublet_freeze_test(i, ret);
        lock_acquire(&core_lock);
        return r;
}

static void only_a_process_in_test_mode_tests_when_asked(void **state)
{
        struct freeze_answer a;

        begin_mode("park");
        assert_int_equal(ask_now(0, &a), -EPERM);
        assert_int_equal(tests_run, 0);
        begin_mode("test");
        assert_int_equal(freeze_mode(), WIRE_FREEZE_OFF); /* the agent must not freeze or thaw */
        assert_int_equal(ask_now(1, &a), -ENXIO);         /* GPU 1 has no context */
        assert_int_equal(ask_now(GPUS_MAX, &a), -ENXIO);
        assert_int_equal(tests_run, 0);
        assert_int_equal(ask_now(0, &a), 0);
        assert_int_equal(tests_run, 1);
        assert_string_equal(said(), "");
}

static void doctor_tests_although_a_result_is_known(void **state)
{
        struct freeze_answer a;

        begin_mode("test");
        freeze_learn(DRIVER, core.gpus[0].uuid, FREEZE_FAILS, "it had failed");
        assert_int_equal(ask_now(0, &a), 0);
        assert_string_equal(a.driver, DRIVER);
        assert_string_equal(a.why, "");
        assert_true(a.counts);
        assert_int_equal(a.known, FREEZE_FAILS);
        assert_string_equal(a.known_why, "it had failed");
        assert_int_equal(known(0), FREEZE_WORKS); /* the new result replaces the old one */
        test_results[0] = FREEZE_TEST_RAN_ON;
        assert_int_equal(ask_now(0, &a), -EIO);
        assert_string_equal(a.why, "a kernel ran on although the kernel driver had stopped it");
        assert_int_equal(a.known, FREEZE_WORKS);
        assert_int_equal(known(0), FREEZE_FAILS);
        assert_int_equal(tests_run, 2);
}

static void a_test_that_tells_nothing_changes_nothing(void **state)
{
        static const struct {
                enum freeze_result result;
                int error, answer;
        } cases[] = {{FREEZE_TEST_BUSY, 0, -EBUSY},
                     {FREEZE_TEST_NO_KERNEL, 0, -ENOEXEC},
                     {FREEZE_TEST_NO_CHANNEL, 0, -ENODEV},
                     {FREEZE_TEST_REFUSED, -EPERM, -EPERM},
                     {FREEZE_TEST_REFUSED, -ETIMEDOUT, -ETIMEDOUT}};
        struct freeze_answer a;

        begin_mode("test");
        freeze_learn(DRIVER, core.gpus[0].uuid, FREEZE_FAILS, "it had failed");
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                test_results[0] = cases[i].result;
                test_error = cases[i].error;
                assert_int_equal(ask_now(0, &a), cases[i].answer);
                assert_true(a.why[0]);
                assert_int_equal(known(0), FREEZE_FAILS);
        }
        context_ends = true;
        assert_int_equal(ask_now(0, &a), -EBUSY);
}

/* ---- the self-test ---- */

static void a_program_without_a_context_needs_no_test(void **state)
{
        (void)setenv("SUBLET_FREEZE", "move", 1);
        freeze_setup();
        assert_false(freeze_prepare(true));
        assert_true(freeze_is_ready());
        assert_int_equal(tests_run, 0);
        give_context(0);
        assert_false(freeze_is_ready());
        assert_false(freeze_begin());
}

static void the_self_test_runs_when_it_is_needed(void **state)
{
        begin_mode("park");
        assert_false(freeze_prepare(false));
        assert_int_equal(tests_run, 0);
        assert_false(freeze_prepare(true));
        assert_int_equal(tests_run, 1);
        assert_true(freeze_is_ready());
        assert_int_equal(kept, 0);
        assert_false(freeze_prepare(true));
        assert_int_equal(tests_run, 1);
        assert_int_equal(known(0), FREEZE_WORKS);
}

static void the_self_test_runs_early_if_freezing_replaces_the_drain(void **state)
{
        begin_mode("move");
        assert_false(freeze_prepare(false));
        assert_int_equal(tests_run, 1);
        assert_true(freeze_is_ready());
}

static void a_result_of_another_process_is_not_tested_again(void **state)
{
        begin_ready("move");
        assert_int_equal(trace_count("freeze_test"), 0);
}

/* The daemon's hand may act only where RM counts. */
static void the_self_test_tells_whether_the_hand_may_act(void **state)
{
        begin_mode("move");
        assert_false(freeze_is_shared());
        assert_false(freeze_prepare(true));
        assert_true(freeze_is_shared());
        core.gpu_count = 2;
        give_context(1); /* not tested yet */
        assert_false(freeze_is_shared());
        assert_false(freeze_prepare(true));
        assert_true(freeze_is_shared());
        freeze_allow(WIRE_FREEZE_OFF);
        assert_false(freeze_is_shared());
}

static void a_driver_that_does_not_count_still_freezes(void **state)
{
        driver_counts = false;
        begin_mode("move");
        assert_false(freeze_prepare(true));
        assert_int_equal(tests_run, 1);
        assert_true(freeze_is_ready());
        assert_false(freeze_is_shared());
        assert_int_equal(known(0), FREEZE_WORKS_ALONE);
        core.gpu_count = 2;
        give_context(1);
        freeze_learn(DRIVER, core.gpus[1].uuid, FREEZE_WORKS_ALONE, "");
        assert_false(freeze_prepare(true));
        assert_int_equal(tests_run, 1);
        assert_true(freeze_is_ready());
        assert_false(freeze_is_shared());
        assert_string_equal(said(), "");
}

static void freezing_that_failed_in_another_process_is_off(void **state)
{
        begin_mode("park");
        freeze_learn(DRIVER, core.gpus[0].uuid, FREEZE_FAILS,
                     "a kernel that was frozen did not go on");
        assert_false(freeze_prepare(true));
        assert_int_equal(tests_run, 0);
        check_off("a kernel that was frozen did not go on");
}

static void each_gpu_is_tested(void **state)
{
        core.gpu_count = 2;
        begin_mode("move");
        give_context(1);
        assert_false(freeze_prepare(true));
        assert_int_equal(tests_run, 2);
        assert_true(freeze_is_ready());
        assert_int_equal(known(1), FREEZE_WORKS);
}

static void one_gpu_that_fails_turns_freezing_off(void **state)
{
        core.gpu_count = 2;
        begin_mode("move");
        give_context(1);
        test_results[0] = FREEZE_TEST_RAN_ON;
        assert_false(freeze_prepare(true));
        assert_int_equal(tests_run, 1);
        check_off("a kernel ran on although the kernel driver had stopped it");
        assert_int_equal(known(1), FREEZE_NOT_KNOWN);
}

static void a_busy_gpu_is_tested_again_but_not_at_once(void **state)
{
        begin_mode("park");
        test_results[0] = FREEZE_TEST_BUSY;
        assert_true(freeze_prepare(true));
        assert_int_equal(tests_run, 1);
        assert_true(freeze_prepare(true));
        assert_int_equal(tests_run, 1);
        assert_false(freeze_is_ready());
        assert_int_equal(freeze_mode(), WIRE_FREEZE_PARK); /* there is no result yet */
        skew_ns = 3 * NSEC_PER_SEC;
        test_results[0] = FREEZE_TEST_PASSED;
        assert_false(freeze_prepare(true));
        assert_int_equal(tests_run, 2);
        assert_true(freeze_is_ready());
}

static void no_self_test_runs_in_a_context_that_ends(void **state)
{
        begin_mode("park");
        context_ends = true;
        assert_true(freeze_prepare(true));
        assert_int_equal(tests_run, 0);
        assert_int_equal(freeze_mode(), WIRE_FREEZE_PARK);
}

static void check_result(enum freeze_result result, int error, const char *why,
                         enum freeze_known learned)
{
        begin_mode("move");
        test_results[0] = result;
        test_error = error;
        assert_false(freeze_prepare(true));
        check_off(why);
        assert_int_equal(known(0), learned);
        assert_int_equal(times_said("(driver " DRIVER ")"), 1);
        assert_false(freeze_prepare(true));
        assert_int_equal(tests_run, 1);
}

static void a_kernel_that_ran_on_is_remembered(void **state)
{
        check_result(FREEZE_TEST_RAN_ON, 0,
                     "a kernel ran on although the kernel driver had stopped it", FREEZE_FAILS);
}

static void a_kernel_that_did_not_go_on_is_remembered(void **state)
{
        check_result(FREEZE_TEST_STOOD_STILL, 0, "a kernel that was frozen did not go on",
                     FREEZE_FAILS);
}

/* Such results depend on the process or its sandbox, so another process may get better ones. */
static void a_kernel_that_cannot_be_run_is_not_remembered(void **state)
{
        check_result(FREEZE_TEST_NO_KERNEL, 0, "the kernel of the self-test could not be run",
                     FREEZE_NOT_KNOWN);
}

static void a_process_without_channels_is_not_remembered(void **state)
{
        check_result(FREEZE_TEST_NO_CHANNEL, 0,
                     "it has no channels of its own, as under MPS or in WSL", FREEZE_NOT_KNOWN);
}

static void under_mps_freezing_is_off_whatever_is_known_of_the_gpu(void **state)
{
        begin_ready("move");
        freeze_look(&core.gpus[0]);
        assert_string_equal(freeze_off(), "");
        core.gpus[0].mps = true;
        freeze_look(&core.gpus[0]);
        core.gpus[0].mps = false;
        check_off("it has no channels of its own, as under MPS or in WSL");
}

static void freezing_stays_off_for_the_first_reason(void **state)
{
        (void)setenv("CUDA_INJECTION64_PATH", "/lib/libprofiler.so", 1);
        begin_mode("move");
        (void)unsetenv("CUDA_INJECTION64_PATH");
        core.gpus[0].mps = true;
        freeze_look(&core.gpus[0]);
        check_off("a profiler is attached to it (CUDA_INJECTION64_PATH)");
}

static void a_sandbox_that_refuses_is_not_remembered(void **state)
{
        check_result(FREEZE_TEST_REFUSED, -EPERM,
                     "the kernel driver or a sandbox does not allow it", FREEZE_NOT_KNOWN);
}

/* ---- freezing and thawing ---- */

static void a_program_stays_frozen_until_it_is_thawed(void **state)
{
        const struct timespec nap = {.tv_nsec = 2 * NSEC_PER_MSEC};
        struct freeze_figures f;

        begin_ready("park");
        f = freeze_figures();
        assert_int_equal(f.for_ns + f.times + f.lost_ns + f.took_ns, 0);
        assert_true(freeze_begin());
        assert_true(freeze_stands() && rm_is_frozen());
        assert_int_equal(rm_standing(), 8);
        assert_true(freeze_begin());
        assert_int_equal(rm_bench.count, 1); /* the program was frozen already */
        (void)nanosleep(&nap, NULL);
        f = freeze_figures();
        assert_true(f.for_ns >= NSEC_PER_MSEC && f.took_ns > 0);
        assert_int_equal(f.times, 0);
        freeze_end();
        assert_false(freeze_stands() || rm_is_frozen());
        assert_int_equal(rm_standing(), 0);
        f = freeze_figures();
        assert_int_equal(f.for_ns, 0);
        assert_int_equal(f.times, 1);
        assert_true(f.lost_ns >= NSEC_PER_MSEC);
        freeze_end();
        assert_int_equal(freeze_figures().times, 1);
        assert_int_equal(trace_count("frozen"), 1);
        assert_int_equal(trace_count("thawed"), 1);
        assert_string_equal(said(), "");
}

static void no_self_test_runs_in_a_frozen_program(void **state)
{
        begin_ready("move");
        assert_true(freeze_begin());
        core.gpu_count = 2;
        give_context(1);
        assert_false(freeze_prepare(true));
        assert_int_equal(tests_run, 0);
}

static void check_refusal(uint32_t status, const char *why)
{
        begin_ready("move");
        rm_bench.refuses = status;
        assert_false(freeze_begin());
        rm_bench.refuses = 0;
        assert_false(rm_bench.calls[rm_bench.count - 1].disable); /* the last call was a thaw */
        check_off(why);
}

static void a_driver_that_offers_no_freeze_turns_freezing_off(void **state)
{
        check_refusal(0x56, "the kernel driver does not offer it");
}

static void a_freeze_that_takes_too_long_turns_freezing_off(void **state)
{
        check_refusal(0x65, "the GPU did not let go of the program in time");
}

static void a_freeze_that_fails_turns_freezing_off(void **state)
{
        check_refusal(0x40, "the kernel driver refused it");
}

static void an_unknown_driver_turns_freezing_off(void **state)
{
        begin_ready("move");
        (void)say_version("999.1");
        assert_false(freeze_begin());
        (void)say_version(DRIVER);
        check_off("this release of sublet does not know the driver's calls");
}

static void a_thaw_is_tried_until_it_works(void **state)
{
        begin_ready("park");
        assert_true(freeze_begin());
        rm_bench.unrefuses = 0x65;
        rm_bench.refusals = 20;
        freeze_end();
        assert_int_equal(rm_standing(), 0);
        assert_string_equal(said(), "");
}

static void a_program_that_cannot_be_thawed_prints_a_message(void **state)
{
        begin_ready("park");
        assert_true(freeze_begin());
        rm_bench.unrefuses = 0x65;
        freeze_end();
        assert_int_equal(times_said("this program was frozen on the GPU and cannot go on: the GPU "
                                    "did not let go of the program in time (driver " DRIVER
                                    "); start it again with SUBLET_FREEZE=off"),
                         1);
}

/* ---- canaries ---- */

static void memory_may_leave_when_the_movers_calls_have_ended(void **state)
{
        core.gpu_count = 2;
        begin_ready("move");
        give_context(1);
        assert_false(freeze_prepare(true));
        assert_true(freeze_begin());
        assert_true(freeze_confirm());
        assert_true(canaries >= 2); /* at least one canary on each GPU */
        assert_true(freeze_stands() && rm_standing() == 8);
        freeze_end();
        assert_int_equal(rm_standing(), 0);
}

static void a_canary_that_waits_for_the_program_has_it_thawed_briefly(void **state)
{
        begin_ready("move");
        assert_true(freeze_begin());
        waits = 1;
        assert_true(freeze_confirm());
        assert_true(trace_count("freeze_late") >= 1);
        assert_true(canaries >= 2);
        assert_true(freeze_stands() && rm_is_frozen());
        assert_int_equal(rm_standing(), 8);
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
        assert_string_equal(said(), "");
}

/* The library cannot tell which calls block a canary, so each try lasts twice as long. */
static void canaries_that_keep_waiting_have_the_program_drained(void **state)
{
        uint64_t began = clock_now_ns();

        begin_ready("move");
        for (unsigned turn = 1; turn <= 3; turn++) {
                assert_true(freeze_begin());
                waits = 100;
                canaries = 0;
                assert_false(freeze_confirm());
                assert_int_equal(canaries, 5);
                assert_false(freeze_stands());
                assert_int_equal(rm_standing(), 0);
                assert_true(clock_now_ns() - began >=
                            turn * (20 + 40 + 80 + 160 + 320) * NSEC_PER_MSEC);
                if (turn < 3) {
                        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
                        assert_true(freeze_is_ready());
                }
        }
        check_off("calls of the program keep its memory from being moved");
        assert_int_equal(known(0), FREEZE_WORKS); /* the program is the cause, not the GPU */
}

/* The fake gate reports a thread in a driver call that looks up addresses. Such a call would take
 * the address of absent memory for a host address. */
static void memory_stays_while_a_call_looks_up_addresses(void **state)
{
        begin_ready("move");
        assert_true(freeze_begin());
        looks = 2;
        assert_true(freeze_confirm());
        assert_int_equal(trace_count("freeze_late"), 2);
        assert_true(freeze_stands() && rm_standing() == 8);
        freeze_end();
        assert_true(freeze_begin());
        looks = 100;
        assert_false(freeze_confirm());
        assert_int_equal(rm_standing(), 0);
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
}

static void a_canarys_copy_is_awaited_while_the_program_runs(void **state)
{
        begin_ready("move");
        assert_true(freeze_begin());
        canary_error = CUDA_ERROR_NOT_READY;
        assert_false(freeze_confirm());
        assert_int_equal(canaries, 5);
        assert_int_equal(trace_count("freeze_late"), 5);
        assert_int_equal(rm_standing(), 0);
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
        canary_error = CUDA_SUCCESS;
        assert_true(freeze_begin());
        assert_true(freeze_confirm());
}

static void a_canary_that_fails_is_tried_again_at_once(void **state)
{
        begin_ready("move");
        assert_true(freeze_begin());
        canary_error = CUDA_ERROR_OUT_OF_MEMORY;
        errors_left = 4;
        assert_true(freeze_confirm());
        assert_int_equal(canaries, 5);
        assert_true(freeze_stands() && rm_standing() == 8);
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
        assert_string_equal(said(), "");
}

/* Freezes the program for a hand-off, whose canaries fail. */
static void hand_off_that_fails(CUresult error)
{
        assert_true(freeze_begin());
        canary_error = error;
        errors_left = UINT_MAX;
        assert_false(freeze_confirm());
        assert_false(freeze_stands());
        assert_int_equal(rm_standing(), 0);
        errors_left = 0;
}

static void hand_off(void)
{
        errors_left = 0;
        assert_true(freeze_begin());
        assert_true(freeze_confirm());
        freeze_end();
}

static void canaries_that_keep_failing_have_the_program_drained(void **state)
{
        begin_ready("move");
        for (unsigned turn = 1; turn <= 3; turn++) {
                assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
                assert_true(freeze_is_ready());
                hand_off_that_fails(CUDA_ERROR_UNKNOWN);
        }
        check_off("its memory could not be moved by a second context");
        assert_int_equal(known(0), FREEZE_WORKS);
}

/* Otherwise a program that runs for weeks would once be drained for ever. */
static void failures_with_successes_between_them_do_not_add_up(void **state)
{
        begin_ready("move");
        for (unsigned day = 0; day < 7; day++) {
                hand_off_that_fails(CUDA_ERROR_UNKNOWN);
                hand_off_that_fails(CUDA_ERROR_NOT_READY);
                hand_off();
        }
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
        assert_string_equal(freeze_off(), "");
}

static void pass(uint64_t seconds)
{
        skew_ns += seconds * NSEC_PER_SEC;
}

/* The first half is much longer than the test itself takes. */
static void check_off_for(uint64_t seconds)
{
        assert_int_equal(freeze_mode(), WIRE_FREEZE_OFF);
        assert_string_not_equal(freeze_off(), "");
        pass(seconds / 2);
        assert_int_equal(freeze_mode(), WIRE_FREEZE_OFF);
        pass(seconds - seconds / 2);
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
        assert_string_equal(freeze_off(), "");
        assert_true(freeze_is_ready());
}

static void freezing_that_was_off_is_tried_again_after_ever_longer_times(void **state)
{
        begin_ready("move");
        for (unsigned turn = 0; turn < 3; turn++)
                hand_off_that_fails(CUDA_ERROR_UNKNOWN);
        for (uint64_t seconds = 10; seconds <= 640; seconds *= 2) {
                check_off_for(seconds);
                hand_off_that_fails(CUDA_ERROR_UNKNOWN); /* a single failure is enough now */
        }
        check_off_for(640);
        hand_off();
        for (unsigned turn = 0; turn < 3; turn++)
                hand_off_that_fails(CUDA_ERROR_UNKNOWN);
        check_off_for(10); /* the success has ended the row of failures */
        assert_int_equal(times_said("this program is not frozen on the GPU"), 1);
}

static void a_freeze_that_took_too_long_is_tried_again(void **state)
{
        begin_ready("move");
        rm_bench.refuses = 0x65;
        assert_false(freeze_begin());
        rm_bench.refuses = 0;
        check_off_for(10);
        hand_off();
}

static void a_freeze_that_is_forbidden_is_not_tried_again(void **state)
{
        begin_ready("move");
        rm_bench.refuses = 0x1b;
        assert_false(freeze_begin());
        rm_bench.refuses = 0;
        pass(1000000);
        check_off("the kernel driver or a sandbox does not allow it");
}

/* ---- the watchdog ---- */

static void without_its_watchdog_a_program_is_not_frozen(void **state)
{
        begin_mode("move");
        freeze_learn(DRIVER, core.gpus[0].uuid, FREEZE_WORKS, "");
        thread_error = EAGAIN;
        assert_false(freeze_prepare(true));
        check_off("its watchdog thread cannot be started");
        pass(10);
        thread_error = 0;
        assert_false(freeze_is_ready());
        assert_false(freeze_begin());
        assert_false(freeze_prepare(true));
        assert_true(freeze_is_ready());
        waits = 1; /* the watchdog works */
        hand_off();
        assert_int_equal(threads_started, 1);
}

static void refuse_from_now_on(void)
{
        rm_bench.refuses = 0x65;
}

static void a_program_that_cannot_be_frozen_again_runs_on(void **state)
{
        begin_ready("move");
        assert_true(freeze_begin());
        waits = 1;
        in_canary = refuse_from_now_on;
        assert_false(freeze_confirm());
        rm_bench.refuses = 0;
        check_off("the GPU did not let go of the program in time");
}

static void call_off(void)
{
        lock_acquire(&core_lock);
        freeze_end();
        lock_release(&core_lock);
}

static void a_freeze_called_off_in_the_middle_leaves_the_program_running(void **state)
{
        begin_ready("move");
        for (unsigned late = 0; late < 2; late++) {
                assert_true(freeze_begin());
                in_canary = call_off;
                waits = late;
                assert_false(freeze_confirm());
                assert_false(freeze_stands() || rm_is_frozen());
                assert_int_equal(rm_standing(), 0);
                assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
        }
        in_canary = NULL;
        assert_true(freeze_begin());
        assert_true(freeze_confirm());
}

static void call_off_when_it_is_late(void)
{
        const struct timespec nap = {.tv_nsec = NSEC_PER_MSEC};

        while (rm_is_frozen())
                (void)nanosleep(&nap, NULL);
        call_off();
}

static void a_freeze_called_off_late_does_not_freeze_again(void **state)
{
        begin_ready("move");
        assert_true(freeze_begin());
        in_canary = call_off_when_it_is_late;
        assert_false(freeze_confirm());
        assert_int_equal(canaries, 1);
        assert_false(freeze_stands() || rm_is_frozen());
        assert_int_equal(freeze_mode(), WIRE_FREEZE_MOVE);
}

/* ---- calls that met absent memory ---- */

static bool again(CUresult r)
{
        bool once = false, more, result;

        lock_release(&core_lock); /* threads of the program do not hold it */
        result = freeze_call_again(r, &once);
        assert_int_equal(result, once);
        more = freeze_call_again(r, &once);
        assert_false(more);
        lock_acquire(&core_lock);
        return result;
}

static void a_call_that_met_absent_memory_is_repeated(void **state)
{
        begin_ready("move");
        assert_false(again(CUDA_ERROR_INVALID_VALUE));
        assert_true(freeze_begin());
        assert_false(again(CUDA_ERROR_INVALID_VALUE)); /* no memory has left yet */
        assert_true(freeze_confirm());
        assert_true(again(CUDA_ERROR_INVALID_VALUE));
        freeze_end();
        assert_true(again(CUDA_ERROR_INVALID_VALUE));
        assert_true(again(CUDA_ERROR_INVALID_HANDLE));
        assert_true(again(CUDA_ERROR_NOT_MAPPED));
        assert_false(again(CUDA_SUCCESS));
        assert_false(again(CUDA_ERROR_OUT_OF_MEMORY));
        assert_false(again(CUDA_ERROR_NOT_READY));
        assert_false(again(CUDA_ERROR_LAUNCH_FAILED));
        assert_false(again(CUDA_ERROR_ILLEGAL_ADDRESS)); /* an error of a kernel of the program */
        skew_ns = 500 * NSEC_PER_MSEC;
        assert_true(again(CUDA_ERROR_INVALID_VALUE));
        skew_ns = 1500 * NSEC_PER_MSEC;
        assert_false(again(CUDA_ERROR_INVALID_VALUE));
}

static void no_call_is_repeated_if_memory_never_moves(void **state)
{
        begin_ready("park");
        assert_true(freeze_begin());
        assert_false(again(CUDA_ERROR_INVALID_VALUE));
        freeze_end();
        assert_false(again(CUDA_ERROR_INVALID_VALUE));
}

/* ---- a context that failed ---- */

static void a_failure_long_after_a_freeze_is_not_blamed_on_it(void **state)
{
        begin_ready("park");
        freeze_blame(&core.gpus[0], CUDA_ERROR_LAUNCH_FAILED); /* the program was never frozen */
        assert_true(freeze_begin());
        freeze_end();
        skew_ns = 1500 * NSEC_PER_MSEC;
        freeze_blame(&core.gpus[0], CUDA_ERROR_LAUNCH_FAILED);
        assert_int_equal(freeze_mode(), WIRE_FREEZE_PARK);
        assert_int_equal(known(0), FREEZE_WORKS);
        assert_string_equal(said(), "");
}

static void a_failure_right_after_a_freeze_turns_freezing_off_for_all(void **state)
{
        begin_ready("park");
        assert_true(freeze_begin());
        freeze_end();
        freeze_blame(&core.gpus[0], CUDA_ERROR_LAUNCH_FAILED);
        freeze_blame(&core.gpus[0], CUDA_ERROR_LAUNCH_FAILED);
        assert_int_equal(known(0), FREEZE_FAILS);
        assert_int_equal(times_said("GPU 0 failed (CUDA error 719) right after"), 1);
        assert_int_equal(times_said("sublet doctor"), 1);
        check_off("a program failed right after it had been frozen");
}

static void a_program_that_fails_while_frozen_is_thawed_all_the_same(void **state)
{
        begin_ready("park");
        assert_true(freeze_begin());
        freeze_blame(&core.gpus[0], CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_int_equal(known(0), FREEZE_FAILS);
        assert_int_equal(freeze_mode(), WIRE_FREEZE_OFF);
        assert_true(freeze_stands()); /* the program's memory may be evicted */
        freeze_end();
        assert_int_equal(rm_standing(), 0);
}

static void no_part_of_a_program_stays_frozen_after_a_failed_freeze(void **state)
{
        begin_ready("park");
        made_client(6, CLIENT + 1);
        made_group(6, CLIENT + 1, GROUP, 1, 8);
        rm_loses(CLIENT + 1, SUBDEVICE); /* the second call names an object that does not exist */
        assert_false(freeze_begin());
        assert_int_equal(rm_standing(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

static const struct CMUnitTest tests[] = {
        TEST(by_default_a_program_is_frozen_to_give_way),
        TEST(freezing_that_was_not_requested_is_turned_off_silently),
        TEST(each_word_of_the_variable_sets_its_mode),
        TEST(an_unknown_word_is_reported_and_the_default_holds),
        TEST(with_freezing_off_there_is_no_test_and_no_freeze),
        TEST(the_owner_of_the_machine_may_allow_less),
        TEST(no_more_is_allowed_than_is_requested),
        TEST(only_a_process_in_test_mode_tests_when_asked),
        TEST(doctor_tests_although_a_result_is_known),
        TEST(a_test_that_tells_nothing_changes_nothing),
        TEST(a_program_without_a_context_needs_no_test),
        TEST(the_self_test_runs_when_it_is_needed),
        TEST(the_self_test_runs_early_if_freezing_replaces_the_drain),
        TEST(a_result_of_another_process_is_not_tested_again),
        TEST(the_self_test_tells_whether_the_hand_may_act),
        TEST(a_driver_that_does_not_count_still_freezes),
        TEST(freezing_that_failed_in_another_process_is_off),
        TEST(each_gpu_is_tested),
        TEST(one_gpu_that_fails_turns_freezing_off),
        TEST(a_busy_gpu_is_tested_again_but_not_at_once),
        TEST(no_self_test_runs_in_a_context_that_ends),
        TEST(a_kernel_that_ran_on_is_remembered),
        TEST(a_kernel_that_did_not_go_on_is_remembered),
        TEST(a_kernel_that_cannot_be_run_is_not_remembered),
        TEST(a_process_without_channels_is_not_remembered),
        TEST(under_mps_freezing_is_off_whatever_is_known_of_the_gpu),
        TEST(freezing_stays_off_for_the_first_reason),
        TEST(a_sandbox_that_refuses_is_not_remembered),
        TEST(a_program_stays_frozen_until_it_is_thawed),
        TEST(no_self_test_runs_in_a_frozen_program),
        TEST(a_driver_that_offers_no_freeze_turns_freezing_off),
        TEST(a_freeze_that_takes_too_long_turns_freezing_off),
        TEST(a_freeze_that_fails_turns_freezing_off),
        TEST(an_unknown_driver_turns_freezing_off),
        TEST(a_thaw_is_tried_until_it_works),
        TEST(a_program_that_cannot_be_thawed_prints_a_message),
        TEST(memory_may_leave_when_the_movers_calls_have_ended),
        TEST(a_canary_that_waits_for_the_program_has_it_thawed_briefly),
        TEST(canaries_that_keep_waiting_have_the_program_drained),
        TEST(memory_stays_while_a_call_looks_up_addresses),
        TEST(a_canarys_copy_is_awaited_while_the_program_runs),
        TEST(a_canary_that_fails_is_tried_again_at_once),
        TEST(canaries_that_keep_failing_have_the_program_drained),
        TEST(failures_with_successes_between_them_do_not_add_up),
        TEST(freezing_that_was_off_is_tried_again_after_ever_longer_times),
        TEST(a_freeze_that_took_too_long_is_tried_again),
        TEST(a_freeze_that_is_forbidden_is_not_tried_again),
        TEST(without_its_watchdog_a_program_is_not_frozen),
        TEST(a_program_that_cannot_be_frozen_again_runs_on),
        TEST(a_freeze_called_off_in_the_middle_leaves_the_program_running),
        TEST(a_freeze_called_off_late_does_not_freeze_again),
        TEST(a_call_that_met_absent_memory_is_repeated),
        TEST(no_call_is_repeated_if_memory_never_moves),
        TEST(a_failure_long_after_a_freeze_is_not_blamed_on_it),
        TEST(a_failure_right_after_a_freeze_turns_freezing_off_for_all),
        TEST(a_program_that_fails_while_frozen_is_thawed_all_the_same),
        TEST(no_part_of_a_program_stays_frozen_after_a_failed_freeze),
};

int main(void)
{
        int failed = 0;

        for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
                int status = 0;
                pid_t child = fork();

                if (child == 0)
                        exit(_cmocka_run_group_tests(tests[i].name, &tests[i], 1, NULL, NULL));
                if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
                        failed++;
        }
        return failed > 0;
}
