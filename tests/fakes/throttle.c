/* throttle.c: a fake of throttle.h for unit tests: work passes, or is refused as often as a test
 * says. */
#include "unit.h"

#include "fakes/preload.h"
#include "preload/stream/gate.h"
#include "preload/stream/throttle.h"

#define WEAK __attribute__((weak))

const struct gate_thread *_Atomic forgotten_thread;
unsigned bound_refuses, bound_waits;

WEAK void throttle_forget_thread(const struct gate_thread *t)
{
        forgotten_thread = t;
}

WEAK bool throttle_pass(CUstream stream)
{
        assert_true(gate_anybody_inside());
        if (bound_refuses == 0)
                return true;
        bound_refuses--;
        return false;
}

WEAK void throttle_wait(CUstream stream)
{
        bound_waits++;
        assert_false(gate_anybody_inside());
}
