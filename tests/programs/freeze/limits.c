/* limits.c: who may freeze whom, what a frozen program's calls and copies do, how it ends, and
 * which way of moving its memory is the fastest.
 *
 *   limits [foreign_user|own_descriptor|wfi|pointer_calls|copies_faulting|exit_frozen|movers]...
 *
 * Each case works in its own children, which the parent kills after 60 s. Each fact is printed as
 * one JSON line. Each child that freezes channels has a watchdog: after 20 s it thaws the channels,
 * or ends the process if memory is evicted. The probe acts only on its children. */
#include "freezing.h"

#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define USED(X)                         \
        X(cuInit)                       \
        X(cuDeviceGet)                  \
        X(cuDevicePrimaryCtxRetain)     \
        X(cuCtxCreate_v2)               \
        X(cuCtxSetCurrent)              \
        X(cuCtxSetLimit)                \
        X(cuModuleLoadData)             \
        X(cuModuleGetFunction)          \
        X(cuLaunchKernel)               \
        X(cuMemAlloc_v2)                \
        X(cuMemFree_v2)                 \
        X(cuMemAllocManaged)            \
        X(cuMemHostAlloc)               \
        X(cuMemFreeHost)                \
        X(cuMemHostRegister_v2)         \
        X(cuMemHostGetDevicePointer_v2) \
        X(cuMemcpyHtoDAsync_v2)         \
        X(cuMemcpyDtoHAsync_v2)         \
        X(cuMemcpyDtoDAsync_v2)         \
        X(cuMemcpyAsync)                \
        X(cuMemcpy2DAsync_v2)           \
        X(cuMemsetD8Async)              \
        X(cuMemsetD32Async)             \
        X(cuMemGetInfo_v2)              \
        X(cuMemGetAddressRange_v2)      \
        X(cuPointerGetAttribute)        \
        X(cuStreamCreate)               \
        X(cuStreamQuery)                \
        X(cuStreamSynchronize)          \
        X(cuEventCreate)                \
        X(cuEventRecord)                \
        X(cuEventQuery)                 \
        X(cuEventSynchronize)           \
        X(cuStreamBeginCapture_v2)      \
        X(cuStreamEndCapture)           \
        X(cuGraphInstantiateWithFlags)  \
        X(cuGraphLaunch)                \
        X(cuMemAddressReserve)          \
        X(cuMemCreate)                  \
        X(cuMemMap)                     \
        X(cuMemSetAccess)               \
        X(cuMemUnmap)                   \
        X(cuMemRelease)                 \
        X(cuMemExportToShareableHandle) \
        X(cuMemImportFromShareableHandle)
/* Functions that a driver may lack. */
#define MAY_BE_THERE(X)       \
        X(cuMemPrefetchAsync) \
        X(cuMemcpyBatchAsync)
USED(DRIVER_FUNCTION)
MAY_BE_THERE(DRIVER_FUNCTION)

#define OWNER_UID 65534u
#define OTHER_UID 65533u
#define CHILD_NS  (60 * NSEC_PER_SEC)
#define FROZEN_NS (20 * NSEC_PER_SEC)

/* ---- memory shared by the processes ---- */

enum state { STARTED, READY, DONE };
enum order { NONE, FREEZE, THAW, END, EXECUTE };

struct program {
        _Atomic uint64_t count, /* the kernel's progress */
                stop;           /* not 0: the kernel may end */
        _Atomic int state, order;
        _Atomic uint64_t frozen_at_ns; /* when any process froze it; 0: it runs */
        _Atomic uint64_t ending_at_ns;
        _Atomic uint32_t status; /* status of the last freeze or thaw */
        _Atomic int copies;      /* cuStreamQuery of the copy stream after the freeze */
        size_t calls_count;
        struct channels_call calls[8];
};

#define PROGRAMS 5

static struct shared {
        struct program programs[PROGRAMS];
        _Atomic int holder_step; /* a step of the process that holds the descriptor */
        _Atomic bool enough, bystander_ready, wfi_refused, wfi_harmed;
        _Atomic uint64_t used;            /* bytes of the card, as the bystander sees them */
        _Atomic uint64_t longest_ns;      /* the bystander's longest round */
        _Atomic uint64_t first_submit_ns; /* the time of the mover's first copy in */
} * shared;

#define SHARED_BYTES align_up(sizeof(*shared), 4096)

static struct program *me; /* the program of this process, or the program that it freezes */
static const char *now_case, *now_part = "";

/* ---- in a child: the driver, a kernel, freezing under a watchdog ---- */

static const char ptx[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n"
        ".visible .entry count(.param .u64 at)\n{\n"
        " .reg .b64 %a, %n, %v;\n .reg .pred %p;\n"
        " ld.param.u64 %a, [at];\n mov.u64 %n, 0;\n"
        "again:\n add.u64 %n, %n, 1;\n st.volatile.global.u64 [%a], %n;\n membar.sys;\n"
        " ld.volatile.global.u64 %v, [%a+8];\n setp.eq.u64 %p, %v, 0;\n @%p bra again;\n ret;\n}\n"
        ".visible .entry timed(.param .u64 at, .param .u64 ns)\n{\n"
        " .reg .b64 %a, %n, %t, %e;\n .reg .pred %p;\n"
        " ld.param.u64 %a, [at];\n ld.param.u64 %e, [ns];\n mov.u64 %t, %globaltimer;\n"
        " add.u64 %e, %e, %t;\n mov.u64 %n, 0;\n"
        "again:\n add.u64 %n, %n, 1;\n st.volatile.global.u64 [%a], %n;\n membar.sys;\n"
        " mov.u64 %t, %globaltimer;\n setp.lt.u64 %p, %t, %e;\n @%p bra again;\n ret;\n}\n"
        ".visible .entry put(.param .u64 at)\n{\n .reg .b64 %a, %v;\n"
        " ld.param.u64 %a, [at];\n mov.u64 %v, 0x7777777777777777;\n st.global.u64 [%a], %v;\n "
        "ret;\n}\n";

static CUdevice device;
static CUcontext program, mover;
static CUmodule module;
static CUstream busy, other, carry[2];
static _Atomic bool away; /* the program's memory is evicted, so the program must not go on */

static const CUmemAccessDesc both_ways = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static double ms(uint64_t ns)
{
        return (double)ns / 1e6;
}

static double us(uint64_t ns)
{
        return (double)ns / 1e3;
}

static void load_driver(void)
{
        void *library = open_driver();

        if (!library) {
                printf("{\"case\":\"%s\",\"error\":\"no libcuda.so.1\"}\n", now_case);
                (void)fflush(stdout);
                _exit(0);
        }
        USED(FIND_DRIVER_FUNCTION)
        MAY_BE_THERE(FIND_DRIVER_FUNCTION)
        TRY(cuInit, 0);
        TRY(cuDeviceGet, &device, 0);
}

static CUfunction function(const char *name)
{
        CUfunction f;

        TRY(cuModuleGetFunction, &f, module, name);
        return f;
}

/* Ends the child if there is nothing to freeze. */
static void need_channels(void)
{
        bool all = list_channels();

        if (all && calls_count > 0 && calls_count <= ARRAY_SIZE(me->calls))
                return;
        printf("{\"case\":\"%s\",\"error\":\"no channels: this driver makes none that can be "
               "named\",\"channels\":%u}\n",
               now_case, ledger.count);
        (void)fflush(stdout);
        _exit(0);
}

static void set_up(void)
{
        load_driver();
        TRY(cuDevicePrimaryCtxRetain, &program, device);
        TRY(cuCtxSetCurrent, program);
        need_channels();
        TRY(cuModuleLoadData, &module, ptx);
        TRY(cuStreamCreate, &busy, CU_STREAM_NON_BLOCKING);
        TRY(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
        TRY(cuMemHostRegister_v2, (void *)shared, SHARED_BYTES,
            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
}

static void use_program(void)
{
        owner = CHANNELS_PROGRAM;
        TRY(cuCtxSetCurrent, program);
}

static void use_mover(void)
{
        owner = CHANNELS_MOVER;
        TRY(cuCtxSetCurrent, mover);
}

/* libcuda makes further channels at a stream's first copy. This makes that copy before the
 * freeze. */
static void warm(void)
{
        CUdeviceptr m;
        void *h;

        TRY(cuMemAlloc_v2, &m, MIB);
        TRY(cuMemHostAlloc, &h, MIB, CU_MEMHOSTALLOC_PORTABLE);
        for (int i = 0; i < 2; i++) {
                TRY(cuMemcpyDtoHAsync_v2, h, m, MIB, carry[i]);
                TRY(cuMemcpyHtoDAsync_v2, m, h, MIB, carry[i]);
                TRY(cuStreamSynchronize, carry[i]);
        }
        TRY(cuMemFree_v2, m);
        TRY(cuMemFreeHost, h);
}

static void make_mover(void)
{
        owner = CHANNELS_MOVER;
        TRY(cuCtxCreate_v2, &mover, 0, device);
        (void)p_cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 0);
        (void)p_cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 0);
        (void)p_cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 0);
        for (int i = 0; i < 2; i++)
                TRY(cuStreamCreate, &carry[i], CU_STREAM_NON_BLOCKING);
        warm();
}

