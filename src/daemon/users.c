/* users.c: owns the count of each user's connections and records, and its token bucket.
 * Must never let one user's clients slow down another's, and never remember without bound who once
 * was here. */
#include "daemon/users.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"

/* A process that comes back has a second record until it has taken over the first one. */
#define RECORDS_PER_CONNECTION 2u
#define BUCKET_NS              NSEC_PER_SEC

struct user {
        struct user *next;
        uid_t uid;
        unsigned connections, records;
        uint64_t tokens_ns; /* time earned and not spent; one message costs the period */
        uint64_t seen_ns;
};

struct users {
        struct user *first;
        unsigned connections_max;
        uint64_t period_ns;
};

struct users *users_new(unsigned connections_max, unsigned messages_per_second)
{
        struct users *u = calloc(1, sizeof(*u));

        if (!u)
                return NULL;
        u->connections_max = connections_max;
        u->period_ns = MAX(NSEC_PER_SEC / messages_per_second, UINT64_C(1));
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

static void refill_user(struct user *user, uint64_t now_ns)
{
        user->tokens_ns = MIN(user->tokens_ns + sub_sat(now_ns, user->seen_ns), BUCKET_NS);
        user->seen_ns = now_ns;
}

static void refill_share(const struct users *u, struct users_share *share, uint64_t now_ns)
{
        uint64_t most = MAX(BUCKET_NS / u->connections_max, u->period_ns);
        uint64_t earned = sub_sat(now_ns, share->seen_ns) / u->connections_max;

        share->tokens_ns = MIN(share->tokens_ns + earned, most);
        share->seen_ns = now_ns;
}

/* Who has nothing here and a full bucket is like one never seen. Uids are cheap: a user namespace
 * has 65,536 of them. */
static void prune(struct users *u, uint64_t now_ns)
{
        struct user **link = &u->first;

        while (*link) {
                struct user *user = *link;

                if (user->records > 0 || sub_sat(now_ns, user->seen_ns) < BUCKET_NS) {
                        link = &user->next;
                        continue;
                }
                *link = user->next;
                free(user);
        }
}

static struct user *find_or_add(struct users *u, uid_t uid, uint64_t now_ns)
{
        struct user *user = u->first;

        while (user && user->uid != uid)
                user = user->next;
        if (user)
                return user;
        prune(u, now_ns);
        user = calloc(1, sizeof(*user));
        if (!user)
                return NULL;
        user->uid = uid;
        user->tokens_ns = BUCKET_NS;
        user->seen_ns = now_ns;
        user->next = u->first;
        u->first = user;
        return user;
}

int users_connect(struct users *u, uid_t uid, uint64_t now_ns, struct user **ret)
{
        struct user *user = find_or_add(u, uid, now_ns);

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

/* A user without a connection is kept for a while: its bucket must not fill up by leaving and
 * coming back. */
void users_disconnect(struct users *u, struct user *user)
{
        (void)u;
        user->connections--;
}

void users_forget(struct users *u, struct user *user)
{
        (void)u;
        user->records--;
}

bool users_take(struct users *u, struct user *user, struct users_share *share, uint64_t now_ns)
{
        refill_user(user, now_ns);
        if (user->tokens_ns >= u->period_ns) {
                user->tokens_ns -= u->period_ns;
                return true;
        }
        if (!share)
                return false;
        refill_share(u, share, now_ns);
        if (share->tokens_ns < u->period_ns)
                return false;
        share->tokens_ns -= u->period_ns;
        return true;
}

bool users_take_many(struct users *u, uid_t uid, unsigned messages, uint64_t now_ns)
{
        struct user *user = find_or_add(u, uid, now_ns);
        uint64_t cost = MIN(messages * u->period_ns, BUCKET_NS);

        if (!user)
                return false;
        refill_user(user, now_ns);
        if (user->tokens_ns < cost)
                return false;
        user->tokens_ns -= cost;
        return true;
}

bool users_busy(const struct user *user)
{
        return user->tokens_ns < BUCKET_NS / 2;
}
