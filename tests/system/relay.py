"""The process of a client of wireclient.py: it relays packets between the test and the daemon's socket.

    python3 relay.py DIRECTORY

Reads a command a line from stdin, and prints an event a line: `packet HEX`, `closed` or `taken`. It needs only a few
modules, and is a file of its own, because tests start hundreds of these processes."""

import _socket
import os
import select
import sys


def take(size):
    """Takes a context and that many bytes of the simulated card for this process, without sublet."""
    import ctypes

    cuda = ctypes.CDLL("libcuda.so.1")
    pointer = ctypes.c_void_p()
    for call in (
        lambda: cuda.cuInit(0),
        lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(pointer), 0),
        lambda: cuda.cuCtxSetCurrent(pointer),
        lambda: cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size)),
    ):
        assert call() == 0


def tell(event):
    os.write(1, event.encode() + b"\n")


def relay(directory):
    connection, reading, pending = None, True, b""
    while True:
        watched = [0] + ([connection] if connection and reading else [])
        for ready in select.select(watched, [], [])[0]:
            if ready == 0:
                data = os.read(0, 1 << 20)
                if not data:
                    return
                pending += data
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    what, _, argument = line.decode().partition(" ")
                    if what == "connect":
                        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
                        connection.connect(f"{directory}/client.sock")
                    elif what == "disconnect" and connection:
                        connection.close()
                        connection = None
                    elif what == "take":
                        take(int(argument))
                        tell("taken")
                    elif what == "stop_reading":
                        reading = False
                    elif what == "send" and connection:
                        try:
                            connection.send(bytes.fromhex(argument))
                        except OSError:
                            pass  # the daemon has closed the connection: the next read will show it
            elif ready is connection:
                try:
                    packet = connection.recv(4096)
                except OSError:
                    packet = b""
                if packet:
                    tell("packet " + packet.hex())
                else:
                    connection.close()
                    connection = None
                    tell("closed")


if __name__ == "__main__":
    relay(sys.argv[1])
