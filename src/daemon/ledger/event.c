/* event.c: owns the frame of each event of the scheduler: clears the list of actions before the
 * event, and sends the actions' messages after it. Must never call the scheduler while carrying its
 * actions out. */
#include "daemon/ledger/event.h"
#include "daemon/state/client.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/hand/hand.h"
#include "daemon/history/history.h"
#include "daemon/ledger/entitlement.h"
#include "daemon/metrics/tally.h"

void event_begin(struct server *s)
{
        s->actions.n = 0;
        s->actions.more = false;
}

/* ---- messages to clients ---- */

static void do_limit(struct server *s, struct client *c, const struct sched_action *a)
{
        struct wire_message m = {
                .header = {WIRE_LIMIT, (uint16_t)c->accounts[a->gpu].ordinal, a->limit.sequence},
                .LIMIT = {.commit = a->limit.commit,
                          .backed = a->limit.backed,
                          .unevictable = a->limit.unevictable,
                          .visible_bytes = MIN(a->limit.visible, entitlement_cap(c))},
        };
        const struct pass *p = &s->pass;

        c->accounts[a->gpu].limit_told = a->limit.backed;
        if (p->to == c && p->gpu == a->gpu) {
                m.LIMIT.pass_bytes = p->bytes;
                client_send_with(c, &m, p->fds, p->n);
        } else {
                client_send(c, &m);
        }
}

static void do_grant(struct server *s, struct client *c, const struct sched_action *a)
{
        struct wire_message m = {.header = {WIRE_GRANT, WIRE_NO_GPU, 0},
                                 .GRANT.lease = a->lease.lease};

        client_send(c, &m);
        tally_granted(c);
}

static void do_revoke(struct server *s, struct client *c, const struct sched_action *a)
{
        struct wire_message m = {.header = {WIRE_REVOKE, WIRE_NO_GPU, 0},
                                 .REVOKE = {a->lease.lease, a->lease.patience_ns}};

        client_send(c, &m);
}

void event_refuse(struct client *c, unsigned ordinal, enum wire_refusal code, uint32_t of,
                  const char *text)
{
        struct wire_message m = {
                .header = {WIRE_REFUSED, (uint16_t)ordinal, 0},
                .REFUSED = {.magic = WIRE_MAGIC, .code = code, .of = of, .protocol = WIRE_VERSION},
        };

        (void)snprintf(m.REFUSED.text, sizeof(m.REFUSED.text), "%s", text);
        client_send(c, &m);
        if (code == WIRE_REFUSED_COMMIT || code == WIRE_REFUSED_UNEVICTABLE)
                tally_refused(c, ordinal);
        if (ordinal < WIRE_GPUS_MAX && c->gpu_of[ordinal] >= 0)
                history_refused(c, (unsigned)c->gpu_of[ordinal], code);
}

static void refuse_commit(struct server *s, struct client *c, const struct sched_action *a)
{
        const unsigned gpu = (unsigned)c->accounts[a->gpu].ordinal;
        struct sched_gpu_view v = {0};
        char text[160];

        switch (a->refuse.lacks) {
        case SCHED_LACKS_HOST:
                event_refuse(c, gpu, WIRE_REFUSED_COMMIT, a->refuse.of,
                             "the daemon may promise no more host memory: end idle programs, or "
                             "raise its key host_memory");
                break;
        case SCHED_LACKS_FOREIGN:
                (void)sched_gpu_view(s->sched, a->gpu, &v);
                (void)snprintf(text, sizeof(text),
                               "programs outside its daemon hold %llu MiB of the GPU: end them, or "
                               "run all under one daemon (`subletd --shared`)",
                               (unsigned long long)(sub_sat(v.total, v.capacity) / MIB));
                event_refuse(c, gpu, WIRE_REFUSED_COMMIT, a->refuse.of, text);
                break;
        default:
                event_refuse(c, gpu, WIRE_REFUSED_COMMIT, a->refuse.of,
                             "the GPU has no room for it beside memory that cannot give way: end "
                             "other programs");
                break;
        }
}

static void do_refuse(struct server *s, struct client *c, const struct sched_action *a)
{
        unsigned gpu = (unsigned)c->accounts[a->gpu].ordinal;

        switch (a->refuse.code) {
        case -ENOMEM:
                refuse_commit(s, c, a);
                break;
        case -EBUSY:
                event_refuse(c, gpu, WIRE_REFUSED_EXPORT, a->refuse.of,
                             "with this much memory kept on the GPU others could not run");
                break;
        default:
                event_refuse(
                        c, gpu, WIRE_REFUSED_UNEVICTABLE, a->refuse.of,
                        "the GPU has no room for so much memory that cannot be moved beside its "
                        "programs: end some of them, or use less");
                break;
        }
}

