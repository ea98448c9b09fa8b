/* order.c: owns a conversation of one order and one answer with the daemon. Must never wait for the
 * answer. */
#include "kubernetes/plugin/order.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#include "ask/ask.h"

#define ANSWER_MAX (4u << 20) /* bytes of a status with thousands of programs */

struct order {
        struct ask_talk talk;
        sd_event_source *on_more, *on_late;
        order_told told;
        void *userdata;
};

void order_drop(struct order *o)
{
        if (!o)
                return;
        (void)sd_event_source_disable_unref(o->on_more);
        (void)sd_event_source_disable_unref(o->on_late);
        ask_end(&o->talk);
        free(o);
}

static void end(struct order *o, int r, json_t *answer)
{
        const order_told told = o->told;
        void *userdata = o->userdata;

        order_drop(o);
        told(r, answer, userdata);
        json_decref(answer);
}

static int on_more(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
        struct order *o = userdata;
        json_t *answer = NULL;
        const int r = ask_more(&o->talk, false, &answer);

        if (r != 0)
                end(o, r < 0 ? r : 0, answer);
        return 0;
}

static int on_late(sd_event_source *source, uint64_t usec, void *userdata)
{
        end(userdata, -ETIMEDOUT, NULL);
        return 0;
}

int order_give(sd_event *loop, const char *dir, json_t *order, order_told told, void *userdata,
               struct order **ret)
{
        struct order *o = calloc(1, sizeof(*o));
        int r = o && order ? ask_begin(dir, PATHS_NAMED, order, false, &o->talk) : -ENOMEM;

        json_decref(order);
        if (r < 0) {
                free(o);
                return r;
        }
        o->talk.most = ANSWER_MAX;
        o->told = told;
        o->userdata = userdata;
        r = sd_event_add_io(loop, &o->on_more, o->talk.fd, EPOLLIN, on_more, o);
        if (r >= 0)
                r = sd_event_add_time_relative(loop, &o->on_late, CLOCK_MONOTONIC,
                                               ASK_TIMEOUT_S * UINT64_C(1000000), 0, on_late, o);
        if (r < 0) {
                order_drop(o);
                return r;
        }
        *ret = o;
        return 0;
}
