/* busy: runs kernels of --ms each, one after the other, until the file of --until exists. Prints
 * for each when it began and ended, by the GPU's clock. --how:
 *
 *   stays
 *   execs    calls exec of itself after every --count kernels
 *   renames  the same, and names itself anew and asks for all of the time
 *   forks    forks three children before it uses CUDA; all of them work */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

static const char *const names[] = {"stays", "execs", "renames", "forks"};
enum way { WAY_STAYS, WAY_EXECS, WAY_RENAMES, WAY_FORKS };

static void exec_again(enum way way, char **argv)
{
        char name[32];

        (void)snprintf(name, sizeof(name), "another-%llu",
                       (unsigned long long)(program_now_ns() / 1000));
        if (way == WAY_RENAMES &&
            (setenv("SUBLET_NAME", name, 1) || setenv("SUBLET_SHARE", "1:1", 1) ||
             setenv("SUBLET_PRIORITY", "20", 1)))
                program_fail(PROGRAM_EXIT_SETUP, "cannot change the environment");
        (void)execv("/proc/self/exe", argv);
        program_fail(PROGRAM_EXIT_SETUP, "cannot execute itself");
}

int main(int argc, char **argv)
{
        const struct options defaults = {.ms = 5, .count = 40, .how = "stays"};
        uint64_t *stamps;
        CUdeviceptr at;
        enum way way;

        program_options(argc, argv, &defaults);
        way = (enum way)program_how(names, ARRAY_SIZE(names));
        for (unsigned i = 0; way == WAY_FORKS && i < 3 && fork() > 0; i++)
                ;
        optind = 1; /* the options are read again */
        program_begin(argc, argv, &defaults, false);
        stamps = calloc(2, sizeof(*stamps));
        if (!stamps)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        TRY(cu.MemAlloc(&at, 16));
        for (uint64_t n = 1; program_more(n); n++) {
                launch_stamp((uint64_t)(options.ms * 1e6), at, NULL);
                TRY(cu.MemcpyDtoH(stamps, at, 16));
                program_say("ran", "\"at\":[%llu,%llu]", (unsigned long long)stamps[0],
                            (unsigned long long)stamps[1]);
                if ((way == WAY_EXECS || way == WAY_RENAMES) && n == options.count)
                        exec_again(way, argv);
        }
        free(stamps);
        if (way == WAY_FORKS)
                while (wait(NULL) > 0)
                        ;
        program_end();
}
