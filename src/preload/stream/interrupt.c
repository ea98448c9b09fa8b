/* interrupt.c: owns the count of SIGINTs, and the check whether Python would act on one. Must never
 * keep a signal from the handler that it is for, nor take the interpreter's lock when no signal
 * came.
 * Why: docs/decisions.md, "Ctrl-C in Python ends a wait with an error". */
#include "preload/stream/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/process/libc_compat.h"
#include "preload/process/python.h"

#define RETURN_NS (250 * NSEC_PER_MSEC) /* a main thread that can return to Python is faster */

typedef void (*signal_handler)(int);

/* The addresses of Python's code. Without Python the range is empty, and nothing here acts. */
static uintptr_t python_begin, python_end;

static _Atomic(signal_handler) pythons_handler; /* Python's handler, which noted() calls */
static _Atomic uint32_t interrupts, returns;
static _Atomic uint32_t handled; /* Python has acted on all interrupts up to this count */

/* ---- noting the signal ---- */

static void noted(int number)
{
        signal_handler next = atomic_load(&pythons_handler);
        int saved = errno;

        next(number); /* first: Python must know before the bell wakes a thread */
        atomic_fetch_add(&interrupts, 1);
        bell_ring(&core.changed);
        errno = saved;
}

static bool is_pythons(const struct sigaction *a)
{
        uintptr_t at = (uintptr_t)a->sa_handler;

        return !(a->sa_flags & SA_SIGINFO) && at >= python_begin && at < python_end;
}

/* Installs noted() before Python's handler, unseen by Python's `signal` module. The module may set
 * its handler again at any time, so each wait installs noted() again. */
static void listen_for_signals(void)
{
        struct sigaction now, ours, before;

        if (sigaction(SIGINT, NULL, &now) < 0 || !is_pythons(&now))
                return;
        atomic_store(&pythons_handler, now.sa_handler);
        ours = now;
        ours.sa_handler = noted;
        /* If another thread has set a handler in between, put that handler back. */
        if (sigaction(SIGINT, &ours, &before) == 0 && before.sa_handler != now.sa_handler)
                (void)sigaction(SIGINT, &before, NULL);
}

/* ---- Python; core_lock is not held ---- */

/* Finds the program or libpython, whichever holds Py_IsInitialized(), and notes its addresses. */
static int find_python(struct dl_phdr_info *info, size_t size, void *unused)
{
        uintptr_t at = (uintptr_t)python.Py_IsInitialized;

        for (size_t i = 0; i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) *p = &info->dlpi_phdr[i];
                uintptr_t begin = info->dlpi_addr + p->p_vaddr;

                if (p->p_type == PT_LOAD && at >= begin && at < begin + p->p_memsz) {
                        python_begin = begin;
                        python_end = begin + p->p_memsz;
                        return 1;
                }
        }
        return 0;
}

void interrupt_setup(void)
{
        if (python.there)
                (void)dl_iterate_phdr(find_python, NULL);
}

static bool is_main_thread(void)
{
        return (pid_t)syscall(SYS_gettid) == getpid();
}

bool interrupt_may_come(void)
{
        return python_begin != python_end && is_main_thread();
}

/* True if the interpreter still has a signal to act on. Only the main thread can ask, with the
 * interpreter's lock; for other threads the answer is yes. Asking clears the interpreter's note, so
 * set it again. */
static bool is_noted(uint32_t count)
{
        if (!is_main_thread())
                return true;
        if (!python.PyOS_InterruptOccurred()) {
                atomic_store(&handled, count);
                return false;
        }
        python.PyErr_SetInterrupt();
        return true;
}

/* True if the interpreter would raise KeyboardInterrupt for a signal that was noted. */
static bool would_raise(uint32_t count)
{
        bool would = false;
        int state;

        if (!python.Py_IsInitialized()) /* not started, or already ended */
                return false;
        state = python.PyGILState_Ensure();
        if (is_noted(count) && !python.PyErr_Occurred()) {
                void *module = python.PyDict_GetItemString(python.PyImport_GetModuleDict(),
                                                           "_signal"); /* a borrowed reference */
                void *get = module ? python.PyObject_GetAttrString(module, "getsignal") : NULL;
                void *raises = module ? python.PyObject_GetAttrString(module, "default_int_handler")
                                      : NULL;
                void *number = python.PyLong_FromLong(SIGINT);
                void *set = get && number
                                    ? python.PyObject_CallFunctionObjArgs(get, number, (void *)NULL)
                                    : NULL;

                would = set && set == raises;
                python.Py_DecRef(set);
                python.Py_DecRef(number);
                python.Py_DecRef(raises);
                python.Py_DecRef(get);
                python.PyErr_Clear();
        }
        python.PyGILState_Release(state);
        return would;
}

