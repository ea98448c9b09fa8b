"""Trouble with the host for programs under sublet: too little memory, a cgroup's limit, a frozen cgroup."""

import errno
import subprocess

import pytest

from cgroups import inside
from world import GENEROUS_S, MIB, SANITIZER, await_rest, go_on, touch_and_rest, wait_for

CARD = "32MiB"
# The limit of a cgroup. The simulated card keeps a process's 18 MiB in that process's own host memory. Beside these and
# the process's other memory, the limit leaves no room for a segment of the arena and its margin.
TIGHT = 36 * MIB
CONFIG = {"quantum": "100ms", "grace": "400ms"}


@pytest.fixture
def small(make_world):
    world = make_world(memory=CARD)
    world.start_daemon(config=CONFIG)
    return world


def fill(world, seed, size, pause="20"):
    return world.program("fill", "--bytes", size, "--block", "2MiB", "--seed", seed, "--ms", pause, "--until",
                         world.path("end"))


def end(world, *programs):
    with open(world.path("end"), "w", encoding="utf-8"):
        pass
    for p in programs:
        p.ok()
        world.check_sums(p)


def test_the_daemon_promises_no_host_memory_that_its_cgroup_does_not_have(make_world, cgroup):
    world, group = make_world(memory=CARD), cgroup("memory")
    group.limit(256 * MIB)
    world.start_daemon(prefix=["sh", "-c", f'echo $$ > {group.path}/cgroup.procs && exec "$@"', "sh"])
    assert world.status()["host_memory"]["budget"] <= 128 * MIB


def test_without_host_memory_only_the_new_allocation_fails(make_world):
    """The card holds one of the programs, and the host has room for half of another."""
    world = make_world(memory=CARD)
    world.start_daemon("--host-memory", "12MiB", config=CONFIG)
    running = fill(world, "1", "20MiB")
    running.await_event("filled")
    refused = world.program("fill", "--bytes", "24MiB", "--block", "2MiB", "--seed", "2")
    assert refused.wait() == 5, refused.report()
    assert "OUT_OF_MEMORY" in refused.err()
    wait_for(lambda: refused.pid not in world.clients(), 20, "it to be forgotten")
    fits = fill(world, "3", "12MiB")
    go_on([running, fits])
    end(world, running, fits)


@pytest.mark.skipif(SANITIZER is not None, reason="a sanitizer alone fills such a cgroup; in another build they run")
def test_a_program_whose_cgroup_has_no_room_is_not_killed_and_keeps_its_memory(small, cgroup):
    """The program's memory cannot be moved. Programs that need its room wait for its end; all others go on, and so does
    the program itself."""
    group = cgroup("memory")
    group.limit(TIGHT)
    full = inside(small, group, "hold", "--bytes", "16MiB", "--block", "2MiB", stdin=subprocess.PIPE)
    full.await_event("filled")
    large, other = fill(small, "1", "16MiB"), fill(small, "2", "2MiB")
    wait_for(lambda: "no host memory" in full.err(), 60, "an eviction without room")
    go_on([other])
    wait_for(lambda: "overdue" in small.clients()[full.pid]["flags"], 60, "it to be overdue")
    go_on([other])
    full.order("touch")
    full.order("touch")
    full.finish()
    assert full.err().count("no host memory") == 1
    assert group.killed() == 0
    go_on([large, other])
    end(small, large, other)


def test_an_eviction_goes_on_once_the_cgroup_has_room(small, cgroup):
    group = cgroup("memory")
    group.limit(TIGHT)
    full = inside(small, group, "hold", "--bytes", "16MiB", "--block", "2MiB", stdin=subprocess.PIPE)
    full.await_event("filled")
    large = fill(small, "1", "16MiB")
    wait_for(lambda: "no host memory" in full.err(), 60, "an eviction without room")
    group.limit(400 * MIB)
    go_on([large])
    full.order("touch")
    full.finish()
    end(small, large)


@pytest.mark.skipif(SANITIZER is not None, reason="a sanitizer alone fills such a cgroup; in another build they run")
def test_programs_of_one_cgroup_that_evict_together_are_not_killed(world, cgroup):
    """Four programs evict 256 MiB each at the same moment. Each sees that the cgroup has room for itself, but not for
    all."""
    group = cgroup("memory")
    group.limit(512 * MIB)
    programs = inside(world, group, "arenas", LD_PRELOAD=None)
    assert programs.wait() == 0, programs.report()
    assert group.killed() == 0
    ends = programs.events("evicted")
    assert len(ends) == 4
    assert {e["error"] for e in ends} <= {0, errno.ENOMEM}
    assert any(e["error"] for e in ends), "the cgroup had room for all"
    assert sum(e["bytes"] for e in ends) >= 256 * MIB, "what there was room for stays in use"


