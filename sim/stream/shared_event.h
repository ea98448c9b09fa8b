/* shared_event.h: events that several processes record and wait for. An event is two numbers in a
 * shared page, which stays mapped. Thread-safe. */
#pragma once

#include "sim/call/objects.h"

struct shared_event;

int shared_event_new(struct shared_event **ret, int *ret_fd); /* 0, -errno */
/* Returns the number of a new record. */
uint64_t shared_event_record(struct shared_event *e);
void shared_event_reached(struct shared_event *e, uint64_t number);
/* Returns the number of the last record by any process; 0: none. */
uint64_t shared_event_last(const struct shared_event *e);
bool shared_event_is_done(const struct shared_event *e, uint64_t number);
/* Waits until the record is reached or the context has failed, in a stream or in a call. */
CUresult shared_event_await(CUcontext c, const struct shared_event *e, uint64_t number);
