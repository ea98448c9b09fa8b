/* fork: forks while it uses the GPU. The children run on without CUDA: one ends through exit() with
 * all its handlers, one through exec. The parent goes on, and its memory is unchanged. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

static void reap(pid_t pid, const char *which)
{
        int status;

        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
                program_fail(PROGRAM_EXIT_WRONG, "%s: did not end with 0", which);
}

/* Checks that the child has no connection of its parent, only the program's descriptors. */
static int child_work(void)
{
        char *memory = malloc(1 << 20);
        int devices = -1;
        CUresult r;

        if (!memory)
                return 1;
        memset(memory, 1, 1 << 20);
        free(memory);
        /* The driver is unusable in a forked child, but its calls must return an error. */
        r = cu.DeviceGetCount(&devices);
        return r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1;
}

int main(int argc, char **argv)
{
        struct blocks b;
        uint64_t round = 0;

        program_begin(argc, argv,
                      &(struct options){.bytes = 8 * MIB, .block = 2 * MIB, .rounds = 3}, false);
        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0);
        for (; program_more(round); round++) {
                pid_t pid;

                launch_spin(2000000, b.verdict, b.stream); /* work in flight during the fork */
                (void)fflush(NULL);
                pid = fork();
                if (pid < 0)
                        program_fail(PROGRAM_EXIT_SETUP, "cannot fork");
                if (pid == 0)
                        exit(child_work());
                reap(pid, "the child that exits");
                pid = fork();
                if (pid < 0)
                        program_fail(PROGRAM_EXIT_SETUP, "cannot fork");
                if (pid == 0) {
                        (void)execlp("true", "true", (char *)NULL);
                        _exit(1);
                }
                reap(pid, "the child that executes");
                TRY(cu.StreamSynchronize(b.stream));
                /* Clears the verdict, because the spin has counted there. */
                TRY(cu.MemsetD8Async(b.verdict, 0, 8, b.stream));
                program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"",
                            (unsigned long long)round, (unsigned long long)blocks_step(&b, round));
        }
        blocks_free(&b);
        program_end();
}
