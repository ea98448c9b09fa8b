/* mapped.h: host memory that cuMemCreate made and that is mapped at a device address. Kernels use
 * it over the bus. */
#pragma once

#include "sim/space/space.h"

/* Returns the result of cuMemCreate for host memory at that location (SIMCUDA_HOST_MEMORY). */
CUresult mapped_check(const CUmemLocation *where);

/* Sets the processor's access to mapped memory: CU_MEM_ACCESS_FLAGS_... Returns false if the memory
 * cannot be mapped for the processor. Needs the space lock. */
bool mapped_show(struct range *r, unsigned flags);

static inline bool range_is_mapped(const struct range *r)
{
        return r && r->physical && r->physical->host;
}

/* The pages of a range that one kernel has used. Zero it at the start. */
struct mapped_use {
        uint8_t *pages; /* for each page 1: it was read, 2: it was written, 3: both */
};

/* Notes that the kernel accesses these bytes. A page that is read or written for the first time
 * crosses the bus until *ready_ns. [*ret_start, *ret_end) is the page, or empty if the bytes lie in
 * several pages. Returns false if this process has no memory left. */
bool mapped_touch(struct mapped_use *u, const struct range *r, unsigned device, uint64_t address,
                  size_t bytes, bool write, uint64_t *ready_ns, uint64_t *ret_start,
                  uint64_t *ret_end);
void mapped_done(struct mapped_use *u);

/* Notes that a fill writes so many bytes over the bus. */
void mapped_fill(unsigned device, uint64_t bytes, uint64_t *ready_ns);
