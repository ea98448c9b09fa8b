/* rm_layout.h: the layout of requests to the kernel driver's resource manager (RM), for each driver
 * branch. Plain data. Sources: docs/resource-manager.md, section 1. The library has a header of its
 * own (src/cuda/rm_abi.h), written independently, so that tests compare the two. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define RM_TYPE 'F'

enum { ESCAPE_FREE = 0x29, ESCAPE_CONTROL = 0x2a, ESCAPE_ALLOC = 0x2b, ESCAPE_DUP = 0x34 };
enum { ESCAPE_VERSION = 210, ESCAPE_WRAPPED = 211 };
#define VERSION_QUERY '2' /* asks for the version, since 530.30.02 */

enum rm_status {
        RM_OK = 0,
        RM_DUPLICATE_NAME = 0x19,
        RM_INSUFFICIENT_PERMISSIONS = 0x1b,
        RM_INVALID_ARGUMENT = 0x1f,
        RM_INVALID_CHANNEL = 0x21,
        RM_INVALID_CLASS = 0x22,
        RM_INVALID_CLIENT = 0x23,
        RM_INVALID_SOURCE = 0x33, /* the client of an object that is to be copied is unknown */
        RM_INVALID_PARENT = 0x36,
        RM_INVALID_PARAMETERS = 0x3a,
        RM_NO_MEMORY = 0x51,
        RM_NOT_SUPPORTED = 0x56,
        RM_NOT_FOUND = 0x57,
        RM_IN_USE = 0x63,
        RM_TIMEOUT = 0x65,
};

enum {
        CLASS_CLIENT = 0x41,
        CLASS_DEVICE = 0x80,
        CLASS_SUBDEVICE = 0x2080,
        CLASS_DIAGNOSTICS = 0x208f, /* a child of a subdevice, at most one */
        CLASS_GROUP = 0xa06c,
        CLASS_CHANNEL = 0xc86f,
};

enum {
        CONTROL_DISABLE_CHANNELS = 0x2080110b, /* a control of a subdevice */
        CONTROL_PREEMPTION_MODES = 0x20801235, /* a control of a subdevice */
        CONTROL_CHANNEL_STATE = 0x208f0403,    /* a control of a CLASS_DIAGNOSTICS object */
        CONTROL_SCHEDULE_GROUP = (int)0xa06c0101,
        CONTROL_SET_SLICE = (int)0xa06c0103, /* controls of a group */
        CONTROL_GET_SLICE = (int)0xa06c0104,
        CONTROL_SCHEDULE_CHANNEL = (int)0xa06f0103,
};

enum { ENGINE_GRAPHICS = 1, ENGINE_COPY_2 = 11, ENGINE_COPY_3 = 12 };

struct rm_version_call {
        uint32_t command, reply;
        char version[64];
};

struct rm_wrapped_call {
        uint32_t escape, size;
        uint64_t argument;
};

struct rm_free_call {
        uint32_t client, parent, object, status;
};

struct rm_dup_call {
        uint32_t client, parent, object, source_client, source, flags, status;
};

struct rm_control_call {
        uint32_t client, object, command, flags;
        uint64_t params;
        uint32_t params_size, status;
};

/* The head of an allocation, which is the same in all branches and in both forms. */
struct rm_alloc_head {
        uint32_t client, parent, object, class;
        uint64_t params;
};

struct rm_alloc_short_515 {
        struct rm_alloc_head head;
        uint32_t status, pad;
};

struct rm_alloc_short_535 {
        struct rm_alloc_head head;
        uint32_t params_size, status;
};

struct rm_alloc_long_515 {
        struct rm_alloc_head head;
        uint64_t rights;
        uint32_t status, pad;
};

struct rm_alloc_long_525 {
        struct rm_alloc_head head;
        uint64_t rights;
        uint32_t flags, status;
};

struct rm_alloc_long_535 {
        struct rm_alloc_head head;
        uint64_t rights;
        uint32_t params_size, flags, status, pad;
};

union rm_alloc_call {
        struct rm_alloc_head head;
        struct rm_alloc_long_535 longest;
};

/* ---- parameters ---- */

struct rm_device_params {
        uint32_t device, client_share, target_client, target_device, flags, pad;
        uint64_t space_bytes, space_start, space_limit;
        uint32_t space_mode, pad2;
};

struct rm_subdevice_params {
        uint32_t subdevice;
};

struct rm_group_params_515 {
        uint32_t error_object, ecc_error_object, address_space, engine;
        uint8_t by_plugin;
};

struct rm_channel_params_515 {
        uint32_t error_object, pad;
        uint64_t fifo_offset;
        uint32_t fifo_entries, flags, context_share, address_space;
        uint32_t user_memory[8];
        uint64_t user_offset[8];
        uint32_t engine, id, subdevice;
};

struct rm_channel_params_610 {
        uint32_t error_object, pad;
        uint64_t fifo_offset;
        uint32_t fifo_entries, flags, context_share, address_space;
        uint32_t handle_space, user_memory[8];
        uint64_t user_offset[8];
        uint32_t engine, id, subdevice;
};

/* Largest size of the parameters. The fields not declared above are handles of other objects, and
 * encryption. */
#define RM_CHANNEL_PARAMS_MOST 376

#define RM_DISABLE_MOST 64

struct rm_disable_params {
        uint8_t disable;
        uint32_t count;
        uint8_t only_scheduling, rewind;
        uint64_t event;
        uint32_t clients[RM_DISABLE_MOST], channels[RM_DISABLE_MOST];
};

struct rm_preemption_params {
        uint32_t channel, zcull, pm, smpc;
        uint32_t compute; /* 0: preempts when idle, 1: between blocks, 2: between instructions */
        uint32_t graphics;
};

struct rm_state_params {
        uint32_t channel, client;
        uint8_t bound, enabled, scheduled, cpu_map, contention, runlist_set, deferred_error, pad;
};

struct rm_schedule_params {
        uint8_t enable, skip_submit;
        uint8_t skip_enable; /* since 575.51.02 */
};

_Static_assert(sizeof(struct rm_version_call) == 72, "");
_Static_assert(sizeof(struct rm_wrapped_call) == 16 && sizeof(struct rm_free_call) == 16, "");
_Static_assert(sizeof(struct rm_control_call) == 32 && sizeof(struct rm_dup_call) == 28, "");
_Static_assert(offsetof(struct rm_control_call, status) == 28, "");
_Static_assert(sizeof(struct rm_alloc_short_515) == 32 && sizeof(struct rm_alloc_short_535) == 32,
               "");
_Static_assert(sizeof(struct rm_alloc_long_515) == 40 && sizeof(struct rm_alloc_long_525) == 40,
               "");
_Static_assert(sizeof(struct rm_alloc_long_535) == 48, "");
_Static_assert(sizeof(struct rm_device_params) == 56, "");
_Static_assert(sizeof(struct rm_group_params_515) == 20, "");
_Static_assert(offsetof(struct rm_channel_params_515, context_share) == 24, "");
_Static_assert(offsetof(struct rm_channel_params_515, engine) == 128, "");
_Static_assert(offsetof(struct rm_channel_params_610, engine) == 136, "");
_Static_assert(sizeof(struct rm_disable_params) == 536, "");
_Static_assert(offsetof(struct rm_disable_params, clients) == 24, "");
_Static_assert(sizeof(struct rm_preemption_params) == 24 && sizeof(struct rm_state_params) == 16,
               "");
