/* users.c: owns the count of each user's connections and records, and of the loop's time that each
 * user has used. Must never keep records of past users without bound. */
#include "daemon/people/users.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/people/peer.h"

/* A process that reconnects has two records until the second one has taken over the first. */
#define RECORDS_PER_CONNECTION 2u
/* A user earns a quarter of the time that passes. Debts and savings are bounded, so neither delays
 * or favours a user for long. */
#define EARNED_PER   4
#define CREDIT_MAX   ((int64_t)(NSEC_PER_SEC / 20))
#define NOTE_NS      NSEC_PER_MSEC
#define NOTES_NS     NSEC_PER_SEC /* records worth this much time may come at once */
#define FORGOTTEN_NS (2 * EARNED_PER * (uint64_t)CREDIT_MAX)

struct user {
        struct user *next;
        struct users_key key;
        unsigned connections, records;
        int64_t credit_ns; /* the loop's time: earned minus spent */
        uint64_t seen_ns;  /* when credit_ns was computed */
        uint64_t noted_ns; /* time up to which the user's records are used up, at NOTE_NS each */
        struct user_queue queue;
};

struct users {
        struct user *first;
        unsigned connections_max;
};

struct users_key users_key_of(const struct peer *p)
{
        const bool pod = p->tenant.kind == TENANT_POD;

        return (struct users_key){pod ? (uid_t)-1 : p->uid, tenant_number(&p->tenant)};
}

bool users_same(struct users_key a, struct users_key b)
{
        return a.uid == b.uid && a.tenant == b.tenant;
}

struct users *users_new(unsigned connections_max)
{
        struct users *u = calloc(1, sizeof(*u));

        if (!u)
                return NULL;
        u->connections_max = connections_max;
        return u;
}

void users_free(struct users *u)
{
        if (!u)
                return;
        while (u->first) {
                struct user *next = u->first->next;

                free(u->first);
                u->first = next;
        }
        free(u);
}

bool users_note(struct user *user, unsigned n, uint64_t now_ns)
{
        if (user->noted_ns > now_ns + NOTES_NS)
                return false;
        user->noted_ns = MAX(user->noted_ns, now_ns) + n * NOTE_NS;
        return true;
}

int64_t users_credit(struct user *user, uint64_t now_ns)
{
        uint64_t passed = MIN(sub_sat(now_ns, user->seen_ns), FORGOTTEN_NS);

        return MIN(user->credit_ns + (int64_t)(passed / EARNED_PER), CREDIT_MAX);
}

void users_charge(struct user *user, uint64_t spent_ns, uint64_t now_ns)
{
        int64_t spent = (int64_t)MIN(spent_ns, 2 * (uint64_t)CREDIT_MAX);

        user->credit_ns = MAX(users_credit(user, now_ns) - spent, -CREDIT_MAX);
        user->seen_ns = MAX(user->seen_ns, now_ns);
}

void users_charge_since(struct users *u, struct users_key key, uint64_t began_ns, uint64_t now_ns)
{
        struct user *user = users_find(u, key, now_ns);

        if (user)
                users_charge(user, sub_sat(now_ns, began_ns), now_ns);
}

struct user_queue *users_queue(struct user *user)
{
        return &user->queue;
}

/* Frees users that have no record and owe nothing. There can be many uids: a user namespace has
 * 65,536. */
static void prune(struct users *u, uint64_t now_ns)
{
        struct user **link = &u->first;

        while (*link) {
                struct user *user = *link;

                if (user->records > 0 || sub_sat(now_ns, user->seen_ns) < FORGOTTEN_NS) {
                        link = &user->next;
                        continue;
                }
                *link = user->next;
                free(user);
        }
}

struct user *users_find(struct users *u, struct users_key key, uint64_t now_ns)
{
        struct user *user = u->first;

        while (user && !users_same(user->key, key))
                user = user->next;
        if (user)
                return user;
        prune(u, now_ns);
        user = calloc(1, sizeof(*user));
        if (!user)
                return NULL;
        user->key = key;
        user->credit_ns = CREDIT_MAX;
        user->queue.user = user;
        user->seen_ns = now_ns;
        user->next = u->first;
        u->first = user;
        return user;
}

int users_connect(struct users *u, struct users_key key, uint64_t now_ns, struct user **ret)
{
        struct user *user = users_find(u, key, now_ns);

        if (!user)
                return -ENOMEM;
        if (user->connections >= u->connections_max ||
            user->records / RECORDS_PER_CONNECTION >= u->connections_max)
                return -EUSERS;
        user->connections++;
        user->records++;
        *ret = user;
        return 0;
}

/* Keeps a user without a connection for a while, so that reconnecting does not erase a debt. */
void users_disconnect(struct user *user)
{
        user->connections--;
}

void users_forget(struct user *user)
{
        user->records--;
}
