/* session.h: what clients say, checked and carried to the scheduler. */
#pragma once

struct client;
struct server;
struct wire_message;

int session_handle(struct client *c, const struct wire_message *m); /* 0, or -errno: dropped */
/* Requests that were kept back are made now, or kept on. */
void session_resume(struct server *s);
/* A client is gone: what it had mapped of host memory is free. */
void session_host_back(struct client *c);
