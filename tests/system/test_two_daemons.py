"""Two daemons on one card: idle programs give way to programs that wait under the other daemon, busy programs do
not."""

import os
import signal
import socket
import struct
import subprocess
import time

import pytest

from test_daemon import Daemon, client, place  # noqa: F401
from wireclient import MIB, obey_until, uuid
from world import BUILD, wait_for

GRACE = "600ms"


@pytest.fixture
def slow(make_world):
    """A card with a slow bus: a restore of 80 MiB takes most of a second, so that two restores overlap."""
    return make_world(bus="120MB/s")


def hold(world, directory, seed, mib=80):
    p = world.program("hold", "--bytes", f"{mib}MiB", "--block", "4MiB", "--seed", seed, stdin=subprocess.PIPE, SUBLET_DIR=directory)
    p.await_event("filled")
    return p


def evicted(world, directory, seed):
    """Returns a program whose memory was almost all evicted for another program that has ended."""
    p = hold(world, directory, seed)
    other = hold(world, directory, seed + "9", mib=98)
    other.finish()
    return p


def is_waiting(pid):
    """True if the process's first thread waits at the gate."""
    with open(f"/proc/{pid}/syscall", encoding="ascii") as f:
        return f.read().startswith("202 ")  # futex


def tell(p, line):
    p.process.stdin.write((line + "\n").encode())
    p.process.stdin.flush()


def test_two_half_restored_clients_do_not_wait_for_each_other_for_ever(slow):
    """Both are restored in the same moment: each gets bytes that the other would need, and one of them gives its bytes
    back."""
    config = {"grace": GRACE, "quantum": "200ms"}
    slow.start_daemon(config=config)
    first = slow.daemon
    elsewhere = slow.path("e")
    os.mkdir(elsewhere, 0o700)
    second = slow.start([os.path.join(BUILD, "subletd"), "--dir", elsewhere, "--config", slow.path("subletd.conf")])
    wait_for(lambda: os.path.exists(os.path.join(elsewhere, "client.sock")), 20, "the second daemon")
    programs = [evicted(slow, d, seed) for d, seed in ((slow.dir, "1"), (elsewhere, "2"))]
    for d in (first, second):
        d.send(signal.SIGSTOP)  # so that both daemons get the message in the same moment
    for p in programs:
        tell(p, "touch")
        wait_for(lambda p=p: is_waiting(p.pid), 20, "the program to ask")
    for d in (first, second):
        d.send(signal.SIGCONT)
    ready = wait_for(lambda: [p for p in programs if p.events("done")], 60, "one of them to have all of its memory")
    for p in sorted(programs, key=lambda p: p not in ready):
        wait_for(lambda p=p: p.events("done"), 60, "its turn")
        p.finish()
        slow.check_sums(p)
    assert first.running() and second.running()


# ---- the effect of another daemon's message ----


def say(d, mib, seconds):
    """Sends messages for that many seconds: a program of this user waits for that many MiB."""
    end = time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        while time.monotonic() < end:
            s.sendto(struct.pack("<4sI16sQ", b"SBLN", 1, uuid(0), mib * MIB), "\0sublet-daemon/" + d.status()["instance"])
            yield
            time.sleep(0.05)


@pytest.mark.parametrize("busy", [False, True])
def test_an_idle_holder_gives_way_and_a_busy_one_does_not(place, client, busy):  # noqa: F811
    d = Daemon(place, "--capacity", "1GiB", "--host-memory", "4GiB")
    try:
        c = client().start()
        c.allocate(700 * MIB)
        obey_until([c], lambda: c.lease)
        if not busy:
            c.send("IDLE", lease=c.lease)
            c.wants_run = False
        least = 700 * MIB
        for _ in say(d, 600, 5 if busy else 60):
            while c.obey():
                least = min(least, c.backed)
            if least < 700 * MIB:
                break
        assert least == (700 if busy else 100) * MIB
        assert c.lease or not busy
    finally:
        d.end(signal.SIGKILL)
