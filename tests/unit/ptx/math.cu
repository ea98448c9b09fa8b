/* Arithmetic on every width, conversions, bit fiddling, approximations. */
#include <stdint.h>
#include <cuda_fp16.h>

extern "C" __global__ void integers(const int64_t *a, const int64_t *b, int64_t *out, unsigned n)
{
	unsigned i = threadIdx.x + blockIdx.x * blockDim.x;

	if (i >= n)
		return;
	int64_t x = a[i], y = b[i];
	uint64_t ux = (uint64_t)x, uy = (uint64_t)y;
	int32_t p = (int32_t)x, q = (int32_t)y;
	uint32_t up = (uint32_t)x, uq = (uint32_t)y;
	int64_t *o = out + (uint64_t)i * 32;

	o[0] = x + y;
	o[1] = x * y;
	o[2] = __mul64hi(x, y);
	o[3] = (int64_t)__umul64hi(ux, uy);
	o[4] = y && !(x == INT64_MIN && y == -1) ? x / y : 0;
	o[5] = uy ? (int64_t)(ux % uy) : 0;
	o[6] = q && !(p == INT32_MIN && q == -1) ? p / q : 0;
	o[7] = uq ? up % uq : 0;
	o[8] = __mulhi(p, q);
	o[9] = __umulhi(up, uq);
	o[10] = (int64_t)p * q;
	o[11] = (int64_t)((uint64_t)up * uq + ux);
	o[12] = x < y ? x : y;
	o[13] = ux > uy ? (int64_t)ux : (int64_t)uy;
	o[14] = x >> (y & 63);
	o[15] = (int64_t)(ux >> (y & 63)) ^ (int64_t)(ux << (y & 31));
	o[16] = __popc(up) + __popcll(ux) * 100;
	o[17] = __clz(p) + __clzll(x) * 100;
	o[18] = (int64_t)__brev(up) ^ (int64_t)__brevll(uy);
	o[19] = __byte_perm(up, uq, uq & 0x7777);
	o[20] = __funnelshift_l(up, uq, uq & 31);
	o[21] = __funnelshift_rc(up, uq, up & 63);
	o[22] = (int64_t)(x ^ (y & ~x)) + (p > q) + (up > uq) * 2 + (ux > uy) * 4;
	o[23] = (int8_t)x + (int16_t)y * 3 + (uint8_t)y + (uint16_t)x;
	o[24] = __sad(p, q, up);
	o[25] = abs(p) + llabs(y);
	o[26] = __ffsll(x) + __ffs(q) * 100;
	o[27] = (x / 7) + (int64_t)(ux / 10) + p / 3 + up % 11;
	o[28] = __dp4a(p, q, 5);
	o[29] = (int64_t)__dp4a(up, uq, 9u);
	o[30] = __vabsdiffu4(up, uq);
	o[31] = __hadd(p, q) + __rhadd(p, q);
}

extern "C" __global__ void floats(const float *a, const float *b, float *out, unsigned n)
{
	unsigned i = threadIdx.x + blockIdx.x * blockDim.x;

	if (i >= n)
		return;
	float x = a[i], y = b[i], *o = out + i * 24;

	o[0] = x + y;
	o[1] = x - y;
	o[2] = __fmul_rn(x, y);
	o[3] = fmaf(x, y, 1.5f);
	o[4] = x / y;
	o[5] = sqrtf(fabsf(x));
	o[6] = fminf(x, y);
	o[7] = fmaxf(x, y);
	o[8] = floorf(x);
	o[9] = ceilf(x);
	o[10] = truncf(x);
	o[11] = rintf(x);
	o[12] = (float)(int)x;
	o[13] = (float)(unsigned)(x * 0.5f);
	o[14] = __int_as_float(__float2int_rn(x));
	o[15] = __float2half(x) > __float2half(y) ? 1.0f : 0.0f;
	o[16] = __half2float(__float2half(x));
	o[17] = copysignf(x, y);
	o[18] = x < y ? 1.0f : isnan(x) ? 2.0f : x == y ? 3.0f : 4.0f;
	o[19] = __saturatef(x);
	o[20] = __fadd_rz(x, y);
	o[21] = __fmul_rd(x, y);
	o[22] = (float)((double)x * (double)y);
	o[23] = 1.0f / y;
}

extern "C" __global__ void doubles(const double *a, const double *b, double *out, unsigned n)
{
	unsigned i = threadIdx.x + blockIdx.x * blockDim.x;

	if (i >= n)
		return;
	double x = a[i], y = b[i], *o = out + i * 16;

	o[0] = x + y;
	o[1] = x - y;
	o[2] = __dmul_rn(x, y);
	o[3] = fma(x, y, -2.25);
	o[4] = x / y;
	o[5] = sqrt(fabs(x));
	o[6] = fmin(x, y);
	o[7] = fmax(x, y);
	o[8] = floor(x);
	o[9] = (double)(long long)x;
	o[10] = (double)(unsigned long long)fabs(y);
	o[11] = (double)(float)x;
	o[12] = __longlong_as_double(__double2ll_rn(x));
	o[13] = (double)(int)y;
	o[14] = x != y ? 1.0 : 0.0;
	o[15] = __hiloint2double(__double2hiint(x), __double2loint(y));
}

extern "C" __global__ void approximate(const float *a, float *out, unsigned n)
{
	unsigned i = threadIdx.x + blockIdx.x * blockDim.x;

	if (i >= n)
		return;
	float x = a[i], *o = out + i * 12;

	o[0] = __sinf(x);
	o[1] = __cosf(x);
	o[2] = __expf(x);
	o[3] = __logf(fabsf(x) + 0.5f);
	o[4] = rsqrtf(fabsf(x) + 0.25f);
	o[5] = expf(x);
	o[6] = logf(fabsf(x) + 0.125f);
	o[7] = sinf(x);
	o[8] = tanhf(x);
	o[9] = powf(fabsf(x), 1.75f);
	o[10] = __fdividef(x, 3.0f);
	o[11] = (float)exp((double)x);
}
