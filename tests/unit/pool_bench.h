/* pool_bench.h: fakes for the tests of pools: streams whose work ends when a test says so, a daemon
 * that promises bytes that a test has set, and a clock that only tests advance.
 *
 * The tests hold core_lock. */
#pragma once

#include "fakes/preload.h"
#include "preload/state/core.h"
#include "preload/pool/pool.h"

#define POOL_CARD GIB /* makes extents of 64 MiB; a pool's first extents have 32 MiB */
#define WHOLE     (32 * MIB)

static struct gpu *const gpu = &core.gpus[0];

extern uint64_t clock_ns;
extern void (*recording)(void); /* called while an event is recorded, without the lock */
extern void (*releasing)(void); /* called while memory is given back */
extern CUresult record_error, wait_error, context_error;
extern unsigned events, events_destroyed, waits_put;
extern unsigned asked;            /* queries of streams and events */
extern CUmemoryPool default_pool; /* default pool of GPU 0 */
extern cuuint64_t threshold;      /* release threshold of a new pool */
extern int may_wait;
/* Room beyond gpu_room: bytes that the daemon may still promise, and bytes for room_grow(). */
extern uint64_t promise_room, other_room;
extern unsigned promises, searches;

CUmemoryPool handle_of(unsigned number);
struct pool_stream stream_of(unsigned number);
struct pool_stream stream_default(CUstream handle, unsigned context, unsigned thread);
void stream_put(const struct pool_stream *s);  /* submits a piece of work to a stream */
void stream_step(const struct pool_stream *s); /* finishes a stream's next piece of work */
void stream_done(const struct pool_stream *s); /* finishes all work of a stream */
void stream_end(const struct pool_stream *s);  /* destroys a stream */
void all_busy(void);                           /* submits work to every stream */
void all_done(void);                           /* finishes the work of every stream */
void context_now(unsigned context);            /* sets the context of new streams */
void context_end(unsigned context);            /* ends a context with all its streams */
/* The stream that was last made to wait, and the stream it waits for. */
extern struct pool_stream waiting_stream, awaited_stream;

/* Create a pool of the program, without a limit or with one. */
struct pool *pool_made(unsigned number);
struct pool *pool_limited(unsigned number, uint64_t most);
/* Allocates, and backs the memory as if the program had used it. */
CUdeviceptr take(struct pool *p, const struct pool_stream *s, uint64_t bytes);
CUdeviceptr piece(struct pool *p, unsigned stream); /* takes 1 MiB */
CUdeviceptr whole(struct pool *p, unsigned stream); /* takes WHOLE bytes, one first extent */
CUresult try_take(struct pool *p, const struct pool_stream *s, uint64_t bytes, CUdeviceptr *ret);
void back_all(void);
struct block *block_at(CUdeviceptr at);
struct extent *extent_at(CUdeviceptr at);
void give(CUdeviceptr at, const struct pool_stream *s);
void piece_free(CUdeviceptr at, unsigned stream);
cuuint64_t attribute(struct pool *p, CUmemPool_attribute which);
/* Lets time pass until the agent has nothing to do for pools. */
void rest(void);

int begin_pools(void **state);
/* Destroys all pools, and waits until they are gone. */
int end_pools(void **state);

#define POOL_TEST(name) cmocka_unit_test_setup_teardown(name, begin_pools, end_pools)
