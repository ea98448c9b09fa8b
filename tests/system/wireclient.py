"""A client of subletd in Python, for tests. It reads its messages from src/wire/wire_messages.def, so that there is one
list.

The daemon tells clients apart by process, so each `Client` starts a process that relays (relay.py): it sends the test's
packets over its own socket, and returns the packets that arrive. `Client.obey()` answers as the preload library would."""

import json
import os
import pathlib
import re
import select
import socket
import struct
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SUBLET_BUILD", SOURCE / "build"))
NO_GPU = 0xFFFF
RUN, RUNNING, IDLE, POISONED, DETACHED = 1, 2, 4, 8, 16
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GENEROUS_S = 60  # the same as in world.py, which is not imported here


def load_messages(path=SOURCE / "src/wire/wire_messages.def"):
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    messages = {}
    for row in re.split(r"^WIRE\(", text, flags=re.M)[1:]:
        name, number, direction, scope, fields = (part.strip() for part in row.split(",", 4))
        layout, names = "<HHI", []
        for kind, field, size in re.findall(r"(U64|U32|IN64|IN32|FLAGS|TEXT|BYTES)\((\w+)(?:, (\w+))?", fields):
            kind = {"IN64": "U64", "IN32": "U32", "FLAGS": "U32"}.get(kind, kind)
            layout += {"U64": "Q", "U32": "I"}.get(kind, f"{size}s")
            names.append((kind, field))
        messages[name] = (int(number), direction, struct.Struct(layout), names, scope)
    return messages


MESSAGES = load_messages()
BY_NUMBER = {number: name for name, (number, *_) in MESSAGES.items()}
MAGIC = 0x0054454C42555301


def encode(name, /, gpu=NO_GPU, sequence=0, **fields):
    number, _, layout, names, _ = MESSAGES[name]
    values = []
    for kind, field in names:
        value = fields.pop(field, 0 if kind in ("U64", "U32") else b"")
        values.append(value.encode() if isinstance(value, str) else value)
    assert not fields, f"{name} has no field {list(fields)}"
    return layout.pack(number, gpu, sequence, *values)


def decode(packet):
    number, gpu, sequence = struct.unpack_from("<HHI", packet)
    name = BY_NUMBER[number]
    _, direction, layout, names, _ = MESSAGES[name]
    assert direction == "DOWN" and layout.size == len(packet), f"{name}: {direction}, {len(packet)} bytes"
    values = layout.unpack(packet)[3:]
    message = {"type": name, "gpu": gpu, "sequence": sequence}
    for (kind, field), value in zip(names, values):
        message[field] = value if kind in ("U64", "U32") else value.split(b"\0")[0].decode("latin1")
    return message


def uuid(card):
    """Returns the UUID of a card that only clients know, by its number. A UUID stays what it is."""
    return card if isinstance(card, bytes) else bytes([0xF0 + card] * 16)


