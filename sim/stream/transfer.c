/* transfer.c: moves the bytes of copies and fills, at the speed of the modelled bus.
 *
 * Each card has one link, of SIMCUDA_BUS bytes a second in each direction. A transfer reserves the
 * link in chunks. The session stores the end of the last reservation, so that all processes share
 * the link. A copy of pageable host memory takes twice the time, because it is staged, but does not
 * occupy the link for longer. Copies within a card or within the host are not slowed down. Must
 * never wait busily, nor sleep with a lock. */
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "sim/stream/transfer.h"
#include "sim/session/session_time.h"
#include "sim/space/managed.h"
#include "sim/space/mapped.h"
#include "sim/space/space.h"
#include "sim/queue/work.h"

/* The driver's error for memory that was freed between the call and the run of an operation. */
#define TRANSFER_FAILED CUDA_ERROR_LAUNCH_FAILED

#define CHUNK_NS    (500 * NSEC_PER_USEC) /* time of a chunk; processes take turns after each */
#define CHUNK_LEAST (64 * KIB)
#define CHUNK_MOST  (4 * MIB)
#define AHEAD_NS    (200 * NSEC_PER_USEC) /* shorter sleeps are not worth their cost */
#define NAP_NS      (5 * NSEC_PER_MSEC)   /* time until waiting work notices a disabled channel */
#define BEHIND_NS   (5 * NSEC_PER_MSEC)   /* oversleeping that later chunks may make up for */

struct pace {
        unsigned device;
        enum session_direction direction;
        bool active, pageable;
        uint64_t ready_ns, chunk;
};

static void pace_start(struct pace *p, unsigned device, enum session_direction direction,
                       bool pageable)
{
        double rate = (double)session_device(sim.session, device)->bus_bytes_per_s;
        uint64_t chunk = (uint64_t)(rate * (double)CHUNK_NS / 1e9);

        *p = (struct pace){.device = device,
                           .direction = direction,
                           .active = true,
                           .pageable = pageable,
                           .ready_ns = session_now_ns(),
                           .chunk = MIN(MAX(chunk, CHUNK_LEAST), CHUNK_MOST)};
}

static void pace_chunk(struct pace *p, uint64_t bytes)
{
        uint64_t now = session_now_ns();

        if (p->ready_ns + BEHIND_NS < now)
                p->ready_ns = now - BEHIND_NS;
        p->ready_ns = session_bus_claim(sim.session, p->device, p->direction, p->ready_ns, bytes);
        if (p->pageable)
                p->ready_ns +=
                        (uint64_t)((double)bytes * 1e9 /
                                   (double)session_device(sim.session, p->device)->bus_bytes_per_s);
}

void transfer_keep_pace(uint64_t ready_ns)
{
        if (ready_ns > session_now_ns() + AHEAD_NS)
                session_sleep_until(ready_ns);
}

bool transfer_nap(uint64_t ready_ns)
{
        uint64_t now = session_now_ns();

        if (ready_ns <= now)
                return false;
        session_sleep_until(MIN(ready_ns, now + NAP_NS));
        return true;
}

/* Waits until ready_ns has passed and the channel is enabled. */
static void await(CUcontext c, uint64_t ready_ns)
{
        while (!context_stopped(c) && transfer_nap(ready_ns))
                ;
}

/* Waits for the modelled bus, after the bytes are copied: the copying is part of the time. */
static void pace_keep(const struct pace *p)
{
        if (p->active)
                transfer_keep_pace(p->ready_ns);
}

static void pace_end(CUcontext c, const struct pace *p)
{
        if (p->active)
                await(c, p->ready_ns);
}

/* The contiguous part of one end of a copy. */
struct end {
        uint8_t *at;
        uint64_t bytes;
        struct range *range; /* NULL: pageable host memory */
        bool on_card;
        unsigned device;
        struct managed_hold hold;
};

/* Finds an end in managed memory, up to the end of the block. */
static bool end_managed(uint64_t address, uint64_t bytes, bool by_host, CUcontext c, struct end *e)
{
        uint64_t left = FRAMES_BLOCK_BYTES - address % FRAMES_BLOCK_BYTES, start, end;

        e->bytes = MIN(MIN(bytes, left), e->range->span.start + e->range->span.bytes - address);
        if (by_host) {
                e->at = (uint8_t *)(uintptr_t)address; /* an access moves the bytes to the host */
                return true;
        }
        e->on_card = true;
        e->device = c->device;
        e->hold = (struct managed_hold){.context = c, .device = c->device};
        e->at = managed_use(&e->hold, e->range->managed, address, e->bytes, MANAGED_COPY, &start,
                            &end);
        return e->at != NULL;
}

static bool end_find(uint64_t address, uint64_t bytes, CUcontext c, bool write, bool by_host,
                     struct end *ret)
{
        unsigned device = c->device;
        struct range *r;

