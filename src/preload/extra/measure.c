/* measure.c: owns the figures of this process's submissions and the file that they are in. Must
 * never make a driver call with its lock held, nor keep a program from going on.
 * Why: docs/decisions.md, "Measuring times some launches, and takes the rest from counts". */
#include "preload/extra/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/settings.h"
#include "preload/extra/work_steps.h"
#include "preload/process/lock.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/stream/quiesce.h"

#define SLOTS        4096u /* a power of two, well above the number of kernels */
#define GRAPH_DEPTH  4u    /* levels of child graphs in child graphs */
#define GRAPH_HANDLE 65536u
#define FIRST_ONES   4u /* launches of each kernel that are timed if the budget allows it */
#define AGAIN        4u /* launches until the next attempt after one that the budget refused */
#define PEAK_EVERY   64u

_Static_assert((MEASURE_STEPS & (MEASURE_STEPS - 1)) == 0, "places are taken modulo");
_Static_assert(MEASURE_KERNELS * 2 <= SLOTS, "the table is at most half full");

/* The count of launches at which the next one is timed, and the number of timed launches. */
struct measure_next {
        uint64_t launch, taken;
};

struct measure {
        struct measure_page *page; /* NULL: not made yet, or it could not be made */
        bool failed;
        bool described; /* the page describes the GPU */
        struct steps steps;
        CUfunction funcs[MEASURE_KERNELS];
        struct measure_next kernels[MEASURE_KERNELS];
        uint16_t slots[SLOTS]; /* 1 + place of a kernel; 0: free */
        CUgraphExec execs[MEASURE_GRAPHS];
        struct measure_next graphs[MEASURE_GRAPHS];
        unsigned last_graph; /* the graph launched last, which may be launched next, too */
};

static struct lock lock;
static struct measure *measure; /* NULL: off. Set before the first thread passes the gate */
static const char *folder;
static bool counts_only; /* no launch is timed */

#define COUNT(counter, n) atomic_fetch_add_explicit(&(counter), (n), memory_order_relaxed)
#define SET(variable, n)  atomic_store_explicit(&(variable), (n), memory_order_relaxed)
#define GET(variable)     atomic_load_explicit(&(variable), memory_order_relaxed)

/* ---- the file ---- */

/* The file's blocks are reserved: a full file system must not end the program by SIGBUS later. */
static struct measure_page *make_page(void)
{
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int fd = -EBADF;
        struct measure_page *page;
        int r;

        if (asprintf(&path, "%s/%d", folder, (int)getpid()) < 0)
                return NULL;
        (void)unlink(path); /* a program that this process ran before may have left it */
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        r = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)sizeof(*page));
        if (r == 0) {
                page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                if (page != MAP_FAILED) {
                        page->pid = (uint32_t)getpid();
                        return page;
                }
                r = errno;
        }
        log_warning("%s: the program is not measured: %s", path, strerror(r));
        return NULL;
}

/* True if the figures can be written. */
static bool ready(struct measure *m) REQUIRES(lock)
{
        if (unlikely(!m->page) && !m->failed) {
                m->page = make_page();
                m->failed = !m->page;
        }
        return m->page;
}

void measure_setup(void)
{
        folder = setting_text(SETTING_MEASURE);
        if (!folder)
                return;
        counts_only = setting_is_on(SETTING_MEASURE_COUNTS);
        measure = calloc(1, sizeof(*measure));
        if (!measure)
                return;
        gate_shut(GATE_MEASURE);
}

void measure_forget(void) LOCK_UNCHECKED
{
        if (!measure)
                return;
        /* The file is the parent's. */
        if (measure->page)
                (void)munmap(measure->page, sizeof(*measure->page));
        free(measure);
        measure = NULL;
        lock = (struct lock){0};
        sample_forget();
}

void measure_context_dies(CUcontext context)
{
        if (measure)
                sample_context_dies(context);
}

/* ---- the GPU ---- */

static uint32_t attribute(CUdevice device, CUdevice_attribute a)
{
        int value = 0;

        return real.cuDeviceGetAttribute(&value, a, device) == CUDA_SUCCESS && value > 0
                       ? (uint32_t)value
                       : 0;
}

