/* daemon.c: fakes of src/daemon for unit tests: clients and events only keep a note of what
 * happens. */
#include "unit.h"

#include <errno.h>

#include "base/clock.h"
#include "daemon/hand/hand.h"
#include "daemon/history/history.h"
#include "daemon/ledger/event.h"
#include "daemon/lend/host_pool.h"
#include "daemon/ledger/card_figures.h"
#include "daemon/ledger/preemption.h"
#include "daemon/metrics/tally.h"
#include "daemon/mps/mps_servers.h"
#include "fakes/daemon.h"

#define WEAK __attribute__((weak))

bool event_open;
WEAK void event_begin(struct server *s)
{
        assert_false(event_open);
        event_open = true;
        s->actions.n = 0;
        s->actions.more = false;
}

unsigned events;
WEAK void event_end(struct server *s)
{
        assert_true(event_open);
        event_open = false;
        events++;
}

WEAK void client_drop(struct client *c, const char *why)
{
        c->dropped = true;
}

WEAK void client_mark_gone(struct client *c)
{
        c->gone = true;
}

bool reader_looks;
unsigned reader_asks;
WEAK bool reader_ask(struct reader *r)
{
        reader_asks++;
        return reader_looks;
}

uint64_t most = UINT64_MAX;
WEAK uint64_t figures_most(struct server *s, const struct client *c, unsigned gpu)
{
        return most;
}

unsigned pool_looks;
WEAK enum host_pool_lack host_pool_lack(const struct client *c, uint64_t bytes)
{
        pool_looks++;
        return HOST_POOL_LACKS_OF_ALL;
}

bool pool_helps = true;
WEAK bool host_pool_helps(const struct client *other, const struct client *c,
                          enum host_pool_lack lack)
{
        return pool_helps;
}

unsigned pools_attached;
WEAK void host_pool_attached(struct client *c)
{
        pools_attached++;
}

WEAK int host_pool_fill(struct client *c, const struct wire_message *m)
{
        return 0;
}

WEAK int mps_servers_join(struct client *c, const struct wire_message *m)
{
        return 0;
}

unsigned mps_seen;
WEAK void mps_servers_seen(struct client *c, unsigned gpu)
{
        mps_seen++;
}

WEAK void history_client(struct client *c)
{
}

WEAK void history_event(struct server *s)
{
}

WEAK void history_refused(struct client *c, unsigned gpu, unsigned code)
{
}

WEAK const char *history_order(struct server *s, struct client *of, enum history_order what,
                               const struct peer *by, char ret_who[static HISTORY_WHO_MAX])
{
        return "";
}

WEAK bool peer_has_right(const struct peer *by, const struct peer *of)
{
        return by->trusted || by->uid == of->uid;
}

WEAK int peer_cgroup(const struct peer *p, char ret[static PEER_CGROUP_MAX])
{
        return -ESRCH;
}

WEAK uint64_t peer_age_ns(pid_t pid)
{
        return AGE_NS;
}

WEAK void tally_usage(struct client *c, unsigned gpu, uint64_t moved_out, uint64_t moved_in)
{
}

WEAK void tally_granted(struct client *c)
{
}

WEAK void tally_drained(struct client *c, uint64_t lease)
{
}

WEAK void tally_refused(struct client *c, unsigned ordinal)
{
}

WEAK void tally_ended(struct client *c)
{
}

unsigned hands_offered, hand_orders;
WEAK void preemption_offer(struct client *c)
{
        hands_offered++;
}

WEAK void hand_order(struct hand *h, uint64_t id, bool off)
{
        hand_orders++;
}
