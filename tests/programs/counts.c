/* counts: on each of --count GPUs a kernel counts, into memory of the card and of the host, until
 * it is told to end. A test sees by the count in host memory whether the kernel runs or is frozen.
 * Behind the kernel, `step` kernels are queued that check and rewrite all memory. The main thread
 * calls the driver only for `start`, `end`, `fresh`, `gone` and at the end of the program. Orders
 * on stdin:
 *
 *   start        launches the kernels, and queues the `step` kernels behind them
 *   look         prints how far the kernels have counted
 *   call NAME    another thread makes this call, and prints a line when it has returned
 *   end          ends the kernels, and prints the sum of the `step` kernels
 *   fresh        after the call `reset`: fills and checks new memory
 *   gone         destroys all contexts
 *   fork         forks a child that ends at once
 *   become COMMAND  calls exec, without an answer
 *   exit         calls exit(), without an answer
 *
 * --how handles: prints a line at SIGINT, and goes on. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

#define GPUS_MAX 8
#define SPARE    (2 * MIB)

static const char text[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                           ".visible .entry count(.param .u64 host, .param .u64 word)\n"
                           "{\n"
                           ".reg .u64 %h, %w, %t;\n"
                           ".reg .u32 %n, %m, %end;\n"
                           ".reg .pred %more;\n"
                           "ld.param.u64 %h, [host];\n"
                           "ld.param.u64 %w, [word];\n"
                           "mov.u32 %n, 0;\n"
                           "LOOP:\n"
                           "add.u32 %n, %n, 1;\n"
                           "st.volatile.global.u32 [%h], %n;\n"
                           "ld.volatile.global.u32 %m, [%w];\n"
                           "add.u32 %m, %m, 1;\n"
                           "st.volatile.global.u32 [%w], %m;\n"
                           "ld.volatile.global.u32 %end, [%h+4];\n"
                           "setp.eq.u32 %more, %end, 0;\n"
                           "mov.u64 %t, %globaltimer;\n" /* the simulator slows such loops */
                           "@%more bra LOOP;\n"
                           "ret;\n"
                           "}\n";

struct shared {
        _Atomic uint32_t count, end;
};

static struct gpu {
        CUdevice device;
        CUcontext context;
        struct kernels kernels;
        CUmodule module;
        CUfunction function;
        struct blocks blocks;
        struct shared *shared;
        CUdeviceptr there, word;
} gpus[GPUS_MAX];

static uint64_t rounds;

static void use(struct gpu *g)
{
        TRY(cu.CtxSetCurrent(g->context));
        if (kernels.module != g->kernels.module) /* a thread beside may read them */
                kernels = g->kernels;
}

static void set_up(struct gpu *g, CUdevice device, size_t first)
{
        g->device = device;
        if (device > 0) {
                TRY(cu.DevicePrimaryCtxRetain(&g->context, device));
                TRY(cu.CtxSetCurrent(g->context));
                kernels_load(&g->kernels);
        } else {
                TRY(cu.CtxGetCurrent(&g->context));
                g->kernels = kernels;
        }
        use(g);
        TRY(cu.ModuleLoadData(&g->module, text));
        TRY(cu.ModuleGetFunction(&g->function, g->module, "count"));
        blocks_allocate(&g->blocks, options.bytes / options.count, options.block, first);
        blocks_fill(&g->blocks, 0);
        TRY(cu.MemAlloc(&g->word, 4));
        TRY(cu.MemHostAlloc((void **)&g->shared, sizeof(*g->shared), CU_MEMHOSTALLOC_DEVICEMAP));
        TRY(cu.MemHostGetDevicePointer(&g->there, g->shared, 0));
        TRY(cu.CtxSynchronize());
}

