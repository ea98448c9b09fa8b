"""Stream-ordered memory comes from our heap, so it can be evicted like any other. Memory that a pool keeps unused
leaves first and is never copied."""

import json
import subprocess
import sys

import pytest

from test_programs import result
from families import DOORS, PROGRAMS
from world import LIBRARY, MIB, wait_for


def cache(world, live, freed, **env):
    """Starts a program with `live` MiB allocated and `freed` MiB of freed memory that its pool keeps."""
    p = world.program("ordered", "--how", "cache", "--bytes", live * MIB, "--block", 4 * MIB, "--count", freed // 4,
                      stdin=subprocess.PIPE, **env)
    p.await_event("cached")
    return p


@pytest.mark.parametrize("door", DOORS[1:])
def test_pools_give_equal_results_through_every_door(shared, door):
    args = ["ordered", *PROGRAMS["ordered"], "--seed", "5"]
    plain = shared.program(*args, shared=False).ok()
    with_sublet = shared.program(*args, door=door).ok()
    assert result(plain) == result(with_sublet)


def test_unused_pool_memory_is_dropped_and_allocated_memory_is_restored(shared):
    a = cache(shared, live=16, freed=64, SUBLET_TRACE=shared.path("trace"))
    said = a.events("cached")[0]
    assert said["used"] == 16 * MIB and said["reserved"] >= 80 * MIB
    for size, copied in ((90, 0), (110, 18 * MIB)):
        b = shared.program("hold", "--bytes", f"{size}MiB", "--block", "2MiB", stdin=subprocess.PIPE)
        b.await_event("filled")
        c = shared.clients()[a.pid]
        # If the unused memory is enough, nothing is copied; otherwise each eviction copies the live bytes at most.
        assert (c["moved_out"] > 0) == (copied > 0), c
        assert c["moved_out"] <= copied * len(shared.traced("evict_end", a.pid)), c
        assert c["backed"] <= 34 * MIB, c
        b.finish()
        a.order("verify")
        a.order("take")
    a.order("verify")
    a.finish()


def test_a_trimmed_pool_gives_its_memory_back(shared):
    a = cache(shared, live=8, freed=32)
    wait_for(lambda: shared.clients()[a.pid]["backed"] >= 40 * MIB, 20, "the daemon to hear of it")
    a.order("trim")
    wait_for(lambda: shared.clients()[a.pid]["backed"] <= 32 * MIB, 20, "the trimmed memory to go back")
    a.order("verify")
    a.finish()


def test_cached_memory_makes_room_for_the_programs_allocations(shared):
    """As with the driver, pools give way before an allocation fails."""
    a = cache(shared, live=8, freed=96)
    a.order("take")
    a.order("verify")
    a.finish()


# Allocates 24 MiB after some work, and prints by how much the card's used memory rises, as NVML tells it: what
# PyTorch's device_memory_used() reads.
RISES = """
import ctypes, sys
cu, ml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
context, card, p = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
memory = (ctypes.c_uint64 * 3)()

def used():
    assert ml.nvmlDeviceGetMemoryInfo(card, memory) == 0
    return memory[2]

assert ml.nvmlInit_v2() == 0 and ml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card)) == 0
assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cu.cuCtxSetCurrent(context) == 0 and cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4096)) == 0
assert cu.cuMemsetD8_v2(p, 1, ctypes.c_size_t(4096)) == 0 and cu.cuCtxSynchronize() == 0
before = used()
size = ctypes.c_size_t(24 << 20)
r = cu.cuMemAllocAsync(ctypes.byref(p), size, None) if sys.argv[1] == "pool" else cu.cuMemAlloc_v2(ctypes.byref(p), size)
print(f'{{"result":{r},"rises":{used() - before}}}')
"""


@pytest.mark.parametrize("how", ["pool", "plain"])
def test_new_memory_is_on_the_card_at_once(shared, how):
    p = shared.start([sys.executable, "-c", RISES, how], LD_PRELOAD=LIBRARY).ok()
    said = json.loads(p.out())
    assert said["result"] == 0 and said["rises"] >= 24 * MIB, said


def test_two_programs_with_pools_take_turns(shared):
    args = ["--bytes", 60 * MIB, "--block", 4 * MIB, "--count", 8]
    pair = [shared.program("ordered", "--how", "cache", *args, "--seed", seed, stdin=subprocess.PIPE) for seed in (1, 2)]
    for p in pair:
        p.await_event("cached")
    for _ in range(3):
        for p in pair:
            p.order("take")
            p.order("verify")
    for p in pair:
        p.finish()


def test_a_program_without_a_daemon_gets_pool_memory_at_once(world):
    p = world.program("ordered", *PROGRAMS["ordered"], "--seed", "5", SUBLET_DIR=world.path("nobody")).ok()
    assert p.events("end")
