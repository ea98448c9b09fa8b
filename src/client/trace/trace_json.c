/* trace_json.c: owns the form that Perfetto and chrome://tracing read (the Trace Event Format).
 * GPUs are processes, programs are threads. Must never let two times of a thread overlap. */
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "client/trace/trace_view.h"
#include "client/figures/user_names.h"

/* The daemon has a line of its own. GPU N is process N + 2, because 0 stands for no process. */
#define DAEMON_PID       1
#define LABEL_TENANT_MAX 330 /* a namespace and a pod, each of up to 160 characters */

static int pid_of(const struct trace_event *e)
{
        return e->track == TRACE_NO_TRACK ? DAEMON_PID : e->gpu + 2;
}

static int tid_of(const struct trace_event *e)
{
        return e->track == TRACE_NO_TRACK ? 0 : e->track + 1;
}

/* Microseconds since the trace begins. */
static double us(const struct trace_view *v, uint64_t time_ns)
{
        return (double)(time_ns - v->trace->events[0].begin_ns) / (double)NSEC_PER_USEC;
}

static json_t *size(uint64_t bytes)
{
        return json_integer((json_int_t)MIN(bytes, (uint64_t)INT64_MAX));
}

static json_t *event_at(const struct trace_view *v, const struct trace_event *e, const char *phase,
                        const char *name)
{
        return json_pack("{s:s, s:s, s:s, s:i, s:i, s:f}", "ph", phase, "name", name, "cat",
                         "sublet", "pid", pid_of(e), "tid", tid_of(e), "ts", us(v, e->begin_ns));
}

/* ---- names ---- */

static void add_name(json_t *list, const char *what, int pid, int tid, const char *name, int order)
{
        const bool process = tid < 0;
        char key[32];

        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M",
                                                    "name", what, "pid", pid, "tid",
                                                    process ? 0 : tid, "args", "name", name));
        (void)snprintf(key, sizeof(key), "%s_sort_index", process ? "process" : "thread");
        (void)json_array_append_new(
                list, json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "ph", "M", "name", key, "pid", pid,
                                "tid", process ? 0 : tid, "args", "sort_index", order));
}

static void name_gpu(const struct trace_view *v, json_t *list, unsigned gpu)
{
        const json_t *g;
        char name[128];
        size_t i;

        (void)snprintf(name, sizeof(name), "GPU %u", gpu);
        json_array_foreach (json_object_get(v->answer, "gpus"), i, g)
                if (json_integer_value(json_object_get(g, "index")) == (json_int_t)gpu)
                        (void)snprintf(name, sizeof(name), "GPU %u: %s", gpu,
                                       json_string_value(json_object_get(g, "name")));
        add_name(list, "process_name", (int)gpu + 2, -1, name, (int)gpu);
}

/* Writes "NAME (PID)", and the pod or the job. */
static void label_of(const struct trace_view *v, uint16_t track, char *ret, size_t size)
{
        const char *tenant = trace_tenant(v, track);
        char label[TRACE_LABEL_MAX];

        trace_label(v->in, track, label);
        (void)snprintf(ret, size, "%s%s%s", label, tenant ? " in " : "", tenant ? tenant : "");
}

/* Names each GPU, and each program once on each of its GPUs. 0 or -ENOMEM. */
static int add_names(const struct trace_view *v, json_t *list)
{
        _cleanup_free_ uint32_t *named = calloc(v->in->n_programs + 1, sizeof(*named));
        uint32_t gpus = 0;
        char label[TRACE_LABEL_MAX + LABEL_TENANT_MAX];

        if (!named)
                return -ENOMEM;
        add_name(list, "process_name", DAEMON_PID, -1, "subletd", TRACE_GPUS_MAX);
        for (size_t i = 0; i < v->trace->n; i++) {
                const struct trace_event *e = &v->trace->events[i];
                const uint32_t gpu = UINT32_C(1) << e->gpu;

                if (e->track == TRACE_NO_TRACK || named[e->track] & gpu)
                        continue;
                if (!(gpus & gpu))
                        name_gpu(v, list, e->gpu);
                gpus |= gpu;
                named[e->track] |= gpu;
                label_of(v, e->track, label, sizeof(label));
                add_name(list, "thread_name", pid_of(e), tid_of(e), label, tid_of(e));
        }
        return 0;
}

/* ---- events ---- */

