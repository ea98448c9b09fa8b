/* preemption.h: which programs the daemon's hand (daemon/hand/hand.h) may take off the GPU. Its
 * orders are in event.c. */
#pragma once

#include "daemon/state/client.h"

/* Makes the server's hand. 0 or -errno. */
int preemption_new(struct server *s);
/* Offers the hand to a client that has attached a GPU, unless it has the offer. */
void preemption_offer(struct client *c);
/* The same for all clients: the hand may have been lost. */
void preemption_offer_all(struct server *s);
/* Call it when the client's connection has ended: the program runs, and is forgotten. */
void preemption_forget(struct client *c);
