/* test_caches.c: before an eviction a thread of ours makes PyTorch free its unused memory. The
 * eviction waits while that makes progress, and does not wait for a thread that does not answer. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "base/clock.h"
#include "fakes/preload.h"
#include "preload/move/caches.h"
#include "preload/process/python.h"
#include "preload/stream/quiesce.h"
#include "preload/state/request.h"

#define MS NSEC_PER_MSEC

static struct gpu *const gpu = &core.gpus[0];
static struct context contexts[2] = {{.handle = (CUcontext)(uintptr_t)0xc0},
                                     {.handle = (CUcontext)(uintptr_t)0xc1}};
static uint64_t now;

/* The state of the fake Python. Only our thread writes it while a test waits for that thread. */
static sem_t interpreter, kicked;
static unsigned calls, references;
static void *(*told_of_the_end)(void *, void *);
static bool imported, no_atexit;
static CUcontext current, current_in_call;
static void (*in_call)(void);
static char object;

/* ---- Python ---- */

static int yes(void)
{
        return 1;
}

static int take_interpreter(void)
{
        while (sem_wait(&interpreter) < 0)
                ;
        return 7;
}

static void give_interpreter(int state)
{
        assert_int_equal(state, 7);
        assert_null(current);
        (void)sem_post(&interpreter);
}

static void *save_thread(void)
{
        (void)sem_post(&interpreter);
        return &object;
}

static void restore_thread(void *thread)
{
        assert_ptr_equal(thread, &object);
        (void)take_interpreter();
}

static void no_error(void)
{
}

static void *modules(void)
{
        return &object;
}

static void *new_reference(void)
{
        references++;
        return &object;
}

static void *import(const char *name)
{
        assert_string_equal(name, "atexit");
        return no_atexit ? NULL : new_reference();
}

static void *item(void *in, const char *name)
{
        assert_string_equal(name, "torch.cuda");
        return imported ? &object : NULL; /* a borrowed reference */
}

static void *attribute(void *of, const char *name)
{
        assert_true(strcmp(name, "register") == 0 || strcmp(name, "empty_cache") == 0);
        return new_reference();
}

static void *call(void *f, void *arguments)
{
        assert_int_equal(atomic_load(&core_lock.word), 0);
        calls++;
        current_in_call = current;
        if (in_call)
                in_call();
        return new_reference();
}

static void *call_with(void *f, ...)
{
        return new_reference();
}

static void *function(struct python_method *m, void *self, void *module)
{
        told_of_the_end = m->call;
        return new_reference();
}

static void reference(void *o)
{
        references++;
}

static void unreference(void *o)
{
        references -= o != NULL;
}

struct python python = {.there = true,
                        .Py_IsInitialized = yes,
                        .PyGILState_Ensure = take_interpreter,
                        .PyGILState_Release = give_interpreter,
                        .PyEval_SaveThread = save_thread,
                        .PyEval_RestoreThread = restore_thread,
                        .PyErr_Clear = no_error,
                        .PyImport_GetModuleDict = modules,
                        .PyImport_ImportModule = import,
                        .PyDict_GetItemString = item,
                        .PyObject_GetAttrString = attribute,
                        .PyObject_CallObject = call,
                        .PyObject_CallFunctionObjArgs = call_with,
                        .PyCFunction_NewEx = function,
                        .Py_IncRef = reference,
                        .Py_DecRef = unreference};

/* ---- fakes of other modules ---- */

void request_kick(void)
{
        (void)sem_post(&kicked);
}

struct context *quiesce_context_primary(const struct gpu *g)
{
        return g->context;
}

static CUresult fake_set(CUcontext context)
{
        current = context;
        return CUDA_SUCCESS;
}

static CUresult fake_relax(CUstreamCaptureMode *mode)
{
        return CUDA_SUCCESS;
}

/* ---- the tests ---- */

/* Lets the program run once, so that it may be asked again. */
static void after_a_run(void)
{
        lock_acquire(&core_lock);
        core.running = true;
        (void)caches_hold(false, now);
        core.running = false;
        lock_release(&core_lock);
        now += NSEC_PER_SEC;
}

