/* address.h: where the daemon serves its metrics: a UNIX socket, or TCP on this machine alone. */
#pragma once

#include <sys/socket.h>

#define ADDRESS_TEXT_MAX 128 /* the path of a socket, or ADDRESS:PORT */
#define ADDRESS_FORMS    "127.0.0.1:PORT, [::1]:PORT or the absolute path of a socket"

/* Reads such an address. 0; -EINVAL: malformed; -EADDRNOTAVAIL: other machines could reach it.
 * Pure.
 */
int address_parse(const char *text, struct sockaddr_storage *ret, socklen_t *ret_size);
