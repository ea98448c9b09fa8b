/* run.c: owns a launch: its thread blocks, their warps and their turns. Blocks run one after the
 * other. When a block runs for long, more blocks run beside it, so that blocks which wait for each
 * other make progress. A launch must never outlive its ptx_run() call. */
#include "sim/ptx/internal.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define STEP_BUDGET        8192 /* instructions of a warp between calls of `cancelled` */
#define SHARED_DYNAMIC_MAX (256U << 10)
#define THREADS_MAX        1024
/* Blocks that wait for each other must run at the same time. */
#define BLOCKS_MAX      2048 /* blocks that run at a time */
#define BLOCKS_FREE     16   /* blocks that may run at a time whatever memory they need */
#define BLOCK_BYTES_MAX (UINT64_C(256) << 20)
#define PASSES_ALONE    4 /* passes in which no block ends before more blocks start */
/* A kernel that executes fewer instructions between two readings of the time counts as waiting. */
#define TIMER_SHARE 32

static lane_op *const *lanes_for_this_machine(void)
{
#ifdef PTX_LANES_AVX2
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
                return ptx_lanes_avx2;
#endif
        return ptx_lanes_plain;
}

static void block_free(struct block *b)
{
        if (!b)
                return;
        free(b->warp);
        free(b->shared);
        free(b->arrived);
        free(b);
}

static int block_new(struct run *run, struct block **ret_block)
{
        struct block *b = calloc(1, sizeof(*b));

        if (!b)
                return -ENOMEM;
        b->run = run;
        b->warp = calloc(run->warps, sizeof(struct warp *));
        b->shared = aligned_alloc(SLOT_ALIGN, align_up(MAX(run->shared_bytes, 1U), SLOT_ALIGN));
        b->arrived = calloc((size_t)run->warps * BARRIERS_MAX, sizeof(*b->arrived));
        if (!b->warp || !b->shared || !b->arrived) {
                block_free(b);
                return -ENOMEM;
        }
        for (unsigned i = 0; i < BARRIERS_MAX; i++)
                b->barrier[i].arrived = b->arrived + (size_t)i * run->warps;
        *ret_block = b;
        return 0;
}

static void block_stop(struct block *b)
{
        for (uint32_t i = 0; i < b->warps_n; i++)
                warp_release(b->warp[b->warps_n - 1 - i]);
        b->warps_n = 0;
        b->next = b->run->free_blocks;
        b->run->free_blocks = b;
}

static int block_start(struct run *run, uint64_t number, struct block **ret_block)
{
        const uint32_t *grid = run->launch->grid;
        struct block *b = run->free_blocks;
        int r = 0;

        if (b)
                run->free_blocks = b->next;
        else
                r = block_new(run, &b);
        if (r < 0)
                return r;
        b->ctaid[0] = (uint32_t)(number % grid[0]);
        b->ctaid[1] = (uint32_t)(number / grid[0] % grid[1]);
        b->ctaid[2] = (uint32_t)(number / grid[0] / grid[1]);
        b->warps_n = b->warps_left = 0;
        b->barriers_active = 0;
        for (unsigned i = 0; i < BARRIERS_MAX; i++) {
                b->barrier[i].active = false;
                b->barrier[i].ones = b->barrier[i].expected = 0;
        }
        memset(b->arrived, 0, (size_t)run->warps * BARRIERS_MAX * sizeof(*b->arrived));
        memset(b->shared, 0, run->shared_bytes);
        for (uint32_t i = 0; i < run->warps; i++) {
                r = warp_start(run, b, i);
                if (r < 0) {
                        block_stop(b);
                        return r;
                }
                b->warps_n = ++b->warps_left;
        }
        *ret_block = b;
        return 0;
}

static bool cancelled(struct run *run)
{
        if (run->memory->cancelled && run->memory->cancelled(run->memory->context) &&
            !run->failed) {
                run->failed = -ECANCELED;
                (void)snprintf(run->error, PTX_ERROR_MAX, "the launch was cancelled");
        }
        run_forget_stale(run);
        return run->failed != 0;
}

/* The result of a pass over the blocks. */
struct pass {
        uint64_t instructions;
        uint32_t steps, asleep;
};

static void block_stuck(struct block *b)
{
        struct warp *w = b->warp[0];

        for (uint32_t i = 0; i < b->warps_n && !w->fragments_n; i++)
                w = b->warp[i];
        warp_fail(w, &b->run->module->insn[w->fragment[0].pc],
                  (unsigned)__builtin_ctz(w->fragment[0].mask), -EDEADLK,
                  "waits for threads that will not come");
}

/* Runs one step of every warp that can run. Returns true when the block is done. */
static bool block_step(struct block *b, lane_op *const *lanes, struct pass *pass)
{
        struct run *run = b->run;
        bool any = false;

        for (uint32_t i = 0; i < b->warps_n; i++) {
                struct warp *w = b->warp[i];

                if (!warp_ready(w))
                        continue;
                any = true;
                pass->instructions += STEP_BUDGET - warp_step(w, lanes, STEP_BUDGET);
                pass->steps++;
                pass->asleep += w->asleep;
                if (run->failed || (pass->instructions >= STEP_BUDGET && cancelled(run)))
                        return false;
        }
        if (!any && b->warps_left)
                block_stuck(b);
        return !b->warps_left;
}

static void nap(struct run *run, const struct pass *pass)
{
        uint64_t ns = 0;

        if (pass->steps && pass->asleep == pass->steps)
                ns = MIN((uint64_t)run->sleep_ns, NSEC_PER_MSEC);
        else if (run->timer_reads * TIMER_SHARE > pass->instructions)
                ns = TIMER_NAP_NS;
        if (ns) {
                struct timespec ts = {.tv_nsec = (long)ns};

                (void)nanosleep(&ts, NULL);
        } else {
                (void)sched_yield();
        }
}

