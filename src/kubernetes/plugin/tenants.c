/* tenants.c: owns the file conf.d/50-kubernetes.conf of the daemon. Must never leave the daemon
 * without the classes of others because one pod asks for too much. */
#include "kubernetes/plugin/tenants.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ask/conf_folder.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/daemon_paths.h"
#include "base/text.h"
#include "kubernetes/plugin/pod_classes.h"
#include "kubernetes/plugin/order.h"

#define NAME         "50-kubernetes.conf"
#define AGAIN_US     UINT64_C(30000000) /* wait after a failure that time may heal */
#define PODS_MAX     2048u
#define INSTANCE_MAX 32

struct tenant {
        struct pod pod;
        bool seen, told_left; /* told_left: the log says that it lost its minimum */
};

struct tenants {
        sd_event *loop;
        const char *dir;
        void (*settled)(void *userdata);
        void *userdata;
        struct tenant *list;
        size_t n, room;
        bool complete; /* the pods were listed once: before that nothing is told */
        uint64_t card_bytes;
        char instance[INSTANCE_MAX];
        bool dirty, failed; /* failed: the daemon is told nothing before AGAIN_US have passed */
        bool refused;       /* failed because of what the file says: other pods may mend it */
        bool told_full;
        unsigned without, minima;
        bool *left;       /* pods that go without their minimum in this attempt, by place */
        struct pod *sent; /* pods of this attempt, the oldest first */
        size_t n_sent;
        char *sending;
        struct order *order;
        sd_event_source *again;
        char problem[320];
};

static void attempt(struct tenants *t);

/* ---- the pods ---- */

static struct tenant *find(const struct tenants *t, const char *uid)
{
        for (size_t i = 0; i < t->n; i++)
                if (strcmp(t->list[i].pod.uid, uid) == 0)
                        return &t->list[i];
        return NULL;
}

const struct pod *tenants_find(const struct tenants *t, const char *uid)
{
        const struct tenant *found = find(t, uid);

        return found ? &found->pod : NULL;
}

void tenants_begin(struct tenants *t)
{
        for (size_t i = 0; i < t->n; i++)
                t->list[i].seen = false;
}

static void tell_full(struct tenants *t)
{
        if (!t->told_full)
                log_warning("more than %u pods of this node ask for GPUs: the daemon is not told "
                            "of the others",
                            PODS_MAX);
        t->told_full = true;
}

static void changed(struct tenants *t)
{
        t->dirty = true;
        if (t->refused)
                t->failed = t->refused = false;
}

bool tenants_put(struct tenants *t, const struct pod *pod)
{
        struct tenant *one = find(t, pod->uid);
        const bool same = one && one->pod.annotations == pod->annotations;

        if (!one && t->n == t->room) {
                const size_t room = MAX(t->room * 2, (size_t)64);
                struct tenant *bigger =
                        room > PODS_MAX ? NULL : realloc(t->list, room * sizeof(*bigger));

                if (!bigger) {
                        tell_full(t);
                        return false;
                }
                t->list = bigger;
                t->room = room;
        }
        if (!one) {
                one = &t->list[t->n++];
                *one = (struct tenant){0};
        }
        one->pod = *pod;
        one->seen = true;
        if (!same)
                changed(t);
        return !same;
}

void tenants_remove(struct tenants *t, const char *uid)
{
        struct tenant *one = find(t, uid);

        if (!one)
                return;
        *one = t->list[--t->n];
        changed(t);
}

void tenants_end(struct tenants *t)
{
        for (size_t i = t->n; i-- > 0;)
                if (!t->list[i].seen) {
                        t->list[i] = t->list[--t->n];
                        changed(t);
                }
        if (!t->complete)
                t->dirty = true; /* the file may have pods of an earlier plugin */
        t->complete = true;
}

/* ---- the file ---- */

