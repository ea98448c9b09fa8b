/* words.c: owns what the words of others mean. Must never overrule a word of sublet's own.
 *
 * Where the words come from: the container toolkit's hook apply-cuda-memory-limits (MiB), KAI
 * Scheduler's docs/gpu-sharing, and kai-gpu-fractioning's README. */
#include "kubernetes/webhook/words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/shares.h"
#include "kubernetes/grammar/quantity.h"

#define FRACTION      "gpu-fraction"
#define FRACTION_NAME "gpu-fraction-container-name"
#define FRACTION_GPUS "gpu-fraction-num-devices"
#define MEMORY        "gpu-memory"
#define PER_CONTAINER "nvidia.com/container."
#define ENV_REQUEST   "NVIDIA_GPU_MEMORY_REQUEST"
#define ENV_LIMIT     "NVIDIA_GPU_MEMORY_LIMIT"

#define CAP     "sublet.dev/memory-cap"
#define REQUEST "sublet.dev/memory-request"
#define MINIMUM "sublet.dev/minimum"

static const json_t *annotations_of(const json_t *pod)
{
        return json_object_get(json_object_get(pod, "metadata"), "annotations");
}

/* The pod's annotation; NULL: there is none. */
static const char *annotation_of(const json_t *pod, const char *key)
{
        return json_string_value(json_object_get(annotations_of(pod), key));
}

static void say_unread(struct patch *p, const char *key, const char *value, const char *form)
{
        patch_say(p, "sublet ignores %.100s: \"%.60s\" is not %s", key, value, form);
}

static struct container *find(struct container *containers, size_t n, const char *name,
                              size_t length)
{
        for (size_t i = 0; i < n; i++)
                if (strlen(containers[i].name) == length &&
                    memcmp(containers[i].name, name, length) == 0)
                        return &containers[i];
        return NULL;
}

static void set_request(struct container *c, uint64_t mib)
{
        c->memory.requested = c->worded = true;
        c->memory.request_mib = mib;
}

static void set_limit(struct container *c, uint64_t mib)
{
        c->memory.limited = c->worded = true;
        c->memory.limit_mib = mib;
}

/* ---- nvidia.com/container.NAME.gpu-memory.request and .limit ---- */

/* If the key ends with the suffix, returns how many bytes the container's name has; else 0. */
static size_t name_before(const char *key, const char *suffix)
{
        size_t length = strlen(key), tail = strlen(suffix), head = strlen(PER_CONTAINER);

        if (length <= head + tail || strcmp(key + length - tail, suffix) != 0)
                return 0;
        return length - head - tail;
}

static void read_per_container(const char *key, const char *value, struct container *containers,
                               size_t n, struct patch *p)
{
        const size_t request = name_before(key, ".gpu-memory.request");
        const size_t length = request ? request : name_before(key, ".gpu-memory.limit");
        struct container *c;
        uint64_t mib;

        if (!length)
                return;
        c = find(containers, n, key + strlen(PER_CONTAINER), length);
        if (!c)
                patch_say(p, "sublet ignores %.100s: the pod has no container of that name", key);
        else if (quantity_mib(value, &mib) < 0)
                say_unread(p, key, value, "an amount of memory, such as 8Gi, of at least 1Mi");
        else if (request)
                set_request(c, mib);
        else
                set_limit(c, mib);
}

static void read_all_per_container(const json_t *pod, struct container *containers, size_t n,
                                   struct words *w, struct patch *p)
{
        json_t *value;
        const char *key;

        json_object_foreach ((json_t *)annotations_of(pod), key, value)
                if (strncmp(key, PER_CONTAINER, strlen(PER_CONTAINER)) == 0 &&
                    json_is_string(value))
                        read_per_container(key, json_string_value(value), containers, n, p);
        /* A missing request or limit takes the value of the other, as for KAI. */
        for (size_t i = 0; i < n; i++) {
                struct container *c = &containers[i];

                if (!c->worded)
                        continue;
                w->kai = true;
                if (!c->memory.requested)
                        set_request(c, c->memory.limit_mib);
                if (!c->memory.limited)
                        set_limit(c, c->memory.request_mib);
        }
}

/* ---- the environment ---- */

