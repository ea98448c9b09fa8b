/* dangers.c: what may thaw a frozen program, and what happens to a frozen program that ends.
 *
 *   dangers [schedule|refused|state|foreign|kill|kill-running|exit]...
 *
 * Each case is a child with a kernel that counts and a copy queued behind it, and prints one JSON
 * line. A bystander, a process that creates and releases 2 MiB all the time, measures its longest
 * round during the case. */
#include "freezing.h"

#include <signal.h>

#define USED(X)                         \
        X(cuInit)                       \
        X(cuDeviceGet)                  \
        X(cuDevicePrimaryCtxRetain)     \
        X(cuCtxSetCurrent)              \
        X(cuModuleLoadData)             \
        X(cuModuleGetFunction)          \
        X(cuLaunchKernel)               \
        X(cuMemAlloc_v2)                \
        X(cuMemHostAlloc)               \
        X(cuMemHostRegister_v2)         \
        X(cuMemHostGetDevicePointer_v2) \
        X(cuMemcpyDtoHAsync_v2)         \
        X(cuMemGetInfo_v2)              \
        X(cuStreamCreate)               \
        X(cuMemCreate)                  \
        X(cuMemRelease)
USED(DRIVER_FUNCTION)

#define PIECE (2ul << 20)

static const char ptx[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n"
        ".visible .entry count(.param .u64 at)\n{\n"
        " .reg .b64 %a, %n, %v;\n .reg .pred %p;\n"
        " ld.param.u64 %a, [at];\n mov.u64 %n, 0;\n"
        "again:\n add.u64 %n, %n, 1;\n st.volatile.global.u64 [%a], %n;\n membar.sys;\n"
        " ld.volatile.global.u64 %v, [%a+8];\n setp.eq.u64 %p, %v, 0;\n @%p bra again;\n ret;\n}\n";

static struct shared {
        _Atomic uint64_t count, stop;
        _Atomic uint64_t longest_ns; /* the bystander's longest round */
        _Atomic uint64_t used;       /* bytes of the card, as the bystander sees them */
        _Atomic bool ready, enough;
        struct channels_call calls[32];
} * shared;

static CUdevice device;

static void driver(void)
{
        void *library = open_driver();
        CUcontext context;

        USED(FIND_DRIVER_FUNCTION)
        TRY(cuInit, 0);
        TRY(cuDeviceGet, &device, 0);
        TRY(cuDevicePrimaryCtxRetain, &context, device);
        TRY(cuCtxSetCurrent, context);
}

static void bystander(void)
{
        const CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        size_t available, total;

        driver();
        shared->ready = true;
        while (!shared->enough) {
                uint64_t at = clock_now_ns(), took;
                CUmemGenericAllocationHandle h;

                TRY(cuMemCreate, &h, PIECE, &on_card, 0);
                TRY(cuMemRelease, h);
                took = clock_now_ns() - at;
                if (took > shared->longest_ns)
                        shared->longest_ns = took;
                TRY(cuMemGetInfo_v2, &available, &total);
                shared->used = total - available;
                (void)usleep(500);
        }
        _exit(0);
}

static void start_work(void)
{
        CUmodule module;
        CUfunction f;
        CUstream s;
        CUdeviceptr at, memory;
        void *host, *args[1] = {&at};

        driver();
        TRY(cuModuleLoadData, &module, ptx);
        TRY(cuModuleGetFunction, &f, module, "count");
        TRY(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
        TRY(cuMemAlloc_v2, &memory, 1ul << 30);
        TRY(cuMemHostAlloc, &host, 64ul << 20, 0);
        TRY(cuMemHostRegister_v2, (void *)shared, 4096, CU_MEMHOSTREGISTER_DEVICEMAP);
        TRY(cuMemHostGetDevicePointer_v2, &at, (void *)shared, 0);
        shared->count = shared->stop = 0;
        TRY(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL);
        TRY(cuMemcpyDtoHAsync_v2, host, memory, 64ul << 20, s);
        while (shared->count == 0)
                (void)usleep(100);
}

static bool counts(void)
{
        uint64_t before = shared->count;

        (void)usleep(20000);
        return shared->count != before;
}

static uint32_t first_group(void)
{
        for (uint32_t i = 0; i < ledger.top; i++)
                if (ledger.objects[i].used && ledger.objects[i].class == RM_CLASS_GROUP &&
                    ledger.objects[i].engine == RM_ENGINE_GRAPHICS)
                        return ledger.objects[i].object;
        return 0;
}

/* Schedules the channel group by the group's own control while its channels are frozen. */
static void schedule(void)
{
        uint8_t on[3] = {1, 0, 0};
        uint32_t frozen_status = freeze(), status;
        bool before = counts(), after;

        status =
                control_of(calls[0].fd, calls[0].client, first_group(), 0xa06c0101, on, sizeof(on));
        after = counts();
        printf("{\"what\":\"schedule\",\"freeze\":\"%#x\",\"counts_frozen\":%d,\"schedule\":\"%#"
               "x\",\"counts_then\":%d",
               frozen_status, before, status, after);
        status = thaw();
        printf(",\"thaw\":\"%#x\",\"counts_thawed\":%d}\n", status, counts());
}

/* Disables the program's channels by a control that fails, as its last channel does not exist, then
 * freezes the program, and thaws it twice. */
static void refused(void)
{
        struct channels_call wrong;
        uint32_t status;

        (void)list_channels();
        wrong = calls[0];
        wrong.channels[wrong.count++] = 0x5b1e7002;
        status = control(&wrong, true);
        printf("{\"what\":\"refused\",\"status\":\"%#x\",\"counts_then\":%d", status, counts());
        status = freeze();
        printf(",\"freeze\":\"%#x\",\"counts_frozen\":%d", status, counts());
        status = thaw();
        printf(",\"thaw\":\"%#x\",\"counts_thawed\":%d", status, counts());
        status = thaw();
        printf(",\"again\":\"%#x\",\"counts_thawed_twice\":%d}\n", status, counts());
}

/* Prints what RM's diagnostic object says of a channel before, during and after a freeze. */
static void state(void)
{
        struct {
                uint32_t channel, client;
                uint8_t bound, enabled, scheduled, rest[5];
        } s;
        struct rm_alloc_short a;
        uint32_t made, status;

        for (int round = 0; round < 3; round++) {
                uint64_t at;

                if (round == 0) {
                        (void)freeze(); /* only to fill the list of channels */
                        (void)thaw();
                        a = (struct rm_alloc_short){.alloc = {calls[0].client, calls[0].subdevice,
                                                              0x5b1e7001, 0x208f, 0}};
                        made = raw_ioctl(
                                       calls[0].fd,
                                       _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_ALLOC, struct rm_alloc_short),
                                       &a) < 0
                                       ? UINT32_MAX
                                       : a.status;
                        printf("{\"what\":\"state\",\"object\":\"%#x\"", made);
                } else if (round == 1) {
                        (void)freeze();
                } else {
                        (void)thaw();
                }
                memset(&s, 0xff, sizeof(s));
                s.channel = calls[0].channels[0];
                s.client = calls[0].client;
                at = clock_now_ns();
                status = control_of(calls[0].fd, calls[0].client, 0x5b1e7001, 0x208f0403, &s,
                                    sizeof(s));
                at = clock_now_ns() - at;
                printf(",\"%s\":{\"status\":\"%#x\",\"us\":%.0f,\"bound\":%u,\"enabled\":%u,"
                       "\"scheduled\":%u,\"counts\":%d}",
                       round == 0   ? "running"
                       : round == 1 ? "frozen"
                                    : "thawed",
                       status, (double)at / 1e3, s.bound, s.enabled, s.scheduled, counts());
        }
        printf("}\n");
}

/* ---- in the parent ---- */

static pid_t start(void (*run)(void))
{
        pid_t pid = fork();

        if (pid == 0) {
                (void)alarm(60);
                run();
                (void)fflush(stdout);
                _exit(0);
        }
        return pid;
}

static bool freezes, exits;

static void worker(void)
{
        start_work();
        (void)freeze(); /* also fills the list of its channels */
        memcpy(shared->calls, calls, sizeof(calls));
        if (!freezes)
                (void)thaw();
        shared->ready = true;
        if (exits) {
                (void)usleep(400000); /* time for the bystander to look at the card */
                exit(0);
        }
        for (;;)
                (void)pause();
}

static void wait_ready(void)
{
        while (!shared->ready)
                (void)usleep(1000);
        shared->ready = false;
}

/* Another process freezes the program's channels, by the other process's client and descriptor. */
static void foreigner(void)
{
        struct channels_call c;
        uint32_t status, back;
        bool stood;

        driver();
        (void)freeze(); /* freezes itself once, to have a descriptor and a subdevice */
        (void)thaw();
        c = shared->calls[0];
        status = control_by(&calls[0], &c, true);
        stood = !counts();
        back = control_by(&calls[0], &c, false);
        printf("{\"what\":\"foreign\",\"uid\":%d,\"freeze\":\"%#x\",\"stood\":%d,\"thaw\":\"%#x\","
               "\"counts_then\":%d}\n",
               (int)getuid(), status, stood, back, counts());
}

static void ends(const char *what)
{
        uint64_t at, died, before;
        pid_t beside, pid;
        int status;

        exits = strcmp(what, "exit") == 0;
        freezes = exits || strcmp(what, "kill") == 0;
        shared->enough = false;
        beside = start(bystander);
        wait_ready();
        (void)usleep(200000);
        pid = start(worker);
        wait_ready();
        (void)usleep(200000);
        before = shared->used;
        printf("{\"what\":\"%s\",\"bystander_before_ms\":%.1f", what,
               (double)shared->longest_ns / 1e6);
        shared->longest_ns = 0;
        at = clock_now_ns();
        if (!exits)
                (void)kill(pid, SIGKILL);
        (void)waitpid(pid, &status, 0);
        died = clock_now_ns() - at;
        while (shared->used + (1ul << 30) > before && clock_now_ns() - at < 40 * NSEC_PER_SEC)
                (void)usleep(1000);
        printf(",\"died_ms\":%.1f,\"memory_back_ms\":%.1f", (double)died / 1e6,
               (double)(clock_now_ns() - at) / 1e6);
        (void)usleep(300000);
        printf(",\"bystander_longest_ms\":%.1f}\n", (double)shared->longest_ns / 1e6);
        (void)fflush(stdout);
        shared->enough = true;
        (void)waitpid(beside, &status, 0);
        shared->longest_ns = 0;
}

static void with_work(void (*then)(void))
{
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                (void)alarm(60);
                start_work();
                then();
                (void)fflush(stdout);
                _exit(0);
        }
        (void)waitpid(pid, &status, 0);
}

int main(int argc, char **argv)
{
        shared = mmap(NULL, sizeof(*shared) + 65536, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        for (int i = 1; i < argc; i++) {
                (void)fflush(stdout);
                if (strcmp(argv[i], "schedule") == 0) {
                        with_work(schedule);
                } else if (strcmp(argv[i], "refused") == 0) {
                        with_work(refused);
                } else if (strcmp(argv[i], "state") == 0) {
                        with_work(state);
                } else if (strcmp(argv[i], "foreign") == 0) {
                        pid_t pid = start(worker), other;
                        int status;

                        wait_ready();
                        other = start(foreigner);
                        (void)waitpid(other, &status, 0);
                        (void)kill(pid, SIGKILL);
                        (void)waitpid(pid, &status, 0);
                } else {
                        ends(argv[i]);
                }
        }
        return 0;
}
