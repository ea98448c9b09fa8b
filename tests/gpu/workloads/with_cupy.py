"""CuPy: its arrays and libraries, its own kernels, its ways to allocate."""

import cupy
import numpy as np

import common


def arrays():
    rng = np.random.default_rng(5)
    a = cupy.asarray(rng.standard_normal((800, 800), dtype=np.float32))
    for i in range(60):
        a = cupy.tanh(a @ a.T / 800) + cupy.roll(a, i, axis=0)
        if i % 10 == 0:
            cupy.get_default_memory_pool().free_all_blocks()
            a = cupy.asarray(cupy.asnumpy(a))
    common.result("loop", a.get())
    f = cupy.fft.fft2(a)
    common.result("fft", f.real.get(), f.imag.get())
    common.result("solve", cupy.linalg.solve(a + 40 * cupy.eye(800, dtype=cupy.float32), a).get())
    common.result("sort", cupy.sort(a.ravel()).get(), cupy.cumsum(a, axis=0).get(), cupy.unique((a * 50).astype("i")).get())
    common.result("sums", [float(a.sum()), float(a.max()), float(cupy.linalg.norm(a))])
    rs = cupy.random.RandomState(7)
    common.result("random", rs.standard_normal(1 << 20, dtype=cupy.float32).get())


def async_pool():
    """Runs arrays() with stream-ordered allocation."""
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    arrays()


def managed():
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)
    arrays()


SOURCE = r"""
extern "C" __global__ void mix(const float *a, float *out, int n, cudaTextureObject_t texture)
{
        __shared__ float part[256];
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        part[threadIdx.x] = i < n ? a[i] : 0;
        __syncthreads();
        if (i < n)
                out[i] = part[255 - threadIdx.x] * 0.5f + tex2D<float>(texture, i % 64 + .5f, i / 64 % 64 + .5f);
}
__constant__ float factor;
__device__ float total[4];
extern "C" __global__ void scale(float *a, int n)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n) {
                a[i] *= factor;
                if (i < 4)
                        total[i] += a[i];
        }
}
"""


def kernels():
    """Kernels compiled at run time; a texture over an array, constants and globals of a module, streams, a captured
    graph."""
    module = cupy.RawModule(code=SOURCE, backend="nvrtc")
    mix, scale = module.get_function("mix"), module.get_function("scale")
    n = 1 << 18
    channel = cupy.cuda.texture.ChannelFormatDescriptor(32, 0, 0, 0, cupy.cuda.runtime.cudaChannelFormatKindFloat)
    array = cupy.cuda.texture.CUDAarray(channel, 64, 64)
    array.copy_from(np.arange(64 * 64, dtype=np.float32).reshape(64, 64))
    texture = cupy.cuda.texture.TextureObject(
        cupy.cuda.texture.ResourceDescriptor(cupy.cuda.runtime.cudaResourceTypeArray, cuArr=array),
        cupy.cuda.texture.TextureDescriptor((cupy.cuda.runtime.cudaAddressModeClamp,) * 2,
                                            cupy.cuda.runtime.cudaFilterModePoint,
                                            cupy.cuda.runtime.cudaReadModeElementType))
    factor = module.get_global("factor")
    cupy.ndarray((1,), cupy.float32, factor)[...] = np.float32(0.75)
    total = module.get_global("total")
    a = cupy.arange(n, dtype=cupy.float32) % 1000
    out = cupy.empty_like(a)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        for _ in range(100):
            mix((n // 256,), (256,), (a, out, np.int32(n), texture))
            scale((n // 256,), (256,), (out, np.int32(n)))
            a, out = out, a
        stream.begin_capture()
        for _ in range(10):
            mix((n // 256,), (256,), (a, out, np.int32(n), texture))
            scale((n // 256,), (256,), (out, np.int32(n)))
            cupy.add(a, out, a)
        graph = stream.end_capture()
        for _ in range(20):
            graph.launch(stream)
        stream.synchronize()
    common.result("kernels", a.get(), out.get())
    common.result("globals", cupy.ndarray((4,), cupy.float32, total).get())


if __name__ == "__main__":
    common.run({"arrays": arrays, "async_pool": async_pool, "managed": managed, "kernels": kernels})
