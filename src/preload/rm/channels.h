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
        CHANNELS_PROGRAM, /* the program's: they are frozen */
        CHANNELS_MOVER,   /* the mover's: the library copies by them */
};

/* Indices are the place in the table plus one; 0: none. */
struct channels_object {
        uint32_t client, object, class;
        uint32_t next;           /* next in its bucket, or in the list of unused ones */
        uint32_t up;             /* the object it was made under; none for a client */
        uint32_t child, sibling; /* objects made under it, the last first; siblings */
        uint32_t subdevice;      /* of a device: the subdevice made last */
        int fd;                  /* descriptor of /dev/nvidiactl that its client was made by */
        uint16_t engine;
        uint8_t owner;
        bool used;
};

struct channels {
        struct channels_object objects[CHANNELS_OBJECTS_MAX];
        uint32_t buckets[CHANNELS_BUCKETS];
        uint32_t top;    /* objects[top] and later ones were never used */
        uint32_t free;   /* the first unused one before it */
        uint32_t count;  /* channels */
        bool incomplete; /* there were more objects than fit: the ledger is incomplete */
};

/* Channels of one subdevice, for one call of the control. */
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

/* RM has made an object. Objects that cannot matter to a channel are ignored. A channel has its
 * group's owner. */
void channels_enter(struct channels *t, const struct channels_made *m);
/* RM has freed an object and all that was made under it. */
void channels_remove(struct channels *t, uint32_t client, uint32_t object);
/* All channels of the owner, in as few calls as one client, one subdevice and
 * RM_DISABLE_CHANNELS_MAX allow; compute channels first. False: some are missing, because there are
 * more than fit, or RM knows them by names that the ledger does not have. */
bool channels_calls(const struct channels *t, enum channels_owner owner,
                    struct channels_call *ret_calls, size_t max, size_t *ret_n);
/* The same for one object. False: it is not a channel of the owner that RM has a known name for. */
bool channels_call_of(const struct channels *t, uint32_t client, uint32_t object,
                      enum channels_owner owner, struct channels_call *ret);
bool channels_class(uint32_t class);
bool channels_client(uint32_t class);
