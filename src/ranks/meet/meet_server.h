/* meet_server.h: the process that passes on what each rank tells to all, and the messages. Only
 * meet.c uses it, with its lock held. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "ranks/meet/meet.h"

enum said_kind { SAID_HELLO, SAID_TELL, SAID_LEAVE, SAID_LOST };

/* One message. The server sets the rank of what it passes on, and passes on that a rank has left.
 * The data of SAID_LEAVE begin with `uses`, a uint64_t. */
struct said {
        uint32_t kind;
        int32_t rank, n;
        uint8_t data[MEET_TOLD_MAX];
};

/* Sends a message. Returns 0, or -errno. Does not wait: a socket's buffer holds a whole round. */
int said_send(int fd, const struct said *said, const int *fds, unsigned n_fds);
/* Returns 1: a message has come, with ret_fds (-EBADF: none); -EAGAIN: none yet; 0 or another
 * -errno: the connection has ended. */
int said_receive(int fd, struct said *ret, int ret_fds[static MEET_FDS]);
void said_close(int fds[static MEET_FDS]);

struct seat {
        int fd; /* -EBADF: the rank is not connected */
        bool here, told, left;
        int got; /* number of messages of this round that the rank has got */
        struct said said;
        int fds[MEET_FDS];
};

struct server {
        struct server *next;
        int fd;      /* the listening socket */
        int n;       /* ranks; 0: no rank has come yet */
        int came;    /* ranks that have come */
        bool behind; /* part of a round is to be sent: call server_step() again soon */
        struct seat seats[MEET_RANKS_MAX];
        int pending[MEET_RANKS_MAX]; /* connections that have not said who they are */
        unsigned n_pending;
};

int server_new(const uint8_t name[static MEET_NAME], struct server **ret);
/* Returns a connection to a server; -ECONNREFUSED: there is none. */
int server_connect(const uint8_t name[static MEET_NAME]);
/* Returns how many descriptors the server waits for, and stores them unless fds is NULL. */
unsigned server_descriptors(const struct server *s, struct pollfd *fds);
/* Handle all that has come in. False: all ranks have come and gone. */
bool server_step(struct server *s);
void server_close(struct server *s); /* only close descriptors: for a child after fork */
void server_free(struct server *s);
