/* session.h: clients' messages, checked and passed on to the scheduler. */
#pragma once

struct client;
struct server;
struct wire_message;

/* Handles a message. 0; -errno: the client is dropped. */
int session_handle(struct client *c, const struct wire_message *m);
/* Makes the requests that were kept back, or keeps them longer. */
void session_resume(struct server *s);
/* After a client is gone: releases the host memory that it had mapped. */
void session_host_back(struct client *c);
