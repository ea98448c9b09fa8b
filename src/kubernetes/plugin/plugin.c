/* plugin.c: owns the loop, the devices that kubelet knows, and the methods that kubelet calls. Must
 * never wait in a method: all of kubelet's pods start one after the other.
 * Why: docs/decisions.md, "Pods are listed before a container starts". */
#include "kubernetes/plugin/plugin.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>

#include <systemd/sd-event.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "kubernetes/plugin/alone.h"
#include "kubernetes/plugin/events.h"
#include "kubernetes/plugin/few.h"
#include "kubernetes/plugin/kubelet.h"
#include "kubernetes/plugin/offer.h"
#include "kubernetes/plugin/order.h"
#include "kubernetes/plugin/processes.h"
#include "kubernetes/plugin/message_room.h"
#include "kubernetes/plugin/rpc.h"
#include "kubernetes/plugin/tenants.h"
#include "kubernetes/api/watch.h"

#define USEC_PER_MSEC  UINT64_C(1000)
#define ASK_MS         2000u              /* time between two looks at the daemon */
#define ASK_SOON_MS    200u               /* time between two looks while it does not answer */
#define GRACE_NS       (3 * NSEC_PER_SEC) /* a daemon that restarts is away for less */
#define LOOK_MS        10000u             /* time between two looks at the processes */
#define PRE_START_NS   (5 * NSEC_PER_SEC)
#define STREAMS_MAX    64u
#define STREAMS_OF_ONE 8u /* streams of one process */
#define WAITING_MAX    64u
#define TOLD_MAX       256u /* pods remembered for a message; then the oldest is forgotten */
#define REFUSALS_MAX   8u   /* this and the next: most lines in the log in a minute */
#define COMPLAINTS_MAX 64u
#define PODS_PAGE      25u

/* A container that waits until the daemon knows its pod. */
struct waiting {
        struct rpc_call *call;
        unsigned list; /* number of the list of pods that shows its pod */
        uint64_t until_ns;
};

/* The pods that one message was given for, so that each gets it once. */
struct told {
        char list[TOLD_MAX][POD_UID_MAX];
        unsigned n;
};

struct plugin {
        const struct plugin_options *options;
        sd_event *loop;
        struct alone *alone;
        struct rpc *rpc;
        struct kubelet *kubelet;
        struct tenants *tenants;
        struct web *web; /* NULL: there is no API server; then watch and events are NULL, too */
        struct watch_what pods;
        char which[850]; /* the part of the query that chooses the pods */
        struct watch *watch;
        struct events *events;
        struct cards cards;
        enum card_health told[CARDS_MAX]; /* what kubelet was told last */
        unsigned n_told;
        struct order *order;
        sd_event_source *ask, *look, *patience, *daemon_dir;
        bool told_away;             /* the log says that the daemon does not answer */
        uint64_t asked_ns, gone_ns; /* gone_ns: since when it does not answer; 0: it does */
        bool told_bare;             /* the log says that the daemon knows no GPU */
        uint64_t bare_ns;           /* since when it knows none; 0: it knows one */
        struct rpc_call *streams[STREAMS_MAX];
        unsigned n_streams;
        struct waiting waiting[WAITING_MAX];
        unsigned n_waiting;
        unsigned listed;
        struct told musl, mps;
        struct few refusals, complaints;
};

