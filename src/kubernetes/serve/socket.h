/* socket.h: the socket at which a program listens. */
#pragma once

/* Listens at "ADDR:PORT", "[ADDR]:PORT" or ":PORT", which means all addresses. 0; -EINVAL: the text
 * is no such address; or another -errno. */
int socket_open(const char *text, int *ret);
/* Logs where `many` ("reviews") are served. */
void socket_say_where(int fd, const char *many);
