/* calls.c: which driver calls work in a process whose channels are off the GPU.
 *
 *   calls [--case NAME] [--rounds N] [--printf no] [--patience MS]
 *
 * A program has a kernel on the GPU that never ends by itself. One of its threads makes a driver
 * call, and all channels of the program are frozen. Then another thread with its own context (the
 * mover) creates, maps, copies, unmaps and releases memory, also memory of the program. Each call
 * is tried in two ways. First, the call begins while the program is frozen. Then a thread repeats
 * the call, and the program is frozen N times at random moments. For each way, one JSON line says
 * whether the mover ended, and whether the kernel stood still in that time.
 *
 * Each case is a process of its own. The channels are thawed after MS (400) even if the mover has
 * not ended; the thaw makes no driver call. The probe freezes only channels of its own process. */
#include "freezing.h"

#define USED(X)                         \
        X(cuInit)                       \
        X(cuDeviceGet)                  \
        X(cuDevicePrimaryCtxRetain)     \
        X(cuCtxCreate_v2)               \
        X(cuCtxDestroy_v2)              \
        X(cuCtxSetCurrent)              \
        X(cuCtxSynchronize)             \
        X(cuCtxSetLimit)                \
        X(cuModuleLoadData)             \
        X(cuModuleUnload)               \
        X(cuModuleGetFunction)          \
        X(cuLaunchKernel)               \
        X(cuLaunchHostFunc)             \
        X(cuMemAlloc_v2)                \
        X(cuMemAllocManaged)            \
        X(cuMemFree_v2)                 \
        X(cuMemAllocAsync)              \
        X(cuMemFreeAsync)               \
        X(cuMemPoolTrimTo)              \
        X(cuMemPoolCreate)              \
        X(cuMemPoolDestroy)             \
        X(cuDeviceGetDefaultMemPool)    \
        X(cuMemHostAlloc)               \
        X(cuMemFreeHost)                \
        X(cuMemHostRegister_v2)         \
        X(cuMemHostUnregister)          \
        X(cuMemHostGetDevicePointer_v2) \
        X(cuMemcpyHtoD_v2)              \
        X(cuMemcpyDtoH_v2)              \
        X(cuMemcpyHtoDAsync_v2)         \
        X(cuMemcpyDtoHAsync_v2)         \
        X(cuMemsetD8_v2)                \
        X(cuMemsetD32Async)             \
        X(cuMemGetInfo_v2)              \
        X(cuStreamCreate)               \
        X(cuStreamDestroy_v2)           \
        X(cuStreamSynchronize)          \
        X(cuStreamQuery)                \
        X(cuEventCreate)                \
        X(cuEventDestroy_v2)            \
        X(cuEventRecord)                \
        X(cuEventQuery)                 \
        X(cuEventSynchronize)           \
        X(cuStreamBeginCapture_v2)      \
        X(cuStreamEndCapture)           \
        X(cuGraphInstantiateWithFlags)  \
        X(cuGraphUpload)                \
        X(cuGraphLaunch)                \
        X(cuGraphExecDestroy)           \
        X(cuGraphDestroy)               \
        X(cuMemAddressReserve)          \
        X(cuMemCreate)                  \
        X(cuMemMap)                     \
        X(cuMemSetAccess)               \
        X(cuMemUnmap)                   \
        X(cuMemRelease)                 \
        X(cuIpcGetMemHandle)            \
        X(cuArrayCreate_v2)             \
        X(cuArrayDestroy)               \
        X(cuFuncGetAttribute)

USED(DRIVER_FUNCTION)

#define PIECE  (2ul << 20)
#define PIECES 16
#define BIG    (64ul << 20)

/* ---- what the parent sees of a child ---- */

static struct shared {
        _Atomic int step;       /* the mover's step: an index in steps[] */
        _Atomic uint64_t count, /* the kernel's progress */
                stop;           /* not 0: the kernel may end */
} * shared;