static void arm(sd_event_source *timer, uint64_t ms)
{
        (void)sd_event_source_set_time_relative(timer, ms * USEC_PER_MSEC);
        (void)sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

/* ---- the devices ---- */

static void send_devices(struct plugin *p, struct rpc_call *only)
{
        size_t n = 0;
        _cleanup_free_ uint8_t *bytes = offer_devices(&p->cards, &n);

        if (!bytes)
                return;
        if (only)
                rpc_stream(only, bytes, n);
        for (unsigned i = 0; !only && i < p->n_streams; i++)
                rpc_stream(p->streams[i], bytes, n);
}

static void log_health(const struct card *card, enum card_health before, enum card_health now)
{
        if (now == CARD_HEALTHY && before != CARD_NO_DAEMON)
                log_notice("GPU %s is healthy again", card->uuid);
        else if (now != CARD_HEALTHY && now != CARD_NO_DAEMON && before != CARD_NO_DAEMON)
                log_warning("GPU %s is unhealthy: %s", card->uuid, card_health_text(now));
}

/* Tells kubelet, if there is something that it does not know yet. */
static void tell_health(struct plugin *p)
{
        bool changed = p->cards.n != p->n_told;

        for (unsigned i = 0; i < p->cards.n; i++) {
                const struct card *card = &p->cards.list[i];
                const enum card_health now = card_health(&p->cards, card);
                const enum card_health before = i < p->n_told ? p->told[i] : CARD_HEALTHY;

                if (now != before) {
                        log_health(card, before, now);
                        changed = true;
                }
                p->told[i] = now;
        }
        p->n_told = p->cards.n;
        if (changed)
                send_devices(p, NULL);
}

/* ---- the processes of the node ---- */

static bool was_told(const struct told *told, const char *uid)
{
        for (unsigned i = 0; i < MIN(told->n, TOLD_MAX); i++)
                if (strcmp(told->list[i], uid) == 0)
                        return true;
        return false;
}

/* Writes to the log, and makes an Event for people who look at the pod. */
static void tell_of_pod(struct plugin *p, struct told *told, const char *uid, const char *reason,
                        const char *message)
{
        const struct pod *pod = tenants_find(p->tenants, uid);

        (void)snprintf(told->list[told->n++ % TOLD_MAX], POD_UID_MAX, "%s", uid);
        log_warning("pod %.100s/%.100s %s", pod->namespace, pod->name, message);
        if (p->events)
                events_tell(p->events, pod, reason, message);
}

static bool is_ours(const char *uid, void *userdata)
{
        const struct plugin *p = userdata;

        return tenants_find(p->tenants, uid);
}

static bool knows_musl(const char *uid, void *userdata)
{
        const struct plugin *p = userdata;

        return was_told(&p->musl, uid);
}

static void on_musl(const char *uid, int pid, const char *name, void *userdata)
{
        struct plugin *p = userdata;
        char message[POD_SENTENCE_MAX];

        (void)snprintf(message, sizeof(message),
                       "runs on musl (process %d, %s), where the library cannot be loaded: its "
                       "programs are not shared, and count as foreign; use an image with glibc",
                       pid, name);
        tell_of_pod(p, &p->musl, uid, "SubletNotInjected", message);
}

static void on_mps(const char *uid, int pid, const char *name, void *userdata)
{
        struct plugin *p = userdata;
        char message[POD_SENTENCE_MAX];

        if (was_told(&p->mps, uid))
                return;
        (void)snprintf(message, sizeof(message),
                       "runs MPS (process %d, %s): sublet does not support programs that use it; "
                       "end it, sublet shares the GPU without MPS",
                       pid, name);
        tell_of_pod(p, &p->mps, uid, "SubletMPSNotSupported", message);
}

static void look_at_processes(struct plugin *p)
{
        static const struct processes_told told = {
                .is_ours = is_ours, .knows_musl = knows_musl, .musl = on_musl, .mps = on_mps};
        struct processes_mps mps;

        processes_look(p->options->grant.proc, &told, p, &mps);
        processes_mark_mps(&mps, p->options->grant.proc, &p->cards);
        tell_health(p);
        arm(p->look, LOOK_MS);
}

static int on_look(sd_event_source *source, uint64_t usec, void *userdata)
{
        look_at_processes(userdata);
        return 0;
}

/* ---- the daemon ---- */

static void on_status(int r, json_t *answer, void *userdata);

static void ask_daemon_now(struct plugin *p)
{
        int r;

        if (p->order)
                return;
        p->asked_ns = clock_now_ns();
        r = order_give(p->loop, p->options->dir, json_pack("{s:s}", "order", "status"), on_status,
                       p, &p->order);
        if (r < 0)
                on_status(r, NULL, p);
}

static int on_ask(sd_event_source *source, uint64_t usec, void *userdata)
{
        ask_daemon_now(userdata);
        return 0;
}

/* A socket was made or removed in the daemon's directory. */
static int on_daemon_dir(sd_event_source *source, const struct inotify_event *event, void *userdata)
{
        struct plugin *p = userdata;

        if (event->mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF))
                p->daemon_dir = sd_event_source_disable_unref(p->daemon_dir);
        ask_daemon_now(p);
        return 0;
}

