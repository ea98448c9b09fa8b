/* test_torture.c: torture evicts a program's memory only to see whether the program notices. Its
 * steps come in order, and every waiting thread continues. */
#include "unit.h"

#include <errno.h>

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/agent/agent_state.h"
#include "preload/extra/torture.h"
#include "preload/state/daemon.h"
#include "preload/stream/gate.h"

#define PATIENCE_MIN (20 * NSEC_PER_MSEC)
#define PATIENCE_MAX (100 * NSEC_PER_MSEC)

static struct gpu *const gpu = &core.gpus[0];
static uint64_t now_ns;
static unsigned waits;

int clock_gettime(clockid_t which, struct timespec *ret)
{
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

/* Makes a running program with 512 MiB on its first GPU. */
static int begin(void **state)
{
        torture_cancel();
        core.running = false;
        atomic_store(&gate_bits, GATE_TORTURE);
        torture_step(now_ns); /* drops a request that has not begun */
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1, .running = true, .lease = 7};
        agent = (struct agent_state){.started = true};
        daemon_line.link = LINK_UP;
        gpu->own_limit = UINT64_MAX;
        gpu->heap.backed = 512 * MIB;
        now_ns = 1000 * NSEC_PER_SEC;
        own_drains = (struct drains){.freeze = true};
        waits = 0;
        request_kicks = 0;
        meanwhile = NULL;
        fake_capturing = false;
        atomic_store(&gate_bits, 0);
        trace_reset();
        return 0;
}

static void torture_as(const char *text)
{
        assert_int_equal(text ? setenv("SUBLET_TORTURE", text, 1) : unsetenv("SUBLET_TORTURE"), 0);
        atomic_store(&gate_bits, 0);
        torture_setup();
}

static bool is_on(void)
{
        return atomic_load(&gate_bits) & GATE_TORTURE;
}

/* ---- settings ---- */

static void only_a_valid_setting_turns_torture_on(void **state)
{
        static const char *const bad[] = {
                "x",
                "-1",
                "1,",
                "1,calls",
                "1,calls=",
                "1,calls=x",
                "1,every=",
                "1,every=5",
                "1,every=0s0",
                "1,other=1",
                ",calls=1",
                "1,calls=1,x",
                "1,calls=x,every=1ms",
        };

        char text[100];

        torture_as(NULL);
        assert_false(is_on());
        torture_as("");
        assert_false(is_on());
        for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
                torture_as(bad[i]);
                assert_false(is_on());
        }
        torture_step(now_ns);
        assert_int_equal(own_drains.begun, 0);
        torture_as("1");
        assert_true(is_on());
        torture_as("18446744073709551615,every=3ms,calls=7");
        assert_true(is_on());
        /* The longest text that is accepted. */
        (void)snprintf(text, sizeof(text), "1,calls=%071u", 1);
        torture_as(text);
        assert_true(is_on());
        (void)snprintf(text, sizeof(text), "1,calls=%072u", 1);
        torture_as(text);
        assert_false(is_on());
}

/* ---- moments that the agent chooses ---- */

static void torture_drains_periodically_unless_every_is_0(void **state)
{
        torture_as("1,every=0");
        assert_int_equal(torture_next_ns(), UINT64_MAX);
        torture_step(now_ns);
        assert_int_equal(own_drains.begun, 0);
        torture_as("1,every=10ms");
        assert_int_equal(torture_next_ns(), 0);
        core.running = false;
        /* A program that does not run has nothing to evict. */
        assert_int_equal(torture_next_ns(), UINT64_MAX);
        core.running = true;
        torture_step(now_ns);
        assert_int_equal(own_drains.begun, 1);
        assert_true((torture_own() != OWN_NONE));
        assert_int_equal(torture_next_ns(), UINT64_MAX);
        torture_step(now_ns + NSEC_PER_SEC); /* only one drain at a time */
        assert_int_equal(own_drains.begun, 1);
}

