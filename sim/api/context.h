/* context.h: how green.c makes and ends green contexts, and how all contexts fail. */
#pragma once

#include "sim/call/objects.h"

/* Makes a green context, which retains the primary context; context_ungreen() ends it. */
CUresult context_green(CUdevice device, unsigned processors, CUcontext *ret_context);
CUresult context_ungreen(CUcontext c);

/* True if no stream of the process has work. */
bool contexts_idle(void);
/* Frees the channels of all contexts, as a checkpoint does. */
void contexts_leave_card(void);
/* Makes channels again for all contexts that have none. */
CUresult contexts_return(void);

/* Fails all contexts of the process, because the MPS server or another of its clients has
 * failed. */
void contexts_fail(CUresult error);
