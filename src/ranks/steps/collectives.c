/* collectives.c: owns the collective operations. A call larger than a part of the ring goes in
 * pieces; piece i uses part i % RING_PARTS. One rank, the leader, reduces for all. For ranks that
 * do not run at the same time, this needs no more turns than reducing in each, and moves fewer
 * bytes (docs/measurements/h200-onecard.md).
 * Why: docs/decisions.md, "One rank reduces for all". */
#include "ranks/steps/collectives.h"

#include <stdbool.h>

#include "base/macros.h"
#include "ranks/exchange/exchange.h"
#include "ranks/steps/copy.h"
#include "ranks/steps/flags.h"

#define LEADER 0
/* Pieces are multiples of so many elements, so that kernels read whole vectors. */
#define PIECE_ALIGN 256u

/* The state that all steps of one call share. */
struct run {
        const struct ring *r;
        const struct steps_call *c;
        CUstream stream;
        bool scatters;      /* STEPS_REDUCE_SCATTER: each rank gets a block of the result */
        unsigned size;      /* bytes of an element */
        uint64_t per_piece; /* elements of c->count */
        uint64_t pieces;
        CUresult error;
};

static uint64_t part_bytes(const struct ring *r)
{
        return r->bytes / RING_PARTS;
}

static void begin(struct run *run, const struct ring *r, const struct steps_call *c,
                  CUstream stream)
{
        const bool scatters = c->kind == STEPS_REDUCE_SCATTER;
        const unsigned size = reduce_bytes(c->op.type);
        uint64_t most = part_bytes(r) / (scatters ? (unsigned)r->n : 1u) / size;

        most = most > PIECE_ALIGN ? most / PIECE_ALIGN * PIECE_ALIGN : MAX(most, 1u);
        *run = (struct run){.r = r,
                            .c = c,
                            .stream = stream,
                            .scatters = scatters,
                            .size = size,
                            .per_piece = most,
                            .pieces = (c->count + most - 1) / most};
}

static CUdeviceptr part_of(const struct ring *r, int rank, unsigned part)
{
        return r->of[rank] + part * part_bytes(r);
}

/* Elements of a piece, and the offset of its first byte. */
static uint64_t piece_count(const struct run *run, uint64_t piece)
{
        return MIN(run->per_piece, run->c->count - piece * run->per_piece);
}

static uint64_t piece_offset(const struct run *run, uint64_t piece)
{
        return piece * run->per_piece * run->size;
}

/* After an error nothing more is put into the stream. */
static void copy(struct run *run, CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
        if (run->error == CUDA_SUCCESS)
                run->error = copy_in_stream(run->r, to, from, bytes, run->stream);
}

static void set(struct run *run, enum ring_flag flag, unsigned part, unsigned to)
{
        if (run->error == CUDA_SUCCESS)
                run->error = flags_set(run->r, flag, part, to, run->stream);
}

static void wait(struct run *run, enum ring_flag flag, unsigned part, unsigned from)
{
        if (run->error == CUDA_SUCCESS)
                run->error = flags_wait(run->r, flag, part, from, run->stream);
}

/* Waits before a part is filled again, and at the end for the parts still in use. */
static void wait_for_part(struct run *run, enum ring_flag flag, uint64_t piece, unsigned from)
{
        if (piece >= RING_PARTS)
                wait(run, flag, piece % RING_PARTS, from);
}

static void wait_for_rest(struct run *run, enum ring_flag flag, unsigned from)
{
        for (uint64_t i = sub_sat(run->pieces, RING_PARTS); i < run->pieces; i++)
                wait(run, flag, i % RING_PARTS, from);
}

/* ---- what goes into a ring ---- */

/* Puts this rank's elements into a ring, multiplied by its scalar if there is one. */
static void contribute(struct run *run, CUdeviceptr to, CUdeviceptr from, uint64_t count)
{
        if (!run->c->op.scales)
                copy(run, to, from, count * run->size);
        else if (run->error == CUDA_SUCCESS)
                run->error = reduce_scale(&run->c->op, from, to, count, run->stream);
}

