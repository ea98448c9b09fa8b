/* event.h: the frame around each event of the scheduler. */
#pragma once

#include <stdint.h>

#include "wire/wire.h"

struct client;
struct server;

void event_begin(struct server *s); /* call it before an event of the scheduler */
void event_end(struct server *s);   /* call it after the event: carries out the event's actions */
/* Refuses one request; the connection stays. gpu: the client's number for the GPU. */
void event_refuse(struct client *c, unsigned gpu, enum wire_refusal code, uint32_t of,
                  const char *text);
/* Notes for the status that the hand takes the client off the GPU, or lets it run. */
void event_note_preempted(struct client *c, bool off);
