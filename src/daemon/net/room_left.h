/* room_left.h: what the daemon would grant a client now, for cuMemGetInfo. */
#pragma once

#include <stdint.h>

struct client;
struct wire_message;

/* Answers ROOM. */
int room_left(struct client *c, const struct wire_message *m);
/* Returns the most host memory that the client could map in all. */
uint64_t room_left_host(struct client *c);
