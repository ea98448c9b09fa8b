"""Programs of one group (sublet run --group) run together or not at all."""

import os

import pytest

from test_drain import start, together_until
from test_oversubscription import check_contents, fill
from world import wait_for


def pair_of(world, job, side, size, gpu=0, **env):
    """Returns one of two programs of a job: each of its rounds ends when the other one has come as far."""
    return world.program("pair", "--bytes", f"{size}MiB", "--block", "4MiB", "--seed", side, "--sample",
                         world.path(f"page-{job}"), "--until", world.path("end"), "--rounds", 2, "--gpu", gpu, **env)


@pytest.fixture
def small(make_world):
    """A card that is small and so cheap to fill."""
    return make_world(memory="64MiB")


@pytest.mark.parametrize("mode", ["auto", "exclusive"])
def test_a_group_takes_turns_with_a_third_program(small, mode):
    """Two programs of a group fit the card together, and the third one fits beside neither of them."""
    world = start(small, mode=mode, unevictable_share="25%", grace="500ms")
    ranks = [pair_of(world, "a", side, 20, SUBLET_GROUP="a") for side in (1, 2)]
    for p in ranks:
        p.await_event("filled")
    other = fill(world, 40, "9")

    def enough():
        return world.handoffs() >= 6 and len(other.events("round")) >= 3 and all(len(p.events("round")) >= 4 for p in ranks)

    together_until(world, [*ranks, other], enough, "hand-offs, and rounds of all three")
    check_contents(world, [other])
    assert all(world.check_sums(p) >= 3 for p in ranks)


@pytest.mark.parametrize("handoffs", [pytest.param(2, marks=pytest.mark.freeze("off"), id="drained"),
                                      pytest.param(6, marks=pytest.mark.freeze("move"), id="frozen")])
def test_two_jobs_on_two_gpus_do_not_each_hold_one(make_world, handoffs):
    """Each job has a program on both GPUs, and each GPU has room for one of them. Without groups, each job holds one GPU
    and waits for the other. Without freezing, a drain often waits for the other program's next step. Then both go on,
    and are asked again."""
    world = start(make_world(memory="64MiB", gpus=2), unevictable_share="25%", grace="500ms")
    programs = [pair_of(world, job, side, 40, gpu, SUBLET_GROUP=job)
                for job, side, gpu in (("a", 1, 0), ("b", 2, 1), ("b", 1, 0), ("a", 2, 1))]  # each job is first on one GPU
    together_until(world, programs,
                   lambda: world.handoffs() >= handoffs and all(len(p.events("round")) >= 3 for p in programs),
                   "hand-offs, and rounds of all four", timeout=100)
    assert all(world.check_sums(p) >= 3 for p in programs)


def test_a_group_may_allocate_what_fits_the_card_together(small):
    world = start(small)
    first = world.program("hold", "--bytes", "40MiB", "--block", "8MiB", stdin=-1, SUBLET_GROUP="a")
    first.await_event("filled")
    alone = world.program("fill", "--bytes", "40MiB", "--block", "8MiB", "--rounds", 1)
    together = world.program("fill", "--bytes", "40MiB", "--block", "8MiB", "--rounds", 1, SUBLET_GROUP="a")
    alone.ok()
    assert together.wait() == 5, together.report()  # out of memory
    first.finish()


def test_a_group_is_given_with_the_command(small):
    world = start(small)
    tools = os.path.dirname(world.daemon.argv[0])
    hold = [os.path.join(tools, "programs", "hold"), "--bytes", "4MiB"]
    grouped = [world.start([os.path.join(tools, "sublet"), "run", "--group", "my job", "--", *hold], stdin=-1)
               for _ in range(2)]
    alone = world.start([os.path.join(tools, "sublet"), "run", "--", *hold], stdin=-1)
    for p in (*grouped, alone):
        p.await_event("filled")
    wait_for(lambda: len(world.clients()) == 3, 20, "three clients")
    rows = world.clients()
    assert [rows[p.pid]["group"] for p in (*grouped, alone)] == ["my job", "my job", None]
    assert world.status_text().count("my job") == 2 and "GROUP" in world.status_text()
    for p in (*grouped, alone):
        p.finish()
    for value in ("", "x" * 32):
        done = world.sublet("run", "--group", value, "--", "/bin/true")
        assert done.returncode == 2 and "--group is 1 to 31 printable ASCII characters" in done.stderr, (value, done)
