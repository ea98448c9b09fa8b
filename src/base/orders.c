/* orders.c: owns the list of the orders that every user may give. Must never contain one with which
 * a user could harm another. */
#include "base/orders.h"

#include <stddef.h>
#include <string.h>

#include "base/macros.h"

bool order_is_public(const char *name)
{
        static const char *const names[] = {"status", "pause", "resume",      "evict", "reserve",
                                            "trace",  "get",   "set_program", "submit"};

        for (size_t i = 0; name && i < ARRAY_SIZE(names); i++)
                if (strcmp(name, names[i]) == 0)
                        return true;
        return false;
}
