/* point.c: owns sends and receives. A rank's ring has an area for each other rank, in each part. A
 * message goes through the area in pieces; piece i uses part i % RING_PARTS.
 *
 * A group becomes launches of one kernel (exchange.h), with a wait for any peer before each launch
 * but the first. So the messages of a group progress beside each other in one stream. Streams do
 * not help here, because several may share one queue of the GPU.
 * Why: docs/decisions.md, "Sends and receives wait for any peer". */
#include <stdbool.h>
#include <stdlib.h>

#include "base/macros.h"
#include "ranks/exchange/exchange.h"
#include "ranks/steps/copy.h"
#include "ranks/steps/flags.h"
#include "ranks/steps/collectives.h"

#define AREA_ALIGN 512u

_Static_assert(EXCHANGE_PARTS == RING_PARTS, "the kernel has the ring's parts");

/* The directions of messages, seen from this rank. */
enum direction { RECEIVES, SENDS, DIRECTIONS };

struct group {
        const struct ring *r;
        const struct steps_call *calls;
        unsigned n;
        unsigned messages[MEET_RANKS_MAX][DIRECTIONS];
        unsigned chains, longest; /* longest: the most messages of a chain */
        unsigned bells;           /* of the peers: a bit for each */
        struct exchange_place place;
};

/* A part of a group: some messages of each chain. */
struct table {
        struct exchange_head *head;
        struct exchange_chain *chain;
        struct exchange_message *message;
        unsigned chains, messages;
        uint64_t pieces, largest;
};

static uint64_t bytes_of(const struct steps_call *c)
{
        return c->count * reduce_bytes(c->op.type);
}

static uint64_t table_bytes(const struct ring *r)
{
        return r->bytes / RING_TABLE_PART;
}

static uint64_t part_bytes(const struct ring *r)
{
        return (r->bytes - table_bytes(r)) / RING_PARTS;
}

static uint64_t area_bytes(const struct ring *r)
{
        return part_bytes(r) / (uint64_t)MAX(r->n - 1, 1) / AREA_ALIGN * AREA_ALIGN;
}

/* The area in `from`'s ring for `to`, in part 0. */
static CUdeviceptr area(const struct ring *r, int from, int to)
{
        return r->of[from] + (uint64_t)(to < from ? to : to - 1) * area_bytes(r);
}

/* ---- a rank's messages to itself ---- */

/* Copies what this rank sends to itself: the k-th send is for the k-th receive. */
static CUresult run_own(const struct ring *r, const struct steps_call *calls, unsigned n,
                        CUstream stream)
{
        unsigned to = 0;
        CUresult e = CUDA_SUCCESS;

        for (unsigned i = 0; i < n && e == CUDA_SUCCESS; i++) {
                if (calls[i].kind != STEPS_SEND || calls[i].peer != r->rank)
                        continue;
                while (to < n && (calls[to].kind != STEPS_RECEIVE || calls[to].peer != r->rank))
                        to++;
                if (to == n || bytes_of(&calls[to]) != bytes_of(&calls[i]))
                        return CUDA_ERROR_INVALID_VALUE;
                e = copy_in_stream(r, calls[to++].to, calls[i].from, bytes_of(&calls[i]), stream);
        }
        return e;
}

/* ---- the messages between ranks ---- */

static enum direction direction_of(const struct steps_call *c)
{
        return c->kind == STEPS_SEND ? SENDS : RECEIVES;
}

static bool is_message(const struct group *g, const struct steps_call *c)
{
        return c->peer != g->r->rank && bytes_of(c) > 0;
}

static struct group group_of(const struct ring *r, const struct steps_call *calls, unsigned n)
{
        struct group g = {.r = r, .calls = calls, .n = n};

        for (unsigned i = 0; i < n; i++) {
                unsigned *messages = &g.messages[calls[i].peer][direction_of(&calls[i])];

                if (!is_message(&g, &calls[i]))
                        continue;
                g.chains += *messages == 0;
                g.longest = MAX(g.longest, ++*messages);
                g.bells |= 1u << ring_bell_of(calls[i].peer);
        }
        if (g.chains == 0)
                return g;
        g.place = (struct exchange_place){.table = r->of[r->rank] + r->bytes - table_bytes(r),
                                          .per_piece = area_bytes(r),
                                          .part_stride = part_bytes(r),
                                          .flag_stride = ring_flag(r, RING_SENT, 1, 0, 0) -
                                                         ring_flag(r, RING_SENT, 0, 0, 0),
                                          .bells = ring_bells(r, r->rank)};
        return g;
}

static struct exchange_chain chain_with(const struct ring *r, int peer, enum direction d)
{
        const int from = d == SENDS ? r->rank : peer, to = d == SENDS ? peer : r->rank;

