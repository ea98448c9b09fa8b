/* doors_core.c: fakes of the gate, the heap and the agent, so that the doors can be tested alone:
 * they count passes, and every hook passes its call on to the driver. */
#include "doors_core.h"

#include "preload/stream/gate.h"
#include "preload/hooks/bounds.h"
#include "preload/hooks/hooks.h"
#include "preload/driver/real.h"
#include "preload/rm/rm.h"
#include "preload/extra/torture.h"

_Atomic uint32_t gate_bits = GATE_UNREADY;
__thread struct gate_thread *gate_self;

struct doors_core doors_core;

struct gate_thread gate_interrupted;

CUresult gate_refusal(void)
{
        return CUDA_ERROR_OPERATING_SYSTEM;
}

struct gate_thread doors_looking;

struct gate_thread *gate_look_begin(void)
{
        doors_core.looks++;
        atomic_fetch_add(&doors_looking.looks, 1);
        return &doors_looking;
}

_Atomic uint64_t heap_changes = 1;
__thread struct bounds_thread bounds_thread;

bool bounds_look(CUdeviceptr at, uint64_t bytes)
{
        const bool past = doors_core.past && doors_core.past - at < bytes;

        doors_core.refused += past;
        return !past;
}

size_t hooks_array_element(CUarray array)
{
        return 4;
}

struct gate_thread *gate_enter_slow(struct gate_thread *t, CUstream stream, uint64_t work,
                                    bool may_end)
{
        static __thread struct gate_thread mine;

        doors_core.slow++;
        doors_core.stream = stream;
        doors_core.work = work;
        if (!t) {
                t = gate_self = &mine;
                atomic_store(&t->inside, 1);
        }
        (void)real_open();
        return t;
}

void gate_call_owner(enum gate_bits bit)
{
}

bool freeze_call_again(CUresult r, bool *again)
{
        bool once = doors_core.again && !*again;

        doors_core.failed++;
        *again = *again || once;
        return once;
}

struct gpu *core_current_gpu(void)
{
        return NULL;
}

bool hooks_more_room(struct gpu *g, uint64_t *room)
{
        doors_core.inside_while_making_room = gate_self && atomic_load(&gate_self->inside) > 0;
        if (*room == doors_core.room)
                return false;
        (*room)++;
        doors_core.rooms++;
        return true;
}

/* Weak: the doors define some hooks themselves. */
#define CU_PASS(symbol, params, args)
#define CU_SUBMIT(symbol, params, args)
#define CU_UNIFIED(symbol, params, args)
#define CU_RETRY(symbol, params, args)
#define CU_CUSTOM(symbol, params, args)                     \
        __attribute__((weak)) CUresult hook_##symbol params \
        {                                                   \
                (void)real_open();                          \
                doors_core.hooks++;                         \
                return real.symbol args;                    \
        }
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        CU_##behaviour(symbol, params, args)
#include "cuda/cuda_api.def"
