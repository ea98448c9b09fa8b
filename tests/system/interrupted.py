"""A Python program that is interrupted (SIGINT) under sublet. It submits until END-FILE exists, prints each
KeyboardInterrupt and each call that failed, goes on, and checks its memory at the end.

    interrupted.py HOW MIB GO-FILE END-FILE

HOW: released  waits with the interpreter lock released      kept      waits with the lock held
     again     waits in C code that calls again when a call fails
     worker    another thread submits; the main thread waits for that thread in a call that no signal ends
     aside     another thread submits; the main thread sleeps in the interpreter
     handler   has a signal handler of its own"""

import ctypes
import json
import os
import signal
import sys
import threading
import time

MIB = 1 << 20
BLOCK = 4 * MIB
OPERATING_SYSTEM = 304
CONTENDED = b"\2"  # what glibc writes first into a mutex that a thread waits for
cuda = ctypes.CDLL("libcuda.so.1")
gil = ctypes.PyDLL("libcuda.so.1")  # keeps the interpreter lock during a call
libc = ctypes.CDLL(None)


def check(status):
    if status:
        sys.exit(f"CUDA error {status}")


def say(event, **fields):
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


class Program:
    def __init__(self, how, mib, go, end):
        self.how, self.go, self.end = how, go, end
        self.blocks, self.values, self.rounds = [], [], 0
        self.graph = ctypes.c_void_p()
        check(cuda.cuInit(0))
        self.context = ctypes.c_void_p()
        check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0))
        check(cuda.cuCtxSetCurrent(self.context))
        graph = ctypes.c_void_p()
        check(cuda.cuGraphCreate(ctypes.byref(graph), 0))
        check(cuda.cuGraphInstantiateWithFlags(ctypes.byref(self.graph), graph, ctypes.c_ulonglong(0)))
        for i in range(mib * MIB // BLOCK):
            p = ctypes.c_uint64()
            check(cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(BLOCK)))
            check(cuda.cuMemsetD8_v2(p, 1 + i, ctypes.c_size_t(BLOCK)))
            self.blocks.append(p)
            self.values.append(1 + i)

    def submit(self, library=cuda):
        """Fills the next block with the next value, and notes the value only if the call has accepted it."""
        i, value = self.rounds % len(self.blocks), self.rounds % 250
        status = library.cuMemsetD8_v2(self.blocks[i], value, ctypes.c_size_t(BLOCK))
        if status == 0:
            self.values[i] = value
            self.rounds += 1
        elif status != OPERATING_SYSTEM:
            check(status)
        return status

    def launch(self):
        """Calls cuGraphLaunch(graph, NULL), and once more if that call fails. The second call must come from C code, so
        cuGraphLaunch is the comparison function of a bsearch() in three elements of size 0: bsearch() compares again if
        the result is positive."""
        libc.bsearch(self.graph, None, ctypes.c_size_t(3), ctypes.c_size_t(0), ctypes.cast(cuda.cuGraphLaunch, ctypes.c_void_p))

    def ended(self):
        return os.path.exists(self.end)

    def alone(self):
        library = gil if self.how == "kept" else cuda
        while not self.ended():
            if self.how == "again":
                self.launch()
            elif status := self.submit(library):
                say("failed", status=status)
            time.sleep(0.002)

    def with_worker(self):
        """While the worker submits, the main thread waits for a mutex, as C++ programs wait for their threads."""
        mutex = ctypes.create_string_buffer(128)  # a pthread_mutex_t
        libc.pthread_mutex_lock(mutex)

        def work():
            check(cuda.cuCtxSetCurrent(self.context))
            while self.how == "worker" and mutex[0] != CONTENDED:  # a signal before that is the interpreter's
                time.sleep(0.001)
            while not self.ended():
                status = self.submit()
                if status:
                    say("failed", status=status)
                    break
            libc.pthread_mutex_unlock(mutex)

        thread = threading.Thread(target=work)
        thread.start()
        if self.how == "worker":
            libc.pthread_mutex_lock(mutex)
        while thread.is_alive():
            time.sleep(0.01)

    def run(self):
        self.alone() if self.how not in ("worker", "aside") else self.with_worker()

    def verify(self):
        back = ctypes.create_string_buffer(BLOCK)
        for i, p in enumerate(self.blocks):
            check(cuda.cuMemcpyDtoH_v2(back, p, ctypes.c_size_t(BLOCK)))
            if back.raw != bytes([self.values[i]]) * BLOCK:
                sys.exit(f"block {i} is not what it was")


def main():
    how, mib, go, end = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    if how == "handler":
        signal.signal(signal.SIGINT, lambda *_: say("handled"))
    program = Program(how, mib, go, end)
    say("filled", pid=os.getpid())
    while not os.path.exists(go):
        time.sleep(0.01)
    interrupts = 0
    while not program.ended():
        try:
            program.run()
        except KeyboardInterrupt:
            interrupts += 1
            say("interrupted")
    program.verify()
    say("end", interrupts=interrupts, rounds=program.rounds)


if __name__ == "__main__":
    main()
