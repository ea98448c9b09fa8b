/* moves_bench.h: all modules that move memory, a fake driver with memory, and a program that writes
 * to its memory and checks later that the contents are the same. */
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
        struct block *pool;          /* the pool's block that the allocation is part of */
        uint64_t words[MOST];        /* word written to each page; 0: nothing written yet */
        bool managed, was_out[MOST]; /* was_out: the page was evicted and must be restored */
};
extern struct thing things[THINGS];
extern unsigned thing_count;
extern uint64_t last_word; /* the last word that the program wrote */

extern struct context context;
extern uint32_t random_state;
/* asks: fingerprints may be compared. surely: they always are, with an answer at once. */
extern bool asks, surely, settled;
extern unsigned forgotten, copies_told;

uint32_t draw(uint32_t below);
void check_accounts(void);
/* Moves memory until nothing is left to move, or all that is left must wait. */
enum swap_progress move(bool may_evict, bool restore);
void evict_to(uint64_t limit);
void restore_to(uint64_t limit);
/* look_at_figures() notes the figures; check_told() checks that later changes were reported to the
 * daemon and to waiting threads. */
void look_at_figures(void);
void check_told(void);
void see_who_is_out(void);
/* Lets the program run: checks that its memory is resident and holds the words that it wrote. */
void run_program(void);
struct thing *add(CUdeviceptr at, uint64_t pages);
struct thing *allocate(uint64_t pages);
struct thing *adopt(uint64_t pages);
struct block *block_of(const struct thing *t);
struct extent *extent_of(const struct thing *t, uint64_t page);
/* Ends an allocation of a pool; extents left empty lose their contents, or are released. */
void unuse(struct thing *t, bool release);
void give_back(struct thing *t);
/* Lets the agent continue while a thread waits for a transfer. */
void agent_goes_on(const struct core_wait *w);
int begin_moves(void **state);
/* Checks that nothing is left in the library or the driver. */
int end_moves(void **state);

#define MOVE_TEST(name) cmocka_unit_test_setup_teardown(name, begin_moves, end_moves)
