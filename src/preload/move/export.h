/* export.h: extents of the heap whose memory stays where it is, because somebody outside the
 * process has it: another process that opened it, or a device.
 *
 * What is exported stays part of the heap's figures; the daemon counts it as unevictable once it
 * has said so (EXPORTED), and until then it may be moved out like any other. An export is taken
 * before anybody is given the memory and waits for that word, and for what was moved out to be
 * back. All below: core_lock held. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct block;
struct extent;
struct gpu;
struct export;

enum export_state {
        EXPORT_WAITING,
        EXPORT_READY,   /* all of it is there, and stays */
        EXPORT_REFUSED, /* others could not run beside it, or the program has freed it */
        EXPORT_GHOST,   /* freed by the program, but somebody has it: its bytes still count */
};

/* An export of the extents that hold these bytes of the block. NULL: no memory. */
struct export *export_take(struct gpu *g, struct block *b, CUdeviceptr start, uint64_t bytes)
        REQUIRES(core_lock);
void export_release(struct export *p) REQUIRES(core_lock);
enum export_state export_state(const struct export *p);
/* Its extents, in order; only while it is WAITING or READY. */
unsigned export_extents(const struct export *p);
struct extent *export_extent(const struct export *p, unsigned i);
uint64_t export_bytes(const struct export *p);
struct gpu *export_gpu(const struct export *p);
/* They have an extent in common. */
bool export_shares(const struct export *a, const struct export *b);
/* From now on somebody has the memory: freed by the program, its bytes go on counting until the
 * last export of it is released. */
void export_given(struct export *p);

/* The export is released, but its extents stay until the program frees them: nobody will say when
 * the memory is let go of. */
void export_for_good(struct export *p) REQUIRES(core_lock);

/* Nothing of the extent will be needed any more; before its memory is released. */
void export_extent_dies(struct gpu *g, struct extent *e) REQUIRES(core_lock);

/* ---- for the conversation with the daemon ---- */

/* Before it is told what is exported: what was allowed and is not on the card has to be asked for
 * again, for the daemon counts nothing that is not backed. */
void export_back(struct gpu *g) REQUIRES(core_lock);
/* So many bytes count with it as exported. */
void export_allowed(struct gpu *g, uint64_t bytes) REQUIRES(core_lock);
/* What was asked for past that is refused. */
void export_refused(struct gpu *g) REQUIRES(core_lock);
