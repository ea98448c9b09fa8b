/* hold: fills its memory and waits. Obeys the lines on stdin, and answers each with a JSON line:
 *
 *   touch      check and rewrite everything         verify     check everything
 *   info       print the driver's free bytes        wait FILE  wait until the file exists
 *   look N     check only the first N blocks
 *   array MIB  destroy the program's array, and make one of that size unless it is 0
 *   spin MS    run one long kernel
 *   load FILE  load a library
 *   exit       check and leave (so does the end of stdin)
 *   become COMMAND  call exec, without an answer
 *
 * --how handles: prints a line at SIGINT, and goes on. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

/* Replaces the program's array by one of that size. */
static void have_array(size_t mib)
{
        const CUDA_ARRAY3D_DESCRIPTOR shape = {
                .Width = 1024, .Height = mib * 256, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
        static CUarray array;

        if (array)
                TRY(cu.ArrayDestroy(array));
        array = NULL;
        if (mib)
                TRY(cu.Array3DCreate(&array, &shape));
}

static void become(const char *command)
{
        char text[512];

        (void)snprintf(text, sizeof(text), "exec %s", command);
        (void)execl("/bin/sh", "sh", "-c", text, (char *)NULL);
        program_fail(PROGRAM_EXIT_SETUP, "cannot execute %s", command);
}

int main(int argc, char **argv)
{
        struct blocks b;
        uint64_t round = 0;
        char line[512];

        program_begin(argc, argv, &(struct options){.bytes = 48 * MIB, .block = 4 * MIB}, false);
        program_handle_interrupts();
        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0);
        program_say("filled", "\"at\":%llu", (unsigned long long)program_now_ns());
        while (fgets(line, sizeof(line), stdin)) {
                uint64_t began = program_now_ns(), sum = 0;
                size_t free_bytes, total_bytes;

                line[strcspn(line, "\n")] = '\0';
                TRY(cu.MemGetInfo(&free_bytes, &total_bytes));
                if (!strcmp(line, "touch"))
                        sum = blocks_step(&b, round++);
                else if (!strcmp(line, "verify"))
                        sum = blocks_verify(&b, round);
                else if (!strncmp(line, "look ", 5)) {
                        struct blocks part = b;

                        part.n = MIN(strtoul(line + 5, NULL, 10), b.n);
                        sum = blocks_verify(&part, round);
                } else if (!strncmp(line, "spin ", 5)) {
                        launch_spin((uint64_t)(strtod(line + 5, NULL) * 1e6), b.verdict, b.stream);
                        TRY(cu.StreamSynchronize(b.stream));
                        /* Clears the verdict, because the spin has counted there. */
                        TRY(cu.MemsetD8Async(b.verdict, 0, 8, b.stream));
                } else if (!strncmp(line, "array ", 6)) {
                        have_array(strtoul(line + 6, NULL, 10));
                } else if (!strncmp(line, "wait ", 5)) {
                        while (access(line + 5, F_OK) < 0)
                                (void)usleep(10000);
                } else if (!strncmp(line, "load ", 5)) {
                        if (!dlopen(line + 5, RTLD_NOW))
                                program_fail(PROGRAM_EXIT_SETUP, "dlopen: %s", dlerror());
                } else if (!strncmp(line, "become ", 7)) {
                        become(line + 7);
                } else if (!strcmp(line, "exit"))
                        break;
                else if (strcmp(line, "info") != 0)
                        program_fail(PROGRAM_EXIT_USAGE, "%s: unknown order", line);
                program_say("done",
                            "\"order\":\"%s\",\"round\":%llu,\"sum\":\"%016llx\",\"free\":%zu,"
                            "\"total\":%zu,\"ms\":%.3f,\"at\":%llu",
                            line, (unsigned long long)round, (unsigned long long)sum, free_bytes,
                            total_bytes, (double)(program_now_ns() - began) / 1e6,
                            (unsigned long long)program_now_ns());
        }
        program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"", (unsigned long long)round,
                    (unsigned long long)blocks_verify(&b, round));
        if (options.sample)
                blocks_sample(&b, round, options.sample);
        blocks_free(&b);
        program_end();
}
