/* order.h: gives the daemon one order and takes the answer without waiting for it. */
#pragma once

#include <jansson.h>
#include <systemd/sd-event.h>

struct order;

/* told: called once, never from within order_give(). r is 0 and the answer is valid until told()
 * returns; or r is -errno as ask_daemon() answers, and the answer is NULL. */
typedef void (*order_told)(int r, json_t *answer, void *userdata);

/* Gives the order, and takes its reference. 0 or -errno; told is called only after 0. */
int order_give(sd_event *loop, const char *dir, json_t *order, order_told told, void *userdata,
               struct order **ret);
/* Forgets an order; told is not called any more. Needed only for orders that were not answered.
 * NULL is a no-op. */
void order_drop(struct order *o);
