/* plugin_pod.c: owns the meaning of a pod's annotations. Must never pass on a text that could end a
 * line of the daemon's file. */
#include "kubernetes/plugin/plugin_pod.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json_text.h"
#include "base/macros.h"
#include "base/shares.h"
#include "base/text.h"
#include "kubernetes/grammar/quantity.h"

#define PREFIX "sublet.dev/"

struct reading {
        const struct pod_bounds *bounds;
        void (*complain)(const char *sentence, void *userdata);
        void *userdata;
        struct pod *pod;
};

static int parse_group(const char *text, char ret[static POD_GROUP_MAX])
{
        const size_t n = strlen(text);

        if (n == 0 || n >= POD_GROUP_MAX)
                return -EINVAL;
        for (size_t i = 0; i < n; i++)
                if (!isalnum((unsigned char)text[i]) && !strchr("-_.", text[i]))
                        return -EINVAL;
        memcpy(ret, text, n + 1);
        return 0;
}

static void lower(struct reading *r, const char *key, const char *text, const char *bound)
{
        char sentence[POD_SENTENCE_MAX];

        (void)snprintf(sentence, sizeof(sentence),
                       "pod %.60s/%.60s: %s%s is %.40s, more than this node's owner allows: it is "
                       "lowered to %s",
                       r->pod->namespace, r->pod->name, PREFIX, key, text, bound);
        r->complain(sentence, r->userdata);
}

static int read_minimum(struct reading *r, const char *text)
{
        unsigned *v = &r->pod->wishes.minimum;
        const unsigned most = MIN(r->bounds->minimum_most, SHARES_MINIMA_MAX);
        char bound[SHARES_TEXT_MAX];

        if (shares_parse_part(text, 1, SHARES_ALL, v) < 0)
                return -EINVAL;
        if (*v > most) {
                *v = most;
                lower(r, "minimum", text, shares_format_percent(most, bound));
        }
        return 0;
}

static int read_maximum(struct reading *r, const char *text)
{
        return shares_parse_part(text, SHARES_MAXIMUM_MIN, SHARES_ALL, &r->pod->wishes.maximum);
}

static int read_memory_cap(struct reading *r, const char *text)
{
        return quantity_size(text, &r->pod->wishes.memory_cap);
}

static int read_memory_request(struct reading *r, const char *text)
{
        return quantity_size(text, &r->pod->wishes.memory_request);
}

static int read_priority(struct reading *r, const char *text)
{
        struct pod_wishes *w = &r->pod->wishes;
        char bound[16];

        if (shares_parse_priority(text, &w->priority) < 0)
                return -EINVAL;
        w->has_priority = true;
        if (w->priority > r->bounds->priority_most) {
                w->priority = r->bounds->priority_most;
                (void)snprintf(bound, sizeof(bound), "%d", w->priority);
                lower(r, "priority", text, bound);
        }
        return 0;
}

static int read_weight(struct reading *r, const char *text)
{
        unsigned *v = &r->pod->wishes.weight;
        char bound[SHARES_TEXT_MAX];

        if (shares_parse_weight(text, v) < 0)
                return -EINVAL;
        if (*v > r->bounds->weight_most) {
                *v = r->bounds->weight_most;
                lower(r, "weight", text, shares_format(*v, bound));
        }
        return 0;
}

static int read_group(struct reading *r, const char *text)
{
        return parse_group(text, r->pod->wishes.group);
}

static const struct annotation {
        const char *key;
        int (*read)(struct reading *r, const char *text);
        const char *form;
} annotations[] = {
        {"minimum", read_minimum, "a share such as 30% or 0.3"},
        {"maximum", read_maximum, "a share such as 30% or 0.3, from 1%"},
        {"memory-cap", read_memory_cap, "a size such as 20Gi"},
        {"memory-request", read_memory_request, "a size such as 20Gi"},
        {"priority", read_priority, "a number from -20 to 20"},
        {"weight", read_weight, "a number from 0.01 to 100"},
        {"group", read_group, "1 to 31 letters, digits, or -_."},
};

const char *const pod_fields[] = {
        "uid",       "creationTimestamp", "annotations/", "spec",  "containers", "initContainers",
        "resources", "limits/",           "status",       "phase", NULL};

