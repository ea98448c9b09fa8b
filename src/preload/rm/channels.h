/* channels.h: the ledger of the process's channels at the kernel driver's resource manager.
 *
 * A channel is a queue from which the GPU takes work. The door of ioctl() enters here which ones
 * libcuda has made, and freezing takes them off the GPU by these names. Handles are RM's
 * (src/cuda/rm_abi.h). Nothing here calls the driver, allocates, or takes another lock. Not
 * thread-safe: the caller holds one lock over all of it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/rm_abi.h"

#define CHANNELS_OBJECTS_MAX 4096
#define CHANNELS_BUCKETS     512

enum channels_owner {
        CHANNELS_PROGRAM, /* frozen with the program */
        CHANNELS_MOVER,   /* what the library itself copies by */
};

/* Indices are one more than the place in the table; 0: none. */
struct channels_object {
        uint32_t client, object, class;
        uint32_t next;           /* in its bucket, or of those that are free */
        uint32_t up;             /* what it was made under; a client: nothing */
        uint32_t child, sibling; /* made under it, the last first; beside it */
        uint32_t subdevice;      /* a device's, the last one made */
        int fd;                  /* of /dev/nvidiactl, by which its client was made */
        uint16_t engine;
        uint8_t owner;
        bool used;
};

struct channels {
        struct channels_object objects[CHANNELS_OBJECTS_MAX];
        uint32_t buckets[CHANNELS_BUCKETS];
        uint32_t top;    /* objects[top] and later were never used */
        uint32_t free;   /* of those before it, the first that is not */
        uint32_t count;  /* channels */
        bool incomplete; /* there were more than fit: nothing may rely on it */
};

/* Channels of one subdevice, for one control. */
struct channels_call {
        int fd;
        uint32_t client, subdevice, count;
        uint32_t channels[RM_DISABLE_CHANNELS_MAX];
};

struct channels_made {
        int fd;
        uint32_t client, parent, object, class, engine;
        enum channels_owner owner;
};

/* RM has made an object. What cannot matter to a channel is ignored. A channel's owner is its
 * group's. */
void channels_enter(struct channels *t, const struct channels_made *m);
/* RM has freed an object, and with it all that was made under it. */
void channels_remove(struct channels *t, uint32_t client, uint32_t object);
/* All channels of the owner, in as few calls as one client, one subdevice and
 * RM_DISABLE_CHANNELS_MAX allow; those that compute come first. False: not all of them, because
 * there are more than fit, or RM knows them by names that the ledger does not have. */
bool channels_calls(const struct channels *t, enum channels_owner owner,
                    struct channels_call *ret_calls, size_t max, size_t *ret_n);
/* The same for one object. False: it is no channel of the owner that RM can be told of. */
bool channels_call_of(const struct channels *t, uint32_t client, uint32_t object,
                      enum channels_owner owner, struct channels_call *ret);
bool channels_class(uint32_t class);
bool channels_client(uint32_t class);
