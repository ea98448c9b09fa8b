"""Two daemons on one card, neither of which can ask the other's clients for anything."""

import os
import signal
import subprocess

import pytest

from world import BUILD, wait_for

GRACE = "600ms"


@pytest.fixture
def slow(make_world):
    """A restore of 80 MiB takes most of a second: two of them meet."""
    return make_world(bus="120MB/s")


def hold(world, directory, seed, mib=80):
    p = world.program("hold", "--bytes", f"{mib}MiB", "--block", "4MiB", "--seed", seed, stdin=subprocess.PIPE, SUBLET_DIR=directory)
    p.await_event("filled")
    return p


def evicted(world, directory, seed):
    """A program whose memory has all but gone to the host for somebody who has left."""
    p = hold(world, directory, seed)
    other = hold(world, directory, seed + "9", mib=112)
    other.finish()
    return p


def is_waiting(pid):
    """Its first thread stands at the gate."""
    with open(f"/proc/{pid}/syscall", encoding="ascii") as f:
        return f.read().startswith("202 ")  # futex


def tell(p, line):
    p.process.stdin.write((line + "\n").encode())
    p.process.stdin.flush()


def test_two_half_restored_clients_do_not_wait_for_each_other_for_ever(slow):
    """Both come back in the same moment: each gets what the other would need, and one gives it back."""
    config = {"grace": GRACE, "quantum": "200ms"}
    slow.start_daemon(config=config)
    first = slow.daemon
    elsewhere = slow.path("e")
    os.mkdir(elsewhere, 0o700)
    second = slow.start([os.path.join(BUILD, "subletd"), "--dir", elsewhere, "--config", slow.path("subletd.conf")])
    wait_for(lambda: os.path.exists(os.path.join(elsewhere, "client.sock")), 20, "the second daemon")
    programs = [evicted(slow, d, seed) for d, seed in ((slow.dir, "1"), (elsewhere, "2"))]
    for d in (first, second):
        d.send(signal.SIGSTOP)  # so that they hear of it in the same moment
    for p in programs:
        tell(p, "touch")
        wait_for(lambda p=p: is_waiting(p.pid), 20, "it to ask")
    for d in (first, second):
        d.send(signal.SIGCONT)
    ready = wait_for(lambda: [p for p in programs if p.events("done")], 60, "one of them to have all of its memory")
    for p in sorted(programs, key=lambda p: p not in ready):
        wait_for(lambda p=p: p.events("done"), 60, "its turn")
        p.finish()
        slow.check_sums(p)
    assert first.running() and second.running()
