/* values.h: NCCL's element types and operations on the CPU: inputs, expected results, comparison.
 *
 * Inputs of reductions are chosen so that every order of the additions gives the same exact result.
 * The inputs of a rank depend only on the arguments, so every rank knows all ranks' inputs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct type {
        const char *name;
        unsigned bytes;
        enum { SIGNED, UNSIGNED, FLOAT } kind;
        int exponent_bits, mantissa_bits; /* of FLOAT */
};
extern const struct type types[]; /* by NCCL's number of the type */

/* The first five are NCCL's numbers. */
enum op { SUM, PROD, MAX, MIN, AVG, PREMUL_HOST, PREMUL_DEVICE, OPS };
extern const char *const op_names[OPS];

void value_encode(int type, double value, void *at);
double value_decode(int type, const void *at);
/* Returns the number as a reduction stores it: fp8 has no infinite results. */
double value_limited(int type, double value);

/* The scalar by which a rank multiplies its inputs (PREMUL_*). */
double value_scalar(int type, int rank);

/* Writes elements [first, first + count) of what the rank contributes to a reduction of n ranks. */
void values_input(int type, enum op op, uint64_t seed, int rank, int n, size_t first, size_t count,
                  void *out);
/* Writes elements [first, first + count) of the reduction over n ranks. */
void values_reduced(int type, enum op op, uint64_t seed, int n, size_t first, size_t count,
                    void *out);
/* Fills bytes with what collectives that only copy must bring unchanged. */
void values_bytes(uint64_t seed, int rank, size_t bytes, void *out);
/* Random floating point numbers in [-1, 1], rounded to the type. */
void values_random(int type, uint64_t seed, int rank, size_t count, void *out);

/* Returns the index of the first element that differs, or -1. Equal are numbers that differ by at
 * most `tolerance`. */
long values_differ(int type, const void *got, const void *expected, size_t count, double tolerance);
/* How much a result may differ from the exact one: 0 unless the operation divides by n and n is no
 * power of two. */
double values_tolerance(int type, enum op op, int n);
