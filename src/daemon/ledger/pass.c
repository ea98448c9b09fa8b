/* pass.c: owns the descriptors that came with the message being handled. Must never hand memory to
 * another user, nor keep it past the event.
 * Why: docs/decisions.md, "Evicted memory is handed over to the next process of the same user". */
#include "daemon/state/pass.h"

#include <unistd.h>

#include "base/macros.h"
#include "daemon/state/client.h"
#include "daemon/state/server.h"

static void keep(struct pass *p, unsigned n)
{
        while (p->n > n)
                (void)close(p->fds[--p->n]);
}

void pass_begin(struct server *s, struct client *from, unsigned gpu, uint64_t bytes)
{
        s->pass.from = from;
        s->pass.to = NULL;
        s->pass.gpu = gpu;
        s->pass.bytes = bytes;
        if (bytes == 0)
                keep(&s->pass, 0);
}

void pass_match(struct server *s)
{
        struct pass *p = &s->pass;
        const uint64_t bytes = p->bytes;

        if (!p->from || bytes == 0) {
                keep(p, 0); /* no memory is handed over in this event */
                return;
        }
        for (unsigned i = 0; i < s->actions.n && p->n && !p->to; i++) {
                const struct sched_action *a = &s->actions.list[i];
                struct client *c = server_find(s, a->client);
                uint64_t raise;

                if (a->type != SCHED_DO_LIMIT || a->gpu != p->gpu || !c || c == p->from ||
                    c->accounts[a->gpu].ordinal < 0 || !peer_same_tenant(&c->peer, &p->from->peer))
                        continue;
                raise = sub_sat(a->limit.backed, c->accounts[a->gpu].limit_told);
                if (raise < bytes)
                        continue;
                p->to = c;
                keep(p, (unsigned)MIN(raise / bytes, p->n));
        }
        if (!p->to)
                keep(p, 0);
}

void pass_end(struct server *s)
{
        keep(&s->pass, 0);
        s->pass.from = s->pass.to = NULL;
}
