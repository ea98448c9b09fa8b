"""A program keeps its memory on the card once it has loaded a library with GPU work of its own (NVENC, NVDEC, OptiX):
no drain can await that work."""

import os
import subprocess

import pytest

from world import BUILD, LIBRARY, MIB, wait_for

STUB = os.path.join(BUILD, "tests", "hidden", "libnvcuvid.so.1")
BOTH = f"{STUB}:{LIBRARY}"


@pytest.mark.freeze("off")  # this test is about draining
def test_a_program_with_hidden_work_keeps_its_memory_and_says_so(world):
    world.start_daemon(config={"quantum": "200ms", "patience": "300ms"}, SUBLET_LOG="info")
    keeper = world.program("hold", "--bytes", "64MiB", "--block", "4MiB", stdin=subprocess.PIPE, LD_PRELOAD=BOTH)
    keeper.await_event("filled")
    other = world.program("hold", "--bytes", "64MiB", "--block", "4MiB", stdin=subprocess.PIPE)
    wait_for(lambda: "unpreemptible" in world.clients()[keeper.pid]["flags"], 30, "the flag in the status")
    assert world.clients()[keeper.pid]["backed"] >= 64 * MIB
    assert not other.events("filled")
    keeper.order("touch")
    doctor = world.sublet("doctor", "--sim", "--daemon", world.dir).stdout
    assert f"process {keeper.pid} has loaded libnvcuvid (NVDEC)" in doctor
    assert f"process {other.pid} has loaded" not in doctor
    assert "library whose work on the GPU cannot be awaited" in world.daemon.err()
    assert keeper.err().count("libnvcuvid is loaded: its work on the GPU cannot be awaited") == 1, keeper.err()
    keeper.finish()
    other.await_event("filled")
    assert world.card()["d2h_bytes"] < 64 * MIB, "its memory has not moved"
    assert other.err() == ""
    other.finish()


def test_a_library_loaded_after_a_turn_keeps_the_remaining_memory_on_the_card(world):
    """The daemon does not ask a program without a turn before its memory is evicted."""
    world.start_daemon(config={"quantum": "200ms", "patience": "300ms", "grace": "1s"})
    first, second = (world.program("hold", "--bytes", "64MiB", "--block", "4MiB", stdin=subprocess.PIPE) for _ in range(2))
    for p in first, second:
        p.await_event("filled")
    # The last program to have a turn keeps its memory until another program asks for room.
    keeper = wait_for(lambda: next((p for p in (first, second) if world.clients()[p.pid]["state"] == "idle"), None), 30,
                      "the end of a turn")
    other = second if keeper is first else first
    keeper.order(f"load {STUB}")
    before = world.clients()[keeper.pid]["backed"]
    assert 0 < before < 64 * MIB
    third = world.program("hold", "--bytes", "32MiB", "--block", "4MiB", stdin=subprocess.PIPE)
    third.await_event("filled")
    assert world.clients()[keeper.pid]["backed"] == before
    assert world.clients()[other.pid]["backed"] < 64 * MIB
    third.finish()
    for p in first, second:
        p.order("verify")
        p.finish()


def test_a_frozen_program_with_hidden_work_gives_its_memory_away(world):
    world.start_daemon(config={"quantum": "200ms", "unevictable_share": "25%"})
    hidden = world.program("hold", "--bytes", "64MiB", "--block", "4MiB", stdin=subprocess.PIPE, LD_PRELOAD=BOTH, SUBLET_FREEZE="move")
    hidden.await_event("filled")
    other = world.program("hold", "--bytes", "64MiB", "--block", "4MiB", stdin=subprocess.PIPE)
    other.await_event("filled")
    for p in hidden, other, hidden:
        p.order("touch")
    assert "unpreemptible" not in world.clients()[hidden.pid]["flags"]
    assert world.clients()[hidden.pid]["frozen"]["times"] > 0
    for p in hidden, other:
        p.order("verify")
        p.finish()
    assert "cannot be awaited" not in hidden.err()
