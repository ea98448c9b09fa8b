/* locked.c: owns the lock that a checkpoint puts on the calls of a process. */
#include "sim/call/locked.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unlocked = PTHREAD_COND_INITIALIZER;

void calls_lock(bool locked)
{
        pthread_mutex_lock(&lock);
        atomic_store(&sim.locked, locked);
        if (!locked)
                (void)pthread_cond_broadcast(&unlocked);
        pthread_mutex_unlock(&lock);
}

void calls_await_unlock(void)
{
        pthread_mutex_lock(&lock);
        while (atomic_load(&sim.locked))
                (void)pthread_cond_wait(&unlocked, &lock);
        pthread_mutex_unlock(&lock);
}
