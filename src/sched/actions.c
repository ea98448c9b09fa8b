/* actions.c: owns the messages to clients. State changes mark a client; here each mark becomes a
 * message, at most one of a kind for each client and event. Must never change a decision. */
#include <errno.h>
#include <string.h>

#include "sched/internal.h"

void actions_mark(struct sched *s, struct client *c)
{
        if (c->dirty)
                return;
        c->dirty = true;
        /* A client is in the list at most once, and actions_emit() compacts the list. So it never
         * holds more than twice the number of clients. */
        s->dirty[s->n_dirty++] = (uint32_t)(c - s->client);
}

static struct sched_action *next(struct sched *s, struct sched_actions *out, struct client *c,
                                 enum sched_action_type type, unsigned gpu)
{
        struct sched_action *a;

        if (out->n == SCHED_ACTIONS_MAX)
                return NULL;
        a = &out->list[out->n++];
        *a = (struct sched_action){.type = type, .client = client_id(s, c), .gpu = gpu};
        return a;
}

static bool emit_account(struct sched *s, struct client *c, unsigned gpu, struct sched_actions *out)
{
        struct account *a = c->accounts[gpu];
        struct sched_action *o;

        if (a->limit_dirty && !a->silent) {
                o = next(s, out, c, SCHED_DO_LIMIT, gpu);
                if (!o)
                        return false;
                a->limit_dirty = false;
                o->limit.commit = a->commit;
                o->limit.backed = a->limit;
                o->limit.unevictable = a->unevictable_allowed;
                o->limit.visible = gpu_visible(s, &s->gpu[gpu]);
                o->limit.sequence = ++a->sequence;
        }
        if (a->refuse_commit) {
                o = next(s, out, c, SCHED_DO_REFUSE, gpu);
                if (!o)
                        return false;
                a->refuse_commit = false;
                o->refuse.of = a->refuse_commit_of;
                o->refuse.code = -ENOMEM;
                o->refuse.lacks = a->refuse_commit_lacks;
        }
        if (a->spare_dirty) {
                if (!next(s, out, c, SCHED_DO_SPARE, gpu))
                        return false;
                a->spare_dirty = false;
        }
        if (a->export_dirty) {
                o = next(s, out, c, SCHED_DO_EXPORTED, gpu);
                if (!o)
                        return false;
                a->export_dirty = false;
                o->exported = a->exported;
        }
        if (a->refuse_export) {
                o = next(s, out, c, SCHED_DO_REFUSE, gpu);
                if (!o)
                        return false;
                a->refuse_export = false;
                o->refuse.of = a->refuse_export_of;
                o->refuse.code = -EBUSY;
        }
        if (a->refuse_unevictable) {
                o = next(s, out, c, SCHED_DO_REFUSE, gpu);
                if (!o)
                        return false;
                a->refuse_unevictable = false;
                o->refuse.of = a->refuse_unevictable_of;
                o->refuse.code = -ENOSPC;
        }
        return true;
}

/* LIMIT goes before GRANT, so that the limit covers the grant. GRANT goes before REVOKE, because
 * REVOKE names the granted lease. PREEMPT goes first: a client must run to give way. */
static bool emit_client(struct sched *s, struct client *c, struct sched_actions *out)
{
        struct sched_action *o;
        unsigned gpu;

        if (c->preempted != c->preempt_sent) {
                o = next(s, out, c, SCHED_DO_PREEMPT, 0);
                if (!o)
                        return false;
                o->preempt = c->preempt_sent = c->preempted;
        }
        if (!c->lost) {
                FOR_EACH_GPU_OF (c, gpu)
                        if (!emit_account(s, c, gpu, out))
                                return false;
                if (c->send_grant) {
                        o = next(s, out, c, SCHED_DO_GRANT, 0);
                        if (!o)
                                return false;
                        c->send_grant = false;
                        o->lease.lease = c->lease;
                }
                if (c->send_revoke) {
                        o = next(s, out, c, SCHED_DO_REVOKE, 0);
                        if (!o)
                                return false;
                        c->send_revoke = false;
                        o->lease.lease = c->lease;
                        o->lease.patience_ns = c->revoke_patience_ns;
                }
                if (c->throttle != c->throttle_sent) {
                        o = next(s, out, c, SCHED_DO_CONTESTED, 0);
                        if (!o)
                                return false;
                        c->throttle_sent = c->throttle;
                        o->throttle = c->throttle;
                }
                if (c->prompt != c->prompt_sent) {
                        o = next(s, out, c, SCHED_DO_PROMPT, 0);
                        if (!o)
                                return false;
                        c->prompt_sent = o->prompt = c->prompt;
                }
                if (c->slice_ns != c->slice_sent_ns) {
                        o = next(s, out, c, SCHED_DO_SLICE, 0);
                        if (!o)
                                return false;
                        c->slice_sent_ns = c->slice_ns;
                        o->slice_ns = c->slice_ns;
                }
        }
        if (c->send_overdue) {
                o = next(s, out, c, SCHED_DO_OVERDUE, 0);
                if (!o)
                        return false;
                c->send_overdue = false;
        }
        return true;
}

void actions_emit(struct sched *s, struct sched_actions *out)
{
        out->more = false;
        while (s->first_dirty < s->n_dirty) {
                struct client *c = &s->client[s->dirty[s->first_dirty]];

                if (c->used && !emit_client(s, c, out)) {
                        out->more = true;
                        /* Move the remaining marks to the front, so that marks made before the next
                         * pump fit. */
                        s->n_dirty -= s->first_dirty;
                        memmove(s->dirty, s->dirty + s->first_dirty,
                                s->n_dirty * sizeof(*s->dirty));
                        s->first_dirty = 0;
                        return;
                }
                c->dirty = false;
                s->first_dirty++;
        }
        s->first_dirty = s->n_dirty = 0;
}
