"""Descriptors that take long to close, on a kernel that does not refuse them (before Linux 6.16): no other client waits
because of their sender."""

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
STRANGER = 1002

pytestmark = others.needed


@pytest.fixture
def old(place, tmp_path):  # noqa: F811
    """start(settings): root's daemon for all users, on a kernel from before Linux 6.16."""
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
    """A TCP socket whose last close takes LINGER_S, and its other end, which reads nothing."""
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
    near.close()  # not the last one: another is on its way
    return far


def hostile_ways(place, instance, held):
    """Sends descriptors to every socket that a foreign user can write to. Returns the sockets that have to stay open."""
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
    sends(b"nonsense", hostile.hello())  # unread when the connection is ended
    sends(hostile.hello(), b"", end=True)  # whose sender has gone
    sends(*[b""] * 12)  # empty packets, which look like an end
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
    """A process that is the last to close such a socket."""
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
    quiet = Bystander(place)
    quiet.ask()
    held, instance = descriptors(d.process.pid), d.status()["instance"]
    told, tell = os.pipe()
    os.kill(d.process.pid, signal.SIGSTOP)  # until the sender has closed its own copy: then the daemon's is the last
    stranger = os.fork()
    if stranger == 0:
        try:
            os.setgroups([])
            os.setresgid(STRANGER, STRANGER, STRANGER)
            os.setresuid(STRANGER, STRANGER, STRANGER)
            kept = hostile_ways(place, instance, 8)
            os.write(tell, b"x")
            time.sleep(LINGER_S)
            del kept
        finally:
            os._exit(1)
    os.close(tell)
    processes = [stranger]
    try:
        assert os.read(told, 1) == b"x", "it could not send them"
        slow, far = closer_of_one()
        processes.append(slow)
        os.kill(d.process.pid, signal.SIGCONT)
        quiet.ask_for(0.3)
        assert d.status()["mode"] == "auto"
        Bystander(place).close()  # who comes anew
        assert quiet.reconnected == 0
        wait_for(lambda: not children(d.process.pid), LINGER_S / 2, "those who closed them to end")
        assert os.waitpid(slow, os.WNOHANG)[0] == 0, "to close one takes no time, so nothing has been shown"
        far.close()
    finally:
        os.close(told)
        for process in processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    wait_for(lambda: descriptors(d.process.pid) <= held, what="descriptors to be closed")
    assert d.process.poll() is None
    quiet.close()


def test_who_may_not_pass_memory_on_is_told(old, place):  # noqa: F811
    """The refusal stops the client from trying again: the daemon would close descriptors that arrive after the bytes are
    reported free."""
    d = old()
    c = Client(place, "stranger", prefix=others.as_user(STRANGER))
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
