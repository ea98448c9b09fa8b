"""The loss of any process at any moment harms no other."""

import json
import os
import signal
import subprocess
import time

import pytest

from world import BUILD, wait_for

SHORT = {"quantum": "100ms"}


@pytest.fixture
def small(make_world):
    """A card of 64 MiB with a daemon whose quantum is short: two programs of 48 MiB take turns on it."""
    world = make_world(memory="64MiB")
    world.start_daemon(config=SHORT)
    return world


def fill(world, seed, *more, mib=48, **env):
    return world.program("fill", "--bytes", f"{mib}MiB", "--block", "4MiB", "--seed", seed, "--until",
                         world.path("end"), *more, **env)


def turns(world, seed, mib=48, **env):
    """A program whose kernels take time on the card, but hardly any of the processor's. It checks its memory at its end."""
    return world.program("turns", "--bytes", f"{mib}MiB", "--block", "4MiB", "--seed", seed, "--until", world.path("end"), **env)


def end(world, *programs):
    with open(world.path("end"), "w", encoding="utf-8"):
        pass
    for p in programs:
        p.ok()
        world.check_sums(p)


@pytest.mark.parametrize("moment", ["evicting", "restoring", "running", "waiting"])
def test_a_survivor_goes_on_when_a_client_is_killed_at_any_moment(make_world, moment):
    # A slow bus: evicting and restoring take long enough to be interrupted.
    world = make_world(memory="64MiB", bus="100MB/s")
    world.start_daemon(config={"quantum": "300ms"})
    survivor, victim = fill(world, "1"), fill(world, "2")

    def met():
        c = world.clients().get(victim.pid)
        return c and c["state"] == moment

    wait_for(met, 60, f"the victim to be {moment}", interval=0.01)
    victim.send(signal.SIGKILL)
    victim.wait()
    wait_for(lambda: victim.pid not in world.clients(), 30, "the victim to be forgotten")
    rounds = len(survivor.events("round"))
    wait_for(lambda: len(survivor.events("round")) >= rounds + 2, 60, "the survivor to go on")
    end(world, survivor)


def test_programs_go_on_under_a_new_daemon(small):
    programs = [turns(small, seed) for seed in ("1", "2")]
    wait_for(lambda: small.handoffs() >= 4, 60, "four hand-offs", interval=0.05)
    small.daemon.send(signal.SIGKILL)
    small.daemon.wait()
    time.sleep(1.0)  # the daemon is missing for a while; running programs go on
    small.start_daemon(config=SHORT)
    wait_for(lambda: small.handoffs() >= 4, 60, "four hand-offs of the new daemon", interval=0.05)
    end(small, *programs)


def test_gpu_time_outlives_the_daemon_and_the_connection(shared):
    """A program knows how long it had a turn and was busy; a new daemon counts on from that time."""
    programs = [turns(shared, seed, mib=72) for seed in ("1", "2")]

    def times():
        clients = shared.clients()
        return [clients[p.pid]["gpu_time_s"] if p.pid in clients else 0 for p in programs]

    before = wait_for(lambda: (t := times()) and min(t) > 1.2 and t, 60, "more than a second of each", interval=0.1)
    shared.daemon.send(signal.SIGKILL)
    shared.daemon.wait()
    shared.start_daemon(config={"quantum": "200ms"})
    wait_for(lambda: all(p.pid in shared.clients() for p in programs), 60, "both to be back")
    for then, now in zip(before, wait_for(lambda: min(t := times()) > 0.1 and t, 60, "what they say")):
        assert now > 0.5 * then, "program and daemon count from different moments, but none begins anew"
    end(shared, *programs)


def test_a_private_daemon_replaces_its_killed_worker(make_world):
    """A daemon that was started on demand replaces its worker by itself."""
    world = make_world(memory="64MiB")
    programs = [turns(world, seed, SUBLET_DAEMON=os.path.join(BUILD, "subletd")) for seed in ("1", "2")]
    for p in programs:
        p.await_event("begin")
    assert world.sublet("set", "quantum", "100ms").returncode == 0
    wait_for(lambda: world.handoffs() >= 3, 60, "three hand-offs", interval=0.05)
    before = world.status()["instance"]
    os.kill(world.worker(), signal.SIGKILL)

    def back():
        done = world.sublet("status", "--json")
        return done.returncode == 0 and json.loads(done.stdout)["instance"] != before

    wait_for(back, 30, "a new worker")
    assert world.status()["quantum"] == 0.1, "the new worker keeps the settings"
    wait_for(lambda: world.handoffs() >= 3, 60, "three hand-offs of the new worker", interval=0.05)
    end(world, *programs)


