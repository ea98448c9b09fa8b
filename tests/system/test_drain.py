"""Drains of programs whose work does not simply end: work in flight that waits for work not yet submitted, captures,
full queues. The daemon leaves a program alone that cannot be drained, with its memory as it is, and tries again later.
All programs end with the right contents."""

import os
import re
import subprocess

import pytest

from campaign import LONG
from test_oversubscription import check_contents, fill, touch
from world import MIB, PATIENCE, wait_for

# Drains fail in these tests all the time, so patience is short.
SETTINGS = {"quantum": "150ms", "patience": f"{300 * PATIENCE}ms", "grace": "2s"}


def start(world, **settings):
    world.env["SUBLET_TRACE"] = world.path("trace")
    world.start_daemon(config={**SETTINGS, **settings}, SUBLET_LOG="info")
    return world


@pytest.fixture
def small(make_world):
    """A card that is small and so cheap to fill."""
    return make_world(memory="64MiB")


@pytest.fixture
def contested(small):
    return start(small)


def together_until(world, programs, condition, what, timeout=60):
    """Lets the programs run until the condition holds, then tells them to end, and waits for their ends."""
    def look():
        for p in programs:
            if not p.running() and p.process.returncode != 0:
                raise AssertionError("ended early\n" + p.report())
        return condition()

    try:
        wait_for(look, timeout, what, interval=0.1)
    except AssertionError as e:
        raise AssertionError(f"{e}\n" + "\n".join(p.report() for p in programs)) from None
    touch(world.path("end"))
    for p in programs:
        p.ok()


@pytest.mark.freeze("move")  # a drain of this program never ends
@pytest.mark.parametrize("how", ["value", "write", "kernel", "host", "function", "inside", "full", "delay"])
def test_work_that_waits_for_work_held_at_the_gate_is_frozen(contested, how):
    end = contested.path("end")
    sample = contested.path("sample-5")
    subject = contested.program("depend", "--how", how, "--bytes", "32MiB", "--block", "4MiB", "--ms", "100", "--rounds", 2,
                                "--seed", "5", "--sample", sample, "--until", end)
    subject.await_event("filled")
    # A card this small has room for one second context, and this program must get that room.
    wait_for(lambda: contested.clients()[subject.pid]["unevictable"] > 2 * MIB, 20, "its second context", report=subject.report)
    other = fill(contested, 48, "9")

    def enough():
        c = contested.clients()[subject.pid]
        return c["frozen"] and c["frozen"]["times"] > 0 and c["handoffs"] >= 2 and \
            len(other.events("round")) >= 2 and len(subject.events("round")) >= 2

    together_until(contested, [subject, other], enough, "hand-offs, and rounds of both")
    check_contents(contested, [subject, other])


