/* depend: work that waits for work submitted later. Each round queues kernels that check and
 * rewrite all memory. They wait for something that another thread releases --ms later. --how:
 *
 *   value    a stream waits for a value in memory; a copy on another stream writes the value
 *   write    the same, but cuStreamWriteValue32 on another stream writes the value
 *   kernel   a kernel looks for a value in device memory; a fill on another stream writes it
 *   host     a kernel looks for a value in host memory; another thread writes it when work of its
 *            own is done
 *   function a host function waits for another thread, which has work of its own done first
 *   inside   as value, while a thread is inside a copy that waits for all that work
 *   full     as value, while a thread is inside the driver because the stream's queue is full
 *   fullhost as full, but a host thread writes the value and needs no driver for it
 *   fullfree as fullhost, and another thread is inside cuMemFree while the writing thread allocates
 *   delay    a kernel looks for a value in host memory; the submitting thread itself writes it,
 *            --ms after it has submitted everything behind the kernel */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

#define MOST_S  120 /* limit of every wait */
#define MOST_NS (MOST_S * UINT64_C(1000000000))

enum how { VALUE, WRITE, KERNEL, HOST, FUNCTION, INSIDE, FULL, FULLHOST, FULLFREE, DELAY };
static const char *const names[] = {"value",  "write", "kernel",   "host",     "function",
                                    "inside", "full",  "fullhost", "fullfree", "delay"};

static enum how how;
static struct blocks b;
static CUstream other;      /* the stream of later submissions */
static CUdeviceptr flag;    /* a word on the device: the last round that was released */
static uint32_t *word;      /* the same number in pinned host memory */
static CUdeviceptr mapped;  /* the device's address of that host memory */
static CUdeviceptr counter; /* the counter of `tiny`, and behind it the counter of `await` */
static _Atomic uint32_t freed;
static CUdeviceptr spare; /* memory allocated in one round and freed in the next */

static void host_function(void *round)
{
        const struct timespec nap = {.tv_nsec = 100000};
        uint64_t until = program_now_ns() + MOST_NS;

        while (atomic_load(&freed) < (uint32_t)(uintptr_t)round && program_now_ns() < until)
                (void)nanosleep(&nap, NULL);
}

/* Submits what the round waits for, and behind it the round's work. */
static void hold_back(uint32_t round)
{
        switch (how) {
        case VALUE:
        case WRITE:
        case INSIDE:
        case FULL:
                TRY(cu.StreamWaitValue32(b.stream, flag, round, CU_STREAM_WAIT_VALUE_GEQ));
                break;
        case FULLHOST:
        case FULLFREE:
                TRY(cu.StreamWaitValue32(b.stream, mapped, round, CU_STREAM_WAIT_VALUE_GEQ));
                break;
        case KERNEL:
                launch_await(flag, round, 0, 0, MOST_NS, counter + 4, b.stream);
                break;
        case HOST:
        case DELAY:
                launch_await(mapped, round, 0, 0, MOST_NS, counter + 4, b.stream);
                break;
        case FUNCTION:
                TRY(cu.LaunchHostFunc(b.stream, host_function, (void *)(uintptr_t)round));
                break;
        }
        for (size_t i = 0; i < b.n; i++)
                launch_step(b.block[i].at, b.block[i].bytes, b.block[i].origin,
                            pattern_key(options.seed, round - 1), pattern_key(options.seed, round),
                            b.verdict, b.stream);
}

static void *free_spare(void *unused)
{
        program_thread();
        TRY(cu.MemFree(spare));
        return unused;
}

