"""Ctrl-C while a program waits for its turn or stands still: Python raises KeyboardInterrupt as on the plain driver, and
other programs are left alone."""

import os
import signal
import sys
import time

import pytest

from counting import QUICK, assert_frozen, await_count, counts, end, frozen_out, leave, take_the_card
from test_drain import start_holder, waiting
from test_hand import await_off, await_ready, counting, is_off
from test_oversubscription import touch
from world import LIBRARY, NO_PYTHON, PATIENCE, wait_for

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


# ---- programs that stand still ----


def standing(world, how):
    p = world.start([sys.executable, os.path.join(os.path.dirname(__file__), "standing.py"), how, world.path("end-it")],
                    LD_PRELOAD=LIBRARY)
    p.await_event("filled")
    return p


def interrupt(program, times):
    """Interrupts the program, which must raise KeyboardInterrupt soon."""
    before = time.monotonic_ns()
    program.send(signal.SIGINT)
    wait_for(lambda: len(program.events("interrupted")) == times, 20, "KeyboardInterrupt", report=program.report)
    assert program.events("interrupted")[-1]["ns"] - before < 100e6 * PATIENCE


def let_end(world, program):
    touch(world.path("end-it"))
    program.ok()


@pytest.fixture
def floored(make_world):
    w = make_world(memory="128MiB")
    w.start_daemon(config={"priority_floor": "0.1%"})
    return w


@pytest.mark.parametrize("how", ["stream", "context", "event"])
def test_a_python_program_that_is_off_the_gpu_can_be_interrupted(floored, how):
    low = standing(floored, how)
    await_ready(floored, low)
    high = counting(floored, 2, priority=1)
    await_off(floored, low)
    for n in (1, 2):
        interrupt(low, n)
        assert is_off(floored, low)
    end(floored, high)
    let_end(floored, low)


@pytest.mark.parametrize("how", ["stream", "context", "event"])
def test_a_paused_python_program_can_be_interrupted(floored, how):
    p = standing(floored, how)
    await_ready(floored, p)
    assert floored.sublet("pause", str(p.pid)).returncode == 0
    interrupt(p, 1)
    assert floored.sublet("resume", str(p.pid)).returncode == 0
    let_end(floored, p)


@pytest.mark.freeze("move")
def test_a_python_program_whose_memory_is_away_can_be_interrupted(make_world):
    world = make_world(memory="64MiB")
    world.start_daemon(config=QUICK)
    p = standing(world, "stream")
    wait_for(lambda: world.clients()[p.pid]["unevictable"] > 2 * world.card()["context_bytes"], 60, "its second context",
             report=p.report)
    rival = take_the_card(world)
    wait_for(lambda: frozen_out(world, p), 60, "the program to be frozen", report=p.report)
    interrupt(p, 1)
    assert frozen_out(world, p)
    leave(world, rival)
    let_end(world, p)


def test_a_wait_for_work_that_runs_is_not_interrupted(floored):
    p = standing(floored, "stream")
    await_ready(floored, p)
    p.send(signal.SIGINT)
    time.sleep(0.5)
    assert not p.events("interrupted")
    assert floored.sublet("pause", str(p.pid)).returncode == 0
    wait_for(lambda: p.events("interrupted"), 20, "KeyboardInterrupt, as the program stands still now", report=p.report)
    assert floored.sublet("resume", str(p.pid)).returncode == 0
    let_end(floored, p)


def test_a_paused_program_with_a_handler_of_its_own_keeps_waiting(floored):
    p = standing(floored, "handler")
    await_ready(floored, p)
    assert floored.sublet("pause", str(p.pid)).returncode == 0
    p.send(signal.SIGINT)
    time.sleep(0.5)
    assert not p.events("handled") and p.running()
    assert floored.sublet("resume", str(p.pid)).returncode == 0
    let_end(floored, p)
    assert p.events("handled") and not p.events("interrupted")


def test_a_program_in_c_that_is_off_the_gpu_dies_without_a_handler(floored):
    low = counting(floored, 1)
    high = counting(floored, 2, priority=1)
    await_off(floored, low)
    low.send(signal.SIGINT)
    assert low.wait(20) == -signal.SIGINT
    end(floored, high)


def test_a_program_in_c_with_a_handler_of_its_own_keeps_waiting_off_the_gpu(floored):
    low = counts(floored, 1, "--how", "handles", mib=8)
    low.order("start")
    await_ready(floored, low)
    high = counting(floored, 2, priority=1)
    await_off(floored, low)
    low.order("call wait")
    low.await_event("begun")
    low.send(signal.SIGINT)
    low.await_event("handled")
    assert_frozen(low)
    assert not low.events("returned")
    end(floored, high)
    await_count(low)
    end(floored, low)