static void describe_gpu(struct measure_page *p)
{
        CUdevice device;
        CUuuid uuid;
        size_t bytes = 0;

        if (real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
                return;
        if (real.cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS ||
            real.cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS)
                memcpy(p->uuid, &uuid, sizeof(p->uuid));
        (void)real.cuDeviceGetName(p->gpu, (int)sizeof(p->gpu), device);
        (void)real.cuDeviceTotalMem_v2(&bytes, device);
        p->total_bytes = bytes;
        p->sms = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        p->threads_per_sm = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
        p->l2_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
        p->clock_khz = attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
        p->memory_clock_khz = attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
        p->memory_bus_bits = attribute(device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
        atomic_store_explicit(&p->magic, MEASURE_MAGIC, memory_order_release);
}

/* ---- kernels ---- */

struct geometry {
        uint32_t grid[3], block[3], dynamic_bytes;
};

static bool is_same(const struct measure *m, uint32_t at, CUfunction func, const struct geometry *g)
        REQUIRES(lock)
{
        const struct measure_kernel *k = &m->page->kernels[at];

        return m->funcs[at] == func && k->dynamic_bytes == g->dynamic_bytes &&
               memcmp(k->grid, g->grid, sizeof(k->grid)) == 0 &&
               memcmp(k->block, g->block, sizeof(k->block)) == 0;
}

static uint32_t hash_of(CUfunction func, const struct geometry *g)
{
        uint64_t h = (uint64_t)(uintptr_t)func >> 4;

        for (unsigned i = 0; i < 3; i++)
                h = (h ^ g->grid[i] ^ (uint64_t)g->block[i] << 32) * UINT64_C(0x9e3779b97f4a7c15);
        h = (h ^ g->dynamic_bytes) * UINT64_C(0x9e3779b97f4a7c15);
        return (uint32_t)(h >> 40);
}

/* Returns the kernel's place; MEASURE_KERNELS: there is no room. *ret_fresh: it was added, and the
 * caller describes it. */
static uint32_t kernel_of(struct measure *m, CUfunction func, const struct geometry *g,
                          bool *ret_fresh) REQUIRES(lock)
{
        uint32_t slot = hash_of(func, g), at;
        struct measure_kernel *k;

        *ret_fresh = false;
        for (; m->slots[slot % SLOTS]; slot++) {
                at = m->slots[slot % SLOTS] - 1u;
                if (is_same(m, at, func, g))
                        return at;
        }
        at = GET(m->page->kernel_count);
        if (at >= MEASURE_KERNELS)
                return MEASURE_KERNELS;
        k = &m->page->kernels[at];
        memcpy(k->grid, g->grid, sizeof(k->grid));
        memcpy(k->block, g->block, sizeof(k->block));
        k->dynamic_bytes = g->dynamic_bytes;
        m->funcs[at] = func;
        m->slots[slot % SLOTS] = (uint16_t)(at + 1);
        SET(m->page->kernel_count, at + 1);
        *ret_fresh = true;
        return at;
}

static uint32_t function_attribute(CUfunction func, CUfunction_attribute a)
{
        int value;

        return real.cuFuncGetAttribute(&value, a, func) == CUDA_SUCCESS && value >= 0
                       ? (uint32_t)value
                       : MEASURE_UNSUPPORTED;
}

/* Returns the function of a handle, which may also be a CUkernel: launches accept both. */
static CUfunction function_of(CUfunction func)
{
        CUfunction found;
        int value;

        if (real.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, func) == CUDA_SUCCESS ||
            real.cuKernelGetFunction(&found, (CUkernel)func) != CUDA_SUCCESS)
                return func;
        return found;
}

/* Needs no lock: only the thread that has added the kernel describes it. */
static void describe_kernel(struct measure_kernel *k, CUfunction handle)
{
        const CUfunction func = function_of(handle);
        const char *name = NULL;
        int blocks = 0;

        k->registers = function_attribute(func, CU_FUNC_ATTRIBUTE_NUM_REGS);
        k->static_bytes = function_attribute(func, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
        k->local_bytes = function_attribute(func, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
        k->blocks_per_sm = MEASURE_UNSUPPORTED;
        if (real.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    &blocks, func, (int)(k->block[0] * k->block[1] * k->block[2]),
                    k->dynamic_bytes) == CUDA_SUCCESS &&
            blocks >= 0)
                k->blocks_per_sm = (uint32_t)blocks;
        if (real.cuFuncGetName(&name, func) == CUDA_SUCCESS && name)
                (void)strncpy(k->name, name, sizeof(k->name) - 1);
        atomic_store_explicit(&k->ready, 1, memory_order_release);
}

/* ---- graphs ---- */

/* Returns the graph's place; MEASURE_GRAPHS: it is not known. */
static uint32_t graph_of(struct measure *m, CUgraphExec exec) REQUIRES(lock)
{
        const uint32_t n = GET(m->page->graph_count);

        if (m->last_graph < n && m->execs[m->last_graph] == exec)
                return m->last_graph;
        for (uint32_t i = n; i-- > 0;) /* the newest one, as a handle may be used again */
                if (m->execs[i] == exec) {
                        m->last_graph = i;
                        return i;
                }
        return MEASURE_GRAPHS;
}

/* The kernels that a graph launches. */
struct listing {
        struct measure_node nodes[MEASURE_KERNELS];
        uint32_t count, unknown;
};

static void list_kernel(struct measure *m, struct listing *l, CUfunction func,
                        const struct geometry *g)
{
        uint32_t at, i = 0;
        bool fresh;

        lock_acquire(&lock);
        at = kernel_of(m, func, g, &fresh);
        lock_release(&lock);
        if (at == MEASURE_KERNELS) {
                l->unknown++;
                return;
        }
        if (fresh)
                describe_kernel(&m->page->kernels[at], func);
        while (i < l->count && l->nodes[i].kernel != at)
                i++;
        if (i == l->count)
                l->nodes[l->count++] = (struct measure_node){.kernel = at};
        l->nodes[i].count++;
}

static void list_graph(struct measure *m, struct listing *l, CUgraph graph, unsigned depth);

static void list_node(struct measure *m, struct listing *l, CUgraphNode node, unsigned depth)
{
        CUDA_KERNEL_NODE_PARAMS_v2 params = {0};
        CUDA_KERNEL_NODE_PARAMS_v1 old = {0};
        CUgraphNodeType type;
        CUgraph child;

        if (real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
                return;
        if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth > 0 &&
            real.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
                list_graph(m, l, child, depth - 1);
        if (type != CU_GRAPH_NODE_TYPE_KERNEL)
                return;
        if (real.cuGraphKernelNodeGetParams_v2(node, &params) != CUDA_SUCCESS) {
                if (real.cuGraphKernelNodeGetParams(node, &old) != CUDA_SUCCESS) {
                        l->unknown++;
                        return;
                }
                memcpy(&params, &old, sizeof(old)); /* the newer struct begins with the old one */
        }
        list_kernel(m, l, params.func ? params.func : (CUfunction)params.kern,
                    &(struct geometry){{params.gridDimX, params.gridDimY, params.gridDimZ},
                                       {params.blockDimX, params.blockDimY, params.blockDimZ},
                                       params.sharedMemBytes});
}

static void list_graph(struct measure *m, struct listing *l, CUgraph graph, unsigned depth)
{
        _cleanup_free_ CUgraphNode *nodes = NULL;
        size_t n = 0;

        if (real.cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS || n == 0)
                return;
        n = MIN(n, (size_t)GRAPH_HANDLE);
        nodes = malloc(n * sizeof(CUgraphNode));
        if (!nodes || real.cuGraphGetNodes(graph, nodes, &n) != CUDA_SUCCESS)
                return;
        for (size_t i = 0; i < n; i++)
                list_node(m, l, nodes[i], depth);
}

/* Graphs that find no room in the table count as unlisted. */
static void add_graph(struct measure *m, CUgraphExec exec, const struct listing *l)
{
        struct measure_page *p = m->page;
        uint32_t at, first;

        lock_acquire(&lock);
        at = GET(p->graph_count);
        first = GET(p->node_count);
        if (at < MEASURE_GRAPHS && first + l->count <= MEASURE_NODES) {
                struct measure_graph *g = &p->graphs[at];

                memcpy(&p->nodes[first], l->nodes, l->count * sizeof(l->nodes[0]));
                SET(p->node_count, first + l->count);
                g->first = first;
                g->count = l->count;
                g->unknown = l->unknown;
                m->execs[at] = exec;
                atomic_store_explicit(&g->ready, 1, memory_order_release);
                SET(p->graph_count, at + 1);
        } else {
                for (uint32_t i = 0; i < at; i++)
                        if (m->execs[i] == exec)
                                m->execs[i] = NULL; /* the handle is another graph now */
        }
        lock_release(&lock);
}

static void graph_is_made(struct measure *m, CUgraphExec exec, CUgraph graph)
{
        struct listing *l = calloc(1, sizeof(*l));
        CUstreamCaptureMode mode;

        if (!l)
                return;
        mode = core_relax();
        list_graph(m, l, graph, GRAPH_DEPTH);
        core_unrelax(mode);
        add_graph(m, exec, l);
        free(l);
}

/* ---- before and after a call ---- */

/* core_lock is not held: figures that change meanwhile do no harm. */
static void note_peak(struct measure_page *p) LOCK_UNCHECKED
{
        uint64_t bytes = 0;

        for (unsigned i = 0; i < core.gpu_count; i++)
                bytes += core.gpus[i].heap.allocated + core_own_unevictable(&core.gpus[i]);
        if (bytes > GET(p->peak_bytes))
                SET(p->peak_bytes, bytes);
}

static void note_step(struct measure *m, uint64_t work) REQUIRES(lock)
{
        struct measure_page *p = m->page;
        uint64_t n;

        if (steps_look(&m->steps, work)) {
                COUNT(p->era, 1);
                SET(p->steps, 0);
        }
        if (!m->steps.gap)
                return;
        if (work == m->steps.begin) {
                n = GET(p->steps);
                SET(p->step_ns[n % MEASURE_STEPS], clock_now_ns());
                SET(p->steps, n + 1);
                note_peak(p);
        } else if (steps_lost(&m->steps)) {
                steps_reset(&m->steps);
                COUNT(p->era, 1);
                SET(p->steps, 0);
        }
}

/* True if this launch is to be timed: the first ones are, and later about the cube root of the
 * number of all launches. */
static bool is_due(struct measure_next *n, const struct measure_time *t) REQUIRES(lock)
{
        return GET(t->launches) >= n->launch;
}

static void plan_next(struct measure_next *n, const struct measure_time *t, bool timed)
        REQUIRES(lock)
{
        if (timed)
                n->taken++;
        n->launch = GET(t->launches) + (!timed                  ? AGAIN
                                        : n->taken < FIRST_ONES ? 0
                                                                : 1 + n->taken * n->taken / 8);
}

static bool begin_call(struct measure_call *m)
{
        if (!measure || core_passive() || quiesce_is_capturing(m->stream))
                return false;
        m->counts = true;
        return true;
}

/* Notes where the figures of the coming launch are, and whether to time it. */
static void begin_launch(struct measure_call *m, struct measure_time *t, struct measure_next *n)
        REQUIRES(lock)
{
        m->time = t;
        m->next = n;
        m->due = t && !counts_only && is_due(n, t);
}

static void begin_kernel(struct measure_call *m, CUfunction func, const struct geometry *g)
{
        struct measure *all = measure;
        bool fresh;
        uint32_t at;

        if (!begin_call(m))
                return;
        lock_acquire(&lock);
        if (!ready(all)) {
                m->counts = false;
        } else {
                note_step(all, m->work);
                at = kernel_of(all, func, g, &fresh);
                if (at < MEASURE_KERNELS)
                        begin_launch(m, &all->page->kernels[at].time, &all->kernels[at]);
                if (fresh)
                        m->fresh = &all->page->kernels[at];
                m->func = func;
                m->launch = true;
        }
        lock_release(&lock);
        if (m->counts && m->due)
                (void)sample_begin(&m->sample, m->stream);
}

void measure_kernel(struct measure_call *m, CUfunction func, unsigned int grid_x,
                    unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                    unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, ...)
{
        begin_kernel(m, func,
                     &(struct geometry){
                             {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes});
}

void measure_launch(struct measure_call *m, const CUlaunchConfig *c, CUfunction func, void **params,
                    void **extra)
{
        if (!c)
                measure_other(m);
        else
                measure_kernel(m, func, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX,
                               c->blockDimY, c->blockDimZ, c->sharedMemBytes);
}

void measure_graph(struct measure_call *m, CUgraphExec exec, CUstream stream)
{
        struct measure *all = measure;
        uint32_t at;

        if (!m->launches_graph) {
                measure_other(m);
                return;
        }
        if (!begin_call(m))
                return;
        lock_acquire(&lock);
        if (!ready(all)) {
                m->counts = false;
        } else {
                note_step(all, m->work);
                at = graph_of(all, exec);
                if (at < MEASURE_GRAPHS)
                        begin_launch(m, &all->page->graphs[at].time, &all->graphs[at]);
                m->launch = true;
        }
        lock_release(&lock);
        if (m->counts && m->due)
                (void)sample_begin(&m->sample, m->stream);
}

void measure_other(struct measure_call *m, ...)
{
        if (!begin_call(m))
                return;
        lock_acquire(&lock);
        if (ready(measure))
                note_step(measure, m->work);
        else
                m->counts = false;
        lock_release(&lock);
}

void measure_instantiate(struct measure_call *m, CUgraphExec *ret_exec, CUgraph graph, ...)
{
        measure_other(m);
        m->ret_exec = ret_exec;
        m->graph = graph;
}

/* ---- copies ---- */

static void begin_copy(struct measure_call *m, enum measure_copy way, uint64_t bytes)
{
        measure_other(m);
        m->way = way;
        m->copied = bytes;
}

static bool is_on_device(CUdeviceptr address)
{
        CUmemorytype type = 0;

        return real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
                       CUDA_SUCCESS &&
               type == CU_MEMORYTYPE_DEVICE;
}

static enum measure_copy way_of(bool to_device, bool from_device)
{
        return !from_device ? MEASURE_TO_DEVICE : !to_device ? MEASURE_TO_HOST : MEASURE_WITHIN;
}

void measure_to_device(struct measure_call *m, CUdeviceptr to, const void *from, size_t bytes, ...)
{
        begin_copy(m, MEASURE_TO_DEVICE, bytes);
}

void measure_to_host(struct measure_call *m, void *to, CUdeviceptr from, size_t bytes, ...)
{
        begin_copy(m, MEASURE_TO_HOST, bytes);
}

void measure_either(struct measure_call *m, CUdeviceptr to, CUdeviceptr from, size_t bytes, ...)
{
        begin_copy(m, MEASURE_WITHIN, bytes);
        if (m->counts)
                m->way = way_of(is_on_device(to), is_on_device(from));
}

static bool is_device_type(CUmemorytype type, CUdeviceptr address)
{
        return type == CU_MEMORYTYPE_UNIFIED ? is_on_device(address) : type != CU_MEMORYTYPE_HOST;
}

void measure_copy_2d(struct measure_call *m, const CUDA_MEMCPY2D *c, ...)
{
        begin_copy(m, MEASURE_WITHIN, c ? c->WidthInBytes * c->Height : 0);
        if (m->counts && c)
                m->way = way_of(is_device_type(c->dstMemoryType, c->dstDevice),
                                is_device_type(c->srcMemoryType, c->srcDevice));
}

void measure_copy_3d(struct measure_call *m, const CUDA_MEMCPY3D *c, ...)
{
        begin_copy(m, MEASURE_WITHIN, c ? c->WidthInBytes * c->Height * c->Depth : 0);
        if (m->counts && c)
                m->way = way_of(is_device_type(c->dstMemoryType, c->dstDevice),
                                is_device_type(c->srcMemoryType, c->srcDevice));
}

/* ---- after the call ---- */

/* Relaxes the capture mode, because another stream of this thread may be capturing. */
static void describe_fresh(struct measure_call *m)
{
        const CUstreamCaptureMode mode = core_relax();

        describe_kernel(m->fresh, m->func);
        core_unrelax(mode);
}

static void launched(struct measure *all, struct measure_call *m)
{
        struct measure_page *p = all->page;
        const uint64_t now = clock_now_ns();
        bool timed = m->sample.context;
        bool first;

        if (timed)
                COUNT(p->cost_ns, sample_end(&m->sample, m->time));
        lock_acquire(&lock);
        first = !all->described;
        all->described = true;
        if (m->time) {
                COUNT(m->time->launches, 1);
                if (m->due)
                        plan_next(m->next, m->time, timed);
        } else {
                COUNT(p->unlisted, 1);
        }
        lock_release(&lock);
        if (first) {
                SET(p->first_ns, now);
                note_peak(p);
                describe_gpu(p);
        }
        SET(p->last_ns, now);
        if (m->fresh)
                describe_fresh(m);
}

void measure_after(struct measure_call *m, CUresult result)
{
        struct measure *all = measure;

        if (!m->counts || !all)
                return;
        if (result != CUDA_SUCCESS) {
                if (m->sample.context)
                        sample_drop(&m->sample);
                if (m->fresh)
                        describe_fresh(m);
                return;
        }
        if (COUNT(all->page->submissions, 1) % PEAK_EVERY == 0)
                note_peak(all->page);
        if (m->copied)
                COUNT(all->page->copied[m->way], m->copied);
        if (m->launch)
                launched(all, m);
        if (m->graph)
                graph_is_made(all, *m->ret_exec, m->graph);
}
