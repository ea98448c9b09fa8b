/* frames.h: which blocks of managed memory are on the cards, for all processes of a session.
 *
 * Managed memory is divided into blocks of 2 MiB of a process's addresses, a block into regions of
 * 64 KiB. A frame is what a card holds of one block. When a card is full the frame that was used
 * longest ago goes, whoever owns it, as a whole. Work that runs pins what it is using, and lets go
 * of it soon when frames_hunger() changes. A mover that is killed leaves the frame on the card, or,
 * when the bytes are across, off it. Nothing here touches the bytes (managed.c does), nothing here
 * waits but frames_wait(). Thread-safe. */
#pragma once

#include "sim/session/session.h"

#define FRAMES_BLOCK_BYTES  (UINT64_C(2) << 20)
#define FRAMES_REGION_BYTES (UINT64_C(64) << 10)
#define FRAMES_REGIONS      32 /* a bit each */

/* The caller's frame of a block, as found earlier; it may be gone by now. */
struct frames_place {
        unsigned device, frame;
        uint64_t block;
};

/* A new empty frame, charged to the caller and pinned. -ENOMEM: the card is full; -ESHUTDOWN: the
 * caller has left. */
int frames_take(struct session *s, unsigned device, uint64_t block, uint64_t bytes,
                struct frames_place *ret_place);
/* Pin it: it is in use, and may not be moved. -ENOENT: not on the card (any more); -EBUSY: another
 * process is moving it, call frames_wait(). */
int frames_pin(struct session *s, const struct frames_place *p, uint32_t *ret_regions);
void frames_unpin(struct session *s, const struct frames_place *p);
/* These regions are on the card now; pinned. */
void frames_add(struct session *s, const struct frames_place *p, uint32_t regions);
/* The regions on the card, without using them: results as of frames_pin(). */
int frames_look(struct session *s, const struct frames_place *p, uint32_t *ret_regions);
/* The owner takes regions off: no other process may touch the frame until frames_remove(). -ENOENT,
 * -EBUSY as above, also while it is pinned. */
int frames_claim(struct session *s, const struct frames_place *p, uint32_t *ret_regions);
/* Ends a claim. With nothing left the frame goes. */
void frames_remove(struct session *s, const struct frames_place *p, uint32_t regions);
/* The block is no more. */
void frames_forget(struct session *s, const struct frames_place *p);

/* A frame of any process that has to go; its bytes are to be copied from one store to the other. */
struct frames_victim {
        unsigned device, frame, slot;
        pid_t pid;
        struct session_store host, card;
        uint64_t block;
        uint32_t regions;
};

/* Claims the frame that was used longest ago. -ENOENT: no managed memory is on the card; -EBUSY:
 * none of it can be moved now, call frames_wait() (the hunger has grown). */
int frames_victim(struct session *s, unsigned device, struct frames_victim *ret_victim);
/* The host has all of it, so the card's bytes may be dropped. False: leave them, another process
 * moves them now. */
bool frames_copied(struct session *s, const struct frames_victim *v, uint64_t copied_bytes);
/* Off the card (evicted), or it stays. */
void frames_victim_end(struct session *s, const struct frames_victim *v, bool evicted);
/* The stores are gone: the process has called exec(). */
void frames_victim_gone(struct session *s, const struct frames_victim *v);

/* Changes when a process waits for pins to be given up. */
uint32_t frames_hunger(struct session *s, unsigned device);
/* Read the number, check the condition, and wait for the number to change. Returns after a while in
 * any case, when ended processes have been counted out. */
uint32_t frames_changes(struct session *s);
void frames_wait(struct session *s, uint32_t changes);

/* Where the caller's managed memory lies, for processes that evict it. */
void frames_stores(struct session *s, const struct session_store *host,
                   const struct session_store *card);