static const char *const steps[] = {"idle",   "set context", "create",   "map",
                                    "access", "fill",        "copy out", "copy in",
                                    "wait",   "unmap",       "release",  "done"};
enum { IDLE, CONTEXT, CREATE, MAP, ACCESS, FILL, OUT, IN, WAIT, UNMAP, RELEASE, DONE };

/* ---- kernels ---- */

static const char ptx[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n"
        ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n"
        ".global .align 1 .b8 text[3] = {104, 10, 0};\n"
        ".visible .entry count(.param .u64 at, .param .u64 stop)\n{\n"
        " .reg .b64 %a, %s, %n, %v;\n .reg .pred %p;\n"
        " ld.param.u64 %a, [at];\n ld.param.u64 %s, [stop];\n mov.u64 %n, 0;\n"
        "again:\n add.u64 %n, %n, 1;\n st.volatile.global.u64 [%a], %n;\n membar.sys;\n"
        " ld.volatile.global.u64 %v, [%s];\n setp.eq.u64 %p, %v, 0;\n @%p bra again;\n ret;\n}\n"
        ".visible .entry tiny()\n{\n ret;\n}\n"
        ".visible .entry say()\n{\n"
        " .reg .b64 %f;\n .reg .b32 %r;\n"
        " mov.u64 %f, text;\n cvta.global.u64 %f, %f;\n"
        " {\n .param .b64 a0;\n .param .b64 a1;\n .param .b32 r0;\n"
        " st.param.b64 [a0], %f;\n st.param.b64 [a1], 0;\n"
        " call.uni (r0), vprintf, (a0, a1);\n ld.param.b32 %r, [r0];\n }\n ret;\n}\n";

/* ---- the program ---- */

static bool kernels_print = true; /* false: no case uses printf in a kernel */
static CUdevice device;
static CUcontext program, mover;
static CUmodule module;
static CUfunction count_kernel, tiny, say;
static CUstream busy, other;
static CUdeviceptr movable, /* PIECES of the program's memory */
        room;               /* addresses for as many other pieces */
static CUmemGenericAllocationHandle handles[PIECES];
static char *pageable, *pinned;

/* A case's state between its steps; one thread at a time uses it. */
static struct {
        CUdeviceptr memory;
        void *host;
        CUmodule module;
        CUfunction function;
        CUcontext context;
        CUstream stream;
        CUevent event;
        CUgraph graph;
        CUgraphExec exec;
        CUmemoryPool pool;
        CUarray array;
        unsigned turn;
} is;

static const CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAccessDesc both_ways = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void a_kernel(CUfunction f, CUstream s)
{
        TRY(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL);
}

static void nothing(void)
{
}

/* clang-format off */
static void alloc(void) { TRY(cuMemAlloc_v2, &is.memory, BIG); }
static void free_memory(void) { TRY(cuMemFree_v2, is.memory); }
static void freed_in_pool(void)
{
        TRY(cuMemAllocAsync, &is.memory, BIG, other);
        TRY(cuMemFreeAsync, is.memory, other);
}
static void trim(void)
{
        CUmemoryPool p;

        TRY(cuDeviceGetDefaultMemPool, &p, device);
        TRY(cuMemPoolTrimTo, p, 0);
}
static void alloc_async(void) { TRY(cuMemAllocAsync, &is.memory, BIG, other); }
static void free_async(void) { TRY(cuMemFreeAsync, is.memory, other); }
static void pool_create(void)
{
        CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = on_card.location};

        TRY(cuMemPoolCreate, &is.pool, &p);
}
static void pool_destroy(void) { TRY(cuMemPoolDestroy, is.pool); }
static void load(void) { TRY(cuModuleLoadData, &is.module, ptx); }
static void unload(void) { TRY(cuModuleUnload, is.module); }
static void load_lazily(void) { load(); TRY(cuModuleGetFunction, &is.function, is.module, "tiny"); }
static void launch_first(void) { a_kernel(is.function, other); }
static void copy_in(void) { TRY(cuMemcpyHtoD_v2, movable, pageable, PIECE * PIECES); }
static void copy_out(void) { TRY(cuMemcpyDtoH_v2, pageable, movable, PIECE * PIECES); }
static void copy_pinned(void) { TRY(cuMemcpyDtoH_v2, pinned, movable, PIECE * PIECES); }
static void set(void) { TRY(cuMemsetD8_v2, movable, 1, PIECE); }
static void context_create(void)
{
        TRY(cuCtxCreate_v2, &is.context, 0, device);
        TRY(cuCtxSetCurrent, program);
}
static void context_destroy(void) { TRY(cuCtxDestroy_v2, is.context); }
static void stream_create(void) { TRY(cuStreamCreate, &is.stream, CU_STREAM_NON_BLOCKING); }
static void stream_destroy(void) { TRY(cuStreamDestroy_v2, is.stream); }
static void used_stream(void) { stream_create(); a_kernel(tiny, is.stream); }
static void limit(void) { TRY(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, is.turn++ & 1 ? 1024 : 16384); }
static void host_alloc(void) { TRY(cuMemHostAlloc, &is.host, BIG, 0); }
static void host_free(void) { TRY(cuMemFreeHost, is.host); }
static void host_register(void) { TRY(cuMemHostRegister_v2, pageable, BIG, 0); }
static void host_unregister(void) { TRY(cuMemHostUnregister, pageable); }
static void launch(void) { a_kernel(tiny, other); }
static void fill_queue(void) { for (int i = 0; i < 8192 && !shared->stop; i++) a_kernel(tiny, busy); }
static void print(void) { a_kernel(say, other); }
static void sync_other(void) { TRY(cuStreamSynchronize, other); }
static void sync_busy(void) { TRY(cuStreamSynchronize, busy); }
static void sync_context(void) { TRY(cuCtxSynchronize); }
static void query(void) { (void)p_cuStreamQuery(busy); }
static void event_create(void) { TRY(cuEventCreate, &is.event, 0); }
static void event_recorded(void) { event_create(); TRY(cuEventRecord, is.event, busy); }
static void event_record(void) { TRY(cuEventRecord, is.event, other); }
static void event_sync(void) { TRY(cuEventSynchronize, is.event); }
static void event_query(void) { (void)p_cuEventQuery(is.event); }
static void event_destroy(void) { TRY(cuEventDestroy_v2, is.event); }
static void graph(void)
{
        TRY(cuStreamBeginCapture_v2, other, CU_STREAM_CAPTURE_MODE_RELAXED);
        for (int i = 0; i < 100; i++)
                a_kernel(tiny, other);
        TRY(cuStreamEndCapture, other, &is.graph);
}
static void instantiate(void) { TRY(cuGraphInstantiateWithFlags, &is.exec, is.graph, 0); }
static void graph_ready(void) { graph(); instantiate(); }
static void upload(void) { TRY(cuGraphUpload, is.exec, other); }
static void graph_launch(void) { TRY(cuGraphLaunch, is.exec, other); }
static void exec_destroy(void) { TRY(cuGraphExecDestroy, is.exec); }
static void graph_destroy(void) { TRY(cuGraphDestroy, is.graph); }
static void graph_clean(void) { exec_destroy(); graph_destroy(); }
static void info(void)
{
        size_t f, t;

        TRY(cuMemGetInfo_v2, &f, &t);
}
static void managed_alloc(void) { TRY(cuMemAllocManaged, &is.memory, PIECE, 1); }
static void own_mapping(void)
{
        CUmemGenericAllocationHandle h;
        CUdeviceptr at = room + PIECES * PIECE;

        TRY(cuMemCreate, &h, PIECE, &on_card, 0);
        TRY(cuMemMap, at, PIECE, 0, h, 0);
        TRY(cuMemSetAccess, at, PIECE, &both_ways, 1);
        TRY(cuMemUnmap, at, PIECE);
        TRY(cuMemRelease, h);
}
static void ipc(void)
{
        CUipcMemHandle h;

        TRY(cuIpcGetMemHandle, &h, is.memory);
}
static void array_create(void)
{
        CUDA_ARRAY_DESCRIPTOR d = {.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};

        TRY(cuArrayCreate_v2, &is.array, &d);
}
static void array_destroy(void) { TRY(cuArrayDestroy, is.array); }
static void on_host(void *data) { (void)data; (void)usleep(500); }
static void host_function(void) { TRY(cuLaunchHostFunc, other, on_host, NULL); }
static void attribute(void)
{
        int v;

        TRY(cuFuncGetAttribute, &v, CU_FUNC_ATTRIBUTE_NUM_REGS, tiny);
}

