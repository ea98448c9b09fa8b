/* ipc: a process exports memory and an event. A program that it executes opens both, changes the memory,
 * and reports that by the event and a pipe. */
#include "runtime.cuh"

#include <sys/wait.h>

enum { WORDS = 1 << 20, ROUNDS = 8 };

struct ticket {
        cudaIpcMemHandle_t memory;
        cudaIpcEventHandle_t event;
        size_t offset;
};

static void all(bool out, int fd, void *data, size_t bytes)
{
        ssize_t n = out ? write(fd, data, bytes) : read(fd, data, bytes);

        if (n != (ssize_t)bytes)
                fail("the other process is gone");
}

static int importer(void)
{
        struct ticket t;
        cudaEvent_t event;
        void *memory;
        char word;

        all(false, 0, &t, sizeof(t));
        TRY(cudaIpcOpenMemHandle(&memory, t.memory, cudaIpcMemLazyEnablePeerAccess));
        TRY(cudaIpcOpenEventHandle(&event, t.event));
        for (unsigned i = 0; i < ROUNDS; i++) {
                all(false, 0, &word, 1);
                TRY(cudaStreamWaitEvent(0, event, 0));
                step<<<64, 256>>>((uint32_t *)((char *)memory + t.offset), WORDS, i + 100);
                TRY(cudaStreamSynchronize(0));
                all(true, 1, &word, 1);
        }
        TRY(cudaIpcCloseMemHandle(memory));
        TRY(cudaEventDestroy(event));
        return 0;
}

int main(int argc, char **argv)
{
        int to[2], from[2], status;
        struct ticket t = {};
        cudaEvent_t event;
        uint32_t *at, *other;
        char word = 1;
        pid_t pid;

        if (argc > 1)
                return importer();
        if (pipe(to) || pipe(from))
                fail("no pipe");
        pid = fork();
        if (pid == 0) {
                (void)dup2(to[0], 0);
                (void)dup2(from[1], 1);
                (void)execl("/proc/self/exe", argv[0], "import", (char *)NULL);
                _exit(1);
        }
        TRY(cudaMalloc(&other, 1 << 20));
        TRY(cudaMalloc(&at, WORDS * 4));
        fill<<<64, 256>>>(at, WORDS, 4);
        TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
        TRY(cudaIpcGetMemHandle(&t.memory, at));
        TRY(cudaIpcGetEventHandle(&t.event, event));
        all(true, to[1], &t, sizeof(t));
        for (unsigned i = 0; i < ROUNDS; i++) {
                for (unsigned k = 0; k < 10; k++)
                        step<<<64, 256>>>(at, WORDS, k);
                TRY(cudaEventRecord(event));
                all(true, to[1], &word, 1);
                all(false, from[0], &word, 1);
        }
        if (waitpid(pid, &status, 0) != pid || status != 0)
                fail("the importer did not end well");
        say("shared", sum_on_card(at, WORDS));
        TRY(cudaFree(at));
        return done();
}
