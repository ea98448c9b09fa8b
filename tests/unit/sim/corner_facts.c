/* corner_facts.c: asks a driver for answers that a good guess misses. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_facts.h"

/* ---- versions, devices, contexts ---- */

static const char *what_is(const void *p, const void *before)
{
        return p == before ? "as before" : p == (void *)cuMemAlloc_v2 ? "the function" : "nothing";
}

/* Asks for a function of a CUDA version that this driver may not know. */
static void lookups_of_later_versions(void)
{
        static const int versions[] = {13000, 13010, 99000};

        NEED(cuInit(0));
        for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
                CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;
                void *before = &status, *p = before;
                CUresult r = cuGetProcAddress_v2("cuMemAlloc", &p, versions[i], 0, &status);

                (void)printf("%s: version %d = %d, status %d, %s\n", group, versions[i], r, status,
                             what_is(p, before));
                p = before;
                r = cuGetProcAddress("cuMemAlloc", &p, versions[i], 0);
                (void)printf("%s: version %d, the first form = %d, %s\n", group, versions[i], r,
                             what_is(p, before));
                status = (CUdriverProcAddressQueryResult)9;
                p = before;
                r = cuGetProcAddress_v2("cuNoSuchThing", &p, versions[i], 0, &status);
                (void)printf("%s: version %d, an unknown name = %d, status %d, %s\n", group,
                             versions[i], r, status, what_is(p, before));
        }
}

/* Asks what the driver, which has one device, makes of a list of visible devices. */
static void seeing(const char *called, const char *list)
{
        pid_t child;

        (void)fflush(stdout);
        child = fork();
        if (child == 0) {
                int n = -1;
                CUresult r;

                (void)setenv("CUDA_VISIBLE_DEVICES", list, 1);
                r = cuInit(0);
                (void)cuDeviceGetCount(&n);
                (void)printf("%s: \"%s\": cuInit = %d, %d devices\n", group, called, r, n);
                exit(0);
        }
        (void)waitpid(child, NULL, 0);
}

/* Asks for the device's UUID in another process, because this one must not begin with the driver.
 */
static void read_uuid(char ret[static 48])
{
        CUuuid u = {{0}};
        size_t at = 0;
        int fds[2];

        if (pipe(fds) < 0)
                exit(2);
        if (fork() == 0) {
                NEED(cuInit(0));
                NEED(cuDeviceGetUuid_v2(&u, 0));
                exit(write(fds[1], &u, sizeof(u)) != (ssize_t)sizeof(u));
        }
        if (read(fds[0], &u, sizeof(u)) != (ssize_t)sizeof(u))
                exit(2);
        (void)wait(NULL);
        at += (size_t)sprintf(ret, "GPU-");
        for (int i = 0; i < 16; i++)
                at += (size_t)sprintf(ret + at, "%s%02x",
                                      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                                      (unsigned char)u.bytes[i]);
}

static void visible_devices(void)
{
        static const char *const lists[] = {"0",      "0,0",   "0, 0",  "0,7,0",
                                            "0,-1,0", "0,0,7", "7,0,0", ""};
        char uuid[48], list[128];

        for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
                seeing(lists[i], lists[i]);
        read_uuid(uuid);
        (void)snprintf(list, sizeof(list), "0,%s", uuid);
        seeing("0,UUID", list);
        (void)snprintf(list, sizeof(list), "%s,%s", uuid, uuid);
        seeing("UUID,UUID", list);
        (void)snprintf(list, sizeof(list), "%s,%.14s", uuid, uuid);
        seeing("UUID,its beginning", list);
}

