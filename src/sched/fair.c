/* fair.c: owns how turns are shared, between users first and then between their processes.
 * Must never look at a byte count, and never let a wait of a user's own processes be reordered.
 *
 * Start-time fair queueing (Goyal, Vin, Cheng, 1996). Each place in the queue carries a tag: the
 * virtual time at which its turn begins. A user's next tag lies past the turns that this user has
 * booked, so ten waiting processes of one user get as many turns as a single process of another. A
 * turn is booked as one quantum and corrected when it is over. The virtual time is the highest tag
 * that was ever granted. A user who returns begins there: absence earns no credit. */
#include "sched/internal.h"

/* A turn counts as two quanta at most, so that hours without competition do not become a debt. */
#define TURN_MAX 2

void fair_join(struct sched *s, struct client *c, uint32_t uid)
{
        struct user *best = s->user;

        /* A free record exists: there are as many records as clients, and c has none yet. */
        for (unsigned i = 0; i < s->config.clients_max; i++) {
                struct user *u = &s->user[i];

                if (u->known && u->uid == uid) {
                        best = u;
                        break;
                }
                /* Among unused records, the one with the least debt. */
                if (u->clients == 0 && (best->clients || u->finish_ns < best->finish_ns))
                        best = u;
                if (!u->known)
                        break;
        }
        if (!best->known || best->uid != uid)
                *best = (struct user){.known = true, .uid = uid};
        best->clients++;
        c->user = best;
}

void fair_leave(struct client *c)
{
        c->user->clients--;
        c->user = NULL;
}

/* Books a turn for c, which enters the queue. */
void fair_book(struct sched *s, struct client *c)
{
        struct user *u = c->user;

        fair_settle(c, 0);
        c->tag_ns = MAX(MAX(s->virtual_ns, u->finish_ns), u->last_ns);
        c->booked_ns = policy_client_quantum(s, c);
        u->last_ns = c->tag_ns;
        u->finish_ns = add_sat(c->tag_ns, c->booked_ns);
}

/* Books no second turn for c, which waits for growth and keeps its turn. */
void fair_stay(struct sched *s, struct client *c)
{
        c->tag_ns = MAX(s->virtual_ns, c->tag_ns);
}

void fair_begin(struct sched *s, struct client *c)
{
        s->virtual_ns = MAX(s->virtual_ns, c->tag_ns);
}

/* Replaces the booked quantum by the time that the turn used; 0 if the turn was never taken. */
void fair_settle(struct client *c, uint64_t used_ns)
{
        uint64_t used = MIN(used_ns, TURN_MAX * c->booked_ns);

        c->user->finish_ns = sub_sat(add_sat(c->user->finish_ns, used), c->booked_ns);
        c->booked_ns = 0;
}
