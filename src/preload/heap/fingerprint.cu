// fingerprint.cu: the device side of fingerprint.h. tools/kernels.sh makes fingerprint.ptx from it. The
// library embeds fingerprint.ptx, so the build needs no compiler for GPUs.
//
// A value of the field of 2^130 - 5 is five limbs of 26 bits; limbs may be a little larger between
// two steps. The kernel reads each byte once and allocates nothing.

typedef unsigned int u32;
typedef unsigned long long u64;

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

#define AHEAD 4 // loads in flight

typedef u32 words __attribute__((ext_vector_type(4)));

// This is one instruction on most architectures. From plain C the compiler makes a multiplication
// of 64 by 64 bits.
static __device__ __attribute__((always_inline)) u64 field_multiply_add(u32 a, u32 b, u64 c)
{
        asm("mad.wide.u32 %0, %1, %2, %0;" : "+l"(c) : "r"(a), "r"(b));
        return c;
}

#define FIELD_FUNCTION static __device__ __attribute__((always_inline))
#include "fingerprint_field.h"

typedef struct field_value value;

// Powers of the key, limb by limb. First one for each thread: key^1, key^2, ... Then one for each
// chunk: c^0, c^1, ... where c is key^(FINGERPRINT_THREADS * FINGERPRINT_WORDS).
extern "C" {
__device__ u32 fingerprint_powers[FINGERPRINT_POWERS];
// The sum over the chunks, limb by limb, and the number of chunks that have added their part. All
// are zero between two launches.
__device__ u64 fingerprint_sums[6];
}

static __device__ __attribute__((always_inline)) void add(value &a, const words &m)
{
        a.limb[0] += m[0] & FIELD_LOW;
        a.limb[1] += (m[0] >> 26 | m[1] << 6) & FIELD_LOW;
        a.limb[2] += (m[1] >> 20 | m[2] << 12) & FIELD_LOW;
        a.limb[3] += (m[2] >> 14 | m[3] << 18) & FIELD_LOW;
        a.limb[4] += m[3] >> 8;
}

// Adds one chunk's part to the sums. One thread of each block calls it.
static __device__ void contribute(const u32 (*partial)[FINGERPRINT_THREADS], u32 chunk)
{
        value v, power;
        u64 carry = 0;

        for (int i = 0; i < 5; i++) {
                for (int j = 0; j < 8; j++)
                        carry += partial[i][j];
                v.limb[i] = (u32)carry & FIELD_LOW;
                carry >>= 26;
                power.limb[i] = fingerprint_powers[5 * FINGERPRINT_THREADS + i * FINGERPRINT_CHUNKS_MAX + chunk];
        }
        v.limb[0] += (u32)carry * 5;
        v = field_multiply(v, power);
        for (int i = 0; i < 5; i++)
                __atomic_fetch_add(&fingerprint_sums[i], (u64)v.limb[i], __ATOMIC_RELAXED);
}

// Computes the fingerprint of this block's chunk, in eight parts that the first thread adds up.
static __device__ void read_chunk(const words *at, const value &step, u32 thread,
                                  u32 (*partial)[FINGERPRINT_THREADS])
{
        value v = {{0, 0, 0, 0, 0}}, power;

        for (int word = FINGERPRINT_WORDS - AHEAD; word >= 0; word -= AHEAD) {
                words m[AHEAD];

#pragma unroll
                for (int i = 0; i < AHEAD; i++)
                        m[i] = at[(word + i) * FINGERPRINT_THREADS];
#pragma unroll
                for (int i = AHEAD - 1; i >= 0; i--) {
                        v = field_multiply(v, step);
                        add(v, m[i]);
                }
        }
        for (int i = 0; i < 5; i++)
                power.limb[i] = fingerprint_powers[i * FINGERPRINT_THREADS + thread];
        v = field_multiply(v, power);

        // A sum of 32 limbs fits into 32 bits, so the 256 threads leave eight sums.
        for (int i = 0; i < 5; i++)
                partial[i][thread] = v.limb[i];
        for (u32 half = FINGERPRINT_THREADS / 2; half >= 8; half /= 2) {
                __syncthreads();
                if (thread < half)
                        for (int i = 0; i < 5; i++)
                                partial[i][thread] += partial[i][thread + half];
        }
        __syncthreads();
}

// data: gridDim.x chunks. pages: one bit for each page; chunks of pages with a clear bit are left
// out. result: five sums of limbs, in memory that the host can read.
extern "C" __global__ void fingerprint(const words *data, u64 *result, u64 pages, value step)
{
        __shared__ u32 partial[5][FINGERPRINT_THREADS];
        u32 thread = __nvvm_read_ptx_sreg_tid_x(), chunk = __nvvm_read_ptx_sreg_ctaid_x();
        bool counts = pages >> chunk / FINGERPRINT_PAGE_CHUNKS & 1;

        if (counts)
                read_chunk(data + (u64)chunk * (FINGERPRINT_THREADS * FINGERPRINT_WORDS) + thread,
                           step, thread, partial);
        if (thread != 0)
                return;
        if (counts)
                contribute(partial, chunk);
        __nvvm_membar_gl();
        if (__atomic_fetch_add(&fingerprint_sums[5], 1ull, __ATOMIC_RELAXED) !=
            __nvvm_read_ptx_sreg_nctaid_x() - 1)
                return;
        __nvvm_membar_gl();
        for (int i = 0; i < 5; i++)
                result[i] = __atomic_exchange_n(&fingerprint_sums[i], 0ull, __ATOMIC_RELAXED);
        __atomic_exchange_n(&fingerprint_sums[5], 0ull, __ATOMIC_RELAXED);
}