/* Each round drains, evicts, restores, and rests for at least as long as all this took. */
static void torture_evicts_and_restores_memory_periodically(void **state)
{
        uint64_t peace = 0, least = UINT64_MAX, most = 0, all = 0, some = 0;
        unsigned before;
        uint32_t heard;

        torture_as("5,every=10ms");
        before = trace_count("torture");
        for (unsigned i = 0; i < 200; i++) {
                now_ns = MAX(now_ns, torture_next_ns());
                if (peace)
                        assert_int_equal(now_ns, peace);
                torture_step(now_ns - 1);
                assert_int_equal(own_drains.begun, peace ? i : 1);
                torture_step(now_ns);
                assert_int_equal(own_drains.begun, i + 1);
                assert_in_range(own_drains.patience_ns, PATIENCE_MIN, PATIENCE_MAX - 1);
                assert_true((torture_own() != OWN_NONE));
                assert_false((torture_own() == OWN_EVICTS));
                now_ns += 3 * NSEC_PER_MSEC;
                assert_true(torture_drained());
                agent.revoking = false;
                assert_false(torture_drained()); /* the next drain has another purpose */
                assert_true((torture_own() != OWN_NONE) && (torture_own() == OWN_EVICTS));
                assert_true(gpu->own_limit < 512 * MIB);
                all += gpu->own_limit == 0;
                some += gpu->own_limit > 0;
                gpu->heap.backed = gpu->own_limit;
                torture_evicted();
                assert_true((torture_own() != OWN_NONE));
                assert_false((torture_own() == OWN_EVICTS));
                assert_int_equal(gpu->own_limit, UINT64_MAX);
                now_ns += 4 * NSEC_PER_MSEC;
                heard = bell_listen(&core.changed);
                torture_restored();
                assert_int_equal(trace_count("torture"), before + i + 1);
                assert_int_equal(trace_last.bytes, 512 * MIB - gpu->heap.backed);
                gpu->heap.backed = 512 * MIB;
                core.running = true;
                assert_false((torture_own() != OWN_NONE));
                assert_int_not_equal(bell_listen(&core.changed), heard);
                peace = torture_next_ns();
                assert_in_range(peace - now_ns, 7 * NSEC_PER_MSEC, 27 * NSEC_PER_MSEC - 1);
                least = MIN(least, peace - now_ns);
                most = MAX(most, peace - now_ns);
        }
        torture_restored(); /* nothing was evicted */
        assert_int_equal(trace_count("torture"), before + 200);
        assert_in_range(all, 60, 140);
        assert_in_range(some, 60, 140);
        assert_true(least < 9 * NSEC_PER_MSEC && most > 25 * NSEC_PER_MSEC);
}

static void each_gpu_gets_a_limit_of_its_own(void **state)
{
        struct gpu *other = &core.gpus[1], *third = &core.gpus[2];

        core.gpu_count = 2;
        other->heap.backed = 64 * MIB;
        third->heap.backed = 8 * MIB; /* gpu_count leaves this GPU out */
        other->own_limit = third->own_limit = UINT64_MAX;
        torture_as("5,every=10ms");
        torture_step(now_ns);
        assert_true(torture_drained());
        assert_true(gpu->own_limit < 512 * MIB);
        assert_true(other->own_limit < 64 * MIB);
        assert_int_equal(third->own_limit, UINT64_MAX);
        gpu->heap.backed = other->heap.backed = 0;
        torture_evicted();
        assert_int_equal(other->own_limit, UINT64_MAX);
        torture_restored();
        assert_int_equal(trace_last.bytes, 576 * MIB);
}

/* Every run with one seed draws the same numbers. */
static void the_same_seed_draws_the_same_patience(void **state)
{
        uint64_t first[3][2];

        for (unsigned i = 0; i < 3; i++) {
                torture_as(i < 2 ? "42" : "43");
                for (unsigned k = 0; k < 2; k++) {
                        now_ns = MAX(now_ns, torture_next_ns());
                        torture_step(now_ns);
                        first[i][k] = own_drains.patience_ns;
                        torture_cancel();
                }
        }
        assert_memory_equal(first[0], first[1], sizeof(first[0]));
        assert_memory_not_equal(first[0], first[2], sizeof(first[0]));
}

static void a_failed_drain_ends_the_round(void **state)
{
        uint32_t heard;

        torture_as("5");
        assert_false(torture_drain_failed()); /* the daemon asked for this drain */
        torture_step(now_ns);
        heard = bell_listen(&core.changed);
        assert_true(torture_drain_failed());
        assert_false((torture_own() != OWN_NONE));
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_false(torture_drain_failed());
        assert_int_equal(gpu->own_limit, UINT64_MAX);
}

static void the_daemon_may_take_over_at_any_moment(void **state)
{
        torture_as("5");
        torture_cancel(); /* nothing to cancel */
        assert_int_equal(torture_next_ns(), 0);
        torture_step(now_ns);
        torture_cancel();
        assert_int_equal(own_drains.ended, 1);
        assert_false((torture_own() != OWN_NONE));
        now_ns = torture_next_ns();
        torture_step(now_ns);
        assert_true(torture_drained());
        torture_cancel();
        assert_int_equal(own_drains.ended, 1); /* the drain had ended before */
        assert_false((torture_own() != OWN_NONE) || (torture_own() == OWN_EVICTS));
        assert_int_equal(gpu->own_limit, UINT64_MAX);
}

static void only_a_running_program_with_backed_memory_is_drained(void **state)
{
        uint64_t *const backed = &gpu->heap.backed;

        torture_as("5,every=10ms");
        for (unsigned i = 0; i < 6; i++) {
                (void)begin(NULL);
                torture_as("5,every=10ms");
                switch (i) {
                case 0:
                        core.running = false;
                        break;
                case 1:
                        agent.revoking = true;
                        break;
                case 2:
                        *backed = 0;
                        break;
                case 3:
                        core.lease = 0; /* the program waits for its turn */
                        break;
                case 4:
                        daemon_line.link = LINK_HELLO;
                        break;
                case 5:
                        atomic_store(&gate_bits, 0);
                        break;
                }
                torture_step(now_ns);
                assert_int_equal(own_drains.begun, 0);
                assert_false((torture_own() != OWN_NONE));
                core.running = true;
                if (i < 5) /* tries again later */
                        assert_in_range(torture_next_ns(), now_ns, now_ns + 20 * NSEC_PER_MSEC - 1);
        }
        (void)begin(NULL);
        torture_as("5,every=10ms");
        core.lease = 0;
        daemon_line.link = LINK_DOWN; /* the program runs without a daemon */
        torture_step(now_ns);
        assert_int_equal(own_drains.begun, 1);
}

