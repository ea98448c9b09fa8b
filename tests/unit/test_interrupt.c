/* test_interrupt.c: a waiting thread asks about Ctrl-C without waiting for the interpreter's lock,
 * which the main thread may hold while it waits for that thread. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/stream/interrupt.h"
#include "preload/process/python.h"
#include "python_stub.h"

typedef void (*signal_handler_t)(int);

static sem_t interpreter; /* the interpreter's lock */
static void *const object = &interpreter;
static bool error_under_way, other_handler, no_module, main_comes_back;
static int references; /* Python references given out and not released */
static unsigned cleared;

static int take_interpreter(void)
{
        while (sem_wait(&interpreter) < 0)
                ;
        return 0;
}

static void give_interpreter(int state)
{
        (void)sem_post(&interpreter);
}

static int (*asked_of_main)(void *);
static void *asked_argument;

static int main_is_asked(int (*call)(void *), void *argument)
{
        asked_of_main = call;
        asked_argument = argument;
        return main_comes_back ? call(argument) : 0;
}

static void *error(void)
{
        return error_under_way ? object : NULL;
}

static void clear(void)
{
        cleared++;
}

static void *modules(void)
{
        return object;
}

static void *borrowed(void *in, const char *name)
{
        assert_string_equal(name, "_signal");
        return no_module ? NULL : object;
}

static void *found(void *in, const char *name)
{
        references++;
        return object;
}

static void *called(void *f, ...)
{
        references++;
        return other_handler ? (void *)&references : object;
}

static void *number(long n)
{
        assert_int_equal(n, SIGINT);
        references++;
        return object;
}

static void released(void *o)
{
        references -= o != NULL;
}

static int take_note(void)
{
        bool noted = stub_noted;

        stub_noted = false;
        return noted;
}

static void give_note(void)
{
        stub_noted = true;
}

struct python python = {
        .there = true,
        .PyOS_InterruptOccurred = take_note,
        .PyErr_SetInterrupt = give_note,
        .Py_IsInitialized = stub_is_initialized,
        .Py_AddPendingCall = main_is_asked,
        .PyGILState_Ensure = take_interpreter,
        .PyGILState_Release = give_interpreter,
        .PyErr_Occurred = error,
        .PyErr_Clear = clear,
        .PyImport_GetModuleDict = modules,
        .PyDict_GetItemString = borrowed,
        .PyObject_GetAttrString = found,
        .PyObject_CallFunctionObjArgs = called,
        .PyLong_FromLong = number,
        .Py_DecRef = released,
};

/* Asks again and again whether the wait must end, for at most this long. */
static bool ends_within(struct interrupt_wait *w, uint64_t ns)
{
        uint64_t until = clock_now_ns() + ns, timeout_ns;
        bool ends = false;

        lock_acquire(&core_lock);
        while (!(ends = interrupt_ends(w, &timeout_ns)) && clock_now_ns() < until) {
                lock_release(&core_lock);
                (void)usleep(1000);
                lock_acquire(&core_lock);
        }
        lock_release(&core_lock);
        return ends;
}

static bool ended_early, ended;

static void *worker(void *unused)
{
        struct interrupt_wait w = {0};

        interrupt_begin(&w);
        (void)kill(getpid(), SIGINT);
        ended_early = ends_within(&w, NSEC_PER_SEC);
        (void)sem_post(&interpreter); /* a worker that waited for this lock would not get here */
        ended = ends_within(&w, 30 * NSEC_PER_SEC);
        return NULL;
}

