/* webhook_pod.c: owns which pods are changed, and how the resources of their containers are. Must
 * never touch what it does not know, and never give a resource to an ephemeral container. */
#include "kubernetes/webhook/webhook_pod.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "kubernetes/webhook/words.h"

#define SHARE "sublet.dev/share"
/* This taint keeps pods without a GPU away from nodes with GPUs. NVIDIA's operator and cloud
 * providers set it. */
#define TAINT "nvidia.com/gpu"

/* The two kinds of amounts that a container may ask for. */
static const char *const kinds[] = {"limits", "requests"};

enum opinion { NONE, SHARED, ALONE };

/* ---- opting in and out ---- */

static enum opinion read_opinion(const json_t *pod, const char *where, struct patch *p)
{
        const json_t *metadata = json_object_get(pod, "metadata");
        const json_t *value = json_object_get(json_object_get(metadata, where), SHARE);
        const char *text = json_string_value(value);

        if (text && strcmp(text, "true") == 0)
                return SHARED;
        if (text && strcmp(text, "false") == 0)
                return ALONE;
        if (text)
                patch_say(p,
                          "sublet ignores " SHARE " among the pod's %s: \"%.60s\" is neither "
                          "true nor false",
                          where, text);
        return NONE;
}

static bool is_meant(const json_t *pod, const struct review_options *o, struct patch *p)
{
        const enum opinion label = read_opinion(pod, "labels", p);
        const enum opinion annotation = read_opinion(pod, "annotations", p);

        if (label == ALONE || annotation == ALONE)
                return false;
        return o->all || label == SHARED || annotation == SHARED;
}

/* ---- what containers ask for ---- */

static const json_t *asked(const struct container *c, const char *kind)
{
        return json_object_get(json_object_get(c->json, "resources"), kind);
}

static bool asks_for(const struct container *c, const char *resource)
{
        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
                if (json_object_get(asked(c, kinds[i]), resource))
                        return true;
        return false;
}

/* Warns of resources that a share of a GPU cannot replace: those of the same vendor, such as MIG
 * instances, and those of other systems. Returns whether the container asks for one. */
static bool say_others(const struct container *c, const struct review_options *o, struct patch *p)
{
        const size_t vendor = strcspn(o->from, "/") + 1;
        json_t *value;
        const char *name;
        bool any = false;

        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                json_object_foreach ((json_t *)asked(c, kinds[i]), name, value) {
                        if ((strncmp(name, o->from, vendor) != 0 && !words_are_foreign(name)) ||
                            strcmp(name, o->from) == 0 || strcmp(name, o->to) == 0)
                                continue;
                        any = true;
                        patch_say(p, "container \"%.63s\" keeps %.80s: sublet shares %.80s only",
                                  c->name, name, o->from);
                }
        }
        return any;
}

/* ---- the changes ---- */

static void rename_resource(const struct container *c, const struct review_options *o,
                            struct patch *p)
{
        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                json_t *count = json_object_get(asked(c, kinds[i]), o->from);

                if (!count)
                        continue;
                patch_operation(
                        p, "remove", NULL,
                        PATCH_PATH("spec", c->list, c->index, "resources", kinds[i], o->from));
                patch_operation(
                        p, "add", count,
                        PATCH_PATH("spec", c->list, c->index, "resources", kinds[i], o->to));
        }
}

/* Adds the resource where only words ask for it. A missing object on the way there is added too. */
static void add_resource(const struct container *c, const struct review_options *o, struct patch *p)
{
        char text[24];
        json_auto_t *count = NULL, *empty = json_object();

        (void)snprintf(text, sizeof(text), "%" PRIu64, c->gpus);
        count = json_string(text);
        if (!json_is_object(json_object_get(c->json, "resources")))
                patch_operation(p, "add", empty,
                                PATCH_PATH("spec", c->list, c->index, "resources"));
        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                if (!json_is_object(asked(c, kinds[i])))
                        patch_operation(
                                p, "add", empty,
                                PATCH_PATH("spec", c->list, c->index, "resources", kinds[i]));
                patch_operation(
                        p, "add", count,
                        PATCH_PATH("spec", c->list, c->index, "resources", kinds[i], o->to));
        }
}

