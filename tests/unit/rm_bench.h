/* rm_bench.h: a fake of the kernel driver's resource manager (RM) as an ioctl(), and of a libcuda
 * that asks RM for channels through the door.
 *
 * As in RM, each channel has a count of disablings, and a control that names an unknown channel
 * fails, but counts for the channels before it. Sizes and offsets are spelt out for each driver, to
 * check rm_abi.h against. Thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/rm/rm.h"

#define CHANNEL    0xc86fu /* class of a channel */
#define DEVICE     0x10u   /* handle of the device that made_client() makes */
#define SUBDEVICE  0x20u
#define CALLS_MOST 512u

/* Sizes and offsets in a driver's calls, in bytes. */
struct rm_family {
        const char *version;
        unsigned short_size, short_status, long_size, long_status;
};
extern const struct rm_family families[];
extern const unsigned family_count;
extern const struct rm_family *family; /* family of the driver that the fakes imitate now */

enum rm_form { RM_SHORT, RM_LONG, RM_SHORT_WRAPPED, RM_LONG_WRAPPED, RM_FORMS };
extern enum rm_form form; /* form of each RM_ALLOC from now on; a wrapped form wraps all calls */

/* A control that froze or thawed channels, as RM received it. */
struct rm_call {
        int fd;
        uint32_t client, subdevice, count;
        bool disable;
        uint32_t channels[RM_DISABLE_CHANNELS_MAX];
        uint32_t status;
};

extern struct rm_bench {
        struct rm_call calls[CALLS_MOST];
        unsigned count;              /* controls received, also those beyond CALLS_MOST */
        unsigned others;             /* requests that are not for RM */
        _Atomic unsigned too_many;   /* enablings of channels that run */
        _Atomic uint32_t status;     /* result of the next RM_ALLOC */
        uint32_t free_status;        /* result of each RM_FREE; 0: success if there is the object */
        uint32_t refuses, unrefuses; /* status of each freeze, of each thaw; 0: success */
        unsigned refusals;           /* number of controls that fail; 0: all of them */
        int error;                   /* errno with which the ioctl() of a control fails; 0: none */
        int closed;                  /* a descriptor that is closed; -1: none */
        /* Called within a control, before RM acts; may be NULL. */
        void (*before)(const struct rm_call *c);
} rm_bench;

/* The ioctl() that libcuda would call without sublet. */
int rm_of_the_bench(int fd, unsigned long request, ...);

/* Sets the kernel driver's version, and lets libcuda ask for it. Returns the status of that. */
int say_version(const char *version);
/* libcuda makes an object, through the door. Returns the status, or -errno if ioctl() failed. */
int made(int fd, uint32_t client, uint32_t parent, uint32_t object, uint32_t class,
         uint32_t engine);
/* As if libcuda made an RM client with one device and its subdevice, through this descriptor. */
void made_client(int fd, uint32_t client);
/* As if libcuda made a group of this engine, with channels group + 1, group + 2 ... */
void made_group(int fd, uint32_t client, uint32_t group, uint32_t engine, uint32_t channels);
int freed(int fd, uint32_t client, uint32_t object);
/* libcuda disables or enables a channel itself, through the door. */
int libcuda_controls(int fd, uint32_t client, uint32_t channel, bool disable);

/* The driver's own time slice of a group. */
#define RM_OWN_SLICE_US 2048
/* Returns a group's time slice. */
uint64_t rm_slice_of(uint32_t client, uint32_t group);
/* True if the object exists in RM. */
bool rm_has(uint32_t client, uint32_t object);
bool rm_stands(uint32_t client, uint32_t channel); /* the channel is off the GPU */
unsigned rm_standing(void);                        /* number of channels off the GPU */
unsigned rm_known(void);                           /* number of all channels */
/* How often the channel was disabled, without the times that were undone; UINT_MAX: no such
 * channel.
 */
unsigned rm_count(uint32_t client, uint32_t channel);
unsigned rm_counted(void); /* number of channels whose count is not 0 */
/* Another process disables or enables these channels of these clients. Returns the status. */
uint32_t rm_of_the_hand(uint32_t n, const uint32_t *of, const uint32_t *channels, bool disable);
/* RM ends an object, and the library does not learn of it. */
void rm_loses(uint32_t client, uint32_t object);
/* Returns the number of channels that libcuda knows of and that are on the GPU. From the moment
 * when libcuda frees a channel, it knows of it no more. */
unsigned rm_running_told(void);

/* Begins with an empty RM and an empty ledger. */
int begin_rm(void **state);
int end_rm(void **state);

#define RM_TEST(name) cmocka_unit_test_setup_teardown(name, begin_rm, end_rm)
