/* memory_bench.h: what a program calls to allocate, free and ask about its memory, on a real heap
 * and with fakes of the other modules that a test steers. When a call reaches the driver, the
 * driver answers THE_DRIVER, a result that nothing else returns. */
#pragma once

#include "preload/state/core.h"
#include "preload/hooks/hooks.h"
#include "preload/stream/quiesce.h"

#define CARD       (128 * MIB) /* makes extents of 8 MiB */
#define EXTENT     (8 * MIB)
#define PAGE       HEAP_GRANULARITY
#define THE_DRIVER CUDA_ERROR_NOT_PERMITTED
#define CURRENT    ((CUcontext)(uintptr_t)0xc0) /* the calling thread's context */
#define OWNER      ((CUcontext)(uintptr_t)0xc1) /* owns what CURRENT allocates */

static struct gpu *const gpu = &core.gpus[0];

extern struct bench {
        struct gpu *current; /* GPU of the calling thread; NULL: none that we manage */
        bool contextless;    /* the calling thread has no context after all */
        bool forbids;        /* a capture forbids allocating and freeing */

        /* Bytes that the daemon may promise, and the requests it received. */
        uint64_t daemon_has, asked[8];
        unsigned asks;

        bool card_is_full;             /* nobody can make room on it */
        bool (*reclaim)(uint64_t);     /* frees what pools can spare; NULL: nothing */
        void (*home)(void);            /* called by home_find_out() */
        bool provides;                 /* managed_provide() succeeds */
        uint64_t card_room, host_room; /* room that the overflow module reports */
        bool overflow_full;
        CUdeviceptr told; /* last address reported to the overflow */
        unsigned changes; /* calls of core_room_changed() */

        enum quiescence quiet; /* state of submitted work outside captures */
        void (*waiting)(void); /* called while a free waits for work */
        unsigned looks;        /* calls of quiesce_begin() */
        unsigned discarded, disowned;
        CUdeviceptr export_freed, pool_freed;
        CUmemoryPool pool; /* the pool that POOL blocks belong to */

        struct heap_place opened; /* memory of another process; bytes 0: none */
        bool ipc;                 /* the library can export IPC handles */
        CUdeviceptr mapped;       /* EXTENT bytes that the program mapped itself */
        CUdeviceptr kept;         /* range that rdma_keep() received */
        uint64_t kept_bytes;
        CUresult keeps; /* result of rdma_keep() */

        CUresult driver; /* the driver's answer to what reaches it */
        unsigned passed; /* calls of the program that reached the driver */
} bench;

CUdeviceptr allocate(uint64_t bytes);
void release(CUdeviceptr at);
struct block *block_at(CUdeviceptr at);
/* Takes so many bytes from a pool's block; the first call creates the block. */
CUdeviceptr allocate_from_pool(uint64_t bytes);
/* The agent frees what waited for a capture to end. true: more is waiting. */
bool reap(void);

int begin_memory(void **state);
/* The program has freed everything: the heap must be empty. */
int end_memory(void **state);

#define MEMORY_TEST(name) cmocka_unit_test_setup_teardown(name, begin_memory, end_memory)
