/* mapped.c: models host memory that a card uses over the bus: which accesses use the bus, and for
 * how long. Must never charge a card for this memory. */
#include "sim/space/mapped.h"
#include "sim/session/session_time.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/macros.h"

#define PAGE      (64 * KIB)
#define BEHIND_NS (5 * NSEC_PER_MSEC)

/* The simulated machine has one NUMA node. "unplaced" simulates a driver that may not read or set
 * the memory policy: it refuses every node as an invalid argument (NVIDIA/nccl pull 2253). "full"
 * simulates a node without free memory. */
CUresult mapped_check(const CUmemLocation *where)
{
        const char *text = getenv("SIMCUDA_HOST_MEMORY");

        if (!text)
                text = "";
        if (!strcmp(text, "no"))
                return CUDA_ERROR_NOT_SUPPORTED;
        if (where->type == CU_MEM_LOCATION_TYPE_HOST)
                return CUDA_SUCCESS;
        if (where->id != 0 || !strcmp(text, "unplaced"))
                return CUDA_ERROR_INVALID_VALUE;
        return strcmp(text, "full") != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool mapped_show(struct range *r, unsigned flags)
{
        int protection = flags & 2 ? PROT_READ | PROT_WRITE : PROT_READ;
        void *at = (void *)(uintptr_t)r->span.start;

        if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
                space_shut(r->span.start, r->span.bytes);
        else if (mmap(at, r->span.bytes, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                      r->physical->fd, (off_t)r->offset) == MAP_FAILED)
                return false;
        (void)madvise(at, r->span.bytes, MADV_DONTFORK);
        r->host_access = (uint8_t)flags;
        return true;
}

static void claim(unsigned device, bool write, uint64_t bytes, uint64_t *ready_ns)
{
        struct session_counters *n = &session_own(sim.session, device)->counters;
        uint64_t now = session_now_ns();

        if (*ready_ns + BEHIND_NS < now)
                *ready_ns = now - BEHIND_NS;
        *ready_ns = session_bus_claim(
                sim.session, device, write ? SESSION_TO_HOST : SESSION_TO_DEVICE, *ready_ns, bytes);
        session_count(write ? &n->d2h_bytes : &n->h2d_bytes, bytes);
        session_count(write ? &n->mapped_d2h_bytes : &n->mapped_h2d_bytes, bytes);
}

bool mapped_touch(struct mapped_use *u, const struct range *r, unsigned device, uint64_t address,
                  size_t bytes, bool write, uint64_t *ready_ns, uint64_t *ret_start,
                  uint64_t *ret_end)
{
        uint64_t first = (address - r->span.start) / PAGE;
        uint64_t last = (address + bytes - 1 - r->span.start) / PAGE;
        uint8_t bit = write ? 2 : 1;

        if (!u->pages)
                u->pages = calloc(1, r->span.bytes / PAGE + 1);
        if (!u->pages)
                return false;
        for (uint64_t i = first; i <= last; i++)
                if (!(u->pages[i] & bit)) {
                        u->pages[i] |= bit;
                        claim(device, write, MIN(PAGE, r->span.bytes - i * PAGE), ready_ns);
                }
        *ret_start = first == last ? r->span.start + first * PAGE : address;
        *ret_end = first == last ? MIN(*ret_start + PAGE, r->span.start + r->span.bytes) : address;
        return true;
}

void mapped_done(struct mapped_use *u)
{
        free(u->pages);
        u->pages = NULL;
}

void mapped_fill(unsigned device, uint64_t bytes, uint64_t *ready_ns)
{
        claim(device, true, bytes, ready_ns);
}
