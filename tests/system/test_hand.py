"""The daemon's hand: a process that takes programs off the GPU without their help."""

import os
import re
import signal

import pytest

from counting import assert_frozen, await_count, begin, counts, end
from test_oversubscription import touch
from world import wait_for


def preempted(world, program):
    return (world.clients().get(program.pid) or {}).get("preempted")


def await_ready(world, *programs):
    wait_for(lambda: all(preempted(world, p) for p in programs), 60, "the hand to know the programs",
             report=lambda: "\n".join(p.report() for p in programs))


def is_off(world, program):
    return (preempted(world, program) or {"for_s": 0})["for_s"] > 0


def await_off(world, program):
    wait_for(lambda: is_off(world, program), 60, "the program to be taken off the GPU", report=program.report)


@pytest.fixture
def world(make_world):
    w = make_world(memory="128MiB")
    w.start_daemon(config={"priority_floor": "0.1%"})
    return w


def counting(world, seed, priority=0, **env):
    """Starts a program whose kernel counts, and waits until the hand knows the program."""
    p = counts(world, seed, mib=8, SUBLET_PRIORITY=str(priority), **env)
    p.order("start")
    await_count(p)
    await_ready(world, p)
    return p


def test_a_program_with_a_lower_priority_stands_still_while_a_higher_one_works(world):
    low = counting(world, 1)
    high = counting(world, 2, priority=1)
    await_off(world, low)
    assert_frozen(low)
    await_count(high)
    end(world, high)
    await_count(low)
    now = preempted(world, low)
    assert now["for_s"] == 0 and now["times"] >= 1 and now["lost_s"] > 0 and now["took_s"] > 0
    end(world, low)


def test_a_stopped_program_is_taken_off_the_gpu_too(world):
    low = counting(world, 1)
    os.kill(low.pid, signal.SIGSTOP)
    high = counting(world, 2, priority=1)
    await_off(world, low)
    end(world, high)
    wait_for(lambda: not is_off(world, low), 60, "the program to be let go")
    os.kill(low.pid, signal.SIGCONT)
    await_count(low)
    end(world, low)


def test_programs_go_on_when_the_hand_is_killed_and_a_new_one_serves_them(world):
    low = counting(world, 1)
    high = counting(world, 2, priority=1)
    for _ in range(2):
        await_off(world, low)
        await_ready(world, low, high)
        was = world.hand()
        os.kill(was, signal.SIGKILL)
        wait_for(lambda: world.hand() not in (None, was), 60, "another hand")
        await_count(low)
        await_ready(world, low, high)
    await_off(world, low)
    assert_frozen(low)
    end(world, high)
    end(world, low)


def test_programs_go_on_when_the_daemon_is_killed(world):
    low = counting(world, 1)
    high = counting(world, 2, priority=1)
    await_off(world, low)
    os.kill(world.worker(), signal.SIGKILL)
    await_count(low)
    world.start_daemon(config={"priority_floor": "0.1%"})
    await_ready(world, low, high)
    await_off(world, low)
    end(world, high)
    end(world, low)


def test_a_preempted_program_gives_its_memory_away_and_gets_it_back(make_world):
    world = make_world(memory="128MiB")
    world.start_daemon(config={"unevictable_share": "20%", "grace": "2s"})
    low = counts(world, 1, mib=48)
    begin(low)
    await_ready(world, low)
    high = counting(world, 2, priority=1)
    await_off(world, low)
    rival = world.program("spin", "--bytes", "64MiB", "--block", "4MiB", "--ms", 5, SUBLET_PRIORITY="1")
    rival.ok()
    end(world, high)
    await_count(low)
    end(world, low)


def test_new_channels_of_a_preempted_program_stand_still(world):
    low = counting(world, 1)
    high = counting(world, 2, priority=1)
    await_off(world, low)
    os.kill(high.pid, signal.SIGKILL)  # and the end of a program leaves nothing off
    await_count(low)
    end(world, low)


@pytest.mark.freeze("off")
def test_a_program_that_may_not_be_frozen_is_left_alone(world):
    low = counts(world, 1, mib=8)
    low.order("start")
    await_count(low)
    assert preempted(world, low) is None
    end(world, low)


def test_the_hands_process_has_no_rights_and_ends_when_nobody_needs_it(world):
    p = counting(world, 1)
    with open(f"/proc/{world.hand()}/status", encoding="ascii") as f:
        status = dict(re.findall(r"^(\w+):\s*(.*)$", f.read(), re.M))
    assert int(status["CapEff"], 16) == 0 and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    assert status["Threads"] == "3"
    end(world, p)
    wait_for(lambda: world.hand() is None, 60, "the hand to end")


def test_two_programs_without_gaps_take_turns_and_a_third_that_is_important_interrupts_both(make_world):
    world = make_world(memory="128MiB")
    world.start_daemon(config={"unevictable_share": "20%"})
    pair = [counting(world, seed) for seed in (1, 2)]

    def turns():
        return [preempted(world, p)["times"] for p in pair]

    wait_for(lambda: min(turns()) >= 3, 60, "turns", report=pair[0].report)
    await_count(*pair)
    before, state = turns(), [world.clients()[p.pid]["handoffs"] for p in pair]
    third = counting(world, 3, priority=1)
    wait_for(lambda: sum(is_off(world, p) for p in pair) == 2, 60, "both to be off the GPU", report=third.report)
    end(world, third)
    wait_for(lambda: min(turns()) >= max(before) + 3, 60, "more turns", report=pair[0].report)
    assert [world.clients()[p.pid]["handoffs"] for p in pair] == state  # nobody gave a lease back
    end(world, *pair)


def test_in_mode_exclusive_short_requests_do_not_end_the_turn_of_another_program(make_world):
    """The one that asks gives its lease back in its gaps, and may still be preempted when it asks again."""
    world = make_world(memory="128MiB")
    world.start_daemon(config={"mode": "exclusive", "unevictable_share": "20%"})
    low = counting(world, 1)
    asks = world.program("regular", "--how", "wait", "--ms", 100, "--bytes", "8MiB", "--block", "4MiB", "--rounds", 1,
                         "--until", world.path("leave"))
    await_ready(world, low, asks)
    before = world.clients()[low.pid]
    assert before["frozen"]["times"] <= 3, before  # turns, until the hand knew both
    rounds = len(asks.events("round"))
    wait_for(lambda: len(asks.events("round")) >= rounds + 12, 60, "more requests", report=asks.report)
    after = world.clients()[low.pid]
    assert after["waited_s"] == before["waited_s"], (before, after)
    assert after["preempted"]["times"] >= before["preempted"]["times"] + 8
    touch(world.path("leave"))
    asks.ok()
    end(world, low)
