/* checkpoint.c: owns the field in a process's slot by which others ask it for a step. One asks at a
 * time. Must never wait for a process that has ended. */
#include "sim/session/checkpoint.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "sim/session/segment.h"
#include "sim/session/session_time.h"

static void await_change(_Atomic uint32_t *word, uint32_t from)
{
        const struct timespec ts = {.tv_nsec = 50 * NSEC_PER_MSEC};

        (void)syscall(SYS_futex, word, FUTEX_WAIT, from, &ts, NULL, 0);
}

static void set(_Atomic uint32_t *word, uint32_t to)
{
        atomic_store(word, to);
        (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static int slot_of(struct session *s, pid_t pid, struct session_slot **ret)
{
        session_reap(s);
        for (unsigned i = 0; i < SESSION_SLOTS; i++) {
                struct session_slot *slot = &s->segment->slot[i];

                if (!slot_live(slot) || slot->pid != pid || !atomic_load(&slot->cuda) ||
                    !atomic_load(&slot->checkpoint.thread))
                        continue;
                *ret = slot;
                return geteuid() && slot->uid != geteuid() ? -EPERM : 0;
        }
        return -ESRCH;
}

static bool has_ended(struct session *s, const struct session_slot *slot, pid_t pid)
{
        session_reap(s);
        return !slot_live(slot) || slot->pid != pid;
}

static bool lives(pid_t thread)
{
        uint64_t start, stack;

        return process_look(thread, &start, &stack);
}

bool checkpoint_is_awaited(struct session *s)
{
        return lives(atomic_load(&s->own->checkpoint.asker));
}

/* Waits until nobody else asks. */
static void begin_to_ask(struct session_checkpoint *c)
{
        for (;;) {
                pid_t other = 0;

                if (atomic_compare_exchange_strong(&c->asker, &other, gettid()))
                        return;
                if (!lives(other))
                        (void)atomic_compare_exchange_strong(&c->asker, &other, 0);
                else
                        session_sleep_until(session_now_ns() + NSEC_PER_MSEC);
        }
}

/* Waits until no step is under way. 0; -ESRCH: the process has ended. */
static int await_end(struct session *s, struct session_slot *slot, pid_t pid)
{
        uint32_t step;

        while ((step = atomic_load(&slot->checkpoint.step))) {
                await_change(&slot->checkpoint.step, step);
                if (has_ended(s, slot, pid))
                        return -ESRCH;
        }
        return 0;
}

int checkpoint_ask(struct session *s, pid_t pid, enum checkpoint_step step, uint32_t timeout_ms)
{
        struct session_slot *slot;
        int r = slot_of(s, pid, &slot);

        if (r < 0)
                return r;
        begin_to_ask(&slot->checkpoint);
        r = await_end(s, slot, pid); /* a killed asker may have left a step behind */
        if (r == 0) {
                slot->checkpoint.timeout_ms = timeout_ms;
                set(&slot->checkpoint.step, step);
                r = await_end(s, slot, pid);
        }
        if (r == 0)
                r = slot->checkpoint.result;
        atomic_store(&slot->checkpoint.asker, 0);
        return r;
}

int checkpoint_find(struct session *s, pid_t pid, const struct session_checkpoint **ret)
{
        struct session_slot *slot;
        int r = slot_of(s, pid, &slot);

        if (r == 0)
                *ret = &slot->checkpoint;
        return r;
}

void checkpoint_serve(struct session *s)
{
        atomic_store(&s->own->checkpoint.thread, gettid());
}

enum checkpoint_step checkpoint_next(struct session *s, uint32_t *ret_timeout_ms)
{
        struct session_checkpoint *c = &s->own->checkpoint;

        while (!atomic_load(&c->step))
                (void)syscall(SYS_futex, &c->step, FUTEX_WAIT, 0, NULL, NULL, 0);
        *ret_timeout_ms = c->timeout_ms;
        return (enum checkpoint_step)atomic_load(&c->step);
}

void checkpoint_answer(struct session *s, int result, uint32_t state)
{
        struct session_checkpoint *c = &s->own->checkpoint;

        c->result = result;
        atomic_store(&c->state, state);
        set(&c->step, CHECKPOINT_NONE);
}
