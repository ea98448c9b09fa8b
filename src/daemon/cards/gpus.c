/* gpus.c: owns the table of cards. Must never let a client's figures replace NVML's, nor apply one
 * client's figures to clients that report different ones. */
#include "daemon/cards/gpus.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/uuid.h"

/* A card whose size is not within these limits is reported wrongly, and refused. */
#define CARD_MIN (16 * MIB)
#define CARD_MAX (UINT64_C(1) << 50)
#define KEPT_NS  (10 * NSEC_PER_SEC) /* how long an unused card that only clients know is kept */

/* Returns the number for people: NVML's, or ours if NVML does not know the card. */
static unsigned number_of(const struct gpu *gpu, unsigned at)
{
        return gpu->nvml_index >= 0 ? (unsigned)gpu->nvml_index : at;
}

/* Returns how many bytes of a card we manage. */
static uint64_t dealt_in(const struct gpus *g, const struct gpu *gpu, unsigned at)
{
        uint64_t set = config_capacity(g->config, number_of(gpu, at), gpu->uuid_text);

        /* A configured capacity also limits a card that only clients know. */
        if (set > gpu->driver_bytes && gpu->vouched) {
                log_warning("GPU %u has less than the capacity that is set for it: %llu MiB", at,
                            (unsigned long long)(gpu->driver_bytes / MIB));
                set = gpu->driver_bytes;
        }
        return set ? set : gpu->driver_bytes;
}

static int gpus_add(struct gpus *g, const struct gpu *gpu, unsigned at, struct sched *sched)
{
        uint64_t total = dealt_in(g, gpu, at);
        int r = sched_gpu_add(sched, at, total);

        if (r < 0)
                return r;
        g->list[at] = *gpu;
        g->list[at].present = true;
        g->list[at].total_bytes = total;
        g->n = MAX(g->n, at + 1);
        log_info("GPU %u: %s, %s, %llu MiB", at, gpu->name, gpu->uuid_text,
                 (unsigned long long)(total / MIB));
        return 0;
}

/* Removes an unused card that only clients know. False: NVML knows it, or a client uses it. */
static bool gpus_remove(struct gpus *g, unsigned at, struct sched *sched)
{
        if (g->list[at].vouched || sched_gpu_remove(sched, at) < 0)
                return false;
        log_info("GPU %u: %s is forgotten", at, g->list[at].uuid_text);
        g->list[at] = (struct gpu){.nvml_index = -1};
        while (g->n > 0 && !g->list[g->n - 1].present)
                g->n--;
        return true;
}

static int free_place(struct gpus *g, struct sched *sched)
{
        for (unsigned i = 0; i < SCHED_GPUS_MAX; i++)
                if (!g->list[i].present)
                        return (int)i;
        for (unsigned i = 0; i < SCHED_GPUS_MAX; i++)
                if (gpus_remove(g, i, sched))
                        return (int)i;
        return -ENOSPC;
}

static bool is_meant(const struct config_capacity *e, const struct gpu *gpu, unsigned at)
{
        return gpu->present && config_is_for(e, number_of(gpu, at), gpu->uuid_text);
}

/* Warns of configured capacities whose GPU does not exist: a mistyped number or UUID would leave a
 * card without the limit that somebody relies on. */
static void name_absent(struct gpus *g)
{
        if (g->names_checked)
                return;
        g->names_checked = true;
        for (unsigned i = 0; i < g->config->n_capacities; i++) {
                const struct config_capacity *e = &g->config->capacities[i];
                unsigned at = 0;

                while (at < g->n && !is_meant(e, &g->list[at], at))
                        at++;
                if (at == g->n && e->gpu[0])
                        log_warning("capacity is set for GPU %s, which this machine does not have",
                                    e->gpu);
        }
}