static CUdeviceptr address_of_count(void)
{
        CUdeviceptr at;

        TRY(cuMemHostGetDevicePointer_v2, &at, (void *)shared, 0);
        return at + (CUdeviceptr)((char *)&me->count - (char *)shared);
}

static void wait_for_count(void)
{
        uint64_t until = clock_now_ns() + 10 * NSEC_PER_SEC;

        while (me->count == 0 && clock_now_ns() < until)
                (void)usleep(50);
        if (me->count == 0) {
                printf("{\"case\":\"%s\",\"error\":\"the kernel does not begin\"}\n", now_case);
                (void)fflush(stdout);
                _exit(1);
        }
}

static void start_counting(void)
{
        CUdeviceptr at = address_of_count();
        void *args[1] = {&at};

        me->count = me->stop = 0;
        TRY(cuLaunchKernel, function("count"), 1, 1, 1, 1, 1, 1, 0, busy, args, NULL);
        wait_for_count();
}

static bool counts(void)
{
        uint64_t before = me->count;

        (void)usleep(20000);
        return me->count != before;
}

static void (*let_go)(void);

static void *watchdog(void *unused)
{
        for (;;) {
                uint64_t at = me->frozen_at_ns;

                (void)usleep(50000);
                if (!at || clock_now_ns() < at + FROZEN_NS || me->frozen_at_ns != at)
                        continue;
                if (!away)
                        let_go();
                printf("{\"case\":\"%s\",\"watchdog\":\"frozen for 20 s\",\"memory_away\":%d}\n",
                       now_case, away);
                (void)fflush(stdout);
                _exit(3);
        }
        return unused;
}

static void let_me_go(void)
{
        (void)thaw();
}

static void watch(void (*how)(void))
{
        pthread_t t;

        let_go = how;
        (void)pthread_create(&t, NULL, watchdog, NULL);
}

static uint32_t freeze_me(uint64_t *ret_ns)
{
        uint64_t at = clock_now_ns();
        uint32_t status;

        me->frozen_at_ns = at;
        status = freeze();
        *ret_ns = clock_now_ns() - at;
        return status;
}

static uint32_t thaw_me(uint64_t *ret_ns)
{
        uint64_t at = clock_now_ns();
        uint32_t status = thaw();

        *ret_ns = clock_now_ns() - at;
        me->frozen_at_ns = 0;
        return status;
}

static CUresult wait_stream(CUstream s, uint64_t most_ns)
{
        uint64_t until = clock_now_ns() + most_ns;
        CUresult r;

        while ((r = p_cuStreamQuery(s)) == CUDA_ERROR_NOT_READY && clock_now_ns() < until)
                (void)usleep(50);
        return r;
}

static void bring(CUdeviceptr at, size_t size, CUmemGenericAllocationHandle *h, bool shareable)
{
        const CUmemAllocationProp p = {
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

        TRY(cuMemCreate, h, size, &p, 0);
        TRY(cuMemMap, at, size, 0, *h, 0);
        TRY(cuMemSetAccess, at, size, &both_ways, 1);
}

static void take(CUdeviceptr at, size_t size, CUmemGenericAllocationHandle h)
{
        TRY(cuMemUnmap, at, size);
        TRY(cuMemRelease, h);
}

/* Becomes another user before the process loads the driver. /proc/self stays readable to it. */
static void become(uid_t uid)
{
        if (uid != geteuid() &&
            (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))) {
                printf("{\"case\":\"%s\",\"error\":\"cannot become uid %u\"}\n", now_case, uid);
                (void)fflush(stdout);
                _exit(1);
        }
        (void)prctl(PR_SET_DUMPABLE, 1);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* ---- in the parent ---- */

static pid_t start(void (*run)(void))
{
        pid_t pid;

        (void)fflush(stdout);
        pid = fork();
        if (pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                run();
                (void)fflush(stdout);
                _exit(0);
        }
        return pid;
}

static bool gone(pid_t pid)
{
        siginfo_t i = {0};

        return waitid(P_PID, (id_t)pid, &i, WEXITED | WNOHANG | WNOWAIT) < 0 || i.si_pid == pid;
}

/* Returns false if the process is gone, or took too long. */
static bool await(_Atomic int *what, int value, pid_t pid, uint64_t most_ns)
{
        uint64_t until = clock_now_ns() + most_ns;

        while (*what != value && clock_now_ns() < until && !gone(pid))
                (void)usleep(500);
        return *what == value;
}

/* Waits for the end of a process. Returns false if the process had to be killed. */
static bool reap(pid_t pid, uint64_t most_ns)
{
        uint64_t until = clock_now_ns() + most_ns;
        bool killed = false;
        int status = 0;

        while (!gone(pid) && clock_now_ns() < until)
                (void)usleep(100);
        if (!gone(pid)) {
                killed = true;
                (void)kill(pid, SIGKILL);
        }
        (void)waitpid(pid, &status, 0);
        if (killed || (status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)))
                printf("{\"case\":\"%s\",\"part\":\"%s\",\"ended\":\"%#x\",\"killed\":%d}\n",
                       now_case, now_part, (unsigned)status, killed);
        (void)fflush(stdout);
        return !killed;
}

static void end(pid_t pid)
{
        if (!gone(pid))
                (void)kill(pid, SIGKILL);
        (void)reap(pid, CHILD_NS);
}

static void run_child(void (*run)(void))
{
        (void)reap(start(run), CHILD_NS);
}

static bool is_root(void)
{
        return geteuid() == 0;
}

/* ---- foreign_user and own_descriptor ---- */

static int ends[2]; /* of a socket: one for the owner, one for the process that freezes it */

static void send_with(int s, const void *data, size_t size, int fd)
{
        char room[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec v = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
        struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};

        if (fd >= 0) {
                struct cmsghdr *c;

                h.msg_control = room;
                h.msg_controllen = sizeof(room);
                c = CMSG_FIRSTHDR(&h);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(c), &fd, sizeof(int));
        }
        if (sendmsg(s, &h, MSG_NOSIGNAL) < 0)
                _exit(4);
}

static ssize_t receive_with(int s, void *data, size_t size, int *ret_fd, int flags)
{
        char room[CMSG_SPACE(sizeof(int))];
        struct iovec v = {.iov_base = data, .iov_len = size};
        struct msghdr h = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = room,
                           .msg_controllen = sizeof(room)};
        ssize_t n = recvmsg(s, &h, flags | MSG_CMSG_CLOEXEC);

        *ret_fd = -1;
        if (n > 0 && CMSG_FIRSTHDR(&h))
                memcpy(ret_fd, CMSG_DATA(CMSG_FIRSTHDR(&h)), sizeof(int));
        return n;
}

/* A program that counts, obeys orders, and thaws itself in the end. */
static void owner_program(void)
{
        CUresult r;
        uint64_t ns;

        become(is_root() ? OWNER_UID : geteuid());
        watch(let_me_go);
        set_up();
        start_counting();
        need_channels();
        me->calls_count = calls_count;
        memcpy(me->calls, calls, sizeof(calls[0]) * calls_count);
        if (ends[0] >= 0)
                send_with(ends[0], "", 1, calls[0].fd);
        me->state = READY;
        for (int o; (o = me->order) != END; (void)usleep(500)) {
                if (o == FREEZE)
                        me->status = freeze_me(&ns);
                else if (o == THAW)
                        me->status = thaw_me(&ns);
                (void)atomic_compare_exchange_strong(&me->order, &o, NONE);
        }
        (void)thaw_me(&ns);
        me->stop = 1;
        r = wait_stream(busy, 5 * NSEC_PER_SEC);
        printf("{\"case\":\"%s\",\"owner_uid\":%u,\"owner_stream\":%d}\n", now_case, geteuid(),
               (int)r);
}

static bool tell_owner(enum order o)
{
        uint64_t until = clock_now_ns() + 10 * NSEC_PER_SEC;

        me->order = o;
        while (me->order != NONE && clock_now_ns() < until)
                (void)usleep(200);
        return me->order == NONE;
}

static struct channels_call own_call; /* the freezing process's subdevice and descriptor */

static uint32_t name_owners(bool disable, uint64_t *ret_ns)
{
        uint64_t at = clock_now_ns();
        uint32_t status = 0;

        if (disable)
                me->frozen_at_ns = at;
        for (size_t i = 0; i < me->calls_count; i++) {
                struct channels_call by = own_call;

                if (!by.client) { /* the owner's subdevice, by the owner's descriptor */
                        by = me->calls[i];
                        by.fd = own_call.fd;
                }
                status = status && disable ? status
                                           : status | control_by(&by, &me->calls[i], disable);
        }
        *ret_ns = clock_now_ns() - at;
        if (!disable)
                me->frozen_at_ns = 0;
        return status;
}