def test_a_program_without_a_daemon_warns_once_and_runs(world):
    p = world.program("fill", "--bytes", "32MiB", "--block", "4MiB").ok()
    world.check_sums(p)
    assert len(p.err().splitlines()) == 1, p.err()
    assert world.dir in p.err()


def test_a_fork_without_a_daemon_warns_no_second_time(world):
    p = world.program("fork", "--bytes", "4MiB", "--block", "1MiB").ok()
    assert len(p.err().splitlines()) == 1, p.err()


def test_a_program_that_requires_a_daemon_waits_for_it(world):
    p = world.program("fill", "--bytes", "8MiB", "--block", "1MiB", SUBLET_REQUIRE="1")
    time.sleep(1.0)
    assert p.running(), p.report()
    assert not p.events("filled")
    world.start_daemon()
    p.ok(30)
    world.check_sums(p)


@pytest.mark.parametrize("seen, grace", [(True, "1h"), (False, "500ms")])
def test_a_program_that_execs_leaves_the_card(world, seen, grace):
    """The program calls exec() without fork(): the process lives on, and the driver has its memory back. seen: the
    daemon has seen the program's memory on the card before."""
    world.start_daemon(config={"grace": grace})
    p = world.program("hold", "--bytes", "90MiB", "--block", "6MiB", stdin=subprocess.PIPE)
    p.await_event("filled")
    since = world.status()["uptime_s"]
    wait_for(lambda: not seen or world.status()["uptime_s"] > since + 1.5, 20, "the daemon to look at the card")
    p.become("sleep 1000")
    world.check_sums(world.program("fill", "--bytes", "90MiB", "--block", "6MiB").ok(40))
    assert p.running() and p.pid not in world.clients()


def test_a_cuda_program_that_execs_another_is_counted_once(shared):
    p = shared.program("hold", "--bytes", "90MiB", "--block", "6MiB", stdin=subprocess.PIPE)
    p.await_event("filled")
    p.become(os.path.join(BUILD, "programs", "fill"), "--bytes", "60MiB", "--block", "4MiB", "--ms", "20", "--until",
             shared.path("end"))
    p.await_event("round")
    clients = shared.status()["gpus"][0]["clients"]
    assert [c["pid"] for c in clients] == [p.pid] and clients[0]["allocated"] < 80 << 20, clients
    other = fill(shared, "2", "--ms", "20", mib=60)
    other.await_event("round")
    end(shared, p, other)
    wait_for(lambda: not shared.clients(), 60, "the daemon to have seen their end")


def test_a_stopped_client_does_not_stop_the_others(make_world):
    world = make_world()
    world.start_daemon(config={"quantum": "200ms", "grace": "500ms"})
    stopped = world.program("hold", "--bytes", "48MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    stopped.await_event("filled")
    wait_for(lambda: world.clients()[stopped.pid]["idle"], 20, "it to be idle")  # so it holds no lock of the card
    stopped.send(signal.SIGSTOP)
    others = [fill(world, seed, "--ms", "200", mib=60) for seed in ("1", "2")]
    wait_for(lambda: "overdue" in world.clients()[stopped.pid]["flags"], 30, "the stopped client to be overdue")
    rounds = [len(p.events("round")) for p in others]
    wait_for(lambda: all(len(p.events("round")) >= n + 2 for p, n in zip(others, rounds)), 60, "the others to go on")
    end(world, *others)
    stopped.send(signal.SIGCONT)
    stopped.order("verify")
    stopped.finish()


def test_the_daemon_leaves_on_stop_and_programs_go_on(shared):
    p = fill(shared, "1", "--ms", "20", mib=64)
    p.await_event("filled")
    assert shared.sublet("stop").returncode == 0
    assert shared.daemon.wait(20) == 0
    rounds = len(p.events("round"))
    wait_for(lambda: len(p.events("round")) >= rounds + 2, 30, "the program to go on")
    end(shared, p)
