/* wire.c: owns the conversion of messages to packets and back, as the table says.
 * Must never allocate, do I/O or trust a packet: everything a peer controls is checked here. */
#include "wire/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "base/text.h"

#define HEADER_SIZE 8u

enum { DIRECTION_UP = WIRE_UP, DIRECTION_DOWN = WIRE_DOWN, DIRECTION_ACROSS = WIRE_ACROSS };

struct kind {
        const char *name;
        uint16_t size; /* bytes of a packet, header included */
        uint8_t direction;
};

/* Each field macro adds the field's bytes, so a list of fields is a sum: 8 +8 +4 +64 ... */
#define U64(name)          +8
#define U32(name)          +4
#define TEXT(name, bytes)  +(bytes)
#define BYTES(name, bytes) +(bytes)
#define WIRE(name, number, direction, fields) \
        [number] = {#name, HEADER_SIZE fields, DIRECTION_##direction},
static const struct kind kinds[] = {
#include "wire/wire_messages.def"
};
#undef WIRE

/* A struct in memory has the layout of its packet's body: without padding, every byte is a
 * field. */
#define WIRE(name, number, direction, fields)                                              \
        _Static_assert(sizeof(struct wire_body_##number) == 0 fields, #name " is padded"); \
        _Static_assert((HEADER_SIZE fields) <= WIRE_SIZE_MAX, #name " is too large");
#include "wire/wire_messages.def"
#undef WIRE
#undef U64
#undef U32
#undef TEXT
#undef BYTES

static const struct kind *kind_find(unsigned type)
{
        if (type >= sizeof(kinds) / sizeof(kinds[0]) || !kinds[type].name)
                return NULL;
        return &kinds[type];
}

const char *wire_name(unsigned type)
{
        const struct kind *k = kind_find(type);

        return k ? k->name : NULL;
}

size_t wire_size(unsigned type)
{
        const struct kind *k = kind_find(type);

        return k ? k->size : 0;
}

/* ---- one field ---- */

static void put(uint8_t **p, uint64_t value, unsigned bytes)
{
        for (unsigned i = 0; i < bytes; i++)
                *(*p)++ = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t **p, unsigned bytes)
{
        uint64_t value = 0;

        for (unsigned i = 0; i < bytes; i++)
                value |= (uint64_t) * (*p)++ << (8 * i);
        return value;
}

/* Fills the field behind the NUL with zeros: these bytes of the struct may be anything and must not
 * leave the process. The receiver takes only clean text, and a text that was cut may end within a
 * character. */
static void put_text(uint8_t **p, const char *text, size_t bytes)
{
        memset(*p, 0, bytes);
        (void)text_copy((char *)*p, bytes, text);
        *p += bytes;
}

/* Texts end up in logs and on terminals, so only what may be shown passes. */
static bool get_text(const uint8_t **p, char *text, size_t bytes)
{
        size_t used = strnlen((const char *)*p, bytes);

        if (used == bytes || !text_is_clean((const char *)*p))
                return false;
        memcpy(text, *p, used);
        memset(text + used, 0, bytes - used);
        *p += bytes;
        return true;
}

static void put_bytes(uint8_t **p, const uint8_t *value, size_t bytes)
{
        memcpy(*p, value, bytes);
        *p += bytes;
}

static void get_bytes(const uint8_t **p, uint8_t *value, size_t bytes)
{
        memcpy(value, *p, bytes);
        *p += bytes;
}

/* ---- a message ---- */

int wire_encode(const struct wire_message *m, uint8_t buf[static WIRE_SIZE_MAX])
{
        const struct kind *k = kind_find(m->header.type);
        uint8_t *p = buf;

        if (!k)
                return -EINVAL;
        put(&p, m->header.type, 2);
        put(&p, m->header.gpu, 2);
        put(&p, m->header.sequence, 4);
        switch (m->header.type) {
#define U64(name)          put(&p, b->name, 8);
#define U32(name)          put(&p, b->name, 4);
#define TEXT(name, bytes)  put_text(&p, b->name, bytes);
#define BYTES(name, bytes) put_bytes(&p, b->name, bytes);
#define WIRE(name, number, direction, fields)                  \
        case number: {                                         \
                const struct wire_body_##number *b = &m->name; \
                fields                                         \
        } break;
#include "wire/wire_messages.def"
#undef WIRE
#undef U64
#undef U32
#undef TEXT
#undef BYTES
        }
        return (int)(p - buf);
}

static bool message_is_valid(const struct wire_message *m)
{
        bool about_gpu = false;
        uint32_t flags = 0;

        switch (m->header.type) {
        case WIRE_HELLO:
                if (m->HELLO.magic != WIRE_MAGIC || m->HELLO.takes_turns > 1)
                        return false;
                break;
        case WIRE_WELCOME:
                if (m->WELCOME.magic != WIRE_MAGIC)
                        return false;
                break;
        case WIRE_REFUSED:
                if (m->REFUSED.magic != WIRE_MAGIC)
                        return false;
                break;
        case WIRE_ATTACH:
                about_gpu = true;
                flags = m->ATTACH.flags;
                break;
        case WIRE_USAGE:
                about_gpu = true;
                flags = m->USAGE.flags;
                break;
        case WIRE_REQUEST:
                about_gpu = true;
                flags = m->REQUEST.flags;
                break;
        case WIRE_EXPORT:
                if (m->EXPORT.flags & ~WIRE_EXPORT_HELD)
                        return false;
                about_gpu = true;
                break;
        case WIRE_OPENED:
                if (m->OPENED.flags & ~WIRE_OPENED_HEIR)
                        return false;
                break;
        case WIRE_FROZEN:
                if (m->FROZEN.why & ~WIRE_FROZEN_KNOWN)
                        return false;
                break;
        case WIRE_JOIN:
                if (m->JOIN.flags & ~WIRE_JOIN_PCI_ORDER)
                        return false;
                break;
        case WIRE_JOINED:
                if (m->JOINED.ready > 1)
                        return false;
                break;
        case WIRE_FILLED:
                if (m->FILLED.refused > 1)
                        return false;
                break;
        case WIRE_FREEZE:
                if (!wire_freeze_name(m->FREEZE.mode))
                        return false;
                break;
        case WIRE_SELF:
                if (m->SELF.way > WIRE_WAY_SHARED)
                        return false;
                about_gpu = true;
                break;
        case WIRE_ATTACHED:
        case WIRE_SHORT:
        case WIRE_MANAGED:
        case WIRE_SPARED:
        case WIRE_LIMIT:
        case WIRE_EXPORTED:
        case WIRE_HOST_SHORT:
        case WIRE_UNPIN:
        case WIRE_ROOM:
        case WIRE_ROOM_LEFT:
                about_gpu = true;
                break;
        }
        if (flags & ~WIRE_FLAGS_KNOWN)
                return false;
        if (!about_gpu && m->header.gpu == WIRE_NO_GPU)
                return true;
        return m->header.gpu < WIRE_GPUS_MAX;
}

int wire_decode(const uint8_t *buf, size_t size, enum wire_direction direction,
                struct wire_message *ret)
{
        const uint8_t *p = buf;
        const struct kind *k;
        bool ok = true;

        if (size < HEADER_SIZE)
                return -EBADMSG;
        ret->header.type = (uint16_t)get(&p, 2);
        ret->header.gpu = (uint16_t)get(&p, 2);
        ret->header.sequence = (uint32_t)get(&p, 4);
        k = kind_find(ret->header.type);
        if (!k || k->size != size || k->direction != (uint8_t)direction)
                return -EBADMSG;
        switch (ret->header.type) {
#define U64(name)          b->name = get(&p, 8);
#define U32(name)          b->name = (uint32_t)get(&p, 4);
#define TEXT(name, bytes)  ok = ok && get_text(&p, b->name, bytes);
#define BYTES(name, bytes) get_bytes(&p, b->name, bytes);
#define WIRE(name, number, direction, fields)              \
        case number: {                                     \
                struct wire_body_##number *b = &ret->name; \
                fields                                     \
        } break;
#include "wire/wire_messages.def"
#undef WIRE
#undef U64
#undef U32
#undef TEXT
#undef BYTES
        }
        return ok && message_is_valid(ret) ? 0 : -EINVAL;
}

bool wire_group_is_valid(const char *text)
{
        const char *p = text;

        while (*p >= ' ' && *p <= '~')
                p++;
        return !*p && p != text && p - text <= WIRE_GROUP_MAX;
}

static const char *const freeze_names[] = {
        [WIRE_FREEZE_OFF] = "off", [WIRE_FREEZE_PARK] = "park", [WIRE_FREEZE_MOVE] = "move"};

int wire_parse_freeze(const char *text, enum wire_freeze *ret_mode)
{
        for (unsigned i = WIRE_FREEZE_OFF; i < ARRAY_SIZE(freeze_names); i++)
                if (strcmp(text, freeze_names[i]) == 0) {
                        *ret_mode = (enum wire_freeze)i;
                        return 0;
                }
        return -EINVAL;
}

const char *wire_freeze_name(uint64_t mode)
{
        return mode < ARRAY_SIZE(freeze_names) ? freeze_names[mode] : NULL;
}

const char *wire_memory_name(uint64_t mode)
{
        static const char *const names[] = {[WIRE_MEMORY_SWAP] = "swap",
                                            [WIRE_MEMORY_OVERFLOW] = "overflow",
                                            [WIRE_MEMORY_MANAGED] = "managed"};

        return mode < ARRAY_SIZE(names) ? names[mode] : NULL;
}
