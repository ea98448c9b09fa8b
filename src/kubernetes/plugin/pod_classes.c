/* pod_classes.c: owns the text that makes pods into the daemon's classes. Must never ask for more
 * minima than a daemon can promise: it would refuse the file as a whole. */
#include "kubernetes/plugin/pod_classes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/macros.h"
#include "base/shares.h"

#define NAME_PART 18 /* characters of NAME in a class's name, NAME-HASH, which has up to 31 */

struct member {
        size_t first; /* the oldest pod of the class */
        unsigned n;   /* pods of the class; set only for the first */
};

static int compare(const void *a, const void *b)
{
        const struct pod *x = a, *y = b;
        const int r = strcmp(x->created, y->created);

        return r ? r : strcmp(x->uid, y->uid);
}

void classes_sort(struct pod *pods, size_t n)
{
        if (n > 1)
                qsort(pods, n, sizeof(*pods), compare);
}

static bool same_group(const struct pod *a, const struct pod *b)
{
        return a->wishes.group[0] && strcmp(a->wishes.group, b->wishes.group) == 0 &&
               strcmp(a->namespace, b->namespace) == 0;
}

/* Gives each pod the first pod of its class. */
static void find_members(const struct pod *pods, size_t n, struct member *of)
{
        for (size_t i = 0; i < n; i++) {
                of[i] = (struct member){.first = i, .n = 1};
                for (size_t k = 0; k < i; k++)
                        if (of[k].first == k && of[k].n < CLASSES_GROUP_MAX &&
                            same_group(&pods[k], &pods[i])) {
                                of[i].first = k;
                                of[k].n++;
                                break;
                        }
        }
}

static unsigned minimum_of(const struct pod *pod, uint64_t card_bytes)
{
        const struct pod_wishes *w = &pod->wishes;
        unsigned v = w->minimum;

        /* The minimum is a part of what can be promised, so that requests that fill a card fit
         * together. */
        if (!v && w->memory_request && card_bytes)
                v = (unsigned)(MIN(w->memory_request, card_bytes) * SHARES_MINIMA_MAX / card_bytes);
        v = MIN(v, MIN(w->minimum_most, SHARES_MINIMA_MAX));
        return w->maximum ? MIN(v, w->maximum) : v;
}

/* Returns what a class gets: each value is that of the oldest pod that asks for it. */
static struct pod_wishes merged(const struct pod *pods, size_t n, const struct member *of,
                                size_t first, uint64_t card_bytes)
{
        struct pod_wishes all = {0};

        for (size_t i = first; i < n; i++) {
                const struct pod_wishes *w = &pods[i].wishes;

                if (of[i].first != first)
                        continue;
                if (!all.minimum)
                        all.minimum = minimum_of(&pods[i], card_bytes);
                if (!all.maximum)
                        all.maximum = w->maximum;
                if (!all.weight)
                        all.weight = w->weight;
                if (!all.memory_cap)
                        all.memory_cap = w->memory_cap;
                if (!all.has_priority && w->has_priority) {
                        all.has_priority = true;
                        all.priority = w->priority;
                }
        }
        if (all.maximum)
                all.minimum = MIN(all.minimum, all.maximum);
        memcpy(all.group, pods[first].wishes.group, sizeof(all.group));
        return all;
}

static bool asks_for_something(const struct pod_wishes *w)
{
        return w->minimum || w->maximum || w->weight || w->memory_cap || w->has_priority ||
               w->group[0];
}

static uint64_t hash_of(const char *text, uint64_t hash)
{
        return hash_add(hash, text, strlen(text));
}

/* The class is named after its pod or its group. The hash keeps names apart; that of a group stays
 * when its oldest pod ends. */
