"""sublet evict: a program that has no work leaves the card at once, and comes back when it has work again."""

import json
import os
import re
import subprocess

import pytest

from counting import await_count, begin, counts, end
from hostile_daemon import FakeDaemon
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
    assert "no program called 'train.py' shares a GPU" in shared.sublet("evict", "train.py").stderr
    for words in ((), ("--mine", "--all"), ("--all", "1")):
        assert "evict which programs? Give numbers or names" in shared.sublet("evict", *words).stderr
    assert "no program with pid 1 shares a GPU" in shared.sublet("evict", "1").stderr


def test_programs_are_named_by_their_name_or_all_together(shared):
    first, second = (shared.program("hold", "--bytes", "4MiB", "--block", "1MiB", stdin=subprocess.PIPE, SUBLET_NAME=name)
                     for name in ("train.py", "other.py"))
    for p in (first, second):
        p.await_event("filled")

    def told(*words):
        done = shared.sublet(*words)
        assert done.returncode == 0, done.stderr
        return sorted(int(n) for n in re.findall(r"^(?:paused|resumed|evicted) (\d+) ", done.stdout, re.M))

    both = sorted((first.pid, second.pid))
    assert told("pause", "train.py") == [first.pid]
    assert told("pause", "--mine") == both
    assert told("resume", "other.py", str(second.pid)) == [second.pid], "a program that is named twice is told once"
    assert told("resume", "--all") == both
    assert shared.sublet("priority", "train.py", "3").returncode == 0
    assert shared.sublet("set", "--pid", "train.py", "priority").stdout == "3\n"
    assert shared.sublet("set", "--pid", "other.py", "priority").stdout == "0\n"
    assert told("pause", str(first.pid), "train.py") == [first.pid], "also if the number comes first"
    assert told("resume", "--all") == both
    assert "no program called 'nobody.py'" in shared.sublet("set", "--pid", "nobody.py", "weight", "2").stderr
    for p in (first, second):
        p.finish()


class TwoPrograms(FakeDaemon):
    """Knows a.py and b.py, notes each order, and refuses all but status."""

    def __init__(self, folder):
        self.orders = []
        super().__init__(folder)

    def serve(self, s, line, habit):
        order = json.loads(line)
        self.orders.append((order["order"], order.get("pid")))
        clients = [{"pid": pid, "uid": os.getuid(), "name": name} for pid, name in ((11, "a.py"), (12, "b.py"))]
        s.sendall(json.dumps({"gpus": [{"clients": clients}]} if order["order"] == "status" else {"error": "no"}).encode() + b"\n")


def test_one_look_at_the_status_finds_all_names(world):
    daemon = TwoPrograms(world.path("fake"))
    try:
        done = world.sublet("pause", "--daemon", world.path("fake"), "a.py", "b.py")
        assert done.returncode == 1 and daemon.orders[:3] == [("status", None), ("pause", 11), ("pause", 12)], done
    finally:
        daemon.close()
