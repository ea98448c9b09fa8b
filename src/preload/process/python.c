/* python.c: owns the addresses of Python's functions. Must never load Python, nor call it. */
#include "preload/process/python.h"

#include <dlfcn.h>
#include <stdint.h>

#include "preload/process/libc_compat.h"

struct python python;

void python_setup(void)
{
        python.there = true;
#define P(result, name, parameters)                                                       \
        python.name = (result(*) parameters)(uintptr_t)compat_dlsym(RTLD_DEFAULT, #name); \
        python.there = python.there && python.name;
        PYTHON(P)
#undef P
}
