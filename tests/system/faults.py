"""Seeded faults: a seed describes a fault in a small world, and run() checks that every other program survives it.

Three programs share a card. It has room for the small program and one of the two large programs. The seed says which
process is killed or stopped, at which point, and what happens before a stopped process goes on. Points in a program are
calls of the simulated driver (sim/session/fault_points.def and those below); points in the daemon are listed in
src/daemon/setup/kill_points.def. Afterwards every survivor must have gone on with the right bytes, and nothing may be
left on the card, in the ledger or on the host."""

import ctypes
import json
import os
import random
import re
import signal
import socket
import time

from wireclient import MESSAGES, order
from world import ROOT, World, is_stopped, wait_for

PATIENCE = 60  # s: far longer than any step takes, because the machine may be busy
MEMORY, LARGE, SMALL, BLOCK = "32MiB", "16MiB", "2MiB", "2MiB"
OVER_MOST = 50  # after a restart of the daemon, so many successive looks may not all show too high a charge
CONFIG = {"quantum": "60ms", "grace": "300ms"}

# ---- the points ----

# How often a program makes each call in its first hand-offs. Calls that are not named here are made all the time.
_ONCE = {"cuMemHostRegister": 1, "cuDevicePrimaryCtxRetain": 1, "cuModuleLoadData": 1, "cuMemAddressReserve": 1,
         "cuStreamCreateWithPriority": 3, "cuEventCreate": 4, "cuInit": 1, "cuDeviceTotalMem": 1}
_OFTEN = 24
_UNKNOWN = ("cuInit", "cuDeviceTotalMem")  # calls before the daemon knows the client
_BEFORE_ONLY = ("cuInit", "cuDeviceTotalMem", "cuModuleLoadData", "cuMemAddressReserve", "cuStreamCreateWithPriority",
                "cuEventCreate",                 "cuEventQuery", "cuStreamQuery", "cuLaunchKernel", "cuStreamSynchronize")


def _rows(path, macro):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return re.findall(rf"^{macro}\(([^)]*)\)", f.read(), flags=re.M)


def client_points():
    """Returns pairs: the point as SIMCUDA_FAIL names it, and how often it occurs."""
    after = _rows("sim/session/fault_points.def", "FAULT_POINT")
    assert after
    names = [*after, *_BEFORE_ONLY, *(name + "@after" for name in after)]
    return [(name, _ONCE.get(name.split("@")[0], _OFTEN)) for name in names]


# How often each message occurs in every hand-off. Messages that are not listed are rare (SHORT, BYE, DRAIN_FAILED,
# REFUSED).
_MESSAGES = {"HELLO": 3, "ATTACH": 3, "USAGE": 60, "REQUEST": 20, "DRAINED": 6, "IDLE": 3, "ACTIVE": 3, "WELCOME": 3, "ATTACHED": 3,
             "LIMIT": 60, "GRANT": 6, "REVOKE": 6, "CONTESTED": 1}
# Points that occur only after a restart, a lost connection or a death.
_LATE = {"returning", "lost", "gone", "grace"}


def daemon_points():
    """Returns pairs for a daemon whose clients all live: the point as SUBLET_KILL_POINT names it, and how often it
    occurs."""
    plain = _rows("src/daemon/setup/kill_points.def", "KILL_POINT")
    assert _LATE < set(plain)
    often = {"swept": 100, "measured": 2, "accepted": 3, "attaching": 3}
    points = [(name, often[name]) for name in plain if name not in _LATE]
    for row in _rows("src/daemon/setup/kill_points.def", "KILL_POINT_MESSAGE"):
        name, direction = [part.strip() for part in row.split(",")]
        points += [(f"{name}.{message}", n) for message, n in _MESSAGES.items() if MESSAGES[message][1] == direction]
    return points


# ---- connections ----

_libc = ctypes.CDLL(None, use_errno=True)


def cut_connection(pid):
    """Shuts down a process's connection to its daemon as the kernel would: both ends see it closed."""
    pidfd = os.pidfd_open(pid)
    cut = 0
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    continue
            except OSError:
                continue
            fd = _libc.syscall(438, pidfd, int(name), 0)  # pidfd_getfd
            if fd < 0:
                raise OSError(ctypes.get_errno(), "pidfd_getfd")
            with socket.socket(fileno=fd) as s:
                if s.family == socket.AF_UNIX and s.type == socket.SOCK_SEQPACKET:
                    s.shutdown(socket.SHUT_RDWR)
                    cut += 1
    finally:
        os.close(pidfd)
    return cut


# ---- a world with a fault in it ----

def brief(p):
    """Returns the program's state in a few lines, for the report."""
    return f"--- {p.pid} {p.name}: {p.process.poll()}\n" + "\n".join([*p.out().splitlines()[-1:], *p.err().splitlines()[-4:], ""])


