/* freeze_bench.c: fakes of the freezer, the mover and the gate, for tests of an agent that
 * freezes. */
#include "unit.h"

#include "freeze_bench.h"

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/rm/freeze_watch.h"
#include "preload/stream/gate.h"
#include "preload/freeze/mover.h"

struct freezer freezer;
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

/* ---- freeze.h ---- */

static void want_lock(void)
{
        if (atomic_load(&core_lock.word) == 0)
                is_wrong("the freezer is asked without the lock");
}

enum wire_freeze freeze_mode(void)
{
        return freezer.mode;
}

void freeze_allow(enum wire_freeze most)
{
        want_lock();
        freezer.allowed = most;
}

const char *freeze_off(void)
{
        return freezer.off;
}

bool freeze_is_ready(void)
{
        return freezer.mode != WIRE_FREEZE_OFF && freezer.ready;
}

bool freeze_prepare(bool needed)
{
        want_lock();
        freezer.prepared++;
        freezer.needed += needed;
        return freezer.again;
}

static void without_lock(void (*f)(void))
{
        lock_release(&core_lock);
        if (f)
                f();
        lock_acquire(&core_lock);
}

bool freeze_begin(void)
{
        want_lock();
        if (freezer.stands)
                return true;
        if (!freeze_is_ready())
                return false;
        freezer.begun++;
        without_lock(freezer.while_it_begins);
        freezer.stands = freezer.begins;
        freezer.sure = false;
        return freezer.begins;
}

void freeze_end(void)
{
        want_lock();
        if (!freezer.stands)
                return;
        if (some_is_away())
                is_wrong("it is let go while memory is away");
        freezer.stands = false;
        freezer.ended++;
        freezer.figures.times++;
}

bool freeze_stands(void)
{
        want_lock();
        return freezer.stands;
}

bool freeze_confirm(void)
{
        want_lock();
        freezer.confirmed++;
        without_lock(freezer.while_it_confirms);
        if (freezer.stands && !freezer.confirms)
                freeze_end();
        freezer.sure = freezer.stands;
        return freezer.stands;
}

struct freeze_figures freeze_figures(void)
{
        struct freeze_figures f = freezer.figures;

        f.for_ns = freezer.stands ? 1 : 0;
        return f;
}

/* ---- fakes of other modules ---- */

void freeze_watch_begin(uint64_t most_ns, bool lets_go)
{
        freezer.watched++;
        if (lets_go)
                is_wrong("the watchdog may let it go while memory moves");
}

bool freeze_watch_end(void)
{
        return false;
}

void rm_make_for(enum channels_owner owner)
{
        freezer.making = owner;
}

static bool needs_no_lock(void)
{
        if (atomic_load(&core_lock.word) != 0)
                is_wrong("a mover is made or freed with the lock held");
        return !freezer.no_mover;
}

struct mover *mover_new(struct gpu *g)
{
        if (!needs_no_lock())
                return NULL;
        freezer.movers++;
        return (struct mover *)(uintptr_t)0xd0;
}

void mover_free(struct mover *m)
{
        (void)needs_no_lock();
        freezer.movers_freed++;
}

CUcontext mover_context(const struct mover *m)
{
        return (CUcontext)(uintptr_t)0xd1;
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
