/* channels.h: the ledger of the process's channels at the kernel driver's resource manager.
 *
 * A channel is a queue from which the GPU takes work. The wrapper of ioctl() records the channels
 * that libcuda makes, and a freeze takes them off the GPU by these records. Handles are those of RM
 * (src/cuda/rm_abi.h). No function calls the driver, allocates, or takes a lock. Not thread-safe:
 * the caller holds ledger_lock (rm.c). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/rm_abi.h"

#define CHANNELS_OBJECTS_MAX 4096
#define CHANNELS_BUCKETS     512

enum channels_owner {
        CHANNELS_PROGRAM, /* channels of the program, which are frozen */
        CHANNELS_MOVER,   /* channels of the mover, through which the library copies */
};

/* All indices are positions in channels.objects plus one; 0: none. */
struct channels_object {
        uint32_t client, object, class;
        uint32_t next;      /* the next object in its bucket, or the next unused entry */
        uint32_t up;        /* the object that it was made under; 0 for a client */
        uint32_t child,     /* the newest object made under it */
                sibling;    /* the next older object with the same `up` */
        uint32_t subdevice; /* for a device: its newest subdevice */
        int fd;             /* descriptor of /dev/nvidiactl of the request that made the object */
        uint16_t engine;
        uint16_t device; /* for a device: RM's number of the GPU */
        uint8_t owner;
        uint8_t own; /* for a channel: how often the program itself has disabled it */
        bool off;    /* for a channel: one disabling is ours */
        bool used;
};

struct channels {
        struct channels_object objects[CHANNELS_OBJECTS_MAX];
        uint32_t buckets[CHANNELS_BUCKETS];
        uint32_t top;    /* objects[top] and later ones were never used */
        uint32_t free;   /* the first unused entry before `top` */
        uint32_t count;  /* number of channels among the objects */
        bool incomplete; /* an object was not recorded, because the table was full */
};

/* Channels of one subdevice, for one call of RM's control. */
struct channels_call {
        int fd;
        uint32_t client, subdevice, count;
        uint32_t channels[RM_DISABLE_CHANNELS_MAX];
};

struct channels_made {
        int fd;
        uint32_t client, parent, object, class, engine, device;
        enum channels_owner owner;
};

/* Record an object that RM has made; objects that do not matter to channels are ignored. A channel
 * gets the owner of its group. */
void channels_enter(struct channels *t, const struct channels_made *m);
/* Remove an object that RM has freed, and all objects made under it. */
void channels_remove(struct channels *t, uint32_t client, uint32_t object);
enum channels_which {
        CHANNELS_ALL,
        CHANNELS_ON,  /* those that we have not disabled */
        CHANNELS_OFF, /* those that we have disabled */
};

/* Make the calls that name these channels of the owner, compute channels first. A call names up to
 * RM_DISABLE_CHANNELS_MAX channels of one client and subdevice. False: some channels are missing,
 * because the table or ret_calls is full, or because their subdevice is not in the ledger. */
bool channels_calls(const struct channels *t, enum channels_owner owner, enum channels_which which,
                    struct channels_call *ret_calls, size_t max, size_t *ret_n);
/* Make the call for one channel. False: it is no channel of the owner, or its subdevice is not in
 * the ledger. */
bool channels_call_of(const struct channels *t, uint32_t client, uint32_t object,
                      enum channels_owner owner, struct channels_call *ret);
/* Note that all channels of the call are off by us, or no longer. */
void channels_note(struct channels *t, const struct channels_call *c, bool off);
/* Returns the record of an object; NULL: it is not in the ledger. */
struct channels_object *channels_find(struct channels *t, uint32_t client, uint32_t object);
/* True if the object is a channel, or the parent of one. */
bool channels_under(struct channels *t, uint32_t client, uint32_t object);
/* Returns RM's number of the channel's GPU. */
uint32_t channels_device(const struct channels *t, const struct channels_object *channel);
/* Returns the next group of the owner that computes, from *at on, and moves *at behind it; NULL:
 * there is no other. Begin with *at = 0. */
const struct channels_object *channels_next_group(const struct channels *t,
                                                  enum channels_owner owner, uint32_t *at);
bool channels_class(uint32_t class);
bool channels_client(uint32_t class);
