/* graph_memory.c: owns the addresses and the memory of allocation nodes. A graph's memory stays for
 * the next launch until the program trims it. */
#include "sim/memory/graph_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sim/queue/capture.h"
#include "sim/queue/graph.h"
#include "sim/memory/memory.h"
#include "sim/memory/pool_memory.h"

/* Addresses of one graph, with memory behind all of them or none. The memory belongs to this graph
 * while the region holds allocations; otherwise any graph may take it. */
struct region {
        struct region *next;
        CUgraph graph; /* the graph whose captures get addresses here */
        uint64_t start, bytes, taken;
        unsigned device;
        unsigned held; /* number of allocations in the region, those left by a launch included */
        struct range *range; /* the memory behind the addresses; NULL: none */
};

struct graph_memory {
        struct graph_memory *next;
        struct region *region;
        uint64_t start, bytes;
        bool freed;          /* a node frees the memory, so no other node may */
        bool owned;          /* an instance of the graph exists */
        bool left;           /* a launch has allocated the memory and not freed it */
        struct block *block; /* the present allocation; NULL: none */
};

static struct graph_memory *all;
static struct region *regions;
static uint64_t reserved[SESSION_DEVICES];
static uint64_t used_high[SESSION_DEVICES], reserved_high[SESSION_DEVICES];

static struct graph_memory *find(CUdeviceptr ptr)
{
        struct graph_memory *m = all;

        while (m && m->start != ptr)
                m = m->next;
        return m;
}

bool graph_memory_holds(uint64_t at, uint64_t bytes)
{
        struct graph_memory *m;

        pthread_mutex_lock(&sim.lock);
        for (m = all; m; m = m->next)
                if (at >= m->start && at - m->start < m->bytes &&
                    bytes <= m->bytes - (at - m->start))
                        break;
        pthread_mutex_unlock(&sim.lock);
        return m != NULL;
}

static struct region *region_for(CUgraph graph, unsigned device, uint64_t bytes)
{
        struct region *r = regions;

        while (r && (r->graph != graph || r->device != device || bytes > r->bytes - r->taken))
                r = r->next;
        if (r || bytes > UINT64_MAX / 2)
                return r;
        r = calloc(1, sizeof(*r));
        if (!r)
                return NULL;
        *r = (struct region){.next = regions,
                             .graph = graph,
                             .bytes = align_up(bytes, pool_chunk(device)),
                             .device = device};
        space_lock();
        r->start = space_reserve(r->bytes, pool_chunk(device), 0);
        if (r->start)
                regions = r;
        space_unlock();
        if (!r->start) {
                free(r);
                return NULL;
        }
        return r;
}

/* Makes the work of a node that allocates memory for the graph. */
static CUresult allocation_new(CUgraph graph, unsigned device, uint64_t bytes,
                               struct work *ret_work)
{
        struct graph_memory *m = calloc(1, sizeof(*m));
        struct region *r = m ? region_for(graph, device, bytes) : NULL;

