/* share: memory that several processes have open. Orders come from stdin, each with an answer.
 *
 *   export FILE   write handles of the own memory, and of an event, for others to open
 *   import FILE   open them; "result" is the driver's answer to the first that failed
 *   again         open the imported memory once more, at the same addresses
 *   own N         check that the own memory has round N's contents, write N+1's, record the event
 *   theirs N      the same for the imported memory, after the event
 *   device        make descriptors of the own memory for a device other than a GPU
 *   tokens        ask about the own memory what such a device's driver asks
 *   touch         check and rewrite the --count blocks that no other process has
 *   second        copy the imported memory to the second GPU, where the process has no context yet
 *   free, close   free the own memory; close the imported memory once
 *   renew         free the first block of the own memory while a capture goes on, and allocate it
 *                 again at the same address
 *   fork          leave a child behind that has all the process's open descriptors
 *   info, exit
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

#define OTHERS 1000 /* the first number of the blocks that no other process has */

struct shared {
        CUipcMemHandle handle;
        uint64_t bytes, origin;
};

struct list {
        uint64_t n;
        CUipcEventHandle event;
};

static struct blocks own, private, theirs;
static CUevent recorded, theirs_recorded;
static struct shared *opened;

static void write_all(FILE *f, const void *data, size_t bytes)
{
        if (fwrite(data, 1, bytes, f) != bytes)
                program_fail(PROGRAM_EXIT_SETUP, "cannot write handles");
}

static void read_all(FILE *f, void *data, size_t bytes)
{
        if (fread(data, 1, bytes, f) != bytes)
                program_fail(PROGRAM_EXIT_SETUP, "cannot read handles");
}

static void export_to(const char *path)
{
        struct list list = {.n = own.n};
        FILE *f = fopen(path, "we");

        if (!f)
                program_fail(PROGRAM_EXIT_SETUP, "%s: cannot be written", path);
        TRY(cu.IpcGetEventHandle(&list.event, recorded));
        write_all(f, &list, sizeof(list));
        for (size_t i = 0; i < own.n; i++) {
                struct shared s = {.bytes = own.block[i].bytes, .origin = own.block[i].origin};
                CUipcMemHandle again;

                /* Each address of an allocation must give the handle of the whole allocation. */
                TRY(cu.IpcGetMemHandle(&s.handle, own.block[i].at + s.bytes / 2));
                TRY(cu.IpcGetMemHandle(&again, own.block[i].at));
                if (memcmp(&again, &s.handle, sizeof(again)) != 0)
                        program_fail(PROGRAM_EXIT_WRONG, "two handles of one allocation");
                write_all(f, &s, sizeof(s));
        }
        (void)fclose(f);
}

