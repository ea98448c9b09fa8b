/* program.h: common to the test programs: options, results, memory that follows the pattern.
 *
 * A program exits 0 only if every byte that it checked was right. It prints one JSON object a line
 * on stdout. Only the keys "pid", "ms" and "at" have values that differ from run to run. */
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
        PROGRAM_EXIT_SETUP = 3,  /* the driver or the door is missing */
        PROGRAM_EXIT_DRIVER = 4, /* a driver call failed */
        PROGRAM_EXIT_MEMORY = 5, /* a driver call failed with out of memory */
};

struct options {
        uint64_t bytes;        /* --bytes: all device memory of the program */
        uint64_t block;        /* --block: bytes of an allocation */
        uint64_t rounds;       /* --rounds: the least number of rounds */
        double seconds;        /* --seconds: the shortest run time; 0: no limit */
        const char *until;     /* --until FILE: run until the file exists */
        uint64_t seed;         /* --seed */
        double ms;             /* --ms: length of a long kernel */
        const char *sample;    /* --sample FILE: write pieces of the memory's contents at the end */
        uint64_t sample_bytes; /* --sample-bytes: bytes written of each block */
        uint64_t count;  /* --count: of allocations, launches or other things of the program */
        const char *how; /* --how: one of the program's ways of working */
        int gpu;         /* --gpu: the number of its GPU */
};

extern struct options options;

/* Prints the JSON line {"event":"error",...} and ends the program. */
void program_fail(enum program_exit status, const char *format, ...)
        __attribute__((format(printf, 2, 3), noreturn));
void program_check(CUresult r, const char *call, const char *file, int line);
/* Notes the call that comes; SIGQUIT prints the last one to stderr and ends the program, so that a
 * program that hangs can be asked where. Of several threads, the last to make a call is noted. */
void program_calls(const char *call, const char *file, int line);
#define TRY(call) \
        (program_calls(#call, __FILE__, __LINE__), program_check((call), #call, __FILE__, __LINE__))

/* Prints one JSON line: {"event":EVENT, FORMAT...}; format is the rest of the object, without
 * braces. */
void program_say(const char *event, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* With --how handles, SIGINT prints a line from now on, and the program goes on. */
void program_handle_interrupts(void);

/* Parses the options over the given defaults, and notes the program's name. */
void program_options(int argc, char **argv, const struct options *defaults);
/* Does the same, opens the driver, makes the primary context current and loads the kernels. */
void program_begin(int argc, char **argv, const struct options *defaults,
                   bool per_thread_default_streams);
/* Makes the program's context current in another thread. */
void program_thread(void);
/* Releases the context and exits. */
void program_end(void) __attribute__((noreturn));

/* Returns the index of --how in names; ends the program if it is none of them. */
size_t program_how(const char *const names[], size_t n);
/* True if another round is due: --rounds, --seconds and --until must all be satisfied to end. */
bool program_more(uint64_t rounds_done);

uint64_t program_now_ns(void);
/* Returns a random number by xorshift, for sizes and offsets. *state must not be 0. */
uint64_t program_random(uint64_t *state);

/* ---- kernels ---- */

struct kernels {
        CUmodule module;
        CUfunction fill, verify, step, advance, add, spin, stamp, tiny, reduce, await;
};
extern struct kernels kernels;

/* Loads the kernels into the current context. */
void kernels_load(struct kernels *ret_kernels);

/* The memory that the kernels write their findings to. */
struct verdict {
        uint64_t mismatches, sum, first_bad;
};

#define THREADS 256
/* Returns the number of thread blocks for that many words. */
unsigned kernels_grid(uint64_t words);

void launch_fill(CUdeviceptr at, uint64_t bytes, uint64_t origin, uint64_t key, CUstream s);
void launch_verify(CUdeviceptr at, uint64_t bytes, uint64_t origin, uint64_t key,
                   CUdeviceptr verdict, CUstream s);
void launch_step(CUdeviceptr at, uint64_t bytes, uint64_t origin, uint64_t key, uint64_t next_key,
                 CUdeviceptr verdict, CUstream s);
void launch_advance(CUdeviceptr at, uint64_t bytes, uint64_t addend, CUstream s);
void launch_add(CUdeviceptr to, CUdeviceptr from, uint64_t bytes, CUstream s);
void launch_spin(uint64_t ns, CUdeviceptr counter, CUstream s);
/* answer 0: the kernel writes no answer. */
void launch_await(CUdeviceptr flag, uint32_t value, CUdeviceptr answer, uint32_t answer_value,
                  uint64_t most_ns, CUdeviceptr late, CUstream s);
/* Writes two words: when the kernel began and when it ended, by the GPU's clock. */
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
        CUdeviceptr verdict; /* a struct verdict on the device */
        CUstream stream;
};

/* Allocates `bytes` in pieces of `block_bytes`, numbered from `first`. */
void blocks_allocate(struct blocks *b, uint64_t bytes, uint64_t block_bytes, size_t first);
void blocks_fill(struct blocks *b, uint64_t round);
/* Checks the round's contents and writes the next round's. Returns the sum of the contents. */
uint64_t blocks_step(struct blocks *b, uint64_t round);
/* Checks the round's contents. Returns their sum. */
uint64_t blocks_verify(struct blocks *b, uint64_t round);
/* Writes the file of --sample. */
void blocks_sample(const struct blocks *b, uint64_t round, const char *path);
void blocks_free(struct blocks *b);

/* Reads a size, with its unit or in bytes. 0 or -errno. */
int program_size(const char *text, uint64_t *ret);

/* Reads and clears a verdict; ends the program if it shows wrong words. Returns the sum. */
uint64_t verdict_take(CUdeviceptr verdict, uint64_t round, CUstream s);
CUdeviceptr verdict_new(void);

/* Returns the sum of a block's words, computed on the CPU. */
uint64_t pattern_sum(uint64_t origin, uint64_t bytes, uint64_t key);

/* A piece in a --sample file: this header, then the piece's bytes. */
struct sample_header {
        uint64_t magic;
        uint64_t origin; /* the pattern's address of the first word */
        uint64_t bytes;
        uint64_t key;
};
#define SAMPLE_MAGIC UINT64_C(0x31656c706d6173)
