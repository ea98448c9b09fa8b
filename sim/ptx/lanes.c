/* lanes.c: owns the effect of each operation of ops.def on the lanes of a warp. Compiled once for
 * any machine and, on x86-64, a second time for AVX2 with FMA (LANES_TABLE names the resulting
 * table). It must never touch memory other than the warp's own frame. */
#include "sim/ptx/internal.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

#include "sim/ptx/half.h"

#ifndef LANES_TABLE
#define LANES_TABLE ptx_lanes_plain
#endif

#ifdef __clang__
#define LANES_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LANES_INDEPENDENT _Pragma("GCC ivdep")
#endif

/* For each type, lane_... is a lane of a slot, and value_... the value in it. A destination equals
 * a source or does not overlap it, so the loops have no dependencies between lanes. */
typedef uint32_t lane_u16, lane_s16, lane_u32, lane_s32;
typedef uint64_t lane_u64, lane_s64;
typedef float lane_f32;
typedef double lane_f64;
typedef uint16_t value_u16;
typedef int16_t value_s16;
typedef uint32_t value_u32;
typedef int32_t value_s32;
typedef uint64_t value_u64;
typedef int64_t value_s64;
typedef float value_f32;
typedef double value_f64;

#define FOR_LANES(mask, body)                                            \
        do {                                                             \
                if (likely((mask) == FULL_MASK)) {                       \
                        LANES_INDEPENDENT                                \
                        for (unsigned i = 0; i < WARP_LANES; i++) {      \
                                body;                                    \
                        }                                                \
                } else {                                                 \
                        for (uint32_t m = (mask); m; m &= m - 1) {       \
                                unsigned i = (unsigned)__builtin_ctz(m); \
                                body;                                    \
                        }                                                \
                }                                                        \
        } while (0)

static inline int32_t clamp_s32(int64_t v)
{
        return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
}

static inline int32_t bits_s(uint32_t v, unsigned bits)
{
        return (int32_t)(v << (32 - bits)) >> (32 - bits);
}

static inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector)
{
        uint64_t bytes = (uint64_t)b << 32 | a;
        uint32_t r = 0;

        for (unsigned i = 0; i < 4; i++) {
                uint32_t s = selector >> (4 * i);
                uint32_t byte = (uint32_t)(bytes >> (8 * (s & 7))) & 0xff;

                if (s & 8)
                        byte = byte & 0x80 ? 0xff : 0;
                r |= byte << (8 * i);
        }
        return r;
}

/* The named modes of prmt as selectors (PTX ISA, "prmt"). */
static inline uint32_t prmt_b4e(uint32_t c)
{
        static const uint16_t selector[4] = {0x5670, 0x6701, 0x7012, 0x0123};

        return selector[c & 3];
}

static inline uint32_t prmt_ecl(uint32_t c)
{
        static const uint16_t selector[4] = {0x3210, 0x3211, 0x3222, 0x3333};

        return selector[c & 3];
}

static inline uint32_t prmt_ecr(uint32_t c)
{
        static const uint16_t selector[4] = {0x0000, 0x1110, 0x2210, 0x3210};

        return selector[c & 3];
}

static inline uint64_t bfe_u64(uint64_t a, uint32_t b, uint32_t c)
{
        unsigned position = b & 0xff, length = c & 0xff;

        if (position > 63 || length == 0)
                return 0;
        a >>= position;
        return length > 63 ? a : a & ((UINT64_C(1) << length) - 1);
}

/* Extracts a field and extends its sign. A field that reaches beyond the operand has the operand's
 * sign. */
static inline int64_t bfe_s64(int64_t a, uint32_t b, uint32_t c, unsigned bits)
{
        unsigned position = b & 0xff, length = c & 0xff, top = bits - 1;

        if (length == 0)
                return 0;
        if (position > top)
                return a < 0 ? -1 : 0;
        if (length > bits - position)
                return a >> position;
        return (int64_t)((uint64_t)a << (64 - position - length)) >> (64 - length);
}

static inline uint64_t bfi(uint64_t a, uint64_t b, uint32_t c, uint32_t d, unsigned bits)
{
        unsigned position = c & 0xff, length = d & 0xff;
        uint64_t mask;

        if (length == 0 || position >= bits)
                return b;
        mask = (length > 63 ? UINT64_MAX : (UINT64_C(1) << length) - 1) << position;
        return (b & ~mask) | ((a << position) & mask);
}

