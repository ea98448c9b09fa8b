/* libc.c: starts threads with the C library that the tests are linked with. */
#include "unit.h"

#include "fakes/preload.h"
#include "preload/process/libc_compat.h"

#define WEAK __attribute__((weak))

int thread_error;
unsigned threads_started;
WEAK int compat_thread_start(void *(*start)(void *), void *argument)
{
        pthread_t thread;
        int r = thread_error ? thread_error : pthread_create(&thread, NULL, start, argument);

        if (r == 0)
                (void)pthread_detach(thread);
        threads_started += r == 0;
        return r;
}

WEAK int compat_pthread_key_create(pthread_key_t *ret_key, void (*destructor)(void *))
{
        return pthread_key_create(ret_key, destructor);
}

WEAK int compat_pthread_setspecific(pthread_key_t key, const void *value)
{
        return pthread_setspecific(key, value);
}
