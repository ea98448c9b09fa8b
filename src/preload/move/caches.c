/* caches.c: owns the thread that calls into Python, and how long an eviction waits for it. That
 * thread must never hold a lock of ours while it calls, nor call when no eviction waits for it. A
 * call that did not return in time must never delay a second hand-off.
 * Why: docs/decisions.md, "PyTorch empties its own cache". */
#include "preload/move/caches.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/log.h"
#include "base/macros.h"
#include "base/settings.h"
#include "preload/state/core.h"
#include "preload/process/libc_compat.h"
#include "preload/process/python.h"
#include "preload/stream/quiesce.h"
#include "preload/driver/real.h"
#include "preload/process/trace.h"
#include "preload/state/request.h"

#define PATIENCE_NS     (30 * NSEC_PER_MSEC) /* time for some of Python's thread switches of 5 ms */
#define SKIPS_MAX       64u
#define CLOSING_MOST_NS NSEC_PER_SEC /* how long the end of Python waits for our thread */

/* The functions to call, without arguments, in modules that the program has imported. */
static const struct {
        const char *module, *function;
} calls[] = {
        {"torch.cuda", "empty_cache"},
};

static struct {
        bool wanted, started;
        struct bell bell;

        /* Requests to the thread are numbered. */
        _Atomic uint64_t request; /* number of the last request */
        _Atomic uint64_t expired; /* no eviction waits for requests up to this one */
        _Atomic uint64_t
                done; /* requests up to this one have ended, whether or not Python was called */
        _Atomic bool calling; /* the thread is in the program's code */
        _Atomic bool closing; /* Python is about to end, or must not be called again */

        /* under core_lock */
        bool asked;           /* Python was asked to free memory since the program last ran */
        bool holding;         /* an eviction waits for the thread */
        uint64_t progress_ns; /* when memory was last given back */
        uint64_t allocated;   /* allocated bytes when last checked */
        uint64_t before;      /* allocated bytes when the request began */
        unsigned skips, /* hand-offs to make without a request, after a request took too long */
                skip;   /* how many of these hand-offs are left */
} caches;

void caches_setup(void)
{
        enum { GIVE, KEEP } request = setting_choice(SETTING_CACHES);

        caches.wanted = python.there && request == GIVE;
}

/* True if more memory is backed than the limit allows, even if only a little more: requests of
 * other processes grow in small steps, so further requests will follow. Lock held. */
static bool gpu_is_short(const struct gpu *g) REQUIRES(core_lock)
{
        return g->managed && g->heap.backed > core_limit(g);
}

/* ---- the thread that calls Python; it holds the interpreter lock unless said otherwise ---- */

/* Runs in the program's thread that ends Python. Our thread must leave Python first, and needs the
 * interpreter lock for that. */
static void *closing(void *self, void *unused)
{
        uint64_t now = clock_now_ns(), until = now + CLOSING_MOST_NS;
        void *thread;

        atomic_store(&caches.closing, true);
        thread = python.PyEval_SaveThread();
        while (atomic_load(&caches.calling) && now < until && !core_passive()) {
                uint32_t heard = bell_listen(&core.changed);

                if (atomic_load(&caches.calling))
                        bell_wait(&core.changed, heard, until - now);
                now = clock_now_ns();
        }
        python.PyEval_RestoreThread(thread);
        python.Py_IncRef(self);
        return self;
}

/* Registers closing() to be called before Python ends: after Python's end, taking the interpreter
 * lock ends the calling thread or blocks it for good. */
static bool register_closing(void)
{
        static struct python_method method = {"sublet_closing", closing, PYTHON_NO_ARGUMENTS, NULL};
        void *module = python.PyImport_ImportModule("atexit");
        void *add = module ? python.PyObject_GetAttrString(module, "register") : NULL;
        /* closing() must return an object: it returns its `self`, which may be any object. */
        void *call = add ? python.PyCFunction_NewEx(&method, module, NULL) : NULL;
        void *result = call ? python.PyObject_CallFunctionObjArgs(add, call, NULL) : NULL;
        bool ok = result != NULL;

        python.Py_DecRef(result);
        python.Py_DecRef(call);
        python.Py_DecRef(add);
        python.Py_DecRef(module);
        python.PyErr_Clear();
        return ok;
}

static void call_all(void)
{
        void *modules = python.PyImport_GetModuleDict(); /* a borrowed reference */

        for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
                void *module = python.PyDict_GetItemString(modules, calls[i].module), *f, *result;

                if (!module)
                        continue;
                python.Py_IncRef(module);
                f = python.PyObject_GetAttrString(module, calls[i].function);
                result = f ? python.PyObject_CallObject(f, NULL) : NULL;
                python.Py_DecRef(result);
                python.Py_DecRef(f);
                python.Py_DecRef(module);
        }
        python.PyErr_Clear();
}

