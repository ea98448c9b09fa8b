/* segment.h: the shared segment itself, for the two files that work on it: session.c (who is there,
 * what they use) and frames.c (which managed memory is on the cards).
 *
 * Everything in it is under segment_lock(), unless it is atomic. The lock is robust: whoever holds
 * it must leave the segment right at every moment, because it may be killed at any. */
#pragma once

#include <pthread.h>

#include "sim/session/frames.h"
#include "sim/session/session.h"

/* So much managed memory of a card: 256 GiB. The file has holes where less is needed. */
#define SEGMENT_FRAMES 131072

/* The part of one process's block of managed memory that is on a card. */
struct segment_frame {
        uint32_t owner; /* slot, from 1; 0: free, or let go by its owner while it was being moved */
        uint32_t mover; /* slot, from 1, of the process that takes it off the card; 0: none */
        bool copied;    /* the copying is over: the host's bytes are valid */
        uint32_t pins;  /* by the owner's running work: it may not be moved */
        uint32_t regions; /* that are on the card */
        uint32_t bytes;   /* of the card's */
        uint64_t block;
        uint64_t last_use; /* by segment.uses */
};

struct session_segment {
        uint64_t magic;
        uint32_t devices;
        char name[SESSION_NAME_MAX];
        pthread_mutex_t lock; /* robust, shared */
        uint64_t endings;
        uint64_t uses;            /* of frames: the clock of "least recently" */
        _Atomic uint32_t changes; /* of frames; a futex */
        _Atomic uint32_t waiters; /* for it to change */
        struct session_device device[SESSION_DEVICES];
        struct session_slot slot[SESSION_SLOTS];
        struct {
                uint32_t high;           /* frames from here on were never used */
                _Atomic uint32_t hunger; /* how often a process found no frame that may be moved */
                struct segment_frame frame[SEGMENT_FRAMES];
        } frames[SESSION_DEVICES];
};

struct session {
        struct session_segment *segment;
        struct session_slot *own; /* NULL: attached only */
};

void segment_lock(struct session_segment *g);
void segment_unlock(struct session_segment *g);
/* These locked. */
uint64_t segment_used(struct session_segment *g, unsigned device);
int segment_charge(struct session *s, unsigned device, uint64_t bytes); /* -ENOMEM */

static inline bool slot_live(const struct session_slot *slot)
{
        return atomic_load_explicit(&slot->state, memory_order_acquire) == SLOT_LIVE;
}

/* frames.c: the process is gone, and what it had. Locked. */
void frames_slot_ends(struct session_segment *g, const struct session_slot *slot);
