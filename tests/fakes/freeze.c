/* freeze.c: fakes of freezing for unit tests: a freezer that is off until a test turns it on,
 * movers that only count, and no channels. */
#include "unit.h"

#include "fakes/freeze.h"
#include "fakes/preload.h"
#include "preload/freeze/freeze_test.h"
#include "preload/rm/freeze_watch.h"
#include "preload/freeze/mover.h"
#include "preload/move/swap.h"

#define WEAK __attribute__((weak))

struct freezer freezer = {.off = ""};

WEAK enum wire_freeze freeze_mode(void)
{
        return freezer.mode;
}

WEAK void freeze_allow(enum wire_freeze most)
{
        want_lock();
        freezer.allowed = most;
}

WEAK const char *freeze_off(void)
{
        return freezer.off;
}

WEAK bool freeze_is_ready(void)
{
        return freezer.mode != WIRE_FREEZE_OFF && freezer.ready;
}

WEAK bool freeze_is_shared(void)
{
        return freeze_is_ready() && freezer.shared;
}

WEAK bool freeze_prepare(bool needed)
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

WEAK bool freeze_begin(void)
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

WEAK bool some_is_away(void)
{
        return false;
}

WEAK void freeze_end(void)
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

WEAK bool freeze_stands(void)
{
        want_lock();
        return freezer.stands;
}

WEAK bool freeze_confirm(void)
{
        want_lock();
        freezer.confirmed++;
        without_lock(freezer.while_it_confirms);
        if (freezer.stands && !freezer.confirms)
                freeze_end();
        freezer.sure = freezer.stands;
        return freezer.stands;
}

WEAK struct freeze_figures freeze_figures(void)
{
        struct freeze_figures f = freezer.figures;

        f.for_ns = freezer.stands ? 1 : 0;
        return f;
}

WEAK bool freeze_call_again(CUresult r, bool *again)
{
        return false;
}

WEAK void freeze_test_forget(CUcontext context)
{
}

WEAK void freeze_watch_call(const char *call)
{
}

WEAK void freeze_watch_begin(uint64_t most_ns, bool lets_go)
{
        freezer.watched++;
        if (lets_go)
                is_wrong("the watchdog may let it go while memory moves");
}

WEAK bool freeze_watch_end(void)
{
        return false;
}

WEAK void rm_make_for(enum channels_owner owner)
{
        freezer.making = owner;
}

WEAK struct mover *mover_new(struct gpu *g)
{
        want_no_lock();
        if (freezer.no_mover)
                return NULL;
        freezer.movers++;
        return (struct mover *)(uintptr_t)0xd0;
}

WEAK void mover_free(struct mover *m)
{
        want_no_lock();
        freezer.movers_freed++;
}

WEAK CUcontext mover_context(const struct mover *m)
{
        return m ? (CUcontext)(uintptr_t)0xd1 : NULL;
}

WEAK CUcontext mover_context_of(const struct gpu *g)
{
        return g->context ? g->context->handle : NULL;
}

WEAK bool swap_moves_apart(const struct gpu *g)
{
        return true;
}

_Atomic unsigned rm_thaws;
WEAK int rm_thaw(void)
{
        rm_thaws++;
        return 0;
}

WEAK void rm_slice(uint64_t usec)
{
}

WEAK unsigned rm_groups_made(void)
{
        return 0;
}

WEAK void rm_offer_hand(int page, int line)
{
        freezer.offered[0] = page;
        freezer.offered[1] = line;
}

WEAK void rm_hand_ready(bool ready)
{
        freezer.hand_ready = ready;
}