/* The interpreter calls this in the main thread, where it also acts on signals. */
static int main_returns(void *unused)
{
        atomic_fetch_add(&returns, 1);
        bell_ring(&core.changed);
        return 0;
}

/* True if the main thread sleeps in a system call. Raw system calls, because open() and read() are
 * cancellation points: a cancelled thread would end in them. */
static bool main_thread_sleeps(void)
{
        char path[48], text[512], *end;
        long fd, n = -1;

        (void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)getpid());
        fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
                n = syscall(SYS_read, fd, text, sizeof(text) - 1);
                (void)syscall(SYS_close, fd);
        }
        text[MAX(n, 0L)] = '\0';
        end = strrchr(text, ')'); /* the thread's name may contain ')', too */
        return end && strncmp(end, ") S", 3) == 0;
}

/* True if the main thread sleeps in a call and does not return to the interpreter. The caller is
 * another thread. *ret_timeout_ns: when to ask again. */
static bool main_thread_is_stuck(struct interrupt_wait *w, uint64_t *ret_timeout_ns)
{
        uint64_t now = clock_now_ns();

        if (!w->look_ns) {
                w->returns = atomic_load(&returns);
                w->look_ns = now + RETURN_NS;
                if (python.Py_AddPendingCall(main_returns, NULL) != 0)
                        w->returns--; /* not queued: assume that the thread has returned */
        }
        if (atomic_load(&returns) != w->returns) {
                w->look_ns = 0;
                w->seen = atomic_load(&interrupts);
                return false;
        }
        if (now >= w->look_ns) {
                if (main_thread_sleeps())
                        return true;
                w->look_ns = now + RETURN_NS;
        }
        *ret_timeout_ns = w->look_ns - now;
        return false;
}

/* ---- asking Python, for threads other than the main one ----
 *
 * The answer needs the interpreter's lock. The main thread may hold that lock while it waits for
 * the very thread that asks. So a thread of our own asks, and no other thread waits for it. */

static _Atomic bool asking;
static _Atomic uint32_t asked, /* the value of `interrupts` that the question is about */
        answered;              /* the value of `interrupts` that `answer` is for */
static _Atomic bool answer;    /* Python would raise KeyboardInterrupt */

static void *ask(void *unused)
{
        uint32_t count = atomic_load(&asked);

        atomic_store(&answer, would_raise(count));
        atomic_store(&answered, count);
        atomic_store(&asking, false);
        bell_ring(&core.changed);
        return NULL;
}

static bool begin_to_ask(uint32_t count)
{
        atomic_store(&asked, count);
        if (compat_thread_start(ask, NULL) == 0)
                return true;
        atomic_store(&asking, false);
        return false;
}

/* False: there is no answer yet for this value of `interrupts`; core.changed rings when it
 * comes. */
static bool has_answer(uint32_t count, bool *ret_would)
{
        if (atomic_load(&answered) != count) {
                if (atomic_exchange(&asking, true) || begin_to_ask(count))
                        return false;
                *ret_would = false; /* no thread could be started: the call keeps waiting */
                return true;
        }
        *ret_would = atomic_load(&answer);
        return true;
}

/* ---- the waits ---- */

static _Atomic uint32_t ended, /* the last interrupt that ended a call of a non-main thread */
        ended_returns;         /* the value of `returns` at that time */

/* A library may call again before the interpreter can act on the signal: PyTorch tries another
 * way when a product of matrices fails. The second call then does not wait for the main thread
 * again. */
void interrupt_begin(struct interrupt_wait *w)
{
        if (likely(python_begin == python_end))
                return;
        if (is_main_thread()) {
                w->seen = atomic_load(&handled);
        } else {
                w->seen = atomic_load(&interrupts);
                w->returns = atomic_load(&returns);
                if (w->seen != 0 && atomic_load(&ended) == w->seen &&
                    atomic_load(&ended_returns) == w->returns) {
                        w->seen--;
                        w->look_ns = 1; /* the main thread has had time to return */
                }
        }
        listen_for_signals();
}

bool interrupt_ends(struct interrupt_wait *w, uint64_t *ret_timeout_ns)
{
        uint32_t now = atomic_load(&interrupts);
        bool ends = false, known;

        *ret_timeout_ns = UINT64_MAX;
        if (likely(now == w->seen))
                return false;
        lock_release(&core_lock);
        if (is_main_thread()) {
                ends = would_raise(now);
                known = true;
        } else {
                known = main_thread_is_stuck(w, ret_timeout_ns) && has_answer(now, &ends);
                if (known && ends) {
                        atomic_store(&ended_returns, w->returns);
                        atomic_store(&ended, now);
                }
        }
        if (known) {
                w->seen = now;
                w->look_ns = 0;
        }
        lock_acquire(&core_lock);
        return ends;
}
