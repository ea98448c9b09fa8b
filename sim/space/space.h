/* space.h: the devices' address space: reservations, mappings and access rights.
 *
 * Device addresses come from a region that the process cannot access (PROT_NONE), so that CPU code
 * that uses a device pointer crashes as it does with a card. Only managed memory (managed.h) and
 * host memory (mapped.h) are mapped there for the processor. The bytes of device memory lie at
 * other addresses, which the table of ranges contains. One lock, space_lock(), taken after sim.lock
 * and before the session's. */
#pragma once

#include "sim/call/call.h"

#define SPACE_GRANULARITY (UINT64_C(2) << 20)

enum physical_origin {
        PHYSICAL_ALLOCATED,
        PHYSICAL_GRAPH,   /* memory that the driver allocates for graphs */
        PHYSICAL_CREATED, /* made by cuMemCreate, or imported after its maker had freed it */
        PHYSICAL_IMPORTED,
};

/* Memory of a card, or of the host. */
struct physical {
        uint64_t bytes;
        unsigned device;
        uint8_t *at;
        unsigned handles, maps; /* the charge ends when both are 0; need the space lock */
        _Atomic unsigned pins;  /* the memory is freed when this is 0; the table has one pin */
        bool host;              /* host memory, for which no card is charged */
        enum physical_origin origin;
        bool imported; /* the process that has locked the file is charged, not this one */
        struct physical *next_imported;
        CUmemAllocationProp prop;
        struct physical *next; /* next in the list of the program's handles */
        int fd;                /* the file of shared memory and of host memory; otherwise -1 */
};

enum range_kind { RANGE_DEVICE, RANGE_VMM, RANGE_HOST, RANGE_MANAGED };

struct managed;

struct span {
        uint64_t start, bytes;
};

/* A piece of the address space with memory behind it. */
struct range {
        struct span span;
        enum range_kind kind;
        struct physical *physical; /* NULL: pinned host memory or managed memory */
        struct managed *managed;   /* managed memory; NULL: any other kind of range */
        uint64_t offset;
        uint8_t *at;
        uint8_t access[SESSION_DEVICES]; /* CU_MEM_ACCESS_FLAGS_... of each device */
        uint8_t host_access;             /* the processor's access to host memory (mapped.h) */
        _Atomic unsigned pins;
        _Atomic bool gone; /* the range was unmapped while work was using it */
};

/* A sorted table of elements that begin with a span. The spans do not overlap. */
struct table {
        struct span **span;
        size_t count, room;
};

/* Returns the element whose span holds the address; NULL: none. */
void *table_find(const struct table *t, uint64_t address);
int table_insert(struct table *t, struct span *span);
void table_remove(struct table *t, const struct span *span);

int space_setup(void);
void space_lock(void);
void space_lock_shared(void);
void space_unlock(void);

/* True for addresses of the devices' region, mapped or not. */
bool space_is_device(uint64_t address);
uint64_t space_start(void);
uint64_t space_size(void);
/* Makes the addresses inaccessible to the process, whatever was mapped there. */
void space_shut(uint64_t start, uint64_t bytes);

/* ---- reservations and ranges; all these functions need the space lock ---- */

uint64_t space_reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted); /* 0: no room */
void space_release(uint64_t start); /* takes the start of a reservation */
/* True if all these addresses are reserved. *ret_reservation is the reservation of the start. */
bool space_reserved(uint64_t start, uint64_t bytes, struct span *ret_reservation);
/* Maps memory at an address; the table owns the range. physical is NULL for pinned host memory. */
struct range *space_map(enum range_kind kind, uint64_t start, uint64_t bytes,
                        struct physical *physical, uint64_t offset, void *at);
void space_unmap(struct range *r);
struct range *space_range(uint64_t address);
/* Returns the range with that index, in address order; NULL: there are fewer. */
struct range *space_range_at(size_t index);
size_t space_range_lower(uint64_t address);

/* ---- memory; these functions take the space lock themselves unless said otherwise ---- */

/* Returns the number of unmappings. When it changes, a running kernel checks its ranges. */
uint64_t space_unmappings(void);

/* True while memory is to become a file: running kernels then release their memory and wait. */
bool space_sharing(void);
/* Waits a moment: a kernel until space_sharing() is false, the sharing thread for the kernels. */
void space_share_nap(void);

/* Pins the range at the address for use by a device; NULL: no range, or no access for the
 * device. */
struct range *space_pin(uint64_t address, unsigned device, bool write);
void space_unpin(struct range *r);

/* Allocates memory of a card, charged to this process. CUDA_ERROR_OUT_OF_MEMORY: the card or the
 * machine is full. */
CUresult physical_new(unsigned device, uint64_t bytes, struct physical **ret);
/* Allocates host memory that a card uses over the bus. */
CUresult physical_new_host(uint64_t bytes, struct physical **ret);
/* Imports memory that another process made; the caller keeps fd. The maker is charged while it
 * holds the memory. After that, a process that has imported the memory is charged. */
CUresult physical_import(int fd, uint64_t bytes, struct physical **ret);
/* Turns the memory that find() returns into a file with the same contents, once no work uses it;
 * after 2 s even if some does, which may lose bytes that it writes meanwhile. find() is called with
 * the space lock, and may return NULL. 0; -EINVAL: there is no such memory; -ENOMEM. The caller
 * holds no lock, and afterwards the space lock. */
int space_share(struct physical *(*find)(uint64_t key), uint64_t key, struct physical **ret);
/* Returns a descriptor of shared memory for another process, or -errno. */
int physical_export(const struct physical *p);
/* Drops a handle. Needs the space lock. */
void physical_drop(struct physical *p);

/* ---- vmm.c ---- */
/* Returns the memory of a handle; NULL: a stale handle. Needs the space lock. */
struct physical *handle_find(CUmemGenericAllocationHandle handle);
/* Makes a handle. Takes the space lock itself. */
CUmemGenericAllocationHandle handle_add(struct physical *p);
