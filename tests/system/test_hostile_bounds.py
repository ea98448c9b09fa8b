"""Limits on the harm that a client can do to others: ends of processes, shares of users, the daemon's time."""

import array
import os
import signal
import socket
import time

import pytest

import hostile
import others
from hostile import Crowd, connect
from test_daemon import CARD, Daemon, client, daemon, place, wait_for  # noqa: F401
from wireclient import GENEROUS_S, MIB, RUN, Client, encode, obey_until
from world import OLD_KERNEL


# ---- ends ----


def test_the_end_of_a_process_is_seen_while_others_keep_connecting(daemon, client, place):  # noqa: F811
    """The victim's connection has ended first. Hostile clients connect as fast as they can, so that the daemon is
    always busy."""
    d = daemon(*CARD)
    c = client("victim").start()
    c.allocate(64 * MIB)
    obey_until([c], lambda: c.lease)
    c.disconnect()
    wait_for(lambda: "lost" in d.client(c.process.pid)["flags"], what="the loss of its connection")
    crowd = Crowd(place, 3, 2 * GENEROUS_S, 1, [hostile.knocks])  # knocks for longer than the test waits for the end
    try:
        time.sleep(0.5)  # until many have connected
        c.kill()
        wait_for(lambda: not d.gpu()["clients"], what="its end to be seen")
        assert d.gpu()["charged"] == 0
    finally:
        crowd.end()


def run_to_its_end(body):
    """Runs body() in another process, which never returns into the test. Returns the process's exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def attached(place, name):
    s = connect(place)
    s.settimeout(GENEROUS_S)
    s.send(hostile.hello(name=name))
    s.send(hostile.attach())
    while s.recv(4096)[0] != 14:  # LIMIT
        pass
    return s


def test_the_last_messages_of_a_process_are_handled(daemon, place):  # noqa: F811
    """The daemon handles the last messages of a process, and does not listen for ever to a child that goes on
    sending."""
    d = daemon(*CARD)

    def speak_and_end():
        s = attached(place, "short")
        os.kill(d.process.pid, signal.SIGSTOP)
        for _ in range(40):  # more messages than the daemon reads at a time
            s.send(encode("IDLE", lease=0))
        s.send(encode("BYE"))

    assert run_to_its_end(speak_and_end) == 0
    os.kill(d.process.pid, signal.SIGCONT)
    wait_for(lambda: not d.gpu()["clients"], what="its end")

    def leave_a_child_that_talks():
        s = attached(place, "parent")
        if os.fork() == 0:
            s.setblocking(False)
            while True:  # until the daemon ends the connection
                try:
                    s.send(encode("IDLE", lease=0))
                except BlockingIOError:
                    pass
                except OSError:
                    os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    assert run_to_its_end(leave_a_child_that_talks) == signal.SIGKILL
    wait_for(lambda: not d.gpu()["clients"], what="the end of the process whose child sends on")
    _, errors = d.end()
    assert "(short) has left" in errors


# ---- shares ----


@pytest.fixture
def shared(place):  # noqa: F811
    """Returns start(options...): root's daemon for all users, of a card of 1 GiB; and bob(name): a client of another
    user."""
    ended = []
    os.chmod(place, 0o755)

    def start(*options):
        d = Daemon(place, "--shared", "--capacity", "1GiB", *options)
        ended.append(lambda: d.end(signal.SIGKILL))
        return d

    def bob(name):
        c = Client(place, name, prefix=others.as_user(1001))
        ended.append(c.end)
        return c

    yield start, bob
    for end in reversed(ended):
        end()


def ask_in_turn(askers, **what):
    """Makes sure that each request arrives before the next one is sent, whether or not the daemon has answered it."""
    for c in askers:
        c.send("REQUEST", 0, **what)
        c.send("WHO")
        c.expect("HOLDER")


@others.needed
def test_waiting_requests_count_toward_the_users_share(shared, client):  # noqa: F811
    """A user's contexts get a quarter of a card, even if three clients ask for that much before the first one has
    it."""
    start, bob = shared
    d = start("--host-memory", "4GiB")
    holders = [client(f"holder {i}").start() for i in range(5)]
    for c in holders:
        c.allocate(190 * MIB)
    obey_until(holders, lambda: all(c.lease for c in holders))
    askers = [bob(f"asker {i}").start() for i in range(3)]
    ask_in_turn(askers, unevictable=250 * MIB)
    assert ["REFUSED" in [m["type"] for m in c.seen] for c in askers] == [False, True, True]
    for c in holders:
        c.end()
    wait_for(lambda: d.client(askers[0].process.pid)["unevictable"] == 250 * MIB, what="the first to have it")
    assert sum(d.client(c.process.pid)["unevictable"] for c in askers) == 250 * MIB


@others.needed
def test_exported_and_unevictable_bytes_have_one_limit(shared):
    start, bob = shared
    d = start("--host-memory", "4GiB")
    c = bob("both").start()
    c.allocate(200 * MIB)
    obey_until([c], lambda: c.lease and c.backed == 200 * MIB)
    c.send("EXPORT", 0, bytes=200 * MIB)
    c.expect("EXPORTED")
    sequence = c.send("REQUEST", 0, unevictable=200 * MIB, need=c.allocated, flags=RUN)
    assert c.expect("REFUSED")["of"] == sequence
    assert d.client(c.process.pid)["unevictable"] == 200 * MIB


@others.needed
def test_a_refusal_names_the_request_beyond_the_users_share(shared):
    """A program waits for the answer to each of its requests; its connection stays."""
    start, bob = shared
    d = start("--host-memory", "2GiB")
    c = bob("one").start()
    c.allocate(400 * MIB)
    obey_until([c], lambda: c.lease and c.backed == 400 * MIB)
    for name, code, fields in (("EXPORT", 7, {"bytes": 300 * MIB}), ("REQUEST", 3, {"unevictable": 300 * MIB, "need": 400 * MIB}),
                               ("REQUEST", 2, {"commit": 1 << 40, "need": 400 * MIB})):
        sequence = c.send(name, 0, **fields)
        answer = c.expect("REFUSED")
        assert (answer["code"], answer["of"], answer["gpu"]) == (code, sequence, 0), name
        assert answer["text"]
    sequence = c.send("HOST", held=0, wanted=1900 * MIB)
    answer = c.expect("HOST_LIMIT")
    assert (answer["bytes"], answer["of"]) == (0, sequence)
    assert d.client(c.process.pid)["unevictable"] == 0


@others.needed
def test_requests_after_a_restart_count_toward_the_users_share(shared, place):  # noqa: F811
    """The daemon answers once all clients are back. A user may commit the card's 1 GiB and half of the host's 2 GiB."""
    with open(f"{place}/running", "w", encoding="ascii"):
        pass
    start, bob = shared
    start("--host-memory", "2GiB")
    askers = [bob(f"asker {i}").connect() for i in range(3)]
    for c in askers:
        c.hello()
        c.attach(wait=False)
    ask_in_turn(askers, commit=700 * MIB)
    assert ["REFUSED" in [m["type"] for m in c.seen] for c in askers] == [False, False, True]
    obey_until(askers, lambda: askers[0].limit["commit"] == askers[1].limit["commit"] == 700 * MIB)


@others.needed
def test_mapped_host_memory_and_commits_have_one_limit(shared):
    start, bob = shared
    start("--host-memory", "2GiB")
    askers = [bob(f"asker {i}").start() for i in range(2)]
    for c in askers:
        assert c.ask(700 * MIB)
    askers[0].send("HOST", wanted=900 * MIB)
    assert askers[0].expect("HOST_LIMIT")["bytes"] == 0
    askers[0].send("HOST", wanted=256 * MIB)
    assert askers[0].expect("HOST_LIMIT")["bytes"] == 256 * MIB


# ---- the daemon's time ----


def as_user(uid, body):
    """Runs body() in a process of this user. Returns its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            body()
        finally:
            os._exit(1)
    return pid