static void start(struct gpu *g)
{
        void *parameters[] = {&g->there, &g->word};
        struct blocks *b = &g->blocks;

        use(g);
        atomic_store(&g->shared->count, 0);
        atomic_store(&g->shared->end, 0);
        TRY(cu.MemsetD32(g->word, 0, 1));
        TRY(cu.CtxSynchronize());
        TRY(cu.LaunchKernel(g->function, 1, 1, 1, 1, 1, 1, 0, b->stream, parameters, NULL));
        for (size_t i = 0; i < b->n; i++)
                launch_step(b->block[i].at, b->block[i].bytes, b->block[i].origin,
                            pattern_key(options.seed, rounds),
                            pattern_key(options.seed, rounds + 1), b->verdict, b->stream);
}

static uint64_t end(struct gpu *g)
{
        uint32_t word;
        uint64_t sum;

        atomic_store(&g->shared->end, 1);
        use(g);
        sum = verdict_take(g->blocks.verdict, rounds, g->blocks.stream);
        TRY(cu.MemcpyDtoH(&word, g->word, 4));
        if (word != atomic_load(&g->shared->count))
                program_fail(PROGRAM_EXIT_WRONG, "the card has counted to %u, the host has seen %u",
                             word, atomic_load(&g->shared->count));
        return sum;
}

/* ---- calls beside the kernel ---- */

static CUdeviceptr spare;  /* memory that no kernel uses; each byte is 1 */
static CUdeviceptr pooled; /* allocated on stream `other` */
static CUdeviceptr ticks;  /* counter of `tiny`; 0 before each call */
static CUcontext second;   /* another context, with memory in it */
static CUstream other;
static CUevent event;
static CUmodule module;

static void expect_bytes(CUdeviceptr at, size_t n, unsigned char value)
{
        unsigned char *copy = malloc(n);

        if (!copy)
                program_fail(PROGRAM_EXIT_SETUP, "out of memory");
        TRY(cu.MemcpyDtoHAsync(copy, at, n, other));
        TRY(cu.StreamSynchronize(other));
        for (size_t i = 0; i < n; i++)
                if (copy[i] != value)
                        program_fail(PROGRAM_EXIT_WRONG, "byte %zu is %u, not %u", i, copy[i],
                                     value);
        free(copy);
}

static void expect_tick(void)
{
        uint32_t n;

        TRY(cu.StreamSynchronize(other));
        TRY(cu.MemcpyDtoHAsync(&n, ticks, 4, other));
        TRY(cu.StreamSynchronize(other));
        if (n != 1)
                program_fail(PROGRAM_EXIT_WRONG, "%u kernels counted, not 1", n);
}

static void call_wait(void)
{
        TRY(cu.StreamSynchronize(gpus[0].blocks.stream));
}

static void call_wait_all(void)
{
        TRY(cu.CtxSynchronize());
}

static void call_launch(void)
{
        launch_tiny(ticks, other);
        expect_tick();
}

static void call_alloc(void)
{
        CUdeviceptr at;

        TRY(cu.MemAlloc(&at, SPARE));
        TRY(cu.MemsetD8Async(at, 7, SPARE, other));
        expect_bytes(at, SPARE, 7);
        TRY(cu.MemFree(at));
}

static void call_free(void)
{
        TRY(cu.MemFree(spare));
}

static void call_pool(void)
{
        CUdeviceptr at;

        TRY(cu.MemAllocAsync(&at, SPARE, other));
        TRY(cu.MemsetD8Async(at, 9, SPARE, other));
        expect_bytes(at, SPARE, 9);
        TRY(cu.MemFreeAsync(at, other));
        TRY(cu.StreamSynchronize(other));
}

static void call_pool_free(void)
{
        TRY(cu.MemFreeAsync(pooled, other));
        TRY(cu.StreamSynchronize(other));
}

static void call_info(void)
{
        size_t unused, total;

        TRY(cu.MemGetInfo(&unused, &total));
        if (!total || unused > total)
                program_fail(PROGRAM_EXIT_WRONG, "%zu of %zu bytes are free", unused, total);
}

static void call_query(void)
{
        CUresult r = cu.StreamQuery(gpus[0].blocks.stream);

        if (r != CUDA_ERROR_NOT_READY)
                TRY(r);
        TRY(cu.StreamQuery(other));
        TRY(cu.EventQuery(event));
}