static bool hold(void)
{
        bool held;

        lock_acquire(&core_lock);
        held = caches_hold(true, now);
        lock_release(&core_lock);
        return held;
}

/* Waits until our thread has finished the request. */
static void await_thread(void)
{
        while (sem_wait(&kicked) < 0)
                ;
}

/* Checks that an eviction waits until our thread has called Python once. */
static void asks_once(void)
{
        unsigned before = calls;

        assert_true(hold());
        await_thread();
        assert_false(hold());
        assert_int_equal(calls, before + 1);
}

static int begin(void **state)
{
        static bool started;

        (void)alarm(60);
        if (!started) {
                started = true;
                (void)sem_init(&interpreter, 0, 1);
                (void)sem_init(&kicked, 0, 0);
                caches_setup();
        }
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 2};
        for (unsigned i = 0; i < 2; i++) {
                core.gpus[i].managed = true;
                core.gpus[i].own_limit = UINT64_MAX;
                core.gpus[i].limit = 100;
                core.gpus[i].context = &contexts[i];
                contexts[i].dying = false;
        }
        gpu->heap.backed = 101;
        gpu->heap.allocated = 500;
        imported = true;
        no_atexit = false;
        in_call = NULL;
        calls = 0;
        fake_capturing = false;
        real = (struct real_driver){.cuCtxSetCurrent = fake_set,
                                    .cuThreadExchangeStreamCaptureMode = fake_relax};
        after_a_run();
        return 0;
}

/* The first test: it needs a process without our thread. */
static void a_thread_that_cannot_start_is_started_after_the_next_turn(void **state)
{
        thread_error = EAGAIN;
        assert_false(hold());
        thread_error = 0;
        after_a_run();
        asks_once();
}

static void an_eviction_waits_until_the_program_empties_its_cache(void **state)
{
        asks_once();
        assert_int_equal(gpu->commit_kept, 500); /* the program keeps its commit */
        assert_int_equal(references, 0);
        assert_false(hold()); /* Python is called once between two runs */
        assert_int_equal(calls, 1);
        after_a_run();
        asks_once();
}

static void a_program_is_asked_again_only_after_another_turn(void **state)
{
        asks_once();
        lock_acquire(&core_lock);
        (void)caches_hold(false, now); /* no eviction, but the program has not run either */
        lock_release(&core_lock);
        assert_false(hold());
        lock_acquire(&core_lock);
        core.lease = 5;
        (void)caches_hold(false, now);
        core.lease = 0;
        lock_release(&core_lock);
        asks_once();
}

static void a_program_with_enough_room_is_not_asked(void **state)
{
        gpu->heap.backed = 100;
        assert_false(hold());
        gpu->heap.backed = 101;
        gpu->managed = false;
        assert_false(hold());
        gpu->managed = true;
        asks_once();
}

static void a_program_is_asked_if_any_card_is_short(void **state)
{
        gpu->heap.backed = 0;
        core.gpus[1].heap.backed = 101;
        asks_once();
        assert_ptr_equal(current_in_call, contexts[1].handle);
        gpu->heap.backed = 101;
        core.gpus[1].heap.backed = 0;
        after_a_run();
        asks_once();
        assert_ptr_equal(current_in_call, contexts[0].handle);
        contexts[0].dying = true;
        after_a_run();
        asks_once(); /* the call runs in any context of the program that is alive */
        assert_ptr_equal(current_in_call, contexts[1].handle);
}

static void without_a_context_python_is_not_called(void **state)
{
        gpu->context = core.gpus[1].context = NULL;
        assert_true(hold());
        await_thread();
        assert_false(hold());
        assert_int_equal(calls, 0);
}

static void a_program_that_has_not_imported_torch_is_not_called(void **state)
{
        imported = false;
        assert_true(hold());
        await_thread();
        assert_false(hold());
        assert_int_equal(calls + references, 0);
}

static void a_program_is_not_asked_during_a_capture(void **state)
{
        fake_capturing = true;
        assert_false(hold());
        assert_int_equal(calls, 0);
}

