/* locks.c: ends a test whose product code releases a lock that no thread holds. Tests declared with
 * LOCKS are linked with it (cmake/tests.cmake). */
#include <stdio.h>
#include <stdlib.h>

#include "preload/driver/real.h"
#include "preload/process/lock.h"

#undef real
struct real_driver real __attribute__((weak)); /* for tests that have none */

void lock_watch(const struct lock *l, bool held)
{
        if (held || atomic_load(&l->word) != 0)
                return;
        (void)fprintf(stderr, "nobody holds the lock that is released; gdb shows where\n");
        abort();
}
