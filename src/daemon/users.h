/* users.h: what one user's clients may take of the daemon together: connections, records of
 * processes and messages. The daemon's loop owns it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct users;
struct user;

/* What one connection may send while its user's others use up everything: the user's rate divided
 * by the connections he may have. All zeros at first. */
struct users_share {
        uint64_t tokens_ns, seen_ns;
};

/* NULL: no memory. */
struct users *users_new(unsigned connections_max, unsigned messages_per_second);
void users_free(struct users *u);

/* A connection of this uid begins, and with it a record of its process, which may outlive it. 0,
 * -EUSERS: too many of either, -ENOMEM. */
int users_connect(struct users *u, uid_t uid, uint64_t now_ns, struct user **ret);
void users_disconnect(struct users *u, struct user *user);
/* The record ends, after its connection. Without a record *user may be gone. */
void users_forget(struct users *u, struct user *user);
/* One message, or one connection. share: of the connection; NULL: it has none yet. False: too many
 * in too short a time. */
bool users_take(struct users *u, struct user *user, struct users_share *share, uint64_t now_ns);
/* As many messages at once, by a user who need not have a connection. */
bool users_take_many(struct users *u, uid_t uid, unsigned messages, uint64_t now_ns);
/* He has used up more than half of what he may send: others go first. */
bool users_busy(const struct user *user);
