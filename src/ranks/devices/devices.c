/* devices.c: owns the program's devices. Must never let the driver see a CUDA_VISIBLE_DEVICES that
 * counts devices of the job. */
#include "ranks/devices/devices.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "ranks/devices/cards.h"

#define VISIBLE "CUDA_VISIBLE_DEVICES"

extern char **environ;

static struct {
        pthread_mutex_t lock;
        _Atomic bool ready; /* the members below are set, and stay */
        unsigned cards, n;
        unsigned selected; /* how many cards the driver sees by the launcher's choice; 0: all */
        uint8_t card[DEVICES_MAX];
        struct identity identity[DEVICES_MAX];
} devices = {.lock = PTHREAD_MUTEX_INITIALIZER};
static __thread CUdevice chosen = -1;

/* ---- what the driver sees ---- */

/* Returns a copy of the environment with this entry for CUDA_VISIBLE_DEVICES; entry NULL: without
 * one. It must be a copy, because another thread may be reading the environment. NULL: no memory.
 */
static char **environment_with(char *entry)
{
        const size_t name = strlen(VISIBLE "=");
        size_t n = 0, kept = 0;
        char **copy;

        while (environ && environ[n])
                n++;
        copy = calloc(n + 2, sizeof(*copy));
        if (!copy)
                return NULL;
        for (size_t i = 0; i < n && environ[i]; i++)
                if (strncmp(environ[i], VISIBLE "=", name) != 0)
                        copy[kept++] = environ[i];
        if (entry)
                copy[kept] = entry;
        return copy;
}

/* The text is never freed, because the program may keep what getenv() returns. */
static char *entry_of(const char *value)
{
        char *entry = NULL;

        if (value && asprintf(&entry, VISIBLE "=%s", value) < 0)
                return NULL;
        return entry;
}

/* Puts the launcher's value back, also if libsublet.so has made an environment of its own. */
static void put_back(char **before, char *const *own, const char *value)
{
        char **changed;

        if (environ == own) {
                __atomic_store_n(&environ, before, __ATOMIC_RELEASE);
                return;
        }
        changed = environment_with(entry_of(value));
        if (changed)
                __atomic_store_n(&environ, changed, __ATOMIC_RELEASE);
}

/* Sets the program's devices: the job's devices that the launcher has chosen. */
static CUresult choose_devices(const char *launcher, const struct identity *all, unsigned ranks,
                               uint8_t ret[static DEVICES_MAX])
{
        const int shown = map_visible(launcher, all, ranks, ret);

        devices.n = (unsigned)MAX(shown, 0);
        for (unsigned i = 0; i < devices.n; i++)
                devices.identity[i] = all[ret[i]];
        if (shown == -ENOTUNIQ)
                return CUDA_ERROR_INVALID_DEVICE;
        return shown > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

/* A launcher may have chosen some devices of several cards. Then the driver sees their cards, in
 * the order of the devices, because a thread begins on the first one. Returns the cards as a value
 * of CUDA_VISIBLE_DEVICES; NULL: the driver sees all cards. */
static const char *choose_cards(const char *launcher)
{
        static char list[DEVICES_MAX * sizeof(((struct cards *)0)->card[0].text)];
        const struct cards *cards = cards_get();
        struct identity all[DEVICES_MAX];
        uint8_t shown[DEVICES_MAX], order[DEVICES_MAX];
        const unsigned ranks = cards_ranks();
        size_t at = 0;

        devices.selected = 0;
        if (!launcher || cards->n < 2)
                return NULL;
        for (unsigned i = 0; i < ranks; i++)
                all[i] = cards_identity(cards, i);
        (void)choose_devices(launcher, all, ranks, shown);
        devices.selected = map_order(shown, devices.n, cards->n, order, devices.card);
        for (unsigned i = 0; i < devices.selected; i++)
                at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i ? "," : "",
                                       cards->card[order[i]].text);
        return devices.selected ? list : NULL;
}

static CUresult init_driver(unsigned flags)
{
        const struct cards *cards = cards_get();
        const char *value, *launcher = getenv(VISIBLE);
        char **before = environ, **own, *entry;
        CUresult r;

        if (cards->mig)
                value = cards->card[map_local_rank(getenv) % cards->n].text;
        else if (!(value = choose_cards(launcher)))
                value = cards_visible();
        entry = entry_of(value);
        own = !value || entry ? environment_with(entry) : NULL;
        if (!own)
                return CUDA_ERROR_OUT_OF_MEMORY;
        __atomic_store_n(&environ, own, __ATOMIC_RELEASE);
        r = real_cuda()->cuInit(flags);
        put_back(before, own, launcher);
        return r;
}

