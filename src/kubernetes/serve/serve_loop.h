/* serve_loop.h: the loop of a program that serves HTTP: connections, their deadlines, and a clean
 * end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <systemd/sd-event.h>

#include "kubernetes/serve/requests.h"

#define SERVER_ERROR_MAX 512

struct server_options {
        const char *listen;    /* ADDR:PORT; without ADDR: all addresses */
        bool plain;            /* HTTP instead of HTTPS */
        const char *client_ca; /* a file: only clients that these authorities vouch for may ask, but
                                  all may probe; NULL: all may ask. Not if plain */
        uint64_t linger_ns;    /* new clients are let in for so long after the signal */
};

/* Blocks the signals that end the program, so that they wait for the loop. Call it first. */
void server_block_signals(void);

/* Runs the loop, and serves until SIGTERM or SIGINT, and then until open requests are answered. The
 * certificate must be open, unless plain. 0; -EINVAL: the address is malformed, or the authority
 * cannot be used; another -errno: it cannot be served. */
int server_run(sd_event *event, const struct server_options *o,
               const struct requests_service *service, char error[static SERVER_ERROR_MAX]);
