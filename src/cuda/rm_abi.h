/* rm_abi.h: the calls by which libcuda makes objects at the kernel driver's resource manager (RM),
 * as far as sublet reads or makes them.
 *
 * The calls are ioctl(2) requests of type 'F' on /dev/nvidiactl. Objects form a tree: a client, its
 * devices, their subdevices and channel groups, and the channels of each group. The caller chooses
 * handles, which are unique within a client. Source: the open kernel modules (nvos.h, nv_escape.h,
 * ctrl2080fifo.h), and for drivers from 610 on gVisor's list. Layouts hold from driver 515 to 620,
 * except for the differences in struct rm_layout; docs/resource-manager.md says what RM does. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define RM_IOCTL_TYPE 'F'

enum rm_escape {
        RM_ESCAPE_FREE = 0x29,
        RM_ESCAPE_CONTROL = 0x2a,
        RM_ESCAPE_ALLOC = 0x2b,
        RM_ESCAPE_DUP = 0x34,
        RM_ESCAPE_CHECK_VERSION = 210,
        RM_ESCAPE_WRAPPED = 211, /* carries another of these calls in a struct rm_wrapped */
};

enum rm_class {
        RM_CLASS_CLIENT = 0x0, /* RM makes a client of class 0x41, also for 0x1 */
        RM_CLASS_CLIENT_NO_EVENTS = 0x1,
        RM_CLASS_CLIENT_USER = 0x41,
        RM_CLASS_DEVICE = 0x80,
        RM_CLASS_SUBDEVICE = 0x2080,
        RM_CLASS_GROUP = 0xa06c, /* channels that the hardware schedules together */
};

/* A command of RM_ESCAPE_CHECK_VERSION that asks for the driver's version. Drivers before 530.30.02
 * ignore it and leave the text as it was. */
#define RM_VERSION_QUERY '2'

struct rm_version {
        uint32_t command, reply;
        char text[64]; /* "580.159.04" */
};

struct rm_wrapped {
        uint32_t escape, size;
        uint64_t argument;
};

struct rm_free {
        uint32_t client, parent, object, status;
};

struct rm_control {
        uint32_t client, object, command, flags;
        uint64_t params;
        uint32_t params_size, status;
};

/* RM_ESCAPE_ALLOC has two layouts, short and long; this is their common beginning. */
struct rm_alloc {
        uint32_t client, parent, object, class;
        uint64_t params;
};

/* The short layout of drivers from 535 on; older drivers have no params_size. */
struct rm_alloc_short {
        struct rm_alloc alloc;
        uint32_t params_size, status;
};

struct rm_alloc_long {
        struct rm_alloc alloc;
        uint64_t rights;
        uint32_t params_size, flags, status, pad;
};

/* The differences between generations of the driver, in bytes: the sizes of the two layouts of
 * struct rm_alloc and the offsets of their status. */
struct rm_layout {
        uint16_t first, last; /* major versions of the driver, both included */
        uint16_t short_size, short_status;
        uint16_t long_size, long_status;
};

static const struct rm_layout rm_layouts[] = {
        {.first = 515,
         .last = 520,
         .short_size = 32,
         .short_status = 24,
         .long_size = 40,
         .long_status = 32},
        {.first = 525,
         .last = 530,
         .short_size = 32,
         .short_status = 24,
         .long_size = 40,
         .long_status = 36},
        {.first = 535,
         .last = 620,
         .short_size = 32,
         .short_status = 28,
         .long_size = 48,
         .long_status = 40},
};

/* Returns the layout of a driver by its version, such as "580.159.04"; NULL: not known. */
static inline const struct rm_layout *rm_layout_of(const char *version)
{
        unsigned major = 0;

        for (const char *p = version; *p >= '0' && *p <= '9' && major < 100000; p++)
                major = major * 10 + (unsigned)(*p - '0');
        for (size_t i = 0; i < sizeof(rm_layouts) / sizeof(rm_layouts[0]); i++)
                if (major >= rm_layouts[i].first && major <= rm_layouts[i].last)
                        return &rm_layouts[i];
        return NULL;
}

/* Allocation parameters of RM_CLASS_DEVICE. RM numbers the GPUs of a machine, the same for all. */
struct rm_device_params {
        uint32_t instance, share, target_client, target_device, flags, pad;
        uint64_t space_bytes, space_start, space_limit;
        uint32_t space_mode, pad2;
};

/* Copies an object of another client into one's own. */
struct rm_dup {
        uint32_t client, parent, object, source_client, source, flags, status;
};

/* Allocation parameters of RM_CLASS_GROUP. */
struct rm_group_params {
        uint32_t error_object, ecc_error_object, address_space, engine;
};

/* Engines, as struct rm_group_params names them. */
#define RM_ENGINE_GRAPHICS      1 /* runs compute work */
#define RM_ENGINE_GRAPHICS_LAST 8 /* one for each part of a partitioned GPU */

/* RM's answer in the status field; 0: the call succeeded. */
enum rm_status {
        RM_NO_PERMISSION = 0x1b,
        RM_INVALID_ARGUMENT = 0x1f,
        RM_NO_CHANNEL = 0x21,
        RM_NO_CLIENT = 0x23,
        RM_NOT_SUPPORTED = 0x56,
        RM_NO_OBJECT = 0x57,
        RM_TIMEOUT = 0x65,
};

/* Control calls for a group: set and get how long the hardware runs it before another one. */
#define RM_SET_SLICE 0xa06c0103u
#define RM_GET_SLICE 0xa06c0104u

struct rm_slice {
        uint64_t usec;
};

/* A control call for a subdevice: takes channels of any clients off the hardware, or lets them run
 * again. When the call has returned, disabled channels do not run. RM counts: a channel runs when
 * each disabling has been undone. */
#define RM_DISABLE_CHANNELS     0x2080110bu
#define RM_DISABLE_CHANNELS_MAX 64

struct rm_disable_channels {
        uint8_t disable;
        uint32_t count;
        uint8_t only_scheduling, rewind;
        uint64_t event;
        uint32_t clients[RM_DISABLE_CHANNELS_MAX], channels[RM_DISABLE_CHANNELS_MAX];
};

_Static_assert(sizeof(struct rm_version) == 72, "");
_Static_assert(sizeof(struct rm_wrapped) == 16 && sizeof(struct rm_free) == 16, "as RM has them");
_Static_assert(sizeof(struct rm_control) == 32 && offsetof(struct rm_control, params) == 16, "");
_Static_assert(sizeof(struct rm_device_params) == 56 && sizeof(struct rm_dup) == 28, "");
_Static_assert(sizeof(struct rm_alloc_short) == 32 && sizeof(struct rm_alloc_long) == 48, "");
_Static_assert(offsetof(struct rm_alloc_long, status) == 40, "");
_Static_assert(sizeof(struct rm_disable_channels) == 536, "");
_Static_assert(offsetof(struct rm_disable_channels, channels) == 280, "");
