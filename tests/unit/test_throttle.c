/* test_throttle.c: before each submission the work in flight fits the limit, however fast the
 * program submits and however long its kernels are; and no thread waits for ever. The driver is a
 * queue that reports exactly how much work is left. The test's own clock moves only when it is
 * read, and during naps. */
#include "unit.h"

#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>

#include "fakes/preload.h"
#include "preload/stream/throttle.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/stream/quiesce.h"

#define BOUND_NS (10 * NSEC_PER_MSEC)
#define AHEAD_NS (40 * NSEC_PER_MSEC) /* the limit while no other program waits */
#define STREAM   ((CUstream)0x1000)

struct core core;
struct lock core_lock;
struct real_driver real;
_Atomic uint32_t gate_bits;
__thread struct gate_thread *gate_self __attribute__((tls_model("initial-exec")));

/* ---- the clock ---- */

#define LOOK_NS 100                  /* one reading of the clock */
#define LATE_NS (60 * NSEC_PER_USEC) /* each nap takes this much longer than asked */

static uint64_t now_ns = NSEC_PER_SEC;

int clock_gettime(clockid_t clock, struct timespec *ret)
{
        now_ns += LOOK_NS;
        *ret = (struct timespec){.tv_sec = (time_t)(now_ns / NSEC_PER_SEC),
                                 .tv_nsec = (long)(now_ns % NSEC_PER_SEC)};
        return 0;
}

/* A nap is the only system call. */
long syscall(long number, ...)
{
        const struct timespec *nap;
        va_list rest;

        assert_int_equal(number, SYS_nanosleep);
        va_start(rest, number);
        nap = va_arg(rest, const struct timespec *);
        va_end(rest);
        now_ns += (uint64_t)nap->tv_sec * NSEC_PER_SEC + (uint64_t)nap->tv_nsec + LATE_NS;
        return 0;
}

/* ---- the driver: one queue ---- */

struct CUevent_st {
        uint64_t done_ns;
        CUcontext context; /* NULL: the context has ended, and the event with it */
        CUevent next;
};

static CUevent events;

static uint64_t queue_end_ns; /* when all submitted work is done */
static unsigned records;      /* events recorded */
static bool records_fail;
static CUcontext context = (CUcontext)0x1;
static uint64_t slice_ns; /* length of a program's time slice on the GPU; 0: no other programs */
static unsigned programs; /* programs that share the GPU */

static uint64_t queue_left_ns(void)
{
        return sub_sat(queue_end_ns, clock_now_ns());
}

/* Returns when work is done that may begin at begin_ns. */
static uint64_t done_at(uint64_t begin_ns, uint64_t ns)
{
        while (slice_ns) {
                uint64_t round_ns = programs * slice_ns, in_round = begin_ns % round_ns;
                uint64_t left = sub_sat(slice_ns, in_round);

                if (left >= ns)
                        break;
                ns -= left;
                begin_ns += round_ns - in_round;
        }
        return begin_ns + ns;
}

static void queue_submit(uint64_t ns)
{
        queue_end_ns = done_at(MAX(queue_end_ns, clock_now_ns()), ns);
}

static CUresult event_create(CUevent *ret, unsigned int flags)
{
        *ret = calloc(1, sizeof(struct CUevent_st));
        if (!*ret)
                return CUDA_ERROR_OUT_OF_MEMORY;
        (*ret)->next = events;
        (*ret)->context = context;
        events = *ret;
        return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent e)
{
        CUevent *link = &events;

        assert_non_null(e->context);
        while (*link != e)
                link = &(*link)->next;
        *link = e->next;
        free(e);
        return CUDA_SUCCESS;
}

