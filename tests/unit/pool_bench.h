/* pool_bench.h: what a pool works with: streams whose work is done when a test says so, a daemon
 * that promises what a test has set aside, and a clock that stands still.
 *
 * The tests hold core_lock. */
#pragma once

#include "fakes/neighbours.h"
#include "preload/state/core.h"
#include "preload/pool/pool.h"

#define POOL_CARD GIB /* extents of 64 MiB; the first ones of a pool have 32 MiB */
#define WHOLE     (32 * MIB)

static struct gpu *const gpu = &core.gpus[0];

extern uint64_t clock_ns;
/* While an event is recorded, without the lock; while memory is given back. */
extern void (*recording)(void);
extern void (*releasing)(void);
extern CUresult record_error, wait_error, context_error;
extern unsigned events, events_destroyed, discarded, waits_put;
extern unsigned asked;            /* streams and events that were asked how far they are */
extern CUmemoryPool default_pool; /* of GPU 0 */
extern cuuint64_t threshold;      /* of a new pool */
extern int may_wait;
/* What may be had beyond `allowed`: promised by the daemon, or found elsewhere. */
extern uint64_t allowed, promise_room, other_room;
extern unsigned promises, searches;
extern int back_answer; /* of swap_back_block() */

CUmemoryPool handle_of(unsigned number);
struct pool_stream stream_of(unsigned number);
struct pool_stream stream_default(CUstream handle, unsigned context, unsigned thread);
/* Work is put into a stream; all that was put into it is done; it ends. */
void stream_put(const struct pool_stream *s);
void stream_step(const struct pool_stream *s); /* one piece of it is */
void stream_done(const struct pool_stream *s);
void stream_end(const struct pool_stream *s);
/* The same of each stream that there is. */
void all_busy(void);
void all_done(void);
/* The context of new streams is another one; this one ends, with all that was in it. */
void context_now(unsigned context);
void context_end(unsigned context);
/* The stream that was last made to wait, and which one it waits for. */
extern struct pool_stream waiting_stream, awaited_stream;

/* Pools that the program has made, with a limit or without. */
struct pool *pool_made(unsigned number);
struct pool *pool_limited(unsigned number, uint64_t most);
/* Allocated, as if the program had run with it. */
CUdeviceptr take(struct pool *p, const struct pool_stream *s, uint64_t bytes);
CUdeviceptr piece(struct pool *p, unsigned stream); /* 1 MiB */
CUdeviceptr whole(struct pool *p, unsigned stream); /* an extent of a pool's first ones */
CUresult try_take(struct pool *p, const struct pool_stream *s, uint64_t bytes, CUdeviceptr *ret);
void back_all(void);
struct block *block_at(CUdeviceptr at);
struct extent *extent_at(CUdeviceptr at);
void give(CUdeviceptr at, const struct pool_stream *s);
void piece_free(CUdeviceptr at, unsigned stream);
cuuint64_t attribute(struct pool *p, CUmemPool_attribute which);
/* Time passes until the agent has nothing to do for pools. */
void rest(void);

int begin_pools(void **state);
/* All pools are destroyed, and gone after a while. */
int end_pools(void **state);

#define POOL_TEST(name) cmocka_unit_test_setup_teardown(name, begin_pools, end_pools)
