/* moves_bench.c: the program, the accounts and the fakes of other modules for the tests of
 * moves. */
#include "unit.h"

#include "moves_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "heap_end.h"
#include "preload/move/extent.h"
#include "preload/stream/gate.h"
#include "preload/move/kept_copies.h"
#include "preload/move/export.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/move/swap_state.h"
#include "preload/move/unchanged.h"

struct context context = {.handle = (CUcontext)(uintptr_t)0xc0};
uint32_t random_state;

struct thing things[THINGS];
unsigned thing_count;
uint64_t last_word;

uint32_t draw(uint32_t below)
{
        random_state = random_state * 1664525u + 1013904223u;
        return (random_state >> 8) % below;
}

/* ---- fakes of other modules ---- */

#ifndef SUBLET_SANITIZED   /* sanitizers have their own mmap() */
#define SEGMENT (16 * MIB) /* segment of the arena, mapped with a huge page more to align it */

static void *spare[64];
static unsigned spares;

/* The arena touches segments page by page, so the next test reuses those of the last one. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
        bool segment = bytes == SEGMENT + PAGE;
        uintptr_t p;

        if (segment && spares)
                return spare[--spares];
        p = (uintptr_t)syscall(SYS_mmap, at, bytes + (segment ? PAGE : 0), protection, flags, fd,
                               offset);
        return (void *)(segment && p != (uintptr_t)MAP_FAILED ? align_up(p, PAGE) : p);
}

int munmap(void *at, size_t bytes)
{
        if (bytes == PAGE)
                return 0; /* the page left over after the alignment of a segment */
        if (bytes != SEGMENT || spares == ARRAY_SIZE(spare))
                return (int)syscall(SYS_munmap, at, bytes);
        spare[spares++] = at;
        return 0;
}
#endif

/* A question is answered with a sum of the words that the kept pages begin with. */
static struct question {
        const struct extent *extent;
        CUdeviceptr at;
} questions[UNCHANGED_SLOTS];
bool asks, surely, settled;
unsigned forgotten, copies_told;

struct unchanged *unchanged_new(void)
{
        return (struct unchanged *)questions;
}

bool unchanged_ask(struct unchanged *u, unsigned slot, const struct extent *e, CUdeviceptr at)
{
        if (!asks || (!surely && draw(4) == 0))
                return false;
        assert_null(questions[slot].extent);
        questions[slot] = (struct question){e, at};
        return true;
}

enum unchanged_answer unchanged_answer(struct unchanged *u, unsigned slot, struct fingerprint *ret)
{
        const struct extent *e = questions[slot].extent;
        uint64_t sum = 0;

        if (!settled && !surely && draw(3) == 0)
                return UNCHANGED_WAIT;
        questions[slot].extent = NULL;
        assert_non_null(e);
        if (!surely && draw(8) == 0)
                return UNCHANGED_FAILED;
        for (uint64_t i = 0; i < e->bytes / PAGE; i++) {
                const uint64_t *word = driver_word(questions[slot].at + i * PAGE, 0);

                assert_non_null(word);
                if (e->kept >> i & 1)
                        sum += *word * (2 * i + 1);
        }
        *ret = (struct fingerprint){.limb = {(uint32_t)sum, (uint32_t)(sum >> 32)}};
        return UNCHANGED_TOLD;
}

bool fingerprint_equal(const struct fingerprint *a, const struct fingerprint *b)
{
        return memcmp(a, b, sizeof(*a)) == 0;
}

bool fingerprint_is_zero(const struct fingerprint *f)
{
        return fingerprint_equal(f, &(struct fingerprint){0});
}

void unchanged_copied(struct unchanged *u, uint64_t bytes, uint64_t ns)
{
        copies_told++;
}

void unchanged_settle(struct unchanged *u)
{
        settled = true;
}

void unchanged_leave(struct unchanged *u)
{
        memset(questions, 0, sizeof(questions));
}

void unchanged_forget(struct unchanged *u)
{
        settled = false;
        forgotten++;
        memset(questions, 0, sizeof(questions));
}

/* ---- the accounts, and the driver's figures ---- */

static bool on_card(const struct extent *e)
{
        return e->state == EXTENT_RESIDENT || e->busy;
}

