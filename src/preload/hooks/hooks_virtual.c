/* hooks_virtual.c: the calls by which a program reserves addresses and creates memory for them
 * itself. Must never pass one of our handle names to the driver, which takes it for a pointer.
 * Why: docs/decisions.md, "A program's own handles are blocks of the heap". */
#include "preload/hooks/hooks_virtual.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/hooks/hooks.h"
#include "preload/move/swap.h"
#include "preload/state/virtual.h"
#include "preload/state/request.h"
#include "preload/pool/room.h"

/* ---- handles in use ---- */

void handle_use(struct handle *h)
{
        h->users++;
}

void handle_take(struct handle *h)
{
        struct core_wait w = {.what = "a transfer of its own memory"};

        handle_use(h);
        while (h->block && h->block->held && !core_passive())
                core_wait(&w, UINT64_MAX);
        if (!h->block)
                return;
        h->block->held = true; /* from now on no new move begins */
        for (unsigned i = 0; i < h->block->extent_count; i++)
                while (h->block->extents[i].busy && !core_passive())
                        core_wait(&w, UINT64_MAX); /* wait for a move in progress */
}

static void handle_free(struct handle *h) UNLOCKS(core_lock)
{
        struct gpu *g = h->gpu;

        virtual_forget(h);
        if (h->block && h->block->dying) {
                /* The block was lost with a failed context: poison.c handles it. */
                h->block->handle = NULL;
        } else if (h->block) {
                h->block->dying = true;
                swap_discard(g, h->block);
        } else if (h->unevictable) {
                core.unbooked++;
                lock_release(&core_lock);
                (void)real.cuMemRelease(h->unevictable);
                lock_acquire(&core_lock);
                core.unbooked--;
                g->unevictable_handles -= h->bytes;
                request_return_unevictable(g, h->bytes);
        }
        if (!core_passive()) /* otherwise the heap's accounts may still know the handle */
                free(h);
        request_kick();
}

void handle_unuse(struct handle *h)
{
        h->users--;
        if (virtual_is_dead(h))
                handle_free(h);
}

void handle_put(struct handle *h)
{
        if (h->block) {
                h->block->held = false;
                request_released();
        }
        handle_unuse(h);
}

/* ---- addresses ---- */

