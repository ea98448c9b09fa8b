/* profile_bench.h: a program that repeats itself, at the speed that its buffers' places allow, and
 * what its profile asks of the neighbours. Each test is a process of its own, as each program has
 * one profile. */
#pragma once

#include "unit.h"

#include "preload/state/core.h"
#include "preload/process/mode.h"
#include "preload/extra/profile_file.h"

#define CARD    (128 * MIB)
#define MS      NSEC_PER_MSEC
#define BUFFERS 8u
#define STEP    20u /* submissions of one */

static struct gpu *const gpu = &core.gpus[0];

struct buffer {
        CUdeviceptr at;
        uint64_t bytes, saves_ns; /* of a step when it is on the card */
};
extern struct buffer buffers[BUFFERS];
extern unsigned buffer_count;
extern uint64_t ground_ns; /* a step with none of them there */
extern enum memory_mode mode;
extern char path[64]; /* of the profile */

extern uint64_t now_ns;
extern uint64_t flight_ns;  /* what is in flight takes so long yet; UINT64_MAX: it does not end */
extern bool captures;       /* a capture begins while that is waited for */
extern uint64_t card_bytes; /* of a buffer at most */
extern bool never_arranged;
extern unsigned arrangements, changes, waits;
extern void (*waiting)(void); /* meanwhile */

struct buffer *allocate(uint64_t bytes, uint64_t saves_ns);
void end_of_life(const struct buffer *b);
struct block *block_of(const struct buffer *b);
void submit(char work);
void step(char begins_with);
bool is_tried(void);
bool is_over(void);
/* How many steps it was until then. */
unsigned steps_until(bool (*done)(void), unsigned most);
struct profile_list file_of(const char *name);
void check_saved(uint64_t bytes, uint64_t nth, uint64_t ns);
void begin_to_learn(void);
int begin_profile(void **state);
int end_profile(void **state);
/* How many have failed. */
int run_each(const struct CMUnitTest *tests, unsigned count);

#define PROFILE_TEST(name) cmocka_unit_test_setup_teardown(name, begin_profile, end_profile)
