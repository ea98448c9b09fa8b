/* locks.h: makes a test fail if it releases a lock that no thread holds. All sources of a unit test
 * that is declared with LOCKS include this file first. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "preload/process/lock.h"

static inline void lock_release_held(struct lock *l, const char *file, int line)
{
        if (atomic_load(&l->word) == 0) {
                (void)fprintf(stderr, "%s:%d: nobody holds the lock\n", file, line);
                abort();
        }
        lock_release(l);
}

#define lock_release(l) lock_release_held(l, __FILE__, __LINE__)
