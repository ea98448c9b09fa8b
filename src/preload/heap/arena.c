/* arena.c: owns the pinned host memory. Must never hand out memory that was not touched: if the
 * host runs out of memory, the failure has to come before anything is moved.
 * Why: docs/decisions.md, "Threads make host memory for evictions, and one at a time pins it" and
 * "Programs that evict together share the host's margin". */
#include "preload/heap/arena.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/host.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/heap/lent.h"
#include "preload/process/libc_compat.h"
#include "preload/process/lock.h"
#include "preload/rm/freeze_watch.h"
#include "preload/driver/real.h"

#define ARENA_UNIT (UINT64_C(2) << 20)  /* a huge page */
#define PART_MIN   (UINT64_C(16) << 20) /* smaller segments cost more than they save in time */
#define MAKERS_MAX 16u

struct segment {
        struct segment *next;
        char *memory;
        uint64_t bytes;
        uint32_t units, used;
        uint32_t pool;   /* memfd of memory that the daemon lends (lent.h); 0: own memory */
        bool registered; /* false: the driver refused (locked-memory limit), so copies are slower */
        uint64_t used_bits[];
};

/* The bytes that the makers of all arenas may touch before one of them reads the host's free memory
 * again. */
static struct {
        struct lock lock;
        struct bell looked; /* rung after each reading */
        bool looks;         /* a maker is reading now */
        uint64_t bytes;     /* what is left of the share */
        uint64_t low;       /* if less is left, one maker reads; the others use up the rest */
} share = {.low = ARENA_UNIT};

struct arena {
        struct lock lock;
        struct lock pinning; /* one maker pins at a time: other processes' calls wait meanwhile */
        struct bell made;    /* rung when a maker has made a segment, and when it ends */
        struct segment *segments;
        uint64_t segment_bytes;
        uint64_t expected,
                ahead; /* bytes that the agent is about to take, and bytes that it may take later */
        CUcontext context; /* the context that the makers use */
        unsigned makers;
        uint64_t wanted;        /* bytes that no maker has begun to make */
        uint64_t begun;         /* bytes that makers make now */
        uint64_t part;          /* size of the segments that makers make now */
        bool lends;             /* makers now make segments of memory that the daemon lends */
        bool full;              /* the host had no room for a segment */
        _Atomic bool refused;   /* the driver did not pin a segment */
        _Atomic uint64_t lent;  /* bytes of segments that the daemon lends */
        _Atomic uint64_t bytes; /* bytes of all segments, also of those that makers make now */
};

struct arena *arena_new(uint64_t segment_bytes)
{
        struct arena *a = calloc(1, sizeof(*a));

        if (a)
                a->segment_bytes = align_up(segment_bytes, ARENA_UNIT);
        return a;
}

uint64_t arena_bytes(const struct arena *a)
{
        return atomic_load_explicit(&a->bytes, memory_order_relaxed);
}

uint64_t arena_lent(const struct arena *a)
{
        return atomic_load_explicit(&a->lent, memory_order_relaxed);
}

/* ---- segments ---- */

/* Maps anonymous memory. By the kernel's defaults no other kind gets huge pages, which are pinned
 * many times faster. */
