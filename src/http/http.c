/* http.c: owns when MHD runs, and which part of a request's target is its path. Must never wait. */
#include "http/http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

#include "base/macros.h"

struct http_loop {
        struct MHD_Daemon *http;
        sd_event_source *io, *timer;
};

static void run_in(struct http_loop *l, uint64_t usec)
{
        (void)sd_event_source_set_time_relative(l->timer, usec);
        (void)sd_event_source_set_enabled(l->timer, SD_EVENT_ONESHOT);
}

/* Lets MHD do what is ready, and sets the timer to its next deadline. */
static void run(struct http_loop *l)
{
        MHD_UNSIGNED_LONG_LONG ms;

        (void)MHD_run(l->http);
        if (MHD_get_timeout(l->http, &ms) == MHD_YES)
                run_in(l, ms * 1000);
        else
                (void)sd_event_source_set_enabled(l->timer, SD_EVENT_OFF);
}

static int on_ready(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        run(userdata);
        return 0;
}

static int on_timer(sd_event_source *src, uint64_t usec, void *userdata)
{
        run(userdata);
        return 0;
}

int http_loop_new(sd_event *event, struct MHD_Daemon *http, struct http_loop **ret)
{
        const union MHD_DaemonInfo *info = MHD_get_daemon_info(http, MHD_DAEMON_INFO_EPOLL_FD);
        struct http_loop *l = info ? calloc(1, sizeof(*l)) : NULL;
        int r;

        if (!l)
                return -ENOMEM;
        l->http = http;
        r = sd_event_add_io(event, &l->io, info->epoll_fd, EPOLLIN, on_ready, l);
        if (r >= 0)
                r = sd_event_add_time_relative(event, &l->timer, CLOCK_MONOTONIC, 0, 1, on_timer,
                                               l);
        if (r < 0) {
                http_loop_free(l);
                return r;
        }
        *ret = l;
        return 0;
}

void http_loop_wake(struct http_loop *l)
{
        run_in(l, 0);
}

void http_loop_free(struct http_loop *l)
{
        if (!l)
                return;
        (void)sd_event_source_disable_unref(l->io);
        (void)sd_event_source_disable_unref(l->timer);
        free(l);
}

const char *http_path(const char *target)
{
        static const char *const schemes[] = {"http://", "https://"};

        for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
                const size_t n = strlen(schemes[i]);
                const char *path;

                if (strncasecmp(target, schemes[i], n) != 0)
                        continue;
                path = strchr(target + n, '/');
                return path ? path : "/";
        }
        return target;
}
