/* export.h: extents of the heap whose memory must stay where it is, because another process or a
 * device has it open.
 *
 * Exported bytes stay part of the heap's figures. The daemon counts them as unevictable from its
 * EXPORTED message on; before that they may be moved like any others. An export is taken before the
 * memory is given away; it waits for EXPORTED, and for evicted memory to be back. All below:
 * core_lock held. */
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
        EXPORT_READY,   /* all of it is on the card, and stays */
        EXPORT_REFUSED, /* other programs could not run beside it, or the program has freed it */
        EXPORT_GHOST,   /* freed by the program, but in use outside: its bytes still count */
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
/* The two have an extent in common. */
bool export_shares(const struct export *a, const struct export *b);
/* From now on the memory is in use outside. If the program frees it, its bytes count until the last
 * export of it is released. */
void export_given(struct export *p);

/* Release the export, but keep its extents on the card until the program frees them: nobody reports
 * when a device lets go of the memory. */
void export_for_good(struct export *p) REQUIRES(core_lock);

/* The extent is about to be freed; call it before its memory is released. */
void export_extent_dies(struct gpu *g, struct extent *e) REQUIRES(core_lock);

/* ---- for the conversation with the daemon ---- */

/* Before a new daemon gets the figures: exported bytes that are not on the card must be asked for
 * again, because a daemon counts only backed bytes. */
void export_back(struct gpu *g) REQUIRES(core_lock);
/* The daemon counts so many bytes as exported. */
void export_allowed(struct gpu *g, uint64_t bytes) REQUIRES(core_lock);
/* The daemon refuses the bytes asked for above that. */
void export_refused(struct gpu *g) REQUIRES(core_lock);