static char *map_huge(uint64_t bytes)
{
        char *raw = mmap(NULL, bytes + ARENA_UNIT, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        char *memory;

        if (raw == MAP_FAILED)
                return NULL;
        memory = (char *)align_up((uint64_t)(uintptr_t)raw, ARENA_UNIT);
        if (memory > raw)
                (void)munmap(raw, (size_t)(memory - raw));
        if (memory < raw + ARENA_UNIT)
                (void)munmap(memory + bytes, (size_t)(raw + ARENA_UNIT - memory));
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
        (void)madvise(memory, bytes, MADV_DONTFORK); /* a fork would copy every pinned page */
        (void)madvise(memory, bytes, MADV_DONTDUMP);
        return memory;
}

/* If we touched more than the host has free, the kernel would kill the program. */
bool arena_host_has(uint64_t bytes)
{
        struct host_memory m;

        return host_memory_read(&m) < 0 || host_memory_room(&m) >= bytes;
}

/* True if the daemon can lend these bytes, or the host has them free, and half of all its memory
 * besides. What is pinned ahead may never be needed, and an eviction of another program may need it
 * meanwhile: two programs that had pinned seven eighths of the host between them kept each other
 * waiting. */
static bool has_to_spare(uint64_t bytes, bool lent)
{
        struct host_memory m;
        uint64_t most;

        if (lent)
                return lent_left(&most) >= bytes + most / 2;
        return host_memory_read(&m) < 0 || host_memory_room(&m) >= bytes + m.total_bytes / 2;
}

static bool has(uint64_t bytes, bool lent)
{
        uint64_t most;

        return lent ? lent_left(&most) >= bytes : arena_host_has(bytes);
}

/* Ends the share: the next maker has to read the host's free memory first. */
static void share_end(void)
{
        lock_acquire(&share.lock);
        share.bytes = 0;
        lock_release(&share.lock);
}

static void share_renew(void) REQUIRES(share.lock)
{
        struct host_memory m;
        uint64_t bytes;

        share.looks = true;
        lock_release(&share.lock);
        bytes = host_memory_read(&m) < 0 ? UINT64_MAX : host_memory_share(&m);
        lock_acquire(&share.lock);
        share.looks = false;
        share.bytes = bytes;
        share.low = MAX(bytes / 2, ARENA_UNIT);
        bell_ring(&share.looked);
}

/* True if the host has room for one more unit. Several programs may read the free memory at the
 * same moment, and count the same bytes. So each reads again after a share (docs/decisions.md). */
static bool share_take_unit(void)
{
        bool has;

        lock_acquire(&share.lock);
        for (uint32_t heard;
             heard = bell_listen(&share.looked), share.looks && share.bytes < ARENA_UNIT;) {
                lock_release(&share.lock);
                bell_wait(&share.looked, heard, UINT64_MAX);
                lock_acquire(&share.lock);
        }
        if (!share.looks && share.bytes < share.low)
                share_renew();
        has = share.bytes >= ARENA_UNIT;
        if (has)
                share.bytes -= ARENA_UNIT;
        lock_release(&share.lock);
        return has;
}

/* Touches memory, as far as the host has room. Lent memory has its room already. Returns the number
 * of bytes touched. */
static uint64_t touch(char *memory, uint64_t bytes, bool lent)
{
        uint64_t done = 0;

        for (; done < bytes && (lent || share_take_unit()); done += ARENA_UNIT)
                for (uint64_t i = done; i < done + ARENA_UNIT; i += 4096)
                        ((volatile char *)memory)[i] = 0;
        return done;
}

/* lent: the daemon lends the memory. If the host has room for less than `bytes`, the segment is
 * smaller. Touched memory is kept: otherwise programs that run out of room together would all begin
 * again. */
static struct segment *segment_new(uint64_t bytes, bool lent)
{
        const uint32_t units = (uint32_t)(bytes / ARENA_UNIT);
        struct segment *s;

        s = calloc(1, sizeof(*s) + (units + 63) / 64 * sizeof(uint64_t));
        if (!s)
                return NULL;
        s->memory = lent ? lent_map(bytes, &s->pool) : map_huge(bytes);
        if (!s->memory) {
                free(s);
                return NULL;
        }
        s->bytes = touch(s->memory, bytes, lent);
        s->units = (uint32_t)(s->bytes / ARENA_UNIT);
        if (s->bytes < bytes)
                (void)munmap(s->memory + s->bytes, bytes - s->bytes);
        if (s->bytes == 0) {
                free(s);
                return NULL;
        }
        return s;
}

static void segment_pin(struct arena *a, struct segment *s)
{
        CUresult r;

        lock_acquire(&a->pinning);
        r = real.cuMemHostRegister_v2(s->memory, s->bytes, CU_MEMHOSTREGISTER_PORTABLE);
        lock_release(&a->pinning);
        s->registered = r == CUDA_SUCCESS;
        if (!s->registered && !atomic_exchange(&a->refused, true))
                log_warning("cannot pin %llu MiB of host memory (CUDA error %d): evictions will be "
                            "slow; raise the "
                            "locked-memory limit",
                            (unsigned long long)(s->bytes >> 20), (int)r);
}

static void segment_delete(struct segment *s)
{
        if (s->registered)
                (void)real.cuMemHostUnregister(s->memory);
        if (s->pool)
                lent_unmap(s->memory, s->bytes, s->pool);
        else
                (void)munmap(s->memory, s->bytes);
        free(s);
}

static void segment_link(struct arena *a, struct segment *s)
{
        s->next = a->segments;
        a->segments = s;
        if (s->pool)
                atomic_fetch_add_explicit(&a->lent, s->bytes, memory_order_relaxed);
}

/* ---- makers: threads that make segments ---- */

/* Returns the bytes of the maker's next segment; 0: no more are wanted. */
static uint64_t claim(struct arena *a) REQUIRES(a->lock)
{
        const uint64_t bytes = MIN(a->part, a->wanted);

        a->wanted -= bytes;
        a->begun += bytes;
        atomic_fetch_add_explicit(&a->bytes, bytes, memory_order_relaxed);
        return bytes;
}

/* One thread touches 3 GiB/s and pins 40 GiB/s. 16 threads touch 30 to 40 GiB/s, as far as there
 * are processors (measured beside an H100). */
static void make(struct arena *a)
{
        uint64_t bytes;

        lock_acquire(&a->lock);
        while ((bytes = claim(a)) > 0) {
                const bool lent = a->lends;
                uint64_t made = 0;
                struct segment *s;

                lock_release(&a->lock);
                s = segment_new(bytes, lent);
                if (s)
                        segment_pin(a, s);
                lock_acquire(&a->lock);
                a->begun -= bytes;
                if (s) {
                        segment_link(a, s);
                        made = s->bytes;
                }
                if (made < bytes) {
                        atomic_fetch_sub_explicit(&a->bytes, bytes - made, memory_order_relaxed);
                        a->wanted = 0;
                        /* Other arenas may have mapped the lent bytes first: then ask for more. */
                        a->full = !lent || lent_ready() >= bytes;
                }
                bell_ring(&a->made);
        }
        a->makers--;
        bell_ring(&a->made);
        lock_release(&a->lock);
}

static void *maker_main(void *userdata)
{
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        struct arena *a = userdata;
        CUcontext context;

        lock_acquire(&a->lock);
        context = a->context;
        lock_release(&a->lock);
        (void)real.cuCtxSetCurrent(context);
        (void)real.cuThreadExchangeStreamCaptureMode(&mode);
        make(a);
        return NULL;
}

/* Starts makers of this many bytes, at most one for each `processors_each` processors. They use the
 * caller's context. lent: the daemon lends the memory, which is ready (lent.h). Otherwise nothing
 * is made if the host has no room for all of it. */
static void begin_making(struct arena *a, uint64_t bytes, bool lent, unsigned processors_each)
{
        unsigned most = MAKERS_MAX / processors_each, more = 0;
        const bool room = lent || arena_host_has(bytes);
        CUcontext context;
        cpu_set_t cpus;

        if (real.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
                context = NULL; /* the driver will refuse to pin */
        if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
                most = MIN(most, MAX((unsigned)CPU_COUNT(&cpus) / processors_each, 1u));
        share_end();
        lock_acquire(&a->lock);
        a->full = !room && a->makers == 0;
        if (room) {
                /* Lent memory that makers make already is no longer part of `bytes`. */
                a->wanted = lent ? bytes : sub_sat(bytes, a->begun);
                a->lends = lent;
                most = (unsigned)MAX(MIN(most, a->wanted / PART_MIN), UINT64_C(1));
                a->part =
                        align_up(MIN((a->wanted + most - 1) / most, a->segment_bytes), ARENA_UNIT);
                most = (unsigned)MIN(most, (a->wanted + a->part - 1) / MAX(a->part, ARENA_UNIT));
                more = a->makers < most ? most - a->makers : 0;
                a->makers += more;
        }
        if (more > 0)
                a->context = context;
        lock_release(&a->lock);
        while (more-- > 0)
                if (compat_thread_start(maker_main, a) != 0)
                        make(a);
}

/* Waits until a maker rings a->made; returns at once if one has rung since `heard` was read. */
static void await_maker(struct arena *a, uint32_t heard) REQUIRES(a->lock)
{
        lock_release(&a->lock);
        freeze_watch_call("cuMemHostRegister");
        bell_wait(&a->made, heard, UINT64_MAX);
        lock_acquire(&a->lock);
}

void arena_rest(struct arena *a)
{
        lock_acquire(&a->lock);
        a->wanted = 0;
        for (uint32_t heard; heard = bell_listen(&a->made), a->makers > 0;)
                await_maker(a, heard);
        lock_release(&a->lock);
}

/* ---- room ---- */

static bool unit_used(const struct segment *s, uint32_t i)
{
        return s->used_bits[i / 64] >> (i % 64) & 1;
}

static void units_mark(struct segment *s, uint32_t from, uint32_t count, bool used)
{
        for (uint32_t i = from; i < from + count; i++) {
                if (used)
                        s->used_bits[i / 64] |= UINT64_C(1) << (i % 64);
                else
                        s->used_bits[i / 64] &= ~(UINT64_C(1) << (i % 64));
        }
        s->used += used ? count : -count;
}

static int room_append(struct arena_room *room, char *host, uint64_t bytes)
{
        struct arena_piece *pieces = realloc(room->pieces, (room->count + 1) * sizeof(*pieces));

        if (!pieces)
                return -ENOMEM;
        room->pieces = pieces;
        pieces[room->count++] = (struct arena_piece){.host = host, .bytes = bytes};
        return 0;
}

/* Takes up to `units` units from one segment. Returns how many are still missing, or -ENOMEM. */
static int64_t segment_take(struct segment *s, uint32_t units, struct arena_room *room)
{
        for (uint32_t i = 0; i < s->units && units > 0;) {
                uint32_t run = 0;

                while (i + run < s->units && run < units && !unit_used(s, i + run))
                        run++;
                if (run > 0) {
                        if (room_append(room, s->memory + i * ARENA_UNIT, run * ARENA_UNIT) < 0)
                                return -ENOMEM;
                        units_mark(s, i, run, true);
                        units -= run;
                }
                i += run + 1;
        }
        return units;
}

void arena_expect(struct arena *a, uint64_t bytes, uint64_t ahead)
{
        a->expected = bytes;
        a->ahead = ahead;
}

static bool is_making(struct arena *a)
{
        bool makes;

        lock_acquire(&a->lock);
        makes = a->makers > 0;
        lock_release(&a->lock);
        return makes;
}

/* Returns the bytes of lent memory that makers make now, or are about to. */
static uint64_t being_lent(struct arena *a)
{
        uint64_t bytes;

        lock_acquire(&a->lock);
        bytes = a->makers > 0 && a->lends ? a->begun + a->wanted : 0;
        lock_release(&a->lock);
        return bytes;
}

/* Begins to make segments of lent memory that is ready, and asks the daemon to lend the rest of
 * `bytes`. */
static enum lent borrow(struct arena *a, uint64_t bytes, unsigned processors_each)
{
        const enum lent lent = lent_want(sub_sat(bytes, being_lent(a)));

        if (lent == LENT_READY && !is_making(a))
                begin_making(a, MIN(lent_ready(), bytes), true, processors_each);
        return lent;
}

bool arena_add(struct arena *a, uint64_t missing)
{
        /* Make only a little at a time, because the program may need the processors soon. */
        const uint64_t bytes = align_up(MIN(missing, MAKERS_MAX * a->segment_bytes), ARENA_UNIT);

        if (missing == 0 || atomic_load(&a->refused))
                return false;
        if (lent_is_there())
                return has_to_spare(bytes, true) && borrow(a, bytes, 2) != LENT_NONE;
        if (!has_to_spare(bytes, false))
                return false;
        if (!is_making(a))
                begin_making(a, bytes, false, 2);
        return true;
}

/* Returns how many bytes to make: the missing ones and, if the host or the daemon has them, the
 * expected ones. */
static uint64_t affordable(const struct arena *a, uint64_t missing, bool lent)
{
        const uint64_t least = MAX(missing, MIN(PART_MIN, a->segment_bytes));
        const uint64_t expected = align_up(MAX(least, a->expected), ARENA_UNIT);
        const uint64_t all = align_up(MAX(least, a->expected + a->ahead), ARENA_UNIT);

        return has_to_spare(all, lent) ? all : has(expected, lent) ? expected : least;
}

/* Begins to make the missing bytes, or a part of them. -EAGAIN: the daemon has to lend them
 * first. */
static int begin_missing(struct arena *a, uint64_t missing)
{
        switch (borrow(a, affordable(a, missing, true), 1)) {
        case LENT_READY:
                return 0;
        case LENT_ASKED:
                return is_making(a) ? 0 : -EAGAIN;
        default:
                begin_making(a, affordable(a, missing, false), false, 1);
                return 0;
        }
}

int arena_take(struct arena *a, uint64_t bytes, struct arena_room *ret)
{
        int64_t left = (int64_t)(bytes / ARENA_UNIT);
        struct arena_room room = {0};
        bool begun = false;
        int r = 0;

        lock_acquire(&a->lock);
        for (;;) {
                const uint32_t heard = bell_listen(&a->made);

                for (struct segment *s = a->segments; s && left > 0; s = s->next)
                        if (s->used < s->units)
                                left = segment_take(s, (uint32_t)left, &room);
                if (left <= 0 || r < 0)
                        break;
                if (begun && a->makers > 0) {
                        await_maker(a, heard);
                        continue;
                }
                if (begun && a->full) {
                        r = -ENOMEM;
                        break;
                }
                lock_release(&a->lock);
                r = begin_missing(a, (uint64_t)left * ARENA_UNIT);
                begun = true;
                lock_acquire(&a->lock);
        }
        lock_release(&a->lock);
        if (left != 0) {
                arena_give(a, &room);
                return r < 0 ? r : -ENOMEM;
        }
        a->expected = sub_sat(a->expected, bytes);
        *ret = room;
        return 0;
}

void arena_give(struct arena *a, struct arena_room *room)
{
        lock_acquire(&a->lock);
        for (unsigned i = 0; i < room->count; i++) {
                struct arena_piece *p = &room->pieces[i];

                for (struct segment *s = a->segments; s; s = s->next)
                        if (p->host >= s->memory && p->host < s->memory + s->bytes) {
                                units_mark(s,
                                           (uint32_t)((uint64_t)(p->host - s->memory) / ARENA_UNIT),
                                           (uint32_t)(p->bytes / ARENA_UNIT), false);
                                break;
                        }
        }
        lock_release(&a->lock);
        free(room->pieces);
        *room = (struct arena_room){0};
}

void arena_trim(struct arena *a, uint64_t bytes)
{
        struct segment **link, *dead = NULL;

        arena_rest(a);
        lock_acquire(&a->lock);
        for (link = &a->segments; *link && arena_bytes(a) > bytes;) {
                struct segment *s = *link;

                if (s->used > 0) {
                        link = &s->next;
                        continue;
                }
                *link = s->next;
                s->next = dead;
                dead = s;
                atomic_fetch_sub_explicit(&a->bytes, s->bytes, memory_order_relaxed);
                if (s->pool)
                        atomic_fetch_sub_explicit(&a->lent, s->bytes, memory_order_relaxed);
        }
        lock_release(&a->lock);
        while (dead) {
                struct segment *next = dead->next;

                segment_delete(dead);
                dead = next;
        }
}