/* ---- the program's devices ---- */

static bool read_card(CUdevice card, struct identity *ret)
{
        const struct real_cuda *cuda = real_cuda();
        int domain, bus, slot;
        CUuuid uuid;

        if (cuda->cuDeviceGetUuid_v2(&uuid, card) != CUDA_SUCCESS &&
            cuda->cuDeviceGetUuid(&uuid, card) != CUDA_SUCCESS)
                return false;
        if (cuda->cuDeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, card) ||
            cuda->cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, card) ||
            cuda->cuDeviceGetAttribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, card))
                return false;
        *ret = (struct identity){"GPU", {0}, (unsigned)domain, (unsigned)bus, (unsigned)slot};
        memcpy(ret->uuid, uuid.bytes, sizeof(ret->uuid));
        return true;
}

static CUresult find_devices(unsigned ranks)
{
        const struct cards *listed = cards_get();
        struct identity card[DEVICES_MAX], all[DEVICES_MAX];
        uint8_t shown[DEVICES_MAX];
        int n = 0;
        CUresult r = real_cuda()->cuDeviceGetCount(&n);

        if (r != CUDA_SUCCESS)
                return r;
        devices.cards = n < DEVICES_MAX ? (unsigned)n : DEVICES_MAX;
        if (devices.selected)
                return devices.cards == devices.selected ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
        for (unsigned i = 0; i < devices.cards; i++)
                if (!read_card((CUdevice)i, &card[i]))
                        return CUDA_ERROR_NO_DEVICE;
        for (unsigned i = 0; devices.cards && i < ranks; i++)
                all[i] = listed->mig ? cards_identity(listed, i)
                                     : map_identity(&card[map_card(i, devices.cards)], i,
                                                    devices.cards, false);
        r = choose_devices(getenv(VISIBLE), all, devices.cards ? ranks : 0, shown);
        for (unsigned i = 0; i < devices.n; i++)
                devices.card[i] = (uint8_t)map_card(shown[i], devices.cards);
        return r;
}

CUresult devices_init(unsigned flags)
{
        const unsigned ranks = cards_ranks();
        CUresult r;

        if (!ranks || atomic_load_explicit(&devices.ready, memory_order_acquire))
                return real_cuda()->cuInit(flags);
        (void)cards_get();
        (void)real_cuda(); /* loads a library, which needs no lock of ours */
        (void)pthread_mutex_lock(&devices.lock);
        r = atomic_load(&devices.ready) ? CUDA_SUCCESS : init_driver(flags);
        if (r == CUDA_SUCCESS && !atomic_load(&devices.ready)) {
                r = find_devices(ranks);
                atomic_store_explicit(&devices.ready, r == CUDA_SUCCESS, memory_order_release);
        }
        (void)pthread_mutex_unlock(&devices.lock);
        return r;
}

static bool is_ready(void)
{
        return atomic_load_explicit(&devices.ready, memory_order_acquire);
}

static bool is_device(CUdevice device)
{
        return is_ready() && device >= 0 && (unsigned)device < devices.n;
}

unsigned devices_count(void)
{
        return is_ready() ? devices.n : 0;
}

CUdevice devices_card(CUdevice device)
{
        if (!is_ready() || device < 0)
                return device;
        return is_device(device) ? devices.card[device] : INT_MAX;
}

CUdevice devices_named(CUdevice number)
{
        if (is_ready() && number >= 0 && (unsigned)number < devices.cards)
                return number;
        return devices_card(number);
}

void devices_choose(CUdevice device)
{
        chosen = device;
}

CUdevice devices_of_card(CUdevice card)
{
        if (!is_ready() || card < 0 || (unsigned)card >= devices.cards)
                return card;
        if (is_device(chosen) && devices.card[chosen] == card)
                return chosen;
        for (unsigned i = 0; i < devices.n; i++)
                if (devices.card[i] == card)
                        return (CUdevice)i;
        return card;
}

bool devices_share(CUdevice a, CUdevice b)
{
        return is_device(a) && is_device(b) && devices.card[a] == devices.card[b];
}

const struct identity *devices_identity(CUdevice device)
{
        return is_device(device) ? &devices.identity[device] : NULL;
}
