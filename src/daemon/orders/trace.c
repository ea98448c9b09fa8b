/* trace.c: owns the answer to the order `trace`. Must never name a program of another user to a
 * viewer who may not know it. */
#include "daemon/orders/trace.h"

#include <time.h>

#include "base/clock.h"
#include "daemon/history/history.h"
#include "daemon/history/ring.h"
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

void *trace_bytes(struct server *s, const struct peer *viewer, json_t *answer, size_t *ret_size)
{
        struct ring_copy n;
        void *bytes = history_copy(s, viewer, &n);

        if (!bytes)
                return NULL;
        (void)json_object_set_new(answer, "programs", json_integer((json_int_t)n.programs));
        (void)json_object_set_new(answer, "records", json_integer((json_int_t)n.records));
        (void)json_object_set_new(answer, "bytes", json_integer((json_int_t)n.bytes));
        *ret_size = n.bytes;
        return bytes;
}