def test_the_throttle_does_not_delay_a_step_that_its_own_thread_releases(contested):
    """The card is too small for both programs, so the throttle is on. In an earlier version the throttle held each such
    step for a second."""
    idle = contested.program("hold", "--bytes", "48MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    idle.await_event("filled")
    subject = contested.program("depend", "--how", "delay", "--bytes", "24MiB", "--block", "24MiB", "--ms", 3, "--rounds", 40)
    subject.ok()
    assert subject.events("end")[0]["ms"] < 40 * 500 * PATIENCE, "the time of 40 steps"
    idle.finish()


@pytest.mark.parametrize("driver", ["marks", "no-marks"])
def test_a_free_that_waits_for_a_full_queue_delays_no_other_thread(contested, driver):
    """The call of cuMemFree delays neither other threads of its program that allocate, nor the program's answers to the
    daemon. Before CUDA 12.5 that call waits inside the driver, which then accepts no event of the library."""
    if driver == "no-marks":
        contested.env["SIMCUDA_FAIL"] = "cuCtxRecordEvent:1+:801"
    subject = contested.program("depend", "--how", "fullfree", "--bytes", "32MiB", "--block", "4MiB", "--ms", "300", "--rounds", 3)
    subject.await_event("filled")
    other = fill(contested, 48, "9")
    subject.ok()
    touch(contested.path("end"))
    other.ok()
    for p in (subject, other):
        contested.check_sums(p)


@pytest.mark.parametrize("name, args", [("ptds", []), ("depend", ["--how", "value"]), ("churn", ["--block", "1MiB", "--rounds", "6"])])
def test_programs_are_drained_without_events_of_whole_contexts(contested, name, args):
    """Before CUDA 12.5 the library records an event on each stream instead."""
    contested.env["SIMCUDA_FAIL"] = "cuCtxRecordEvent:1+:801"
    other = fill(contested, 48, "9")
    subject = contested.program(name, *args, "--bytes", "16MiB", "--ms", "20")
    subject.ok()
    touch(contested.path("end"))
    other.ok()
    contested.check_sums(other)


@pytest.mark.parametrize("mode", ["auto", pytest.param("exclusive", marks=pytest.mark.freeze("move"))])
def test_two_processes_that_wait_for_each_other_go_on(small, mode):
    """Any two of the three programs fit. A drain of one process of the pair ends only when the other process runs, so
    the other process must not wait for the drain. In mode exclusive only one process may run. So the library freezes
    that process instead of draining it."""
    contested = start(small, mode=mode, grace="500ms")
    end, page = contested.path("end"), contested.path("page")
    pair = [contested.program("pair", "--bytes", "20MiB", "--block", "4MiB", "--seed", side, "--sample", page, "--until",
                              end, "--rounds", 2) for side in (1, 2)]
    for p in pair:
        p.await_event("filled")
    other = fill(contested, 28, "9")

    def enough():
        return contested.handoffs() >= 4 and len(other.events("round")) >= 2 and \
            all(len(p.events("round")) >= 4 for p in pair)

    together_until(contested, [*pair, other], enough, "hand-offs, and rounds of all three")
    check_contents(contested, [other])
    assert all(contested.check_sums(p) >= 3 for p in pair)


# ---- captures ----


@pytest.mark.parametrize("how", ["global", "local", "relaxed"])
def test_captures_of_several_threads_survive_hand_offs(contested, how):
    end = contested.path("end")
    subject = contested.program("captures", "--how", how, "--bytes", "32MiB", "--block", "2MiB", "--count", 4, "--ms", 60,
                                "--rounds", 2, "--seed", "5", "--until", end)
    subject.await_event("filled")
    other = fill(contested, 48, "9")
    together_until(contested, [subject, other],
                   lambda: contested.handoffs() >= 6 and len(other.events("round")) >= 2 and
                   len(subject.events("round")) >= 2, "hand-offs, and rounds of both")
    check_contents(contested, [other])
    assert contested.check_sums(subject) >= 2


@pytest.mark.freeze("off")  # this test is about draining
def test_a_capture_that_does_not_end_makes_its_program_unpreemptible(contested):
    """The program keeps its memory and runs on undisturbed for a while; the waiting program gets its turn in the
    end."""
    end = contested.path("end")
    subject = contested.program("captures", "--how", "endless", "--bytes", "32MiB", "--block", "2MiB", "--rounds", 2, "--seed",
                                "5", "--until", end)
    subject.await_event("filled")
    other = fill(contested, 48, "9")

    def failed(times):
        return len(contested.traced("drain_failed", subject.pid)) >= times

    wait_for(lambda: failed(3), 30, "three failed drains")
    wait_for(lambda: "unpreemptible" in contested.clients()[subject.pid]["flags"], 10, "the flag in the status")
    assert "unpreemptible" in contested.status_text()

    def told():
        found = re.findall(f"process {subject.pid} \\(captures\\) keeps its turn after ([0-9]+) ms: (.*)", contested.daemon.err())
        return len(found) >= 3 and found

    said = wait_for(told, 30, "the daemon to say so three times")
    why = [reason for _, reason in said]  # on a slow machine the first try may find work from before the capture
    assert "a stream capture goes on" in why[1:], contested.daemon.err()
    before = len(subject.events("round"))
    wait_for(lambda: len(subject.events("round")) > before + 2, 20, "the program to go on")
    assert contested.clients()[subject.pid]["backed"] >= 32 * MIB
    assert contested.card()["d2h_bytes"] < 32 * MIB, "its memory has not moved"
    # Each try had twice the patience of the try before.
    took = [int(ms) for ms, _ in said]
    assert took[0] >= 300 and took[1] >= 600 and took[2] >= 1200, took
    touch(end)
    subject.ok()
    other.ok()
    assert contested.check_sums(subject) >= 2
    check_contents(contested, [other])


def test_memory_freed_during_a_capture_comes_back_after_it(contested):
    end = contested.path("end")
    subject = contested.program("captures", "--how", "free", "--bytes", "16MiB", "--block", "2MiB", "--count", 2, "--ms", 200,
                                "--rounds", 2, "--seed", "5", "--until", end)
    subject.await_event("filled")
    other = fill(contested, 48, "9")
    seen = set()

    def enough():
        seen.add(contested.clients()[subject.pid]["allocated"])
        return contested.handoffs() >= 6 and len(other.events("round")) >= 2 and len(subject.events("round")) >= 6

    together_until(contested, [subject, other], enough, "hand-offs, and rounds of both")
    # Each of six rounds allocates the same bytes again and frees them in a capture: the total never grows.
    assert max(seen) <= (16 + 2 * 16 + 8) * MIB, seen
    check_contents(contested, [other])
    assert contested.check_sums(subject) >= 2


# ---- at the gate ----


@pytest.fixture
def held(world):
    """A card that one program keeps. Even if a busy machine delays that program, the daemon does not take it for
    idle."""
    world.start_daemon(config={"quantum": "60s", "idle_release": "60s"})
    return world


def start_holder(world):
    """Starts a program that takes the card by its priority, and runs with all of its memory on the card until the file
    `end` exists."""
    holder = world.program("spin", "--bytes", "96MiB", "--block", "8MiB", "--ms", 5, "--until", world.path("end"),
                           SUBLET_PRIORITY="1")

    def runs():
        c = world.clients().get(holder.pid)
        return c and c["state"] == "running" and c["backed"] >= 96 * MIB

    wait_for(runs, 20, "the card's holder to run")
    return holder


def evicted_and_holder(world, how):
    """Returns a program that has filled its memory and is evicted, and the program that runs instead."""
    subject = world.program("leave", "--how", how, "--bytes", "96MiB", "--block", "8MiB", "--seed", 5, "--sample",
                            world.path("go"), "--until", world.path("leave" if how in ("exit", "join") else "end"))
    subject.await_event("filled")
    return subject, start_holder(world)


def waiting(world, pid):
    return world.clients()[pid]["state"] in ("waiting", "restoring")


def leave_while_waiting(world, subject):
    touch(world.path("go"))
    wait_for(lambda: waiting(world, subject.pid), 20, "its threads to wait")
    touch(world.path("leave"))
    subject.ok(20)


@pytest.mark.parametrize("how", ["cancel", "signal"])
def test_threads_at_the_gate_can_be_cancelled_or_sent_signals(held, how):
    subject, holder = evicted_and_holder(held, how)
    touch(held.path("go"))
    wait_for(lambda: waiting(held, subject.pid), 20, "its threads to wait")
    if how == "cancel":
        subject.await_event("cancelled")
    touch(held.path("end"))
    holder.ok()
    subject.ok(60)
    assert held.check_sums(subject) == 1


def test_a_process_can_exit_while_its_threads_wait(held):
    subject, holder = evicted_and_holder(held, "exit")
    leave_while_waiting(held, subject)
    assert subject.events("freed")
    wait_for(lambda: subject.pid not in held.clients(), 20, "its record to go")
    assert holder.running()
    touch(held.path("end"))
    holder.ok()


def test_an_exiting_process_can_join_its_waiting_threads(held):
    """The process joins its threads in an exit handler that runs after the driver's. As on the plain driver, the calls
    of the threads fail by then, so the threads end."""
    subject, holder = evicted_and_holder(held, "join")
    leave_while_waiting(held, subject)
    assert subject.events("joined")
    touch(held.path("end"))
    holder.ok()


def test_memory_of_an_exiting_process_serves_others_before_the_process_is_gone(held):
    """The kernel may take seconds to end a process that has much host memory pinned."""
    subject = held.program("leave", "--how", "linger", "--count", 0, "--bytes", "96MiB", "--block", "8MiB", "--seed", 5,
                           "--sample", held.path("go"), "--until", held.path("leave"))
    subject.await_event("filled")
    touch(held.path("go"))
    other = held.program("fill", "--bytes", "96MiB", "--block", "8MiB", "--seed", 9, "--until", held.path("end"))
    wait_for(lambda: other.pid in held.clients() and waiting(held, other.pid), 20, "the other program to wait")
    touch(held.path("leave"))
    subject.await_event("lingers")
    other.await_event("filled")
    assert subject.running()
    os.unlink(held.path("go"))
    subject.ok(20)
    touch(held.path("end"))
    other.ok()


def test_a_drain_waits_for_threads_that_submit_while_they_end(small):
    """The threads submit in their destructors, which run after the library's destructor. Each drain includes that
    work, and still ends. On a busy machine a thread may lack a processor for longer than the short patience."""
    contested = start(small, patience="20s")
    subject = contested.program("late", "--bytes", "20MiB", "--block", "4MiB", "--seed", 5, "--count", 12,
                                "--until", contested.path("end"))
    subject.await_event("filled")
    other = fill(contested, 48, "9")
    together_until(contested, [subject, other], lambda: contested.handoffs() >= (20 if LONG else 10), "hand-offs")
    check_contents(contested, [other])
    assert contested.check_sums(subject) >= 2
    assert not contested.traced("drain_failed")


def test_a_program_can_fork_while_its_memory_moves(contested):
    subject = contested.program("leave", "--how", "fork", "--bytes", "32MiB", "--block", "4MiB", "--seed", 5,
                                "--sample", contested.path("go"), "--until", contested.path("end"))
    subject.await_event("filled")
    other = fill(contested, 48, "9")
    touch(contested.path("go"))
    together_until(contested, [subject, other], lambda: contested.handoffs() >= 6, "hand-offs")
    check_contents(contested, [other])
    assert contested.check_sums(subject) == 1


def test_a_program_that_waits_long_is_told_the_holder_of_the_gpu(held):
    """The waiting program prints one message with pid and name, unless SUBLET_QUIET is set."""
    world = held
    holder = start_holder(world)
    told = world.program("fill", "--bytes", "96MiB", "--block", "8MiB", SUBLET_QUIET=None)
    wait_for(lambda: told.pid in world.clients() and waiting(world, told.pid), 20, "the first to wait")
    quiet = world.program("fill", "--bytes", "96MiB", "--block", "8MiB", SUBLET_QUIET="1")
    notice = re.compile(rf"has waited [56] s for its turn on the GPU: process {holder.pid} \(spin\) holds it; `sublet status --daemon {re.escape(world.dir)}` shows more\n")
    wait_for(lambda: told.err(), 60, "the notice")
    assert notice.search(told.err()), told.err()
    wait_for(lambda: world.clients()[quiet.pid]["waited_s"] > 12, 20, "the other one's time")
    assert told.err().count("has waited") == 1, told.err()
    assert told.out().count("has waited") == 0
    assert quiet.err() == ""
    touch(world.path("end"))
    holder.ok()
    told.ok()
    quiet.ok()