static CUresult open_one(size_t i, bool again)
{
        CUdeviceptr at = 0, base;
        size_t bytes;
        CUresult r = cu.IpcOpenMemHandle(&at, opened[i].handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

        if (r != CUDA_SUCCESS)
                return r;
        if (again && at != theirs.block[i].at)
                program_fail(PROGRAM_EXIT_WRONG, "opened twice, at two addresses");
        TRY(cu.MemGetAddressRange(&base, &bytes, at + 8));
        if (base != at || bytes < opened[i].bytes)
                program_fail(PROGRAM_EXIT_WRONG, "an allocation of another size or place");
        theirs.block[i] =
                (struct block){.at = at, .bytes = opened[i].bytes, .origin = opened[i].origin};
        return CUDA_SUCCESS;
}

static CUresult import_from(const char *path)
{
        FILE *f = fopen(path, "re");
        struct list list;
        CUresult r;

        if (!f)
                program_fail(PROGRAM_EXIT_SETUP, "%s: cannot be read", path);
        read_all(f, &list, sizeof(list));
        opened = calloc(list.n, sizeof(*opened));
        theirs = (struct blocks){.block = calloc(list.n, sizeof(*theirs.block)),
                                 .verdict = verdict_new(),
                                 .stream = private.stream};
        if (!opened || !theirs.block)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        read_all(f, opened, list.n * sizeof(*opened));
        (void)fclose(f);
        r = cu.IpcOpenEventHandle(&theirs_recorded, list.event);
        for (; r == CUDA_SUCCESS && theirs.n < list.n; theirs.n++) {
                r = open_one(theirs.n, false);
                if (r != CUDA_SUCCESS)
                        break;
        }
        return r;
}

static void close_all(void)
{
        for (size_t i = 0; i < theirs.n; i++)
                TRY(cu.IpcCloseMemHandle(theirs.block[i].at));
}

/* Exports memory and keeps the descriptors open to the end, as a device would. */
static CUresult export_to_device(void)
{
        CUresult r = CUDA_SUCCESS;

        for (size_t i = 0; i < own.n && r == CUDA_SUCCESS; i++) {
                int fd = -1;

                r = cu.MemGetHandleForAddressRange(&fd, own.block[i].at, own.block[i].bytes,
                                                   CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
        }
        return r;
}

/* Asks for tokens, as programs do that are about to register the addresses with a device. */
static CUresult ask_for_tokens(void)
{
        CUresult r = CUDA_SUCCESS;

        for (size_t i = 0; i < own.n && r == CUDA_SUCCESS; i++) {
                uint64_t tokens[2];

                r = cu.PointerGetAttribute(tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS,
                                           own.block[i].at);
        }
        return r;
}

static void renew(void)
{
        CUdeviceptr at = own.block[0].at, base;
        CUstream s;
        CUgraph graph;
        size_t bytes;

        TRY(cu.StreamCreate(&s, CU_STREAM_NON_BLOCKING));
        TRY(cu.StreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        TRY(cu.MemFree(at));
        TRY(cu.StreamEndCapture(s, &graph));
        TRY(cu.GraphDestroy(graph));
        TRY(cu.StreamDestroy(s));
        while (cu.MemGetAddressRange(&base, &bytes, at) == CUDA_SUCCESS)
                (void)usleep(1000);
        TRY(cu.MemAlloc(&base, own.block[0].bytes));
        if (base != at)
                program_fail(PROGRAM_EXIT_WRONG, "allocated again at another address");
}

static CUresult copy_to_second(void)
{
        CUcontext first, second;
        CUdeviceptr copy;
        CUresult r;

        TRY(cu.CtxGetCurrent(&first));
        TRY(cu.DevicePrimaryCtxRetain(&second, 1));
        TRY(cu.CtxSetCurrent(second));
        TRY(cu.MemAlloc(&copy, theirs.block[0].bytes));
        r = cu.MemcpyDtoD(copy, theirs.block[0].at, theirs.block[0].bytes);
        if (r == CUDA_SUCCESS)
                r = cu.CtxSynchronize();
        TRY(cu.MemFree(copy));
        TRY(cu.CtxSetCurrent(first));
        TRY(cu.DevicePrimaryCtxRelease(1));
        return r;
}

/* Makes a child as a library might, without the handlers of fork(). */
static void leave_child(void)
{
        if (syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) != 0)
                return;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
                (void)pause();
}

static uint64_t step_own(uint64_t round)
{
        uint64_t sum = blocks_step(&own, round);

        TRY(cu.EventRecord(recorded, own.stream));
        return sum;
}

static uint64_t step_theirs(uint64_t round)
{
        TRY(cu.StreamWaitEvent(theirs.stream, theirs_recorded, 0));
        return blocks_step(&theirs, round);
}

int main(int argc, char **argv)
{
        uint64_t round = 0;
        char line[512];

        program_begin(argc, argv, &(struct options){.bytes = 16 * MIB, .block = 4 * MIB}, false);
        blocks_allocate(&own, options.bytes, options.block, 0);
        blocks_fill(&own, 0);
        blocks_allocate(&private, options.count * options.block, options.block, OTHERS);
        blocks_fill(&private, 0);
        TRY(cu.EventCreate(&recorded, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
        program_say("filled", "\"at\":%llu", (unsigned long long)program_now_ns());
        while (fgets(line, sizeof(line), stdin)) {
                size_t free_bytes, total_bytes;
                CUresult result = CUDA_SUCCESS;
                uint64_t sum = 0;

                line[strcspn(line, "\n")] = '\0';
                if (!strncmp(line, "export ", 7))
                        export_to(line + 7);
                else if (!strncmp(line, "import ", 7))
                        result = import_from(line + 7);
                else if (!strcmp(line, "again"))
                        for (size_t i = 0; i < theirs.n && result == CUDA_SUCCESS; i++)
                                result = open_one(i, true);
                else if (!strncmp(line, "own ", 4))
                        sum = step_own(strtoull(line + 4, NULL, 10));
                else if (!strncmp(line, "theirs ", 7))
                        sum = step_theirs(strtoull(line + 7, NULL, 10));
                else if (!strcmp(line, "touch"))
                        sum = blocks_step(&private, round++);
                else if (!strcmp(line, "second"))
                        result = copy_to_second();
                else if (!strcmp(line, "device"))
                        result = export_to_device();
                else if (!strcmp(line, "tokens"))
                        result = ask_for_tokens();
                else if (!strcmp(line, "free"))
                        blocks_free(&own);
                else if (!strcmp(line, "close"))
                        close_all();
                else if (!strcmp(line, "renew"))
                        renew();
                else if (!strcmp(line, "fork"))
                        leave_child();
                else if (!strcmp(line, "exit"))
                        break;
                else if (strcmp(line, "info") != 0)
                        program_fail(PROGRAM_EXIT_USAGE, "%s: unknown order", line);
                TRY(cu.MemGetInfo(&free_bytes, &total_bytes));
                program_say("done",
                            "\"order\":\"%.6s\",\"result\":%d,\"sum\":\"%016llx\",\"free\":%zu,"
                            "\"at\":%llu",
                            line, (int)result, (unsigned long long)sum, free_bytes,
                            (unsigned long long)program_now_ns());
        }
        program_end();
}