/* ---- the program's calls ---- */

static void the_agent_does_it(const struct core_wait *w)
{
        waits++;
        assert_int_equal(core.waiters, 1);
        assert_int_not_equal(request_kicks, 0);
        torture_step(now_ns);
        assert_int_equal(own_drains.begun, 1);
        assert_true(torture_drained());
        agent.revoking = false;
        torture_evicted();
        core.running = true;
        torture_restored();
}

static void a_call_waits_until_its_memory_is_back(void **state)
{
        torture_as("5,calls=1,every=0");
        meanwhile = the_agent_does_it;
        fake_gate_owner(0);
        assert_int_equal(waits, 1);
        assert_int_equal(core.waiters, 0);
        assert_int_equal(atomic_load(&core_lock.word), 0);
        torture_step(now_ns); /* the call has requested one drain only */
        assert_int_equal(own_drains.begun, 1);
}

static void one_call_in_a_given_number_waits(void **state)
{
        unsigned calls = 0;

        torture_as("5,calls=0");
        for (unsigned i = 0; i < 100; i++)
                fake_gate_owner(0); /* no call may wait */
        torture_as("5,calls=4,every=0");
        meanwhile = the_agent_does_it;
        for (unsigned i = 0; i < 400; i++) {
                own_drains.begun = 0;
                request_kicks = 0;
                fake_gate_owner(0);
                calls += own_drains.begun;
        }
        assert_in_range(calls, 60, 140);
        torture_as("5,every=0");
        calls = 0;
        for (unsigned i = 0; i < 10000; i++) {
                own_drains.begun = 0;
                request_kicks = 0;
                fake_gate_owner(0);
                calls += own_drains.begun;
        }
        assert_in_range(calls, 60, 140); /* one call in a hundred */
}

static void it_begins_to_capture(const struct core_wait *w)
{
        waits++;
        fake_capturing = true;
        bell_ring(&core.changed);
}

static void it_becomes_a_bystander(const struct core_wait *w)
{
        waits++;
        core.bystander = true;
        bell_ring(&core.changed);
}

/* A drain may wait for this very thread. */
static void a_waiting_call_goes_on_if_a_drain_may_need_its_thread(void **state)
{
        void (*const reasons[])(const struct core_wait *) = {it_begins_to_capture,
                                                             it_becomes_a_bystander};

        for (unsigned i = 0; i < ARRAY_SIZE(reasons); i++) {
                (void)begin(NULL);
                torture_as("5,calls=1,every=0");
                meanwhile = reasons[i];
                fake_gate_owner(0);
                assert_int_equal(waits, 1);
                assert_int_equal(core.waiters, 0);
                assert_int_equal(atomic_load(&core_lock.word), 0);
        }
}

static void a_call_does_not_wait_if_no_drain_is_possible(void **state)
{
        struct gate_thread inside = {.inside = 1};

        torture_as("5,calls=1,every=0");
        gate_self = &inside;
        fake_gate_owner(0);
        gate_self = NULL;
        core.running = false;
        fake_gate_owner(0);
        core.running = true;
        agent.started = false;
        fake_gate_owner(0);
        agent.started = true;
        core.bystander = true;
        fake_gate_owner(0);
        assert_int_equal(request_kicks, 0);
        assert_int_equal(atomic_load(&core_lock.word), 0);
        core.bystander = false;
        torture_step(now_ns);
        assert_int_equal(own_drains.begun, 0);
        inside.inside = 0; /* the thread is known, and not inside the driver */
        gate_self = &inside;
        meanwhile = the_agent_does_it;
        fake_gate_owner(0);
        gate_self = NULL;
        assert_int_equal(waits, 1);
}

#define TORTURE_TEST(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TORTURE_TEST(only_a_valid_setting_turns_torture_on),
                TORTURE_TEST(torture_drains_periodically_unless_every_is_0),
                TORTURE_TEST(torture_evicts_and_restores_memory_periodically),
                TORTURE_TEST(each_gpu_gets_a_limit_of_its_own),
                TORTURE_TEST(the_same_seed_draws_the_same_patience),
                TORTURE_TEST(a_failed_drain_ends_the_round),
                TORTURE_TEST(the_daemon_may_take_over_at_any_moment),
                TORTURE_TEST(only_a_running_program_with_backed_memory_is_drained),
                TORTURE_TEST(a_call_waits_until_its_memory_is_back),
                TORTURE_TEST(one_call_in_a_given_number_waits),
                TORTURE_TEST(a_waiting_call_goes_on_if_a_drain_may_need_its_thread),
                TORTURE_TEST(a_call_does_not_wait_if_no_drain_is_possible),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
