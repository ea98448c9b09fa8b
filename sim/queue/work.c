/* work.c: runs one operation by its kind. Must never hold sim.lock while the operation runs. */
#include "sim/queue/work.h"

#include <string.h>

#include "base/macros.h"

/* True if the work runs on a copy channel: only large copies run beside kernels. */
static bool copies(const struct work *w)
{
        const struct work_copy *c = &w->copy;

        return w->kind == WORK_COPY && (uint64_t)c->width * c->height * c->depth >= MIB;
}

CUresult work_run(CUcontext c, struct work *w)
{
        const struct work_type *type = &work_types[w->kind];
        CUresult r = CUDA_SUCCESS;

        channel_begin(copies(w));
        if (type->run && !type->in_steps && !context_cancelled(c))
                r = type->run(c, w);
        channel_done();
        return type->in_steps ? type->run(c, w) : r;
}

void work_clear(struct work *w)
{
        if (work_types[w->kind].clear)
                work_types[w->kind].clear(w);
        memset(w, 0, sizeof(*w));
}

CUresult work_clone(const struct work *w, struct work *ret_work)
{
        CUresult r;

        *ret_work = *w;
        if (!work_types[w->kind].own)
                return CUDA_SUCCESS;
        r = work_types[w->kind].own(ret_work);
        if (r != CUDA_SUCCESS)
                memset(ret_work, 0, sizeof(*ret_work));
        return r;
}
