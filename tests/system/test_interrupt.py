"""Ctrl-C while a program waits for its turn: Python raises KeyboardInterrupt as on the plain driver, and other programs
are left alone."""

import os
import signal
import sys

import pytest

from test_drain import start_holder, waiting
from test_oversubscription import touch
from world import LIBRARY, NO_PYTHON, wait_for

pytestmark = pytest.mark.skipif(NO_PYTHON is not None, reason=str(NO_PYTHON))


@pytest.fixture
def held(world):
    """A card on which waiting programs keep waiting until the test ends."""
    world.start_daemon(config={"quantum": "60s", "idle_release": "60s"})
    return world


def python_at_the_gate(world, how):
    """Returns a Python program that waits for its turn, and the program that has the turn."""
    p = world.start([sys.executable, os.path.join(os.path.dirname(__file__), "interrupted.py"), how, 96, world.path("go"),
                     world.path("end")], LD_PRELOAD=LIBRARY)
    p.await_event("filled")
    holder = start_holder(world)
    touch(world.path("go"))
    wait_for(lambda: waiting(world, p.pid), 20, "it to wait")
    return p, holder


def finish(world, *programs):
    touch(world.path("end"))
    for p in programs:
        p.ok()


@pytest.mark.freeze("park")  # in mode move the program could wait frozen before its thread waits at the gate
@pytest.mark.parametrize("how", ["released", "kept", "again"])
def test_a_python_program_that_waits_for_its_turn_can_be_interrupted(held, how):
    p, holder = python_at_the_gate(held, how)
    handoffs = held.handoffs()
    for n in (1, 2):  # after the first interrupt the program submits again, and waits again
        p.send(signal.SIGINT)
        wait_for(lambda n=n: len(p.events("interrupted")) == n, 20, "KeyboardInterrupt")
        wait_for(lambda: waiting(held, p.pid), 20, "it to wait")
    assert held.handoffs() == handoffs and holder.running()
    finish(held, holder, p)
    assert p.events("end")[0]["interrupts"] == 2


@pytest.mark.freeze("park")  # in mode move the program could wait frozen before its thread waits at the gate
def test_an_interrupt_reaches_the_thread_that_the_main_thread_waits_for(held):
    p, holder = python_at_the_gate(held, "worker")
    p.send(signal.SIGINT)
    p.await_event("interrupted", 20)
    assert [e["status"] for e in p.events("failed")] == [304]
    assert holder.running()
    finish(held, holder, p)


@pytest.mark.freeze("park")  # in mode move the program could wait frozen before its thread waits at the gate
def test_a_thread_that_nobody_waits_for_is_not_interrupted(held):
    """The main thread handles the signal itself."""
    p, holder = python_at_the_gate(held, "aside")
    p.send(signal.SIGINT)
    p.await_event("interrupted", 20)
    seen = held.launches(holder)[0]
    wait_for(lambda: held.launches(holder)[0] > seen + 150, 60, "kernels of 5 ms, longer than an interrupt would take")
    finish(held, holder, p)
    assert not p.events("failed")


def test_a_python_program_with_a_handler_of_its_own_keeps_waiting(held):
    p, holder = python_at_the_gate(held, "handler")
    p.send(signal.SIGINT)
    finish(held, holder, p)
    assert p.events("handled") and not p.events("failed") and not p.events("interrupted")


def test_other_signals_interrupt_no_wait(held):
    p, holder = python_at_the_gate(held, "released")
    p.send(signal.SIGWINCH)
    p.send(signal.SIGCHLD)
    finish(held, holder, p)
    assert not p.events("failed") and not p.events("interrupted")


def test_a_program_in_c_keeps_waiting_with_a_handler_and_dies_without_one(held):
    programs = [held.program("hold", "--bytes", "24MiB", "--block", "8MiB", *how, stdin=-1)
                for how in ((), ("--how", "handles"))]
    for p in programs:
        p.await_event("filled")
    holder = start_holder(held)
    for p in programs:
        p.process.stdin.write(b"touch\n")
        p.process.stdin.flush()
        wait_for(lambda p=p: waiting(held, p.pid), 20, "it to wait")
        p.send(signal.SIGINT)
    dies, handles = programs
    assert dies.wait(20) == -signal.SIGINT
    handles.await_event("handled")
    assert waiting(held, handles.pid)
    finish(held, holder)
    handles.finish()
    assert handles.events("done")
