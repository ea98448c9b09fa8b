/* test_gate_reasons.c: the reasons for which a thread waits at the gate or passes it, alone and
 * together: a lease, memory, captures. The fake core_wait() counts waits and opens the gate. */
#include "unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/stream/gate.h"
#include "preload/overflow/profile.h"
#include "preload/driver/real.h"
#include "preload/move/swap.h"
#include "preload/extra/torture.h"

#define CAPTURED ((CUstream)(uintptr_t)0x100)
#define PLAIN    ((CUstream)(uintptr_t)0x200)
#define WORK     UINT64_C(5)

static unsigned waits, backed, tortured, profiled;

/* ---- the kernel ---- */

static bool there;                      /* membarrier(2) worked when the process began */
static bool membarrier_refused, frozen; /* frozen: the clock stands at now_ns */
static unsigned barriers;
static uint64_t now_ns;

int clock_gettime(clockid_t which, struct timespec *ret)
{
        int (*next)(clockid_t, struct timespec *) =
                (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");

        if (!frozen)
                return next(which, ret);
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

long syscall(long number, ...)
{
        long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
        long a[6];
        va_list list;

        va_start(list, number);
        for (unsigned i = 0; i < ARRAY_SIZE(a); i++)
                a[i] = va_arg(list, long);
        va_end(list);
        if (number == SYS_membarrier && a[0] == MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
                barriers++;
                if (membarrier_refused) {
                        errno = EPERM;
                        return -1;
                }
        }
        if (number == SYS_nanosleep && frozen) {
                assert_true(atomic_load(&gate_bits) & GATE_FENCE);
                /* A signal ends the sleep early. */
                now_ns += (uint64_t)((const struct timespec *)a[0])->tv_nsec / 2 + 1;
                return 0;
        }
        return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- fakes of other modules ---- */

static unsigned setups;

int core_setup(void)
{
        setups++;
        assert_false(gate_anybody_inside());
        gate_open(GATE_UNREADY);
        return 0;
}

static void back_new(uint64_t work)
{
        backed++;
        assert_false(gate_anybody_inside()); /* memory may move while this function runs */
        gate_open(GATE_UNBACKED);
}

static void at_torture(uint64_t work)
{
        tortured++;
        assert_false(gate_anybody_inside());
}

static void at_profile(uint64_t work)
{
        profiled++;
        assert_int_equal(work, WORK);
        assert_false(gate_anybody_inside());
}

static CUresult fake_is_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
        *ret = stream == CAPTURED ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
}

/* ---- events while a thread waits ---- */

static void count_wait(void)
{
        waits++;
        assert_true(waits < 20);
}

static void lease_comes(const struct core_wait *w)
{
        count_wait();
        assert_false(gate_anybody_inside());
        assert_int_equal(core.waiters, 1);
        core.running = true;
        gate_open(GATE_NO_LEASE);
        bell_ring(&core.changed);
}

static void hold_ends(const struct core_wait *w)
{
        count_wait();
        assert_false(gate_anybody_inside());
        gate_open(GATE_HELD);
        bell_ring(&core.changed);
}

static int begin(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1};
        atomic_store(&gate_bits, 0);
        waits = backed = bound_waits = tortured = profiled = bound_refuses = 0;
        fake_capturing = false;
        core.gpus[0].error = CUDA_SUCCESS;
        setups = 0;
        forgotten_thread = ended_thread = NULL;
        meanwhile = lease_comes;
        request_kicks = 0;
        real.cuStreamIsCapturing = fake_is_capturing;
        return 0;
}

static int end(void **state)
{
        assert_false(gate_anybody_inside());
        assert_int_equal(core.waiters, 0);
        assert_int_equal(atomic_load(&core_lock.word), 0);
        return 0;
}

static void pass(CUstream stream)
{
        struct gate_thread *t = gate_enter(stream, WORK);

        assert_non_null(t);
        assert_true(gate_anybody_inside());
        assert_int_equal(core.waiters, 0); /* this thread no longer counts as waiting */
        gate_leave(t);
        assert_false(gate_anybody_inside());
}

/* ---- the tests ---- */

static void without_a_lease_a_thread_waits_for_it(void **state)
{
        gate_shut(GATE_NO_LEASE);
        pass(PLAIN);
        assert_int_equal(waits, 1);
        assert_int_equal(request_kicks, 1); /* the first waiting thread kicks the agent */
}

/* Captured work does not run now, and the capture has to end before a drain can. */
static void a_capturing_stream_passes_without_a_lease(void **state)
{
        fake_capturing = true;
        gate_shut(GATE_NO_LEASE);
        pass(CAPTURED);
        assert_int_equal(waits, 0);
        pass(PLAIN); /* a stream that does not capture waits */
        assert_int_equal(waits, 1);
}

/* A captured call uses addresses as well, and memory of a frozen program may be evicted. */
static void a_capturing_stream_waits_while_the_program_is_frozen(void **state)
{
        fake_capturing = true;
        core.running = false;
        gate_shut(GATE_NO_LEASE | GATE_FROZEN);
        pass(CAPTURED);
        assert_int_equal(waits, 1);
        assert_true(core.running);
        gate_open(GATE_FROZEN);
}

static void is_drained_instead(const struct core_wait *w)
{
        count_wait();
        gate_open(GATE_FROZEN);
        bell_ring(&core.changed);
}

static void a_capturing_stream_passes_when_the_program_is_drained_instead(void **state)
{
        fake_capturing = true;
        core.running = false;
        gate_shut(GATE_NO_LEASE | GATE_FROZEN);
        meanwhile = is_drained_instead;
        pass(CAPTURED);
        assert_int_equal(waits, 1);
        assert_false(core.running);
}

static void only_a_thread_inside_counts_as_looking_up_addresses(void **state)
{
        struct gate_thread *t = gate_look_begin(), *in;

        assert_false(gate_anybody_looks());
        in = gate_enter(PLAIN, WORK);
        assert_true(gate_anybody_looks());
        gate_leave(in);
        assert_false(gate_anybody_looks());
        gate_look_end(t);
        in = gate_enter(PLAIN, WORK);
        assert_false(gate_anybody_looks());
        gate_leave(in);
}

static void the_driver_is_asked_about_captures_only_during_one(void **state)
{
        gate_shut(GATE_NO_LEASE);
        pass(CAPTURED); /* waits: no capture was begun through our hooks */
        assert_int_equal(waits, 1);
}

/* A graph may hold addresses, so the memory at these addresses has to be backed. */
static void a_capturing_stream_waits_for_memory(void **state)
{
        fake_capturing = true;
        gate_shut(GATE_UNBACKED);
        pass(CAPTURED);
        assert_int_equal(backed, 1);
        gate_shut(GATE_NO_LEASE | GATE_UNBACKED);
        core.running = false;
        pass(CAPTURED);
        assert_int_equal(waits, 1);
        assert_int_equal(backed, 2);
}

static void a_thread_waits_for_the_lease_before_memory(void **state)
{
        gate_shut(GATE_NO_LEASE | GATE_UNBACKED);
        pass(PLAIN);
        assert_int_equal(waits, 1);
        assert_int_equal(backed, 1);
        assert_int_equal(atomic_load(&gate_bits), 0);
}

static void a_thread_waits_while_memory_is_replaced(void **state)
{
        meanwhile = hold_ends;
        gate_shut(GATE_HELD);
        pass(PLAIN);
        assert_int_equal(waits, 1);
}

/* The driver itself fails the calls of such a thread. */
static void a_thread_whose_context_has_failed_waits_for_nothing(void **state)
{
        core.gpus[0].error = CUDA_ERROR_LAUNCH_FAILED;
        gate_shut(GATE_NO_LEASE);
        pass(PLAIN);
        assert_int_equal(waits, 0);
}

static void the_process_ends(const struct core_wait *w)
{
        count_wait();
        atomic_store(&core.bystander, true);
        bell_ring(&core.changed);
}

static void a_thread_waiting_while_the_gpu_fails_passes_uncounted(void **state)
{
        static const uint32_t why[] = {GATE_NO_LEASE, GATE_HELD};

        for (unsigned i = 0; i < ARRAY_SIZE(why); i++) {
                struct gate_thread *t;

                meanwhile = the_process_ends;
                gate_shut(why[i]);
                t = gate_enter(PLAIN, WORK);
                gate_leave(t);
                assert_int_equal(waits, i + 1);
                assert_false(gate_anybody_inside());
                gate_open(why[i]);
                atomic_store(&core.bystander, false);
        }
}

static void a_throttled_thread_waits_outside_the_driver(void **state)
{
        gate_shut(GATE_THROTTLE);
        pass(PLAIN);
        assert_int_equal(bound_waits, 0);
        bound_refuses = 3;
        pass(PLAIN);
        assert_int_equal(bound_waits, 3);
        gate_open(GATE_THROTTLE);
        bound_refuses = 1;
        pass(PLAIN);
        assert_int_equal(bound_waits, 3);
        bound_refuses = 0;
}

/* A thread that the throttle held back looks at the gate again before it passes. */
static void a_throttled_thread_waits_for_a_lease_lost_meanwhile(void **state)
{
        gate_shut(GATE_THROTTLE | GATE_NO_LEASE);
        bound_refuses = 1;
        pass(PLAIN);
        assert_int_equal(waits, 1);
        assert_int_equal(bound_waits, 1);
        gate_open(GATE_THROTTLE);
}

static void each_call_is_checked_once(void **state)
{
        gate_shut(GATE_TORTURE | GATE_PROFILE | GATE_TELL | GATE_NO_LEASE);
        pass(PLAIN);
        assert_int_equal(tortured, 1);
        assert_int_equal(profiled, 1);
        assert_true(core.submits);
        core.submits = false;
        pass(PLAIN);
        assert_int_equal(tortured, 2);
        assert_int_equal(profiled, 2);
        assert_false(core.submits);
}

static void calls_inside_a_call_are_not_checked(void **state)
{
        struct gate_thread *outer = gate_enter(PLAIN, WORK);

        gate_shut(GATE_TORTURE | GATE_PROFILE | GATE_NO_LEASE | GATE_HELD);
        gate_leave(gate_enter(PLAIN, WORK));
        assert_int_equal(tortured + profiled + waits, 0);
        gate_leave(outer);
        assert_false(gate_anybody_inside());
}

static void submissions_and_default_streams_are_remembered(void **state)
{
        uint64_t before = gate_submissions();
        unsigned seen = gate_default_streams();

        pass(PLAIN);
        assert_int_equal(gate_submissions(), before + 1);
        assert_int_equal(gate_default_streams(), seen);
        pass(CU_STREAM_PER_THREAD);
        assert_true(gate_default_streams() & 1u << (uintptr_t)CU_STREAM_PER_THREAD);
        pass(CU_STREAM_LEGACY);
        assert_true(gate_default_streams() & 1u << (uintptr_t)CU_STREAM_LEGACY);
        pass(NULL);
        assert_true(gate_default_streams() & 1u);
        gate_shut(GATE_NO_LEASE);
        pass(PLAIN); /* counts also on the slow way */
        assert_int_equal(gate_submissions(), before + 5);
}

static void *pass_once(void *ret)
{
        pass(PLAIN);
        *(struct gate_thread **)ret = gate_self;
        return NULL;
}

static struct gate_thread *pass_in_a_thread(void)
{
        struct gate_thread *record;
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, pass_once, &record), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        return record;
}

