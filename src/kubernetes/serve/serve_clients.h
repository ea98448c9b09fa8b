/* serve_clients.h: which clients are served, which wait for a place, and which have to go.
 *
 * Clients at one address are one peer. A free place goes to the peer that has the fewest, so a peer
 * that takes all places delays itself. Pure: no system call, no clock. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <sys/socket.h>

#include <microhttpd.h>

#define CLIENTS_PLACES  256u
#define CLIENTS_WAITING 1024u

/* The most time from the first byte of a connection to the end of its request's header. */
#define CLIENTS_HEADER_NS (5 * UINT64_C(1000000000))
/* The most time from the end of the header to the end of the answer: no API server waits longer. */
#define CLIENTS_REQUEST_NS (10 * UINT64_C(1000000000))
/* The API server closes its idle connections after 90 s. If this server closed first, a request
 * that is just being sent would be lost. */
#define CLIENTS_IDLE_NS (120 * UINT64_C(1000000000))
/* While a peer with fewer places waits, other peers' clients may stand still for this long at
 * most. */
#define CLIENTS_SCARCE_NS (1 * UINT64_C(1000000000))

struct peer {
        struct peer *next;
        unsigned char address[16];
        unsigned served, waiting;
        bool slow; /* it kept others waiting: its large bodies come last */
};

enum client_phase {
        CLIENT_WAITS,  /* it waits for a place */
        CLIENT_BEGINS, /* the header of its request is not complete */
        CLIENT_ASKS,   /* a request is being read or answered */
        CLIENT_HELD,   /* CLIENT_ASKS, and the request waits for something of ours */
        CLIENT_IDLE,   /* it is between two requests */
};

struct client {
        struct client *next, **link;
        struct peer *peer;
        enum client_phase phase;
        uint64_t since_ns; /* when the phase began */
        int fd;
        bool ended; /* it is served until MHD has closed its connection */
        struct sockaddr_storage from;
        socklen_t from_size;
        /* The server's: */
        struct MHD_Connection *mhd;
        struct certificate *certificate;
        struct request *request;
        bool looked, vouched_for; /* whether its certificate was looked at, and was good */
};

struct clients;

struct clients *clients_new(void); /* NULL: no memory */
/* All clients must have left. NULL is a no-op. */
void clients_free(struct clients *c);

/* Adds a new client, which waits. NULL: no memory. */
struct client *clients_come(struct clients *c, int fd, const struct sockaddr_storage *from,
                            socklen_t size, uint64_t now_ns);
void clients_leave(struct clients *c, struct client *k);
void clients_set_phase(struct client *k, enum client_phase phase, uint64_t now_ns);

/* Returns a client that has got a place; NULL: none waits, or all places are taken. */
struct client *clients_next(struct clients *c, uint64_t now_ns);
/* Returns a waiting client that is one too many; NULL: none is. */
struct client *clients_surplus(struct clients *c);
/* Returns a served client that has to end, because it is late or because others wait for its
 * place. ending: no client may stay idle. NULL: none has to. */
struct client *clients_to_end(const struct clients *c, bool ending, uint64_t now_ns);
/* Notes that the connection of a served client is being closed. */
void clients_end(struct clients *c, struct client *k);

unsigned clients_count(const struct clients *c);
/* True if a client waits, or its request is on its way. */
bool clients_any_busy(const struct clients *c);
