"""A card that is full of one program's memory still has room for other programs to begin."""

import subprocess

import pytest

from world import MIB


def test_other_programs_get_their_contexts_and_run(shared):
    first = shared.program("hold", "--bytes", "112MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    first.await_event("filled")
    others = [shared.program("contexts", "--bytes", "2MiB", "--rounds", "3", "--seed", str(i)) for i in range(5)]
    for p in others:
        p.ok()
    first.order("verify")
    first.finish()


def test_a_graphs_own_memory_finds_room(shared):
    """A graph's memory does not come from our heap. The driver's launch runs out of memory, and is repeated when other
    programs have given way. Each try asks for four times the room of the try before. The launch needs more than the
    first try gets, and what the second try asks for does not fit."""
    others = [shared.program("hold", "--bytes", "54MiB", "--block", "6MiB", "--seed", str(i), stdin=subprocess.PIPE)
              for i in range(2)]
    for p in others:
        p.await_event("filled")
    shared.program("ordered", "--how", "graph", "--bytes", "48MiB", "--rounds", "3").ok()
    for p in others:
        p.order("verify")
        p.finish()


def test_programs_together_hold_more_memory_than_the_card(shared):
    first = shared.program("hold", "--bytes", "112MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    first.await_event("filled")
    others = [shared.program("hold", "--bytes", "24MiB", "--block", "4MiB", "--seed", str(i), stdin=subprocess.PIPE)
              for i in range(5)]
    for p in others:
        p.await_event("filled")
    for p in (*others, first):
        p.order("touch")
    for p in (*others, first):
        p.finish()
        assert shared.check_sums(p) == 1


def test_a_program_alone_may_fill_the_card_and_no_more(shared):
    alone = shared.program("oom", "--block", "4MiB").ok()
    full = alone.events("full")
    assert len(full) == 2
    assert full[0]["taken"] == full[1]["taken"]
    assert full[0]["taken"] >= 0.88 * (128 << 20)
    assert full[0]["total"] < 128 << 20  # no program gets the headroom and the budget for contexts


def test_free_and_total_memory_do_not_depend_on_other_programs(shared):
    other = shared.program("hold", "--bytes", "64MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    other.await_event("filled")
    told = other.order("info")
    second = shared.program("hold", "--bytes", "64MiB", "--block", "8MiB", "--seed", "2", stdin=subprocess.PIPE)
    second.await_event("filled")
    assert second.order("info")["free"] == told["free"]
    assert second.order("info")["total"] == told["total"]
    other.finish()
    second.finish()


@pytest.mark.parametrize("mib", [126, 200])
def test_more_than_the_card_alone_is_out_of_memory(shared, mib):
    p = shared.program("fill", "--bytes", f"{mib}MiB", "--block", "2MiB")
    assert p.wait() == 5, p.report()
    assert "OUT_OF_MEMORY" in p.err()


def test_a_size_that_overflows_is_out_of_memory(make_world):
    world = make_world(memory="16GiB")
    world.context = 384 * MIB  # the size that the daemon expects on a card of this size
    world.env["SIMCUDA_CONTEXT"] = f"{world.context}B"
    world.start_daemon()
    world.program("copies").ok()
