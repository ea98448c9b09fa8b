/* order_evict.c: owns the order to evict a program. Must never evict another user's. */
#include "daemon/orders/order_evict.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/history/history.h"
#include "daemon/ledger/event.h"
#include "daemon/state/answer.h"
#include "daemon/state/client.h"
#include "daemon/state/server.h"

/* Returns the bytes on all cards that can move. */
static uint64_t movable(const struct client *c)
{
        uint64_t sum = 0;

        for (unsigned gpu = 0; gpu < SCHED_GPUS_MAX; gpu++) {
                struct sched_account_view a;

                if (sched_account_view(c->server->sched, c->id, gpu, &a) == 0)
                        sum += sub_sat(a.usage.backed, a.exported);
        }
        return sum;
}

static int evict(struct client *c)
{
        struct server *s = c->server;
        int r;

        if (c->pause.ordered && c->frozen.mode == WIRE_FREEZE_PARK)
                return -EOPNOTSUPP;
        event_begin(s);
        r = sched_client_evict(s->sched, c->id, clock_now_ns(), &s->actions);
        event_end(s);
        return r;
}

static json_t *has_work(int pid)
{
        return answer_error("process %d has work on the GPU, and would come back at once: pause it "
                            "first, with sublet pause %d",
                            pid, pid);
}

/* A program that has just started may soon be idle: its library tests whether it can be frozen. */
static json_t *starts(int pid)
{
        json_t *answer = has_work(pid);

        (void)json_object_set_new(answer, "starting", json_true());
        return answer;
}

json_t *evict_order(struct server *s, json_t *order, const struct peer *by)
{
        json_t *answer = NULL;
        struct client *c = answer_program(
                s, order, by, "evict takes the number of a process, \"pid\"", "evict it", &answer);
        char who[HISTORY_WHO_MAX];
        uint64_t bytes;
        int pid, r;

        if (!c)
                return answer;
        pid = (int)c->peer.pid;
        bytes = movable(c);
        r = evict(c);
        switch (r) {
        case 0:
                log_info("process %d (%s) is told to leave the card, %s", pid, c->name,
                         history_order(s, c, HISTORY_EVICT, by, who));
                return json_pack("{s:s, s:I}", "name", c->name, "bytes", (json_int_t)bytes);
        case -EBUSY:
                return has_work(pid);
        case -EAGAIN:
                return starts(pid);
        case -EOPNOTSUPP:
                return answer_error("process %d is paused with --freeze park, so its memory stays "
                                    "on the card: resume it first",
                                    pid);
        case -EPERM:
                return answer_error("mode off moves no memory: set another mode, with sublet set "
                                    "mode auto");
        case -ENOMEM:
                return answer_error("process %d cannot be evicted: the budget of host memory has "
                                    "no room for it; raise host_memory, or end another program",
                                    pid);
        default:
                return answer_error("%s", strerror(-r));
        }
}
