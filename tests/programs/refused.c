/* refused: has the kernel refuse system calls to this process, or leaves it few descriptors, at the
 * start or after cuInit(). Then it makes a context and allocates memory, prints the driver's
 * answers, and ends well whatever they are, once its stdin is closed. --bytes: to allocate.
 *
 * --how init|context: before which call. --until errno:ERRNO:CALL[,CALL] or files:LEFT: what is
 * refused; CALL is a number. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

enum { CALLS_MOST = 8, FILES_MOST = 64 };

/* Refuses the calls of the list "CALL,CALL". */
static void refuse(const char *calls, uint32_t error)
{
        struct sock_filter f[2 * CALLS_MOST + 2] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
        struct sock_fprog program = {.len = 1, .filter = f};
        char *end;

        for (const char *at = calls; *at && program.len < 2 * CALLS_MOST;
             at = *end ? end + 1 : end) {
                const uint32_t number = (uint32_t)strtoul(at, &end, 10);

                f[program.len++] =
                        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
                f[program.len++] =
                        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
        }
        f[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
                program_fail(PROGRAM_EXIT_SETUP, "no seccomp: errno %d", errno);
}

/* Opens files until only so many more can be opened. */
static void leave_files(unsigned left)
{
        const struct rlimit most = {FILES_MOST, FILES_MOST};
        int last = -1, fd;

        if (setrlimit(RLIMIT_NOFILE, &most) < 0)
                program_fail(PROGRAM_EXIT_SETUP, "no limit: errno %d", errno);
        while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
                last = fd;
        for (; left > 0; left--)
                (void)close(last--);
}

static void happen(void)
{
        char *end;

        if (strncmp(options.until, "files:", 6) == 0) {
                leave_files((unsigned)strtoul(options.until + 6, NULL, 10));
        } else if (strncmp(options.until, "errno:", 6) == 0) {
                const uint32_t error = (uint32_t)strtoul(options.until + 6, &end, 10);

                refuse(end + 1, error);
        }
}

static bool answer(const char *call, CUresult r)
{
        program_say("answer", "\"call\":\"%s\",\"result\":%d", call, (int)r);
        return r == CUDA_SUCCESS;
}

int main(int argc, char **argv)
{
        static const char *const moments[] = {"init", "context"};
        CUcontext context;
        CUdeviceptr at;
        CUdevice device;
        size_t when;

        program_options(argc, argv,
                        &(struct options){.bytes = 32 * MIB, .how = "init", .until = ""});
        when = program_how(moments, ARRAY_SIZE(moments));
        driver_open(false);
        if (when == 0)
                happen();
        if (answer("init", cu.Init(0)) && answer("device", cu.DeviceGet(&device, 0))) {
                if (when == 1)
                        happen();
                if (answer("retain", cu.DevicePrimaryCtxRetain(&context, device))) {
                        TRY(cu.CtxSetCurrent(context));
                        (void)answer("alloc", cu.MemAlloc(&at, options.bytes));
                }
        }
        program_say("end", "\"lives\":true");
        while (getchar() != EOF)
                ;
        return PROGRAM_EXIT_OK;
}
