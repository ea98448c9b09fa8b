"""Trouble with the driver for programs under sublet: failing calls, memory that others take, a card that vanishes."""

import subprocess
import sys

import pytest

from world import LIBRARY, MIB, NO_PYTHON, end_fills, go_on, wait_for

OOM = 2


def fill(world, seed, mib=80, block="8MiB", pause="2", **env):
    return world.program("fill", "--bytes", f"{mib}MiB", "--block", block, "--seed", seed, "--until", world.path("end"),
                         "--ms", pause, **env)


@pytest.mark.parametrize("fault", [
    "cuMemCreate:3:2,cuMemCreate:7:2,cuMemCreate:20:2,cuMemCreate:21:2",
    "cuMemMap:2:2,cuMemMap:14:2",
    "cuMemSetAccess:2:2,cuMemSetAccess:14:2",
    "cuMemHostRegister:1:2",
    "cuMemHostRegister:1+:801",
    "cuStreamCreateWithPriority:2:2",
    "cuEventCreate:3:2",
])
def test_a_failed_call_of_the_library_is_repeated(make_world, fault):
    world = make_world(memory="64MiB")
    world.start_daemon(config={"quantum": "100ms", "unevictable_share": "10%"})
    programs = [fill(world, seed, 40, "4MiB", SIMCUDA_FAIL=fault) for seed in ("1", "2")]
    for p in programs:
        p.await_event("filled")
    wait_for(lambda: world.handoffs() >= 6, 60, "six hand-offs")
    go_on(programs)
    end_fills(world, *programs)


@pytest.mark.parametrize("fault", ["cuModuleLoadData:1:2,cuLaunchKernel:3:2", "cuDevicePrimaryCtxRetain:1:2"])
def test_a_driver_call_that_runs_out_of_memory_gets_room_and_is_repeated(shared, fault):
    p = shared.program("fill", "--bytes", "32MiB", "--rounds", "6", SIMCUDA_FAIL=fault)
    p.ok()
    shared.check_sums(p)


@pytest.mark.parametrize("function", [
    "cuCtxCreate", "cuGreenCtxCreate", "cuGreenCtxStreamCreate", "cuStreamCreate", "cuStreamCreateWithPriority", "cuMemPoolCreate",
    "cuArrayCreate", "cuTexObjectCreate", "cuSurfObjectCreate", "cuGraphInstantiate", "cuModuleGetFunction"])
def test_a_program_does_not_see_that_the_driver_ran_out_of_memory_for_a_moment(shared, function):
    """Each first call that takes memory of the driver's own fails."""
    shared.program("surface", SIMCUDA_FAIL=f"{function}:1:2").ok()


def test_unused_room_for_a_driver_call_goes_back(shared):
    p = shared.program("hold", "--bytes", "32MiB", stdin=subprocess.PIPE, SIMCUDA_FAIL="cuModuleLoadData:1:2")
    p.await_event("filled")
    assert shared.clients()[p.pid]["unevictable"] > 32 * MIB
    wait_for(lambda: shared.clients()[p.pid]["unevictable"] < 8 * MIB, 30, "the daemon to get the room back")
    p.finish()


REFUSED = """
import ctypes, sys
cu = ctypes.CDLL("libcuda.so.1")
context, module, free, total = (ctypes.c_size_t() for _ in range(4))
assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cu.cuCtxSetCurrent(context) == 0
results = {cu.cuModuleLoadData(ctypes.byref(module), b".version 8.0") for _ in range(20)}
assert cu.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print('{"event":"done","results":%s,"free":%d}' % (sorted(results), free.value), flush=True)
sys.stdin.read()
"""


