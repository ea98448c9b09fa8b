"""Descriptors that take long to close, on a kernel that does not refuse them (before Linux 6.16): their sender delays
no other client."""

import array
import os
import signal
import socket
import struct
import sys
import time

import pytest

import hostile
import old_kernel
import others
from hostile import Bystander, connect
from test_daemon import Client, Daemon, place, wait_for  # noqa: F401
from test_hostile import descriptors
from wireclient import GIB, MIB, encode, uuid

LINGER_S = 60
OTHER_USER = 1002

pytestmark = others.needed


@pytest.fixture
def old(place, tmp_path):  # noqa: F811
    """Returns start(settings): root's daemon for all users, on a kernel from before Linux 6.16."""
    started = []
    os.chmod(place, 0o755)

    def start(settings=""):
        (tmp_path / "conf").write_text("[daemon]\n" + settings)
        d = Daemon(place, "--shared", "--capacity", "1GiB", "--host-memory", "4GiB", "--config", tmp_path / "conf",
                   prefix=(sys.executable, old_kernel.__file__))
        started.append(d)
        return d

    yield start
    for d in started:
        d.end(signal.SIGKILL)


def lingers():
    """Returns a TCP socket whose last close takes LINGER_S, and its other end, which reads nothing."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        near = socket.socket()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        near.connect(listener.getsockname())
        far = listener.accept()[0]
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
    near.setblocking(False)
    try:
        while True:
            near.send(bytes(65536))
    except BlockingIOError:
        return near, far


def send_lingering(s, packet, *to):
    near, far = lingers()
    s.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [near.fileno()]))], 0, *to)
    near.close()  # not the last close: the message holds another copy
    return far


def hostile_ways(place, instance, held):
    """Sends descriptors to every socket that another user can write to. Returns the sockets that must stay open."""
    kept = []

    def sends(*packets, name="client.sock", kind=socket.SOCK_SEQPACKET, end=False):
        s = connect(place, name, kind)
        for packet in packets:
            kept.append(send_lingering(s, packet))
        if end:
            s.close()
        else:
            kept.append(s)

    sends(hostile.hello(), hostile.attach(), encode("USAGE", 0, 1))  # in the middle of a conversation
    sends(b"nonsense", hostile.hello())  # the second packet is unread when the daemon ends the connection
    sends(hostile.hello(), b"", end=True)  # the sender has gone
    sends(*[b""] * 12)  # empty packets look like an end
    sends(b'{"order":"status"}\n', name="status.sock", kind=socket.SOCK_STREAM)
    sends(b'{"order":', b'"status"}', name="status.sock", kind=socket.SOCK_STREAM, end=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        for _ in range(3):
            kept.append(send_lingering(s, bytes(40), "\0sublet-daemon/" + instance))
    for _ in range(held):
        kept.append(connect(place))
    for _ in range(3):
        sends(hostile.hello())  # more connections than a user may have
    return kept


def closer_of_one():
    """Starts a process that is the last to close a socket of lingers()."""
    near, far = lingers()
    go, went = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(went)
        os.read(go, 1)
        near.close()
        os._exit(0)
    near.close()
    os.close(went)
    os.close(go)
    return pid, far


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return f.read().split()


def test_slow_closes_delay_no_other_client(old, place):  # noqa: F811
    d = old("connections_per_user = 8\n")
    bystander = Bystander(place)
    bystander.ask()
    held, instance = descriptors(d.process.pid), d.status()["instance"]
    told, tell = os.pipe()
    os.kill(d.process.pid, signal.SIGSTOP)  # until the sender has closed its own copies
    sender = os.fork()
    if sender == 0:
        try:
            os.setgroups([])
            os.setresgid(OTHER_USER, OTHER_USER, OTHER_USER)
            os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)
            kept = hostile_ways(place, instance, 8)
            os.write(tell, b"x")
            time.sleep(LINGER_S)
            del kept
        finally:
            os._exit(1)
    os.close(tell)
    processes = [sender]
    try:
        assert os.read(told, 1) == b"x", "the sender could not send its descriptors"
        slow, far = closer_of_one()
        processes.append(slow)
        os.kill(d.process.pid, signal.SIGCONT)
        bystander.ask_for(0.3)
        assert d.status()["mode"] == "auto"
        Bystander(place).close()  # a new client
        assert bystander.reconnected == 0
        wait_for(lambda: not children(d.process.pid), LINGER_S / 2, "the children that closed the descriptors to end")
        assert os.waitpid(slow, os.WNOHANG)[0] == 0, "a close takes no time here, so nothing has been shown"
        far.close()
    finally:
        os.close(told)
        for process in processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    wait_for(lambda: descriptors(d.process.pid) <= held, what="descriptors to be closed")
    assert d.process.poll() is None
    bystander.close()


def test_a_client_that_may_not_hand_memory_over_is_told(old, place):  # noqa: F811
    """The refusal keeps the client from trying again. Otherwise the client would report bytes as free and hand them
    over, and the daemon would close the descriptors."""
    d = old()
    c = Client(place, "other user", prefix=others.as_user(OTHER_USER))
    try:
        c.connect()
        c.hello()
        c.send("ATTACH", 0, total_bytes=GIB, uuid=uuid(0))
        c.expect("LIMIT")
        sequence = c.send("USAGE", 0, limit_sequence=1, pass_bytes=2 * MIB)
        c.send("WHO")
        answer = c.expect("REFUSED", "HOLDER")
        assert (answer["type"], answer.get("code"), answer.get("of")) == ("REFUSED", 9, sequence)
        assert len(d.gpu()["clients"]) == 1
    finally:
        c.end()
