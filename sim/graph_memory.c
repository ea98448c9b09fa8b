/* graph_memory.c: owns the addresses and the memory of graphs' allocation nodes. Memory stays for
 * the next launch until it is trimmed. */
#include "graph_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "capture.h"
#include "memory.h"

struct graph_memory {
        struct graph_memory *next;
        uint64_t start, bytes;
        unsigned device;
        bool left;           /* a launch has allocated it and nobody freed it */
        struct range *range; /* NULL: no memory there */
        struct block *block; /* NULL: not allocated now */
};

static struct graph_memory *all;
static uint64_t used[SESSION_DEVICES], used_high[SESSION_DEVICES];
static uint64_t reserved[SESSION_DEVICES], reserved_high[SESSION_DEVICES];

static struct graph_memory *find(CUdeviceptr ptr)
{
        struct graph_memory *m = all;

        while (m && m->start != ptr)
                m = m->next;
        return m;
}

CUresult graph_memory_capture(CUstream s, unsigned device, uint64_t bytes, CUdeviceptr *ret_ptr)
{
        struct graph_memory *m = calloc(1, sizeof(*m));
        struct work w = {.kind = WORK_GRAPH_ALLOC, .memory = m};

        if (!m)
                return CUDA_ERROR_OUT_OF_MEMORY;
        m->device = device;
        m->bytes = align_up(bytes, SPACE_GRANULARITY);
        space_lock();
        m->start = space_reserve(m->bytes, SPACE_GRANULARITY, 0);
        space_unlock();
        if (!m->start) {
                free(m);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        m->next = all;
        all = m;
        *ret_ptr = m->start;
        return capture_add(s, &w);
}

CUresult graph_memory_capture_free(CUstream s, CUdeviceptr ptr)
{
        struct work w = {.kind = WORK_GRAPH_FREE, .memory = find(ptr)};

        return w.memory ? capture_add(s, &w) : CUDA_ERROR_INVALID_VALUE;
}

/* Locked (space). */
static void forget_block(struct graph_memory *m)
{
        block_remove(m->block);
        m->block = NULL;
        used[m->device] -= m->bytes;
}

bool graph_memory_free(CUdeviceptr ptr, CUresult *ret_result)
{
        struct graph_memory *m = find(ptr);

        if (!m)
                return false;
        *ret_result = m->left ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        m->left = false;
        space_lock();
        if (m->block)
                forget_block(m);
        space_unlock();
        return true;
}

bool graph_memory_left(const struct graph_memory *m)
{
        return m->left;
}

void graph_memory_launched(struct graph_memory *m, bool freed)
{
        m->left = !freed;
}

static CUresult allocate(struct graph_memory *m)
{
        struct block *b = calloc(1, sizeof(*b));
        CUresult r = b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

        if (r == CUDA_SUCCESS && !m->range) {
                r = memory_range_at(m->device, m->start, m->bytes, &m->range);
                if (r == CUDA_SUCCESS) {
                        reserved[m->device] += m->bytes;
                        reserved_high[m->device] =
                                MAX(reserved_high[m->device], reserved[m->device]);
                }
        } else if (r == CUDA_SUCCESS) {
                space_lock();
        }
        if (r != CUDA_SUCCESS) {
                free(b);
                return r;
        }
        *b = (struct block){.span = {m->start, m->bytes}, .kind = BLOCK_GRAPH, .range = m->range};
        m->block = b;
        (void)block_add(b);
        used[m->device] += m->bytes;
        used_high[m->device] = MAX(used_high[m->device], used[m->device]);
        space_unlock();
        return CUDA_SUCCESS;
}

CUresult graph_memory_run(struct graph_memory *m, bool to_allocate)
{
        if (to_allocate)
                return m->block ? CUDA_SUCCESS : allocate(m);
        space_lock();
        if (m->block)
                forget_block(m);
        space_unlock();
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        space_lock();
        for (struct graph_memory *m = all; m; m = m->next)
                if (m->device == (unsigned)device && m->range && !m->block && !m->left) {
                        space_unmap(m->range);
                        m->range = NULL;
                        reserved[device] -= m->bytes;
                }
        space_unlock();
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

static uint64_t *attribute(CUdevice device, CUgraphMem_attribute which)
{
        switch (which) {
        case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
                return &used[device];
        case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
                return &used_high[device];
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
                return &reserved[device];
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
                return &reserved_high[device];
        default:
                return NULL;
        }
}

EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute which,
                                             void *value)
{
        CUresult r = device_enter(__func__, device);
        uint64_t *a = r == CUDA_SUCCESS ? attribute(device, which) : NULL;

        if (r != CUDA_SUCCESS)
                return r;
        if (!a || !value)
                return CUDA_ERROR_INVALID_VALUE;
        *(cuuint64_t *)value = *a;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute which,
                                             void *value)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        if (!value || *(cuuint64_t *)value ||
            (which != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH &&
             which != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
                return CUDA_ERROR_INVALID_VALUE;
        if (which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
                used_high[device] = used[device];
        else
                reserved_high[device] = reserved[device];
        return CUDA_SUCCESS;
}
