/* room_left.c: owns the answer to the question how much a client could allocate now. Must never
 * report more than a request would get: it uses the checks of requests, not a second ledger. */
#include "daemon/net/room_left.h"
#include "daemon/state/client.h"

#include "base/macros.h"
#include "daemon/ledger/allowance.h"
#include "daemon/ledger/permit.h"

#define STEP (2 * MIB) /* the unit of the card's memory */

uint64_t room_left_host(struct client *c)
{
        return MIN(c->host + sched_host_free(c->server->sched), allowance_host(c));
}

/* Does not count what idle clients of peer daemons may give to a request: nobody knows these bytes
 * in advance. */
static bool would_grant(struct client *c, unsigned gpu, uint64_t commit)
{
        char why[160];

        return permit_commit(c, gpu, commit, true, why) &&
               sched_commit_fits(c->server->sched, c->id, gpu, commit);
}

int room_left(struct client *c, const struct wire_message *m)
{
        struct wire_message answer = {.header = {WIRE_ROOM_LEFT, m->header.gpu, 0}};
        const unsigned gpu = (unsigned)c->gpu_of[m->header.gpu];
        uint64_t fits, too_much;
        struct sched_account_view v;
        int r = sched_account_view(c->server->sched, c->id, gpu, &v);

        if (r < 0)
                return r;
        fits = v.commit / STEP;
        too_much = MAX(c->server->gpus.list[gpu].total_bytes / STEP, fits) + 1;
        while (too_much - fits > 1) {
                const uint64_t middle = fits + (too_much - fits) / 2;

                if (would_grant(c, gpu, middle * STEP))
                        fits = middle;
                else
                        too_much = middle;
        }
        answer.ROOM_LEFT.commit = MAX(v.commit, fits * STEP);
        answer.ROOM_LEFT.host = room_left_host(c);
        answer.ROOM_LEFT.ask = m->ROOM.ask;
        client_send(c, &answer);
        return 0;
}