static void a_worker_does_not_wait_for_the_interpreter_lock(void **state)
{
        pthread_t thread;

        assert_int_equal(sem_init(&interpreter, 0, 0), 0); /* the main thread holds the lock */
        (void)signal(SIGINT, stub_handler);
        interrupt_setup();
        (void)alarm(60);
        assert_int_equal(pthread_create(&thread, NULL, worker, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        (void)alarm(0);
        assert_false(ended_early);
        assert_true(ended);
}

/* ---- the main thread ---- */

static int begin(void **state)
{
        stub_finished = error_under_way = other_handler = no_module = false;
        thread_error = 0;
        main_comes_back = stub_noted = false;
        references = 0;
        cleared = stub_handled = 0;
        stub_bell = &core.changed.rings;
        python.there = true;
        assert_int_equal(sem_init(&interpreter, 0, 1), 0); /* nobody holds the lock */
        (void)signal(SIGINT, stub_handler);
        interrupt_setup();
        return 0;
}

static int end(void **state)
{
        int free = 0;

        assert_int_equal(references, 0);
        assert_int_equal(sem_getvalue(&interpreter, &free), 0);
        assert_int_equal(free, 1);
        (void)signal(SIGINT, SIG_DFL);
        return 0;
}

static signal_handler_t handler(void)
{
        struct sigaction now;

        assert_int_equal(sigaction(SIGINT, NULL, &now), 0);
        return now.sa_handler;
}

/* Asks once whether the wait must end, in the main thread. */
static bool asks(struct interrupt_wait *w)
{
        uint64_t timeout_ns = 1;
        bool ends;

        lock_acquire(&core_lock);
        ends = interrupt_ends(w, &timeout_ns);
        assert_int_not_equal(atomic_load(&core_lock.word), 0);
        lock_release(&core_lock);
        assert_int_equal(timeout_ns, UINT64_MAX);
        return ends;
}

static void a_program_without_python_keeps_its_handler(void **state)
{
        struct interrupt_wait w = {0};

        python.there = false;
        (void)signal(SIGINT, stub_handler);
        interrupt_setup();
        interrupt_begin(&w);
        assert_ptr_equal(handler(), stub_handler);
        (void)raise(SIGINT);
        assert_false(asks(&w));
        python.there = true;
        (void)signal(SIGINT, SIG_DFL);
}

static void an_interrupt_ends_the_wait_that_it_arrives_in(void **state)
{
        struct interrupt_wait w = {0};
        uint32_t heard = bell_listen(&core.changed);

        interrupt_begin(&w);
        assert_false(asks(&w));
        errno = 0;
        (void)raise(SIGINT);
        assert_int_equal(errno, 0);
        assert_int_equal(stub_handled, 1);
        /* Python's handler ran before the bell woke a thread. */
        assert_int_equal(stub_rings, heard);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_true(asks(&w));
        assert_false(asks(&w)); /* an interrupt ends a wait once */
        assert_true(stub_noted);
        interrupt_begin(&w);
        (void)raise(SIGINT);
        assert_int_equal(stub_handled, 2); /* our handler calls Python's, and not itself */
        assert_true(asks(&w));
}

/* A program may go on after a failed call: PyTorch tries another way to multiply matrices. */
static void calls_do_not_wait_until_python_has_acted_on_the_interrupt(void **state)
{
        struct interrupt_wait w[4] = {0};

        interrupt_begin(&w[0]);
        (void)raise(SIGINT);
        assert_true(asks(&w[0]));
        interrupt_begin(&w[1]);
        assert_true(asks(&w[1]));
        stub_noted = false; /* Python raises KeyboardInterrupt */
        interrupt_begin(&w[2]);
        assert_false(asks(&w[2]));
        assert_false(stub_noted);
        interrupt_begin(&w[3]);
        assert_int_equal(w[3].seen, w[2].seen); /* the interrupt is settled: no thread asks again */
        (void)raise(SIGINT);
        assert_true(asks(&w[3]));
        assert_true(asks(&w[2]));
}

/* If Python would not raise KeyboardInterrupt, the wait goes on. */
static void an_interrupt_without_keyboardinterrupt_ends_no_wait(void **state)
{
        bool *const reasons[] = {&stub_finished, &error_under_way, &other_handler, &no_module};

        for (unsigned i = 0; i < ARRAY_SIZE(reasons); i++) {
                struct interrupt_wait w = {0};

                *reasons[i] = true;
                cleared = 0;
                interrupt_begin(&w);
                (void)raise(SIGINT);
                assert_false(asks(&w));
                *reasons[i] = false;
                assert_false(asks(&w)); /* the first interrupt is settled */
                /* Only an error that our question raised is cleared, not one of the program. */
                assert_int_equal(cleared, i >= 2);
                (void)raise(SIGINT);
                assert_true(asks(&w));
        }
}

static void handlers_other_than_pythons_stay(void **state)
{
        struct sigaction details = {.sa_flags = SA_SIGINFO};
        struct interrupt_wait w = {0};
        const signal_handler_t others[] = {SIG_DFL, SIG_IGN, (signal_handler_t)(uintptr_t)&free};

        for (unsigned i = 0; i < ARRAY_SIZE(others); i++) {
                (void)signal(SIGINT, others[i]);
                interrupt_begin(&w);
                assert_ptr_equal(handler(), others[i]);
        }
        details.sa_sigaction = stub_detailed;
        assert_int_equal(sigaction(SIGINT, &details, NULL), 0);
        interrupt_begin(&w);
        assert_ptr_equal(handler(), (signal_handler_t)(uintptr_t)stub_detailed);
}

/* ---- other threads ---- */

static struct interrupt_wait *waiting;

static void *ask_once(void *ret)
{
        uint64_t timeout_ns;

        lock_acquire(&core_lock);
        *(bool *)ret = interrupt_ends(waiting, &timeout_ns);
        lock_release(&core_lock);
        return (void *)(uintptr_t)timeout_ns;
}

static bool asks_in_a_thread(struct interrupt_wait *w, uint64_t *ret_timeout_ns)
{
        pthread_t thread;
        void *timeout_ns;
        bool ends = true;

        waiting = w;
        assert_int_equal(pthread_create(&thread, NULL, ask_once, &ends), 0);
        assert_int_equal(pthread_join(thread, &timeout_ns), 0);
        *ret_timeout_ns = (uint64_t)(uintptr_t)timeout_ns;
        return ends;
}

static void a_workers_wait_goes_on_if_the_main_thread_returns(void **state)
{
        struct interrupt_wait w = {0};
        uint64_t timeout_ns;

        main_comes_back = true;
        interrupt_begin(&w);
        (void)raise(SIGINT);
        assert_false(asks_in_a_thread(&w, &timeout_ns));
        assert_int_equal(timeout_ns, UINT64_MAX);
        main_comes_back = false;
        assert_false(asks_in_a_thread(&w, &timeout_ns)); /* the interrupt is settled */
        assert_int_equal(timeout_ns, UINT64_MAX);
        assert_int_equal(w.look_ns, 0);
}

static void *begin_once(void *w)
{
        interrupt_begin(w);
        return NULL;
}

static void begins_in_a_thread(struct interrupt_wait *w)
{
        pthread_t thread;

        *w = (struct interrupt_wait){0};
        assert_int_equal(pthread_create(&thread, NULL, begin_once, w), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Asks in new threads, which the main thread joins, until the library has seen it asleep. */
static void is_interrupted(struct interrupt_wait *w)
{
        uint64_t timeout_ns, until = clock_now_ns() + 30 * NSEC_PER_SEC;

        while (!asks_in_a_thread(w, &timeout_ns)) {
                assert_true(clock_now_ns() < until);
                (void)usleep(1000);
        }
}

static void a_workers_calls_are_interrupted_until_the_main_thread_returns(void **state)
{
        struct interrupt_wait w;
        uint64_t timeout_ns;

        begins_in_a_thread(&w);
        (void)raise(SIGINT);
        is_interrupted(&w);
        for (int i = 0; i < 2; i++) {
                begins_in_a_thread(&w);
                assert_in_range(w.look_ns, 1, clock_now_ns()); /* gets no new quarter of a second */
                is_interrupted(&w);
        }
        assert_int_equal(asked_of_main(asked_argument), 0); /* the main thread is back */
        begins_in_a_thread(&w);
        assert_false(asks_in_a_thread(&w, &timeout_ns));
        assert_int_equal(timeout_ns, UINT64_MAX);
}

/* The main thread gets a quarter of a second to return; then the library checks whether it sleeps.
 * Here it does, because it joins the thread that asks. */
static void a_wait_goes_on_if_no_thread_can_be_started(void **state)
{
        struct interrupt_wait w = {0};
        uint64_t timeout_ns;

        interrupt_begin(&w);
        (void)raise(SIGINT);
        assert_false(asks_in_a_thread(&w, &timeout_ns));
        assert_int_equal(timeout_ns, 250 * NSEC_PER_MSEC);
        assert_false(asks_in_a_thread(&w, &timeout_ns));
        assert_in_range(timeout_ns, 0, 250 * NSEC_PER_MSEC - 1);
        thread_error = EAGAIN;
        for (uint64_t until = clock_now_ns() + 30 * NSEC_PER_SEC;
             w.look_ns && clock_now_ns() < until; (void)usleep(10000))
                assert_false(asks_in_a_thread(&w, &timeout_ns));
        assert_int_equal(w.look_ns, 0); /* the interrupt is settled */
        assert_false(asks_in_a_thread(&w, &timeout_ns));
        assert_int_equal(timeout_ns, UINT64_MAX);
}

#define INTERRUPT_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_program_without_python_keeps_its_handler), /* must run first */
                INTERRUPT_TEST(an_interrupt_ends_the_wait_that_it_arrives_in),
                INTERRUPT_TEST(calls_do_not_wait_until_python_has_acted_on_the_interrupt),
                INTERRUPT_TEST(an_interrupt_without_keyboardinterrupt_ends_no_wait),
                INTERRUPT_TEST(handlers_other_than_pythons_stay),
                INTERRUPT_TEST(a_workers_wait_goes_on_if_the_main_thread_returns),
                INTERRUPT_TEST(a_workers_calls_are_interrupted_until_the_main_thread_returns),
                INTERRUPT_TEST(a_wait_goes_on_if_no_thread_can_be_started),
                INTERRUPT_TEST(a_worker_does_not_wait_for_the_interpreter_lock),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
