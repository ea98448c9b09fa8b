/* channel.c: owns which channels are disabled, and which threads run on them. Must never call other
 * parts of the simulator with its lock held. */
#include "sim/rm/channel.h"

#include <stdlib.h>

#include "base/macros.h"

struct channel {
        _Atomic bool disabled;
        bool off;          /* by a control that succeeded */
        unsigned half_off; /* controls that failed and that no enabling undid */
        unsigned running;
        struct channel *next_spare;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct channel *spare;
static unsigned disabled; /* number of disabled channels */

static __thread struct {
        const _Atomic int *error; /* the sticky error of the context */
        struct channel *compute, *copy;
        struct channel *now; /* the channel on which this thread runs work now; NULL: none */
} seat;

struct channel *channel_new(void)
{
        struct channel *ch;

        (void)pthread_mutex_lock(&lock);
        ch = spare;
        if (ch)
                spare = ch->next_spare;
        (void)pthread_mutex_unlock(&lock);
        return ch ? ch : calloc(1, sizeof(*ch));
}

/* A control that failed disables nothing, but then it takes two enablings to undo one that
 * succeeds. Needs the lock. */
static void set(struct channel *ch, bool off, unsigned half_off)
{
        const bool disable = off || (half_off && ch->disabled);

        ch->off = off;
        ch->half_off = half_off;
        if (ch->disabled == disable)
                return;
        atomic_store(&ch->disabled, disable);
        disabled += disable ? 1U : -1U;
}

void channel_end(struct channel *ch)
{
        (void)pthread_mutex_lock(&lock);
        set(ch, false, 0);
        ch->next_spare = spare;
        spare = ch;
        (void)pthread_cond_broadcast(&changed);
        (void)pthread_mutex_unlock(&lock);
}

bool channel_enabled(struct channel *ch)
{
        return !atomic_load(&ch->disabled);
}

void channels_disable(struct channel *const *list, size_t n, bool fails)
{
        (void)pthread_mutex_lock(&lock);
        for (size_t i = 0; i < n; i++)
                set(list[i], list[i]->off || !fails, list[i]->half_off + fails);
        for (size_t i = 0; i < n; i++)
                while (list[i]->running && list[i]->disabled && !atomic_load(&sim.exiting))
                        (void)pthread_cond_wait(&changed, &lock);
        (void)pthread_mutex_unlock(&lock);
}

void channels_enable(struct channel *const *list, size_t n)
{
        (void)pthread_mutex_lock(&lock);
        for (size_t i = 0; i < n; i++) {
                const struct channel *ch = list[i];

                set(list[i], false, ch->off || !ch->half_off ? ch->half_off : ch->half_off - 1);
        }
        (void)pthread_cond_broadcast(&changed);
        (void)pthread_mutex_unlock(&lock);
}

void channels_await_enabled(void)
{
        (void)pthread_mutex_lock(&lock);
        while (disabled && !atomic_load(&sim.exiting))
                (void)pthread_cond_wait(&changed, &lock);
        (void)pthread_mutex_unlock(&lock);
}

static bool stands(const struct channels_of *of)
{
        for (unsigned i = 0; i < CHANNELS_COMPUTE; i++)
                if (of->compute[i] && of->compute[i]->disabled)
                        return true;
        for (unsigned i = 0; i < CHANNELS_COPY; i++)
                if (of->copy[i] && of->copy[i]->disabled)
                        return true;
        return false;
}

void channels_await(const struct channels_of *of, const _Atomic int *error)
{
        (void)pthread_mutex_lock(&lock);
        while (stands(of) && !sim_cancelled(error))
                (void)pthread_cond_wait(&changed, &lock);
        (void)pthread_mutex_unlock(&lock);
}

void channels_wake(void)
{
        (void)pthread_mutex_lock(&lock);
        (void)pthread_cond_broadcast(&changed);
        (void)pthread_mutex_unlock(&lock);
}

/* ---- for the threads that run work ---- */

void channel_sit(struct channel *compute, struct channel *copy, const _Atomic int *error)
{
        seat.error = error;
        seat.compute = compute;
        seat.copy = copy;
}

/* Needs the lock. */
static void await_enabled(const struct channel *ch)
{
        while (ch->disabled && !sim_cancelled(seat.error))
                (void)pthread_cond_wait(&changed, &lock);
}

void channel_begin(bool copies)
{
        struct channel *ch = copies ? seat.copy : seat.compute;

        if (!ch)
                return;
        (void)pthread_mutex_lock(&lock);
        await_enabled(ch);
        ch->running++;
        seat.now = ch;
        (void)pthread_mutex_unlock(&lock);
}

/* Needs the lock. */
static void leave(struct channel *ch)
{
        if (--ch->running == 0 && ch->disabled)
                (void)pthread_cond_broadcast(&changed);
}

void channel_done(void)
{
        if (!seat.now)
                return;
        (void)pthread_mutex_lock(&lock);
        leave(seat.now);
        seat.now = NULL;
        (void)pthread_mutex_unlock(&lock);
}

bool channel_stops(void)
{
        return seat.now &&
               unlikely(atomic_load_explicit(&seat.now->disabled, memory_order_relaxed));
}

void channel_stand(void)
{
        struct channel *ch = seat.now;

        (void)pthread_mutex_lock(&lock);
        leave(ch);
        await_enabled(ch);
        ch->running++;
        (void)pthread_mutex_unlock(&lock);
}
