/* arena.c: owns the pinned host memory. Must never hand out memory that was not touched: if the
 * host runs out of memory, the failure has to come before anything is moved. */
#include "preload/heap/arena.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/host.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/process/libc_compat.h"
#include "preload/process/lock.h"
#include "preload/rm/freeze_watch.h"
#include "preload/driver/real.h"

#define ARENA_UNIT        (UINT64_C(2) << 20) /* a huge page */
#define ARENA_TOUCHER_MAX 16u

struct segment {
        struct segment *next;
        char *memory;
        uint64_t bytes;
        uint32_t units, used;
        bool registered; /* false: the driver refused (locked-memory limit), so copies are slower */
        uint64_t used_bits[];
};

/* One thread's part of the memory to touch. */
struct part {
        char *memory;
        uint64_t bytes;
        struct bell *done; /* rung by each thread when it has ended */
};

/* Mapped memory that threads touch. */
struct raw {
        char *memory; /* NULL: none */
        uint64_t bytes;
        unsigned threads;
        struct bell done;
        struct part parts[ARENA_TOUCHER_MAX];
};

struct arena {
        struct lock lock;
        struct segment *segments;
        uint64_t segment_bytes;
        uint64_t expected;      /* the agent's: bytes that it is about to take */
        struct raw next;        /* the agent's: memory for the next segment */
        _Atomic uint64_t bytes; /* of all segments, and of the next one */
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

static void *touch_pages(void *userdata)
{
        struct part *p = userdata;

        for (uint64_t i = 0; i < p->bytes; i += 4096)
                ((volatile char *)p->memory)[i] = 0;
        bell_ring(p->done);
        return NULL;
}

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

/* True if the host has this many bytes free. If we touched more, the kernel would kill the program.
 */
static bool host_has(uint64_t bytes)
{
        struct host_memory m;

        return host_memory_read(&m) < 0 || host_memory_room(&m) >= bytes;
}

/* Begins to touch the memory of the next segment. Touching takes most of the time, and more threads
 * are faster: 16 threads touch 64 GB/s, 4 threads 9 GB/s (docs/measurements). False: the host has
 * no room. */
static bool next_begin(struct arena *a, uint64_t bytes)
{
        struct raw *r = &a->next;
        unsigned n = 1;
        cpu_set_t cpus;
        uint64_t each;

        *r = (struct raw){.memory = host_has(bytes) ? map_huge(bytes) : NULL, .bytes = bytes};
        if (!r->memory)
                return false;
        atomic_fetch_add_explicit(&a->bytes, bytes, memory_order_relaxed);
        if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
                n = MIN(MAX((unsigned)CPU_COUNT(&cpus), 1u), ARENA_TOUCHER_MAX);
        n = (unsigned)MIN((uint64_t)n, bytes / ARENA_UNIT);
        each = align_up(bytes / n, ARENA_UNIT);
        r->threads = n;
        for (unsigned i = 0; i < n; i++) {
                uint64_t offset = MIN(each * i, bytes);

                r->parts[i] =
                        (struct part){r->memory + offset, MIN(each, bytes - offset), &r->done};
                if (compat_thread_start(touch_pages, &r->parts[i]) != 0)
                        (void)touch_pages(&r->parts[i]);
        }
        return true;
}

/* Takes that memory out of the arena, touched. */
static struct raw next_take(struct arena *a)
{
        struct raw *r = &a->next, taken;

        for (uint32_t heard; (heard = bell_listen(&r->done)) < r->threads;)
                bell_wait(&r->done, heard, UINT64_MAX);
        taken = *r;
        r->memory = NULL;
        atomic_fetch_sub_explicit(&a->bytes, taken.bytes, memory_order_relaxed);
        return taken;
}

/* Makes a segment of so many bytes, or of the memory that was touched ahead. While the driver pins
 * it, threads touch the memory of the next one, if more is expected. */
static struct segment *segment_new(struct arena *a, uint64_t bytes)
{
        struct segment *s;
        struct raw raw;
        uint32_t units;
        CUresult r;

        if (!a->next.memory && !next_begin(a, bytes))
                return NULL;
        raw = next_take(a);
        units = (uint32_t)(raw.bytes / ARENA_UNIT);
        s = calloc(1, sizeof(*s) + (units + 63) / 64 * sizeof(uint64_t));
        if (!s) {
                (void)munmap(raw.memory, raw.bytes);
                return NULL;
        }
        s->memory = raw.memory;
        s->bytes = raw.bytes;
        s->units = units;
        a->expected = sub_sat(a->expected, s->bytes);
        if (a->expected > 0)
                (void)next_begin(a, MIN(s->bytes, align_up(a->expected, ARENA_UNIT)));
        freeze_watch_call("cuMemHostRegister");
        r = real.cuMemHostRegister_v2(s->memory, s->bytes, CU_MEMHOSTREGISTER_PORTABLE);
        s->registered = r == CUDA_SUCCESS;
        if (!s->registered)
                log_warning("cannot pin %llu MiB of host memory (CUDA error %d): evictions will be "
                            "slow; raise the "
                            "locked-memory limit",
                            (unsigned long long)(s->bytes >> 20), (int)r);
        return s;
}

static void segment_delete(struct segment *s)
{
        if (s->registered)
                (void)real.cuMemHostUnregister(s->memory);
        (void)munmap(s->memory, s->bytes);
        free(s);
}

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

static void segment_link(struct arena *a, struct segment *s)
{
        s->next = a->segments;
        a->segments = s;
        atomic_fetch_add_explicit(&a->bytes, s->bytes, memory_order_relaxed);
}

void arena_expect(struct arena *a, uint64_t bytes)
{
        a->expected = bytes;
}

bool arena_add(struct arena *a, uint64_t missing)
{
        /* The agent listens to the daemon in between, so it does only a part at a time. */
        uint64_t part = align_up(a->segment_bytes / 4, ARENA_UNIT);
        struct segment *s;

        if (missing == 0 || !host_has(missing + missing / 3))
                return false;
        a->expected = missing;
        s = segment_new(a, MIN(part, align_up(missing, ARENA_UNIT)));
        if (!s)
                return false;
        lock_acquire(&a->lock);
        segment_link(a, s);
        lock_release(&a->lock);
        return s->registered; /* memory that cannot be pinned is no use ahead */
}

int arena_take(struct arena *a, uint64_t bytes, struct arena_room *ret)
{
        int64_t left = (int64_t)(bytes / ARENA_UNIT);
        struct arena_room room = {0};

        lock_acquire(&a->lock);
        for (struct segment *s = a->segments; s && left > 0; s = s->next)
                if (s->used < s->units)
                        left = segment_take(s, (uint32_t)left, &room);
        while (left > 0) {
                struct segment *s;

                lock_release(&a->lock); /* touching and pinning take milliseconds */
                s = segment_new(a, MAX(a->segment_bytes, (uint64_t)left * ARENA_UNIT));
                lock_acquire(&a->lock);
                if (!s) {
                        left = -ENOMEM;
                        break;
                }
                segment_link(a, s);
                left = segment_take(s, (uint32_t)left, &room);
        }
        lock_release(&a->lock);
        if (left < 0) {
                arena_give(a, &room);
                return -ENOMEM;
        }
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
        }
        lock_release(&a->lock);
        if (a->next.memory && arena_bytes(a) > bytes) {
                struct raw raw = next_take(a);

                (void)munmap(raw.memory, raw.bytes);
        }
        while (dead) {
                struct segment *next = dead->next;

                segment_delete(dead);
                dead = next;
        }
}
