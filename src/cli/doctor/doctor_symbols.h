/* doctor_symbols.h: compares the functions that a driver exports with those that sublet knows. */
#pragma once

struct driver_symbols {
        unsigned all; /* 0: the library could not be read */
        unsigned unknown,
                undecided; /* undecided: unknown versions of functions that sublet catches */
        char names[160],
                versions[160]; /* the first unknown and undecided ones, separated by commas */
};

/* library: of dlopen(). */
void driver_symbols(void *library, struct driver_symbols *ret);
/* One more. */
void driver_symbols_count(const char *name, struct driver_symbols *s);