/* Works like contribute(), for a piece of each rank's block. */
static void contribute_blocks(struct run *run, CUdeviceptr to, uint64_t piece)
{
        const uint64_t count = piece_count(run, piece), stride = run->c->count * run->size;

        if (count == run->c->count) {
                contribute(run, to, run->c->from, count * (uint64_t)run->r->n);
                return;
        }
        for (int i = 0; i < run->r->n; i++)
                contribute(run, to + (uint64_t)i * count * run->size,
                           run->c->from + (uint64_t)i * stride + piece_offset(run, piece), count);
}

/* Reduces the parts of all ranks. own: where this rank's elements are. */
static void reduce(struct run *run, CUdeviceptr own, unsigned part, CUdeviceptr to, CUdeviceptr to2,
                   uint64_t count)
{
        CUdeviceptr sources[MEET_RANKS_MAX];

        for (int i = 0; i < run->r->n; i++)
                sources[i] = i == run->r->rank ? own : part_of(run->r, i, part);
        if (run->error == CUDA_SUCCESS)
                run->error = reduce_launch(&run->c->op, sources, (unsigned)run->r->n, to, to2,
                                           count, run->stream);
}

/* ---- collectives ---- */

static void all_reduce_leader(struct run *run)
{
        const struct ring *r = run->r;

        for (uint64_t i = 0; i < run->pieces; i++) {
                const unsigned part = i % RING_PARTS;
                const CUdeviceptr ring = part_of(r, r->rank, part);
                CUdeviceptr own = run->c->from + piece_offset(run, i);

                wait_for_part(run, RING_READ, i, RING_ALL);
                if (run->c->op.scales) {
                        contribute(run, ring, own, piece_count(run, i));
                        own = ring;
                }
                wait(run, RING_FILLED, part, RING_ALL);
                reduce(run, own, part, run->c->to + piece_offset(run, i), ring,
                       piece_count(run, i));
                set(run, RING_RESULT, part, RING_ALL);
        }
        wait_for_rest(run, RING_READ, RING_ALL);
}

static void reduce_scatter_leader(struct run *run)
{
        const struct ring *r = run->r;

        for (uint64_t i = 0; i < run->pieces; i++) {
                const unsigned part = i % RING_PARTS;
                const uint64_t count = piece_count(run, i);
                const CUdeviceptr ring = part_of(r, r->rank, part);

                wait_for_part(run, RING_READ, i, RING_ALL);
                contribute_blocks(run, ring, i);
                wait(run, RING_FILLED, part, RING_ALL);
                reduce(run, ring, part, ring, 0, count * (uint64_t)r->n);
                set(run, RING_RESULT, part, RING_ALL);
                copy(run, run->c->to + piece_offset(run, i),
                     ring + (uint64_t)r->rank * count * run->size, count * run->size);
        }
        wait_for_rest(run, RING_READ, RING_ALL);
}

/* Fills this rank's part of a piece for the leader, which reduces or reduces and scatters. */
static void fill(struct run *run, uint64_t piece)
{
        const unsigned part = piece % RING_PARTS;
        const CUdeviceptr ring = part_of(run->r, run->r->rank, part);

        if (run->scatters)
                contribute_blocks(run, ring, piece);
        else
                contribute(run, ring, run->c->from + piece_offset(run, piece),
                           piece_count(run, piece));
        set(run, RING_FILLED, part, LEADER);
}

/* The next piece is filled before the result of this one is awaited, so that the leader finds it
 * when it has reduced this one. */
static void follow_leader(struct run *run)
{
        const struct ring *r = run->r;

        if (run->pieces > 0)
                fill(run, 0);
        for (uint64_t i = 0; i < run->pieces; i++) {
                const unsigned part = i % RING_PARTS;
                const uint64_t bytes = piece_count(run, i) * run->size;

                if (i + 1 < run->pieces)
                        fill(run, i + 1);
                wait(run, RING_RESULT, part, LEADER);
                copy(run, run->c->to + piece_offset(run, i),
                     part_of(r, LEADER, part) + (run->scatters ? (uint64_t)r->rank * bytes : 0),
                     bytes);
                set(run, RING_READ, part, LEADER);
        }
}

static void all_gather_fill(struct run *run, uint64_t piece)
{
        const unsigned part = piece % RING_PARTS;

        wait_for_part(run, RING_READ, piece, RING_ALL);
        copy(run, part_of(run->r, run->r->rank, part), run->c->from + piece_offset(run, piece),
             piece_count(run, piece) * run->size);
        set(run, RING_FILLED, part, RING_ALL);
}

