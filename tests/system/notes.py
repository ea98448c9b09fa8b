"""A user without a program who writes to another's daemon as if he had one: `notes.py NAME UUID SECONDS`. Says how many notes
were taken."""

import array
import os
import socket
import struct
import sys
import time

NEED, HAVE = 1, 2


def packets(uuid, number):
    def note(kind, size, instance):
        return struct.pack("<4sHH16sQQ", b"SBLN", 1, kind, uuid, size, instance)

    yield note(NEED, 1 << 40, 7 + number)
    yield note(NEED, 100 << 20, 1000 + number)
    yield note(HAVE, (1 << 64) - 1, 7 + number)
    yield note(9, 1, 7)
    yield note(NEED, 100 << 20, number)[:-1 - number % 39]
    yield struct.pack("<4sHH16sQQ", b"SBLN", 9, NEED, os.urandom(16), 0, 0)
    yield os.urandom(40 + number)
    yield b""


def main(name, uuid, seconds):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind("\0sublet-daemon/notes")
    descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))]
    end = time.monotonic() + float(seconds)
    taken = 0
    while time.monotonic() < end:
        for number in range(64):
            for packet in packets(bytes.fromhex(uuid), number):
                try:
                    s.sendmsg([packet], [] if number % 8 else descriptors, socket.MSG_DONTWAIT, "\0" + name)
                    taken += 1
                except (BlockingIOError, PermissionError):
                    time.sleep(0.001)
    print(taken)


if __name__ == "__main__":
    main(*sys.argv[1:])