static void the_record_of_a_thread_that_ended_is_used_again(void **state)
{
        struct gate_thread *first = pass_in_a_thread();
        uint64_t before = gate_submissions();

        assert_ptr_not_equal(first, gate_self);
        assert_ptr_equal(pass_in_a_thread(), first);
        assert_int_equal(gate_submissions(), before + 1); /* the ended thread still counts */
        assert_null(ended_thread);
        assert_ptr_equal(forgotten_thread, first);
        fake_capturing = true;
        assert_ptr_equal(pass_in_a_thread(), first);
        assert_ptr_equal(ended_thread, first);
        forgotten_thread = ended_thread = NULL;
}

static void *pass_and_become_a_bystander(void *unused)
{
        pass(PLAIN);
        atomic_store(&core.bystander, true);
        return NULL;
}

/* The accounts of a child are a copy of its parent's, perhaps in the middle of a change. */
static void the_end_of_a_bystanders_thread_is_not_reported(void **state)
{
        pthread_t thread;

        fake_capturing = true;
        assert_int_equal(pthread_create(&thread, NULL, pass_and_become_a_bystander, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        atomic_store(&core.bystander, false);
        assert_null(forgotten_thread);
        assert_null(ended_thread);
}

static void the_first_call_sets_the_process_up(void **state)
{
        gate_shut(GATE_UNREADY | GATE_NO_LEASE);
        pass(PLAIN);
        assert_int_equal(setups, 1);
        assert_int_equal(waits, 1);
}

/* ---- threads inside ---- */

static _Atomic bool is_in, may_go;

static void *stay_inside(void *unused)
{
        struct gate_thread *t = gate_enter(PLAIN, WORK);

        is_in = true;
        while (!may_go)
                ;
        atomic_store(&t->inside, 1);
        gate_leave(t);
        return NULL;
}

static void a_child_has_none_of_its_parents_threads(void **state)
{
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, stay_inside, NULL), 0);
        while (!is_in)
                ;
        assert_true(gate_anybody_inside());
        gate_forget_threads();
        assert_false(gate_anybody_inside());
        may_go = true;
        assert_int_equal(pthread_join(thread, NULL), 0);
}

