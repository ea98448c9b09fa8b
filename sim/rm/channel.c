/* channel.c: owns the channels of this process, and says which threads run on them. Must never call
 * other parts of the simulator with its lock held. */
#include "sim/rm/channel.h"

#include <stdlib.h>

#include "base/macros.h"
#include "sim/rm/guard.h"
#include "sim/rm/rm_layout.h"

/* A channel is an entry of the session's table, where other processes disable it, too. */
struct channel {
        struct rm_entry entry;
};

/* An entry that this process has. It is never freed. */
struct kept {
        struct kept *next;
        struct rm_entry *entry;
        bool used;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept *all;

static __thread struct {
        const _Atomic int *error; /* the sticky error of the context */
        struct channel *compute, *copy;
        struct channel *now; /* the channel on which this thread runs work now; NULL: none */
} seat;

/* Needs the lock. */
static struct kept *kept_new(void)
{
        struct rm_entry *e = rm_entry_new(session_rm(sim.session), guard_owner());
        struct kept *k = e ? malloc(sizeof(*k)) : NULL;

        if (k)
                *k = (struct kept){.next = all, .entry = e};
        else if (e)
                rm_entry_free(e);
        all = k ? k : all;
        return k;
}

struct channel *channel_new(uint32_t client, uint32_t handle)
{
        struct kept *k;

        (void)pthread_mutex_lock(&lock);
        k = all;
        while (k && k->used)
                k = k->next;
        if (!k)
                k = kept_new();
        if (k)
                k->used = true;
        (void)pthread_mutex_unlock(&lock);
        if (!k)
                return NULL;
        rm_entry_name(k->entry, client, handle, CLASS_CHANNEL);
        return (struct channel *)k->entry;
}

void channel_end(struct channel *ch)
{
        rm_entry_clear(session_rm(sim.session), &ch->entry);
        (void)pthread_mutex_lock(&lock);
        for (struct kept *k = all; k; k = k->next)
                if (k->entry == &ch->entry)
                        k->used = false;
        (void)pthread_mutex_unlock(&lock);
}

static bool all_enabled(void)
{
        bool enabled = true;

        (void)pthread_mutex_lock(&lock);
        for (const struct kept *k = all; k; k = k->next)
                enabled = enabled && !(k->used && rm_stopped(k->entry));
        (void)pthread_mutex_unlock(&lock);
        return enabled;
}

void channels_await_enabled(void)
{
        struct rm_owner *o = guard_owner();

        while (o) {
                const uint32_t changes = atomic_load(&o->changes);

                if (all_enabled() || atomic_load(&sim.exiting))
                        return;
                rm_await(o, changes);
        }
}

static bool stands(const struct channels_of *of)
{
        for (unsigned i = 0; i < CHANNELS_COMPUTE; i++)
                if (of->compute[i] && rm_stopped(&of->compute[i]->entry))
                        return true;
        for (unsigned i = 0; i < CHANNELS_COPY; i++)
                if (of->copy[i] && rm_stopped(&of->copy[i]->entry))
                        return true;
        return false;
}

void channels_await(const struct channels_of *of, const _Atomic int *error)
{
        struct rm_owner *o = guard_owner();

        while (o) {
                const uint32_t changes = atomic_load(&o->changes);

                if (!stands(of) || sim_cancelled(error))
                        return;
                rm_await(o, changes);
        }
}

void channels_wake(void)
{
        if (guard_owner())
                rm_wake(guard_owner());
}

/* ---- for the threads that run work ---- */

void channel_sit(struct channel *compute, struct channel *copy, const _Atomic int *error)
{
        seat.error = error;
        seat.compute = compute;
        seat.copy = copy;
}

static void await_enabled(const struct channel *ch)
{
        struct rm_owner *o = guard_owner();

        for (;;) {
                const uint32_t changes = atomic_load(&o->changes);

                if (!rm_stopped(&ch->entry) || sim_cancelled(seat.error))
                        return;
                rm_await(o, changes);
        }
}

/* Says that work runs before it looks whether it may, as a control disables the channel before it
 * looks whether work runs. So one of the two sees the other. */
static void enter(struct channel *ch)
{
        for (;;) {
                atomic_fetch_add(&ch->entry.running, 1);
                if (!rm_stopped(&ch->entry) || sim_cancelled(seat.error))
                        return;
                atomic_fetch_sub(&ch->entry.running, 1);
                await_enabled(ch);
        }
}

void channel_begin(bool copies)
{
        struct channel *ch = copies ? seat.copy : seat.compute;

        if (!ch)
                return;
        enter(ch);
        seat.now = ch;
}

void channel_done(void)
{
        if (seat.now)
                atomic_fetch_sub(&seat.now->entry.running, 1);
        seat.now = NULL;
}

bool channel_stops(void)
{
        return seat.now &&
               unlikely(atomic_load_explicit(&seat.now->entry.off, memory_order_relaxed) &
                        RM_STOPPED);
}

void channel_stand(void)
{
        atomic_fetch_sub(&seat.now->entry.running, 1);
        enter(seat.now);
}