static json_t *span_args(const struct trace_event *e)
{
        const struct {
                const char *name;
                uint64_t bytes;
        } sizes[] = {
                {"evicted_bytes", e->out}, {"restored_bytes", e->in}, {"missing_bytes", e->lacks}};
        const struct {
                const char *name;
                uint8_t mark;
        } marks[] = {
                {"frozen", HISTORY_FROZEN}, {"overdue", HISTORY_OVERDUE}, {"lost", HISTORY_LOST}};
        json_t *args = json_object();

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
                if (sizes[i].bytes)
                        (void)json_object_set_new(args, sizes[i].name, size(sizes[i].bytes));
        for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
                if (e->marks & marks[i].mark)
                        (void)json_object_set_new(args, marks[i].name, json_true());
        if (e->going_on)
                (void)json_object_set_new(args, "goes_on", json_true());
        return args;
}

/* Adds an arrow from the program that gave way to the turn that this made possible. */
static void add_arrow(const struct trace_view *v, json_t *list, const struct trace_event *to,
                      size_t id)
{
        const struct trace_event *ends[] = {&v->trace->events[to->made_way - 1], to};

        for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
                json_t *one = event_at(v, ends[i], i ? "f" : "s", "hand-off");

                (void)json_object_set_new(one, "id", json_integer((json_int_t)id));
                if (i)
                        (void)json_object_set_new(one, "bp", json_string("e"));
                (void)json_array_append_new(list, one);
        }
}

static void add_span(const struct trace_view *v, json_t *list, const struct trace_event *e)
{
        json_t *one = event_at(v, e, "X", trace_what_text(e->what));

        (void)json_object_set_new(
                one, "dur", json_real((double)(e->end_ns - e->begin_ns) / (double)NSEC_PER_USEC));
        (void)json_object_set_new(one, "args", span_args(e));
        (void)json_array_append_new(list, one);
}

static void add_memory(const struct trace_view *v, json_t *list, const struct trace_event *e)
{
        char label[TRACE_LABEL_MAX], name[TRACE_LABEL_MAX + 32];
        json_t *one;

        trace_label(v->in, e->track, label);
        (void)snprintf(name, sizeof(name), "memory of %s", label);
        one = event_at(v, e, "C", name);
        (void)json_object_set_new(one, "args", json_pack("{s:o}", "bytes", size(e->value)));
        (void)json_array_append_new(list, one);
}

static void add_moment(const struct trace_view *v, json_t *list, const struct trace_event *e)
{
        json_t *one = event_at(v, e, "i", trace_what_text(e->what)), *args = span_args(e);

        if (e->what == TRACE_REFUSED)
                (void)json_object_set_new(args, "why", json_string(trace_refusal_text(e->detail)));
        if (e->what == TRACE_ORDERED) {
                (void)json_object_set_new(args, "order", json_string(trace_order_text(e->detail)));
                (void)json_object_set_new(args, "by", json_string(users_text(e->value)));
        }
        /* The scope: a line through the whole trace, or through the program's track. */
        (void)json_object_set_new(one, "s", json_string(e->track == TRACE_NO_TRACK ? "g" : "t"));
        (void)json_object_set_new(one, "args", args);
        (void)json_array_append_new(list, one);
}

/* Writes the time of day of the first event, to which all times are relative. */
static void put_begin(const struct trace_view *v, char ret[static UNITS_TEXT_MAX])
{
        const uint64_t now = (uint64_t)json_integer_value(json_object_get(v->answer, "time_ns")),
                       ago = v->in->now_ns - v->trace->events[0].begin_ns;

        (void)units_format_utc((time_t)(sub_sat(now, ago) / NSEC_PER_SEC), ret);
}

json_t *trace_json(const struct trace_view *v)
{
        json_t *list = json_array();
        char began[UNITS_TEXT_MAX];

        if (add_names(v, list) < 0) {
                json_decref(list);
                return NULL;
        }
        for (size_t i = 0; i < v->trace->n; i++) {
                const struct trace_event *e = &v->trace->events[i];

                if (e->what < TRACE_SPANS)
                        add_span(v, list, e);
                else if (e->what == TRACE_MEMORY)
                        add_memory(v, list, e);
                else
                        add_moment(v, list, e);
                if (e->made_way)
                        add_arrow(v, list, e, i + 1);
        }
        put_begin(v, began);
        return json_pack("{s:s, s:{s:O*, s:s}, s:o}", "displayTimeUnit", "ms", "otherData",
                         "version", json_object_get(v->answer, "version"), "began", began,
                         "traceEvents", list);
}
