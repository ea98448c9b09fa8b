"""More memory than the card has: every program gets its turn and finds its memory unchanged. Only competing demand
causes hand-offs. Each program rewrites all of its memory between its turns, and another process recomputes the
contents."""

import os
import subprocess

import pytest

from world import NO_PID_NAMESPACES, wait_for

HANDOFFS = 20


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


def fill(world, mib, seed, *more, block="8MiB", before=()):
    sample = world.path(f"sample-{seed}")
    return world.program("fill", "--bytes", f"{mib}MiB", "--block", block, "--seed", seed, "--sample", sample,
                         "--sample-bytes", "1MiB", "--until", world.path("end"), *more, before=before)


def test_two_programs_of_three_quarters_of_the_card_take_turns(shared):
    programs = [fill(shared, 96, seed) for seed in ("1", "2")]
    run_until_handoffs(shared, programs, HANDOFFS, shared.path("end"))
    check_contents(shared, programs)
    # Each hand-off had to move the missing bytes: 2 x 96 MiB and two contexts do not fit 128 MiB.
    card = shared.card()
    assert card["d2h_bytes"] > HANDOFFS * 40 * (1 << 20)
    assert card["peak"] <= card["total"]


def test_three_programs_of_half_the_card_take_turns(shared):
    programs = [fill(shared, 64, seed) for seed in ("1", "2", "3")]
    run_until_handoffs(shared, programs, HANDOFFS, shared.path("end"))
    check_contents(shared, programs)


def imported(world):
    """Returns how often memory was mapped that the process had not created: another process handed it over."""
    card = world.card()
    return card["maps"] - card["creates"]


def test_memory_is_handed_over_to_the_same_user(shared):
    # All extents are equal: 8 MiB, a 16th of the card.
    programs = [fill(shared, 96, seed) for seed in ("1", "2")]
    run_until_handoffs(shared, programs, 6, shared.path("end"))
    check_contents(shared, programs)
    assert imported(shared) > 0


@pytest.mark.freeze("off")  # the test counts descriptors
def test_memory_is_not_handed_over_between_containers(shared):
    # The second program has a pid namespace of its own; both belong to one user.
    alone = ["unshare", "--fork", "--pid", "--kill-child"]
    if subprocess.run(alone + ["true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip(NO_PID_NAMESPACES)
    programs = [fill(shared, 96, "1"), fill(shared, 96, "2", before=alone)]
    run_until_handoffs(shared, programs, 6, shared.path("end"))
    check_contents(shared, programs)
    assert imported(shared) == 0


def test_blocks_of_odd_sizes_survive_hand_offs(shared):
    # 30 blocks, of which each takes 4 MiB in pieces of 2 MiB, as the driver's own allocation does.
    programs = [fill(shared, 80, seed, block="3000001") for seed in ("1", "2")]
    run_until_handoffs(shared, programs, 6, shared.path("end"))
    check_contents(shared, programs)


COMPETING = {
    "churn": ["churn", "--bytes", "80MiB", "--block", "8MiB", "--ms", "20"],
    "threads": ["threads", "--bytes", "88MiB", "--block", "4MiB"],
    "graph": ["graph", "--bytes", "80MiB", "--block", "1MiB"],
    "graphbuild": ["graphbuild", "--bytes", "80MiB", "--block", "1MiB"],
    "ptds": ["ptds", "--bytes", "80MiB", "--block", "8MiB", "--ms", "5", "--count", "20"],
    "launchex": ["launchex", "--bytes", "80MiB", "--block", "16MiB"],
    "small": ["small", "--count", "6000"],
    "copies": ["copies", "--bytes", "64MiB"],
}


@pytest.mark.parametrize("name", COMPETING)
def test_the_memory_of_every_program_survives_evictions(shared, name):
    """The program competes with another one that leaves it no room."""
    mib = 96 if name not in ("small",) else 112
    end = shared.path("end")
    subject = shared.program(*COMPETING[name], "--until", end, "--seed", "5")
    other = fill(shared, mib, "9")
    run_until_handoffs(shared, [subject, other], 6, end)
    check_contents(shared, [other])


def test_two_programs_with_four_threads_take_turns(shared):
    end = shared.path("end")
    programs = [shared.program("threads", "--bytes", "96MiB", "--block", "4MiB", "--seed", seed, "--until", end)
                for seed in ("1", "2")]
    run_until_handoffs(shared, programs, 10, end)


def test_two_programs_that_allocate_and_free_take_turns(shared):
    end = shared.path("end")
    programs = [shared.program("churn", "--bytes", "96MiB", "--block", "8MiB", "--ms", "10", "--seed", seed, "--until",
                               end) for seed in ("1", "2")]
    run_until_handoffs(shared, programs, 10, end)


def test_an_idle_program_gives_way_and_gets_its_memory_back(shared):
    import subprocess

    idle = shared.program("hold", "--bytes", "96MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    idle.await_event("filled")
    busy = fill(shared, 96, "3")
    busy.await_event("round")
    assert shared.clients()[idle.pid]["backed"] < 96 << 20
    idle.order("verify")
    idle.order("touch")
    touch(shared.path("end"))
    busy.ok()
    idle.finish()
    check_contents(shared, [busy])
    assert shared.check_sums(idle) == 1


def test_the_memory_of_an_ended_program_is_not_restored(shared):
    """A program that ends while it is evicted does not move its memory back in."""
    import subprocess

    idle = shared.program("hold", "--bytes", "96MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    idle.await_event("filled")
    busy = fill(shared, 96, "3")
    busy.await_event("round")
    before = shared.card()["h2d_bytes"]
    idle.process.kill()
    idle.wait()
    wait_for(lambda: idle.pid not in shared.clients(), 20, "the killed client to be forgotten")
    assert shared.card()["h2d_bytes"] - before < 96 << 20
    touch(shared.path("end"))
    busy.ok()
    check_contents(shared, [busy])


@pytest.mark.skipif(os.cpu_count() < 2, reason="there is one processor; with two they run")
def test_exclusive_mode_gives_one_lease_at_a_time(shared):
    done = shared.sublet("set", "mode", "exclusive")
    assert done.returncode == 0, done.stderr
    programs = [fill(shared, 32, seed) for seed in ("1", "2")]
    for p in programs:
        p.await_event("filled")
    end = shared.path("end")

    def never_two():
        running = [c for c in shared.clients().values() if c["state"] == "running"]
        assert len(running) <= 1, running
        return shared.handoffs() >= 6

    wait_for(never_two, 60, "6 hand-offs")
    touch(end)
    for p in programs:
        p.ok()
    check_contents(shared, programs)
