"""SUBLET_MEMORY=overflow: one process uses more memory than the card has. The card counts the bytes of host memory that
kernels used, which tells where a buffer lies."""

import os
import subprocess
import sys

import pytest

from test_oversubscription import run_until_handoffs
from world import LIBRARY, MIB, ROOT, wait_for

OVERFLOW = {"SUBLET_MEMORY": "overflow"}
SETTINGS = {"quantum": "200ms", "host_memory": "1GiB"}


@pytest.fixture
def small(make_world):
    """A card of 64 MiB, of which programs see 58 MiB."""
    w = make_world(memory="64MiB")
    w.start_daemon(config=SETTINGS)
    return w


def buffers(world, *sizes, **env):
    p = world.program("buffers", "--seed", len(world.programs), stdin=subprocess.PIPE, **{**OVERFLOW, **env})
    p.await_event("ready")
    for n, size in enumerate(sizes):
        p.order(f"alloc {n} {size}MiB")
    return p


def mapped(world, p):
    """Returns the bytes of host memory that the program's kernels have used, both ways."""
    n = next(q for q in world.card()["processes"] if q["pid"] == p.pid)
    return n["mapped_h2d_bytes"] + n["mapped_d2h_bytes"]


def uses_of_host(world, p, n):
    """Returns the bytes on the host of the buffer with this number."""
    before = mapped(world, p)
    p.order(f"cycle 1 {n}:1")
    return (mapped(world, p) - before) // 2