class Client:
    """One client process. Its figures are those of GPU 0."""

    def __init__(self, directory, name="fake", env=None, prefix=()):
        self.name = name
        self.sequence = 0
        self.allocated = self.backed = self.unevictable = self.moved_in = self.moved_out = 0
        self.limit = {"commit": 0, "backed": 0, "unevictable": 0, "sequence": 0}
        self.sequences = {}
        self.lease = 0
        self.wants_run = False
        self.grants = self.revokes = self.contested = 0
        self.attached = None
        self.lines = b""
        self.seen = []
        from others import SCRIPTS  # imported here, because programs that only encode messages do not need it

        # -I -S: without the modules of the machine, which take longer to find than the relay to start.
        self.process = subprocess.Popen([*prefix, sys.executable, "-I", "-S", os.path.join(SCRIPTS, "relay.py"), str(directory)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=env)

    # -- the relay --

    def command(self, what):
        self.process.stdin.write(what.encode() + b"\n")

    def connect(self):
        """Makes a new connection. Sequences and leases of an earlier connection are void."""
        self.sequences, self.lease = {}, 0
        self.limit = self.limit | {"sequence": 0}
        self.command("connect")
        return self

    def disconnect(self):
        self.command("disconnect")

    def raw(self, packet):
        self.command("send " + packet.hex())

    def send(self, name, /, gpu=NO_GPU, **fields):
        self.sequence += 1
        self.raw(encode(name, gpu, self.sequence, **fields))
        return self.sequence

    def take(self, size):
        """Makes the process hold that many bytes of the simulated card itself."""
        import pytest  # these two are imported here, because programs that only encode messages do not need them
        from world import NO_PYTHON

        if NO_PYTHON:
            pytest.skip(NO_PYTHON)
        self.command(f"take {size}")
        self.expect("taken")

    def stop_reading(self):
        self.command("stop_reading")

    def receive(self, timeout=GENEROUS_S):
        """Returns the next message; {"type": "closed"} if the daemon has ended the connection; None after the
        timeout."""
        until = time.monotonic() + timeout
        while b"\n" not in self.lines:
            left = max(until - time.monotonic(), 0)
            if not select.select([self.process.stdout], [], [], left)[0]:
                return None
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return {"type": "closed"}
            self.lines += data
        line, self.lines = self.lines.split(b"\n", 1)
        event, _, packet = line.decode().partition(" ")
        message = decode(bytes.fromhex(packet)) if event == "packet" else {"type": event}
        self.seen.append(message)
        return message

    def expect(self, *types, timeout=GENEROUS_S):
        """Returns the next message of one of these types; notes the messages before it."""
        until = time.monotonic() + timeout
        while True:
            message = self.receive(max(until - time.monotonic(), 0))
            if message is None:
                raise AssertionError(f"{self.name}: no {types} within {timeout} s; saw {[m['type'] for m in self.seen[-8:]]}")
            self.note(message)
            if message["type"] in types:
                return message
            if message["type"] == "closed":
                raise AssertionError(f"{self.name}: closed while waiting for {types}; saw {self.seen[-3:]}")

    # -- the library's behaviour --

    def hello(self, **changes):
        fields = dict(magic=MAGIC, protocol=1, pid=self.process.pid, name=self.name, version="0.1.0")
        fields.update(changes)
        self.send("HELLO", **fields)
        return self.expect("WELCOME")

    def attach(self, total=GIB, gpu=0, card=0, wait=True, **fields):
        self.unevictable = fields.get("unevictable", self.unevictable)
        self.send("ATTACH", gpu, total_bytes=total, uuid=uuid(card), **fields)
        self.attached = self.expect("ATTACHED")
        if wait:
            self.expect("LIMIT")
        return self.attached

    def start(self, total=GIB, **fields):
        self.connect()
        self.hello()
        self.attach(total, **fields)
        return self

    def usage(self, **changes):
        fields = dict(
            allocated=self.allocated,
            backed=self.backed,
            unevictable=self.unevictable,
            moved_in=self.moved_in,
            moved_out=self.moved_out,
            limit_sequence=self.limit["sequence"],
        )
        fields.update(changes)
        self.send("USAGE", 0, **fields)

    def want_run(self):
        self.wants_run = True
        self.send("REQUEST", 0, need=self.allocated, flags=RUN)

    def ask(self, size):
        """Asks for room for that many bytes in all. Returns False if the daemon refuses."""
        sequence = self.send("REQUEST", 0, commit=size, need=self.allocated, flags=RUN if self.wants_run else 0)
        while True:
            answer = self.expect("LIMIT", "REFUSED")
            if answer["type"] == "REFUSED":
                assert answer["code"] == 2 and answer["of"] == sequence
                return False
            if answer["commit"] >= size:
                return True

    def allocate(self, size):
        """Allocates up to that many bytes in all, and asks to run with them."""
        if not self.ask(size):
            return False
        self.allocated = size
        self.want_run()
        self.move()  # as far as the present limit allows
        return True

    def note(self, message):
        if message["type"] == "LIMIT":
            last = self.sequences.get(message["gpu"], 0)
            assert message["sequence"] > last, f"LIMIT sequences grow: {message['sequence']} after {last}"
            self.sequences[message["gpu"]] = message["sequence"]
            if message["gpu"] == 0:
                self.limit = message
        elif message["type"] == "GRANT":
            self.lease = message["lease"]
            self.grants += 1
        elif message["type"] == "REVOKE":
            self.revokes += 1
        elif message["type"] == "CONTESTED":
            self.contested = message["contested"]

    def obey(self, timeout=0.0):
        """Handles every message that has arrived as the library would. True if there was one."""
        any_message = False
        while True:
            message = self.receive(0 if any_message else timeout)
            if message is None:
                return any_message
            any_message = True
            self.note(message)
            self.react(message)
            if message["type"] == "closed":
                return True

    def react(self, message):
        if message["type"] == "LIMIT":
            self.move()
        elif message["type"] == "REVOKE" and message["lease"] == self.lease:
            self.lease = 0
            self.send("DRAINED", lease=message["lease"])
            if self.wants_run:
                self.want_run()
            self.move()
        elif message["type"] == "GRANT":
            assert self.backed >= self.allocated, "granted with memory that is not backed"

    def move(self):
        target = min(self.allocated, self.limit["backed"])
        if target > self.backed:
            self.moved_in += target - self.backed
            self.backed = target
        elif target < self.backed and not self.lease:
            self.usage()  # acknowledges the limit before the first byte moves
            self.moved_out += self.backed - target
            self.backed = target
        self.usage()

    # -- the end --

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def obey_until(clients, condition, timeout=GENEROUS_S):
    """Lets all the clients obey until condition() holds."""
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until, "it did not happen in time: " + str(
            [(c.name, c.lease, c.allocated, c.backed, c.limit["backed"], [m["type"] for m in c.seen[-4:]]) for c in clients]
        )
        if not any([c.obey() for c in clients]):
            select.select([c.process.stdout for c in clients if c.process.poll() is None], [], [], 0.05)


def order(directory, **what):
    """Sends one order to control.sock. Returns the answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(GENEROUS_S)
        s.connect(f"{directory}/control.sock")
        s.sendall(json.dumps(what).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            data = s.recv(65536)
            if not data:
                break
            answer += data
        return json.loads(answer)
