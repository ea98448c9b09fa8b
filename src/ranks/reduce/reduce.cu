// reduce.cu: the device side of reduce_kernels.h. reduce.sh compiles it once for each element type,
// with -DELEMENT=<type>. The library embeds the results, so the build needs no compiler for GPUs.
//
// A thread reads all its sources before it writes, because `out` may be one of them. Compilers for
// compute capability 5.0 have no instructions for bfloat16 and fp8, so integer arithmetic converts
// these.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define __device__   static __attribute__((device, always_inline))
#define KERNEL       extern "C" __attribute__((global, launch_bounds(REDUCE_THREADS, 2)))
#define global_space __attribute__((address_space(1)))

#define REDUCE_THREADS 512
#define REDUCE_SOURCES 64

struct reduce_sources {
        const void *from[REDUCE_SOURCES];
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
        template <int N> __device__ void divide(wide *x, u32 by)
        {
#pragma unroll
                for (int i = 0; i < N; i++)
                        x[i] = (wide)(Element)x[i] / (wide)by;
        }
};

// A division by a power of two is the same as a multiplication by its reciprocal, to the bit.
template <class Wide> struct real {
        typedef Wide wide;

        template <int N> __device__ void divide(wide *x, u32 by)
        {
                wide divisor = (wide)by;

                if ((by & (by - 1)) == 0) {
                        wide factor = (wide)1 / divisor;

#pragma unroll
                        for (int i = 0; i < N; i++)
                                x[i] *= factor;
                } else {
#pragma unroll
                        for (int i = 0; i < N; i++)
                                x[i] /= divisor;
                }
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
                float x;

                asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((u16)b));
                return x;
        }

        __device__ bits narrow(wide x)
        {
                u16 b;

                asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(x));
                return b;
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

// ---- the operations ----

struct sum {
        __device__ wide of(wide a, wide b)
        {
                return a + b;
        }
};

struct product {
        __device__ wide of(wide a, wide b)
        {
                return a * b;
        }
};

struct minimum {
        __device__ wide of(wide a, wide b)
        {
                return element::smaller(a, b);
        }
};

struct maximum {
        __device__ wide of(wide a, wide b)
        {
                return element::larger(a, b);
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

template <class Chunk>
__device__ void write(void *to, const tile &t, int i, typename Chunk::loaded l)
{
        Chunk::store(to, t.chunk(i), l);
}

template <class Operation, class Chunk>
__device__ void combine(wide *x, const typename Chunk::loaded *l)
{
#pragma unroll
        for (int i = 0; i < UNROLL; i++)
#pragma unroll
                for (int j = 0; j < Chunk::ELEMENTS; j++)
                        x[i * Chunk::ELEMENTS + j] =
                                Operation::of(x[i * Chunk::ELEMENTS + j], Chunk::get(l[i], j));
}

template <class Chunk> __device__ void widen(wide *x, const typename Chunk::loaded *l)
{
#pragma unroll
        for (int i = 0; i < UNROLL; i++)
#pragma unroll
                for (int j = 0; j < Chunk::ELEMENTS; j++)
                        x[i * Chunk::ELEMENTS + j] = Chunk::get(l[i], j);
}

// Reduces the chunks [first, end).
template <class Operation, class Chunk>
__device__ void reduce_chunks(const reduce_sources &sources, u32 n, void *out, void *out2,
                              u64 first, u64 end, u32 divide)
{
        for (tile t = tile::of(first, end); t.start < end; t.start += t.step) {
                typename Chunk::loaded a[UNROLL], b[UNROLL];
                wide x[UNROLL * Chunk::ELEMENTS];

                read<Chunk>(a, sources.from[0], t);
                // The rest of the sources goes in pairs. Nothing may use `a` before `b` is on its
                // way.
                if (n % 2 == 0) {
                        read<Chunk>(b, sources.from[1], t);
                        widen<Chunk>(x, a);
                        combine<Operation, Chunk>(x, b);
                } else {
                        widen<Chunk>(x, a);
                }
#pragma unroll 1
                for (u32 i = 2 - n % 2; i < n; i += 2) {
                        read<Chunk>(a, sources.from[i], t);
                        read<Chunk>(b, sources.from[i + 1], t);
                        combine<Operation, Chunk>(x, a);
                        combine<Operation, Chunk>(x, b);
                }
                if (divide > 1)
                        element::template divide<UNROLL * Chunk::ELEMENTS>(x, divide);
#pragma unroll
                for (int i = 0; i < UNROLL; i++) {
                        typename Chunk::loaded l = Chunk::pack(x + i * Chunk::ELEMENTS);

                        if (t.chunk(i) >= end)
                                continue;
                        write<Chunk>(out, t, i, l);
                        if (out2)
                                write<Chunk>(out2, t, i, l);
                }
        }
}

template <class Operation>
__device__ void reduce(const reduce_sources &sources, u32 n, void *out, void *out2, u64 count,
                       u32 divide)
{
        u64 places = (u64)out | (u64)out2, chunks = 0;

#pragma unroll 1
        for (u32 i = 0; i < n; i++)
                places |= (u64)sources.from[i];
        if (places % 16 == 0) {
                chunks = count / vector::ELEMENTS;
                reduce_chunks<Operation, vector>(sources, n, out, out2, 0, chunks, divide);
        }
        reduce_chunks<Operation, single>(sources, n, out, out2, chunks * vector::ELEMENTS, count,
                                         divide);
}

#define REDUCTION(name, operation)                                                        \
        KERNEL void name(reduce_sources sources, u32 n, void *out, void *out2, u64 count, \
                         u32 divide)                                                      \
        {                                                                                 \
                reduce<operation>(sources, n, out, out2, count, divide);                  \
        }

REDUCTION(reduce_sum, sum)
REDUCTION(reduce_prod, product)
REDUCTION(reduce_max, maximum)
REDUCTION(reduce_min, minimum)

template <class Chunk>
__device__ void scale_chunks(const void *from, void *to, u64 first, u64 end, wide factor)
{
        for (tile t = tile::of(first, end); t.start < end; t.start += t.step) {
                typename Chunk::loaded a[UNROLL];
                wide x[UNROLL * Chunk::ELEMENTS];

                read<Chunk>(a, from, t);
                widen<Chunk>(x, a);
#pragma unroll
                for (int i = 0; i < UNROLL * Chunk::ELEMENTS; i++)
                        x[i] *= factor;
#pragma unroll
                for (int i = 0; i < UNROLL; i++)
                        if (t.chunk(i) < end)
                                write<Chunk>(to, t, i, Chunk::pack(x + i * Chunk::ELEMENTS));
        }
}

KERNEL void reduce_scale(const void *from, void *to, u64 count, const void *scalar, u64 immediate)
{
        wide factor = element::widen(scalar ? single::load(scalar, 0) : (bits)immediate);
        u64 chunks = 0;

        if (((u64)from | (u64)to) % 16 == 0) {
                chunks = count / vector::ELEMENTS;
                scale_chunks<vector>(from, to, 0, chunks, factor);
        }
        scale_chunks<single>(from, to, chunks * vector::ELEMENTS, count, factor);
}
