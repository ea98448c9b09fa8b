/* freeze_bench.c: the program and the gate, for tests of an agent that freezes. */
#include "unit.h"

#include "freeze_bench.h"

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/stream/gate.h"

struct context context = {.gpu = &core.gpus[0], .handle = (CUcontext)(uintptr_t)0xc0};

bool some_is_away(void)
{
        struct heap_cursor c = {0};
        const struct extent *e;

        while ((e = heap_walk(&gpu->heap, &c)))
                if (e->state == EXTENT_EVICTED || e->busy)
                        return true;
        return false;
}

void gate_open(enum gate_bits why)
{
        if (why & GATE_NO_LEASE) {
                if (freezer.stands)
                        is_wrong("the gate opens while the program stands");
                if (agent.paused)
                        is_wrong("the gate opens for a program that is paused");
                if (some_is_away())
                        is_wrong("the gate opens while memory is away");
        }
        atomic_fetch_and(&gate_bits, ~(uint32_t)why);
}

/* ---- scenes ---- */

void begin_freezer(enum wire_freeze mode)
{
        freezer = (struct freezer){
                .mode = mode, .ready = true, .begins = true, .confirms = true, .off = ""};
}

void begin_frozen(enum wire_freeze mode)
{
        begin_freezer(mode);
        begin_running();
        gpu->context = &context;
        gpu->unevictable = 700 * MIB;
        gpu->mover_room = mode == WIRE_FREEZE_MOVE ? 400 * MIB : 0;
        wake();
        assert_true(gpu->mover != NULL || mode != WIRE_FREEZE_MOVE);
        assert_int_equal(freezer.making, CHANNELS_PROGRAM);
        forget_sent();
}

void pause_program(bool paused)
{
        tell(WIRE_PAUSE)->PAUSE.paused = paused;
        rounds(1);
}