static void share_containers(struct container *containers, size_t n, const struct review_options *o,
                             struct patch *p)
{
        for (size_t i = 0; i < n; i++) {
                struct container *c = &containers[i];
                const bool others = say_others(c, o, p);

                c->shares = true;
                if (asks_for(c, o->from))
                        rename_resource(c, o, p);
                else if (c->worded && !others && !asks_for(c, o->to))
                        add_resource(c, o, p);
                else
                        c->shares = asks_for(c, o->to);
        }
}

/* ---- nodes with a taint ---- */

static bool is_tolerated(const json_t *tolerations)
{
        const json_t *one;
        size_t i;

        json_array_foreach (tolerations, i, one) {
                const char *key = json_string_value(json_object_get(one, "key"));
                const char *how = json_string_value(json_object_get(one, "operator"));
                const char *effect = json_string_value(json_object_get(one, "effect"));

                if (how && strcmp(how, "Exists") == 0 &&
                    (!key || !*key || strcmp(key, TAINT) == 0) &&
                    (!effect || !*effect || strcmp(effect, "NoSchedule") == 0))
                        return true;
        }
        return false;
}

static void tolerate(const json_t *spec, struct patch *p)
{
        const json_t *tolerations = json_object_get(spec, "tolerations");
        json_auto_t *one = NULL, *list = NULL;

        if (is_tolerated(tolerations))
                return;
        one = json_pack("{s:s, s:s, s:s}", "key", TAINT, "operator", "Exists", "effect",
                        "NoSchedule");
        list = json_pack("[O]", one);
        if (json_is_array(tolerations))
                patch_operation(p, "add", one, PATCH_PATH("spec", "tolerations", "-"));
        else
                patch_operation(p, "add", list, PATCH_PATH("spec", "tolerations"));
}

/* ---- the pod ---- */

/* Appends the containers of one list. Entries that are no objects are left out. */
static size_t read_list(const json_t *spec, const char *list, struct container *ret)
{
        json_t *json;
        size_t i, n = 0;

        json_array_foreach (json_object_get(spec, list), i, json) {
                const char *restart = json_string_value(json_object_get(json, "restartPolicy"));
                const char *name = json_string_value(json_object_get(json, "name"));
                struct container *c = &ret[n];
                const bool first = strcmp(list, "initContainers") == 0;

                if (!json_is_object(json))
                        continue;
                *c = (struct container){.json = json, .list = list, .name = name ? name : ""};
                c->beside = first && restart && strcmp(restart, "Always") == 0;
                c->alone = first && !c->beside;
                (void)snprintf(c->index, sizeof(c->index), "%zu", i);
                n++;
        }
        return n;
}

static bool asks_for_both(const struct container *containers, size_t n,
                          const struct review_options *o)
{
        bool from = false, to = false;

        for (size_t i = 0; i < n; i++) {
                from = from || asks_for(&containers[i], o->from);
                to = to || asks_for(&containers[i], o->to);
        }
        return from && to;
}

void pod_share(const json_t *pod, const struct review_options *o, struct patch *p)
{
        const json_t *spec = json_object_get(pod, "spec");
        size_t room = json_array_size(json_object_get(spec, "containers")) +
                      json_array_size(json_object_get(spec, "initContainers"));
        _cleanup_free_ struct container *containers = NULL;
        struct words words;
        size_t n;

        if (!json_is_object(json_object_get(pod, "metadata")) || !json_is_object(spec)) {
                patch_say(p, "sublet leaves this pod as it is: the review has no pod with metadata "
                             "and a specification");
                return;
        }
        if (!is_meant(pod, o, p) || !room)
                return;
        containers = calloc(room, sizeof(*containers));
        if (!containers) {
                p->failed = true;
                return;
        }
        n = read_list(spec, "containers", containers);
        n += read_list(spec, "initContainers", containers + n);
        if (asks_for_both(containers, n, o)) {
                patch_say(p,
                          "sublet leaves this pod as it is: it asks for both %.80s and %.80s; ask "
                          "for one of them",
                          o->from, o->to);
                return;
        }
        words_read(pod, containers, n, &words, p);
        share_containers(containers, n, o, p);
        for (size_t i = 0; i < n; i++) {
                if (!containers[i].shares)
                        continue;
                words_annotate(pod, containers, n, &words, p);
                tolerate(spec, p);
                return;
        }
        words_say_foreign(pod, o->from, p);
}