static void read_variable(const json_t *variable, struct container *c, struct patch *p)
{
        const char *name = json_string_value(json_object_get(variable, "name"));
        const char *value = json_string_value(json_object_get(variable, "value"));
        uint64_t mib;
        int limit;

        if (!name)
                return;
        limit = strcmp(name, ENV_LIMIT) == 0;
        if (!limit && strcmp(name, ENV_REQUEST) != 0)
                return;
        if (!value)
                patch_say(p,
                          "sublet ignores %s of container \"%.63s\": only a value that stands in "
                          "the pod can be read",
                          name, c->name);
        else if (quantity_count(value, &mib) < 0 || mib > UINT64_MAX / MIB)
                say_unread(p, name, value, "a number of MiB");
        else if (limit)
                set_limit(c, mib);
        else
                set_request(c, mib);
}

static void read_environment(struct container *c, struct patch *p)
{
        json_t *variable;
        size_t i;

        json_array_foreach (json_object_get(c->json, "env"), i, variable)
                read_variable(variable, c, p);
}

/* ---- gpu-fraction, gpu-memory ---- */

/* Returns the container that KAI means: the named one, or the first that is no init container. */
static struct container *find_meant(const json_t *pod, struct container *containers, size_t n,
                                    struct patch *p)
{
        const char *name = annotation_of(pod, FRACTION_NAME);
        struct container *c;

        if (!name) {
                for (size_t i = 0; i < n; i++)
                        if (!containers[i].alone && !containers[i].beside)
                                return &containers[i];
                return NULL;
        }
        c = find(containers, n, name, strlen(name));
        if (!c)
                patch_say(p, "sublet ignores " FRACTION_NAME ": the pod has no container \"%.63s\"",
                          name);
        return c;
}

static void read_fraction(const char *text, struct container *c, struct words *w, struct patch *p)
{
        unsigned millionths;

        if (!text)
                return;
        if (quantity_portion(text, &millionths) < 0 || millionths == 0) {
                say_unread(p, FRACTION, text, "a number between 0 and 1");
                return;
        }
        w->fraction = millionths;
        w->kai = c->worded = true;
}

static void read_memory(const char *text, struct container *c, struct words *w, struct patch *p)
{
        uint64_t mib;

        if (!text || c->memory.requested || c->memory.limited)
                return;
        if (quantity_count(text, &mib) < 0 || mib > UINT64_MAX / MIB) {
                say_unread(p, MEMORY, text, "a number of MiB");
                return;
        }
        set_request(c, mib);
        set_limit(c, mib);
        w->kai = true;
}

static void read_gpus(const json_t *pod, struct container *containers, size_t n, struct patch *p)
{
        const char *text = annotation_of(pod, FRACTION_GPUS);
        uint64_t gpus = 1;

        if (text && (quantity_count(text, &gpus) < 0 || gpus > 1000)) {
                say_unread(p, FRACTION_GPUS, text, "a number of GPUs");
                gpus = 1;
        }
        for (size_t i = 0; i < n; i++)
                containers[i].gpus = gpus;
}

/* Warns of settings of KAI that stay in the pod, or have no effect here. */
static void say_what_stays(const json_t *pod, struct patch *p)
{
        const char *scheduler =
                json_string_value(json_object_get(json_object_get(pod, "spec"), "schedulerName"));
        const char *mps = annotation_of(pod, "mps");

        if (scheduler && strcmp(scheduler, "kai-scheduler") == 0)
                patch_say(p, "the pod keeps spec.schedulerName \"kai-scheduler\": without that "
                             "scheduler in the cluster it is not placed");
        if (mps && strcmp(mps, "true") == 0)
                patch_say(p, "sublet ignores the annotation mps: the pod's programs share the GPU "
                             "without "
                             "MPS");
}

void words_read(const json_t *pod, struct container *containers, size_t n, struct words *ret,
                struct patch *p)
{
        const char *fraction = annotation_of(pod, FRACTION);
        const char *memory = annotation_of(pod, MEMORY);
        struct container *meant;

        *ret = (struct words){0};
        read_all_per_container(pod, containers, n, ret, p);
        for (size_t i = 0; i < n; i++)
                if (!containers[i].worded)
                        read_environment(&containers[i], p);
        read_gpus(pod, containers, n, p);
        meant = fraction || memory ? find_meant(pod, containers, n, p) : NULL;
        if (meant) {
                read_memory(memory, meant, ret, p);
                read_fraction(fraction, meant, ret, p);
        }
        for (size_t i = 0; i < n; i++) {
                struct container *c = &containers[i];

                if (!c->memory.requested || !c->memory.limited ||
                    c->memory.request_mib <= c->memory.limit_mib)
                        continue;
                patch_say(p,
                          "sublet ignores the memory that container \"%.63s\" requests of the "
                          "GPU: it is more than its limit",
                          c->name);
                c->memory.requested = false;
        }
        if (ret->kai)
                say_what_stays(pod, p);
}

