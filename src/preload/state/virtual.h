/* virtual.h: the program's own use of virtual memory management: its reservations, its handles, and
 * which handle is mapped where.
 *
 * A handle that the program has created is a block of our heap (BLOCK_HANDLE): its extents are
 * evicted and restored like any other, and mapped wherever the program says. The program gets a
 * name from us that no handle of the driver's has. An exported handle becomes unevictable: one
 * handle of the driver's. A handle that the program imports, or creates in host memory or on a GPU
 * that we do not manage, is the driver's own from the start and has the driver's name.
 *
 * Records only, no driver call; the caller holds core_lock. A thread that has marked an extent of a
 * handle busy, or holds its block, may read the handle without the lock: nothing of it is mapped or
 * unmapped meanwhile. */
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

/* All of a handle, mapped at one address. */
struct mapping {
        struct span at;
        struct handle *handle;    /* NULL: one of the driver's own */
        struct mapping *next;     /* of the handle */
        uint64_t id;              /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
        uint8_t access[GPUS_MAX]; /* CUmemAccess_flags of each device */
};

struct handle {
        CUmemGenericAllocationHandle name;
        uint64_t id; /* CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID */
        struct gpu *gpu;
        CUmemAllocationProp prop;
        uint64_t bytes;
        unsigned references; /* references of the program: created, retained */
        unsigned users;      /* calls of ours in progress that need it */
        unsigned mapping_count;
        struct mapping *mappings;
        struct mapping *home; /* a mapping that its own GPU may write to; NULL: none */
        struct block *block;  /* NULL: unevictable */
        CUmemGenericAllocationHandle unevictable; /* the driver's */
};

/* ---- reservations ---- */

int virtual_reserve(CUdeviceptr address, uint64_t bytes); /* 0, -ENOMEM */
void virtual_unreserve(CUdeviceptr address);
/* The reservation that address lies in; NULL: none of the program's. */
const struct span *virtual_reservation(CUdeviceptr address);
/* All of it is reserved; reservations that touch are one, as with the driver. */
bool virtual_reserved(CUdeviceptr address, uint64_t bytes);

/* ---- handles ---- */

/* With one reference, and neither block nor mapping. NULL: no memory. */
struct handle *virtual_create(struct gpu *g, const CUmemAllocationProp *prop, uint64_t bytes);
/* A name is good while the handle is mapped, even without references. NULL: not one of ours. */
struct handle *virtual_find(CUmemGenericAllocationHandle name);
/* The name to pass to the driver where we have no such handle. A stale name of ours must not reach
 * the driver, which takes handles for pointers: it becomes 0, which the driver refuses. Needs no
 * lock. */
CUmemGenericAllocationHandle virtual_drivers(CUmemGenericAllocationHandle name);
static inline bool virtual_is_dead(const struct handle *h)
{
        return h->references == 0 && h->users == 0 && !h->mappings;
}
/* Take its name away; the caller frees the structure. */
void virtual_forget(struct handle *h);

/* ---- mappings ---- */

/* Nothing is mapped there yet. NULL: no memory. */
struct mapping *virtual_map(struct handle *h, CUdeviceptr address, uint64_t bytes);
void virtual_unmap(struct mapping *m);
/* The mapping that address lies in; NULL: none. */
struct mapping *virtual_at(CUdeviceptr address);
/* The first mapping that ends behind address; NULL: none. */
struct mapping *virtual_from(CUdeviceptr address);
/* The mappings that [address, address + bytes) touches lie inside it as a whole; where gaps are not
 * allowed they fill it. */
bool virtual_whole(CUdeviceptr address, uint64_t bytes, bool gaps);

/* Set who may access a mapping; read it in the driver's form. */
void mapping_allow(struct mapping *m, const CUmemAccessDesc *access, size_t count);
unsigned mapping_access(const struct mapping *m, CUmemAccessDesc ret[static GPUS_MAX]);
