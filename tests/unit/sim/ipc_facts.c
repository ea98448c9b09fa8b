/* ipc_facts.c: asks a driver what handles of memory and events mean between two processes, one
 * answer on each line. ipc_facts.txt has a real card's answers; the simulated driver must give the
 * same. The exporter and the importer of a group take turns, so the lines have one order. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "answers.h"

const char *group;  /* the group of questions, and this process's part in it */
static int partner; /* socket to the other process */
static CUcontext context;

/* Passes the turn to the other process, with data that it needs. */
static void give(const void *data, size_t bytes)
{
        (void)fflush(stdout);
        if (write(partner, data, bytes) != (ssize_t)bytes)
                exit(2);
}

/* Waits for the turn, and takes the data that comes with it. */
static void take(void *ret, size_t bytes)
{
        if (read(partner, ret, bytes) != (ssize_t)bytes)
                exit(3);
}

static void yield_turn(void)
{
        give("", 1);
}

static void await_turn(void)
{
        char c;

        take(&c, 1);
}

static void begin(void)
{
        NEED(cuInit(0));
        NEED(cuDevicePrimaryCtxRetain(&context, 0));
        NEED(cuCtxSetCurrent(context));
}

static CUdeviceptr filled(size_t bytes, unsigned char value)
{
        CUdeviceptr p;

        NEED(cuMemAlloc_v2(&p, bytes));
        NEED(cuMemsetD8_v2(p, value, bytes));
        NEED(cuCtxSynchronize());
        return p;
}

static int byte_at(CUdeviceptr p)
{
        unsigned char c = 0xee;
        CUresult r = cuMemcpyDtoH_v2(&c, p, 1);

        return r == CUDA_SUCCESS ? c : -(int)r;
}