static inline uint32_t brev32(uint32_t v)
{
        v = (v >> 1 & 0x55555555U) | (v & 0x55555555U) << 1;
        v = (v >> 2 & 0x33333333U) | (v & 0x33333333U) << 2;
        v = (v >> 4 & 0x0f0f0f0fU) | (v & 0x0f0f0f0fU) << 4;
        return __builtin_bswap32(v);
}

static inline uint32_t bfind(uint64_t v)
{
        return v ? 63U - (uint32_t)__builtin_clzll(v) : UINT32_MAX;
}

static inline uint32_t bfind_shift(uint64_t v, unsigned top)
{
        return v ? top - (63U - (uint32_t)__builtin_clzll(v)) : UINT32_MAX;
}

/* Finds the n-th set bit of mask from base (inclusive), upwards for n > 0, downwards for n < 0. */
static inline uint32_t fns(uint32_t mask, uint32_t base, int32_t n)
{
        int step = n < 0 ? -1 : 1;
        int64_t left = n < 0 ? -(int64_t)n : n;

        if (n == 0)
                return base < 32 && (mask >> base & 1) ? base : UINT32_MAX;
        for (int64_t at = base; at >= 0 && at < 32; at += step)
                if (mask >> at & 1 && --left == 0)
                        return (uint32_t)at;
        return UINT32_MAX;
}

static inline uint32_t bmsk(uint32_t position, uint32_t width)
{
        uint64_t ones = (UINT64_C(1) << width) - 1;

        return position > 31 ? 0 : (uint32_t)(ones << position);
}

static inline uint32_t dp4a(uint32_t a, uint32_t b, uint32_t c, bool sa, bool sb)
{
        for (unsigned i = 0; i < 32; i += 8) {
                int32_t x = sa ? (int8_t)(a >> i) : (uint8_t)(a >> i);
                int32_t y = sb ? (int8_t)(b >> i) : (uint8_t)(b >> i);

                c += (uint32_t)(x * y);
        }
        return c;
}

static inline uint32_t vabsdiff4(uint32_t a, uint32_t b)
{
        uint32_t r = 0;

        for (unsigned i = 0; i < 32; i += 8) {
                int32_t d = (uint8_t)(a >> i) - (uint8_t)(b >> i);

                r |= (uint32_t)(d < 0 ? -d : d) << i;
        }
        return r;
}

static inline uint32_t vabsdiff4_sum(uint32_t a, uint32_t b)
{
        uint32_t d = vabsdiff4(a, b);

        return (d & 0xff) + (d >> 8 & 0xff) + (d >> 16 & 0xff) + (d >> 24);
}

static inline float nan_f32(void)
{
        return half_float_of(0x7fffffffU);
}

/* Returns the smaller number, or the number if the other operand is NaN. -0 is less than +0. Two
 * NaNs give the canonical one, because .f32 has no payloads. */
static inline float min_f32(float a, float b)
{
        bool first = a < b || b != b || (a == b && half_bits_of(a) >> 31);

        return a != a && b != b ? nan_f32() : first ? a : b;
}

static inline float max_f32(float a, float b)
{
        bool first = a > b || b != b || (a == b && !(half_bits_of(a) >> 31));

        return a != a && b != b ? nan_f32() : first ? a : b;
}

static inline double min_f64(double a, double b)
{
        bool first = a < b || b != b || (a == b && __builtin_signbit(a));

        return first ? a : b;
}

static inline double max_f64(double a, double b)
{
        bool first = a > b || b != b || (a == b && !__builtin_signbit(a));

        return first ? a : b;
}

