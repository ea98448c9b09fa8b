/* sim_unit.c: owns the processes that the simulator's tests start; makes kernels and memory. */
#include "sim_unit.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEST_SECONDS 60

static const char kernels[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .global .align 4 .u32 variable = 7;\n"
                              ".visible .entry store(.param .u64 p)\n{\n"
                              ".reg .b64 %rd<3>;\n.reg .b32 %r<2>;\n"
                              "ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd2, %rd1;\n"
                              "mov.u32 %r1, 1;\nst.global.u32 [%rd2], %r1;\nret;\n}\n"
                              ".visible .entry add_one(.param .u64 p)\n{\n"
                              ".reg .b64 %rd<3>;\n.reg .b32 %r<2>;\n"
                              "ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd2, %rd1;\n"
                              "ld.global.u32 %r1, [%rd2];\nadd.s32 %r1, %r1, 1;\n"
                              "st.global.u32 [%rd2], %r1;\nret;\n}\n"
                              ".visible .entry wait_flag(.param .u64 p)\n{\n"
                              ".reg .b64 %rd<3>;\n.reg .b32 %r<2>;\n.reg .pred %p<2>;\n"
                              "ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd2, %rd1;\n"
                              "AGAIN:\nld.volatile.global.u32 %r1, [%rd2];\n"
                              "setp.eq.u32 %p1, %r1, 0;\n@%p1 bra AGAIN;\nret;\n}\n"
                              ".visible .entry count(.param .u64 p)\n{\n"
                              ".reg .b64 %rd<6>;\n.reg .pred %p<2>;\n"
                              "ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd2, %rd1;\n"
                              "mov.u64 %rd3, 0;\nmov.u64 %rd4, 0;\n"
                              "AGAIN:\nadd.u64 %rd3, %rd3, 1;\nadd.u64 %rd4, %rd4, %rd3;\n"
                              "st.volatile.global.u64 [%rd2], %rd3;\n"
                              "ld.volatile.global.u64 %rd5, [%rd2+8];\n"
                              "setp.eq.u64 %p1, %rd5, 0;\n@%p1 bra AGAIN;\n"
                              "st.global.u64 [%rd2+16], %rd4;\nret;\n}\n";

static int tell_fd = -1, told_fd = -1;

/* The thread sanitizer reads its options from here. By default each of hundreds of processes would
 * sleep a second at its end. */
const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void)
{
        return "atexit_sleep_ms=0";
}

void unit_failed(const char *file, int line, const char *what, long long a, long long b)
{
        (void)fprintf(stderr, "%s:%d: %s (%lld, %lld)\n", file, line, what, a, b);
        (void)fflush(stderr);
        _exit(1);
}

void unit_run(void (*body)(void), const char *settings)
{
        static unsigned count;
        char session[SESSION_NAME_MAX];
        int status;
        pid_t child;

        (void)snprintf(session, sizeof(session), "unit-%d-%u", (int)getpid(), ++count);
        (void)setenv("SIMCUDA_SESSION", session, 1);
        (void)setenv("SIMCUDA_KEEP", "1", 1); /* tests look at the counts of processes that ended */
        (void)fflush(NULL);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
                char *copy = strdup(settings), *rest = copy;

                for (char *one; (one = strsep(&rest, " "));)
                        if (*one) {
                                char *equals = strchr(one, '=');

                                *equals = 0;
                                (void)setenv(one, equals + 1, 1);
                        }
                free(copy);
                (void)alarm(TEST_SECONDS);
                body();
                exit(0);
        }
        while (waitpid(child, &status, 0) < 0)
                assert_int_equal(errno, EINTR);
        (void)session_remove(session, true);
        assert_int_equal(status, 0);
}

CUcontext unit_begin(void)
{
        CUcontext c;

        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&c, 0));
        OK(cuCtxSetCurrent(c));
        return c;
}

