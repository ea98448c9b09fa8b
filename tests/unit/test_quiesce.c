/* test_quiesce.c: quiescence and captures, several at once: a wait never ends before the work it is
 * for, always ends after it, and disturbs no capture. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/stream/gate.h"
#include "preload/stream/quiesce.h"
#include "preload/driver/real.h"

#define CONTEXT(i) ((CUcontext)(uintptr_t)(0xc0 + (i)))
#define STREAM(i)  ((CUstream)(uintptr_t)(0x100 + (i)))
#define EVENT(i)   ((CUevent)(uintptr_t)(0x200 + (i)))
#define CONTEXTS   2u
#define STREAMS    6u                 /* streams that a program creates */
#define PLACES     (STREAMS + 2 * 3u) /* plus the default streams: three for each context */
#define EVENTS     64u

static struct gpu *const gpu = &core.gpus[0];
static struct gate_thread threads[2];
static uint32_t random_state;
static bool modern;    /* the driver has events for whole contexts */
static CUresult fails; /* the driver's answer to queries after a failure */

/* Pieces of work are numbered as they are submitted; each stream finishes its own in order. */
static uint64_t submitted, last_in[PLACES], done_in[PLACES];
static bool there[STREAMS], capturing[STREAMS];
static unsigned queries, current;
static unsigned captures_meanwhile; /* begins a capture on this stream while an event is recorded */
static _Atomic bool record_blocks, in_record;

static struct {
        bool made;
        uint64_t waits[PLACES]; /* the event waits for this piece of work in each stream */
} events[EVENTS];

static uint32_t draw(uint32_t below)
{
        random_state = random_state * 1664525u + 1013904223u;
        return (random_state >> 8) % below;
}

static unsigned context_of(unsigned place)
{
        return place < STREAMS ? place % CONTEXTS : (place - STREAMS) / 3;
}

static bool busy(unsigned place)
{
        return last_in[place] > done_in[place];
}

/* ---- fakes of other modules ---- */

unsigned gate_default_streams(void)
{
        unsigned all = 0;

        for (unsigned i = 0; i < 3 * CONTEXTS; i++)
                if (last_in[STREAMS + i])
                        all |= 1u << (i % 3 ? (uintptr_t)CU_STREAM_PER_THREAD : 0);
        return all;
}

uint64_t gate_submissions(void)
{
        return submitted;
}

/* ---- the driver ---- */

static CUresult fake_push(CUcontext c)
{
        current = (unsigned)((uintptr_t)c - 0xc0);
        return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *ret)
{
        return CUDA_SUCCESS;
}

static CUresult fake_relax(CUstreamCaptureMode *mode)
{
        return CUDA_SUCCESS;
}

static CUresult fake_is_capturing(CUstream s, CUstreamCaptureStatus *ret)
{
        unsigned i = (unsigned)((uintptr_t)s - 0x100);

        *ret = i < STREAMS && capturing[i] ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                           : CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
}

