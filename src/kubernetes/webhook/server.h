/* server.h: the webhook's loop: connections, their deadlines, and a clean end. */
#pragma once

#include <stdint.h>

#include "kubernetes/webhook/requests.h"

#define SERVER_ERROR_MAX 512

struct server_options {
        const char *listen; /* ADDR:PORT; without ADDR: all addresses */
        const char *from, *to;
        uint64_t linger_ns; /* new clients are let in for so long after the signal */
};

/* Blocks the signals that end the webhook, so that they wait for the loop. Call it first. */
void server_block_signals(void);

/* Serves until SIGTERM or SIGINT, and then until open requests are answered. The certificate must
 * be open. 0; -EINVAL: the address is malformed; another -errno: it cannot be served. */
int server_run(const struct server_options *o, char error[static SERVER_ERROR_MAX]);