static void call_capture(void)
{
        CUgraphExec exec;
        CUgraph graph;

        TRY(cu.StreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        launch_tiny(ticks, other);
        TRY(cu.StreamEndCapture(other, &graph));
        TRY(cu.GraphInstantiateWithFlags(&exec, graph, 0));
        TRY(cu.GraphLaunch(exec, other));
        expect_tick();
        TRY(cu.GraphExecDestroy(exec));
        TRY(cu.GraphDestroy(graph));
}

static void call_load(void)
{
        CUfunction f;

        TRY(cu.ModuleLoadData(&module, text));
        TRY(cu.ModuleGetFunction(&f, module, "count"));
        TRY(cu.ModuleUnload(module));
}

static void call_copy(void)
{
        expect_bytes(spare, SPARE, 1);
}

static void call_set(void)
{
        TRY(cu.MemsetD8Async(spare, 3, SPARE, other));
        expect_bytes(spare, SPARE, 3);
}

static void call_destroy(void)
{
        TRY(cu.CtxDestroy(second));
}

static void call_create(void)
{
        CUdeviceptr at;
        CUcontext c;

        TRY(cu.CtxCreate(&c, 0, gpus[0].device));
        TRY(cu.MemAlloc(&at, SPARE));
        TRY(cu.CtxDestroy(c));
}

static void call_reset(void)
{
        TRY(cu.DevicePrimaryCtxReset(gpus[0].device));
}

static const struct call {
        const char *name;
        void (*make)(void);
} calls[] = {{"wait", call_wait},
             {"wait-all", call_wait_all},
             {"launch", call_launch},
             {"alloc", call_alloc},
             {"free", call_free},
             {"pool", call_pool},
             {"pool-free", call_pool_free},
             {"info", call_info},
             {"query", call_query},
             {"capture", call_capture},
             {"load", call_load},
             {"copy", call_copy},
             {"set", call_set},
             {"destroy", call_destroy},
             {"create", call_create},
             {"reset", call_reset}};

static void *make_call(void *one)
{
        const struct call *c = one;

        TRY(cu.CtxSetCurrent(gpus[0].context));
        program_say("begun", "\"call\":\"%s\"", c->name);
        c->make();
        program_say("returned", "\"call\":\"%s\"", c->name);
        return NULL;
}

static pthread_t beside(const char *name)
{
        pthread_t thread;

        for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
                if (!strcmp(calls[i].name, name)) {
                        if (pthread_create(&thread, NULL, make_call, (void *)&calls[i]))
                                program_fail(PROGRAM_EXIT_SETUP, "cannot create a thread");
                        return thread;
                }
        program_fail(PROGRAM_EXIT_USAGE, "%s: unknown call", name);
}

static void prepare_calls(void)
{
        CUdeviceptr at;

        use(&gpus[0]);
        TRY(cu.CtxCreate(&second, 0, gpus[0].device));
        TRY(cu.MemAlloc(&at, SPARE));
        use(&gpus[0]);
        TRY(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
        TRY(cu.EventCreate(&event, CU_EVENT_DEFAULT));
        TRY(cu.MemAlloc(&ticks, 4));
        TRY(cu.MemAlloc(&spare, SPARE));
        TRY(cu.MemAllocAsync(&pooled, SPARE, other));
        TRY(cu.MemsetD8Async(spare, 1, SPARE, other));
        TRY(cu.MemsetD32Async(ticks, 0, 1, other));
        TRY(cu.EventRecord(event, other));
        TRY(cu.CtxSynchronize());
}

/* ---- orders ---- */

static void fresh(void)
{
        struct blocks b;

        TRY(cu.DevicePrimaryCtxRetain(&gpus[0].context, gpus[0].device));
        TRY(cu.CtxSetCurrent(gpus[0].context));
        kernels_load(&gpus[0].kernels);
        kernels = gpus[0].kernels;
        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0);
        program_say("round", "\"round\":0,\"sum\":\"%016llx\"",
                    (unsigned long long)blocks_verify(&b, 0));
        blocks_free(&b);
}

/* Destroys all contexts, after the kernels have ended. */
static void gone(size_t n)
{
        TRY(cu.CtxDestroy(second));
        TRY(cu.CtxSetCurrent(NULL));
        for (size_t i = 0; i < n; i++) {
                TRY(cu.DevicePrimaryCtxRelease(gpus[i].device));
                gpus[i].shared = NULL;
        }
}

static void fork_one(void)
{
        int status = -1;
        pid_t child = fork();

        if (child == 0)
                _exit(0);
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
                program_fail(PROGRAM_EXIT_WRONG, "the child ended with %d", status);
}

static void become(const char *command)
{
        char words[512];

        (void)snprintf(words, sizeof(words), "exec %s", command);
        (void)execl("/bin/sh", "sh", "-c", words, (char *)NULL);
        program_fail(PROGRAM_EXIT_SETUP, "cannot execute %s", command);
}

static uint64_t end_all(size_t n)
{
        uint64_t sum = 0;

        for (size_t i = 0; i < n; i++)
                sum += end(&gpus[i]);
        program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"", (unsigned long long)rounds,
                    (unsigned long long)sum);
        rounds++;
        return sum;
}