CUresult hook_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                  unsigned long long flags)
{
        CUresult r;
        int known;

        (void)core_setup();
        r = real.cuMemAddressReserve(ptr, size, alignment, addr, flags);
        if (r != CUDA_SUCCESS || core_passive())
                return r;
        lock_acquire(&core_lock);
        known = virtual_reserve(*ptr, size);
        lock_release(&core_lock);
        if (known == 0)
                return r;
        (void)real.cuMemAddressFree(*ptr, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
        const struct span *s;
        struct mapping *m;
        CUresult r;

        (void)core_setup();
        if (core_passive())
                return real.cuMemAddressFree(ptr, size);
        lock_acquire(&core_lock);
        s = virtual_reservation(ptr);
        m = virtual_from(ptr);
        if (!s || s->address != ptr || s->bytes != size) {
                bool refused = s || core_holds(ptr, size);

                lock_release(&core_lock);
                return refused ? CUDA_ERROR_INVALID_VALUE : real.cuMemAddressFree(ptr, size);
        }
        if (m && m->at.address < ptr + size) {
                lock_release(&core_lock);
                return CUDA_ERROR_INVALID_VALUE; /* the driver may lack that mapping now */
        }
        virtual_unreserve(ptr);
        lock_release(&core_lock);
        r = real.cuMemAddressFree(ptr, size);
        if (r != CUDA_SUCCESS) {
                lock_acquire(&core_lock);
                (void)virtual_reserve(ptr, size);
                lock_release(&core_lock);
        }
        return r;
}

/* ---- memory ---- */

/* True for memory that we can put behind a handle name of ours, and move. */
static bool can_be_ours(const CUmemGenericAllocationHandle *handle, const CUmemAllocationProp *prop,
                        unsigned long long flags)
{
        return handle && prop && flags == 0 && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
               prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !prop->win32HandleMetaData &&
               !(prop->allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL);
}

static void count_unbooked(int more)
{
        lock_acquire(&core_lock);
        core.unbooked += (unsigned)more;
        lock_release(&core_lock);
}

/* Returns the driver's answer for memory of this kind. The driver is asked once for each kind, with
 * a small allocation; the memory behind the program's handle is made later. Lock not held. */
static CUresult kind_check(const struct gpu *g, const CUmemAllocationProp *prop)
{
        static struct lock lock;
        static CUmemAllocationProp known[8];
        static unsigned known_count;
        const CUmemAllocationHandleType plain =
                g->passes ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
        static const CUmemAllocationProp none;
        CUmemGenericAllocationHandle scrap;
        CUstreamCaptureMode mode;
        CUresult r;

        if (!(prop->requestedHandleTypes & ~plain) &&
            memcmp(&prop->allocFlags, &none.allocFlags, sizeof(none.allocFlags)) == 0)
                return CUDA_SUCCESS;
        lock_acquire(&lock);
        for (unsigned i = 0; i < known_count; i++)
                if (known[i].requestedHandleTypes == prop->requestedHandleTypes &&
                    known[i].location.id == prop->location.id &&
                    memcmp(&known[i].allocFlags, &prop->allocFlags, sizeof(prop->allocFlags)) ==
                            0) {
                        lock_release(&lock);
                        return CUDA_SUCCESS;
                }
        lock_release(&lock);
        count_unbooked(1);
        mode = core_relax();
        r = real.cuMemCreate(&scrap, HEAP_GRANULARITY, prop, 0);
        if (r == CUDA_SUCCESS)
                (void)real.cuMemRelease(scrap);
        core_unrelax(mode);
        count_unbooked(-1);
        lock_acquire(&lock);
        if (r == CUDA_SUCCESS && known_count < ARRAY_SIZE(known))
                known[known_count++] = *prop;
        lock_release(&lock);
        return r == CUDA_ERROR_OUT_OF_MEMORY
                       ? CUDA_SUCCESS
                       : r; /* the driver makes such memory when it has room */
}

static CUresult create(struct gpu *g, uint64_t bytes, const CUmemAllocationProp *prop,
                       CUmemGenericAllocationHandle *ret_name)
{
        struct handle *h;
        int r = -ENOMEM;

        lock_acquire(&core_lock);
        h = virtual_create(g, prop, bytes);
        if (!h)
                goto unlock;
        do {
                r = heap_create(&g->heap, bytes, h, room_allowed(g), &h->block);
        } while (r == -ENOSPC && room_grow(g, bytes));
        /* No daemon can make room later, so the answer has to come now. */
        if (r == 0 && g->limit == UINT64_MAX)
                r = swap_back_block(g, h->block);
        if (r == 0) {
                *ret_name = h->name;
                swap_back_new(g);
                room_taken(g);
        } else {
                handle_free(h);
                room_tell(g, bytes);
        }
unlock:
        lock_release(&core_lock);
        return r == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                          const CUmemAllocationProp *prop, unsigned long long flags)
{
        struct gpu *g = NULL;
        CUresult r;

        (void)core_setup();
        if (can_be_ours(handle, prop, flags))
                g = core_attach(prop->location.id);
        if (!g && prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            !core_may_go_alone(prop->location.id))
                return HOOKS_MUST_SHARE;
        if (!g || g->error) { /* the driver returns the error of a GPU that has failed */
                return HOOKS_RETRY(real.cuMemCreate(handle, size, prop, flags));
        }
        if (size == 0 || size % HEAP_GRANULARITY)
                return CUDA_ERROR_INVALID_VALUE;
        r = kind_check(g, prop);
        return r == CUDA_SUCCESS ? create(g, size, prop, handle) : r;
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
        CUresult r = CUDA_SUCCESS;
        struct handle *h;

        (void)core_setup();
        lock_acquire(&core_lock);
        h = core_passive() ? NULL : virtual_find(handle);
        if (!h) {
                lock_release(&core_lock);
                return real.cuMemRelease(virtual_drivers(handle));
        }
        if (h->references == 0) {
                r = CUDA_ERROR_INVALID_VALUE;
        } else if (--h->references == 0) {
                handle_take(h);
                handle_put(h);
        }
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
        const CUdeviceptr address = (uintptr_t)addr;
        struct mapping *m;
        bool ours;

        (void)core_setup();
        if (core_passive())
                return real.cuMemRetainAllocationHandle(handle, addr);
        lock_acquire(&core_lock);
        m = virtual_at(address);
        if (m && m->handle && handle) {
                m->handle->references++;
                *handle = m->handle->name;
                lock_release(&core_lock);
                return CUDA_SUCCESS;
        }
        ours = core_holds(address, 1);
        lock_release(&core_lock);
        /* The driver refuses memory of its own cuMemAlloc in the same way. */
        return ours ? CUDA_ERROR_INVALID_VALUE : real.cuMemRetainAllocationHandle(handle, addr);
}

CUresult hook_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                     CUmemGenericAllocationHandle handle)
{
        struct handle *h;

        (void)core_setup();
        lock_acquire(&core_lock);
        h = core_passive() ? NULL : virtual_find(handle);
        if (h && prop) {
                *prop = h->prop;
                /* The driver (580.159.04) does not report this usage. */
                prop->allocFlags.usage &= (unsigned short)~CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
        }
        lock_release(&core_lock);
        if (!h)
                return real.cuMemGetAllocationPropertiesFromHandle(prop, virtual_drivers(handle));
        return prop ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
