/* gpus.h: the cards this daemon keeps a ledger for. Numbers are the scheduler's, 0 .. 15.
 *
 * What NVML says of a card holds for everybody. A card that NVML does not know (or all of them,
 * where there is no NVML) is what a client says it is: its UUID and its bytes together. Clients
 * that say the same share a ledger; who says something else has one of his own, and so limits
 * nobody but those who lie with him. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/setup/config.h"
#include "daemon/cards/nvml.h"
#include "sched/sched.h"

struct gpu {
        bool present;
        uint8_t uuid[16];
        char uuid_text[NVML_UUID_TEXT_MAX];
        char name[NVML_NAME_MAX];
        bool vouched;          /* NVML has described it */
        bool corrected;        /* its total has changed, and the scheduler does not know yet */
        bool displaced;        /* NVML lists another card here: its clients have to disconnect */
        int nvml_index;        /* number in the last look; -1: not listed */
        uint64_t driver_bytes; /* the size that NVML, or a client, gives */
        uint64_t total_bytes;  /* how much of it we manage: less where a capacity is set */
        uint64_t foreign[3];   /* the last three samples, the newest at n_foreign - 1, modulo 3 */
        unsigned n_foreign;
        uint64_t foreign_told; /* to the scheduler */
        uint64_t measured_ns;  /* when the last figures were requested; 0: never */
        unsigned unmeasured;   /* periods since the last figures */
        uint64_t rise_ns;      /* since when a look is due; 0: none is */
        uint64_t held_ns;      /* when a client was last seen on it */
        bool names; /* NVML has listed a client's process: it knows processes by our numbers */
};

struct gpus {
        struct gpu list[SCHED_GPUS_MAX];
        unsigned n; /* one past the last present card */
        const struct config *config;
        bool names_checked; /* the cards that capacities are set for */
};

/* Take NVML's list of cards. Afterwards the caller tells the scheduler which totals have changed,
 * and disconnects the clients of displaced cards. */
void gpus_take(struct gpus *g, const struct nvml_look *look, struct sched *sched, uint64_t now_ns);

/* The card that a client describes. may_add: its user may add one more card that NVML does not
 * know. 0; -ENOSPC: too many cards; -EUSERS: too many of this user; -EINVAL: no card has such a
 * size. */
int gpus_find(struct gpus *g, const uint8_t uuid[static 16], uint64_t driver_bytes, bool may_add,
              struct sched *sched, uint64_t now_ns, unsigned *ret_gpu);
/* The first card with this UUID, NVML's before clients'; -1: none. */
int gpus_named(const struct gpus *g, const uint8_t uuid[static 16]);
/* Call it from time to time: forgets cards that only clients knew, some time after the last client.
 */
void gpus_forget(struct gpus *g, struct sched *sched, uint64_t now_ns);

/* What a context is expected to take on a card with so much memory, whoever has it, and how much a
 * client asks for at a time. Pure. */
uint64_t gpus_context_bytes(uint64_t card_bytes);
uint64_t gpus_block_bytes(uint64_t capacity_bytes);
