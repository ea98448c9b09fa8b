/* python_stub.c: a stand-in for libpython. The stub is a library of its own, because our code looks
 * up in which library a signal handler lies. */
#include "python_stub.h"

#include <errno.h>
#include <stddef.h>

bool stub_finished, stub_noted;
unsigned stub_handled;
uint32_t stub_rings;
_Atomic uint32_t *stub_bell;

int stub_is_initialized(void)
{
        return !stub_finished;
}

void stub_handler(int number)
{
        stub_handled++;
        stub_noted = true;
        stub_rings = stub_bell ? *stub_bell : 0;
        errno = ENOTTY;
}

void stub_detailed(int number, siginfo_t *info, void *context)
{
}
