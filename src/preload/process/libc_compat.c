/* libc_compat.c: owns the addresses of C library functions that are looked up at run time. Must
 * never be linked to these functions. */
#include "preload/process/libc_compat.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>

#include "preload/process/elf.h"

typedef __typeof__(dlopen) dlopen_fn;
typedef __typeof__(dlsym) dlsym_fn;
typedef __typeof__(dlclose) dlclose_fn;
typedef __typeof__(dlerror) dlerror_fn;
typedef __typeof__(pthread_create) pthread_create_fn;
typedef __typeof__(pthread_detach) pthread_detach_fn;
typedef __typeof__(pthread_join) pthread_join_fn;
typedef __typeof__(pthread_key_create) pthread_key_create_fn;
typedef __typeof__(pthread_setspecific) pthread_setspecific_fn;

/* Returns a function's address, and caches it. Racing threads find the same address. A miss is not
 * cached, because the library with the function may be loaded later. */
static void *find_libc(void *_Atomic *cache, const char *symbol)
{
        void *p = atomic_load_explicit(cache, memory_order_relaxed);

        if (!p) {
                p = elf_find_libc(symbol);
                atomic_store_explicit(cache, p, memory_order_relaxed);
        }
        return p;
}

static void *find_global(void *_Atomic *cache, const char *symbol)
{
        void *p = atomic_load_explicit(cache, memory_order_relaxed);

        if (!p) {
                p = compat_dlsym(RTLD_DEFAULT, symbol);
                if (!p)
                        p = elf_find_libc(symbol);
                atomic_store_explicit(cache, p, memory_order_relaxed);
        }
        return p;
}

/* Before glibc 2.34 a program can run without libdl. Its libc.so.6 has a private function that
 * loads libraries. */
static void load_libdl(void)
{
        void *(*load)(const char *, int) =
                (void *(*)(const char *, int))elf_find_libc("__libc_dlopen_mode");

        if (load)
                (void)load("libdl.so.2", RTLD_NOW);
}

static void *find_libdl(void *_Atomic *cache, const char *symbol)
{
        void *f = find_libc(cache, symbol);

        if (!f) {
                load_libdl();
                f = find_libc(cache, symbol);
        }
        return f;
}

void *compat_dlopen(const char *path, int flags)
{
        static void *_Atomic cache;
        dlopen_fn *f = (dlopen_fn *)find_libdl(&cache, "dlopen");

        return f ? f(path, flags) : NULL;
}

static void *nothing(void)
{
        return NULL;
}

void *compat_dlsym_address(void)
{
        static void *_Atomic cache;
        void *f = find_libdl(&cache, "dlsym");

        return f ? f : (void *)nothing;
}

void *compat_dlopen_address(void)
{
        static void *_Atomic cache, *_Atomic next;
        void *f = atomic_load_explicit(&next, memory_order_relaxed);

        if (!f) { /* this look-up also finds functions of interposers */
                f = compat_dlsym(RTLD_NEXT, "dlopen");
                if (!f)
                        f = find_libdl(&cache, "dlopen");
                atomic_store_explicit(&next, f, memory_order_relaxed);
        }
        return f ? f : (void *)nothing;
}

void *compat_dlsym(void *handle, const char *name)
{
        return ((dlsym_fn *)compat_dlsym_address())(handle, name);
}

int compat_dlclose(void *handle)
{
        static void *_Atomic cache;
        dlclose_fn *f = (dlclose_fn *)find_libc(&cache, "dlclose");

        return f ? f(handle) : -1;
}

char *compat_dlerror(void)
{
        static void *_Atomic cache;
        dlerror_fn *f = (dlerror_fn *)find_libc(&cache, "dlerror");

        return f ? f() : NULL;
}

/* Starts a thread that blocks all signals. */
static int thread_create(pthread_t *ret, void *(*start)(void *), void *argument)
{
        static void *_Atomic cache;
        pthread_create_fn *create = (pthread_create_fn *)find_global(&cache, "pthread_create");
        sigset_t all, before;
        int r;

        if (!create)
                return ENOSYS;
        (void)sigfillset(&all);
        (void)sigprocmask(SIG_SETMASK, &all, &before);
        r = create(ret, NULL, start, argument);
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        return r;
}

int compat_thread_start(void *(*start)(void *), void *argument)
{
        static void *_Atomic cache;
        pthread_detach_fn *detach = (pthread_detach_fn *)find_global(&cache, "pthread_detach");
        pthread_t thread;
        int r = detach ? thread_create(&thread, start, argument) : ENOSYS;

        if (r == 0)
                (void)detach(thread);
        return r;
}

int compat_thread_try(void *(*start)(void *))
{
        static void *_Atomic cache;
        pthread_join_fn *join = (pthread_join_fn *)find_global(&cache, "pthread_join");
        int r, state;
        pthread_t thread;

        if (!join)
                return ENOSYS;
        r = thread_create(&thread, start, NULL);
        if (r != 0)
                return r;
        /* pthread_join() is a cancellation point; the program's call must not become one. */
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
        (void)join(thread, NULL);
        (void)pthread_setcancelstate(state, NULL);
        return 0;
}

int compat_pthread_key_create(pthread_key_t *ret_key, void (*destructor)(void *))
{
        static void *_Atomic cache;
        pthread_key_create_fn *f =
                (pthread_key_create_fn *)find_global(&cache, "pthread_key_create");

        return f ? f(ret_key, destructor) : ENOSYS;
}

int compat_pthread_setspecific(pthread_key_t key, const void *value)
{
        static void *_Atomic cache;
        pthread_setspecific_fn *f =
                (pthread_setspecific_fn *)find_global(&cache, "pthread_setspecific");

        return f ? f(key, value) : ENOSYS;
}
