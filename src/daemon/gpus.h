/* gpus.h: the cards this daemon keeps a ledger for. Numbers are the scheduler's, 0 .. 15.
 *
 * Cards are told apart by UUID. NVML's come first, in its order; a card that NVML does not know (or
 * all of them, where there is no NVML) is added when a client first attaches it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config.h"
#include "daemon/nvml.h"
#include "sched/sched.h"

struct gpu {
        uint8_t uuid[16];
        char uuid_text[NVML_UUID_TEXT_MAX];
        char name[NVML_NAME_MAX];
        int nvml_index;        /* -1: NVML does not know it */
        uint64_t driver_bytes; /* what the driver says it has */
        uint64_t total_bytes;  /* of these, what we deal in: less where a capacity is set */
        uint64_t foreign[3];   /* the last samples, the newest at n_foreign - 1, modulo 3 */
        unsigned n_foreign;
        uint64_t foreign_told; /* to the scheduler */
        unsigned unmeasured;   /* periods without NVML */
        bool names;            /* NVML has listed a client of ours: it knows them by our numbers */
};

struct gpus {
        struct gpu list[SCHED_GPUS_MAX];
        unsigned n;
        const struct config *config;
};

/* Take the cards NVML knows: at the start, or when it is first there. g->config is set. */
int gpus_take(struct gpus *g, const struct nvml *nvml, struct sched *sched);

/* The card with this UUID, added with what the client's driver says where it is new. 0; -ENOSPC:
 * too many; -EINVAL: a size no card has. */
int gpus_find(struct gpus *g, const uint8_t uuid[static 16], uint64_t driver_bytes,
              struct sched *sched, unsigned *ret_gpu);

/* What a context is expected to take, and how much a client asks for at a time. Pure. */
uint64_t gpus_context_bytes(uint64_t capacity_bytes);
uint64_t gpus_block_bytes(uint64_t capacity_bytes);
