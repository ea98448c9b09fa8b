/* moves_bench.h: everything that has a hand in moving memory, with a driver that has memory, and a
 * program that writes into its own and looks whether it finds that again. */
#pragma once

#include "preload/state/core.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"

#define CARD   (128 * MIB) /* extents of 8 MiB, four pages each */
#define EXTENT (8 * MIB)
#define PAGE   HEAP_GRANULARITY
#define THINGS 24u
#define MOST   40u /* pages of an allocation */

static struct gpu *const gpu = &core.gpus[0];

/* What the program has, and what it wrote there. */
struct thing {
        CUdeviceptr at;
        uint64_t pages;
        struct block *pool;          /* part of this one */
        uint64_t words[MOST];        /* 0: nothing written yet */
        bool managed, was_out[MOST]; /* once evicted, each page has to be brought back */
};
extern struct thing things[THINGS];
extern unsigned thing_count;
extern uint64_t last_word; /* that was written */

extern struct context context;
extern uint64_t host_room; /* bytes that the host has */
extern uint32_t random_state;
/* Whether the card is asked if memory has changed; surely: whenever it may, with an answer at once.
 */
extern bool asks, surely, settled;
extern unsigned forgotten, copies_told;

uint32_t draw(uint32_t below);
void check_books(void);
/* Until nothing more is to be done, or all that is left has to wait. */
enum swap_progress move(bool may_evict, bool restore);
void evict_to(uint64_t limit);
void restore_to(uint64_t limit);
/* What came or went since the first was told to the daemon and to those who wait here. */
void look_at_figures(void);
void check_told(void);
void see_who_is_out(void);
/* The program runs: all is there, and it finds what it wrote. */
void run_program(void);
struct thing *add(CUdeviceptr at, uint64_t pages);
struct thing *allocate(uint64_t pages);
struct thing *adopt(uint64_t pages);
struct block *block_of(const struct thing *t);
struct extent *extent_of(const struct thing *t, uint64_t page);
/* As a pool's allocation ends: what it leaves empty is forgotten, or given back. */
void unuse(struct thing *t, bool release);
void give_back(struct thing *t);
/* While somebody waits for a transfer the agent goes on. */
void agent_goes_on(const struct core_wait *w);
int begin_moves(void **state);
/* Nothing is left of anything, on either side. */
int end_moves(void **state);

#define MOVE_TEST(name) cmocka_unit_test_setup_teardown(name, begin_moves, end_moves)
