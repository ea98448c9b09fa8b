/* status.h: what `sublet status` shows. */
#pragma once

struct json_t;
struct peer;
struct server;

/* A new reference; NULL: no memory. What a plain user may not know of others is null. */
struct json_t *status_json(struct server *s, const struct peer *viewer);