static int write_file(const struct tenants *t, const char *text)
{
        _cleanup_close_ int folder = -EBADF;
        char path[512];

        (void)snprintf(path, sizeof(path), "%s/" PATHS_CONFIG, t->dir);
        folder = open(path, O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (folder < 0)
                return -errno;
        return folder_put(folder, "." NAME, NAME, text, strlen(text));
}

/* ---- telling ---- */

static void end_attempt(struct tenants *t)
{
        free(t->left);
        free(t->sent);
        free(t->sending);
        t->left = NULL;
        t->sent = NULL;
        t->sending = NULL;
}

static int on_again(sd_event_source *source, uint64_t usec, void *userdata)
{
        struct tenants *t = userdata;

        t->failed = t->refused = false;
        tenants_tell(t);
        return 0;
}

static void __attribute__((format(printf, 2, 3)))
fail_tenants(struct tenants *t, const char *format, ...)
{
        char problem[sizeof(t->problem)];
        va_list args;

        va_start(args, format);
        (void)vsnprintf(problem, sizeof(problem), format, args);
        va_end(args);
        if (strcmp(problem, t->problem) != 0) {
                (void)strcpy(t->problem, problem);
                log_warning("the daemon is not told of this node's pods: %s; trying again each "
                            "30 s",
                            problem);
        }
        end_attempt(t);
        t->dirty = t->failed = true;
        (void)sd_event_source_set_time_relative(t->again, AGAIN_US);
        (void)sd_event_source_set_enabled(t->again, SD_EVENT_ONESHOT);
        t->settled(t->userdata);
}

static void log_left(struct tenants *t)
{
        for (size_t i = 0; i < t->n_sent; i++) {
                struct tenant *one = find(t, t->sent[i].uid);

                if (!one)
                        continue;
                if (t->left[i] && !one->told_left)
                        log_warning("pod %.100s/%.100s goes without its minimum: those of older "
                                    "pods and of other classes leave no room for it",
                                    one->pod.namespace, one->pod.name);
                one->told_left = t->left[i];
        }
}

static void succeed(struct tenants *t)
{
        if (t->problem[0])
                log_notice("the daemon is told of this node's pods again");
        t->problem[0] = '\0';
        log_left(t);
        end_attempt(t);
        if (t->dirty)
                tenants_tell(t);
        else
                t->settled(t->userdata);
}

/* The daemon refuses the file even without minima, so something else is wrong, such as its own
 * configuration. The whole file stays, and counts once that is mended. */
static void give_up(struct tenants *t, const char *reason)
{
        char shown[161];
        char *whole;
        unsigned minima;

        whole = classes_text(t->sent, t->n_sent, t->card_bytes, 0, t->left, &minima);
        if (whole)
                (void)write_file(t, whole);
        free(whole);
        fail_tenants(t, "it refuses %s/" PATHS_CONFIG "/" NAME ": %s", t->dir,
                     text_copy(shown, sizeof(shown), reason));
        t->refused = true;
}

static void on_reloaded(int r, json_t *answer, void *userdata)
{
        struct tenants *t = userdata;
        const char *error = json_string_value(json_object_get(answer, "error"));

        t->order = NULL;
        if (r < 0) {
                fail_tenants(t, "reload: %s", strerror(-r));
        } else if (!error) {
                succeed(t);
        } else if (t->minima == 0) {
                give_up(t, error);
        } else {
                log_debug("the daemon refuses the pods' classes with %u minima: %s", t->minima,
                          error);
                t->without++;
                attempt(t);
        }
}

static void attempt(struct tenants *t)
{
        int r;

        free(t->sending);
        t->sending =
                classes_text(t->sent, t->n_sent, t->card_bytes, t->without, t->left, &t->minima);
        r = t->sending ? write_file(t, t->sending) : -ENOMEM;
        if (r < 0) {
                fail_tenants(t, "%s/" PATHS_CONFIG "/" NAME ": %s", t->dir, strerror(-r));
                return;
        }
        r = order_give(t->loop, t->dir, json_pack("{s:s}", "order", "reload"), on_reloaded, t,
                       &t->order);
        if (r < 0)
                fail_tenants(t, "reload: %s", strerror(-r));
}

void tenants_tell(struct tenants *t)
{
        if (!t->complete || !t->dirty || t->failed || t->order || !t->instance[0])
                return;
        t->n_sent = t->n;
        t->sent = calloc(t->n + 1, sizeof(*t->sent));
        t->left = calloc(t->n + 1, sizeof(*t->left));
        if (!t->sent || !t->left) {
                fail_tenants(t, "out of memory");
                return;
        }
        for (size_t i = 0; i < t->n; i++)
                t->sent[i] = t->list[i].pod;
        classes_sort(t->sent, t->n_sent);
        t->dirty = false;
        t->without = 0;
        attempt(t);
}

bool tenants_settled(const struct tenants *t)
{
        return t->complete && !t->order && (!t->dirty || t->failed);
}

void tenants_serve(struct tenants *t, const char *instance, uint64_t card_bytes)
{
        if (strcmp(instance, t->instance) != 0 || card_bytes != t->card_bytes) {
                (void)snprintf(t->instance, sizeof(t->instance), "%s", instance);
                t->card_bytes = card_bytes;
                t->dirty = true;
                t->failed = t->refused = false;
        }
        tenants_tell(t);
}

int tenants_new(sd_event *loop, const char *dir, void (*settled)(void *userdata), void *userdata,
                struct tenants **ret)
{
        struct tenants *t = calloc(1, sizeof(*t));
        int r;

        if (!t)
                return -ENOMEM;
        *t = (struct tenants){.loop = loop, .dir = dir, .settled = settled, .userdata = userdata};
        r = sd_event_add_time_relative(loop, &t->again, CLOCK_MONOTONIC, 0, 0, on_again, t);
        if (r < 0) {
                free(t);
                return r;
        }
        (void)sd_event_source_set_enabled(t->again, SD_EVENT_OFF);
        *ret = t;
        return 0;
}

void tenants_free(struct tenants *t)
{
        if (!t)
                return;
        order_drop(t->order);
        end_attempt(t);
        (void)sd_event_source_disable_unref(t->again);
        free(t->list);
        free(t);
}
