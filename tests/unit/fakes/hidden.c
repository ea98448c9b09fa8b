/* hidden.c: no library with work of its own is loaded, as hidden.h says, for unit tests. */
#include "unit.h"

#include "preload/process/hidden.h"

__attribute__((weak)) const char *hidden_library(void)
{
        return NULL;
}

__attribute__((weak)) void hidden_tell(void)
{
}
