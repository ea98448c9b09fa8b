/* kubelet.c: owns the registration. Must never register before it serves: kubelet asks back before
 * it answers. */
#include "kubernetes/plugin/kubelet.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/text.h"
#include "kubernetes/plugin/deviceplugin.pb-c.h"

#define API_VERSION  "v1beta1"
#define REGISTER     "/v1beta1.Registration/Register"
#define ANSWER_S     10u
#define LOOK_MS      1000u /* between two looks, should inotify(7) have lost an event */
#define BACK_OFF_MS  100u
#define BACK_OFF_MAX 10000u
#define PATIENCE_NS  (2 * NSEC_PER_SEC) /* a kubelet that restarts is away for less */

/* Tells one kubelet.sock from the next. Inodes are soon used again, so the time of creation counts,
 * too. */
struct identity {
        dev_t device;
        ino_t inode;
        struct timespec made;
};

struct kubelet {
        sd_event *loop;
        struct rpc *rpc;
        const char *dir, *resource, *endpoint;
        char own[PATH_MAX], kubelets[PATH_MAX];
        sd_event_source *watch, *timer;
        struct identity asked, known; /* the one that we ask; the one that registered us */
        bool started, is_known, asking;
        uint64_t not_before_ns, away_ns; /* away_ns: since when we are not registered; 0: we are */
        unsigned back_off_ms;
        char problem[RPC_SENTENCE_MAX + 128];
};

static void look(struct kubelet *k);

static void complain(struct kubelet *k, const char *problem)
{
        const uint64_t now = clock_now_ns();
        char shown[sizeof(k->problem)];

        if (!k->away_ns)
                k->away_ns = now;
        if (now - k->away_ns < PATIENCE_NS || strcmp(k->problem, problem) == 0)
                return;
        (void)snprintf(k->problem, sizeof(k->problem), "%.500s", problem);
        log_warning("not registered with kubelet: %s; trying again",
                    text_copy(shown, sizeof(shown), problem));
}

static int on_time(sd_event_source *source, uint64_t usec, void *userdata)
{
        look(userdata);
        return 0;
}

static int on_change(sd_event_source *source, const struct inotify_event *event, void *userdata)
{
        struct kubelet *k = userdata;

        if (event->mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF))
                k->watch = sd_event_source_disable_unref(k->watch);
        look(k);
        return 0;
}

static void wait_ms(struct kubelet *k, uint64_t ms)
{
        (void)sd_event_source_set_time_relative(k->timer, ms * 1000);
        (void)sd_event_source_set_enabled(k->timer, SD_EVENT_ONESHOT);
}

static bool find_kubelet(const struct kubelet *k, struct identity *ret)
{
        struct stat st;

        if (stat(k->kubelets, &st) < 0 || !S_ISSOCK(st.st_mode))
                return false;
        *ret = (struct identity){st.st_dev, st.st_ino, st.st_mtim};
        return true;
}

static bool same(const struct identity *a, const struct identity *b)
{
        return a->device == b->device && a->inode == b->inode && a->made.tv_sec == b->made.tv_sec &&
               a->made.tv_nsec == b->made.tv_nsec;
}

/* kubelet removes all sockets of its directory when it starts, ours too. */
static bool serve(struct kubelet *k)
{
        char problem[512];
        int r;

        if (rpc_is_listening(k->rpc))
                return true;
        k->is_known = false;
        r = rpc_listen(k->rpc, k->own);
        if (r == 0)
                return true;
        (void)snprintf(problem, sizeof(problem), "%.400s: %s", k->own, strerror(-r));
        complain(k, problem);
        return false;
}

