"""Holds 64 MiB of a GPU until a line comes on stdin. Then the bytes must be what they were, and more memory must be
had."""

import ctypes
import sys

SIZE = 64 << 20
cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, f"{name}: {result}"


def allocate():
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(SIZE))
    call("cuMemsetD8_v2", address, 7, ctypes.c_size_t(SIZE))
    return address


context = ctypes.c_void_p()
call("cuInit", 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
first = allocate()
print("holds", flush=True)
sys.stdin.readline()
allocate()
copy = ctypes.create_string_buffer(SIZE)
call("cuMemcpyDtoH_v2", copy, first, ctypes.c_size_t(SIZE))
assert copy.raw == bytes([7]) * SIZE
print("the same", flush=True)
