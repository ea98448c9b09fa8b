/* cards.c: owns the list of the cards. Must never make, change or remove a MIG instance. */
#include "ranks/devices/cards.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/macros.h"
#include "base/settings.h"

unsigned cards_ranks(void)
{
        const char *text = setting_text(SETTING_RANKS);
        const int n = text ? map_read_number(text) : 0;

        return n >= 1 && n <= DEVICES_MAX ? (unsigned)n : 0;
}

const char *cards_visible(void)
{
        return getenv(settings[SETTING_RANKS_GPUS].name);
}

/* pci: the address of the GPU; its instances have the same one. */
static void add(struct cards *all, nvmlDevice_t handle, const nvmlPciInfo_t *pci)
{
        struct card *c = &all->card[all->n];
        uint64_t hash;

        if (all->n == DEVICES_MAX ||
            real_nvml()->nvmlDeviceGetUUID(handle, c->text, sizeof(c->text)) != NVML_SUCCESS)
                return;
        c->handle = handle;
        if (!map_read_uuid(c->text, &c->identity)) { /* an old driver: "MIG-GPU-.../1/0" */
                memcpy(c->identity.kind, c->text, 3);
                hash = hash_add(HASH_BASIS, c->text, strlen(c->text));
                memcpy(c->identity.uuid, &hash, sizeof(hash));
        }
        c->identity.domain = pci->domain;
        c->identity.bus = pci->bus;
        c->identity.slot = pci->device;
        all->n++;
}

static void add_instances(struct cards *all, nvmlDevice_t gpu, const nvmlPciInfo_t *pci)
{
        unsigned now = 0, pending, most = 0;

        if (real_nvml()->nvmlDeviceGetMigMode(gpu, &now, &pending) != NVML_SUCCESS || !now ||
            real_nvml()->nvmlDeviceGetMaxMigDeviceCount(gpu, &most) != NVML_SUCCESS)
                return;
        for (unsigned i = 0; i < most; i++) {
                nvmlDevice_t instance;

                if (real_nvml()->nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &instance) ==
                    NVML_SUCCESS)
                        add(all, instance, pci);
        }
}

/* Keeps the cards that the list names; keeps none if the list names a card twice: the driver then
 * refuses to start. */
static void keep_visible(struct cards *all, const char *list)
{
        struct identity identities[DEVICES_MAX];
        uint8_t shown[DEVICES_MAX] = {0};
        struct cards kept = {.n = 0};

        for (unsigned i = 0; i < all->n; i++)
                identities[i] = all->card[i].identity;
        kept.n = (unsigned)MAX(map_visible(list, identities, all->n, shown), 0);
        for (unsigned i = 0; i < kept.n; i++)
                kept.card[i] = all->card[shown[i]];
        *all = kept;
}

/* Keeps the instances of these GPUs. */
static void keep_instances(struct cards *all, const struct cards *gpus)
{
        struct cards kept = {.n = 0};

        for (unsigned i = 0; i < gpus->n; i++)
                for (unsigned k = 0; k < all->n; k++) {
                        const struct identity *a = &all->card[k].identity,
                                              *b = &gpus->card[i].identity;

                        if (a->domain == b->domain && a->bus == b->bus && a->slot == b->slot)
                                kept.card[kept.n++] = all->card[k];
                }
        *all = kept;
}

static void look(struct cards *ret)
{
        static struct cards gpus, instances;
        const char *list = cards_visible();
        unsigned n = 0;

        if (real_nvml()->nvmlInit_v2() != NVML_SUCCESS ||
            real_nvml()->nvmlDeviceGetCount_v2(&n) != NVML_SUCCESS)
                return;
        for (unsigned i = 0; i < n; i++) {
                nvmlDevice_t gpu;
                nvmlPciInfo_t pci = {.domain = 0};

                if (real_nvml()->nvmlDeviceGetHandleByIndex_v2(i, &gpu) != NVML_SUCCESS)
                        continue;
                (void)real_nvml()->nvmlDeviceGetPciInfo_v3(gpu, &pci);
                add(&gpus, gpu, &pci);
                add_instances(&instances, gpu, &pci);
        }
        if (list && strncmp(list, "MIG-", 4) == 0) {
                keep_visible(&instances, list);
        } else {
                keep_visible(&gpus, list);
                keep_instances(&instances, &gpus);
        }
        instances.mig = instances.n > 0;
        *ret = instances.n ? instances : gpus;
}

const struct cards *cards_get(void)
{
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static struct cards cards;
        static bool looked;

        (void)real_nvml(); /* loads a library, which needs no lock of ours */
        (void)pthread_mutex_lock(&lock);
        if (!looked)
                look(&cards);
        looked = true;
        (void)pthread_mutex_unlock(&lock);
        return &cards;
}

struct identity cards_identity(const struct cards *cards, unsigned device)
{
        return map_identity(&cards->card[map_card(device, cards->n)].identity, device, cards->n,
                            cards->mig);
}