static void let_owner_go(void)
{
        uint64_t ns;

        (void)name_owners(false, &ns);
}

static uid_t other_uid;

static void foreigner(void)
{
        uint64_t freeze_ns, thaw_ns, ns;
        uint32_t status, back, theirs, theirs_back;
        bool stood, then, stands, went_on;

        become(other_uid);
        watch(let_owner_go);
        set_up();
        own_call = calls[0];
        status = name_owners(true, &freeze_ns);
        stood = !counts();
        back = name_owners(false, &thaw_ns);
        then = counts();
        (void)tell_owner(FREEZE);
        theirs = me->status;
        stands = !counts();
        theirs_back = name_owners(false, &ns);
        went_on = counts();
        (void)tell_owner(THAW);
        printf("{\"case\":\"foreign_user\",\"by_uid\":%u,\"owner_uid\":%u,\"freeze\":\"%#x\","
               "\"freeze_us\":%.0f,\"stood\":%d,\"thaw\":\"%#x\",\"thaw_us\":%.0f,\"counts_then\":%"
               "d,"
               "\"owner_froze\":\"%#x\",\"owner_stood\":%d,\"thaw_of_owners\":\"%#x\",\"went_on\":%"
               "d,"
               "\"counts_at_last\":%d}\n",
               geteuid(), OWNER_UID, status, us(freeze_ns), stood, back, us(thaw_ns), then, theirs,
               stands, theirs_back, went_on, counts());
}

static void end_owner(pid_t pid)
{
        me->order = END;
        (void)reap(pid, 15 * NSEC_PER_SEC);
}

static void foreign_user(void)
{
        static const uid_t uids[] = {OTHER_UID, OWNER_UID, 0};
        pid_t pid;

        if (!is_root()) {
                printf("{\"case\":\"foreign_user\",\"skipped\":\"not root: no other user to "
                       "be\"}\n");
                return;
        }
        ends[0] = -1;
        pid = start(owner_program);
        if (await(&me->state, READY, pid, 30 * NSEC_PER_SEC))
                for (size_t i = 0; i < ARRAY_SIZE(uids) && !gone(pid); i++) {
                        other_uid = uids[i];
                        (void)reap(start(foreigner), 40 * NSEC_PER_SEC);
                }
        end_owner(pid);
}

/* A process that has the owner's descriptor and channel numbers, but does not load the driver. */
static void holder(void)
{
        static const char *const states[] = {"running", "stopped"};
        char byte;

        become(other_uid);
        (void)close(ends[0]);
        if (receive_with(ends[1], &byte, 1, &own_call.fd, 0) <= 0 || own_call.fd < 0)
                _exit(0);
        watch(let_owner_go);
        for (int round = 1; round <= 2; round++) {
                uint64_t freeze_ns, thaw_ns;
                uint32_t status, back;
                bool before, stood;

                while (shared->holder_step != 2 * round - 1)
                        (void)usleep(500);
                before = counts();
                status = name_owners(true, &freeze_ns);
                stood = !counts();
                back = name_owners(false, &thaw_ns);
                printf("{\"case\":\"own_descriptor\",\"by_uid\":%u,\"owner\":\"%s\",\"counts_"
                       "before\":"
                       "%d,\"freeze\":\"%#x\",\"freeze_us\":%.0f,\"stood\":%d,\"thaw\":\"%#x\","
                       "\"thaw_us\":%.0f,\"counts_then\":%d}\n",
                       geteuid(), states[round - 1], before, status, us(freeze_ns), stood, back,
                       us(thaw_ns), counts());
                (void)fflush(stdout);
                shared->holder_step = 2 * round;
        }
}

static void own_descriptor(void)
{
        pid_t pid, beside;
        siginfo_t i;

        shared->holder_step = 0;
        other_uid = is_root() ? OTHER_UID : geteuid();
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return;
        beside = start(holder);
        pid = start(owner_program);
        (void)close(ends[0]);
        (void)close(ends[1]);
        ends[0] = -1;
        if (await(&me->state, READY, pid, 30 * NSEC_PER_SEC)) {
                shared->holder_step = 1;
                if (await(&shared->holder_step, 2, beside, 25 * NSEC_PER_SEC) && !gone(pid)) {
                        (void)kill(pid, SIGSTOP);
                        (void)waitid(P_PID, (id_t)pid, &i, WSTOPPED | WEXITED | WNOWAIT);
                        shared->holder_step = 3;
                        (void)await(&shared->holder_step, 4, beside, 25 * NSEC_PER_SEC);
                        (void)kill(pid, SIGCONT);
                }
        }
        end(beside);
        end_owner(pid);
}

/* ---- wfi ---- */

#define RM_SET_PREEMPTION_MODE 0x20801210u
#define RM_GET_SWITCH_MODES    0x20801235u
#define MODE_WFI               0
#define MODE_UNKNOWN           99

struct rm_preemption_mode {
        uint32_t flags, channel, graphics, compute;
        uint32_t route_flags, pad;
        uint64_t route;
};
struct rm_switch_modes {
        uint32_t channel, zcull, pm, smpc, compute, graphics;
};
_Static_assert(sizeof(struct rm_preemption_mode) == 32 && sizeof(struct rm_switch_modes) == 24, "");

static const struct channels_object *computing[64];
static unsigned computing_count;

static void list_computing(void)
{
        for (uint32_t i = 0; i < ledger.top; i++) {
                const struct channels_object *o = &ledger.objects[i];
                const struct channels_object *group;

                if (!o->used || !channels_class(o->class) || o->owner != CHANNELS_PROGRAM)
                        continue;
                if (!o->up)
                        continue;
                group = &ledger.objects[o->up - 1];
                if (group->class == RM_CLASS_GROUP && group->engine == RM_ENGINE_GRAPHICS &&
                    computing_count < ARRAY_SIZE(computing))
                        computing[computing_count++] = o;
        }
}

static uint32_t mode_of(const struct channels_object *o, uint32_t *ret_status)
{
        struct rm_switch_modes m = {.channel = o->object};

        *ret_status = control_of(calls[0].fd, o->client, calls[0].subdevice, RM_GET_SWITCH_MODES,
                                 &m, sizeof(m));
        return *ret_status ? MODE_UNKNOWN : m.compute;
}

static uint32_t set_mode(const struct channels_object *o, uint32_t handle, uint32_t mode)
{
        struct rm_preemption_mode m = {.flags = 1, .channel = handle, .compute = mode};

        return control_of(calls[0].fd, o->client, calls[0].subdevice, RM_SET_PREEMPTION_MODE, &m,
                          sizeof(m));
}

static bool wants_wfi;
static uint64_t kernel_ns;

static void wfi_step(void)
{
        uint32_t first = 0, by_group = 0, before, after, asked, asked_after, status, back;
        unsigned accepted = 0, at_wfi = 0;
        uint64_t ns = kernel_ns, freeze_ns, thaw_ns, at, ended, seen;
        CUdeviceptr where, memory;
        void *args[2] = {&where, &ns}, *host;
        CUresult r, alive;
        bool stood, over;

        watch(let_me_go);
        set_up();
        list_computing();
        if (computing_count == 0) {
                printf("{\"case\":\"wfi\",\"error\":\"no channel that computes is known\"}\n");
                return;
        }
        before = mode_of(computing[0], &asked);
        for (unsigned i = 0; wants_wfi && i < computing_count; i++) {
                uint32_t s = set_mode(computing[i], computing[i]->object, MODE_WFI);

                first = i == 0 ? s : first;
                accepted += s == 0;
        }
        if (wants_wfi && accepted == 0)
                by_group = set_mode(computing[0], ledger.objects[computing[0]->up - 1].object,
                                    MODE_WFI);
        after = mode_of(computing[0], &asked_after);
        for (unsigned i = 0; i < computing_count; i++) {
                uint32_t unused;

                at_wfi += mode_of(computing[i], &unused) == MODE_WFI;
        }
        printf("{\"case\":\"wfi\",\"wanted\":\"%s\",\"channels\":%u,\"get\":\"%#x\",\"mode_"
               "before\":%u,"
               "\"set\":\"%#x\",\"accepted\":%u,\"set_by_group\":\"%#x\",\"get_after\":\"%#x\","
               "\"mode_after\":%u,\"at_wfi\":%u",
               wants_wfi ? "wfi" : "as made", computing_count, asked, before, first, accepted,
               by_group, asked_after, after, at_wfi);
        if (wants_wfi && accepted == 0 && by_group != 0) {
                shared->wfi_refused = true;
                printf(",\"refused\":1}\n");
                return;
        }
        TRY(cuMemAlloc_v2, &memory, MIB);
        TRY(cuMemHostAlloc, &host, MIB, 0);
        TRY(cuMemsetD8Async, memory, 5, MIB, other);
        TRY(cuStreamSynchronize, other);
        where = address_of_count();
        me->count = 0;
        at = clock_now_ns();
        TRY(cuLaunchKernel, function("timed"), 1, 1, 1, 1, 1, 1, 0, busy, args, NULL);
        wait_for_count();
        (void)usleep(20000);
        shared->wfi_harmed = true; /* until the case has ended well */
        status = freeze_me(&freeze_ns);
        seen = me->count;
        over = clock_now_ns() - at >= kernel_ns;
        stood = !counts();
        back = thaw_me(&thaw_ns);
        r = wait_stream(busy, 8 * NSEC_PER_SEC);
        ended = clock_now_ns() - at;
        alive = p_cuMemcpyDtoHAsync_v2(host, memory, MIB, other);
        alive = alive ? alive : wait_stream(other, 5 * NSEC_PER_SEC);
        shared->wfi_harmed = status != 0 || back != 0 || r != CUDA_SUCCESS || alive != CUDA_SUCCESS;
        printf(",\"kernel_ms\":%.0f,\"freeze\":\"%#x\",\"freeze_ms\":%.2f,\"count_at_freeze\":%lu,"
               "\"stood\":%d,\"kernel_time_was_over\":%d,\"thaw\":\"%#x\",\"thaw_ms\":%.2f,"
               "\"stream\":%d,\"ended_after_ms\":%.1f,\"copy_then\":%d,\"copy_right\":%d}\n",
               ms(kernel_ns), status, ms(freeze_ns), (unsigned long)seen, stood, over, back,
               ms(thaw_ns), (int)r, ms(ended), (int)alive, ((char *)host)[MIB - 1] == 5);
}

