/* pin.h: extents of the heap whose memory stays where it is, because somebody outside the process
 * has it: another process that opened it, or a device.
 *
 * What is pinned stays part of the heap's figures; the daemon counts it as fixed once it has said
 * so (PINNED), and until then it may be moved out like any other. A pin is taken before anybody is
 * given the memory and waits for that word, and for what was moved out to be back. All below:
 * core_lock held. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct block;
struct extent;
struct gpu;
struct pin;

enum pin_state {
        PIN_WAITING,
        PIN_READY,   /* all of it is there, and stays */
        PIN_REFUSED, /* others could not run beside it, or the program has freed it */
        PIN_GHOST,   /* freed by the program, but somebody has it: its bytes still count */
};

/* A pin of the extents that hold these bytes of the block. NULL: no memory. */
struct pin *pin_take(struct gpu *g, struct block *b, CUdeviceptr start, uint64_t bytes)
        REQUIRES(core_lock);
void pin_release(struct pin *p) REQUIRES(core_lock);
enum pin_state pin_state(const struct pin *p);
/* Its extents, in order; only while it is WAITING or READY. */
unsigned pin_extents(const struct pin *p);
struct extent *pin_extent(const struct pin *p, unsigned i);
uint64_t pin_bytes(const struct pin *p);
struct gpu *pin_gpu(const struct pin *p);
/* They have an extent in common. */
bool pin_shares(const struct pin *a, const struct pin *b);
/* From now on somebody has the memory: freed by the program, its bytes go on counting until the
 * last pin of it is released. */
void pin_given(struct pin *p);

/* The pin is released, but its extents stay until the program frees them: nobody will say when the
 * memory is let go of. */
void pin_for_good(struct pin *p) REQUIRES(core_lock);

/* Nothing of the extent will be needed any more; before its memory is released. */
void pin_extent_dies(struct gpu *g, struct extent *e) REQUIRES(core_lock);

/* ---- for the conversation with the daemon ---- */

/* Before it is told what is pinned: what was allowed and is not on the card has to be asked for
 * again, for the daemon counts nothing that is not backed. */
void pin_back(struct gpu *g) REQUIRES(core_lock);
/* So many bytes count with it as pinned. */
void pin_allowed(struct gpu *g, uint64_t bytes) REQUIRES(core_lock);
/* What was asked for past that is refused. */
void pin_refused(struct gpu *g) REQUIRES(core_lock);
