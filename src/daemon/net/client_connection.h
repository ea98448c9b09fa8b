/* client_connection.h: a client's connection, from accept to the sweep. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct client;

/* The sd-event handler of the listening socket. */
int client_accept(sd_event_source *src, int fd, uint32_t events, void *userdata);

/* Reads and handles one message. False: there is none now, or the connection is over. */
bool client_turn(struct client *c);

/* ---- called by the sweep ---- */
void client_close(struct client *c); /* closes the connection */
void client_free(struct client *c);
/* After the process has ended: finds out whether its memory is free, now or later. */
void client_check_gone(struct client *c);
/* A new look at the cards is there, or none will come: continues what waited for it. */
void client_looked(struct client *c);
/* Call it from time to time: after exec() a process without a connection may hold nothing more. */
void client_check_left(struct client *c);
