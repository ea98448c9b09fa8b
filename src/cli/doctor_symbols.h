/* doctor_symbols.h: the functions that a loaded driver exports, held against those that sublet
 * knows. */
#pragma once

struct driver_symbols {
        unsigned all, unknown; /* 0 of all: the library could not be read */
        char names[160];       /* the first unknown ones, by commas */
};

/* library: of dlopen(). */
void driver_symbols(void *library, struct driver_symbols *ret);
/* One more. */
void driver_symbols_count(const char *name, struct driver_symbols *s);
