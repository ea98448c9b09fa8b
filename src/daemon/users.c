/* users.c: owns the count of each user's connections and its token bucket.
 * Must never let one user's clients slow down another's. */
#include "daemon/users.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"

struct user {
        struct user *next;
        uid_t uid;
        unsigned connections;
        uint64_t tokens_ns; /* time earned and not spent; one message costs the period */
        uint64_t seen_ns;
        char name[64];
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

int users_connect(struct users *u, uid_t uid, uint64_t now_ns, struct user **ret)
{
        struct user *user = u->first;

        while (user && user->uid != uid)
                user = user->next;
        if (!user) {
                user = calloc(1, sizeof(*user));
                if (!user)
                        return -ENOMEM;
                user->uid = uid;
                user->tokens_ns = NSEC_PER_SEC;
                user->seen_ns = now_ns;
                user->next = u->first;
                u->first = user;
        }
        if (user->connections >= u->connections_max)
                return -EUSERS;
        user->connections++;
        *ret = user;
        return 0;
}

/* A user without a connection is kept: its bucket must not fill up by leaving and coming back. */
void users_disconnect(struct users *u, struct user *user)
{
        user->connections--;
}

bool users_take(struct users *u, struct user *user, uint64_t now_ns)
{
        /* A bucket holds one second's messages. */
        user->tokens_ns = MIN(user->tokens_ns + sub_sat(now_ns, user->seen_ns), NSEC_PER_SEC);
        user->seen_ns = now_ns;
        if (user->tokens_ns < u->period_ns)
                return false;
        user->tokens_ns -= u->period_ns;
        return true;
}

const char *users_name(struct user *user)
{
        const struct passwd *pw;

        if (!user->name[0]) {
                pw = getpwuid(user->uid);
                if (pw)
                        (void)snprintf(user->name, sizeof(user->name), "%s", pw->pw_name);
                else
                        (void)snprintf(user->name, sizeof(user->name), "%u", (unsigned)user->uid);
        }
        return user->name;
}
