/* symbols.c: owns names, scopes, slots and constants while a module is parsed. It must never
 * allocate more than the limits of parser.h, whatever the text says. */
#include "sim/ptx/parser.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

int parser_grow(void *array, size_t *cap, size_t need, size_t element)
{
        size_t n = MAX(*cap * 2, (size_t)16);
        void *grown;

        if (need <= *cap)
                return 0;
        n = MAX(n, need);
        grown = reallocarray(*(void **)array, n, element);
        if (!grown)
                return -ENOMEM;
        *(void **)array = grown;
        *cap = n;
        return 0;
}

static uint32_t hash(const char *name, uint32_t length)
{
        uint32_t h = 2166136261U;

        for (uint32_t i = 0; i < length; i++)
                h = (h ^ (uint8_t)name[i]) * 16777619U;
        return h;
}

int scope_push(struct parser *p)
{
        if (p->scopes_n == SCOPES_MAX)
                return parser_fail(p, "braces nested deeper than %d", SCOPES_MAX);
        p->scope[p->scopes_n++] = (struct scope){p->symbols_n, p->fixups_n, p->local};
        return 0;
}

static void fixup_resolve(struct parser *p, const struct fixup *f, uint32_t pc)
{
        if (f->table == NO_INDEX)
                p->m->insn[f->insn].offset = pc;
        else
                p->m->table[f->table].target[f->entry] = pc;
}

/* Ends the scope of a pair of braces and its labels. A label that is not found in this scope may be
 * in an outer one. */
int scope_pop(struct parser *p)
{
        struct scope *s = &p->scope[--p->scopes_n];
        size_t kept = s->fixups;

        for (size_t i = s->fixups; i < p->fixups_n; i++) {
                const struct fixup *f = &p->fixup[i];
                const struct symbol *y = symbol_find(p, f->name, f->length);

                if (y && y->kind == SYMBOL_LABEL) {
                        fixup_resolve(p, f, (uint32_t)y->value);
                } else if (p->scopes_n > 1) {
                        p->fixup[kept++] = *f;
                } else {
                        p->line = f->line;
                        return parser_fail(p, "label '%.*s' is not defined",
                                           (int)MIN(f->length, 64U), f->name);
                }
        }
        p->fixups_n = kept;
        while (p->symbols_n > s->symbols) {
                struct symbol *y = &p->symbol[--p->symbols_n];

                p->bucket[y->hash % ARRAY_SIZE(p->bucket)] = y->next;
                free(y->slots);
        }
        p->local = s->local;
        return 0;
}

int symbol_add(struct parser *p, const char *name, uint32_t length, enum symbol_kind kind,
               struct symbol **ret_symbol)
{
        uint32_t h = hash(name, length), *bucket = &p->bucket[h % ARRAY_SIZE(p->bucket)];
        size_t start = p->scopes_n ? p->scope[p->scopes_n - 1].symbols : 0;
        struct symbol *s;

        for (uint32_t i = *bucket; i != NO_INDEX && i >= start; i = p->symbol[i].next)
                if (p->symbol[i].hash == h && p->symbol[i].length == length &&
                    memcmp(p->symbol[i].name, name, length) == 0)
                        return parser_fail(p, "'%.*s' is declared twice", (int)MIN(length, 64U),
                                           name);
        if (p->symbols_n >= NO_INDEX ||
            parser_grow(&p->symbol, &p->symbols_cap, p->symbols_n + 1, sizeof(*p->symbol)) < 0)
                return -ENOMEM;
        s = &p->symbol[p->symbols_n];
        *s = (struct symbol){
                .name = name, .length = length, .hash = h, .next = *bucket, .kind = (uint8_t)kind};
        *bucket = (uint32_t)p->symbols_n++;
        *ret_symbol = s;
        return 0;
}

struct symbol *symbol_find(struct parser *p, const char *name, uint32_t length)
{
        uint32_t h = hash(name, length);

        for (uint32_t i = p->bucket[h % ARRAY_SIZE(p->bucket)]; i != NO_INDEX;
             i = p->symbol[i].next)
                if (p->symbol[i].hash == h && p->symbol[i].length == length &&
                    memcmp(p->symbol[i].name, name, length) == 0)
                        return &p->symbol[i];
        return NULL;
}

int symbol_register(struct parser *p, const char *name, uint32_t length, enum ptx_type *ret_type,
                    uint32_t *ret_slot)
{
        struct symbol *s = symbol_find(p, name, length);
        uint32_t number = 0;
        int r;

        if (!s || s->kind != SYMBOL_REGISTER) {
                uint32_t prefix = length;
                uint64_t v = 0;

                if (s)
                        return -ENOENT;
                while (prefix > 0 && name[prefix - 1] >= '0' && name[prefix - 1] <= '9')
                        prefix--;
                /* %r007 is not the register %r7. */
                if (prefix == length || length - prefix > 9 ||
                    (name[prefix] == '0' && length - prefix > 1))
                        return -ENOENT;
                for (uint32_t i = prefix; i < length; i++)
                        v = v * 10 + (uint64_t)(name[i] - '0');
                /* A family whose prefix ends in a digit, as in %r1<4>, is not found: no compiler
                 * writes it, and several prefixes would have to be tried. */
                s = symbol_find(p, name, prefix);
                if (!s || s->kind != SYMBOL_REGISTERS || v >= s->count)
                        return -ENOENT;
                number = (uint32_t)v;
        }
        if (s->slots[number] == NO_SLOT) {
                r = slot_new(p, s->type, &s->slots[number]);
                if (r < 0)
                        return r;
        }
        *ret_type = s->type;
        *ret_slot = s->slots[number];
        return 0;
}

