/* devices.h: the devices that the program sees, which `sublet run --ranks` makes out of the cards.
 *
 * They exist for the CUDA runtime library that PyTorch and others share (device_runtime.c) and for
 * NVML. The driver's own functions know the cards only: a runtime library checks what the driver
 * tells it against the driver's private data when it starts, and must find the truth. A device is
 * the ordinal that the program uses; a card is the driver's ordinal. Without SUBLET_RANKS both are
 * the same. Before cuInit() there are no devices, and numbers are passed on as they are. Any
 * thread. */
#pragma once

#include "ranks/devices/map.h"
#include "ranks/real/real_functions.h"

/* Does cuInit(): the driver sees the GPUs that the job was given, whatever CUDA_VISIBLE_DEVICES
 * says. */
CUresult devices_init(unsigned flags);

/* The number of the program's devices; 0 before cuInit(), and without SUBLET_RANKS. */
unsigned devices_count(void);
/* Returns the device's card. Negative numbers stay as they are; too large ones become one that the
 * driver refuses. */
CUdevice devices_card(CUdevice device);
/* Returns the card that this number names in a call of the driver: the card itself, or a device if
 * there are not so many cards. */
CUdevice devices_named(CUdevice number);
/* Returns the device on this card that the thread has chosen last, else the first one. */
CUdevice devices_of_card(CUdevice card);
/* Notes that this thread has chosen a device. */
void devices_choose(CUdevice device);
/* True if two devices share a card. */
bool devices_share(CUdevice a, CUdevice b);
/* Returns a device's identity; NULL: there is no such device. */
const struct identity *devices_identity(CUdevice device);

/* Each returns our function of this name, for the driver, NVML and the runtime library; NULL: there
 * is none. Does not allocate. */
void *devices_replace_driver(const char *symbol);
void *devices_replace_nvml(const char *symbol);
void *devices_replace_runtime(const char *symbol);
