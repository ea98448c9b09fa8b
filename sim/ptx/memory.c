/* memory.c: owns loads, stores and atomics. A warp's access to adjacent addresses, the usual case,
 * is checked once and copied in one loop. Must never touch memory that resolve() did not return. */
#include "sim/ptx/internal.h"

#include <errno.h>

#include "sim/ptx/half.h"

/* Bytes that are aligned on the device may have any alignment in the host. */
typedef uint8_t any_u8 __attribute__((aligned(1), may_alias));
typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t any_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t any_u64 __attribute__((aligned(1), may_alias));
typedef int8_t any_s8 __attribute__((aligned(1), may_alias));
typedef int16_t any_s16 __attribute__((aligned(1), may_alias));
typedef int32_t any_s32 __attribute__((aligned(1), may_alias));

#ifdef __clang__
#define LANES_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LANES_INDEPENDENT _Pragma("GCC ivdep")
#endif

static void read_addresses(const struct warp *w, const struct ptx_insn *in, uint64_t *address)
{
        uint64_t offset = (uint64_t)in->offset;

        if (in->flags & FLAG_ADDRESS32) {
                const uint32_t *a = slot(w, in->r[5]);

                for (unsigned i = 0; i < WARP_LANES; i++)
                        address[i] = (uint32_t)(a[i] + offset);
        } else {
                const uint64_t *a = slot(w, in->r[5]);

                for (unsigned i = 0; i < WARP_LANES; i++)
                        address[i] = a[i] + offset;
        }
}

static uint8_t *within(uint8_t *memory, uint64_t size, uint64_t offset, size_t bytes)
{
        return offset <= size && bytes <= size - offset ? memory + offset : NULL;
}

static uint8_t *global_at(struct warp *w, const struct ptx_insn *in, uint64_t address, size_t bytes,
                          bool write)
{
        const struct ptx_memory *memory = w->run->memory;
        struct range *range = &w->run->range[in->cache];
        uint64_t start = address, end = address + bytes;
        uint8_t *p;

        if (likely(address >= range->start && bytes <= range->end - range->start &&
                   address - range->start <= range->end - range->start - bytes))
                return range->pointer + (address - range->start);
        if (end < address)
                return NULL;
        if (unlikely((address & WINDOW_MASK) == WINDOW_GRID))
                return within(w->run->grid_workspace, sizeof(w->run->grid_workspace),
                              address & ~WINDOW_MASK, bytes);
        p = memory->resolve(memory->context, address, bytes, write, &start, &end);
        run_forget_stale(w->run);
        if (!p || start > address || end < address + bytes)
                return p;
        *range = (struct range){start, end, p - (address - start)};
        return p;
}

/* Returns the host address of [address, address + bytes) for a lane; NULL: an illegal address. */
static uint8_t *lane_at(struct warp *w, const struct ptx_insn *in, unsigned lane, uint64_t address,
                        size_t bytes, bool write)
{
        const struct run *run = w->run;
        enum ptx_space space = in->space;

        if (space == SPACE_GENERIC) {
                uint64_t window = address & WINDOW_MASK;

                if (window == WINDOW_SHARED)
                        space = SPACE_SHARED;
                else if (window == WINDOW_LOCAL)
                        space = SPACE_LOCAL;
                else if (window == WINDOW_PARAM)
                        space = SPACE_PARAM;
                if (space != SPACE_GENERIC)
                        address &= ~WINDOW_MASK;
        }
        switch (space) {
        case SPACE_SHARED:
                return within(w->block->shared, run->shared_bytes, address, bytes);
        case SPACE_LOCAL:
                return frame_local(w->current.frame, lane, address, bytes);
        case SPACE_PARAM:
                if (write)
                        return NULL;
                return within((uint8_t *)run->launch->parameters, run->kernel->info.parameter_bytes,
                              address, bytes);
        default:
                return global_at(w, in, address, bytes, write);
        }
}

