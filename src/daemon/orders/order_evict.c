/* order_evict.c: owns the order to evict a program. Must never evict another user's. */
#include "daemon/orders/order_evict.h"

#include <errno.h>
#include <limits.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/history/history.h"
#include "daemon/ledger/event.h"
#include "daemon/state/answer.h"
#include "daemon/people/peer.h"
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

static int evict(struct client *c, const struct peer *by)
{
        struct server *s = c->server;
        int r;

        if (!peer_has_right(by, &c->peer))
                return -EACCES;
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
        const json_t *number = json_object_get(order, "pid");
        const json_int_t pid = json_integer_value(number);
        char who[HISTORY_WHO_MAX];
        struct client *c;
        uint64_t bytes;

        if (!json_is_integer(number) || pid <= 0 || pid > INT_MAX)
                return answer_error("evict takes the number of a process, \"pid\"");
        c = client_of_process(s, (pid_t)pid);
        bytes = c ? movable(c) : 0;
        switch (c ? evict(c, by) : -ESRCH) {
        case 0:
                log_info("process %d (%s) is told to leave the card, %s", (int)pid, c->name,
                         history_order(s, c, HISTORY_EVICT, by, who));
                return json_pack("{s:s, s:I}", "name", c->name, "bytes", (json_int_t)bytes);
        case -EACCES:
                return answer_error("process %d is another user's: only that user, the daemon's "
                                    "own user and root may evict it",
                                    (int)pid);
        case -EBUSY:
                return has_work((int)pid);
        case -EAGAIN:
                return starts((int)pid);
        case -EOPNOTSUPP:
                return answer_error("process %d is paused with --freeze park, so its memory stays "
                                    "on the card: resume it first",
                                    (int)pid);
        case -EPERM:
                return answer_error("mode off moves no memory: set another mode, with sublet set "
                                    "mode auto");
        case -ENOMEM:
                return answer_error("process %d cannot be evicted: the budget of host memory has "
                                    "no room for it; raise host_memory, or end another program",
                                    (int)pid);
        default:
                return answer_error("no program with pid %d shares a GPU under this daemon: sublet "
                                    "status shows the pids",
                                    (int)pid);
        }
}
