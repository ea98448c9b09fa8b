"""A Python program whose caching allocator poses as torch: it keeps freed blocks, and torch.cuda.empty_cache() gives
them back to the driver. It runs under sublet and checks its used blocks at the end.

    cached.py USED-MIB CACHED-MIB HOW END-FILE GPU

HOW: sleep    sleeps between its rounds        hold     waits at the gate with Python's interpreter lock
     work     submits, and refills its cache after every empty_cache()
     lock     waits at the gate with the allocator's own lock        raise    empty_cache() fails"""

import ctypes
import json
import os
import sys
import threading
import time
import types

MIB = 1 << 20
BLOCK = 4 * MIB
cuda = ctypes.CDLL("libcuda.so.1")
gil = ctypes.PyDLL("libcuda.so.1")  # keeps the interpreter lock during a call


def check(status):
    if status:
        sys.exit(f"CUDA error {status}")


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def allocate():
    p = ctypes.c_uint64()
    check(cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(BLOCK)))
    return p


def use_device(gpu):
    context = ctypes.c_void_p()
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), gpu))
    check(cuda.cuCtxSetCurrent(context))


def take_current_device():
    """Does what every call of the CUDA runtime does first: without a current context, it makes one on device 0."""
    context = ctypes.c_void_p()
    check(cuda.cuCtxGetCurrent(ctypes.byref(context)))
    if not context:
        use_device(0)


class Allocator:
    def __init__(self):
        self.lock = threading.Lock()
        self.cached, self.emptied = [], 0

    def empty(self):
        take_current_device()
        if sys.argv[3] == "raise":
            raise RuntimeError("not now")
        with self.lock:
            while self.cached:
                check(cuda.cuMemFree_v2(self.cached.pop()))
                self.emptied += 1


allocator = Allocator()
torch, torch_cuda = types.ModuleType("torch"), types.ModuleType("torch.cuda")
torch.cuda, torch_cuda.empty_cache = torch_cuda, allocator.empty
sys.modules.update({"torch": torch, "torch.cuda": torch_cuda})


def keep(blocks):
    while len(allocator.cached) < blocks:
        p = allocate()
        check(cuda.cuMemsetD8_v2(p, 77, ctypes.c_size_t(BLOCK)))
        allocator.cached.append(p)


def main():
    used_mib, cached_mib, how, end = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    check(cuda.cuInit(0))
    use_device(int(sys.argv[5]))
    used = [allocate() for _ in range(used_mib * MIB // BLOCK)]
    for i, p in enumerate(used):
        check(cuda.cuMemsetD8_v2(p, 1 + i % 250, ctypes.c_size_t(BLOCK)))
    keep(cached_mib * MIB // BLOCK)
    say("filled", pid=os.getpid())
    rounds = 0
    while not os.path.exists(end):
        if how == "hold":
            check(gil.cuMemsetD8_v2(used[0], 1, ctypes.c_size_t(BLOCK)))
        elif how == "lock":
            with allocator.lock:
                check(cuda.cuMemsetD8_v2(used[0], 1, ctypes.c_size_t(BLOCK)))
        elif how == "work":
            check(cuda.cuMemsetD8_v2(used[0], 1, ctypes.c_size_t(BLOCK)))
            keep(cached_mib * MIB // BLOCK)
        time.sleep(0.001 if how in ("hold", "lock", "work") else 0.05)
        rounds += 1
    back = ctypes.create_string_buffer(BLOCK)
    for i, p in enumerate(used):
        check(cuda.cuMemcpyDtoH_v2(back, p, ctypes.c_size_t(BLOCK)))
        if back.raw != bytes([1 + i % 250]) * BLOCK:
            sys.exit(f"block {i} is not what it was")
    say("end", emptied=allocator.emptied, rounds=rounds)


if __name__ == "__main__":
    main()
