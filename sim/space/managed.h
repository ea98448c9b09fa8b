/* managed.h: managed memory (cuMemAllocManaged): addresses that the processor and the cards share,
 * whose bytes are moved to where they are used.
 *
 * Each process has two stores, files of memory, one for what is on the host and one for what is on
 * a card; the bytes of an address are in one of them. The program's own mapping shows the host's
 * and is closed where a card has the bytes: touching it there is a fault (SIGSEGV), which brings
 * them home. frames.h says what is on which card. Locks: one of managed.c's own, taken after the
 * space lock and before the session's; nobody waits for anybody while holding it. */
#pragma once

#include "sim/session/frames.h"
#include "sim/space/space.h"

#define MANAGED_HELD 16 /* frames that one piece of work uses at a time */

enum managed_cause {
        MANAGED_FAULT,    /* a kernel: regions as they are touched, and what lies around them */
        MANAGED_COPY,     /* copies and fills: what they use */
        MANAGED_PREFETCH, /* what was asked for, in bulk */
};

/* What a piece of running work uses of a card's managed memory: its owner's thread alone. Zero but
 * for context and device is a good start. */
struct managed_hold {
        CUcontext context;
        unsigned device;
        struct frames_place held[MANAGED_HELD];
        unsigned count;
        uint32_t hunger;
        uint64_t epoch; /* grows when pointers that managed_use() gave are no longer good */
        uint64_t ready_ns;
        CUresult error; /* why managed_use() gave none */
};

/* Bytes of the process's address space; nobody has touched them. CUDA_ERROR_OUT_OF_MEMORY where
 * this machine could not hold them. */
CUresult managed_new(CUcontext c, uint64_t bytes, unsigned attach, struct managed **ret);
uint64_t managed_start(const struct managed *m);
uint64_t managed_bytes(const struct managed *m);
/* Locked (space): the contents and the addresses go; the object when its range is unpinned. */
void managed_release(struct managed *m);
void managed_destroy(struct managed *m);

/* Make the bytes present on the device and hold them there; the pointer is good for all of
 * [*ret_start, *ret_end). NULL: hold->error. */
void *managed_use(struct managed_hold *hold, struct managed *m, uint64_t address, uint64_t bytes,
                  enum managed_cause cause, uint64_t *ret_start, uint64_t *ret_end);
/* Somebody may need what we hold: called between uses, costs a load. */
void managed_look(struct managed_hold *hold);
void managed_drop(struct managed_hold *hold);

/* As the processor would touch it, but in bulk. */
CUresult managed_bring_home(CUcontext c, struct managed *m, uint64_t address, uint64_t bytes);

/* Take bytes of a card, for whatever is not managed: pushes managed memory off it where there is no
 * room. -ENOMEM. */
int managed_charge(unsigned device, uint64_t bytes);

/* ---- what programs say of it; device: ordinal, or CU_DEVICE_CPU, CU_DEVICE_INVALID ---- */

struct managed_advice {
        int16_t preferred, prefetched;
        bool read_mostly;
        uint8_t accessed_by; /* a bit each device */
        bool accessed_by_host;
};
/* Calls change for all regions of [address, address + bytes). */
void managed_advise(struct managed *m, uint64_t address, uint64_t bytes,
                    void (*change)(struct managed_advice *a, int device), int device);
/* The same for all regions, or their common part. */
struct managed_advice managed_advice_of(struct managed *m, uint64_t address, uint64_t bytes);
void managed_attach(struct managed *m, unsigned attach);
