"""Modes, the quantum, priorities and idleness, end to end: the real daemon and programs that compete while settings
change. The programs' own clocks show which of them had the card, never sublet's figures: the kernels of `turns` note
when they begin and end."""

import os
import random
import statistics
import subprocess
import time

import pytest

import others
from campaign import LONG
from wireclient import MAGIC, MIB, encode, uuid
from world import wait_for


@pytest.fixture
def small(make_world):
    """A card of 64 MiB without a daemon."""
    return make_world(memory="64MiB")


@pytest.fixture
def quick(small):
    """A card of 64 MiB with a daemon whose quantum is short."""
    small.start_daemon(config={"quantum": "200ms"})
    return small


def touch(path):
    with open(path, "w", encoding="utf-8"):
        pass


def fill(world, mib, seed, *more, **env):
    return world.program("fill", "--bytes", f"{mib}MiB", "--block", "4MiB", "--seed", str(seed), "--until",
                         world.path("end"), *more, **env)


def hold(world, mib, seed=1, **env):
    return world.program("hold", "--bytes", f"{mib}MiB", "--block", "4MiB", "--seed", str(seed), stdin=subprocess.PIPE,
                         **env)


def setting(world, name, value):
    done = world.sublet("set", name, value)
    assert done.returncode == 0, done.stderr


def finish(world, *programs):
    touch(world.path("end"))
    for p in programs:
        p.ok()
        if p.name in ("fill", "turns"):
            world.check_sums(p)


def go_on(programs, rounds=2, timeout=60):
    """Waits until each program has done that many more rounds."""
    before = [len(p.events("round")) for p in programs]
    wait_for(lambda: all(len(p.events("round")) >= n + rounds for p, n in zip(programs, before)), timeout,
             "everybody to go on")


# ---- exclusive ----


def turns_of(*programs):
    """Returns [(begin, end, number of the program)] in order of time; adjacent turns of a program count as one."""
    every = sorted((t["begin"], t["end"], i) for i, p in enumerate(programs) for t in p.events("turn"))
    merged = []
    for begin, end, whose in every:
        if merged and merged[-1][2] == whose:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), whose)
        else:
            merged.append((begin, end, whose))
    return merged


def overlap_ns(turns, begin, end):
    """Returns for how long between two moments more than one program had a kernel running or queued."""
    clipped = [(max(b, begin), min(e, end), who) for b, e, who in turns if e > begin and b < end]
    return sum(max(0, min(e, e2) - max(b, b2)) for i, (b, e, who) in enumerate(clipped)
               for b2, e2, who2 in clipped[i + 1:] if who != who2)


def both_compute(world, pair):
    """Waits until both programs have run side by side for a while."""
    before = world.launches(*pair)
    wait_for(lambda: all(n >= b + 100 for n, b in zip(world.launches(*pair), before)), 60, "both to compute")


def one_runs(world):
    states = [c["state"] for c in world.clients().values()]
    return states.count("running") == 1 and "draining" not in states


def test_a_program_of_an_exclusive_class_runs_alone_and_the_others_together(make_world):
    """All three fit. While the one of the class computes, one program at a time has the card; when it ends, the others
    run beside each other again."""
    world = make_world(memory="64MiB")
    with open(world.path("classes.conf"), "w", encoding="utf-8") as f:
        f.write("[daemon]\nquantum = 200ms\n[class bench]\nname = alone\nmode = exclusive\n")
    world.start_daemon("--config", world.path("classes.conf"))
    pair = [world.program("turns", "--bytes", "8MiB", "--seed", seed, "--until", world.path("end")) for seed in ("1", "2")]
    for p in pair:
        p.await_event("filled")
    both_compute(world, pair)
    alone = world.program("turns", "--bytes", "8MiB", "--seed", "3", "--until", world.path("over"), SUBLET_NAME="alone")
    alone.await_event("filled")
    handoffs = world.handoffs()
    wait_for(lambda: world.handoffs() >= handoffs + 12, 60, "twelve hand-offs", interval=0.1)
    for _ in range(20):
        assert [c["state"] for c in world.clients().values()].count("running") <= 1
    touch(world.path("over"))
    alone.ok()
    wait_for(lambda: [c["state"] for c in world.clients().values()] == ["running"] * 2, 20, "both to run again")
    both_compute(world, pair)
    finish(world, *pair)


