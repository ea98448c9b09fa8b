/* checkpoint.c: what the driver's checkpoint of a process does, asked on a card and on the
 * simulator. But for --how other, the process asks for its own.
 *
 *   --how times   --bytes of device memory and --count MiB of registered host memory: how long each
 *                 step takes. Waits for a line on stdin before it comes back
 *   --how calls   which calls wait while the process is locked, and while it is saved
 *   --how objects which threads make and free channels at the resource manager
 *   --how export  a child imports memory, and both write to it before, during and after a
 *                 checkpoint of the maker, then of the child
 *   --how other   another process, whose number is --seed, goes away and comes back */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "pass_on.h"
#include "program.h"

#define LOCK_MS 5000u

static double ms_since(uint64_t began_ns)
{
        return (double)(program_now_ns() - began_ns) / 1e6;
}

/* ---- steps ---- */

enum step { LOCK, SAVE, RESTORE, UNLOCK };

static CUresult call_for(enum step step, pid_t pid)
{
        CUcheckpointLockArgs args = {.timeoutMs = LOCK_MS};

        switch (step) {
        case LOCK:
                return cu.CheckpointProcessLock(pid, &args);
        case SAVE:
                return cu.CheckpointProcessCheckpoint(pid, NULL);
        case RESTORE:
                return cu.CheckpointProcessRestore(pid, NULL);
        case UNLOCK:
                return cu.CheckpointProcessUnlock(pid, NULL);
        }
        return CUDA_ERROR_INVALID_VALUE;
}

/* Takes a step and prints how it went. True: it has succeeded. */
static bool take(enum step step, pid_t pid)
{
        static const char *const names[] = {"lock", "save", "restore", "unlock"};
        const uint64_t began_ns = program_now_ns();
        const CUresult result = call_for(step, pid);
        const double ms = ms_since(began_ns);
        CUprocessState state = CU_PROCESS_STATE_FAILED;
        const CUresult r = cu.CheckpointProcessGetState(pid, &state);

        program_say("step",
                    "\"step\":\"%s\",\"result\":%d,\"state\":%d,\"state_result\":%d,\"ms\":%.2f",
                    names[step], (int)result, (int)state, (int)r, ms);
        return result == CUDA_SUCCESS;
}

static bool away(pid_t pid)
{
        if (!take(LOCK, pid))
                return false;
        if (take(SAVE, pid))
                return true;
        (void)take(UNLOCK, pid);
        return false;
}

static bool back(pid_t pid)
{
        return take(RESTORE, pid) && take(UNLOCK, pid);
}

static void wait_for_a_line(void)
{
        int c;

        while ((c = getchar()) != '\n' && c != EOF)
                ;
}

/* ---- times ---- */

static double copy_gb_s(CUdeviceptr to, const void *from, size_t bytes)
{
        const uint64_t began_ns = program_now_ns();

        TRY(cu.MemcpyHtoDAsync(to, from, bytes, NULL));
        TRY(cu.CtxSynchronize());
        return (double)bytes / 1e6 / ms_since(began_ns);
}

static void how_times(void)
{
        const size_t host_bytes = options.count * MIB, piece = MIN(host_bytes, 64 * MIB);
        struct blocks b;
        CUdeviceptr to = 0;
        char *host = NULL;

        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0);
        if (host_bytes) {
                const uint64_t began_ns = program_now_ns();
                const int fd = memfd_create("registered", MFD_CLOEXEC);

                host = fd < 0 || ftruncate(fd, (off_t)host_bytes) < 0
                               ? MAP_FAILED
                               : mmap(NULL, host_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                if (host == MAP_FAILED)
                        program_fail(PROGRAM_EXIT_SETUP, "no host memory: %s", strerror(errno));
                memset(host, 5, host_bytes);
                program_say("touched", "\"ms\":%.2f", ms_since(began_ns));
        }
        if (host_bytes) {
                const uint64_t began_ns = program_now_ns();

                TRY(cu.MemHostRegister(host, host_bytes, 0));
                program_say("registered", "\"ms\":%.2f", ms_since(began_ns));
                TRY(cu.MemAlloc(&to, piece));
                (void)copy_gb_s(to, host, piece);
                program_say("copied", "\"gb_s_at\":%.2f", copy_gb_s(to, host, piece));
        }
        for (unsigned round = 0; round < MAX(options.rounds, UINT64_C(1)); round++) {
                if (!away(getpid()))
                        program_end();
                program_say("away", "\"round\":%u", round);
                wait_for_a_line();
                if (!back(getpid()))
                        program_fail(PROGRAM_EXIT_DRIVER, "it does not come back");
                (void)blocks_step(&b, round);
                if (host_bytes)
                        program_say("copied", "\"gb_s_at\":%.2f", copy_gb_s(to, host, piece));
        }
        if (host_bytes) {
                const uint64_t began_ns = program_now_ns();

                TRY(cu.MemHostUnregister(host));
                program_say("unregistered", "\"ms\":%.2f", ms_since(began_ns));
        }
        program_say("right", "\"rounds\":%llu", (unsigned long long)options.rounds);
}

