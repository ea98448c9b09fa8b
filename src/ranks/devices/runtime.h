/* runtime.h: the primary contexts that NVIDIA's runtime library asks for by a private table.
 *
 * When it starts it asks for the handle of each device's primary context, without making one, and
 * keeps the answers to know contexts by. Devices of one card have contexts of their own, which do
 * not exist yet. Such an answer is a name; the context takes its place once it is there. */
#pragma once

#include "ranks/devices/devices.h"

/* Returns what the program gets for this table of the driver. */
const void *runtime_table(const CUuuid *id, const void *table);
/* The device's primary context is there. */
void runtime_learn(CUdevice device, CUcontext ctx);
/* True if this is a name that the runtime library got in place of a context. */
bool runtime_is_name(CUcontext ctx);
