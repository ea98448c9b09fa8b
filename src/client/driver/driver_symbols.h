/* driver_symbols.h: compares the functions that a driver exports with those that sublet knows. */
#pragma once

struct driver_symbols {
        unsigned all;       /* exported functions of the API; 0: the library could not be read */
        unsigned unknown;   /* functions that sublet does not know */
        unsigned undecided; /* unknown versions of functions that sublet intercepts */
        char names[160];    /* the first unknown functions, separated by commas */
        char versions[160]; /* the first undecided functions, separated by commas */
};

/* Counts the functions that a library of dlopen() exports. */
void driver_symbols(void *library, struct driver_symbols *ret);
/* Counts one more function. */
void driver_symbols_count(const char *name, struct driver_symbols *s);