static CUresult fake_query(CUstream s)
{
        unsigned i =
                s == CU_STREAM_LEGACY ? STREAMS + 3 * current : (unsigned)((uintptr_t)s - 0x100);

        queries++;
        assert_true(i < PLACES);
        if (i < STREAMS) {
                assert_true(there[i]);
                assert_false(capturing[i]); /* a query would end the capture */
        }
        return fails ? fails : busy(i) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult fake_event(CUevent *ret, unsigned flags)
{
        for (unsigned i = 0; i < EVENTS; i++)
                if (!events[i].made) {
                        memset(&events[i], 0, sizeof(events[i]));
                        events[i].made = true;
                        *ret = EVENT(i);
                        return CUDA_SUCCESS;
                }
        fail_msg("events are not given back");
        return CUDA_ERROR_OUT_OF_MEMORY;
}

static unsigned event_at(CUevent e)
{
        unsigned i = (unsigned)((uintptr_t)e - 0x200);

        assert_true(i < EVENTS && events[i].made);
        return i;
}

static CUresult fake_event_end(CUevent e)
{
        events[event_at(e)].made = false;
        return CUDA_SUCCESS;
}

static CUresult fake_event_query(CUevent e)
{
        unsigned i = event_at(e);

        queries++;
        if (fails)
                return fails;
        for (unsigned p = 0; p < PLACES; p++)
                if (done_in[p] < events[i].waits[p])
                        return CUDA_ERROR_NOT_READY;
        return CUDA_SUCCESS;
}

static CUresult fake_context_record(CUcontext c, CUevent e)
{
        unsigned i = event_at(e);

        if (!modern)
                return CUDA_ERROR_NOT_SUPPORTED;
        for (unsigned s = 0; s < STREAMS; s++)
                assert_false(capturing[s]);
        memset(events[i].waits, 0, sizeof(events[i].waits));
        for (unsigned p = 0; p < PLACES; p++)
                if (context_of(p) == (unsigned)((uintptr_t)c - 0xc0))
                        events[i].waits[p] = last_in[p];
        return CUDA_SUCCESS;
}

/* An event in the legacy stream comes after the work in the threads' streams. */
static CUresult fake_record(CUevent e, CUstream s)
{
        unsigned i = event_at(e), place = (unsigned)((uintptr_t)s - 0x100);

        in_record = true;
        while (record_blocks)
                (void)sched_yield();
        in_record = false;
        if (s == CU_STREAM_LEGACY)
                for (unsigned c = 0; c < STREAMS; c++)
                        assert_false(capturing[c]);
        if (captures_meanwhile) {
                capturing[captures_meanwhile] = true;
                assert_int_equal(quiesce_capture_begin(STREAM(captures_meanwhile),
                                                       CONTEXT(context_of(captures_meanwhile)),
                                                       NULL),
                                 0);
                captures_meanwhile = 0;
        }
        memset(events[i].waits, 0, sizeof(events[i].waits));
        if (s == CU_STREAM_LEGACY) {
                for (unsigned p = STREAMS + 3 * current; p < STREAMS + 3 * current + 3; p++)
                        events[i].waits[p] = last_in[p];
                return CUDA_SUCCESS;
        }
        assert_true(place < STREAMS && there[place] && !capturing[place]);
        events[i].waits[place] = last_in[place];
        return CUDA_SUCCESS;
}

/* ---- a program ---- */

static void submit(unsigned place)
{
        last_in[place] = ++submitted;
}

static void make_stream(unsigned i)
{
        there[i] = true;
        assert_int_equal(quiesce_stream_add(STREAM(i), CONTEXT(context_of(i))), 0);
}

static void destroy_stream(unsigned i)
{
        quiesce_stream_remove(STREAM(i));
        there[i] = capturing[i] = false;
}

/* True if each stream has finished its work up to these numbers. */
static bool all_done(const uint64_t then[static PLACES])
{
        for (unsigned p = 0; p < PLACES; p++)
                if (done_in[p] < then[p])
                        return false;
        return true;
}

static void finish(unsigned place)
{
        done_in[place] = last_in[place];
}

static void finish_all(void)
{
        for (unsigned p = 0; p < PLACES; p++)
                finish(p);
}

static int begin_with(bool new_driver)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1};
        memset(last_in, 0, sizeof(last_in));
        memset(done_in, 0, sizeof(done_in));
        memset(there, 0, sizeof(there));
        memset(capturing, 0, sizeof(capturing));
        memset(events, 0, sizeof(events));
        modern = new_driver;
        fails = CUDA_SUCCESS;
        random_state = 1;
        gate_self = &threads[0];
        real.cuCtxPushCurrent_v2 = fake_push;
        real.cuCtxPopCurrent_v2 = fake_pop;
        real.cuThreadExchangeStreamCaptureMode = fake_relax;
        real.cuStreamIsCapturing = fake_is_capturing;
        real.cuStreamQuery = fake_query;
        real.cuEventCreate = fake_event;
        real.cuEventDestroy_v2 = fake_event_end;
        real.cuEventQuery = fake_event_query;
        real.cuEventRecord = fake_record;
        real.cuCtxRecordEvent = fake_context_record;
        for (unsigned i = 0; i < CONTEXTS; i++)
                assert_int_equal(quiesce_context_add(CONTEXT(i), gpu, i == 0)->has_marks, modern);
        return 0;
}

