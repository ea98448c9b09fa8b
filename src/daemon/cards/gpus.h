/* gpus.h: the cards that this daemon keeps a ledger for. Cards have the scheduler's numbers, 0 ..
 * 15.
 *
 * NVML's description of a card holds for all clients. A card that NVML does not know is identified
 * by the UUID and the bytes that a client gives. Clients that give the same share a ledger. A
 * client that gives something else has a ledger of its own, and so limits no honest client. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/setup/config.h"
#include "daemon/cards/card_nvml.h"
#include "sched/sched.h"

struct gpu {
        bool present;
        uint8_t uuid[16];
        char uuid_text[NVML_UUID_TEXT_MAX];
        char name[NVML_NAME_MAX];
        bool vouched;   /* NVML has described the card */
        bool corrected; /* the total has changed, and the scheduler does not know yet */
        bool displaced; /* NVML lists another card in this place: the clients must disconnect */
        int nvml_index; /* NVML's number in the last look; -1: not listed */
        uint64_t driver_bytes; /* size of the card, from NVML or from a client */
        uint64_t total_bytes;  /* bytes that we manage: fewer if a capacity is configured */
        uint64_t foreign[3];   /* foreign bytes in the last three samples; sample i is at i % 3 */
        unsigned n_foreign;
        uint64_t foreign_told; /* foreign bytes that the scheduler was told */
        uint64_t measured_ns;  /* when the last figures were requested; 0: never */
        unsigned unmeasured;   /* periods since the last figures */
        uint64_t rise_ns; /* time of a request for a look because of missing bytes; 0: no request */
        uint64_t held_ns; /* when a client was last seen on the card */
        bool names; /* NVML has listed a client by its pid, so it knows processes by our numbers */
        enum compute_mode compute_mode; /* the last that NVML has told */
};

struct gpus {
        struct gpu list[SCHED_GPUS_MAX];
        unsigned n; /* number of the last present card, plus one */
        const struct config *config;
        bool names_checked; /* the configured capacities were checked against the cards */
};

/* Takes over NVML's list of cards. The caller must then tell the scheduler which totals have
 * changed, and disconnect the clients of displaced cards. */
void gpus_take(struct gpus *g, const struct nvml_look *look, struct sched *sched, uint64_t now_ns);

/* Finds the card that a client describes, or adds it. may_add: the user may add one more card that
 * NVML does not know. 0; -ENOSPC: too many cards; -EUSERS: too many cards of this user; -EINVAL: no
 * card has this size. */
int gpus_find(struct gpus *g, const uint8_t uuid[static 16], uint64_t driver_bytes, bool may_add,
              struct sched *sched, uint64_t now_ns, unsigned *ret_gpu);
/* Returns the first card with this UUID, NVML's card before those of clients; -1: there is none. */
int gpus_named(const struct gpus *g, const uint8_t uuid[static 16]);
/* Forgets cards that only clients know, some time after their last client. Call it from time to
 * time. */
void gpus_forget(struct gpus *g, struct sched *sched, uint64_t now_ns);

/* Return bytes: the expected size of a context on a card of this size; what a client requests for
 * the second context, which freezing needs; and how much it requests at a time. Pure. */
uint64_t gpus_context_bytes(uint64_t card_bytes);
uint64_t gpus_mover_bytes(uint64_t card_bytes);
uint64_t gpus_block_bytes(uint64_t capacity_bytes);
