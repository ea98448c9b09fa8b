/* order_trace.c: owns the answer to the order `trace`. Must never name a program of another user to
 * a viewer who may not know it. */
#include "daemon/orders/order_trace.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "daemon/history/history.h"
#include "daemon/history/record_ring.h"
#include "daemon/state/server.h"

static json_t *gpus_json(const struct server *s)
{
        json_t *list = json_array();

        for (unsigned i = 0; i < s->gpus.n; i++) {
                const struct gpu *g = &s->gpus.list[i];
                struct sched_gpu_view v;

                if (sched_gpu_view(s->sched, i, &v) == 0)
                        (void)json_array_append_new(list, json_pack("{s:i, s:s, s:s, s:I}", "index",
                                                                    (int)i, "uuid", g->uuid_text,
                                                                    "name", g->name, "total",
                                                                    (json_int_t)v.total));
        }
        return list;
}

json_t *trace_answer(struct server *s, json_t *order, const struct peer *viewer)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_REALTIME, &now);
        return json_pack("{s:i, s:s, s:I, s:I, s:o}", "schema", HISTORY_SCHEMA, "version",
                         SUBLET_VERSION, "now_ns", (json_int_t)clock_now_ns(), "time_ns",
                         (json_int_t)now.tv_sec * (json_int_t)NSEC_PER_SEC + now.tv_nsec, "gpus",
                         gpus_json(s));
}

/* Returns what people call the tenant; NULL: the program runs in none. A worker that crashed may
 * have written anything into the ring. */
static json_t *tenant_json(const struct server *s, size_t program)
{
        const struct tenant kept = ring_peer(s->history, program).tenant;
        const size_t length = strnlen(kept.id, sizeof(kept.id));
        struct tenant t = {.kind = kept.kind};
        const struct class_pod *pod;

        if (t.kind == TENANT_JOB &&
            (tenant_read_job(kept.id, length, t.id) || tenant_read_sluid(kept.id, length, t.id)))
                return json_sprintf("job %s", classes_tenant(&s->config->classes, &t).id);
        if (t.kind != TENANT_POD || !tenant_read_pod(kept.id, length, t.id))
                return NULL;
        pod = classes_pod(&s->config->classes, &t);
        if (!pod || !pod->name[0])
                return json_string(t.id);
        return json_sprintf("%s%s%s", pod->namespace, pod->namespace[0] ? "/" : "", pod->name);
}

/* Names the tenants of those programs that the viewer may know, by the programs' rows. */
static json_t *tenants_json(const struct server *s, const struct history_program *programs,
                            size_t n)
{
        json_t *tenants = json_object();

        for (size_t i = 0; i < n; i++) {
                json_t *tenant = programs[i].uid != UINT32_MAX ? tenant_json(s, i) : NULL;
                char row[24];

                (void)snprintf(row, sizeof(row), "%zu", i);
                if (tenant)
                        (void)json_object_set_new(tenants, row, tenant);
        }
        return tenants;
}

void *trace_bytes(struct server *s, const struct peer *viewer, json_t *answer, size_t *ret_size)
{
        struct ring_copy n;
        void *bytes = history_copy(s, viewer, &n);

        if (!bytes)
                return NULL;
        (void)json_object_set_new(answer, "tenants", tenants_json(s, bytes, n.programs));
        (void)json_object_set_new(answer, "programs", json_integer((json_int_t)n.programs));
        (void)json_object_set_new(answer, "records", json_integer((json_int_t)n.records));
        (void)json_object_set_new(answer, "bytes", json_integer((json_int_t)n.bytes));
        *ret_size = n.bytes;
        return bytes;
}