static int run_blocks(struct run *run, struct block **active)
{
        const uint32_t *grid = run->launch->grid;
        uint64_t total = (uint64_t)grid[0] * grid[1] * grid[2], next = 0;
        lane_op *const *lanes = lanes_for_this_machine();
        uint32_t n = 0, wanted = 1, idle = 0;
        int r;

        while (n || next < total) {
                struct pass pass = {0};
                bool finished = false;

                run->timer_reads = 0;
                run->sleep_ns = UINT32_MAX;
                while (n < wanted && next < total) {
                        r = block_start(run, next, &active[n]);
                        if (r < 0 && n)
                                break;
                        if (r < 0)
                                return r;
                        next++;
                        n++;
                }
                for (uint32_t i = 0; i < n;) {
                        bool done = block_step(active[i], lanes, &pass);

                        if (run->failed || cancelled(run)) {
                                for (i = 0; i < n; i++)
                                        block_stop(active[i]);
                                return run->failed;
                        }
                        if (done) {
                                block_stop(active[i]);
                                active[i] = active[--n];
                                finished = true;
                        } else {
                                i++;
                        }
                }
                if (finished) {
                        idle = 0;
                        continue;
                }
                if (++idle >= PASSES_ALONE && next < total && n < BLOCKS_MAX &&
                    (n < BLOCKS_FREE || run->bytes < BLOCK_BYTES_MAX)) {
                        wanted = MIN(n * 2, (uint32_t)BLOCKS_MAX);
                        if (run->bytes + run->bytes / n * (wanted - n) > BLOCK_BYTES_MAX)
                                wanted = MAX(n + 1, (uint32_t)BLOCKS_FREE);
                } else if (idle >= PASSES_ALONE) {
                        nap(run, &pass);
                }
        }
        return 0;
}

static int check_launch(const struct ptx_function *f, const struct ptx_launch *l, char *error)
{
        uint64_t threads = 1;

        for (unsigned i = 0; i < 3; i++) {
                threads *= MIN(l->block[i], THREADS_MAX + 1U);
                if (!l->grid[i] || !l->block[i]) {
                        (void)snprintf(error, PTX_ERROR_MAX, "kernel '%s': a dimension is 0",
                                       f->name);
                        return -EINVAL;
                }
        }
        if (threads > f->info.max_threads || l->grid[1] > UINT16_MAX || l->grid[2] > UINT16_MAX ||
            l->grid[0] > INT32_MAX) {
                (void)snprintf(error, PTX_ERROR_MAX, "kernel '%s': too many threads or blocks",
                               f->name);
                return -EINVAL;
        }
        if (l->dynamic_shared_bytes > SHARED_DYNAMIC_MAX) {
                (void)snprintf(error, PTX_ERROR_MAX, "kernel '%s': %u bytes of shared memory",
                               f->name, l->dynamic_shared_bytes);
                return -EINVAL;
        }
        if (f->info.parameter_bytes && !l->parameters) {
                (void)snprintf(error, PTX_ERROR_MAX, "kernel '%s': no parameters", f->name);
                return -EINVAL;
        }
        return 0;
}

static void number_threads(struct run *run)
{
        const uint32_t *block = run->launch->block;

        for (uint32_t i = 0; i < run->warps * WARP_LANES; i++) {
                uint32_t(*tid)[WARP_LANES] = run->tid[i / WARP_LANES];

                tid[0][i % WARP_LANES] = i % block[0];
                tid[1][i % WARP_LANES] = i / block[0] % block[1];
                tid[2][i % WARP_LANES] = i / block[0] / block[1];
        }
}

int ptx_run(const struct ptx_kernel *k, const struct ptx_launch *launch,
            const struct ptx_memory *memory, char error[static PTX_ERROR_MAX])
{
        const struct ptx_function *f = &k->f;
        _cleanup_free_ struct block **active = NULL;
        struct run run = {.module = f->module,
                          .kernel = f,
                          .launch = launch,
                          .memory = memory,
                          .epoch = memory->epoch ? *memory->epoch : 0,
                          .error = error};
        int r;

        error[0] = 0;
        r = check_launch(f, launch, error);
        if (r < 0)
                return r;
        run.threads = launch->block[0] * launch->block[1] * launch->block[2];
        run.warps = (run.threads + WARP_LANES - 1) / WARP_LANES;
        run.dynamic_start = (uint32_t)align_up(f->info.static_shared_bytes, 128);
        run.shared_bytes = launch->dynamic_shared_bytes
                                   ? run.dynamic_start + launch->dynamic_shared_bytes
                                   : f->info.static_shared_bytes;
        active = calloc(BLOCKS_MAX, sizeof(struct block *));
        run.range = calloc(f->module->caches_n + 1U, sizeof(*run.range));
        run.tid = calloc(run.warps, sizeof(*run.tid));
        if (active && run.range && run.tid) {
                number_threads(&run);
                r = run_blocks(&run, active);
        } else {
                r = -ENOMEM;
        }
        if (r == -ENOMEM && !error[0])
                (void)snprintf(error, PTX_ERROR_MAX, "out of memory");
        while (run.free_warps) {
                struct warp *w = run.free_warps;

                run.free_warps = w->next_free;
                warp_destroy(w);
        }
        while (run.free_blocks) {
                struct block *b = run.free_blocks;

                run.free_blocks = b->next;
                block_free(b);
        }
        free(run.range);
        free(run.tid);
        return r;
}
