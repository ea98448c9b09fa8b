/* libc_compat.h: the C library's functions that the preload library must not link to.
 *
 * Since glibc 2.34 these live in libc.so.6 under new versions; before, in libdl and libpthread.
 * Linking to either would tie libsublet.so to one generation of C library, so they are looked up
 * when first needed. Semantics are those of the functions themselves. Thread-safe; nothing
 * allocates that would not in the function itself. */
#pragma once

#include <pthread.h>

/* The C library's own, past every interposer: what must reach the driver reaches it. */
void *compat_dlopen(const char *path, int flags); /* NULL also where there is no dlopen() */
void *compat_dlsym(void *handle, const char *name);
int compat_dlclose(void *handle);
char *compat_dlerror(void); /* NULL also where there is none */
/* Never NULL; for jumps that keep their caller's return address: the function behind
 * compat_dlsym(), and the dlopen() that the program would have called without us. */
void *compat_dlsym_address(void);
void *compat_dlopen_address(void);

/* The process's: an interposer's (a sanitizer's, a profiler's) where there is one. ENOSYS where no
 * threads library is loaded. The thread is detached and takes none of the program's signals. */
int compat_thread_start(void *(*start)(void *), void *argument);
int compat_pthread_key_create(pthread_key_t *ret_key, void (*destructor)(void *));
int compat_pthread_setspecific(pthread_key_t key, const void *value);