static const struct situation {
        const char *name;
        void (*prepare)(void), (*call)(void), (*clean)(void);
} situations[] = {
        {"launch", nothing, launch, sync_other},
        {"launch into a full queue", nothing, fill_queue, nothing},
        {"first launch of a function loaded lazily", load_lazily, launch_first, unload},
        {"host function", nothing, host_function, sync_other},
        {"cuMemAlloc", nothing, alloc, free_memory},
        {"cuMemFree", alloc, free_memory, nothing},
        {"cuMemAllocAsync", nothing, alloc_async, free_async},
        {"cuMemFreeAsync", alloc_async, free_async, nothing},
        {"cuMemPoolTrimTo", freed_in_pool, trim, nothing},
        {"cuMemPoolCreate", nothing, pool_create, pool_destroy},
        {"cuMemPoolDestroy", pool_create, pool_destroy, nothing},
        {"cuMemAllocManaged", nothing, managed_alloc, free_memory},
        {"cuMemFree of managed memory", managed_alloc, free_memory, nothing},
        {"cuMemCreate, map, access, unmap, release", nothing, own_mapping, nothing},
        {"cuModuleLoadData", nothing, load, unload},
        {"cuModuleUnload", load, unload, nothing},
        {"copy in from pageable memory", nothing, copy_in, nothing},
        {"copy out to pageable memory", nothing, copy_out, nothing},
        {"copy out to pinned memory", nothing, copy_pinned, nothing},
        {"cuMemsetD8", nothing, set, nothing},
        {"cuCtxCreate", nothing, context_create, context_destroy},
        {"cuCtxDestroy", context_create, context_destroy, nothing},
        {"cuStreamCreate", nothing, stream_create, stream_destroy},
        {"cuStreamDestroy", used_stream, stream_destroy, nothing},
        {"cuCtxSetLimit", nothing, limit, nothing},
        {"cuMemHostAlloc", nothing, host_alloc, host_free},
        {"cuMemFreeHost", host_alloc, host_free, nothing},
        {"cuMemHostRegister", nothing, host_register, host_unregister},
        {"cuMemHostUnregister", host_register, host_unregister, nothing},
        {"flush of printf", print, sync_other, nothing},
        {"cuStreamSynchronize", nothing, sync_busy, nothing},
        {"cuCtxSynchronize", nothing, sync_context, nothing},
        {"cuStreamQuery", nothing, query, nothing},
        {"cuEventRecord", event_create, event_record, event_destroy},
        {"cuEventSynchronize", event_recorded, event_sync, event_destroy},
        {"cuEventQuery", event_recorded, event_query, event_destroy},
        {"cuEventDestroy", event_recorded, event_destroy, nothing},
        {"cuGraphInstantiate", graph, instantiate, graph_clean},
        {"cuGraphUpload", graph_ready, upload, graph_clean},
        {"cuGraphLaunch", graph_ready, graph_launch, graph_clean},
        {"cuGraphExecDestroy", graph_ready, exec_destroy, graph_destroy},
        {"cuMemGetInfo", nothing, info, nothing},
        {"cuIpcGetMemHandle", alloc, ipc, free_memory},
        {"cuArrayCreate", nothing, array_create, array_destroy},
        {"cuArrayDestroy", array_create, array_destroy, nothing},
        {"cuFuncGetAttribute", nothing, attribute, nothing},
};
/* clang-format on */

