/* server.h: the loop of a program that serves HTTP: connections, their deadlines, and a clean end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kubernetes/serve/requests.h"

#define SERVER_ERROR_MAX 512

struct server_options {
        const char *listen;    /* ADDR:PORT; without ADDR: all addresses */
        bool plain;            /* HTTP instead of HTTPS */
        const char *client_ca; /* a file: only clients that these authorities vouch for may ask, but
                                  all may probe; NULL: all may ask. Not if plain */
        uint64_t linger_ns;    /* new clients are let in for so long after the signal */
};

/* Something else that runs in the loop: it is called when fd can be read, and before the loop first
 * sleeps. */
struct server_beside {
        int fd;
        void (*turn)(void *userdata);
        void *userdata;
};

/* Blocks the signals that end the program, so that they wait for the loop. Call it first. */
void server_block_signals(void);

/* Serves until SIGTERM or SIGINT, and then until open requests are answered. The certificate must
 * be open, unless plain. beside: may be NULL. 0; -EINVAL: the address is malformed, or the
 * authority cannot be used; another -errno: it cannot be served. */
int server_run(const struct server_options *o, const struct requests_service *service,
               const struct server_beside *beside, char error[static SERVER_ERROR_MAX]);
