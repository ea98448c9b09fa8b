/* contexts.h: which device a context, an address or a handle belongs to. Two devices of one card
 * are told apart only where the program uses both. Any thread. */
#pragma once

#include "ranks/devices/devices.h"

/* What an object belongs to, if it is not the device that is used first on the card. */
void contexts_own(const void *object, CUdevice device);
void contexts_disown(const void *object);
/* What is made out of an object belongs to the same device. */
void contexts_copy_owner(const void *from, const void *to);

/* card: the ordinal that the driver has returned. Each function returns the device. */
CUdevice contexts_device_of_context(CUcontext ctx, CUdevice card); /* NULL: the current context */
CUdevice contexts_device_of_object(const void *object, CUdevice card);
CUdevice contexts_device_of_address(CUdeviceptr address, CUdevice card);

/* A handle of cuMemCreate() is mapped here; this range is unmapped. */
void contexts_map(const void *handle, CUdeviceptr from, size_t bytes);
void contexts_unmap(CUdeviceptr from, size_t bytes);

/* Primary contexts: for the device that is used first on its card, the card's; for another one, a
 * context that stands for it. The driver's results. */
CUresult primary_retain(CUcontext *ret, CUdevice device);
CUresult primary_release(CUdevice device);
CUresult primary_reset(CUdevice device);
CUresult primary_get_state(CUdevice device, unsigned *ret_flags, int *ret_active);
CUresult primary_set_flags(CUdevice device, unsigned flags);
