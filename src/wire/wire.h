/* wire.h: the messages between a client and the daemon, and between clients; encode and decode, no
 * I/O.
 *
 * The list itself is wire_messages.def; what each message means and who may send it when is
 * docs/protocol.md. One message is one SOCK_SEQPACKET packet: an 8-byte header and the fields in
 * order, little-endian. Every kind has one size. All functions are pure and thread-safe. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC UINT64_C(0x0054454c42555301) /* "\1SUBLET\0" */
#define WIRE_MAJOR 1u
#define WIRE_MINOR 0u

#define WIRE_GPUS_MAX 16      /* GPUs one client may attach; header.gpu is below this */
#define WIRE_NO_GPU   0xffffu /* header.gpu of messages about the process as a whole */
#define WIRE_SIZE_MAX 320     /* no packet is larger */
#define WIRE_PASS_MAX 8       /* descriptors that come with one USAGE or LIMIT */

#define WIRE_PRIORITY_MAX 20 /* from -20 to 20; higher goes first */
/* As people write it. 0 or -EINVAL. */
int wire_parse_priority(const char *text, int *ret_priority);

enum wire_direction { WIRE_UP, WIRE_DOWN, WIRE_ACROSS };

enum wire_type {
#define WIRE(name, number, direction, fields) WIRE_##name = (number),
#include "wire/wire_messages.def"
#undef WIRE
};

enum wire_flags {
        WIRE_FLAG_RUN = 1 << 0, /* wants to submit work */
        WIRE_FLAG_RUNNING =
                1 << 1,          /* its gate is open and everything it needs is backed (ATTACH) */
        WIRE_FLAG_IDLE = 1 << 2, /* nothing in flight */
        WIRE_FLAG_POISONED = 1 << 3, /* a context has a sticky error */
        WIRE_FLAG_DETACHED = 1 << 4, /* worked without a daemon since the last one (ATTACH) */
        WIRE_FLAG_STAYS = 1 << 5,    /* what it backs past its limit cannot be moved now (USAGE) */
        WIRE_FLAG_SPARE =
                1 << 6, /* some of its unevictable bytes it can do without (ATTACH, REQUEST) */
        WIRE_FLAG_SPARE_REQUEST = 1
                                  << 7, /* so it could without those that it wants more (REQUEST) */
};
#define WIRE_FLAGS_KNOWN 0xffu

enum wire_refusal {
        WIRE_REFUSED_VERSION = 1,     /* majors differ; the connection closes */
        WIRE_REFUSED_COMMIT = 2,      /* out of memory: the promise or host RAM does not reach */
        WIRE_REFUSED_UNEVICTABLE = 3, /* unevictable bytes past what can be kept free */
        WIRE_REFUSED_GPU = 4,         /* unknown GPU, or too many */
        WIRE_REFUSED_LIMIT = 5,       /* too many connections or messages */
        WIRE_REFUSED_PROTOCOL = 6,
        WIRE_REFUSED_EXPORT = 7, /* others could not run any more beside so much */
        WIRE_REFUSED_PEER = 8,   /* no such process, or none that this one may meet */
        WIRE_REFUSED_PASS = 9,   /* descriptors are not taken from this client */
};

enum wire_drain_failure {
        WIRE_DRAIN_NO_PROGRESS = 1, /* work in flight depends on work held at the gate */
        WIRE_DRAIN_POISONED = 2,
        WIRE_DRAIN_CAPTURE = 3, /* a capture goes on */
        WIRE_DRAIN_HIDDEN = 4,  /* it has loaded a library whose work cannot be seen */
        WIRE_DRAIN_PAUSED = 5,  /* it is paused, and its memory may not leave meanwhile */
};

/* How short work in flight is kept: to bound_ns (ATTACHED) while somebody waits, and to more where
 * nobody does but not everything fits: programs that run together get the GPU in turns of
 * milliseconds, and a short queue runs dry between them (two trainings beside an idle third lost
 * 4.6 % by it, H200). Who does not know MAY keeps to bound_ns. */