        return (struct exchange_chain){
                .area = area(r, from, to),
                .take = ring_flag(r, d == SENDS ? RING_TAKEN : RING_SENT, 0, peer, r->rank),
                .give = ring_flag(r, d == SENDS ? RING_SENT : RING_TAKEN, 0, r->rank, peer),
                .bell = ring_bells(r, peer) + ring_bell_of(r->rank),
                .sends = d == SENDS};
}

/* Adds the messages [first, first + some) of a chain. */
static void add_chain(const struct group *g, struct table *t, int peer, enum direction d,
                      unsigned first, unsigned some)
{
        struct exchange_chain *c = &t->chain[t->chains++];
        unsigned k = 0;

        *c = chain_with(g->r, peer, d);
        c->first = t->messages;
        for (unsigned i = 0; i < g->n; i++) {
                const struct steps_call *call = &g->calls[i];
                const uint64_t bytes = bytes_of(call);

                if (call->peer != peer || direction_of(call) != d || !is_message(g, call) ||
                    k++ < first || k > first + some)
                        continue;
                t->message[t->messages++] = (struct exchange_message){
                        .at = d == SENDS ? call->from : call->to, .bytes = bytes};
                t->pieces += (bytes + g->place.per_piece - 1) / g->place.per_piece;
                t->largest = MAX(t->largest, MIN(bytes, g->place.per_piece));
        }
        c->end = t->messages;
}

/* A group may have any number of messages, but the table of the kernel is bounded. More messages
 * than fit follow when the first ones are complete. */
static unsigned messages_at_once(const struct group *g)
{
        const uint64_t room = table_bytes(g->r) - sizeof(struct exchange_head) -
                              g->chains * sizeof(struct exchange_chain);

        return (unsigned)MIN(room / sizeof(struct exchange_message) / g->chains,
                             (uint64_t)g->longest);
}

/* The table has no gaps: as many chains as there are, then the messages. */
static size_t lay_out(const struct group *g, unsigned first, unsigned some, void *memory,
                      struct table *ret)
{
        unsigned chains = 0;

        for (int peer = 0; peer < g->r->n; peer++)
                for (int d = 0; d < DIRECTIONS; d++)
                        chains += g->messages[peer][d] > first;
        *ret = (struct table){.head = memory};
        ret->chain = (struct exchange_chain *)(ret->head + 1);
        ret->message = (struct exchange_message *)(ret->chain + chains);
        for (int peer = 0; peer < g->r->n; peer++)
                for (int d = 0; d < DIRECTIONS; d++)
                        if (g->messages[peer][d] > first)
                                add_chain(g, ret, peer, (enum direction)d, first, some);
        *ret->head = (struct exchange_head){.left = chains};
        return (size_t)((char *)(ret->message + ret->messages) - (char *)memory);
}

/* Returns how many waits a group needs at most before it is complete.
 *
 * A launch leaves a chain only when the chain needs a flag that was not set when the launch looked.
 * The bells are cleared before that, and a peer sets its bell after the flag. So no flag is missed,
 * and each wait passes because of another setting of a bell. A piece has one flag for this rank, so
 * one setting. A peer adds at most four settings that bring nothing: two late ones, for flags that
 * an earlier group of this rank has used already, one sent and one taken; and RING_PARTS for pieces
 * of later messages, because it can send no more of these ahead. */
static uint64_t waits_of(const struct group *g, const struct table *t)
{
        uint64_t peers = 0;

        for (int i = 0; i < g->r->n; i++)
                peers += i != g->r->rank && (g->bells >> ring_bell_of(i) & 1);
        return t->pieces + peers * (2 + RING_PARTS);
}

static CUresult run_table(const struct group *g, const struct table *t, size_t bytes,
                          CUstream stream)
{
        CUresult e = exchange_begin(&g->place, t->head, bytes, stream);

        if (e == CUDA_SUCCESS)
                e = exchange_advance(&g->place, t->chains, t->largest, stream);
        for (uint64_t i = waits_of(g, t); i > 0 && e == CUDA_SUCCESS; i--) {
                e = flags_wait_bells(g->r, g->bells, stream);
                if (e == CUDA_SUCCESS)
                        e = exchange_advance(&g->place, t->chains, t->largest, stream);
        }
        return e;
}

CUresult steps_point_to_point(const struct ring *r, const struct steps_call *calls, unsigned n,
                              CUstream stream)
{
        const struct group g = group_of(r, calls, n);
        CUresult e = run_own(r, calls, n, stream);
        void *memory;
        unsigned some;

        if (g.chains == 0 || e != CUDA_SUCCESS)
                return e;
        some = messages_at_once(&g);
        memory = malloc(sizeof(struct exchange_head) + g.chains * sizeof(struct exchange_chain) +
                        n * sizeof(struct exchange_message));
        if (!memory)
                return CUDA_ERROR_OUT_OF_MEMORY;
        for (unsigned first = 0; first < g.longest && e == CUDA_SUCCESS; first += some) {
                struct table t;
                const size_t bytes = lay_out(&g, first, some, memory, &t);

                e = run_table(&g, &t, bytes, stream);
        }
        free(memory);
        return e;
}
