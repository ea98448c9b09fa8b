/* look.c: owns the look of a client, which is what it does now, and the list of clients whose look
 * has changed. Must never change a decision. */
#include <errno.h>

#include "sched/internal.h"

int sched_client_look(const struct sched *s, sched_client id, struct sched_look *ret)
{
        const struct client *c = client_find(s, id);

        if (!c)
                return -ESTALE;
        *ret = (struct sched_look){.state = c->state,
                                   .flags = c->flags,
                                   .idle = c->idle,
                                   .grows = c->lease && c->waiting,
                                   .unevictable = c->unevictable_ticket,
                                   .preempted = c->preempted};
        return 0;
}

/* Every event comes here for every client that it may change. */
void client_note_look(struct sched *s, struct client *c)
{
        const unsigned look = c->state | c->flags << 3 | (unsigned)c->idle << 8 |
                              (unsigned)(c->lease && c->waiting) << 9 |
                              (unsigned)(c->unevictable_ticket > 0) << 10 |
                              (unsigned)c->preempted << 11;

        if (look == c->look)
                return;
        c->look = look;
        if (c->changed)
                return;
        c->changed = true;
        c->changed_next = s->changed;
        s->changed = c;
}

sched_client sched_take_changed(struct sched *s)
{
        struct client *c;

        while ((c = s->changed)) {
                s->changed = c->changed_next;
                c->changed = false;
                if (c->used)
                        return client_id(s, c);
        }
        return 0;
}
