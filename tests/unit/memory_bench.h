/* memory_bench.h: the calls by which a program allocates, frees and asks about memory, on a real
 * heap. A test sets the answers of the other modules, which are fakes. A call that reaches the
 * driver returns THE_DRIVER, a result that nothing else returns. */
#pragma once

#include "preload/state/core.h"
#include "preload/hooks/hooks.h"
#include "preload/stream/quiesce.h"

#define CARD       (128 * MIB) /* makes extents of 8 MiB */
#define EXTENT     (8 * MIB)
#define PAGE       HEAP_GRANULARITY
#define THE_DRIVER CUDA_ERROR_NOT_PERMITTED
#define CURRENT    ((CUcontext)(uintptr_t)0xc0) /* the calling thread's context */
#define OWNER      ((CUcontext)(uintptr_t)0xc1) /* owner of memory allocated in CURRENT */

static struct gpu *const gpu = &core.gpus[0];

extern struct bench {
        bool contextless; /* the calling thread has a GPU and no context */
        bool forbids;     /* a capture forbids allocating and freeing */

        /* Bytes that the daemon may promise, and the requests it received. */
        uint64_t daemon_has, asked[8];
        unsigned asks;

        bool (*reclaim)(uint64_t);     /* frees unused memory of pools; NULL: there is none */
        void (*home)(void);            /* called by home_find_out() */
        bool provides;                 /* managed_provide() succeeds */
        uint64_t card_room, host_room; /* room that the overflow module reports */
        CUdeviceptr told;              /* last address reported to the overflow */

        unsigned disowned;
        CUdeviceptr export_freed, pool_freed;
        CUmemoryPool pool; /* the pool that POOL blocks belong to */
        uint64_t pools;    /* result of pool_settle() */
        CUstream busy;     /* a stream with work */
        uint64_t graphs;   /* bytes that the driver holds for graphs */

        struct heap_place opened; /* memory of another process; bytes 0: none */
        CUdeviceptr mapped;       /* address of EXTENT bytes that the program mapped itself */
        CUdeviceptr kept;         /* start of the range that rdma_keep() received */
        uint64_t kept_bytes;
        CUresult keeps; /* result of rdma_keep() */

        CUresult driver; /* the driver's answer to calls that reach it */
        unsigned passed; /* calls of the program that reached the driver */
} bench;

CUdeviceptr allocate(uint64_t bytes);
void release(CUdeviceptr at);
struct block *block_at(CUdeviceptr at);
/* Takes so many bytes from a pool's block; the first call creates the block. */
CUdeviceptr allocate_from_pool(uint64_t bytes);
/* Frees, as the agent does, memory whose free waited for a capture. True: more is waiting. */
bool reap(void);

int begin_memory(void **state);
/* Checks that the heap is empty: the test must have freed all memory. */
int end_memory(void **state);

#define MEMORY_TEST(name) cmocka_unit_test_setup_teardown(name, begin_memory, end_memory)
