/* hidden.c: a fake of hidden.h for unit tests: no library that submits hidden work is loaded. */
#include "unit.h"

#include "preload/process/hidden.h"

__attribute__((weak)) const char *hidden_library(void)
{
        return NULL;
}

__attribute__((weak)) void hidden_tell(void)
{
}
