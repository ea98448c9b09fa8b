/* mps_card.c: owns the choice of the card for which a program can have an MPS server. Must never
 * guess between two cards. */
#include "daemon/mps/mps_card.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "daemon/state/client.h"
#include "mps/mps.h"

/* Returns the card with this number of NVML's; NULL: NVML lists no such card, or has never
 * described it. The table of cards knows the card even while NVML is late. */
static const struct gpu *numbered(const struct server *s, uint64_t number)
{
        for (unsigned i = 0; i < s->gpus.n; i++) {
                const struct gpu *g = &s->gpus.list[i];

                if (g->present && g->vouched && g->nvml_index >= 0 &&
                    (uint64_t)g->nvml_index == number)
                        return g;
        }
        return NULL;
}

static bool all_alike(const struct server *s)
{
        const struct gpu *first = numbered(s, 0), *g;

        for (unsigned i = 1; i < SCHED_GPUS_MAX; i++) {
                g = numbered(s, i);
                if (g && (!first || strcmp(g->name, first->name) != 0))
                        return false;
        }
        return true;
}

static const struct gpu *find_by_number(const struct server *s,
                                        const __typeof__(((struct wire_message *)0)->JOIN) *in,
                                        const char **ret_why)
{
        uint64_t number;

        if (units_parse_count(in->devices, &number) < 0 || !numbered(s, number))
                return NULL;
        if (in->flags & WIRE_JOIN_PCI_ORDER || all_alike(s))
                return numbered(s, number);
        *ret_why = "CUDA may number these GPUs otherwise: name one by its UUID, as with sublet run "
                   "--gpu";
        return NULL;
}

/* Finds the one card that the program sees. NULL: *ret_why says why there is none. */
static const struct gpu *find_card(const struct server *s,
                                   const __typeof__(((struct wire_message *)0)->JOIN) *in,
                                   const char **ret_why)
{
        const struct gpu *found = NULL;
        unsigned matches = 0, listed = 0;

        for (unsigned i = 0; i < SCHED_GPUS_MAX; i++) {
                const struct gpu *g = numbered(s, i);
                const bool match =
                        g && strncmp(g->uuid_text, in->devices, strlen(in->devices)) == 0;

                listed += g != NULL;
                matches += match;
                if (match)
                        found = g;
        }
        *ret_why = "NVML lists no GPU";
        if (listed == 0)
                return NULL;
        *ret_why = "it may use several GPUs: name one, as with sublet run --gpu";
        if (strchr(in->devices, ',') || (!in->devices[0] && listed > 1))
                return NULL;
        *ret_why = "CUDA_VISIBLE_DEVICES names no GPU that the daemon knows";
        if (isdigit((unsigned char)in->devices[0]))
                return find_by_number(s, in, ret_why);
        return matches == 1 ? found : NULL;
}

/* Returns why this client can have no server on the card; NULL: it can. */
static const char *obstacle(const struct client *c, const struct gpu *card)
{
        if (strncmp(card->uuid_text, "GPU-", 4) != 0)
                return "sublet starts no MPS server for an instance of MIG";
        if (card->compute_mode == COMPUTE_MODE_PROHIBITED)
                return "the GPU's compute mode is prohibited";
        if (c->peer.container)
                return "it runs in a container with process numbers of its own";
        if (geteuid() != 0 && geteuid() != c->peer.uid)
                return "this daemon starts MPS servers for its own user only";
        if (!mps_program())
                return "there is no " MPS_CONTROL " on this machine";
        return NULL;
}

const struct gpu *mps_card(const struct client *c, const struct wire_message *m,
                           const char **ret_why)
{
        const struct gpu *card = find_card(c->server, &m->JOIN, ret_why);

        if (card)
                *ret_why = obstacle(c, card);
        return *ret_why ? NULL : card;
}
