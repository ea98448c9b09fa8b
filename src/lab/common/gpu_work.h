/* gpu_work.h: the GPU's part of the programs that show and measure sharing: memory in which every
 * word is known, through the driver API.
 *
 * The driver is loaded at run time, from wherever the environment names it. Serves a program with
 * one thread and one context. If a call of the driver fails, the program prints "failed CALL
 * RESULT" to stdout and ends with status 1. If memory runs out, it prints "memory BYTES", the bytes
 * allocated so far, and ends with status 0. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define GPU_WORK_BLOCKS 4 /* allocations that the memory consists of */

struct gpu_work {
        void *context, *fill, *check;              /* the driver's handles */
        uint64_t blocks[GPU_WORK_BLOCKS], verdict; /* addresses on the card */
        uint64_t words, key;                       /* words in one block; the program's number */
        uint64_t rounds;                           /* rounds done so far */
        uint64_t mismatches;                       /* words that were not what they had to be */
        uint64_t digest; /* digest of everything read; equal for equal keys */
};

/* Loads the driver and takes the memory, managed or ordinary. */
void gpu_work_begin(struct gpu_work *w, uint64_t bytes, uint64_t key, bool managed);
uint64_t gpu_work_bytes(const struct gpu_work *w);
/* Writes the values of round 0, and waits until they are there. */
void gpu_work_fill(struct gpu_work *w);
/* Compares every word with its value, writes the next round's, and waits for the result. */
void gpu_work_round(struct gpu_work *w);
void gpu_work_end(struct gpu_work *w);

/* Returns a number that looks random and depends on nothing but its arguments. */
uint64_t gpu_work_mix(uint64_t key, uint64_t round);
