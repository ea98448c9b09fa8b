/* event.h: an event of the scheduler, and what it has to say to clients. */
#pragma once

#include <stdint.h>

#include "wire/wire.h"

struct client;
struct server;

void event_begin(struct server *s); /* before an event of the scheduler */
void event_end(struct server *s);   /* and after it: carry its actions out */
/* One request is refused, the connection stays. gpu: as the client numbers them. */
void event_refuse(struct client *c, unsigned gpu, enum wire_refusal code, uint32_t of,
                  const char *text);
