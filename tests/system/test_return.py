"""A client that returns to a daemon: from its ATTACH on it holds no more than it reported, whether or not the daemon
has answered. The test itself plays the daemon, so that it can hold the answer back."""

import pytest

from scripted import Scripted
from wireclient import MIB


@pytest.fixture
def begun(make_world):
    """A program with a lease and all the room that it asks for, and the daemon that granted them."""
    started = []

    def begin(*argv):
        world = make_world(memory="32MiB", bus="100MB/s")
        daemon = Scripted(world)
        started.append(daemon)
        p = world.program(*argv, "--until", world.path("end"), SUBLET_REQUIRE="1")
        attach = daemon.accept()
        daemon.answer(commit=24 * MIB, backed=24 * MIB, unevictable=attach["unevictable_requested"])
        return world, daemon, p

    yield begin
    for daemon in started:
        daemon.close()


def test_evicted_memory_stays_out_until_the_daemon_answers(begun):
    """The connection is lost while copies to the host run: the bytes that they free no longer belong to the client."""
    _, daemon, p = begun("fill", "--bytes", "16MiB", "--block", "2MiB")
    daemon.serve(lambda: p.events("filled"), "it to be filled")
    daemon.grants = False
    daemon.send("REVOKE", lease=daemon.lease, patience_ns=10**10)
    daemon.expect("DRAINED")
    daemon.say_limit(backed=0)
    daemon.expect("USAGE", lambda m: m["moved_out"])
    daemon.client.close()
    said = daemon.accept(late=True)  # all copies have ended when the client attaches
    assert said["backed"] < 16 * MIB, said
    daemon.stays_unanswered()
    daemon.answer(commit=24 * MIB, backed=said["backed"], unevictable=said["unevictable"])
    usage = daemon.acknowledged()
    assert usage["backed"] <= said["backed"], (usage, said)