        if (space_is_device(address)) {
                r = space_pin(address, device, write);
                if (!r) {
                        /* The memory may be on another card: a copy between cards. */
                        for (unsigned d = 0; d < sim.devices && !r; d++)
                                if (d != device)
                                        r = space_pin(address, d, write);
                        if (r && r->kind == RANGE_VMM) {
                                space_unpin(r);
                                r = NULL;
                        }
                }
                if (!r)
                        return false;
        } else {
                r = space_pin(address, device, write);
        }
        ret->range = r;
        ret->on_card = r && r->physical && !r->physical->host;
        ret->device = ret->on_card ? r->physical->device : device;
        if (r && r->managed) {
                if (end_managed(address, bytes, by_host, c, ret))
                        return true;
                space_unpin(r);
                return false;
        }
        if (r) {
                uint64_t skip = address - r->span.start;

                ret->at = r->at + skip;
                ret->bytes = MIN(bytes, r->span.bytes - skip);
        } else {
                ret->at = (uint8_t *)(uintptr_t)address;
                ret->bytes = bytes;
        }
        return true;
}

static void end_done(struct end *e)
{
        if (!e->range)
                return;
        if (e->range->managed && e->on_card)
                managed_drop(&e->hold);
        space_unpin(e->range);
}

static bool is_device(const struct end *e)
{
        return e->on_card;
}

/* Begins the pace of a copy. The first byte determines its direction. */
static void copy_begin(CUcontext c, const struct end *to, const struct end *from,
                       struct pace *ret_pace, struct session_counters **ret_counters)
{
        unsigned device = is_device(to) ? to->device : from->device;

        *ret_counters = &session_own(sim.session, device)->counters;
        if (is_device(to) == is_device(from))
                *ret_pace = (struct pace){.chunk = CHUNK_MOST};
        else
                pace_start(ret_pace, device, is_device(to) ? SESSION_TO_DEVICE : SESSION_TO_HOST,
                           is_device(to) ? !from->range : !to->range);
}

static void copy_count(struct session_counters *n, const struct pace *p, bool within,
                       uint64_t bytes, uint64_t copies)
{
        if (p->active && p->direction == SESSION_TO_DEVICE) {
                session_count(&n->h2d_bytes, bytes);
                session_count(&n->h2d_copies, copies);
        } else if (p->active) {
                session_count(&n->d2h_bytes, bytes);
                session_count(&n->d2h_copies, copies);
        } else if (within) {
                session_count(&n->d2d_bytes, bytes);
                session_count(&n->d2d_copies, copies);
        }
}

struct transfer {
        CUcontext context;
        struct pace pace;
        struct session_counters *counters;
        bool begun;
        bool to_host, from_host; /* as in struct work_copy */
        uint64_t claimed;        /* bytes left of the last reservation, which short rows share */
};

/* Copies one row. */
static CUresult transfer_row(struct transfer *t, uint64_t to, uint64_t from, uint64_t bytes,
                             uint64_t left)
{
        while (bytes > 0) {
                struct end dst, src;
                uint64_t n;

                if (context_stopped(t->context))
                        return CUDA_SUCCESS; /* the process exits or the context has failed */
                if (!end_find(from, bytes, t->context, false, t->from_host, &src))
                        return TRANSFER_FAILED;
                if (!end_find(to, src.bytes, t->context, true, t->to_host, &dst)) {
                        end_done(&src);
                        return TRANSFER_FAILED;
                }
                if (!t->begun) {
                        copy_begin(t->context, &dst, &src, &t->pace, &t->counters);
                        copy_count(t->counters, &t->pace, is_device(&dst), 0, 1);
                        t->begun = true;
                }
                n = MIN(dst.bytes, t->pace.chunk);
                if (t->pace.active && t->claimed < n) {
                        uint64_t claim = MIN(MAX(n, t->pace.chunk), left);

                        pace_chunk(&t->pace, claim - t->claimed);
                        t->claimed = claim;
                }
                memmove(dst.at, src.at, n);
                copy_count(t->counters, &t->pace, is_device(&dst), n, 0);
                t->claimed = sub_sat(t->claimed, n);
                end_done(&src);
                end_done(&dst);
                pace_keep(&t->pace);
                to += n;
                from += n;
                bytes -= n;
                left -= n;
        }
        return CUDA_SUCCESS;
}

static bool is_managed(uint64_t address)
{
        const struct range *r;
        bool found;

        space_lock_shared();
        r = space_range(address);
        found = r && r->kind == RANGE_MANAGED;
        space_unlock();
        return found;
}