/* While the kernel cannot be interrupted, a freeze keeps the resource manager's locks of all GPUs.
 * So a short kernel comes first, and the long one only if the short one did no harm. */
static void wfi(void)
{
        static const struct {
                bool wfi;
                uint64_t ns;
        } tries[] = {{false, 300 * NSEC_PER_MSEC},
                     {true, 300 * NSEC_PER_MSEC},
                     {true, 3000 * NSEC_PER_MSEC}};

        shared->wfi_refused = shared->wfi_harmed = false;
        for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
                if (shared->wfi_refused || shared->wfi_harmed) {
                        printf("{\"case\":\"wfi\",\"kernel_ms\":%.0f,\"skipped\":\"%s\"}\n",
                               ms(tries[i].ns),
                               shared->wfi_refused ? "the mode is refused"
                                                   : "the shorter one did harm");
                        continue;
                }
                wants_wfi = tries[i].wfi;
                kernel_ns = tries[i].ns;
                memset(me, 0, sizeof(*me));
                run_child(wfi_step);
        }
}

/* ---- pointer_calls ---- */

#define MEMORY (32ul << 20)
#define HALF   (MEMORY / 2)
#define PART   (4ul << 20)
#define SMALL  4096ul

static CUdeviceptr memory;
static CUmemGenericAllocationHandle memory_handle;
static char *source, *target, *pageable_source, *pageable_target, *box;
static CUgraph graph;
static CUgraphExec exec;
static int told;
static CUdeviceptr told_base;

static void nothing(void)
{
}

/* clang-format off */
static CUresult in_pinned(void) { return p_cuMemcpyHtoDAsync_v2(memory, source, PART, other); }
static CUresult in_pageable(void) { return p_cuMemcpyHtoDAsync_v2(memory, pageable_source, PART, other); }
static CUresult in_small(void) { return p_cuMemcpyHtoDAsync_v2(memory, pageable_source, SMALL, other); }
static CUresult out_pinned(void) { return p_cuMemcpyDtoHAsync_v2(target, memory, PART, other); }
static CUresult out_pageable(void) { return p_cuMemcpyDtoHAsync_v2(pageable_target, memory, PART, other); }
static CUresult within(void) { return p_cuMemcpyDtoDAsync_v2(memory, memory + HALF, PART, other); }
static CUresult any_in(void) { return p_cuMemcpyAsync(memory, (CUdeviceptr)(uintptr_t)source, PART, other); }
static CUresult any_out(void) { return p_cuMemcpyAsync((CUdeviceptr)(uintptr_t)target, memory, PART, other); }
static CUresult set_8(void) { return p_cuMemsetD8Async(memory, 0x22, PART, other); }
static CUresult set_32(void) { return p_cuMemsetD32Async(memory, 0x22222222, PART / 4, other); }
static CUresult two_dimensions(void)
{
        const CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = source, .srcPitch = PART / 4,
                                 .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory, .dstPitch = PART / 4,
                                 .WidthInBytes = PART / 4, .Height = 4};

        return p_cuMemcpy2DAsync_v2(&c, other);
}
static CUresult batch(void)
{
        CUdeviceptr to = memory, from = (CUdeviceptr)(uintptr_t)source;
        size_t size = PART, index = 0, failed = 0;
        CUmemcpyAttributes a = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

        return p_cuMemcpyBatchAsync ? p_cuMemcpyBatchAsync(&to, &from, &size, 1, &a, &index, 1, &failed, other)
                                    : CUDA_ERROR_NOT_SUPPORTED;
}
static CUfunction put;
static void find_put(void) { put = function("put"); }
static CUresult launch(void)
{
        void *args[1] = {&memory};

        return p_cuLaunchKernel(put, 1, 1, 1, 1, 1, 1, 0, other, args, NULL);
}
static CUresult prefetch(void)
{
        return p_cuMemPrefetchAsync ? p_cuMemPrefetchAsync(memory, PART, device, other) : CUDA_ERROR_NOT_SUPPORTED;
}
static CUresult attribute(void)
{
        return p_cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);
}
static CUresult range(void)
{
        size_t size = 0;
        CUresult r = p_cuMemGetAddressRange_v2(&told_base, &size, memory + PART);

        told = told_base == memory && size == MEMORY ? CU_MEMORYTYPE_DEVICE : 0;
        return r;
}
static CUresult capture(void)
{
        CUresult r = p_cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED), ended;

        if (r != CUDA_SUCCESS)
                return r;
        r = p_cuMemcpyHtoDAsync_v2(memory, source, PART, other);
        ended = p_cuStreamEndCapture(other, &graph);
        return r ? r : ended;
}
static void captured(void) { try_(capture(), "capture"); }
static CUresult instantiate(void) { return p_cuGraphInstantiateWithFlags(&exec, graph, 0); }
static void instantiated(void) { captured(); try_(instantiate(), "cuGraphInstantiate"); }
static CUresult graph_launch(void) { return p_cuGraphLaunch(exec, other); }
static void launch_it(void) { TRY(cuGraphLaunch, exec, other); }
static void make_and_launch(void) { try_(instantiate(), "cuGraphInstantiate"); launch_it(); }
/* clang-format on */

enum where { IN_MEMORY, IN_TARGET, IN_PAGEABLE, TOLD, NOWHERE };

static const struct pointer_call {
        const char *name;
        void (*prepare)(void);
        CUresult (*call)(void);
        void (*after)(void); /* called after the thaw, if the call was accepted */
        enum where where;    /* where the call's result can be checked */
        unsigned char byte;
        size_t size;
} pointer_calls_[] = {
        {"cuMemcpyHtoDAsync pinned", nothing, in_pinned, nothing, IN_MEMORY, 0x22, PART},
        {"cuMemcpyHtoDAsync pageable", nothing, in_pageable, nothing, IN_MEMORY, 0x22, PART},
        {"cuMemcpyHtoDAsync pageable 4 KiB", nothing, in_small, nothing, IN_MEMORY, 0x22, SMALL},
        {"cuMemcpyDtoHAsync pinned", nothing, out_pinned, nothing, IN_TARGET, 0x11, PART},
        {"cuMemcpyDtoHAsync pageable", nothing, out_pageable, nothing, IN_PAGEABLE, 0x11, PART},
        {"cuMemcpyDtoDAsync", nothing, within, nothing, IN_MEMORY, 0x12, PART},
        {"cuMemcpyAsync in", nothing, any_in, nothing, IN_MEMORY, 0x22, PART},
        {"cuMemcpyAsync out", nothing, any_out, nothing, IN_TARGET, 0x11, PART},
        {"cuMemcpy2DAsync in", nothing, two_dimensions, nothing, IN_MEMORY, 0x22, PART},
        {"cuMemcpyBatchAsync in", nothing, batch, nothing, IN_MEMORY, 0x22, PART},
        {"cuMemsetD8Async", nothing, set_8, nothing, IN_MEMORY, 0x22, PART},
        {"cuMemsetD32Async", nothing, set_32, nothing, IN_MEMORY, 0x22, PART},
        {"cuLaunchKernel", find_put, launch, nothing, IN_MEMORY, 0x77, 8},
        {"cuMemPrefetchAsync", nothing, prefetch, nothing, NOWHERE, 0, 0},
        {"cuPointerGetAttribute", nothing, attribute, nothing, TOLD, 0, 0},
        {"cuMemGetAddressRange", nothing, range, nothing, TOLD, 0, 0},
        {"capture of a copy", nothing, capture, make_and_launch, IN_MEMORY, 0x22, PART},
        {"cuGraphInstantiate", captured, instantiate, launch_it, IN_MEMORY, 0x22, PART},
        {"cuGraphLaunch", instantiated, graph_launch, nothing, IN_MEMORY, 0x22, PART},
};

