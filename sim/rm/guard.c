/* guard.c: owns the thread that stands for this process among those of the session. Must never be
 * woken: other processes take a missing sleeper for a process that is stopped. */
#include "sim/rm/guard.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include "sim/process/sim.h"

static struct {
        struct rm_owner *_Atomic owner;
        pid_t pid;
} guard;

static int guard_by(struct rm_owner **ret_owner)
{
        int r = rm_owner_new(session_rm(sim.session), ret_owner);

        if (r == 0) {
                guard.pid = getpid();
                atomic_store(&guard.owner, *ret_owner);
        }
        return r;
}

struct start {
        sem_t begun;
        int result;
};

static void *sleeper(void *argument)
{
        struct start *start = argument;
        struct rm_owner *o = NULL;
        int r = guard_by(&o);

        start->result = r;
        (void)sem_post(&start->begun);
        if (r == 0)
                rm_owner_sleep(o);
        return NULL;
}

int guard_start(void)
{
        struct start start;
        sigset_t every, old;
        pthread_t thread;
        int r;

        if (sem_init(&start.begun, 0, 0) < 0)
                return -errno;
        (void)sigfillset(&every);
        (void)pthread_sigmask(SIG_SETMASK, &every, &old);
        r = pthread_create(&thread, NULL, sleeper, &start);
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (r)
                return -r;
        (void)pthread_detach(thread);
        while (sem_wait(&start.begun) < 0)
                ;
        (void)sem_destroy(&start.begun);
        return start.result;
}

int guard_by_caller(void)
{
        struct rm_owner *o;

        return guard_owner() && guard.pid == getpid() ? 0 : guard_by(&o);
}

void guard_leave(void)
{
        if (guard_owner() && guard.pid == getpid())
                rm_owner_clear(session_rm(sim.session), guard_owner());
}

struct rm_owner *guard_owner(void)
{
        return atomic_load_explicit(&guard.owner, memory_order_acquire);
}
