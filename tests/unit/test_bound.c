/* test_bound.c: what is in flight when one more kernel is submitted is about the bound, however
 * fast the program submits and however long its kernels are; and nobody is held for ever. The
 * driver is a queue that takes its kernels' time and says, exactly, what is left of it. */
#include "unit.h"

#include <pthread.h>

#include "preload/bound.h"
#include "preload/core.h"
#include "preload/gate.h"
#include "preload/quiet.h"

#define BOUND_NS (10 * NSEC_PER_MSEC)
#define STREAM   ((CUstream)0x1000)

struct core core;
struct real_driver real;
_Atomic uint32_t gate_bits;
__thread struct gate_thread *gate_self __attribute__((tls_model("initial-exec")));

void gate_shut(enum gate_bits why)
{
        atomic_fetch_or(&gate_bits, why);
}

void gate_open(enum gate_bits why)
{
        atomic_fetch_and(&gate_bits, ~(uint32_t)why);
}

bool quiet_capturing(void)
{
        return false;
}

/* ---- the driver: one queue ---- */

struct CUevent_st {
        uint64_t done_ns;
};

static uint64_t queue_end_ns; /* when all that was submitted is done */

static uint64_t queue_left_ns(void)
{
        return sub_sat(queue_end_ns, clock_now_ns());
}

static void queue_submit(uint64_t ns)
{
        queue_end_ns = MAX(queue_end_ns, clock_now_ns()) + ns;
}

static CUresult event_create(CUevent *ret, unsigned int flags)
{
        *ret = calloc(1, sizeof(struct CUevent_st));
        return *ret ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult event_destroy(CUevent e)
{
        free(e);
        return CUDA_SUCCESS;
}

static CUresult event_record(CUevent e, CUstream s)
{
        e->done_ns = queue_end_ns;
        return CUDA_SUCCESS;
}

static CUresult event_query(CUevent e)
{
        return clock_now_ns() < e->done_ns ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult current(CUcontext *ret)
{
        *ret = (CUcontext)0x1;
        return CUDA_SUCCESS;
}

static CUresult exchange(CUstreamCaptureMode *mode)
{
        return CUDA_SUCCESS;
}

/* As the gate does. Returns how much was in flight just before. */
static uint64_t submit(uint64_t ns)
{
        uint64_t left;

        while (!bound_pass(STREAM))
                bound_wait(STREAM);
        left = queue_left_ns();
        queue_submit(ns);
        return left;
}

/* ---- tests ---- */

static int setup(void **state)
{
        queue_end_ns = 0;
        bound_forget_stream(STREAM);
        bound_set(BOUND_NS);
        return 0;
}

/* The first kernels of a stream come before anything is known of them: two. */
static void check_kernels_of(uint64_t each_ns, unsigned n)
{
        for (unsigned i = 0; i < n; i++) {
                uint64_t left = submit(each_ns);

                assert_true(left <= MAX(BOUND_NS, each_ns));
        }
}

static void long_kernels_are_submitted_one_at_a_time(void **state)
{
        check_kernels_of(30 * NSEC_PER_MSEC, 8);
}

static void kernels_shorter_than_the_bound_fill_it_and_no_more(void **state)
{
        check_kernels_of(3 * NSEC_PER_MSEC, 60);
}

static void short_kernels_keep_the_queue_busy(void **state)
{
        uint64_t began;
        unsigned ran_dry = 0;

        for (unsigned i = 0; i < 2000; i++) /* the window has its size by then */
                (void)submit(20 * NSEC_PER_USEC);
        began = clock_now_ns();
        for (unsigned i = 0; i < 4000; i++)
                ran_dry += submit(20 * NSEC_PER_USEC) == 0;
        /* On a busy machine a nap may last long; each then costs one. */
        assert_true(ran_dry < 400);
        assert_true(queue_end_ns > began);
}

static void pauses_do_not_widen_the_window(void **state)
{
        for (unsigned i = 0; i < 6; i++) {
                const struct timespec pause = {.tv_nsec = 25000000};

                (void)submit(20 * NSEC_PER_MSEC);
                (void)nanosleep(&pause, NULL);
        }
        check_kernels_of(20 * NSEC_PER_MSEC, 6);
}

static void nobody_is_held_for_ever(void **state)
{
        uint64_t began = clock_now_ns();

        queue_submit(3600 * NSEC_PER_SEC); /* waits for something that is submitted later */
        for (unsigned i = 0; i < 20; i++)
                (void)submit(NSEC_PER_MSEC);
        assert_true(clock_now_ns() - began < 30 * NSEC_PER_SEC);
}

static void a_shut_gate_ends_the_wait(void **state)
{
        queue_submit(3600 * NSEC_PER_SEC);
        while (bound_pass(STREAM))
                ;
        gate_shut(GATE_NO_LEASE);
        bound_wait(STREAM); /* comes back at once: the drain must see the thread at the gate */
        gate_open(GATE_NO_LEASE);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(long_kernels_are_submitted_one_at_a_time, setup),
                cmocka_unit_test_setup(kernels_shorter_than_the_bound_fill_it_and_no_more, setup),
                cmocka_unit_test_setup(short_kernels_keep_the_queue_busy, setup),
                cmocka_unit_test_setup(pauses_do_not_widen_the_window, setup),
                cmocka_unit_test_setup(nobody_is_held_for_ever, setup),
                cmocka_unit_test_setup(a_shut_gate_ends_the_wait, setup),
        };

        real.cuEventCreate = event_create;
        real.cuEventDestroy_v2 = event_destroy;
        real.cuEventRecord = event_record;
        real.cuEventQuery = event_query;
        real.cuCtxGetCurrent = current;
        real.cuThreadExchangeStreamCaptureMode = exchange;
        return cmocka_run_group_tests(tests, NULL, NULL);
}
