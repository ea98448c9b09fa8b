/* pool_memory.c: owns the pieces of pools and the card's memory behind them. Must never give a
 * piece to a stream that could use it before the freeing stream has reached the free. */
#include "sim/memory/pool_memory.h"

#include <stdlib.h>

#include "base/macros.h"
#include "sim/queue/stream.h"

#define UNIT  UINT64_C(512)
#define CHUNK (UINT64_C(32) << 20)
#define SPARE 2 /* addresses of a pool per byte of the card, so that gaps do not matter */

uint64_t pool_chunk(unsigned device)
{
        uint64_t bytes = CHUNK;

        while (bytes > SPACE_GRANULARITY && bytes > session_device(sim.session, device)->total / 32)
                bytes /= 2;
        return bytes;
}

void pool_memory_init(struct pool_memory *m, CUmemoryPool pool, unsigned device, uint64_t most)
{
        *m = (struct pool_memory){.pool = pool,
                                  .device = device,
                                  .follows = true,
                                  .most = most && most < UINT64_MAX / 2 ? align_up(most, CHUNK)
                                                                        : UINT64_MAX,
                                  .chunk_bytes = pool_chunk(device)};
}

/* Reserves the pool's addresses, which it keeps until it ends. */
static CUresult begin(struct pool_memory *m)
{
        uint64_t bytes =
                align_up(SPARE * session_device(sim.session, m->device)->total, m->chunk_bytes);
        struct piece *p = calloc(1, sizeof(*p));

        m->chunk = calloc(bytes / m->chunk_bytes, sizeof(m->chunk[0]));
        if (p && m->chunk) {
                space_lock();
                m->start = space_reserve(bytes, m->chunk_bytes, 0);
                space_unlock();
        }
        if (!m->start) {
                free(m->chunk);
                free(p);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        m->chunks = bytes / m->chunk_bytes;
        *p = (struct piece){.memory = m, .start = m->start, .bytes = bytes, .known = true};
        m->first = p;
        return CUDA_SUCCESS;
}

/* ---- pieces ---- */

static bool piece_reached(const struct piece *p)
{
        return !p->block && (p->known || point_reached(&p->freed));
}

static bool piece_usable(const struct piece *p, CUstream stream)
{
        return !p->block && (p->freed.stream == stream || piece_reached(p) ||
                             (p->memory->follows && stream_follows(stream, &p->freed)));
}

/* Joins p with the piece after it, if the same streams may use both. */
static bool piece_join(struct piece *p)
{
        struct piece *n = p->next;

        if (p->block || !n || n->block)
                return false;
        if (!p->known && !n->known && p->freed.stream == n->freed.stream)
                p->freed.number = MAX(p->freed.number, n->freed.number);
        else if (piece_reached(p) && piece_reached(n))
                p->freed = p->known ? n->freed : p->freed;
        else
                return false;
        p->known = p->known && n->known;
        p->bytes += n->bytes;
        p->next = n->next;
        free(n);
        return true;
}

static struct piece *piece_find(struct pool_memory *m, uint64_t bytes, CUstream stream)
{
        struct piece *best = NULL;

        for (struct piece *p = m->first; p; p = p->next) {
                while (piece_join(p))
                        ;
                if (piece_usable(p, stream) && p->bytes >= bytes &&
                    (!best || p->bytes < best->bytes))
                        best = p;
        }
        return best;
}

static int piece_cut(struct piece *p, uint64_t bytes)
{
        struct piece *rest;

        if (p->bytes == bytes)
                return 0;
        rest = calloc(1, sizeof(*rest));
        if (!rest)
                return -1;
        *rest = *p;
        rest->start += bytes;
        rest->bytes -= bytes;
        p->bytes = bytes;
        p->next = rest;
        return 0;
}

void pool_memory_free(struct piece *p, CUstream stream)
{
        /* A piece freed by cuMemFree stays counted as used, as with the driver. */
        if (stream)
                p->memory->used -= p->block->span.bytes;
        p->block = NULL;
        p->known = !stream;
        p->freed = (struct point){stream, stream ? stream->submitted : 0};
}

void pool_memory_synced(struct pool_memory *m, CUcontext c, const struct point *p)
{
        for (struct piece *i = m->first; i; i = i->next)
                if (!i->block && !i->known)
                        i->known = stream_awaited(c, p, &i->freed);
}

/* ---- memory of the card ---- */

static size_t chunk_of(const struct pool_memory *m, uint64_t address)
{
        return (address - m->start) / m->chunk_bytes;
}

/* Returns how many chunks under the piece's first bytes have no memory; *ret_first is the first. */
static size_t chunks_missing(const struct piece *p, uint64_t bytes, size_t *ret_first)
{
        const struct pool_memory *m = p->memory;
        size_t n = 0;

        for (size_t i = chunk_of(m, p->start + bytes - 1) + 1; i-- > chunk_of(m, p->start);)
                if (!m->chunk[i]) {
                        *ret_first = i;
                        n++;
                }
        return n;
}

/* Puts memory behind chunk i. Releases sim.lock for a time, because other processes may have to
 * make room. */
static CUresult chunk_fill(struct pool_memory *m, size_t i)
{
        uint64_t at = m->start + i * m->chunk_bytes;
        struct range *range;
        CUresult r;

        pthread_mutex_unlock(&sim.lock);
        r = memory_range_at(m->device, at, m->chunk_bytes, PHYSICAL_ALLOCATED, &range);
        if (r != CUDA_SUCCESS)
                space_lock();
        if (r != CUDA_SUCCESS && space_range(at)) {
                r = CUDA_SUCCESS; /* another thread has filled the chunk; the caller looks again */
                range = NULL;
        }
        space_unlock();
        pthread_mutex_lock(&sim.lock);
        if (r != CUDA_SUCCESS || !range)
                return r;
        m->chunk[i] = range;
        m->reserved += m->chunk_bytes;
        m->reserved_high = MAX(m->reserved_high, m->reserved);
        return CUDA_SUCCESS;
}

bool pool_memory_release(struct pool_memory *m, uint64_t keep, bool at_once)
{
        bool any = false;
        bool *busy;

        if (m->reserved <= keep)
                return false;
        busy = calloc(m->chunks, sizeof(*busy));
        if (!busy)
                return false;
        for (struct piece *p = m->first; p; p = p->next) {
                if (at_once ? piece_reached(p) : !p->block && p->known)
                        continue;
                for (size_t i = chunk_of(m, p->start); i <= chunk_of(m, p->start + p->bytes - 1);
                     i++)
                        busy[i] = true;
        }
        space_lock();
        for (size_t i = 0; i < m->chunks && m->reserved > keep; i++)
                if (m->chunk[i] && !busy[i]) {
                        space_unmap(m->chunk[i]);
                        m->chunk[i] = NULL;
                        m->reserved -= m->chunk_bytes;
                        any = true;
                }
        space_unlock();
        free(busy);
        return any;
}

void pool_memory_end(struct pool_memory *m)
{
        for (struct piece *p = m->first; p; p = p->next)
                if (!piece_reached(p))
                        return;
        if (!m->first || m->reserved)
                return;
        for (struct piece *p; (p = m->first);) {
                m->first = p->next;
                free(p);
        }
        free(m->chunk);
        m->chunk = NULL;
        space_lock();
        space_release(m->start);
        space_unlock();
        m->start = 0;
}

/* ---- allocating ---- */

/* Returns a piece that another stream has freed, and makes this stream wait for the free. */
static struct piece *piece_await(struct pool_memory *m, uint64_t bytes, CUstream stream)
{
        struct work w = {.kind = WORK_EMPTY};
        struct piece *p = m->first;
        size_t i;

        while (p && (p->block || p->bytes < bytes || chunks_missing(p, bytes, &i)))
                p = p->next;
        return p && stream_submit_locked(stream, &w, &p->freed, 1, NULL) == CUDA_SUCCESS ? p : NULL;
}

CUresult pool_memory_take(struct pool_memory *m, uint64_t bytes, CUstream stream, bool waits,
                          struct piece **ret)
{
        uint64_t whole = bytes <= UINT64_MAX / 2 ? align_up(bytes, UNIT) : UINT64_MAX / 2;
        CUresult r = m->first ? CUDA_SUCCESS : begin(m);
        struct piece *p = NULL;
        size_t missing = 1, i = 0;

        while (r == CUDA_SUCCESS && missing) {
                p = piece_find(m, whole, stream);
                missing = p ? chunks_missing(p, whole, &i) : 0;
                if (!p || missing * m->chunk_bytes > m->most - m->reserved)
                        r = CUDA_ERROR_OUT_OF_MEMORY;
                else if (missing)
                        r = chunk_fill(m, i);
        }
        if (r == CUDA_ERROR_OUT_OF_MEMORY && m->first && waits) {
                p = piece_await(m, whole, stream);
                r = p ? CUDA_SUCCESS : r;
        }
        if (r == CUDA_SUCCESS && piece_cut(p, whole) < 0)
                r = CUDA_ERROR_OUT_OF_MEMORY;
        if (r != CUDA_SUCCESS)
                return r;
        m->used += bytes;
        m->used_high = MAX(m->used_high, m->used);
        *ret = p;
        return CUDA_SUCCESS;
}
