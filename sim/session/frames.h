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

/* The caller's frame of a block, as found out before; it may be gone by now. */
struct frames_place {
        unsigned device, frame;
        uint64_t block;
};

/* A new frame with nothing in it, charged to the caller and pinned. -ENOMEM: the card is full;
 * -ESHUTDOWN: the caller has left. */
int frames_take(struct session *s, unsigned device, uint64_t block, uint64_t bytes,
                struct frames_place *ret_place);
/* It is being used now, and may not be moved. -ENOENT: not on the card (any more); -EBUSY: somebody
 * is moving it, frames_wait(). */
int frames_pin(struct session *s, const struct frames_place *p, uint32_t *ret_regions);
void frames_unpin(struct session *s, const struct frames_place *p);
/* These regions are there now; pinned. */
void frames_add(struct session *s, const struct frames_place *p, uint32_t regions);
/* What is there, without using it: as frames_pin(). */
int frames_look(struct session *s, const struct frames_place *p, uint32_t *ret_regions);
/* The owner wants to take regions off: nobody else may touch the frame until frames_remove().
 * -ENOENT, -EBUSY as above, also while it is pinned. */
int frames_claim(struct session *s, const struct frames_place *p, uint32_t *ret_regions);
/* Ends a claim. With nothing left the frame goes. */
void frames_remove(struct session *s, const struct frames_place *p, uint32_t regions);
/* The block is no more. */
void frames_forget(struct session *s, const struct frames_place *p);

/* Somebody's frame that has to go; its bytes are to be copied from one store to the other. */
struct frames_victim {
        unsigned device, frame, slot;
        pid_t pid;
        struct session_store host, card;
        uint64_t block;
        uint32_t regions;
};

/* Claims the one that was used longest ago. -ENOENT: no managed memory is on the card; -EBUSY: none
 * of it can be moved now, frames_wait() (and the hunger has grown). */
int frames_victim(struct session *s, unsigned device, struct frames_victim *ret_victim);
/* The host has it all; the card's bytes may be thrown away. False: leave them, it is not ours to
 * move any more. */
bool frames_copied(struct session *s, const struct frames_victim *v, uint64_t copied_bytes);
/* Off the card (evicted), or it stays. */
void frames_victim_end(struct session *s, const struct frames_victim *v, bool evicted);
/* The stores are not there any more: the process is another one since exec(). */
void frames_victim_gone(struct session *s, const struct frames_victim *v);

/* Changes when somebody waits for pins to be given up. */
uint32_t frames_hunger(struct session *s, unsigned device);
/* Take the number, look, and wait for it to change; returns after a while in any case, the dead
 * having been counted out. */
uint32_t frames_changes(struct session *s);
void frames_wait(struct session *s, uint32_t changes);

/* Where the caller's managed memory lies, for those who evict it. */
void frames_stores(struct session *s, const struct session_store *host,
                   const struct session_store *card);
