"""Two daemons on one card, neither of which can ask the other's clients for anything."""

import os
import signal
import subprocess
import sys

import pytest

from test_daemon import Daemon, client, place  # noqa: F401
from wireclient import MIB, obey_until, uuid
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
    other = hold(world, directory, seed + "9", mib=104)
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


# ---- another daemon ends ----

BORROWER = """
import os, socket, struct, sys, time
name, uuid, size = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("\\0sublet-daemon/" + sys.argv[4])
s.settimeout(0.2)
since = time.monotonic_ns()
while True:
    s.sendto(struct.pack("<4sHH16sQQ", b"SBLN", 2, 1, uuid, size, since), "\\0" + name)
    try:
        if struct.unpack("<4sHH16sQQ", s.recv(100))[2] == 3:
            os.kill(os.getpid(), 9)
    except TimeoutError:
        pass
"""


class Borrower:
    """A daemon that asks for memory, and is killed when it is left some. The names are the whole machine's."""

    def __init__(self, lender, size):
        self.process = subprocess.Popen([sys.executable, "-c", BORROWER, "sublet-daemon/" + lender.status()["instance"], uuid(0).hex(),
                                         str(size), os.urandom(8).hex()])

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize("when", ["it waits", "it was left what it asked for"])
def test_what_is_lent_ends_with_the_daemon_that_borrowed_it(place, client, tmp_path, when):  # noqa: F811
    """It is killed. The lender's client is asked for nothing on its behalf any more, and another daemon of the same user is
    listened to at once."""
    log = tmp_path / "log"
    d = Daemon(place, "--capacity", "1GiB", "--host-memory", "4GiB", prefix=("bash", "-c", f'exec "$0" "$@" 2>{log}'))
    borrowers = []
    try:
        c = client().start()
        c.allocate(700 * MIB)
        obey_until([c], lambda: c.lease)
        if when != "it waits":
            c.send("IDLE", lease=c.lease)
        borrowers.append(Borrower(d, 600 * MIB))

        def asked(times):
            return log.read_text().count("asks for 600 MiB") == times

        wait_for(lambda: asked(1), 60, "it to be heard")
        if when != "it waits":
            obey_until([c], lambda: c.backed < 500 * MIB)
            borrowers[0].process.wait()
        borrowers[0].end()
        wait_for(lambda: "'s daemon " in log.read_text(), 60, "the end of the loan")
        assert "is gone" in log.read_text(), log.read_text()
        assert "did not take" not in log.read_text() and "nothing any more" not in log.read_text()
        if when != "it waits":
            obey_until([c], lambda: c.lease and c.backed == 700 * MIB)
        borrowers.append(Borrower(d, 600 * MIB))
        wait_for(lambda: asked(2), 60, "the next one to be heard")
    finally:
        for b in borrowers:
            b.end()
        d.end(signal.SIGKILL)
