/* space.h: the devices' address space: which addresses are reserved, what is mapped where, who may
 * touch it.
 *
 * Device addresses come from a region that the process itself cannot touch (PROT_NONE), so that a
 * device pointer used by CPU code crashes as it does with a card; managed memory (managed.h) is
 * mapped there while the host has it. The bytes lie elsewhere and are found through the table of
 * ranges. One lock, space_lock(); taken after sim.lock, before the
 * session's. */
#pragma once

#include "sim/call/call.h"

#define SPACE_GRANULARITY (UINT64_C(2) << 20)

enum physical_origin {
        PHYSICAL_ALLOCATED,
        PHYSICAL_GRAPH,   /* the memory of graphs, which only the driver knows */
        PHYSICAL_CREATED, /* made by cuMemCreate, or imported after its maker had let go of it */
        PHYSICAL_IMPORTED,
};

/* Memory of a card, or of the host. */
struct physical {
        uint64_t bytes;
        unsigned device;
        uint8_t *at;
        unsigned handles, maps; /* under the space lock: the card is charged while either is left */
        _Atomic unsigned pins;  /* the memory itself stays while any is left; the table holds one */
        bool host;              /* host memory, which no card is charged for */
        enum physical_origin origin;
        bool imported; /* charged to the process that holds the lock of the file */
        struct physical *next_imported;
        CUmemAllocationProp prop;
        struct physical *next; /* the program's handles */
        int fd;                /* shareable memory and host memory are files; otherwise -1 */
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
        struct physical *physical; /* NULL: host memory, and managed memory */
        struct managed *managed;   /* RANGE_MANAGED: its bytes are on the card or on the host */
        uint64_t offset;
        uint8_t *at;
        uint8_t access[SESSION_DEVICES]; /* CU_MEM_ACCESS_FLAGS_ */
        uint8_t host_access;             /* the processor's access to host memory (mapped.h) */
        _Atomic unsigned pins;
        _Atomic bool gone; /* unmapped while work was using it */
};

/* A table of spans, sorted, none overlapping; the element begins with its span. */
struct table {
        struct span **span;
        size_t count, room;
};

/* The span that holds the address; NULL: none. */
void *table_find(const struct table *t, uint64_t address);
/* Index of the first span that ends behind the address. */
size_t table_lower(const struct table *t, uint64_t address);
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
/* Make the addresses inaccessible to the process itself, whatever was mapped there. */
void space_shut(uint64_t start, uint64_t bytes);

/* All of these: locked. */
uint64_t space_reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted); /* 0: no room */
void space_release(uint64_t start);                                          /* a reservation's */
/* True if all of it is reserved; the reservation is the one that holds its start. */
bool space_reserved(uint64_t start, uint64_t bytes, struct span *ret_reservation);
/* Put memory there; the table owns the range. For host memory physical is NULL. */
struct range *space_map(enum range_kind kind, uint64_t start, uint64_t bytes,
                        struct physical *physical, uint64_t offset, void *at);
void space_unmap(struct range *r);
struct range *space_range(uint64_t address);
/* Index into the ranges in address order, for walks; NULL past the last. */
struct range *space_range_at(size_t index);
size_t space_range_lower(uint64_t address);

/* Counts unmaps: a running kernel looks again when it changes. */
uint64_t space_unmappings(void);

/* Unlocked: pin the range at the address for use by a device; NULL: no access, or no memory there.
 */
struct range *space_pin(uint64_t address, unsigned device, bool write);
void space_unpin(struct range *r);

/* Memory of a card, charged to this process. Unlocked. A CUresult, because a full card and a full
 * machine are both CUDA_ERROR_OUT_OF_MEMORY. fd: a file to map, or -1. */
CUresult physical_new(unsigned device, uint64_t bytes, bool shareable, struct physical **ret);
/* Host memory for a card to use over the bus. */
CUresult physical_new_host(uint64_t bytes, struct physical **ret);
/* Memory that another process made; the caller keeps fd. The maker is charged for it while it holds
 * it; after that, a process that has imported it. */
CUresult physical_import(int fd, uint64_t bytes, struct physical **ret);
/* Turn it into a file, with its contents, if it is none yet. Locked. 0, -errno. */
int physical_share(struct physical *p);
/* A descriptor of this shareable memory for another process, or -errno. */
int physical_export(const struct physical *p);
/* Locked: drop a handle or a mapping. */
void physical_drop(struct physical *p);

/* vmm.c: the memory of the program's handles. The first locked, the second not. */
struct physical *handle_find(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle handle_add(struct physical *p);