class FaultWorld(World):
    def __init__(self, **env):
        super().__init__(memory=MEMORY)
        self.over = 0  # successive looks that showed a charge above the capacity
        self.returning = False  # True: clients may return to a daemon that does not know them
        self.env.update({"SUBLET_REQUIRE": "1", **env})

    def daemon_up(self, point=None):
        self.returning = self.daemon is not None
        if not point:
            return self.start_daemon(config=CONFIG)
        # The daemon may reach its point before it answers an order, so do not wait until it answers.
        return self.start_daemon(config=CONFIG, wait=False, binary="subletd-test", SUBLET_KILL_POINT=point)

    def fill(self, seed, size, fail=None, pause_ms=2):
        return self.program("fill", "--bytes", size, "--block", BLOCK, "--seed", seed, "--until", self.path("end"),
                            "--ms", str(pause_ms), SIMCUDA_FAIL=fail)

    def look(self):
        """Returns the daemon's view of the card. The charges never exceed the capacity, except just after the return of
        a client that the daemon had counted as foreign."""
        gpus = order(self.dir, order="status").get("gpus")
        if not gpus:
            return None
        gpu = gpus[0]
        self.over = self.over + 1 if gpu["charged"] > gpu["capacity"] - gpu["headroom"] else 0
        assert self.over < (OVER_MOST if self.returning else 1), json.dumps(gpu)
        assert gpu["charged"] >= sum(c["backed"] for c in gpu["clients"]), json.dumps(gpu)
        return gpu

    def looked(self):
        try:
            return self.look()
        except OSError:
            return None  # no daemon runs at the moment

    def go_on(self, programs, rounds=2):
        """Waits until each of the programs has done that many more rounds."""
        goal = {p: len(p.events("round")) + rounds for p in programs}

        def done():
            for p in programs:
                assert p.running(), f"{p.pid} ended early"
            self.looked()
            return all(len(p.events("round")) >= n for p, n in goal.items())

        try:
            wait_for(done, PATIENCE, f"{rounds} more rounds")
        except AssertionError as e:
            late = [p.pid for p, n in goal.items() if len(p.events("round")) < n]
            raise AssertionError(f"{e} of {late}\n{self.status_text()}") from e

    def end(self, programs):
        """Checks that the programs end well with the right bytes, and leave nothing on the card, in the ledger or on
        the host."""
        with open(self.path("end"), "w", encoding="utf-8"):
            pass
        for p in programs:
            p.ok(PATIENCE)
            self.check_sums(p)
        wait_for(lambda: self.card()["used"] == 0, PATIENCE, f"the card to be empty: {self.card()}")

        def forgotten():
            status = order(self.dir, order="status")
            gpu = status["gpus"][0]
            return (not gpu["clients"] and gpu["charged"] == gpu["unevictable"] == gpu["committed"] == 0
                    and gpu["foreign"] == 0 and status["host_memory"]["committed"] == 0)

        wait_for(forgotten, PATIENCE, f"the daemon to forget everybody: {self.status()}")
        assert self.sublet("stop").returncode == 0
        assert self.daemon.wait(PATIENCE) == 0, self.daemon.report()


def await_stop(world, p):
    def stopped():
        assert p.running(), "ended instead of stopping\n" + p.report()
        return is_stopped(p.pid)

    wait_for(stopped, PATIENCE, f"{p.name} ({p.pid}) to come to its point\n{world.status_text() if p is not world.daemon else ''}")


def await_kill(p):
    assert p.wait(PATIENCE) == -signal.SIGKILL, p.report()


