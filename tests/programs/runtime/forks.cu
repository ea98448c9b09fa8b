/* forks: children are forked while work is in flight; one child exits, and one executes this program
 * again, which uses the card alone. */
#include "runtime.cuh"

#include <sys/wait.h>

static void reap(pid_t pid)
{
        int status;

        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
                fail("a child did not end well");
}

int main(int argc, char **argv)
{
        size_t n = 1 << 20;
        uint32_t *at;

        TRY(cudaMalloc(&at, n * 4));
        fill<<<64, 256>>>(at, n, (uint32_t)argc);
        for (unsigned i = 0; i < 3; i++) {
                pid_t pid;

                for (unsigned k = 0; k < 30; k++)
                        step<<<64, 256>>>(at, n, k);
                pid = fork();
                if (pid == 0) { /* the driver must answer the child; any answer is right */
                        int count;

                        (void)cudaGetDeviceCount(&count);
                        exit(0);
                }
                reap(pid);
                if (argc > 1)
                        continue;
                pid = fork();
                if (pid == 0) {
                        (void)execl("/proc/self/exe", argv[0], "again", (char *)NULL);
                        _exit(1);
                }
                reap(pid);
        }
        say("at", sum_on_card(at, n));
        return done();
}
