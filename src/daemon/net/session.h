/* session.h: clients' messages, checked and passed on to the scheduler. */
#pragma once

#include <stdbool.h>

struct client;
struct sched_client_view;
struct server;
struct wire_message;

/* Handles a message. 0; -errno: the client is dropped. */
int session_handle(struct client *c, const struct wire_message *m);
/* Passes on the requests that were kept back, or keeps them longer. */
void session_resume(struct server *s);
/* Returns the client that holds what c waits for, at the end of the chain of clients that wait for
 * one another; *ret_view is its view. NULL: no single client does. */
const struct client *session_holder(const struct client *c, struct sched_client_view *ret_view);
/* True if c waits because foreign processes hold memory. view: c's view. */
bool session_waits_for_foreign(const struct client *c, const struct sched_client_view *view);
/* After a client is gone: releases the host memory that it had mapped. */
void session_host_back(struct client *c);
