/* cpus.c: the thread stays where it is, against cpus.h, for unit tests. */
#include "unit.h"

#include "preload/process/cpus.h"

__attribute__((weak)) void cpus_settle(void)
{
}
