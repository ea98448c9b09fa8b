/* rm_bench.h: the kernel driver's resource manager (RM) as an ioctl(), and a libcuda that asks it
 * for channels through the door.
 *
 * Objects are RM's: a control that names one that is not there fails, after it has done what it
 * could. Sizes and offsets are written out here, driver by driver: they are what rm_abi.h is
 * compared with. Thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/rm/rm.h"

#define CHANNEL    0xc86fu /* class */
#define DEVICE     0x10u   /* handles that made_client() gives */
#define SUBDEVICE  0x20u
#define CALLS_MOST 512u

/* How a driver lays its calls out; bytes. */
struct rm_family {
        const char *version;
        unsigned short_size, short_status, long_size, long_status;
};
extern const struct rm_family families[];
extern const unsigned family_count;
extern const struct rm_family *family; /* that RM and libcuda are of */

enum rm_form { RM_SHORT, RM_LONG, RM_SHORT_WRAPPED, RM_LONG_WRAPPED, RM_FORMS };
extern enum rm_form form; /* of each RM_ALLOC from now on; the wrapped ones wrap all calls */

/* A control that froze or thawed, as RM had it. */
struct rm_call {
        int fd;
        uint32_t client, subdevice, count;
        bool disable;
        uint32_t channels[RM_DISABLE_CHANNELS_MAX];
        uint32_t status;
};

extern struct rm_bench {
        struct rm_call calls[CALLS_MOST];
        unsigned count;              /* of controls, beyond CALLS_MOST as well */
        unsigned others;             /* requests that are none of RM's */
        _Atomic uint32_t status;     /* what the next RM_ALLOC answers */
        uint32_t refuses, unrefuses; /* a freeze, a thaw: with this status; 0: not */
        unsigned refusals;           /* so many of them; 0: all */
        int error;                   /* the ioctl() of a control fails with this errno; 0: not */
        int closed;                  /* a descriptor that is closed; -1: none */
        /* Within a control, before RM looks at it; NULL: nothing happens. */
        void (*before)(const struct rm_call *c);
} rm_bench;

/* RM, as libcuda would have found it without us. */
int rm_of_the_bench(int fd, unsigned long request, ...);

/* The kernel driver is of this version from now on. The status of what libcuda called since. */
int say_version(const char *version);
/* What libcuda calls, through the door. The status, or -errno where the call itself failed. */
int made(int fd, uint32_t client, uint32_t parent, uint32_t object, uint32_t class,
         uint32_t engine);
/* A client with one device and its subdevice, through that descriptor. */
void made_client(int fd, uint32_t client);
/* A group of that engine, and channels in it: group + 1, group + 2 ... */
void made_group(int fd, uint32_t client, uint32_t group, uint32_t engine, uint32_t channels);
int freed(int fd, uint32_t client, uint32_t object);
/* Its own control of a channel. */
int libcuda_controls(int fd, uint32_t client, uint32_t channel, bool disable);

/* As RM knows it. */
bool rm_has(uint32_t client, uint32_t object);
bool rm_stands(uint32_t client, uint32_t channel); /* it is off the GPU */
unsigned rm_standing(void);                        /* channels that are */
unsigned rm_known(void);                           /* channels */
/* An object ends, and nobody says so. */
void rm_loses(uint32_t client, uint32_t object);
/* Channels that libcuda was told of, which do not stand. */
unsigned rm_running_told(void);

/* Nothing is in RM, and nothing in the ledger. */
int begin_rm(void **state);
int end_rm(void **state);

#define RM_TEST(name) cmocka_unit_test_setup_teardown(name, begin_rm, end_rm)
