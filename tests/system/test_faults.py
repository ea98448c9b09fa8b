"""Faults at seeded points: clients and daemons are killed and stopped at arbitrary moments (faults.py explains the
seeds). FAULT_SEEDS=500 runs more seeds, FAULT_SEED=17 only one."""

import contextlib
import os
import signal
import socket
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from campaign import LONG
from faults import FaultWorld, Scenario
from wireclient import MAGIC, encode, order
from world import wait_for

AT_ONCE = min(8, 2 * os.cpu_count())  # more than the processors, because a scenario mostly waits
SEEDS = ([int(os.environ["FAULT_SEED"])] if os.environ.get("FAULT_SEED") else
         list(range(int(os.environ.get("FAULT_SEEDS", "60" if LONG else "36")))))  # 36: three of each kind


@pytest.fixture(scope="module")
def scenarios(request):
    """Runs all requested scenarios, several at a time, from the first test on."""
    seeds = [item.callspec.params["seed"] for item in request.session.items
             if item.name.startswith("test_survivors_of_a_seeded_fault_go_on[")]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {seed: pool.submit(Scenario(seed).run) for seed in seeds}


# All these tests run on one worker, because a worker that has any of them runs all scenarios.
@pytest.mark.xdist_group("matrix")
@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed{seed}")
def test_survivors_of_a_seeded_fault_go_on(scenarios, seed):
    scenarios[seed].result()


class OtherRelease:
    """A daemon of another version of the protocol: it refuses every HELLO."""

    def __init__(self, directory):
        path = os.path.join(directory, "client.sock")
        if os.path.exists(path):
            os.unlink(path)
        self.stop = threading.Event()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(path)
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
        self.socket.listen(16)
        self.socket.settimeout(0.1)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while not self.stop.is_set():
            try:
                connection, _ = self.socket.accept()
            except socket.timeout:
                continue
            with connection, contextlib.suppress(OSError):  # a refused client connects again
                connection.settimeout(10)
                connection.recv(4096)
                connection.send(encode("REFUSED", sequence=1, magic=MAGIC, code=1, protocol=99, text="use one release of both"))

    def close(self):
        self.stop.set()
        self.thread.join()
        self.socket.close()


@contextlib.contextmanager
def replaced_by_another_release(world, programs, when, what, told):
    """Kills the daemon when the condition holds, and starts a daemon of another release in its place. That daemon
    refuses the programs."""
    wait_for(when, 60, what)
    world.daemon.send(signal.SIGKILL)
    world.daemon.wait()
    other = OtherRelease(world.dir)
    try:
        for p in programs:
            wait_for(lambda p=p: "one release of both; this program " + told in p.err(), 60, "the refusal")
        yield
    finally:
        other.close()


def clients(world):
    return (world.looked() or {}).get("clients", [])


def in_the_middle(world):
    """True in the middle of a hand-off between the two programs."""
    found = clients(world)
    return len(found) == 2 and all(c["evicted"] for c in found)


def rounds(programs):
    return sum(len(p.events("round")) for p in programs)


@pytest.fixture
def faults():
    """Makes worlds with a daemon. A slow SIMCUDA_BUS makes a hand-off long enough for a test to act in its middle."""
    with contextlib.ExitStack() as made:
        def make(**env):
            world = FaultWorld(**env)
            made.callback(world.close)
            world.daemon_up()
            return world
        yield make


def end_well(world, programs):
    open(world.path("end"), "w", encoding="utf-8").close()
    for p in programs:
        p.ok(60)
        world.check_sums(p)


def test_the_daemon_is_replaced_by_another_release_under_evicted_memory(faults):
    """Running programs go on. Waiting programs get their evicted memory back before they run, as soon as the card has
    room."""
    world = faults(SUBLET_REQUIRE="0")
    programs = [world.fill(seed, "16MiB") for seed in ("1", "2")]
    for p in programs:
        p.await_event("round")
    wait_for(lambda: world.look()["handoffs"] >= 3, 60, "three hand-offs")
    assert order(world.dir, order="set", quantum="60s") == {"value": "60s"}
    with replaced_by_another_release(world, programs, lambda: any(
            c["state"] == "running" and c["since_s"] > 1 for c in clients(world)), "a long turn", "runs without sharing"):
        end_well(world, programs)


def test_another_release_in_the_middle_of_a_hand_off_lets_both_programs_end(faults):
    """The card has no room for all memory of both programs, so one of them gives way."""
    world = faults(SUBLET_REQUIRE="0", SIMCUDA_BUS="40MB/s")
    programs = [world.fill(seed, "24MiB") for seed in ("1", "2")]
    for p in programs:  # without a daemon, a program that still allocates finds the card full
        p.await_event("round")
    with replaced_by_another_release(world, programs, lambda: in_the_middle(world), "a hand-off", "runs without sharing"):
        before = rounds(programs)
        wait_for(lambda: rounds(programs) > before + 1, 60, "one of the two to run")
        end_well(world, programs)


def test_a_program_that_requires_a_daemon_waits_for_its_own_release(faults):
    world = faults(SIMCUDA_BUS="40MB/s")
    programs = [world.fill(seed, "24MiB") for seed in ("1", "2")]
    with replaced_by_another_release(world, programs, lambda: in_the_middle(world), "a hand-off", "waits for a daemon of its own release"):
        pass
    world.daemon_up()
    world.go_on(programs)
    assert all(p.err().count("waits for a daemon of its own release") == 1 for p in programs)
    world.end(programs)
