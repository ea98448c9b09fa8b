"""A daemon with one client, played by the test itself. The test decides each answer, so that an answer can come late or
not at all."""

import os
import select
import socket
import stat

import pytest

from wireclient import MAGIC, MESSAGES, MIB, NO_GPU, RUN, encode
from world import wait_for

BY_NUMBER = {number: (name, layout, fields) for name, (number, _, layout, fields, _) in MESSAGES.items()}
KEPT_BACK = 0.4  # s for which an answer is kept back: long enough for the client to move tens of extents
TIMEOUT = 30


class Scripted:
    def __init__(self, world):
        os.mkdir(world.dir, 0o700)
        path = os.path.join(world.dir, "client.sock")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(path)
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
        self.socket.listen(1)
        self.socket.settimeout(TIMEOUT)
        self.client = None
        self.sequence = self.lease = 0
        self.grants = True
        self.limit = {}

    def accept(self, late=False):
        """Receives messages up to ATTACH, and does not answer ATTACH. late: answers HELLO late."""
        self.client, _ = self.socket.accept()
        self.client.settimeout(TIMEOUT)
        self.sequence = 0
        self.expect("HELLO")
        if late:
            self.stays_unanswered()
        self.send("WELCOME", magic=MAGIC, instance=1, protocol=1, version="test")
        return self.expect("ATTACH")

    def answer(self, commit, backed, unevictable):
        self.send("ATTACHED", gpu=0, visible_bytes=30 * MIB, context_bytes=MIB, block_bytes=2 * MIB, bound_ns=10**7)
        self.say_limit(commit=commit, backed=backed, unevictable=unevictable)

    def say_limit(self, **figures):
        self.sequence += 1
        self.limit |= figures
        self.send("LIMIT", gpu=0, sequence=self.sequence, visible_bytes=30 * MIB, **self.limit)

    def send(self, name, gpu=NO_GPU, sequence=1, **fields):
        self.client.send(encode(name, gpu, sequence, **fields))

    def receive(self):
        packet = self.client.recv(4096)
        assert packet, "the client has closed the connection"
        name, layout, fields = BY_NUMBER[int.from_bytes(packet[:2], "little")]
        _, _, sequence, *values = layout.unpack(packet)
        return {"type": name, "sequence": sequence, **{field: value for (_, field), value in zip(fields, values)}}

    def expect(self, wanted, test=lambda m: True):
        """Returns the next message of that type; grants the requests before it."""
        return self.expect_any(wanted, test=test)

    def expect_any(self, *wanted, test=lambda m: True):
        while True:
            m = self.receive()
            if m["type"] in wanted and test(m):
                return m
            self.grant(m)

    def grant(self, m):
        """Grants the message if it is a request."""
        if m["type"] == "REQUEST":
            self.say_limit(**{what: max(m[what], self.limit[what]) for what in ("commit", "unevictable")})
            if m["flags"] & RUN and self.grants:
                self.lease += 1
                self.send("GRANT", lease=self.lease)

    def serve(self, condition, what, hear=lambda m: None):
        """Grants requests until the condition holds."""
        def served():
            while select.select([self.client], [], [], 0)[0]:
                m = self.receive()
                hear(m)
                self.grant(m)
            return condition()

        wait_for(served, TIMEOUT, what)

    def acknowledged(self):
        sequence = self.sequence
        return self.expect("USAGE", lambda m: m["limit_sequence"] >= sequence)

    def stays_unanswered(self):
        """Receives messages for a while and answers none: enough time for a client that acts without an answer."""
        self.client.settimeout(KEPT_BACK)
        with pytest.raises(TimeoutError):
            while True:
                self.receive()
        self.client.settimeout(TIMEOUT)

    def close(self):
        if self.client:
            self.client.close()
        self.socket.close()
