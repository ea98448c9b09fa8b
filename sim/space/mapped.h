/* mapped.h: memory of the host made by cuMemCreate and mapped at a device address: kernels use it
 * over the bus. */
#pragma once

#include "sim/space/space.h"

/* cuMemCreate's answer for host memory there (SIMCUDA_HOST_MEMORY). */
CUresult mapped_check(const CUmemLocation *where);

/* The processor's access to the memory mapped there: CU_MEM_ACCESS_FLAGS_. Locked (space). False:
 * it cannot be mapped for the processor. */
bool mapped_show(struct range *r, unsigned flags);

static inline bool range_is_mapped(const struct range *r)
{
        return r && r->physical && r->physical->host;
}

/* What one kernel has used of one range. Zeroed to begin with. */
struct mapped_use {
        uint8_t *pages; /* bits: 1 read, 2 written */
};

/* The kernel accesses these bytes. Each page accessed in this way for the first time goes over the
 * bus until *ready_ns. ret_start, ret_end: the extent of the page, within the range. False: out of
 * memory. */
bool mapped_touch(struct mapped_use *u, const struct range *r, unsigned device, uint64_t address,
                  size_t bytes, bool write, uint64_t *ready_ns, uint64_t *ret_start,
                  uint64_t *ret_end);
void mapped_done(struct mapped_use *u);

/* Bytes that a fill writes there. */
void mapped_fill(unsigned device, uint64_t bytes, uint64_t *ready_ns);
