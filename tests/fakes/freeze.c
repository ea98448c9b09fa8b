/* freeze.c: fakes of freezing for unit tests: the process is never frozen, and has no mover, no
 * watchdog and no channels. */
#include "unit.h"

#include "preload/state/core.h"
#include "preload/freeze/freeze.h"
#include "preload/freeze/freeze_test.h"
#include "preload/rm/freeze_watch.h"
#include "preload/freeze/mover.h"
#include "preload/stream/quiesce.h"
#include "preload/rm/rm.h"
#include "preload/move/swap.h"

#define WEAK __attribute__((weak))

WEAK void freeze_setup(void)
{
}

WEAK void freeze_allow(enum wire_freeze most)
{
}

WEAK enum wire_freeze freeze_mode(void)
{
        return WIRE_FREEZE_OFF;
}

WEAK const char *freeze_off(void)
{
        return "";
}

WEAK bool freeze_is_ready(void)
{
        return false;
}

WEAK bool freeze_prepare(bool needed)
{
        return false;
}

WEAK bool freeze_begin(void)
{
        return false;
}

WEAK void freeze_end(void)
{
}

WEAK bool freeze_stands(void)
{
        return false;
}

WEAK bool freeze_confirm(void)
{
        return false;
}

WEAK void freeze_blame(const struct gpu *g, CUresult why)
{
}

WEAK bool freeze_call_again(CUresult r, bool *again)
{
        return false;
}

WEAK struct freeze_figures freeze_figures(void)
{
        return (struct freeze_figures){0};
}

WEAK void freeze_test_forget(CUcontext context)
{
}

WEAK void freeze_watch_begin(uint64_t most_ns, bool lets_go)
{
}

WEAK void freeze_watch_call(const char *call)
{
}

WEAK bool freeze_watch_end(void)
{
        return false;
}

WEAK void freeze_watch_forget(void)
{
}

WEAK bool swap_moves_apart(const struct gpu *g)
{
        return true;
}

WEAK struct mover *mover_new(struct gpu *g)
{
        return NULL;
}

WEAK void mover_free(struct mover *m)
{
}

WEAK CUcontext mover_context(const struct mover *m)
{
        return NULL;
}

WEAK CUcontext mover_context_of(const struct gpu *g)
{
        return g->context ? g->context->handle : NULL;
}

WEAK void rm_make_for(enum channels_owner owner)
{
}

WEAK int rm_freeze(void)
{
        return 0;
}

WEAK int rm_thaw(void)
{
        return 0;
}

WEAK bool rm_is_frozen(void)
{
        return false;
}

WEAK const char *rm_driver(void)
{
        return "";
}

WEAK void rm_forget(void)
{
}
