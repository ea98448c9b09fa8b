/* choose_devices.c: owns the choice of devices for a pod. Must never look at free memory: programs
 * may be evicted from the card, and what they may allocate says more. */
#include "kubernetes/plugin/choose_devices.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"

#define LOAD_FULL    1000u
#define LOAD_PENDING 100u

struct candidate {
        unsigned given; /* devices of this card that the pod gets */
        unsigned taken; /* devices of this card that pods have */
        size_t next;    /* no device before this place of the list is free */
        bool healthy;
};

/* The load of a card in thousandths of its memory: what its programs may allocate, one card's
 * memory for each program that waits, and LOAD_PENDING for each device that is given out and has no
 * program yet. taken: how many of the card's devices are given out. */
static uint64_t load_of(const struct card *card, unsigned taken)
{
        const uint64_t total = MAX(card->total, UINT64_C(1));
        const uint64_t parts = MIN(card->committed, UINT64_MAX / LOAD_FULL) * LOAD_FULL / total;

        return parts + (uint64_t)card->waiting * LOAD_FULL +
               (uint64_t)(taken > card->clients ? taken - card->clients : 0) * LOAD_PENDING;
}

/* True if a is the better card for one more device. */
static bool is_better(enum place place, const struct candidate *a, uint64_t load_a,
                      const struct candidate *b, uint64_t load_b)
{
        const bool fits_a = load_a < LOAD_FULL, fits_b = load_b < LOAD_FULL;

        if (a->given != b->given)
                return a->given < b->given;
        if (a->healthy != b->healthy)
                return a->healthy;
        if (place == PLACE_PACK && fits_a != fits_b)
                return fits_a;
        if (place == PLACE_PACK && fits_a && load_a != load_b)
                return load_a > load_b;
        if (load_a != load_b)
                return load_a < load_b;
        return place == PLACE_PACK ? a->taken > b->taken : a->taken < b->taken;
}

static int best_card(const struct cards *cards, enum place place, const struct candidate *of,
                     const int *card_of, size_t n)
{
        int best = -1;

        for (unsigned i = 0; i < cards->n; i++) {
                if (of[i].next >= n || card_of[of[i].next] != (int)i)
                        continue;
                if (best < 0 || is_better(place, &of[i], load_of(&cards->list[i], of[i].taken),
                                          &of[best], load_of(&cards->list[best], of[best].taken)))
                        best = (int)i;
        }
        return best;
}

/* Lets `next` of the card point to its first free device, or past the end. */
static void seek(struct candidate *of, int card, const int *card_of, size_t n)
{
        while (of[card].next < n && card_of[of[card].next] != card)
                of[card].next++;
}

static int compare(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Takes the devices that must be included out of the available ones. Sorts them first: kubelet may
 * name thousands of each. */
static void take_out(char **available, int *card_of, size_t n, char **must, size_t n_must)
{
        _cleanup_free_ char **sorted = n_must ? malloc(n_must * sizeof(*sorted)) : NULL;

        if (!sorted)
                return;
        memcpy(sorted, must, n_must * sizeof(*sorted));
        qsort(sorted, n_must, sizeof(*sorted), compare);
        for (size_t d = 0; d < n; d++)
                if (card_of[d] >= 0 &&
                    bsearch(&available[d], sorted, n_must, sizeof(*sorted), compare))
                        card_of[d] = -1;
}

size_t choose_devices(const struct cards *cards, enum place place, char **available, size_t n,
                      char **must, size_t n_must, size_t size, const char **ret)
{
        _cleanup_free_ struct candidate *of = calloc(CARDS_MAX, sizeof(*of));
        _cleanup_free_ int *card_of = calloc(n + 1, sizeof(*card_of));
        size_t chosen = 0;

        if (!of || !card_of)
                return 0;
        for (unsigned i = 0; i < cards->n; i++)
                of[i] = (struct candidate){.taken = cards->devices,
                                           .healthy = card_health(cards, &cards->list[i]) ==
                                                      CARD_HEALTHY};
        for (size_t d = 0; d < n; d++) {
                card_of[d] = device_card(cards, available[d]);
                if (card_of[d] >= 0 && of[card_of[d]].taken > 0)
                        of[card_of[d]].taken--;
        }
        for (size_t m = 0; m < n_must && chosen < size; m++) {
                const int card = device_card(cards, must[m]);

                ret[chosen++] = must[m];
                if (card >= 0)
                        of[card].given++;
        }
        take_out(available, card_of, n, must, n_must);
        for (unsigned i = 0; i < cards->n; i++)
                seek(of, (int)i, card_of, n);
        while (chosen < size) {
                const int card = best_card(cards, place, of, card_of, n);

                if (card < 0)
                        break;
                ret[chosen++] = available[of[card].next];
                of[card].given++;
                of[card].next++;
                seek(of, card, card_of, n);
        }
        return chosen;
}
