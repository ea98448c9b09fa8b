/* map.h: which device of the job is on which card, and what it is called. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICES_MAX   64
#define UUID_TEXT_MAX 48

struct identity {
        char kind[4]; /* "GPU" or "MIG" */
        uint8_t uuid[16];
        unsigned domain, bus, slot; /* PCI */
};

/* Devices are dealt out to the cards in turn. The first device on a card has the card's own
 * identity; the others have identities that are derived from it. shared_bus: several of the cards
 * have the same PCI address, as MIG instances of one GPU do. */
unsigned map_card(unsigned device, unsigned cards);
struct identity map_identity(const struct identity *card, unsigned device, unsigned cards,
                             bool shared_bus);

/* Returns how many of n devices a CUDA_VISIBLE_DEVICES shows, and which: numbers, UUIDs and
 * beginnings of UUIDs. As with the driver, the list ends before an entry that names no device. It
 * also ends before a device that the list already has in the other form, number or UUID. list NULL:
 * all. -ENOTUNIQ: the list names a device twice by number or twice by UUID, which the driver
 * refuses. */
int map_visible(const char *list, const struct identity *all, unsigned n,
                uint8_t ret[static DEVICES_MAX]);

/* Returns the cards of these devices, each once, in the order of the devices. ret_at: where each
 * device's card is in that order. */
unsigned map_order(const uint8_t devices[static DEVICES_MAX], unsigned n, unsigned cards,
                   uint8_t ret[static DEVICES_MAX], uint8_t ret_at[static DEVICES_MAX]);

void map_uuid_text(const struct identity *of, char ret[static UUID_TEXT_MAX]);
/* Reads "GPU-01234567-89ab-..." or "MIG-...". False: it is something else. */
bool map_read_uuid(const char *text, struct identity *ret);
/* Reads "0000:17:00.0", with a domain of any length, or none. False: it is something else. */
bool map_read_bus_id(const char *text, unsigned *ret_domain, unsigned *ret_bus, unsigned *ret_slot);
/* Reads a decimal number below 2^31. -1: it is something else. */
int map_read_number(const char *text);

/* Returns the number of this process among those of its machine, by its launcher's variables; 0 if
 * there are none. get: getenv(). */
unsigned map_local_rank(char *(*get)(const char *name));