static void do_exported(struct server *s, struct client *c, const struct sched_action *a)
{
        struct wire_message m = {
                .header = {WIRE_EXPORTED, (uint16_t)c->accounts[a->gpu].ordinal, 0},
                .EXPORTED.bytes = a->exported,
        };

        client_send(c, &m);
}

static void do_spare(struct server *s, struct client *c, const struct sched_action *a)
{
        struct wire_message m = {
                .header = {WIRE_SPARE, (uint16_t)c->accounts[a->gpu].ordinal, 0},
        };

        client_send(c, &m);
}

static void do_contested(struct server *s, struct client *c, const struct sched_action *a)
{
        static const enum wire_contested as[] = {[SCHED_THROTTLE_SHORT] = WIRE_CONTESTED_NOW,
                                                 [SCHED_THROTTLE_AHEAD] = WIRE_CONTESTED_MAY};
        struct wire_message m = {.header = {WIRE_CONTESTED, WIRE_NO_GPU, 0},
                                 .CONTESTED.contested = as[a->throttle]};

        client_send(c, &m);
}

static void do_slice(struct server *s, struct client *c, const struct sched_action *a)
{
        struct wire_message m = {.header = {WIRE_SLICE, WIRE_NO_GPU, 0},
                                 .SLICE.slice_ns = a->slice_ns};

        client_send(c, &m);
}

void event_note_preempted(struct client *c, bool off)
{
        const uint64_t now = clock_now_ns();

        if (c->hand.off && !off)
                c->hand.off_ns += now - c->hand.since_ns;
        c->hand.times += off && !c->hand.off;
        c->hand.off = off;
        c->hand.since_ns = now;
}

static void do_preempt(struct server *s, struct client *c, const struct sched_action *a)
{
        if (!c->hand.offered)
                return;
        event_note_preempted(c, a->preempt);
        hand_order(s->hand, c->id, a->preempt);
}

static void do_prompt(struct server *s, struct client *c, const struct sched_action *a)
{
        struct wire_message m = {.header = {WIRE_PROMPT, WIRE_NO_GPU, 0},
                                 .PROMPT.prompt = a->prompt};

        client_send(c, &m);
}

static void do_overdue(struct server *s, struct client *c, const struct sched_action *a)
{
        int r;

        log_warning("process %d (%s) does not give way: others go on without its memory",
                    (int)c->peer.pid, c->name);
        if (!entitlement_kills(c) || c->peer.pidfd < 0)
                return;
        r = peer_kill(c->peer.pidfd, SIGKILL);
        if (r < 0)
                log_warning("cannot kill process %d: %s", (int)c->peer.pid, strerror(-r));
}

static const struct performer {
        void (*perform)(struct server *s, struct client *c, const struct sched_action *a);
        bool about_gpu;
} performers[] = {
        [SCHED_DO_LIMIT] = {do_limit, true},          [SCHED_DO_GRANT] = {do_grant, false},
        [SCHED_DO_REVOKE] = {do_revoke, false},       [SCHED_DO_REFUSE] = {do_refuse, true},
        [SCHED_DO_CONTESTED] = {do_contested, false}, [SCHED_DO_OVERDUE] = {do_overdue, false},
        [SCHED_DO_EXPORTED] = {do_exported, true},    [SCHED_DO_SPARE] = {do_spare, true},
        [SCHED_DO_SLICE] = {do_slice, false},         [SCHED_DO_PREEMPT] = {do_preempt, false},
        [SCHED_DO_PROMPT] = {do_prompt, false},
};

/* True if the action takes a client off the GPU, so that another one can run. */
static bool clears_the_gpu(const struct sched_action *a)
{
        return a->type == SCHED_DO_PREEMPT && a->preempt;
}

static void carry_out(struct server *s, bool clears)
{
        for (unsigned i = 0; i < s->actions.n; i++) {
                const struct sched_action *a = &s->actions.list[i];
                struct client *c = clears_the_gpu(a) == clears ? server_find(s, a->client) : NULL;

                if (c && (!performers[a->type].about_gpu || c->accounts[a->gpu].ordinal >= 0))
                        performers[a->type].perform(s, c, a);
        }
}

/* Carries out the actions. Sending may mark a client as dropped; the sweep tells the scheduler
 * later. */
void event_end(struct server *s)
{
        for (;;) {
                carry_out(s, true);
                carry_out(s, false);
                if (!s->actions.more)
                        break;
                event_begin(s);
                sched_pump(s->sched, clock_now_ns(), &s->actions);
        }
        event_begin(s); /* an action is carried out only once */
        history_event(s);
}
