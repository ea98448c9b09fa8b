/* wire.c: owns the conversion of messages to packets and back, as the table says.
 * Must never allocate, do I/O or trust a packet: everything a peer controls is checked here. */
#include "wire/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "base/text.h"

#define HEADER_SIZE 8u

struct kind {
        const char *name;
        uint16_t size; /* bytes of a packet, header included */
        uint8_t direction, scope;
};

/* Each field macro adds the field's bytes, so a list of fields is a sum: 8 +8 +4 +64 ... */
#define U64(name)          +8
#define U32(name)          +4
#define TEXT(name, bytes)  +(bytes)
#define BYTES(name, bytes) +(bytes)
#define WIRE(name, number, direction, scope, fields) \
        [number] = {#name, HEADER_SIZE fields, WIRE_##direction, WIRE_SCOPE_##scope},
static const struct kind kinds[] = {
#include "wire/wire_messages.def"
};
#undef WIRE

/* A struct in memory has the layout of its packet's body: without padding, every byte is a
 * field. */
#define WIRE(name, number, direction, scope, fields)                                \
        _Static_assert(sizeof(struct wire_##name) == 0 fields, #name " is padded"); \
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

enum wire_scope wire_scope(unsigned type)
{
        return (enum wire_scope)kinds[type].scope;
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
#define WIRE(name, number, direction, scope, fields)    \
        case number: {                                  \
                const struct wire_##name *b = &m->name; \
                fields                                  \
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

static bool is_within(uint64_t value, uint64_t least, uint64_t most)
{
        return value >= least && value <= most;
}

static bool gpu_is_valid(const struct kind *k, uint16_t gpu)
{
        return gpu < WIRE_GPUS_MAX || (gpu == WIRE_NO_GPU && k->scope < WIRE_SCOPE_NEW_GPU);
}

int wire_decode(const uint8_t *buf, size_t size, enum wire_direction direction,
                struct wire_message *ret)
{
        const uint8_t *p = buf;
        const struct kind *k;
        bool ok;

        if (size < HEADER_SIZE)
                return -EBADMSG;
        ret->header.type = (uint16_t)get(&p, 2);
        ret->header.gpu = (uint16_t)get(&p, 2);
        ret->header.sequence = (uint32_t)get(&p, 4);
        k = kind_find(ret->header.type);
        if (!k || k->size != size || k->direction != (uint8_t)direction)
                return -EBADMSG;
        ok = gpu_is_valid(k, ret->header.gpu);
        switch (ret->header.type) {
#define U64(name)               b->name = get(&p, 8);
#define U32(name)               b->name = (uint32_t)get(&p, 4);
#define TEXT(name, bytes)       ok = ok && get_text(&p, b->name, bytes);
#define BYTES(name, bytes)      get_bytes(&p, b->name, bytes);
#define IN64(name, least, most) U64(name) ok = ok && is_within(b->name, least, most);
#define IN32(name, least, most) U32(name) ok = ok && is_within(b->name, least, most);
#define FLAGS(name, known)      U32(name) ok = ok && !(b->name & ~(uint32_t)(known));
#define WIRE(name, number, direction, scope, fields) \
        case number: {                               \
                struct wire_##name *b = &ret->name;  \
                fields                               \
        } break;
#include "wire/wire_messages.def"
#undef WIRE
#undef U64
#undef U32
#undef TEXT
#undef BYTES
        }
        return ok ? 0 : -EINVAL;
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