/* ---- the mover ---- */

static CUstream carry;
static char *box;

static void bring(CUdeviceptr at, CUmemGenericAllocationHandle *h)
{
        shared->step = CREATE;
        TRY(cuMemCreate, h, PIECE, &on_card, 0);
        shared->step = MAP;
        TRY(cuMemMap, at, PIECE, 0, *h, 0);
        shared->step = ACCESS;
        TRY(cuMemSetAccess, at, PIECE, &both_ways, 1);
}

static void take(CUdeviceptr at, CUmemGenericAllocationHandle h)
{
        shared->step = UNMAP;
        TRY(cuMemUnmap, at, PIECE);
        shared->step = RELEASE;
        TRY(cuMemRelease, h);
}

/* Evicts the program's memory, makes and fills other memory, and restores the program's. */
static void *move(void *unused)
{
        CUmemGenericAllocationHandle others[PIECES];

        owner = CHANNELS_MOVER;
        shared->step = CONTEXT;
        TRY(cuCtxSetCurrent, mover);
        shared->step = OUT;
        TRY(cuMemcpyDtoHAsync_v2, box, movable, PIECE * PIECES, carry);
        shared->step = WAIT;
        TRY(cuStreamSynchronize, carry);
        for (int i = 0; i < PIECES; i++)
                take(movable + (uint64_t)i * PIECE, handles[i]);
        for (int i = 0; i < PIECES; i++)
                bring(room + (uint64_t)i * PIECE, &others[i]);
        shared->step = FILL;
        TRY(cuMemsetD32Async, room, 0xdeadbeef, PIECE * PIECES / 4, carry);
        shared->step = WAIT;
        TRY(cuStreamSynchronize, carry);
        for (int i = 0; i < PIECES; i++)
                take(room + (uint64_t)i * PIECE, others[i]);
        for (int i = 0; i < PIECES; i++)
                bring(movable + (uint64_t)i * PIECE, &handles[i]);
        shared->step = IN;
        TRY(cuMemcpyHtoDAsync_v2, movable, box, PIECE * PIECES, carry);
        shared->step = WAIT;
        TRY(cuStreamSynchronize, carry);
        shared->step = DONE;
        return unused;
}