static void daemon_is_away(struct plugin *p, int r)
{
        if (!p->gone_ns)
                p->gone_ns = p->asked_ns;
        if (!p->told_away && clock_now_ns() - p->gone_ns >= GRACE_NS) {
                log_warning("the daemon in %s does not answer (%s): all GPUs are unhealthy",
                            p->options->dir, strerror(-r));
                p->cards.daemon = false;
                p->told_away = true;
        }
}

/* Warns only after a while: a daemon reads NVML a moment after its start. */
static void tell_no_gpus(struct plugin *p)
{
        if (p->cards.n > 0) {
                p->bare_ns = 0;
                p->told_bare = false;
        } else if (!p->bare_ns) {
                p->bare_ns = clock_now_ns();
        } else if (!p->told_bare && clock_now_ns() - p->bare_ns >= GRACE_NS) {
                log_warning("the daemon in %s knows no GPU, so kubelet is offered none: is the "
                            "driver loaded, and NVML in the daemon's container?",
                            p->options->dir);
                p->told_bare = true;
        }
}

static void on_status(int r, json_t *answer, void *userdata)
{
        struct plugin *p = userdata;
        const char *instance = json_string_value(json_object_get(answer, "instance"));

        p->order = NULL;
        if (r == 0 && !cards_take(&p->cards, answer))
                r = -EBADMSG;
        if (r < 0) {
                daemon_is_away(p, r);
        } else {
                p->gone_ns = 0;
                if (p->told_away)
                        log_notice("the daemon in %s answers again", p->options->dir);
                p->told_away = false;
                tell_no_gpus(p);
                tenants_serve(p->tenants, instance ? instance : "?", cards_smallest(&p->cards));
        }
        if (!p->daemon_dir)
                (void)sd_event_add_inotify(p->loop, &p->daemon_dir, p->options->dir,
                                           IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_DELETE_SELF |
                                                   IN_MOVE_SELF | IN_ONLYDIR,
                                           on_daemon_dir, p);
        if (r == 0 && p->n_told == 0)
                look_at_processes(p); /* kubelet is to hear of MPS from the beginning */
        tell_health(p);
        arm(p->ask, r < 0 ? ASK_SOON_MS : ASK_MS);
        if (r == 0)
                kubelet_start(p->kubelet);
}

/* ---- the pods ---- */

static void stop_waiting(struct plugin *p, unsigned i)
{
        p->waiting[i] = p->waiting[--p->n_waiting];
}

/* Lets containers start whose pods the daemon knows, and those that have waited long enough: a
 * container without its class is better than none. */
static void answer_waiting(struct plugin *p)
{
        const uint64_t now = clock_now_ns();
        uint64_t first = UINT64_MAX;

        for (unsigned i = p->n_waiting; i-- > 0;) {
                const struct waiting w = p->waiting[i];
                const bool known = (int)(p->listed - w.list) >= 0 && tenants_settled(p->tenants);

                if (!known && now < w.until_ns) {
                        first = MIN(first, w.until_ns);
                        continue;
                }
                if (!known)
                        log_warning("a container starts before the daemon knows its pod: the API "
                                    "server or the daemon took longer than 5 s");
                stop_waiting(p, i);
                rpc_on_over(w.call, NULL);
                rpc_answer(w.call, NULL, 0);
        }
        if (first != UINT64_MAX)
                arm(p->patience, (first - now) / NSEC_PER_MSEC + 1);
}

