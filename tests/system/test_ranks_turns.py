"""Ranks of one card that wait for each other on the GPU: a rank whose work only waits gives way at once, and comes back
when the wait is over. A library in front of libsublet.so (tests/programs/front.c) says when work waits."""

import os
import signal
import struct

import pytest

from counting import QUICK, frozen_out, leave, take_the_card
from test_drain import together_until
from test_group import rank_of
from world import BUILD, GENEROUS_S, LIBRARY, wait_for

FRONT = os.path.join(BUILD, "tests", "front", "libfront.so")
# No turn ends in the time of a test, so a program that loses the card has counted as idle.
LONG = {"quantum": "1h"}
WORDS = 64  # bytes from one side's words in the page to the other's


@pytest.fixture
def small(make_world):
    """A card of 64 MiB."""
    return make_world(memory="64MiB")


def rank(world, side, mib, *more, how="value", **env):
    """Starts one of two ranks. Each of their rounds ends when the other one has come as far."""
    page = world.path("page")
    return world.program("pair", "--how", how, "--bytes", f"{mib}MiB", "--block", "4MiB", "--seed", side, "--sample", page,
                         "--until", world.path("end"), *more, LD_PRELOAD=f"{FRONT}:{LIBRARY}", FRONT_PAGE=page,
                         FRONT_SIDE=str(side), **{**rank_of("torchrun", 1, side - 1), **env})


def start(world, mib, *more, **env):
    ranks = [rank(world, side, mib, *more, **env) for side in (1, 2)]
    for p in ranks:
        p.await_event("filled")
    return ranks


def state(world, program):
    return world.clients()[program.pid]["state"]


@pytest.fixture
def waiter(small):
    """Returns the world, and a rank that waits for one that never comes. A rival has the card."""
    small.start_daemon(config=LONG)
    p = rank(small, 1, 32)
    wait_for(lambda: p.events("filled") and small.clients()[p.pid]["idle"], GENEROUS_S, "the rank to wait", report=p.report)
    rival = take_the_card(small)
    wait_for(lambda: frozen_out(small, p), GENEROUS_S, "the rank to be frozen", report=p.report)
    return small, p, rival


def write(world, side, words):
    """Writes one side's words of the page, as its rank would on the GPU, or the library for a rank that is dead."""
    with open(world.path("page"), "r+b") as f:
        f.seek((side - 1) * WORDS)
        f.write(struct.pack("=2I", *words))


@pytest.mark.freeze("move")
def test_ranks_that_do_not_fit_together_meet_round_after_round(small):
    """One rank has the card and waits for the other. Each round needs a hand-off, and no turn ever ends. Both have a
    second context, although these exceed the share for unevictable bytes."""
    small.start_daemon(config=LONG)
    ranks = start(small, 32)
    together_until(small, ranks, lambda: all(len(p.events("round")) >= 20 for p in ranks), "20 rounds of both")
    assert all(small.check_sums(p) >= 20 for p in ranks)
    assert small.handoffs() >= 20 and not small.traced("drain_failed")
    assert all(len(small.traced("frozen", p.pid)) >= 9 for p in ranks)


@pytest.mark.freeze("move")
def test_a_rank_that_waits_gets_a_turn_for_what_its_thread_is_going_to_submit(small):
    """Each rank's work waits for the other rank, and a thread of the first one is at the gate with what the second one
    waits for."""
    small.start_daemon(config=LONG)
    ranks = start(small, 32, "--rounds", 2, how="late")
    together_until(small, ranks, lambda: all(len(p.events("round")) >= 2 for p in ranks), "2 rounds of both")
    assert all(small.check_sums(p) >= 2 for p in ranks)


@pytest.mark.freeze("move")
def test_ranks_beside_a_third_program_meet_round_after_round(small):
    """Each of the three has turns. The third one computes all the time, so its turns must end."""
    small.start_daemon(config={**QUICK, "unevictable_share": "10%"})
    ranks = start(small, 32)
    other = small.program("fill", "--bytes", "32MiB", "--block", "4MiB", "--seed", 9, "--until", small.path("end"))
    together_until(small, [*ranks, other], lambda: all(len(p.events("round")) >= 4 for p in [*ranks, other]), "rounds of all three")
    assert all(small.check_sums(p) >= 4 for p in ranks)


@pytest.mark.freeze("move")
def test_nothing_moves_between_ranks_that_fit_together(small):
    small.start_daemon(config=LONG)
    ranks = start(small, 20)
    together_until(small, ranks, lambda: all(len(p.events("round")) >= 20 for p in ranks), "20 rounds of both")
    assert all(small.check_sums(p) >= 20 for p in ranks)
    assert small.handoffs() == 0 and not small.traced("evict_begin") and not small.traced("frozen")


