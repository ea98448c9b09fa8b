"""Torture: a program's memory on the card is taken away and given back before random calls of it and at random moments.
Every program must give the same results as without torture, through every door, with a daemon and without one.

Some programs are not tortured here: burst, turns, many (torture changes the times that they report), hold (is idle
between orders, as other tortured programs are), together (tests promises to one thread while another one asks),
early (forks before it has memory on the card), checker and nocuda (no CUDA)."""

import random
import subprocess

import pytest

from campaign import LONG
from test_programs import complaints, result
from families import DOORS, NEED_A_DAEMON, PROGRAMS, TANGLED, TORTURE, torture_of
from test_ipc import share
from test_overflow import on_host
from world import MIB, go_on, wait_for


def tortured(world, name, *args, torture, **env):
    return world.program(name, *args, SUBLET_TORTURE=torture, SUBLET_TRACE=world.path("trace"), **env)


def doors_of(name):
    """Returns two of the doors: each door has about half of the programs. A campaign takes all of them."""
    return DOORS if LONG else random.Random(name).sample(DOORS, 2)


def times(world, pid=None):
    """Returns the bytes that torture moved, for each time that it moved memory."""
    return [e["bytes"] for e in world.traced("torture", pid)]


def check_equal(world, name, doors, **env):
    """Runs the program through all these doors at the same time, on one card. Checks that the results are those of a
    plain run. Returns the runs."""
    args, before = [name, *PROGRAMS[name], "--seed", "11"], len(times(world))
    plain = world.program(*args, shared=False).ok()
    runs = [tortured(world, *args, door=door, torture=torture_of(name, seed), **env) for seed, door in enumerate(doors, 1)]
    for run in runs:
        assert result(run.ok()) == result(plain)
        assert not complaints(run, name)
        assert sum(times(world, run.pid)) > 0
    # Torture leaves a forked child alone, whatever its parent was doing.
    assert len(times(world)) == before + sum(len(times(world, run.pid)) for run in runs)
    return runs


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_equal_under_torture_through_every_door(shared, name):
    check_equal(shared, name, doors_of(name))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in NEED_A_DAEMON])
def test_results_are_equal_under_torture_without_a_daemon(world, name):
    args = [name, *PROGRAMS[name], "--seed", "11"]
    plain = world.program(*args, shared=False).ok()
    run = tortured(world, *args, torture=torture_of(name, 5), SUBLET_DAEMON="/nonexistent").ok()
    assert result(run) == result(plain)
    assert sum(times(world, run.pid)) > 0


# In overflow mode: arguments that need more memory than may stay on the card, and the bytes that may stay.
OVERFLOW = {
    "fill": (["--bytes", "24MiB", "--block", "3MiB"], "8MiB"),
    "churn": (["--bytes", "16MiB", "--block", "3MiB", "--rounds", "8", "--ms", "3"], "4MiB"),
    "copies": (["--bytes", "3MiB", "--rounds", "2"], "2MiB"),
    "threads": (["--bytes", "16MiB", "--block", "3MiB"], "4MiB"),
    "graph": (["--bytes", "6MiB"], "4MiB"),
}


@pytest.mark.parametrize("name", OVERFLOW)
def test_results_are_equal_under_torture_in_overflow_mode(world, name):
    """Memory on the card is evicted and restored; memory on the host stays there."""
    world.start_daemon(config={"quantum": "200ms", "host_memory": "1GiB"})
    args, keep = OVERFLOW[name]
    plain = world.program(name, *args, "--seed", "11", shared=False).ok()
    runs = [tortured(world, name, *args, "--seed", "11", door=door, torture=torture_of(name, seed),
                     SUBLET_MEMORY="overflow", SUBLET_KEEP=keep) for seed, door in enumerate(DOORS, 1)]
    for run in runs:
        assert result(run.ok()) == result(plain)
        assert run.err() == ""
    # Each program has so little memory on the card that torture may move nothing of a single program.
    assert sum(sum(times(world, run.pid)) for run in runs) > 0
    for p in world.card()["processes"]:
        if p["pid"] in [run.pid for run in runs]:
            assert p["mapped_d2h_bytes"] > 0, "some of its memory lies on the host"


