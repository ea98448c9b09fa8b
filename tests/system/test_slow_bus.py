"""A bus that becomes slow in the middle of hand-offs: the daemon does not take slow programs for stuck ones, and a
stuck program loses nothing."""

import json
import time

import pytest

from world import end_fills, go_on, wait_for

GRACE_S = 1.5


@pytest.fixture
def slow(make_world):
    return make_world(memory="64MiB")


def fill(world, mib, seed):
    p = world.program("fill", "--bytes", f"{mib}MiB", "--block", "4MiB", "--seed", seed, "--until", world.path("end"), "--ms", "2")
    p.await_event("filled")
    return p


def look(world):
    gpu = world.status()["gpus"][0]
    assert gpu["charged"] <= gpu["capacity"] - gpu["headroom"], json.dumps(gpu, indent=1)
    return {c["pid"]: c for c in gpu["clients"]}


def test_a_slow_bus_makes_no_program_overdue(slow):
    """Every moved extent is progress: no program is overdue, and the status shows the bytes moving."""
    slow.start_daemon(config={"quantum": "150ms", "grace": f"{GRACE_S}s"})
    programs = [fill(slow, 40, seed) for seed in ("1", "2")]
    wait_for(lambda: slow.handoffs() >= 2, 30, "hand-offs")
    slow.slow_bus("both:24MB/s:60")
    before = slow.card()["d2h_bytes"]
    states, progress, looked = set(), {}, [time.monotonic()]

    def moved():
        began = time.monotonic()
        for pid, c in look(slow).items():
            now, figures = time.monotonic(), (c["moved_out"], c["moved_in"], c["backed"])
            if progress.get(pid, (None, 0))[0] != figures:
                progress[pid] = figures, looked[0]  # the earliest moment, because this look may have come late
            states.add(c["state"])
            # A program that a busy machine does not let run makes no progress, and may be overdue.
            assert "overdue" not in c["flags"] or now - progress[pid][1] > GRACE_S / 2, c
        looked[0] = began
        return slow.card()["d2h_bytes"] - before > 32 << 20 and {"evicting", "restoring"} <= states

    wait_for(moved, 60, "a hand-off over the slow bus, and to be seen")
    slow.slow_bus("both:16MB/s:0")
    go_on(programs, 4)
    end_fills(slow, *programs)


def test_a_program_that_cannot_move_its_memory_in_time_stops_no_other(slow):
    """One process's copies to the host have become very slow. The process is overdue, then left alone with the memory
    that it still holds, and goes on when the bus is free. An extent that is being moved out is not room for others."""
    slow.start_daemon(config={"quantum": "150ms", "grace": "500ms"})
    victim, other, small = fill(slow, 40, "1"), fill(slow, 40, "2"), fill(slow, 4, "3")
    slow.slow_bus(f"out:3MB/s:60:{victim.pid}")

    def late():
        c = look(slow).get(victim.pid)
        return c and {"overdue", "unpreemptible"} & set(c["flags"])

    wait_for(late, 60, "the victim to be overdue")
    go_on([small], 4)
    assert all(p.running() for p in (victim, other))
    slow.slow_bus("out:3MB/s:0")
    end_fills(slow, victim, other, small)
