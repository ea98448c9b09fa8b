/* cpus.c: a fake of cpus.h for unit tests: threads stay on their processors. */
#include "unit.h"

#include "preload/process/cpus.h"

__attribute__((weak)) void cpus_settle(void)
{
}