@pytest.mark.freeze("park")  # without a second context the accounts equal the card's figures
def test_buffers_can_change_sides_under_torture(world):
    """Priorities move buffers between host and card, while torture evicts the buffers on the card."""
    world.start_daemon(config={"quantum": "200ms", "host_memory": "1GiB"})
    p = tortured(world, "buffers", "--seed", "5", torture="5,calls=20,every=20ms", stdin=subprocess.PIPE,
                 SUBLET_MEMORY="overflow", SUBLET_KEEP="24MiB")
    p.await_event("ready")
    for n in range(4):
        p.order(f"alloc {n} 12MiB")
    assert on_host(world, p, 3) == [12]
    p.order("priority 3 1")
    wait_for(lambda: on_host(world, p, 3) == [0], 60, "the last buffer to come to the card, and others to leave")
    p.order("check")
    p.finish()
    assert sum(times(world, p.pid)) > 0


@pytest.mark.parametrize("name", ["churn", "threads", "copies"])
def test_results_are_equal_under_torture_in_managed_memory(shared, name):
    args = [name, *PROGRAMS[name], "--seed", "11"]
    plain = shared.program(*args, shared=False).ok()
    run = tortured(shared, *args, torture=torture_of(name, 5), SUBLET_MEMORY="managed").ok()
    assert result(run) == result(plain)
    assert sum(times(shared, run.pid)) > 0


def check_tangled(world, name, doors, **env):
    """Runs the program through all these doors at the same time, on one card. Checks its sums. Returns the runs."""
    open(world.path("end"), "wb").close()
    runs = [tortured(world, *TANGLED[name], "--seed", seed, "--until", world.path("end"), door=door,
                     torture=torture_of(name, seed), **env) for seed, door in enumerate(doors, 5)]
    for run in runs:
        assert world.check_sums(run.ok()) >= 2
        assert sum(times(world, run.pid)) > 0
    return runs


@pytest.mark.parametrize("name", TANGLED)
def test_tangled_programs_have_right_sums_under_torture(shared, name):
    check_tangled(shared, name, doors_of(name))


@pytest.mark.parametrize("doors", [DOORS[:2], DOORS[2:]], ids="-".join)
def test_shared_memory_stays_right_under_torture(shared, doors):
    """The shared memory stays on the card while other memory of both processes is evicted around it."""
    def said(**torture):
        exporter, importer = (share(shared, mib, private=2, door=door, **torture) for mib, door in zip((16, 1), doors))
        exporter.order("export " + shared.path("handles"))
        assert importer.order("import " + shared.path("handles"))["result"] == 0
        sums = [[importer.order("touch")["sum"], importer.order(f"theirs {n}")["sum"], exporter.order("touch")["sum"],
                 exporter.order(f"own {n + 1}")["sum"]] for n in range(0, 8, 2)]
        importer.order("close")
        for p in (importer, exporter):
            p.finish()
        return sums, (exporter.pid, importer.pid)

    plain, _ = said(shared=False)
    sums, pids = said(SUBLET_TORTURE=f"3,{TORTURE}")
    assert sums == plain
    assert all(sum(times(shared, pid)) > 0 for pid in pids)


def test_two_gpus_of_one_process_share_memory_under_torture(make_world):
    """Memory of the first GPU that the second may use is mapped for the second again at every restore."""
    world = make_world(gpus=2)
    world.start_daemon(config={"quantum": "200ms"})
    args = ["peers", "--bytes", "8MiB", "--block", "2MiB", "--rounds", "3", "--seed", "5"]
    plain = world.program(*args, shared=False).ok()
    for run in [tortured(world, *args, door=door, torture=f"{n},{TORTURE}") for n, door in enumerate(doors_of("peers"))]:
        assert result(run.ok()) == result(plain)
        assert sum(times(world, run.pid)) > 0