@pytest.mark.parametrize("killed", [False, True])
def test_a_frozen_cgroup_does_not_stop_other_programs(small, cgroup, killed):
    group = cgroup("freezer")
    frozen = inside(small, group, "hold", "--bytes", "12MiB", "--block", "2MiB", stdin=subprocess.PIPE)
    frozen.await_event("filled")
    wait_for(lambda: small.clients()[frozen.pid]["idle"], 20, "it to be in no call")
    group.freeze(True)
    others = [fill(small, seed, "10MiB") for seed in ("1", "2")]
    wait_for(lambda: "overdue" in small.clients()[frozen.pid]["flags"], 60, "the frozen one to be overdue")
    go_on(others)
    if killed:
        frozen.send(9)  # SIGKILL takes effect at once or at the thaw: the charge stays until that moment
        go_on(others)
    group.freeze(False)
    if killed:
        assert frozen.wait(20) == -9
        wait_for(lambda: frozen.pid not in small.clients(), 20, "it to be forgotten")
    else:
        frozen.order("touch")
        frozen.finish()
        assert small.check_sums(frozen) == 1
    go_on(others)
    end(small, *others)


def leave_room(cgroup, size):
    """Sets the limit so that the cgroup's programs may take so much more, as src/base/host.c reckons."""
    used, cached = ("memory.current", "") if cgroup.v2 else ("memory.usage_in_bytes", "total_")
    stat = dict(line.split() for line in cgroup.read("memory.stat").splitlines())
    used = int(cgroup.read(used)) - int(stat[cached + "inactive_file"]) - int(stat[cached + "active_file"]) // 2
    cgroup.limit((used + size) * 8 // 7)


@pytest.mark.skipif(SANITIZER is not None, reason="a sanitizer alone fills such a cgroup; in another build they run")
def test_host_memory_that_a_program_keeps_for_later_does_not_stop_the_eviction_of_another(make_world, cgroup):
    """The first program was evicted as a whole, and keeps that much host memory. So the second one finds none when it
    has to leave the card for the first, and the card would stand still."""
    world, group = make_world(memory="256MiB"), cgroup("memory")
    world.start_daemon(config=CONFIG)

    def hold():
        p = inside(world, group, "hold", "--bytes", "160MiB", "--block", "16MiB", stdin=subprocess.PIPE)
        p.await_event("filled")
        return p

    keeps = hold()
    wait_for(lambda: world.sublet("evict", str(keeps.pid)).returncode == 0, 20, "it to be idle")
    touch_and_rest(world, keeps)
    leave_room(group, (80 + 48) * MIB)  # the second program's part of the card, and half of what it will have to evict
    lacks = hold()
    await_rest(world, lacks)
    for _ in range(2):
        touch_and_rest(world, keeps)
        touch_and_rest(world, lacks)
    assert lacks.err().count("no host memory") <= 1
    assert group.killed() == 0
    for p in (keeps, lacks):
        p.finish()
        assert world.check_sums(p) == 1


@pytest.mark.skipif(SANITIZER is not None, reason="a sanitizer alone fills such a cgroup; in another build they run")
def test_programs_that_run_give_host_memory_back_that_an_eviction_lacks(make_world, cgroup):
    """Four programs have 1.5 times the card. Each keeps host memory for all of its own, and two of them run while another
    one has to evict. No late program loses its turn in the time of this test."""
    world, group = make_world(memory="512MiB"), cgroup("memory")
    world.start_daemon(config={"quantum": "200ms", "unevictable_share": "20%", "grace": "10min"})
    group.limit(1300 * MIB)
    programs = [inside(world, group, "fill", "--bytes", "192MiB", "--block", "16MiB", "--seed", str(seed), "--ms", "20",
                       "--until", world.path("end")) for seed in range(4)]
    wait_for(lambda: world.handoffs() >= 12, GENEROUS_S, "hand-offs", report=world.status_text)
    assert "does not give way" not in world.daemon.err()
    with open(world.path("end"), "w", encoding="ascii"):
        pass
    for p in programs:
        p.ok(GENEROUS_S)
        assert world.check_sums(p) >= 1
    assert group.killed() == 0