static bool has_uuid(const struct gpu *gpu, const uint8_t uuid[static 16])
{
        return gpu->present && memcmp(gpu->uuid, uuid, sizeof(gpu->uuid)) == 0;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
        return MAX(a, b) - MIN(a, b);
}

/* Returns the entry for a card that NVML lists: the entry that NVML described before, or else the
 * entry of clients with the closest size. -1: there is none. */
static int find_card(const struct gpus *g, const struct nvml_card *card)
{
        int best = -1;

        for (unsigned i = 0; i < g->n; i++) {
                const struct gpu *gpu = &g->list[i];

                if (!has_uuid(gpu, card->uuid))
                        continue;
                if (gpu->vouched)
                        return (int)i;
                if (best < 0 || distance(gpu->driver_bytes, card->total_bytes) <
                                        distance(g->list[best].driver_bytes, card->total_bytes))
                        best = (int)i;
        }
        return best;
}

/* Replaces figures of clients, or NVML's earlier figures, by NVML's new figures. */
static void correct(struct gpus *g, unsigned at, const struct nvml_card *card)
{
        struct gpu *gpu = &g->list[at];
        bool same = gpu->vouched && gpu->driver_bytes == card->total_bytes;

        if (!same) {
                gpu->vouched = true;
                gpu->driver_bytes = card->total_bytes;
                memcpy(gpu->name, card->name, sizeof(gpu->name));
                gpu->total_bytes = dealt_in(g, gpu, at);
                log_info("GPU %u: %s, %s, %llu MiB as NVML has it", at, gpu->name, gpu->uuid_text,
                         (unsigned long long)(gpu->total_bytes / MIB));
                gpu->corrected = true;
        }
        for (unsigned i = 0; i < g->n; i++)
                if (i != at && has_uuid(&g->list[i], card->uuid))
                        g->list[i].displaced = true;
}

/* In any mode but the default, the driver refuses programs whatever we do. */
static void take_compute_mode(struct gpu *gpu, unsigned at, enum compute_mode mode)
{
        const enum compute_mode before = gpu->compute_mode;

        if (mode == COMPUTE_MODE_UNKNOWN || mode == before)
                return;
        gpu->compute_mode = mode;
        if (mode == COMPUTE_MODE_PROHIBITED)
                log_warning("GPU %u is in prohibited compute mode: the driver lets no program use "
                            "it; nvidia-smi -i %s -c DEFAULT",
                            at, gpu->uuid_text);
        else if (mode != COMPUTE_MODE_DEFAULT)
                log_warning("GPU %u is in exclusive compute mode: the driver lets one program at a "
                            "time use it; nvidia-smi -i %s -c DEFAULT",
                            at, gpu->uuid_text);
        else if (before != COMPUTE_MODE_UNKNOWN)
                log_notice("GPU %u is in default compute mode again: programs share it", at);
}

static void take_card(struct gpus *g, unsigned index, const struct nvml_card *card,
                      struct sched *sched, uint64_t now_ns)
{
        struct gpu gpu = {.vouched = true,
                          .nvml_index = (int)index,
                          .compute_mode = COMPUTE_MODE_UNKNOWN,
                          .driver_bytes = card->total_bytes,
                          .held_ns = now_ns};
        int at = find_card(g, card);

        if (at >= 0)
                g->list[at].nvml_index = (int)index;
        if (!card->measured || card->total_bytes < CARD_MIN || card->total_bytes > CARD_MAX)
                return;
        if (at >= 0) {
                correct(g, (unsigned)at, card);
        } else {
                memcpy(gpu.uuid, card->uuid, sizeof(gpu.uuid));
                memcpy(gpu.uuid_text, card->uuid_text, sizeof(gpu.uuid_text));
                memcpy(gpu.name, card->name, sizeof(gpu.name));
                at = free_place(g, sched);
                if (at >= 0)
                        (void)gpus_add(g, &gpu, (unsigned)at, sched);
        }
        if (at >= 0) {
                sched_gpu_bus(sched, (unsigned)at, card->bus_bytes_s);
                take_compute_mode(&g->list[at], (unsigned)at, card->compute_mode);
                return;
        }
        for (unsigned i = 0; i < g->n; i++)
                if (!g->list[i].vouched && !g->list[i].displaced) {
                        g->list[i].displaced = true; /* next time the new card gets this place */
                        return;
                }
}

