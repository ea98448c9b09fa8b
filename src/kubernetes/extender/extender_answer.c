/* extender_answer.c: owns the scheduler's protocol: what is read of a request, and how it is
 * answered. Must never name a node that was not asked about, and never leave one out. */
#include "kubernetes/extender/extender_answer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/log.h"
#include "base/macros.h"
#include "base/text.h"
#include "kubernetes/extender/place_jobs.h"
#include "kubernetes/grammar/count_values.h"

#define SCORE_MOST  10
#define SCORE_ALONE 4 /* score of a free GPU where pairs come first; each pair scores more */
#define PODS_MOST   4096u

/* A request, and what is known of its pod. */
struct request {
        json_t *json;
        const json_t *list; /* list of names, or of whole nodes */
        bool whole;         /* the scheduler keeps no cache for the extender, and sends nodes */
        struct pod pod;
        struct place_pod one; /* job < 0: the pod has no job that is known */
};

static int refuse(char error[static ANSWER_ERROR_MAX], const char *sentence)
{
        (void)snprintf(error, ANSWER_ERROR_MAX, "%s", sentence);
        return -EINVAL;
}

static void cleanup_request(struct request *q)
{
        json_decref(q->json);
}

/* ---- reading ---- */

static int read_nodes(struct request *q, char error[static ANSWER_ERROR_MAX])
{
        const json_t *names = json_object_get(q->json, "NodeNames"), *one;
        const json_t *nodes = json_object_get(q->json, "Nodes");
        size_t i;

        q->whole = !json_is_array(names);
        q->list = q->whole ? json_object_get(nodes, "items") : names;
        if (q->whole && json_is_object(nodes) && (!q->list || json_is_null(q->list)))
                return 0; /* Go writes no items as null */
        if (!json_is_array(q->list))
                return refuse(error, "the request has neither NodeNames nor Nodes with items");
        json_array_foreach (q->list, i, one) {
                const json_t *name =
                        q->whole ? json_object_get(json_object_get(one, "metadata"), "name") : one;

                if (!json_is_string(name) || !*json_string_value(name))
                        return refuse(error, "a node of the request has no name");
        }
        return 0;
}

static int check_known(const struct answer_context *x, const struct request *q,
                       char error[static ANSWER_ERROR_MAX])
{
        if (q->one.job < 0 || cluster_is_known(x->cluster))
                return 0;
        (void)snprintf(error, ANSWER_ERROR_MAX, "the cluster's pods and nodes are not known yet");
        return -EAGAIN;
}

static int read_request(const char *text, size_t size, const struct answer_context *x,
                        struct request *ret, char error[static ANSWER_ERROR_MAX])
{
        json_error_t where;
        char detail[sizeof(where.text)];
        int r;

        if (values_are_more_than(text, size, ANSWER_VALUES_MAX))
                return refuse(error, "the request has more values than a pod and its nodes have");
        ret->json = json_loadb(text, size, JSON_ALLOW_NUL, &where);
        if (!ret->json && json_error_code(&where) == json_error_out_of_memory)
                return -ENOMEM;
        if (!ret->json) {
                (void)snprintf(error, ANSWER_ERROR_MAX, "the request is no JSON: byte %d: %s",
                               where.position, text_copy(detail, sizeof(detail), where.text));
                return -EINVAL;
        }
        if (!json_is_object(ret->json))
                return refuse(error, "the request is no object with Pod and NodeNames");
        if (!json_is_object(json_object_get(ret->json, "Pod")))
                return refuse(error, "the request has no Pod");
        r = pod_read(json_object_get(ret->json, "Pod"), &x->rules, &ret->pod);
        if (r < 0)
                return refuse(error, "the request's Pod has no uid or no spec");
        r = read_nodes(ret, error);
        if (r < 0)
                return r;
        ret->one = (struct place_pod){
                .job = ret->pod.job[0] ? jobs_find(x->jobs, ret->pod.job) : -ENOENT,
                .bound = ret->pod.bound,
                .gpus = ret->pod.gpus,
        };
        return check_known(x, ret, error);
}

static const char *name_of(const struct request *q, size_t i)
{
        const json_t *one = json_array_get(q->list, i);

        return json_string_value(
                q->whole ? json_object_get(json_object_get(one, "metadata"), "name") : one);
}

/* ---- one node ---- */

/* False: the node is not known, or has no GPU of the kind that predictions are for. */
static bool read_node(const struct answer_context *x, const struct request *q, size_t i,
                      struct node *ret)
{
        const struct node *known = cluster_node(x->cluster, name_of(q, i));

        if (known)
                *ret = *known;
        else if (!q->whole || node_read(json_array_get(q->list, i), &x->rules, ret) < 0)
                return false;
        return ret->gpus > 0 && node_may_have(ret->product, jobs_gpu(x->jobs));
}

/* Writes where the pod would be. 1; 0: nothing can be said of the node; -ENOMEM. Reads at most
 * PODS_MOST pods of the node, which is more than its GPUs can serve. */
static int look_at(const struct answer_context *x, const struct request *q, size_t i,
                   struct place *ret)
{
        const struct cluster_pod *p;
        struct place_pod *running;
        struct node node;
        size_t n = 0;
        int r;

