/* gate.c: a fake of the gate for unit tests: no thread passes it. */
#include "unit.h"

#include "fakes/preload.h"
#include "preload/stream/gate.h"

#define WEAK __attribute__((weak))

WEAK _Atomic uint32_t gate_bits;
WEAK __thread struct gate_thread *gate_self __attribute__((tls_model("initial-exec")));

WEAK void gate_shut(enum gate_bits why)
{
        atomic_fetch_or(&gate_bits, why);
}

WEAK void gate_open(enum gate_bits why)
{
        atomic_fetch_and(&gate_bits, ~(uint32_t)why);
}

WEAK bool gate_anybody_inside(void)
{
        return false;
}

WEAK unsigned gate_default_streams(void)
{
        return 0;
}

WEAK uint64_t gate_submissions(void)
{
        return 0;
}

void (*fake_gate_owner)(uint64_t work);

WEAK void gate_own(enum gate_bits bit, void (*f)(uint64_t work))
{
        fake_gate_owner = f;
}
