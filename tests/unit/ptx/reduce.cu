/* Reductions: static and dynamic shared memory, barriers, shuffles, votes, atomics. */
#include <stdint.h>

extern "C" __global__ void sum_static(const unsigned *p, unsigned n, unsigned long long *total)
{
	__shared__ unsigned long long s[256];
	unsigned long long v = 0;

	for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		v += p[i];
	s[threadIdx.x] = v;
	__syncthreads();
	for (unsigned w = blockDim.x / 2; w; w >>= 1) {
		if (threadIdx.x < w)
			s[threadIdx.x] += s[threadIdx.x + w];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		atomicAdd(total, s[0]);
}

extern __shared__ float dynamic_floats[];

extern "C" __global__ void max_dynamic(const float *p, unsigned n, float *maxima)
{
	float v = -INFINITY;

	for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		v = fmaxf(v, p[i]);
	for (int w = 16; w; w >>= 1)
		v = fmaxf(v, __shfl_down_sync(0xffffffffu, v, w));
	if (threadIdx.x % 32 == 0)
		dynamic_floats[threadIdx.x / 32] = v;
	__syncthreads();
	if (threadIdx.x == 0) {
		for (unsigned i = 1; i < blockDim.x / 32; i++)
			v = fmaxf(v, dynamic_floats[i]);
		maxima[blockIdx.x] = v;
	}
}

extern "C" __global__ void warp_words(const int *in, unsigned *out)
{
	unsigned t = threadIdx.x;
	int v = in[t];
	unsigned r = 0;

	r ^= __ballot_sync(0xffffffffu, v > 0);
	r += __any_sync(0xffffffffu, v == 7) ? 1000 : 0;
	r += __all_sync(0xffffffffu, v > -100) ? 2000 : 0;
	r ^= (unsigned)__shfl_up_sync(0xffffffffu, v, 3) << 1;
	r ^= (unsigned)__shfl_xor_sync(0xffffffffu, v, 5, 16) << 2;
	r ^= (unsigned)__shfl_sync(0xffffffffu, v, t * 7 + 3, 8) << 3;
	if (t & 1)
		r += __activemask() != 0;
	out[t] = r;
	out[blockDim.x + t] = (unsigned)__syncthreads_count(v > 3);
	out[2 * blockDim.x + t] = (unsigned)__syncthreads_or(v == 12345) + 2 * (unsigned)__syncthreads_and(v < 1000);
	out[3 * blockDim.x + t] = __reduce_add_sync(0xffffffffu, (unsigned)v) ^ __reduce_max_sync(0xffffffffu, (unsigned)v);
	out[4 * blockDim.x + t] = __match_any_sync(0xffffffffu, v & 3);
}

extern "C" __global__ void atomics(const int *in, int *i32, unsigned *u32, unsigned long long *u64, float *f32, double *f64)
{
	__shared__ unsigned bins[16];
	unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
	int v = in[t];

	if (threadIdx.x < 16)
		bins[threadIdx.x] = 0;
	__syncthreads();
	atomicAdd(&bins[v & 15], 1u);
	__syncthreads();
	if (threadIdx.x < 16)
		atomicAdd(&u32[8 + threadIdx.x], bins[threadIdx.x]);
	atomicAdd(&i32[0], v);
	atomicMin(&i32[1], v);
	atomicMax(&i32[2], v);
	atomicSub(&i32[3], v);
	atomicAnd(&u32[0], (unsigned)v | 0xffff0000u);
	atomicOr(&u32[1], (unsigned)v);
	atomicXor(&u32[2], (unsigned)v);
	atomicInc(&u32[3], 100u);
	atomicDec(&u32[4], 50u);
	atomicMin(&u32[5], (unsigned)v);
	atomicMax(&u64[1], (unsigned long long)(unsigned)v << 8);
	atomicAdd(&u64[0], (unsigned long long)(long long)v);
	atomicAdd(f32, (float)(v & 7));
	atomicAdd(f64, (double)(v & 15));
	unsigned old;
	do
		old = u32[6];
	while (atomicCAS(&u32[6], old, old * 3u + 1u) != old);
	u64[2 + t] = atomicExch(&u32[7], t);
}
