/* front_calls.c: owns the calls to the library in front of this one. */
#include "preload/process/front_calls.h"

#include "cuda/front.h"

bool front_is_there(void)
{
        return &sublet_front;
}

void *front_replace(const char *symbol, void *found)
{
        return &sublet_front ? sublet_front.replace(symbol, found) : found;
}

unsigned front_waits(void)
{
        return &sublet_front ? sublet_front.waits() : 0;
}