/* ---- a case ---- */

static const struct situation *now;
static _Atomic bool repeat, in_call, begun;

static void *work(void *unused)
{
        TRY(cuCtxSetCurrent, program);
        do {
                if (repeat)
                        now->prepare();
                in_call = true;
                begun = true;
                now->call();
                in_call = false;
                if (repeat)
                        now->clean();
        } while (repeat && !shared->stop);
        return unused;
}

static bool wait_for(_Atomic bool *what, bool value, uint64_t most_ns)
{
        uint64_t until = clock_now_ns() + most_ns;

        while (*what != value && clock_now_ns() < until)
                (void)usleep(20);
        return *what == value;
}

static bool wait_for_mover(uint64_t most_ns)
{
        uint64_t until = clock_now_ns() + most_ns;

        while (shared->step != DONE && clock_now_ns() < until)
                (void)usleep(50);
        return shared->step == DONE;
}

struct outcome {
        uint64_t freeze_ns, thaw_ns, mover_ns;
        int blocked_at;          /* the mover's step, or 0 if the mover ended while frozen */
        uint64_t blocked_for_ns; /* how long the mover was blocked after the thaw */
        bool stood, in_call;
};

static uint64_t patience_ns = 400 * NSEC_PER_MSEC; /* then the mover counts as blocked */

static struct outcome one_freeze(bool call_while_frozen, pthread_t *thread)
{
        struct outcome o = {0};
        pthread_t mover_thread;
        uint64_t at = clock_now_ns(), before;
        uint32_t status = freeze();

