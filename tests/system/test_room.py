"""What cuMemGetInfo calls free can be allocated, at once and later, and memory that a full program frees can be taken
again. A context is larger here than sublet expects, as code makes it: the daemon learns that from NVML after some seconds."""

import subprocess

import pytest

from test_configuration import write
from world import GENEROUS_S, MIB, wait_for

CARD = 512 * MIB
CONTEXT = 24 * MIB  # 2 MiB are expected
CAP = 100 * MIB
OUT_OF_MEMORY = 2


@pytest.fixture
def card(make_world):
    w = make_world(memory="512MiB")
    w.env["SIMCUDA_CONTEXT"] = "24MiB"
    w.context = 2 * CONTEXT  # a program that can be frozen has a second one
    return w


@pytest.fixture
def capped(card):
    """One cap for all programs of the user."""
    write(card.path("s.conf"), "[default]\nmemory_cap = 100MiB\n")
    card.start_daemon("--config", card.path("s.conf"))
    return card


def room(world, *args, **env):
    p = world.program("room", *args, stdin=subprocess.PIPE, **env)
    p.await_event("ready")
    return p


def await_nvml(world, *programs, bytes_each=CONTEXT):
    """Waits until the daemon counts the real size of the programs' contexts."""
    wait_for(lambda: all(world.clients()[p.pid]["unevictable"] >= bytes_each for p in programs), GENEROUS_S, "NVML's figure",
             report=world.status_text)


def take_what_is_free(p):
    free = p.order("info")["free"]
    assert p.order(f"take {free}")["result"] == 0, f"{free // MIB} MiB were free\n{p.report()}"
    return free


@pytest.mark.parametrize("how", ("alloc", "async", "handles"))
def test_what_is_free_under_a_cap_can_be_allocated_at_once_and_later(capped, how):
    p = room(capped, "--how", how)
    assert take_what_is_free(p) >= CAP - CONTEXT
    p.order("give 1")
    await_nvml(capped, p)
    assert p.order("info")["total"] == CAP
    take_what_is_free(p)
    p.order("give 1")
    q = room(capped)
    await_nvml(capped, q)
    take_what_is_free(q)
    for x in p, q:
        x.finish()


@pytest.mark.parametrize("mode", ("off", "park", "move"))
def test_memory_freed_at_the_brim_of_a_cap_can_be_taken_again(capped, mode):
    p = room(capped, SUBLET_FREEZE=mode)
    full = p.order("brim 4MiB")
    assert full["result"] == OUT_OF_MEMORY and full["blocks"] >= 19, full
    await_nvml(capped, p)
    p.order("give 3")
    wait_for(lambda: capped.clients()[p.pid]["allocated"] < 4 * MIB * full["blocks"], GENEROUS_S, "the daemon to know of the frees")
    assert p.order("info")["free"] >= 12 * MIB
    assert p.order("brim 4MiB")["blocks"] == full["blocks"]
    p.finish()


def test_programs_of_one_cap_are_told_what_the_others_leave(capped):
    first, second = room(capped), room(capped)
    before = second.order("info")["free"]
    assert first.order("take 40MiB")["result"] == 0
    free = take_what_is_free(second)
    assert free <= CAP - 40 * MIB < before
    await_nvml(capped, first, second)
    assert first.order("info")["free"] < 4 * MIB and second.order("info")["free"] < 4 * MIB
    second.order("give 1")
    take_what_is_free(second)
    for p in first, second:
        p.finish()


def test_a_pool_gets_what_is_free_in_pages(capped):
    """A pool takes memory in pieces of 32 MiB, as long as there is room for them."""
    p = room(capped, "--how", "async")
    assert p.order("take 64MiB")["result"] == 0
    assert take_what_is_free(p) % (32 * MIB)
    assert p.order("info")["free"] == 0
    p.order("give 2")
    p.finish()


def test_what_foreign_programs_hold_is_not_free(card):
    card.start_daemon()
    p = room(card)
    before = p.order("info")["free"]
    foreign = card.program("hold", "--bytes", "200MiB", stdin=subprocess.PIPE, shared=False)
    foreign.await_event("filled")
    wait_for(lambda: card.status()["gpus"][0]["foreign"] >= 200 * MIB, GENEROUS_S, "the foreign bytes to count")
    assert take_what_is_free(p) <= before - 150 * MIB
    p.finish()
    foreign.finish()


@pytest.mark.parametrize("cap", (None, "100MiB"))
def test_what_is_free_with_overflow_can_be_allocated_in_one_piece(make_world, cap):
    w = make_world(memory="256MiB")
    w.start_daemon(config={"host_memory": "300MiB"})
    p = room(w, SUBLET_MEMORY="overflow", SUBLET_MEMORY_CAP=cap)
    assert p.order("take 50MiB")["result"] == 0
    free = take_what_is_free(p)
    assert free > 300 * MIB or cap
    p.order("give 1")
    assert p.order("info")["free"] == free
    p.finish()


def test_what_is_free_is_right_with_managed_memory(capped):
    p = room(capped, SUBLET_MEMORY="managed")
    take_what_is_free(p)
    p.order("give 1")
    await_nvml(capped, p)
    take_what_is_free(p)
    p.finish()
