"""Clients that obey the letter of the protocol and defeat its purpose: others are served all the same, and the offender
is named."""

import signal
import subprocess
import time

import pytest

from test_daemon import nvml_uuid
from wireclient import GIB, MIB, RUN, RUNNING, Client, obey_until
from world import GENEROUS_S, NO_PID_NAMESPACES, PATIENCE, children, wait_for

PATIENCE_S, GRACE_S = 0.5, 1
SLACK_S = 30  # for a busy machine; a daemon that waits for the offender waits for ever
CONFIG = {"quantum": "200ms", "patience": f"{PATIENCE_S}s", "grace": f"{GRACE_S}s"}
NO_PROGRESS = 1  # enum wire_drain_failure


class Dribbler(Client):
    """Once `dribbles` is true it acknowledges each LIMIT, and then moves one byte now and then."""

    PAUSE_S = 0.3
    dribbles, next_s = False, 0.0

    def move(self):
        if self.dribbles:
            self.usage()
        else:
            super().move()

    def obey(self, timeout=0.0):
        any_message = super().obey(timeout)
        if self.dribbles and time.monotonic() >= self.next_s:
            self.next_s = time.monotonic() + self.PAUSE_S
            self.move_one_byte()
        return any_message

    def move_one_byte(self):
        target = min(self.allocated, self.limit["backed"])
        if target > self.backed:
            self.backed += 1
            self.moved_in += 1
        elif target < self.backed and not self.lease:
            self.backed -= 1
            self.moved_out += 1
        self.usage()


class Asker(Client):
    """Once `asks` is true it sends a REQUEST without RUN every 5 ms."""

    PAUSE_S = 0.005
    asks, next_s, asked = False, 0.0, 0

    def obey(self, timeout=0.0):
        if not self.asks:
            return super().obey(timeout)
        super().obey(max(self.next_s - time.monotonic(), 0))
        if time.monotonic() >= self.next_s:
            self.next_s = time.monotonic() + self.PAUSE_S
            self.send("REQUEST", 0, commit=self.limit["commit"], need=self.allocated)
            self.asked += 1
        return True  # otherwise obey_until() sleeps for longer than 5 ms


class Refuser(Client):
    """Answers every REVOKE with DRAIN_FAILED."""

    def react(self, message):
        if message["type"] == "REVOKE":
            self.send("DRAIN_FAILED", lease=message["lease"], reason=NO_PROGRESS)
        else:
            super().react(message)


class Returner(Client):
    """Keeps its memory, and its lease too unless it drains. Connects again now and then, and says each time that it
    has the memory, and computes."""

    PAUSE_S = 0.4
    next_s, drains = 0.0, False

    def react(self, message):
        if not self.revokes:
            super().react(message)
        elif message["type"] == "REVOKE" and self.drains:
            self.lease = 0
            self.send("DRAINED", lease=message["lease"])

    def obey(self, timeout=0.0):
        any_message = super().obey(timeout)
        if self.revokes and time.monotonic() >= self.next_s:
            self.next_s = time.monotonic() + self.PAUSE_S
            try:
                self.disconnect()
                self.connect().hello()
                self.send("ATTACH", 0, total_bytes=GIB, uuid=self.uuid, allocated=self.allocated, backed=self.backed,
                          flags=0 if self.drains else RUN | RUNNING)
            except (AssertionError, OSError):  # it is killed
                self.process.wait(GENEROUS_S)
        return any_message


class Resident(Client):
    """Always asks for its turn, and computes for a tenth of its turn, 10 ms at a time."""

    BUSY_S, IDLE_S = 0.01, 0.09
    next_s, idle = 0.0, False

    def note(self, message):
        super().note(message)
        if message["type"] == "GRANT":
            self.idle, self.next_s = False, time.monotonic() + self.BUSY_S

    def obey(self, timeout=0.0):
        if not self.lease:
            return super().obey(timeout)
        any_message = super().obey(max(min(self.next_s - time.monotonic(), self.BUSY_S), 0))
        if self.lease and time.monotonic() >= self.next_s:
            self.send("ACTIVE" if self.idle else "IDLE", lease=self.lease)
            self.idle = not self.idle
            self.next_s = time.monotonic() + (self.IDLE_S if self.idle else self.BUSY_S)
        return any_message


