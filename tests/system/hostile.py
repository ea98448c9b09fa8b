"""Habits of a hostile client, as functions of a socket; crowds of processes with those habits; and an honest bystander
that times its answers. All random choices come from a seed that a failing test names."""

import array
import os
import random
import select
import signal
import socket
import struct
import time

from wireclient import GENEROUS_S, GIB, IDLE, MAGIC, MESSAGES, NO_GPU, RUN, RUNNING, decode, encode, uuid

HUGE = (1 << 64) - 1


def connect(directory, name="client.sock", kind=socket.SOCK_SEQPACKET):
    s = socket.socket(socket.AF_UNIX, kind)
    try:
        s.connect(f"{directory}/{name}")
    except OSError:
        s.close()
        raise
    return s


def hello(**changes):
    return encode("HELLO", **(dict(magic=MAGIC, protocol=1, name="hostile", version="0.1.0") | changes))


def attach(**changes):
    return encode("ATTACH", 0, **(dict(total_bytes=GIB, uuid=uuid(0)) | changes))


# ---- packets ----


def garbage(rng):
    return rng.randbytes(rng.choice((0, 1, 7, 8, 9, 64, 319, 320, 321, 1000, 60000)))


def valid(rng):
    """Returns a message of the right size with arbitrary figures."""
    name = rng.choice([n for n, row in MESSAGES.items() if row[1] == "UP" and n not in ("HELLO", "BYE")])
    fields = {}
    for kind, field in MESSAGES[name][3]:
        if field == "flags":
            fields[field] = rng.choice((0, RUN, RUNNING, IDLE, RUN | RUNNING))
        elif field == "why":
            fields[field] = rng.randrange(4)
        elif field == "uuid":
            fields[field] = uuid(rng.randrange(3))
        elif kind == "U64":
            fields[field] = rng.choice((0, 1, rng.getrandbits(20), rng.getrandbits(33), rng.getrandbits(64), HUGE))
        elif kind == "U32":
            fields[field] = rng.choice((0, 1, rng.getrandbits(32)))
    gpu = rng.choice((0, 0, 0, 1, 15)) if MESSAGES[name][4] in ("GPU", "NEW_GPU") else NO_GPU
    return encode(name, gpu, rng.getrandbits(32), **fields)


def damaged(rng):
    """Returns a message that is truncated, lengthened, or has a changed byte."""
    packet = bytearray(rng.choice((hello(), attach(), valid(rng))))
    how = rng.randrange(4)
    if how == 0:
        return bytes(packet[: rng.randrange(len(packet))])
    if how == 1:
        return bytes(packet) + rng.randbytes(rng.choice((1, 8, 4096)))
    if how == 2:
        packet[rng.randrange(len(packet))] ^= 1 << rng.randrange(8)
        return bytes(packet)
    struct.pack_into("<HH", packet, 0, rng.getrandbits(16), rng.getrandbits(16))
    return bytes(packet)


def wrong_way(rng):
    """Returns a message that no client sends to a daemon."""
    name = rng.choice([n for n, row in MESSAGES.items() if row[1] != "UP"])
    return encode(name, rng.choice((0, NO_GPU)), rng.getrandbits(32))


def with_descriptors(s, packet):
    r, w = os.pipe()
    try:
        s.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [r, w] * 20))])
    finally:
        os.close(r)
        os.close(w)


# ---- habits; each returns when its connection has ended or the time `until` has come ----


def _spray(directory, rng, until, make, begin=()):
    with connect(directory) as s:
        s.settimeout(0.2)
        for packet in begin:
            s.send(packet)
        while time.monotonic() < until:
            packet = make(rng)
            if packet:
                s.send(packet)


def floods(directory, rng, until):
    """Sends an honest client's message as fast as possible."""
    usage = encode("USAGE", 0, 1, allocated=0)
    _spray(directory, rng, until, lambda _: usage, (hello(), attach()))


def lies(directory, rng, until):
    _spray(directory, rng, until, valid, (hello(), attach(backed=HUGE, allocated=HUGE, unevictable=HUGE, flags=RUNNING)))


def babbles(directory, rng, until):
    _spray(directory, rng, until, rng.choice((garbage, damaged, wrong_way)), rng.choice(((), (hello(),), (hello(), attach()))))


def knocks(directory, rng, until):
    for _ in range(100):
        if time.monotonic() > until:
            break
        connect(directory).close()


def is_deaf(directory, rng, until):
    """Sends requests and never reads the answers."""
    ping = encode("REQUEST", 0, 1, unevictable=1 << 20)
    _spray(directory, rng, until, lambda _: ping, (hello(), attach()))