static bool same(const CUipcMemHandle *a, const CUipcMemHandle *b)
{
        return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- one process alone ---- */

static void alone_exports(void)
{
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUmemGenericAllocationHandle physical;
        CUipcMemHandle a, b, c;
        CUdeviceptr p, q, v, other;
        unsigned capable = 7;
        void *host;

        SAY(cuIpcGetMemHandle(&a, 0x1000));
        begin();
        p = filled(4 * MIB, 1);
        q = filled(4 * MIB, 2);
        SAY(cuIpcGetMemHandle(&a, p));
        SAY(cuIpcGetMemHandle(&b, p));
        NUMBER(same(&a, &b));
        SAY(cuIpcGetMemHandle(&b, q));
        NUMBER(same(&a, &b));
        SAY(cuIpcGetMemHandle(&b, p + 512));
        NUMBER(same(&a, &b));
        SAY(cuIpcGetMemHandle(&b, p + 2 * MIB));
        SAY(cuIpcGetMemHandle(&b, p + 1));
        SAY(cuIpcGetMemHandle(&b, p + 4 * MIB - 1));
        SAY(cuIpcGetMemHandle(NULL, p));
        SAY(cuIpcGetMemHandle(&b, 0));
        SAY(cuIpcGetMemHandle(&b, 0x1000));
        SAY(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
        NUMBER(capable);
        SAY(cuIpcOpenMemHandle_v2(&other, a, 1));
        NUMBER(other == p);
        SAY(cuIpcCloseMemHandle(p));
        SAY(cuIpcCloseMemHandle(0));
        SAY(cuIpcCloseMemHandle(0x1000));
        SAY(cuMemFree_v2(q));
        SAY(cuIpcGetMemHandle(&b, q));
        SAY(cuMemFree_v2(p));
        SAY(cuIpcOpenMemHandle_v2(&other, a, 1));
        NEED(cuMemAlloc_v2(&q, 4 * MIB));
        SAY(cuIpcGetMemHandle(&c, q));
        NUMBER(same(&a, &c));
        SAY(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
        SAY(cuIpcGetMemHandle(&b, (CUdeviceptr)(uintptr_t)host));
        SAY(cuMemAllocManaged(&v, MIB, 1));
        SAY(cuIpcGetMemHandle(&b, v));
        NEED(cuMemAddressReserve(&v, 2 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&physical, 2 * MIB, &prop, 0));
        NEED(cuMemMap(v, 2 * MIB, 0, physical, 0));
        NEED(cuMemSetAccess(v, 2 * MIB, &access, 1));
        SAY(cuIpcGetMemHandle(&b, v));
        SAY(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, v));
        NUMBER(capable);
}

static void alone_small(void)
{
        CUipcMemHandle a, b;
        CUdeviceptr p, q;

        begin();
        p = filled(1000, 1);
        q = filled(1000, 2);
        SAY(cuIpcGetMemHandle(&a, p));
        SAY(cuIpcGetMemHandle(&b, q));
        NUMBER(same(&a, &b));
        NEED(cuMemFree_v2(p));
        NEED(cuMemAlloc_v2(&q, 1000));
        NUMBER(p == q);
        SAY(cuIpcGetMemHandle(&b, q));
        NUMBER(same(&a, &b));
}

static void alone_garbage(void)
{
        CUipcMemHandle h = {{0}}, valid;
        CUdeviceptr p, q = 7;

        begin();
        SAY(cuIpcOpenMemHandle_v2(&q, h, 1));
        NUMBER(q);
        SAY(cuIpcOpenMemHandle_v2(&q, h, 0));
        memset(&h, 0x5a, sizeof(h));
        SAY(cuIpcOpenMemHandle_v2(&q, h, 1));
        SAY(cuIpcOpenMemHandle_v2(NULL, h, 1));
        p = filled(4 * MIB, 1);
        NEED(cuIpcGetMemHandle(&valid, p));
        SAY(cuIpcOpenMemHandle_v2(NULL, valid, 1));
        SAY(cuIpcOpenMemHandle_v2(&q, valid, 0));
        SAY(cuIpcOpenMemHandle_v2(&q, valid, 2));
        SAY(cuIpcOpenMemHandle_v2(&q, valid, 3));
}

static void alone_events(void)
{
        CUipcEventHandle h, again;
        CUevent plain, timed, e, opened;

        begin();
        SAY(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
        SAY(cuIpcGetEventHandle(&h, plain));
        SAY(cuEventCreate(&timed, CU_EVENT_INTERPROCESS));
        SAY(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
        SAY(cuIpcGetEventHandle(&h, e));
        SAY(cuIpcGetEventHandle(&again, e));
        NUMBER(memcmp(&h, &again, sizeof(h)) == 0);
        SAY(cuIpcGetEventHandle(NULL, e));
        SAY(cuIpcGetEventHandle(&h, NULL));
        SAY(cuIpcOpenEventHandle(&opened, h));
        SAY(cuIpcOpenEventHandle(NULL, h));
        memset(&h, 0, sizeof(h));
        SAY(cuIpcOpenEventHandle(&opened, h));
        memset(&h, 0x5a, sizeof(h));
        SAY(cuIpcOpenEventHandle(&opened, h));
}

static void alone_captures(void)
{
        CUipcMemHandle h;
        CUdeviceptr p, q;
        CUstream s;
        CUgraph g;

        begin();
        p = filled(4 * MIB, 1);
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        SAY(cuIpcGetMemHandle(&h, p));
        SAY(cuStreamEndCapture(s, &g));
        NEED(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        memset(&h, 0, sizeof(h));
        SAY(cuIpcOpenMemHandle_v2(&q, h, 1));
        SAY(cuStreamEndCapture(s, &g));
}

/* ---- two processes ---- */

static void open_exporter(void)
{
        CUipcMemHandle h;
        CUdeviceptr p;

        begin();
        p = filled(5 * MIB, 11);
        NEED(cuIpcGetMemHandle(&h, p));
        give(&h, sizeof(h));
        await_turn();
        NUMBER(byte_at(p + 5 * MIB - 1));
        NUMBER(byte_at(p));
        yield_turn();
        await_turn();
        NUMBER(byte_at(p));
        SAY(cuMemFree_v2(p));
}

static void open_importer(void)
{
        unsigned long long id = 0;
        CUipcMemHandle h, again;
        CUdeviceptr p, q, base;
        CUcontext owner;
        unsigned number;
        size_t bytes;
        int ordinal;
        void *host;

        take(&h, sizeof(h));
        SAY(cuIpcOpenMemHandle_v2(&p, h, 1));
        begin();
        SAY(cuIpcOpenMemHandle_v2(&p, h, 0));
        SAY(cuIpcOpenMemHandle_v2(&p, h, 2));
        SAY(cuIpcOpenMemHandle_v2(&p, h, 1));
        SAY(cuIpcOpenMemHandle_v2(&q, h, 1));
        NUMBER(p == q);
        SAY(cuIpcOpenMemHandle(&q, h, 1));
        NUMBER(p == q);
        NUMBER(p % (2 * MIB));
        NUMBER(byte_at(p));
        SAY(cuMemGetAddressRange_v2(&base, &bytes, p + 3 * MIB));
        NUMBER(base == p);
        NUMBER(bytes);
        SAY(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
        NUMBER(owner == context);
        SAY(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
        NUMBER(number);
        SAY(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
        SAY(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
        NUMBER(number);
        SAY(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
        NUMBER(id != 0);
        SAY(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
        NUMBER(number);
        SAY(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
        NUMBER(ordinal);
        SAY(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
        NUMBER(number);
        SAY(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 1));
        NUMBER(base == p);
        SAY(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
        NUMBER(bytes);
        SAY(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MAPPED, p));
        NUMBER(number);
        SAY(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p));
        NUMBER(id);
        SAY(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, p));
        SAY(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p));
        NUMBER(number);
        SAY(cuIpcGetMemHandle(&again, p));
        SAY(cuMemFree_v2(p));
        NUMBER(byte_at(p));
        SAY(cuMemsetD8_v2(p + 5 * MIB - 1, 77, 1));
        NEED(cuCtxSynchronize());
        yield_turn();
        await_turn();
        SAY(cuMemsetD8_v2(p, 78, 1));
        SAY(cuIpcCloseMemHandle(p + 1));
        SAY(cuIpcCloseMemHandle(p + 2 * MIB));
        SAY(cuIpcCloseMemHandle(p));
        NUMBER(byte_at(p));
        SAY(cuIpcCloseMemHandle(p));
        NUMBER(byte_at(p));
        SAY(cuIpcCloseMemHandle(p));
        NUMBER(byte_at(p));
        SAY(cuIpcCloseMemHandle(p));
        SAY(cuIpcOpenMemHandle_v2(&q, h, 1));
        NUMBER(byte_at(q));
        SAY(cuIpcCloseMemHandle(q));
        yield_turn();
}

static void small_exporter(void)
{
        CUipcMemHandle h[3];
        CUdeviceptr p[3];

        begin();
        for (int i = 0; i < 3; i++) {
                p[i] = filled(1000, (unsigned char)(21 + i));
                NEED(cuIpcGetMemHandle(&h[i], p[i]));
        }
        NUMBER(p[1] - p[0]);
        NUMBER(p[2] - p[1]);
        give(h, sizeof(h));
        await_turn();
        NUMBER(byte_at(p[1]));
        SAY(cuMemFree_v2(p[0]));
        yield_turn();
        await_turn();
        SAY(cuMemFree_v2(p[1]));
        SAY(cuMemFree_v2(p[2]));
}

static void small_importer(void)
{
        CUipcMemHandle h[3];
        CUdeviceptr p[3], base;
        size_t bytes;

        take(h, sizeof(h));
        begin();
        SAY(cuIpcOpenMemHandle_v2(&p[1], h[1], 1));
        NUMBER(byte_at(p[1]));
        SAY(cuMemGetAddressRange_v2(&base, &bytes, p[1]));
        NUMBER(p[1] - base);
        NUMBER(bytes);
        SAY(cuIpcOpenMemHandle_v2(&p[0], h[0], 1));
        SAY(cuIpcOpenMemHandle_v2(&p[2], h[2], 1));
        NUMBER(byte_at(p[0]));
        NUMBER(byte_at(p[2]));
        NUMBER(p[1] != p[0] && p[2] != p[0]);
        SAY(cuIpcCloseMemHandle(p[0]));
        SAY(cuMemsetD8_v2(p[1], 99, 1));
        NEED(cuCtxSynchronize());
        yield_turn();
        await_turn();
        NUMBER(byte_at(p[1]));
        NUMBER(byte_at(p[2]));
        SAY(cuIpcCloseMemHandle(p[1]));
        SAY(cuIpcCloseMemHandle(p[2]));
        yield_turn();
}

static void interior_exporter(void)
{
        CUipcMemHandle h[2];
        CUdeviceptr p;

        begin();
        p = filled(8 * MIB, 31);
        NEED(cuMemsetD8_v2(p + 2 * MIB, 32, MIB));
        NEED(cuIpcGetMemHandle(&h[0], p));
        NEED(cuIpcGetMemHandle(&h[1], p + 2 * MIB));
        NEED(cuCtxSynchronize());
        NUMBER(same(&h[0], &h[1]));
        give(h, sizeof(h));
        await_turn();
}

static void interior_importer(void)
{
        CUipcMemHandle h[2];
        CUdeviceptr p, q, base;
        size_t bytes;

        take(h, sizeof(h));
        begin();
        SAY(cuIpcOpenMemHandle_v2(&q, h[1], 1));
        NUMBER(byte_at(q));
        SAY(cuMemGetAddressRange_v2(&base, &bytes, q));
        NUMBER(q - base);
        NUMBER(bytes);
        SAY(cuIpcOpenMemHandle_v2(&p, h[0], 1));
        NUMBER(byte_at(p));
        NUMBER((long long)(q - p));
        SAY(cuIpcCloseMemHandle(q));
        SAY(cuIpcCloseMemHandle(p));
        yield_turn();
}

static void freed_exporter(void)
{
        CUipcMemHandle h;
        CUdeviceptr p;

        begin();
        p = filled(64 * MIB, 41);
        NEED(cuIpcGetMemHandle(&h, p));
        give(&h, sizeof(h));
        await_turn();
        SAY(cuMemFree_v2(p));
        yield_turn();
        await_turn();
}

static void freed_importer(void)
{
        CUipcMemHandle h;
        CUdeviceptr p, q;

        take(&h, sizeof(h));
        begin();
        SAY(cuIpcOpenMemHandle_v2(&p, h, 1));
        NUMBER(byte_at(p));
        yield_turn();
        await_turn();
        NUMBER(byte_at(p));
        SAY(cuIpcOpenMemHandle_v2(&q, h, 1));
        SAY(cuIpcCloseMemHandle(p));
        SAY(cuIpcOpenMemHandle_v2(&q, h, 1));
        yield_turn();
}

static void dead_exporter(void)
{
        CUipcMemHandle h[2];

        begin();
        for (unsigned i = 0; i < 2; i++)
                NEED(cuIpcGetMemHandle(&h[i], filled(64 * MIB, (unsigned char)(51 + i))));
        give(h, sizeof(h));
        await_turn();
        (void)raise(SIGKILL);
}

static void dead_importer(void)
{
        CUipcMemHandle h[2];
        CUdeviceptr p, q;
        char end;

        take(h, sizeof(h));
        begin();
        SAY(cuIpcOpenMemHandle_v2(&p, h[0], 1));
        NUMBER(byte_at(p));
        yield_turn();
        /* The end of the file says that the other process has died. */
        NUMBER(read(partner, &end, 1));
        (void)sleep(1);
        NUMBER(byte_at(p));
        SAY(cuIpcOpenMemHandle_v2(&q, h[0], 1));
        SAY(cuIpcOpenMemHandle_v2(&q, h[1], 1));
        SAY(cuIpcCloseMemHandle(p));
        SAY(cuIpcOpenMemHandle_v2(&q, h[0], 1));
        SAY(cuCtxSynchronize());
}

static void contexts_exporter(void)
{
        CUipcMemHandle h;

        begin();
        NEED(cuIpcGetMemHandle(&h, filled(4 * MIB, 61)));
        give(&h, sizeof(h));
        await_turn();
}

static void contexts_importer(void)
{
        CUipcMemHandle h;
        CUdeviceptr p, q;
        CUcontext second;

        take(&h, sizeof(h));
        begin();
        SAY(cuIpcOpenMemHandle_v2(&p, h, 1));
        NEED(cuCtxCreate_v2(&second, 0, 0));
        SAY(cuIpcOpenMemHandle_v2(&q, h, 1));
        NUMBER(p == q);
        SAY(cuIpcCloseMemHandle(p));
        NEED(cuCtxSetCurrent(context));
        NUMBER(byte_at(p));
        SAY(cuIpcCloseMemHandle(p));
        NEED(cuCtxSetCurrent(second));
        SAY(cuIpcOpenMemHandle_v2(&q, h, 1));
        SAY(cuCtxDestroy_v2(second));
        NEED(cuCtxSetCurrent(context));
        SAY(cuIpcOpenMemHandle_v2(&p, h, 1));
        NUMBER(byte_at(p));
        SAY(cuIpcCloseMemHandle(p));
        yield_turn();
}

static void events_exporter(void)
{
        CUipcEventHandle h;
        CUdeviceptr p;
        CUstream s;
        CUevent e;

        begin();
        p = filled(4 * MIB, 71);
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
        NEED(cuIpcGetEventHandle(&h, e));
        give(&h, sizeof(h));
        await_turn();
        SAY(cuMemsetD8Async(p, 72, 4 * MIB, s));
        SAY(cuEventRecord(e, s));
        yield_turn();
        await_turn();
        SAY(cuEventQuery(e));
        SAY(cuEventDestroy_v2(e));
        yield_turn();
        await_turn();
}

static void events_importer(void)
{
        CUipcEventHandle h, again;
        CUevent e, second;
        CUstream s;
        float ms;

        take(&h, sizeof(h));
        begin();
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        SAY(cuIpcOpenEventHandle(&e, h));
        SAY(cuIpcOpenEventHandle(&second, h));
        NUMBER(e == second);
        SAY(cuEventQuery(e));
        yield_turn();
        await_turn();
        SAY(cuStreamWaitEvent(s, e, 0));
        SAY(cuStreamSynchronize(s));
        SAY(cuEventSynchronize(e));
        SAY(cuEventQuery(e));
        SAY(cuEventElapsedTime_v2(&ms, e, e));
        SAY(cuIpcGetEventHandle(&again, e));
        SAY(cuEventRecord(e, s));
        SAY(cuEventSynchronize(e));
        yield_turn();
        await_turn();
        SAY(cuEventQuery(e));
        SAY(cuEventDestroy_v2(second));
        SAY(cuEventDestroy_v2(e));
        SAY(cuIpcOpenEventHandle(&e, h));
        yield_turn();
}

static const struct {
        const char *name;
        void (*exporter)(void);
        void (*importer)(void); /* NULL: the questions concern one process */
} groups[] = {
        {"alone_exports", alone_exports, NULL},
        {"alone_small", alone_small, NULL},
        {"alone_garbage", alone_garbage, NULL},
        {"alone_events", alone_events, NULL},
        {"alone_captures", alone_captures, NULL},
        {"open", open_exporter, open_importer},
        {"small", small_exporter, small_importer},
        {"interior", interior_exporter, interior_importer},
        {"freed", freed_exporter, freed_importer},
        {"dead", dead_exporter, dead_importer},
        {"contexts", contexts_exporter, contexts_importer},
        {"events", events_exporter, events_importer},
};

static pid_t start(void (*function)(void), const char *who, int mine, int theirs)
{
        pid_t child = fork();
        char both[64];

        if (child == 0) {
                (void)snprintf(both, sizeof(both), "%s %s", group, who);
                group = both;
                (void)alarm(60);
                (void)close(theirs);
                partner = mine;
                function();
                (void)fflush(stdout);
                exit(0);
        }
        return child;
}

static void finish(pid_t child, const char *who, int expected)
{
        int status;

        if (waitpid(child, &status, 0) == child && status != expected)
                (void)printf("%s %s: ended with status %x\n", group, who, (unsigned)status);
}

int main(int argc, char *argv[])
{
        (void)setvbuf(stdout, NULL, _IOLBF, 0);
        for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
                pid_t exporter, importer = -1;
                int pair[2];

                if (argc > 1 && strcmp(argv[1], groups[i].name) != 0)
                        continue;
                group = groups[i].name;
                if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
                        return 1;
                exporter = start(groups[i].exporter, "exporter", pair[0], pair[1]);
                if (groups[i].importer)
                        importer = start(groups[i].importer, "importer", pair[1], pair[0]);
                (void)close(pair[0]);
                (void)close(pair[1]);
                finish(exporter, "exporter", groups[i].exporter == dead_exporter ? SIGKILL : 0);
                if (importer > 0)
                        finish(importer, "importer", 0);
        }
        return 0;
}
