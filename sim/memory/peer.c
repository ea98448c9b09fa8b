/* peer.c: owns the access of contexts to another card's memory. Must never give access to memory
 * that the program maps itself: only cuMemSetAccess does that. */
#include <stdlib.h>

#include "sim/memory/memory.h"

/* Work on the card of `from` may use allocations of `to`. The list needs the space lock. */
static struct pair {
        struct pair *next;
        CUcontext from, to;
} * pairs;

static struct pair **find(CUcontext from, CUcontext to)
{
        struct pair **at = &pairs;

        while (*at && ((*at)->from != from || (*at)->to != to))
                at = &(*at)->next;
        return at;
}

uint32_t peer_devices(CUcontext to)
{
        uint32_t devices = 0;

        for (const struct pair *p = pairs; p; p = p->next)
                if (p->to == to)
                        devices |= 1u << p->from->device;
        return devices;
}

void peer_forget(CUcontext c)
{
        struct pair **at = &pairs;

        while (*at) {
                struct pair *p = *at;

                if (p->from != c && p->to != c) {
                        at = &p->next;
                        continue;
                }
                *at = p->next;
                if (p->to != c)
                        memory_allow(p->to, peer_devices(p->to));
                free(p);
        }
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can_access_peer, CUdevice device, CUdevice peer_dev)
{
        CUresult r = device_enter(__func__, device);

        if (r == CUDA_SUCCESS)
                r = device_check(peer_dev);
        if (r != CUDA_SUCCESS)
                return r;
        if (!can_access_peer)
                return CUDA_ERROR_INVALID_VALUE;
        *can_access_peer = device != peer_dev;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice src,
                                        CUdevice dst)
{
        CUresult r = cuDeviceCanAccessPeer(value, src, dst);

        if (r != CUDA_SUCCESS)
                return r;
        if (src == dst)
                return CUDA_ERROR_INVALID_DEVICE;
        if (attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)
                *value = 0; /* the best rank */
        return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer_context, unsigned int flags)
{
        CUcontext c, peer = NULL;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);
        struct pair *p;

        if (r != CUDA_SUCCESS)
                return r;
        if (flags)
                return CUDA_ERROR_INVALID_VALUE;
        if (!peer_context || context_check(peer_context, &peer) != CUDA_SUCCESS)
                return CUDA_ERROR_INVALID_CONTEXT;
        if (peer->device == c->device)
                return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        p = calloc(1, sizeof(*p));
        if (!p)
                return CUDA_ERROR_OUT_OF_MEMORY;
        space_lock();
        if (*find(c, peer)) {
                r = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
                free(p);
        } else {
                *p = (struct pair){.from = c, .to = peer, .next = pairs};
                pairs = p;
                memory_allow(peer, peer_devices(peer));
        }
        space_unlock();
        return r;
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer_context)
{
        CUcontext c, peer = NULL;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);
        struct pair **at, *p;

        if (r != CUDA_SUCCESS)
                return r;
        if (!peer_context || context_check(peer_context, &peer) != CUDA_SUCCESS)
                return CUDA_ERROR_INVALID_CONTEXT;
        space_lock();
        at = find(c, peer);
        p = *at;
        if (p) {
                *at = p->next;
                free(p);
                memory_allow(peer, peer_devices(peer));
        } else {
                r = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
        }
        space_unlock();
        return r;
}
