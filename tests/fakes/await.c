/* await.c: a fake of await.h for unit tests: no signal interrupts a wait. */
#include "unit.h"

#include "preload/stream/await.h"

#define WEAK __attribute__((weak))

WEAK bool await_stream(CUstream stream)
{
        return false;
}

WEAK bool await_event(CUevent event)
{
        return false;
}

WEAK bool await_context(CUcontext context)
{
        return false;
}
