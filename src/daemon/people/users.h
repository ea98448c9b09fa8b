/* users.h: what one user's clients may use of the daemon together: connections, records of
 * processes, and the loop's time. A pod is one user, whatever the uids of its processes are; a
 * person is a different user in each job. Used by the loop's thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct client;
struct peer;
struct users;
struct user;

/* The user's clients whose messages wait to be read (read_turns.c): those that have attached no GPU
 * yet, and the others. The lists take turns, a message each, so that a newcomer waits for few. */
struct user_queue {
        struct user *user;
        struct user_queue *next;
        struct client_list {
                struct client *first, *last;
        } joining, rest;
        bool rest_next; /* the next message is of the second list */
};

struct users_key {
        uid_t uid;       /* (uid_t)-1: a pod */
        uint64_t tenant; /* tenant_number(); 0: neither pod nor job */
};
#define USERS_UID(uid) ((struct users_key){(uid), 0})

struct users_key users_key_of(const struct peer *p);
bool users_same(struct users_key a, struct users_key b);

/* Returns NULL if there is no memory. */
struct users *users_new(unsigned connections_max);
void users_free(struct users *u);

/* Counts a connection of this user, and a record of its process, which may outlive the connection.
 * 0; -EUSERS: the user has too many of either; -ENOMEM. */
int users_connect(struct users *u, struct users_key key, uint64_t now_ns, struct user **ret);
void users_disconnect(struct user *user);
/* Ends a record, after its connection. *user may be freed with its last record. */
void users_forget(struct user *user);
/* Returns a user who need not have a connection, valid until the next call; NULL: no memory. */
struct user *users_find(struct users *u, struct users_key key, uint64_t now_ns);

/* Counts n records of what the user's programs do. False: the user has had a thousand a second. */
bool users_note(struct user *user, unsigned n, uint64_t now_ns);

/* Charges the user for so much of the loop's time. */
void users_charge(struct user *user, uint64_t spent_ns, uint64_t now_ns);
/* Charges this user, who need not have a connection, for the time since began_ns. */
void users_charge_since(struct users *u, struct users_key key, uint64_t began_ns, uint64_t now_ns);
/* Returns the time earned and not spent; below 0: the user has used more than its share lately. */
int64_t users_credit(struct user *user, uint64_t now_ns);
struct user_queue *users_queue(struct user *user);