#define OP1(name, td, ta, expr)                                          \
        static void op_##name(struct warp *w, const struct ptx_insn *in) \
        {                                                                \
                lane_##td *d = slot(w, in->r[0]);                        \
                const lane_##ta *pa = slot(w, in->r[1]);                 \
                uint32_t mask = w->mask;                                 \
                                                                         \
                FOR_LANES(mask, const value_##ta a = (value_##ta)pa[i];  \
                          d[i] = (lane_##td)(value_##td)(expr));         \
        }
#define OP2(name, td, ta, tb, expr)                                      \
        static void op_##name(struct warp *w, const struct ptx_insn *in) \
        {                                                                \
                lane_##td *d = slot(w, in->r[0]);                        \
                const lane_##ta *pa = slot(w, in->r[1]);                 \
                const lane_##tb *pb = slot(w, in->r[2]);                 \
                uint32_t mask = w->mask;                                 \
                                                                         \
                FOR_LANES(mask, const value_##ta a = (value_##ta)pa[i];  \
                          const value_##tb b = (value_##tb)pb[i];        \
                          d[i] = (lane_##td)(value_##td)(expr));         \
        }
#define OP3(name, td, ta, tb, tc, expr)                                                      \
        static void op_##name(struct warp *w, const struct ptx_insn *in)                     \
        {                                                                                    \
                lane_##td *d = slot(w, in->r[0]);                                            \
                const lane_##ta *pa = slot(w, in->r[1]);                                     \
                const lane_##tb *pb = slot(w, in->r[2]);                                     \
                const lane_##tc *pc = slot(w, in->r[3]);                                     \
                uint32_t mask = w->mask;                                                     \
                                                                                             \
                FOR_LANES(mask, const value_##ta a = (value_##ta)pa[i];                      \
                          const value_##tb b = (value_##tb)pb[i];                            \
                          const value_##tc c = (value_##tc)pc[i]; (void)c; (void)a; (void)b; \
                          d[i] = (lane_##td)(value_##td)(expr));                             \
        }
/* Computes one bit per lane. The compiler turns the sum of products into compares and ands. */
#define CMP(name, ta, expr)                                              \
        static void op_##name(struct warp *w, const struct ptx_insn *in) \
        {                                                                \
                const lane_##ta *pa = slot(w, in->r[1]);                 \
                const lane_##ta *pb = slot(w, in->r[2]);                 \
                uint32_t *d = slot_pred(w, in->r[0]);                    \
                uint32_t mask = w->mask, truth = 0;                      \
                                                                         \
                for (unsigned i = 0; i < WARP_LANES; i++) {              \
                        const value_##ta a = (value_##ta)pa[i];          \
                        const value_##ta b = (value_##ta)pb[i];          \
                                                                         \
                        truth |= (expr) ? lane_bit[i] : 0;               \
                }                                                        \
                *d = (*d & ~mask) | (truth & mask);                      \
        }

static const uint32_t lane_bit[WARP_LANES] = {
        1U << 0,  1U << 1,  1U << 2,  1U << 3,  1U << 4,  1U << 5,  1U << 6,  1U << 7,
        1U << 8,  1U << 9,  1U << 10, 1U << 11, 1U << 12, 1U << 13, 1U << 14, 1U << 15,
        1U << 16, 1U << 17, 1U << 18, 1U << 19, 1U << 20, 1U << 21, 1U << 22, 1U << 23,
        1U << 24, 1U << 25, 1U << 26, 1U << 27, 1U << 28, 1U << 29, 1U << 30, 1U << 31,
};

#include "sim/ptx/ops.def"

static inline void pred_store(const struct warp *w, uint32_t offset, uint32_t value)
{
        uint32_t *d = slot_pred(w, offset);

        *d = (*d & ~w->mask) | (value & w->mask);
}

static void op_MOV_PRED(struct warp *w, const struct ptx_insn *in)
{
        pred_store(w, in->r[0], *slot_pred(w, in->r[1]));
}

static void op_AND_PRED(struct warp *w, const struct ptx_insn *in)
{
        pred_store(w, in->r[0], *slot_pred(w, in->r[1]) & *slot_pred(w, in->r[2]));
}

static void op_OR_PRED(struct warp *w, const struct ptx_insn *in)
{
        pred_store(w, in->r[0], *slot_pred(w, in->r[1]) | *slot_pred(w, in->r[2]));
}

static void op_XOR_PRED(struct warp *w, const struct ptx_insn *in)
{
        pred_store(w, in->r[0], *slot_pred(w, in->r[1]) ^ *slot_pred(w, in->r[2]));
}

static void op_NOT_PRED(struct warp *w, const struct ptx_insn *in)
{
        pred_store(w, in->r[0], ~*slot_pred(w, in->r[1]));
}

static void op_SELP_32(struct warp *w, const struct ptx_insn *in)
{
        uint32_t *d = slot(w, in->r[0]), p = *slot_pred(w, in->r[3]), mask = w->mask;
        const uint32_t *a = slot(w, in->r[1]), *b = slot(w, in->r[2]);

        FOR_LANES(mask, d[i] = p & lane_bit[i] ? a[i] : b[i]);
}

static void op_SELP_64(struct warp *w, const struct ptx_insn *in)
{
        const uint64_t *a = slot(w, in->r[1]), *b = slot(w, in->r[2]);
        uint32_t p = *slot_pred(w, in->r[3]), mask = w->mask;
        uint64_t *d = slot(w, in->r[0]);

        FOR_LANES(mask, d[i] = p & lane_bit[i] ? a[i] : b[i]);
}

/* d = c >= 0 ? a : b. size is the bytes of a lane; sub distinguishes f32 from s32. */
static void op_SLCT(struct warp *w, const struct ptx_insn *in)
{
        const uint32_t *c = slot(w, in->r[3]);
        const float *f = slot(w, in->r[3]);
        uint32_t choice = 0, mask = w->mask;

        for (unsigned i = 0; i < WARP_LANES; i++)
                choice |= (in->sub ? f[i] >= 0.0F : (int32_t)c[i] >= 0) ? lane_bit[i] : 0;
        if (in->size == 8) {
                const uint64_t *a = slot(w, in->r[1]), *b = slot(w, in->r[2]);
                uint64_t *d = slot(w, in->r[0]);

                FOR_LANES(mask, d[i] = choice & lane_bit[i] ? a[i] : b[i]);
        } else {
                const uint32_t *a = slot(w, in->r[1]), *b = slot(w, in->r[2]);
                uint32_t *d = slot(w, in->r[0]);

                FOR_LANES(mask, d[i] = choice & lane_bit[i] ? a[i] : b[i]);
        }
}

/* setp p|q, a, b, c: p = cmp op c, q = !cmp op c. */
static void op_SET_COMBINE(struct warp *w, const struct ptx_insn *in)
{
        uint32_t truth = *slot_pred(w, in->r[2]), not_truth = ~truth, c;

        if (in->sub != COMBINE_NONE) {
                c = *slot_pred(w, in->r[3]);
                if (in->flags & FLAG_NOT)
                        c = ~c;
                if (in->sub == COMBINE_AND) {
                        truth &= c;
                        not_truth &= c;
                } else if (in->sub == COMBINE_OR) {
                        truth |= c;
                        not_truth |= c;
                } else {
                        truth ^= c;
                        not_truth ^= c;
                }
        }
        if (in->r[0] != NO_SLOT)
                pred_store(w, in->r[0], truth);
        if (in->r[1] != NO_SLOT)
                pred_store(w, in->r[1], not_truth);
}

static void op_SET_VALUE(struct warp *w, const struct ptx_insn *in)
{
        uint32_t *d = slot(w, in->r[0]), p = *slot_pred(w, in->r[1]), mask = w->mask;
        uint32_t one = in->sub ? half_bits_of(1.0F) : UINT32_MAX;

        FOR_LANES(mask, d[i] = p & lane_bit[i] ? one : 0);
}

static void op_LOP3(struct warp *w, const struct ptx_insn *in)
{
        const uint32_t *a = slot(w, in->r[1]), *b = slot(w, in->r[2]), *c = slot(w, in->r[3]);
        uint32_t *d = slot(w, in->r[0]), mask = w->mask, on[8];

        for (unsigned k = 0; k < 8; k++)
                on[k] = in->sub >> k & 1 ? UINT32_MAX : 0;
        FOR_LANES(mask, const uint32_t x = a[i]; const uint32_t y = b[i]; const uint32_t z = c[i];
                  d[i] = (~x & ~y & ~z & on[0]) | (~x & ~y & z & on[1]) | (~x & y & ~z & on[2]) |
                         (~x & y & z & on[3]) | (x & ~y & ~z & on[4]) | (x & ~y & z & on[5]) |
                         (x & y & ~z & on[6]) | (x & y & z & on[7]));
}

static void op_BFI_32(struct warp *w, const struct ptx_insn *in)
{
        const uint32_t *a = slot(w, in->r[1]), *b = slot(w, in->r[2]);
        const uint32_t *c = slot(w, in->r[3]), *e = slot(w, in->r[4]);
        uint32_t *d = slot(w, in->r[0]), mask = w->mask;

        FOR_LANES(mask, d[i] = (uint32_t)bfi(a[i], b[i], c[i], e[i], 32));
}

static void op_BFI_64(struct warp *w, const struct ptx_insn *in)
{
        const uint64_t *a = slot(w, in->r[1]), *b = slot(w, in->r[2]);
        const uint32_t *c = slot(w, in->r[3]), *e = slot(w, in->r[4]);
        uint64_t *d = slot(w, in->r[0]);
        uint32_t mask = w->mask;

        FOR_LANES(mask, d[i] = bfi(a[i], b[i], c[i], e[i], 64));
}

/* r[3] holds the carry flags, one bit per lane. For a subtraction the flag is the borrow. */
static void carry(struct warp *w, const struct ptx_insn *in, bool subtract)
{
        uint32_t flags = *slot_pred(w, in->r[3]), out = 0;

        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned i = (unsigned)__builtin_ctz(m);
                unsigned bit = in->flags & FLAG_CARRY_IN ? flags >> i & 1 : 0;

                if (in->size == 8) {
                        uint64_t a = ((const uint64_t *)slot(w, in->r[1]))[i];
                        uint64_t b = ((const uint64_t *)slot(w, in->r[2]))[i], x, y;
                        bool o1 = subtract ? __builtin_sub_overflow(a, b, &x)
                                           : __builtin_add_overflow(a, b, &x);
                        bool o2 = subtract ? __builtin_sub_overflow(x, bit, &y)
                                           : __builtin_add_overflow(x, bit, &y);

                        ((uint64_t *)slot(w, in->r[0]))[i] = y;
                        out |= o1 || o2 ? lane_bit[i] : 0;
                } else {
                        uint32_t a = ((const uint32_t *)slot(w, in->r[1]))[i];
                        uint32_t b = ((const uint32_t *)slot(w, in->r[2]))[i], x, y;
                        bool o1 = subtract ? __builtin_sub_overflow(a, b, &x)
                                           : __builtin_add_overflow(a, b, &x);
                        bool o2 = subtract ? __builtin_sub_overflow(x, bit, &y)
                                           : __builtin_add_overflow(x, bit, &y);

                        ((uint32_t *)slot(w, in->r[0]))[i] = y;
                        out |= o1 || o2 ? lane_bit[i] : 0;
                }
        }
        if (in->flags & FLAG_CARRY_OUT)
                pred_store(w, in->r[3], out);
}

static void op_ADD_CARRY(struct warp *w, const struct ptx_insn *in)
{
        carry(w, in, false);
}

static void op_SUB_CARRY(struct warp *w, const struct ptx_insn *in)
{
        carry(w, in, true);
}

static uint64_t lane_get(const struct warp *w, uint32_t offset, bool wide, unsigned i)
{
        return wide ? ((const uint64_t *)slot(w, offset))[i]
                    : ((const uint32_t *)slot(w, offset))[i];
}

static void lane_put(const struct warp *w, uint32_t offset, bool wide, unsigned i, uint64_t v)
{
        if (wide)
                ((uint64_t *)slot(w, offset))[i] = v;
        else
                ((uint32_t *)slot(w, offset))[i] = (uint32_t)v;
}

/* Packs narrow registers, r[1..count] of `size` bytes (1, 2 or 4), lowest first, into r[0]. */
static void op_PACK(struct warp *w, const struct ptx_insn *in)
{
        uint64_t element = (UINT64_C(1) << (8 * in->size)) - 1;

        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned i = (unsigned)__builtin_ctz(m);
                uint64_t v = 0;

                for (unsigned k = 0; k < in->count; k++)
                        v |= (lane_get(w, in->r[1 + k], false, i) & element) << (8 * in->size * k);
                lane_put(w, in->r[0], in->flags & FLAG_WIDE, i, v);
        }
}

static void op_UNPACK(struct warp *w, const struct ptx_insn *in)
{
        uint64_t element = (UINT64_C(1) << (8 * in->size)) - 1;

        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned i = (unsigned)__builtin_ctz(m);
                uint64_t v = lane_get(w, in->r[0], in->flags & FLAG_WIDE, i);

                for (unsigned k = 0; k < in->count; k++)
                        if (in->r[1 + k] != NO_SLOT)
                                lane_put(w, in->r[1 + k], false, i,
                                         v >> (8 * in->size * k) & element);
        }
}

static void op_TESTP(struct warp *w, const struct ptx_insn *in)
{
        uint32_t truth = 0;

        for (unsigned i = 0; i < WARP_LANES; i++) {
                uint64_t v = lane_get(w, in->r[1], in->size == 8, i);
                unsigned exponent_bits = in->size == 8 ? 11 : 8, fraction = in->size == 8 ? 52 : 23;
                uint64_t exponent = v >> fraction & ((UINT64_C(1) << exponent_bits) - 1);
                uint64_t rest = v & ((UINT64_C(1) << fraction) - 1);
                bool top = exponent == (UINT64_C(1) << exponent_bits) - 1;
                const bool is[] = {
                        [TESTP_FINITE] = !top,
                        [TESTP_INFINITE] = top && !rest,
                        [TESTP_NUMBER] = !top || !rest,
                        [TESTP_NOTANUMBER] = top && rest,
                        [TESTP_NORMAL] = !top && exponent,
                        [TESTP_SUBNORMAL] = !exponent && rest,
                };

                truth |= is[in->sub] ? lane_bit[i] : 0;
        }
        pred_store(w, in->r[0], truth);
}

static int round_mode(uint8_t mode)
{
        switch (mode) {
        case ROUND_ZERO:
                return FE_TOWARDZERO;
        case ROUND_DOWN:
                return FE_DOWNWARD;
        case ROUND_UP:
                return FE_UPWARD;
        default:
                return FE_TONEAREST;
        }
}

/* Runs another operation, number `offset`, under the rounding mode `sub`. */
static void op_ROUNDED(struct warp *w, const struct ptx_insn *in)
{
        (void)fesetround(round_mode(in->sub));
        LANES_TABLE[in->offset](w, in);
        (void)fesetround(FE_TONEAREST);
}

static void op_CVT(struct warp *w, const struct ptx_insn *in)
{
        enum ptx_type from = in->count, to = in->type;
        bool wide_from = type_lane_bits(from) == 64, wide_to = type_lane_bits(to) == 64;

        (void)fesetround(round_mode(in->sub));
        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned i = (unsigned)__builtin_ctz(m);

                lane_put(w, in->r[0], wide_to, i,
                         ptx_convert(to, from, lane_get(w, in->r[1], wide_from, i), in->size,
                                     in->flags));
        }
        (void)fesetround(FE_TONEAREST);
}

static void op_COMPARE_HALF(struct warp *w, const struct ptx_insn *in)
{
        uint32_t truth = 0;

        for (unsigned i = 0; i < WARP_LANES; i++) {
                float a = ptx_half_to_float(in->type, (uint16_t)lane_get(w, in->r[1], false, i));
                float b = ptx_half_to_float(in->type, (uint16_t)lane_get(w, in->r[2], false, i));

                truth |= ptx_compare_float(in->sub, a, b) ? lane_bit[i] : 0;
        }
        pred_store(w, in->r[0], truth);
}

static void op_HALF(struct warp *w, const struct ptx_insn *in)
{
        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned i = (unsigned)__builtin_ctz(m);
                uint32_t v[3];

                for (unsigned k = 0; k < 3; k++)
                        v[k] = k < in->count ? (uint32_t)lane_get(w, in->r[1 + k], false, i) : 0;
                lane_put(w, in->r[0], false, i,
                         ptx_half_arithmetic(in->type, in->sub, in->flags, v));
        }
}

lane_op *const LANES_TABLE[OP_LANES_END] = {
#define OP1(name, td, ta, expr)         [OP_##name] = op_##name,
#define OP2(name, td, ta, tb, expr)     [OP_##name] = op_##name,
#define OP3(name, td, ta, tb, tc, expr) [OP_##name] = op_##name,
#define CMP(name, ta, expr)             [OP_##name] = op_##name,
#define HAND(name)                      [OP_##name] = op_##name,
#include "sim/ptx/ops.def"
};