int slot_new(struct parser *p, enum ptx_type type, uint32_t *ret_slot)
{
        unsigned bits = type_lane_bits(type);
        uint32_t bytes = bits == 1 ? SLOT_ALIGN : bits / 8 * WARP_LANES;

        if (bits == 1 && p->pred_left > 0) {
                p->pred_left--;
                *ret_slot = p->pred_slot;
                p->pred_slot += sizeof(uint32_t);
                return 0;
        }
        if (p->f->frame_bytes + bytes > FRAME_BYTES_MAX)
                return parser_fail(p, "function '%s' has too many registers", p->f->name);
        *ret_slot = p->f->frame_bytes;
        p->f->frame_bytes += bytes;
        if (bits == 1) {
                p->pred_slot = *ret_slot + (uint32_t)sizeof(uint32_t);
                p->pred_left = SLOT_ALIGN / sizeof(uint32_t) - 1;
        }
        return 0;
}

int local_new(struct parser *p, uint64_t bytes, uint64_t align, uint32_t *ret_offset)
{
        uint64_t start = align_up(p->local, MAX(align, (uint64_t)1));

        if (bytes > LOCAL_BYTES_MAX || start + bytes > LOCAL_BYTES_MAX)
                return parser_fail(p, "more than %llu bytes of local memory",
                                   (unsigned long long)LOCAL_BYTES_MAX);
        *ret_offset = (uint32_t)start;
        p->local = (uint32_t)(start + bytes);
        p->f->local_bytes = MAX(p->f->local_bytes, p->local);
        return 0;
}

static uint64_t constant_hash(const struct ptx_constant *c)
{
        uint64_t h = c->value * UINT64_C(0x9e3779b97f4a7c15);

        h ^= ((uint64_t)c->index << 16) + ((uint64_t)c->kind << 12) + ((uint64_t)c->flags << 8) +
             c->bits;
        return (h ^ h >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

static bool constant_same(const struct ptx_constant *a, const struct ptx_constant *b)
{
        return a->value == b->value && a->index == b->index && a->kind == b->kind &&
               a->bits == b->bits && a->flags == b->flags;
}

static int constant_map_grow(struct parser *p)
{
        size_t n = MAX(p->constant_map_n * 2, (size_t)256);
        uint32_t *map = calloc(n, sizeof(*map));

        if (!map)
                return -ENOMEM;
        for (size_t i = 0; i < p->f->constants_n; i++) {
                uint64_t h = constant_hash(&p->f->constants[i]) >> 16;

                while (map[h % n])
                        h++;
                map[h % n] = (uint32_t)i + 1;
        }
        free(p->constant_map);
        p->constant_map = map;
        p->constant_map_n = n;
        return 0;
}

int constant_slot(struct parser *p, enum constant_kind kind, uint64_t value, uint32_t index,
                  unsigned bits, unsigned flags, uint32_t *ret_slot)
{
        struct ptx_constant c = {.value = value,
                                 .index = index,
                                 .kind = (uint8_t)kind,
                                 .bits = (uint8_t)bits,
                                 .flags = (uint8_t)flags};
        uint64_t h;
        int r;

        if (kind == CONSTANT_SHARED)
                p->f->shared_used = true;
        if (p->f->constants_n * 2 >= p->constant_map_n) {
                r = constant_map_grow(p);
                if (r < 0)
                        return r;
        }
        for (h = constant_hash(&c) >> 16; p->constant_map[h % p->constant_map_n]; h++) {
                const struct ptx_constant *have =
                        &p->f->constants[p->constant_map[h % p->constant_map_n] - 1];

                if (constant_same(have, &c)) {
                        *ret_slot = have->slot;
                        return 0;
                }
        }
        r = slot_new(p, bits == 1 ? TYPE_pred : bits == 64 ? TYPE_b64 : TYPE_b32, &c.slot);
        if (r < 0)
                return r;
        r = parser_grow(&p->f->constants, &p->constants_cap, p->f->constants_n + 1, sizeof(c));
        if (r < 0)
                return r;
        p->f->constants[p->f->constants_n++] = c;
        p->constant_map[h % p->constant_map_n] = (uint32_t)p->f->constants_n;
        *ret_slot = c.slot;
        return 0;
}

int fixup_add(struct parser *p, const char *name, uint32_t length, uint32_t insn, uint32_t table,
              uint32_t entry)
{
        int r = parser_grow(&p->fixup, &p->fixups_cap, p->fixups_n + 1, sizeof(*p->fixup));

        if (r < 0)
                return r;
        p->fixup[p->fixups_n++] = (struct fixup){name, length, p->line, insn, table, entry};
        return 0;
}
