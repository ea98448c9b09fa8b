/* pool_bench.h: the surroundings of a pool: streams whose work ends when a test says so, a daemon
 * that promises what a test has set aside, and a clock that stands still.
 *
 * The tests hold core_lock. */
#pragma once

#include "fakes/neighbours.h"
#include "preload/state/core.h"
#include "preload/pool/pool.h"

#define POOL_CARD GIB /* makes extents of 64 MiB; a pool's first extents have 32 MiB */
#define WHOLE     (32 * MIB)

static struct gpu *const gpu = &core.gpus[0];

extern uint64_t clock_ns;
/* Called while an event is recorded, without the lock; and while memory is given back. */
extern void (*recording)(void);
extern void (*releasing)(void);
extern CUresult record_error, wait_error, context_error;
extern unsigned events, events_destroyed, discarded, waits_put;
extern unsigned asked;            /* queries of streams and events */
extern CUmemoryPool default_pool; /* default pool of GPU 0 */
extern cuuint64_t threshold;      /* release threshold of a new pool */
extern int may_wait;
/* Bytes that may be had beyond `allowed`: from the daemon's promises, or by room_grow(). */
extern uint64_t allowed, promise_room, other_room;
extern unsigned promises, searches;
extern int back_answer; /* result of swap_back_block() */

CUmemoryPool handle_of(unsigned number);
struct pool_stream stream_of(unsigned number);
struct pool_stream stream_default(CUstream handle, unsigned context, unsigned thread);
/* Submit work to a stream; finish all of it; destroy the stream. */
void stream_put(const struct pool_stream *s);
void stream_step(const struct pool_stream *s); /* finishes one piece of work */
void stream_done(const struct pool_stream *s);
void stream_end(const struct pool_stream *s);
/* The same for every stream. */
void all_busy(void);
void all_done(void);
/* Choose the context of new streams; end a context with all streams in it. */
void context_now(unsigned context);
void context_end(unsigned context);
/* The stream that was last made to wait, and the stream it waits for. */
extern struct pool_stream waiting_stream, awaited_stream;

/* Pools that the program creates, without a limit or with one. */
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
