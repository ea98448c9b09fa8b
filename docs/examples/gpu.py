"""Takes memory of a GPU and works with it, through the driver alone: it needs no PyTorch, and runs on the simulated
driver, too.

    from gpu import fill, work
    fill(700)               # takes 700 MiB of the GPU
    work(seconds=30)        # adds 1 to each word, block after block; then compares all memory with what it must be

As a program: sublet run -- python3 gpu.py 700 30"""

import ctypes
import sys
import time

BLOCK = 20 << 20  # bytes
KERNEL = b"""
.version 6.4
.target sm_60
.address_size 64
.visible .entry add_one(.param .u64 block)
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [block];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r1, %r1, %r2, %r3;
  mul.wide.u32 %rd2, %r1, 8;
  add.s64 %rd1, %rd1, %rd2;
  ld.global.u64 %rd3, [%rd1];
  add.s64 %rd3, %rd3, 1;
  st.global.u64 [%rd1], %rd3;
  ret;
}
"""
blocks = []  # [address, what each of its words must be]


def call(name, *arguments):
    error = getattr(cuda, name)(*arguments)
    if error:
        raise MemoryError("the GPU's memory is full") if error == 2 else RuntimeError(f"{name}: CUDA error {error}")


def start():
    global cuda, add_one
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, add_one = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), KERNEL)
    call("cuModuleGetFunction", ctypes.byref(add_one), module, b"add_one")


def fill(mib):
    if not blocks:
        start()
    for _ in range(max((mib << 20) // BLOCK, 1)):
        address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(BLOCK))
        call("cuMemsetD8_v2", address, 0, ctypes.c_size_t(BLOCK))
        blocks.append([address, 0])
    call("cuCtxSynchronize")
    return f"{len(blocks) * BLOCK >> 20} MiB on the GPU"


def add(number):
    """Adds 1 to each word of a block."""
    block = blocks[number]
    parameter = (ctypes.c_void_p * 1)(ctypes.addressof(block[0]))
    call("cuLaunchKernel", add_one, BLOCK // 8 // 256, 1, 1, 256, 1, 1, 0, None, parameter, None)
    call("cuCtxSynchronize")
    block[1] += 1


def read(number):
    copy = ctypes.create_string_buffer(BLOCK)
    call("cuMemcpyDtoH_v2", copy, blocks[number][0], ctypes.c_size_t(BLOCK))
    return copy.raw


def work(seconds):
    """The time counts from the end of the first round, so that a wait for the GPU does not count."""
    end, rounds = None, 0
    while end is None or time.monotonic() < end:
        add(rounds % len(blocks))
        rounds += 1
        end = end or time.monotonic() + seconds
    for number, (_, word) in enumerate(blocks):
        if read(number) != word.to_bytes(8, sys.byteorder) * (BLOCK // 8):
            raise RuntimeError("the GPU's memory is not what it must be")
    return f"{rounds} rounds; all memory is as it must be"


if __name__ == "__main__":
    print(fill(int(sys.argv[1])), flush=True)
    print(work(float(sys.argv[2])))
