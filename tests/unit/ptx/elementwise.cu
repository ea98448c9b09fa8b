/* Element-wise kernels, which the test programs of the product run most. */
#include <stdint.h>

extern "C" __global__ void vecadd(const float *a, const float *b, float *c, unsigned n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] + b[i];
}

extern "C" __global__ void saxpy(float alpha, const float *__restrict__ x, float *__restrict__ y, unsigned long n)
{
	for (unsigned long i = blockIdx.x * (unsigned long)blockDim.x + threadIdx.x; i < n;
	     i += (unsigned long)gridDim.x * blockDim.x)
		y[i] = alpha * x[i] + y[i];
}

static __device__ __forceinline__ uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

extern "C" __global__ void fill(uint64_t *p, uint64_t n, uint64_t first, uint64_t round)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
	     i += (uint64_t)gridDim.x * blockDim.x)
		p[i] = mix(first + i * 8 + round * 0x9e3779b97f4a7c15ull);
}

extern "C" __global__ void fill32(unsigned *p, unsigned n, unsigned round)
{
	for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		p[i] = (i * 2654435761u) ^ (round * 40503u + (i >> 7));
}

extern "C" __global__ void verify(const uint64_t *p, uint64_t n, uint64_t first, uint64_t round,
				  unsigned long long *errors)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
	     i += (uint64_t)gridDim.x * blockDim.x)
		if (p[i] != mix(first + i * 8 + round * 0x9e3779b97f4a7c15ull))
			atomicAdd(errors, 1ull);
}

extern "C" __global__ void strided(double *p, int rows, int columns, int stride)
{
	int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;

	if (r < rows && c < columns)
		p[r * stride + c] = p[r * stride + c] * 0.5 + (double)(r - c) / (double)(c + 1);
}

struct pair {
	float4 a;
	int4 b;
};

extern "C" __global__ void structs(struct pair by_value, struct pair *out, uint8_t *bytes, short *shorts)
{
	unsigned i = threadIdx.x;
	struct pair p = out[i];

	p.a.x += by_value.a.x;
	p.a.w *= by_value.a.y;
	p.b.x -= by_value.b.z;
	p.b.w /= by_value.b.w;
	p.b.y = p.b.y % (int)(i + 1);
	out[i] = p;
	bytes[i] = (uint8_t)(bytes[i] * 3 + i);
	shorts[i] = (short)(shorts[i] - (short)i * 7);
}
