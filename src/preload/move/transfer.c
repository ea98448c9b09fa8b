/* transfer.c: owns the streams and the transfers in flight, from the first driver call to the
 * figures at the end. Must never release memory before its contents are safe, nor hold core_lock in
 * a call that may take long.
 * Why: docs/decisions.md, "Managed memory is sent to the host when a turn ends". */
#include "preload/move/swap_state.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/move/extent.h"
#include "preload/rm/freeze_watch.h"
#include "preload/move/kept_copies.h"
#include "preload/move/trouble.h"
#include "preload/freeze/mover.h"
#include "preload/state/poison.h"
#include "preload/stream/quiesce.h"
#include "preload/driver/real.h"
#include "preload/process/trace.h"
#include "preload/state/request.h"
#include "wire/wire.h"
#include "preload/process/lock.h"

_Static_assert(TRANSFERS_MAX <= EXTENT_WINDOWS, "a window for each transfer");

CUresult transfer_prepare(struct gpu *g)
{
        struct swap *s = g->swap;
        CUcontext context = mover_context_of(g);
        unsigned events = 0;
        CUresult r;

        if (s->context && (s->context == context || s->count > 0))
                return real.cuCtxSetCurrent(s->context);
        if (!context)
                return CUDA_ERROR_OUT_OF_MEMORY; /* there is no context to copy in: try again */
        /* Do not destroy the objects in the old context; they end with it. Calls that destroy them
         * do not return while the program is frozen (measured). */
        arena_rest(s->arena);
        unchanged_leave(s->unchanged);
        s->context = NULL;
        r = real.cuCtxSetCurrent(context);
        if (r != CUDA_SUCCESS)
                return r;
        r = real.cuStreamCreate(&s->out, CU_STREAM_NON_BLOCKING);
        if (r != CUDA_SUCCESS)
                return r;
        r = real.cuStreamCreate(&s->in, CU_STREAM_NON_BLOCKING);
        if (r != CUDA_SUCCESS)
                goto no_in;
        for (; events < TRANSFERS_MAX; events++) {
                r = real.cuEventCreate(&s->ring[events].done, CU_EVENT_DISABLE_TIMING);
                if (r != CUDA_SUCCESS)
                        goto no_events;
        }
        s->context = context;
        return CUDA_SUCCESS;

no_events:
        while (events-- > 0)
                (void)real.cuEventDestroy_v2(s->ring[events].done);
        (void)real.cuStreamDestroy_v2(s->in);
no_in:
        (void)real.cuStreamDestroy_v2(s->out);
        return r;
}

/* A call on one of our streams has failed: find out whether the context is lost, or only the call
 * failed. */
static bool swap_context_died(struct gpu *g, CUresult why)
{
        CUresult r = real.cuStreamQuery(g->swap->out);
        bool died;

        lock_acquire(&core_lock);
        died = poison_note(g, r);
        if (!died)
                trouble_note(g, why);
        lock_release(&core_lock);
        return died;
}

/* Finds the next run of pages from *offset on. Returns its length, or 0 at the end. */
static uint64_t next_run(uint64_t pages, uint64_t *offset)
{
        uint64_t first = *offset / HEAP_GRANULARITY, rest = first < 64 ? pages >> first : 0, gap;

        if (rest == 0)
                return 0;
        gap = (uint64_t)__builtin_ctzll(rest);
        *offset = (first + gap) * HEAP_GRANULARITY;
        rest = ~(rest >> gap);
        return (rest ? (uint64_t)__builtin_ctzll(rest) : 64) * HEAP_GRANULARITY;
}

/* Copy the kept pages of an extent to the host copy or back. In the host copy they lie one after
 * the other. Without a host copy all pages are zero. For managed memory, one call of the driver
 * moves all pages that are not at their destination yet. */
