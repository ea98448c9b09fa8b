/* offer.c: owns the messages about devices. Must never trust the sizes that a request names. */
#include "kubernetes/plugin/offer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "kubernetes/plugin/deviceplugin.pb-c.h"
#include "kubernetes/plugin/message_room.h"

struct listed_device {
        V1beta1__Device device;
        char id[DEVICE_ID_MAX];
};

uint8_t *offer_devices(const struct cards *cards, size_t *ret_n)
{
        const size_t n = (size_t)cards->n * cards->devices;
        V1beta1__ListAndWatchResponse answer = V1BETA1__LIST_AND_WATCH_RESPONSE__INIT;
        _cleanup_free_ struct listed_device *list = calloc(n + 1, sizeof(*list));
        _cleanup_free_ V1beta1__Device **pointers = calloc(n + 1, sizeof(*pointers));
        uint8_t *bytes;

        if (!list || !pointers)
                return NULL;
        for (size_t i = 0; i < n; i++) {
                const struct card *card = &cards->list[i / cards->devices];
                const bool healthy = card_health(cards, card) == CARD_HEALTHY;

                v1beta1__device__init(&list[i].device);
                list[i].device.id = list[i].id;
                (void)device_id(card, (unsigned)(i % cards->devices), list[i].id);
                list[i].device.health = (char *)(healthy ? "Healthy" : "Unhealthy");
                pointers[i] = &list[i].device;
        }
        answer.n_devices = n;
        answer.devices = pointers;
        bytes = malloc(v1beta1__list_and_watch_response__get_packed_size(&answer) + 1);
        if (bytes)
                *ret_n = v1beta1__list_and_watch_response__pack(&answer, bytes);
        return bytes;
}

static void free_choices(V1beta1__PreferredAllocationResponse *answer)
{
        for (size_t i = 0; answer->containers && i < answer->n_containers; i++) {
                if (answer->containers[i])
                        free(answer->containers[i]->ids); /* the ids are the request's */
                free(answer->containers[i]);
        }
        free(answer->containers);
}

/* Chooses devices for one container. 0 or -errno. */
static int choose(const struct cards *cards, enum place place,
                  const V1beta1__ContainerPreferredAllocationRequest *asked,
                  V1beta1__ContainerPreferredAllocationResponse **ret)
{
        V1beta1__ContainerPreferredAllocationResponse *one;
        size_t size;

        if (asked->size < 0 || asked->size > CARDS_MAX * DEVICES_MAX)
                return -EINVAL;
        size = MIN((size_t)asked->size, asked->n_available + asked->n_must_include);
        one = malloc(sizeof(*one));
        *ret = one;
        if (!one)
                return -ENOMEM;
        v1beta1__container_preferred_allocation_response__init(one);
        one->ids = calloc(size + 1, sizeof(*one->ids));
        if (!one->ids)
                return -ENOMEM;
        one->n_ids = choose_devices(cards, place, asked->available, asked->n_available,
                                    asked->must_include, asked->n_must_include, (size_t)asked->size,
                                    (const char **)one->ids);
        return 0;
}

static int pack_choices(const V1beta1__PreferredAllocationResponse *answer, uint8_t **ret_bytes,
                        size_t *ret_n)
{
        uint8_t *bytes =
                malloc(v1beta1__preferred_allocation_response__get_packed_size(answer) + 1);

        if (!bytes)
                return -ENOMEM;
        *ret_n = v1beta1__preferred_allocation_response__pack(answer, bytes);
        *ret_bytes = bytes;
        return 0;
}

int offer_choice(const struct cards *cards, enum place place, const uint8_t *request, size_t n,
                 uint8_t **ret_bytes, size_t *ret_n, char error[static OFFER_ERROR_MAX])
{
        struct room room;
        V1beta1__PreferredAllocationRequest *asked =
                v1beta1__preferred_allocation_request__unpack(room_begin(&room), n, request);
        V1beta1__PreferredAllocationResponse answer = V1BETA1__PREFERRED_ALLOCATION_RESPONSE__INIT;
        int r = 0;

        if (!asked) {
                (void)snprintf(error, OFFER_ERROR_MAX, "this is no request for a choice");
                return -EINVAL;
        }
        answer.containers = calloc(asked->n_containers + 1, sizeof(*answer.containers));
        if (!answer.containers)
                r = -ENOMEM;
        for (size_t i = 0; r == 0 && i < asked->n_containers; i++) {
                answer.n_containers++;
                r = choose(cards, place, asked->containers[i], &answer.containers[i]);
        }
        if (r == 0)
                r = pack_choices(&answer, ret_bytes, ret_n);
        if (r < 0)
                (void)snprintf(error, OFFER_ERROR_MAX, "%s",
                               r == -EINVAL ? "no node has that many devices" : "out of memory");
        free_choices(&answer);
        v1beta1__preferred_allocation_request__free_unpacked(asked, &room.allocator);
        return r;
}