static void all_gather(struct run *run)
{
        const struct ring *r = run->r;
        const uint64_t block = run->c->count * run->size;

        if (run->pieces > 0)
                all_gather_fill(run, 0);
        copy(run, run->c->to + (uint64_t)r->rank * block, run->c->from, block);
        for (uint64_t i = 0; i < run->pieces; i++) {
                const unsigned part = i % RING_PARTS;

                if (i + 1 < run->pieces)
                        all_gather_fill(run, i + 1);
                wait(run, RING_FILLED, part, RING_ALL);
                for (int from = 0; from < r->n; from++)
                        if (from != r->rank)
                                copy(run,
                                     run->c->to + (uint64_t)from * block + piece_offset(run, i),
                                     part_of(r, from, part), piece_count(run, i) * run->size);
                set(run, RING_READ, part, RING_ALL);
        }
        wait_for_rest(run, RING_READ, RING_ALL);
}

/* Uses RING_FILLED, not RING_RESULT: after a reduction the root does not wait until the others have
 * cleared RING_RESULT. */
static void broadcast(struct run *run)
{
        const struct ring *r = run->r;
        const unsigned root = (unsigned)run->c->peer;
        const bool sends = r->rank == run->c->peer;

        for (uint64_t i = 0; i < run->pieces; i++) {
                const unsigned part = i % RING_PARTS;
                const uint64_t bytes = piece_count(run, i) * run->size;

                if (sends) {
                        wait_for_part(run, RING_READ, i, RING_ALL);
                        copy(run, part_of(r, r->rank, part), run->c->from + piece_offset(run, i),
                             bytes);
                        set(run, RING_FILLED, part, RING_ALL);
                } else {
                        wait(run, RING_FILLED, part, root);
                        copy(run, run->c->to + piece_offset(run, i), part_of(r, run->c->peer, part),
                             bytes);
                        set(run, RING_READ, part, root);
                }
        }
        if (!sends)
                return;
        copy(run, run->c->to, run->c->from, run->c->count * run->size);
        wait_for_rest(run, RING_READ, RING_ALL);
}

static void reduce_to_root(struct run *run)
{
        const struct ring *r = run->r;
        const unsigned root = (unsigned)run->c->peer;

        for (uint64_t i = 0; i < run->pieces; i++) {
                const unsigned part = i % RING_PARTS;
                const CUdeviceptr ring = part_of(r, r->rank, part);
                CUdeviceptr own = run->c->from + piece_offset(run, i);

                if (r->rank != run->c->peer) {
                        wait_for_part(run, RING_RESULT, i, root);
                        contribute(run, ring, own, piece_count(run, i));
                        set(run, RING_FILLED, part, root);
                        continue;
                }
                if (run->c->op.scales) {
                        contribute(run, ring, own, piece_count(run, i));
                        own = ring;
                }
                wait(run, RING_FILLED, part, RING_ALL);
                reduce(run, own, part, run->c->to + piece_offset(run, i), 0, piece_count(run, i));
                set(run, RING_RESULT, part, RING_ALL);
        }
        if (r->rank != run->c->peer)
                wait_for_rest(run, RING_RESULT, root);
}

/* Runs a call of a communicator with one rank. */
static void alone(struct run *run)
{
        contribute(run, run->c->to, run->c->from, run->c->count);
}

CUresult steps_prepare(const struct steps_call *c)
{
        const bool reduces = c->kind == STEPS_ALL_REDUCE || c->kind == STEPS_REDUCE_SCATTER ||
                             c->kind == STEPS_REDUCE;

        if (c->kind == STEPS_SEND || c->kind == STEPS_RECEIVE)
                return exchange_prepare();
        return reduces ? reduce_prepare(c->op.type) : CUDA_SUCCESS;
}

CUresult steps_collective(const struct ring *r, const struct steps_call *c, CUstream stream)
{
        struct run run;

        begin(&run, r, c, stream);
        if (r->n == 1)
                alone(&run);
        else if (c->kind == STEPS_ALL_GATHER)
                all_gather(&run);
        else if (c->kind == STEPS_BROADCAST)
                broadcast(&run);
        else if (c->kind == STEPS_REDUCE)
                reduce_to_root(&run);
        else if (r->rank != LEADER)
                follow_leader(&run);
        else if (run.scatters)
                reduce_scatter_leader(&run);
        else
                all_reduce_leader(&run);
        return run.error;
}