void check_accounts(void)
{
        struct heap_cursor c = {0};
        uint64_t resident = 0, backed = 0, allocated = 0, created = 0;
        struct extent *e;

        while ((e = heap_walk(&gpu->heap, &c))) {
                resident += e->state == EXTENT_RESIDENT && !e->busy ? e->bytes : 0;
                backed += on_card(e) ? e->bytes : 0;
                created += on_card(e) && !e->managed ? e->bytes : 0;
                allocated += e->counted ? e->bytes : 0;
                assert_false(e->exported && e->state == EXTENT_RESIDENT && e->busy);
        }
        assert_int_equal(gpu->heap.resident, resident);
        assert_int_equal(gpu->heap.backed, backed);
        assert_int_equal(gpu->heap.allocated, allocated);
        assert_int_equal(driver.used, created);
        assert_int_equal(atomic_load(&core_lock.word), 0);
}

enum swap_progress move(bool may_evict, bool restore)
{
        enum swap_progress p = SWAP_MORE;
        uint64_t backed = gpu->heap.backed;

        for (unsigned steps = 0, later = 0; p != SWAP_NOTHING && later < 24; steps++) {
                uint32_t heard = bell_listen(&core.changed);
                uint64_t was_there = gpu->heap.resident;
                unsigned in_flight = driver_run(0);

                assert_true(steps < 5000);
                p = swap_step(gpu, may_evict, restore);
                if (p != SWAP_NOTHING)
                        assert_int_not_equal(bell_listen(&core.changed), heard);
                if (!driver.failed && host_room == UINT64_MAX &&
                    (gpu->heap.resident > was_there || driver_run(0) > in_flight))
                        assert_true(p == SWAP_MORE || p == SWAP_LATER);
                later = gpu->heap.backed == backed ? later + (p == SWAP_LATER) : 0;
                backed = gpu->heap.backed;
                check_accounts();
                if (p == SWAP_COPYING)
                        (void)driver_run(1 + draw(4));
        }
        return p;
}

void evict_to(uint64_t limit)
{
        gpu->limit = limit;
        (void)move(true, false);
}

void restore_to(uint64_t limit)
{
        gpu->limit = limit;
        (void)move(false, true);
}

static uint32_t heard;

void look_at_figures(void)
{
        gpu->usage_dirty = false;
        heard = bell_listen(&core.changed);
}

void check_told(void)
{
        assert_true(gpu->usage_dirty);
        assert_int_not_equal(bell_listen(&core.changed), heard);
}

static bool a_call_failed; /* a driver call has failed since begin_moves() */

void see_who_is_out(void)
{
        a_call_failed |= driver.failed != NULL;
        for (struct thing *t = things; t < things + thing_count; t++)
                for (uint64_t i = 0; t->managed && i < t->pages; i++) {
                        struct heap_place p;
                        const struct extent *e;

                        /* An eviction that failed after the copy leaves the page on the host. */
                        if (driver.failed)
                                t->was_out[i] = false;
                        assert_true(heap_find(&gpu->heap, t->at, &p));
                        e = &p.block->extents[i * PAGE / p.block->extent_bytes];
                        if (e->state != EXTENT_EVICTED || e->busy)
                                continue;
                        /* A restore that failed halfway may have brought this page back. */
                        t->was_out[i] = driver_where(t->at + i * PAGE) == CU_DEVICE_CPU;
                        assert_true(t->was_out[i] || a_call_failed);
                }
}

void run_program(void)
{
        assert_int_equal(heap_missing(&gpu->heap), 0);
        for (struct thing *t = things; t < things + thing_count; t++)
                for (uint64_t i = 0; i < t->pages; i++) {
                        uint64_t *word = driver_word(t->at + i * PAGE, 0);

                        assert_non_null(word);
                        if (t->words[i])
                                assert_int_equal(*word,
                                                 t->words[i] == UINT64_MAX ? 0 : t->words[i]);
                        if (t->was_out[i] && !gpu->heap.managed)
                                assert_int_equal(driver_where(t->at + i * PAGE), 0);
                        t->was_out[i] = false;
                        if (draw(3) == 0)
                                t->words[i] = draw(4) ? ++last_word : UINT64_MAX;
                        if (t->words[i])
                                *word = t->words[i] == UINT64_MAX ? 0 : t->words[i];
                }
}

