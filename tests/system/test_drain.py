"""Taking the GPU away from programs that cannot just be waited for: work in flight that waits for work not submitted yet,
captures, full queues. What cannot be drained is left alone, with its memory as it is, and tried again; everybody gets
the right contents and comes to the end."""

import json

import pytest

from test_oversubscription import check_contents, fill, touch
from world import MIB, wait_for

# Failed drains are what these tests are about: they must not take the seconds that they take people.
SETTINGS = {"quantum": "150ms", "patience": "150ms", "grace": "2s"}


@pytest.fixture
def contested(world):
    world.env["SUBLET_TRACE"] = world.path("trace")
    world.start_daemon(config=SETTINGS)
    return world


def traced(world, event=None, pid=None):
    with open(world.path("trace"), encoding="ascii") as f:
        lines = [json.loads(line) for line in f if line.endswith("\n")]
    return [e for e in lines if event in (None, e["event"]) and pid in (None, e["pid"])]


def together_until(world, programs, condition, what, timeout=60):
    """Let them run until the condition holds, and then to their ends."""
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


@pytest.mark.parametrize("how", ["value", "write", "kernel", "host", "function", "inside", "full"])
def test_work_that_waits_for_work_held_at_the_gate(contested, how):
    end = contested.path("end")
    sample = contested.path("sample-5")
    subject = contested.program("depend", "--how", how, "--bytes", "64MiB", "--block", "8MiB", "--ms", "300", "--rounds", 2,
                                "--seed", "5", "--sample", sample, "--until", end)
    subject.await_event("filled")
    other = fill(contested, 96, "9")

    def enough():
        return traced(contested, "drain_pass", subject.pid) and contested.clients()[subject.pid]["handoffs"] >= 3 and \
            len(other.events("round")) >= 3 and len(subject.events("round")) >= 3

    together_until(contested, [subject, other], enough, "hand-offs, and rounds of both", timeout=30)
    check_contents(contested, [subject, other])


# ---- captures ----


@pytest.mark.parametrize("how", ["global", "local", "relaxed"])
def test_captures_of_several_threads(contested, how):
    end = contested.path("end")
    subject = contested.program("captures", "--how", how, "--bytes", "64MiB", "--block", "4MiB", "--count", 4, "--ms", 60,
                                "--rounds", 2, "--seed", "5", "--until", end)
    subject.await_event("filled")
    other = fill(contested, 96, "9")
    together_until(contested, [subject, other],
                   lambda: contested.handoffs() >= 6 and len(other.events("round")) >= 2 and
                   len(subject.events("round")) >= 2, "hand-offs, and rounds of both")
    check_contents(contested, [other])
    assert contested.check_sums(subject) >= 2


def test_a_capture_that_does_not_end_makes_its_program_unpreemptible(contested):
    """Its memory stays, it runs on, and it is left alone for a while; who waits gets its turn in the end."""
    end = contested.path("end")
    subject = contested.program("captures", "--how", "endless", "--bytes", "64MiB", "--block", "4MiB", "--rounds", 2, "--seed",
                                "5", "--until", end)
    subject.await_event("filled")
    other = fill(contested, 96, "9")

    def failed(times):
        return len(traced(contested, "drain_failed", subject.pid)) >= times

    wait_for(lambda: failed(3), 30, "three failed drains")
    wait_for(lambda: "unpreemptible" in contested.clients()[subject.pid]["flags"], 10, "the flag in the status")
    assert "unpreemptible" in contested.status_text()
    before = len(subject.events("round"))
    wait_for(lambda: len(subject.events("round")) > before + 2, 20, "the program to go on")
    assert contested.clients()[subject.pid]["backed"] >= 64 * MIB
    assert contested.card()["d2h_bytes"] < 64 * MIB, "its memory has not moved"
    # Each try had twice the patience of the one before.
    times = {e: [t["t_ns"] for t in traced(contested, e, subject.pid)] for e in ("drain_begin", "drain_failed")}
    took = [(b - a) / 1e6 for a, b in zip(times["drain_begin"], times["drain_failed"])][:3]
    assert took[0] >= 150 and took[1] >= 300 and took[2] >= 600, took
    touch(end)
    subject.ok()
    other.ok()
    assert contested.check_sums(subject) >= 2
    check_contents(contested, [other])


def test_memory_freed_during_a_capture_comes_back_after_it(contested):
    end = contested.path("end")
    subject = contested.program("captures", "--how", "free", "--bytes", "32MiB", "--block", "4MiB", "--count", 2, "--ms", 200,
                                "--rounds", 2, "--seed", "5", "--until", end)
    subject.await_event("filled")
    other = fill(contested, 96, "9")
    seen = set()

    def enough():
        seen.add(contested.clients()[subject.pid]["allocated"])
        return contested.handoffs() >= 6 and len(other.events("round")) >= 2 and len(subject.events("round")) >= 3

    together_until(contested, [subject, other], enough, "hand-offs, and rounds of both")
    # Each round allocates as much again and frees it in a capture: it never adds up.
    assert max(seen) <= (32 + 32 + 16) * MIB and min(seen) < 48 * MIB, seen
    check_contents(contested, [other])
    assert contested.check_sums(subject) >= 2
