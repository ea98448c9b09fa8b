/* test_interrupt.c: a thread that waits asks about Ctrl-C without waiting for the interpreter's
 * lock. The main thread may hold that lock while it waits for the thread. */
#include "unit.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "fakes/neighbours.h"
#include "preload/interrupt.h"
#include "preload/libc_compat.h"
#include "preload/python.h"

static sem_t interpreter; /* its lock */
static void *const object = &interpreter;

static int yes(void)
{
        return 1;
}

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

static int never_comes_back(int (*call)(void *), void *argument)
{
        return 0;
}

static void *no_error(void)
{
        return NULL;
}

static void nothing(void)
{
}

static void *modules(void)
{
        return object;
}

static void *found(void *in, const char *name)
{
        return object;
}

static void *called(void *f, ...)
{
        return object;
}

static void *number(long n)
{
        return object;
}

static void released(void *o)
{
}

struct python python = {
        .there = true,
        .Py_IsInitialized = yes,
        .Py_AddPendingCall = never_comes_back,
        .PyGILState_Ensure = take_interpreter,
        .PyGILState_Release = give_interpreter,
        .PyErr_Occurred = no_error,
        .PyErr_Clear = nothing,
        .PyImport_GetModuleDict = modules,
        .PyDict_GetItemString = found,
        .PyObject_GetAttrString = found,
        .PyObject_CallFunctionObjArgs = called,
        .PyLong_FromLong = number,
        .Py_DecRef = released,
};

static void pythons_own(int signal_number)
{
}

/* Asks until the answer is yes, or for so long. */
static bool ends_within(struct interrupt_wait *w, uint64_t ns)
{
        uint64_t until = clock_now_ns() + ns, timeout_ns;
        bool ends = false;

        lock_acquire(&core.lock);
        while (!(ends = interrupt_ends(w, &timeout_ns)) && clock_now_ns() < until) {
                lock_release(&core.lock);
                (void)usleep(1000);
                lock_acquire(&core.lock);
        }
        lock_release(&core.lock);
        return ends;
}

static bool ended_early, ended;

static void *worker(void *unused)
{
        struct interrupt_wait w = {0};

        interrupt_begin(&w);
        (void)kill(getpid(), SIGINT);
        ended_early = ends_within(&w, NSEC_PER_SEC);
        (void)sem_post(&interpreter); /* by now the main thread would have been waited for */
        ended = ends_within(&w, 30 * NSEC_PER_SEC);
        return NULL;
}

static void a_worker_does_not_wait_for_the_interpreter_lock(void **state)
{
        pthread_t thread;

        assert_int_equal(sem_init(&interpreter, 0, 0), 0); /* the main thread has it */
        (void)signal(SIGINT, pythons_own);
        interrupt_setup();
        (void)alarm(60);
        assert_int_equal(pthread_create(&thread, NULL, worker, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        (void)alarm(0);
        assert_false(ended_early);
        assert_true(ended);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_worker_does_not_wait_for_the_interpreter_lock),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
