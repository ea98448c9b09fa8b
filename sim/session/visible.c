/* visible.c: which cards a CUDA process sees: CUDA_VISIBLE_DEVICES, as NVIDIA's driver reads it.
 * Must never show a card behind an entry that names none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Returns the card of one entry; -1: it names none. With MIG a GPU stands for its first instance.
 */
static int find_card(const struct session_segment *g, const char *entry)
{
        unsigned each = MAX(g->mig, 1u);
        int gpu = -1;
        char *end;

        if (strncmp(entry, "MIG-", 4) == 0)
                return g->mig ? find_uuid("MIG", g->device[0].uuid, sizeof(g->device[0]),
                                          g->devices, entry)
                              : -1;
        if (strncmp(entry, "GPU-", 4) == 0) {
                gpu = find_uuid("GPU", g->gpu_uuid[0], sizeof(g->gpu_uuid[0]), g->devices / each,
                                entry);
        } else {
                long n = strtol(entry, &end, 10);

                if (end != entry && !*end && n >= 0 && n < (long)(g->devices / each))
                        gpu = (int)n;
        }
        return gpu < 0 ? -1 : gpu * (int)each;
}

unsigned visible_cards(const struct session_segment *g, const char *list,
                       uint8_t ret_card[static SESSION_DEVICES])
{
        unsigned most = g->mig ? 1 : g->devices, n = 0;
        char copy[1024], *rest = copy, *entry;

        for (unsigned i = 0; i < SESSION_DEVICES; i++)
                ret_card[i] = (uint8_t)i;
        if (!list)
                return most;
        (void)snprintf(copy, sizeof(copy), "%s", list);
        while (n < most && (entry = strsep(&rest, ","))) {
                int card = find_card(g, entry + strspn(entry, " "));

                if (card < 0 || memchr(ret_card, card, n))
                        break;
                ret_card[n++] = (uint8_t)card;
        }
        return n;
}
