/* rows.c: owns the look-up of rows of cuda_api.def by name and by address. Must never allocate. */
#include "preload/driver/rows.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "cuda/cuda_versions.h"

/* All names one after the other, found by offset. A table of pointers would have to be relocated in
 * every process that we are preloaded into, even without CUDA. */
static const struct door_names {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        char base_of_##symbol[sizeof(#base)];                           \
        char name_of_##symbol[sizeof(#symbol)];
#include "cuda/cuda_api.def"
} door_names = {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        .base_of_##symbol = #base, .name_of_##symbol = #symbol,
#include "cuda/cuda_api.def"
};

#define CAUGHT_PASS    false
#define CAUGHT_SUBMIT  true
#define CAUGHT_UNIFIED true
#define CAUGHT_RETRY   true
#define CAUGHT_CUSTOM  true

static const struct door {
        uint16_t base, symbol; /* offsets into door_names */
        uint16_t since;
        uint16_t flags;
        bool caught;
} doors[DOOR_COUNT] = {
#define CU(base_, symbol_, since_, flags_, behaviour, stream, params, args)           \
        [DOOR_##symbol_] = {.base = offsetof(struct door_names, base_of_##symbol_),   \
                            .symbol = offsetof(struct door_names, name_of_##symbol_), \
                            .since = (since_),                                        \
                            .flags = (flags_),                                        \
                            .caught = CAUGHT_##behaviour},
#include "cuda/cuda_api.def"
};

_Static_assert(sizeof(struct door_names) <= UINT16_MAX, "offsets are 16 bits");
_Static_assert(sizeof(struct real_driver) == DOOR_COUNT * sizeof(void *), "one member a row");

static const char *door_name(uint16_t offset)
{
        return (const char *)&door_names + offset;
}

const char *rows_symbol(enum door_row row)
{
        return door_name(doors[row].symbol);
}

int rows_since(enum door_row row)
{
        return doors[row].since;
}

void **rows_slot(struct real_driver *driver, enum door_row row)
{
        return (void **)driver + row;
}

/* ---- by name ---- */

#define NAME_SLOTS 2048 /* a power of two, below one third full */

/* Two hash tables with open addressing; a slot holds row + 1. The first look-up builds them. Other
 * threads search the rows one by one until then: if they waited, a child forked during the build
 * would wait for a thread that it does not have. */
static uint16_t symbol_slots[NAME_SLOTS], base_slots[NAME_SLOTS];
static _Atomic int names_state; /* 0: not built, 1: being built, 2: built */

static uint32_t name_hash(const char *s)
{
        uint32_t h = 2166136261u; /* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/ */

        for (; *s; s++)
                h = (h ^ (unsigned char)*s) * 16777619u;
        return h ^ (h >> 15);
}

static uint16_t row_name(enum door_row row, bool by_base)
{
        return by_base ? doors[row].base : doors[row].symbol;
}

static bool names_ready(void)
{
        int state = atomic_load_explicit(&names_state, memory_order_acquire);

        if (likely(state == 2))
                return true;
        if (state != 0 || !atomic_compare_exchange_strong(&names_state, &state, 1))
                return false;
        for (unsigned by_base = 0; by_base < 2; by_base++) {
                uint16_t *slots = by_base ? base_slots : symbol_slots;

                for (unsigned row = 0; row < DOOR_COUNT; row++) {
                        const char *name = door_name(row_name(row, by_base));
                        uint32_t i = name_hash(name);

                        /* Rows with the same base are adjacent: only the first is entered. */
                        if (by_base && row > 0 && strcmp(name, door_name(doors[row - 1].base)) == 0)
                                continue;
                        while (slots[i % NAME_SLOTS])
                                i++;
                        slots[i % NAME_SLOTS] = (uint16_t)(row + 1);
                }
        }
        atomic_store_explicit(&names_state, 2, memory_order_release);
        return true;
}

static enum door_row find_name(const char *name, bool by_base)
{
        const uint16_t *slots = by_base ? base_slots : symbol_slots;

        if (!names_ready()) {
                for (unsigned row = 0; row < DOOR_COUNT; row++)
                        if (strcmp(door_name(row_name(row, by_base)), name) == 0)
                                return row;
                return DOOR_NONE;
        }
        for (uint32_t i = name_hash(name); slots[i % NAME_SLOTS]; i++) {
                enum door_row row = slots[i % NAME_SLOTS] - 1;

                if (strcmp(door_name(row_name(row, by_base)), name) == 0)
                        return row;
        }
        return DOOR_NONE;
}

enum door_row rows_find_symbol(const char *symbol)
{
        return find_name(symbol, false);
}

bool rows_knows_base(const char *base)
{
        return find_name(base, true) != DOOR_NONE;
}

enum door_row rows_find_base(const char *base, int version, uint64_t flags)
{
        bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
        enum door_row row = find_name(base, true), plain = DOOR_NONE, variant = DOOR_NONE;

        for (uint16_t first = row; row < DOOR_COUNT; row++) {
                const struct door *d = &doors[row];

                if (row > first && strcmp(door_name(d->base), base) != 0)
                        break;
                if (d->since > version)
                        continue;
                if (d->flags & CU_API_PTSZ)
                        variant = row; /* rows with the same base are sorted by version */
                else
                        plain = row;
        }
        return per_thread && variant != DOOR_NONE ? variant : plain;
}

bool rows_catches_base(const char *base)
{
        enum door_row first = find_name(base, true);

        for (unsigned row = first; row < DOOR_COUNT; row++) {
                if (row > first && strcmp(door_name(doors[row].base), base) != 0)
                        break;
                if (doors[row].caught)
                        return true;
        }
        return false;
}

/* ---- by address ---- */

#define ADDRESS_SLOTS 2048

/* Hash table, written once, before real_open() returns for the first time. */
static struct {
        void *address;
        uint16_t row;
} address_slots[ADDRESS_SLOTS];

static uint32_t address_hash(const void *p)
{
        return (uint32_t)(((uintptr_t)p >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40);
}

void rows_learn(enum door_row row, void *address)
{
        uint32_t i = address_hash(address);

        while (address_slots[i % ADDRESS_SLOTS].address &&
               address_slots[i % ADDRESS_SLOTS].address != address)
                i++;
        /* A driver may export one function by two names: keep the row that we intercept. */
        if (address_slots[i % ADDRESS_SLOTS].address &&
            doors[address_slots[i % ADDRESS_SLOTS].row].caught)
                return;
        address_slots[i % ADDRESS_SLOTS].address = address;
        address_slots[i % ADDRESS_SLOTS].row = (uint16_t)row;
}

enum door_row rows_find_address(const void *address)
{
        for (uint32_t i = address_hash(address); address_slots[i % ADDRESS_SLOTS].address; i++)
                if (address_slots[i % ADDRESS_SLOTS].address == address)
                        return address_slots[i % ADDRESS_SLOTS].row;
        return DOOR_NONE;
}

/* ---- names that are not in the table ---- */

static struct {
        char name[64];
        _Atomic int state; /* 0: free, 1: being written, 2: written */
} unknown[ROWS_UNKNOWN_MAX];
static _Atomic unsigned unknown_count;

static bool is_uncaught(const char *name)
{
        static const char names[] =
#define CU_UNCAUGHT(symbol, reason) #symbol "\0"
#include "cuda/cuda_uncaught.def"
                ; /* the list ends with an empty name */

        for (const char *n = names; *n; n += strlen(n) + 1)
                if (strcmp(n, name) == 0)
                        return true;
        return false;
}

bool rows_is_undecided(const char *name)
{
        char stem[64];
        size_t n = cuda_stem(name);

        if (name[n] == '\0' || n >= sizeof(stem) || rows_find_symbol(name) != DOOR_NONE ||
            is_uncaught(name))
                return false;
        memcpy(stem, name, n);
        stem[n] = '\0';
        return rows_catches_base(stem);
}

void rows_count_unknown(const char *name)
{
        /* A name in cuda_uncaught.def is not reported, unless cuda_api.def has versions of the
         * function: then the driver has a version beyond them. */
        if (is_uncaught(name) && !rows_knows_base(name))
                return;
        for (unsigned i = 0; i < ROWS_UNKNOWN_MAX; i++) {
                int state = 0;

                if (atomic_compare_exchange_strong(&unknown[i].state, &state, 1)) {
                        strncpy(unknown[i].name, name, sizeof(unknown[i].name) - 1);
                        atomic_store_explicit(&unknown[i].state, 2, memory_order_release);
                        break;
                }
                if (state == 2 && strncmp(unknown[i].name, name, sizeof(unknown[i].name) - 1) == 0)
                        return;
        }
        atomic_fetch_add_explicit(&unknown_count, 1, memory_order_relaxed);
        log_debug("%s is not in the table of driver functions", name);
}

unsigned rows_unknown_count(void)
{
        return atomic_load_explicit(&unknown_count, memory_order_relaxed);
}

const char *rows_unknown_name(unsigned i)
{
        if (i >= ROWS_UNKNOWN_MAX ||
            atomic_load_explicit(&unknown[i].state, memory_order_acquire) != 2)
                return NULL;
        return unknown[i].name;
}
