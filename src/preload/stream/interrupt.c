/* interrupt.c: owns the note that SIGINT came, and the question whether Python would act on it.
 * Must never keep a signal from the handler that it is for, nor take the interpreter's lock unless
 * one came. */
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

#define RETURN_NS (250 * NSEC_PER_MSEC) /* the main thread comes back sooner if it can */

typedef void (*signal_handler)(int);

/* The addresses of Python's code. Without Python the range is empty, and nothing here acts. */
static uintptr_t python_begin, python_end;

static _Atomic(signal_handler) pythons_handler; /* whom ours calls */
static _Atomic uint32_t interrupts, returns;
static _Atomic uint32_t handled; /* interrupts of which Python has none left to act on */

/* ---- the note ---- */

static void noted(int number)
{
        signal_handler next = atomic_load(&pythons_handler);
        int saved = errno;

        next(number); /* first: whoever hears of it finds that Python knows */
        atomic_fetch_add(&interrupts, 1);
        bell_ring(&core.changed);
        errno = saved;
}

static bool is_pythons(const struct sigaction *a)
{
        uintptr_t at = (uintptr_t)a->sa_handler;

        return !(a->sa_flags & SA_SIGINFO) && at >= python_begin && at < python_end;
}

/* Between Python's handler and its signal, as Python's own `signal` does not see. It sets its
 * handler anew whenever the program asks it to, so each wait looks. */
static void listen_for_signals(void)
{
        struct sigaction now, ours, before;

        if (sigaction(SIGINT, NULL, &now) < 0 || !is_pythons(&now))
                return;
        atomic_store(&pythons_handler, now.sa_handler);
        ours = now;
        ours.sa_handler = noted;
        /* Another thread may have set one meanwhile. */
        if (sigaction(SIGINT, &ours, &before) == 0 && before.sa_handler != now.sa_handler)
                (void)sigaction(SIGINT, &before, NULL);
}

/* ---- Python; core_lock is not held ---- */

/* The program itself, or libpython: where this function of it is. */
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

/* Has the interpreter a signal to act on? Only in the main thread is it told, with the
 * interpreter's lock. To ask takes its note away. */
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

/* Would the interpreter raise KeyboardInterrupt for a signal that has been noted? */
static bool would_raise(uint32_t count)
{
        bool would = false;
        int state;

        if (!python.Py_IsInitialized()) /* or not any more */
                return false;
        state = python.PyGILState_Ensure();
        if (is_noted(count) && !python.PyErr_Occurred()) {
                void *module = python.PyDict_GetItemString(python.PyImport_GetModuleDict(),
                                                           "_signal"); /* borrowed */
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

/* Called by the interpreter in the main thread, which acts on signals there, too. */
static int main_returns(void *unused)
{
        atomic_fetch_add(&returns, 1);
        bell_ring(&core.changed);
        return 0;
}

/* In a call, and not computing. No open() or read(): a cancelled thread would end there. */
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
        end = strrchr(text, ')'); /* the name may have some, too */
        return end && strncmp(end, ") S", 3) == 0;
}

/* The calling thread is another one. */
static bool main_thread_is_stuck(struct interrupt_wait *w, uint64_t *ret_timeout_ns)
{
        uint64_t now = clock_now_ns();

        if (!w->look_ns) {
                w->returns = atomic_load(&returns);
                w->look_ns = now + RETURN_NS;
                if (python.Py_AddPendingCall(main_returns, NULL) != 0)
                        w->returns--; /* there is no knowing: as if it had returned */
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

/* ---- the question, for threads other than the main one ----
 *
 * Its answer needs the interpreter's lock. The main thread may hold that while it waits for the
 * thread that would ask. So a thread of our own asks, and nobody waits for it. */

static _Atomic bool asking;
static _Atomic uint32_t asked, answered; /* counts of interrupts */
static _Atomic bool answer;              /* to the last one */

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

/* False: the answer to this count of interrupts is not there yet; it rings core.changed. */
static bool has_answer(uint32_t count, bool *ret_would)
{
        if (atomic_load(&answered) != count) {
                if (atomic_exchange(&asking, true) || begin_to_ask(count))
                        return false;
                *ret_would = false; /* no thread to be had: it keeps waiting */
                return true;
        }
        *ret_would = atomic_load(&answer);
        return true;
}

/* ---- who waits ---- */

/* The last interrupt that ended a call of another thread than the main one, and the returns of the
 * main thread before it. */
static _Atomic uint32_t ended, ended_returns;

/* A library may call again before the interpreter can act on the signal: PyTorch tries another way
 * when a product of matrices fails. Such a call waits no longer than the one before it. */
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
                        w->look_ns = 1; /* it was given time to return */
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