class Scenario:
    """The scenario of a seed. run() raises an exception if a check fails."""

    def __init__(self, seed):
        self.seed = seed
        r = self.random = random.Random(seed)
        self.choose_client_point()
        self.daemon_point, n = r.choice(daemon_points())
        self.daemon_point += f":{r.randint(1, n)}"
        self.pause = r.choice([0, 0, 0.05, 0.3])
        self.second = r.random() < 0.5  # the victim is the second of the two large programs
        self.kind = KINDS[seed % len(KINDS)]

    def choose_client_point(self):
        name, n = self.random.choice(client_points())
        self.client_point = f"{name}:{self.random.randint(1, n)}"

    def __str__(self):
        return (f"seed {self.seed}: {self.kind.__name__}, client at {self.client_point}, daemon at {self.daemon_point}, "
                f"victim is the {'second' if self.second else 'first'}, pause {self.pause} s")

    def start(self, world, fail=None):
        """Returns the victim and the other programs."""
        a = world.fill("1", LARGE, None if self.second else fail)
        b = world.fill("2", LARGE, fail if self.second else None)
        c = world.fill("3", SMALL, pause_ms=120)  # a pause long enough to count as idle
        return (b, [a, c]) if self.second else (a, [b, c])

    def run(self):
        world = FaultWorld()
        try:
            self.kind(self, world)
        except Exception as e:
            raise AssertionError(f"{self}\nalone: FAULT_SEED={self.seed} python3 -m pytest tests/system/test_faults.py\n{e}\n"
                                 + "".join(brief(p) for p in world.programs)) from e
        finally:
            world.close()

    # -- the kinds --

    def client_killed(self, world):
        world.daemon_up()
        victim, others = self.start(world, self.client_point + ":kill")
        await_kill(victim)
        world.go_on(others)
        world.end(others)

    def client_stopped(self, world):
        """The client is stopped for so long that others take it for dead; then the client goes on."""
        world.daemon_up()
        victim, others = self.start(world, self.client_point + ":stop")
        await_stop(world, victim)
        world.go_on(others[-1:])  # the small program fits in any case
        time.sleep(self.pause)
        victim.send(signal.SIGCONT)
        world.go_on([victim, *others])
        world.end([victim, *others])

    def client_stopped_and_killed(self, world):
        world.daemon_up()
        victim, others = self.start(world, self.client_point + ":stop")
        await_stop(world, victim)
        world.go_on(others[-1:])
        victim.send(signal.SIGKILL)
        await_kill(victim)
        world.go_on(others)
        world.end(others)

    def daemon_killed(self, world):
        daemon = world.daemon_up(self.daemon_point + ":kill")
        victim, others = self.start(world)
        await_kill(daemon)
        time.sleep(self.pause)
        world.daemon_up()
        world.go_on([victim, *others])
        world.end([victim, *others])

    def daemon_killed_again(self, world):
        """The second daemon dies while the clients of the first come back."""
        daemon = world.daemon_up(self.daemon_point + ":kill")
        victim, others = self.start(world)
        await_kill(daemon)
        point = self.random.choice(["grace:1", "grace:4", "attaching:1", "attaching:3", "handled.ATTACH:2", "sent.LIMIT:1"])
        await_kill(world.daemon_up(point + ":kill"))
        time.sleep(self.pause)
        world.daemon_up()
        world.go_on([victim, *others])
        world.end([victim, *others])

    def daemon_stopped(self, world):
        daemon = world.daemon_up(self.daemon_point + ":stop")
        victim, others = self.start(world)
        await_stop(world, daemon)
        time.sleep(self.pause)
        daemon.send(signal.SIGCONT)
        world.go_on([victim, *others])
        world.end([victim, *others])

    def client_killed_while_the_daemon_is_gone(self, world):
        daemon = world.daemon_up()
        victim, others = self.start(world, self.client_point + ":stop")
        await_stop(world, victim)
        daemon.send(signal.SIGKILL)
        daemon.wait()
        victim.send(signal.SIGKILL)
        await_kill(victim)
        time.sleep(self.pause)
        world.daemon_up()
        world.go_on(others)
        world.end(others)

    def daemon_restarted_under_a_stopped_client(self, world):
        daemon = world.daemon_up()
        victim, others = self.start(world, self.client_point + ":stop")
        await_stop(world, victim)
        daemon.send(signal.SIGKILL)
        daemon.wait()
        time.sleep(self.pause)
        world.daemon_up()
        time.sleep(self.random.choice([0, 0.5, 2.2]))  # before, in and after the time that clients have to come back
        victim.send(signal.SIGCONT)
        world.go_on([victim, *others])
        world.end([victim, *others])

    def connection_lost(self, world):
        world.daemon_up()
        victim, others = self.start(world, self.client_point + ":stop")
        await_stop(world, victim)
        cut_connection(victim.pid)  # cuts nothing if the victim had not connected yet
        time.sleep(self.pause)
        victim.send(signal.SIGCONT)
        world.go_on([victim, *others])
        world.end([victim, *others])

    def client_and_daemon_killed(self, world):
        """The daemon is killed at a point that the client's death causes."""
        point = self.random.choice(["lost:1", "gone:1"])
        while self.client_point.startswith(_UNKNOWN):
            self.choose_client_point()
        daemon = world.daemon_up(point + ":kill")
        victim, others = self.start(world, self.client_point + ":kill")
        await_kill(victim)
        await_kill(daemon)
        time.sleep(self.pause)
        world.daemon_up()
        world.go_on(others)
        world.end(others)


KINDS = [Scenario.client_killed, Scenario.daemon_killed, Scenario.client_stopped, Scenario.connection_lost,
         Scenario.daemon_killed_again, Scenario.client_killed, Scenario.daemon_killed, Scenario.daemon_stopped,
         Scenario.client_killed_while_the_daemon_is_gone, Scenario.client_stopped_and_killed,
         Scenario.daemon_restarted_under_a_stopped_client, Scenario.client_and_daemon_killed]