        o.freeze_ns = clock_now_ns() - at;
        if (status != 0) {
                printf("{\"error\":\"freeze\",\"status\":\"%#x\"}\n", status);
                (void)fflush(stdout);
                _exit(1);
        }
        before = shared->count;
        if (call_while_frozen) {
                (void)pthread_create(thread, NULL, work, NULL);
                (void)wait_for(&begun, true, 100 * NSEC_PER_MSEC);
                (void)usleep(20000);
        }
        o.in_call = in_call;
        shared->step = IDLE;
        at = clock_now_ns();
        (void)pthread_create(&mover_thread, NULL, move, NULL);
        if (!wait_for_mover(patience_ns))
                o.blocked_at = shared->step;
        o.mover_ns = clock_now_ns() - at;
        o.stood = shared->count == before;
        at = clock_now_ns();
        (void)thaw();
        o.thaw_ns = clock_now_ns() - at;
        if (o.blocked_at) {
                at = clock_now_ns();
                if (!wait_for_mover(2 * NSEC_PER_SEC))
                        shared->stop = 1; /* because the mover waits for the kernel's end */
                (void)wait_for_mover(5 * NSEC_PER_SEC);
                o.blocked_for_ns = clock_now_ns() - at;
                if (shared->step != DONE)
                        _exit(2);
        }
        (void)pthread_join(mover_thread, NULL);
        return o;
}

static void say_outcome(const char *when, const struct outcome *o, unsigned n, unsigned blocked,
                        unsigned within, unsigned went_on)
{
        printf("{\"call\":\"%s\",\"when\":\"%s\",\"freezes\":%u,\"within\":%u,\"blocked\":%u,"
               "\"step\":\"%s\",\"mover_ms\":%.2f,"
               "\"went_on\":%u,\"freeze_ms\":%.2f,\"thaw_ms\":%.2f,\"after_thaw_ms\":%.2f,\"made\":"
               "%u,\"freed\":%u,\"channels\":%u,"
               "\"controls\":%zu}\n",
               now->name, when, n, within, blocked, blocked ? steps[o->blocked_at] : "",
               (double)o->mover_ns / 1e6, went_on, (double)o->freeze_ns / 1e6,
               (double)o->thaw_ns / 1e6, (double)o->blocked_for_ns / 1e6, made_while_frozen,
               freed_while_frozen, ledger.count, calls_count);
        (void)fflush(stdout);
}

static void start_kernel(void)
{
        CUdeviceptr at;
        void *args[2];
        CUdeviceptr stop;

        shared->stop = 0;
        shared->count = 0;
        TRY(cuMemHostGetDevicePointer_v2, &at, (void *)shared, 0);
        stop = at + offsetof(struct shared, stop);
        at += offsetof(struct shared, count);
        args[0] = &at;
        args[1] = &stop;
        TRY(cuLaunchKernel, count_kernel, 1, 1, 1, 1, 1, 1, 0, busy, args, NULL);
        while (shared->count == 0)
                (void)usleep(20);
}

