/* devices.h: the devices that the program sees, which `sublet run --ranks` makes out of the cards.
 *
 * A device is known by three numbers: the program's ordinal, which is also its CUdevice; its number
 * among the job's devices, which differs if CUDA_VISIBLE_DEVICES shows only some; and the ordinal
 * of its card for the driver. Without SUBLET_RANKS all are the same. Before cuInit() there are no
 * devices, and numbers are passed on as they are. Any thread. */
#pragma once

#include "ranks/devices/map.h"
#include "ranks/real/real.h"

/* Does cuInit(): the driver sees the GPUs that the job was given, whatever CUDA_VISIBLE_DEVICES
 * says. */
CUresult devices_init(unsigned flags);

/* The number of the program's devices; 0 before cuInit(), and without SUBLET_RANKS. */
unsigned devices_count(void);
/* Returns the ordinal of the device's card. Numbers that are no device's (CU_DEVICE_CPU) stay as
 * they are; too large ones become one that the driver refuses. */
CUdevice devices_card(CUdevice device);
/* Returns a device on the card: the one that the program uses there first. */
CUdevice devices_of_card(CUdevice card);
/* True if two devices share a card. */
bool devices_share(CUdevice a, CUdevice b);
/* NULL: no such device. */
const struct identity *devices_identity(CUdevice device);

/* The program begins to use a device. Returns true if it is the first one that is used on its card:
 * what belongs to the card belongs to it. */
bool devices_use(CUdevice device);
/* The device that is used first on the card of this one; -1: none yet. */
CUdevice devices_first(CUdevice device);
/* True if the program uses several devices on this card. */
bool devices_several(CUdevice card);
