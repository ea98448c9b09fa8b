/* context.h: how green.c makes and ends green contexts, and how all contexts fail. */
#pragma once

#include "sim/call/objects.h"

/* Makes a green context, which retains the primary context; context_ungreen() ends it. */
CUresult context_green(CUdevice device, unsigned processors, CUcontext *ret_context);
CUresult context_ungreen(CUcontext c);

/* Fails all contexts of the process, because the MPS server or another of its clients has
 * failed. */
void contexts_fail(CUresult error);