def test_managed_memory_stays_right_beside_tortured_memory(shared):
    """The driver moves managed memory itself, and our memory beside it is tortured; the program compares every word."""
    runs = [tortured(shared, "managed", "--bytes", "8MiB", "--block", "2MiB", "--seed", n, door=door,
                     torture=f"{n},{TORTURE}", stdin=subprocess.PIPE) for n, door in enumerate(doors_of("managed"))]
    for p in runs:
        p.await_event("ready")
    for line in ("init", "alloc 8MiB", "run 2", "copies", "prefetch", "reverse", "home", "alloc 4MiB", "check"):
        for p in runs:
            p.order(line)
    for p in runs:
        p.finish()
        assert sum(times(shared, p.pid)) > 0


def test_hardly_changed_memory_stays_right_under_torture(shared):
    """The program compares every byte, also if the library asks for a fingerprint of each extent."""
    args = ["edit", "--rounds", "8", "--bytes", "8MiB", "--block", "2MiB", "--seed", "4"]
    plain = shared.program(*args, shared=False).ok()
    for run in [tortured(shared, *args, door=door, torture=f"{n},{TORTURE}", SUBLET_UNCHANGED=("auto", "always")[n % 2])
                for n, door in enumerate(DOORS)]:
        assert result(run.ok()) == result(plain)
        assert sum(times(shared, run.pid)) > 0


def test_a_primary_context_can_be_released_and_retained_under_torture(shared):
    """The programs run until torture has moved their memory: on a slow machine that may be after they have filled
    it."""
    runs = [tortured(shared, "revive", "--bytes", "8MiB", "--ms", "30", door=door, torture=f"{n},calls=1,every=2ms",
                     stdin=subprocess.PIPE) for n, door in enumerate(DOORS)]
    for run in runs:
        run.await_event("filled")
        wait_for(lambda run=run: sum(times(shared, run.pid)) > 0, 20, "torture")
        run.finish()
        assert run.err() == ""


def test_two_processes_that_wait_for_each_other_go_on_under_torture(shared):
    """A drain of one process ends only when the other has run; torture gives the drain up instead of waiting."""
    for doors in (DOORS[:2], DOORS[2:]):
        pair = [tortured(shared, "pair", "--bytes", "16MiB", "--block", "4MiB", "--rounds", "3", "--seed", side, "--sample",
                         shared.path("page-" + doors[0]), door=door, torture=f"{side},{TORTURE}")
                for side, door in enumerate(doors, 1)]
        for p in pair:
            assert shared.check_sums(p.ok()) >= 3
            assert sum(times(shared, p.pid)) > 0


@pytest.mark.parametrize("how", ["alone", "beside"])
def test_a_failed_context_gives_the_same_answers_under_torture(shared, how):
    """The memory of the context is lost, and all answers are the same as without torture."""
    args = ["broken", "--how", how, "--bytes", "8MiB", "--block", "2MiB"]
    plain = shared.program(*args, shared=False, stdin=subprocess.PIPE)
    runs = [tortured(shared, *args, door=door, torture=f"{n},{TORTURE}", stdin=subprocess.PIPE)
            for n, door in enumerate(DOORS)]
    for p in (plain, *runs):
        p.await_event("filled")
        if p != plain:
            wait_for(lambda: sum(times(shared, p.pid)) > 0, 20, "torture")
        p.order("break")
        p.order("break")
        p.finish()
        assert result(p) == result(plain)


def test_four_programs_by_four_ways_stay_right(shared):
    """The four programs do not fit together, and each is started in another way."""
    for run in [tortured(shared, "roam", "--bytes", "40MiB", "--ms", "20", "--seconds", "2", "--seed", n, door=door,
                         torture=f"{n},{TORTURE}") for n, door in enumerate(DOORS)]:
        assert run.ok().events("roamed")
        assert sum(times(shared, run.pid)) > 0