static int begin(void **state)
{
        return begin_with(true);
}

static int begin_old(void **state)
{
        return begin_with(false);
}

static int end(void **state)
{
        for (unsigned i = 0; i < CONTEXTS; i++)
                if (quiesce_context(CONTEXT(i)))
                        quiesce_context_remove(quiesce_context(CONTEXT(i)));
        assert_false(quiesce_capturing());
        submitted++; /* the next test must not find these streams drained already */
        return 0;
}

/* ---- captures ---- */

static void check_wakes(CUevent expected, CUstream stream)
{
        uint32_t heard = bell_listen(&core.changed);
        unsigned kicks = request_kicks;

        assert_ptr_equal(quiesce_capture_end(stream), expected);
        if (expected) {
                assert_int_not_equal(bell_listen(&core.changed), heard);
                assert_int_not_equal(request_kicks, kicks);
        }
}

static void two_captures_in_one_thread_end_separately(void **state)
{
        assert_int_equal(quiesce_capture_begin(STREAM(1), CONTEXT(0), EVENT(1)), 0);
        assert_int_equal(quiesce_capture_begin(STREAM(2), CONTEXT(0), EVENT(2)), 0);
        check_wakes(NULL, STREAM(3));
        check_wakes(EVENT(1), STREAM(1));
        assert_true(quiesce_capturing());
        check_wakes(NULL, STREAM(1));
        check_wakes(EVENT(2), STREAM(2));
        assert_false(quiesce_capturing());
}

/* Both threads use the same handle for their own stream. */
static void captures_of_two_threads_default_streams_are_separate(void **state)
{
        for (unsigned first = 0; first < 2; first++) {
                for (unsigned i = 0; i < 2; i++) {
                        gate_self = &threads[i];
                        assert_int_equal(quiesce_capture_begin(CU_STREAM_PER_THREAD, CONTEXT(0),
                                                               EVENT(i + 1)),
                                         0);
                }
                gate_self = &threads[first];
                check_wakes(EVENT(first + 1), CU_STREAM_PER_THREAD);
                check_wakes(NULL, CU_STREAM_PER_THREAD); /* the other thread's capture goes on */
                assert_true(quiesce_capturing());
                gate_self = &threads[!first];
                check_wakes(EVENT(!first + 1), CU_STREAM_PER_THREAD);
                assert_false(quiesce_capturing());
        }
}

/* One thread begins a capture on an ordinary stream; another thread may end it. */
static void a_capture_may_be_ended_by_another_thread(void **state)
{
        assert_int_equal(quiesce_capture_begin(STREAM(1), CONTEXT(0), EVENT(1)), 0);
        assert_int_equal(quiesce_capture_begin(CU_STREAM_PER_THREAD, CONTEXT(0), EVENT(2)), 0);
        gate_self = &threads[1];
        check_wakes(EVENT(1), STREAM(1));
        check_wakes(NULL, CU_STREAM_PER_THREAD);
        gate_self = &threads[0];
        check_wakes(EVENT(2), CU_STREAM_PER_THREAD);
}

static void the_capture_of_a_threads_own_stream_ends_with_the_thread(void **state)
{
        for (unsigned i = 0; i < 2; i++) {
                gate_self = &threads[i];
                assert_int_equal(
                        quiesce_capture_begin(CU_STREAM_PER_THREAD, CONTEXT(0), EVENT(i + 1)), 0);
                assert_int_equal(quiesce_capture_begin(STREAM(i), CONTEXT(0), EVENT(i + 5)), 0);
        }
        quiesce_thread_ended(&threads[0]);
        gate_self = &threads[0];
        check_wakes(NULL, CU_STREAM_PER_THREAD);
        check_wakes(EVENT(5), STREAM(0)); /* not a per-thread stream */
        gate_self = &threads[1];
        check_wakes(EVENT(2), CU_STREAM_PER_THREAD);
        check_wakes(EVENT(6), STREAM(1));
        assert_false(quiesce_capturing());
}

