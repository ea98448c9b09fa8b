/* order_status.h: the state that `sublet status` shows. */
#pragma once

struct json_t;
struct peer;
struct server;

/* Returns a new reference; NULL: no memory. Fields of other users that the viewer may not know are
 * null. */
struct json_t *status_json(struct server *s, const struct peer *viewer);
