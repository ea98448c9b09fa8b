/* header.c: uses all of include/sublet.h, and is C and C++ alike. It must not include anything
 * else. */
#include "sublet.h"

int header(const void *buffer);

int header(const void *buffer)
{
        return sublet_is_here() ? sublet_set_priority(buffer, -1) : 0;
}
