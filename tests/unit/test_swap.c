/* test_swap.c: a program destroys a context while the agent works in it; a failed restore wakes the
 * threads that wait for it. */
#include "unit.h"

#include <pthread.h>
#include <semaphore.h>

#include "base/macros.h"
#include "preload/heap/lent.h"
#include "preload/state/core.h"
#include "preload/move/extent.h"
#include "preload/process/hidden.h"
#include "preload/move/kept_copies.h"
#include "preload/move/export.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/move/trouble.h"
#include "preload/move/swap_state.h"
#include "preload/state/request.h"

static struct gpu *const gpu = &core.gpus[0];
static struct context context = {.gpu = &core.gpus[0], .handle = (CUcontext)(uintptr_t)0xc0};
static struct extent extent = {.bytes = MIB, .live = 1};
static struct block block;
static pthread_t destroyer;
static sem_t waits, resume;
static unsigned ends; /* number of calls of transfer_end() */

/* ---- fakes of other modules ---- */

void core_wait(struct core_wait *w, uint64_t timeout_ns)
{
        lock_release(&core_lock);
        (void)sem_post(&waits);
        (void)sem_wait(&resume);
        lock_acquire(&core_lock);
}

struct arena *arena_new(uint64_t segment_bytes)
{
        return (struct arena *)(uintptr_t)1;
}

void arena_trim(struct arena *a, uint64_t bytes)
{
}

void arena_rest(struct arena *a)
{
}

void arena_expect(struct arena *a, uint64_t bytes, uint64_t ahead)
{
}

bool arena_add(struct arena *a, uint64_t missing)
{
        return false;
}

uint64_t arena_bytes(const struct arena *a)
{
        return 0;
}

struct unchanged *unchanged_new(void)
{
        return NULL;
}

void choose_left(struct gpu *g)
{
}

void choose_arrived(struct gpu *g)
{
}

struct extent *choose_by_state(struct gpu *g, enum extent_state state)
{
        return state == EXTENT_UNBACKED && !extent.busy ? &extent : NULL;
}

struct extent *choose_evict(struct gpu *g, uint64_t missing)
{
        return NULL;
}

struct extent *choose_whole(struct gpu *g)
{
        return NULL;
}

CUresult extent_map(const struct gpu *g, struct extent *e, int passed_fd)
{
        return CUDA_SUCCESS;
}

CUresult extent_unmap(const struct gpu *g, const struct extent *e)
{
        return CUDA_SUCCESS;
}

void trouble_note(struct gpu *g, CUresult why)
{
}

void trouble_end(struct gpu *g)
{
}

bool trouble_waits(const struct gpu *g)
{
        return false;
}

bool trouble_stands(struct gpu *g)
{
        return false;
}

void trouble_look(struct gpu *g, CUresult prepared)
{
}

uint64_t lent_give_back(void)
{
        return 0;
}

uint64_t arena_lent(const struct arena *a)
{
        return 0;
}

bool arena_host_has(uint64_t bytes)
{
        return true;
}

bool kept_drop(struct gpu *g, struct arena *a, struct kept_sweep *s, uint64_t bytes)
{
        return false;
}

void kept_forget(struct arena *a, struct extent *e)
{
}

void passed_add(struct passed *p, int fd)
{
}

void passed_close(struct passed *p)
{
}

void passed_shed(struct passed *p, unsigned most, struct passed *ret)
{
        ret->count = 0;
}

int passed_take(struct passed *p)
{
        return -EBADF;
}

void export_extent_dies(struct gpu *g, struct extent *e)
{
}

static CUresult fake_push(CUcontext handle)
{
        return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *ret)
{
        return CUDA_SUCCESS;
}

/* ---- the transfers ---- */

static void *destroy(void *unused)
{
        lock_acquire(&core_lock);
        swap_retire(gpu);
        lock_release(&core_lock);
        (void)sem_post(&waits);
        return NULL;
}

/* At the first transfer the program destroys the context while its streams are made. */
CUresult transfer_prepare(struct gpu *g)
{
        if (g->swap->context)
                return CUDA_SUCCESS;
        assert_int_equal(pthread_create(&destroyer, NULL, destroy, NULL), 0);
        (void)sem_wait(&waits);
        assert_ptr_equal(g->context, &context);
        g->swap->context = g->context->handle;
        return CUDA_SUCCESS;
}

bool transfer_evict(struct gpu *g, struct extent *e)
{
        return false;
}

bool transfer_restore(struct gpu *g, struct extent *e, int passed_fd)
{
        return true;
}

enum swap_progress transfer_answers(struct gpu *g)
{
        return SWAP_NOTHING;
}

enum swap_progress transfer_reap(struct gpu *g)
{
        return SWAP_NOTHING;
}

void transfer_end(struct gpu *g)
{
        ends++;
}

/* ---- tests ---- */

static void the_end_of_a_context_waits_for_the_agents_work_in_it(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1};
        heap_init(&gpu->heap, GIB);
        extent.block = &block;
        gpu->limit = gpu->own_limit = GIB;
        gpu->context = &context;
        swap_learn(gpu);
        assert_non_null(gpu->swap);
        real.cuCtxPushCurrent_v2 = fake_push;
        real.cuCtxPopCurrent_v2 = fake_pop;
        (void)sem_init(&waits, 0, 0);
        (void)sem_init(&resume, 0, 0);
        (void)swap_step(gpu, false, true);
        (void)sem_post(&resume);
        assert_int_equal(pthread_join(destroyer, NULL), 0);
        assert_int_equal(ends, 1);
        assert_null(gpu->swap->context);
        assert_null(gpu->context);
        free(gpu->swap);
}

/* A waiting thread hears only the bell, and the thread that failed may never try this extent
 * again. */
static void a_failed_restore_wakes_threads_that_wait_for_the_extent(void **state)
{
        struct extent e = {.bytes = MIB, .block = &block, .live = 1, .busy = true};
        uint32_t heard = bell_listen(&core.changed);

        gpu->heap.backed = MIB;
        swap_unclaim(gpu, &e, CUDA_ERROR_OUT_OF_MEMORY);
        assert_false(e.busy);
        assert_true(gpu->heap.backed == 0);
        assert_true(bell_listen(&core.changed) != heard);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_end_of_a_context_waits_for_the_agents_work_in_it),
                cmocka_unit_test(a_failed_restore_wakes_threads_that_wait_for_the_extent),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
