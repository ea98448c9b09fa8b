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
