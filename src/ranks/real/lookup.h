/* lookup.h: fills a table with the functions of a library. */
#pragma once

#include <stdatomic.h>

#define REAL_NVML "libnvidia-ml.so.1"

struct real_table {
        const char *soname;
        const char *(*choose)(void); /* returns the soname; NULL: it is known */
        unsigned n;
        const char *const *names;
        /* n functions in the order of the names. A name that the library lacks keeps its value. */
        void **functions;
        _Atomic int state; /* not 0 once `functions` may be read */
};

/* Loads the library and fills the table, once. Racing threads may all load it; the first thread
 * that is done fills the table. Holds no lock while it calls the loader, because a constructor
 * that the loader runs may call this function. */
void real_table_open(struct real_table *t);
