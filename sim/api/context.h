/* context.h: green contexts, as green.c makes and ends them. */
#pragma once

#include "sim/call/objects.h"

/* A green context beside the primary one, which it holds; and its end. */
CUresult context_green(CUdevice device, unsigned processors, CUcontext *ret_context);
CUresult context_ungreen(CUcontext c);
