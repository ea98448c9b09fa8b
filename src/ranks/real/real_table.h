/* real_table.h: the body of a file that owns the table of one library's functions. The file defines
 * TABLE, the name of the table's struct and of the function that returns it, LIST for each_row.def,
 * and LIBRARY, which names the library in a struct real_table. */
#pragma once

#include "base/macros.h"
#include "ranks/real/lookup.h"

#define ROW(type, name, params, missing)  \
        static type missing_##name params \
        {                                 \
                return missing;           \
        }
#include "ranks/real/each_row.def"

static struct TABLE functions = {
#define ROW(type, name, params, missing) .name = missing_##name,
#include "ranks/real/each_row.def"
};

static const char *const names[] = {
#define ROW(type, name, params, missing) #name,
#include "ranks/real/each_row.def"
};
_Static_assert(sizeof(functions) == sizeof(names), "one function for each name");

const struct TABLE *TABLE(void)
{
        static struct real_table table = {
                .LIBRARY,
                .n = ARRAY_SIZE(names),
                .names = names,
                .functions = (void **)&functions,
        };

        real_table_open(&table);
        return &functions;
}
