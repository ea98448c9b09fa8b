/* Control flow: divergence, calls, local memory, spinning, locks, constant and global variables. */
#include <stdint.h>

__constant__ int table[8] = { 3, 1, 4, 1, 5, 9, 2, 6 };
__device__ unsigned counter = 7;
__device__ float weights[4] = { 0.5f, 1.5f, -2.0f };

extern "C" __global__ void collatz(const unsigned *in, unsigned *steps, unsigned n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	unsigned long long v = in[i];
	unsigned s = 0;
	while (v > 1) {
		v = v & 1 ? 3 * v + 1 : v / 2;
		s++;
	}
	steps[i] = s;
}

extern "C" __global__ void cases(const int *in, int *out)
{
	unsigned t = threadIdx.x;
	int v = in[t], r;

	switch (v & 7) {
	case 0: r = v * 3; break;
	case 1: r = v / 7; break;
	case 2: r = v ^ 0x55; break;
	case 3: r = -v; break;
	case 4: r = table[v >> 3 & 7]; break;
	case 5: r = (int)atomicAdd(&counter, 0u); break;
	case 6: r = (int)(weights[v >> 3 & 3] * 16.0f); break;
	default: r = __popc(v) + __clz(v) + __ffs(v);
	}
	out[t] = r;
}

__device__ __noinline__ int helper(int a, int *p, float f)
{
	p[a & 7] += a;
	return p[(a + 1) & 7] + (int)f;
}

__device__ __noinline__ unsigned recursive(unsigned n)
{
	return n < 2 ? 1 : n * recursive(n - 1);
}

extern "C" __global__ void calls(const int *in, int *out)
{
	int t = (int)threadIdx.x, stack[8];

	for (int i = 0; i < 8; i++)
		stack[i] = in[t] + i;
	int r = helper(t, stack, 2.5f);
	if (t & 1)
		r += helper(in[t], stack, -1.5f);
	r += (int)recursive((unsigned)(t & 7) + 1);
	out[t] = r + stack[t & 7];
}

extern "C" __global__ void spin_time(unsigned long long ns, unsigned long long *ret)
{
	unsigned long long start, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - start < ns);
	if (threadIdx.x == 0)
		*ret = now - start;
}

extern "C" __global__ void spin_flag(volatile unsigned *flag, unsigned *seen)
{
	while (*flag == 0)
		;
	seen[threadIdx.x] = *flag;
}

extern "C" __global__ void spin_sleep(unsigned *flag, long long *clocks)
{
	long long start = clock64();
	unsigned v;

	do {
		__nanosleep(1000);
		asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory");
	} while (!v);
	clocks[threadIdx.x] = clock64() - start;
}

extern "C" __global__ void lock(unsigned *mutex, unsigned *guarded)
{
	while (atomicCAS(mutex, 0u, 1u) != 0u)
		;
	__threadfence();
	*(volatile unsigned *)guarded += 1;
	__threadfence();
	atomicExch(mutex, 0u);
}

extern "C" __global__ void grid_wait(unsigned *arrived, unsigned *out)
{
	if (threadIdx.x == 0) {
		atomicAdd(arrived, 1u);
		while (*(volatile unsigned *)arrived < gridDim.x)
			;
	}
	__syncthreads();
	out[blockIdx.x * blockDim.x + threadIdx.x] = *(volatile unsigned *)arrived;
}

extern "C" __global__ void stuck(unsigned *out)
{
	if (threadIdx.x >= 32)
		asm volatile("barrier.sync 1, 128;");
	else
		asm volatile("barrier.sync 2, 128;");
	out[threadIdx.x] = 1;
}

extern "C" __global__ void trap(unsigned *out)
{
	if (threadIdx.x == 5)
		__trap();
	out[threadIdx.x] = 1;
}
