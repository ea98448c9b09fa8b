"""More memory than the card has: every program gets its turn and finds its memory unchanged. Only competing demand
causes hand-offs. Each program rewrites all of its memory between its turns, and another process recomputes the
contents."""

import os
import subprocess

import pytest

from campaign import LONG
from world import MIB, NO_PID_NAMESPACES, wait_for

HANDOFFS = 20 if LONG else 8


@pytest.fixture
def small(make_world):
    """A card that is small and so cheap to fill, with room for second contexts."""
    w = make_world(memory="64MiB")
    w.start_daemon(config={"quantum": "100ms", "unevictable_share": "10%"})
    return w


def touch(path):
    with open(path, "w", encoding="utf-8"):
        pass


def run_until_handoffs(world, programs, handoffs, go_on, timeout=150):
    """Lets the programs compete until that many hand-offs have happened, then tells them to end."""
    def enough():
        for p in programs:
            if not p.running() and p.process.returncode != 0:
                raise AssertionError("ended early\n" + p.report())
        return world.handoffs() >= handoffs

    wait_for(enough, timeout, f"{handoffs} hand-offs", interval=0.2)
    touch(go_on)
    for p in programs:
        p.ok()


def check_contents(world, programs):
    for p in programs:
        assert world.check_sums(p) >= 2
        sample = p.argv[p.argv.index("--sample") + 1]
        assert world.check_sample(sample)["words"] > 0


def fill(world, mib, seed, *more, block="8MiB", before=(), **env):
    sample = world.path(f"sample-{seed}")
    return world.program("fill", "--bytes", f"{mib}MiB", "--block", block, "--seed", seed, "--sample", sample,
                         "--sample-bytes", "1MiB", "--until", world.path("end"), *more, before=before, **env)


def test_two_programs_of_three_quarters_of_the_card_take_turns(small):
    programs = [fill(small, 48, seed) for seed in ("1", "2")]
    run_until_handoffs(small, programs, HANDOFFS, small.path("end"))
    check_contents(small, programs)
    # Each hand-off had to move the missing bytes: 2 x 48 MiB and two contexts do not fit 64 MiB.
    card = small.card()
    assert card["d2h_bytes"] > HANDOFFS * 20 * MIB
    assert card["peak"] <= card["total"]


def test_three_programs_of_half_the_card_take_turns(small):
    programs = [fill(small, 32, seed) for seed in ("1", "2", "3")]
    run_until_handoffs(small, programs, HANDOFFS, small.path("end"))
    check_contents(small, programs)


def imported(world):
    """Returns how often memory was mapped that the process had not created: another process handed it over."""
    card = world.card()
    return card["maps"] - card["creates"]


def test_memory_is_handed_over_to_the_same_user(small):
    # All extents are equal: 4 MiB, a 16th of the card.
    programs = [fill(small, 48, seed) for seed in ("1", "2")]
    run_until_handoffs(small, programs, 6, small.path("end"))
    check_contents(small, programs)
    assert imported(small) > 0


