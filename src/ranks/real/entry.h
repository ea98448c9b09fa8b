/* entry.h: functions that the program gets in place of those of another library. */
#pragma once

#include <string.h>

/* Defines and exports a function that stands for `symbol`. Here its name is entry_<symbol>, so that
 * the address that we hand out is ours even if another library exports the same name. */
#define ENTRY_RETURNING(type, symbol, params)                                    \
        static type entry_##symbol params;                                       \
        extern __typeof__(entry_##symbol) symbol                                 \
                __attribute__((alias("entry_" #symbol), visibility("default"))); \
        static type entry_##symbol params

struct entry {
        const char *symbol;
        void *function;
};

/* Returns the function that stands for the symbol; NULL: none does. Does not allocate. */
static inline void *entry_find(const struct entry *entries, unsigned n, const char *symbol)
{
        for (unsigned i = 0; i < n; i++)
                if (strcmp(entries[i].symbol, symbol) == 0)
                        return entries[i].function;
        return NULL;
}
