"""The host pool among hostile clients: what they do to their memory counts for them and their tenant, and harms nobody
else. The clients here speak the protocol themselves."""

import contextlib
import fcntl
import mmap
import os
import socket
import subprocess
import sys
import time

import pytest

from hostile import attach, connect, hello
from test_daemon import CARD, daemon, place, wait_for  # noqa: F401
from wireclient import GIB, MIB, decode, encode
from world import SANITIZER

BOUND = 64 * MIB
HUGE = (1 << 64) - 1


class Borrower:
    """This process as a client with a host pool. Each instance is a new connection of the same process."""

    def __init__(self, place):  # noqa: F811
        self.socket = connect(place)
        self.socket.settimeout(60)
        self.fd = None
        self.said = []
        self.socket.send(hello())
        self.socket.send(attach())
        self.expect("HOST_POOL")

    def expect(self, kind):
        while True:
            packet, fds, _, _ = socket.recv_fds(self.socket, 4096, 8)
            if not packet:
                return None
            message = decode(packet)
            self.said.append(message["type"])
            for fd in fds:
                if message["type"] == "HOST_POOL":
                    self.fd = fd
                else:
                    os.close(fd)  # the daemon's hand
            if message["type"] == kind:
                return message

    def fill(self, end, kept=0):
        """Asks, and returns the last answer."""
        self.socket.send(encode("FILL", end=end, kept=kept))
        while True:
            answer = self.expect("FILLED")
            if not answer or answer["refused"] or answer["filled"] >= end:
                return answer

    def blocks(self):
        return os.fstat(self.fd).st_blocks * 512

    def close(self):
        self.socket.close()
        with contextlib.suppress(OSError, TypeError):
            os.close(self.fd)


@pytest.fixture
def lending(daemon, tmp_path):  # noqa: F811
    conf = tmp_path / "pool.conf"
    conf.write_text(f"[daemon]\nhost_pool = {BOUND // MIB}MiB\n")
    return daemon(*CARD, "--config", str(conf))


@pytest.fixture
def borrower(lending, place):  # noqa: F811
    made = []

    def make():
        made.append(Borrower(place))
        return made[-1]

    yield make
    for b in made:
        b.close()


def prelude():
    """Returns the beginning of a script that may use the names of this file."""
    return f"import sys; sys.path[:0] = {sys.path!r}\nfrom test_hostile_pool import BOUND, Borrower, encode\n"


def pool(d):
    return d.status()["host_memory"]["pool"]


def test_the_memfd_can_be_neither_shrunk_nor_grown(lending, borrower):
    b = borrower()
    size = os.fstat(b.fd).st_size
    for length in (0, size - 4096, size + 4096):
        with pytest.raises(OSError):
            os.ftruncate(b.fd, length)
    with pytest.raises(OSError):
        os.posix_fallocate(b.fd, size, 4096)
    assert fcntl.fcntl(b.fd, 1034) == 7, "F_GET_SEALS: sealed against shrinking, growing and more seals"


def test_figures_that_cannot_be_end_the_connection(lending, borrower):
    for end, kept in ((HUGE, 0), (0, HUGE), ((1 << 56) + 1, 0)):
        assert borrower().fill(end, kept) is None
    assert lending.process.poll() is None


def test_nobody_gets_more_than_the_bound_however_much_he_asks(lending, borrower):
    b = borrower()
    answer = b.fill(1 << 50)
    assert answer["refused"] and answer["filled"] == BOUND
    assert b.fill(1 << 50)["filled"] == BOUND
    assert pool(lending) == BOUND
    os.posix_fallocate(b.fd, 1 << 40, 16 * MIB)  # it touches memory itself: charged to its own cgroup, and it counts
    assert pool(lending) == BOUND + 16 * MIB
    assert b.fill(1 << 50)["filled"] == BOUND


def test_memory_that_was_given_back_is_zero_and_counts_no_more(lending, borrower):
    b = borrower()
    b.fill(32 * MIB)
    with mmap.mmap(b.fd, 32 * MIB) as m:
        m[:] = b"\x5a" * (32 * MIB)
        assert pool(lending) == 32 * MIB
        m.madvise(9)  # MADV_REMOVE, as the library does
        assert pool(lending) == 0
        assert b.fill(64 * MIB)["filled"] == 64 * MIB, "offsets are not used twice"
        with mmap.mmap(b.fd, 64 * MIB) as whole:
            assert whole[:] == bytes(64 * MIB)


