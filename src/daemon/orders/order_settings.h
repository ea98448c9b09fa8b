/* order_settings.h: the orders that show and change settings: the daemon's, or a program's own
 * (docs/protocol.md, "Orders"). They return a new answer; NULL: no memory. */
#pragma once

#include <jansson.h>

struct peer;
struct server;

/* {"order":"get"}: the daemon's settings; with "pid", what that program has of its own. */
json_t *settings_get(struct server *s, json_t *order, const struct peer *peer);
/* {"order":"set", KEY: VALUE} */
json_t *settings_set(struct server *s, json_t *order, const struct peer *peer);
/* {"order":"set_program", "pid": N, KEY: VALUE} */
json_t *settings_set_program(struct server *s, json_t *order, const struct peer *peer);
