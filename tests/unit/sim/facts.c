/* facts.c: runs groups of questions to a driver, each in its own process with a time limit. Must
 * never use the driver before it forks. */
#include "facts.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *group;
CUcontext context;
CUfunction store, wait_flag;

const char facts_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                         ".visible .global .align 4 .u32 variable = 7;\n"
                         ".visible .entry store(.param .u64 p)\n{\n"
                         ".reg .b64 %rd<3>;\n.reg .b32 %r<2>;\n"
                         "ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd2, %rd1;\n"
                         "mov.u32 %r1, 1;\nst.global.u32 [%rd2], %r1;\nret;\n}\n"
                         ".visible .entry wait_flag(.param .u64 p)\n{\n"
                         ".reg .b64 %rd<3>;\n.reg .b32 %r<2>;\n.reg .pred %p<2>;\n"
                         "ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd2, %rd1;\n"
                         "AGAIN:\nld.volatile.global.u32 %r1, [%rd2];\nsetp.eq.u32 %p1, %r1, 0;\n"
                         "@%p1 bra AGAIN;\nret;\n}\n";

void begin(void)
{
        CUmodule m;

        NEED(cuInit(0));
        NEED(cuDevicePrimaryCtxRetain(&context, 0));
        NEED(cuCtxSetCurrent(context));
        NEED(cuModuleLoadData(&m, facts_ptx));
        NEED(cuModuleGetFunction(&store, m, "store"));
        NEED(cuModuleGetFunction(&wait_flag, m, "wait_flag"));
}

CUresult run(CUfunction f, CUdeviceptr p, CUstream s)
{
        void *args[] = {&p};

        return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL);
}

static void ask(const struct facts *of)
{
        pid_t child;
        int status;

        group = of->name;
        child = fork();
        if (child == 0) {
                (void)alarm(30);
                of->ask();
                exit(0);
        }
        (void)waitpid(child, &status, 0);
        if (status != 0)
                (void)printf("%s: ended with status %x\n", group, (unsigned)status);
}

int facts_main(int argc, char *argv[], const struct facts *const lists[])
{
        (void)setvbuf(stdout, NULL, _IOLBF, 0);
        for (; *lists; lists++)
                for (const struct facts *f = *lists; f->name; f++)
                        if (argc < 2 || strcmp(argv[1], f->name) == 0)
                                ask(f);
        return 0;
}