@pytest.mark.parametrize("door", DOORS)
def test_a_full_card_refuses_at_the_same_moment_under_torture(small, door):
    """The size of the card, and the moment of refusal, are the same as without torture."""
    plain = small.program("oom", "--block", "4MiB").ok()
    run = tortured(small, "oom", "--block", "4MiB", door=door, torture="3,calls=20,every=20ms").ok()
    assert result(run) == result(plain)
    assert sum(times(small, run.pid)) > 32 * MIB  # chance decides whether torture finds the card full


@pytest.mark.parametrize("how", ["cancel", "signal", "exit", "join", "fork"])
def test_threads_and_processes_can_end_under_torture(shared, how):
    for name in ("go", "end"):
        open(shared.path(name), "wb").close()
    run = tortured(shared, "leave", "--how", how, "--bytes", "64MiB", "--block", "8MiB", "--seed", "5", "--ms", "20",
                   "--sample", shared.path("go"), "--until", shared.path("end"), torture=f"7,{TORTURE}").ok()
    assert run.err() == ""
    assert run.events("joined" if how == "join" else "freed" if how == "exit" else "end")


def test_the_seed_decides_the_moved_bytes(world):
    """Two runs with one seed move the same bytes; another seed moves others."""
    args = ["copies", "--bytes", "4MiB", "--rounds", "3", "--seed", "11"]
    said = []
    for seed in (1, 1, 2):
        run = tortured(world, *args, torture=f"{seed},calls=7,every=0", SUBLET_DAEMON="/nonexistent").ok()
        said.append(times(world, run.pid))
    assert len(said[0]) > 20
    assert said[0] == said[1]
    assert said[0] != said[2]


def test_torture_with_both_parts_off_moves_nothing(shared):
    run = tortured(shared, "fill", *PROGRAMS["fill"], torture="1,calls=0,every=0").ok()
    assert times(shared, run.pid) == []


@pytest.mark.parametrize("setting", ["x", "1,calls=", "1,every=5", "1,often", "-1", "9" * 90])
def test_a_bad_setting_for_torture_is_named(shared, setting):
    run = tortured(shared, "fill", *PROGRAMS["fill"], torture=setting).ok()
    assert f"SUBLET_TORTURE is SEED[,calls=N][,every=DURATION], not '{setting}'" in run.err()
    assert times(shared, run.pid) == []


def test_the_log_counts_how_often_memory_was_moved(shared):
    run = tortured(shared, "churn", *PROGRAMS["churn"], torture=f"3,{TORTURE}", SUBLET_LOG="info").ok()
    lines = [line for line in run.err().splitlines() if "torture: " in line]
    assert len(lines) == len(times(shared, run.pid))
    assert f"; {len(lines)} times so far, " in lines[-1]


@pytest.fixture
def small(make_world):
    """A card that is small and so cheap to fill, for two programs that do not fit together."""
    w = make_world(memory="64MiB")
    w.start_daemon(config={"quantum": "150ms"})
    return w


def start_pair(world, spec):
    return [tortured(world, "fill", "--bytes", "40MiB", "--block", "4MiB", "--seed", seed, "--rounds", 2, "--until",
                     world.path("end"), torture=f"{seed},{spec}") for seed in (1, 2)]


def end_pair(world, pair):
    open(world.path("end"), "wb").close()
    for p in pair:
        p.ok()
        world.check_sums(p)
        assert len(times(world, p.pid)) > 2


def test_two_programs_that_do_not_fit_take_turns_under_torture(small):
    pair = start_pair(small, "calls=20,every=30ms")
    wait_for(lambda: small.handoffs() > 1 and all(len(times(small, p.pid)) > 2 for p in pair), 60, "hand-offs")
    end_pair(small, pair)


def test_programs_under_torture_survive_a_restart_of_the_daemon(small):
    """Torture obeys a daemon's orders: a returning program waits for its turn like all others."""
    pair = start_pair(small, "calls=10,every=5ms")
    go_on(pair, 1)
    small.daemon.process.kill()
    small.daemon.wait()
    small.start_daemon(config={"quantum": "150ms"})
    go_on(pair, 1)
    wait_for(lambda: all(len(times(small, p.pid)) > 2 for p in pair), 60, "torture of both")
    end_pair(small, pair)
