/* users.h: what one user's clients may take of the daemon together: connections and messages.
 * The daemon's loop owns it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct users;
struct user;

/* NULL: no memory. */
struct users *users_new(unsigned connections_max, unsigned messages_per_second);
void users_free(struct users *u);

/* A connection of this uid begins. 0, -EUSERS: too many of them, -ENOMEM. */
int users_connect(struct users *u, uid_t uid, uint64_t now_ns, struct user **ret);
void users_disconnect(struct users *u, struct user *user);
/* One message, or one connection. False: too many in too short a time. */
bool users_take(struct users *u, struct user *user, uint64_t now_ns);
/* The login name, or the number where there is none; looked up once. Valid while the user has a
 * connection. */
const char *users_name(struct user *user);
