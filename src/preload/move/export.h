/* export.h: extents of the heap whose memory must stay where it is, because another process or a
 * device has it open.
 *
 * Exported bytes stay part of the heap's figures. The daemon counts them as unevictable from its
 * EXPORTED message on; until then they may move like any others. Call export_take() before you give
 * the memory to another process or a device. The export is ready when EXPORTED has come and the
 * evicted part of its memory is restored. core_lock is held in all functions below. */
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
        EXPORT_READY,   /* all extents are on the card, and stay there */
        EXPORT_REFUSED, /* refused by the daemon, freed by the program, or in host memory */
        EXPORT_GHOST,   /* freed by the program, but still open elsewhere: its bytes count */
};

/* Returns an export of the extents that hold these bytes of the block. NULL: no memory. */
struct export *export_take(struct gpu *g, struct block *b, CUdeviceptr start, uint64_t bytes)
        REQUIRES(core_lock);
void export_release(struct export *p) REQUIRES(core_lock);
enum export_state export_state(const struct export *p);
/* The extents of an export, in order; only while it is EXPORT_WAITING or EXPORT_READY. */
unsigned export_extents(const struct export *p);
struct extent *export_extent(const struct export *p, unsigned i);
uint64_t export_bytes(const struct export *p);
struct gpu *export_gpu(const struct export *p);
/* True if the exports have an extent in common. */
bool export_shares(const struct export *a, const struct export *b);
/* From now on another process or a device uses the memory. If the program frees the memory, its
 * bytes count until the last export of it is released. */
void export_given(struct export *p);

/* Release the export, but keep its extents on the card until the program frees them: nobody reports
 * when a device stops using the memory. */
void export_for_good(struct export *p) REQUIRES(core_lock);

/* The extent is about to be freed; call it before its memory is released. */
void export_extent_dies(struct gpu *g, struct extent *e) REQUIRES(core_lock);

/* ---- for the conversation with the daemon ---- */

/* Call it before a new daemon gets the figures: exported bytes that are not on the card must be
 * requested again, because a daemon counts only backed bytes. */
void export_back(struct gpu *g) REQUIRES(core_lock);
/* The daemon counts `bytes` as exported. */
void export_allowed(struct gpu *g, uint64_t bytes) REQUIRES(core_lock);
/* The daemon refuses the requested bytes beyond the allowed ones. */
void export_refused(struct gpu *g) REQUIRES(core_lock);