@pytest.mark.freeze("off")  # a frozen program may not notice a short pause
def test_mode_exclusive_runs_one_program_at_a_time(quick):
    """Both programs fit, so in mode auto they run at the same time; the mode changes while they run."""
    pair = [quick.program("turns", "--bytes", "8MiB", "--seed", seed, "--until", quick.path("end"))
            for seed in ("1", "2")]
    for p in pair:
        p.await_event("filled")
    together = time.time_ns()
    both_compute(quick, pair)
    setting(quick, "mode", "exclusive")
    wait_for(lambda: one_runs(quick), 20, "one lease")
    alone, handoffs = time.time_ns(), quick.handoffs()
    wait_for(lambda: quick.handoffs() >= handoffs + 12, 60, "twelve hand-offs", interval=0.1)
    again = time.time_ns()
    setting(quick, "mode", "auto")
    wait_for(lambda: [c["state"] for c in quick.clients().values()] == ["running"] * 2, 20, "both to run again")
    both_compute(quick, pair)
    finish(quick, *pair)
    every = [(t["begin"], t["end"], i) for i, p in enumerate(pair) for t in p.events("turn")]
    assert overlap_ns(every, together, alone) > 0, "the programs never ran together: nothing was tried"
    # A program that stopped for less than 20 ms at a change of mode shows no pause, so only turns well inside count.
    inside = [t for t in every if alone < t[0] and t[1] < again]
    assert overlap_ns(inside, alone, again) == 0, every
    assert overlap_ns(every, again, time.time_ns()) > 0, "the programs did not run together again"
    # The programs take turns, and no memory moves.
    assert len(inside) >= 8
    assert quick.card()["d2h_bytes"] < 8 * MIB


def turns_at(world, quantum, handoffs):
    """Waits for that many hand-offs at that quantum. Returns the moments between which they happened."""
    setting(world, "quantum", quantum)
    begin, before = time.time_ns(), world.handoffs()
    wait_for(lambda: world.handoffs() >= before + handoffs, 60, f"{handoffs} hand-offs at {quantum}", interval=0.05)
    return begin, time.time_ns()


@pytest.mark.freeze("off")  # a frozen program may not notice a short pause
def test_the_quantum_is_obeyed_and_can_be_changed(quick):
    setting(quick, "mode", "exclusive")
    pair = [quick.program("turns", "--bytes", "8MiB", "--seed", seed, "--until", quick.path("end"))
            for seed in ("1", "2")]
    for p in pair:
        p.await_event("filled")
    periods = [turns_at(quick, quantum, handoffs) for quantum, handoffs in (("100ms", 8), ("1s", 3), ("100ms", 8))]
    finish(quick, *pair)
    short, long, short_again = (
        statistics.median(e - b for b, e, _ in turns_of(*pair) if begin <= e <= end) for begin, end in periods)
    # The ratio is ten, but a busy machine adds time to each turn.
    assert long > 2 * short and long > 2 * short_again, (short, long, short_again)
    assert quick.sublet("set", "quantum", "0s").returncode != 0
    assert quick.sublet("set", "quantum", "soon").returncode != 0


# ---- changes under load ----


