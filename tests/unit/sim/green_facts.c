/* green_facts.c: asks a driver about green contexts. Cards differ in their number of processors, so
 * numbers of processors are only compared with each other. */
#include <stdbool.h>
#include <string.h>

#include "pool_facts.h"

static CUdevResource whole;
static CUdevResourceDesc desc;

static void begin_with_desc(void)
{
        NEED(cuInit(0));
        NEED(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
        NEED(cuDevResourceGenerateDesc(&desc, &whole, 1));
}

static CUgreenCtx green_new(void)
{
        CUgreenCtx green;

        NEED(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        return green;
}

static CUcontext green_context(CUgreenCtx green)
{
        CUcontext c;

        NEED(cuCtxFromGreenCtx(&c, green));
        return c;
}

static int active(void)
{
        unsigned flags;
        int is = -1;

        (void)cuDevicePrimaryCtxGetState(0, &flags, &is);
        return is;
}

static CUcontext current(void)
{
        CUcontext c = NULL;

        (void)cuCtxGetCurrent(&c);
        return c;
}

static void green_resources(void)
{
        CUdevResource r = {0};
        CUdevResourceDesc d = NULL;
        int count = 0;

        SAY(cuDeviceGetDevResource(0, &r, CU_DEV_RESOURCE_TYPE_SM));
        NEED(cuInit(0));
        SAY(cuDeviceGetDevResource(0, &r, CU_DEV_RESOURCE_TYPE_SM));
        NUMBER(r.type);
        NEED(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
        NUMBER((int)r.sm.smCount == count);
        NUMBER(r.sm.minSmPartitionSize);
        NUMBER(r.sm.smCoscheduledAlignment);
        NUMBER(active());
        SAY(cuDeviceGetDevResource(0, &r, CU_DEV_RESOURCE_TYPE_INVALID));
        SAY(cuDeviceGetDevResource(0, &r, (CUdevResourceType)2));
        SAY(cuDeviceGetDevResource(0, &r, (CUdevResourceType)9));
        SAY(cuDeviceGetDevResource(0, NULL, CU_DEV_RESOURCE_TYPE_SM));
        SAY(cuDeviceGetDevResource(99, &r, CU_DEV_RESOURCE_TYPE_SM));
        SAY(cuDeviceGetDevResource(-1, &r, CU_DEV_RESOURCE_TYPE_SM));
        NEED(cuDeviceGetDevResource(0, &r, CU_DEV_RESOURCE_TYPE_SM));
        SAY(cuDevResourceGenerateDesc(&d, &r, 1));
        NUMBER(d != NULL);
        SAY(cuDevResourceGenerateDesc(NULL, &r, 1));
        SAY(cuDevResourceGenerateDesc(&d, NULL, 1));
}

/* Asks how processors can be split, but not into how many groups: that depends on the card. */
static void green_splits(void)
{
        CUdevResource out[64], rest, forged;
        CUdevResourceDesc d;
        unsigned n, least, all = 0;

        begin_with_desc();
        least = whole.sm.minSmPartitionSize;
        n = 0;
        SAY(cuDevSmResourceSplitByCount(NULL, &n, &whole, &rest, 0, least));
        SAY(cuDevSmResourceSplitByCount(NULL, &n, &whole, NULL, 0, 1));
        n = 1;
        memset(&rest, 0xee, sizeof(rest));
        SAY(cuDevSmResourceSplitByCount(out, &n, &whole, &rest, 0, least));
        NUMBER(n);
        NUMBER(out[0].type);
        NUMBER(out[0].sm.smCount == least);
        NUMBER(out[0].sm.minSmPartitionSize == least);
        NUMBER(out[0].sm.smCoscheduledAlignment);
        if (rest.type == CU_DEV_RESOURCE_TYPE_SM)
                all = rest.sm.smCount;
        NUMBER(all + out[0].sm.smCount == whole.sm.smCount);
        n = 1;
        SAY(cuDevSmResourceSplitByCount(out, &n, &whole, NULL, 0, 1));
        NUMBER(out[0].sm.smCount == least);
        n = 1;
        SAY(cuDevSmResourceSplitByCount(out, &n, &whole, &rest, 0, whole.sm.smCount));
        NUMBER(n);
        NUMBER(out[0].sm.smCount == whole.sm.smCount);
        NUMBER(rest.type);
        n = 1;
        SAY(cuDevSmResourceSplitByCount(out, &n, &whole, &rest, 0, whole.sm.smCount + 1));
        NUMBER(n);
        n = 1;
        SAY(cuDevSmResourceSplitByCount(out, &n, &whole, &rest, 0, 0));
        NUMBER(n);
        n = 0;
        SAY(cuDevSmResourceSplitByCount(out, &n, &whole, &rest, 0, least));
        n = 64;
        SAY(cuDevSmResourceSplitByCount(out, &n, &whole, &rest, 0, least));
        n = 1;
        SAY(cuDevSmResourceSplitByCount(out, &n, &whole, &rest, 4, least));
        SAY(cuDevSmResourceSplitByCount(out, NULL, &whole, &rest, 0, least));
        SAY(cuDevSmResourceSplitByCount(out, &n, NULL, &rest, 0, least));
        forged = whole;
        forged.type = CU_DEV_RESOURCE_TYPE_INVALID;
        SAY(cuDevSmResourceSplitByCount(out, &n, &forged, &rest, 0, least));
        n = 1;
        NEED(cuDevSmResourceSplitByCount(out, &n, &whole, &rest, 0, least));
        SAY(cuDevResourceGenerateDesc(&d, &out[0], 1));
        n = 1;
        SAY(cuDevSmResourceSplitByCount(&rest, &n, &out[0], NULL, 0, least));
        NUMBER(n);
}

static void green_made(void)
{
        CUdevResource r = {0};
        unsigned long long id = 0, id2 = 0;
        CUcontext c, again, popped;
        CUgreenCtx green, green2;
        unsigned flags = 99;
        CUdevice device = 9;
        unsigned version = 0;
        int least, greatest;

        begin_with_desc();
        SAY(cuGreenCtxCreate(NULL, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        SAY(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        SAY(cuGreenCtxCreate(&green, desc, 99, CU_GREEN_CTX_DEFAULT_STREAM));
        SAY(cuGreenCtxCreate(&green, desc, -1, CU_GREEN_CTX_DEFAULT_STREAM));
        SAY(cuGreenCtxCreate(&green, desc, 0, 0));
        SAY(cuGreenCtxCreate(&green, desc, 0, 2));
        SAY(cuGreenCtxCreate(&green, desc, 0, 3));
        NUMBER(active());
        SAY(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        NUMBER(active());
        NUMBER(current() == NULL);
        SAY(cuGreenCtxCreate(&green2, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        NUMBER(green == green2);
        SAY(cuCtxFromGreenCtx(&c, green));
        SAY(cuCtxFromGreenCtx(&again, green));
        NUMBER(c == again);
        SAY(cuCtxFromGreenCtx(&again, green2));
        NUMBER(c == again);
        NUMBER((void *)c == (void *)green);
        SAY(cuCtxFromGreenCtx(NULL, green));
        SAY(cuGreenCtxGetDevResource(green, &r, CU_DEV_RESOURCE_TYPE_SM));
        NUMBER(r.type);
        NUMBER(r.sm.smCount == whole.sm.smCount);
        SAY(cuGreenCtxGetDevResource(green, &r, CU_DEV_RESOURCE_TYPE_INVALID));
        SAY(cuGreenCtxGetDevResource(green, NULL, CU_DEV_RESOURCE_TYPE_SM));
        memset(&r, 0, sizeof(r));
        SAY(cuCtxGetDevResource(c, &r, CU_DEV_RESOURCE_TYPE_SM));
        NUMBER(r.sm.smCount == whole.sm.smCount);
        SAY(cuGreenCtxGetId(green, &id));
        SAY(cuGreenCtxGetId(green2, &id2));
        NUMBER(id == id2);
        SAY(cuGreenCtxGetId(green, NULL));
        SAY(cuCtxGetId(c, &id2));
        NUMBER(id == id2);
        SAY(cuCtxGetApiVersion(c, &version));
        SAY(cuCtxGetDevice(&device));
        SAY(cuCtxSetCurrent(c));
        NUMBER(current() == c);
        SAY(cuCtxGetDevice(&device));
        NUMBER(device);
        SAY(cuCtxGetFlags(&flags));
        NUMBER(flags);
        SAY(cuCtxGetStreamPriorityRange(&least, &greatest));
        SAY(cuCtxSynchronize());
        NEED(cuDevicePrimaryCtxRetain(&context, 0));
        NUMBER(context == c);
        NUMBER(current() == c);
        SAY(cuCtxGetDevResource(context, &r, CU_DEV_RESOURCE_TYPE_SM));
        SAY(cuCtxPushCurrent_v2(context));
        SAY(cuCtxPopCurrent_v2(&popped));
        NUMBER(popped == context);
        NUMBER(current() == c);
        SAY(cuGreenCtxDestroy(green2));
        SAY(cuGreenCtxDestroy(green));
        NUMBER(active());
        SAY(cuCtxSynchronize());
        NEED(cuCtxSetCurrent(NULL));
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        NUMBER(active());
        SAY(cuGreenCtxDestroy(NULL));
}

/* Destroys a green context through cuCtxDestroy. */
static void green_as_context(void)
{
        CUgreenCtx green;
        CUcontext c;

        begin();
        begin_with_desc();
        green = green_new();
        c = green_context(green);
        SAY(cuCtxDestroy_v2(c));
        SAY(cuCtxSetCurrent(c));
        SAY(cuCtxSynchronize());
        SAY(cuCtxDetach(c));
        SAY(cuCtxSetCurrent(c));
        SAY(cuCtxSynchronize());
        SAY(cuGreenCtxDestroy(green));
}

/* Asks whether a green context itself retains the primary context. */
static void green_alone(void)
{
        CUgreenCtx green;

        begin_with_desc();
        green = green_new();
        NUMBER(active());
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        NUMBER(active());
        SAY(cuCtxSetCurrent(green_context(green)));
        SAY(cuCtxSynchronize());
        SAY(cuGreenCtxDestroy(green));
        NUMBER(active());
}

static void green_destroyed_alone(void)
{
        CUgreenCtx green;

        begin_with_desc();
        green = green_new();
        SAY(cuGreenCtxDestroy(green));
        NUMBER(active());
        SAY(cuDevicePrimaryCtxRelease_v2(0));
}

static void green_null_from(void)
{
        CUcontext c;

        begin_with_desc();
        SAY(cuCtxFromGreenCtx(&c, NULL));
}

static void green_null_resource(void)
{
        CUdevResource r;

        begin_with_desc();
        SAY(cuGreenCtxGetDevResource(NULL, &r, CU_DEV_RESOURCE_TYPE_SM));
}

static void green_null_context_resource(void)
{
        CUdevResource r;

        begin_with_desc();
        SAY(cuCtxGetDevResource(NULL, &r, CU_DEV_RESOURCE_TYPE_SM));
        NEED(cuDevicePrimaryCtxRetain(&context, 0));
        NEED(cuCtxSetCurrent(context));
        SAY(cuCtxGetDevResource(NULL, &r, CU_DEV_RESOURCE_TYPE_SM));
        SAY(cuCtxGetDevResource(context, &r, CU_DEV_RESOURCE_TYPE_SM));
        NUMBER(r.sm.smCount == whole.sm.smCount);
}

static void green_streams(void)
{
        CUstream s, none, plain;
        CUgreenCtx green, of;
        CUcontext c, got = NULL;
        CUdeviceptr p;
        CUevent e;
        unsigned flags = 99, word = 0;
        unsigned long long id, id2;
        int priority = 99;

        begin();
        begin_with_desc();
        green = green_new();
        c = green_context(green);
        NUMBER(current() == context);
        SAY(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0));
        NUMBER(current() == context);
        SAY(cuGreenCtxStreamCreate(&none, green, CU_STREAM_DEFAULT, 0));
        SAY(cuGreenCtxStreamCreate(&none, green, 2, 0));
        SAY(cuGreenCtxStreamCreate(&none, green, CU_STREAM_NON_BLOCKING, -100));
        SAY(cuStreamGetPriority(none, &priority));
        NUMBER(priority);
        SAY(cuGreenCtxStreamCreate(NULL, green, CU_STREAM_NON_BLOCKING, 0));
        SAY(cuStreamGetCtx(s, &got));
        NUMBER(got == c);
        NUMBER(got == context);
        SAY(cuStreamGetCtx_v2(s, &got, &of));
        NUMBER(got == c);
        NUMBER(got == NULL);
        NUMBER(of == green);
        of = green;
        SAY(cuStreamGetGreenCtx(s, &of));
        NUMBER(of == green);
        NEED(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
        SAY(cuStreamGetGreenCtx(plain, &of));
        NUMBER(of == NULL);
        SAY(cuStreamGetCtx_v2(plain, &got, &of));
        NUMBER(got == context);
        NUMBER(of == NULL);
        SAY(cuStreamGetGreenCtx(s, NULL));
        SAY(cuStreamGetGreenCtx(NULL, &of));
        SAY(cuStreamGetFlags(s, &flags));
        NUMBER(flags);
        SAY(cuStreamGetPriority(s, &priority));
        NUMBER(priority);

        /* Submits work to the green context's stream. */
        NEED(cuMemAlloc_v2(&p, 4096));
        NEED(cuMemsetD8_v2(p, 0, 4096));
        NEED(cuCtxSynchronize());
        SAY(run(store, p, s));
        SAY(cuMemsetD32Async(p + 64, 5, 1, s));
        SAY(cuStreamSynchronize(s));
        NEED(cuMemcpyDtoH_v2(&word, p, 4));
        NUMBER(word);
        SAY(cuStreamQuery(s));
        NEED(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
        SAY(cuEventRecord(e, s));
        SAY(cuStreamWaitEvent(s, e, 0));

        /* Submits work while the green context is current. */
        NEED(cuCtxSetCurrent(c));
        SAY(run(store, p, s));
        SAY(run(store, p, NULL));
        SAY(run(store, p, plain));
        SAY(cuCtxSynchronize());
        SAY(cuMemFree_v2(p));
        SAY(cuMemAlloc_v2(&p, 4096));
        SAY(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_CONTEXT, p));
        NUMBER(got == c);
        NUMBER(got == context);
        SAY(cuStreamCreate(&none, CU_STREAM_NON_BLOCKING));
        SAY(cuStreamGetCtx(none, &got));
        NUMBER(got == c);
        SAY(cuStreamGetGreenCtx(none, &of));
        NUMBER(of == green);
        SAY(cuStreamCreate(&none, CU_STREAM_DEFAULT));
        SAY(cuStreamGetGreenCtx(NULL, &of));
        NUMBER(of == green);
        SAY(cuStreamGetCtx(NULL, &got));
        NUMBER(got == c);
        SAY(cuStreamGetId(NULL, &id));
        NEED(cuCtxSetCurrent(context));
        SAY(cuStreamGetId(NULL, &id2));
        NUMBER(id == id2);
        SAY(cuStreamDestroy_v2(s));
        SAY(cuMemFree_v2(p));
        SAY(cuGreenCtxDestroy(green));
        SAY(cuCtxSynchronize());
}

static void green_null_stream(void)
{
        CUstream s;

        begin_with_desc();
        SAY(cuGreenCtxStreamCreate(&s, NULL, CU_STREAM_NON_BLOCKING, 0));
}

static void green_memory(void)
{
        CUcontext c, got = NULL;
        CUmemoryPool pool, usual;
        CUdeviceptr p, q;
        CUmodule m;
        CUfunction f;
        CUgreenCtx green;
        CUstream s;
        void *host;
        size_t a, b;

        begin();
        begin_with_desc();
        green = green_new();
        c = green_context(green);
        NEED(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0));
        NEED(cuDeviceGetDefaultMemPool(&usual, 0));
        SAY(cuMemAllocAsync(&p, 4096, s));
        SAY(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
        NUMBER(pool == usual);
        SAY(run(store, p, s));
        SAY(cuMemFreeAsync(p, s));
        SAY(cuStreamSynchronize(s));
        NEED(cuCtxSetCurrent(c));
        SAY(cuMemGetInfo_v2(&a, &b));
        SAY(cuMemAllocHost_v2(&host, 4096));
        SAY(cuMemHostGetDevicePointer_v2(&q, host, 0));
        SAY(cuModuleLoadData(&m, facts_ptx));
        SAY(cuModuleGetFunction(&f, m, "store"));
        SAY(cuMemAlloc_v2(&p, 4096));
        SAY(run(f, p, s));
        SAY(cuCtxSynchronize());
        NEED(cuCtxSetCurrent(context));
        SAY(run(f, p, NULL));
        SAY(cuCtxSynchronize());
        SAY(cuStreamDestroy_v2(s));
        SAY(cuGreenCtxDestroy(green));
        SAY(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_CONTEXT, p));
        NUMBER(got == context);
        SAY(run(f, p, NULL));
        SAY(cuCtxSynchronize());
        SAY(cuModuleUnload(m));
        SAY(cuMemFree_v2(p));
        SAY(cuMemFreeHost(host));
}

static void green_events(void)
{
        CUgreenCtx green;
        volatile unsigned *flag;
        CUdeviceptr at;
        CUevent e, never, timed;
        CUstream s, plain;
        CUcontext c;
        float ms;

        begin();
        begin_with_desc();
        green = green_new();
        c = green_context(green);
        NEED(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0));
        NEED(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
        NEED(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
        NEED(cuEventCreate(&never, CU_EVENT_DISABLE_TIMING));
        NEED(cuEventCreate(&timed, 0));
        NEED(cuMemHostAlloc((void **)&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
        NEED(cuMemHostGetDevicePointer_v2(&at, (void *)flag, 0));
        SAY(cuGreenCtxRecordEvent(green, NULL));
        SAY(cuGreenCtxWaitEvent(green, NULL));
        SAY(cuGreenCtxRecordEvent(green, e));
        SAY(cuEventSynchronize(e));
        SAY(cuGreenCtxWaitEvent(green, never));
        SAY(cuGreenCtxRecordEvent(green, timed));
        SAY(cuEventSynchronize(timed));
        SAY(cuEventElapsedTime_v2(&ms, timed, timed));

        /* An event of the green context covers the work of all its streams. */
        *flag = 0;
        SAY(run(wait_flag, at, s));
        SAY(cuGreenCtxRecordEvent(green, e));
        SAY(cuEventQuery(e));
        SAY(cuStreamWaitEvent(plain, e, 0));
        SAY(cuStreamQuery(plain));
        *flag = 1;
        SAY(cuEventSynchronize(e));
        SAY(cuStreamSynchronize(plain));

        /* An event of the green context does not cover the work of other contexts. */
        *flag = 0;
        SAY(run(wait_flag, at, plain));
        SAY(cuGreenCtxRecordEvent(green, e));
        SAY(cuEventSynchronize(e));
        NEED(cuEventRecord(e, plain));
        SAY(cuGreenCtxWaitEvent(green, e));
        SAY(run(store, at + 64, s));
        SAY(cuStreamQuery(s));
        *flag = 1;
        SAY(cuStreamSynchronize(s));
        SAY(cuCtxRecordEvent(c, e));
        SAY(cuCtxWaitEvent(c, e));
        SAY(cuCtxRecordEvent(context, e));
        SAY(cuCtxWaitEvent(context, e));
        SAY(cuEventSynchronize(e));

        /* Records and waits for an event of the green context during a capture. */
        NEED(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        SAY(cuGreenCtxRecordEvent(green, e));
        SAY(cuGreenCtxWaitEvent(green, e));
        SAY(cuStreamEndCapture(s, &(CUgraph){NULL}));
}

static void green_null_record(void)
{
        CUevent e;

        begin();
        NEED(cuEventCreate(&e, 0));
        SAY(cuGreenCtxRecordEvent(NULL, e));
}

static void green_null_wait(void)
{
        CUevent e;

        begin();
        NEED(cuEventCreate(&e, 0));
        SAY(cuGreenCtxWaitEvent(NULL, e));
}

/* Destroys a green context before its streams. */
static void green_destroyed_first(void)
{
        CUgreenCtx green, of;
        CUdeviceptr p;
        CUstream s;
        CUevent e;

        begin();
        begin_with_desc();
        green = green_new();
        NEED(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0));
        NEED(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
        NEED(cuMemAlloc_v2(&p, 4096));
        SAY(run(store, p, s));
        NEED(cuCtxSynchronize());
        SAY(cuGreenCtxDestroy(green));
        SAY(cuStreamQuery(s));
        SAY(cuStreamSynchronize(s));
        SAY(cuMemsetD8Async(p, 1, 64, s));
        SAY(run(store, p, s));
        SAY(cuEventRecord(e, s));
        SAY(cuStreamGetGreenCtx(s, &of));
        SAY(cuStreamDestroy_v2(s));
        SAY(cuCtxSynchronize());
        SAY(run(store, p, NULL));
        SAY(cuCtxSynchronize());
}

static void green_destroyed_current(void)
{
        CUgreenCtx green;
        CUdeviceptr p;
        CUcontext c;

        begin();
        begin_with_desc();
        green = green_new();
        c = green_context(green);
        NEED(cuCtxSetCurrent(c));
        SAY(cuGreenCtxDestroy(green));
        NUMBER(current() == c);
        NUMBER(current() == NULL);
        SAY(cuCtxSynchronize());
        SAY(cuMemAlloc_v2(&p, 64));
        SAY(cuCtxSetCurrent(context));
        SAY(cuMemAlloc_v2(&p, 64));
}

static void green_destroyed_twice(void)
{
        CUgreenCtx green;

        begin();
        begin_with_desc();
        green = green_new();
        SAY(cuGreenCtxDestroy(green));
        SAY(cuGreenCtxDestroy(green));
}

/* Asks whether the primary context may be released while a green context exists. */
static void green_released(void)
{
        CUgreenCtx green;
        CUdeviceptr p, q;
        CUcontext c;
        CUstream s;

        begin();
        begin_with_desc();
        NEED(cuMemAlloc_v2(&p, 4096));
        green = green_new();
        c = green_context(green);
        NEED(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0));
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        NUMBER(active());
        SAY(cuCtxSynchronize());
        SAY(cuMemsetD8Async(p, 1, 64, s));
        SAY(cuStreamSynchronize(s));
        SAY(cuMemAlloc_v2(&q, 64));
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        NUMBER(active());
        SAY(cuMemsetD8Async(p, 1, 64, s));
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        NUMBER(active());
        SAY(cuCtxSetCurrent(c));
        SAY(cuCtxSynchronize());
        SAY(cuStreamDestroy_v2(s));
        SAY(cuGreenCtxDestroy(green));
        NUMBER(active());
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        NUMBER(active());
        SAY(cuDevicePrimaryCtxRetain(&c, 0));
        NUMBER(c == context);
        SAY(cuCtxSetCurrent(c));
        SAY(cuMemFree_v2(p));
        SAY(cuMemAlloc_v2(&p, 64));
}

static void green_reset(void)
{
        CUgreenCtx green;
        CUdeviceptr p, q;
        CUcontext c;
        CUstream s;

        begin();
        begin_with_desc();
        NEED(cuMemAlloc_v2(&p, 4096));
        green = green_new();
        c = green_context(green);
        NEED(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0));
        SAY(cuDevicePrimaryCtxReset_v2(0));
        NUMBER(active());
        NUMBER(current() == context);
        SAY(cuCtxSynchronize());
        SAY(cuMemAlloc_v2(&q, 64));
        SAY(cuCtxSetCurrent(c));
        SAY(cuCtxSynchronize());
        SAY(cuMemAlloc_v2(&q, 64));
        SAY(cuDevicePrimaryCtxRetain(&context, 0));
        SAY(cuCtxSetCurrent(context));
        SAY(cuMemAlloc_v2(&q, 64));
        SAY(cuMemFree_v2(p));
}

const struct facts green_groups[] = {
        {"green_resources", green_resources},
        {"green_splits", green_splits},
        {"green_made", green_made},
        {"green_as_context", green_as_context},
        {"green_alone", green_alone},
        {"green_destroyed_alone", green_destroyed_alone},
        {"green_null_from", green_null_from},
        {"green_null_resource", green_null_resource},
        {"green_null_context_resource", green_null_context_resource},
        {"green_streams", green_streams},
        {"green_null_stream", green_null_stream},
        {"green_memory", green_memory},
        {"green_events", green_events},
        {"green_null_record", green_null_record},
        {"green_null_wait", green_null_wait},
        {"green_destroyed_first", green_destroyed_first},
        {"green_destroyed_current", green_destroyed_current},
        {"green_destroyed_twice", green_destroyed_twice},
        {"green_released", green_released},
        {"green_reset", green_reset},
        {NULL, NULL},
};
