/* works.c: the function that runs each kind of work. */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sim/graph/program.h"
#include "sim/kernel/launch.h"
#include "sim/memory/graph_memory.h"
#include "sim/memory/memory.h"
#include "sim/stream/event.h"
#include "sim/stream/shared_event.h"
#include "sim/stream/transfer.h"

static CUresult run_kernel(CUcontext c, struct work *w)
{
        return launch_run(c, &w->kernel);
}

static void clear_kernel(struct work *w)
{
        free(w->kernel.parameters);
}

static CUresult own_kernel(struct work *w)
{
        size_t bytes = function_parameter_bytes(w->kernel.function);
        void *own = malloc(bytes ? bytes : 1);

        if (!own)
                return CUDA_ERROR_OUT_OF_MEMORY;
        w->kernel.parameters = memcpy(own, w->kernel.parameters, bytes);
        return CUDA_SUCCESS;
}

static CUresult run_copy(CUcontext c, struct work *w)
{
        return copy_run(c, &w->copy);
}

static void clear_copy(struct work *w)
{
        free(w->copy.staged);
}

static CUresult run_set(CUcontext c, struct work *w)
{
        return set_run(c, &w->set);
}

/* Leaves the channel, then calls the program's own code. Otherwise, disabling the channel would
 * wait for that code. */
static CUresult call_out(CUcontext c, struct work *w)
{
        channel_done();
        sim_in_callback = true;
        if (w->kind == WORK_HOST)
                w->host.fn(w->host.data);
        else
                w->callback.fn(w->callback.handle, (CUresult)atomic_load(c->error),
                               w->callback.data);
        sim_in_callback = false;
        channel_begin(false);
        return CUDA_SUCCESS;
}

static CUresult run_record(CUcontext c, struct work *w)
{
        event_stamp(w->record.event, w->record.records);
        if (w->record.shared)
                shared_event_reached(w->record.shared, w->record.number);
        return CUDA_SUCCESS;
}

static CUresult await_event(CUcontext c, struct work *w)
{
        return shared_event_await(c, w->record.shared, w->record.number);
}

static CUresult write_value(CUcontext c, struct work *w)
{
        return value_write(c, &w->value);
}

static CUresult wait_value(CUcontext c, struct work *w)
{
        return value_wait(c, &w->value);
}

static CUresult run_prefetch(CUcontext c, struct work *w)
{
        return prefetch_run(c, &w->prefetch);
}

static CUresult run_graph_memory(CUcontext c, struct work *w)
{
        return graph_memory_run(w->memory, w->kind == WORK_GRAPH_ALLOC);
}

static CUresult run_program(CUcontext c, struct work *w)
{
        return program_run(c, w->program);
}

static void clear_program(struct work *w)
{
        program_release(w->program);
}

static CUresult own_program(struct work *w)
{
        (void)program_retain(w->program);
        return CUDA_SUCCESS;
}

const struct work_type work_types[] = {
        [WORK_EMPTY] = {0},
        [WORK_KERNEL] = {run_kernel, clear_kernel, own_kernel},
        [WORK_COPY] = {run_copy, clear_copy},
        [WORK_SET] = {run_set},
        [WORK_HOST] = {call_out},
        [WORK_CALLBACK] = {call_out},
        [WORK_RECORD] = {run_record},
        [WORK_WRITE_VALUE] = {write_value},
        [WORK_WAIT_VALUE] = {wait_value},
        [WORK_GRAPH] = {run_program, clear_program, own_program, .in_steps = true},
        [WORK_PREFETCH] = {run_prefetch},
        [WORK_AWAIT_EVENT] = {await_event},
        [WORK_GRAPH_ALLOC] = {run_graph_memory},
        [WORK_GRAPH_FREE] = {run_graph_memory},
};