void gpus_take(struct gpus *g, const struct nvml_look *look, struct sched *sched, uint64_t now_ns)
{
        for (unsigned i = 0; i < g->n; i++)
                g->list[i].nvml_index = -1;
        for (unsigned i = 0; i < look->n; i++)
                take_card(g, i, &look->cards[i], sched, now_ns);
        name_absent(g);
}

int gpus_find(struct gpus *g, const uint8_t uuid[static 16], uint64_t driver_bytes, bool may_add,
              struct sched *sched, uint64_t now_ns, unsigned *ret_gpu)
{
        struct gpu gpu = {.nvml_index = -1,
                          .compute_mode = COMPUTE_MODE_UNKNOWN,
                          .driver_bytes = driver_bytes,
                          .held_ns = now_ns};
        int at = gpus_named(g, uuid);

        if (at >= 0 && g->list[at].vouched) {
                *ret_gpu = (unsigned)at;
                return 0;
        }
        if (driver_bytes < CARD_MIN || driver_bytes > CARD_MAX)
                return -EINVAL;
        memcpy(gpu.uuid, uuid, sizeof(gpu.uuid));
        (void)uuid_format(uuid, gpu.uuid_text);
        for (unsigned i = 0; i < g->n; i++)
                if (has_uuid(&g->list[i], uuid) && !g->list[i].displaced &&
                    g->list[i].total_bytes == dealt_in(g, &gpu, i)) {
                        *ret_gpu = i;
                        return 0;
                }
        if (!may_add)
                return -EUSERS;
        at = free_place(g, sched);
        if (at < 0)
                return at;
        (void)snprintf(gpu.name, sizeof(gpu.name), "GPU %d", at);
        if (gpus_add(g, &gpu, (unsigned)at, sched) < 0)
                return -EINVAL;
        *ret_gpu = (unsigned)at;
        return 0;
}

int gpus_named(const struct gpus *g, const uint8_t uuid[static 16])
{
        int found = -1;

        for (unsigned i = 0; i < g->n; i++) {
                if (!has_uuid(&g->list[i], uuid))
                        continue;
                if (g->list[i].vouched)
                        return (int)i;
                if (found < 0)
                        found = (int)i;
        }
        return found;
}

void gpus_forget(struct gpus *g, struct sched *sched, uint64_t now_ns)
{
        for (unsigned i = 0; i < g->n; i++) {
                struct gpu *gpu = &g->list[i];

                if (gpu->vouched || !gpu->present)
                        continue;
                if (sched_gpu_in_use(sched, i))
                        gpu->held_ns = now_ns;
                else if (gpu->displaced || now_ns - gpu->held_ns >= KEPT_NS)
                        (void)gpus_remove(g, i, sched);
        }
}

/* Measured: 524 MiB on an H200, half of it the stacks of its 132 multiprocessors. Large cards have
 * about as many multiprocessors, whatever their memory. Simulated cards are smaller than 4 GiB. */
uint64_t gpus_context_bytes(uint64_t card_bytes)
{
        if (card_bytes < 4 * GIB)
                return card_bytes / 256;
        return card_bytes < 32 * GIB ? 384 * MIB : 544 * MIB;
}

uint64_t gpus_mover_bytes(uint64_t card_bytes)
{
        return gpus_context_bytes(card_bytes) + 2 * MIB;
}

uint64_t gpus_block_bytes(uint64_t capacity_bytes)
{
        return MIN(MAX(align_up(capacity_bytes / 512, 2 * MIB), 2 * MIB), 256 * MIB);
}
