// reduce.cu: the device side of reduce_kernels.h. tools/kernels.sh compiles it once for each element
// type, with -DELEMENT=<type>. The library embeds the results, so the build needs no compiler for
// GPUs.
//
// A thread reads all its sources before it writes, because `out` may be one of them. Compilers for
// compute capability 5.0 have no instructions for bfloat16 and fp8, so integer arithmetic converts
// these.
// Why: docs/decisions.md, "One kernel of a type has all operations".

#include "reduce_shared.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define __device__   static __attribute__((device, always_inline))
#define KERNEL       extern "C" __attribute__((global, launch_bounds(REDUCE_THREADS_MAX, 2)))
#define global_space __attribute__((address_space(1)))

struct reduce_sources {
        const void *from[REDUCE_SOURCES_MAX];
};

// ---- the element types: `bits` hold an element, `wide` is the type of the arithmetic ----
// Upper bits that `widen` gets may be anything; upper bits that `narrow` returns are zero.

__device__ u32 bits_of(float x)
{
        return __builtin_bit_cast(u32, x);
}

__device__ float float_of(u32 bits)
{
        return __builtin_bit_cast(float, bits);
}

template <class Element, class Wide, class Bits> struct integer {
        typedef Wide wide;
        typedef Bits bits;
        enum { SIZE = sizeof(Element) };

        __device__ wide widen(bits b)
        {
                return (Element)b;
        }

        __device__ bits narrow(wide x)
        {
                return SIZE == 1 ? (u8)x : (bits)x;
        }

        __device__ wide smaller(wide a, wide b)
        {
                return a < b ? a : b;
        }

        __device__ wide larger(wide a, wide b)
        {
                return a > b ? a : b;
        }

        // The sum wraps in the element type first.
        __device__ wide divided(wide x, wide by)
        {
                return (wide)(Element)x / by;
        }

        __device__ bool has_reciprocal(u32)
        {
                return false;
        }
};

// A division by a power of two is the same as a multiplication by its reciprocal, to the bit.
template <class Wide> struct real {
        typedef Wide wide;

        __device__ wide divided(wide x, wide by)
        {
                return x / by;
        }

        __device__ bool has_reciprocal(u32 by)
        {
                return (by & (by - 1)) == 0;
        }
};

struct of_float : real<float> {
        typedef u32 bits;

        __device__ wide smaller(wide a, wide b)
        {
                return __builtin_fminf(a, b);
        }

        __device__ wide larger(wide a, wide b)
        {
                return __builtin_fmaxf(a, b);
        }
};

typedef integer<signed char, int, u32> int8;
typedef integer<u8, u32, u32> uint8;
typedef integer<int, int, u32> int32;
typedef integer<u32, u32, u32> uint32;
typedef integer<long long, long long, u64> int64;
typedef integer<u64, u64, u64> uint64;

struct float16 : of_float {
        enum { SIZE = 2 };

        __device__ wide widen(bits b)
        {
                return __builtin_bit_cast(_Float16, (u16)b);
        }

        __device__ bits narrow(wide x)
        {
                return __builtin_bit_cast(u16, (_Float16)x);
        }
};

struct float32 : of_float {
        enum { SIZE = 4 };

        __device__ wide widen(bits b)
        {
                return float_of(b);
        }

        __device__ bits narrow(wide x)
        {
                return bits_of(x);
        }
};

struct float64 : real<double> {
        typedef u64 bits;
        enum { SIZE = 8 };

        __device__ wide widen(bits b)
        {
                return __builtin_bit_cast(double, b);
        }

        __device__ bits narrow(wide x)
        {
                return __builtin_bit_cast(u64, x);
        }

        __device__ wide smaller(wide a, wide b)
        {
                return __builtin_fmin(a, b);
        }

        __device__ wide larger(wide a, wide b)
        {
                return __builtin_fmax(a, b);
        }
};

// Rounds to nearest even and drops the lowest `drop` bits.
__device__ u32 rounded(u32 b, int drop)
{
        return (b + ((1u << (drop - 1)) - 1) + (b >> drop & 1)) >> drop;
}

struct bfloat16 : of_float {
        enum { SIZE = 2 };

        __device__ wide widen(bits b)
        {
                return float_of(b << 16);
        }

        __device__ bits narrow(wide x)
        {
                return x != x ? 0x7fff : rounded(bits_of(x), 16);
        }
};

