/* users.h: what one user's clients may take of the daemon together: connections, records of
 * processes and the loop's time. The daemon's loop owns it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct client;
struct users;
struct user;

/* turns.c: the user's clients that have something to say. */
struct user_queue {
        struct user *user;
        struct user_queue *next;
        struct client *first, *last;
};

/* NULL: no memory. */
struct users *users_new(unsigned connections_max);
void users_free(struct users *u);

/* A connection of this uid begins, and with it a record of its process, which may outlive it. 0,
 * -EUSERS: too many of either, -ENOMEM. */
int users_connect(struct users *u, uid_t uid, uint64_t now_ns, struct user **ret);
void users_disconnect(struct user *user);
/* The record ends, after its connection. Without a record *user may be gone. */
void users_forget(struct user *user);
/* A user who need not have a connection; valid until the next call. NULL: no memory. */
struct user *users_find(struct users *u, uid_t uid, uint64_t now_ns);

/* The loop has worked so long for this user. */
void users_charge(struct user *user, uint64_t spent_ns, uint64_t now_ns);
/* The loop has worked since began_ns for this user, who need not have a connection. */
void users_charge_since(struct users *u, uid_t uid, uint64_t began_ns, uint64_t now_ns);
/* Time earned and not spent; below 0: he has used more than his share lately. */
int64_t users_credit(struct user *user, uint64_t now_ns);
struct user_queue *users_queue(struct user *user);