@pytest.mark.freeze("move")
def test_a_rank_asks_for_its_turn_when_its_wait_is_over(waiter):
    """Its peer has died, so the library ends the wait."""
    world, p, rival = waiter
    write(world, 2, (1, 1))
    wait_for(lambda: state(world, p) == "waiting", GENEROUS_S, "the rank to ask", report=p.report)
    leave(world, rival)
    p.await_event("round")
    write(world, 2, (100, 100))
    with open(world.path("end"), "w", encoding="utf-8"):
        pass
    p.ok()
    assert world.check_sums(p) >= 2


@pytest.mark.freeze("move")
def test_a_rank_comes_back_for_work_that_the_library_cannot_see(waiter):
    """Work beside the wait may be frozen, and the other ranks may wait for it. So the rank asks for ever longer turns,
    although its wait goes on."""
    world, p, rival = waiter
    wait_for(lambda: state(world, p) == "waiting", GENEROUS_S, "the rank to ask", report=p.report)
    leave(world, rival)
    wait_for(lambda: state(world, p) == "running" and world.clients()[p.pid]["idle"], GENEROUS_S, "its turn", report=p.report)
    assert len(p.events("round")) == 0


# ---- groups ----


def groups(world, ranks):
    """Returns each rank's group, and whether it takes turns with the others."""
    rows = world.clients()
    return [(rows[p.pid]["group"], rows[p.pid]["takes_turns"]) for p in ranks if p.pid in rows]


@pytest.mark.freeze("move")
def test_ranks_that_can_be_frozen_need_not_fit_together(small):
    """Each may allocate as much as any program. A group that their user names comes first."""
    small.start_daemon(config=LONG)
    ranks = start(small, 44)
    (name, turns), other = groups(small, ranks)
    assert name.startswith("torchrun:") and turns and other == (name, turns)
    for p in ranks:
        p.send(signal.SIGKILL)
        p.wait()
    os.unlink(small.path("page"))
    ranks = start(small, 20, SUBLET_GROUP="mine")
    assert groups(small, ranks) == [("mine", False)] * 2


@pytest.mark.freeze("move")
def test_ranks_that_fit_share_an_exclusive_card_as_one_program(small):
    """They meet without hand-offs between them. Beside a program of the same user they get half of the time."""
    small.start_daemon(config={"mode": "exclusive", "quantum": "100ms"})
    ranks = start(small, 12)
    wait_for(lambda: all(len(p.events("round")) >= 20 for p in ranks), GENEROUS_S, "20 rounds of both", report=small.status_text)
    assert small.handoffs() == 0
    other = small.program("fill", "--bytes", "12MiB", "--block", "4MiB", "--seed", 9, "--until", small.path("end"))
    other.await_event("filled")
    programs = [*ranks, other]

    def time_of(program):
        return small.clients()[program.pid]["gpu_time_s"]

    began = [time_of(p) for p in programs]
    wait_for(lambda: sum(time_of(p) - t for p, t in zip(programs, began)) >= 5, GENEROUS_S, "turns", report=small.status_text)
    first, second, third = [time_of(p) - t for p, t in zip(programs, began)]
    assert 0.7 < third / max(first, second) < 1.4, (first, second, third)
    together_until(small, programs, lambda: True, "the end")
    assert all(small.check_sums(p) >= 20 for p in ranks)


@pytest.mark.parametrize("how", [pytest.param({}, marks=pytest.mark.freeze("off"), id="by the program"),
                                 pytest.param({"freeze": "off"}, marks=pytest.mark.freeze("move"), id="by the daemon"),
                                 pytest.param({}, marks=pytest.mark.freeze("park"), id="only to pause")])
def test_ranks_that_cannot_be_frozen_are_a_group(small, how):
    """The memory of all must fit the card together. A rank that learns it late connects once more."""
    small.start_daemon(config={**LONG, **how})
    ranks = start(small, 20)
    names = groups(small, ranks)
    assert names[0] == names[1] and names[0][0].startswith("torchrun:") and not names[0][1]
    third = rank(small, 2, 24)
    assert third.wait() == 5, third.report()  # out of memory
    together_until(small, ranks, lambda: all(len(p.events("round")) >= 4 for p in ranks), "rounds of both")
    assert all(small.check_sums(p) >= 4 for p in ranks)
    assert small.handoffs() == 0


@pytest.mark.freeze("move")
def test_ranks_become_a_group_when_the_self_test_fails(small):
    small.env["SIMCUDA_FAIL"] = "freeze:1+:idle"
    small.start_daemon(config=LONG)
    ranks = start(small, 20)

    def grouped():
        names = groups(small, ranks)
        return len(names) == 2 and names[0] == names[1] and not names[0][1]

    wait_for(grouped, GENEROUS_S, "one group", report=small.status_text)
    together_until(small, ranks, lambda: all(len(p.events("round")) >= 4 for p in ranks), "rounds of both")
    assert all(small.check_sums(p) >= 4 for p in ranks)