def test_settings_can_change_while_four_programs_compete(quick):
    """No program hangs, every byte stays right, and mode off is refused while memory is evicted."""
    changes = [("mode", "auto"), ("mode", "exclusive"), ("quantum", "50ms"), ("quantum", "300ms"), ("quantum", "auto"),
               ("mode", "off")] * (5 if LONG else 2)
    rng = random.Random(7)
    rng.shuffle(changes)
    names = [("roam", 48), ("roam", 40), ("roam", 32)]
    programs = [quick.program(name, "--bytes", f"{mib}MiB", "--block", "8MiB", "--seed", str(i), "--ms", "200",
                               "--until", quick.path("end")) for i, (name, mib) in enumerate(names)]
    programs.append(fill(quick, 48, 9))
    # From here on each program has the memory that it cannot do without: in mode off no program waits for room.
    for p in programs:
        p.await_event("filled" if p.name == "fill" else "progress")
    refused = 0
    for name, value in changes:
        done = quick.sublet("set", name, value)
        if value == "off":
            refused += done.returncode != 0
            assert done.returncode == 0 or "has to wait" in done.stderr, done.stderr
            setting(quick, "mode", "auto")  # so that no roaming program fails for want of room
        else:
            assert done.returncode == 0, done.stderr
        assert all(p.running() for p in programs), [p.report() for p in programs if not p.running()]
        time.sleep(rng.uniform(0, 0.2))
    setting(quick, "mode", "auto")
    setting(quick, "quantum", "200ms")
    go_on([programs[-1]])
    before = [p.events("progress")[-1]["actions"] if p.events("progress") else 0 for p in programs[:3]]
    wait_for(lambda: all(p.events("progress") and p.events("progress")[-1]["actions"] > n
                         for p, n in zip(programs[:3], before)), 60, "the roamers to go on")
    finish(quick, *programs)
    for p in programs[:3]:
        assert p.events("roamed")[0]["checked"] > 0
    assert quick.handoffs() > 0


# ---- off ----


def test_mode_off_is_refused_while_memory_is_evicted(quick):
    first, second = hold(quick, 48, 1), hold(quick, 48, 2)
    for p in (first, second):
        p.await_event("filled")
    assert any(c["evicted"] for c in quick.clients().values())
    done = quick.sublet("set", "mode", "off")
    assert done.returncode == 1
    assert "refuses: mode off has to wait until all memory fits the card" in done.stderr
    assert quick.status()["mode"] == "auto"
    first.order("touch")  # hand-offs go on
    second.finish()
    first.order("touch")
    setting(quick, "mode", "off")
    first.finish()
    for p in (first, second):
        assert quick.check_sums(p) == 1


def test_mode_off_refuses_memory_that_does_not_fit_and_revokes_no_turn(quick):
    resident = fill(quick, 32, 1, "--ms", "20")
    resident.await_event("round")
    setting(quick, "mode", "off")
    beside = fill(quick, 12, 2, "--ms", "20")
    beside.await_event("round")
    too_much = quick.program("fill", "--bytes", "32MiB", "--block", "8MiB")
    assert too_much.wait() == 5, too_much.report()
    assert "OUT_OF_MEMORY" in too_much.err()
    go_on([resident, beside])
    assert quick.handoffs() == 0
    shown = quick.clients()
    assert all(shown[p.pid]["evicted"] == 0 and shown[p.pid]["state"] == "running" for p in (resident, beside))
    # Back in mode auto, programs that did not fit a moment ago get their turns.
    setting(quick, "mode", "auto")
    later = fill(quick, 48, 3, "--ms", "20")
    later.await_event("round")
    finish(quick, resident, beside, later)
    assert quick.handoffs() > 0


def test_the_configuration_can_set_the_mode(small):
    small.start_daemon(config={"mode": "off"})
    assert small.status()["mode"] == "off"
    first = hold(small, 32)
    first.await_event("filled")
    second = small.program("fill", "--bytes", "48MiB", "--block", "8MiB")
    assert second.wait() == 5, second.report()
    first.order("verify")
    first.finish()


# ---- priorities ----


def test_a_priority_is_given_with_the_command(quick):
    def shown(process):
        return quick.clients()[process.pid]["priority"]

    by_option = quick.start([os.path.join(os.path.dirname(quick.daemon.argv[0]), "sublet"), "run", "--priority", "-3",
                              "--", os.path.join(os.path.dirname(quick.daemon.argv[0]), "programs", "hold"), "--bytes",
                              "4MiB"], stdin=subprocess.PIPE)
    by_variable = hold(quick, 4, SUBLET_PRIORITY="7")  # the daemon's own user may raise it
    malformed = hold(quick, 4, SUBLET_PRIORITY="high")
    for p in (by_option, by_variable, malformed):
        p.await_event("filled")
    assert (shown(by_option), shown(by_variable), shown(malformed)) == (-3, 7, 0)
    table = [line.split() for line in quick.status_text().splitlines()]
    at = next(line.index("PRI") for line in table if "PRI" in line)
    assert sorted(line[at] for line in table if line[2:3] == ["hold"]) == ["-3", "0", "7"], table
    assert malformed.err().count("\n") == 1
    assert "SUBLET_PRIORITY is a number from -20 to 20, not 'high'" in malformed.err()
    for p in (by_option, by_variable, malformed):
        p.finish()
    for value in ("high", "21", "-21", ""):
        done = quick.sublet("run", "--priority", value, "--", "/bin/true")
        assert done.returncode == 2 and "--priority" in done.stderr, (value, done)


