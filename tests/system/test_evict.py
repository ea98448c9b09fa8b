"""sublet evict: a program that has no work leaves the card at once, and comes back when it has work again."""

import subprocess

import pytest

from counting import await_count, begin, counts, end
from world import MIB, wait_for


def hold(world, mib=48, **env):
    p = world.program("hold", "--bytes", f"{mib}MiB", "--block", "4MiB", "--seed", 7, stdin=subprocess.PIPE, **env)
    p.await_event("filled")
    p.order("verify")
    wait_for(lambda: world.clients()[p.pid]["idle"], 60, "the program to be idle", report=p.report)
    return p


def evict(world, p):
    return world.sublet("evict", str(p.pid))


def test_an_idle_program_leaves_the_card_and_finds_its_memory_unchanged(shared):
    p = hold(shared)
    backed = shared.clients()[p.pid]["backed"]
    r = evict(shared, p)
    assert r.returncode == 0 and f"evicted {p.pid} (hold): {backed // MIB} MiB left the card in " in r.stdout, r
    c = shared.clients()[p.pid]
    assert c["backed"] == 0 and c["evicted"] == backed >= 48 * MIB and c["state"] == "idle"
    assert shared.sublet("evict", str(p.pid)).stdout == \
        f"evicted {p.pid} (hold): none of its memory on the card can move\n"
    p.order("verify")
    assert shared.clients()[p.pid]["backed"] == backed
    p.finish()


@pytest.mark.parametrize("slow", ["freeze:1+:slow=20", "cuCtxRecordEvent:1+:slow=3"])
def test_a_program_that_has_just_begun_or_answers_late_leaves_the_card(shared, slow):
    """The first case lengthens the library's test of freezing, the second its look for unfinished work."""
    p = shared.program("hold", "--bytes", "48MiB", "--block", "4MiB", "--seed", 7, stdin=subprocess.PIPE,
                       SIMCUDA_FAIL=slow)
    p.await_event("filled")
    if slow.startswith("cu"):
        wait_for(lambda: shared.clients()[p.pid]["idle"], 60, "the program to be idle", report=p.report)
    r = evict(shared, p)
    assert r.returncode == 0 and " left the card in " in r.stdout, r
    assert shared.clients()[p.pid]["backed"] == 0
    p.order("verify")
    p.finish()


def test_a_program_paused_inside_a_kernel_leaves_the_card_and_goes_on_after_it_was_resumed(shared):
    p = counts(shared, 3, SUBLET_FREEZE="move")
    begin(p)
    busy = shared.sublet("evict", str(p.pid))
    assert busy.returncode == 1 and f"pause it first, with sublet pause {p.pid}" in busy.stderr, busy
    assert shared.sublet("pause", str(p.pid)).returncode == 0
    r = shared.sublet("evict", str(p.pid))
    assert r.returncode == 0 and " left the card in " in r.stdout, r
    c = shared.clients()[p.pid]
    assert c["backed"] == 0 and c["evicted"] >= 32 * MIB
    assert shared.sublet("resume", str(p.pid)).returncode == 0
    await_count(p)
    end(shared, p)


def test_a_program_paused_with_park_stays_on_the_card(shared):
    p = counts(shared, 3, SUBLET_FREEZE="park")
    p.order("start")
    await_count(p)
    assert shared.sublet("pause", str(p.pid)).returncode == 0
    r = shared.sublet("evict", str(p.pid))
    assert r.returncode == 1 and "is paused with --freeze park" in r.stderr, r
    assert shared.clients()[p.pid]["evicted"] == 0
    assert shared.sublet("resume", str(p.pid)).returncode == 0
    end(shared, p)


def test_nothing_is_evicted_beyond_the_budget_of_host_memory(world):
    world.start_daemon("--shared", "--host-memory", "40MiB")
    p = hold(world, mib=48)
    r = evict(world, p)
    assert r.returncode == 1 and "the budget of host memory has no room for it" in r.stderr, r
    assert world.clients()[p.pid]["evicted"] == 0
    p.finish()


def test_the_order_names_what_is_wrong_with_it(shared):
    assert "takes the pids that sublet status shows" in shared.sublet("evict", "train.py").stderr
    assert "no program with pid 1 shares a GPU" in shared.sublet("evict", "1").stderr
