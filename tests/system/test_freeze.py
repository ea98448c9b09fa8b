"""Freezing instead of draining (SUBLET_FREEZE=move): a program stops in the middle of its kernels, its memory is
evicted and restored while it is frozen, and it goes on with the right results."""

import itertools
import os
import re
import signal
import subprocess
import time

import pytest

from counting import (QUICK, assert_frozen, await_count, begin, count, counts, end, frozen_out, important, leave,
                      take_the_card)
from test_torture import check_equal, check_tangled, tortured
from families import DOORS, PROGRAMS, TANGLED
from world import BUILD, MIB, is_stopped, wait_for

DOOR_OF = dict(zip([*PROGRAMS, *TANGLED], itertools.cycle(DOORS)))


def times_frozen(world, program):
    """Returns how often the program was frozen. Checks that it was thawed after each freeze."""
    said = [e["event"] for e in world.traced(pid=program.pid) if e["event"] in ("frozen", "thawed")]
    assert said == ["frozen", "thawed"] * (len(said) // 2), said
    return len(said) // 2


def check_frozen(world, check, name):
    """Runs a program until it was frozen at least once. Until its self-test has ended, a program is drained, and a
    drain may fail. On a busy machine a short program may end before its self-test; then it is run once more."""
    for _ in range(20):
        run, = check(world, name, [DOOR_OF[name]], SUBLET_FREEZE="move")
        if times_frozen(world, run) > 0:
            events = [e["event"] for e in world.traced(pid=run.pid)]
            assert "drain_failed" not in events[events.index("frozen"):]
            return
    pytest.fail("it was never frozen")


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_equal_under_torture_by_freezing(shared, name):
    check_frozen(shared, check_equal, name)


@pytest.mark.parametrize("name", TANGLED)
def test_work_that_cannot_just_be_waited_for_is_frozen(shared, name):
    check_frozen(shared, check_tangled, name)


def test_kernels_that_go_past_every_entry_point_are_frozen(shared):
    args = ["past", "--bytes", "16MiB", "--block", "2MiB", "--rounds", "20", "--ms", "1000", "--seed", "11"]
    plain = shared.program(*args, shared=False).ok()
    run = tortured(shared, *args, torture="5,calls=0,every=2ms", SUBLET_FREEZE="move").ok()
    assert run.result() == plain.result() and len(shared.traced("frozen", run.pid)) > 1


def test_no_memory_leaves_while_a_copy_looks_up_its_addresses(shared):
    """If the memory at an address is evicted, the driver takes the address for a host address and reads there."""
    args = ["copies", "--bytes", "4MiB", "--rounds", "20", "--seed", "11"]
    plain = shared.program(*args, shared=False).ok()
    for _ in range(5):
        run = tortured(shared, *args, torture="5,calls=0,every=2ms", SUBLET_FREEZE="move",
                       SIMCUDA_FAIL="cuMemcpyAsync:1+:slow=10").ok()
        assert run.result() == plain.result() and run.err() == ""
        if shared.traced("freeze_late", run.pid):
            return
    pytest.fail("it was never frozen in such a copy")


# ---- hand-offs ----

SPARE = 2 * MIB  # memory that the mover keeps


@pytest.fixture
def small(make_world):
    """A card that holds one of two programs of 32 MiB."""
    w = make_world(memory="64MiB")
    w.env["SUBLET_FREEZE"] = "move"
    w.start_daemon(config=QUICK)
    return w


@pytest.fixture
def out(small):
    """Returns the world, a program that is frozen in the middle of its kernel with memory evicted, and the rival that
    has the card."""
    p = counts(small, 1)
    begin(p)
    rival = take_the_card(small)
    wait_for(lambda: frozen_out(small, p) and small.clients()[rival.pid]["state"] == "running", 60, "the program to be frozen",
             report=p.report)
    return small, p, rival


@pytest.mark.parametrize("waits", [True, False], ids=["waited for", "not waited for"])
def test_turns_end_in_the_middle_of_kernels(small, waits):
    """Neither kernel ends before it is told to. A program gets its turn back even if none of its threads is at the
    gate."""
    pair = [counts(small, seed) for seed in (1, 2)]
    for p in pair:
        p.order("start")
        if waits:
            p.order("call wait")
    await_count(*pair)
    wait_for(lambda: all(len(small.traced("thawed", p.pid)) >= 3 for p in pair), 60, "three turns of each")
    await_count(*pair)
    end(small, *pair)
    for p in pair:
        assert times_frozen(small, p) >= 3
    assert not small.traced("drain_failed")


def test_an_idle_program_is_drained(small):
    """The library would not notice that a frozen idle program has new work. A busy machine may make an idle program
    look busy, but not each time."""
    idle = small.program("hold", "--bytes", "32MiB", "--block", "4MiB", stdin=subprocess.PIPE)
    idle.await_event("filled")
    for _ in range(3):
        idle.order("touch")
        rival = take_the_card(small)
        wait_for(lambda: small.clients()[idle.pid]["evicted"] > 0, 60, "its memory to leave")
        leave(small, rival)
        os.unlink(small.path("leave"))
    idle.order("verify")
    idle.finish()
    assert len(small.traced("drain_end", idle.pid)) > len(small.traced("frozen", idle.pid))


@pytest.mark.parametrize("mode", ["off", "park"])
def test_programs_are_drained_in_the_other_modes(make_world, mode):
    """There is no self-test and no second context in these modes."""
    world = make_world(memory="64MiB")
    world.start_daemon(config=QUICK)
    pair = [world.program("burst", "--bytes", "32MiB", "--ms", 200, "--count", 2, "--rounds", 2, "--seed", seed, SUBLET_FREEZE=mode)
            for seed in (1, 2)]
    wait_for(lambda: all(p.pid in world.clients() for p in pair), 60, "both to be there")
    one = world.card()["context_bytes"]
    seen = set()

    def ended():
        seen.update(c["unevictable"] for c in world.clients().values())
        return not any(p.running() for p in pair)

    wait_for(ended, 60, "their ends", report=lambda: pair[0].report() + pair[1].report())
    for p in pair:
        p.ok()
        assert world.check_sums(p) == 1
        assert world.traced("drain_end", p.pid)
    assert not world.traced("frozen") and not world.traced("freeze_test")
    assert max(seen) <= one and world.handoffs() >= 2


def test_the_second_context_is_in_the_ledger_and_leaves_with_the_programs_last(small):
    """The ledger counts half of the second context, as on a real card, and the memory that the second context keeps."""
    runs = {mode: counts(small, 1, mib=8, SUBLET_FREEZE=mode) for mode in ("off", "move")}
    one = small.card()["context_bytes"]

    def unevictable():
        clients = small.clients()
        return [clients[p.pid]["unevictable"] for p in runs.values()]

    def contexts():
        known = {x["pid"]: x["contexts"] for x in small.card()["processes"]}
        return [known[p.pid] for p in runs.values()]

    begin(runs["move"])
    wait_for(lambda: unevictable() == [2 * one, 2 * one + one // 2 + SPARE], 60, "the second context", report=runs["move"].report)
    assert contexts() == [2, 3]
    runs["move"].order("end")
    for p in runs.values():
        p.order("gone")
    # The audit (audit.py) compares the accounts with the card.
    wait_for(lambda: contexts() == [0, 0], 60, "its end", report=small.status_text)


def test_programs_without_room_for_a_second_context_are_drained(small):
    pair = [small.program("burst", "--bytes", "32MiB", "--ms", 200, "--count", 2, "--rounds", 2, "--seed", seed,
                          SIMCUDA_FAIL="cuCtxCreate:1+:2") for seed in (1, 2)]
    for p in pair:
        p.ok()
        assert small.check_sums(p) == 1
    assert small.handoffs() >= 2 and not small.traced("frozen") and not small.traced("drain_failed")


def test_a_full_card_has_room_for_the_second_context(small):
    """The second context is made while the program has its turn, in room reserved for it; no request is refused."""
    pair = [counts(small, seed, mib=44) for seed in (1, 2)]
    for p in pair:
        p.order("start")
    wait_for(lambda: all(small.traced("frozen", p.pid) for p in pair), 60, "both to be frozen", report=pair[0].report)
    end(small, *pair)


def test_a_second_context_leaves_when_other_programs_need_its_bytes(make_world):
    """The card's share for unevictable bytes holds two contexts and one second context with the 2 MiB that it keeps."""
    world = make_world(memory="64MiB")
    world.env["SUBLET_FREEZE"] = "move"
    world.start_daemon()
    p = counts(world, 1)
    begin(p)
    one, budget = world.card()["context_bytes"], world.status()["gpus"][0]["unevictable_budget"]
    assert budget - 3 * one < world.clients()[p.pid]["unevictable"] <= budget - 2 * one
    others = [world.program("hold", "--bytes", "8MiB", "--block", "4MiB", "--seed", seed, stdin=subprocess.PIPE, SUBLET_FREEZE="park")
              for seed in (2, 3, 4)]
    for other in others:
        other.await_event("filled")
    wait_for(lambda: world.clients()[p.pid]["unevictable"] < SPARE, 60, "the second context to leave", report=p.report)
    for other in others:
        other.order("verify")
        other.finish()
    end(world, p)


def test_all_gpus_are_frozen_before_memory_leaves_one(make_world):
    world = make_world(memory="64MiB", gpus=2)
    world.env["SUBLET_FREEZE"] = "move"
    world.start_daemon(config=QUICK)
    p = counts(world, 1, "--count", 2, mib=64)
    begin(p)
    rival = take_the_card(world)
    wait_for(lambda: frozen_out(world, p), 60, "the program to be frozen", report=p.report)
    assert_frozen(p)
    said = [e["event"] for e in world.traced(pid=p.pid) if e["event"] in ("frozen", "drain_end", "evict_begin")]
    assert said[:3] == ["frozen", "drain_end", "evict_begin"]
    for device in world.driver()["devices"]:
        of = {x["pid"]: x for x in device["processes"]}[p.pid]
        assert of["freezes"] > of["thaws"], device["index"]
    leave(world, rival)
    await_count(p)
    end(world, p)
    assert times_frozen(world, p) >= 1


def test_a_turn_that_ends_during_a_restore_does_not_thaw_the_program(small):
    """Each call that maps memory takes longer than the watchdog waits at first: the watchdog must not thaw the program
    while memory is evicted."""
    p = counts(small, 1, SIMCUDA_FAIL="cuMemMap:30+:slow=100")
    begin(p)
    for _ in range(4):
        rival = take_the_card(small)
        leave(small, rival)
        os.unlink(small.path("leave"))
        wait_for(lambda: small.clients()[p.pid]["state"] != "evicted", 60, "its turn", interval=0, report=p.report)
    await_count(p)
    end(small, p)
    assert times_frozen(small, p) >= 1


def test_an_eviction_waits_for_a_first_copy_that_takes_seconds(small):
    """The bus is busy for 6 s. The memory of the copy must not be unmapped before the copy has ended."""
    p = counts(small, 1)
    begin(p)
    small.slow_bus(f"both:1B/s:6:{p.pid}")
    rival = take_the_card(small)
    leave(small, rival)
    await_count(p)
    end(small, p)
    assert small.traced("freeze_late", pid=p.pid)


# ---- calls of a frozen program ----


# Calls of tests/programs/counts.c that wait for the kernel on the plain driver, or may wait.
NEED_THE_END = ("wait", "wait-all", "alloc", "free", "load", "destroy", "create")


@pytest.mark.parametrize("call", [*NEED_THE_END, "launch", "pool", "pool-free", "info", "query", "capture", "copy", "set"])
def test_a_call_of_a_frozen_program_ends_after_the_thaw(out, call):
    world, p, rival = out
    p.order(f"call {call}")
    p.await_event("begun")
    assert_frozen(p, 0.3)
    leave(world, rival)
    await_count(p)
    if call not in NEED_THE_END:
        p.await_event("returned")
    p.order("end")
    p.await_event("returned")
    p.finish()
    assert world.check_sums(p) == 1
    assert times_frozen(world, p) >= 1


def test_a_frozen_program_can_reset_its_primary_context(out):
    world, p, rival = out
    p.order("call reset")
    p.await_event("begun")
    time.sleep(0.3)
    leave(world, rival)
    p.order("end")
    p.await_event("returned")
    p.order("fresh")
    p.finish()
    assert world.check_sums(p) == 1
    assert times_frozen(world, p) >= 1


def test_a_frozen_program_can_fork(out):
    world, p, rival = out
    p.order("fork")
    assert_frozen(p)
    leave(world, rival)
    await_count(p)
    end(world, p)


@pytest.mark.parametrize("how", ["exec", "exit", "SIGKILL"])
@pytest.mark.parametrize("when", ["out", "half out"])
def test_a_frozen_process_that_ends_leaves_all_its_memory_to_others(small, how, when):
    p = counts(small, 1)
    begin(p)
    if when == "half out":
        small.slow_bus(f"out:8MB/s:60:{p.pid}")
    rival = important(small, 52)
    wait_for(lambda: frozen_out(small, p) and small.clients()[p.pid]["evicted"] >= 4 * MIB, 60, "memory to be out", report=p.report)
    if when == "half out":
        assert small.clients()[p.pid]["backed"] > 4 * MIB
    if how == "SIGKILL":
        p.send(signal.SIGKILL)
    elif how == "exec":
        p.become("/bin/true")
    else:
        p.process.stdin.write(b"exit\n")
        p.process.stdin.flush()
    p.wait()
    wait_for(lambda: p.pid not in small.clients(), 60, "the process to be forgotten")
    wait_for(lambda: small.clients()[rival.pid]["backed"] >= 52 * MIB, 60, "the rival's memory", report=rival.report)
    assert [x["pid"] for x in small.card()["processes"] if x["used"]] == [rival.pid]
    leave(small, rival)


def test_a_frozen_program_can_be_stopped(out):
    world, p, rival = out
    p.send(signal.SIGSTOP)
    wait_for(lambda: is_stopped(p.pid), 60, "it to stop")
    before = world.launches(rival)[0]
    wait_for(lambda: world.launches(rival)[0] > before + 20, 60, "the rival to go on", report=rival.report)
    p.send(signal.SIGCONT)
    leave(world, rival)
    await_count(p)
    end(world, p)
    assert times_frozen(world, p) >= 1


# ---- the daemon ends ----

@pytest.mark.parametrize("moment", ["one frozen", "one frozen half out"])
def test_frozen_programs_survive_a_restart_of_the_daemon(small, moment):
    pair = [counts(small, seed) for seed in (1, 2)]
    for p in pair:
        p.order("start")
    if "half" in moment:
        small.slow_bus("out:20MB/s:60")
    wait_for(lambda: any(frozen_out(small, p) for p in pair), 60, "one to be frozen")
    small.daemon.process.kill()
    small.daemon.wait()
    if "half" in moment:
        small.slow_bus("out:20MB/s:0")
    small.start_daemon(config=QUICK)
    await_count(*pair)
    end(small, *pair)
    for p in pair:
        times_frozen(small, p)


def test_a_frozen_program_survives_its_private_daemons_worker(make_world):
    world = make_world(memory="64MiB")
    subletd = world.path("subletd-with-more-unevictable-bytes")
    with open(subletd, "w", encoding="utf-8") as f:
        f.write(f'#!/bin/sh\nexec {BUILD}/subletd --config {world.path("subletd.conf")} "$@"\n')
    os.chmod(subletd, 0o700)
    with open(world.path("subletd.conf"), "w", encoding="utf-8") as f:
        f.write(f"[daemon]\nunevictable_share = {QUICK['unevictable_share']}\n")
    world.env.update({"SUBLET_FREEZE": "move", "SUBLET_DAEMON": subletd})
    pair = [counts(world, seed) for seed in (1, 2)]
    for p in pair:
        p.order("start")
    wait_for(lambda: any(frozen_out(world, p) for p in pair), 60, "one to be frozen")
    os.kill(world.worker(), signal.SIGKILL)
    await_count(*pair)
    end(world, *pair)


def test_an_evicted_program_stays_frozen_until_a_daemon_is_back(out):
    world, p, rival = out
    world.daemon.process.kill()
    world.daemon.wait()
    p.order("call launch")
    assert_frozen(p, 12)
    leave(world, rival)
    assert_frozen(p)
    world.start_daemon(config=QUICK)
    await_count(p)
    end(world, p)
    assert times_frozen(world, p) >= 1


# ---- drivers that do not let a program be frozen ----


def test_a_program_that_waits_frozen_is_told_so(world):
    """No thread of it waits at the gate: a thread of a real program would wait in the driver for the frozen kernel."""
    world.start_daemon(config=QUICK)
    p = counts(world, 7, mib=96, SUBLET_FREEZE="move", SUBLET_QUIET=None)
    begin(p)
    rival = take_the_card(world)
    wait_for(lambda: frozen_out(world, p), 60, "the program to be frozen", report=p.report)
    wait_for(p.err, 20, "the message", report=p.report)
    assert re.search(rf"has waited \d s for its turn on the GPU: process {rival.pid} \(spin\) holds it", p.err()), p.err()
    leave(world, rival)
    end(world, p)
    assert re.search(r"has its turn on the GPU after \d+ s\n\Z", p.err()), p.err()


def known(world):
    """Returns the stored result of the self-test on this driver and GPU."""
    path = os.path.join(world.env["XDG_CACHE_HOME"], "sublet", "freezing")
    if not os.path.exists(path):
        return None
    with open(path, encoding="ascii") as f:
        return [line.split(" ", 2)[2] for line in f.read().splitlines()]


def take_turns_by_drains(world, *reasons, frozen=False, rounds=2, **env):
    """Checks that two programs that do not fit end with the right results, and that in the end they are drained. Each
    reason must be printed once and shown in the status. frozen: whether the programs may have been frozen before the
    reason was known."""
    pair = [world.program("burst", "--bytes", "32MiB", "--ms", 200, "--count", 2, "--rounds", rounds, "--seed", seed,
                          SUBLET_LOG="info", SUBLET_QUIET=None, **env) for seed in (1, 2)]
    seen = {}

    def ended():
        for c in world.clients().values():
            if c["freeze_off"]:
                assert c["freeze"] == "off"
                seen[c["pid"]] = c["freeze_off"]
        return not any(p.running() for p in pair)

    wait_for(ended, 60, "their ends", report=lambda: pair[0].report() + pair[1].report())
    for p in pair:
        p.ok()
        assert world.check_sums(p) == 1
        times_frozen(world, p)
    assert world.handoffs() >= 2 and not world.traced("drain_failed")
    assert frozen or not world.traced("frozen")
    assert seen and set(seen.values()) <= set(reasons), seen
    for p in pair:
        if p.pid in seen:
            assert p.err().count("this program is not frozen on the GPU, but drained: " + seen[p.pid]) == 1, p.err()
    return pair


def test_programs_of_an_unknown_driver_are_drained(small):
    take_turns_by_drains(small, "this release of sublet does not know the driver's calls", SIMCUDA_DRIVER="999.1.1")
    assert known(small) is None, "another release of sublet may know the driver"


@pytest.mark.parametrize("fault, reason", [("forbid", "the kernel driver or a sandbox does not allow it"),
                                           ("0x1b", "the kernel driver or a sandbox does not allow it"),
                                           ("0x56", "the kernel driver does not offer it"),
                                           ("part=3", "the GPU did not let go of the program in time")])
def test_programs_are_drained_if_the_driver_refuses_to_freeze(small, fault, reason):
    """The refusal is not stored, because it is valid for this process alone: another process may be in no sandbox."""
    take_turns_by_drains(small, reason, SIMCUDA_FAIL=f"freeze:1+:{fault}")
    assert known(small) is None


def test_programs_are_drained_if_the_driver_refuses_after_the_self_test(small):
    reason = "the GPU did not let go of the program in time"
    take_turns_by_drains(small, reason, frozen=True, SIMCUDA_FAIL="freeze:8+:part=3")
    assert known(small) == ["works with the hand"]


def test_a_freeze_without_effect_is_found_and_remembered(small):
    reason = "a kernel ran on although the kernel driver had stopped it"
    take_turns_by_drains(small, reason, SIMCUDA_FAIL="freeze:1+:idle")
    assert known(small) == [reason]
    tests = len(small.traced("freeze_test"))
    assert tests >= 1
    take_turns_by_drains(small, reason)  # uses the stored result alone
    assert len(small.traced("freeze_test")) == tests


def test_the_self_test_of_freezing_runs_once(small):
    for seed in (1, 2, 3):
        p = counts(small, seed, mib=8)
        begin(p)
        end(small, p)
    assert len(small.traced("freeze_test")) == 1 and known(small) == ["works with the hand"]


@pytest.mark.parametrize("times", [1, 3])
def test_a_thaw_that_fails_a_few_times_is_repeated(small, times):
    """The first thaws, which fail here, are part of the self-test."""
    pair = [counts(small, seed, SIMCUDA_FAIL=f"thaw:1-{times}:0x65") for seed in (1, 2)]
    for p in pair:
        p.order("start")
    await_count(*pair)
    end(small, *pair)


@pytest.mark.parametrize("fault", ["cuMemUnmap:1:frozen", "cuMemcpyDtoHAsync_v2:1:999"], ids=["blocks", "fails once"])
def test_a_driver_call_of_the_mover_is_made_again(small, fault):
    """The program is thawed for a moment, then frozen again. The library's first copy is that of the mover's test."""
    p = counts(small, 1, SIMCUDA_FAIL=fault)
    begin(p)
    rival = take_the_card(small)
    wait_for(lambda: frozen_out(small, p), 60, "the program to be frozen", report=p.report)
    assert_frozen(p)
    leave(small, rival)
    await_count(p)
    end(small, p)
    assert small.traced("freeze_late", p.pid) and times_frozen(small, p) >= 1
    assert not small.traced("drain_failed")


def test_programs_are_drained_if_driver_calls_block_every_freeze(small):
    take_turns_by_drains(small, "calls of the program keep its memory from being moved", frozen=True, rounds=8,
                         SIMCUDA_FAIL="cuMemUnmap:1+:frozen")
    assert small.traced("freeze_late") and known(small) == ["works with the hand"]