def smuggles(directory, rng, until):
    with connect(directory) as s:
        s.settimeout(0.2)
        for packet in (hello(), attach()):
            with_descriptors(s, packet)
        while time.monotonic() < until:
            with_descriptors(s, encode("USAGE", 0, 1))


def replays(directory, rng, until):
    """Sends valid messages again, in another order."""
    recorded = [hello(), attach(), encode("USAGE", 0, 1), encode("REQUEST", 0, 2, commit=1 << 22, need=1 << 20, flags=RUN),
                encode("DRAINED", lease=1), encode("IDLE", lease=1), encode("ACTIVE", lease=2), encode("BYE")]
    _spray(directory, rng, until, lambda r: r.choice(recorded), (hello(), attach()))


def crashes(directory, rng, until):
    """Kills its own process in the middle of a conversation."""
    s = connect(directory)
    for packet in (hello(), attach(unevictable_requested=1 << 20), encode("REQUEST", 0, 1, commit=1 << 24, need=1 << 24, flags=RUN)):
        s.send(packet)
    os.kill(os.getpid(), signal.SIGKILL)


HABITS = (floods, lies, babbles, knocks, is_deaf, smuggles, replays)


class Crowd:
    """`count` processes, each with one habit, for `seconds`. user: another uid and gid for them."""

    def __init__(self, directory, count, seconds, seed, habits=HABITS, user=None):
        self.pids = []
        until = time.monotonic() + seconds
        for i in range(count):
            pid = os.fork()
            if pid == 0:
                self._live(directory, habits[i % len(habits)], until, random.Random(seed * 1000 + i), user)
            self.pids.append(pid)

    @staticmethod
    def _live(directory, habit, until, rng, user):
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if user is not None:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            while time.monotonic() < until:
                try:
                    habit(directory, rng, until)
                except OSError:
                    pass  # the client was dropped or refused, or the socket is full: connect again
        finally:
            os._exit(0)

    def wait(self, timeout=60):
        """Waits until all processes have ended. Kills those that hang, and then fails."""
        end = time.monotonic() + timeout
        while self.pids and time.monotonic() < end:
            if os.waitpid(self.pids[-1], os.WNOHANG)[0]:
                self.pids.pop()
            else:
                time.sleep(0.01)
        left = len(self.pids)
        self.end()
        assert left == 0, f"{left} hostile processes hang"

    def end(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.pids = []


class Bystander:
    """An honest client in this process. It asks for its LIMIT again and again and notes how long each answer takes."""

    def __init__(self, directory):
        self.directory = directory
        self.times = []
        self.reconnected = -1
        self.begin()

    def begin(self):
        end = time.monotonic() + GENEROUS_S
        while True:
            try:
                self.socket = connect(self.directory)
                self.socket.settimeout(GENEROUS_S)
                self.socket.send(hello(name="bystander"))
                self._await("WELCOME")
                self.socket.send(attach(unevictable_requested=1 << 20))
                self.unevictable = self._await("LIMIT")["unevictable"]
                self.reconnected += 1
                return
            except OSError:
                assert time.monotonic() < end, "the daemon does not take the bystander in"
                time.sleep(0.05)

    def _await(self, name):
        while True:
            packet = self.socket.recv(4096)
            if not packet:
                raise ConnectionResetError
            message = decode(packet)
            if message["type"] == name:
                return message
            if message["type"] == "REFUSED":
                raise ConnectionRefusedError(message["text"])

    def ask(self):
        before = time.monotonic()
        self.socket.send(encode("REQUEST", 0, len(self.times) + 1, unevictable=self.unevictable))
        self._await("LIMIT")
        self.times.append(time.monotonic() - before)

    def ask_for(self, seconds, pause=0.005):
        """Asks again and again for that many seconds. The daemon must always answer, and never drop the bystander."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.ask()
            time.sleep(pause)
        return self

    def figures(self):
        """Returns the number of requests and the answer times in milliseconds."""
        ordered = sorted(self.times)
        at = lambda share: round(1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)], 3)
        return {"requests": len(ordered), "p50": at(0.5), "p99": at(0.99), "max": at(1.0)}

    def close(self):
        self.socket.close()


def drain_answers(s, timeout=GENEROUS_S):
    """Reads every message until the daemon closes the connection; fails if the daemon does not close it."""
    messages, end = [], time.monotonic() + timeout
    while True:
        left = max(end - time.monotonic(), 0)
        assert select.select([s], [], [], left)[0], f"no answer and no end within {timeout} s, after {messages}"
        try:
            packet = s.recv(4096)
        except ConnectionResetError:
            return messages
        if not packet:
            return messages
        messages.append(decode(packet))
