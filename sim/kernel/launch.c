/* launch.c: kernel launches, and the memory that running kernels see. A kernel that has touched a
 * range counts as using it until the kernel ends. If the range is unmapped before that, the launch
 * fails with an illegal address, as it could on a card. */
#include "sim/stream/transfer.h"
#include "sim/kernel/launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/macros.h"
#include "sim/mps/client.h"
#include "sim/session/session_time.h"
#include "sim/space/managed.h"
#include "sim/space/mapped.h"
#include "sim/space/space.h"
#include "sim/queue/stream.h"

struct used {
        struct span span;
        struct range *range;
        bool writable;
        struct mapped_use mapped;
};

struct running {
        CUcontext context;
        struct managed_hold hold; /* managed memory that the kernel uses now */
        struct table used;
        uint64_t unmappings;
        uint64_t counted_ns; /* until when the session knows that the kernel runs */
        bool unmapped;
        uint64_t bus_ready_ns; /* when the host memory that the kernel used has crossed the bus */
};

static void *running_resolve(void *context, uint64_t address, size_t bytes, bool write,
                             uint64_t *ret_start, uint64_t *ret_end)
{
        struct running *run = context;
        struct used *u = table_find(&run->used, address);

        if (u && write && !u->writable) {
                struct range *r = space_pin(address, run->context->device, true);

                if (!r)
                        return NULL;
                u->writable = r == u->range;
                space_unpin(r);
                if (!u->writable)
                        return NULL;
        }
        if (!u) {
                struct range *r = space_pin(address, run->context->device, write);

                if (!r)
                        return NULL;
                u = malloc(sizeof(*u));
                if (!u) {
                        space_unpin(r);
                        return NULL;
                }
                *u = (struct used){.span = r->span, .range = r, .writable = write};
                if (table_insert(&run->used, &u->span) < 0) {
                        space_unpin(r);
                        free(u);
                        return NULL;
                }
        }
        if (bytes > u->span.bytes - (address - u->span.start))
                return NULL;
        if (u->range->managed)
                return managed_use(&run->hold, u->range->managed, address, bytes, MANAGED_FAULT,
                                   ret_start, ret_end);
        *ret_start = u->span.start;
        *ret_end = u->span.start + u->span.bytes;
        if (range_is_mapped(u->range)) {
                if (!mapped_touch(&u->mapped, u->range, run->context->device, address, bytes, write,
                                  &run->bus_ready_ns, ret_start, ret_end))
                        return NULL;
                transfer_keep_pace(run->bus_ready_ns);
        }
        return u->range->at + (address - u->span.start);
}

