/* point.c: owns sends and receives. A rank's ring has an area for each other rank, in each part. */
#include <stdbool.h>
#include <stdlib.h>

#include "base/macros.h"
#include "ranks/steps/copy.h"
#include "ranks/steps/flags.h"
#include "ranks/steps/collectives.h"

#define AREA_ALIGN 512u

/* One send or receive on its way. */
struct way {
        const struct steps_call *c;
        uint64_t per_piece, pieces; /* per_piece: bytes */
        unsigned wave;
};

static uint64_t bytes_of(const struct steps_call *c)
{
        return c->count * reduce_bytes(c->op.type);
}

static uint64_t area_bytes(const struct ring *r)
{
        return r->bytes / RING_PARTS / (uint64_t)MAX(r->n - 1, 1) / AREA_ALIGN * AREA_ALIGN;
}

/* The area in `from`'s ring for `to`. */
static CUdeviceptr area(const struct ring *r, int from, int to, unsigned part)
{
        return r->of[from] + part * (r->bytes / RING_PARTS) +
               (uint64_t)(to < from ? to : to - 1) * area_bytes(r);
}

static CUresult send_piece(const struct ring *r, const struct way *w, uint64_t piece,
                           CUstream stream)
{
        const unsigned part = piece % RING_PARTS, to = (unsigned)w->c->peer;
        const uint64_t at = piece * w->per_piece, bytes = MIN(w->per_piece, bytes_of(w->c) - at);
        CUresult e = CUDA_SUCCESS;

        if (piece >= RING_PARTS)
                e = flags_wait(r, RING_TAKEN, part, to, stream);
        if (e == CUDA_SUCCESS)
                e = copy_in_stream(r, area(r, r->rank, w->c->peer, part), w->c->from + at, bytes,
                                   stream);
        return e == CUDA_SUCCESS ? flags_set(r, RING_SENT, part, to, stream) : e;
}

static CUresult receive_piece(const struct ring *r, const struct way *w, uint64_t piece,
                              CUstream stream)
{
        const unsigned part = piece % RING_PARTS, from = (unsigned)w->c->peer;
        const uint64_t at = piece * w->per_piece, bytes = MIN(w->per_piece, bytes_of(w->c) - at);
        CUresult e = flags_wait(r, RING_SENT, part, from, stream);

        if (e == CUDA_SUCCESS)
                e = copy_in_stream(r, w->c->to + at, area(r, w->c->peer, r->rank, part), bytes,
                                   stream);
        return e == CUDA_SUCCESS ? flags_set(r, RING_TAKEN, part, from, stream) : e;
}

static CUresult finish_send(const struct ring *r, const struct way *w, CUstream stream)
{
        CUresult e = CUDA_SUCCESS;

        for (uint64_t i = sub_sat(w->pieces, RING_PARTS); i < w->pieces && e == CUDA_SUCCESS; i++)
                e = flags_wait(r, RING_TAKEN, i % RING_PARTS, (unsigned)w->c->peer, stream);
        return e;
}

/* Runs one wave, piece by piece: each rank sends a piece to all others before it receives one, so
 * no two ranks wait for each other. */
static CUresult run_wave(const struct ring *r, const struct way *ways, unsigned n, unsigned wave,
                         CUstream stream)
{
        CUresult e = CUDA_SUCCESS;
        bool more = true;

        for (uint64_t piece = 0; more && e == CUDA_SUCCESS; piece++) {
                more = false;
                for (int receives = 0; receives < 2; receives++)
                        for (unsigned i = 0; i < n && e == CUDA_SUCCESS; i++) {
                                const struct way *w = &ways[i];

                                if (w->wave != wave || piece >= w->pieces ||
                                    (w->c->kind == STEPS_RECEIVE) != receives)
                                        continue;
                                more = true;
                                e = (receives ? receive_piece : send_piece)(r, w, piece, stream);
                        }
        }
        for (unsigned i = 0; i < n && e == CUDA_SUCCESS; i++)
                if (ways[i].wave == wave && ways[i].c->kind == STEPS_SEND)
                        e = finish_send(r, &ways[i], stream);
        return e;
}

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

CUresult steps_point_to_point(const struct ring *r, const struct steps_call *calls, unsigned n,
                              CUstream stream)
{
        /* Between two ranks, the k-th send and receive of a group are in wave k. */
        unsigned sends[MEET_RANKS_MAX] = {0}, receives[MEET_RANKS_MAX] = {0}, waves = 0, n_ways = 0;
        struct way *ways = calloc(n, sizeof(*ways));
        CUresult e;

        if (!ways)
                return CUDA_ERROR_OUT_OF_MEMORY;
        e = run_own(r, calls, n, stream);
        for (unsigned i = 0; i < n; i++) {
                const struct steps_call *c = &calls[i];
                const uint64_t most = area_bytes(r);

                if (c->peer == r->rank || bytes_of(c) == 0)
                        continue;
                ways[n_ways] =
                        (struct way){.c = c,
                                     .per_piece = most,
                                     .pieces = (bytes_of(c) + most - 1) / most,
                                     .wave = (c->kind == STEPS_SEND ? sends : receives)[c->peer]++};
                waves = MAX(waves, ways[n_ways].wave + 1);
                n_ways++;
        }
        for (unsigned wave = 0; wave < waves && e == CUDA_SUCCESS; wave++)
                e = run_wave(r, ways, n_ways, wave, stream);
        free(ways);
        return e;
}
