/* hooks_virtual.h: the program's handles, shared by the hooks that make them (hooks_virtual.c), map
 * them (hooks_mapping.c), share them (hooks_share.c) and answer questions about addresses
 * (hooks_memory.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct handle;

/* Keeps the handle alive until handle_unuse(), which gives its memory back after the last use.
 * core_lock held. */
void handle_use(struct handle *h);
void handle_unuse(struct handle *h) UNLOCKS(core_lock);
/* Like handle_use(). Moreover, no other thread changes the handle or moves its memory until
 * handle_put(). */
void handle_take(struct handle *h) UNLOCKS(core_lock);
void handle_put(struct handle *h) UNLOCKS(core_lock);

/* Replaces the handle by one of the driver, whose memory never moves (handle.unevictable). Contents
 * and mappings stay as they were. */
CUresult handle_make_unevictable(struct handle *h) UNLOCKS(core_lock);

/* True if the handle has so little memory, mapped at so many places, that moving it costs more than
 * its room is worth. */
bool handle_is_everywhere(const struct handle *h);

/* virtual_attribute() and virtual_range() answer for a mapping of a handle whose memory can move,
 * whether or not the driver has it mapped now. CUDA_ERROR_NOT_SUPPORTED or false: ask the driver.
 * core_lock held. */
CUresult virtual_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr);
bool virtual_range(CUdeviceptr ptr, CUdeviceptr *ret_base, size_t *ret_bytes);