static int on_patience(sd_event_source *source, uint64_t usec, void *userdata)
{
        answer_waiting(userdata);
        return 0;
}

static void on_settled(void *userdata)
{
        answer_waiting(userdata);
}

static void on_list(void *userdata)
{
        struct plugin *p = userdata;

        tenants_begin(p->tenants);
}

struct complaints {
        char list[8][POD_SENTENCE_MAX];
        unsigned n;
};

static void keep_complaint(const char *sentence, void *userdata)
{
        struct complaints *c = userdata;

        if (c->n < ARRAY_SIZE(c->list))
                (void)snprintf(c->list[c->n++], POD_SENTENCE_MAX, "%s", sentence);
}

static void log_complaint(struct plugin *p, const char *sentence)
{
        const enum few_say say = few_ask(&p->complaints, COMPLAINTS_MAX, clock_now_ns());

        if (say == FEW_SAY)
                log_warning("%s", sentence);
        else if (say == FEW_SAY_LAST)
                log_warning("more of the pods' annotations are left out or lowered; the log leaves "
                            "out those of the next minute");
}

static void on_pod(const json_t *object, bool gone, void *userdata)
{
        struct plugin *p = userdata;
        struct complaints complaints = {.n = 0};
        struct pod pod = {.uid = ""};
        const int r = pod_read(object, p->options->resource, &p->options->bounds, keep_complaint,
                               &complaints, &pod);

        if (r == -EINVAL)
                return;
        if (r < 0 || gone)
                tenants_remove(p->tenants, pod.uid);
        else if (tenants_put(p->tenants, &pod)) /* once for each change of the annotations */
                for (unsigned i = 0; i < complaints.n; i++)
                        log_complaint(p, complaints.list[i]);
}

static void on_list_end(unsigned number, void *userdata)
{
        struct plugin *p = userdata;

        tenants_end(p->tenants);
        if (p->listed == 0)
                arm(p->look, 0);
        p->listed = number;
        tenants_tell(p->tenants);
        answer_waiting(p);
}

static void on_pods_changed(void *userdata)
{
        struct plugin *p = userdata;

        tenants_tell(p->tenants);
}

/* ---- what kubelet calls ---- */

static void serve_options(struct rpc_call *c, const uint8_t *request, size_t n, void *userdata)
{
        V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
        uint8_t bytes[64];

        options.pre_start_required = 1;
        options.get_preferred_allocation_available = 1;
        rpc_answer(c, bytes, v1beta1__device_plugin_options__pack(&options, bytes));
}

static void on_stream_over(struct rpc_call *c, void *userdata)
{
        struct plugin *p = userdata;

        for (unsigned i = 0; i < p->n_streams; i++)
                if (p->streams[i] == c)
                        p->streams[i] = p->streams[--p->n_streams];
        if (p->n_streams == 0 && p->kubelet)
                kubelet_lost(p->kubelet);
}

static void serve_list(struct rpc_call *c, const uint8_t *request, size_t n, void *userdata)
{
        struct plugin *p = userdata;
        unsigned of_one = 0;

        for (unsigned i = 0; i < p->n_streams; i++)
                of_one += rpc_caller(p->streams[i]) == rpc_caller(c);
        if (p->n_streams == STREAMS_MAX || of_one >= STREAMS_OF_ONE) {
                rpc_refuse(c, GRPC_STATUS_RESOURCE_EXHAUSTED, "too many callers watch the devices");
                return;
        }
        p->streams[p->n_streams++] = c;
        rpc_on_over(c, on_stream_over);
        send_devices(p, c);
}

