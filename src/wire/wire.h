/* wire.h: the messages between a client and the daemon, and between clients; encode and decode, no
 * I/O.
 *
 * The list is wire_messages.def; docs/protocol.md says what each message means and who may send it
 * when. One message is one SOCK_SEQPACKET packet: an 8-byte header and the fields in order,
 * little-endian. All packets of one type have the same size. All functions are pure and
 * thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC   UINT64_C(0x0054454c42555301) /* "\1SUBLET\0" */
#define WIRE_VERSION 1u

#define WIRE_GPUS_MAX 16      /* GPUs that one client may attach; header.gpu is below this */
#define WIRE_NO_GPU   0xffffu /* header.gpu of messages about the process as a whole */
#define WIRE_SIZE_MAX 320     /* no packet has more bytes */
#define WIRE_PASS_MAX 8       /* descriptors that come with one USAGE or LIMIT */

#define WIRE_GROUP_MAX 31 /* length of the name of a group */
/* True for 1 to WIRE_GROUP_MAX printable ASCII characters. */
bool wire_group_is_valid(const char *text);

enum wire_direction { WIRE_UP, WIRE_DOWN, WIRE_ACROSS };
/* What a message is about, and how early it may come. wire_messages.def explains each scope. */
enum wire_scope {
        WIRE_SCOPE_FIRST,
        WIRE_SCOPE_PROCESS,
        WIRE_SCOPE_ANY_GPU,
        WIRE_SCOPE_NEW_GPU,
        WIRE_SCOPE_GPU,
};

enum wire_type {
#define WIRE(name, number, direction, scope, fields) WIRE_##name = (number),
#include "wire/wire_messages.def"
#undef WIRE
};

/* What a client reports of itself. A flag occurs in the messages that its brackets name; without
 * brackets it occurs in every message with flags. */
enum wire_flags {
        WIRE_FLAG_RUN = 1 << 0,      /* it wants to submit work */
        WIRE_FLAG_RUNNING = 1 << 1,  /* its gate is open and all of its memory is backed (ATTACH) */
        WIRE_FLAG_IDLE = 1 << 2,     /* it has no work in flight */
        WIRE_FLAG_POISONED = 1 << 3, /* a context has a sticky error */
        WIRE_FLAG_DETACHED = 1 << 4, /* it has worked without a daemon (ATTACH) */
        WIRE_FLAG_STAYS = 1 << 5,    /* it backs more than its limit and cannot evict now (USAGE) */
        WIRE_FLAG_SPARE = 1 << 6,    /* it holds spare unevictable bytes (ATTACH, REQUEST) */
        WIRE_FLAG_SPARE_REQUEST = 1 << 7, /* it requests spare unevictable bytes (REQUEST) */
        WIRE_FLAG_WAITS = 1 << 8, /* it gave way because its work waits for other ranks (USAGE) */
};
#define WIRE_FLAGS_KNOWN 0x1ffu

enum wire_refusal {
        WIRE_REFUSED_VERSION = 1,     /* versions of the protocol differ; the connection closes */
        WIRE_REFUSED_COMMIT = 2,      /* out of memory: a commit that the daemon cannot promise */
        WIRE_REFUSED_UNEVICTABLE = 3, /* more unevictable bytes than can ever be free */
        WIRE_REFUSED_GPU = 4,         /* unknown GPU, or too many GPUs */
        WIRE_REFUSED_LIMIT = 5,       /* too many connections or messages */
        WIRE_REFUSED_PROTOCOL = 6,
        WIRE_REFUSED_EXPORT = 7, /* another client's memory would not fit beside so many bytes */
        WIRE_REFUSED_PEER = 8,   /* unknown process, another tenant's, or it reads no messages */
        WIRE_REFUSED_PASS = 9,   /* the daemon takes no descriptors from this client */
};

enum wire_drain_failure {
        WIRE_DRAIN_NO_PROGRESS = 1, /* work in flight depends on work held at the gate */
        WIRE_DRAIN_POISONED = 2,
        WIRE_DRAIN_CAPTURE = 3, /* a stream of the program is being captured */
        WIRE_DRAIN_HIDDEN = 4,  /* the program has loaded a library whose work cannot be seen */
        WIRE_DRAIN_PAUSED = 5,  /* the program is paused, and its memory cannot leave */
};

/* How much work may be in flight: bound_ns (ATTACHED) while somebody waits (NOW), WIRE_MAY_TIMES as
 * much while not everything fits (MAY). Programs that run together get the GPU in turns of
 * milliseconds, and a short queue runs dry between them: two trainings lost 4.6 % (H200). */