static CUresult copy(struct gpu *g, struct transfer *t)
{
        const struct extent *e = t->extent;
        const struct arena_piece *p = e->host.pieces;
        struct swap *s = g->swap;
        uint64_t offset = 0, in_piece = 0, run;
        CUresult r = CUDA_SUCCESS;

        t->began_ns = clock_now_ns();
        freeze_watch_call(t->out ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync");
        if (e->managed)
                r = real.cuMemPrefetchAsync(t->at, e->bytes,
                                            t->out ? CU_DEVICE_CPU : (CUdevice)g->index,
                                            t->out ? s->out : s->in);
        else if (!p)
                r = real.cuMemsetD32Async(t->at, 0, e->bytes / 4, s->in);
        while (p && (run = next_run(e->kept, &offset)) > 0 && r == CUDA_SUCCESS) {
                for (uint64_t n; run > 0 && r == CUDA_SUCCESS; run -= n, offset += n) {
                        CUdeviceptr at = t->at + offset;
                        char *host = p->host + in_piece;

                        n = MIN(run, p->bytes - in_piece);
                        r = t->out ? real.cuMemcpyDtoHAsync_v2(host, at, n, s->out)
                                   : real.cuMemcpyHtoDAsync_v2(at, host, n, s->in);
                        in_piece += n;
                        if (in_piece == p->bytes) {
                                p++;
                                in_piece = 0;
                        }
                }
        }
        if (r == CUDA_SUCCESS)
                r = real.cuEventRecord(t->done, t->out ? s->out : s->in);
        return r;
}

static struct transfer *transfer_at(struct swap *s, unsigned i)
{
        return &s->ring[(s->first + i) % TRANSFERS_MAX];
}

static struct transfer *transfer_push(struct swap *s, struct extent *e, bool out)
{
        struct transfer *t = transfer_at(s, s->count++);

        *t = (struct transfer){.extent = e, .done = t->done, .out = out};
        return t;
}

static CUresult transfer_open(struct gpu *g, struct transfer *t)
{
        return extent_open(g, t->extent, (unsigned)(t - g->swap->ring), &t->at);
}

static void transfer_pop(struct swap *s)
{
        s->first = (s->first + 1) % TRANSFERS_MAX;
        s->count--;
}

/* Give up an eviction: the extent stays on the card, and its eviction is tried again later. */
static void evict_later(struct gpu *g, struct transfer *t)
{
        struct extent *e = t->extent;

        extent_close(e, &t->at);
        lock_acquire(&core_lock);
        kept_forget(g->swap->arena, e);
        g->heap.resident += e->bytes;
        swap_idle(g, e);
        lock_release(&core_lock);
        t->extent = NULL;
}

/* Give up a restore: the contents stay in the host copy. If the memory cannot be taken away yet,
 * the transfer stays in the ring, unless this is the last chance. */
static void restore_later(struct gpu *g, struct transfer *t, bool last)
{
        struct extent *e = t->extent;
        CUresult r;

        extent_close(e, &t->at);
        r = extent_unmap(g, e);
        lock_acquire(&core_lock);
        t->stuck = r != CUDA_SUCCESS && !g->error && !last;
        if (t->stuck) {
                trouble_note(g, r);
        } else {
                g->heap.backed -= e->bytes;
                swap_idle(g, e);
                t->extent = NULL;
        }
        lock_release(&core_lock);
}

static bool evict_copy(struct gpu *g, struct transfer *t)
{
        struct swap *s = g->swap;
        CUresult c;
        int r;

        if (!t->extent->managed && (r = kept_take(g, s->arena, t->extent)) < 0) {
                s->lent_soon = r == -EAGAIN;
                if (!s->no_host_said && !s->lent_soon)
                        log_warning("GPU %u: no host memory to evict %llu MiB to; they stay on the "
                                    "GPU for now",
                                    g->index, (unsigned long long)(t->extent->bytes >> 20));
                s->no_host_said = s->no_host_said || !s->lent_soon;
                s->no_host = true;
                evict_later(g, t);
                return false;
        }
        t->copies = true;
        c = copy(g, t);
        if (c == CUDA_SUCCESS)
                return true;
        (void)swap_context_died(g, c);
        /* Wait: copies that are already queued still write to the arena. */
        (void)trouble_await(s->out);
        evict_later(g, t);
        return false;
}

bool transfer_evict(struct gpu *g, struct extent *e)
{
        struct swap *s = g->swap;
        struct transfer *t = transfer_push(s, e, true);
        CUresult r;

        if (!s->evicting) {
                s->evicting = true;
                s->episode_bytes = 0;
                trace_event("evict_begin", g->index, 0);
        }
        if (!e->managed && !e->kept)
                return true; /* the extent has no allocation: there is nothing to copy */
        r = transfer_open(g, t);
        if (r != CUDA_SUCCESS) {
                (void)swap_context_died(g, r);
                evict_later(g, t);
                return false;
        }
        t->asked = !e->managed && unchanged_ask(s->unchanged, (unsigned)(t - s->ring), e, t->at);
        return t->asked || evict_copy(g, t);
}

/* The GPU has answered about the contents, or will not answer: decide whether to copy. */
static bool evict_answered(struct gpu *g, struct transfer *t)
{
        struct extent *e = t->extent;

        t->asked = false;
        if (t->known && fingerprint_is_zero(&t->print))
                kept_forget(g->swap->arena, e);
        else if (!t->known || !e->known || !e->host.count ||
                 !fingerprint_equal(&t->print, &e->print))
                return evict_copy(g, t);
        return true;
}

enum swap_progress transfer_answers(struct gpu *g)
{
        struct swap *s = g->swap;
        enum swap_progress progress = SWAP_NOTHING;

        for (unsigned i = 0; i < s->count; i++) {
                struct transfer *t = transfer_at(s, i);
                enum unchanged_answer a;

                if (!t->asked)
                        continue;
                a = unchanged_answer(s->unchanged, (unsigned)(t - s->ring), &t->print);
                if (a == UNCHANGED_WAIT)
                        break; /* the GPU answers in order */
                t->known = a == UNCHANGED_TOLD;
                if (evict_answered(g, t))
                        progress = SWAP_MORE;
                else if (progress < SWAP_LATER)
                        progress = SWAP_LATER;
        }
        return progress;
}

bool transfer_restore(struct gpu *g, struct extent *e, int passed_fd)
{
        struct swap *s = g->swap;
        struct transfer *t;
        CUresult r;

        if (!s->restoring) {
                s->restoring = true;
                s->episode_bytes = 0;
                trace_event("restore_begin", g->index, 0);
        }
        r = extent_map(g, e, passed_fd);
        if (r != CUDA_SUCCESS) {
                lock_acquire(&core_lock);
                swap_unclaim(g, e, r);
                lock_release(&core_lock);
                return false;
        }
        t = transfer_push(s, e, false);
        /* In a heap of managed memory, pages come back on their own when the program touches
         * them. */
        t->copies = e->state == EXTENT_EVICTED && !(e->managed && g->heap.managed);
        if (t->copies)
                r = transfer_open(g, t);
        if (t->copies && r == CUDA_SUCCESS)
                r = copy(g, t);
        if (r == CUDA_SUCCESS)
                return true;
        (void)swap_context_died(g, r);
        (void)trouble_await(s->in);
        restore_later(g, t, false);
        return false;
}

/* extent_left() and extent_came() update the figures after a move. */
static void extent_left(struct gpu *g, struct transfer *t) REQUIRES(core_lock)
{
        struct extent *e = t->extent;

        e->known = t->known;
        e->print = t->print;
        e->state = e->managed || e->kept ? EXTENT_EVICTED : EXTENT_UNBACKED;
        choose_left(g);
        g->heap.backed -= e->bytes;
        if (!e->managed)
                *(t->copies ? &g->moved_out : &g->spared_out) += extent_pages_bytes(e->kept);
        swap_idle(g, e);
        trouble_end(g);
        request_report(g);
        bell_ring(&core.changed);
}

static void extent_came(struct gpu *g, struct extent *e)
{
        lock_acquire(&core_lock);
        if (e->state == EXTENT_EVICTED && !e->managed)
                *(e->host.count ? &g->moved_in : &g->spared_in) += extent_pages_bytes(e->kept);
        /* With a known fingerprint the host copy is kept: the next eviction may find the extent
         * unchanged. */
        if (!e->known)
                kept_forget(g->swap->arena, e);
        swap_arrived(g, e);
        lock_release(&core_lock);
}

/* False: the copy goes on. If the context was lost, the transfer is undone and t->extent is NULL
 * afterwards. */
static bool copy_has_ended(struct gpu *g, struct transfer *t)
{
        struct swap *s = g->swap;
        CUresult r;

        freeze_watch_call("cuEventQuery");
        r = real.cuEventQuery(t->done);
        if (r == CUDA_ERROR_NOT_READY || (r != CUDA_SUCCESS && !swap_context_died(g, r)))
                return false;
        if (r != CUDA_SUCCESS) { /* the copying context is lost, the contents are not */
                if (t->out)
                        evict_later(g, t);
                else
                        restore_later(g, t, false);
        } else if (t->out) {
                uint64_t now = clock_now_ns();

                unchanged_copied(s->unchanged, t->extent->bytes,
                                 now - MAX(t->began_ns, s->copied_ns));
                s->copied_ns = now;
        }
        return true;
}

/* Returns a descriptor of the memory of an extent that is about to leave, for the next process;
 * negative: there is none. */
static int export_for_successor(struct gpu *g, struct extent *e)
{
        bool pass_on;

        lock_acquire(&core_lock);
        pass_on = g->attached && g->may_pass && extent_may_leave(g, e) &&
                  g->leaving.count < WIRE_PASS_MAX &&
                  g->heap.backed > g->limit; /* otherwise the memory comes back to us, and no other
                                                process may use it */
        lock_release(&core_lock);
        return pass_on ? extent_export(e) : -EBADF;
}

/* Tries again to unmap the memory of a restore that was given up, once that is due. */
static void try_stuck(struct gpu *g, struct transfer *t)
{
        bool waits;

        lock_acquire(&core_lock);
        waits = trouble_waits(g);
        lock_release(&core_lock);
        if (!waits)
                restore_later(g, t, false);
}

/* Takes away the memory of a copied extent, and hands it over if another process may use it. False:
 * the memory stays on the card. */
static bool leave(struct gpu *g, struct transfer *t)
{
        struct extent *e = t->extent;
        int fd = export_for_successor(g, e);
        CUresult r = extent_unmap(g, e);

        lock_acquire(&core_lock);
        if (r != CUDA_SUCCESS) {
                trouble_note(g, r);
        } else {
                if (fd >= 0)
                        passed_add(&g->leaving, fd);
                extent_left(g, t);
        }
        lock_release(&core_lock);
        if (r == CUDA_SUCCESS)
                return true;
        if (fd >= 0)
                (void)close(fd);
        evict_later(g, t);
        return false;
}

enum swap_progress transfer_reap(struct gpu *g)
{
        struct swap *s = g->swap;
        struct transfer *t = &s->ring[s->first];
        struct extent *e;
        uint64_t bytes;

        if (s->count == 0 || t->asked)
                return SWAP_NOTHING;
        if (t->stuck)
                try_stuck(g, t);
        else if (t->copies && t->extent && !copy_has_ended(g, t))
                return SWAP_NOTHING;
        if (t->stuck)
                return SWAP_NOTHING;
        e = t->extent;
        bytes = e ? e->bytes : 0; /* after leave() an extent that was freed meanwhile is gone */
        if (e)
                extent_close(e, &t->at);
        if (e && t->out && !leave(g, t))
                bytes = 0;
        if (e && !t->out)
                extent_came(g, e);
        s->episode_bytes += bytes;
        transfer_pop(s);
        return bytes ? SWAP_MORE : SWAP_LATER;
}

void transfer_end(struct gpu *g)
{
        struct swap *s = g->swap;

        arena_rest(s->arena);
        unchanged_settle(s->unchanged);
        (void)transfer_answers(g);
        (void)trouble_await(s->out);
        (void)trouble_await(s->in);
        while (transfer_reap(g) != SWAP_NOTHING)
                ;
        for (; s->count > 0; transfer_pop(s)) { /* the driver has failed */
                struct transfer *t = &s->ring[s->first];

                if (t->extent && t->out)
                        evict_later(g, t);
                else if (t->extent)
                        restore_later(g, t, true);
        }
        unchanged_forget(s->unchanged);
        for (unsigned i = 0; i < TRANSFERS_MAX; i++)
                (void)real.cuEventDestroy_v2(s->ring[i].done);
        (void)real.cuStreamDestroy_v2(s->out);
        (void)real.cuStreamDestroy_v2(s->in);
}
