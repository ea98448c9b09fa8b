/* entitlement.h: what the owner's configuration gives a client, and what the client asks for
 * itself. Used by the loop's thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/setup/classes.h"
#include "sched/sched.h"
#include "wire/wire.h"

struct client;
struct peer;
struct server;

/* Finds the client's class, once it has said its name. Sets its priority from what it requests. */
void entitlement_greeted(struct client *c, int32_t priority);
/* Tells the program's user if its priority is lower than it asked for. Call it after WELCOME. */
void entitlement_tell_priority(struct client *c, int32_t asked);
/* Notes what the client asks for itself. Lowers what the owner does not allow, and tells the client
 * so. */
int entitlement_claim(struct client *c, const struct wire_message *m);

/* Returns the class, the user and the container of the client, for the scheduler. */
struct sched_origin entitlement_origin(const struct client *c);
/* Returns the client's share of the time of its container, user or class. */
struct sched_share entitlement_share(const struct client *c);
/* Returns the most that the client gets of a card's time, in thousandths: by its own maximum, or
 * that of its class or of [default]. 0: no limit. */
unsigned entitlement_maximum(const struct client *c);
/* True if both clients are of a class whose programs run together. */
bool entitlement_groups(const struct client *a, const struct client *b);

/* Returns the most bytes that the client may see of a card; UINT64_MAX: no cap. */
uint64_t entitlement_cap(const struct client *c);
/* True if the client's cap allows this commit on the GPU. If not, why says which cap is in the way.
 * Notes the commit, so that later measurements take nothing of it back. only_asks: notes nothing,
 * and the answer still holds after NVML's next sample. */
bool entitlement_fits(struct client *c, unsigned gpu, uint64_t commit, bool only_asks,
                      char why[static 160]);
/* True if the client may have so many unevictable bytes. spare: some of them are for a second
 * context. */
bool entitlement_fits_unevictable(const struct client *c, unsigned gpu, uint64_t unevictable,
                                  bool spare, char why[static 160]);
/* Reduces the figures that a client reports at ATTACH to what its cap can have allowed. */
void entitlement_attach(struct client *c, unsigned gpu, struct sched_usage *u);
/* True if a client that does not give way is to be killed. */
bool entitlement_kills(const struct client *c);
/* True if the client may have an MPS server. */
bool entitlement_mps(const struct client *c);

/* Returns the client's own settings, in the fields of class_own_keys(). */
void entitlement_own(const struct client *c, struct class_settings *ret);
/* Gives an attached client the settings `own`, as far as the owner allows, by order of `by`, who
 * has a right to the client. 0; -EPERM: the owner has set what the client gets. */
int entitlement_order(struct client *c, const struct class_settings *own, const struct peer *by);

/* Numbers the classes: a class keeps its number over a reload. before: NULL at the start. */
void entitlement_number(struct server *s, const struct classes *before);
/* Gives every client what the configuration says now. Leases stay. */
void entitlement_renew(struct server *s);