/* Copies a name of Kubernetes, which has small letters, digits and -. only. With other characters
 * the daemon would refuse the whole file. */
static void copy_name(char *ret, size_t size, const char *text)
{
        size_t n = 0;

        for (; text[n] && n + 1 < size; n++) {
                const char c = (char)tolower((unsigned char)text[n]);

                ret[n] = isalnum((unsigned char)c) || c == '.' ? c : '-';
        }
        ret[n] = '\0';
        if (n == 0)
                (void)snprintf(ret, size, "unknown");
}

/* A UID has 36 characters with '-', or the 32 digits of a static pod. */
static int copy_uid(char ret[static POD_UID_MAX], const char *text)
{
        const size_t n = strlen(text);

        if (n != 36 && n != 32)
                return -EINVAL;
        for (size_t i = 0; i < n; i++) {
                const bool dash = n == 36 && (i == 8 || i == 13 || i == 18 || i == 23);

                if (dash ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
                        return -EINVAL;
                ret[i] = (char)tolower((unsigned char)text[i]);
        }
        ret[n] = '\0';
        return 0;
}

static bool asks_for(const json_t *containers, const char *resource)
{
        const json_t *container;
        size_t i;

        json_array_foreach (containers, i, container) {
                const json_t *resources = json_object_get(container, "resources");
                const char *amount = text_at(json_object_get(resources, "limits"), resource);

                if (amount[0] && strcmp(amount, "0") != 0)
                        return true;
        }
        return false;
}

static void read_annotations(struct reading *r, const json_t *given)
{
        struct pod_wishes *w = &r->pod->wishes;
        char sentence[POD_SENTENCE_MAX];

        for (size_t i = 0; i < ARRAY_SIZE(annotations); i++) {
                const struct annotation *a = &annotations[i];
                char key[64], shown[41];
                const char *text, *hashed;
                int found;

                (void)snprintf(key, sizeof(key), PREFIX "%s", a->key);
                text = json_string_value(json_object_get(given, key));
                /* With the NUL, so that "a" and "b" differ from "ab" and "". */
                hashed = text ? text : "";
                r->pod->annotations = hash_add(r->pod->annotations, hashed, strlen(hashed) + 1);
                found = text ? a->read(r, text) : 0;
                if (found == 0)
                        continue;
                (void)text_copy(shown, sizeof(shown), text);
                (void)snprintf(sentence, sizeof(sentence),
                               "pod %.60s/%.60s: %s is \"%s\", %s%s: it is left out",
                               r->pod->namespace, r->pod->name, key, shown,
                               found == -EDOM ? "less than 1Mi" : "not ",
                               found == -EDOM ? "" : a->form);
                r->complain(sentence, r->userdata);
        }
        if (w->maximum && w->minimum > w->maximum) {
                w->minimum = 0;
                (void)snprintf(sentence, sizeof(sentence),
                               "pod %.60s/%.60s: " PREFIX "minimum is more than " PREFIX
                               "maximum: the minimum is left out",
                               r->pod->namespace, r->pod->name);
                r->complain(sentence, r->userdata);
        }
}

int pod_read(const json_t *pod, const char *resource, const struct pod_bounds *bounds,
             void (*complain)(const char *sentence, void *userdata), void *userdata,
             struct pod *ret)
{
        const json_t *meta = json_object_get(pod, "metadata"), *spec = json_object_get(pod, "spec");
        const char *phase = text_at(json_object_get(pod, "status"), "phase");
        struct reading r = {bounds, complain, userdata, ret};

        memset(ret, 0, sizeof(*ret));
        if (copy_uid(ret->uid, text_at(meta, "uid")) < 0)
                return -EINVAL;
        copy_name(ret->namespace, sizeof(ret->namespace), text_at(meta, "namespace"));
        copy_name(ret->name, sizeof(ret->name), text_at(meta, "name"));
        (void)snprintf(ret->created, sizeof(ret->created), "%.31s",
                       text_at(meta, "creationTimestamp"));
        ret->ended = strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0;
        if (ret->ended || (!asks_for(json_object_get(spec, "containers"), resource) &&
                           !asks_for(json_object_get(spec, "initContainers"), resource)))
                return -ENOENT;
        ret->wishes.minimum_most = bounds->minimum_most;
        read_annotations(&r, json_object_get(meta, "annotations"));
        return 0;
}