def on_host(world, p, *numbers):
    return [uses_of_host(world, p, n) // MIB for n in numbers]


@pytest.mark.freeze("park")  # without a second context the accounts equal the card's figures
def test_one_program_uses_more_than_the_card(small):
    p = small.program("fill", "--bytes", "100MiB", "--block", "4MiB", "--rounds", "3", **OVERFLOW)
    p.ok()
    small.check_sums(p)
    card = small.card()
    assert card["peak"] <= 64 * MIB
    assert card["mapped_h2d_bytes"] >= 3 * 42 * MIB
    assert card["d2h_bytes"] - card["mapped_d2h_bytes"] < MIB  # no memory moved between card and host


def test_the_visible_size_includes_host_memory(small):
    p = buffers(small, 40, 40)
    info = p.order("info")
    assert info["total"] > 100 * MIB
    assert 70 * MIB < info["total"] - info["free"] < 90 * MIB
    c = small.clients()[p.pid]
    assert c["allocated"] - c["overflow"] <= 58 * MIB
    p.finish()


def test_the_status_shows_the_bytes_on_the_host(small):
    """The figures add up, and show how the program's memory is shared."""
    p = buffers(small, 40, 40, SUBLET_KEEP="50MiB")

    def figures():
        c = small.clients()[p.pid]
        return c["overflow"] >= 28 * MIB and c["allocated"] >= 80 * MIB and c

    c = wait_for(figures, 20, "all of it to be reported")
    assert c["allocated"] == c["backed"] + c["evicted"] + c["overflow"]
    assert (c["memory"], c["keep"], c["managed"]) == ("overflow", 50 * MIB, 0)
    table = small.sublet("status").stdout
    assert "OVERFLOW" in table and "memory overflow, keeps to 50.0M" in table
    p.order("free 0")
    p.order("free 1")
    wait_for(lambda: small.clients()[p.pid]["overflow"] == 0, 20, "the freed memory to be reported")
    p.finish()


def test_an_allocation_fails_without_room_on_the_host(make_world):
    w = make_world(memory="64MiB")
    w.start_daemon(config={"host_memory": "40MiB"})
    p = buffers(w, 40, 30)
    p.process.stdin.write(b"alloc 2 30MiB\n")
    p.process.stdin.flush()
    assert p.wait() == 5  # out of memory
    assert p.err().count("but the daemon may promise no more host memory") == 1, p.report()
    wait_for(lambda: w.status()["host_memory"]["committed"] == 0, 20, "its memory to be given back")
    second = buffers(w, 40, 30)  # fits, because the first program's host memory is free
    second.finish()


def test_the_largest_buffer_lies_on_the_host_unless_priorities_differ(small):
    p = buffers(small, 30, 20, 10, 20)  # the last buffer finds the card full
    wait_for(lambda: on_host(small, p, 1, 2, 3) == [0, 0, 0], 20, "the smaller ones to be on the card")
    assert 20 <= on_host(small, p, 0)[0] <= 26
    p.order("priority 0 1")
    wait_for(lambda: on_host(small, p, 0) == [0], 20, "the first one to be on the card as a whole")
    assert sum(on_host(small, p, 1, 2, 3)) >= 22
    p.order("priority 2 -1")
    wait_for(lambda: on_host(small, p, 2)[0] >= 8, 20, "the small one to be on the host")
    p.finish()


def test_a_buffer_that_leaves_makes_room_for_the_programs_others(make_world):
    """After each change the program uses its whole share again, except for parts smaller than an extent."""
    world = make_world(memory="128MiB")
    world.start_daemon()
    p = buffers(world, 12, 12, 12, 12, SUBLET_KEEP="24MiB")
    for n, priority in enumerate((3, 1, 2, 0, 2, 3, 0, 1), 1):
        p.order(f"priority {priority} {n}")
        wait_for(lambda k=priority: on_host(world, p, k) == [0], 20, "the preferred one to be on the card")
        wait_for(lambda: sum(on_host(world, p, 0, 1, 2, 3)) <= 28, 20, "the share to be used")
    p.order("check")
    p.finish()


@pytest.mark.freeze("park")  # without a second context the accounts equal the card's figures
def test_freed_room_on_the_card_is_used(small):
    p = buffers(small, 30, 30, 30)
    wait_for(lambda: on_host(small, p, 0) == [0], 20, "the first one to be on the card as a whole")
    assert sum(on_host(small, p, 1, 2)) >= 30
    p.order("free 0")
    wait_for(lambda: sum(on_host(small, p, 1, 2)) <= 4, 20, "the other buffers to come to the card")
    p.finish()


def test_a_program_in_overflow_mode_takes_turns_and_keeps_every_byte(small):
    until = ("--until", small.path("end"))
    pair = [small.program("fill", "--bytes", "90MiB", "--block", "4MiB", "--seed", 1, *until, **OVERFLOW),
            small.program("fill", "--bytes", "40MiB", "--block", "4MiB", "--seed", 2, *until)]
    run_until_handoffs(small, pair, 4, small.path("end"))
    for p in pair:
        small.check_sums(p)


def test_two_programs_that_keep_to_their_share_need_no_turns(small):
    pair = [small.program("fill", "--bytes", "40MiB", "--block", "4MiB", "--seed", n, "--rounds", "4", SUBLET_KEEP="20MiB",
                          **OVERFLOW) for n in (1, 2)]
    for p in pair:
        p.ok()
        small.check_sums(p)
    assert small.handoffs() == 0


def test_buffers_that_fit_lie_on_the_card_beside_room_for_small_buffers(make_world):
    w = make_world(memory="256MiB")
    w.start_daemon(config=SETTINGS)
    p = buffers(w, 72, 72, SUBLET_KEEP="160MiB")
    assert on_host(w, p, 0, 1) == [0, 0]
    p.order("alloc 2 40MiB")
    wait_for(lambda: 24 <= sum(on_host(w, p, 0, 1, 2)) < 24 + 16, 20, "the excess to be on the host, in whole extents")
    p.finish()


def test_memory_on_the_host_survives_the_daemon(small):
    p = buffers(small, 40, 40)
    small.daemon.process.kill()
    small.daemon.wait()
    p.order("cycle 2 0:1 1:1")
    small.start_daemon(config=SETTINGS)
    wait_for(lambda: p.pid in small.clients(), 30, "it to come back")
    wait_for(lambda: small.status()["host_memory"]["committed"] >= 20 * MIB, 30, "its host memory to be counted again")
    p.order("alloc 2 20MiB")
    p.order("cycle 2 0:1 1:1 2:1")
    p.finish()


def test_the_default_mode_holds_if_the_driver_maps_no_host_memory(small):
    p = buffers(small, 20, SIMCUDA_HOST_MEMORY="no", SUBLET_KEEP="10MiB")
    assert p.order("info")["total"] < 64 * MIB
    p.process.stdin.write(b"alloc 1 60MiB\n")
    p.process.stdin.flush()
    assert p.wait() == 5
    assert "the driver maps no host memory (CUDA error 801): SUBLET_MEMORY=overflow does not apply" in p.err()


@pytest.mark.parametrize("refused", ["unplaced", "full"])
def test_another_node_gives_memory_if_the_gpus_node_has_none(small, refused):
    """A container may forbid memory policies, or the node may have no room."""
    p = small.program("fill", "--bytes", "80MiB", "--block", "4MiB", SIMCUDA_HOST_MEMORY=refused, **OVERFLOW)
    p.ok()
    small.check_sums(p)
    assert p.err() == ""
    assert mapped(small, p) >= 2 * 22 * MIB


def test_the_header_and_the_module_do_nothing_without_sublet(small):
    p = small.program("buffers", stdin=subprocess.PIPE, shared=False)
    assert p.await_event("ready")["here"] == 0
    p.order("alloc 0 8MiB")
    assert p.order("priority 0 5")["ms"] == 0
    p.finish()
    code = "import sublet; print(sublet.is_here(), sublet.set_priority(4096, 1))"
    for preload, says in ((None, "False True"), (LIBRARY, "True False")):
        q = small.start([sys.executable, "-c", code], LD_PRELOAD=preload, PYTHONPATH=os.path.join(ROOT, "python"))
        q.ok()
        assert q.out().strip() == says
