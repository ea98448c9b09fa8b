/* rows.h: the rows of cuda_api.def by name and by address, for the modules that hand out entry
 * points (dl.c, resolve.c) and the one that fills in the real driver (real.c).
 *
 * Nothing allocates; thread-safe unless said otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/driver/real.h"

enum door_row {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) DOOR_##symbol,
#include "cuda/cuda_api.def"
#undef CU
        DOOR_COUNT,
        DOOR_NONE = DOOR_COUNT,
};

/* The row of an exported symbol; DOOR_NONE: not in the table. */
enum door_row rows_find_symbol(const char *symbol);
/* The row that cuGetProcAddress answers a name, version and flags with; DOOR_NONE: none. */
enum door_row rows_find_base(const char *base, int version, uint64_t flags);
bool rows_knows_base(const char *base);
/* Whether this function is caught in any of the versions that cuGetProcAddress knows. */
bool rows_catches_base(const char *base);

/* A version of a caught entry point that neither table has, by its symbol or its name for
 * cuGetProcAddress (cuMemFree_v9): such calls are reported. */
bool rows_is_undecided(const char *name);

const char *rows_symbol(enum door_row row);
int rows_since(enum door_row row);
/* The member of a table of the driver's functions for a row. */
void **rows_slot(struct real_driver *driver, enum door_row row);

/* The row of an address in the real driver; DOOR_NONE: not an address that we know. */
enum door_row rows_find_address(const void *address);

/* Record an address of the real driver for rows_find_address(). For real_open() alone, before its
 * first return. */
void rows_learn(enum door_row row, void *address);

/* Entry points that a program looked up and that neither cuda_api.def nor cuda_uncaught.def knows.
 * Each name counts once; names beyond the first ROWS_UNKNOWN_MAX are not remembered, so each of
 * their look-ups counts. */
#define ROWS_UNKNOWN_MAX 64
void rows_count_unknown(const char *name);
unsigned rows_unknown_count(void);
const char *rows_unknown_name(unsigned i); /* NULL: not remembered */
