/* gate.c: a fake of the gate for unit tests: no thread has to wait at it. */
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

bool anybody_inside;
WEAK bool gate_anybody_inside(void)
{
        return anybody_inside;
}

unsigned default_streams;
WEAK unsigned gate_default_streams(void)
{
        return default_streams;
}

uint64_t submissions;
WEAK uint64_t gate_submissions(void)
{
        return submissions;
}

unsigned gates;
WEAK struct gate_thread gate_interrupted;
WEAK struct gate_thread *gate_enter_slow(struct gate_thread *t, CUstream stream, uint64_t work,
                                         bool may_end)
{
        want_no_lock();
        if (++gates > 10000)
                is_wrong("it asks the gate for ever");
        return NULL;
}

WEAK CUresult gate_refusal(void)
{
        return CUDA_ERROR_OPERATING_SYSTEM;
}

void (*fake_gate_owner)(uint64_t work);

WEAK void gate_own(enum gate_bits bit, void (*f)(uint64_t work))
{
        fake_gate_owner = f;
}