// An fp8 format with so many bits of mantissa. `largest` is its largest number, `least` its
// smallest normal number. Adding `unit` to a smaller number rounds it to a multiple of the smallest
// number, which the low bits then count.
template <int MANTISSA, int BIAS>
__device__ u32 fp8_of(float x, float largest, float least, float unit)
{
        u32 b = bits_of(x), sign = b >> 24 & 0x80, magnitude = b & 0x7fffffff, low, high;
        float positive = __builtin_fminf(float_of(magnitude), largest);

        low = bits_of(positive + unit) & 0xff;
        high = rounded(bits_of(positive), 23 - MANTISSA) - ((127 - BIAS) << MANTISSA);
        return magnitude > 0x7f800000 ? 0x7f : sign | (positive < least ? low : high);
}

struct float8e4m3 : of_float {
        enum { SIZE = 1 };

        // A half has the same layout with one more bit of exponent, which has a bias larger by
        // eight.
        __device__ wide widen(bits b)
        {
                float x = float16::widen((b & 0x80) << 8 | (b & 0x7f) << 7) * 256.0f;

                return (b & 0x7f) == 0x7f ? float_of(0x7fffffff) : x;
        }

        __device__ bits narrow(wide x)
        {
                return fp8_of<3, 7>(x, 448.0f, 0x1p-6f, 0x1p14f);
        }
};

struct float8e5m2 : of_float {
        enum { SIZE = 1 };

        // This is the upper half of a half.
        __device__ wide widen(bits b)
        {
                return float16::widen(b << 8);
        }

        __device__ bits narrow(wide x)
        {
                return fp8_of<2, 15>(x, 57344.0f, 0x1p-14f, 0x1p7f);
        }
};

typedef ELEMENT element;
typedef element::wide wide;
typedef element::bits bits;

// A thread has so many chunks of each source at a time, and reads two sources at a time. More would
// not fit the registers of two blocks on an SM.
enum { UNROLL = element::SIZE == 1 ? 1 : 2 };

// ---- chunks: what one load reads ----

// One element.
struct single {
        enum { ELEMENTS = 1 };
        typedef bits loaded;

        __device__ loaded load(const void *from, u64 at)
        {
                if constexpr (element::SIZE == 1)
                        return ((const global_space u8 *)from)[at];
                else if constexpr (element::SIZE == 2)
                        return ((const global_space u16 *)from)[at];
                else
                        return ((const global_space bits *)from)[at];
        }

        __device__ void store(void *to, u64 at, loaded b)
        {
                if constexpr (element::SIZE == 1)
                        ((global_space u8 *)to)[at] = (u8)b;
                else if constexpr (element::SIZE == 2)
                        ((global_space u16 *)to)[at] = (u16)b;
                else
                        ((global_space bits *)to)[at] = b;
        }

        __device__ wide get(loaded l, int)
        {
                return element::widen(l);
        }

        __device__ loaded pack(const wide *x)
        {
                return element::narrow(x[0]);
        }
};

// 16 bytes.
struct vector {
        enum { ELEMENTS = 16 / element::SIZE, PACKED = sizeof(bits) / element::SIZE };
        typedef bits loaded __attribute__((ext_vector_type(16 / sizeof(bits))));

        __device__ loaded load(const void *from, u64 at)
        {
                return ((const global_space loaded *)from)[at];
        }

        __device__ void store(void *to, u64 at, loaded l)
        {
                ((global_space loaded *)to)[at] = l;
        }

        __device__ wide get(loaded l, int i)
        {
                return element::widen(l[i / PACKED] >> 8 * element::SIZE * (i % PACKED));
        }

        __device__ loaded pack(const wide *x)
        {
                loaded l = 0;

#pragma unroll
                for (int i = 0; i < ELEMENTS; i++)
                        l[i / PACKED] |= element::narrow(x[i]) << 8 * element::SIZE * (i % PACKED);
                return l;
        }
};

// ---- the kernels ----

// A block has UNROLL * its threads chunks at a time. Threads beyond the end read the last chunk
// again, so that no branch separates the loads, and write nothing.
struct tile {
        u64 start, step, end;

        __device__ tile of(u64 first, u64 end)
        {
                u64 chunks = (u64)__nvvm_read_ptx_sreg_ntid_x() * UNROLL;

                return {first + __nvvm_read_ptx_sreg_ctaid_x() * chunks,
                        __nvvm_read_ptx_sreg_nctaid_x() * chunks, end};
        }

        __attribute__((device, always_inline)) u64 chunk(int i) const
        {
                return start + i * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
        }

