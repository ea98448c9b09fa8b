/* result.c: owns the memory of a result, and what a client's list of bursts means. */
#include <stdlib.h>

#include "model.h"

void result_wanted(struct model_client *c, uint64_t now_ns, uint64_t alone_ns)
{
        if (c->n_bursts == c->size_bursts) {
                c->size_bursts = c->size_bursts ? 2 * c->size_bursts : 8;
                c->bursts = reallocarray(c->bursts, c->size_bursts, sizeof(*c->bursts));
                if (!c->bursts)
                        abort();
        }
        c->bursts[c->n_bursts++] = (struct burst){.wanted_ns = now_ns,
                                                  .begun_ns = NOT_YET,
                                                  .ended_ns = NOT_YET,
                                                  .alone_ns = alone_ns};
}

void result_begun(struct model_client *c, uint64_t now_ns)
{
        struct burst *b = &c->bursts[c->n_bursts - 1];

        if (b->begun_ns == NOT_YET)
                b->begun_ns = now_ns;
}

void result_ended(struct model_client *c, uint64_t now_ns)
{
        c->bursts[c->n_bursts - 1].ended_ns = now_ns;
}

void result_waited(struct model_client *c, uint64_t ns)
{
        if (c->n_waits == c->size_waits) {
                c->size_waits = c->size_waits ? 2 * c->size_waits : 8;
                c->waits = reallocarray(c->waits, c->size_waits, sizeof(*c->waits));
                if (!c->waits)
                        abort();
        }
        c->waits[c->n_waits++] = ns;
}

void model_free(struct model_result *r)
{
        for (unsigned i = 0; r->clients && i < r->n_clients; i++) {
                free(r->clients[i].waits);
                free(r->clients[i].bursts);
        }
        free(r->clients);
        *r = (struct model_result){0};
}
