/* segment.h: the shared segment, for the files that work on it: session.c (the processes and their
 * memory), frames.c (the managed memory on the cards) and segment_file.c (the file).
 *
 * All fields that are not atomic need segment_lock(). The lock is robust: its holder must leave the
 * segment valid at every moment, because the process may be killed at any moment. */
#pragma once

#include <pthread.h>

#include "sim/session/frames.h"
#include "sim/session/session.h"
#include "sim/session/shared_rm.h"

/* Frames of a card: enough for 256 GiB of managed memory. Unused frames are holes in the file. */
#define SEGMENT_FRAMES 131072

/* The part of one process's block of managed memory that is on a card. */
struct segment_frame {
        uint32_t owner;   /* slot of the owner, plus one; 0: free, or freed during a move */
        uint32_t mover;   /* slot of the process that evicts the frame, plus one; 0: none */
        bool copied;      /* the eviction has copied all bytes, so the host's bytes are valid */
        uint32_t pins;    /* number of pins by the owner's running work */
        uint32_t regions; /* mask of the regions on the card */
        uint32_t bytes;   /* charged bytes of the card */
        uint64_t block;
        uint64_t last_use; /* value of `uses` at the last use */
};

struct session_segment {
        uint64_t magic;
        uint32_t devices;
        uint32_t mig; /* MIG instances of each GPU; 0: MIG is off */
        bool keep;    /* the file stays when nobody uses it (SIMCUDA_KEEP) */
        char name[SESSION_NAME_MAX];
        pthread_mutex_t lock; /* a robust mutex, shared between processes */
        uint64_t endings;
        uint64_t uses;            /* number of uses of frames, for `last_use` */
        _Atomic uint32_t changes; /* number of changes of frames; a futex */
        _Atomic uint32_t waiters; /* number of processes that wait for `changes` */
        uint8_t gpu_uuid[SESSION_DEVICES][16];
        struct session_device device[SESSION_DEVICES];
        struct session_slot slot[SESSION_SLOTS];
        struct rm_table rm; /* needs no lock */
        struct {
                uint32_t high;           /* number of frames that were ever used */
                _Atomic uint32_t hunger; /* how often a process found no frame to evict */
                struct segment_frame frame[SEGMENT_FRAMES];
        } frames[SESSION_DEVICES];
};

struct session {
        struct session_segment *segment;
        struct session_slot *own;      /* slot of this process; NULL: the process only looks */
        void *use;                     /* what segment_use() returned */
        bool all;                      /* an observer, which sees all devices */
        unsigned visible;              /* number of devices that another process sees */
        uint8_t card[SESSION_DEVICES]; /* the session's number of each device */
};

/* "+NAME" is a session of all users of the machine, so that two users can share a card. */
bool segment_is_public(const char *name);
uid_t segment_owner(const char *name); /* 0 for a session of all users */
/* Opens and locks the file. The lock lasts as long as the file is open. A mapping keeps the file
 * open, so a caller that keeps a mapping must release the lock with segment_opened(). */
int segment_open(const char *name, bool create, int *ret_fd);
void segment_opened(int fd);
int segment_map(int fd, struct session_segment **ret_segment);
/* Marks the file as used by this process, until segment_leave() or segment_unuse(), its end or
 * exec(). Needs the lock of segment_open(). */
int segment_use(int fd, void **ret_use);
void segment_unuse(void *use);
/* Ends the use, and removes the file if nobody else uses it. */
void segment_leave(const char *name, void *use);
/* Removes the files of this user's sessions whose processes were all killed. */
void segments_remove_left(void);

void segment_lock(struct session_segment *g);
void segment_unlock(struct session_segment *g);
/* Finds the cards that a CUDA process sees: the folder has their nodes (NULL: all have one), and
 * the list, the value of CUDA_VISIBLE_DEVICES, names them (NULL: unset). Returns their number;
 * -ENOTUNIQ: the list names a card twice. */
int visible_cards(const struct session_segment *g, const char *folder, const char *list,
                  uint8_t ret_card[static SESSION_DEVICES]);
/* Reads when a process or thread started, and where its stack is (0: unknown). False: it has ended.
 */
bool process_look(pid_t pid, uint64_t *ret_start, uint64_t *ret_stack);
/* Needs segment_lock(). -ENOMEM: the card is full. */
int segment_charge(struct session *s, unsigned device, uint64_t bytes);

static inline bool slot_live(const struct session_slot *slot)
{
        return atomic_load_explicit(&slot->state, memory_order_acquire) == SLOT_LIVE;
}

/* Frees the frames of a process that is gone (frames.c). Needs the lock. */
void frames_slot_ends(struct session_segment *g, const struct session_slot *slot);
