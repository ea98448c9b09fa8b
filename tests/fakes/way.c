/* way.c: a fake of way.h for unit tests: no program takes part in MPS. */
#include "unit.h"

#include "preload/process/way.h"

__attribute__((weak)) void way_join(void)
{
}

__attribute__((weak)) bool way_leave(int error)
{
        return false;
}
