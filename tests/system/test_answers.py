"""Every request of a client gets an answer, whatever other clients ask and whether or not drains succeed."""

import random

import pytest

from test_daemon import CARD, client, daemon, place  # noqa: F401
from wireclient import GIB, MIB, Client, obey_until

STEPS = 120
NO_PROGRESS, EXPORT_REFUSED, NOBODY_THERE = 1, 7, 8


class Asker(Client):
    """A client whose drains fail now and then, and which keeps every answer that names a request."""

    def begin(self, number, dice):
        self.number, self.dice, self.is_named = number, dice, False
        self.answers, self.told, self.exported, self.host, self.failed = {}, 0, 0, 0, 0
        return self.start(GIB)

    def note(self, message):
        super().note(message)
        if message["type"] == "LIMIT":
            self.told = max(self.told, message["commit"])
        elif message.get("of"):
            self.answers[message["of"]] = message
        elif message["type"] in ("HOLDER", "NAMED", "EXPORTED"):
            self.answers[message["type"]] = message

    def react(self, message):
        # At most one drain of each lease fails: after three failures the other clients would wait for ten seconds.
        if message["type"] == "REVOKE" and message["lease"] == self.lease != self.failed and self.dice.random() < 0.4:
            self.failed = self.lease
            self.send("DRAIN_FAILED", lease=self.lease, after_ns=1, reason=NO_PROGRESS)
        else:
            super().react(message)

    # Each of these functions sends a request and returns the condition under which the request is answered.

    def grow(self, size):
        sequence = self.send("REQUEST", 0, commit=size, need=self.allocated, flags=int(self.wants_run))
        self.told = 0  # the highest commit limit so far; the limit may fall when other clients export memory
        return lambda: sequence in self.answers or self.told >= size

    def run(self):
        self.allocated = max(self.allocated, min(self.limit["commit"], self.dice.randrange(1, 600) * MIB))
        grants = self.grants if not self.lease else -1
        self.want_run()
        self.move()
        return lambda: self.lease or self.grants > grants

    def rest(self):
        if self.lease:
            self.send("IDLE", lease=self.lease)
        self.wants_run = False
        return lambda: True

    def export(self, size):
        self.answers.pop("EXPORTED", None)
        if size <= self.exported:
            self.exported = size
            self.send("EXPORT", 0, bytes=size)
            return lambda: True
        sequence = self.send("EXPORT", 0, bytes=size)

        def over():
            if sequence in self.answers:
                assert self.answers[sequence]["code"] == EXPORT_REFUSED
                return True
            if self.answers.get("EXPORTED", {}).get("bytes") == size:
                assert self.limit["backed"] >= size
                self.exported = size
                return True
            return False

        return over

    def map_host(self, size):
        sequence = self.send("HOST", held=min(self.host, size), wanted=size)

        def over():
            answer = self.answers.get(sequence)
            if answer:
                assert answer["bytes"] <= max(answer["most"], self.host) and answer["bytes"] in (size, self.host)
                self.host = answer["bytes"]
            return answer

        return over

    def ask_who(self):
        self.answers.pop("HOLDER", None)
        self.send("WHO")
        return lambda: "HOLDER" in self.answers

    def meet(self, others):
        other = self.dice.choice(others)
        there = self.dice.random() < 0.7
        self.is_named = True
        self.send("NAME", name=f"process number {self.number}")
        sequence = self.send("PEER", name=f"process number {other.number if there else 9}")

        def over():
            answer = self.answers.get(sequence)
            if answer and answer["type"] == "REFUSED":
                assert answer["code"] == NOBODY_THERE
            elif answer:
                assert there and other.is_named and answer["type"] == "PEERED"
            return answer and "NAMED" in self.answers

        return over


def one_request(c, others, dice):
    kind = dice.randrange(8)
    if kind <= 1:
        return c.grow(dice.randrange(1, 1100) * MIB)
    if kind <= 3:
        return c.run()
    if kind == 4:
        return c.rest()
    if kind == 5:
        return c.export(dice.randrange(0, max(1, min(c.allocated // MIB, 150))) * MIB)
    if kind == 6:
        return c.map_host(dice.randrange(0, 3000) * MIB)
    return c.ask_who() if dice.random() < 0.5 else c.meet(others)


@pytest.mark.parametrize("seed", range(3))
def test_every_request_of_several_clients_is_answered(daemon, place, tmp_path, seed):  # noqa: F811
    conf = tmp_path / "quick.conf"
    conf.write_text("[daemon]\nquantum = 10ms\npatience = 20ms\ngrace = 30s\n")
    d = daemon(*CARD, "--config", str(conf))
    dice = random.Random(seed)
    clients = [Asker(place, f"asker {i}").begin(i, random.Random(seed * 10 + i)) for i in range(4)]
    try:
        open_requests = {}
        for _ in range(STEPS):
            c = dice.choice(clients)
            if c in open_requests:  # the client waits for this answer first, and the other clients obey
                obey_until(clients, open_requests.pop(c))
            open_requests[c] = one_request(c, [o for o in clients if o is not c], dice)
            for each in clients:
                each.obey()
        for over in open_requests.values():
            obey_until(clients, over)
        for c in clients:
            assert c.process.poll() is None and all(m["type"] != "closed" for m in c.seen)

        # Every client gives everything back. Then the ledger must be empty.
        for c in clients:
            c.rest()
            c.export(0)
            c.map_host(0)
            c.allocated = c.backed = 0
            c.usage()
            c.send("REQUEST", 0, commit=1)
        obey_until(clients, lambda: d.gpu()["charged"] <= len(clients) and d.gpu()["committed"] <= len(clients))
    finally:
        for c in clients:
            c.end()
