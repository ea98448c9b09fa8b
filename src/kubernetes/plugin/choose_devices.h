/* choose_devices.h: which devices a pod should get, of those that are free. Pure. */
#pragma once

#include "kubernetes/plugin/plugin_cards.h"

enum place {
        PLACE_SPREAD, /* the card with the least load */
        PLACE_PACK, /* the fullest card on which the pod's work still fits, else the least loaded */
};

/* Chooses `size` of the n available devices, all that must be included among them. They are of
 * different cards as far as possible; then each card gives a second one, and so on. ret, with room
 * for `size` pointers, gets pointers of available and must. Returns how many there are: less than
 * size if fewer are available. */
size_t choose_devices(const struct cards *cards, enum place place, char **available, size_t n,
                      char **must, size_t n_must, size_t size, const char **ret);
