"""Signals to the daemon, and clients while the daemon does not run."""

import os
import pathlib
import signal
import time

import pytest

from test_daemon import (CARD, children, client, connectable, daemon, has_ended, order, place, private,  # noqa: F401
                         supervisor_of, wait_for)
from wireclient import MIB, obey_until
from world import is_stopped

HARMLESS = [signal.SIGUSR1, signal.SIGUSR2]
LEAVING = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]


def sockets(directory):
    return sorted(p.name for p in pathlib.Path(directory).glob("*.sock"))


@pytest.mark.parametrize("number", HARMLESS)
def test_the_daemon_names_a_meaningless_signal_and_goes_on(daemon, client, number):  # noqa: F811
    d = daemon(*CARD)
    d.process.send_signal(number)
    client().start()
    code, errors = d.end()
    assert code == 0 and f"signal {number.value}: it means nothing" in errors


@pytest.mark.parametrize("number", LEAVING)
def test_an_orderly_end_leaves_no_socket(daemon, place, number):  # noqa: F811
    d = daemon(*CARD)
    assert sockets(place)
    assert d.end(number)[0] == 0
    assert sockets(place) == []


@pytest.mark.parametrize("number", [signal.SIGHUP, *HARMLESS])
def test_a_private_daemon_survives_meaningless_signals(private, number):  # noqa: F811
    directory = private()
    supervisor = supervisor_of(directory)
    worker = wait_for(lambda: children(supervisor), what="the worker")[0]
    instance = order(directory, order="status")["instance"]
    for pid in (supervisor, worker):
        os.kill(pid, number)
    assert order(directory, order="status")["instance"] == instance
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: children(supervisor) not in ([], [worker]), what="another worker, by the same supervisor")


@pytest.mark.parametrize("number", LEAVING)
def test_a_private_daemon_that_is_told_to_leave_leaves_no_socket(private, number):  # noqa: F811
    directory = private()
    supervisor = supervisor_of(directory)
    os.kill(supervisor, number)
    wait_for(lambda: has_ended(supervisor), what="leaving")
    assert sockets(directory) == []


def test_time_in_which_the_daemon_was_stopped_does_not_count_as_grace(daemon, client, tmp_path):  # noqa: F811
    """The daemon is stopped for longer than a client may take to give way. The client answers during the stop, and is
    not killed."""
    config = tmp_path / "conf"
    config.write_text("[daemon]\nkill_overdue = yes\ngrace = 1s\npatience = 1s\nquantum = 100ms\n")
    d = daemon(*CARD, "--config", str(config))
    holder = client("holder").start()
    assert holder.allocate(600 * MIB)
    obey_until([holder], lambda: holder.lease)
    waiter = client("waiter").start()
    assert waiter.allocate(600 * MIB)
    holder.expect("REVOKE")  # the client does not answer yet
    d.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: is_stopped(d.process.pid), what="its stop")
    holder.react(holder.seen[-1])
    time.sleep(3.5)  # longer than patience and grace
    d.process.send_signal(signal.SIGCONT)
    obey_until([holder, waiter], lambda: waiter.lease)
    assert holder.process.poll() is None
    code, errors = d.end()
    assert "does not give way" not in errors and "did not run for" in errors