static uint64_t running_globaltimer(void *context)
{
        struct timespec ts;

        (void)clock_gettime(CLOCK_REALTIME, &ts);
        return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static void running_look(struct running *run)
{
        for (size_t i = 0; i < run->used.count; i++)
                if (atomic_load(&((struct used *)run->used.span[i])->range->gone))
                        run->unmapped = true;
}

/* Releases the memory that the kernel uses. The next access looks up its range again. */
static void running_let_go(struct running *run)
{
        for (size_t i = 0; i < run->used.count; i++) {
                struct used *u = (struct used *)run->used.span[i];

                mapped_done(&u->mapped);
                space_unpin(u->range);
                free(u);
        }
        run->used.count = 0;
}

static void running_count(struct running *run)
{
        uint64_t now = session_now_ns();

        atomic_fetch_add_explicit(&session_own(sim.session, run->context->device)->kernel_ns,
                                  now - run->counted_ns, memory_order_relaxed);
        run->counted_ns = now;
}

/* Releases all memory of the kernel before it stops. False: some of it is unmapped, so the kernel
 * ends. */
static bool running_release(struct running *run)
{
        running_look(run);
        if (run->unmapped)
                return false;
        managed_drop(&run->hold);
        running_let_go(run);
        run->hold.epoch++;
        return true;
}

/* Stops the kernel while its channel is disabled. During that time the memory that the kernel uses
 * may move. */
static void running_stand(struct running *run)
{
        if (!running_release(run))
                return;
        channel_stand();
        run->counted_ns = session_now_ns();
}

/* Stops the kernel while memory of the process becomes a file, so that no written byte is lost. */
static void running_pause(struct running *run)
{
        if (!running_release(run))
                return;
        while (space_sharing() && !context_cancelled(run->context))
                space_share_nap();
}

static bool running_cancelled(void *context)
{
        struct running *run = context;
        uint64_t now = space_unmappings();

        running_count(run);
        managed_look(&run->hold);
        if (now != run->unmappings) {
                run->unmappings = now;
                running_look(run);
        }
        if (channel_stops())
                running_stand(run);
        if (unlikely(space_sharing()))
                running_pause(run);
        return run->unmapped || context_cancelled(run->context);
}

static CUresult running_result(const struct running *run, int r)
{
        if (run->hold.error != CUDA_SUCCESS) /* the exit of the process is no failure */
                return run->hold.error == CUDA_ERROR_DEINITIALIZED ? CUDA_SUCCESS : run->hold.error;
        if (run->unmapped || r == -EFAULT)
                return CUDA_ERROR_ILLEGAL_ADDRESS;
        switch (r) {
        case 0:
        case -ECANCELED:
                return CUDA_SUCCESS;
        case -ENOTSUP:
                return CUDA_ERROR_ILLEGAL_INSTRUCTION;
        case -ENOMEM:
                return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        default: /* a trap, a barrier that some threads never reach, an impossible shape */
                return CUDA_ERROR_LAUNCH_FAILED;
        }
}

/* Under MPS a program may have a part of the processors. Its blocks are spread over them all, so a
 * kernel with as many blocks as there are processors takes 1 / part of its time. One with few
 * blocks takes as long as without MPS. Returns the end of the kernel, which has run from begin_ns
 * to now. */
static uint64_t end_on_part(const struct work_kernel *w, uint64_t begin_ns)
{
        const double blocks = (double)w->grid[0] * w->grid[1] * w->grid[2];
        const double part = DEVICE_PROCESSORS * mps_percentage() / 100;
        const double longer = MIN(blocks, (double)DEVICE_PROCESSORS) / MIN(blocks, part);

        return begin_ns + (uint64_t)((double)(session_now_ns() - begin_ns) * MAX(longer, 1.0));
}

CUresult launch_run(CUcontext c, const struct work_kernel *w)
{
        struct running run = {.context = c,
                              .hold = {.context = c, .device = c->device},
                              .unmappings = space_unmappings(),
                              .counted_ns = session_now_ns()};
        const uint64_t begin_ns = run.counted_ns;
        struct ptx_memory memory = {.resolve = running_resolve,
                                    .globaltimer_ns = running_globaltimer,
                                    .cancelled = running_cancelled,
                                    .context = &run,
                                    .epoch = &run.hold.epoch};
        struct ptx_launch launch = {.dynamic_shared_bytes = w->shared, .parameters = w->parameters};
        char error[PTX_ERROR_MAX] = "";
        uint64_t end_ns;
        CUresult result;
        int r;

        memcpy(launch.grid, w->grid, sizeof(launch.grid));
        memcpy(launch.block, w->block, sizeof(launch.block));
        session_count(&session_own(sim.session, c->device)->counters.launches, 1);
        r = ptx_run(w->function->ptx, &launch, &memory, error);
        managed_drop(&run.hold);
        end_ns = MAX(run.bus_ready_ns, end_on_part(w, begin_ns));
        while (!running_cancelled(&run) && transfer_nap(end_ns))
                ;
        running_look(&run);
        result = running_result(&run, r);
        if (result != CUDA_SUCCESS)
                sim_say("kernel %s: %s", w->function->info->name,
                        run.hold.error == CUDA_ERROR_OUT_OF_MEMORY
                                ? "no room on the card for the managed memory it uses"
                        : r == 0 || r == -ECANCELED ? "memory it used was unmapped while it ran"
                                                    : error);
        running_let_go(&run);
        free(run.used.span);
        return result;
}

/* ---- preparing a launch ---- */

static CUresult extra_parameters(void **extra, void *to, size_t bytes)
{
        const void *buffer = NULL;
        size_t given = 0;

        for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
                if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
                        buffer = extra[i + 1];
                else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
                        given = *(size_t *)extra[i + 1];
                else
                        return CUDA_ERROR_INVALID_VALUE;
        }
        if (!buffer)
                return CUDA_ERROR_INVALID_VALUE;
        memcpy(to, buffer, MIN(given, bytes));
        return CUDA_SUCCESS;
}

