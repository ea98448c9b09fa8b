/* extender.c: owns the loop's parts: two watches, the timers, and what is served. Must never wait
 * for the API server while the scheduler waits.
 * Why: docs/decisions.md, "The scheduler of Kubernetes asks, and sublet does not schedule". */
#include "kubernetes/extender/extender.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "kubernetes/api/watch.h"

#define LOOK_USEC (2 * UINT64_C(1000000)) /* time between two looks at the job files */
#define WARM_USEC UINT64_C(10000)         /* time between two predictions ahead of need */

struct extender {
        struct answer_context answer;
        sd_event *loop;
        struct web *web;
        struct watch *pods, *nodes;
        sd_event_source *look, *warm;
        bool told_known;
};

/* ---- the cluster ---- */

static void on_memory(int r)
{
        if (r == -ENOMEM)
                log_warning("no memory for all of the cluster's pods and nodes");
}

static void on_pods(void *userdata)
{
        cluster_begin_pods(((struct extender *)userdata)->answer.cluster);
}

static void on_pod(const json_t *json, bool gone, void *userdata)
{
        struct extender *e = userdata;
        struct pod pod;

        if (pod_read(json, &e->answer.rules, &pod) < 0)
                return;
        if (gone)
                cluster_drop_pod(e->answer.cluster, pod.uid);
        else
                on_memory(cluster_put_pod(e->answer.cluster, &pod));
}

static void tell_known(struct extender *e)
{
        if (e->told_known || !cluster_is_known(e->answer.cluster))
                return;
        e->told_known = true;
        log_info("knows the cluster: %zu pods have GPUs", cluster_count_pods(e->answer.cluster));
}

static void on_pods_end(unsigned number, void *userdata)
{
        struct extender *e = userdata;

        cluster_end_pods(e->answer.cluster);
        tell_known(e);
}

static void on_nodes(void *userdata)
{
        cluster_begin_nodes(((struct extender *)userdata)->answer.cluster);
}

static void on_node(const json_t *json, bool gone, void *userdata)
{
        struct extender *e = userdata;
        struct node node;

        if (node_read(json, &e->answer.rules, &node) < 0)
                return;
        if (gone)
                cluster_drop_node(e->answer.cluster, node.name);
        else
                on_memory(cluster_put_node(e->answer.cluster, &node));
}

static void on_nodes_end(unsigned number, void *userdata)
{
        struct extender *e = userdata;

        cluster_end_nodes(e->answer.cluster);
        tell_known(e);
}

static int follow_cluster(struct extender *e, const struct web_server *server)
{
        /* Pods that are on a node and have not ended. */
        static const struct watch_what pods = {
                .kind = "pods",
                .which = "fieldSelector=spec.nodeName%21%3D%2Cstatus.phase%21%3DSucceeded%2C"
                         "status.phase%21%3DFailed&",
                .name = "the cluster's pods",
                .page = 100,
                .fields = pod_fields,
        };
        static const struct watch_what nodes = {.kind = "nodes",
                                                .which = "",
                                                .name = "the cluster's nodes",
                                                .page = 50,
                                                .fields = node_fields};
        static const struct watch_told told_pods = {
                .begin = on_pods, .one = on_pod, .end = on_pods_end};
        static const struct watch_told told_nodes = {
                .begin = on_nodes, .one = on_node, .end = on_nodes_end};
        int r = web_new(e->loop, server, &e->web);

        if (r >= 0)
                r = watch_new(e->loop, e->web, &pods, &told_pods, e, &e->pods);
        if (r >= 0)
                r = watch_new(e->loop, e->web, &nodes, &told_nodes, e, &e->nodes);
        return r;
}

/* ---- timers ---- */

static int again(sd_event_source *source, uint64_t usec)
{
        const int r = sd_event_source_set_time_relative(source, usec);

        return r < 0 ? r : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int on_look(sd_event_source *source, uint64_t usec, void *userdata)
{
        struct extender *e = userdata;

        jobs_refresh(e->answer.jobs);
        (void)again(e->warm, 0);
        return again(source, LOOK_USEC);
}

static int on_warm(sd_event_source *source, uint64_t usec, void *userdata)
{
        struct extender *e = userdata;

        return jobs_warm(e->answer.jobs) > 0 ? again(source, WARM_USEC) : 0;
}

/* ---- what is served ---- */

_Static_assert(ANSWER_ERROR_MAX <= REQUESTS_ERROR_MAX, "a sentence would be cut");

static int serve_filter(const char *text, size_t size, void *userdata, char **ret_answer,
                        char error[static REQUESTS_ERROR_MAX])
{
        return answer_filter(text, size, userdata, clock_now_ns(), ret_answer, error);
}

static int serve_prioritize(const char *text, size_t size, void *userdata, char **ret_answer,
                            char error[static REQUESTS_ERROR_MAX])
{
        return answer_prioritize(text, size, userdata, clock_now_ns(), ret_answer, error);
}

static const char *not_ready(void *userdata)
{
        const struct answer_context *x = userdata;

        return cluster_is_known(x->cluster) ? NULL
                                            : "the cluster's pods and nodes are not known yet";
}

static int serve(struct extender *e, const struct server_options *o,
                 char error[static JOBS_ERROR_MAX])
{
        static const struct requests_door doors[] = {{"/filter", serve_filter},
                                                     {"/prioritize", serve_prioritize}};
        const struct requests_service service = {
                .program = "the extender",
                .one = "a request",
                .many = "requests",
                .paths = "/filter, /prioritize, /healthz and /readyz",
                .body_max_mib = 16, /* some thousand nodes as they are, or far more names */
                .doors = doors,
                .n_doors = ARRAY_SIZE(doors),
                .not_ready = not_ready,
                .userdata = &e->answer,
        };

        return server_run(e->loop, o, &service, error);
}

/* ---- the whole ---- */

static int begin_extender(struct extender *e, const struct extender_options *o)
{
        int r = sd_event_new(&e->loop);

        if (r >= 0)
                r = sd_event_add_time_relative(e->loop, &e->look, CLOCK_MONOTONIC, LOOK_USEC, 0,
                                               on_look, e);
        if (r >= 0)
                r = sd_event_add_time_relative(e->loop, &e->warm, CLOCK_MONOTONIC, 0, 0, on_warm,
                                               e);
        return r < 0 ? r : follow_cluster(e, &o->api);
}

static void end(struct extender *e)
{
        watch_free(e->pods);
        watch_free(e->nodes);
        web_free(e->web);
        (void)sd_event_source_disable_unref(e->look);
        (void)sd_event_source_disable_unref(e->warm);
        (void)sd_event_unref(e->loop);
        cluster_free(e->answer.cluster);
        jobs_free(e->answer.jobs);
}

int extender_run(const struct extender_options *o, char error[static JOBS_ERROR_MAX])
{
        struct extender e = {.answer = {.rules = o->rules, .prefer = o->prefer}};
        int r = jobs_open(o->jobs, o->model, &e.answer.jobs, error);

        if (r < 0)
                return r;
        e.answer.cluster = cluster_new();
        r = e.answer.cluster ? begin_extender(&e, o) : -ENOMEM;
        if (r < 0)
                (void)snprintf(error, JOBS_ERROR_MAX, "%s", strerror(-r));
        else
                r = serve(&e, &o->server, error);
        end(&e);
        return r;
}
