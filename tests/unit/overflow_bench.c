/* overflow_bench.c: the program, its buffers and the fakes of other modules for the overflow's
 * tests. */
#include "unit.h"

#include "overflow_bench.h"

#include <errno.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "heap_end.h"
#include "preload/agent/agent_state.h"
#include "preload/process/mode.h"
#include "preload/overflow/overflow.h"
#include "preload/overflow/profile.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/state/daemon.h"

unsigned carried;
CUresult carry_fails;
struct buffer buffers[BUFFERS];
unsigned buffer_count;

/* ---- fakes of other modules ---- */

uint64_t now_ns = 1000 * NSEC_PER_SEC;

int clock_gettime(clockid_t which, struct timespec *ret)
{
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

uint64_t trial_room;
const struct block *on_trial, *tried[BUFFERS], *profiled;
unsigned placings;

uint64_t profile_room(void)
{
        return trial_room;
}

enum profile_place profile_place(const struct block *b)
{
        if (on_trial == b)
                return PROFILE_CARD;
        for (unsigned i = 0; i < BUFFERS; i++)
                if (tried[i] == b)
                        return PROFILE_HOST;
        return PROFILE_FREE;
}

void profile_placing(void)
{
        assert_int_not_equal(atomic_load(&core_lock.word), 0);
        placings++;
}

void profile_allocated(struct gpu *g, struct block *b)
{
        profiled = b;
}

CUresult swap_carry(struct gpu *g, struct extent *e, CUdeviceptr to)
{
        assert_true(e->busy);
        carried++;
        if (carry_fails)
                return carry_fails;
        for (uint64_t i = 0; i < e->bytes; i += PAGE)
                *driver_word(to + i, 0) = *driver_word(e->address + i, 0);
        return CUDA_SUCCESS;
}

/* ---- scenes ---- */

void check_accounts(void)
{
        struct heap_cursor c = {0};
        uint64_t resident = 0, mapped = 0, allocated = 0;
        struct extent *e;

        while ((e = heap_walk(&gpu->heap, &c))) {
                resident += e->state == EXTENT_RESIDENT ? e->bytes : 0;
                mapped += e->state == EXTENT_MAPPED ? e->bytes : 0;
                allocated += e->counted ? e->bytes : 0;
                assert_false(e->busy);
        }
        assert_int_equal(gpu->heap.resident, resident);
        assert_int_equal(gpu->heap.backed, resident);
        assert_int_equal(gpu->heap.mapped, mapped);
        assert_int_equal(gpu->heap.allocated, allocated);
        assert_int_equal(driver.used, resident);
        assert_int_equal(driver.host, mapped);
        assert_int_equal(core.host.taking, 0);
        assert_int_equal(atomic_load(&core_lock.word), 0);
}

void end_buffer(struct gpu *g, CUdeviceptr at)
{
        struct block *dead = NULL;

        assert_int_equal(heap_free(&g->heap, at, &dead), 0);
        lock_acquire(&core_lock);
        swap_discard(g, dead);
        lock_release(&core_lock);
}

struct block *block_of(const struct buffer *b)
{
        struct heap_place p;

        assert_true(heap_find(&gpu->heap, b->at, &p));
        return p.block;
}

static void fill(struct buffer *b)
{
        static uint64_t last;

        b->word = ++last * 1000;
        for (uint64_t i = 0; i < b->bytes / PAGE; i++)
                *driver_word(b->at + i * PAGE, 0) = b->word + i;
}

void check_contents(void)
{
        for (struct buffer *b = buffers; b < buffers + buffer_count; b++)
                for (uint64_t i = 0; i < b->bytes / PAGE; i++) {
                        const uint64_t *word = driver_word(b->at + i * PAGE, 0);

                        assert_non_null(word);
                        assert_int_equal(*word, b->word + i);
                }
}

struct buffer *on_host(uint64_t bytes)
{
        struct buffer *b = &buffers[buffer_count];
        int r;

        lock_acquire(&core_lock);
        r = overflow_allocate(gpu, bytes, NULL, &b->at);
        lock_release(&core_lock);
        if (r != 0) {
                assert_int_equal(r, -ENOMEM);
                return NULL;
        }
        b->bytes = bytes;
        buffer_count++;
        fill(b);
        return b;
}

struct buffer *on_card(uint64_t bytes)
{
        struct buffer *b = &buffers[buffer_count++];
        uint64_t cost;

        assert_int_equal(heap_allocate(&gpu->heap, bytes, NULL, UINT64_MAX, &b->at, &cost), 0);
        b->bytes = bytes;
        for (unsigned i = 0; i < block_of(b)->extent_count; i++) {
                struct extent *e = &block_of(b)->extents[i];
                const CUmemAllocationProp prop = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE};
                const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                                CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

                assert_int_equal(real.cuMemCreate(&e->handle, e->bytes, &prop, 0), CUDA_SUCCESS);
                assert_int_equal(real.cuMemMap(e->address, e->bytes, 0, e->handle, 0),
                                 CUDA_SUCCESS);
                assert_int_equal(real.cuMemSetAccess(e->address, e->bytes, &access, 1),
                                 CUDA_SUCCESS);
                e->state = EXTENT_RESIDENT;
                gpu->heap.backed += e->bytes;
                gpu->heap.resident += e->bytes;
        }
        fill(b);
        return b;
}