def test_the_next_process_sees_zeros(lending, borrower):
    script = prelude() + """
import mmap
b = Borrower(sys.argv[1])
print(b.fill(BOUND)["filled"], mmap.mmap(b.fd, BOUND)[:].count(0))
"""

    def next_process():
        ended = subprocess.run([sys.executable, "-c", script, str(lending.dir)], stdout=subprocess.PIPE, text=True, check=True)
        return list(map(int, ended.stdout.split()))

    b = borrower()
    b.fill(BOUND)
    with mmap.mmap(b.fd, BOUND) as m:
        m[:] = b"\x5a" * BOUND
        assert next_process() == [0, BOUND], "the bound is one for both; what it touches itself is zero"
        wait_for(lambda: pool(lending) == BOUND, what="the end of that process to be noticed")
        assert m[:].count(0x5A) == BOUND
        m.madvise(9)
    assert next_process() == [BOUND, BOUND]
    wait_for(lambda: pool(lending) == 0, what="the end of that process to be noticed")


def test_a_process_that_connects_again_and_again_has_one_pool(lending, borrower):
    """It holds its old mappings. With goodbyes or without, its memory counts until it ends, and is not touched."""
    first = borrower()
    first.fill(BOUND)
    with mmap.mmap(first.fd, BOUND) as m:
        m[:] = b"\x5a" * BOUND
        ino = os.fstat(first.fd).st_ino
        for i in range(5):
            if i % 2:
                first.socket.send(encode("BYE"))
            first.socket.close()
            if i > 2:
                time.sleep(0.3)
            again = borrower()
            assert os.fstat(again.fd).st_ino == ino
            assert again.fill(BOUND + 2 * MIB)["refused"]
            first.socket = again.socket
        assert pool(lending) == BOUND
        assert m[:].count(0x5A) == BOUND


def test_memory_that_a_child_inherits_is_not_the_daemons(lending):
    """The client dies, and its child keeps the memfd and its mappings: all memory is taken away. What the child touches
    afterwards is charged to the child's cgroup."""
    script = prelude() + """
import mmap, os
b = Borrower(sys.argv[1])
b.fill(BOUND)
m = mmap.mmap(b.fd, BOUND)
m[:] = b"Z" * BOUND
os.pwrite(b.fd, b"x", 1 << 40)
if os.fork() == 0:
    b.socket.close()
    sys.stdin.readline()
    print(m[:].count(0), os.fstat(b.fd).st_blocks, flush=True)
    os._exit(0)
os.kill(os.getpid(), 9)
"""
    p = subprocess.Popen([sys.executable, "-c", script, str(lending.dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert p.wait(60) == -9
    wait_for(lambda: lending.gpu()["clients"] == [] and pool(lending) == 0, what="its memory to be taken away")
    out, _ = p.communicate("go\n", timeout=60)
    zeros, blocks = map(int, out.split())
    assert zeros == BOUND
    assert blocks >= BOUND // 512, "the child's own by then"


@pytest.mark.skipif(SANITIZER is not None, reason="the figures are those of a plain build; in another build they run")
def test_a_flood_of_requests_keeps_nobody_waiting(lending, borrower):
    """A child of this process asks without end and reads nothing; another process gets its memory meanwhile."""
    script = prelude() + """
b = Borrower(sys.argv[1])
print("ready", flush=True)
i = 0
while True:
    i += 1
    try:
        b.socket.send(encode("FILL", end=(i % 1000) << 30, kept=i % 7))
    except OSError:
        b = Borrower(sys.argv[1])
"""
    flood = subprocess.Popen([sys.executable, "-c", script, str(lending.dir)], stdout=subprocess.PIPE, text=True)
    try:
        assert flood.stdout.readline() == "ready\n"
        time.sleep(0.5)
        b = borrower()
        answer = b.fill(2 * MIB)  # fails after a minute without an answer; the flood goes on all the time
        assert answer["filled"] == 2 * MIB or answer["refused"], "they are one tenant"
        assert lending.process.poll() is None
    finally:
        flood.kill()
        flood.wait()
        flood.stdout.close()
    wait_for(lambda: pool(lending) <= 2 * MIB, what="the flood's memory to be taken away")
    assert b.fill(BOUND)["filled"] == BOUND
    assert b.fill(GIB)["refused"]