def test_room_for_a_driver_call_grows_until_it_is_enough(make_world):
    """A kernel's local memory may be gigabytes: each try asks for four times the bytes, and other programs give way."""
    world = make_world(memory="512MiB")
    world.start_daemon(config={"quantum": "200ms"})
    other = world.program("hold", "--bytes", "300MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    other.await_event("filled")
    p = world.program("hold", "--bytes", "200MiB", stdin=subprocess.PIPE,
                      SIMCUDA_FAIL="cuModuleLoadData:1:2,cuModuleLoadData:1:2")
    # The room goes back as soon as the daemon sees that the driver did not use it.
    wait_for(lambda: world.clients().get(p.pid, {"unevictable": 0})["unevictable"] > 4 * 32 * MIB, 30, "the room to be had")
    p.await_event("filled")
    wait_for(lambda: world.clients()[p.pid]["unevictable"] < 8 * MIB, 30, "the daemon to get the room back")
    for program in (p, other):
        program.order("verify")
        program.finish()


@pytest.mark.skipif(NO_PYTHON is not None, reason=str(NO_PYTHON))
def test_a_driver_call_is_repeated_while_there_is_room(shared):
    p = shared.start([sys.executable, "-c", REFUSED], stdin=subprocess.PIPE, LD_PRELOAD=LIBRARY,
                     SIMCUDA_FAIL="cuModuleLoadData:1+:2")
    done = p.await_event("done")
    assert done["results"] == [OOM]
    assert done["free"] > 100 * MIB, "the program may use the room that the call did not need"
    wait_for(lambda: shared.clients()[p.pid]["unevictable"] < 8 * MIB, 20, "the daemon to get the room back")
    p.finish()


def test_a_failed_call_in_a_capture_is_not_repeated(shared):
    """The third launch of this program is in its capture; a repeated call could record the launch twice."""
    plain = shared.program("graph", "--bytes", "8MiB", shared=False, SIMCUDA_FAIL="cuLaunchKernel:3:2")
    assert plain.wait() == 5, plain.report()
    # This run makes the self-test of freezing, which launches kernels once for each card.
    shared.program("graph", "--bytes", "8MiB").ok()
    ours = shared.program("graph", "--bytes", "8MiB", SIMCUDA_FAIL="cuLaunchKernel:3:2")
    assert ours.wait() == 5, ours.report()
    assert ours.err() == plain.err()


@pytest.mark.freeze("park")  # without a second context the accounts equal the card's figures
def test_the_capacity_follows_the_memory_of_a_foreign_program(shared):
    """The capacity shrinks by the foreign program's memory; programs that no longer fit beside it take turns."""
    programs = [fill(shared, seed, mib=40, pause="20") for seed in ("1", "2")]
    for p in programs:
        p.await_event("filled")
    go_on(programs)
    before = shared.card()["d2h_bytes"]
    foreign = shared.program("hold", "--bytes", "40MiB", shared=False, stdin=subprocess.PIPE)
    foreign.await_event("filled")
    wait_for(lambda: shared.status()["gpus"][0]["foreign"] >= 40 * MIB, 20, "the foreign bytes to be seen")
    wait_for(lambda: shared.handoffs() >= 4, 60, "turns", report=shared.status_text)
    assert shared.card()["d2h_bytes"] - before >= 4 * MIB
    go_on(programs)
    foreign.order("verify")
    foreign.finish()
    wait_for(lambda: shared.status()["gpus"][0]["foreign"] == 0, 20, "the foreign bytes to be forgotten")
    go_on(programs)
    end_fills(shared, *programs)




@pytest.mark.parametrize("fault", [
    "cuMemcpyDtoHAsync:2:999,cuMemcpyDtoHAsync:3:999", "cuMemcpyHtoDAsync:2:999,cuMemcpyHtoDAsync:3:999",
    "cuEventRecord:2:999,cuEventRecord:5:999,cuEventRecord:6:999", "cuEventQuery:2:999,cuEventQuery:7:999"])
def test_a_failed_copy_of_the_library_loses_no_memory(shared, fault):
    """The context still works, and memory that could not be moved stays where it is. `hold` makes none of these calls
    before its first touch."""
    victim = shared.program("hold", "--bytes", "80MiB", "--block", "8MiB", stdin=subprocess.PIPE, SIMCUDA_FAIL=fault)
    victim.await_event("filled")
    other = shared.program("hold", "--bytes", "80MiB", "--block", "8MiB", "--seed", "2", stdin=subprocess.PIPE)
    other.await_event("filled")
    for _ in range(2):
        for p in (victim, other):
            p.order("touch")
    for p in (victim, other):
        p.finish()
        assert shared.check_sums(p) == 1


def test_all_programs_get_the_drivers_error_when_their_card_vanishes(shared):
    """All programs get the driver's error, waiting programs too; none hangs, and the daemon lives."""
    running = [fill(shared, "1", SIMCUDA_FAIL="cuLaunchKernel:60:lost"), fill(shared, "2"), fill(shared, "3")]
    for p in running:
        assert p.wait(60) == 4, p.report()
        # 700: the program was frozen with its memory evicted
        assert any(f"({error})" in p.err() for error in (46, 700, 719)), p.err()
    wait_for(lambda: not shared.clients(), 20, "the daemon to forget them")
    late = fill(shared, "4")
    assert late.wait(60) == 4, late.report()
    assert shared.daemon.running()
    assert shared.sublet("status").returncode == 0


@pytest.mark.freeze("off")  # with freezing, the mover's own calls would come first
@pytest.mark.parametrize("call", [1, 2, 4])
def test_a_card_that_vanishes_during_an_eviction_fails_the_owners_next_call(shared, call):
    """The card can no longer take the evicted memory back. The program whose memory it was gets the error from its next
    call."""
    idle = shared.program("hold", "--bytes", "32MiB", stdin=subprocess.PIPE, SIMCUDA_FAIL=f"cuMemUnmap:{call}:lost")
    idle.await_event("filled")
    other = fill(shared, "1", 100)
    assert other.wait(60) == 4, other.report()
    assert idle.running()
    idle.process.stdin.close()
    assert idle.wait(60) == 4, idle.report()
    wait_for(lambda: not shared.clients(), 20, "the daemon to forget them")
    assert shared.daemon.running()