/* Like lane_at(), but makes the launch fail for an illegal or misaligned address. */
static uint8_t *lane_pointer(struct warp *w, const struct ptx_insn *in, unsigned lane,
                             uint64_t address, size_t bytes, bool write)
{
        uint8_t *p;

        if (unlikely(address & (bytes - 1))) {
                warp_fail(w, in, lane, -EFAULT, "misaligned address 0x%llx of %zu bytes",
                          (unsigned long long)address, bytes);
                return NULL;
        }
        p = lane_at(w, in, lane, address, bytes, write);
        if (unlikely(!p))
                warp_fail(w, in, lane, -EFAULT, "illegal address 0x%llx (%s of %zu bytes)",
                          (unsigned long long)address, write ? "write" : "read", bytes);
        return p;
}

/* Returns the host address of the whole warp's bytes, if its lanes are adjacent; otherwise NULL. */
static uint8_t *warp_pointer(struct warp *w, const struct ptx_insn *in, const uint64_t *address,
                             size_t bytes, bool write)
{
        uint64_t apart = 0;

        if (w->mask != FULL_MASK || in->space == SPACE_LOCAL)
                return NULL;
        for (unsigned i = 0; i < WARP_LANES; i++)
                apart |= address[i] ^ (address[0] + i * bytes);
        if (apart || (address[0] & (bytes - 1)) ||
            (in->space == SPACE_GENERIC && (address[0] & WINDOW_MASK) == WINDOW_LOCAL))
                return NULL;
        return lane_at(w, in, 0, address[0], bytes * WARP_LANES, write);
}

#define LOAD_ALL(memory_type, lane_type)                                         \
        do {                                                                     \
                const memory_type *s = (const memory_type *)(const void *)p + k; \
                lane_type *d = slot(w, in->r[k]);                                \
                                                                                 \
                if (n == 1) {                                                    \
                        LANES_INDEPENDENT                                        \
                        for (unsigned i = 0; i < WARP_LANES; i++)                \
                                d[i] = (lane_type)s[i];                          \
                } else {                                                         \
                        for (unsigned i = 0; i < WARP_LANES; i++)                \
                                d[i] = (lane_type)s[(size_t)i * n];              \
                }                                                                \
        } while (0)

/* Selects the loop for an access: by size, sign and width of the register. */
#define ACCESS_KEY(size, sign, wide) ((size) << 2 | (sign) << 1 | (wide))

static unsigned access_key(const struct ptx_insn *in)
{
        return ACCESS_KEY((unsigned)in->size, in->flags & FLAG_SIGNED ? 1U : 0U,
                          in->flags & FLAG_WIDE ? 1U : 0U);
}

static void load_all(struct warp *w, const struct ptx_insn *in, const uint8_t *p)
{
        unsigned n = in->count, key = access_key(in);

        for (unsigned k = 0; k < n; k++) {
                switch (key) {
                case ACCESS_KEY(1, 0, 0):
                        LOAD_ALL(any_u8, uint32_t);
                        break;
                case ACCESS_KEY(1, 1, 0):
                        LOAD_ALL(any_s8, uint32_t);
                        break;
                case ACCESS_KEY(1, 0, 1):
                        LOAD_ALL(any_u8, uint64_t);
                        break;
                case ACCESS_KEY(1, 1, 1):
                        LOAD_ALL(any_s8, uint64_t);
                        break;
                case ACCESS_KEY(2, 0, 0):
                        LOAD_ALL(any_u16, uint32_t);
                        break;
                case ACCESS_KEY(2, 1, 0):
                        LOAD_ALL(any_s16, uint32_t);
                        break;
                case ACCESS_KEY(2, 0, 1):
                        LOAD_ALL(any_u16, uint64_t);
                        break;
                case ACCESS_KEY(2, 1, 1):
                        LOAD_ALL(any_s16, uint64_t);
                        break;
                case ACCESS_KEY(4, 0, 0):
                case ACCESS_KEY(4, 1, 0):
                        LOAD_ALL(any_u32, uint32_t);
                        break;
                case ACCESS_KEY(4, 0, 1):
                        LOAD_ALL(any_u32, uint64_t);
                        break;
                case ACCESS_KEY(4, 1, 1):
                        LOAD_ALL(any_s32, uint64_t);
                        break;
                default:
                        LOAD_ALL(any_u64, uint64_t);
                }
        }
}