CUresult launch_prepare(CUfunction f, const unsigned grid[3], const unsigned block[3],
                        unsigned shared, void **params, void **extra, struct work *ret_work)
{
        const struct ptx_kernel_info *info = f->info;
        uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
        CUresult r = CUDA_SUCCESS;
        uint8_t *parameters;

        if (!grid[0] || !grid[1] || !grid[2] || !threads || grid[0] > INT32_MAX ||
            grid[1] > 65535 || grid[2] > 65535 || block[0] > 1024 || block[1] > 1024 ||
            block[2] > 64 || threads > 1024)
                return CUDA_ERROR_INVALID_VALUE;
        if (threads > info->max_threads)
                return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        if (shared > (unsigned)f->dynamic_shared_most || (params && extra) ||
            (info->parameters && !params && !extra))
                return CUDA_ERROR_INVALID_VALUE;

        parameters = calloc(1, MAX(info->parameter_bytes, 1u));
        if (!parameters)
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (params)
                for (unsigned i = 0; i < info->parameters; i++)
                        memcpy(parameters + info->parameter[i].offset, params[i],
                               info->parameter[i].bytes);
        else if (extra)
                r = extra_parameters(extra, parameters, info->parameter_bytes);
        if (r != CUDA_SUCCESS) {
                free(parameters);
                return r;
        }
        *ret_work = (struct work){.kind = WORK_KERNEL,
                                  .kernel = {.function = f,
                                             .grid = {grid[0], grid[1], grid[2]},
                                             .block = {block[0], block[1], block[2]},
                                             .shared = shared,
                                             .parameters = parameters}};
        return CUDA_SUCCESS;
}

static CUresult launch(const char *function, CUfunction f, const unsigned grid[3],
                       const unsigned block[3], unsigned shared, CUstream stream, void **params,
                       void **extra, bool cooperative)
{
        struct work w;
        CUcontext c;
        CUresult r = stream_enter(function, &stream, &c);

        if (r == CUDA_SUCCESS)
                r = function_resolve(c, f, &f);
        if (r != CUDA_SUCCESS)
                return r;
        if (context_owner(f->module->context) != context_owner(stream->context))
                return CUDA_ERROR_INVALID_HANDLE;
        if (cooperative) {
                int blocks = 0;

                r = cuOccupancyMaxActiveBlocksPerMultiprocessor(
                        &blocks, f, (int)(block[0] * block[1] * block[2]), shared);
                if (r != CUDA_SUCCESS)
                        return r;
                if ((uint64_t)grid[0] * grid[1] * grid[2] > (uint64_t)blocks * DEVICE_PROCESSORS)
                        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
        }
        r = launch_prepare(f, grid, block, shared, params, extra, &w);
        return r != CUDA_SUCCESS ? r : stream_submit(stream, &w, NULL, 0);
}

EXPORT CUresult cuLaunchKernel(CUfunction func, unsigned int grid_x, unsigned int grid_y,
                               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                               unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                               void **params, void **extra)
{
        const unsigned grid[3] = {grid_x, grid_y, grid_z};
        const unsigned block[3] = {block_x, block_y, block_z};

        return launch(__func__, func, grid, block, shared_bytes, stream, params, extra, false);
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction func, unsigned int grid_x, unsigned int grid_y,
                                          unsigned int grid_z, unsigned int block_x,
                                          unsigned int block_y, unsigned int block_z,
                                          unsigned int shared_bytes, CUstream stream, void **params)
{
        const unsigned grid[3] = {grid_x, grid_y, grid_z};
        const unsigned block[3] = {block_x, block_y, block_z};

        return launch(__func__, func, grid, block, shared_bytes, stream, params, NULL, true);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction func, void **params,
                                 void **extra)
{
        bool cooperative = false;

        if (!config || (config->numAttrs && !config->attrs))
                return CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; i < config->numAttrs; i++) {
                const CUlaunchAttribute *a = &config->attrs[i];

                if (a->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
                        cooperative = a->value.cooperative != 0;
                else if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
                         (a->value.clusterDim.x > 1 || a->value.clusterDim.y > 1 ||
                          a->value.clusterDim.z > 1))
                        return CUDA_ERROR_NOT_SUPPORTED;
        }
        const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
        const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};

        return launch(__func__, func, grid, block, config->sharedMemBytes, config->hStream, params,
                      extra, cooperative);
}
