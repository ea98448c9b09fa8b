/* host.c: pinned host memory, allocated by the driver or registered by the program. Devices reach
 * this memory at the address that the program uses. Must never free the memory before the work
 * submitted so far has ended. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "sim/session/fault.h"
#include "sim/memory/memory.h"
#include "sim/queue/stream.h"

/* Adds pinned memory. mapped: the length for munmap(); 0: the program's own memory. */
static CUresult host_add(CUcontext c, void *host, size_t bytes, uint64_t mapped, unsigned flags)
{
        struct block *b = calloc(1, sizeof(*b));
        CUresult r = CUDA_SUCCESS;

        if (!b)
                return CUDA_ERROR_OUT_OF_MEMORY;
        b->kind = mapped ? BLOCK_HOST : BLOCK_REGISTERED;
        b->context = context_owner(c);
        b->flags = flags;
        b->mapped = mapped;
        b->span = (struct span){(uintptr_t)host, bytes};
        space_lock();
        b->range = space_map(RANGE_HOST, b->span.start, bytes, NULL, 0, host);
        if (!b->range) {
                r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        } else if (block_add(b) < 0) {
                space_unmap(b->range);
                r = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
                memset(b->range->access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                       sizeof(b->range->access));
        }
        space_unlock();
        if (r != CUDA_SUCCESS)
                free(b);
        return r;
}

static struct block *host_find(const void *host, enum block_kind kind)
{
        struct block *b = memory_block((uintptr_t)host);

        return b && b->span.start == (uintptr_t)host && b->kind == kind ? b : NULL;
}

/* True for memory of cuMemCreate that the processor may access. Needs the space lock. */
static bool is_shown(uint64_t address)
{
        const struct range *range = space_range(address);

        return range && range->host_access;
}

static CUresult host_remove(const void *host, enum block_kind kind)
{
        CUresult none = CUDA_ERROR_INVALID_VALUE;
        CUcontext c = NULL;
        struct block *b;
        CUresult r;

        space_lock_shared();
        b = host_find(host, kind);
        if (b)
                c = b->context;
        else if (kind == BLOCK_REGISTERED && !memory_block((uintptr_t)host) &&
                 !is_shown((uintptr_t)host))
                none = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
        space_unlock();
        if (!c)
                return none;
        r = context_wait(c);
        if (r != CUDA_SUCCESS)
                return r;
        space_lock();
        b = host_find(host, kind);
        if (b)
                block_free(b);
        space_unlock();
        return b ? CUDA_SUCCESS : none;
}

EXPORT CUresult cuMemHostAlloc(void **ret_host, size_t bytes, unsigned int flags)
{
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), mapped;
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);
        void *p;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_host || bytes == 0 ||
            (flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
                       CU_MEMHOSTALLOC_WRITECOMBINED)))
                return CUDA_ERROR_INVALID_VALUE;
        mapped = align_up(bytes, page);
        p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = host_add(c, p, bytes, mapped, flags);
        if (r != CUDA_SUCCESS)
                (void)munmap(p, mapped);
        else
                *ret_host = p;
        return r;
}

EXPORT CUresult cuMemAllocHost_v2(void **ret_host, size_t bytes)
{
        return cuMemHostAlloc(ret_host, bytes, 0);
}

EXPORT CUresult cuMemFreeHost(void *host)
{
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, NULL);

        return r != CUDA_SUCCESS || !host ? r : host_remove(host, BLOCK_HOST);
}

EXPORT CUresult cuMemHostRegister_v2(void *host, size_t bytes, unsigned int flags)
{
        FAULT_AFTER(__func__);
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!host || bytes == 0 || space_is_device((uintptr_t)host) ||
            (flags & ~(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                       CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY)))
                return CUDA_ERROR_INVALID_VALUE;
        return host_add(c, host, bytes, 0, flags);
}

EXPORT CUresult cuMemHostRegister(void *host, size_t bytes, unsigned int flags)
{
        return cuMemHostRegister_v2(host, bytes, flags);
}

EXPORT CUresult cuMemHostUnregister(void *host)
{
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, NULL);

        return r != CUDA_SUCCESS ? r : host_remove(host, BLOCK_REGISTERED);
}

static bool is_host(const struct block *b)
{
        return b && (b->kind == BLOCK_HOST || b->kind == BLOCK_REGISTERED);
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ret_host, void *host, unsigned int flags)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);
        struct block *b;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_host || flags)
                return CUDA_ERROR_INVALID_VALUE;
        space_lock_shared();
        b = memory_block((uintptr_t)host);
        if (is_host(b) || is_shown((uintptr_t)host))
                *ret_host = (uintptr_t)host;
        else
                r = CUDA_ERROR_INVALID_VALUE;
        space_unlock();
        return r;
}

EXPORT CUresult cuMemHostGetFlags(unsigned int *ret_flags, void *host)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);
        struct block *b;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_flags)
                return CUDA_ERROR_INVALID_VALUE;
        space_lock_shared();
        b = memory_block((uintptr_t)host);
        if (is_host(b)) /* under unified addressing the memory is always mapped */
                *ret_flags = b->flags | CU_MEMHOSTALLOC_DEVICEMAP;
        else if (is_shown((uintptr_t)host))
                *ret_flags = CU_MEMHOSTALLOC_DEVICEMAP;
        else
                r = CUDA_ERROR_INVALID_VALUE;
        space_unlock();
        return r;
}
