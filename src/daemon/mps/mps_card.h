/* mps_card.h: the card for which a program can have an MPS server. For the loop's thread. */
#pragma once

#include "wire/wire.h"

struct client;
struct gpu;

/* Finds the one card that the program sees, by its JOIN. NULL: *ret_why says why it can have no
 * server. */
const struct gpu *mps_card(const struct client *c, const struct wire_message *m,
                           const char **ret_why);