class Card:
    """A card of 1 GiB, its daemon, and the clients on it."""

    def __init__(self, world, **config):
        self.world, self.clients = world, []
        world.start_daemon(config=CONFIG | config)
        self.uuid = nvml_uuid(self)

    def gpu(self):
        return self.world.status()["gpus"][0]

    def join(self, name, mib, kind=Client, waits=False, prefix=(), **habits):
        """Starts a client that allocates so much. Returns it once it has its turn; waits: at once."""
        c = kind(self.world.dir, name, env=self.world.env, prefix=prefix)
        self.clients.append(c)
        vars(c).update(habits)
        c.connect().hello()
        c.send("ATTACH", 0, total_bytes=GIB, uuid=self.uuid)
        c.expect("LIMIT")
        assert c.allocate(mib * MIB)
        if not waits:
            self.until(lambda: c.lease)
        return c

    def times_within(self, seconds, turns=0):
        """Returns what each program gets of the time in so many seconds, {name: seconds}, and how many have passed. turns:
        goes on until each program has had so many, because on a busy machine there are few in a second."""
        def times():
            return {c["name"]: c["gpu_time_s"] for c in self.world.clients().values()}

        before, began, grants = times(), time.monotonic(), {c: c.grants for c in self.clients}
        self.until(lambda: time.monotonic() - began >= seconds and all(c.grants - n >= turns for c, n in grants.items()), seconds)
        passed, after = time.monotonic() - began, times()
        return {name: after[name] - before[name] for name in after}, passed

    def until(self, condition, within=GENEROUS_S):
        """Lets each client go on in its way until the condition holds: within so many seconds, and some."""
        obey_until(self.clients, condition, timeout=(within + SLACK_S) * PATIENCE)

    def shown(self, c):
        return self.world.clients()[c.process.pid]

    def is_overdue(self, c):
        return "overdue" in self.shown(c)["flags"]

    def close(self):
        for c in self.clients:
            c.end()


@pytest.fixture
def card(make_world):
    made = []

    def make(**config):
        made.append(Card(make_world(memory="1GiB"), **config))
        return made[-1]

    yield make
    for c in made:
        c.close()


# ---- bytes that move one at a time ----


def test_another_victim_is_asked_when_the_first_evicts_a_byte_now_and_then(card):
    """Moved bytes are progress only if there are enough of them. Otherwise one byte a second would hold the card."""
    gpu = card()
    dribbler = gpu.join("dribbler", 400, Dribbler)
    victim = gpu.join("victim", 400)
    dribbler.dribbles = True
    waiter = gpu.join("waiter", 400, waits=True)
    gpu.until(lambda: dribbler.revokes and dribbler.limit["backed"] < dribbler.backed)
    gpu.until(lambda: gpu.is_overdue(dribbler), PATIENCE_S + GRACE_S)
    assert dribbler.moved_out > 0, "it evicts all the time"
    gpu.until(lambda: waiter.grants, 0)
    assert victim.revokes and victim.moved_out >= 200 * MIB
    gpu.until(lambda: waiter.grants >= 3 and victim.grants >= 3)
    assert gpu.is_overdue(dribbler) and dribbler.grants == 1, "and no byte makes good for the time"
    assert dribbler.moved_out < 100


def test_a_client_that_restores_a_byte_now_and_then_loses_the_room_that_it_does_not_fill(card):
    """Otherwise nobody could use the room: it is neither full nor free."""
    gpu = card()
    waiter = gpu.join("waiter", 600)
    dribbler = gpu.join("dribbler", 600, Dribbler, waits=True, dribbles=True)
    gpu.until(lambda: dribbler.limit["backed"] == 600 * MIB and not waiter.lease)
    gpu.until(lambda: waiter.lease, GRACE_S)
    assert 0 < dribbler.backed < 100 and not dribbler.grants
    limits = [m["backed"] for m in dribbler.seen if m["type"] == "LIMIT"]
    assert min(limits[limits.index(600 * MIB):]) < 100, limits
    assert f"process {dribbler.process.pid} (dribbler) does not give way" in gpu.world.daemon.err()
    gpu.until(lambda: waiter.grants >= 3, 4 * GRACE_S)  # the next time it is the same


# ---- requests and answers without sense ----


def test_requests_without_run_keep_no_memory_on_the_card(card):
    """Only a lease counts as work. Otherwise a client could keep idle memory on the card by asking for what it has."""
    gpu = card(idle_release="500ms")
    asker = gpu.join("asker", 600, Asker)
    asker.wants_run, lease, asker.lease = False, asker.lease, 0
    asker.send("DRAINED", lease=lease)  # unasked
    gpu.until(lambda: gpu.shown(asker)["state"] == "idle")
    asker.asks = True
    gpu.until(lambda: asker.asked > 20)
    waiter = gpu.join("waiter", 600, waits=True)
    asked = asker.asked
    gpu.until(lambda: waiter.lease, 0.5)
    assert asker.asked > asked and asker.moved_out > 0 and not asker.revokes, "it had no lease, and went on asking"


