/* front.c: a fake of the library in front for unit tests: there is none until a test says so. */
#include "fakes/preload.h"
#include "preload/process/front_calls.h"

#define WEAK __attribute__((weak))

bool fake_front, fake_front_waits;

WEAK bool front_is_there(void)
{
        return fake_front;
}

WEAK unsigned front_waits(void)
{
        return fake_front_waits;
}
