"""The daemon brokers connections between processes that share memory, but only between those of one user in one pid
namespace. It limits exported bytes, so that other programs get the memory they need."""

import os
import subprocess

import pytest

import others
from test_daemon import CARD, Daemon, client, daemon, place, wait_for  # noqa: F401
from wireclient import MIB, Client, obey_until
from world import NO_PID_NAMESPACES

NAMES = [bytes([n] * 16) for n in range(1, 4)]
PEER_REFUSED, EXPORT_REFUSED = 8, 7


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def named(c, name):
    c.connect()
    c.hello()
    c.send("NAME", name=name)
    assert c.expect("NAMED")
    return c


def ask(c, name):
    """Asks the daemon for a connection to the holder of that name. True if the answer is a connection."""
    sequence = c.send("PEER", name=name)
    answer = c.expect("PEERED", "REFUSED")
    assert answer["of"] == sequence
    return answer["type"] == "PEERED" or answer["code"] != PEER_REFUSED


def test_the_holder_of_a_name_gets_the_connection(daemon, client, place):  # noqa: F811
    d = daemon(*CARD)
    a, b = named(client("a"), NAMES[0]), named(client("b"), NAMES[1])
    held = descriptors(d.process.pid)
    assert ask(b, NAMES[0])
    asked = a.expect("PEERED")
    assert asked["of"] == 0 and asked["name"] == ""
    assert not ask(b, NAMES[2]), "no process has this name"
    assert not ask(b, NAMES[1]), "the name of the asking process"
    a.kill()
    wait_for(lambda: not ask(b, NAMES[0]), what="the name to be forgotten")
    wait_for(lambda: descriptors(d.process.pid) <= held, what="the daemon to close its ends of the connections")


def test_a_client_without_hello_gets_no_connection(daemon, client, place):  # noqa: F811
    daemon(*CARD)
    named(client("a"), NAMES[0])
    b = client("b").connect()
    b.send("PEER", name=NAMES[0])
    assert b.expect("REFUSED")["code"] == 6


@others.needed
def test_the_daemon_brokers_no_connection_to_another_user(place):  # noqa: F811
    os.chmod(place, 0o755)
    d = Daemon(place, "--shared", *CARD)
    as_other = others.as_user(1001)
    made = [Client(place, "mine"), Client(place, "theirs", prefix=as_other), Client(place, "theirs, too", prefix=as_other)]
    try:
        mine, theirs, second = (named(c, n) for c, n in zip(made, NAMES))
        assert not ask(theirs, NAMES[0]) and not ask(mine, NAMES[1])
        if others.seen(theirs.process.pid):
            assert ask(theirs, NAMES[2]), "the daemon also brokers between processes of another user"
            assert second.expect("PEERED")["of"] == 0
        else:
            assert not ask(theirs, NAMES[2]), "a process that the daemon cannot see may be in another container"
        mine.obey()
        assert not [m for m in mine.seen if m["type"] == "PEERED"], "no client is told of another user"
    finally:
        for c in made:
            c.end()
        d.end()


@others.needed
def test_the_daemon_brokers_no_connection_to_another_pid_namespace(daemon, place):  # noqa: F811
    alone = ["unshare", "--fork", "--pid", "--kill-child"]
    if subprocess.run([*alone, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip(NO_PID_NAMESPACES)
    daemon(*CARD)
    made = [Client(place, "outside"), Client(place, "inside", prefix=alone)]
    try:
        outside, inside = (named(c, n) for c, n in zip(made, NAMES))
        assert not ask(inside, NAMES[0]) and not ask(outside, NAMES[1])
    finally:
        for c in made:
            c.end()


def test_a_client_that_does_not_read_gets_few_descriptors(daemon, client, place):  # noqa: F811
    """Descriptors count against the daemon's user until they are received."""
    d = daemon(*CARD)
    deaf, asking = named(client("deaf"), NAMES[0]), named(client("asking"), NAMES[1])
    deaf.stop_reading()
    met = 0
    for _ in range(100):
        if not ask(asking, NAMES[0]):
            break
        met += 1
    assert 0 < met < 50
    late = named(client("late"), NAMES[2])
    assert ask(asking, NAMES[2]), "other connections are brokered as before"
    assert late.expect("PEERED")
    assert d.process.poll() is None


def export(c, size, flags=0):
    c.send("EXPORT", 0, bytes=size, flags=flags)


def test_exported_bytes_count_as_unevictable(daemon, client, place):  # noqa: F811
    d = daemon(*CARD)
    a, b = client("a").start(), client("b").start()
    assert a.allocate(600 * MIB)
    obey_until([a, b], lambda: a.backed == 600 * MIB)
    export(a, 400 * MIB)
    assert a.expect("EXPORTED")["bytes"] == 400 * MIB
    wait_for(lambda: d.client(a.process.pid)["unevictable"] == 400 * MIB, what="the export to be seen")
    assert d.client(a.process.pid)["charge"] == 600 * MIB, "exported bytes are not counted twice"
    # The daemon promises a newcomer no memory that would not fit beside the exported bytes.
    assert not b.ask(700 * MIB)
    assert b.allocate(500 * MIB)
    obey_until([a, b], lambda: b.lease != 0, timeout=20)
    assert a.backed >= 400 * MIB and a.limit["backed"] >= 400 * MIB
    # The daemon lets a client export no memory that it has promised to others.
    export(a, 590 * MIB)
    assert a.expect("REFUSED", "EXPORTED")["code"] == EXPORT_REFUSED
    export(a, 0)
    wait_for(lambda: d.client(a.process.pid)["unevictable"] == 0, what="the export to be gone")
    assert b.ask(700 * MIB)


@pytest.mark.parametrize("flags", [0, 1])
def test_a_client_cannot_export_more_than_it_has(daemon, client, place, flags):  # noqa: F811
    d = daemon(*CARD)
    a, b = client("a").start(), client("b").start()
    assert a.allocate(10 * MIB)
    obey_until([a, b], lambda: a.backed == 10 * MIB)
    export(a, 1 << 63, flags)
    if not flags:
        assert a.expect("REFUSED", "EXPORTED")["code"] == EXPORT_REFUSED
    assert b.allocate(800 * MIB)
    obey_until([a, b], lambda: b.lease != 0, timeout=20)
    assert d.client(a.process.pid)["charge"] <= 11 * MIB

