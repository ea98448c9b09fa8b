/* libc_compat.h: the C library's functions that the preload library must not link to.
 *
 * Since glibc 2.34 these functions are in libc.so.6 with new versions; before that they were in
 * libdl and libpthread. Linking to either would tie libsublet.so to one generation of C library, so
 * they are looked up when first needed. Each behaves like the function that it is named after.
 * Thread-safe; the look-up does not allocate. */
#pragma once

#include <pthread.h>

/* The C library's own functions. They bypass every interposer, so that we always reach the driver.
 */
void *compat_dlopen(const char *path, int flags); /* NULL also if there is no dlopen() */
void *compat_dlsym(void *handle, const char *name);
int compat_dlclose(void *handle);
char *compat_dlerror(void); /* NULL also if there is no dlerror() */
/* Return the function behind compat_dlsym(), and the dlopen() that the program would have called
 * without us; never NULL. For jumps that keep the caller's return address. */
void *compat_dlsym_address(void);
void *compat_dlopen_address(void);

/* Like the pthread functions; an interposer (a sanitizer, a profiler) is called if there is one.
 * ENOSYS: no threads library is loaded. A started thread is detached and blocks all signals. */
int compat_thread_start(void *(*start)(void *), void *argument);
/* Starts a thread in the same way, and waits for its end. */
int compat_thread_try(void *(*start)(void *));
int compat_pthread_key_create(pthread_key_t *ret_key, void (*destructor)(void *));
int compat_pthread_setspecific(pthread_key_t key, const void *value);
