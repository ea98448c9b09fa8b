/* gpus.c: owns the table of cards.
 * Must never let a client's word replace what NVML knows about a card. */
#include "daemon/gpus.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"

/* No card is smaller or larger; a figure outside is a mistake or a lie. */
#define CARD_MIN (16 * MIB)
#define CARD_MAX (UINT64_C(1) << 50)

static int gpus_add(struct gpus *g, const struct gpu *gpu, struct sched *sched)
{
        struct gpu *slot = &g->list[g->n];
        uint64_t set = config_capacity(g->config, g->n, gpu->uuid_text);
        int r;

        if (g->n == SCHED_GPUS_MAX)
                return -ENOSPC;
        *slot = *gpu;
        /* Where only a client says what the card has, the setting counts. */
        if (set > gpu->driver_bytes && gpu->nvml_index >= 0) {
                log_warning("GPU %u has less than the capacity that is set for it: %llu MiB", g->n,
                            (unsigned long long)(gpu->driver_bytes / MIB));
                set = gpu->driver_bytes;
        }
        slot->total_bytes = set ? set : gpu->driver_bytes;
        r = sched_gpu_add(sched, g->n, slot->total_bytes);
        if (r < 0)
                return r;
        log_info("GPU %u: %s, %s, %llu MiB", g->n, slot->name, slot->uuid_text,
                 (unsigned long long)(slot->total_bytes / MIB));
        g->n++;
        return 0;
}

/* A mistyped number or UUID leaves a card without its bound, and somebody relies on that. */
static void name_absent(const struct gpus *g)
{
        for (unsigned i = 0; i < g->config->n_capacities; i++) {
                const struct config_capacity *e = &g->config->capacities[i];
                unsigned at = 0;

                while (at < g->n && !config_is_for(e, at, g->list[at].uuid_text))
                        at++;
                if (at == g->n && e->gpu[0])
                        log_warning("capacity is set for GPU %s, which this machine does not have",
                                    e->gpu);
        }
}

static struct gpu *find(struct gpus *g, const uint8_t uuid[static 16])
{
        for (unsigned i = 0; i < g->n; i++)
                if (memcmp(g->list[i].uuid, uuid, sizeof(g->list[i].uuid)) == 0)
                        return &g->list[i];
        return NULL;
}

int gpus_take(struct gpus *g, const struct nvml *nvml, struct sched *sched)
{
        int r = 0;

        for (unsigned i = 0; i < nvml_count(nvml) && r == 0; i++) {
                struct gpu gpu = {.nvml_index = (int)i}, *known;
                uint64_t used;

                if (nvml_describe(nvml, i, gpu.uuid_text, gpu.name) < 0 ||
                    nvml_parse_uuid(gpu.uuid_text, gpu.uuid) < 0 ||
                    nvml_memory(nvml, i, &gpu.driver_bytes, &used) < 0) {
                        log_warning("NVML does not describe GPU %u: left out", i);
                        continue;
                }
                known = find(g, gpu.uuid);
                if (known) { /* a client was here before NVML */
                        known->nvml_index = gpu.nvml_index;
                        memcpy(known->name, gpu.name, sizeof(known->name));
                        continue;
                }
                if (g->n == SCHED_GPUS_MAX) {
                        log_warning("only the first %d GPUs are shared", SCHED_GPUS_MAX);
                        break;
                }
                r = gpus_add(g, &gpu, sched);
        }
        name_absent(g);
        return r;
}

int gpus_find(struct gpus *g, const uint8_t uuid[static 16], uint64_t driver_bytes,
              struct sched *sched, unsigned *ret_gpu)
{
        struct gpu gpu = {.nvml_index = -1, .driver_bytes = driver_bytes};
        const struct gpu *known = find(g, uuid);
        int r;

        if (known) {
                *ret_gpu = (unsigned)(known - g->list);
                return 0;
        }
        if (driver_bytes < CARD_MIN || driver_bytes > CARD_MAX)
                return -EINVAL;
        memcpy(gpu.uuid, uuid, sizeof(gpu.uuid));
        nvml_format_uuid(uuid, gpu.uuid_text);
        (void)snprintf(gpu.name, sizeof(gpu.name), "GPU %u", g->n);
        r = gpus_add(g, &gpu, sched);
        if (r < 0)
                return r;
        *ret_gpu = g->n - 1;
        return 0;
}

/* Measured: 0.52 GiB on a card of 140 GiB; smaller cards take less, but hardly below 384 MiB. */
uint64_t gpus_context_bytes(uint64_t capacity_bytes)
{
        uint64_t share = capacity_bytes / 256;

        return capacity_bytes >= 4 * GIB ? MAX(share, 384 * MIB) : share;
}

uint64_t gpus_block_bytes(uint64_t capacity_bytes)
{
        return MIN(MAX(align_up(capacity_bytes / 512, 2 * MIB), 2 * MIB), 256 * MIB);
}