static void serve_preferred(struct rpc_call *c, const uint8_t *request, size_t n, void *userdata)
{
        const struct plugin *p = userdata;
        _cleanup_free_ uint8_t *bytes = NULL;
        char error[OFFER_ERROR_MAX];
        size_t size = 0;
        const int r = offer_choice(&p->cards, p->options->place, request, n, &bytes, &size, error);

        if (r == 0)
                rpc_answer(c, bytes, size);
        else
                rpc_refuse(c,
                           r == -EINVAL ? GRPC_STATUS_INVALID_ARGUMENT
                                        : GRPC_STATUS_RESOURCE_EXHAUSTED,
                           error);
}

/* kubelet tells the pod's owner, too, by an Event. */
static void log_refusal(struct plugin *p, const char *error)
{
        const enum few_say say = few_ask(&p->refusals, REFUSALS_MAX, clock_now_ns());

        if (say == FEW_SAY)
                log_warning("kubelet's request is refused: %s", error);
        else if (say == FEW_SAY_LAST)
                log_warning(
                        "more of kubelet's requests are refused; the log leaves out those of the "
                        "next minute");
}

static void serve_allocate(struct rpc_call *c, const uint8_t *request, size_t n, void *userdata)
{
        struct plugin *p = userdata;
        struct room room;
        V1beta1__AllocateRequest *asked =
                v1beta1__allocate_request__unpack(room_begin(&room), n, request);
        char error[GRANT_ERROR_MAX] = "this is no request for devices";
        _cleanup_free_ uint8_t *bytes = NULL;
        size_t size = 0;
        int r = -EINVAL;

        if (asked)
                r = grant_answer(&p->options->grant, &p->cards, asked, &bytes, &size, error);
        if (r == 0) {
                rpc_answer(c, bytes, size);
        } else {
                log_refusal(p, error);
                rpc_refuse(c,
                           r == -EINVAL   ? GRPC_STATUS_INVALID_ARGUMENT
                           : r == -ENOMEM ? GRPC_STATUS_RESOURCE_EXHAUSTED
                                          : GRPC_STATUS_FAILED_PRECONDITION,
                           error);
        }
        if (asked)
                v1beta1__allocate_request__free_unpacked(asked, &room.allocator);
}

static void on_waiting_over(struct rpc_call *c, void *userdata)
{
        struct plugin *p = userdata;

        for (unsigned i = 0; i < p->n_waiting; i++)
                if (p->waiting[i].call == c) {
                        stop_waiting(p, i);
                        break;
                }
}

/* Allocate names no pod, so the pods are listed before each container starts. */
static void serve_pre_start(struct rpc_call *c, const uint8_t *request, size_t n, void *userdata)
{
        struct plugin *p = userdata;

        if (!p->watch || p->n_waiting == WAITING_MAX) {
                rpc_answer(c, NULL, 0);
                return;
        }
        rpc_on_over(c, on_waiting_over);
        p->waiting[p->n_waiting++] = (struct waiting){.call = c,
                                                      .list = watch_refresh(p->watch),
                                                      .until_ns = clock_now_ns() + PRE_START_NS};
        answer_waiting(p);
}

/* ---- the whole ---- */

static int on_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
        return sd_event_exit(sd_event_source_get_event(source), 0);
}

static int block_signals(sd_event *loop)
{
        sigset_t set;
        int r;

        (void)sigemptyset(&set);
        (void)sigaddset(&set, SIGTERM);
        (void)sigaddset(&set, SIGINT);
        if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0) /* before gRPC makes its threads */
                return -EINVAL;
        (void)signal(SIGPIPE, SIG_IGN);
        r = sd_event_add_signal(loop, NULL, SIGTERM, on_signal, NULL);
        return r < 0 ? r : sd_event_add_signal(loop, NULL, SIGINT, on_signal, NULL);
}