static CUresult event_record(CUevent e, CUstream s)
{
        assert_ptr_equal(e->context, context); /* the driver refuses events of another context */
        records++;
        e->done_ns = records_fail ? UINT64_MAX : MAX(queue_end_ns, clock_now_ns());
        return records_fail ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult event_query(CUevent e)
{
        assert_non_null(e->context);
        return clock_now_ns() < e->done_ns ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ret_ms, CUevent start, CUevent end)
{
        assert_true(start->context && start->context == end->context);
        *ret_ms = (float)((double)(int64_t)(end->done_ns - start->done_ns) / NSEC_PER_MSEC);
        return CUDA_SUCCESS;
}

static bool elsewhere; /* queries concern an idle stream instead of the queue */

static CUresult stream_query(CUstream s)
{
        return !elsewhere && queue_left_ns() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult current(CUcontext *ret)
{
        *ret = context;
        return CUDA_SUCCESS;
}

static void context_ends(CUcontext which)
{
        throttle_forget(which);
        for (CUevent e = events; e; e = e->next)
                e->context = e->context == which ? NULL : e->context;
}

/* The thread's capture mode. */
static CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static CUresult exchange(CUstreamCaptureMode *mode)
{
        CUstreamCaptureMode before = capture_mode;

        capture_mode = *mode;
        *mode = before;
        return CUDA_SUCCESS;
}

/* Submits as the gate does. Returns the time in flight just before. */
static uint64_t submit(uint64_t ns)
{
        uint64_t left;

        while (!throttle_pass(STREAM))
                throttle_wait(STREAM);
        left = queue_left_ns();
        queue_submit(ns);
        return left;
}

/* Ends the spinning kernel now; later events end earlier by the same time. */
static void set_free(uint64_t *end_ns)
{
        uint64_t sooner = *end_ns - clock_now_ns();

        for (CUevent e = events; e; e = e->next)
                e->done_ns -= e->done_ns >= *end_ns ? sooner : 0;
        queue_end_ns -= sooner;
        *end_ns = 0;
}

static void synchronize(void)
{
        now_ns = MAX(now_ns, queue_end_ns);
}

/* ---- tests ---- */

static int setup(void **state)
{
        queue_end_ns = slice_ns = 0;
        throttle_forget_stream(STREAM);
        throttle_set(BOUND_NS);
        return 0;
}

static int teardown(void **state)
{
        assert_int_equal(capture_mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
        throttle_set(0);
        return 0;
}

/* Before each submission the work in flight fits the limit; a longer kernel runs alone. */
static void check_kernels_of(uint64_t each_ns, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                assert_true(submit(each_ns) <= (each_ns > BOUND_NS ? 0 : BOUND_NS));
}

static void long_kernels_are_submitted_one_at_a_time(void **state)
{
        check_kernels_of(30 * NSEC_PER_MSEC, 8);
}

static void kernels_shorter_than_the_throttle_fill_it_and_no_more(void **state)
{
        check_kernels_of(3 * NSEC_PER_MSEC, 60);
}

static void two_kernels_are_in_flight_if_both_fit_the_throttle(void **state)
{
        unsigned waiting = 0;

        for (unsigned i = 0; i < 20; i++)
                waiting += submit(5 * NSEC_PER_MSEC) > 0;
        assert_true(waiting >= 18); /* all except those that are measured alone */
}

static void short_kernels_keep_the_queue_busy(void **state)
{
        unsigned ran_dry = 0;

        for (unsigned i = 0; i < 2000; i++)
                (void)submit(20 * NSEC_PER_USEC);
        for (unsigned i = 0; i < 4000; i++)
                ran_dry += submit(20 * NSEC_PER_USEC) == 0;
        assert_int_equal(ran_dry, 0);
}

static void pauses_do_not_let_more_work_pass(void **state)
{
        for (unsigned i = 0; i < 6; i++) {
                (void)submit(20 * NSEC_PER_MSEC);
                now_ns += 25 * NSEC_PER_MSEC;
        }
        check_kernels_of(20 * NSEC_PER_MSEC, 6);
}

static void pauses_do_not_keep_short_kernels_apart(void **state)
{
        uint64_t most = 0;

        for (unsigned i = 0; i < 20; i++) {
                (void)submit(100 * NSEC_PER_USEC);
                now_ns += 5 * NSEC_PER_MSEC;
        }
        for (unsigned i = 0; i < 2000; i++)
                most = MAX(most, submit(100 * NSEC_PER_USEC));
        assert_true(most > 2 * NSEC_PER_MSEC && most <= BOUND_NS);
}

/* The program waits for each burst as a whole, so no thread looks at the queue while it runs. */
static void bursts_of_long_kernels_do_not_pile_up(void **state)
{
        for (unsigned i = 0; i < 3; i++) {
                check_kernels_of(40 * NSEC_PER_MSEC, 5);
                synchronize();
        }
}

/* At most two groups as large as those of short kernels are in flight. */
static void long_kernels_behind_short_ones_are_soon_alone(void **state)
{
        for (unsigned i = 0; i < 3; i++) {
                for (unsigned n = 0; n < 60; n++)
                        assert_true(submit(300 * NSEC_PER_USEC) <= BOUND_NS);
                for (unsigned n = 0; n < 40; n++)
                        assert_true(submit(40 * NSEC_PER_MSEC) <= 32 * 40 * NSEC_PER_MSEC);
                check_kernels_of(40 * NSEC_PER_MSEC, 5);
        }
}

static void kernels_that_become_longer_are_noticed(void **state)
{
        for (unsigned i = 0; i < 100; i++)
                (void)submit(NSEC_PER_MSEC);
        for (unsigned i = 0; i < 16; i++)
                (void)submit(15 * NSEC_PER_MSEC);
        check_kernels_of(15 * NSEC_PER_MSEC, 6);
}

static void groups_longer_than_half_the_throttle_become_smaller(void **state)
{
        for (unsigned i = 0; i < 100; i++)
                (void)submit(NSEC_PER_MSEC); /* four kernels in a group */
        for (unsigned i = 0; i < 20; i++)
                (void)submit(2 * NSEC_PER_MSEC);
        check_kernels_of(2 * NSEC_PER_MSEC, 20);
}

/* The driver may load a module only when its kernel is first launched. */
static void a_late_start_is_not_taken_for_a_long_kernel(void **state)
{
        unsigned ran_dry = 0;

        for (unsigned i = 0; i < 200; i++)
                (void)submit(100 * NSEC_PER_USEC);
        synchronize();
        while (!throttle_pass(STREAM))
                throttle_wait(STREAM);
        now_ns += 90 * NSEC_PER_MSEC;
        queue_submit(100 * NSEC_PER_USEC);
        for (unsigned i = 0; i < 4000; i++) {
                uint64_t left = submit(100 * NSEC_PER_USEC);

                ran_dry += i >= 600 && left == 0;
                now_ns += 80 * NSEC_PER_USEC; /* keeps the queue from being full all the time */
        }
        assert_int_equal(ran_dry, 0);
}

/* Submits the kernels of a training, of all lengths, faster than the GPU runs them. Returns the
 * GPU's time for them. */
static uint64_t train(unsigned steps)
{
        uint64_t sum_ns = 0;

        for (unsigned step = 0; step < steps; step++)
                for (unsigned i = 0; i < 1300; i++) {
                        uint64_t ns = NSEC_PER_USEC << (i * i % 7);

                        (void)submit(ns);
                        sum_ns += ns;
                        now_ns += 5 * NSEC_PER_USEC;
                }
        synchronize();
        return sum_ns;
}

static void a_training_uses_all_of_its_time_slices(void **state)
{
        for (programs = 1; programs <= 4; programs++) {
                uint64_t began, least_ns;

                throttle_forget_stream(STREAM);
                slice_ns = 2 * NSEC_PER_MSEC;
                (void)train(10);
                began = now_ns;
                least_ns = train(30) * programs;
                assert_true(now_ns - began < least_ns + least_ns / 50);
        }
}

/* The time between two marks depends on when the other programs' turns fall. */
static void the_queue_does_not_run_dry_beside_other_programs(void **state)
{
        throttle_set(AHEAD_NS);
        slice_ns = 4 * NSEC_PER_MSEC;
        for (programs = 2; programs <= 8; programs *= 2) {
                unsigned ran_dry = 0;

                for (unsigned i = 0; i < 12000; i++) {
                        unsigned kind = i % 300;
                        uint64_t left = submit((10 + kind * 7 % 80) * NSEC_PER_USEC);

                        ran_dry += i >= 600 && left == 0; /* until then every kernel is new */
                }
                assert_true(ran_dry < 114); /* one percent */
        }
}

static void fill(CUstream stream)
{
        while (throttle_pass(stream))
                queue_submit(2 * NSEC_PER_MSEC);
}

static void default_streams_are_those_of_their_context(void **state)
{
        for (uintptr_t i = 0; i <= (uintptr_t)CU_STREAM_PER_THREAD; i++) {
                fill((CUstream)i);
                context = (CUcontext)0x2;
                elsewhere = true;
                assert_true(throttle_pass((CUstream)i));
                elsewhere = false;
                context_ends(context);
                context = (CUcontext)0x1;
                context_ends(context);
                synchronize();
        }
}

static void a_thread_is_not_throttled_by_the_work_of_an_ended_one(void **state)
{
        struct gate_thread record = {0};

        gate_self = &record;
        fill(CU_STREAM_PER_THREAD);
        throttle_forget_thread(&record);
        elsewhere = true; /* the next thread's stream, which uses the same record */
        assert_true(throttle_pass(CU_STREAM_PER_THREAD));
        elsewhere = false;
        throttle_forget_thread(&record);
        gate_self = NULL;
        synchronize();
}

static void unused_streams_free_their_records(void **state)
{
        CUstream one = (CUstream)0x100000, like_it = (CUstream)0x101000;

        for (uintptr_t i = 1; i <= 100; i++)
                (void)throttle_pass((CUstream)(0x200000 + 0x40 * i));
        now_ns += 2 * NSEC_PER_SEC;
        fill(one);
        elsewhere = true;
        assert_true(throttle_pass(like_it));
        elsewhere = false;
        throttle_forget_stream(one);
        throttle_forget_stream(like_it);
}

static void work_from_before_the_throttle_is_waited_for(void **state)
{
        for (unsigned i = 0; i < 20; i++)
                (void)submit(100 * NSEC_PER_USEC);
        for (unsigned i = 0; i < 2; i++) {
                throttle_set(0);
                queue_submit(80 * NSEC_PER_MSEC);
                throttle_set(BOUND_NS);
                assert_true(submit(NSEC_PER_MSEC) == 0);
                synchronize();
        }
}

/* Work from before the throttle is not measured, even if an event remains from its last use. */
static void work_from_before_the_throttle_is_not_measured(void **state)
{
        uint64_t began;

        for (unsigned i = 0; i < 10; i++)
                (void)submit(30 * NSEC_PER_MSEC);
        synchronize();
        throttle_set(0);
        now_ns += 3600 * NSEC_PER_SEC;
        queue_submit(80 * NSEC_PER_MSEC);
        throttle_set(BOUND_NS);
        (void)submit(3600 * NSEC_PER_SEC); /* waits for something that is submitted later */
        began = clock_now_ns();
        (void)submit(NSEC_PER_MSEC);
        assert_true(clock_now_ns() - began < NSEC_PER_SEC);
}

static void no_thread_is_throttled_for_ever(void **state)
{
        uint64_t began = clock_now_ns();

        queue_submit(3600 * NSEC_PER_SEC); /* waits for something that is submitted later */
        for (unsigned i = 0; i < 20; i++)
                (void)submit(NSEC_PER_MSEC);
        assert_true(clock_now_ns() - began < 30 * NSEC_PER_SEC);
}

/* Submits a kernel that spins until 3 ms after the program has submitted more behind it. Returns
 * the time of the step. */
static uint64_t step_with_delay(unsigned behind, uint64_t each_ns, uint64_t late_ns)
{
        uint64_t began = clock_now_ns(), end_ns;

        (void)submit(3600 * NSEC_PER_SEC);
        end_ns = queue_end_ns;
        for (unsigned i = 0; i < behind; i++)
                (void)submit(each_ns);
        now_ns += late_ns;
        set_free(&end_ns);
        synchronize();
        return clock_now_ns() - began;
}

static void work_behind_a_spinning_kernel_passes_soon_each_time(void **state)
{
        static const struct {
                unsigned behind;
                /* late_ns: delay of the program; most_ns: longest mean step */
                uint64_t each_ns, late_ns, most_ns;
        } steps[] = {{1, 10 * NSEC_PER_USEC, 3 * NSEC_PER_MSEC, 10 * NSEC_PER_MSEC},
                     {10, 10 * NSEC_PER_USEC, 3 * NSEC_PER_MSEC, 50 * NSEC_PER_MSEC},
                     {4, 5 * NSEC_PER_MSEC, 3 * NSEC_PER_MSEC, 300 * NSEC_PER_MSEC},
                     {4, 5 * NSEC_PER_MSEC, 40 * NSEC_PER_MSEC, 600 * NSEC_PER_MSEC},
                     {1, 5 * NSEC_PER_MSEC, 10 * NSEC_PER_MSEC, 300 * NSEC_PER_MSEC},
                     {1, 5 * NSEC_PER_MSEC, 40 * NSEC_PER_MSEC, 800 * NSEC_PER_MSEC}};

        for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
                uint64_t sum_ns = 0;

                throttle_forget_stream(STREAM);
                for (unsigned n = 0; n < 20; n++)
                        (void)step_with_delay(steps[i].behind, steps[i].each_ns, steps[i].late_ns);
                for (unsigned n = 0; n < 20; n++)
                        sum_ns += step_with_delay(steps[i].behind, steps[i].each_ns,
                                                  steps[i].late_ns);
                assert_true(sum_ns < 20 * steps[i].most_ns);
        }
}

/* This holds even if work ends just after the patience, as work that waits for its program does. */
static void work_that_outlasts_the_patience_does_not_pile_up(void **state)
{
        for (uint64_t ms = 80; ms < 1000; ms += 5) {
                throttle_forget_stream(STREAM);
                for (unsigned i = 0; i < 40; i++)
                        (void)submit(ms * NSEC_PER_MSEC);
                for (unsigned i = 0; i < 12; i++)
                        assert_true(submit(ms * NSEC_PER_MSEC) <= 2 * ms * NSEC_PER_MSEC);
                synchronize();
        }
}

/* 1, 2, 4 and 8 submissions pass, after 100, 200, 400 and 800 ms. */
static void more_submissions_pass_the_longer_no_work_ends(void **state)
{
        uint64_t began;
        unsigned n = 0;

        queue_submit(3600 * NSEC_PER_SEC);
        began = clock_now_ns();
        while (clock_now_ns() - began < 500 * NSEC_PER_MSEC) {
                throttle_wait(STREAM);
                while (throttle_pass(STREAM))
                        n++;
        }
        assert_int_equal(n, 15);
}

static void all_waiting_threads_pass_together(void **state)
{
        uint64_t began;

        queue_submit(3600 * NSEC_PER_SEC);
        assert_false(throttle_pass(STREAM));
        throttle_wait(STREAM);
        began = clock_now_ns();
        throttle_wait(STREAM); /* stands for another thread */
        assert_true(clock_now_ns() - began < NSEC_PER_MSEC);
        assert_true(throttle_pass(STREAM));
        assert_false(throttle_pass(STREAM));
}

/* The machine slept, or the program was frozen: the hour says nothing about the next group. */
static void an_hour_long_group_does_not_delay_the_next_as_long(void **state)
{
        uint64_t began;

        (void)submit(3600 * NSEC_PER_SEC);
        assert_false(throttle_pass(STREAM));
        synchronize();
        (void)submit(3600 * NSEC_PER_SEC); /* waits for something that is submitted later */
        began = clock_now_ns();
        (void)submit(NSEC_PER_MSEC);
        assert_true(clock_now_ns() - began < 100 * NSEC_PER_SEC);
}

static void a_shut_gate_ends_the_wait(void **state)
{
        queue_submit(3600 * NSEC_PER_SEC);
        while (throttle_pass(STREAM))
                ;
        gate_shut(GATE_NO_LEASE);
        throttle_wait(STREAM); /* returns at once: the drain must find the thread at the gate */
        gate_open(GATE_NO_LEASE);
}

/* An event costs as much as a short kernel. */
static void short_kernels_need_few_events(void **state)
{
        for (unsigned i = 0; i < 500; i++)
                (void)submit(20 * NSEC_PER_USEC);
        records = 0;
        for (unsigned i = 0; i < 6400; i++)
                (void)submit(20 * NSEC_PER_USEC);
        assert_in_range(records, 6400 / 256, 6400 / 64);
}

/* Captured work does not run now, and an event in the wrong stream may break the capture. */
static void captured_work_is_neither_counted_nor_throttled(void **state)
{
        fill(STREAM);
        fake_capturing = true;
        records = 0;
        for (unsigned i = 0; i < 100; i++)
                assert_true(throttle_pass(STREAM));
        throttle_wait(STREAM); /* and waiting threads continue */
        assert_true(queue_left_ns() > 0);
        assert_int_equal(records, 0);
        fake_capturing = false;
        assert_false(throttle_pass(STREAM));
        synchronize();
}

/* A new stream may get the same handle. */
static void work_in_flight_is_forgotten_with_its_context(void **state)
{
        fill(STREAM);
        context_ends(context);
        elsewhere = true;
        assert_true(throttle_pass(STREAM));
        elsewhere = false;
        fill(STREAM); /* with events of the new context */
        synchronize();
        assert_true(throttle_pass(STREAM));
}

static void streams_of_several_contexts_have_events_of_their_own(void **state)
{
        CUstream other = (CUstream)0x2000;

        for (unsigned i = 0; i < 6; i++) {
                context = (CUcontext)(uintptr_t)(1 + i % 2);
                fill(STREAM); /* the handle may belong to a new stream in a new context */
                synchronize();
                fill(other);
                synchronize();
        }
        context_ends((CUcontext)0x2);
        context = (CUcontext)0x1;
        fill(other);
        synchronize();
        assert_true(throttle_pass(other));
        queue_submit(4 * BOUND_NS);
        now_ns += BOUND_NS;
        context = (CUcontext)0x2; /* between two marks of one group */
        (void)throttle_pass(other);
        synchronize();
        assert_true(throttle_pass(other));
        context_ends(context);
        context = (CUcontext)0x1;
        throttle_forget_stream(other);
}

static void work_that_cannot_be_marked_is_not_throttled(void **state)
{
        uint64_t began = clock_now_ns();

        records_fail = true;
        for (unsigned i = 0; i < 1000; i++)
                (void)submit(10 * NSEC_PER_USEC);
        context = NULL;
        for (unsigned i = 0; i < 1000; i++)
                (void)submit(10 * NSEC_PER_USEC);
        context = (CUcontext)0x1;
        records_fail = false;
        assert_true(clock_now_ns() - began < NSEC_PER_SEC);
        synchronize();
        check_kernels_of(30 * NSEC_PER_MSEC, 8); /* afterwards the throttle works as usual */
}

/* Streams beyond those told apart share a record, and none waits for ever. */
static void more_streams_than_records_pass(void **state)
{
        uint64_t began = clock_now_ns();

        for (unsigned i = 0; i < 1000; i++) {
                CUstream stream = (CUstream)(uintptr_t)(0x300000 + 0x40 * (i % 200));

                while (!throttle_pass(stream))
                        throttle_wait(stream);
                queue_submit(10 * NSEC_PER_USEC);
        }
        assert_true(clock_now_ns() - began < 2 * NSEC_PER_SEC);
        for (unsigned i = 0; i < 200; i++)
                throttle_forget_stream((CUstream)(uintptr_t)(0x300000 + 0x40 * i));
        synchronize();
}

/* The throttle limits the number of short kernels, too: a call that finds the driver's queue full
 * blocks in the driver, and a drain waits for that call. */
static void no_more_work_is_in_flight_than_the_drivers_queue_holds(void **state)
{
        unsigned n = 0;

        throttle_set(AHEAD_NS);
        for (unsigned i = 0; i < 5000; i++)
                (void)submit(NSEC_PER_USEC);
        synchronize();
        assert_true(throttle_pass(STREAM)); /* the finished kernels no longer count */
        queue_submit(NSEC_PER_USEC);
        now_ns += AHEAD_NS;
        for (n = 0; throttle_pass(STREAM); n++)
                /* The first kernel never ends. */
                queue_submit(n ? NSEC_PER_USEC : 3600 * NSEC_PER_SEC);
        assert_in_range(n, 800, 896);
        synchronize();
}

#define THROTTLE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                THROTTLE_TEST(long_kernels_are_submitted_one_at_a_time),
                THROTTLE_TEST(kernels_shorter_than_the_throttle_fill_it_and_no_more),
                THROTTLE_TEST(two_kernels_are_in_flight_if_both_fit_the_throttle),
                THROTTLE_TEST(short_kernels_keep_the_queue_busy),
                THROTTLE_TEST(pauses_do_not_let_more_work_pass),
                THROTTLE_TEST(pauses_do_not_keep_short_kernels_apart),
                THROTTLE_TEST(bursts_of_long_kernels_do_not_pile_up),
                THROTTLE_TEST(long_kernels_behind_short_ones_are_soon_alone),
                THROTTLE_TEST(kernels_that_become_longer_are_noticed),
                THROTTLE_TEST(groups_longer_than_half_the_throttle_become_smaller),
                THROTTLE_TEST(a_late_start_is_not_taken_for_a_long_kernel),
                THROTTLE_TEST(a_training_uses_all_of_its_time_slices),
                THROTTLE_TEST(the_queue_does_not_run_dry_beside_other_programs),
                THROTTLE_TEST(default_streams_are_those_of_their_context),
                THROTTLE_TEST(a_thread_is_not_throttled_by_the_work_of_an_ended_one),
                THROTTLE_TEST(unused_streams_free_their_records),
                THROTTLE_TEST(work_from_before_the_throttle_is_waited_for),
                THROTTLE_TEST(work_from_before_the_throttle_is_not_measured),
                THROTTLE_TEST(no_thread_is_throttled_for_ever),
                THROTTLE_TEST(work_behind_a_spinning_kernel_passes_soon_each_time),
                THROTTLE_TEST(work_that_outlasts_the_patience_does_not_pile_up),
                THROTTLE_TEST(more_submissions_pass_the_longer_no_work_ends),
                THROTTLE_TEST(all_waiting_threads_pass_together),
                THROTTLE_TEST(an_hour_long_group_does_not_delay_the_next_as_long),
                THROTTLE_TEST(a_shut_gate_ends_the_wait),
                THROTTLE_TEST(short_kernels_need_few_events),
                THROTTLE_TEST(captured_work_is_neither_counted_nor_throttled),
                THROTTLE_TEST(work_in_flight_is_forgotten_with_its_context),
                THROTTLE_TEST(streams_of_several_contexts_have_events_of_their_own),
                THROTTLE_TEST(work_that_cannot_be_marked_is_not_throttled),
                THROTTLE_TEST(more_streams_than_records_pass),
                THROTTLE_TEST(no_more_work_is_in_flight_than_the_drivers_queue_holds),
        };

        real.cuEventCreate = event_create;
        real.cuEventDestroy_v2 = event_destroy;
        real.cuEventRecord = event_record;
        real.cuEventQuery = event_query;
        real.cuEventElapsedTime = event_elapsed;
        real.cuStreamQuery = stream_query;
        real.cuCtxGetCurrent = current;
        real.cuThreadExchangeStreamCaptureMode = exchange;
        return cmocka_run_group_tests(tests, NULL, NULL);
}
