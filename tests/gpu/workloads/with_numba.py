"""numba: kernels in Python, with shared memory, atomics, streams, pinned, mapped and managed arrays."""

import numpy as np

np.row_stack = np.vstack  # numba-cuda 0.30 still uses the name that NumPy 2.5 has dropped

from numba import cuda, float32, int32  # noqa: E402

import common  # noqa: E402


@cuda.jit
def matmul(a, b, c):
    x, y = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    i, j = cuda.grid(2)
    ti, tj = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range(a.shape[1] // 16):
        x[ti, tj] = a[i, k * 16 + tj]
        y[ti, tj] = b[k * 16 + ti, j]
        cuda.syncthreads()
        for m in range(16):
            total += x[ti, m] * y[m, tj]
        cuda.syncthreads()
    c[i, j] = total


@cuda.jit
def count(values, bins):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(bins, values[i], int32(1))


@cuda.jit
def add(a, b):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += b[i]


def kernels():
    rng = np.random.default_rng(8)
    a = rng.standard_normal((512, 512), dtype=np.float32) / 16
    on_card, c = cuda.to_device(a), cuda.device_array((512, 512), np.float32)
    values, bins = cuda.to_device(rng.integers(64, size=1 << 18, dtype=np.int32)), cuda.to_device(np.zeros(64, np.int32))
    for _ in range(40):
        matmul[(32, 32), (16, 16)](on_card, on_card, c)
        on_card, c = c, cuda.to_device(a)
        count[(1 << 18) // 256, 256](values, bins)
    common.result("matmul", on_card.copy_to_host())
    common.result("count", bins.copy_to_host())


def memory():
    stream = cuda.stream()
    pinned = cuda.pinned_array(1 << 18, np.float32)
    pinned[:] = np.arange(1 << 18) % 101
    mapped = cuda.mapped_array(1 << 18, np.float32)
    mapped[:] = 3
    managed = cuda.managed_array(1 << 18, np.float32)
    managed[:] = 5
    out = cuda.device_array(1 << 18, np.float32)
    for i in range(60):
        there = cuda.to_device(pinned, stream=stream)
        add[1024, 256, stream](there, mapped)
        add[1024, 256, stream](there, managed)
        add[1024, 256, stream](managed, mapped)
        there.copy_to_host(pinned, stream=stream)
        stream.synchronize()
        out[i * 1000:(i + 1) * 1000] = there[i * 1000:(i + 1) * 1000]
    cuda.synchronize()
    common.result("pinned", pinned)
    common.result("managed", managed)
    common.result("out", out.copy_to_host()[:60000])


if __name__ == "__main__":
    common.run({"kernels": kernels, "memory": memory})
