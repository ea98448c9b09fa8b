/* libc.c: threads from the C library that the tests are linked with. */
#include "unit.h"

#include "preload/libc_compat.h"

#define WEAK __attribute__((weak))

WEAK int compat_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes,
                               void *(*start)(void *), void *argument)
{
        return pthread_create(ret_thread, attributes, start, argument);
}

WEAK int compat_pthread_detach(pthread_t thread)
{
        return pthread_detach(thread);
}

WEAK int compat_pthread_key_create(pthread_key_t *ret_key, void (*destructor)(void *))
{
        return pthread_key_create(ret_key, destructor);
}

WEAK int compat_pthread_setspecific(pthread_key_t key, const void *value)
{
        return pthread_setspecific(key, value);
}