def test_another_victim_is_asked_when_the_first_refuses_every_drain(card):
    """Refusals do not prolong the time in which a client has to give way."""
    gpu = card()
    refuser = gpu.join("refuser", 400, Refuser)
    victim = gpu.join("victim", 400)
    waiter = gpu.join("waiter", 400, waits=True)
    gpu.until(lambda: refuser.revokes)
    gpu.until(lambda: gpu.is_overdue(refuser), PATIENCE_S + GRACE_S)
    gpu.until(lambda: waiter.grants, 0)
    assert victim.revokes and victim.moved_out >= 200 * MIB
    gpu.until(lambda: waiter.grants >= 3 and victim.grants >= 3 and refuser.revokes >= 2)
    assert gpu.is_overdue(refuser) and refuser.backed == 400 * MIB, "refusing again does not end it"


def test_a_client_that_fits_beside_one_that_refuses_every_drain_runs(card):
    """The client before it in the queue does not fit beside the refuser. No room is kept for that client then."""
    gpu = card()
    refuser = gpu.join("refuser", 400, Refuser)
    large = gpu.join("large", 700, waits=True)
    gpu.until(lambda: large.backed > 500 * MIB)
    small = gpu.join("small", 500, waits=True)
    gpu.until(lambda: refuser.revokes)
    gpu.until(lambda: gpu.is_overdue(refuser), PATIENCE_S + GRACE_S)
    gpu.until(lambda: small.lease, 0)
    assert not large.grants and large.moved_out > 0 and refuser.grants == 1


def test_a_client_that_refuses_every_drain_is_killed_if_the_daemon_is_told_to(card):
    gpu = card(kill_overdue="yes")
    refuser = gpu.join("refuser", 600, Refuser)
    waiter = gpu.join("waiter", 600, waits=True)
    gpu.until(lambda: refuser.revokes)
    assert refuser.process.poll() is None, "it has its time first"
    gpu.until(lambda: refuser.process.poll() is not None, PATIENCE_S + GRACE_S)
    assert refuser.process.returncode == -signal.SIGKILL
    gpu.clients.remove(refuser)
    refuser.end()
    gpu.until(lambda: waiter.lease, 0)
    assert waiter.process.poll() is None
    assert f"process {refuser.process.pid} (refuser) does not give way" in gpu.world.daemon.err()


@pytest.mark.parametrize("drains", [False, True], ids=["keeps its lease", "keeps its memory"])
def test_a_client_that_connects_again_and_again_does_not_escape_its_grace(card, drains):
    gpu = card(kill_overdue="yes")
    returner = gpu.join("returner", 600, Returner, uuid=gpu.uuid, drains=drains)
    waiter = gpu.join("waiter", 600, waits=True)
    gpu.until(lambda: returner.process.poll() is not None, PATIENCE_S + GRACE_S)
    assert returner.process.returncode == -signal.SIGKILL
    gpu.clients.remove(returner)
    returner.end()
    gpu.until(lambda: waiter.lease, 0)


# ---- memory that stays, and hardly computes ----


@pytest.mark.parametrize("idle_release", ["auto", "1min"])
def test_memory_that_idles_on_the_card_leaves_others_their_share(card, idle_release):
    """The resident computes for a tenth of the time and never gives way by itself. Its bytes are billed for the whole
    time."""
    gpu = card(idle_release=idle_release)
    resident = gpu.join("resident", 410, Resident)
    other = gpu.join("other", 650, waits=True)
    gpu.until(lambda: other.lease)
    began, ran, grants = time.monotonic(), gpu.shown(other)["gpu_time_s"], other.grants
    gpu.until(lambda: time.monotonic() - began >= 8, 8)
    passed, ran = time.monotonic() - began, gpu.shown(other)["gpu_time_s"] - ran
    assert ran >= 0.4 * passed, f"{ran} s of {passed} s"
    assert other.grants - grants >= 5 and resident.grants >= 5, "they take turns"


# ---- many of one kind ----


def test_root_of_a_container_gets_no_more_by_more_programs_or_namespaces(card):
    """The roots of all containers are one user here, so time is divided between the containers."""
    container = ["unshare", "--fork", "--pid", "--kill-child"]
    if subprocess.run([*container, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip(NO_PID_NAMESPACES)
    gpu = card()
    first = gpu.join("first", 600, prefix=container)
    wait_for(lambda: children(first.process.pid), GENEROUS_S, "the container's first process")
    inside = ["nsenter", "--target", str(children(first.process.pid)[0]), "--pid", "--"]
    gpu.join("second", 600, waits=True, prefix=inside)
    gpu.join("nested", 600, waits=True, prefix=[*inside, *container])
    alone = gpu.join("alone", 600, waits=True, prefix=container)

    gpu.until(lambda: alone.grants)
    got, passed = gpu.times_within(8, turns=5)
    assert got["alone"] >= 0.4 * passed, got
    assert min(got.values()) >= 0.1 * passed, got