/* CUDA's runtime makes a context of half a GiB on the first GPU if none is current. So make one of
 * the program's contexts current, preferably on a GPU that is over its limit. The context is not
 * retained: the program may end it. False: there is no context, so nothing to give back. */
static bool borrow_context(void)
{
        const struct context *found = NULL;
        bool ok;

        lock_acquire(&core_lock);
        for (unsigned i = 0; i < core.gpu_count; i++) {
                const struct gpu *g = &core.gpus[i];
                const struct context *c = quiesce_context_primary(g);

                if (c && !c->dying && (!found || gpu_is_short(g)))
                        found = c;
        }
        ok = found && real.cuCtxSetCurrent(found->handle) == CUDA_SUCCESS;
        lock_release(&core_lock);
        return ok;
}

/* Takes the interpreter lock; the caller must not hold it. */
static void ask_python(uint64_t number)
{
        static bool registered;
        int state;

        if (atomic_load(&caches.closing) || !python.Py_IsInitialized())
                return;
        state = python.PyGILState_Ensure();
        if (!registered && !atomic_load(&caches.closing)) {
                registered = register_closing();
                if (!registered)
                        atomic_store(&caches.closing, true);
        }
        if (!atomic_load(&caches.closing) && atomic_load(&caches.expired) < number &&
            borrow_context()) {
                atomic_store(&caches.calling, true);
                call_all();
                (void)real.cuCtxSetCurrent(NULL);
                atomic_store(&caches.calling, false);
                bell_ring(&core.changed);
        }
        python.PyGILState_Release(state);
}

static void *caches_main(void *unused)
{
        (void)prctl(PR_SET_NAME, "sublet-caches");
        (void)core_relax(); /* memory freed by Python must not break a capture */
        for (;;) {
                uint32_t heard = bell_listen(&caches.bell);
                uint64_t number = atomic_load(&caches.request);

                if (number == atomic_load(&caches.done)) {
                        bell_wait(&caches.bell, heard, UINT64_MAX);
                        continue;
                }
                ask_python(number);
                atomic_store(&caches.done, number);
                request_kick();
        }
        return NULL;
}

/* ---- the agent; core_lock held ---- */

static uint64_t allocated(void)
{
        uint64_t sum = 0;

        for (unsigned i = 0; i < core.gpu_count; i++)
                sum += core.gpus[i].heap.allocated;
        return sum;
}

static bool missing(void) REQUIRES(core_lock)
{
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (gpu_is_short(&core.gpus[i]))
                        return true;
        return false;
}

static bool start(void)
{
        if (!caches.started)
                caches.started = compat_thread_start(caches_main, NULL) == 0;
        return caches.started;
}

static bool ask(uint64_t now) REQUIRES(core_lock)
{
        caches.asked = true;
        if (caches.skip > 0) {
                caches.skip--;
                return false;
        }
        /* If the last call has not returned, it has waited for another thread's lock for longer
         * than a turn. Do not ask again. */
        if (atomic_load(&caches.done) != atomic_load(&caches.request) || quiesce_capturing() ||
            !start())
                return false;
        /* The freed bytes stay promised to the program, which will need them again. */
        for (unsigned i = 0; i < core.gpu_count; i++)
                core.gpus[i].commit_kept = core.gpus[i].heap.allocated;
        caches.before = caches.allocated = allocated();
        caches.progress_ns = now;
        atomic_fetch_add(&caches.request, 1);
        bell_ring(&caches.bell);
        return true;
}

bool caches_may_answer(void)
{
        return caches.wanted && !atomic_load(&caches.closing) && caches.skip == 0;
}

bool caches_hold(bool may_evict, uint64_t now)
{
        uint64_t number, left;

        if (!caches.wanted || atomic_load(&caches.closing))
                return false;
        if (!may_evict) {
                caches.asked = caches.asked && !core.running && !core.lease;
                return false;
        }
        if (!caches.asked && missing())
                caches.holding = ask(now);
        if (!caches.holding)
                return false;
        number = atomic_load(&caches.request);
        left = allocated();
        if (left != caches.allocated)
                caches.progress_ns = now;
        caches.allocated = left;
        if (atomic_load(&caches.done) == number) {
                trace_event("caches", 0, sub_sat(caches.before, left));
                caches.holding = false;
                caches.skips = 0;
        } else if (now - caches.progress_ns > PATIENCE_NS) {
                atomic_store(&caches.expired, number);
                trace_event("caches_late", 0, sub_sat(caches.before, left));
                caches.holding = false;
                caches.skips = MIN(caches.skips * 2 + 1, SKIPS_MAX);
                caches.skip = caches.skips;
        }
        return caches.holding;
}
