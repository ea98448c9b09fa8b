/* frames.c: owns the frames of managed memory in the shared segment, and the choice of the frame
 * that leaves a card next. Must never sleep with the lock, nor leave a frame half changed, because
 * a process may be killed at any point. */
#include "sim/session/frames.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "sim/session/segment.h"

#define WAIT_NS (10 * NSEC_PER_MSEC) /* a wait ends by itself: the waking process may be killed */

static uint32_t own_number(const struct session *s)
{
        return (uint32_t)(s->own - s->segment->slot) + 1;
}

/* True if the slot is ours: after session_leave() it may belong to another process. */
static bool own_valid(const struct session *s)
{
        return slot_live(s->own) && s->own->pid == getpid();
}

static void wake_all(struct session_segment *g)
{
        atomic_fetch_add(&g->changes, 1);
        if (atomic_load(&g->waiters) > 0)
                (void)syscall(SYS_futex, &g->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static struct segment_frame *frame_at(struct session_segment *g, unsigned device, unsigned frame)
{
        return &g->frames[device].frame[frame];
}

/* Returns the caller's frame; NULL: it no longer belongs to the caller. */
static struct segment_frame *frame_of(struct session *s, const struct frames_place *p)
{
        struct segment_frame *f = frame_at(s->segment, s->card[p->device], p->frame);

        return own_valid(s) && f->owner == own_number(s) && f->block == p->block ? f : NULL;
}

/* Takes a frame from its owner. A process that is moving the frame still finishes the move. */
static void frame_let_go(struct session_segment *g, unsigned device, struct segment_frame *f)
{
        struct session_use *use = &g->slot[f->owner - 1].device[device];

        atomic_fetch_sub(&use->used, f->bytes);
        atomic_fetch_sub(&use->managed, f->bytes);
        f->owner = 0;
        f->pins = 0;
        f->regions = 0;
}

void frames_slot_ends(struct session_segment *g, const struct session_slot *slot)
{
        uint32_t number = (uint32_t)(slot - g->slot) + 1;

        for (unsigned d = 0; d < SESSION_DEVICES; d++) {
                for (uint32_t i = 0; i < g->frames[d].high; i++) {
                        struct segment_frame *f = &g->frames[d].frame[i];

                        if (f->owner == number)
                                frame_let_go(g, d, f);
                        if (f->mover != number)
                                continue;
                        if (f->copied && f->owner)
                                frame_let_go(g, d, f);
                        f->copied = false;
                        f->mover = 0;
                }
        }
        wake_all(g);
}

static struct segment_frame *frame_unused(struct session_segment *g, unsigned device)
{
        for (uint32_t i = 0; i < g->frames[device].high; i++) {
                struct segment_frame *f = frame_at(g, device, i);

                if (!f->owner && !f->mover)
                        return f;
        }
        if (g->frames[device].high == SEGMENT_FRAMES)
                return NULL;
        return frame_at(g, device, g->frames[device].high++);
}

int frames_take(struct session *s, unsigned device, uint64_t block, uint64_t bytes,
                struct frames_place *ret_place)
{
        struct session_segment *g = s->segment;
        unsigned card = s->card[device];
        struct segment_frame *f;
        int r;

        segment_lock(g);
        r = own_valid(s) ? segment_charge(s, device, bytes) : -ESHUTDOWN;
        if (r == 0) {
                f = frame_unused(g, card);
                if (f) {
                        atomic_fetch_add(&s->own->device[card].managed, bytes);
                        *f = (struct segment_frame){.owner = own_number(s),
                                                    .pins = 1,
                                                    .bytes = (uint32_t)bytes,
                                                    .block = block,
                                                    .last_use = ++g->uses};
                        *ret_place = (struct frames_place){
                                device, (unsigned)(f - g->frames[card].frame), block};
                } else {
                        atomic_fetch_sub(&s->own->device[card].used, bytes);
                        r = -ENOMEM;
                }
        }
        segment_unlock(g);
        return r;
}

int frames_look(struct session *s, const struct frames_place *p, uint32_t *ret_regions)
{
        struct segment_frame *f;
        int r = -ENOENT;

        segment_lock(s->segment);
        f = frame_of(s, p);
        if (f) {
                r = f->mover ? -EBUSY : 0;
                *ret_regions = f->regions;
        }
        segment_unlock(s->segment);
        return r;
}

int frames_pin(struct session *s, const struct frames_place *p, uint32_t *ret_regions)
{
        struct segment_frame *f;
        int r = -ENOENT;

        segment_lock(s->segment);
        f = frame_of(s, p);
        if (f && f->mover) {
                r = -EBUSY;
        } else if (f) {
                f->pins++;
                f->last_use = ++s->segment->uses;
                *ret_regions = f->regions;
                r = 0;
        }
        segment_unlock(s->segment);
        return r;
}

void frames_unpin(struct session *s, const struct frames_place *p)
{
        struct segment_frame *f;

        segment_lock(s->segment);
        f = frame_of(s, p);
        /* The block may have been freed while work was using it. Then this is a new frame, which
         * the work has not pinned. */
        if (f && f->pins > 0 && --f->pins == 0)
                wake_all(s->segment);
        segment_unlock(s->segment);
}

void frames_add(struct session *s, const struct frames_place *p, uint32_t regions)
{
        struct segment_frame *f;

        segment_lock(s->segment);
        f = frame_of(s, p);
        if (f)
                f->regions |= regions;
        segment_unlock(s->segment);
}

int frames_claim(struct session *s, const struct frames_place *p, uint32_t *ret_regions)
{
        struct segment_frame *f;
        int r = -ENOENT;

        segment_lock(s->segment);
        f = frame_of(s, p);
        if (f && (f->mover || f->pins > 0)) {
                r = -EBUSY;
                if (!f->mover)
                        atomic_fetch_add(&s->segment->frames[s->card[p->device]].hunger, 1);
        } else if (f) {
                f->mover = own_number(s);
                *ret_regions = f->regions;
                r = 0;
        }
        segment_unlock(s->segment);
        return r;
}

void frames_remove(struct session *s, const struct frames_place *p, uint32_t regions)
{
        struct segment_frame *f;

        segment_lock(s->segment);
        f = frame_of(s, p);
        if (f && f->mover == own_number(s)) {
                f->regions &= ~regions;
                f->mover = 0;
                if (!f->regions)
                        frame_let_go(s->segment, s->card[p->device], f);
                wake_all(s->segment);
        }
        segment_unlock(s->segment);
}

void frames_forget(struct session *s, const struct frames_place *p)
{
        struct segment_frame *f;

        segment_lock(s->segment);
        f = frame_of(s, p);
        if (f) {
                frame_let_go(s->segment, s->card[p->device], f);
                wake_all(s->segment);
        }
        segment_unlock(s->segment);
}

/* ---- choosing a victim ---- */

/* True if the user may move the frame: files of another user cannot be opened. */
static bool may_move(const struct session_segment *g, const struct segment_frame *f, uid_t user)
{
        return user == 0 || g->slot[f->owner - 1].uid == user;
}

int frames_victim(struct session *s, unsigned device, struct frames_victim *ret_victim)
{
        struct session_segment *g = s->segment;
        unsigned card = s->card[device];
        struct segment_frame *best = NULL;
        uid_t user = geteuid();
        bool any = false;

        segment_lock(g);
        for (uint32_t i = 0; i < g->frames[card].high; i++) {
                struct segment_frame *f = frame_at(g, card, i);

                if (!f->owner || !may_move(g, f, user))
                        continue;
                any = true;
                if (!f->mover && f->pins == 0 && (!best || f->last_use < best->last_use))
                        best = f;
        }
        if (best && own_valid(s)) {
                const struct session_slot *slot = &g->slot[best->owner - 1];

                best->mover = own_number(s);
                best->copied = false;
                *ret_victim = (struct frames_victim){
                        .device = device,
                        .frame = (unsigned)(best - g->frames[card].frame),
                        .slot = best->owner - 1,
                        .pid = slot->pid,
                        .host = slot->host,
                        .card = slot->card,
                        .block = best->block,
                        .regions = best->regions,
                };
        } else if (any) {
                atomic_fetch_add(&g->frames[card].hunger, 1);
        }
        segment_unlock(g);
        return best ? 0 : any ? -EBUSY : -ENOENT;
}

static struct segment_frame *frame_of_victim(struct session *s, const struct frames_victim *v)
{
        struct segment_frame *f = frame_at(s->segment, s->card[v->device], v->frame);

        return own_valid(s) && f->mover == own_number(s) && f->block == v->block ? f : NULL;
}

bool frames_copied(struct session *s, const struct frames_victim *v, uint64_t copied_bytes)
{
        struct segment_frame *f;
        bool ours;

        segment_lock(s->segment);
        f = frame_of_victim(s, v);
        ours = f && f->owner == v->slot + 1;
        if (ours) {
                struct session_counters *n =
                        &s->segment->slot[v->slot].device[s->card[v->device]].counters;

                f->copied = true;
                /* Like nvprof, count the eviction for the process that loses the frame, not for the
                 * one that needs the room. */
                session_count(&n->d2h_bytes, copied_bytes);
                session_count(&n->d2h_copies, 1);
                session_count(&n->managed_d2h_bytes, copied_bytes);
                session_count(&n->managed_d2h_moves, 1);
                session_count(&n->evictions, 1);
        }
        segment_unlock(s->segment);
        return ours;
}

void frames_victim_end(struct session *s, const struct frames_victim *v, bool evicted)
{
        struct segment_frame *f;

        segment_lock(s->segment);
        f = frame_of_victim(s, v);
        if (f) {
                if (evicted && f->owner)
                        frame_let_go(s->segment, s->card[v->device], f);
                f->mover = 0;
                f->copied = false;
                wake_all(s->segment);
        }
        segment_unlock(s->segment);
}

void frames_victim_gone(struct session *s, const struct frames_victim *v)
{
        struct session_segment *g = s->segment;

        segment_lock(g);
        for (unsigned d = 0; d < SESSION_DEVICES; d++)
                for (uint32_t i = 0; i < g->frames[d].high; i++)
                        if (frame_at(g, d, i)->owner == v->slot + 1)
                                frame_let_go(g, d, frame_at(g, d, i));
        segment_unlock(g);
        frames_victim_end(s, v, true);
}

/* ---- waiting ---- */

uint32_t frames_hunger(struct session *s, unsigned device)
{
        return atomic_load_explicit(&s->segment->frames[s->card[device]].hunger,
                                    memory_order_relaxed);
}

uint32_t frames_changes(struct session *s)
{
        return atomic_load(&s->segment->changes);
}

void frames_wait(struct session *s, uint32_t changes)
{
        struct timespec ts = {.tv_nsec = WAIT_NS};

        bool late;

        /* A process that is killed during the wait stays counted, which costs other processes some
         * needless system calls. */
        atomic_fetch_add(&s->segment->waiters, 1);
        late = syscall(SYS_futex, &s->segment->changes, FUTEX_WAIT, changes, &ts, NULL, 0) < 0 &&
               errno == ETIMEDOUT;
        atomic_fetch_sub(&s->segment->waiters, 1);
        if (late)
                session_reap(s);
}

void frames_stores(struct session *s, const struct session_store *host,
                   const struct session_store *card)
{
        segment_lock(s->segment);
        if (own_valid(s)) {
                s->own->host = *host;
                s->own->card = *card;
        }
        segment_unlock(s->segment);
}