enum wire_contested {
        WIRE_CONTESTED_NOT,
        WIRE_CONTESTED_NOW,
        WIRE_CONTESTED_MAY, /* somebody may wait at any moment */
};
#define WIRE_MAY_TIMES 4u

/* The client held these bytes before its connection was lost: the daemon counts them and does not
 * answer. */
#define WIRE_EXPORT_HELD 1u
/* The importer is the heir: it is charged if the exporter dies. */
#define WIRE_OPENED_HEIR 1u

/* How a program's memory on a GPU is shared (SUBLET_MEMORY), if card and driver allow it. */
enum wire_memory { WIRE_MEMORY_SWAP = 1, WIRE_MEMORY_OVERFLOW, WIRE_MEMORY_MANAGED };

/* How the work of programs that run together meets on the GPU. */
enum wire_way {
        WIRE_WAY_OWN,    /* the program has a context of its own, and the driver slices the time */
        WIRE_WAY_SHARED, /* the program takes part in MPS */
};

/* CUDA_DEVICE_ORDER of the program is PCI_BUS_ID. */
#define WIRE_JOIN_PCI_ORDER 1u

/* Why a process is frozen. */
enum wire_frozen {
        WIRE_FROZEN_PAUSED = 1 << 0, /* the daemon told it to (PAUSE) */
        WIRE_FROZEN_AWAY = 1 << 1,   /* its memory leaves, is evicted or comes back */
};
#define WIRE_FROZEN_KNOWN 0x3u

/* How far a process may be frozen (SUBLET_FREEZE; the daemon's setting freeze). Each mode includes
 * the one before. */
enum wire_freeze {
        WIRE_FREEZE_UNKNOWN,
        WIRE_FREEZE_OFF,
        WIRE_FREEZE_PARK, /* it may be paused */
        WIRE_FREEZE_MOVE, /* it may also be frozen to give way, in place of a drain */
};
/* Parses a freeze mode: "off", "park", "move". 0 or -EINVAL. */
int wire_parse_freeze(const char *text, enum wire_freeze *ret_mode);
/* Return the words for a freeze mode, and for how memory is shared; NULL: there is no such mode. */
const char *wire_freeze_name(uint64_t mode);
const char *wire_memory_name(uint64_t mode);

enum wire_holder {
        WIRE_HOLDER_OTHER_USER = 1 << 0, /* another user's process; only some may know its name */
        WIRE_HOLDER_STUCK = 1 << 1,      /* the process cannot give way, or does not answer */
        WIRE_HOLDER_FOREIGN = 1 << 2,    /* foreign processes hold the memory; the pid is 0 */
        WIRE_HOLDER_PEERS = 1 << 3,      /* other daemons serve programs on this machine */
        WIRE_HOLDER_MAXIMUM = 1 << 4, /* the client has used its part of the time; the pid is 0 */
        WIRE_HOLDER_NO_CONFIGURATION = 1 << 5, /* in place of WELCOME (docs/protocol.md) */
};

struct wire_header {
        uint16_t type; /* enum wire_type */
        uint16_t gpu;  /* the client's own number for the GPU (its CUDA ordinal), or WIRE_NO_GPU */
        uint32_t sequence; /* counts a sender's messages; for LIMIT, those to one client and GPU */
};

#define U64(name)          uint64_t name;
#define U32(name)          uint32_t name;
#define TEXT(name, bytes)  char name[bytes];
#define BYTES(name, bytes) uint8_t name[bytes];
#define WIRE(name, number, direction, scope, fields) \
        struct wire_##name {                         \
                fields                               \
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
#define WIRE(name, number, direction, scope, fields) struct wire_##name name;
#include "wire/wire_messages.def"
#undef WIRE
        };
};

/* Returns the name of a type, such as "HELLO"; NULL: there is no such type. */
const char *wire_name(unsigned type);
/* Returns how many bytes a whole packet of this type has, header included; 0: there is no such
 * type. */
size_t wire_size(unsigned type);
/* Returns the scope of a type, which must exist. */
enum wire_scope wire_scope(unsigned type);

/* Encodes m, by its header.type, into buf. Returns the size of the packet, or -EINVAL for an
 * unknown type. */
int wire_encode(const struct wire_message *m, uint8_t buf[static WIRE_SIZE_MAX]);

/* Decodes and checks one packet that came in this direction. On error *ret is unspecified. 0, or
 * -EBADMSG  unknown type, wrong size for its type, or wrong direction
 * -EINVAL   a bad gpu, a field out of its bounds, or a text without its NUL, or not clean
 *           (base/text.h) */
int wire_decode(const uint8_t *buf, size_t size, enum wire_direction direction,
                struct wire_message *ret);