/* ---- calls ---- */

static struct {
        CUcontext context;
        CUstream stream;
        CUevent event;
        CUdeviceptr at;
        void *host;
} things;

static CUresult call_current(void)
{
        CUcontext c;

        return cu.CtxGetCurrent(&c);
}

static CUresult call_set_current(void)
{
        return cu.CtxSetCurrent(things.context);
}

static CUresult call_version(void)
{
        int v;

        return cu.DriverGetVersion(&v);
}

static CUresult call_error_name(void)
{
        const char *name;

        return cu.GetErrorName(CUDA_ERROR_UNKNOWN, &name);
}

static CUresult call_attribute(void)
{
        int v;

        return cu.DeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
}

static CUresult call_free_memory(void)
{
        size_t f, total;

        return cu.MemGetInfo(&f, &total);
}

static CUresult call_pointer(void)
{
        unsigned type;

        return cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, things.at);
}

static CUresult call_stream_query(void)
{
        return cu.StreamQuery(things.stream);
}

static CUresult call_event_query(void)
{
        return cu.EventQuery(things.event);
}

static CUresult call_stream_wait(void)
{
        return cu.StreamSynchronize(things.stream);
}

static CUresult call_record(void)
{
        return cu.EventRecord(things.event, things.stream);
}

static CUresult call_context_wait(void)
{
        return cu.CtxSynchronize();
}

static CUresult call_alloc(void)
{
        CUdeviceptr at;
        CUresult r = cu.MemAlloc(&at, 2 * MIB);

        return r == CUDA_SUCCESS ? cu.MemFree(at) : r;
}

static CUresult call_host_alloc(void)
{
        void *at;
        CUresult r = cu.MemHostAlloc(&at, MIB, 0);

        return r == CUDA_SUCCESS ? cu.MemFreeHost(at) : r;
}

static CUresult call_event(void)
{
        CUevent e;
        CUresult r = cu.EventCreate(&e, 0);

        return r == CUDA_SUCCESS ? cu.EventDestroy(e) : r;
}

static CUresult call_function(void)
{
        CUfunction f;

        return cu.ModuleGetFunction(&f, kernels.module, "tiny");
}

static CUresult call_set(void)
{
        return cu.MemsetD8Async(things.at, 1, 16, things.stream);
}

static CUresult call_copy(void)
{
        return cu.MemcpyDtoH(things.host, things.at, 16);
}

static const struct {
        const char *name;
        CUresult (*make)(void);
} calls[] = {
        {"cuCtxGetCurrent", call_current},
        {"cuCtxSetCurrent", call_set_current},
        {"cuDriverGetVersion", call_version},
        {"cuGetErrorName", call_error_name},
        {"cuDeviceGetAttribute", call_attribute},
        {"cuMemGetInfo", call_free_memory},
        {"cuPointerGetAttribute", call_pointer},
        {"cuStreamQuery", call_stream_query},
        {"cuEventQuery", call_event_query},
        {"cuStreamSynchronize", call_stream_wait},
        {"cuEventRecord", call_record},
        {"cuCtxSynchronize", call_context_wait},
        {"cuMemAlloc", call_alloc},
        {"cuMemHostAlloc", call_host_alloc},
        {"cuEventCreate", call_event},
        {"cuModuleGetFunction", call_function},
        {"cuMemsetD8Async", call_set},
        {"cuMemcpyDtoH", call_copy},
};
static struct call {
        pthread_t thread;
        _Atomic bool began, go, returned;
        CUresult result;
} made[ARRAY_SIZE(calls)];

static void nap_ms(unsigned ms)
{
        const struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

        (void)nanosleep(&ts, NULL);
}

static void *make_call(void *p)
{
        struct call *c = p;

        program_thread();
        atomic_store(&c->began, true);
        while (!atomic_load(&c->go))
                nap_ms(1);
        c->result = calls[c - made].make();
        atomic_store(&c->returned, true);
        return NULL;
}

