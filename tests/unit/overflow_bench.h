/* overflow_bench.h: buffers of a program on the card and in host memory, with contents, and fakes
 * of the modules that the overflow calls. */
#pragma once

#include "preload/state/core.h"
#include "preload/process/mode.h"

#define CARD    (128 * MIB) /* makes extents of 8 MiB */
#define EXTENT  (8 * MIB)
#define PAGE    HEAP_GRANULARITY
#define BUFFERS 8u

static struct gpu *const gpu = &core.gpus[0];

struct buffer {
        CUdeviceptr at;
        uint64_t bytes, word;
};
extern struct buffer buffers[BUFFERS];
extern unsigned buffer_count;
extern unsigned carried;
extern CUresult carry_fails;
extern uint64_t now_ns;

/* Answers of the fake profile: room that trials need (0: there are no trials), and the buffers that
 * it places on the card or on the host. */
extern uint64_t trial_room;
extern const struct block *on_trial, *tried[BUFFERS];
extern const struct block *profiled; /* the buffer that was reported to the profile */
extern unsigned placings;

void check_accounts(void);
void check_contents(void);
struct block *block_of(const struct buffer *b);
/* Allocates a buffer in host memory. NULL: host memory is short. */
struct buffer *on_host(uint64_t bytes);
struct buffer *on_card(uint64_t bytes);
/* Frees a buffer as the program does. */
void end_buffer(struct gpu *g, CUdeviceptr at);
uint64_t bytes_on_card(const struct buffer *b);
/* Lets 100 s pass and calls overflow_step(). */
void step(void);
void drained(void);
/* Moves every buffer that is due to move. */
void arrange(void);
/* Moves buffers in one round only, without reporting a change before. */
void move_all(void);
int begin_overflow(void **state);
int end_overflow(void **state);

#define OVERFLOW_TEST(name) cmocka_unit_test_setup_teardown(name, begin_overflow, end_overflow)