static void say_done(const char *order, size_t n)
{
        uint64_t count = 0;

        for (size_t i = 0; i < n; i++)
                count += gpus[i].shared ? atomic_load(&gpus[i].shared->count) : 0;
        program_say("done", "\"order\":\"%s\",\"count\":%llu,\"at\":%llu", order,
                    (unsigned long long)count, (unsigned long long)program_now_ns());
}

int main(int argc, char **argv)
{
        bool was_reset = false, called = false;
        pthread_t thread;
        char line[512];
        size_t n;

        program_begin(argc, argv,
                      &(struct options){.bytes = 16 * MIB, .block = 4 * MIB, .count = 1}, false);
        options.count = MIN(MAX(options.count, 1u), (uint64_t)GPUS_MAX);
        n = options.count;
        for (size_t i = 0; i < n; i++)
                set_up(&gpus[i], (CUdevice)i, i * (options.bytes / n / options.block));
        prepare_calls();
        program_handle_interrupts();
        program_say("filled", "\"at\":%llu", (unsigned long long)program_now_ns());
        while (fgets(line, sizeof(line), stdin)) {
                line[strcspn(line, "\n")] = '\0';
                if (!strcmp(line, "start")) {
                        for (size_t i = 0; i < n; i++)
                                start(&gpus[i]);
                } else if (!strncmp(line, "call ", 5)) {
                        thread = beside(line + 5);
                        called = true;
                        was_reset = !strcmp(line + 5, "reset");
                } else if (!strcmp(line, "end") && was_reset) {
                        atomic_store(&gpus[0].shared->end, 1);
                } else if (!strcmp(line, "end")) {
                        (void)end_all(n);
                } else if (!strcmp(line, "fresh")) {
                        fresh();
                } else if (!strcmp(line, "gone")) {
                        gone(n);
                } else if (!strcmp(line, "fork")) {
                        fork_one();
                } else if (!strncmp(line, "become ", 7)) {
                        become(line + 7);
                } else if (!strcmp(line, "exit")) {
                        exit(0);
                } else if (strcmp(line, "look") != 0) {
                        program_fail(PROGRAM_EXIT_USAGE, "%s: unknown order", line);
                }
                if (was_reset)
                        program_say("done", "\"order\":\"%s\",\"count\":0", line);
                else
                        say_done(line, n);
        }
        if (called)
                (void)pthread_join(thread, NULL);
        for (size_t i = 0; i < n && !was_reset; i++) {
                use(&gpus[i]);
                (void)blocks_verify(&gpus[i].blocks, rounds);
        }
        use(&gpus[0]);
        program_end();
}