/* Threads are made before the lock, because a new thread calls the driver. */
static void calls_begin(void)
{
        for (struct call *c = made; c < made + ARRAY_SIZE(made); c++) {
                *c = (struct call){0};
                if (pthread_create(&c->thread, NULL, make_call, c))
                        program_fail(PROGRAM_EXIT_SETUP, "no thread");
        }
        for (struct call *c = made; c < made + ARRAY_SIZE(made); c++)
                while (!atomic_load(&c->began))
                        nap_ms(1);
}

static void calls_go(const char *when)
{
        for (struct call *c = made; c < made + ARRAY_SIZE(made); c++)
                atomic_store(&c->go, true);
        nap_ms(300);
        for (size_t i = 0; i < ARRAY_SIZE(made); i++)
                program_say("call", "\"when\":\"%s\",\"call\":\"%s\",\"returned\":%s,\"result\":%d",
                            when, calls[i].name, atomic_load(&made[i].returned) ? "true" : "false",
                            atomic_load(&made[i].returned) ? (int)made[i].result : -1);
}

static void calls_end(const char *when)
{
        for (struct call *c = made; c < made + ARRAY_SIZE(made); c++) {
                (void)pthread_join(c->thread, NULL);
                if (c->result != CUDA_SUCCESS)
                        program_say("failed", "\"when\":\"%s\",\"call\":\"%s\",\"result\":%d", when,
                                    calls[c - made].name, (int)c->result);
        }
}

static void how_calls(void)
{
        TRY(cu.CtxGetCurrent(&things.context));
        TRY(cu.StreamCreate(&things.stream, CU_STREAM_NON_BLOCKING));
        TRY(cu.EventCreate(&things.event, 0));
        TRY(cu.MemAlloc(&things.at, 2 * MIB));
        TRY(cu.MemHostAlloc(&things.host, MIB, 0));
        calls_begin();
        (void)take(LOCK, getpid());
        calls_go("locked");
        (void)take(UNLOCK, getpid());
        calls_end("locked");
        calls_begin();
        if (!away(getpid()))
                return;
        calls_go("saved");
        if (!back(getpid()))
                program_fail(PROGRAM_EXIT_DRIVER, "it does not come back");
        calls_end("saved");
}

/* ---- objects ---- */

static struct {
        _Atomic unsigned made, freed, controls;
} by_thread[2]; /* [0]: by the thread that takes the steps */
static _Atomic pid_t stepper;

/* The driver's requests come here first. */
__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
        const bool other = gettid() != atomic_load(&stepper);
        const struct rm_wrapped *w;
        unsigned escape;
        void *argument;
        va_list list;

        va_start(list, request);
        argument = va_arg(list, void *);
        va_end(list);
        if (is_for_rm(request)) {
                w = argument;
                escape =
                        _IOC_NR(request) == RM_ESCAPE_WRAPPED ? w->escape & 0xff : _IOC_NR(request);
                by_thread[other].made += escape == RM_ESCAPE_ALLOC;
                by_thread[other].freed += escape == RM_ESCAPE_FREE;
                by_thread[other].controls += escape == RM_ESCAPE_CONTROL;
        }
        return pass_on(fd, request, argument);
}

static void say_objects(const char *when)
{
        program_say("objects", "\"when\":\"%s\",\"by_caller\":[%u,%u,%u],\"by_others\":[%u,%u,%u]",
                    when, by_thread[0].made, by_thread[0].freed, by_thread[0].controls,
                    by_thread[1].made, by_thread[1].freed, by_thread[1].controls);
        memset(by_thread, 0, sizeof(by_thread));
}

static void how_objects(void)
{
        const pid_t pid = getpid();
        pid_t tid = 0;
        CUresult r = cu.CheckpointProcessGetRestoreThreadId(pid, &tid);

        atomic_store(&stepper, gettid());
        program_say("thread", "\"result\":%d,\"own\":%s", (int)r,
                    tid == gettid() ? "true" : "false");
        say_objects("before");
        (void)take(LOCK, pid);
        say_objects("lock");
        (void)take(SAVE, pid);
        say_objects("save");
        (void)take(RESTORE, pid);
        say_objects("restore");
        (void)take(UNLOCK, pid);
        say_objects("unlock");
}

/* ---- exported memory ---- */

static const CUmemAllocationProp exportable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                               .requestedHandleTypes =
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                               .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static int line; /* to the other of the two processes */