CUfunction unit_kernel(const char *name)
{
        CUmodule m;
        CUfunction f;

        OK(cuModuleLoadData(&m, kernels));
        OK(cuModuleGetFunction(&f, m, name));
        return f;
}

CUresult unit_launch(CUfunction f, CUdeviceptr p, CUstream s)
{
        void *args[] = {&p};

        return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL);
}

void *unit_pinned(size_t bytes)
{
        void *p;

        OK(cuMemAllocHost_v2(&p, bytes));
        memset(p, 0, bytes);
        return p;
}

CUdeviceptr unit_address(const volatile void *host)
{
        return (CUdeviceptr)(uintptr_t)host;
}

void unit_set_flag(unsigned *flag)
{
        __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
}

CUmemGenericAllocationHandle unit_create(size_t bytes)
{
        const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
        CUmemGenericAllocationHandle h;

        OK(cuMemCreate(&h, bytes, &prop, 0));
        return h;
}

void unit_map_at(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle)
{
        const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                        CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

        OK(cuMemMap(at, bytes, 0, handle, 0));
        OK(cuMemSetAccess(at, bytes, &access, 1));
}

CUdeviceptr unit_map(size_t bytes, CUmemGenericAllocationHandle *ret_handle)
{
        CUdeviceptr va;

        OK(cuMemAddressReserve(&va, bytes, 0, 0, 0));
        *ret_handle = unit_create(bytes);
        unit_map_at(va, bytes, *ret_handle);
        return va;
}

struct unit_peer unit_peer_start(void (*body)(void))
{
        struct unit_peer p;
        int there[2], back[2];

        CHECK(pipe(there) == 0 && pipe(back) == 0);
        (void)fflush(NULL);
        p.pid = fork();
        CHECK(p.pid >= 0);
        if (p.pid == 0) {
                tell_fd = back[1];
                told_fd = there[0];
                (void)close(there[1]);
                (void)close(back[0]);
                (void)alarm(TEST_SECONDS);
                body();
                exit(0);
        }
        (void)close(there[0]);
        (void)close(back[1]);
        p.in = back[0];
        p.out = there[1];
        return p;
}

static void byte_in(int fd)
{
        char c;

        CHECK_EQUAL(read(fd, &c, 1), 1);
}

static void byte_out(int fd)
{
        CHECK_EQUAL(write(fd, "", 1), 1);
}

void unit_peer_wait(struct unit_peer *p)
{
        byte_in(p->in);
}

void unit_peer_tell(struct unit_peer *p)
{
        byte_out(p->out);
}

void unit_peer_end(struct unit_peer *p)
{
        int status;

        CHECK_EQUAL(waitpid(p->pid, &status, 0), p->pid);
        CHECK_EQUAL(status, 0);
}

void unit_peer_kill(struct unit_peer *p)
{
        int status;

        CHECK(kill(p->pid, SIGKILL) == 0);
        CHECK_EQUAL(waitpid(p->pid, &status, 0), p->pid);
}

void unit_tell(void)
{
        byte_out(tell_fd);
}

void unit_wait_told(void)
{
        byte_in(told_fd);
}

static struct session *outside(void)
{
        char name[SESSION_NAME_MAX];
        struct session *s;

        CHECK_EQUAL(session_name(name), 0);
        CHECK_EQUAL(session_attach(name, &s), 0);
        return s;
}

struct session_totals unit_totals(unsigned device)
{
        struct session *s = outside();
        struct session_totals t;

        session_totals(s, device, &t);
        session_detach(s);
        return t;
}

uint64_t unit_used(unsigned device)
{
        struct session *s = outside();
        uint64_t used = session_used(s, device);

        session_detach(s);
        return used;
}

bool unit_emulated(const char *what)
{
        if (!getenv("SUBLET_EMULATED"))
                return false;
        (void)fprintf(stderr, "left out, the emulator has no %s\n", what);
        return true;
}
