/* program.h: what the test programs have in common: options, results, memory that follows the
 * pattern.
 *
 * A program exits 0 only when every byte it looked at was right. It writes one JSON object a line
 * on stdout; what differs from run to run is only ever under the keys "pid", "ms" and "at". */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "pattern.h"

enum program_exit {
        PROGRAM_EXIT_OK = 0,
        PROGRAM_EXIT_WRONG = 1, /* contents were wrong */
        PROGRAM_EXIT_USAGE = 2,
        PROGRAM_EXIT_SETUP = 3,  /* no driver, no such door */
        PROGRAM_EXIT_DRIVER = 4, /* a driver call failed */
        PROGRAM_EXIT_MEMORY = 5, /* ... with out of memory */
};

struct options {
        uint64_t bytes;        /* --bytes: device memory in all */
        uint64_t block;        /* --block: bytes an allocation */
        uint64_t rounds;       /* --rounds: at least */
        double seconds;        /* --seconds: go on for this long; 0: as long as the rounds take */
        const char *until;     /* --until FILE: go on until it exists */
        uint64_t seed;         /* --seed */
        double ms;             /* --ms: of one long kernel */
        const char *sample;    /* --sample FILE: write pieces of the memory's contents at the end */
        uint64_t sample_bytes; /* --sample-bytes: of each block */
        uint64_t count;        /* --count: allocations, launches, whatever the program counts */
        const char *how;       /* --how: which of the ways that the program knows */
};

extern struct options options;

/* Ends the program after a JSON line {"event":"error",...}. */
void program_fail(enum program_exit status, const char *format, ...)
        __attribute__((format(printf, 2, 3), noreturn));
void program_check(CUresult r, const char *call, const char *file, int line);
#define TRY(call) program_check((call), #call, __FILE__, __LINE__)

/* One JSON line: {"event":EVENT, FORMAT...}; format is the rest of the object, without braces. */
void program_say(const char *event, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Parse the options over the given defaults, remember the name. */
void program_options(int argc, char **argv, const struct options *defaults);
/* ... and open the driver, cuInit, make the primary context current, load the kernels. */
void program_begin(int argc, char **argv, const struct options *defaults,
                   bool per_thread_default_streams);
/* Make the program's context current in another thread. */
void program_thread(void);
/* Release the context and exit. */
void program_end(void) __attribute__((noreturn));

/* Which of the names --how has; ends the program if it is none of them. */
size_t program_how(const char *const names[], size_t n);
/* Another round? The rounds, --seconds and --until must all be satisfied to end. */
bool program_more(uint64_t rounds_done);

uint64_t program_now_ns(void);
/* xorshift, for sizes and offsets; *state is not 0. */
uint64_t program_random(uint64_t *state);

/* ---- kernels ---- */

struct kernels {
        CUmodule module;
        CUfunction fill, verify, step, advance, add, spin, stamp, tiny, reduce, await;
};
extern struct kernels kernels;

/* Load the kernels into the current context. */
void kernels_load(struct kernels *ret_kernels);

/* The contents that the kernels fill it with. */
struct verdict {
        uint64_t mismatches, sum, first_bad;
};

#define THREADS 256
/* Thread blocks for so many words. */
unsigned kernels_grid(uint64_t words);

void launch_fill(CUdeviceptr at, uint64_t bytes, uint64_t origin, uint64_t key, CUstream s);
void launch_verify(CUdeviceptr at, uint64_t bytes, uint64_t origin, uint64_t key,
                   CUdeviceptr verdict, CUstream s);
void launch_step(CUdeviceptr at, uint64_t bytes, uint64_t origin, uint64_t key, uint64_t next_key,
                 CUdeviceptr verdict, CUstream s);
void launch_advance(CUdeviceptr at, uint64_t bytes, uint64_t addend, CUstream s);
void launch_add(CUdeviceptr to, CUdeviceptr from, uint64_t bytes, CUstream s);
void launch_spin(uint64_t ns, CUdeviceptr counter, CUstream s);
/* answer 0: none. */
void launch_await(CUdeviceptr flag, uint32_t value, CUdeviceptr answer, uint32_t answer_value,
                  uint64_t most_ns, CUdeviceptr late, CUstream s);
/* Writes two words: when it began and when it ended, by the GPU's clock. */
void launch_stamp(uint64_t ns, CUdeviceptr out, CUstream s);
void launch_tiny(CUdeviceptr counter, CUstream s);

/* ---- memory that follows the pattern ---- */

struct block {
        CUdeviceptr at;
        uint64_t bytes;
        uint64_t origin;
};

struct blocks {
        struct block *block;
        size_t n;
        CUdeviceptr verdict; /* struct verdict on the device */
        CUstream stream;
};

/* options.bytes in pieces of options.block, numbered from `first`. */
void blocks_allocate(struct blocks *b, uint64_t bytes, uint64_t block_bytes, size_t first);
void blocks_fill(struct blocks *b, uint64_t round);
/* Check the round's contents and write the next round's. Returns the contents' sum. */
uint64_t blocks_step(struct blocks *b, uint64_t round);
/* Check the round's contents. Returns their sum. */
uint64_t blocks_verify(struct blocks *b, uint64_t round);
/* --sample */
void blocks_sample(const struct blocks *b, uint64_t round, const char *path);
void blocks_free(struct blocks *b);

/* Read and clear a verdict; ends the program when something was wrong. Returns the sum. */
uint64_t verdict_take(CUdeviceptr verdict, uint64_t round, CUstream s);
CUdeviceptr verdict_new(void);

/* The sum of a block's words as the CPU computes it. */
uint64_t pattern_sum(uint64_t origin, uint64_t bytes, uint64_t key);

/* A piece in a --sample file: this header, then the bytes. */
struct sample_header {
        uint64_t magic;
        uint64_t origin; /* pattern address of the first word */
        uint64_t bytes;
        uint64_t key;
};
#define SAMPLE_MAGIC UINT64_C(0x31656c706d6173)