#define NOT_BACK (-1)

static const struct pointer_call *now;
static _Atomic int result;
static _Atomic uint64_t call_ns;

static void *call_it(void *unused)
{
        uint64_t at;
        int r;

        TRY(cuCtxSetCurrent, program);
        at = clock_now_ns();
        r = (int)now->call();
        call_ns = clock_now_ns() - at;
        result = r;
        return unused;
}

static void wait_result(uint64_t most_ns)
{
        uint64_t until = clock_now_ns() + most_ns;

        while (result == NOT_BACK && clock_now_ns() < until)
                (void)usleep(50);
}

static bool all(const char *p, unsigned char byte, size_t size)
{
        for (size_t i = 0; i < size; i++)
                if ((unsigned char)p[i] != byte)
                        return false;
        return true;
}

static void read_memory(void)
{
        use_mover();
        TRY(cuMemcpyDtoHAsync_v2, box, memory, MEMORY, carry[0]);
        TRY(cuStreamSynchronize, carry[0]);
        use_program();
}

static bool is_right(void)
{
        bool in_memory = now->where == IN_MEMORY;

        read_memory();
        if (!all(box + (in_memory ? now->size : 0), 0x11, HALF - (in_memory ? now->size : 0)) ||
            !all(box + HALF, 0x12, HALF))
                return false;
        switch (now->where) {
        case IN_MEMORY:
                return all(box, now->byte, now->size);
        case IN_TARGET:
                return all(target, now->byte, now->size);
        case IN_PAGEABLE:
                return all(pageable_target, now->byte, now->size);
        case TOLD:
                return told == CU_MEMORYTYPE_DEVICE;
        case NOWHERE:
                break;
        }
        return true;
}

static void fill_memory(void)
{
        TRY(cuMemsetD8Async, memory, 0x11, HALF, other);
        TRY(cuMemsetD8Async, memory + HALF, 0x12, HALF, other);
        TRY(cuStreamSynchronize, other);
        memset(target, 0x33, PART);
        memset(pageable_target, 0x33, PART);
        told = 0;
}

static void move_out(void)
{
        read_memory();
        use_mover();
        away = true;
        take(memory, MEMORY, memory_handle);
        use_program();
}

static void move_in(void)
{
        use_mover();
        bring(memory, MEMORY, &memory_handle, false);
        TRY(cuMemcpyHtoDAsync_v2, memory, box, MEMORY, carry[0]);
        TRY(cuStreamSynchronize, carry[0]);
        away = false;
        use_program();
}

/* Makes one call while the program is frozen. goes: whether its memory is evicted first. */
static void pointer_round(bool goes)
{
        uint64_t freeze_ns, thaw_ns, before;
        uint32_t status;
        pthread_t t;
        bool stood;
        int early, stream = -1;

        fill_memory();
        status = freeze_me(&freeze_ns);
        before = me->count;
        if (goes)
                move_out();
        result = NOT_BACK;
        (void)pthread_create(&t, NULL, call_it, NULL);
        wait_result(300 * NSEC_PER_MSEC);
        early = result;
        stood = me->count == before;
        if (goes)
                move_in();
        status |= thaw_me(&thaw_ns);
        wait_result(5 * NSEC_PER_SEC);
        printf("{\"case\":\"pointer_calls\",\"call\":\"%s\",\"memory\":\"%s\",\"stays\":%d,"
               "\"result\":%d,\"call_us\":%.0f,\"status\":\"%#x\",\"stood\":%d",
               now->name, goes ? "away" : "here", early == NOT_BACK, (int)result, us(call_ns),
               status, stood);
        if (result == NOT_BACK) {
                printf(",\"given_up\":1}\n");
                (void)fflush(stdout);
                _exit(0);
        }
        (void)pthread_join(t, NULL);
        if (result == CUDA_SUCCESS) {
                now->after();
                stream = (int)wait_stream(other, 5 * NSEC_PER_SEC);
                printf(",\"stream\":%d,\"right\":%d", stream, stream == 0 && is_right());
        }
        printf("}\n");
        (void)fflush(stdout);
        if (stream > 0)
                _exit(0);
}

static void pointer_call(void)
{
        watch(let_me_go);
        set_up();
        TRY(cuMemHostAlloc, (void **)&source, PART, CU_MEMHOSTALLOC_PORTABLE);
        TRY(cuMemHostAlloc, (void **)&target, PART, CU_MEMHOSTALLOC_PORTABLE);
        TRY(cuMemHostAlloc, (void **)&box, MEMORY, CU_MEMHOSTALLOC_PORTABLE);
        pageable_source = aligned_alloc(4096, PART);
        pageable_target = aligned_alloc(4096, PART);
        memset(source, 0x22, PART);
        memset(pageable_source, 0x22, PART);
        TRY(cuMemAddressReserve, &memory, MEMORY, 0, 0, 0);
        bring(memory, MEMORY, &memory_handle, false);
        make_mover();
        use_program();
        fill_memory();
        try_(in_pinned(), "cuMemcpyHtoDAsync");
        try_(out_pinned(), "cuMemcpyDtoHAsync");
        now->prepare();
        TRY(cuStreamSynchronize, other);
        start_counting();
        pointer_round(false);
        pointer_round(true);
}

static void pointer_calls(void)
{
        for (size_t i = 0; i < ARRAY_SIZE(pointer_calls_); i++) {
                now = &pointer_calls_[i];
                memset(me, 0, sizeof(*me));
                now_part = now->name;
                (void)reap(start(pointer_call), 30 * NSEC_PER_SEC);
        }
        now_part = "";
}

/* ---- copies_faulting ---- */

#define PAGE       4096ul
#define PAGES      1024ul
#define AREA       (PAGES * PAGE)
#define FREEZES    200
#define FAULTS_NS  (40 * NSEC_PER_SEC)
#define PATTERN(n) (0x0101010101010101ul * ((n)&1 ? 0x5a : 0x3c))

static volatile uint64_t *halves, /* managed memory: copies write the first half of each page */
        *whole;                   /* managed memory: copies write all of each page */
static _Atomic bool enough_touched;
static _Atomic uint64_t touch_longest_ns, wrong_reads;
static uint64_t touch_rounds;
static CUdeviceptr sources[2], back_halves, back_whole;
static uint64_t copies_made;

static void *touch(void *unused)
{
        while (!enough_touched) {
                for (size_t i = 0; i < PAGES; i++) {
                        uint64_t at = clock_now_ns(), took, v;

                        halves[(i * PAGE + PAGE / 2) / 8 + 5]++;
                        v = whole[i * PAGE / 8 + 7];
                        took = clock_now_ns() - at;
                        wrong_reads += v != 0 && v != PATTERN(0) && v != PATTERN(1);
                        if (took > touch_longest_ns)
                                touch_longest_ns = took;
                }
                touch_rounds++;
        }
        return unused;
}

static void copy_halves(CUdeviceptr to, CUdeviceptr from)
{
        const CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .srcDevice = from,
                                 .srcPitch = PAGE,
                                 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .dstDevice = to,
                                 .dstPitch = PAGE,
                                 .WidthInBytes = PAGE / 2,
                                 .Height = PAGES};

        TRY(cuMemcpy2DAsync_v2, &c, other);
}

static void queue_copies(void)
{
        CUdeviceptr h = (CUdeviceptr)(uintptr_t)halves, w = (CUdeviceptr)(uintptr_t)whole;

        for (int i = 0; i < 2; i++, copies_made++) {
                copy_halves(h, sources[copies_made & 1]);
                TRY(cuMemcpyDtoDAsync_v2, w, sources[copies_made & 1], AREA, other);
                copy_halves(back_halves, h);
                TRY(cuMemcpyDtoDAsync_v2, back_whole, w, AREA, other);
        }
}

static unsigned wrong_pages(const uint64_t *got_halves, const uint64_t *got_whole)
{
        uint64_t want = PATTERN(copies_made - 1);
        unsigned bad = 0;

        for (size_t i = 0; i < PAGES; i++) {
                bool wrong = halves[(i * PAGE + PAGE / 2) / 8 + 5] != touch_rounds;

                for (size_t k = i * PAGE / 8; k < (i + 1) * PAGE / 8; k++) {
                        bool first_half = k * 8 % PAGE < PAGE / 2;

                        wrong |= whole[k] != want || got_whole[k] != want ||
                                 (first_half && (halves[k] != want || got_halves[k] != want));
                }
                bad += wrong;
        }
        return bad;
}

