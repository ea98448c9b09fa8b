"""Programs of one group (sublet run --group), and ranks of one job, run together or not at all."""

import os
import subprocess
import time

import pytest

from test_drain import start, together_until
from test_oversubscription import check_contents, fill
from world import GENEROUS_S, PATIENCE, wait_for


# The variables that launchers set in each rank. {rank} is the number of the rank, {job} the number of its job.
LAUNCHERS = {
    "torchrun": {"RANK": "{rank}", "LOCAL_RANK": "{rank}", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": "2950{job}", "TORCHELASTIC_RUN_ID": "none"},
    "openmpi": {"OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "{rank}",
                "PMIX_NAMESPACE": "prterun-host-123{job}@1"},
    "slurm": {"SLURM_PROCID": "{rank}", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "42", "SLURM_STEP_ID": "{job}"},
}


def rank_of(launcher, job, rank):
    return {name: value.format(job=job, rank=rank) for name, value in LAUNCHERS[launcher].items()}


def pair_of(world, job, side, size, gpu=0, meet=True, **env):
    """Returns one of two programs of a job: each of its rounds ends when the other one has come as far. meet: the first
    round begins when both have memory, and both pause after each one. Otherwise a program alone may wait for its job before
    the daemon knows the rest of it. And a drain succeeds only by chance between two steps, if nothing is frozen."""
    return world.program("pair", "--bytes", f"{size}MiB", "--block", "4MiB", "--seed", side, "--sample",
                         world.path(f"page-{job}"), "--until", world.path("end"), "--rounds", 2, "--gpu", gpu,
                         *(("--count", 2, "--ms", 30) if meet else ()), **env)


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


@pytest.mark.freeze("off")
def test_an_idle_program_of_a_group_comes_back_for_the_others(small):
    """It waits for something else than the GPU, as a rank does before it meets its peers. Its memory has left."""
    world = start(small, unevictable_share="25%", grace="500ms")
    idle = world.program("hold", "--bytes", "20MiB", "--block", "4MiB", SUBLET_GROUP="a", stdin=subprocess.PIPE)
    idle.await_event("filled")
    other = fill(world, 40, "9")
    wait_for(lambda: world.clients()[idle.pid]["evicted"] > 0, GENEROUS_S, "the idle program to leave", report=world.status_text)
    peer = world.program("fill", "--bytes", "16MiB", "--block", "4MiB", "--seed", 8, "--until", world.path("end"), SUBLET_GROUP="a")
    together_until(world, [peer, other], lambda: len(peer.events("round")) >= 3, "rounds of the group")
    assert idle.order("verify")["event"] == "done"
    idle.finish()


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


def two_jobs(world, launcher, in_order=False, **env):
    """Starts two jobs with a rank on each of two GPUs. Each job is first on one GPU; in_order: and fills it first."""
    programs = []
    for job, side, gpu in ((1, 1, 0), (2, 2, 1), (2, 1, 0), (1, 2, 1)):
        programs.append(pair_of(world, job, side, 40, gpu, not in_order, **rank_of(launcher, job, side - 1),
                                **env))
        if in_order and len(programs) <= 2:
            programs[-1].await_event("filled")
    return programs


@pytest.mark.freeze("off")
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_of_a_job_run_together_without_a_name(make_world, launcher):
    """The launcher's variables tell which programs are one job. Without freezing, they are drained as above."""
    world = start(make_world(memory="64MiB", gpus=2), unevictable_share="25%", grace="500ms")
    programs = two_jobs(world, launcher)
    together_until(world, programs,
                   lambda: world.handoffs() >= 2 and all(len(p.events("round")) >= 3 for p in programs),
                   "hand-offs, and rounds of all four", timeout=100)
    assert all(world.check_sums(p) >= 3 for p in programs)


@pytest.mark.freeze("off")
def test_ranks_told_to_be_in_no_group_wait_for_each_other(make_world):
    """Each job holds one GPU, and its rank there cannot be drained, because it waits for the other rank."""
    world = start(make_world(memory="64MiB", gpus=2), unevictable_share="25%", grace="500ms")
    programs = two_jobs(world, "torchrun", in_order=True, SUBLET_GROUP="none")
    time.sleep(4 * PATIENCE)
    assert [len(p.events("round")) for p in programs] == [0, 0, 0, 0], "\n".join(p.report() for p in programs)


def test_status_shows_the_group_of_a_job(small):
    world = start(small)
    hold = ["hold", "--bytes", "4MiB"]
    ranks = [world.program(*hold, stdin=-1, **rank_of("slurm", job, rank)) for job, rank in ((1, 0), (1, 1), (2, 0))]
    named = world.program(*hold, stdin=-1, SUBLET_GROUP="mine", **rank_of("slurm", 1, 0))
    alone = [world.program(*hold, stdin=-1, SUBLET_GROUP="none", **rank_of("slurm", 1, 0)),
             world.program(*hold, stdin=-1, **{**rank_of("slurm", 1, 0), "SLURM_STEP_NUM_TASKS": "1"})]
    for p in (*ranks, named, *alone):
        p.await_event("filled")
    wait_for(lambda: len(world.clients()) == 6, 20, "six clients")
    rows = world.clients()
    first, second, other = (rows[p.pid]["group"] for p in ranks)
    assert first == second != other and first.startswith("slurm:") and other.startswith("slurm:"), rows
    assert rows[named.pid]["group"] == "mine" and all(rows[p.pid]["group"] is None for p in alone), rows
    for p in (*ranks, named, *alone):
        p.finish()


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
