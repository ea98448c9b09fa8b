/* virtual.c: owns the record of the program's own reservations, handles and mappings. Must never
 * call the driver, nor give two objects one name.
 * Why: docs/decisions.md, "A program's own handles are blocks of the heap". */
#include "preload/state/virtual.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- spans in address order, none overlapping ---- */

struct table {
        struct span **spans;
        size_t count, room;
};

static struct table reservations, mappings;
static uint64_t last_id = UINT64_C(1) << 62; /* ids of the heap are smaller */

/* Returns the index of the first span that ends behind address. */
static size_t table_from(const struct table *t, CUdeviceptr address)
{
        size_t low = 0, high = t->count;

        while (low < high) {
                size_t middle = low + (high - low) / 2;
                const struct span *s = t->spans[middle];

                if (s->address + s->bytes <= address)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static struct span *table_next(const struct table *t, CUdeviceptr address)
{
        size_t at = table_from(t, address);

        return at < t->count ? t->spans[at] : NULL;
}

static int table_insert(struct table *t, struct span *s)
{
        size_t at = table_from(t, s->address);

        if (t->count == t->room) {
                size_t room = t->room ? t->room * 2 : 64;
                struct span **spans = realloc(t->spans, room * sizeof(struct span *));

                if (!spans)
                        return -ENOMEM;
                t->spans = spans;
                t->room = room;
        }
        memmove(&t->spans[at + 1], &t->spans[at], (t->count - at) * sizeof(struct span *));
        t->spans[at] = s;
        t->count++;
        return 0;
}

static void table_remove(struct table *t, const struct span *s)
{
        size_t at = table_from(t, s->address);

        memmove(&t->spans[at], &t->spans[at + 1], (t->count - at - 1) * sizeof(struct span *));
        t->count--;
}

/* ---- reservations ---- */

int virtual_reserve(CUdeviceptr address, uint64_t bytes)
{
        struct span *s = malloc(sizeof(*s));

        if (!s)
                return -ENOMEM;
        *s = (struct span){.address = address, .bytes = bytes};
        if (table_insert(&reservations, s) < 0) {
                free(s);
                return -ENOMEM;
        }
        return 0;
}

void virtual_unreserve(CUdeviceptr address)
{
        struct span *s = table_next(&reservations, address);

        table_remove(&reservations, s);
        free(s);
}

const struct span *virtual_reservation(CUdeviceptr address)
{
        const struct span *s = table_next(&reservations, address);

        return s && s->address <= address ? s : NULL;
}

bool virtual_reserved(CUdeviceptr address, uint64_t bytes)
{
        CUdeviceptr end = address + bytes;

        if (end < address)
                return false;
        while (address < end) {
                const struct span *s = virtual_reservation(address);

                if (!s)
                        return false;
                address = s->address + s->bytes;
        }
        return end > 0;
}

/* ---- handles ----
 *
 * A name is a random tag, a count of the handles that its slot has named before, and the slot. So a
 * look-up is quick, and no name is reused soon. The driver's own names differ: they are pointers or
 * small numbers. */

#define SLOT_BITS  24
#define TIMES_BITS 16

static struct slot {
        struct handle *handle;
        uint16_t times;
        uint32_t next_free; /* the next free slot; 0: none */
} * slots;
static uint32_t slot_count, slot_room, slot_free; /* slot 0 is never used */
static uint64_t tag;

static uint64_t tag_new(void)
{
        uint32_t random = 0;

        if (syscall(SYS_getrandom, &random, sizeof(random), 1 /* GRND_NONBLOCK */) !=
            (long)sizeof(random))
                random = (uint32_t)getpid() * 2654435761u;
        return (uint64_t)(random | 0x800000u) << (SLOT_BITS + TIMES_BITS);
}

/* Returns an unused slot; 0: no memory. */
static uint32_t slot_take(void)
{
        uint32_t i = slot_free;

        if (i) {
                slot_free = slots[i].next_free;
                return i;
        }
        if (slot_count == slot_room) {
                uint32_t room = slot_room ? slot_room * 2 : 64;
                struct slot *more =
                        room <= 1u << SLOT_BITS ? realloc(slots, room * sizeof(*slots)) : NULL;

                if (!more)
                        return 0;
                slots = more;
                slot_room = room;
                if (slot_count == 0) {
                        tag = tag_new();
                        slots[slot_count++] = (struct slot){0};
                }
        }
        slots[slot_count] = (struct slot){0};
        return slot_count++;
}

struct handle *virtual_create(struct gpu *g, const CUmemAllocationProp *prop, uint64_t bytes)
{
        struct handle *h = calloc(1, sizeof(*h));
        uint32_t i = h ? slot_take() : 0;

        if (!i) {
                free(h);
                return NULL;
        }
        *h = (struct handle){
                .name = tag | (uint64_t)slots[i].times << SLOT_BITS | i,
                .id = ++last_id,
                .gpu = g,
                .prop = *prop,
                .bytes = bytes,
                .references = 1,
        };
        slots[i].handle = h;
        return h;
}

struct handle *virtual_find(CUmemGenericAllocationHandle name)
{
        uint32_t i = name & ((1u << SLOT_BITS) - 1);
        struct handle *h = i < slot_count ? slots[i].handle : NULL;

        return h && h->name == name ? h : NULL;
}

CUmemGenericAllocationHandle virtual_drivers(CUmemGenericAllocationHandle name)
{
        bool ours = tag && name >> (SLOT_BITS + TIMES_BITS) == tag >> (SLOT_BITS + TIMES_BITS);

        return ours ? 0 : name;
}

void virtual_forget(struct handle *h)
{
        uint32_t i = h->name & ((1u << SLOT_BITS) - 1);

        slots[i] = (struct slot){.times = (uint16_t)(slots[i].times + 1), .next_free = slot_free};
        slot_free = i;
}

/* ---- mappings ---- */

static bool is_home(const struct mapping *m)
{
        return m->access[m->handle->gpu->index] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

static void find_home(struct handle *h)
{
        h->home = h->mappings;
        while (h->home && !is_home(h->home))
                h->home = h->home->next;
}

struct mapping *virtual_map(struct handle *h, CUdeviceptr address, uint64_t bytes)
{
        struct mapping *m = calloc(1, sizeof(*m));

        if (!m)
                return NULL;
        *m = (struct mapping){
                .at = {.address = address, .bytes = bytes}, .handle = h, .id = ++last_id};
        if (table_insert(&mappings, &m->at) < 0) {
                free(m);
                return NULL;
        }
        if (h) {
                m->next = h->mappings;
                h->mappings = m;
                h->mapping_count++;
        }
        return m;
}

void virtual_unmap(struct mapping *m)
{
        struct handle *h = m->handle;

        table_remove(&mappings, &m->at);
        if (h) {
                struct mapping **link = &h->mappings;

                while (*link != m)
                        link = &(*link)->next;
                *link = m->next;
                h->mapping_count--;
                if (h->home == m)
                        find_home(h);
        }
        free(m);
}

struct mapping *virtual_from(CUdeviceptr address)
{
        return (struct mapping *)table_next(&mappings, address);
}

struct mapping *virtual_at(CUdeviceptr address)
{
        struct mapping *m = virtual_from(address);

        return m && m->at.address <= address ? m : NULL;
}

bool virtual_whole(CUdeviceptr address, uint64_t bytes, bool gaps)
{
        CUdeviceptr at = address, end = address + bytes;

        for (size_t i = table_from(&mappings, address); i < mappings.count; i++) {
                const struct span *s = mappings.spans[i];

                if (s->address >= end)
                        break;
                if (s->address < at || s->bytes > end - s->address || (!gaps && s->address != at))
                        return false;
                at = s->address + s->bytes;
        }
        return gaps || at == end;
}

void mapping_allow(struct mapping *m, const CUmemAccessDesc *access, size_t count)
{
        for (size_t i = 0; i < count; i++)
                if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                    access[i].location.id >= 0 && access[i].location.id < GPUS_MAX)
                        m->access[access[i].location.id] = (uint8_t)access[i].flags;
        if (m->handle && (m->handle->home == m || !m->handle->home))
                find_home(m->handle);
}

unsigned mapping_access(const struct mapping *m, CUmemAccessDesc ret[static GPUS_MAX])
{
        unsigned n = 0;

        for (int i = 0; i < GPUS_MAX; i++)
                if (m->access[i] != CU_MEM_ACCESS_FLAGS_PROT_NONE)
                        ret[n++] = (CUmemAccessDesc){
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i},
                                .flags = (CUmemAccess_flags)m->access[i]};
        return n;
}