/* ---- words that are not read ---- */

bool words_are_foreign(const char *key)
{
        /* Words of Volcano, HAMi, vgpu-manager, and the sharers of two cloud providers. */
        static const char *const beginnings[] = {
                "volcano.sh/vgpu-",     "volcano.sh/gpu-",     "hami.io/",
                "nvidia.com/gpumem",    "nvidia.com/gpucores", "nvidia.com/use-gpu",
                "nvidia.com/nouse-gpu", "nvidia.com/vgpu-",    "aliyun.com/gpu-",
                "tencent.com/vcuda-",
        };

        for (size_t i = 0; i < ARRAY_SIZE(beginnings); i++)
                if (strncmp(key, beginnings[i], strlen(beginnings[i])) == 0)
                        return true;
        return false;
}

void words_say_foreign(const json_t *pod, const char *resource, struct patch *p)
{
        json_t *value;
        const char *key;

        json_object_foreach ((json_t *)annotations_of(pod), key, value)
                if (words_are_foreign(key))
                        patch_say(p,
                                  "sublet ignores %.100s, and the pod gets no shared GPU: ask for "
                                  "%.80s",
                                  key, resource);
}

/* ---- sublet's words ---- */

/* Adds up what the pod's containers may hold at the same time, as Kubernetes does it. */
static uint64_t add_up(const struct container *containers, size_t n, bool limits)
{
        uint64_t sum = 0, beside = 0, alone = 0;

        for (size_t i = 0; i < n; i++) {
                const struct container *c = &containers[i];
                const struct memory *m = &c->memory;
                const uint64_t mib = limits         ? m->limited ? m->limit_mib : 0
                                     : m->requested ? m->request_mib
                                                    : 0;

                if (!c->shares)
                        continue;
                if (c->alone)
                        alone = MAX(alone, mib);
                else if (c->beside)
                        beside = add_sat(beside, mib);
                else
                        sum = add_sat(sum, mib);
        }
        return MIN(add_sat(beside, MAX(sum, alone)), UINT64_MAX / MIB);
}

/* A cap counts for all programs of a pod, so a container without a limit must not be under it. */
static bool has_cap(const struct container *containers, size_t n, struct patch *p)
{
        const struct container *open = NULL;
        bool any = false;

        for (size_t i = 0; i < n; i++) {
                if (containers[i].shares && containers[i].memory.limited)
                        any = true;
                else if (containers[i].shares)
                        open = &containers[i];
        }
        if (any && open)
                patch_say(p, "the pod gets no " CAP ", because container \"%.63s\" has no limit",
                          open->name);
        return any && !open;
}

static void annotate(const json_t *pod, const char *key, const char *value, bool *made,
                     struct patch *p)
{
        json_auto_t *text = json_string(value);

        if (!json_is_object(annotations_of(pod)) && !*made) {
                json_auto_t *empty = json_object();

                patch_operation(p, "add", empty, PATCH_PATH("metadata", "annotations"));
                *made = true;
        }
        patch_operation(p, "add", text, PATCH_PATH("metadata", "annotations", key));
}

void words_annotate(const json_t *pod, const struct container *containers, size_t n,
                    const struct words *words, struct patch *p)
{
        const uint64_t request_mib = add_up(containers, n, false);
        char text[32];
        bool made = false;

        if (!annotation_of(pod, CAP) && has_cap(containers, n, p)) {
                (void)snprintf(text, sizeof(text), "%" PRIu64 "Mi", add_up(containers, n, true));
                annotate(pod, CAP, text, &made, p);
        }
        if (annotation_of(pod, MINIMUM) || annotation_of(pod, REQUEST))
                return;
        if (words->fraction) {
                /* The minimum is a part of what all minima may have together. So pods that fill a
                 * card for KAI fill it here. */
                const unsigned permille =
                        (unsigned)((uint64_t)words->fraction * SHARES_MINIMA_MAX / 1000000);

                (void)snprintf(text, sizeof(text), "%u.%u%%", permille / 10,
                               MAX(permille, 1u) % 10);
                annotate(pod, MINIMUM, text, &made, p);
        } else if (request_mib) {
                (void)snprintf(text, sizeof(text), "%" PRIu64 "Mi", request_mib);
                annotate(pod, REQUEST, text, &made, p);
        }
}