/* This test is the last one, because a process that has lost membarrier does not use it again. */
static void without_membarrier_the_first_shutting_waits_a_moment(void **state)
{
        uint64_t began;

        barriers = 0;
        gate_shut(GATE_NO_LEASE);
        if (!there)
                skip();
        assert_int_equal(barriers, 1);
        assert_false(atomic_load(&gate_bits) & GATE_FENCE);
        gate_open(GATE_NO_LEASE);
        frozen = membarrier_refused = true;
        began = now_ns = 5 * NSEC_PER_SEC;
        gate_shut(GATE_NO_LEASE);
        assert_in_range(now_ns - began, 10 * NSEC_PER_MSEC, 11 * NSEC_PER_MSEC);
        assert_true(atomic_load(&gate_bits) & GATE_FENCE);
        began = now_ns;
        gate_shut(GATE_NO_LEASE); /* the next shutting must not wait */
        assert_int_equal(barriers, 2);
        assert_int_equal(now_ns, began);
        pass(PLAIN);
        assert_int_equal(waits, 1);
        frozen = membarrier_refused = false;
}

#define REASON_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                REASON_TEST(without_a_lease_a_thread_waits_for_it),
                REASON_TEST(a_capturing_stream_passes_without_a_lease),
                REASON_TEST(a_capturing_stream_waits_while_the_program_is_frozen),
                REASON_TEST(a_capturing_stream_passes_when_the_program_is_drained_instead),
                REASON_TEST(only_a_thread_inside_counts_as_looking_up_addresses),
                REASON_TEST(the_driver_is_asked_about_captures_only_during_one),
                REASON_TEST(a_capturing_stream_waits_for_memory),
                REASON_TEST(a_thread_waits_for_the_lease_before_memory),
                REASON_TEST(a_thread_waits_while_memory_is_replaced),
                REASON_TEST(a_thread_whose_context_has_failed_waits_for_nothing),
                REASON_TEST(a_thread_waiting_while_the_gpu_fails_passes_uncounted),
                REASON_TEST(a_throttled_thread_waits_outside_the_driver),
                REASON_TEST(a_throttled_thread_waits_for_a_lease_lost_meanwhile),
                REASON_TEST(each_call_is_checked_once),
                REASON_TEST(calls_inside_a_call_are_not_checked),
                REASON_TEST(submissions_and_default_streams_are_remembered),
                REASON_TEST(the_record_of_a_thread_that_ended_is_used_again),
                REASON_TEST(the_end_of_a_bystanders_thread_is_not_reported),
                REASON_TEST(the_first_call_sets_the_process_up),
                REASON_TEST(a_child_has_none_of_its_parents_threads),
                REASON_TEST(without_membarrier_the_first_shutting_waits_a_moment),
        };

        gate_setup();
        gate_own(GATE_UNBACKED, back_new);
        gate_own(GATE_TORTURE, at_torture);
        gate_own(GATE_PROFILE, at_profile);
        there = !(atomic_load(&gate_bits) & GATE_FENCE);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