/* Another thread has the interpreter's lock. The next hand-offs do not wait for Python; their
 * number doubles each time. */
static void a_program_that_does_not_answer_is_skipped_for_a_while(void **state)
{
        for (unsigned skips = 1; skips < 8; skips = 2 * skips + 1) {
                (void)take_interpreter();
                assert_true(hold());
                now += 30 * MS;
                assert_true(hold());
                now += 1;
                assert_false(hold());
                assert_false(hold());
                (void)sem_post(&interpreter);
                await_thread();
                assert_int_equal(calls, 0); /* no eviction waits any more, so no call is made */
                for (unsigned i = 0; i < skips; i++) {
                        after_a_run();
                        assert_false(hold());
                }
                after_a_run();
        }
        asks_once();
        calls = 0;
        after_a_run();
        asks_once(); /* a program that answers is asked each time */
}

static void an_eviction_waits_as_long_as_memory_comes_back(void **state)
{
        (void)take_interpreter();
        assert_true(hold());
        for (unsigned i = 0; i < 5; i++) {
                now += 30 * MS;
                gpu->heap.allocated -= 10;
                assert_true(hold());
        }
        assert_int_equal(gpu->commit_kept, 500);
        (void)sem_post(&interpreter);
        await_thread();
        assert_false(hold());
        assert_int_equal(calls, 1);
}

static void a_thread_still_in_python_is_not_called_again(void **state)
{
        (void)take_interpreter();
        assert_true(hold());
        now += 31 * MS;
        assert_false(hold());
        after_a_run();
        assert_false(hold()); /* this hand-off was to be skipped anyway */
        after_a_run();
        assert_false(hold());
        (void)sem_post(&interpreter);
        await_thread();
        after_a_run();
        asks_once();
}

static sem_t called, go_on;

static void stay(void)
{
        (void)sem_post(&called);
        (void)sem_post(&interpreter); /* a long call gives up the lock from time to time */
        (void)sem_wait(&go_on);
        (void)take_interpreter();
}

static void *end_python(void *ended)
{
        void *result;

        (void)take_interpreter();
        result = told_of_the_end(&object, NULL);
        assert_ptr_equal(result, &object);
        atomic_store((_Atomic bool *)ended, true);
        (void)sem_post(&interpreter);
        return NULL;
}

/* The last test: after this call of Python's end, Python is not called any more. */
static void the_end_of_python_waits_for_a_call(void **state)
{
        static _Atomic bool ended;
        pthread_t thread;

        (void)sem_init(&called, 0, 0);
        (void)sem_init(&go_on, 0, 0);
        in_call = stay;
        assert_true(hold());
        (void)sem_wait(&called);
        assert_non_null(told_of_the_end);
        assert_int_equal(pthread_create(&thread, NULL, end_python, &ended), 0);
        for (unsigned i = 0; i < 10; i++)
                (void)usleep(1000);
        assert_false(atomic_load(&ended));
        (void)sem_post(&go_on);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(atomic_load(&ended));
        await_thread();
        after_a_run();
        assert_false(hold());
        assert_int_equal(calls, 1);
}

#define CACHES_TEST(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
        const struct CMUnitTest tests[] = {
                CACHES_TEST(a_thread_that_cannot_start_is_started_after_the_next_turn),
                CACHES_TEST(an_eviction_waits_until_the_program_empties_its_cache),
                CACHES_TEST(a_program_is_asked_again_only_after_another_turn),
                CACHES_TEST(a_program_with_enough_room_is_not_asked),
                CACHES_TEST(a_program_is_asked_if_any_card_is_short),
                CACHES_TEST(without_a_context_python_is_not_called),
                CACHES_TEST(a_program_that_has_not_imported_torch_is_not_called),
                CACHES_TEST(a_program_is_not_asked_during_a_capture),
                CACHES_TEST(a_program_that_does_not_answer_is_skipped_for_a_while),
                CACHES_TEST(an_eviction_waits_as_long_as_memory_comes_back),
                CACHES_TEST(a_thread_still_in_python_is_not_called_again),
                CACHES_TEST(the_end_of_python_waits_for_a_call),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
