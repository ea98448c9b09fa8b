"""The simulated driver's channels, as seen by software above the driver: another library, libsublet, the probes of
freezing.

A real GPU runs the other parts of the probes: users and descriptors (limits foreign_user, own_descriptor), preemption
modes (limits wfi), several movers (limits movers), output of kernels (calls, flush of printf), thousands of contexts
(calls, cuCtxCreate and cuCtxDestroy)."""

import json
import os
import subprocess
import sys

import pytest

import world as world_module
from world import BUILD, wait_for

sys.path.insert(0, os.path.join(world_module.ROOT, "tests", "programs"))

from families import PROGRAMS  # noqa: E402

CONTEXT = 3 + 12  # objects of a context: groups and channels
PROCESS = 3       # objects of a process: client, device, subdevice
DOOR = os.path.join(BUILD, "tests", "iodoor", "libiodoor.so")


def fill(world, **how):
    return world.program("fill", *PROGRAMS["fill"], shared=False, **how)


# ---- preloaded libraries ----


@pytest.mark.skipif(world_module.SANITIZER is not None, reason="a sanitizer's run time has to come first; in another build they run")
@pytest.mark.parametrize("door", ["linked", "dlsym"])
def test_a_library_in_front_sees_every_request(world, door):
    plain = fill(world, door=door).ok()
    seen = fill(world, door=door, LD_PRELOAD=DOOR).ok()
    assert seen.result() == plain.result()
    count = json.loads(seen.err())
    assert count["allocations"] == PROCESS + CONTEXT and count["versions"] == 1 and count["controls"] == 3
    assert count["wrapped"] > 0


@pytest.mark.skipif(world_module.SANITIZER is not None, reason="a sanitizer's run time has to come first; in another build they run")
def test_a_program_that_finds_libcs_ioctl_first_works_the_same(world):
    plain = fill(world).ok()
    assert fill(world, LD_PRELOAD="libc.so.6").ok().result() == plain.result()


# ---- libsublet ----


def idle(world, driver, **env):
    p = world.program("hold", "--bytes", "8MiB", stdin=subprocess.PIPE, SUBLET_FREEZE="park", SUBLET_LOG="debug",
                      SIMCUDA_DRIVER=driver, XDG_CACHE_HOME=world.path("cache"), **env)
    p.await_event("filled")
    return p


def own(world, p):
    return next(c for c in world.card()["processes"] if c["pid"] == p.pid)


@pytest.mark.parametrize("driver", ["530.41.03", "535.54.03", "550.163.01", "570.211.01", "580.159.04", "595.45.04", "610.57.04",
                                    "620.6.0"])
def test_libsublet_freezes_a_program_of_each_driver_that_tells_its_version(shared, driver):
    p = idle(shared, driver)
    assert shared.sublet("pause", str(p.pid)).returncode == 0
    wait_for(lambda: shared.clients()[p.pid]["frozen"], 60, "the program to be frozen", report=p.report)
    counted = own(shared, p)
    assert counted["freezes"] > counted["thaws"]
    assert shared.sublet("resume", str(p.pid)).returncode == 0
    p.order("touch")
    wait_for(lambda: own(shared, p)["thaws"] == own(shared, p)["freezes"], 60, "it to go on", report=p.report)
    p.finish()


@pytest.mark.parametrize("driver", ["525.147.05", "625.10.01"])
def test_libsublet_freezes_no_program_of_a_driver_that_it_does_not_know(shared, driver):
    p = idle(shared, driver)
    refused = shared.sublet("pause", str(p.pid))
    assert refused.returncode == 1 and "does not know the driver's calls" in refused.stderr
    assert shared.clients()[p.pid]["freeze_off"]
    assert own(shared, p)["freezes"] == 0
    shared.sublet("resume", str(p.pid))
    p.finish()


# ---- the probes ----


@pytest.fixture
def card(make_world):
    return make_world(memory="4GiB")


def probe(world, name, *args, ends=()):
    p = world.start([os.path.join(BUILD, "programs", "freeze", name), *args]).ok()
    lines = [json.loads(line) for line in p.out().splitlines()]
    assert lines and not [line for line in lines if "error" in line], p.report()
    assert [line["part"] for line in lines if "ended" in line] == list(ends), p.report()
    return [line for line in lines if "ended" not in line]


def test_scheduling_does_not_thaw_a_frozen_program(card):
    line = probe(card, "dangers", "schedule")[0]
    assert line == {"what": "schedule", "freeze": "0", "counts_frozen": 0, "schedule": "0", "counts_then": 0, "thaw": "0",
                    "counts_thawed": 1}


def test_a_control_that_fails_at_a_later_channel_needs_a_thaw_of_its_own(card):
    line = probe(card, "dangers", "refused")[0]
    assert line == {"what": "refused", "status": "0x21", "counts_then": 1, "freeze": "0", "counts_frozen": 0, "thaw": "0",
                    "counts_thawed": 0, "again": "0", "counts_thawed_twice": 1}


def test_the_diagnostic_object_says_whether_a_channel_is_enabled(card):
    line = probe(card, "dangers", "state")[0]
    assert [line[when]["enabled"] for when in ("running", "frozen", "thawed")] == [1, 0, 1]
    assert [line[when]["counts"] for when in ("running", "frozen", "thawed")] == [1, 0, 1]


@pytest.mark.parametrize("way", ["kill", "kill-running", "exit"])
def test_a_program_that_ends_frozen_gives_its_memory_back(card, way):
    assert probe(card, "dangers", way)[0]["memory_back_ms"] < 39000  # the probe itself gives up after 40 s


def test_freezing_amid_page_faults_loses_nothing(card):
    mover, counted, failed = probe(card, "managed", "--rounds", "5")
    assert mover["mover_mib"] > 0
    assert (counted["refused"], counted["went_on"], counted["wrong_pages"]) == (0, 0, 0)
    assert (failed["stream"], failed["thaw"], failed["thaw_again"]) == (700, "0", "0")


def test_a_program_stays_frozen_during_calls_with_pointers(card):
    """While memory is evicted, the driver does not know its address. A cuMemcpyAsync takes the address for a host
    address and ends its process, as on a real card."""
    lines = [line for line in probe(card, "limits", "pointer_calls", ends=("cuMemcpyAsync in", "cuMemcpyAsync out")) if "call" in line]
    assert lines and all(line["stood"] == 1 for line in lines)
    assert all(line["right"] == 1 for line in lines if "right" in line)


def test_copies_amid_page_faults_are_frozen_too(card):
    line = probe(card, "limits", "copies_faulting")[0]
    assert (line["refused"], line["went_on"], line["wrong_reads"], line["wrong_pages"]) == (0, 0, 0, 0)


@pytest.mark.parametrize("call", ["launch", "launch into a full queue", "host function", "cuMemFree", "cuMemAllocAsync",
                                  "cuModuleUnload", "copy out to pageable memory", "cuStreamSynchronize", "cuGraphLaunch"])
def test_memory_moves_beside_any_call_of_a_frozen_program(card, call):
    lines = probe(card, "calls", "--rounds", "3", "--printf", "no", "--patience", "5000", "--case", call)
    assert len(lines) == 2 and all(line["went_on"] == 0 for line in lines)
