/* places.c: owns the translation of structures that name devices. */
#include "ranks/devices/places.h"

#include <stdlib.h>
#include <string.h>

void places_free(struct places *p)
{
        if (p->copy != p->room)
                free(p->copy);
}

CUmemLocation place_of(CUmemLocation location)
{
        if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
                location.id = devices_card(location.id);
        return location;
}

static void *copy(struct places *p, const void *list, size_t n, size_t size)
{
        size_t bytes;

        p->copy = p->room;
        if (!list || !n || __builtin_mul_overflow(n, size, &bytes))
                return NULL;
        if (bytes > sizeof(p->room))
                p->copy = malloc(bytes);
        return p->copy ? memcpy(p->copy, list, bytes) : NULL;
}

CUmemLocation *places_locations(struct places *p, const CUmemLocation *list, size_t n)
{
        CUmemLocation *own = copy(p, list, n, sizeof(*own));

        for (size_t i = 0; own && i < n; i++)
                own[i] = place_of(own[i]);
        return own;
}

CUmemAccessDesc *places_accesses(struct places *p, const CUmemAccessDesc *list, size_t n)
{
        CUmemAccessDesc *own = copy(p, list, n, sizeof(*own));

        for (size_t i = 0; own && i < n; i++)
                own[i].location = place_of(own[i].location);
        return own;
}

CUmemcpyAttributes *places_hints(struct places *p, const CUmemcpyAttributes *list, size_t n)
{
        CUmemcpyAttributes *own = copy(p, list, n, sizeof(*own));

        for (size_t i = 0; own && i < n; i++) {
                own[i].srcLocHint = place_of(own[i].srcLocHint);
                own[i].dstLocHint = place_of(own[i].dstLocHint);
        }
        return own;
}

static void translate_operand(CUmemcpy3DOperand *o)
{
        if (o->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
                o->op.ptr.locHint = place_of(o->op.ptr.locHint);
}

CUDA_MEMCPY3D_BATCH_OP *places_batch(struct places *p, const CUDA_MEMCPY3D_BATCH_OP *list, size_t n)
{
        CUDA_MEMCPY3D_BATCH_OP *own = copy(p, list, n, sizeof(*own));

        for (size_t i = 0; own && i < n; i++) {
                translate_operand(&own[i].src);
                translate_operand(&own[i].dst);
        }
        return own;
}
