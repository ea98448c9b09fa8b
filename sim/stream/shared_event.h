/* shared_event.h: events that several processes record and wait for: numbers in a page that they
 * share. Thread-safe. Pages stay mapped. */
#pragma once

#include "sim/call/objects.h"

struct shared_event;

int shared_event_new(struct shared_event **ret, int *ret_fd); /* 0, -errno */
/* The number of a record that is being submitted. */
uint64_t shared_event_record(struct shared_event *e);
void shared_event_reached(struct shared_event *e, uint64_t number);
/* The number of the last record by any process; 0: none. */
uint64_t shared_event_last(const struct shared_event *e);
bool shared_event_is_done(const struct shared_event *e, uint64_t number);
/* Run by a stream, or in a call: returns when it is reached, or when the context has failed. */
CUresult shared_event_await(CUcontext c, const struct shared_event *e, uint64_t number);
