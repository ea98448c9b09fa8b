"""Throws malformed gRPC and HTTP/2 at the device plugin's socket.

    python3 tests/system/garbage.py [PIECES [SEED]]

starts a daemon and the plugin, without a kubelet, and throws 10,000 pieces, one connection each. Each must be answered
or its connection closed, and the plugin must live, and end when it is asked to. SUBLET_BUILD names the build."""

import os
import random
import select
import socket
import struct
import sys
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
METHODS = ("GetDevicePluginOptions", "ListAndWatch", "GetPreferredAllocation", "Allocate", "PreStartContainer", "Nothing")
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags, stream, payload, length=None):
    return struct.pack(">I", len(payload) if length is None else length)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def text(word):
    return bytes([len(word)]) + word.encode()


def headers(r, method):
    pairs = [(":method", "POST"), (":scheme", "http"), (":path", "/v1beta1.DevicePlugin/" + method), (":authority", "localhost"),
             ("content-type", "application/grpc"), ("te", "trailers")]
    if r.random() < 0.2:
        pairs.append(("grpc-encoding", r.choice(("gzip", "identity", "deflate", "nonsense"))))
    if r.random() < 0.1:
        pairs.append(("grpc-timeout", r.choice(("1n", "99999999H", "-1S", "x"))))
    if r.random() < 0.1:
        pairs.pop(r.randrange(len(pairs)))
    if r.random() < 0.1:
        r.shuffle(pairs)
    return b"".join(b"\x00" + text(name) + text(value) for name, value in pairs)


def field(r):
    """A field of a message, or something like it."""
    body = r.choice((b"", r.randbytes(r.randrange(64)), text("GPU-x::0"), b"\xff" * 9))
    return bytes([r.choice((0x0a, 0x12, 0x18, 0x08, r.randrange(256)))]) + r.choice((bytes([len(body)]), b"\xff\xff\xff\xff\x0f")) + body


def message(r):
    body = b"".join(field(r) for _ in range(r.randrange(5)))
    if r.random() < 0.3:
        body = b"\x0a" + bytes([len(body) & 127]) + body
    length = r.choice((len(body), len(body), len(body) + 1, r.getrandbits(32), 0))
    return bytes([r.choice((0, 0, 0, 1, r.randrange(256)))]) + struct.pack(">I", length) + body


def call(r):
    out = PREFACE + frame(SETTINGS, 0, 0, b"")
    for stream in range(1, 2 * r.randrange(2, 6), 2):
        out += frame(HEADERS, END_HEADERS, stream, headers(r, r.choice(METHODS)))
        out += frame(DATA, r.choice((0, END_STREAM)), stream, message(r))
    return out


def frames(r):
    return PREFACE + frame(SETTINGS, 0, 0, b"") + b"".join(
        frame(r.choice((r.randrange(10), r.randrange(256))), r.randrange(256), r.choice((0, 1, 2, 3, r.getrandbits(32))),
              r.randbytes(r.choice((0, 4, 6, 8, r.randrange(200)))), r.choice((None, None, None, r.getrandbits(24))))
        for _ in range(r.randrange(1, 8)))


def flipped(r):
    out = bytearray(call(r))
    for _ in range(r.randrange(1, 9)):
        out[r.randrange(len(out))] ^= 1 << r.randrange(8)
    return bytes(out)


def piece(r):
    out = r.choice((
        lambda: r.randbytes(r.randrange(1, 400)),
        lambda: PREFACE + r.randbytes(r.randrange(400)),
        lambda: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        lambda: call(r), lambda: call(r), lambda: frames(r), lambda: flipped(r)))()
    return out[:r.randrange(len(out))] if r.random() < 0.2 else out


def has_answer(got):
    """True if a gRPC answer is among these frames: every server sends SETTINGS first, whatever it gets."""
    at = 0
    while at + 9 <= len(got):
        if got[at + 3] == HEADERS:
            return True
        at += 9 + int.from_bytes(got[at:at + 3], "big")
    return False


def throw_one(path, what, r):
    """Returns what comes back. Fails if the connection stays open."""
    got = b""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(path)
        try:
            s.sendall(what)
            while r.random() < 0.8 and not has_answer(got) and select.select([s], [], [], 0.01)[0]:  # time for an answer
                more = s.recv(65536)
                if not more:
                    return got
                got += more
            s.shutdown(socket.SHUT_WR)
            while True:
                more = s.recv(65536)
                if not more:
                    return got
                got += more
        except (ConnectionResetError, BrokenPipeError):
            return got


def throw(path, pieces, seed, alive):
    """Returns how many pieces had an answer of gRPC; all other connections were closed."""
    r = random.Random(seed)
    answered = 0
    for n in range(pieces):
        what = piece(r)
        answered += has_answer(throw_one(path, what, r))
        assert alive(), f"seed {seed}: the plugin ended after piece {n}: {what.hex()}"
    return answered


def main():
    from world import BUILD, World, wait_for

    pieces, seed = ([int(a) for a in sys.argv[1:3]] + [10000, 18][len(sys.argv) - 1:])[:2]
    world = World(gpus=2)
    try:
        world.start_daemon()
        os.mkdir(world.path("kubelet"))
        plugin = world.start([os.path.join(BUILD, "sublet-device-plugin"), "--dir", world.dir, "--kubelet-dir", world.path("kubelet")])
        path = world.path("kubelet/sublet-gpu.sock")
        wait_for(lambda: os.path.exists(path), 20, "the plugin's socket", report=plugin.report)
        began = time.monotonic()
        answered = throw(path, pieces, seed, plugin.running)
        with open(f"/proc/{plugin.pid}/status", encoding="ascii") as f:
            memory = [line.split()[1] for line in f if line.startswith("RssAnon")]
        print(f"{pieces} pieces, seed {seed}: {answered} answered, the other connections closed, in {time.monotonic() - began:.0f} s; "
              f"{memory[0]} kB of anonymous memory, {len(os.listdir(f'/proc/{plugin.pid}/fd'))} descriptors")
        plugin.send(15)
        plugin.ok()
    finally:
        world.close()


if __name__ == "__main__":
    main()
