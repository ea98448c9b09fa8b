/* virtual.h: the program's own use of virtual memory management: its reservations, its handles, and
 * which handle is mapped where.
 *
 * A handle that the program creates is a block of our heap (BLOCK_HANDLE), and is evicted like
 * other blocks. It has a name of ours. When a handle is exported, a single handle of the driver
 * takes its place, and is unevictable. Handles that are imported, or created in host memory or on a
 * GPU not managed by us, belong to the driver.
 *
 * These functions only keep records and make no driver call; the caller holds core_lock. A thread
 * that has marked an extent of a handle busy, or holds its block, may read the handle without the
 * lock: no other thread maps or unmaps it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/state/core.h"

struct span {
        CUdeviceptr address;
        uint64_t bytes;
};

struct handle;

/* A mapping of a whole handle at one address. */
struct mapping {
        struct span at;
        struct handle *handle;    /* NULL: the driver's own handle is mapped */
        struct mapping *next;     /* next mapping of the same handle */
        uint64_t id;              /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
        uint8_t access[GPUS_MAX]; /* CUmemAccess_flags of each device */
};

struct handle {
        CUmemGenericAllocationHandle name;
        uint64_t id; /* CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID */
        struct gpu *gpu;
        CUmemAllocationProp prop;
        uint64_t bytes;
        unsigned references; /* references that the program got by creating and retaining it */
        unsigned users;      /* calls of ours in progress that use it */
        unsigned mapping_count;
        struct mapping *mappings;
        struct mapping *home; /* a mapping to which the handle's own GPU may write; NULL: none */
        struct block *block;  /* NULL: the handle is unevictable */
        CUmemGenericAllocationHandle unevictable; /* the driver's handle, if block is NULL */
};

/* ---- reservations ---- */

int virtual_reserve(CUdeviceptr address, uint64_t bytes); /* 0, -ENOMEM */
void virtual_unreserve(CUdeviceptr address);
/* Returns the program's reservation that address lies in; NULL: none. */
const struct span *virtual_reservation(CUdeviceptr address);
/* True if all of these addresses are reserved. Adjacent reservations count as one, as in the
 * driver. */
bool virtual_reserved(CUdeviceptr address, uint64_t bytes);

/* ---- handles ---- */

/* Create a handle with one reference and without a block or mapping. NULL: no memory. */
struct handle *virtual_create(struct gpu *g, const CUmemAllocationProp *prop, uint64_t bytes);
/* Returns the handle of this name; NULL: not one of ours. A name stays valid while the handle is
 * mapped, even without references. */
struct handle *virtual_find(CUmemGenericAllocationHandle name);
/* Returns the name to pass to the driver if virtual_find() finds none. A stale name of ours becomes
 * 0, which the driver refuses. The driver would take the stale name for a pointer. Needs no
 * lock. */
CUmemGenericAllocationHandle virtual_drivers(CUmemGenericAllocationHandle name);
static inline bool virtual_is_dead(const struct handle *h)
{
        return h->references == 0 && h->users == 0 && !h->mappings;
}
/* Remove the handle's name; the caller frees the structure. */
void virtual_forget(struct handle *h);

/* ---- mappings ---- */

/* Record a mapping where none is yet. NULL: no memory. */
struct mapping *virtual_map(struct handle *h, CUdeviceptr address, uint64_t bytes);
void virtual_unmap(struct mapping *m);
/* Returns the mapping that address lies in; NULL: none. */
struct mapping *virtual_at(CUdeviceptr address);
/* Returns the first mapping that ends behind address; NULL: none. */
struct mapping *virtual_from(CUdeviceptr address);
/* True if each mapping that overlaps [address, address + bytes) lies wholly inside it. If gaps is
 * false, the mappings must also fill the range. */
bool virtual_whole(CUdeviceptr address, uint64_t bytes, bool gaps);

/* mapping_allow() sets which GPUs may access a mapping; mapping_access() returns them in the
 * driver's form. */
void mapping_allow(struct mapping *m, const CUmemAccessDesc *access, size_t count);
unsigned mapping_access(const struct mapping *m, CUmemAccessDesc ret[static GPUS_MAX]);
