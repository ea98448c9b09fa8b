/* places.h: structures that name devices, translated into structures that name cards. */
#pragma once

#include "ranks/devices/devices.h"

/* A copy of what the program passes, so that the program's stays as it is. */
struct places {
        void *copy; /* to be freed, unless it is `room` */
        _Alignas(16) char room[512];
};

void places_free(struct places *p);
#define PLACES __attribute__((cleanup(places_free))) struct places

CUmemLocation place_of(CUmemLocation location);

/* Each returns what to pass to the driver instead; NULL for NULL, and where memory ran out. */
CUmemLocation *places_locations(struct places *p, const CUmemLocation *list, size_t n);
CUmemAccessDesc *places_accesses(struct places *p, const CUmemAccessDesc *list, size_t n);
CUmemcpyAttributes *places_hints(struct places *p, const CUmemcpyAttributes *list, size_t n);
CUDA_MEMCPY3D_BATCH_OP *places_batch(struct places *p, const CUDA_MEMCPY3D_BATCH_OP *list,
                                     size_t n);