# A client of another user: it connects, attaches, and stays until its stdin ends.
OTHER_USER = """
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
for packet in sys.argv[2:]:
    s.send(bytes.fromhex(packet))
sys.stdin.read()
"""


@others.needed
@pytest.mark.parametrize("requested,given", [(5, 0), (0, 0), (-5, -5), (-1000, -20), (2**31 - 1, 0), (-2**31, -20)])
def test_other_users_may_only_lower_their_priority(world, requested, given):
    os.mkdir(world.dir)
    for path in (world.root, world.dir):
        os.chmod(path, 0o755)
    world.start_daemon("--shared", "--capacity", "64MiB")
    client = subprocess.Popen(
        ["/usr/bin/python3", "-c", OTHER_USER, os.path.join(world.dir, "client.sock"),
         encode("HELLO", sequence=1, magic=MAGIC, protocol=1, name="x", version="1", priority=requested & 0xFFFFFFFF).hex(),
         encode("ATTACH", gpu=0, sequence=2, total_bytes=64 * MIB, uuid=uuid(1)).hex()],
        stdin=subprocess.PIPE, user=others.NOBODY)
    try:
        def found():
            return [c for g in world.status()["gpus"] for c in g["clients"]]

        wait_for(found, 20, "the client to be attached")
        assert [c["priority"] for c in found()] == [given]
    finally:
        client.stdin.close()
        client.wait()


def pauses_s(orders):
    """Returns the times between the end of each turn and the beginning of the next, by the program's own clock."""
    return [(b["at"] - a["at"]) / 1e9 - b["ms"] / 1e3 for a, b in zip(orders, orders[1:])]


def test_bursts_of_a_higher_priority_go_first_and_do_not_ping_pong(make_world):
    """The batch job's turn would last five minutes. The bus is slow: a hand-off costs far more than the pause between
    two requests of a burst, so the batch job must not get the card during that pause."""
    world = make_world(memory="64MiB", bus="40MB/s")
    world.start_daemon(config={"quantum": "5min"})
    interactive = hold(world, 32)
    interactive.await_event("filled")
    batch = fill(world, 48, 2, SUBLET_PRIORITY="-1")
    batch.await_event("round")
    undisturbed = 0
    for _ in range(40):
        orders = [interactive.order("touch")]
        before = world.clients()[interactive.pid]["handoffs"]
        orders += [interactive.order("touch") for _ in range(4)]
        lost = world.clients()[interactive.pid]["handoffs"] - before
        # A hand-off moves 22 MiB each way, half a second: a program that was kept from asking for that long counts as
        # idle.
        burst = max([time.monotonic() - orders[-1]["at"] / 1e9, *pauses_s(orders)]) < 0.25
        assert not burst or lost == 0, (orders, lost)
        undisturbed += burst
        go_on([batch])  # the batch job gets the card back when the burst is over
        if undisturbed == 2:
            break
    assert undisturbed == 2, "the machine disturbed every burst"
    assert world.clients()[batch.pid]["handoffs"] >= 2
    interactive.finish()
    finish(world, batch)
    assert world.check_sums(interactive) == 1


# ---- the automatic quantum ----


def handoff_costs_s(events):
    """Returns the times from the beginning of each drain to the end of the other program's next restore."""
    costs = []
    for i, e in enumerate(events):
        if e["event"] != "drain_begin":
            continue
        done = [x["t_ns"] for x in events[i:] if x["event"] == "restore_end" and x["pid"] != e["pid"]]
        until = [x["t_ns"] for x in events[i + 1:] if x["event"] == "drain_begin"] or [events[-1]["t_ns"] + 1]
        done = [t for t in done if t <= until[0]]
        if done:
            costs.append((max(done) - e["t_ns"]) / 1e9)
    return costs


