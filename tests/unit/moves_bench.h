/* moves_bench.h: all modules that move memory, a driver that has memory, and a program that writes
 * to its memory and checks that it finds the same again. */
#pragma once

#include "preload/state/core.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"

#define CARD   (128 * MIB) /* makes extents of 8 MiB, four pages each */
#define EXTENT (8 * MIB)
#define PAGE   HEAP_GRANULARITY
#define THINGS 24u
#define MOST   40u /* pages of an allocation, at most */

static struct gpu *const gpu = &core.gpus[0];

/* An allocation of the program, and what the program wrote to it. */
struct thing {
        CUdeviceptr at;
        uint64_t pages;
        struct block *pool;          /* the pool's block that it is part of */
        uint64_t words[MOST];        /* 0: nothing written yet */
        bool managed, was_out[MOST]; /* was_out: the page was evicted and must be restored */
};
extern struct thing things[THINGS];
extern unsigned thing_count;
extern uint64_t last_word; /* last word that was written */

extern struct context context;
extern uint64_t host_room; /* bytes that the host has */
extern uint32_t random_state;
/* asks: fingerprints are compared. surely: always, with an answer at once. */
extern bool asks, surely, settled;
extern unsigned forgotten, copies_told;

uint32_t draw(uint32_t below);
void check_books(void);
/* Moves until nothing is left to do, or everything left must wait. */
enum swap_progress move(bool may_evict, bool restore);
void evict_to(uint64_t limit);
void restore_to(uint64_t limit);
/* look_at_figures() notes the figures; check_told() checks that later changes were reported to the
 * daemon and to waiting threads. */
void look_at_figures(void);
void check_told(void);
void see_who_is_out(void);
/* The program runs: all its memory is resident and holds what it wrote. */
void run_program(void);
struct thing *add(CUdeviceptr at, uint64_t pages);
struct thing *allocate(uint64_t pages);
struct thing *adopt(uint64_t pages);
struct block *block_of(const struct thing *t);
struct extent *extent_of(const struct thing *t, uint64_t page);
/* Ends a pool's allocation; empty extents lose their contents, or are released. */
void unuse(struct thing *t, bool release);
void give_back(struct thing *t);
/* The agent continues while a thread waits for a transfer. */
void agent_goes_on(const struct core_wait *w);
int begin_moves(void **state);
/* Checks that nothing is left in the library or the driver. */
int end_moves(void **state);

#define MOVE_TEST(name) cmocka_unit_test_setup_teardown(name, begin_moves, end_moves)
