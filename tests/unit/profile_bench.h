/* profile_bench.h: a program that repeats its steps, whose speed depends on where its buffers are,
 * and fakes of the modules that the profile calls. Each test runs in a process of its own, because
 * a program has one profile. */
#pragma once

#include "unit.h"

#include "preload/state/core.h"
#include "preload/process/mode.h"
#include "preload/overflow/profile_file.h"

#define CARD    (128 * MIB)
#define MS      NSEC_PER_MSEC
#define BUFFERS 8u
#define STEP    20u /* submissions in one step */

static struct gpu *const gpu = &core.gpus[0];

struct buffer {
        CUdeviceptr at;
        uint64_t bytes, saves_ns; /* time that a step saves when the buffer is on the card */
};
extern struct buffer buffers[BUFFERS];
extern unsigned buffer_count;
extern uint64_t ground_ns; /* a step's time without any buffer on the card */
extern char path[64];      /* path of the profile */

extern uint64_t now_ns;
extern uint64_t flight_ns;  /* time until submitted work ends; UINT64_MAX: never */
extern bool captures;       /* a capture begins while the profile waits for submitted work */
extern uint64_t card_bytes; /* the most bytes of a buffer that go to the card */
extern bool never_arranged;
extern unsigned arrangements, changes, waits;
extern void (*waiting)(void); /* called while the program waits for buffers to move */

struct buffer *allocate(uint64_t bytes, uint64_t saves_ns);
void end_of_life(const struct buffer *b);
struct block *block_of(const struct buffer *b);
void submit(char work);
void step(char begins_with);
bool is_tried(void);
bool is_over(void);
/* Returns the number of steps until done(), at most `most`. */
unsigned steps_until(bool (*done)(void), unsigned most);
struct profile_list file_of(const char *name);
void check_saved(uint64_t bytes, uint64_t nth, uint64_t ns);
void begin_to_learn(void);
int begin_profile(void **state);
int end_profile(void **state);
/* Returns the number of tests that failed. */
int run_each(const struct CMUnitTest *tests, unsigned count);

#define PROFILE_TEST(name) cmocka_unit_test_setup_teardown(name, begin_profile, end_profile)
