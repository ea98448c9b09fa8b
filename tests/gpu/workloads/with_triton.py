"""Triton: kernels compiled at run time, on tensors of PyTorch."""

import torch
import triton
import triton.language as tl

import common


@triton.jit
def softmax(out, a, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(a + row * stride + at, mask=at < n, other=-float("inf"))
    x = tl.exp(x - tl.max(x, 0))
    tl.store(out + row * stride + at, x / tl.sum(x, 0), mask=at < n)


@triton.jit
def matmul(a, b, c, n, M: tl.constexpr, K: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * M + tl.arange(0, M)
    k = tl.arange(0, K)
    total = tl.zeros((M, M), dtype=tl.float32)
    for from_k in range(0, n, K):
        x = tl.load(a + i[:, None] * n + (from_k + k)[None, :])
        y = tl.load(b + (from_k + k)[:, None] * n + j[None, :])
        total += tl.dot(x, y)
    tl.store(c + i[:, None] * n + j[None, :], total.to(tl.float16))


@triton.jit
def count(values, bins, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(values + at, mask=at < n, other=0), 1, mask=at < n)


def kernels():
    torch.manual_seed(6)
    a = torch.randn(512, 1000, device="cuda")
    out = torch.empty_like(a)
    x = torch.randn(1024, 1024, device="cuda", dtype=torch.float16) / 32
    y, values = x, torch.randint(100, (1 << 20,), device="cuda", dtype=torch.int32)
    bins = torch.zeros(100, device="cuda", dtype=torch.int32)
    for _ in range(60):
        softmax[(512,)](out, a, a.stride(0), 1000, BLOCK=1024)
        a = a + out
        z = torch.empty_like(x)
        matmul[(16, 16)](x, y, z, 1024, M=64, K=32)
        y = (z + x).clone()
        count[(1024,)](values, bins, 1 << 20, BLOCK=1024)
    common.result("softmax", a.cpu().numpy())
    common.result("matmul", y.float().cpu().numpy())
    common.result("count", bins.cpu().numpy())


if __name__ == "__main__":
    common.run({"kernels": kernels})