static void set_up(void)
{
        void *library = open_driver();

        USED(FIND_DRIVER_FUNCTION)
        TRY(cuInit, 0);
        TRY(cuDeviceGet, &device, 0);
        owner = CHANNELS_MOVER;
        TRY(cuCtxCreate_v2, &mover, 0, device);
        (void)p_cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 0);
        TRY(cuStreamCreate, &carry, CU_STREAM_NON_BLOCKING);
        TRY(cuMemHostAlloc, (void **)&box, PIECE * PIECES, CU_MEMHOSTALLOC_PORTABLE);
        owner = CHANNELS_PROGRAM;
        TRY(cuDevicePrimaryCtxRetain, &program, device);
        TRY(cuCtxSetCurrent, program);
        TRY(cuModuleLoadData, &module, ptx);
        TRY(cuModuleGetFunction, &count_kernel, module, "count");
        TRY(cuModuleGetFunction, &tiny, module, "tiny");
        TRY(cuModuleGetFunction, &say, module, "say");
        TRY(cuStreamCreate, &busy, CU_STREAM_NON_BLOCKING);
        TRY(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
        TRY(cuMemHostRegister_v2, (void *)shared, 4096,
            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
        TRY(cuMemHostAlloc, (void **)&pinned, PIECE * PIECES, CU_MEMHOSTALLOC_PORTABLE);
        pageable = aligned_alloc(4096, BIG);
        memset(pageable, 1, BIG);
        TRY(cuMemAddressReserve, &movable, PIECES * PIECE, 0, 0, 0);
        TRY(cuMemAddressReserve, &room, (PIECES + 1) * PIECE, 0, 0, 0);
        for (int i = 0; i < PIECES; i++)
                bring(movable + (uint64_t)i * PIECE, &handles[i]);
        a_kernel(tiny, other);
        if (kernels_print)
                a_kernel(say, other);
        TRY(cuStreamSynchronize, other);
        /* Moves once in both directions, so that libcuda makes its own objects before a freeze. */
        (void)move(NULL);
        owner = CHANNELS_PROGRAM;
        TRY(cuCtxSetCurrent, program);
}

static void child(const struct situation *s, unsigned rounds)
{
        struct outcome o, worst = {0};
        unsigned blocked = 0, within = 0, went_on = 0;
        pthread_t thread;

        (void)alarm(20);
        set_up();
        now = s;
        s->prepare();
        start_kernel();
        o = one_freeze(true, &thread);
        shared->stop = 1;
        (void)pthread_join(thread, NULL);
        s->clean();
        TRY(cuCtxSynchronize);
        say_outcome("begun while frozen", &o, 1, o.blocked_at != 0, o.in_call, !o.stood);

        made_while_frozen = freed_while_frozen = 0;
        repeat = true;
        begun = false;
        start_kernel();
        (void)pthread_create(&thread, NULL, work, NULL);
        (void)wait_for(&begun, true, NSEC_PER_SEC);
        for (unsigned i = 0; i < rounds && !shared->stop; i++) {
                (void)usleep((unsigned)random() % 5000);
                o = one_freeze(false, NULL);
                blocked += o.blocked_at != 0;
                within += o.in_call;
                went_on += !o.stood;
                if (i == 0 || o.blocked_at > worst.blocked_at ||
                    (o.blocked_at == worst.blocked_at && o.mover_ns > worst.mover_ns))
                        worst = o;
        }
        say_outcome("at any moment", &worst, rounds, blocked, within, went_on);
        shared->stop = 1;
        (void)wait_for(&in_call, false, 2 * NSEC_PER_SEC);
        _exit(0);
}

int main(int argc, char **argv)
{
        const char *only = NULL;
        unsigned rounds = 20;

        for (int i = 1; i + 1 < argc; i += 2) {
                if (strcmp(argv[i], "--case") == 0)
                        only = argv[i + 1];
                else if (strcmp(argv[i], "--rounds") == 0)
                        rounds = (unsigned)atoi(argv[i + 1]);
                else if (strcmp(argv[i], "--patience") == 0)
                        patience_ns = strtoull(argv[i + 1], NULL, 10) * NSEC_PER_MSEC;
                else if (strcmp(argv[i], "--printf") == 0)
                        kernels_print = strcmp(argv[i + 1], "no") != 0;
        }
        for (size_t i = 0; i < ARRAY_SIZE(situations); i++) {
                pid_t pid;
                int status;

                if (only ? strcmp(only, situations[i].name) != 0
                         : situations[i].prepare == print && !kernels_print)
                        continue;
                shared =
                        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
                pid = fork();
                if (pid == 0)
                        child(&situations[i], rounds);
                (void)waitpid(pid, &status, 0);
                if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                        printf("{\"call\":\"%s\",\"ended\":\"%#x\",\"step\":\"%s\"}\n",
                               situations[i].name, (unsigned)status, steps[shared->step]);
                (void)fflush(stdout);
                (void)munmap(shared, 4096);
        }
        return 0;
}
