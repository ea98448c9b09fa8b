/* rows.h: finds rows of cuda_api.def by name and by address. For the modules that return entry
 * points to the program (dl.c, resolve.c), and for real.c, which fills the table of the real
 * driver.
 *
 * No function allocates. Thread-safe unless said otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/driver/real.h"

enum door_row {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) DOOR_##symbol,
#include "cuda/cuda_api.def"
        DOOR_COUNT,
        DOOR_NONE = DOOR_COUNT,
};

/* Returns the row of an exported symbol; DOOR_NONE: not in the table. */
enum door_row rows_find_symbol(const char *symbol);
/* Returns the row that cuGetProcAddress chooses for a name, version and flags; DOOR_NONE: none. */
enum door_row rows_find_base(const char *base, int version, uint64_t flags);
bool rows_knows_base(const char *base);
/* True if we intercept any of the versions of this function that cuGetProcAddress knows. */
bool rows_catches_base(const char *base);

/* True if the name is a version of an intercepted function, for example cuMemFree_v9, that neither
 * cuda_api.def nor cuda_uncaught.def has. The program gets no address for it. name: its symbol, or
 * its name for cuGetProcAddress. */
bool rows_is_undecided(const char *name);

const char *rows_symbol(enum door_row row);
int rows_since(enum door_row row);
/* Returns a row's member in a table of driver functions. */
void **rows_slot(struct real_driver *driver, enum door_row row);

/* Returns the row whose function has this address in the real driver; DOOR_NONE: none. */
enum door_row rows_find_address(const void *address);

/* Record an address of the real driver for rows_find_address(). For real_open() alone, before its
 * first return. */
void rows_learn(enum door_row row, void *address);

/* Count an entry point that a program looked up and that neither cuda_api.def nor cuda_uncaught.def
 * has. Only ROWS_UNKNOWN_MAX names are remembered, and each of them counts once. For any other name
 * each look-up counts. */
#define ROWS_UNKNOWN_MAX 64
void rows_count_unknown(const char *name);
unsigned rows_unknown_count(void);
const char *rows_unknown_name(unsigned i); /* NULL: not remembered */