        if (!r) {
                free(m);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        m->region = r;
        m->start = r->start + r->taken;
        m->bytes = bytes;
        m->next = all;
        all = m;
        r->taken = MIN(align_up(r->taken + bytes, SPACE_GRANULARITY), r->bytes);
        *ret_work = (struct work){.kind = WORK_GRAPH_ALLOC, .memory = m};
        return CUDA_SUCCESS;
}

/* Makes the work of a node that frees the memory of another node. */
static CUresult free_new(CUdeviceptr ptr, struct work *ret_work)
{
        struct graph_memory *m = find(ptr);

        if (!m || m->freed)
                return CUDA_ERROR_INVALID_VALUE;
        m->freed = true;
        *ret_work = (struct work){.kind = WORK_GRAPH_FREE, .memory = m};
        return CUDA_SUCCESS;
}

CUresult graph_memory_capture(CUstream s, unsigned device, uint64_t bytes, CUdeviceptr *ret_ptr)
{
        struct work w;
        CUresult r = allocation_new(s->capture->graph, device, bytes, &w);

        if (r != CUDA_SUCCESS)
                return r;
        *ret_ptr = w.memory->start;
        return capture_add(s, &w);
}

CUresult graph_memory_capture_free(CUstream s, CUdeviceptr ptr)
{
        struct work w;
        CUresult r = free_new(ptr, &w);

        return r != CUDA_SUCCESS ? r : capture_add(s, &w);
}

/* Needs the space lock. */
static void forget_block(struct graph_memory *m)
{
        block_remove(m->block);
        m->block = NULL;
        m->region->held--;
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

bool graph_memory_own(struct graph_memory *m)
{
        bool first = !m->owned;

        m->owned = true;
        return first;
}

void graph_memory_disown(struct graph_memory *m)
{
        m->owned = false;
}

bool graph_memory_left(const struct graph_memory *m)
{
        return m->left;
}

void graph_memory_launched(struct graph_memory *m, bool freed)
{
        m->left = !freed;
}

/* Takes memory that another graph does not need now. Needs the space lock. */
static struct range *region_steal(struct region *to)
{
        struct region *from = regions;
        struct range *range;
        struct physical *p;

        while (from && (!from->range || from->held || from->device != to->device ||
                        from->bytes != to->bytes))
                from = from->next;
        if (!from)
                return NULL;
        p = from->range->physical;
        range = space_map(RANGE_DEVICE, to->start, to->bytes, p, 0, p->at);
        if (!range)
                return NULL;
        memcpy(range->access, from->range->access, sizeof(range->access));
        space_unmap(from->range);
        from->range = NULL;
        return range;
}

/* Puts memory behind all of the region. Returns with the space lock held in any case. */
static CUresult region_back(struct region *region)
{
        const unsigned device = region->device;
        CUresult r;

        space_lock();
        if (!region->range)
                region->range = region_steal(region);
        if (region->range)
                return CUDA_SUCCESS;
        space_unlock();
        r = memory_range_at(device, region->start, region->bytes, PHYSICAL_GRAPH, &region->range);
        if (r != CUDA_SUCCESS) {
                space_lock();
                return r;
        }
        reserved[device] += region->bytes;
        reserved_high[device] = MAX(reserved_high[device], reserved[device]);
        used_high[device] = MAX(used_high[device], reserved[device]);
        return CUDA_SUCCESS;
}

static CUresult allocate(struct graph_memory *m)
{
        struct block *b = calloc(1, sizeof(*b));
        CUresult r;

        if (!b)
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = region_back(m->region);
        if (r == CUDA_SUCCESS) {
                *b = (struct block){.span = {m->start, m->bytes},
                                    .kind = BLOCK_GRAPH,
                                    .range = m->region->range};
                m->block = b;
                m->region->held++;
                (void)block_add(b);
        } else {
                free(b);
        }
        space_unlock();
        return r;
}

CUresult graph_memory_room(struct graph_memory *m)
{
        struct region *other;
        CUresult r = CUDA_SUCCESS;

        space_lock();
        for (other = regions; other; other = other->next)
                if (other->range && other->device == m->region->device &&
                    other->bytes == m->region->bytes)
                        break;
        space_unlock();
        if (!other) {
                r = region_back(m->region);
                space_unlock();
        }
        return r;
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

/* ---- nodes ---- */

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *ret_node, CUgraph graph,
                                       const CUgraphNode *dependencies, size_t dependency_count,
                                       CUDA_MEM_ALLOC_NODE_PARAMS *node_params)
{
        const CUmemPoolProps *props = node_params ? &node_params->poolProps : NULL;
        CUresult r = api_enter(__func__, API_ANY, NULL);
        struct work w;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_node || !graph || graph->magic != MAGIC_GRAPH || !props ||
            props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
            props->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            device_check(props->location.id) != CUDA_SUCCESS)
                return CUDA_ERROR_INVALID_VALUE;
        if (node_params->accessDescCount)
                return CUDA_ERROR_NOT_SUPPORTED;
        pthread_mutex_lock(&sim.lock);
        r = allocation_new(graph, (unsigned)props->location.id, node_params->bytesize, &w);
        if (r == CUDA_SUCCESS)
                r = graph_add(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &w, dependencies,
                              dependency_count, ret_node);
        if (r == CUDA_SUCCESS)
                node_params->dptr = (*ret_node)->work.memory->start;
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode *ret_node, CUgraph graph,
                                      const CUgraphNode *dependencies, size_t dependency_count,
                                      CUdeviceptr ptr)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);
        struct work w;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_node || !graph || graph->magic != MAGIC_GRAPH)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        r = free_new(ptr, &w);
        if (r == CUDA_SUCCESS)
                r = graph_add(graph, CU_GRAPH_NODE_TYPE_MEM_FREE, &w, dependencies,
                              dependency_count, ret_node);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node,
                                             CUDA_MEM_ALLOC_NODE_PARAMS *ret_params)
{
        CUresult r = graph_node_enter(__func__, node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, ret_params);
        const struct graph_memory *m;

        if (r != CUDA_SUCCESS)
                return r;
        m = node->work.memory;
        *ret_params = (CUDA_MEM_ALLOC_NODE_PARAMS){
                .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)m->region->device}},
                .bytesize = m->bytes,
                .dptr = m->start};
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *ret_ptr)
{
        CUresult r = graph_node_enter(__func__, node, CU_GRAPH_NODE_TYPE_MEM_FREE, ret_ptr);

        if (r == CUDA_SUCCESS)
                *ret_ptr = node->work.memory->start;
        return r;
}

/* ---- a device's memory for graphs ---- */

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        space_lock();
        for (struct region *g = regions; g; g = g->next)
                if (g->device == (unsigned)device && g->range && !g->held) {
                        space_unmap(g->range);
                        g->range = NULL;
                        reserved[device] -= g->bytes;
                }
        space_unlock();
        return CUDA_SUCCESS;
}

/* The driver counts used memory in whole chunks, so used and reserved memory are equal. */
static uint64_t *attribute(CUdevice device, CUgraphMem_attribute which)
{
        switch (which) {
        case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
                return &reserved[device];
        case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
                return &used_high[device];
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
                used_high[device] = reserved[device];
        else
                reserved_high[device] = reserved[device];
        return CUDA_SUCCESS;
}
