"""The host pool: what programs are evicted to is the daemon's memory, and does not count against their cgroup's limit."""

import subprocess
import sys

import pytest

from cgroups import inside
from counting import await_count, begin, end as end_counts
from world import FILLER, MIB, SANITIZER, await_rest, children, go_on, name_of, touch_and_rest, wait_for

pytestmark = pytest.mark.skipif(SANITIZER is not None, reason="a sanitizer alone fills such a cgroup; in another build they run")

CARD = 96
EACH = 72
# The simulated card keeps its memory in its processes' own memory, so a cgroup's limit has to cover the card, and some
# 10 MiB for each process.
LIMIT = 224
CONFIG = {"quantum": "100ms", "grace": "2s", "host_pool": "1GiB", "host_memory": "2GiB"}


def within(group):
    return ["sh", "-c", f'echo $$ > {group.path}/cgroup.procs && exec "$@"', "sh"]


def pool(world):
    return world.status()["host_memory"]["pool"]


def hold(world, group):
    """Starts a program in the cgroup, or in the test's own."""
    start = (lambda *a, **k: inside(world, group, *a, **k)) if group else world.program
    p = start("hold", "--bytes", f"{EACH}MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    p.await_event("filled")
    return p


def fill(world, group, seed):
    return inside(world, group, "fill", "--bytes", f"{EACH}MiB", "--block", "8MiB", "--seed", str(seed), "--ms", "1",
                  "--until", world.path("end"))


def end(world, programs):
    with open(world.path("end"), "w", encoding="utf-8"):
        pass
    for p in programs:
        p.ok()
        assert world.check_sums(p) > 0


def finish(world, programs):
    for p in programs:
        p.order("touch")
    for p in programs:
        p.finish()
        assert world.check_sums(p) == 1


@pytest.fixture
def small(cgroup):
    group = cgroup("memory")
    group.limit(LIMIT * MIB)
    return group


@pytest.fixture
def full(cgroup):
    """A cgroup in which programs find no room to evict to, but whose limit is far above what they use: programs look at
    seven eighths of it, and another process fills the most of that."""
    group = cgroup("memory")
    group.limit(1200 * MIB)
    ballast = subprocess.Popen([*within(group), sys.executable, "-c", f"m = b'x' * {1012 * MIB}; print(flush=True); input()"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with ballast:
        assert ballast.stdout.read(1) == b"\n"
        yield group
        ballast.kill()


@pytest.fixture
def world(make_world):
    return make_world(memory=f"{CARD}MiB")


def test_programs_leave_more_of_a_card_than_their_cgroup_may_hold(world, cgroup, small):
    daemons = cgroup("memory")
    world.start_daemon(config=CONFIG, prefix=within(daemons))
    before = daemons.used()
    programs = [hold(world, small) for _ in range(8)]
    evicted = (8 * EACH - CARD) * MIB
    assert evicted > 2 * LIMIT * MIB
    assert pool(world) >= evicted
    assert daemons.used() - before >= evicted
    assert small.used() <= LIMIT * MIB

    def adds_up():  # a program that still moves may get more between the two figures
        status = world.status()
        return sum(row["host_pool"] for row in status["gpus"][0]["clients"]) == status["host_memory"]["pool"]

    wait_for(adds_up, 20, "the programs' bytes to make the sum")
    finish(world, programs)
    assert small.killed() == 0
    for p in programs:
        assert "no host memory" not in p.err()
    wait_for(lambda: pool(world) == 0, 20, "the pool to be empty")
    wait_for(lambda: daemons.used() - before < 64 * MIB, 20, "the daemon's cgroup to have the memory back")


def test_without_a_host_pool_they_cannot(world, full):
    """It shows that the limit is what stands in the way."""
    world.start_daemon(config={k: v for k, v in CONFIG.items() if k != "host_pool"})
    programs = [hold(world, full), fill(world, full, 1)]
    wait_for(lambda: "no host memory" in programs[0].err(), 60, "an eviction without room")
    assert world.sublet("set", "host_pool", "1GiB").returncode == 0
    go_on(programs[1:])
    end(world, programs[1:])
    finish(world, programs[:1])
    assert full.killed() == 0


def test_programs_that_take_turns_compute_the_same(world, small):
    world.start_daemon(config=CONFIG)
    programs = [fill(world, small, i) for i in range(5)]
    go_on(programs, 3)
    assert pool(world) > LIMIT * MIB
    end(world, programs)
    assert small.killed() == 0


def own(world):
    """Returns the bytes of arenas that are the programs' own memory."""
    return sum(row["arena"] - row["host_pool"] for row in world.clients().values())


def test_a_tenant_gets_no_more_than_the_bound(world):
    """What does not fit the pool is the programs' own memory, if they have room. More is lent as soon as the owner allows
    it."""
    world.start_daemon(config={**CONFIG, "host_pool": "100MiB"})
    programs = [hold(world, None) for _ in range(4)]
    assert 64 * MIB < pool(world) <= 100 * MIB
    assert own(world) >= 4 * EACH * MIB - (CARD + 100) * MIB
    assert world.sublet("set", "host_pool", "1GiB").returncode == 0
    programs += [hold(world, None) for _ in range(3)]
    assert pool(world) > 200 * MIB
    finish(world, programs)


def test_a_reload_changes_the_bound(world):
    world.start_daemon(config={k: v for k, v in CONFIG.items() if k != "host_pool"})
    programs = [hold(world, None) for _ in range(2)]
    assert pool(world) == 0
    with open(world.path("subletd.conf"), "a", encoding="utf-8") as f:
        f.write("host_pool = 1GiB\n")
    assert world.sublet("reload").returncode == 0
    later = [hold(world, None) for _ in range(2)]
    rows = world.clients()
    assert all(rows[p.pid]["arena"] <= rows[p.pid]["host_pool"] for p in later)
    assert pool(world) > 50 * MIB
    finish(world, programs + later)


def test_nothing_is_lost_if_the_daemon_is_killed(world, small):
    """The next daemon counts what was lent before, as the programs report it, and lends more."""
    world.start_daemon(config={**CONFIG, "host_pool": "640MiB"})
    held = [hold(world, small) for _ in range(4)]
    evicted = 3 * EACH * MIB - CARD * MIB
    assert pool(world) >= evicted
    world.daemon.send(9)
    world.daemon.wait()
    world.start_daemon(config={**CONFIG, "host_pool": "640MiB"})
    wait_for(lambda: len(world.clients()) == 4, 30, "all to be back")
    wait_for(lambda: pool(world) >= evicted, 30, "their memory to be counted", report=world.status_text)
    programs = [fill(world, small, i) for i in range(3)]
    go_on(programs, 2)
    assert pool(world) <= 640 * MIB
    end(world, programs)
    finish(world, held)
    assert small.killed() == 0
    wait_for(lambda: pool(world) == 0, 20, "the pool to be empty")


def test_a_killed_programs_memory_is_given_back(world, cgroup, small):
    daemons = cgroup("memory")
    world.start_daemon(config=CONFIG, prefix=within(daemons))
    before = daemons.used()
    programs = [hold(world, small) for _ in range(3)]
    assert daemons.used() - before >= (3 * EACH - CARD) * MIB
    for p in programs:
        p.send(9)
        p.wait()
    wait_for(lambda: pool(world) == 0, 20, "the pool to be empty")
    wait_for(lambda: daemons.used() - before < 32 * MIB, 20, "the daemon's cgroup to have the memory back")


def test_a_daemon_without_memory_lends_none_and_lives(world, cgroup):
    """The daemon's own cgroup is smaller than host_pool. Its process that fills pools looks before it takes."""
    daemons = cgroup("memory")
    daemons.limit(96 * MIB)
    daemon = world.start_daemon(config=CONFIG, prefix=within(daemons))
    programs = [hold(world, None) for _ in range(4)]
    assert pool(world) < 96 * MIB
    assert own(world) > 96 * MIB
    assert daemons.killed() == 0
    daemons.limit(1024 * MIB)
    programs += [hold(world, None) for _ in range(2)]
    assert pool(world) > 96 * MIB
    finish(world, programs)
    assert daemon.running()


def test_the_process_that_fills_pools_may_die(world, small):
    daemon = world.start_daemon(config=CONFIG)
    held = [hold(world, small), hold(world, small)]
    fillers = [child for child in children(daemon.pid) if name_of(child) == FILLER]
    assert len(fillers) == 1
    before = pool(world)
    subprocess.run(["kill", "-9", str(fillers[0])], check=True)
    more = [hold(world, small) for _ in range(3)]
    # A program that has lost its answer takes memory of its own, if it has room.
    assert pool(world) > before and pool(world) + own(world) >= (5 * EACH - CARD) * MIB
    finish(world, held + more)
    assert daemon.running()


def test_memory_that_a_frozen_program_keeps_does_not_stop_the_eviction_of_another(world, full):
    """The driver unpins nothing while a program is frozen, and the program stays frozen until the other one's memory has
    left the card. So what it cannot give back does not count for the bound of the pools."""
    world.env["SUBLET_FREEZE"] = "move"
    world.start_daemon(config={**CONFIG, "host_pool": f"{EACH + 16}MiB", "unevictable_share": "10%"})
    keeps = inside(world, full, "counts", "--bytes", f"{EACH - 16}MiB", "--block", "8MiB", "--seed", "1", stdin=subprocess.PIPE)
    keeps.await_event("filled")
    wait_for(lambda: world.sublet("evict", str(keeps.pid)).returncode == 0, 20, "it to be idle")
    begin(keeps)
    assert world.clients()[keeps.pid]["host_pool"] >= (EACH - 16) * MIB
    lacks = hold(world, full)
    await_count(keeps)
    assert world.traced("frozen", keeps.pid)
    assert full.killed() == 0
    lacks.finish()
    end_counts(world, keeps)


def test_memory_that_a_program_keeps_for_later_does_not_stop_the_eviction_of_another(world, full):
    """As for the limit of a cgroup (test_faults_host.py), with the bound of the pool: the first program was evicted as a
    whole, and keeps that much of the pool."""
    world.start_daemon(config={**CONFIG, "host_pool": f"{EACH + 40}MiB"})
    keeps = hold(world, full)
    wait_for(lambda: world.sublet("evict", str(keeps.pid)).returncode == 0, 20, "it to be idle")
    touch_and_rest(world, keeps)
    assert world.clients()[keeps.pid]["host_pool"] >= EACH * MIB
    lacks = hold(world, full)
    await_rest(world, lacks)
    for _ in range(2):
        touch_and_rest(world, keeps)
        touch_and_rest(world, lacks)
    assert full.killed() == 0
    for p in (keeps, lacks):
        p.finish()
        assert world.check_sums(p) == 1