static uint64_t load_one(const struct ptx_insn *in, const uint8_t *p)
{
        bool sign = in->flags & FLAG_SIGNED;

        switch (in->size) {
        case 1:
                return sign ? (uint64_t) * (const any_s8 *)p : *(const any_u8 *)p;
        case 2:
                return sign ? (uint64_t) * (const any_s16 *)(const void *)p
                            : *(const any_u16 *)(const void *)p;
        case 4:
                return sign ? (uint64_t) * (const any_s32 *)(const void *)p
                            : *(const any_u32 *)(const void *)p;
        default:
                return *(const any_u64 *)(const void *)p;
        }
}

void warp_load(struct warp *w, const struct ptx_insn *in)
{
        size_t bytes = (size_t)in->size * in->count;
        uint64_t address[WARP_LANES];
        const uint8_t *p;

        read_addresses(w, in, address);
        p = warp_pointer(w, in, address, bytes, false);
        if (p) {
                load_all(w, in, p);
                return;
        }
        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);

                p = lane_pointer(w, in, lane, address[lane], bytes, false);
                if (!p)
                        return;
                for (unsigned k = 0; k < in->count; k++) {
                        uint64_t v = load_one(in, p + (size_t)k * in->size);

                        if (in->flags & FLAG_WIDE)
                                ((uint64_t *)slot(w, in->r[k]))[lane] = v;
                        else
                                ((uint32_t *)slot(w, in->r[k]))[lane] = (uint32_t)v;
                }
        }
}

#define STORE_ALL(memory_type, lane_type)                             \
        do {                                                          \
                memory_type *d = (memory_type *)(void *)p + k;        \
                const lane_type *s = slot(w, in->r[k]);               \
                                                                      \
                if (n == 1) {                                         \
                        LANES_INDEPENDENT                             \
                        for (unsigned i = 0; i < WARP_LANES; i++)     \
                                d[i] = (memory_type)s[i];             \
                } else {                                              \
                        for (unsigned i = 0; i < WARP_LANES; i++)     \
                                d[(size_t)i * n] = (memory_type)s[i]; \
                }                                                     \
        } while (0)

static void store_all(struct warp *w, const struct ptx_insn *in, uint8_t *p)
{
        unsigned n = in->count, key = access_key(in) & ~2U;

        for (unsigned k = 0; k < n; k++) {
                switch (key) {
                case ACCESS_KEY(1, 0, 0):
                        STORE_ALL(any_u8, uint32_t);
                        break;
                case ACCESS_KEY(1, 0, 1):
                        STORE_ALL(any_u8, uint64_t);
                        break;
                case ACCESS_KEY(2, 0, 0):
                        STORE_ALL(any_u16, uint32_t);
                        break;
                case ACCESS_KEY(2, 0, 1):
                        STORE_ALL(any_u16, uint64_t);
                        break;
                case ACCESS_KEY(4, 0, 0):
                        STORE_ALL(any_u32, uint32_t);
                        break;
                case ACCESS_KEY(4, 0, 1):
                        STORE_ALL(any_u32, uint64_t);
                        break;
                default:
                        STORE_ALL(any_u64, uint64_t);
                }
        }
}

static void store_one(const struct ptx_insn *in, uint8_t *p, uint64_t v)
{
        switch (in->size) {
        case 1:
                *(any_u8 *)p = (uint8_t)v;
                break;
        case 2:
                *(any_u16 *)(void *)p = (uint16_t)v;
                break;
        case 4:
                *(any_u32 *)(void *)p = (uint32_t)v;
                break;
        default:
                *(any_u64 *)(void *)p = v;
        }
}

void warp_store(struct warp *w, const struct ptx_insn *in)
{
        size_t bytes = (size_t)in->size * in->count;
        uint64_t address[WARP_LANES];
        uint8_t *p;

        read_addresses(w, in, address);
        p = warp_pointer(w, in, address, bytes, true);
        if (p) {
                store_all(w, in, p);
                return;
        }
        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);

                p = lane_pointer(w, in, lane, address[lane], bytes, true);
                if (!p)
                        return;
                for (unsigned k = 0; k < in->count; k++)
                        store_one(in, p + (size_t)k * in->size,
                                  in->flags & FLAG_WIDE
                                          ? ((const uint64_t *)slot(w, in->r[k]))[lane]
                                          : ((const uint32_t *)slot(w, in->r[k]))[lane]);
        }
}