static void copies_faulting_child(void)
{
        uint64_t freeze_most = 0, thaw_most = 0, touch_frozen = 0, touch_free = 0, ns,
                 until = clock_now_ns() + FAULTS_NS, *got;
        unsigned made = 0, caught = 0, refused = 0, went_on = 0;
        CUdeviceptr m;
        pthread_t t;
        CUresult r;

        watch(let_me_go);
        set_up();
        TRY(cuMemAllocManaged, &m, AREA, CU_MEM_ATTACH_GLOBAL);
        halves = (volatile uint64_t *)(uintptr_t)m;
        TRY(cuMemAllocManaged, &m, AREA, CU_MEM_ATTACH_GLOBAL);
        whole = (volatile uint64_t *)(uintptr_t)m;
        memset((void *)halves, 0, AREA);
        memset((void *)whole, 0, AREA);
        for (unsigned i = 0; i < 2; i++) {
                TRY(cuMemAlloc_v2, &sources[i], AREA);
                TRY(cuMemsetD32Async, sources[i], (unsigned)PATTERN(i), AREA / 4, other);
        }
        TRY(cuMemAlloc_v2, &back_halves, AREA);
        TRY(cuMemAlloc_v2, &back_whole, AREA);
        TRY(cuMemHostAlloc, (void **)&got, 2 * AREA, 0);
        TRY(cuMemcpyDtoHAsync_v2, got, back_whole, AREA, other);
        queue_copies();
        TRY(cuStreamSynchronize, other);
        start_counting();
        (void)pthread_create(&t, NULL, touch, NULL);
        for (; made < FREEZES && clock_now_ns() < until; made++) {
                uint64_t before;
                uint32_t status;

                if (p_cuStreamQuery(other) == CUDA_SUCCESS)
                        queue_copies();
                (void)usleep((unsigned)random() % 4000);
                touch_free = MAX(touch_free, atomic_exchange(&touch_longest_ns, 0));
                status = freeze_me(&ns);
                freeze_most = MAX(freeze_most, ns);
                refused += status != 0;
                before = me->count;
                (void)atomic_exchange(&touch_longest_ns, 0);
                (void)usleep(3000);
                caught += p_cuStreamQuery(other) == CUDA_ERROR_NOT_READY;
                went_on += status == 0 && me->count != before;
                touch_frozen = MAX(touch_frozen, atomic_exchange(&touch_longest_ns, 0));
                (void)thaw_me(&ns);
                thaw_most = MAX(thaw_most, ns);
        }
        me->stop = 1;
        enough_touched = true;
        (void)pthread_join(t, NULL);
        r = wait_stream(other, 10 * NSEC_PER_SEC);
        printf("{\"case\":\"copies_faulting\",\"freezes\":%u,\"refused\":%u,\"copies_outstanding\":"
               "%u,"
               "\"went_on\":%u,\"freeze_most_ms\":%.2f,\"thaw_most_ms\":%.2f,\"touch_most_ms\":%."
               "2f,"
               "\"touch_most_while_frozen_ms\":%.2f,\"copies\":%lu,\"host_rounds\":%lu,"
               "\"wrong_reads\":%lu,\"stream\":%d",
               made, refused, caught, went_on, ms(freeze_most), ms(thaw_most), ms(touch_free),
               ms(touch_frozen), (unsigned long)copies_made * 4, (unsigned long)touch_rounds,
               (unsigned long)wrong_reads, (int)r);
        if (r == CUDA_SUCCESS) {
                TRY(cuMemcpyDtoHAsync_v2, got, back_halves, AREA, other);
                TRY(cuMemcpyDtoHAsync_v2, got + AREA / 8, back_whole, AREA, other);
                TRY(cuStreamSynchronize, other);
                printf(",\"wrong_pages\":%u", wrong_pages(got, got + AREA / 8));
        }
        printf("}\n");
}

static void copies_faulting(void)
{
        run_child(copies_faulting_child);
}

/* ---- exit_frozen ---- */

#define TIMES     20
#define HUNG_MOST 2            /* a way of ending is given up after so many that hang */
#define FAR       (64ul << 20) /* bytes that are evicted before the end */
#define COPIED    (64ul << 20)

static void bystander(void)
{
        const CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        size_t available, total;

        load_driver();
        TRY(cuDevicePrimaryCtxRetain, &program, device);
        TRY(cuCtxSetCurrent, program);
        need_channels();
        while (!shared->enough) {
                uint64_t at = clock_now_ns(), took;
                CUmemGenericAllocationHandle h;

                TRY(cuMemCreate, &h, 2 * MIB, &on_card, 0);
                TRY(cuMemRelease, h);
                took = clock_now_ns() - at;
                if (took > shared->longest_ns)
                        shared->longest_ns = took;
                TRY(cuMemGetInfo_v2, &available, &total);
                shared->used = total - available;
                shared->bystander_ready = true;
                (void)usleep(500);
        }
}

static void ending_program(void)
{
        CUdeviceptr plain;
        uint64_t ns;
        void *host;

        watch(let_me_go);
        set_up();
        TRY(cuMemAlloc_v2, &plain, 4 * COPIED);
        TRY(cuMemHostAlloc, &host, COPIED, 0);
        TRY(cuMemAddressReserve, &memory, FAR, 0, 0, 0);
        bring(memory, FAR, &memory_handle, false);
        make_mover();
        TRY(cuMemHostAlloc, (void **)&box, FAR, CU_MEMHOSTALLOC_PORTABLE);
        use_program();
        TRY(cuMemcpyDtoHAsync_v2, host, plain, MIB, other);
        TRY(cuStreamSynchronize, other);
        start_counting();
        for (int i = 0; i < 8; i++)
                TRY(cuMemcpyDtoHAsync_v2, host, plain, COPIED, other);
        (void)usleep(1000);
        me->status = freeze_me(&ns);
        me->copies = (int)p_cuStreamQuery(other);
        use_mover();
        TRY(cuMemcpyDtoHAsync_v2, box, memory, FAR, carry[0]);
        TRY(cuStreamSynchronize, carry[0]);
        away = true;
        take(memory, FAR, memory_handle);
        use_program();
        me->state = READY;
        while (me->order == NONE)
                (void)usleep(100);
        me->frozen_at_ns = 0; /* so that the watchdog does nothing from now on */
        me->ending_at_ns = clock_now_ns();
        if (me->order == END)
                exit(0);
        (void)execl("/bin/true", "true", (char *)NULL);
        _exit(127);
}

struct tally {
        double values[TIMES];
        size_t n;
};