static void exec_affinity(void)
{
        CUexecAffinityParam p = {.type = CU_EXEC_AFFINITY_TYPE_MAX};
        int supported = 9, count = 0;
        CUcontext c;

        SAY(cuCtxGetExecAffinity(&p, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
        SAY(cuDeviceGetExecAffinitySupport(&supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
        NEED(cuInit(0));
        SAY(cuCtxGetExecAffinity(&p, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
        SAY(cuDeviceGetExecAffinitySupport(&supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
        NUMBER(supported);
        SAY(cuDeviceGetExecAffinitySupport(&supported, CU_EXEC_AFFINITY_TYPE_MAX, 0));
        SAY(cuDeviceGetExecAffinitySupport(NULL, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
        SAY(cuDeviceGetExecAffinitySupport(&supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 99));
        begin();
        NEED(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
        SAY(cuCtxGetExecAffinity(&p, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
        NUMBER(p.type);
        NUMBER((int)p.param.smCount.val == count);
        SAY(cuCtxGetExecAffinity(&p, CU_EXEC_AFFINITY_TYPE_MAX));
        SAY(cuCtxGetExecAffinity(NULL, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
        p = (CUexecAffinityParam){CU_EXEC_AFFINITY_TYPE_SM_COUNT, {{8}}};
        SAY(cuCtxCreate_v3(&c, &p, 1, 0, 0));
}

static void peers_of_oneself(void)
{
        CUcontext other;
        int can = 9;

        begin();
        SAY(cuDeviceCanAccessPeer(&can, 0, 0));
        NUMBER(can);
        SAY(cuCtxEnablePeerAccess(context, 0));
        SAY(cuCtxEnablePeerAccess(context, 1));
        SAY(cuCtxEnablePeerAccess(NULL, 0));
        SAY(cuCtxDisablePeerAccess(context));
        NEED(cuCtxCreate_v2(&other, 0, 0));
        SAY(cuCtxEnablePeerAccess(context, 0));
        SAY(cuCtxDisablePeerAccess(context));
}

/* ---- events, kernels ---- */

static void external_events(void)
{
        CUevent e;
        CUstream s;

        begin();
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
        SAY(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL));
        SAY(cuEventRecordWithFlags(e, NULL, CU_EVENT_RECORD_EXTERNAL));
        SAY(cuEventQuery(e));
        SAY(cuStreamWaitEvent(s, e, CU_EVENT_WAIT_EXTERNAL));
        SAY(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_DEFAULT));
        SAY(cuStreamWaitEvent(s, e, CU_EVENT_WAIT_EXTERNAL));
        SAY(cuEventRecordWithFlags(e, s, 2));
        SAY(cuStreamWaitEvent(s, e, 2));
        SAY(cuStreamSynchronize(s));
        SAY(cuEventQuery(e));
}

static CUfunctionLoadingState state_of(CUfunction f)
{
        CUfunctionLoadingState state = (CUfunctionLoadingState)9;

        (void)cuFuncIsLoaded(&state, f);
        return state;
}

/* Asks when a kernel counts as loaded. The driver loads functions late by default. */
static void loaded_kernels(void)
{
        CUfunctionLoadingState state;
        CUdeviceptr p;
        CUlibrary l;
        CUfunction f;
        CUkernel k;

        begin();
        NEED(cuMemAlloc_v2(&p, 4096));
        NEED(cuLibraryLoadData(&l, facts_ptx, NULL, NULL, 0, NULL, NULL, 0));
        NEED(cuLibraryGetKernel(&k, l, "store"));
        SAY(cuFuncIsLoaded(&state, (CUfunction)(void *)k));
        SAY(cuKernelGetFunction(&f, k));
        SAY(cuFuncIsLoaded(&state, f));
        NUMBER(state_of(f));
        SAY(cuFuncIsLoaded(NULL, f));
        SAY(cuFuncIsLoaded(&state, NULL));
        SAY(cuFuncLoad(f));
        SAY(run(f, p, NULL));
        NUMBER(state_of(f));
        NUMBER(state_of(store)); /* a module's */
        SAY(run(store, p, NULL));
        NUMBER(state_of(store));
        SAY(cuCtxSynchronize());
}

/* ---- conditional nodes ---- */

/* Adds to the graph a node that runs *ret_body if the value, which is the condition's default, is
 * not 0. */
static void add_condition(CUgraph g, unsigned value, CUgraph *ret_body)
{
        CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
        CUgraphNodeType type;
        CUgraphNode n;

        p.conditional.type = CU_GRAPH_COND_TYPE_IF;
        p.conditional.size = 1;
        p.conditional.ctx = context;
        NEED(cuGraphConditionalHandleCreate(&p.conditional.handle, g, context, value,
                                            CU_GRAPH_COND_ASSIGN_DEFAULT));
        NEED(cuGraphAddNode_v2(&n, g, NULL, NULL, 0, &p));
        NEED(cuGraphNodeGetType(n, &type));
        NUMBER(type);
        *ret_body = p.conditional.phGraph_out[0];
}

static CUgraphNodeParams allocation(void)
{
        CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};

        p.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.alloc.poolProps.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0};
        p.alloc.bytesize = 4 * MIB;
        return p;
}

static CUgraphNodeParams fill_of(CUdeviceptr p, unsigned value)
{
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};

        params.memset.dst = p;
        params.memset.value = value;
        params.memset.elementSize = 1;
        params.memset.width = 64;
        params.memset.height = 1;
        params.memset.ctx = context;
        return params;
}

static void instantiate_refused(CUgraph g)
{
        CUDA_GRAPH_INSTANTIATE_PARAMS p = {0};
        CUgraphExec x;

        SAY(cuGraphInstantiateWithFlags(&x, g, 0));
        SAY(cuGraphInstantiateWithParams(&x, g, &p));
        NUMBER(p.result_out);
        NUMBER(p.hErrNode_out != NULL);
}

/* Asks about memory that the body of a conditional node allocates or frees. */
static void conditional_memory(void)
{
        CUgraphNodeParams p = allocation();
        CUgraph g, body;
        CUgraphNode n;
        CUstream s;
        CUdeviceptr q;

        begin();
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(cuGraphCreate(&g, 0));
        add_condition(g, 1, &body);
        SAY(cuGraphAddNode_v2(&n, body, NULL, NULL, 0, &p));
        NUMBER(p.alloc.dptr != 0);
        instantiate_refused(g);
        SAY(cuGraphDestroy(g));

        (void)printf("%s: never run\n", group);
        NEED(cuGraphCreate(&g, 0));
        add_condition(g, 0, &body);
        p = allocation();
        SAY(cuGraphAddNode_v2(&n, body, NULL, NULL, 0, &p));
        instantiate_refused(g);

        (void)printf("%s: by its own call\n", group);
        NEED(cuGraphCreate(&g, 0));
        add_condition(g, 1, &body);
        p = allocation();
        SAY(cuGraphAddMemAllocNode(&n, body, NULL, 0, &p.alloc));
        instantiate_refused(g);

        (void)printf("%s: captured\n", group);
        NEED(cuGraphCreate(&g, 0));
        add_condition(g, 1, &body);
        SAY(cuStreamBeginCaptureToGraph(s, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
        SAY(cuMemAllocAsync(&q, 4 * MIB, s));
        SAY(cuMemFreeAsync(q, s));
        SAY(cuStreamEndCapture(s, &body));
        instantiate_refused(g);

        (void)printf("%s: a free\n", group);
        NEED(cuGraphCreate(&g, 0));
        p = allocation();
        SAY(cuGraphAddNode_v2(&n, g, NULL, NULL, 0, &p));
        q = p.alloc.dptr;
        add_condition(g, 1, &body);
        p = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
        p.free.dptr = q;
        SAY(cuGraphAddNode_v2(&n, body, NULL, NULL, 0, &p));
        instantiate_refused(g);
}

/* Asks whether a condition's default value decides. */
static void conditional_runs(void)
{
        CUgraphNodeParams p;
        unsigned char byte = 9;
        CUgraph g, body;
        CUgraphNode n;
        CUgraphExec x;
        CUdeviceptr q;

        begin();
        NEED(cuMemAlloc_v2(&q, 64));
        NEED(cuMemsetD8_v2(q, 0, 64));
        for (unsigned value = 0; value < 3; value++) {
                NEED(cuGraphCreate(&g, 0));
                add_condition(g, value, &body);
                p = fill_of(q, value + 5);
                NEED(cuGraphAddNode_v2(&n, body, NULL, NULL, 0, &p));
                SAY(cuGraphInstantiateWithFlags(&x, g, 0));
                SAY(cuGraphLaunch(x, NULL));
                SAY(cuCtxSynchronize());
                NEED(cuMemcpyDtoH_v2(&byte, q, 1));
                NUMBER(byte);
                SAY(cuGraphExecDestroy(x));
                SAY(cuGraphDestroy(g));
        }
}

/* Allocates memory by a node that no capture makes. */
static void memory_nodes(void)
{
        CUgraphNodeParams p = allocation(), set;
        CUgraphNode made, filled;
        unsigned char byte = 9;
        CUgraphExec x;
        CUdeviceptr q;
        CUgraph g;

        begin();
        NEED(cuGraphCreate(&g, 0));
        SAY(cuGraphAddNode_v2(&made, g, NULL, NULL, 0, &p));
        NUMBER(p.alloc.dptr != 0);
        q = p.alloc.dptr;
        set = fill_of(q, 3);
        SAY(cuGraphAddNode_v2(&filled, g, &made, NULL, 1, &set));
        SAY(cuGraphInstantiateWithFlags(&x, g, 0));
        SAY(cuGraphLaunch(x, NULL));
        SAY(cuCtxSynchronize());
        SAY(cuMemcpyDtoH_v2(&byte, q, 1));
        NUMBER(byte);
        SAY(cuMemFree_v2(q));
        SAY(cuGraphExecDestroy(x));
}

const struct facts corner_groups[] = {
        {"lookups_of_later_versions", lookups_of_later_versions},
        {"visible_devices", visible_devices},
        {"exec_affinity", exec_affinity},
        {"peers_of_oneself", peers_of_oneself},
        {"external_events", external_events},
        {"loaded_kernels", loaded_kernels},
        {"conditional_memory", conditional_memory},
        {"conditional_runs", conditional_runs},
        {"memory_nodes", memory_nodes},
        {NULL, NULL},
};
