/* client.h: a client's connection, from accept to the sweep. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct client;

/* sd-event handler of the listening socket. */
int client_accept(sd_event_source *src, int fd, uint32_t events, void *userdata);

/* Read and handle one message. False: none for now, or the connection is over. */
bool client_turn(struct client *c);

/* For the sweep. */
void client_close(struct client *c); /* the connection */
void client_free(struct client *c);
/* The process has ended: find out whether its memory is free, now or later. */
void client_check_gone(struct client *c);
/* There is a new look at the cards, or there will be none: continue what waited for it. */
void client_looked(struct client *c);
/* Call it from time to time: exec() in a process without a connection may have freed its memory. */
void client_check_left(struct client *c);
