/* plugin_cards.c: owns the table of the node's GPUs. Must never forget a GPU: kubelet keeps what it
 * has given to pods. */
#include "kubernetes/plugin/plugin_cards.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

static uint64_t figure(const json_t *object, const char *key)
{
        const json_int_t v = json_integer_value(json_object_get(object, key));

        return v > 0 ? (uint64_t)v : 0;
}

static struct card *find(struct cards *cards, const char *uuid)
{
        for (unsigned i = 0; i < cards->n; i++)
                if (strcmp(cards->list[i].uuid, uuid) == 0)
                        return &cards->list[i];
        return NULL;
}

static enum card_health state_of(const json_t *gpu)
{
        const json_t *age = json_object_get(gpu, "measured_s_ago");
        const char *mode = json_string_value(json_object_get(gpu, "compute_mode"));

        if (!json_is_integer(json_object_get(gpu, "nvml_index")))
                return CARD_ABSENT;
        if (!json_is_number(age) || json_number_value(age) > CARD_STALE_S)
                return CARD_UNREADABLE;
        if (mode && strcmp(mode, "prohibited") == 0)
                return CARD_PROHIBITED;
        return mode && strncmp(mode, "exclusive", 9) == 0 ? CARD_EXCLUSIVE : CARD_HEALTHY;
}

/* A UUID becomes a part of device ids, CDI names and a list with commas. */
static bool is_uuid(const char *text)
{
        const size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789"
                                      "ABCDEFGHIJKLMNOPQRSTUVWXYZ-/");

        return n > 0 && !text[n] && n < CARD_UUID_MAX;
}

static void take_one(struct cards *cards, const json_t *gpu)
{
        const char *uuid = json_string_value(json_object_get(gpu, "uuid"));
        const enum card_health state = state_of(gpu);
        struct card *card = uuid ? find(cards, uuid) : NULL;

        if (!uuid || !is_uuid(uuid))
                return;
        if (!card) {
                /* A card that only programs have named so far may be none of this node's. */
                if (state == CARD_ABSENT || cards->n >= CARDS_MAX)
                        return;
                card = &cards->list[cards->n++];
                (void)snprintf(card->uuid, sizeof(card->uuid), "%s", uuid);
        }
        card->state = state;
        card->total = figure(gpu, "total");
        card->committed = figure(gpu, "committed");
        card->waiting = (unsigned)MIN(figure(gpu, "waiting"), UINT64_C(10000));
        card->clients = (unsigned)json_array_size(json_object_get(gpu, "clients"));
}

bool cards_take(struct cards *cards, const json_t *status)
{
        const json_t *list = json_object_get(status, "gpus"), *gpu;
        size_t i;

        if (!json_is_array(list))
                return false;
        for (unsigned k = 0; k < cards->n; k++)
                cards->list[k].state = CARD_ABSENT;
        json_array_foreach (list, i, gpu)
                take_one(cards, gpu);
        cards->daemon = true;
        return true;
}

enum card_health card_health(const struct cards *cards, const struct card *card)
{
        if (!cards->daemon)
                return CARD_NO_DAEMON;
        /* MPS is often the reason for an exclusive mode, and the person who ends MPS may set the
         * mode back. */
        if (card->mps && (card->state == CARD_HEALTHY || card->state == CARD_EXCLUSIVE))
                return CARD_MPS;
        return card->state;
}

const char *card_health_text(enum card_health health)
{
        static const char *const texts[] = {
                [CARD_HEALTHY] = "",
                [CARD_NO_DAEMON] = "the daemon does not answer",
                [CARD_ABSENT] = "NVML does not list it any more",
                [CARD_UNREADABLE] = "NVML has no figures of it",
                [CARD_MPS] = "MPS serves it: end nvidia-cuda-mps-control on this node",
                [CARD_EXCLUSIVE] = "its compute mode is exclusive, so only one program can use it: "
                                   "set it back with nvidia-smi -c DEFAULT",
                [CARD_PROHIBITED] = "its compute mode is prohibited, so no program can use it: set "
                                    "it back with nvidia-smi -c DEFAULT",
        };

        return texts[health];
}

const char *device_id(const struct card *card, unsigned k, char ret[static DEVICE_ID_MAX])
{
        (void)snprintf(ret, DEVICE_ID_MAX, "%s::%u", card->uuid, k);
        return ret;
}

int device_card(const struct cards *cards, const char *id)
{
        const char *number = strstr(id, "::");
        char again[DEVICE_ID_MAX];

        if (!number)
                return -ENODEV;
        for (unsigned i = 0; i < cards->n; i++) {
                const struct card *card = &cards->list[i];
                unsigned long k;

                if (strlen(card->uuid) != (size_t)(number - id) ||
                    memcmp(card->uuid, id, strlen(card->uuid)) != 0)
                        continue;
                k = strtoul(number + 2, NULL, 10);
                /* Compare with the id as device_id() writes it, so that "01" and " 1" are no
                 * devices. */
                if (k < cards->devices && strcmp(device_id(card, (unsigned)k, again), id) == 0)
                        return (int)i;
        }
        return -ENODEV;
}

uint64_t cards_smallest(const struct cards *cards)
{
        uint64_t least = 0;

        for (unsigned i = 0; i < cards->n; i++)
                if (cards->list[i].total && (!least || cards->list[i].total < least))
                        least = cards->list[i].total;
        return least;
}
