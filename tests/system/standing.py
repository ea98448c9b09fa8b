"""A Python program whose main thread waits for a kernel that counts until the file END-FILE exists. It prints each
KeyboardInterrupt, and then waits again. At the end it checks that the kernel has run to its end. It has 32 MiB.

    standing.py HOW END-FILE

HOW: stream, context, event  the call that waits      handler  as `stream`, with a signal handler of its own"""

import ctypes
import json
import os
import signal
import sys
import threading
import time

DEVICE_MAPPED, NO_TIMING = 2, 2
KERNEL = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry count(.param .u64 host)
{
.reg .u64 %h, %t;
.reg .u32 %n, %end;
.reg .pred %more;
ld.param.u64 %h, [host];
mov.u32 %n, 0;
LOOP:
add.u32 %n, %n, 1;
st.volatile.global.u32 [%h], %n;
ld.volatile.global.u32 %end, [%h+4];
setp.eq.u32 %more, %end, 0;
mov.u64 %t, %globaltimer;
@%more bra LOOP;
st.volatile.global.u32 [%h+8], %end;
ret;
}
"""
cuda = ctypes.CDLL("libcuda.so.1")


def check(status):
    if status:
        raise RuntimeError(f"CUDA error {status}")


def say(event, **fields):
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


def made(call, *arguments):
    new = ctypes.c_void_p()
    check(call(ctypes.byref(new), *arguments))
    return new


def main():
    how, end = sys.argv[1:]
    if how == "handler":
        signal.signal(signal.SIGINT, lambda *_: say("handled"))
    check(cuda.cuInit(0))
    check(cuda.cuCtxSetCurrent(made(cuda.cuDevicePrimaryCtxRetain, 0)))
    kernel = made(cuda.cuModuleGetFunction, made(cuda.cuModuleLoadData, KERNEL), b"count")
    words = ctypes.cast(made(cuda.cuMemHostAlloc, ctypes.c_size_t(12), DEVICE_MAPPED), ctypes.POINTER(ctypes.c_uint32))
    there = ctypes.c_uint64()
    check(cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(there), words, 0))
    words[0] = words[1] = words[2] = 0
    block = ctypes.c_uint64()
    check(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(32 << 20)))
    stream, event = made(cuda.cuStreamCreate, 1), made(cuda.cuEventCreate, NO_TIMING)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(there))
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None))
    check(cuda.cuEventRecord(event, stream))

    def watch():
        while not os.path.exists(end):
            time.sleep(0.01)
        words[1] = 7

    threading.Thread(target=watch, daemon=True).start()
    waits = {"context": cuda.cuCtxSynchronize, "event": lambda: cuda.cuEventSynchronize(event)}
    wait = waits.get(how, lambda: cuda.cuStreamSynchronize(stream))
    say("filled", pid=os.getpid())
    status = -1
    while status:
        try:
            status = wait()
            check(status)
        except KeyboardInterrupt:
            say("interrupted", status=status, ns=time.monotonic_ns())
    check(words[2] - 7)
    say("end")


if __name__ == "__main__":
    main()