static int add_timers(struct plugin *p)
{
        int r = sd_event_add_time_relative(p->loop, &p->ask, CLOCK_MONOTONIC, 0, 1000, on_ask, p);

        if (r >= 0)
                r = sd_event_add_time_relative(p->loop, &p->look, CLOCK_MONOTONIC, 0, 1000, on_look,
                                               p);
        if (r >= 0)
                r = sd_event_add_time_relative(p->loop, &p->patience, CLOCK_MONOTONIC, 0, 1000,
                                               on_patience, p);
        if (r >= 0)
                r = sd_event_source_set_enabled(p->patience, SD_EVENT_OFF);
        return r;
}

static void plugin_free(struct plugin *p)
{
        struct kubelet *kubelet = TAKE_PTR(p->kubelet);

        watch_free(p->watch);
        events_free(p->events);
        web_free(p->web);
        tenants_free(p->tenants);
        order_drop(p->order);
        rpc_free(p->rpc);
        kubelet_free(kubelet);
        (void)sd_event_source_disable_unref(p->ask);
        (void)sd_event_source_disable_unref(p->look);
        (void)sd_event_source_disable_unref(p->patience);
        (void)sd_event_source_disable_unref(p->daemon_dir);
        alone_free(p->alone);
        (void)sd_event_unref(p->loop);
        free(p);
}

/* Asks for the pods of this node alone. */
static int say_which_pods(struct plugin *p)
{
        char node[800];
        const int r = web_escape(p->options->node, node, sizeof(node));

        (void)snprintf(p->which, sizeof(p->which), "fieldSelector=spec.nodeName%%3D%s&", node);
        p->pods = (struct watch_what){.kind = "pods",
                                      .which = p->which,
                                      .name = "this node's pods",
                                      .page = PODS_PAGE,
                                      .fields = pod_fields};
        return r;
}

static int reach_api_server(struct plugin *p)
{
        static const struct watch_told told = {
                .begin = on_list, .one = on_pod, .end = on_list_end, .changed = on_pods_changed};
        const struct plugin_options *o = p->options;
        int r = web_new(p->loop, &o->api, &p->web);

        if (r >= 0)
                r = events_new(p->web, o->node, &p->events);
        if (r >= 0)
                r = say_which_pods(p);
        if (r >= 0)
                r = watch_new(p->loop, p->web, &p->pods, &told, p, &p->watch);
        return r;
}

static void on_alone(void *userdata)
{
        struct plugin *p = userdata;
        int r = add_timers(p);

        if (r >= 0 && p->options->api.url[0])
                r = reach_api_server(p);
        if (r < 0)
                (void)sd_event_exit(p->loop, r);
}

int plugin_run(const struct plugin_options *options)
{
        static const struct rpc_method methods[] = {
                {"/v1beta1.DevicePlugin/GetDevicePluginOptions", serve_options},
                {"/v1beta1.DevicePlugin/ListAndWatch", serve_list},
                {"/v1beta1.DevicePlugin/GetPreferredAllocation", serve_preferred},
                {"/v1beta1.DevicePlugin/Allocate", serve_allocate},
                {"/v1beta1.DevicePlugin/PreStartContainer", serve_pre_start},
                {NULL, NULL},
        };
        struct plugin *p = calloc(1, sizeof(*p));
        int r;

        if (!p)
                return -ENOMEM;
        p->options = options;
        p->cards.devices = options->devices;
        r = sd_event_new(&p->loop);
        if (r >= 0)
                r = block_signals(p->loop);
        if (r >= 0)
                r = tenants_new(p->loop, options->dir, on_settled, p, &p->tenants);
        if (r >= 0)
                r = rpc_new(p->loop, methods, p, &p->rpc);
        if (r >= 0)
                r = kubelet_new(p->loop, p->rpc, options->kubelet_dir, options->endpoint,
                                options->resource, &p->kubelet);
        if (r >= 0)
                r = alone_new(p->loop, options->dir, on_alone, p, &p->alone);
        if (r >= 0)
                r = sd_event_loop(p->loop);
        plugin_free(p);
        return r;
}
