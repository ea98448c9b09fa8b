/* plugin_cards.h: the node's GPUs as the daemon's status tells them, and the devices that kubelet
 * is told of: each GPU several times, with the ids "UUID::0", "UUID::1", ...
 *
 * Pure: no I/O, no clock. A GPU that was seen once stays in the table, since kubelet remembers its
 * devices. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define CARDS_MAX     128
#define CARD_UUID_MAX 56 /* an id of kubelet has at most 63 characters */
#define DEVICE_ID_MAX 64
#define DEVICES_MAX   1000 /* devices of one card */
#define CARD_STALE_S  10.0 /* age of NVML's figures from which a card counts as unreadable */

enum card_health {
        CARD_HEALTHY,
        CARD_NO_DAEMON,  /* the daemon does not answer */
        CARD_ABSENT,     /* NVML does not list it any more */
        CARD_UNREADABLE, /* NVML has no figures of it */
        CARD_MPS,        /* a control daemon of MPS serves it */
        CARD_EXCLUSIVE,  /* its compute mode lets one process at a time use it */
        CARD_PROHIBITED, /* its compute mode lets no process use it */
};

struct card {
        char uuid[CARD_UUID_MAX];
        uint64_t total, committed;
        unsigned waiting, clients;
        enum card_health state; /* its health by the daemon's status alone */
        bool mps;
};

struct cards {
        struct card list[CARDS_MAX];
        unsigned n;
        unsigned devices; /* devices of each card */
        bool daemon;      /* the daemon answers */
};

/* Takes an answer to the order "status". True if it is one. */
bool cards_take(struct cards *cards, const json_t *status);

enum card_health card_health(const struct cards *cards, const struct card *card);
/* Returns why a card is in this state, as the end of a sentence that begins with the card; "" if
 * healthy. */
const char *card_health_text(enum card_health health);

/* Writes the id of the card's k-th device. Returns ret. */
const char *device_id(const struct card *card, unsigned k, char ret[static DEVICE_ID_MAX]);
/* Returns the place of the card that this device belongs to; -ENODEV: there is no such device. */
int device_card(const struct cards *cards, const char *id);

/* Returns the memory of the smallest card; 0: no card is known. */
uint64_t cards_smallest(const struct cards *cards);