static void pass(int fd)
{
        char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec v = {&byte, 1};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(fd));
        if (sendmsg(line, &m, 0) != 1)
                program_fail(PROGRAM_EXIT_SETUP, "cannot pass a descriptor");
}

static int passed(void)
{
        char byte, control[CMSG_SPACE(sizeof(int))];
        struct iovec v = {&byte, 1};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
        int fd = -1;

        if (recvmsg(line, &m, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&m))
                exit(PROGRAM_EXIT_SETUP); /* the other has failed, and has said so */
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
        return fd;
}

static void tell(void)
{
        if (write(line, "", 1) != 1)
                exit(PROGRAM_EXIT_SETUP);
}

static void hear(void)
{
        char byte;

        if (read(line, &byte, 1) != 1)
                exit(PROGRAM_EXIT_SETUP);
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle h)
{
        const CUmemAccessDesc access = {.location = exportable.location,
                                        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUdeviceptr at;

        TRY(cu.MemAddressReserve(&at, 2 * MIB, 0, 0, 0));
        TRY(cu.MemMap(at, 2 * MIB, 0, h, 0));
        TRY(cu.MemSetAccess(at, 2 * MIB, &access, 1));
        return at;
}

static void put(CUdeviceptr at, unsigned value)
{
        const CUresult r = cu.MemsetD32(at, value, 1);
        const CUresult wait = cu.CtxSynchronize();

        program_say("put", "\"value\":%u,\"result\":%d", value, (int)(r ? r : wait));
}

static void look(const char *who, CUdeviceptr at, unsigned expected)
{
        unsigned value = 0;
        const CUresult r = cu.MemcpyDtoH(&value, at, sizeof(value));

        program_say("look", "\"who\":\"%s\",\"value\":%u,\"expected\":%u,\"result\":%d", who, value,
                    expected, (int)r);
}

static void go_and_come(void)
{
        if (away(getpid()) && back(getpid()))
                return;
        program_say("lost", "\"steps\":\"of the importer\"");
        _exit(PROGRAM_EXIT_OK); /* its calls may never return */
}

static void import_and_watch(void)
{
        CUmemGenericAllocationHandle h;
        CUdeviceptr at;

        TRY(cu.MemImportFromShareableHandle(&h, (void *)(intptr_t)passed(),
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        at = mapped(h);
        tell();
        hear();
        look("importer", at, 11);
        tell();
        hear(); /* the maker is away */
        put(at, 12);
        tell();
        hear(); /* the maker is back, and has written */
        look("importer", at, 13);
        put(at, 14);
        tell();
        hear();
        go_and_come();
        look("importer", at, 14);
        put(at, 15);
        tell();
}

static void make_and_export(void)
{
        CUmemGenericAllocationHandle h;
        CUdeviceptr at;
        int fd = -1;

        TRY(cu.MemCreate(&h, 2 * MIB, &exportable, 0));
        TRY(cu.MemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        at = mapped(h);
        pass(fd);
        (void)close(fd);
        hear();
        put(at, 11);
        tell();
        hear();
        if (away(getpid())) {
                tell();
                hear();
                if (!back(getpid()))
                        program_fail(PROGRAM_EXIT_DRIVER, "it does not come back");
        } else {
                tell();
                hear();
        }
        look("maker", at, 12);
        put(at, 13);
        tell();
        hear();
        look("maker", at, 14);
        tell();
        hear();
        look("maker", at, 15);
}

/* ---- */

int main(int argc, char **argv)
{
        static const char *const names[] = {"times", "calls", "objects", "export", "other"};
        static void (*const ways[])(void) = {how_times, how_calls, how_objects};
        const struct options defaults = {
                .bytes = 16 * MIB, .block = 2 * MIB, .how = "times", .rounds = 1};
        int ends[2];
        pid_t child = 0;
        size_t how;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return PROGRAM_EXIT_SETUP;
        program_options(argc, argv, &defaults);
        how = program_how(names, ARRAY_SIZE(names));
        if (how == 3)
                child = fork();
        line = ends[child ? 1 : 0];
        (void)close(ends[child ? 0 : 1]);
        program_begin(argc, argv, &defaults, false);
        if (how == 4) {
                const pid_t pid = (pid_t)options.seed;

                if (away(pid))
                        (void)back(pid);
        } else if (how < 3) {
                ways[how]();
        } else if (child) {
                make_and_export();
                (void)waitpid(child, NULL, 0);
        } else {
                import_and_watch();
        }
        program_end();
}
