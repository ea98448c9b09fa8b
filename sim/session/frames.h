/* frames.h: keeps account of the managed memory on the cards, for all processes of a session.
 *
 * Managed memory is divided into blocks of 2 MiB of a process's addresses. Each block is divided
 * into regions of 64 KiB. A frame is the part of one block that is on a card. When a card is full,
 * the frame that was used longest ago is evicted as a whole, whichever process owns it. Running
 * work pins the frames that it uses, and unpins them soon after frames_hunger() changes. If a
 * process is killed while it evicts a frame, the frame stays on the card, unless all bytes have
 * been copied. Only managed.c touches the bytes, and only frames_wait() waits. Thread-safe. */
#pragma once

#include "sim/session/session.h"

#define FRAMES_BLOCK_BYTES  (UINT64_C(2) << 20)
#define FRAMES_REGION_BYTES (UINT64_C(64) << 10)
#define FRAMES_REGIONS      32 /* regions of a block; a mask of regions has one bit for each */

/* Reference to the caller's frame of a block. When the reference is used, the frame may be gone. */
struct frames_place {
        unsigned device, frame;
        uint64_t block;
};

/* Takes a new empty frame, charged to the caller and pinned. Returns 0, -ENOMEM (the card is full),
 * -ESHUTDOWN (the caller has left the session). */
int frames_take(struct session *s, unsigned device, uint64_t block, uint64_t bytes,
                struct frames_place *ret_place);
/* Pins a frame, so that no process moves it. Returns 0, -ENOENT (it is not on the card), -EBUSY
 * (another process is moving it: call frames_wait()). */
int frames_pin(struct session *s, const struct frames_place *p, uint32_t *ret_regions);
void frames_unpin(struct session *s, const struct frames_place *p);
/* Notes that these regions of a pinned frame are on the card now. */
void frames_add(struct session *s, const struct frames_place *p, uint32_t regions);
/* Returns the regions on the card without pinning the frame. Fails like frames_pin(). */
int frames_look(struct session *s, const struct frames_place *p, uint32_t *ret_regions);
/* Lets the owner take regions off the card: no other process touches the frame until
 * frames_remove(). Fails like frames_pin(), and with -EBUSY also for a pinned frame. */
int frames_claim(struct session *s, const struct frames_place *p, uint32_t *ret_regions);
/* Ends a claim after these regions have left the card. A frame without regions is freed. */
void frames_remove(struct session *s, const struct frames_place *p, uint32_t regions);
/* Frees the frame of a freed block. */
void frames_forget(struct session *s, const struct frames_place *p);

/* A frame of any process that is to be evicted: the caller copies its bytes from store `card` to
 * store `host`. */
struct frames_victim {
        unsigned device, frame, slot;
        pid_t pid;
        struct session_store host, card;
        uint64_t block;
        uint32_t regions;
};

/* Claims the frame that was used longest ago. Returns 0, -ENOENT (no managed memory is on the
 * card), -EBUSY (no frame can be moved now: call frames_wait()). -EBUSY also changes
 * frames_hunger(). */
int frames_victim(struct session *s, unsigned device, struct frames_victim *ret_victim);
/* Notes that the host has all bytes of the victim, so that the card's bytes may be dropped. Returns
 * false if the frame no longer belongs to the victim: then do not drop them. */
bool frames_copied(struct session *s, const struct frames_victim *v, uint64_t copied_bytes);
/* Ends the claim of a victim. evicted: the frame has left the card. */
void frames_victim_end(struct session *s, const struct frames_victim *v, bool evicted);
/* Frees all frames of a victim's process. Call it when that process has called exec(), which has
 * closed its stores. */
void frames_victim_gone(struct session *s, const struct frames_victim *v);

/* Returns a number that changes when a process needs others to unpin frames. */
uint32_t frames_hunger(struct session *s, unsigned device);
/* Returns a number that changes with the frames. Read it, check a condition, and wait with
 * frames_wait() for the number to change. If it does not change for a while, frames_wait() ends the
 * slots of dead processes and returns. */
uint32_t frames_changes(struct session *s);
void frames_wait(struct session *s, uint32_t changes);

/* Publishes the stores of the caller's managed memory, for processes that evict it. */
void frames_stores(struct session *s, const struct session_store *host,
                   const struct session_store *card);