/* Returns the value that an atomic operation stores in place of the old one. */
static uint64_t atomic_value(const struct ptx_insn *in, uint64_t old, uint64_t b, uint64_t c)
{
        union {
                uint64_t u64;
                double f64;
                uint32_t u32;
                float f32;
        } x = {.u64 = old}, y = {.u64 = b};
        bool sign = type_is(in->type, 's'), wide = in->size == 8, less;

        less = sign ? (wide ? (int64_t)old < (int64_t)b : (int32_t)old < (int32_t)b) : old < b;
        switch (in->sub) {
        case ATOMIC_ADD:
                if (in->type == TYPE_f32) {
                        x.f32 += y.f32;
                        return x.u32;
                }
                if (in->type == TYPE_f64) {
                        x.f64 += y.f64;
                        return x.u64;
                }
                if (type_is(in->type, 'f')) {
                        const uint32_t halves[3] = {(uint32_t)old, (uint32_t)b, 0};

                        return ptx_half_arithmetic(in->type, HALF_ADD, 0, halves);
                }
                return old + b;
        case ATOMIC_MIN:
                return less ? old : b;
        case ATOMIC_MAX:
                return less ? b : old;
        case ATOMIC_AND:
                return old & b;
        case ATOMIC_OR:
                return old | b;
        case ATOMIC_XOR:
                return old ^ b;
        case ATOMIC_CAS:
                return old == b ? c : old;
        case ATOMIC_INC:
                return old >= b ? 0 : old + 1;
        case ATOMIC_DEC:
                return old == 0 || old > b ? b : old - 1;
        default:
                return b;
        }
}

/* Uses atomic instructions of the host, because other kernels, other processes and the program may
 * use the same memory at the same time. */
static uint64_t atomic_one(const struct ptx_insn *in, void *p, uint64_t b, uint64_t c)
{
        uint32_t old32, new32;
        uint64_t old64, new64;

        if (in->size == 8) {
                old64 = __atomic_load_n((uint64_t *)p, __ATOMIC_RELAXED);
                do
                        new64 = atomic_value(in, old64, b, c);
                while (!__atomic_compare_exchange_n((uint64_t *)p, &old64, new64, false,
                                                    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
                return old64;
        }
        old32 = __atomic_load_n((uint32_t *)p, __ATOMIC_RELAXED);
        do
                new32 = (uint32_t)atomic_value(in, old32, b, c);
        while (!__atomic_compare_exchange_n((uint32_t *)p, &old32, new32, false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_RELAXED));
        return old32;
}

static uint64_t lane_value(const struct warp *w, const struct ptx_insn *in, unsigned k,
                           unsigned lane)
{
        if (in->r[k] == NO_SLOT)
                return 0;
        return in->size == 8 ? ((const uint64_t *)slot(w, in->r[k]))[lane]
                             : ((const uint32_t *)slot(w, in->r[k]))[lane];
}

void warp_atomic(struct warp *w, const struct ptx_insn *in)
{
        uint64_t address[WARP_LANES];

        read_addresses(w, in, address);
        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);
                uint8_t *p = lane_pointer(w, in, lane, address[lane], in->size, true);
                uint64_t old;

                if (!p)
                        return;
                old = atomic_one(in, p, lane_value(w, in, 1, lane), lane_value(w, in, 2, lane));
                if (in->r[0] == NO_SLOT)
                        continue;
                if (in->size == 8)
                        ((uint64_t *)slot(w, in->r[0]))[lane] = old;
                else
                        ((uint32_t *)slot(w, in->r[0]))[lane] = (uint32_t)old;
        }
}

void run_forget_stale(struct run *run)
{
        const uint64_t *epoch = run->memory->epoch;

        if (likely(!epoch || *epoch == run->epoch))
                return;
        run->epoch = *epoch;
        memset(run->range, 0, (run->module->caches_n + 1U) * sizeof(*run->range));
}
