/* together: one thread allocates --bytes; another thread allocates --block when a line comes on
 * stdin. Prints both answers. */
#include <pthread.h>
#include <stdio.h>

#include "base/macros.h"
#include "program.h"

static void *large(void *result)
{
        CUdeviceptr at;

        program_thread();
        *(CUresult *)result = cu.MemAlloc(&at, options.bytes);
        return NULL;
}

int main(int argc, char **argv)
{
        CUresult first, second;
        pthread_t thread;
        CUdeviceptr at;
        char line[16];

        program_begin(argc, argv, &(struct options){.bytes = 16 * MIB, .block = 4 * MIB}, false);
        if (pthread_create(&thread, NULL, large, &first))
                program_fail(PROGRAM_EXIT_SETUP, "cannot create a thread");
        if (!fgets(line, sizeof(line), stdin))
                program_fail(PROGRAM_EXIT_USAGE, "no line");
        second = cu.MemAlloc(&at, options.block);
        (void)pthread_join(thread, NULL);
        program_say("answers", "\"bytes\":%d,\"block\":%d", (int)first, (int)second);
        program_end();
}