uint64_t bytes_on_card(const struct buffer *b)
{
        uint64_t bytes = 0;

        for (unsigned i = 0; i < block_of(b)->extent_count; i++)
                bytes += block_of(b)->extents[i].state == EXTENT_RESIDENT
                                 ? block_of(b)->extents[i].bytes
                                 : 0;
        return bytes;
}

void step(void)
{
        now_ns += 100 * NSEC_PER_SEC;
        lock_acquire(&core_lock);
        overflow_step(now_ns);
        lock_release(&core_lock);
}

void drained(void)
{
        lock_acquire(&core_lock);
        assert_true(overflow_drained());
        lock_release(&core_lock);
}

void arrange(void)
{
        for (unsigned i = 0; i < 5; i++) { /* the moves of a round may make room for the next */
                lock_acquire(&core_lock);
                overflow_changed(gpu);
                lock_release(&core_lock);
                step();
                if (!(overflow_own() != OWN_NONE))
                        break;
                drained();
                while (overflow_move())
                        check_accounts();
                assert_false((overflow_own() != OWN_NONE));
        }
        check_accounts();
        check_contents();
}

void move_all(void)
{
        step();
        drained();
        while (overflow_move())
                ;
}

int begin_overflow(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1};
        agent = (struct agent_state){0};
        daemon_line.link = LINK_UP;
        driver_reset(CARD);
        driver.unlocked = true;
        trace_reset();
        fake_mode = MEMORY_OVERFLOW;
        gpu->known = gpu->managed = true;
        gpu->total = gpu->visible = CARD;
        gpu->own_limit = UINT64_MAX;
        gpu->limit = gpu->commit = 64 * MIB;
        heap_init(&gpu->heap, CARD);
        lock_acquire(&core_lock);
        overflow_learn(gpu);
        lock_release(&core_lock);
        assert_true(gpu->overflow);
        core.host.allowed = GIB;
        gpu_room = daemon_room = daemon_host = UINT64_MAX;
        core.running = true;
        core.lease = 1;
        carry_fails = CUDA_SUCCESS;
        trial_room = 0;
        on_trial = NULL;
        memset(tried, 0, sizeof(tried));
        carried = discarded = buffer_count = 0;
        own_drains = (struct drains){.freeze = false}; /* buffers may move only between two steps */
        driver.unlocked = false; /* addresses are reserved with the lock held */
        return 0;
}

int end_overflow(void **state)
{
        driver_fail(0, CUDA_SUCCESS);
        assert_false((overflow_own() != OWN_NONE));
        while (buffer_count)
                end_buffer(gpu, buffers[--buffer_count].at);
        check_accounts();
        assert_int_equal(driver_handles(), 0);
        assert_int_equal(driver_mappings(), 0);
        assert_int_equal(gpu->heap.allocated, 0);
        heap_end(&gpu->heap);
        return 0;
}