def fill_when_told(place, go, tell):
    """A client that fills its socket when the pipe `go` ends, and never reads."""
    with attached(place, "flooder") as s:
        os.write(tell, b"a")
        os.read(go, 1)
        s.setblocking(False)
        try:
            while True:
                s.send(encode("IDLE", lease=0))
        except BlockingIOError:
            os.write(tell, b"f")
        signal.pause()


def come_anew(place, tell):
    """A new client that sends at once all messages up to its first LIMIT."""
    with connect(place) as s:
        s.settimeout(GENEROUS_S)
        s.send(hostile.hello(name="newcomer"))
        s.send(hostile.attach())
        os.write(tell, b"s")
        while s.recv(4096)[0] != 14:  # LIMIT
            pass
        os.write(tell, b"l")
        signal.pause()


def read_exactly(fd, count):
    data = b""
    while len(data) < count:
        data += os.read(fd, count - len(data))
    return data


@others.needed
def test_a_new_program_does_not_wait_for_the_messages_of_another_users_programs(place, tmp_path):  # noqa: F811
    """Sixty clients of one user have filled their sockets before a client of another user connects. The daemon's log
    shows in which order it read their messages, whatever else the machine does."""
    log = tmp_path / "log"
    os.chmod(place, 0o755)
    d = Daemon(place, "--shared", *CARD, prefix=("env", "SUBLET_LOG=debug", "bash", "-c", f'exec "$0" "$@" 2>{log}'))
    (go_r, go_w), (told, tell) = os.pipe(), os.pipe()
    pids = []

    def flood():
        os.close(go_w)
        fill_when_told(place, go_r, tell)

    try:
        pids += [as_user(1001, flood) for _ in range(60)]
        assert read_exactly(told, 60) == b"a" * 60
        os.kill(d.process.pid, signal.SIGSTOP)
        os.close(go_w)
        assert read_exactly(told, 60) == b"f" * 60
        pids.append(as_user(1002, lambda: come_anew(place, tell)))
        assert read_exactly(told, 1) == b"s"
        os.kill(d.process.pid, signal.SIGCONT)
        assert read_exactly(told, 1) == b"l"
        wait_for(lambda: log.read_text().count(": IDLE") >= 10_000, what="all of the flood to be read")
        before = log.read_text().split(f"to {pids[-1]}: LIMIT")[0].count(": IDLE")
        assert before < 2000, f"the daemon read {before} of the flood's messages first"
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        d.end(signal.SIGKILL)
        for fd in (go_r, told, tell):
            os.close(fd)


# ---- notes between daemons ----


def test_a_note_brings_no_descriptor(daemon):  # noqa: F811
    """Any user may write to the socket for notes. A descriptor whose close takes a minute would stop the daemon for
    that minute."""
    d = daemon(*CARD)
    name = "\0sublet-daemon/" + d.status()["instance"]
    r, w = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        try:
            s.sendmsg([b"note"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [r]))], 0, name)
            sent = True
        except PermissionError:
            sent = False
    with connect(d.dir) as s:  # a kernel without this option refuses no descriptors
        try:
            s.setsockopt(socket.SOL_SOCKET, 83, 0)  # SO_PASSRIGHTS
        except OSError:
            pytest.skip(OLD_KERNEL)
    os.close(r)
    os.close(w)
    assert not sent
