/* memory_bench.h: what a program calls to allocate, to free and to ask about its memory, with a
 * real heap and neighbours that do as they are told. The driver's own answer to a call of the
 * program's is one that nobody else gives. */
#pragma once

#include "preload/state/core.h"
#include "preload/hooks/hooks.h"
#include "preload/stream/quiesce.h"

#define CARD       (128 * MIB) /* extents of 8 MiB */
#define EXTENT     (8 * MIB)
#define PAGE       HEAP_GRANULARITY
#define THE_DRIVER CUDA_ERROR_NOT_PERMITTED
#define CURRENT    ((CUcontext)(uintptr_t)0xc0) /* the calling thread's */
#define OWNER      ((CUcontext)(uintptr_t)0xc1) /* of what is allocated in it */

static struct gpu *const gpu = &core.gpus[0];

extern struct bench {
        struct gpu *current; /* the calling thread's; NULL: none of ours */
        bool contextless;    /* that thread has no context after all */
        bool forbids;        /* a capture forbids it to allocate and to free */

        /* What the daemon may promise, and what it was asked for. */
        uint64_t daemon_has, asked[8];
        unsigned asks;

        bool card_is_full;             /* where nobody can make room */
        bool (*reclaim)(uint64_t);     /* what pools have for nothing; NULL: nothing */
        void (*home)(void);            /* while it is found out whether managed memory leaves */
        bool provides;                 /* managed memory for a heap of it */
        uint64_t card_room, host_room; /* as the overflow sees it */
        bool overflow_full;
        CUdeviceptr told; /* to the overflow: memory is there */
        unsigned changes; /* told to it */

        enum quiescence quiet; /* what was submitted before, without a capture */
        void (*waiting)(void); /* while a free waits for it */
        unsigned looks;        /* that have begun */
        unsigned discarded, disowned;
        CUdeviceptr export_freed, pool_freed;
        CUmemoryPool pool; /* that POOL blocks are of */

        struct heap_place opened; /* from another process; bytes 0: nothing is */
        bool ipc;                 /* handles would reach somebody */
        CUdeviceptr mapped;       /* by the program, EXTENT bytes of a handle of its own */
        CUdeviceptr kept;         /* for a device, and how much */
        uint64_t kept_bytes;
        CUresult keeps; /* the answer to that */

        CUresult driver; /* its own answer, where it does answer */
        unsigned passed; /* calls of the program's that it was given */
} bench;

CUdeviceptr allocate(uint64_t bytes);
void release(CUdeviceptr at);
struct block *block_at(CUdeviceptr at);
/* So many bytes of a pool's block, which is made at the first time. */
CUdeviceptr allocate_from_pool(uint64_t bytes);
/* The agent looks after what was freed during a capture. */
bool reap(void);

int begin_memory(void **state);
/* The program has given back all it had: so have we. */
int end_memory(void **state);

#define MEMORY_TEST(name) cmocka_unit_test_setup_teardown(name, begin_memory, end_memory)