enum wire_contested {
        WIRE_CONTESTED_NOT,
        WIRE_CONTESTED_NOW,
        WIRE_CONTESTED_MAY, /* be at any moment */
};
#define WIRE_MAY_TIMES 4u

/* The client holds it so already, as after a lost connection: nothing is asked, nothing answered.
 */
#define WIRE_EXPORT_HELD 1u
/* The importer is charged should the exporter die. */
#define WIRE_OPENED_HEIR 1u

/* How a program's memory on a GPU is shared (SUBLET_MEMORY), where it can be. */
enum wire_memory { WIRE_MEMORY_SWAP = 1, WIRE_MEMORY_OVERFLOW, WIRE_MEMORY_MANAGED };

/* Why a process stands still on the GPU. */
enum wire_frozen {
        WIRE_FROZEN_PAUSED = 1 << 0, /* it was told to (PAUSE) */
        WIRE_FROZEN_AWAY = 1 << 1,   /* its memory leaves, is away or comes back */
};
#define WIRE_FROZEN_KNOWN 0x3u

/* What a process may be frozen for (SUBLET_FREEZE; the daemon's freeze): more from line to line. */
enum wire_freeze {
        WIRE_FREEZE_UNKNOWN,
        WIRE_FREEZE_OFF,
        WIRE_FREEZE_PARK, /* to be paused */
        WIRE_FREEZE_MOVE, /* and to give way: in place of a drain */
};
/* As people write it: "off", "park", "move". 0 or -EINVAL. */
int wire_parse_freeze(const char *text, enum wire_freeze *ret_mode);
/* NULL: of no such mode. */
const char *wire_freeze_name(uint64_t mode);

enum wire_holder {
        WIRE_HOLDER_OTHER_USER = 1 << 0, /* its name is not for this client */
        WIRE_HOLDER_STUCK = 1 << 1,      /* it cannot give way, or does not answer */
        WIRE_HOLDER_FOREIGN = 1 << 2,    /* foreign processes hold it: pid 0 */
};

struct wire_header {
        uint16_t type; /* enum wire_type */
        uint16_t gpu;  /* the client's own number for the GPU (its CUDA ordinal), or WIRE_NO_GPU */
        uint32_t sequence; /* grows by one per sender and connection; LIMIT: by client and GPU */
};

#define U64(name)          uint64_t name;
#define U32(name)          uint32_t name;
#define TEXT(name, bytes)  char name[bytes];
#define BYTES(name, bytes) uint8_t name[bytes];
#define WIRE(name, number, direction, fields) \
        struct wire_body_##number {           \
                fields                        \
        };
#include "wire/wire_messages.def"
#undef WIRE
#undef U64
#undef U32
#undef TEXT
#undef BYTES

/* A decoded message. Members are named after the messages: m.LIMIT.backed. */
struct wire_message {
        struct wire_header header;
        union {
#define WIRE(name, number, direction, fields) struct wire_body_##number name;
#include "wire/wire_messages.def"
#undef WIRE
        };
};

/* "HELLO"; NULL for an unknown type. */
const char *wire_name(unsigned type);
/* Bytes of a whole packet of this type, header included; 0 for an unknown type. */
size_t wire_size(unsigned type);

/* Encode m by its header.type into buf. Packet size, or -EINVAL (unknown type). */
int wire_encode(const struct wire_message *m, uint8_t buf[static WIRE_SIZE_MAX]);

/* Decode and check one packet that came in this direction. 0, or
 * -EBADMSG  unknown type, wrong size for its type, or wrong direction
 * -EINVAL   a field out of range: gpu, flags, magic, text without its final NUL or not printable
 * UTF-8-free ASCII The content of *ret is unspecified on error. */
int wire_decode(const uint8_t *buf, size_t size, enum wire_direction direction,
                struct wire_message *ret);
