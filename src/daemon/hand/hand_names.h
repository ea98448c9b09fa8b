/* hand_names.h: takes a program off the GPUs, or lets it run, by the names on its page.
 *
 * The page is not trusted: what is read from it is copied and checked. Thread-safe for different
 * pages. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/hand/hand_rm.h"
#include "wire/hand_page.h"

/* Makes RM's call. The tests replace it. */
typedef uint32_t (*hand_switch_fn)(void *userdata, const struct hand_call *c, bool disable);

/* Clients of RM that are proved to be the program's. Names of others are ignored. */
struct hand_clients {
        uint32_t count;
        uint32_t clients[HAND_CLIENTS];
};

/* Takes all named channels off the GPUs. 0; or -errno: nobody knows which channels are off. -ELOOP:
 * too many of them do not exist. */
int hand_names_off(struct hand_page *p, const struct hand_clients *proved, hand_switch_fn change,
                   void *userdata);
/* Undoes exactly what hand_names_off() did. 0 or -errno, as above. */
int hand_names_on(struct hand_page *p, const struct hand_clients *proved, hand_switch_fn change,
                  void *userdata);

/* Lists the clients of RM that the names mention. Returns their number; more than HAND_CLIENTS:
 * they do not all fit the list. */
unsigned hand_names_clients(const struct hand_page *p, uint32_t ret[static HAND_CLIENTS]);
