/* offer.h: what kubelet is told of the devices, as messages of its API. Pure. */
#pragma once

#include "kubernetes/plugin/choose_devices.h"

#define OFFER_ERROR_MAX 128

/* Packs the list of all devices with their health. The caller frees it. NULL: out of memory. */
uint8_t *offer_devices(const struct cards *cards, size_t *ret_n);

/* Answers a request for a choice. 0, or -EINVAL or -ENOMEM with a sentence. The caller frees
 * *ret_bytes. */
int offer_choice(const struct cards *cards, enum place place, const uint8_t *request, size_t n,
                 uint8_t **ret_bytes, size_t *ret_n, char error[static OFFER_ERROR_MAX]);