        __attribute__((device, always_inline)) u64 readable(int i) const
        {
                return chunk(i) < end ? chunk(i) : end - 1;
        }
};

template <class Chunk>
__device__ void read(typename Chunk::loaded *l, const void *from, const tile &t)
{
#pragma unroll
        for (int i = 0; i < UNROLL; i++)
                l[i] = Chunk::load(from, t.readable(i));
}

// Sets each of N elements x[i].
#define EACH(value)                 \
        _Pragma("unroll")           \
        for (int i = 0; i < N; i++) \
                x[i] = (value)

enum { FIRST = REDUCE_OPERATIONS }; // there is nothing yet to combine with

// x[i] = x[i] op element i of `l`. The operation is chosen once for all elements, and alike in all
// threads, so the choice costs little beside the loads.
template <class Chunk>
__device__ void combine(wide *x, const typename Chunk::loaded *l, u32 operation)
{
        enum { N = UNROLL * Chunk::ELEMENTS };
        wide y[N];

#pragma unroll
        for (int i = 0; i < N; i++)
                y[i] = Chunk::get(l[i / Chunk::ELEMENTS], i % Chunk::ELEMENTS);
        switch (operation) {
        case REDUCE_SUM:
                EACH(x[i] + y[i]);
                break;
        case REDUCE_PROD:
                EACH(x[i] * y[i]);
                break;
        case REDUCE_MAX:
                EACH(element::larger(x[i], y[i]));
                break;
        case REDUCE_MIN:
                EACH(element::smaller(x[i], y[i]));
                break;
        default: // FIRST
                EACH(y[i]);
        }
}

// What happens to a result at last. Each of these has one register, because spills would follow if
// divisor, scalar and reciprocal had one each.
enum finish { NOTHING, MULTIPLY, DIVIDE };

struct ending {
        finish how;
        wide operand;

        __device__ ending of(u32 divide, bool scales, const void *scalar, u64 immediate)
        {
                if (scales)
                        return {MULTIPLY, element::widen(scalar ? single::load(scalar, 0)
                                                                : (bits)immediate)};
                if (divide <= 1)
                        return {NOTHING, 0};
                if (element::has_reciprocal(divide))
                        return {MULTIPLY, 1 / (wide)divide};
                return {DIVIDE, (wide)divide};
        }
};

// Reduces the chunks [first, end).
template <class Chunk>
__device__ void reduce_chunks(const reduce_sources &sources, u32 n, u32 operation, void *out,
                              void *out2, u64 first, u64 end, const ending &last)
{
        for (tile t = tile::of(first, end); t.start < end; t.start += t.step) {
                enum { N = UNROLL * Chunk::ELEMENTS };
                typename Chunk::loaded a[UNROLL], b[UNROLL];
                wide x[N];

                // Nothing may use `a` before `b` is on its way.
#pragma unroll 1
                for (u32 i = 0; i < n; i += 2) {
                        read<Chunk>(a, sources.from[i], t);
                        if (i + 1 < n)
                                read<Chunk>(b, sources.from[i + 1], t);
                        combine<Chunk>(x, a, i == 0 ? (u32)FIRST : operation);
                        if (i + 1 < n)
                                combine<Chunk>(x, b, operation);
                }
                if (last.how == MULTIPLY)
                        EACH(x[i] * last.operand);
                else if (last.how == DIVIDE)
                        EACH(element::divided(x[i], last.operand));
#pragma unroll
                for (int i = 0; i < UNROLL; i++) {
                        typename Chunk::loaded l = Chunk::pack(x + i * Chunk::ELEMENTS);

                        if (t.chunk(i) >= end)
                                continue;
                        Chunk::store(out, t.chunk(i), l);
                        if (out2)
                                Chunk::store(out2, t.chunk(i), l);
                }
        }
}

KERNEL void reduce(reduce_sources sources, u32 n, u32 operation, void *out, void *out2, u64 count,
                   u32 divide, u32 scales, const void *scalar, u64 immediate)
{
        const ending last = ending::of(divide, scales, scalar, immediate);
        u64 places = (u64)out | (u64)out2, chunks = 0;

#pragma unroll 1
        for (u32 i = 0; i < n; i++)
                places |= (u64)sources.from[i];
        if (places % 16 == 0) {
                chunks = count / vector::ELEMENTS;
                reduce_chunks<vector>(sources, n, operation, out, out2, 0, chunks, last);
        }
        reduce_chunks<single>(sources, n, operation, out, out2, chunks * vector::ELEMENTS, count,
                              last);
}
