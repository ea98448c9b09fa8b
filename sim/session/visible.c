/* visible.c: which cards a CUDA process sees: those with a device node, and of these the ones that
 * CUDA_VISIBLE_DEVICES names, as NVIDIA's driver reads it.
 * Must never show a card behind an entry that names none. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "sim/session/segment.h"

void session_uuid_text(const char *kind, const uint8_t u[static 16], char ret[static 48])
{
        (void)snprintf(ret, 48,
                       "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                       kind, u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10],
                       u[11], u[12], u[13], u[14], u[15]);
}

/* Returns the one UUID of n that begins with text; -1: there is none, or there are several. */
static int find_uuid(const char *kind, const uint8_t *uuid, size_t stride, unsigned n,
                     const char *text)
{
        int found = -1;

        for (unsigned i = 0; i < n; i++) {
                char whole[48];

                session_uuid_text(kind, uuid + i * stride, whole);
                if (strncmp(whole, text, strlen(text)) != 0)
                        continue;
                if (found >= 0)
                        return -1;
                found = (int)i;
        }
        return found;
}

/* Without a folder every GPU has its node. */
static bool has_node(const char *folder, unsigned gpu)
{
        char path[512];

        if (!folder)
                return true;
        (void)snprintf(path, sizeof(path), "%s/nvidia%u", folder, gpu);
        return access(path, F_OK) == 0;
}

/* Returns the card of one entry; -1: it names none. With MIG a GPU stands for its first instance.
 * gpu: the n GPUs that have a node, which is what numbers count. */
static int find_card(const struct session_segment *g, const uint8_t *gpu, unsigned n,
                     const char *entry)
{
        const unsigned each = MAX(g->mig, 1u);
        int found;
        long number;
        char *end;

        if (strncmp(entry, "MIG-", 4) == 0) {
                found = g->mig ? find_uuid("MIG", g->device[0].uuid, sizeof(g->device[0]),
                                           g->devices, entry)
                               : -1;
                return found >= 0 && memchr(gpu, found / (int)each, n) ? found : -1;
        }
        if (strncmp(entry, "GPU-", 4) == 0) {
                found = find_uuid("GPU", g->gpu_uuid[0], sizeof(g->gpu_uuid[0]), g->devices / each,
                                  entry);
                return found >= 0 && memchr(gpu, found, n) ? found * (int)each : -1;
        }
        number = strtol(entry, &end, 10);
        if (end == entry || *end || number < 0 || number >= (long)n)
                return -1;
        return gpu[number] * (int)each;
}

int visible_cards(const struct session_segment *g, const char *folder, const char *list,
                  uint8_t ret_card[static SESSION_DEVICES])
{
        const unsigned each = MAX(g->mig, 1u);
        uint8_t gpu[SESSION_DEVICES] = {0};
        unsigned most, n = 0, gpus = 0;
        char copy[1024], *rest = copy, *entry;
        bool numbered[SESSION_DEVICES];

        for (unsigned i = 0; i < g->devices / each; i++)
                if (has_node(folder, i))
                        gpu[gpus++] = (uint8_t)i;
        most = g->mig ? MIN(gpus, 1u) : gpus;
        for (unsigned i = 0; i < SESSION_DEVICES; i++)
                ret_card[i] = i < gpus ? (uint8_t)(gpu[i] * each) : (uint8_t)i;
        if (!list)
                return (int)most;
        (void)snprintf(copy, sizeof(copy), "%s", list);
        while ((entry = strsep(&rest, ","))) {
                int card = find_card(g, gpu, gpus, entry += strspn(entry, " "));
                const bool is_number = isdigit((unsigned char)*entry);
                uint8_t *there;

                if (card < 0 || (g->mig && n == most))
                        break;
                there = memchr(ret_card, card, n);
                if (there && numbered[there - ret_card] == is_number)
                        return -ENOTUNIQ;
                if (there)
                        break; /* once by its number and once by its UUID */
                numbered[n] = is_number;
                ret_card[n++] = (uint8_t)card;
        }
        return (int)n;
}