static int by_value(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

static void add_value(struct tally *t, double v)
{
        if (t->n < ARRAY_SIZE(t->values))
                t->values[t->n++] = v;
}

static void say_tally(const char *name, struct tally *t)
{
        qsort(t->values, t->n, sizeof(t->values[0]), by_value);
        printf(",\"%s\":%.3f,\"%s_most\":%.3f", name, t->n ? t->values[t->n / 2] : -1, name,
               t->n ? t->values[t->n - 1] : -1);
}

struct endings {
        struct tally died, back, bystander;
        unsigned hung, copies, stood, refused;
};

static void one_ending(struct program *p, pid_t pid, enum order way, struct endings *e)
{
        uint64_t used = shared->used, at, died;

        me = p;
        e->refused += p->status != 0;
        e->copies += p->copies == CUDA_ERROR_NOT_READY;
        e->stood += !counts();
        shared->longest_ns = 0;
        if (way == NONE) {
                p->ending_at_ns = clock_now_ns();
                (void)kill(pid, SIGKILL);
        } else {
                p->order = way;
        }
        e->hung += !reap(pid, 15 * NSEC_PER_SEC);
        died = clock_now_ns();
        at = p->ending_at_ns ? p->ending_at_ns : died;
        add_value(&e->died, ms(died - at));
        while (shared->used + 4 * COPIED > used && clock_now_ns() < died + 5 * NSEC_PER_SEC)
                (void)usleep(200);
        add_value(&e->back, ms(clock_now_ns() - died));
        (void)usleep(20000);
        add_value(&e->bystander, ms(shared->longest_ns));
}

static void endings_of(const char *name, enum order way)
{
        struct endings e = {0};

        now_part = name;
        for (int batch = 0; batch < TIMES / PROGRAMS && e.hung < HUNG_MOST; batch++) {
                pid_t pids[PROGRAMS];

                memset(shared->programs, 0, sizeof(shared->programs));
                for (int i = 0; i < PROGRAMS; i++) {
                        me = &shared->programs[i];
                        pids[i] = start(ending_program);
                }
                for (int i = 0; i < PROGRAMS; i++)
                        (void)await(&shared->programs[i].state, READY, pids[i], 20 * NSEC_PER_SEC);
                (void)usleep(20000); /* time for the bystander to look at the card */
                for (int i = 0; i < PROGRAMS; i++) {
                        if (shared->programs[i].state == READY && e.hung < HUNG_MOST)
                                one_ending(&shared->programs[i], pids[i], way, &e);
                        else
                                end(pids[i]);
                }
        }
        me = &shared->programs[0];
        printf("{\"case\":\"exit_frozen\",\"way\":\"%s\",\"times\":%zu,\"refused\":%u,\"stood\":%u,"
               "\"copies_in_flight\":%u,\"hung\":%u",
               name, e.died.n, e.refused, e.stood, e.copies, e.hung);
        say_tally("died_ms", &e.died);
        say_tally("memory_back_ms", &e.back);
        say_tally("bystander_ms", &e.bystander);
        printf("}\n");
        (void)fflush(stdout);
        now_part = "";
}

static void exit_frozen(void)
{
        uint64_t before;
        pid_t beside;

        shared->enough = shared->bystander_ready = false;
        beside = start(bystander);
        while (!shared->bystander_ready && !gone(beside))
                (void)usleep(1000);
        if (!gone(beside)) {
                (void)usleep(300000);
                before = shared->used;
                printf("{\"case\":\"exit_frozen\",\"bystander_alone_ms\":%.2f}\n",
                       ms(shared->longest_ns));
                endings_of("exit", END);
                endings_of("exec", EXECUTE);
                endings_of("kill", NONE);
                (void)usleep(300000);
                printf("{\"case\":\"exit_frozen\",\"card_used_before_mib\":%.1f,"
                       "\"card_used_after_mib\":%.1f}\n",
                       (double)before / (double)MIB, (double)shared->used / (double)MIB);
        }
        shared->enough = true;
        (void)reap(beside, 10 * NSEC_PER_SEC);
}

/* ---- movers ---- */

#define EXTENT  (128ul << 20)
#define EXTENTS 32
#define SPACE   (EXTENT * EXTENTS)
#define RING    4
#define ROUNDS  5
#define TRIALS  20

/* Messages between the program and the second process. OUT, IN and TRIAL carry a descriptor. */
enum what { BEGIN, REGISTER, OUT, IN, TRIAL, ANSWER };
struct message {
        enum what what;
        int index;
        uint64_t received_ns, imported_ns, mapped_ns, gone_ns;
};

enum way { BY_CONTEXT, BY_CONTEXT_REGISTERED, BY_PROCESS };

static enum way way;
static char *host; /* SPACE bytes, in which each extent has a fixed part */
static CUdeviceptr space;
static CUmemGenericAllocationHandle handles[EXTENTS];
static CUevent copied[RING];

static CUdeviceptr extent_at(int i)
{
        return space + (CUdeviceptr)i * EXTENT;
}

static char *host_at(int i)
{
        return host + (size_t)i * EXTENT;
}

static void make_events(void)
{
        for (int i = 0; i < RING; i++)
                TRY(cuEventCreate, &copied[i], CU_EVENT_DISABLE_TIMING);
}

/* In the second process: accepts an extent and maps it at its slot of the ring. The process holds
 * up to RING extents at a time. */
static void accept_extent(int s, struct message *m, int fd, unsigned slot,
                          CUmemGenericAllocationHandle *h)
{
        CUdeviceptr at = space + (CUdeviceptr)slot * EXTENT;

        m->received_ns = clock_now_ns();
        TRY(cuMemImportFromShareableHandle, h, (void *)(uintptr_t)fd,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        (void)close(fd);
        m->imported_ns = clock_now_ns();
        TRY(cuMemMap, at, EXTENT, 0, *h, 0);
        TRY(cuMemSetAccess, at, EXTENT, &both_ways, 1);
        m->mapped_ns = clock_now_ns();
        if (m->what == TRIAL) {
                take(at, EXTENT, *h);
                m->gone_ns = clock_now_ns();
                m->what = ANSWER;
                send_with(s, m, sizeof(*m), -1);
        } else if (m->what == OUT) {
                TRY(cuMemcpyDtoHAsync_v2, host_at(m->index), at, EXTENT, carry[slot & 1]);
                TRY(cuEventRecord, copied[slot], carry[slot & 1]);
        } else {
                TRY(cuMemcpyHtoDAsync_v2, at, host_at(m->index), EXTENT, carry[slot & 1]);
                TRY(cuEventRecord, copied[slot], carry[slot & 1]);
                if (m->index == 0)
                        shared->first_submit_ns = clock_now_ns();
        }
}

static void serve_extents(int s)
{
        CUmemGenericAllocationHandle held[RING];
        struct message asked[RING], m;
        unsigned first = 0, last = 0;

        for (;;) {
                bool idle = first == last;
                ssize_t n = 0;
                int fd = -1;

                if (last - first < RING) {
                        n = receive_with(s, &m, sizeof(m), &fd, idle ? 0 : MSG_DONTWAIT);
                        if (n == 0 || (n < 0 && errno != EAGAIN))
                                return; /* because the program has ended */
                }
                if (n > 0) {
                        accept_extent(s, &m, fd, last % RING, &held[last % RING]);
                        if (m.what != ANSWER)
                                asked[last++ % RING] = m;
                } else if (!idle && p_cuEventQuery(copied[first % RING]) == CUDA_SUCCESS) {
                        unsigned slot = first++ % RING;

                        take(space + (CUdeviceptr)slot * EXTENT, EXTENT, held[slot]);
                        asked[slot].what = ANSWER;
                        send_with(s, &asked[slot], sizeof(m), -1);
                }
        }
}

static void second_process(void)
{
        struct message m;
        uint64_t at;
        int fd;

        (void)close(ends[0]);
        if (receive_with(ends[1], &m, sizeof(m), &fd, 0) <= 0)
                return;
        at = clock_now_ns();
        load_driver();
        make_mover();
        m.received_ns = at;
        m.mapped_ns = clock_now_ns();
        send_with(ends[1], &m, sizeof(m), -1);
        if (receive_with(ends[1], &m, sizeof(m), &fd, 0) <= 0)
                return;
        m.received_ns = clock_now_ns();
        TRY(cuMemHostRegister_v2, host, SPACE, CU_MEMHOSTREGISTER_PORTABLE);
        TRY(cuMemAddressReserve, &space, RING * EXTENT, 0, 0, 0);
        make_events();
        m.mapped_ns = clock_now_ns();
        send_with(ends[1], &m, sizeof(m), -1);
        serve_extents(ends[1]);
}

/* ---- the program's side of each way ---- */

static struct message ask(enum what what, int index, int fd)
{
        struct message m = {.what = what, .index = index};
        int unused;

        send_with(ends[0], &m, sizeof(m), fd);
        if (what == OUT || what == IN)
                return m;
        if (receive_with(ends[0], &m, sizeof(m), &unused, 0) <= 0)
                _exit(5);
        return m;
}

static int answered(void)
{
        struct message m;
        int unused;

        if (receive_with(ends[0], &m, sizeof(m), &unused, 0) <= 0)
                _exit(5);
        return m.index;
}

static int export_extent(int i)
{
        int fd = -1;

        TRY(cuMemExportToShareableHandle, &fd, handles[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            0);
        return fd;
}

static void hand_over(enum what what, int i)
{
        int fd = export_extent(i);

        (void)ask(what, i, fd);
        (void)close(fd);
}

static void out_by_process(void)
{
        for (int sent = 0, done = 0; done < EXTENTS; done++) {
                int i;

                while (sent < EXTENTS && sent - done < RING)
                        hand_over(OUT, sent++);
                i = answered();
                take(extent_at(i), EXTENT, handles[i]);
        }
}

static void in_by_process(void)
{
        for (int sent = 0, done = 0; done < EXTENTS; done++) {
                while (sent < EXTENTS && sent - done < RING) {
                        bring(extent_at(sent), EXTENT, &handles[sent], true);
                        hand_over(IN, sent++);
                }
                (void)answered();
        }
}

static void out_by_context(void)
{
        for (int i = 0; i < EXTENTS + RING; i++) {
                if (i >= RING)
                        TRY(cuEventSynchronize, copied[i % RING]);
                if (i < EXTENTS) {
                        TRY(cuMemcpyDtoHAsync_v2, host_at(i), extent_at(i), EXTENT, carry[i & 1]);
                        TRY(cuEventRecord, copied[i % RING], carry[i & 1]);
                }
                if (i >= RING)
                        take(extent_at(i - RING), EXTENT, handles[i - RING]);
        }
}

static void in_by_context(void)
{
        for (int i = 0; i < EXTENTS; i++) {
                if (i >= RING)
                        TRY(cuEventSynchronize, copied[i % RING]);
                bring(extent_at(i), EXTENT, &handles[i], false);
                TRY(cuMemcpyHtoDAsync_v2, extent_at(i), host_at(i), EXTENT, carry[i & 1]);
                TRY(cuEventRecord, copied[i % RING], carry[i & 1]);
                if (i == 0)
                        shared->first_submit_ns = clock_now_ns();
        }
        for (int i = 0; i < 2; i++)
                TRY(cuStreamSynchronize, carry[i]);
}

static _Atomic uint64_t first_byte_ns;

static void *see_first_byte(void *unused)
{
        while (*(volatile uint64_t *)host == 0 && !me->stop)
                ;
        first_byte_ns = clock_now_ns();
        return unused;
}

static uint64_t word_of(int i)
{
        return 0x100000001ul * (0x1000u + (unsigned)i);
}

/* Clears one word of each page. */
static void clear_host(void)
{
        for (size_t at = 0; at < SPACE; at += PAGE)
                *(volatile uint64_t *)(host + at) = 0;
}

static unsigned wrong_in_host(void)
{
        unsigned wrong = 0;

        for (size_t at = 0; at < SPACE; at += PAGE)
                wrong += *(volatile uint64_t *)(host + at) != word_of((int)(at / EXTENT));
        return wrong;
}

static double free_mib(void)
{
        size_t available, total;

        TRY(cuMemGetInfo_v2, &available, &total);
        return (double)available / (double)MIB;
}

static void trials(void)
{
        struct tally export = {0}, send = {0}, import = {0}, map = {0}, unmap = {0},
                     whole_way = {0};

        for (int i = 0; i < TRIALS; i++) {
                uint64_t at = clock_now_ns(), exported;
                int fd = export_extent(i);
                struct message m;

                exported = clock_now_ns();
                m = ask(TRIAL, i, fd);
                (void)close(fd);
                add_value(&export, us(exported - at));
                add_value(&send, us(m.received_ns - exported));
                add_value(&import, us(m.imported_ns - m.received_ns));
                add_value(&map, us(m.mapped_ns - m.imported_ns));
                add_value(&unmap, us(m.gone_ns - m.mapped_ns));
                add_value(&whole_way, us(m.mapped_ns - at));
        }
        printf("{\"case\":\"movers\",\"way\":\"process\",\"extent_mib\":%lu,\"trials\":%d",
               EXTENT / MIB, TRIALS);
        say_tally("export_us", &export);
        say_tally("send_us", &send);
        say_tally("import_us", &import);
        say_tally("map_us", &map);
        say_tally("unmap_us", &unmap);
        say_tally("export_to_mapped_us", &whole_way);
        printf("}\n");
}

/* Prepares a way of moving: a second context here, or a second process with its context. */
static void prepare_way(void)
{
        double before = free_mib(), made, registered;
        uint64_t made_ns, registered_ns, at = clock_now_ns();
        struct message m;

        if (way == BY_PROCESS) {
                m = ask(BEGIN, 0, -1);
                made_ns = m.mapped_ns - m.received_ns;
                made = free_mib();
                m = ask(REGISTER, 0, -1);
                registered_ns = m.mapped_ns - m.received_ns;
        } else {
                make_mover();
                use_program();
                made_ns = clock_now_ns() - at;
                made = free_mib();
                use_mover();
                make_events();
                at = clock_now_ns();
                if (way == BY_CONTEXT) {
                        TRY(cuMemHostAlloc, (void **)&host, SPACE, CU_MEMHOSTALLOC_PORTABLE);
                        memset(host, 1, SPACE);
                } else {
                        TRY(cuMemHostRegister_v2, host, SPACE, CU_MEMHOSTREGISTER_PORTABLE);
                }
                registered_ns = clock_now_ns() - at;
                use_program();
        }
        registered = free_mib();
        printf("{\"case\":\"movers\",\"way\":\"%s\",\"made_ms\":%.1f,\"card_mib\":%.1f,"
               "\"host_memory_ms\":%.1f,\"card_mib_with_host_memory\":%.1f}\n",
               way == BY_PROCESS   ? "process"
               : way == BY_CONTEXT ? "context"
                                   : "context, registered",
               ms(made_ns), before - made, ms(registered_ns), before - registered);
        (void)fflush(stdout);
}

struct rates {
        struct tally out, in, first_byte, first_submit;
        unsigned wrong, moved;
        double freed_mib;
};

static void one_move(struct rates *r)
{
        pthread_t t;
        uint64_t at, ns;
        double before;

        clear_host();
        first_byte_ns = 0;
        before = free_mib();
        (void)pthread_create(&t, NULL, see_first_byte, NULL);
        (void)usleep(2000);
        if (way != BY_PROCESS)
                use_mover();
        away = true;
        at = clock_now_ns();
        if (way == BY_PROCESS)
                out_by_process();
        else
                out_by_context();
        ns = clock_now_ns() - at;
        (void)pthread_join(t, NULL);
        add_value(&r->out, (double)SPACE / (double)ns);
        add_value(&r->first_byte, us(first_byte_ns - at));
        r->freed_mib = free_mib() - before;
        r->wrong += wrong_in_host();
        at = clock_now_ns();
        if (way == BY_PROCESS)
                in_by_process();
        else
                in_by_context();
        ns = clock_now_ns() - at;
        away = false;
        use_program();
        add_value(&r->in, (double)SPACE / (double)ns);
        add_value(&r->first_submit, us(shared->first_submit_ns - at));
}

/* Checks one word of each MiB on the card. Returns how many are wrong. */
static unsigned wrong_on_card(void)
{
        unsigned wrong = 0;
        uint64_t *seen;

        TRY(cuMemHostAlloc, (void **)&seen, EXTENT, 0);
        for (int i = 0; i < EXTENTS; i++) {
                TRY(cuMemcpyDtoHAsync_v2, seen, extent_at(i), EXTENT, other);
                TRY(cuStreamSynchronize, other);
                for (size_t k = 0; k < EXTENT / 8; k += MIB / 8)
                        wrong += seen[k] != word_of(i);
        }
        return wrong;
}

static void mover_way(void)
{
        uint64_t freeze_ns, thaw_ns, before;
        struct rates r = {0};
        uint32_t status, back;
        pid_t beside = 0;
        CUresult stream;
        bool stood;

        if (way != BY_CONTEXT) {
                int fd = memfd_create("extents", MFD_CLOEXEC);

                if (fd < 0 || ftruncate(fd, SPACE) < 0)
                        _exit(6);
                host = mmap(NULL, SPACE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                if (host == MAP_FAILED)
                        _exit(6);
        }
        if (way == BY_PROCESS) {
                if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                        _exit(6);
                beside = start(second_process);
                (void)close(ends[1]);
        }
        watch(let_me_go);
        set_up();
        if (way != BY_CONTEXT)
                memset(host, 1, SPACE);
        TRY(cuMemAddressReserve, &space, SPACE, 0, 0, 0);
        for (int i = 0; i < EXTENTS; i++) {
                bring(extent_at(i), EXTENT, &handles[i], way == BY_PROCESS);
                TRY(cuMemsetD32Async, extent_at(i), (unsigned)word_of(i), EXTENT / 4, other);
        }
        TRY(cuStreamSynchronize, other);
        prepare_way();
        start_counting();
        status = freeze_me(&freeze_ns);
        before = me->count;
        if (way == BY_PROCESS)
                trials();
        for (int i = 0; i < ROUNDS; i++)
                one_move(&r);
        stood = me->count == before;
        back = thaw_me(&thaw_ns);
        (void)usleep(20000);
        stood = stood && me->count != before;
        me->stop = 1;
        stream = wait_stream(busy, 5 * NSEC_PER_SEC);
        printf("{\"case\":\"movers\",\"way\":\"%s\",\"rounds\":%d,\"freeze\":\"%#x\",\"thaw\":\"%#"
               "x\","
               "\"stood_and_went_on\":%d,\"stream\":%d,\"freed_mib\":%.0f",
               way == BY_PROCESS   ? "process"
               : way == BY_CONTEXT ? "context"
                                   : "context, registered",
               ROUNDS, status, back, stood, (int)stream, r.freed_mib);
        say_tally("out_gbs", &r.out);
        say_tally("in_gbs", &r.in);
        say_tally("first_byte_us", &r.first_byte);
        say_tally("in_first_submit_us", &r.first_submit);
        printf(",\"wrong_in_host\":%u,\"wrong_on_card\":%u}\n", r.wrong, wrong_on_card());
        (void)fflush(stdout);
        if (beside > 0) {
                (void)close(ends[0]);
                (void)reap(beside, 5 * NSEC_PER_SEC);
        }
}

static void movers(void)
{
        static const enum way ways[] = {BY_CONTEXT, BY_CONTEXT_REGISTERED, BY_PROCESS};

        for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
                way = ways[i];
                memset(me, 0, sizeof(*me));
                run_child(mover_way);
        }
}

int main(int argc, char **argv)
{
        /* The cases that may do most harm come last. */
        static const struct {
                const char *name;
                void (*run)(void);
        } cases[] = {{"foreign_user", foreign_user},
                     {"own_descriptor", own_descriptor},
                     {"pointer_calls", pointer_calls},
                     {"movers", movers},
                     {"copies_faulting", copies_faulting},
                     {"exit_frozen", exit_frozen},
                     {"wfi", wfi}};

        shared =
                mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
                return 1;
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                bool wanted = argc < 2;
                uint64_t at = clock_now_ns();

                for (int k = 1; k < argc; k++)
                        wanted |= strcmp(argv[k], cases[i].name) == 0;
                if (!wanted)
                        continue;
                memset(shared, 0, sizeof(*shared));
                me = &shared->programs[0];
                now_case = cases[i].name;
                cases[i].run();
                printf("{\"case\":\"%s\",\"seconds\":%.1f}\n", now_case,
                       ms(clock_now_ns() - at) / 1e3);
                (void)fflush(stdout);
        }
        return 0;
}
