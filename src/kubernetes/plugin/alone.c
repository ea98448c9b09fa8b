/* alone.c: owns the plugin's lock in the daemon's directory. Must never let a plugin begin that
 * does not hold it.
 * Why: docs/decisions.md, "One device plugin at a time serves a daemon". */
#include "kubernetes/plugin/alone.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/file_lock.h"
#include "base/log.h"

#define LOCK_FILE    "plugin.lock"
#define TRY_EVERY_US UINT64_C(200000)

struct alone {
        const char *dir;
        char path[PATH_MAX];
        void (*begin)(void *userdata);
        void *userdata;
        sd_event_source *timer;
        int fd;
        char problem[LOCK_HOLDER_MAX]; /* what was logged last: the holder's pid, or an error's
                                          number */
};

static void complain(struct alone *a, int r, const char *holder)
{
        char problem[LOCK_HOLDER_MAX];

        (void)snprintf(problem, sizeof(problem), "%.20s", holder);
        if (r != -EALREADY)
                (void)snprintf(problem, sizeof(problem), "%d", r);
        if (strcmp(problem, a->problem) == 0)
                return;
        (void)strcpy(a->problem, problem);
        if (r == -EALREADY)
                log_notice("another sublet-device-plugin (process %s) serves %s: this one waits "
                           "until it has ended",
                           holder, a->dir);
        else
                log_warning("cannot lock %s: %s; trying again", a->path, strerror(-r));
}

static int on_time(sd_event_source *source, uint64_t usec, void *userdata)
{
        struct alone *a = userdata;
        char holder[LOCK_HOLDER_MAX] = "";
        const int r = lock_take(a->path, &a->fd, holder);

        if (r == 0) {
                (void)lock_sign(a->fd);
                a->begin(a->userdata);
                return 0;
        }
        complain(a, r, holder);
        (void)sd_event_source_set_time_relative(source, TRY_EVERY_US);
        (void)sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
        return 0;
}

int alone_new(sd_event *loop, const char *dir, void (*begin)(void *userdata), void *userdata,
              struct alone **ret)
{
        struct alone *a = calloc(1, sizeof(*a));
        int r;

        if (!a)
                return -ENOMEM;
        *a = (struct alone){.dir = dir, .begin = begin, .userdata = userdata, .fd = -EBADF};
        (void)snprintf(a->path, sizeof(a->path), "%s/" LOCK_FILE, dir);
        r = sd_event_add_time_relative(loop, &a->timer, CLOCK_MONOTONIC, 0, 1000, on_time, a);
        if (r < 0) {
                free(a);
                return r;
        }
        *ret = a;
        return 0;
}

void alone_free(struct alone *a)
{
        if (!a)
                return;
        (void)sd_event_source_disable_unref(a->timer);
        cleanup_close(&a->fd);
        free(a);
}