        if (q->one.job < 0 || q->one.gpus == 0 || !read_node(x, q, i, &node))
                return 0;
        for (p = cluster_pods(x->cluster, name_of(q, i)); p; p = p->next)
                n++;
        running = calloc(MIN(n, (size_t)PODS_MOST) + 1, sizeof(*running));
        if (!running)
                return -ENOMEM;
        n = 0;
        for (p = cluster_pods(x->cluster, name_of(q, i)); p && n < PODS_MOST; p = p->next)
                if (strcmp(p->pod.uid, q->pod.uid) != 0)
                        running[n++] = (struct place_pod){
                                .job = p->pod.job[0] ? jobs_find(x->jobs, p->pod.job) : -ENOENT,
                                .bound = p->pod.bound,
                                .gpus = p->pod.gpus,
                        };
        r = place_try(x->jobs, node.gpus, running, n, &q->one, ret);
        free(running);
        return r < 0 ? r : 1;
}

/* Returns the score of a place. Its gain is the progress that the node makes in addition, and
 * counts as 1 at most, which is the progress of a job alone. */
static int score_of(enum prefer prefer, const struct place *p)
{
        const double gain = fmin(fmax(p->gain, 0), 1);

        if (p->how == PLACE_NOT)
                return 0;
        if (prefer == PREFER_SPREAD)
                return p->how == PLACE_ALONE ? SCORE_MOST : (int)lround(gain * (SCORE_MOST - 1));
        return p->how == PLACE_ALONE
                       ? SCORE_ALONE
                       : SCORE_ALONE + 1 + (int)lround(gain * (SCORE_MOST - SCORE_ALONE - 1));
}

/* ---- filter ---- */

static int write_filter(const struct request *q, json_t *passed, json_t *failed, char **ret)
{
        json_t *nodes = q->whole ? json_pack("{s{} sO}", "metadata", "items", passed) : json_null();
        json_t *names = q->whole ? json_null() : json_incref(passed);
        json_auto_t *answer =
                json_pack("{so so sO s{} ss}", "Nodes", nodes, "NodeNames", names, "FailedNodes",
                          failed, "FailedAndUnresolvableNodes", "Error", "");

        *ret = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
        return *ret ? 0 : -ENOMEM;
}

/* Returns 1 if a node passes, 0 if none does; -ENOMEM. */
static int filter(const struct answer_context *x, const struct request *q, char **ret)
{
        json_auto_t *passed = json_array();
        json_auto_t *failed = json_object();

        if (!passed || !failed)
                return -ENOMEM;
        for (size_t i = 0; i < json_array_size(q->list); i++) {
                struct place place = {0};
                int r = look_at(x, q, i, &place);

                if (r < 0)
                        return r;
                if (r > 0 && place.how == PLACE_NOT)
                        r = json_object_set_new(failed, name_of(q, i), json_string(place.why));
                else
                        r = json_array_append(passed, json_array_get(q->list, i));
                if (r < 0)
                        return -ENOMEM;
        }
        log_debug("pod %s, job \"%s\": %zu of %zu nodes can take it", q->pod.name, q->pod.job,
                  json_array_size(passed), json_array_size(q->list));
        return write_filter(q, passed, failed, ret) < 0 ? -ENOMEM : json_array_size(passed) > 0;
}

/* Logs what is wrong with the pod's annotations. */
static void complain(const struct answer_context *x, const struct request *q)
{
        char name[POD_JOB_MAX];

        if (q->pod.gpus == 0)
                return;
        if (q->pod.job[0] && q->one.job < 0)
                log_notice("pod %s: there is no job file %s.json, so nothing is predicted for it",
                           q->pod.name, text_copy(name, sizeof(name), q->pod.job));
        if (q->pod.bound_is_wrong)
                log_notice(
                        "pod %s: cannot read sublet.dev/qos: the bound is %.2f; write it as 0.7 or "
                        "70%%",
                        q->pod.name, x->rules.bound);
}

/* The next pod of the scheduler waits until this one is on its node. */
static void expect_binding(struct answer_context *x, const struct request *q, uint64_t now_ns)
{
        if (q->pod.gpus > 0)
                pending_add(&x->pending, q->pod.uid, now_ns);
}

int answer_filter(const char *text, size_t size, struct answer_context *context, uint64_t now_ns,
                  char **ret_answer, char error[static ANSWER_ERROR_MAX])
{
        __attribute__((cleanup(cleanup_request))) struct request q = {0};
        int r = read_request(text, size, context, &q, error);

        if (r < 0)
                return r;
        if (q.one.job >= 0 && pending_any(&context->pending, context->cluster, q.pod.uid, now_ns))
                return -EBUSY;
        complain(context, &q);
        r = filter(context, &q, ret_answer);
        if (r > 0)
                expect_binding(context, &q, now_ns);
        return MIN(r, 0);
}

/* ---- prioritize ---- */

static int prioritize(const struct answer_context *x, const struct request *q, char **ret)
{
        json_auto_t *scores = json_array();

        if (!scores)
                return -ENOMEM;
        for (size_t i = 0; i < json_array_size(q->list); i++) {
                struct place place = {0};
                int r = look_at(x, q, i, &place), score = 0;

                if (r < 0)
                        return r;
                if (r > 0)
                        score = score_of(x->prefer, &place);
                if (json_array_append_new(scores, json_pack("{ss si}", "Host", name_of(q, i),
                                                            "Score", score)) < 0)
                        return -ENOMEM;
        }
        *ret = json_dumps(scores, JSON_COMPACT);
        return *ret ? 0 : -ENOMEM;
}

int answer_prioritize(const char *text, size_t size, struct answer_context *context,
                      uint64_t now_ns, char **ret_answer, char error[static ANSWER_ERROR_MAX])
{
        __attribute__((cleanup(cleanup_request))) struct request q = {0};
        int r = read_request(text, size, context, &q, error);

        if (r == 0)
                r = prioritize(context, &q, ret_answer);
        if (r == 0)
                expect_binding(context, &q, now_ns); /* the wait for it begins anew */
        return r;
}