/* ---- what a program does ---- */

struct thing *add(CUdeviceptr at, uint64_t pages)
{
        struct thing *t = &things[thing_count++];

        assert_true(thing_count <= THINGS && pages <= MOST);
        *t = (struct thing){.at = at, .pages = pages};
        return t;
}

struct thing *allocate(uint64_t pages)
{
        CUdeviceptr at;
        uint64_t cost;

        assert_int_equal(heap_allocate(&gpu->heap, pages * PAGE, NULL, UINT64_MAX, &at, &cost), 0);
        return add(at, pages);
}

struct thing *adopt(uint64_t pages)
{
        CUdeviceptr at = driver_managed(pages * PAGE);
        struct thing *t;
        uint64_t cost;

        assert_int_equal(heap_adopt(&gpu->heap, at, pages * PAGE, NULL, UINT64_MAX, &cost), 0);
        t = add(at, pages);
        t->managed = true;
        return t;
}

struct block *block_of(const struct thing *t)
{
        struct heap_place p;

        if (t->pool)
                return t->pool;
        assert_true(heap_find(&gpu->heap, t->at, &p));
        return p.block;
}

struct extent *extent_of(const struct thing *t, uint64_t page)
{
        struct block *b = block_of(t);

        return &b->extents[(t->at - b->address + page * PAGE) / b->extent_bytes];
}

void unuse(struct thing *t, bool release)
{
        heap_unuse(t->pool, t->at, t->pages * PAGE);
        for (uint64_t i = 0; i < t->pages; i++) {
                struct extent *e = extent_of(t, i);

                if (e->live)
                        continue;
                if (release && !e->busy)
                        swap_release(gpu, e);
                else
                        swap_unused(gpu, e);
        }
}

void give_back(struct thing *t)
{
        struct block *dead = NULL;

        lock_acquire(&core_lock);
        if (t->pool) {
                unuse(t, draw(2));
        } else if (t->managed) {
                swap_discard(gpu, heap_adopted(&gpu->heap, t->at, 1));
        } else {
                assert_int_equal(heap_free(&gpu->heap, t->at, &dead), 0);
                swap_discard(gpu, dead);
        }
        lock_release(&core_lock);
        *t = things[--thing_count];
}

void agent_goes_on(const struct core_wait *w)
{
        (void)driver_run(2);
        (void)swap_step(gpu, false, false);
}

int begin_moves(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1};
        driver_reset(CARD);
        trace_reset();
        random_state = 1;
        gpu->known = gpu->managed = true;
        gpu->total = CARD;
        gpu->limit = gpu->own_limit = UINT64_MAX;
        gpu->context = &context;
        context.gpu = gpu;
        heap_init(&gpu->heap, CARD);
        assert_int_equal(gpu->heap.extent_bytes, EXTENT);
        swap_setup();
        swap_learn(gpu);
        assert_non_null(gpu->swap);
        host_room = UINT64_MAX;
        thread_error = EAGAIN; /* so the agent makes host memory itself, at a fixed moment */
        asks = surely = a_call_failed = false;
        meanwhile = agent_goes_on;
        driver.unlocked = true;
        thing_count = gpu->short_bytes = copies_told = 0;
        request_kicks = 0;
        memset(questions, 0, sizeof(questions));
        return 0;
}

int end_moves(void **state)
{
        driver_fail(0, CUDA_SUCCESS);
        driver.dead = false;
        while (thing_count)
                give_back(&things[0]);
        lock_acquire(&core_lock);
        swap_retire(gpu);
        lock_release(&core_lock);
        check_accounts();
        assert_int_equal(gpu->heap.allocated, 0);
        assert_int_equal(driver.streams, 0);
        assert_int_equal(driver.events, 0);
        assert_int_equal(driver_handles(), 0);
        assert_int_equal(driver_mappings(), 0);
        arena_trim(gpu->swap->arena, 0);
        assert_int_equal(swap_arena_bytes(gpu), 0);
        assert_int_equal(driver.registered, 0);
        free(gpu->swap->arena);
        free(gpu->swap);
        passed_close(&gpu->leaving);
        passed_close(&gpu->passed);
        heap_end(&gpu->heap);
        return 0;
}
