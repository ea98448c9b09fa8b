/* extender_pod.c: owns the meaning of pods, nodes and their annotations for the extender. Must
 * never take a text that is longer than a name may be. */
#include "kubernetes/extender/extender_pod.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "base/macros.h"
#include "base/shares.h"
#include "base/text.h"
#include "kubernetes/grammar/quantity.h"

#define JOB_KEY     "sublet.dev/job"
#define QOS_KEY     "sublet.dev/qos"
#define PRODUCT_KEY "nvidia.com/gpu.product"
#define BOUND_LEAST 10u  /* thousandths */
#define BOUND_MOST  990u /* thousandths; no job keeps a bound of 1 beside another */
#define GPUS_MOST   100000u

const char *const pod_fields[] = {"uid",        "annotations/",   "spec",      "nodeName",
                                  "containers", "initContainers", "resources", "limits/",
                                  "status",     "phase",          NULL};
const char *const node_fields[] = {"labels/", "status", "allocatable/", NULL};

/* Copies a text that is used as a key. "": it is too long to be one. */
static void copy_key(char *ret, size_t size, const char *text)
{
        const size_t n = strlen(text);

        memcpy(ret, text, n < size ? n + 1 : 0);
        if (n >= size)
                ret[0] = '\0';
}

static unsigned amount_of(const json_t *amounts, const char *resource)
{
        const json_t *value = json_object_get(amounts, resource);
        uint64_t n = 0;

        if (json_is_integer(value))
                n = (uint64_t)MAX(json_integer_value(value), 0);
        else if (json_is_string(value) && quantity_bytes(json_string_value(value), &n) < 0)
                n = 0;
        return (unsigned)MIN(n, (uint64_t)GPUS_MOST);
}

/* Init containers run one after the other, before the others. */
static unsigned gpus_of(const json_t *spec, const char *resource)
{
        const json_t *one, *resources;
        uint64_t sum = 0, most = 0;
        size_t i;

        json_array_foreach (json_object_get(spec, "containers"), i, one) {
                resources = json_object_get(one, "resources");
                sum += amount_of(json_object_get(resources, "limits"), resource);
        }
        json_array_foreach (json_object_get(spec, "initContainers"), i, one) {
                resources = json_object_get(one, "resources");
                most = MAX(most,
                           (uint64_t)amount_of(json_object_get(resources, "limits"), resource));
        }
        return (unsigned)MIN(MAX(sum, most), (uint64_t)GPUS_MOST);
}

static void read_bound(const char *text, struct pod *ret)
{
        unsigned thousandths;

        ret->bound_is_wrong =
                *text && shares_parse_part(text, BOUND_LEAST, BOUND_MOST, &thousandths) < 0;
        if (*text && !ret->bound_is_wrong)
                ret->bound = thousandths / 1000.0;
}

int pod_read(const json_t *json, const struct pod_rules *rules, struct pod *ret)
{
        const json_t *meta = json_object_get(json, "metadata"),
                     *spec = json_object_get(json, "spec");
        const json_t *annotations = json_object_get(meta, "annotations");
        const char *phase = text_at(json_object_get(json, "status"), "phase");
        char name[300];

        *ret = (struct pod){.bound = rules->bound};
        copy_key(ret->uid, sizeof(ret->uid), text_at(meta, "uid"));
        if (!ret->uid[0] || !json_is_object(spec))
                return -EINVAL;
        (void)snprintf(name, sizeof(name), "%.60s/%.200s", text_at(meta, "namespace"),
                       text_at(meta, "name"));
        (void)text_copy(ret->name, sizeof(ret->name), name);
        copy_key(ret->node, sizeof(ret->node), text_at(spec, "nodeName"));
        ret->ended = strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0;
        ret->gpus = gpus_of(spec, rules->resource);
        copy_key(ret->job, sizeof(ret->job), text_at(annotations, JOB_KEY));
        read_bound(text_at(annotations, QOS_KEY), ret);
        return 0;
}

int node_read(const json_t *json, const struct pod_rules *rules, struct node *ret)
{
        const json_t *meta = json_object_get(json, "metadata");
        const json_t *status = json_object_get(json, "status");
        unsigned devices;

        *ret = (struct node){0};
        copy_key(ret->name, sizeof(ret->name), text_at(meta, "name"));
        if (!ret->name[0])
                return -EINVAL;
        copy_key(ret->product, sizeof(ret->product),
                 text_at(json_object_get(meta, "labels"), PRODUCT_KEY));
        devices = amount_of(json_object_get(status, "allocatable"), rules->resource);
        ret->gpus = (devices + rules->devices_per_gpu - 1) / rules->devices_per_gpu;
        return 0;
}

bool node_may_have(const char *product, const char *gpu)
{
        if (!*product || !*gpu)
                return true;
        /* Labels have no blanks: "NVIDIA-H200". */
        for (; *product && *gpu; product++, gpu++)
                if (*product != *gpu && !(*product == '-' && *gpu == ' '))
                        return false;
        return *product == *gpu;
}