@pytest.mark.freeze("off")  # the test counts descriptors
def test_memory_is_not_handed_over_between_containers(small):
    # The second program has a pid namespace of its own; both belong to one user.
    alone = ["unshare", "--fork", "--pid", "--kill-child"]
    if subprocess.run(alone + ["true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip(NO_PID_NAMESPACES)
    programs = [fill(small, 48, "1"), fill(small, 48, "2", before=alone)]
    run_until_handoffs(small, programs, 6, small.path("end"))
    check_contents(small, programs)
    assert imported(small) == 0


def test_blocks_of_odd_sizes_survive_hand_offs(small):
    # 13 blocks, of which each takes 4 MiB in pieces of 2 MiB, as the driver's own allocation does.
    programs = [fill(small, 36, seed, block="3000001") for seed in ("1", "2")]
    run_until_handoffs(small, programs, 6, small.path("end"))
    check_contents(small, programs)


COMPETING = {
    "churn": ["churn", "--bytes", "40MiB", "--block", "4MiB", "--ms", "20"],
    "threads": ["threads", "--bytes", "44MiB", "--block", "2MiB"],
    "graph": ["graph", "--bytes", "40MiB", "--block", "1MiB"],
    "graphbuild": ["graphbuild", "--bytes", "40MiB", "--block", "1MiB"],
    "ptds": ["ptds", "--bytes", "40MiB", "--block", "4MiB", "--ms", "5", "--count", "20"],
    "launchex": ["launchex", "--bytes", "40MiB", "--block", "8MiB"],
    "small": ["small", "--count", "6000"],
    "copies": ["copies", "--bytes", "32MiB"],
}


@pytest.mark.parametrize("name", COMPETING)
def test_the_memory_of_every_program_survives_evictions(small, name):
    """The program competes with another one that leaves it no room."""
    mib = 48 if name not in ("small",) else 52
    end = small.path("end")
    subject = small.program(*COMPETING[name], "--until", end, "--seed", "5")
    other = fill(small, mib, "9")
    run_until_handoffs(small, [subject, other], 6, end)
    check_contents(small, [other])


def test_two_programs_with_four_threads_take_turns(small):
    end = small.path("end")
    programs = [small.program("threads", "--bytes", "48MiB", "--block", "2MiB", "--seed", seed, "--until", end)
                for seed in ("1", "2")]
    run_until_handoffs(small, programs, 10, end)


def test_two_programs_that_allocate_and_free_take_turns(small):
    end = small.path("end")
    programs = [small.program("churn", "--bytes", "48MiB", "--block", "4MiB", "--ms", "10", "--seed", seed, "--until",
                               end) for seed in ("1", "2")]
    run_until_handoffs(small, programs, 10, end)


def test_an_idle_program_gives_way_and_gets_its_memory_back(small):
    idle = small.program("hold", "--bytes", "48MiB", "--block", "4MiB", stdin=subprocess.PIPE)
    idle.await_event("filled")
    busy = fill(small, 48, "3")
    busy.await_event("round")
    assert small.clients()[idle.pid]["backed"] < 48 * MIB
    idle.order("verify")
    idle.order("touch")
    touch(small.path("end"))
    busy.ok()
    idle.finish()
    check_contents(small, [busy])
    assert small.check_sums(idle) == 1


def test_the_memory_of_an_ended_program_is_not_restored(small):
    """A program that ends while it is evicted does not move its memory back in."""
    idle = small.program("hold", "--bytes", "48MiB", "--block", "4MiB", stdin=subprocess.PIPE)
    idle.await_event("filled")
    busy = fill(small, 48, "3")
    busy.await_event("round")
    before = small.card()["h2d_bytes"]
    idle.process.kill()
    idle.wait()
    wait_for(lambda: idle.pid not in small.clients(), 20, "the killed client to be forgotten")
    assert small.card()["h2d_bytes"] - before < 48 * MIB
    touch(small.path("end"))
    busy.ok()
    check_contents(small, [busy])


@pytest.mark.skipif(os.cpu_count() < 2, reason="there is one processor; with two they run")
def test_exclusive_mode_gives_one_lease_at_a_time(small):
    done = small.sublet("set", "mode", "exclusive")
    assert done.returncode == 0, done.stderr
    programs = [fill(small, 16, seed, SUBLET_FREEZE="off") for seed in ("1", "2")]  # the hand cannot preempt them
    for p in programs:
        p.await_event("filled")
    end = small.path("end")

    def never_two():
        running = [c for c in small.clients().values() if c["state"] == "running"]
        assert len(running) <= 1, running
        return small.handoffs() >= 6

    wait_for(never_two, 60, "6 hand-offs")
    touch(end)
    for p in programs:
        p.ok()
    check_contents(small, programs)
