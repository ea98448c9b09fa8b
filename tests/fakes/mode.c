/* mode.c: a fake of mode.h for unit tests: memory is handled as a test says. */
#include "unit.h"

#include "fakes/preload.h"

enum memory_mode fake_mode = MEMORY_OVERFLOW;
__attribute__((weak)) enum memory_mode mode_memory(void)
{
        return fake_mode;
}
