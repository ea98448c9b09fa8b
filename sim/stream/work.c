/* work.c: runs one operation by its kind. Must never take sim.lock around what it runs. */
#include "sim/stream/work.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sim/graph/graph_memory.h"
#include "sim/memory/memory.h"
#include "sim/memory/ipc.h"

bool work_cancelled(CUcontext c)
{
        return atomic_load_explicit(&sim.exiting, memory_order_relaxed) ||
               atomic_load_explicit(c->error, memory_order_relaxed) != CUDA_SUCCESS;
}

bool work_stopped(CUcontext c)
{
        if (channel_stops())
                channel_stand();
        return work_cancelled(c);
}

/* A copy of this size runs beside what computes. */
static bool copies(const struct work *w)
{
        const struct work_copy *c = &w->copy;

        return w->kind == WORK_COPY && (uint64_t)c->width * c->height * c->depth >= MIB;
}

/* The program's own code: the channel waits for its end, and does not keep anybody waiting who
 * disables it. */
static void call_out(CUcontext c, const struct work *w)
{
        channel_done();
        api_in_callback = true;
        if (w->kind == WORK_HOST)
                w->host.fn(w->host.data);
        else
                w->callback.fn(w->callback.handle, (CUresult)atomic_load(c->error),
                               w->callback.data);
        api_in_callback = false;
        channel_begin(false);
}

static CUresult run(CUcontext c, struct work *w)
{
        CUresult r = CUDA_SUCCESS;

        switch (w->kind) {
        case WORK_EMPTY:
        case WORK_GRAPH: /* a step at a time, below */
                break;
        case WORK_KERNEL:
                r = launch_run(c, &w->kernel);
                break;
        case WORK_COPY:
                r = copy_run(c, &w->copy);
                break;
        case WORK_SET:
                r = set_run(c, &w->set);
                break;
        case WORK_HOST:
        case WORK_CALLBACK:
                call_out(c, w);
                break;
        case WORK_RECORD:
                event_stamp(w->record.event, w->record.records);
                if (w->record.shared)
                        shared_event_reached(w->record.shared, w->record.number);
                break;
        case WORK_AWAIT_EVENT:
                r = shared_event_await(c, w->record.shared, w->record.number);
                break;
        case WORK_WRITE_VALUE:
                r = value_write(c, &w->value);
                break;
        case WORK_WAIT_VALUE:
                r = value_wait(c, &w->value);
                break;
        case WORK_PREFETCH:
                r = prefetch_run(c, &w->prefetch);
                break;
        case WORK_FREE:
                (void)memory_free(w->free); /* twice is the program's own doing */
                break;
        case WORK_GRAPH_ALLOC:
        case WORK_GRAPH_FREE:
                r = graph_memory_run(w->memory, w->kind == WORK_GRAPH_ALLOC);
                break;
        }
        return r;
}

CUresult work_run(CUcontext c, struct work *w)
{
        CUresult r = CUDA_SUCCESS;

        channel_begin(copies(w));
        if (!work_cancelled(c))
                r = run(c, w);
        channel_done();
        return w->kind == WORK_GRAPH ? program_run(c, w->program) : r;
}

void work_clear(struct work *w)
{
        if (w->kind == WORK_KERNEL)
                free(w->kernel.parameters);
        else if (w->kind == WORK_COPY)
                free(w->copy.staged);
        else if (w->kind == WORK_GRAPH)
                program_release(w->program);
        memset(w, 0, sizeof(*w));
}

CUresult work_clone(const struct work *w, struct work *ret_work)
{
        *ret_work = *w;
        if (w->kind == WORK_KERNEL) {
                size_t bytes = function_parameter_bytes(w->kernel.function);

                ret_work->kernel.parameters = malloc(bytes ? bytes : 1);
                if (!ret_work->kernel.parameters) {
                        memset(ret_work, 0, sizeof(*ret_work));
                        return CUDA_ERROR_OUT_OF_MEMORY;
                }
                memcpy(ret_work->kernel.parameters, w->kernel.parameters, bytes);
        } else if (w->kind == WORK_GRAPH) {
                (void)program_retain(w->program);
        }
        return CUDA_SUCCESS;
}
