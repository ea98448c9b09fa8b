/* hooks.c: fakes of hooks.h for unit tests: there is never more room. */
#include "preload/hooks/hooks.h"

__attribute__((weak)) bool hooks_more_room(struct gpu *g, uint64_t *room)
{
        return false;
}