static void on_told(grpc_status_code code, const char *sentence, void *userdata)
{
        struct kubelet *k = userdata;

        k->asking = false;
        if (code == GRPC_STATUS_OK) {
                k->known = k->asked;
                k->is_known = true;
                k->back_off_ms = 0;
                k->problem[0] = '\0';
                k->away_ns = 0;
                log_notice("registered %s with kubelet", k->resource);
        } else {
                k->back_off_ms = MIN(MAX(k->back_off_ms * 2, BACK_OFF_MS), BACK_OFF_MAX);
                k->not_before_ns = clock_now_ns() + k->back_off_ms * NSEC_PER_MSEC;
                complain(k, sentence);
        }
        look(k);
}

static void ask(struct kubelet *k)
{
        V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
        V1beta1__RegisterRequest request = V1BETA1__REGISTER_REQUEST__INIT;
        uint8_t bytes[1024];

        options.pre_start_required = 1;
        options.get_preferred_allocation_available = 1;
        request.version = (char *)API_VERSION;
        request.endpoint = (char *)k->endpoint;
        request.resource_name = (char *)k->resource;
        request.options = &options;
        if (v1beta1__register_request__get_packed_size(&request) > sizeof(bytes))
                return; /* main.c bounds both names */
        k->asking = rpc_ask(k->rpc, k->kubelets, REGISTER, bytes,
                            v1beta1__register_request__pack(&request, bytes), ANSWER_S, on_told,
                            k) == 0;
}

static void look(struct kubelet *k)
{
        const uint64_t now = clock_now_ns();
        struct identity found;
        uint64_t next_ms = LOOK_MS;

        if (!k->started)
                return;
        if (!k->watch)
                (void)sd_event_add_inotify(k->loop, &k->watch, k->dir,
                                           IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM |
                                                   IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR,
                                           on_change, k);
        if (serve(k) && !k->asking) {
                if (!find_kubelet(k, &found)) {
                        k->is_known = false;
                        complain(k, "there is no kubelet.sock");
                } else if (!k->is_known || !same(&found, &k->known)) {
                        if (!same(&found, &k->asked)) { /* another one: it has not refused us */
                                k->not_before_ns = 0;
                                k->back_off_ms = 0;
                        }
                        if (now >= k->not_before_ns) {
                                k->asked = found;
                                ask(k);
                        } else {
                                next_ms = MIN((k->not_before_ns - now) / NSEC_PER_MSEC + 1,
                                              (uint64_t)LOOK_MS);
                        }
                }
        }
        wait_ms(k, next_ms);
}

void kubelet_lost(struct kubelet *k)
{
        if (!k->is_known)
                return;
        k->is_known = false;
        /* A kubelet that restarts makes its new socket soon; the old one would only refuse. */
        k->not_before_ns = clock_now_ns() + LOOK_MS / 2 * NSEC_PER_MSEC;
        look(k);
}

void kubelet_start(struct kubelet *k)
{
        if (k->started)
                return;
        k->started = true;
        look(k);
}

int kubelet_new(sd_event *loop, struct rpc *rpc, const char *dir, const char *endpoint,
                const char *resource, struct kubelet **ret)
{
        struct kubelet *k = calloc(1, sizeof(*k));
        int r;

        if (!k)
                return -ENOMEM;
        *k = (struct kubelet){
                .loop = loop, .rpc = rpc, .dir = dir, .endpoint = endpoint, .resource = resource};
        (void)snprintf(k->own, sizeof(k->own), "%s/%s", dir, endpoint);
        (void)snprintf(k->kubelets, sizeof(k->kubelets), "%s/kubelet.sock", dir);
        r = sd_event_add_time_relative(loop, &k->timer, CLOCK_MONOTONIC, 0, 1000, on_time, k);
        if (r < 0) {
                free(k);
                return r;
        }
        (void)sd_event_source_set_enabled(k->timer, SD_EVENT_OFF);
        *ret = k;
        return 0;
}

void kubelet_free(struct kubelet *k)
{
        if (!k)
                return;
        (void)sd_event_source_disable_unref(k->watch);
        (void)sd_event_source_disable_unref(k->timer);
        free(k);
}