static void write_name(FILE *f, const struct pod *pods, const struct member *of, size_t first)
{
        const struct pod *pod = &pods[first];
        const bool grouped = pod->wishes.group[0];
        uint64_t hash = HASH_BASIS;

        if (grouped) {
                hash = hash_of(pod->wishes.group, hash_of("/", hash_of(pod->namespace, hash)));
                for (size_t k = 0; k < first; k++) /* full classes of the same group */
                        if (of[k].first == k && same_group(&pods[k], pod))
                                hash = hash_of("+", hash);
        } else {
                hash = hash_of(pod->uid, hash);
        }
        (void)fprintf(f, "\n[class %.*s-%012llx]\n", NAME_PART,
                      grouped ? pod->wishes.group : pod->name,
                      (unsigned long long)(hash & UINT64_C(0xffffffffffff)));
}

static void write_class(FILE *f, const struct pod *pods, size_t n, const struct member *of,
                        size_t first, const struct pod_wishes *w)
{
        bool later = false;

        write_name(f, pods, of, first);
        for (size_t i = first; i < n; i++)
                if (of[i].first ==
                    first) { /* a list goes on in the next line if that is indented */
                        (void)fprintf(f, "%s%s\n", later ? "        " : "pod = ", pods[i].uid);
                        later = true;
                }
        if (w->minimum)
                (void)fprintf(f, "minimum = %u.%u%%\n", w->minimum / 10, w->minimum % 10);
        if (w->maximum)
                (void)fprintf(f, "maximum = %u.%u%%\n", w->maximum / 10, w->maximum % 10);
        if (w->weight)
                (void)fprintf(f, "weight = %u.%03u\n", w->weight / 1000, w->weight % 1000);
        if (w->memory_cap)
                (void)fprintf(f, "memory_cap = %lluB\n", (unsigned long long)w->memory_cap);
        if (w->has_priority)
                (void)fprintf(f, "priority = %d\n", w->priority);
        if (w->group[0])
                (void)fprintf(f, "group = yes\n");
}

/* Leaves out minima that the daemon cannot promise, and `without` more, the newest first. Returns
 * how many are left. */
static unsigned fit_minima(struct pod_wishes *classes, const struct member *of, size_t n,
                           unsigned without, bool *ret_left)
{
        unsigned sum = 0, kept = 0;

        for (size_t i = 0; i < n; i++) {
                if (of[i].first != i || !classes[i].minimum)
                        continue;
                if (sum + classes[i].minimum > SHARES_MINIMA_MAX) {
                        classes[i].minimum = 0;
                        ret_left[i] = true;
                        continue;
                }
                sum += classes[i].minimum;
                kept++;
        }
        for (size_t i = n; i-- > 0 && without > 0;)
                if (of[i].first == i && classes[i].minimum) {
                        classes[i].minimum = 0;
                        ret_left[i] = true;
                        without--;
                        kept--;
                }
        return kept;
}

char *classes_text(const struct pod *pods, size_t n, uint64_t card_bytes, unsigned without,
                   bool *ret_left, unsigned *ret_minima)
{
        _cleanup_free_ struct member *of = calloc(n + 1, sizeof(*of));
        _cleanup_free_ struct pod_wishes *classes = calloc(n + 1, sizeof(*classes));
        char *text = NULL;
        size_t size;
        FILE *f;

        if (!of || !classes)
                return NULL;
        f = open_memstream(&text, &size);
        if (!f)
                return NULL;
        find_members(pods, n, of);
        for (size_t i = 0; i < n; i++) {
                ret_left[i] = false;
                if (of[i].first == i)
                        classes[i] = merged(pods, n, of, i, card_bytes);
        }
        *ret_minima = fit_minima(classes, of, n, without, ret_left);
        (void)fprintf(f,
                      "# Written by sublet-device-plugin, and again at each change of the pods.\n");
        for (size_t i = 0; i < n; i++)
                (void)fprintf(f, "\n[pod %s]\nnamespace = %.160s\nname = %.160s\n", pods[i].uid,
                              pods[i].namespace, pods[i].name);
        for (size_t i = 0; i < n; i++)
                if (of[i].first == i && asks_for_something(&classes[i]))
                        write_class(f, pods, n, of, i, &classes[i]);
        if (fclose(f) != 0) {
                free(text);
                return NULL;
        }
        return text;
}
