"""A user who has no program writes notes to another user's daemon, as if he had many daemons of his own: `notes.py NAME
UUID SECONDS NOTES`. Runs for at least SECONDS, and until NOTES notes were accepted. Prints how many were accepted."""

import array
import os
import socket
import struct
import sys
import time

DAEMONS = 24  # more peer daemons than a daemon accepts


def packets(uuid, number):
    def need(size, version=1):
        return struct.pack("<4sI16sQ", b"SBLN", version, uuid, size)

    yield need(1 << 40)
    yield need(100 << 20)
    yield need((1 << 64) - 1)
    yield need(0)
    yield need(100 << 20, 2)
    yield need(100 << 20)[:-1 - number % 31]
    yield struct.pack("<4sI16sQ", b"SBLN", 1, os.urandom(16), 1 << 30)
    yield os.urandom(32 + number)
    yield b""


def own_sockets():
    """Yields sockets, some with a name like a daemon's and some with another name. Socket names are machine-wide, so
    each run of the tests needs names of its own."""
    own = int.from_bytes(os.urandom(7), "little") << 8
    for name in [f"notes-{own}", "%016X" % (own | 0xab)] + ["%016x" % (own + number) for number in range(DAEMONS)]:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.bind("\0sublet-daemon/" + name)
        yield s


def main(name, uuid, seconds, notes):
    descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))]
    sockets = list(own_sockets())
    end = time.monotonic() + float(seconds)
    taken = 0
    while time.monotonic() < end or taken < int(notes):
        for number, s in enumerate(sockets):
            for packet in packets(bytes.fromhex(uuid), number):
                try:
                    s.sendmsg([packet], [] if number % 8 else descriptors, socket.MSG_DONTWAIT, "\0" + name)
                    taken += 1
                except (BlockingIOError, PermissionError):
                    time.sleep(0.001)
    print(taken)


if __name__ == "__main__":
    main(*sys.argv[1:])
