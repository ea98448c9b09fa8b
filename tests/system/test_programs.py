"""Every program, alone on the card, gives the same result with and without sublet, by every way into the driver."""

import os
import re
import subprocess
import sys

import pytest

import world

sys.path.insert(0, os.path.join(world.ROOT, "tests", "programs"))

from families import DOORS, PROGRAMS, without_volatile  # noqa: E402


def result(program):
    return without_volatile(program.events())


def complaints(program, name):
    """Returns what is on stderr, without the reason for the memory that `ordered` asks for in vain."""
    return [line for line in program.err().splitlines() if name != "ordered" or "out of memory: this program asks" not in line]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_equal_with_and_without_sublet(shared, name):
    args = [name, *PROGRAMS[name], "--seed", "11"]
    plain = shared.program(*args, shared=False).ok()
    with_sublet = shared.program(*args).ok()
    assert plain.events("end")
    assert result(plain) == result(with_sublet)
    assert not complaints(with_sublet, name)


@pytest.mark.parametrize("door", DOORS[1:])
@pytest.mark.parametrize("name", ["fill", "graph", "ptds", "launchex", "copies", "contexts"])
def test_results_are_equal_through_every_door(shared, name, door):
    args = [name, *PROGRAMS[name], "--seed", "11"]
    linked = shared.program(*args, shared=False).ok()
    through = shared.program(*args, door=door).ok()
    assert result(linked) == result(through)


def check_its_memory_is_ours(shared, *command, **how):
    """Checks by the daemon's figures that the program's memory is counted, and that sublet can move it."""
    p = shared.program(*command, "--bytes", "32MiB", "--block", "4MiB", stdin=subprocess.PIPE, **how)
    p.await_event("filled")
    world.wait_for(lambda: shared.clients()[p.pid]["allocated"] >= 32 << 20, 30, "its memory in the ledger")
    world.wait_for(lambda: shared.clients()[p.pid]["backed"] >= 32 << 20, 30, "its memory on the card, in the ledger")
    p.finish()


@pytest.mark.parametrize("door", DOORS)
def test_no_door_leads_past_the_gate(shared, door):
    check_its_memory_is_ours(shared, "hold", door=door)


@pytest.mark.skipif(world.SANITIZER is not None, reason="a sanitizer's run time does not know RTLD_DEEPBIND; in another build they run")
@pytest.mark.parametrize("door", DOORS)
def test_a_library_loaded_with_deepbind_does_not_pass_the_gate(shared, door):
    """The program that loads the library finds it by its run path, as without sublet."""
    library = "linked" if door == "linked" else "dl"
    check_its_memory_is_ours(shared, "plugin", f"libplugin_{library}.so", PROGRAM_DOOR=door)


ASKS = """
import ctypes, json
driver = ctypes.CDLL("libcuda.so.1")
found = {}
for version in 13000, 13020, 99000:
    function, status = ctypes.c_void_p(), ctypes.c_int(-1)
    result = driver.cuGetProcAddress_v2(b"cuLaunchKernel", ctypes.byref(function), version, 0, ctypes.byref(status))
    found[version] = bool(function.value)
print(json.dumps({"event": "found", **found}), flush=True)
"""


@pytest.mark.skipif(world.NO_PYTHON is not None, reason=world.NO_PYTHON or "")
def test_an_unknown_version_of_an_entry_point_is_not_handed_out(shared):
    """A launch through the unknown version would be ungated, and the entry point of an older version would expect
    arguments of another ABI."""
    command = [sys.executable, "-c", ASKS]
    plain = shared.start(command, SIMCUDA_NEWER="cuLaunchKernel").ok()
    with_sublet = shared.start(command, SIMCUDA_NEWER="cuLaunchKernel",
                               LD_PRELOAD=world.LIBRARY).ok()
    assert plain.events("found") == [{"event": "found", "13000": True, "13020": True, "99000": True}]
    assert with_sublet.events("found") == [{"event": "found", "13000": True, "13020": True, "99000": False}]
    # A function that has not changed since its known version is handed out.
    unchanged = shared.start(command, SIMCUDA_NEWER="cuMemAlloc", LD_PRELOAD=world.LIBRARY).ok()
    assert unchanged.events("found") == plain.events("found")


def test_a_program_without_cuda_is_left_alone(shared):
    p = shared.program("nocuda").ok()
    assert p.events("end")
    assert p.err() == ""
    assert shared.clients() == {}


def test_debug_messages_go_to_stderr_alone(shared):
    plain = shared.program("fill", *PROGRAMS["fill"], shared=False).ok()
    noisy = shared.program("fill", *PROGRAMS["fill"], SUBLET_LOG="debug").ok()
    assert result(plain) == result(noisy)
    assert "libsublet[" in noisy.err()


@pytest.mark.parametrize("door", ["linked", "dlsym"])
def test_debug_messages_tell_each_call_of_the_driver_and_for_whom_it_was_made(shared, door):
    """Both by the program and by the library, of which the file is named."""
    p = shared.program("hold", "--bytes", "32MiB", "--block", "4MiB", SUBLET_LOG="debug", stdin=subprocess.PIPE, door=door)
    p.await_event("filled")
    p.order("verify")
    assert shared.sublet("evict", str(p.pid)).returncode == 0
    p.order("verify")
    p.finish()
    told = set(re.findall(r"libsublet\[\d+\]: driver: (\w+) is (\d+), for (.*)", p.err()))
    assert {("cuLaunchKernel", "0", "the program"), ("cuMemUnmap", "0", "move/extent.c"), ("cuMemCreate", "0", "move/extent.c")} <= told, told
    assert all(who == "the program" or os.path.exists(os.path.join(world.ROOT, "src", "preload", who)) for _, _, who in told)
