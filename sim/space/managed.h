/* managed.h: managed memory (cuMemAllocManaged): addresses that the processor and the cards share.
 * The bytes move to the processor or card that uses them.
 *
 * Each process has two stores, files of memory, one for bytes on the host and one for bytes on a
 * card. The program's mapping shows the host's store and is closed where a card has the bytes. An
 * access there faults (SIGSEGV), and the fault moves the bytes to the host. frames.h keeps account
 * of the bytes on each card. managed.c has a lock, taken after the space lock and before the
 * session's; no thread waits for others while it holds this lock. */
#pragma once

#include "sim/session/frames.h"
#include "sim/space/space.h"

#define MANAGED_HELD 16 /* frames that one operation uses at a time */

enum managed_cause {
        MANAGED_FAULT,    /* a kernel's access: moves the region, and regions around it */
        MANAGED_COPY,     /* a copy or fill: moves the regions that it uses */
        MANAGED_PREFETCH, /* a prefetch: moves the requested bytes in bulk */
};

/* The frames of managed memory that a running operation uses on a card. For one thread. Zero all
 * fields at the start, except context and device. */
struct managed_hold {
        CUcontext context;
        unsigned device;
        struct frames_place held[MANAGED_HELD];
        unsigned count;
        uint32_t hunger;
        uint64_t epoch; /* grows when pointers from managed_use() become invalid */
        uint64_t ready_ns;
        CUresult error; /* the reason why managed_use() returned NULL */
};

/* Allocates managed memory without contents. CUDA_ERROR_OUT_OF_MEMORY: this machine could not hold
 * it. */
CUresult managed_new(CUcontext c, uint64_t bytes, unsigned attach, struct managed **ret);
uint64_t managed_start(const struct managed *m);
uint64_t managed_bytes(const struct managed *m);
/* Frees the contents and the addresses. Needs the space lock. */
void managed_release(struct managed *m);
/* Frees the object of released memory, when its range is no longer pinned. */
void managed_destroy(struct managed *m);

/* Moves the bytes to the device and holds them there. The returned pointer is valid for all of
 * [*ret_start, *ret_end). NULL: an error, in hold->error. */
void *managed_use(struct managed_hold *hold, struct managed *m, uint64_t address, uint64_t bytes,
                  enum managed_cause cause, uint64_t *ret_start, uint64_t *ret_end);
/* Drops the hold if another process needs frames. Call it between uses; it costs one load. */
void managed_look(struct managed_hold *hold);
void managed_drop(struct managed_hold *hold);

/* Moves the bytes to the host, as an access of the processor would, but in bulk. */
CUresult managed_bring_home(CUcontext c, struct managed *m, uint64_t address, uint64_t bytes);

/* Charges this process for bytes of a card that are not managed memory. Evicts managed memory if
 * there is no room. Returns 0, -ENOMEM. */
int managed_charge(unsigned device, uint64_t bytes);

/* ---- advice; a device is an ordinal, CU_DEVICE_CPU or CU_DEVICE_INVALID ---- */

struct managed_advice {
        int16_t preferred, prefetched;
        bool read_mostly;
        uint8_t accessed_by; /* mask with one bit per device */
        bool accessed_by_host;
};
/* Calls change() for all regions of [address, address + bytes). */
void managed_advise(struct managed *m, uint64_t address, uint64_t bytes,
                    void (*change)(struct managed_advice *a, int device), int device);
/* Returns the advice that all regions of [address, address + bytes) have in common. */
struct managed_advice managed_advice_of(struct managed *m, uint64_t address, uint64_t bytes);
void managed_attach(struct managed *m, unsigned attach);