@pytest.mark.parametrize("bus", ["200MB/s", "50MB/s"])
def test_the_automatic_quantum_follows_the_cost_of_hand_offs(make_world, bus):
    """Here hand-offs may take half of the time, so a turn lasts as long as a hand-off."""
    world = make_world(memory="64MiB", bus=bus)
    world.start_daemon(config={"handoff_share": "50%", "quantum_min": "1ms"})
    # Their kernels take time on the card, but hardly any of the processor's.
    pair = [world.program("turns", "--bytes", "40MiB", "--block", "4MiB", "--seed", seed, "--until", world.path("end")) for seed in (1, 2)]
    wait_for(lambda: world.handoffs() >= 6, 90, "six hand-offs", interval=0.1)
    assert world.status()["quantum"] == "auto"
    seen = []

    def follows():
        """The quantum is a mean of the last costs. The daemon and the test measure a cost differently if the machine
        stopped a process for a while: the daemon begins a little before the program and ends a little after it."""
        quantum = world.status()["gpus"][0]["quantum_s"]
        costs = handoff_costs_s(sorted(world.traced(), key=lambda e: e["t_ns"]))[-6:]
        seen.append((quantum, costs))
        return len(costs) >= 3 and 0.5 * min(costs) < quantum < 3 * max(costs)

    try:
        wait_for(follows, 60, "the quantum to follow", interval=0.2)
    except AssertionError as e:
        raise AssertionError(f"{e}: {seen[-3:]}") from None
    finish(world, *pair)


# ---- idleness ----


def test_an_idle_program_keeps_its_memory_for_as_long_as_set_and_no_longer(small):
    small.start_daemon(config={"quantum": "5min", "idle_release": "1500ms"})
    idle = hold(small, 48)
    idle.await_event("filled")
    last = idle.order("touch")  # the program cannot have been idle before this touch began
    second = hold(small, 48, 2)
    assert second.await_event("filled")["at"] - (last["at"] - last["ms"] * 1e6) > 1.5e9
    idle.order("verify")
    for p in (idle, second):
        p.finish()


def test_a_program_idle_for_long_gives_way_at_once(small):
    """By default a turn ends once its program was idle for as long as a hand-off takes. Here the program was idle for
    longer before another program asks."""
    small.start_daemon(config={"quantum": "5min"})
    idle = hold(small, 48)
    idle.await_event("filled")
    wait_for(lambda: small.clients()[idle.pid]["idle"], 20, "the first to be idle")
    second = hold(small, 48, 2)
    second.await_event("filled", timeout=30)
    assert small.handoffs() == 1
    for p in (idle, second):
        p.finish()


def test_a_busy_program_is_not_idle(small):
    """Within its quantum a working program keeps its turn, even if it does little at a time."""
    small.start_daemon(config={"quantum": "5min", "idle_release": "1ms"})
    busy = small.program("turns", "--bytes", "40MiB", "--block", "4MiB", "--ms", "1", "--until", small.path("end"))
    busy.await_event("filled")
    turns = small.handoffs()
    second = hold(small, 48, 2)
    wait_for(lambda: second.pid in small.clients(), 30, "the second to come")
    # If the machine does not let the program run for a while, it counts as idle and is asked to give way. So there are
    # several tries.
    for _ in range(5):
        wait_for(lambda: small.clients()[second.pid]["state"] in ("waiting", "restoring") or small.handoffs() > turns, 30,
                 "the second to wait")
        launched, turns = small.launches(busy)[0], small.handoffs()
        wait_for(lambda: small.launches(busy)[0] >= launched + 200 or small.handoffs() > turns, 60, "the first to go on")
        if small.launches(busy)[0] >= launched + 200 and small.handoffs() == turns:
            break
        second.await_event("filled")
        launched = small.launches(busy)[0]
        wait_for(lambda: small.launches(busy)[0] >= launched + 20, 60, "the first to have its turn back")
        turns = small.handoffs()
        second.process.stdin.write(b"touch\n")
        second.process.stdin.flush()
    else:
        raise AssertionError("the first was asked to give way each time, before it had done 200 launches")
    touch(small.path("end"))
    busy.ok()
    second.await_event("filled")
    second.finish()
