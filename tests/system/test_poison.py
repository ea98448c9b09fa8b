"""When a context fails (a kernel writes to an unmapped address), the process's other contexts on that GPU fail too.
Their memory is lost, and other programs are not affected."""

import subprocess

import pytest

from world import MIB, end_fills, go_on, wait_for

ILLEGAL_ADDRESS = 700


def start(world, how, mib, **options):
    p = world.program("broken", "--how", how, "--bytes", f"{mib}MiB", "--block", "8MiB", stdin=subprocess.PIPE, **options)
    p.await_event("filled")
    return p


def bystander(world, mib, seed="2"):
    p = world.program("fill", "--bytes", f"{mib}MiB", "--block", "8MiB", "--seed", seed, "--until", world.path("end"), "--ms", "2")
    p.await_event("filled")
    return p


def given_back(world, p):
    """True if the program holds no memory any more and its state says so."""
    c = world.clients()[p.pid]
    return c["backed"] == c["allocated"] == 0 and "poisoned" in c["flags"]


@pytest.mark.parametrize("how", ["alone", "beside"])
def test_a_failed_context_answers_as_on_the_plain_driver(shared, how):
    results = []
    for with_sublet in (False, True):
        p = start(shared, how, 8, shared=with_sublet)
        p.order("break")
        p.finish()
        assert all(e["answers"][0] == ILLEGAL_ADDRESS for e in p.events("broken"))
        results.append(p.result())
    assert results[0] == results[1]


@pytest.mark.parametrize("late", ["", " 400"], ids=["at once", "during a drain"])
def test_the_memory_of_a_failed_context_is_given_back_at_once(shared, late):
    """The bystander no longer takes turns with the failed program, and lost memory is not copied."""
    broken, other = start(shared, "alone", 80), bystander(shared, 80)
    broken.order("break" + late)
    wait_for(lambda: given_back(shared, broken), 20, "its memory to be given back")
    assert shared.card()["used"] < 100 * MIB
    assert shared.clients()[broken.pid]["state"] in ("idle", "running")
    assert "poisoned" in shared.sublet("status").stdout
    before, handoffs = shared.card(), shared.handoffs()
    go_on([other], 5)
    assert shared.handoffs() == handoffs
    assert shared.card()["d2h_bytes"] - before["d2h_bytes"] < 1 * MIB, "the programs copy only their verdicts"
    third = bystander(shared, 24, seed="3")
    go_on([other, third])
    broken.finish()
    end_fills(shared, other, third)


def test_a_failed_context_waits_for_no_turn(shared):
    """Work submitted in a failed context gets its answer while another program has the card."""
    broken = start(shared, "alone", 80)
    broken.order("break")
    wait_for(lambda: given_back(shared, broken), 20, "its memory to be given back")
    shared.sublet("set", "mode", "exclusive")
    other = bystander(shared, 80)
    broken.order("break")
    go_on([other])
    broken.finish()
    end_fills(shared, other)


def test_a_pool_of_a_failed_gpu_stops_no_other_gpu(make_world):
    """A pool of the failed GPU gets its memory from the driver, so the library does not wait for room on that GPU."""
    w = make_world(gpus=2)
    w.start_daemon()
    p = start(w, "elsewhere", 8)
    p.order("break")

    def lost():
        return any("poisoned" in c["flags"] and c["backed"] == c["allocated"] == 0
                   for c in w.status()["gpus"][1]["clients"])

    wait_for(lost, 20, "its memory to be given back")
    assert p.order("pool")["order"] == "pool"
    assert p.events("pool")[-1]["answers"][1:] == [0, 0]
    p.finish()