static void *set_free(void *argument)
{
        uint32_t round = (uint32_t)(uintptr_t)argument;
        CUdeviceptr next;
        pthread_t thread;

        (void)usleep((useconds_t)(options.ms * 1000));
        program_thread();
        switch (how) {
        case VALUE:
        case INSIDE:
        case FULL:
                *word = round;
                TRY(cu.MemcpyHtoDAsync(flag, word, 4, other));
                break;
        case WRITE:
                TRY(cu.StreamWriteValue32(other, flag, round, 0));
                break;
        case KERNEL:
                TRY(cu.MemsetD32Async(flag, round, 1, other));
                break;
        case FULLHOST:
                __atomic_store_n(word, round, __ATOMIC_RELEASE);
                break;
        case FULLFREE:
                if (pthread_create(&thread, NULL, free_spare, NULL))
                        program_fail(PROGRAM_EXIT_SETUP, "no thread");
                (void)usleep((useconds_t)(options.ms * 1000));
                TRY(cu.MemAlloc(&next, 4));
                __atomic_store_n(word, round, __ATOMIC_RELEASE);
                (void)pthread_join(thread, NULL);
                spare = next;
                break;
        case DELAY: /* the calling thread has submitted all the work */
                __atomic_store_n(word, round, __ATOMIC_RELEASE);
                break;
        case HOST:
        case FUNCTION:
                TRY(cu.MemsetD32Async(flag, round, 1, other));
                TRY(cu.StreamSynchronize(other));
                __atomic_store_n(word, round, __ATOMIC_RELEASE);
                atomic_store(&freed, round);
                break;
        }
        return NULL;
}

int main(int argc, char **argv)
{
        uint32_t round = 0, counts[2];
        pthread_t thread;
        bool full;

        program_begin(argc, argv,
                      &(struct options){.bytes = 16 * MIB,
                                        .block = 4 * MIB,
                                        .rounds = 3,
                                        .ms = 100,
                                        .count = 1500,
                                        .how = "value"},
                      false);
        how = (enum how)program_how(names, ARRAY_SIZE(names));
        full = how == FULL || how == FULLHOST || how == FULLFREE;
        (void)alarm(MOST_S);
        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0);
        /* These streams synchronise with the default stream. With --how inside, the stream `other`
         * does not, because a thread waits inside a copy for all streams that do. */
        TRY(cu.StreamDestroy(b.stream));
        TRY(cu.StreamCreate(&b.stream, 0));
        TRY(cu.StreamCreate(&other, how == INSIDE ? CU_STREAM_NON_BLOCKING : 0));
        TRY(cu.MemAlloc(&flag, 4));
        TRY(cu.MemAlloc(&spare, 4));
        TRY(cu.MemAlloc(&counter, 8));
        TRY(cu.MemsetD32(flag, 0, 1));
        TRY(cu.MemsetD32(counter, 0, 2));
        TRY(cu.CtxSynchronize());
        TRY(cu.MemHostAlloc((void **)&word, 4, CU_MEMHOSTALLOC_DEVICEMAP));
        TRY(cu.MemHostGetDevicePointer(&mapped, word, 0));
        *word = 0;
        program_say("filled", "\"how\":\"%s\"", options.how);
        do {
                round++;
                if (how != DELAY &&
                    pthread_create(&thread, NULL, set_free, (void *)(uintptr_t)round))
                        program_fail(PROGRAM_EXIT_SETUP, "no thread");
                hold_back(round);
                if (how == INSIDE)
                        TRY(cu.MemcpyDtoH(counts, counter, 8));
                for (uint64_t i = 0; full && i < options.count; i++)
                        launch_tiny(counter, b.stream);
                if (how == DELAY)
                        (void)set_free((void *)(uintptr_t)round);
                else
                        (void)pthread_join(thread, NULL);
                program_say("round", "\"round\":%u,\"sum\":\"%016llx\"", round - 1,
                            (unsigned long long)verdict_take(b.verdict, round - 1, b.stream));
        } while (program_more(round));
        program_say("round", "\"round\":%u,\"sum\":\"%016llx\"", round,
                    (unsigned long long)blocks_verify(&b, round));
        TRY(cu.MemcpyDtoH(counts, counter, 8));
        if (counts[0] != (full ? (uint32_t)(round * options.count) : 0) || counts[1])
                program_fail(PROGRAM_EXIT_WRONG, "%u launches counted, %u kernels gave up",
                             counts[0], counts[1]);
        if (options.sample)
                blocks_sample(&b, round, options.sample);
        TRY(cu.MemFree(flag));
        TRY(cu.MemFree(counter));
        TRY(cu.MemFree(spare));
        TRY(cu.MemFreeHost(word));
        TRY(cu.StreamDestroy(other));
        blocks_free(&b);
        program_end();
}