static void captures_end_with_their_streams_and_contexts(void **state)
{
        make_stream(0);
        make_stream(1);
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(quiesce_capture_begin(STREAM(i), CONTEXT(i), EVENT(i + 1)), 0);
        capturing[0] = capturing[1] = true;
        destroy_stream(0);
        check_wakes(NULL, STREAM(0));
        assert_true(quiesce_capturing());
        quiesce_context_remove(quiesce_context(CONTEXT(1)));
        assert_false(quiesce_capturing());
}

static CUresult unsupported(CUevent e)
{
        return e == EVENT(2) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

static void the_driver_says_whether_a_capture_forbids_calls(void **state)
{
        real.cuEventQuery = unsupported;
        assert_false(quiesce_capture_forbids());
        assert_int_equal(quiesce_capture_begin(STREAM(0), CONTEXT(0), NULL), 0);
        assert_false(quiesce_capture_forbids());
        assert_int_equal(quiesce_capture_begin(STREAM(1), CONTEXT(0), EVENT(2)), 0);
        assert_true(quiesce_capture_forbids());
        check_wakes(EVENT(2), STREAM(1));
        assert_null(quiesce_capture_end(STREAM(0)));
        assert_int_equal(quiesce_capture_begin(STREAM(1), CONTEXT(0), EVENT(1)), 0);
        assert_false(quiesce_capture_forbids());
        check_wakes(EVENT(1), STREAM(1));
}

static void many_simultaneous_captures_are_told_apart(void **state)
{
        struct {
                CUstream stream;
                unsigned thread;
                CUevent probe;
        } open[64];
        unsigned n = 0, number = 0;

        for (unsigned i = 0; i < 4000; i++) {
                CUstream s = draw(3) ? STREAM(draw(40)) : CU_STREAM_PER_THREAD;
                unsigned k = 0, thread = draw(2);

                gate_self = &threads[thread];
                while (k < n && (open[k].stream != s ||
                                 (s == CU_STREAM_PER_THREAD && open[k].thread != thread)))
                        k++;
                if (k < n) {
                        check_wakes(open[k].probe, s);
                        open[k] = open[--n];
                } else if (draw(2)) {
                        open[n].stream = s;
                        open[n].thread = thread;
                        open[n].probe = (CUevent)(uintptr_t)(0x1000 + ++number);
                        assert_int_equal(quiesce_capture_begin(s, CONTEXT(0), open[n++].probe), 0);
                } else {
                        check_wakes(NULL, s);
                }
                assert_int_equal(quiesce_capturing(), n > 0);
        }
        gate_self = &threads[0];
        for (; n < ARRAY_SIZE(open); n++) {
                open[n].stream = STREAM(100 + n);
                open[n].thread = 0;
                open[n].probe = (CUevent)(uintptr_t)(0x1000 + ++number);
                assert_int_equal(quiesce_capture_begin(open[n].stream, CONTEXT(0), open[n].probe),
                                 0);
        }
        while (n-- > 0) {
                gate_self = &threads[open[n].thread];
                check_wakes(open[n].probe, open[n].stream);
        }
}

static void no_stream_is_queried_during_a_capture(void **state)
{
        struct quiesce_wait w;

        make_stream(0);
        make_stream(1);
        submit(1);
        assert_int_equal(quiesce_capture_begin(STREAM(0), CONTEXT(0), NULL), 0);
        capturing[0] = true;
        queries = 0;
        for (unsigned still = 0; still < 2; still++) {
                quiesce_begin(&w, still);
                assert_int_equal(quiesce_poll(&w), QUIESCE_CAPTURE);
        }
        assert_int_equal(queries, 0);
        assert_true(quiesce_is_capturing(STREAM(0)));
        assert_false(quiesce_is_capturing(STREAM(1)));
        capturing[0] = false;
        assert_null(quiesce_capture_end(STREAM(0)));
        assert_false(quiesce_is_capturing(STREAM(0)));
        quiesce_begin(&w, true);
        assert_int_equal(quiesce_poll(&w), QUIESCE_BUSY);
        finish_all();
        assert_int_equal(quiesce_poll(&w), QUIESCE_DONE);
}

/* ---- waits ---- */

static void check_done(struct quiesce_wait *w)
{
        uint64_t before = w->progress;

        finish_all();
        assert_int_equal(quiesce_poll(w), QUIESCE_DONE);
        assert_int_not_equal(w->progress, before);
}

static void a_wait_covers_work_in_every_stream(void **state)
{
        for (unsigned p = 0; p < STREAMS; p++)
                make_stream(p);
        for (unsigned still = 0; still < 2; still++)
                for (unsigned p = 0; p < PLACES; p++) {
                        struct quiesce_wait w;

                        /* Per-thread streams have no name for others, so they need events of whole
                         * contexts. */
                        submit(p);
                        quiesce_begin(&w, still);
                        for (unsigned i = 0; i < 3; i++)
                                assert_int_equal(quiesce_poll(&w), QUIESCE_BUSY);
                        check_done(&w);
                }
}

static void a_wait_covers_work_of_destroyed_streams(void **state)
{
        for (unsigned still = 0; still < 2; still++) {
                struct quiesce_wait w;

                make_stream(1);
                submit(1);
                destroy_stream(1);
                quiesce_begin(&w, still);
                assert_int_equal(quiesce_poll(&w), QUIESCE_BUSY);
                check_done(&w);
                /* Without streams there is nothing to wait for. */
                make_stream(3);
                destroy_stream(3);
                submitted++;
                quiesce_begin(&w, still);
                assert_int_equal(quiesce_poll(&w), QUIESCE_DONE);
        }
}

/* No event can be recorded in the destroyed stream during the capture. */
static void a_wait_covers_work_of_a_stream_destroyed_during_a_capture(void **state)
{
        struct quiesce_wait w;

        make_stream(0);
        make_stream(1);
        submit(1);
        assert_int_equal(quiesce_capture_begin(STREAM(0), CONTEXT(0), NULL), 0);
        capturing[0] = true;
        destroy_stream(1);
        capturing[0] = false;
        assert_null(quiesce_capture_end(STREAM(0)));
        quiesce_begin(&w, true);
        assert_int_equal(quiesce_poll(&w), QUIESCE_BUSY);
        check_done(&w);
        assert_false(quiesce_context(CONTEXT(1))->strays);
}

static void a_wait_ends_though_the_program_submits_more(void **state)
{
        struct quiesce_wait first, second;

        make_stream(0);
        make_stream(1);
        submit(0);
        quiesce_begin(&first, false);
        assert_int_equal(quiesce_poll(&first), QUIESCE_BUSY);
        submit(1); /* submitted after the first wait began */
        quiesce_begin(&second, false);
        assert_int_equal(quiesce_poll(&second), QUIESCE_BUSY);
        finish(0);
        assert_int_equal(quiesce_poll(&first), QUIESCE_DONE);
        assert_int_equal(quiesce_poll(&second), QUIESCE_BUSY);
        finish(1);
        assert_int_equal(quiesce_poll(&second), QUIESCE_DONE);
        assert_int_equal(quiesce_poll(&first), QUIESCE_DONE);
}

static void no_stream_is_touched_once_a_capture_has_begun(void **state)
{
        struct quiesce_wait w;

        for (unsigned i = 0; i < STREAMS; i++)
                make_stream(i);
        for (unsigned still = 0; still < 2; still++) {
                for (unsigned p = 0; p < PLACES; p++)
                        submit(p);
                captures_meanwhile = 3;
                quiesce_begin(&w, still);
                (void)quiesce_poll(&w);
                assert_int_equal(captures_meanwhile, 0);
                assert_int_equal(quiesce_poll(&w), QUIESCE_CAPTURE);
                capturing[3] = false;
                assert_null(quiesce_capture_end(STREAM(3)));
                if (still)
                        quiesce_begin(&w, true);
                assert_int_equal(quiesce_poll(&w), QUIESCE_BUSY);
                check_done(&w);
        }
}

static void *wait_beside(void *unused)
{
        struct quiesce_wait w;

        lock_acquire(&core_lock);
        quiesce_begin(&w, false);
        (void)quiesce_poll(&w);
        lock_release(&core_lock);
        return NULL;
}

static void let_record(const struct core_wait *w)
{
        record_blocks = false;
        (void)sched_yield();
}

static void a_capture_begins_after_events_that_are_being_recorded(void **state)
{
        pthread_t thread;
        bool recorded;

        make_stream(0);
        submit(0);
        record_blocks = true;
        assert_int_equal(pthread_create(&thread, NULL, wait_beside, NULL), 0);
        while (!in_record)
                (void)sched_yield();
        meanwhile = let_record;
        lock_acquire(&core_lock);
        quiesce_await_records();
        recorded = !record_blocks && !in_record;
        lock_release(&core_lock);
        meanwhile = NULL;
        record_blocks = false;
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(recorded);
        finish_all();
}

static void a_wait_ends_when_work_has_failed(void **state)
{
        struct quiesce_wait w;

        make_stream(0);
        submit(0);
        submit(STREAMS + 1);
        quiesce_begin(&w, true);
        assert_int_equal(quiesce_poll(&w), QUIESCE_BUSY);
        fails = CUDA_ERROR_LAUNCH_FAILED;
        assert_int_equal(quiesce_poll(&w), QUIESCE_DONE);
        assert_int_equal(gpu->error, CUDA_ERROR_LAUNCH_FAILED);
}

static void a_wait_goes_on_while_the_driver_does_not_answer(void **state)
{
        static const CUresult errors[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_INVALID_VALUE,
                                          CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_SYSTEM_NOT_READY};

        make_stream(0);
        for (unsigned i = 0; i < 2 * ARRAY_SIZE(errors); i++) {
                struct quiesce_wait w;

                submit(0);
                fails = i % 2 ? errors[i / 2] : CUDA_SUCCESS; /* or from the beginning on */
                quiesce_begin(&w, true);
                fails = errors[i / 2];
                assert_int_equal(quiesce_poll(&w), QUIESCE_BUSY);
                fails = CUDA_SUCCESS;
                assert_int_equal(quiesce_poll(&w), QUIESCE_BUSY);
                check_done(&w);
        }
        assert_int_equal(gpu->error, CUDA_SUCCESS);
}

static void idle_streams_are_not_queried_again(void **state)
{
        make_stream(0);
        submit(0);
        finish_all();
        lock_acquire(&core_lock);
        quiesce_wait_all();
        queries = 0;
        quiesce_wait_all();
        assert_int_equal(queries, 0);
        submit(0);
        finish_all();
        quiesce_wait_all();
        assert_int_not_equal(queries, 0);
        assert_int_not_equal(atomic_load(&core_lock.word), 0);
        lock_release(&core_lock);
}

static unsigned polls;

static CUresult finish_later(CUevent e)
{
        if (++polls == 30)
                finish_all();
        return fake_event_query(e);
}

static void waiting_for_all_ends_with_the_work(void **state)
{
        make_stream(0);
        submit(0);
        real.cuEventQuery = finish_later;
        polls = 0;
        lock_acquire(&core_lock);
        quiesce_wait_all();
        lock_release(&core_lock);
        assert_false(busy(0));
}

static void contexts_are_found_by_handle_gpu_and_kind(void **state)
{
        struct context *green = quiesce_context_add((CUcontext)(uintptr_t)0xc0ffee, gpu, false);

        green->green = (CUgreenCtx)(uintptr_t)0x9;
        assert_ptr_equal(quiesce_context(CONTEXT(1))->handle, CONTEXT(1));
        assert_null(quiesce_context(NULL));
        assert_ptr_equal(quiesce_context_of(gpu)->handle, CONTEXT(1));
        quiesce_context(CONTEXT(1))->dying = true;
        assert_ptr_equal(quiesce_context_of(gpu)->handle, CONTEXT(0));
        assert_null(quiesce_context_of(&core.gpus[1]));
        assert_ptr_equal(quiesce_context_primary(gpu)->handle, CONTEXT(0));
        assert_null(quiesce_context_primary(&core.gpus[1]));
        assert_ptr_equal(quiesce_context_green(green->green), green);
        assert_null(quiesce_context_green(NULL));
        assert_ptr_equal(quiesce_context_green_of(gpu), green);
        assert_null(quiesce_context_green_of(&core.gpus[1]));
        assert_ptr_equal(quiesce_owner(green->handle), CONTEXT(0));
        assert_ptr_equal(quiesce_owner(CONTEXT(1)), CONTEXT(1));
        assert_ptr_equal(quiesce_owner((CUcontext)(uintptr_t)0x77), (CUcontext)(uintptr_t)0x77);
        quiesce_context_remove(green);
}

/* A random program submits and finishes work, makes and destroys streams, and sometimes waits. */
static void no_wait_ends_before_its_work(void **state)
{
        for (unsigned round = 0; round < 300; round++) {
                struct quiesce_wait w;
                bool still = draw(2);
                uint64_t then[PLACES];

                for (unsigned i = draw(12); i-- > 0;) {
                        unsigned s = draw(STREAMS), p = draw(PLACES);

                        if (draw(3) == 0 && !there[s] && !busy(s))
                                make_stream(s);
                        else if (draw(6) == 0 && there[s])
                                destroy_stream(s);
                        else if (p >= STREAMS ? (modern || draw(2)) : there[p])
                                submit(p);
                        finish(draw(PLACES));
                }
                memcpy(then, last_in, sizeof(then));
                quiesce_begin(&w, still);
                for (unsigned i = 0; i < 40; i++) {
                        enum quiescence q = quiesce_poll(&w);

                        assert_int_not_equal(q, QUIESCE_CAPTURE);
                        if (q == QUIESCE_DONE) {
                                assert_true(all_done(then));
                                break;
                        }
                        if (!still && draw(2) && there[0])
                                submit(0);
                        if (draw(2))
                                finish(draw(PLACES));
                        if (i >= 30)
                                finish_all();
                        assert_true(i < 39);
                }
        }
        finish_all();
}

#define QUIESCE_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define QUIESCE_TESTS(name)                                         \
        QUIESCE_TEST(name),                                         \
        {                                                           \
#name " (older driver)", name, begin_old, end, NULL \
        }

int main(void)
{
        const struct CMUnitTest tests[] = {
                QUIESCE_TEST(two_captures_in_one_thread_end_separately),
                QUIESCE_TEST(captures_of_two_threads_default_streams_are_separate),
                QUIESCE_TEST(a_capture_may_be_ended_by_another_thread),
                QUIESCE_TEST(the_capture_of_a_threads_own_stream_ends_with_the_thread),
                QUIESCE_TEST(captures_end_with_their_streams_and_contexts),
                QUIESCE_TEST(the_driver_says_whether_a_capture_forbids_calls),
                QUIESCE_TEST(many_simultaneous_captures_are_told_apart),
                QUIESCE_TESTS(no_stream_is_queried_during_a_capture),
                QUIESCE_TESTS(a_wait_covers_work_in_every_stream),
                QUIESCE_TESTS(a_wait_covers_work_of_destroyed_streams),
                QUIESCE_TESTS(a_wait_covers_work_of_a_stream_destroyed_during_a_capture),
                QUIESCE_TESTS(a_wait_ends_though_the_program_submits_more),
                QUIESCE_TESTS(a_wait_ends_when_work_has_failed),
                QUIESCE_TESTS(a_wait_goes_on_while_the_driver_does_not_answer),
                QUIESCE_TESTS(idle_streams_are_not_queried_again),
                QUIESCE_TESTS(waiting_for_all_ends_with_the_work),
                QUIESCE_TEST(contexts_are_found_by_handle_gpu_and_kind),
                cmocka_unit_test_setup_teardown(no_stream_is_touched_once_a_capture_has_begun,
                                                begin_old, end),
                cmocka_unit_test_setup_teardown(
                        a_capture_begins_after_events_that_are_being_recorded, begin_old, end),
                QUIESCE_TESTS(no_wait_ends_before_its_work),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
