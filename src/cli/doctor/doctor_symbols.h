/* doctor_symbols.h: the functions that a loaded driver exports, held against those that sublet
 * knows. */
#pragma once

struct driver_symbols {
        unsigned all;                   /* 0: the library could not be read */
        unsigned unknown, undecided;    /* undecided: versions of what sublet catches */
        char names[160], versions[160]; /* the first unknown ones and undecided ones, by commas */
};

/* library: of dlopen(). */
void driver_symbols(void *library, struct driver_symbols *ret);
/* One more. */
void driver_symbols_count(const char *name, struct driver_symbols *s);