CUresult copy_run(CUcontext c, const struct work_copy *w)
{
        /* Both ends may be in the same managed block, which is on the host or on a card. */
        bool both = is_managed(w->to) && is_managed(w->from);
        struct transfer t = {
                .context = c, .to_host = w->to_host && !both, .from_host = w->from_host && !both};
        uint64_t left = (uint64_t)w->width * w->height * w->depth;
        CUresult r = CUDA_SUCCESS;

        if (w->staged) /* the call has copied the source, which is one row */
                r = transfer_row(&t, w->to, (uintptr_t)w->staged, w->width, left);
        for (size_t z = 0; !w->staged && z < w->depth && r == CUDA_SUCCESS; z++)
                for (size_t y = 0; y < w->height && r == CUDA_SUCCESS; y++) {
                        r = transfer_row(&t, w->to + z * w->to_slice + y * w->to_pitch,
                                         w->from + z * w->from_slice + y * w->from_pitch, w->width,
                                         left);
                        left -= w->width;
                }
        if (r == CUDA_SUCCESS)
                pace_end(c, &t.pace);
        return r;
}

/* ---- fills ---- */

static void fill(uint8_t *at, uint64_t bytes, unsigned value, unsigned element)
{
        if (element == 1) {
                memset(at, (int)value, bytes);
        } else if (element == 2) {
                uint16_t v = (uint16_t)value;

                for (uint64_t i = 0; i < bytes; i += 2)
                        memcpy(at + i, &v, 2);
        } else {
                uint32_t v = value;

                for (uint64_t i = 0; i < bytes; i += 4)
                        memcpy(at + i, &v, 4);
        }
}

CUresult set_run(CUcontext c, const struct work_set *w)
{
        uint64_t ready_ns = session_now_ns();

        session_count(&session_own(sim.session, c->device)->counters.memsets, 1);
        for (size_t y = 0; y < w->height; y++) {
                uint64_t at = w->to + y * w->pitch, left = (uint64_t)w->width * w->element;

                while (left > 0) {
                        struct end e;
                        uint64_t n;

                        if (context_stopped(c))
                                return CUDA_SUCCESS;
                        if (!end_find(at, left, c, true, false, &e))
                                return TRANSFER_FAILED;
                        if (!e.range) /* the card cannot reach pageable memory */
                                return TRANSFER_FAILED;
                        n = MIN(e.bytes, CHUNK_MOST);
                        fill(e.at, n, w->value, w->element);
                        if (range_is_mapped(e.range))
                                mapped_fill(c->device, n, &ready_ns);
                        at += n;
                        left -= n;
                        end_done(&e);
                }
        }
        await(c, ready_ns);
        return CUDA_SUCCESS;
}

/* ---- values in memory that streams write and wait for ---- */

CUresult value_write(CUcontext c, const struct work_value *w)
{
        struct end e;

        if (!end_find(w->address, w->wide ? 8 : 4, c, true, false, &e) || !e.range)
                return TRANSFER_FAILED;
        if (w->wide)
                __atomic_store_n((uint64_t *)(void *)e.at, w->value, __ATOMIC_RELEASE);
        else
                __atomic_store_n((uint32_t *)(void *)e.at, (uint32_t)w->value, __ATOMIC_RELEASE);
        end_done(&e);
        return CUDA_SUCCESS;
}

static bool value_holds(const struct work_value *w, uint64_t v)
{
        uint64_t wanted = w->wide ? w->value : (uint32_t)w->value;

        switch (w->flags & 3) {
        case CU_STREAM_WAIT_VALUE_EQ:
                return v == wanted;
        case CU_STREAM_WAIT_VALUE_AND:
                return (v & wanted) != 0;
        case CU_STREAM_WAIT_VALUE_NOR:
                return w->wide ? ~(v | wanted) != 0 : (uint32_t) ~(v | wanted) != 0;
        default: /* greater or equal, in cyclic order */
                return w->wide ? (int64_t)(v - wanted) >= 0
                               : (int32_t)((uint32_t)v - (uint32_t)wanted) >= 0;
        }
}

CUresult value_wait(CUcontext c, const struct work_value *w)
{
        uint64_t nap_ns = 20 * NSEC_PER_USEC;

        while (!context_stopped(c)) {
                struct end e;
                uint64_t v;

                if (!end_find(w->address, w->wide ? 8 : 4, c, false, false, &e) || !e.range)
                        return TRANSFER_FAILED;
                v = w->wide ? __atomic_load_n((uint64_t *)(void *)e.at, __ATOMIC_ACQUIRE)
                            : __atomic_load_n((uint32_t *)(void *)e.at, __ATOMIC_ACQUIRE);
                end_done(&e);
                if (value_holds(w, v))
                        break;
                /* A write to memory wakes no stream, so check again, less and less often. */
                session_sleep_until(session_now_ns() + nap_ns);
                nap_ns = MIN(2 * nap_ns, NSEC_PER_MSEC);
        }
        return CUDA_SUCCESS;
}
