"""The library's agent thread: it sleeps when there is nothing to do, sends each report once, and accepts an answer of
the daemon however late the answer comes."""

import os
import signal
import subprocess
import time

import pytest

from scripted import Scripted
from wireclient import MAGIC, MIB, RUN
from world import BUILD, LIBRARY, SANITIZER, is_stopped, threads, wait_for

REFUSED_COMMIT = 2
OUT_OF_MEMORY = 2


def agent_of(p):
    """Returns the path of the agent thread's schedstat."""
    def look():
        return next((f"{folder}/schedstat" for folder, name in threads(p.pid, "comm") if name == "sublet-agent\n"), None)

    return wait_for(look, 20, "the agent's thread")


def processor_time(schedstat):
    with open(schedstat, encoding="ascii") as f:
        return int(f.read().split()[0]) / 1e9


def sleeps(p, for_s=1.0):
    """Fails if the agent polls: a thread that polls uses all the processor time that it gets, every second. A pause of
    the virtual machine itself shows up only once, so one idle second of five is enough."""
    schedstat = agent_of(p)

    def slept():
        before = processor_time(schedstat)
        time.sleep(for_s)
        return processor_time(schedstat) - before < for_s / 100

    assert any(slept() for _ in range(5)), f"the agent used a processor for {for_s / 100} s or more, each of five times"


def stop(p):
    """Stops the program and waits until none of its threads runs any more."""
    p.send(signal.SIGSTOP)
    wait_for(lambda: is_stopped(p.pid), 20, "all its threads to stop")


@pytest.fixture
def scripted(make_world):
    started = []

    def begin(*argv, commit=24 * MIB, **options):
        world = make_world(memory="32MiB")
        daemon = Scripted(world)
        started.append(daemon)
        p = world.program(*argv, SUBLET_REQUIRE="1", **options)
        attach = daemon.accept()
        daemon.answer(commit=commit, backed=24 * MIB, unevictable=attach["unevictable_requested"])
        return world, daemon, p

    yield begin
    for daemon in started:
        daemon.close()


def test_the_agent_of_an_idle_program_sleeps(shared):
    p = shared.program("hold", "--bytes", "8MiB", stdin=subprocess.PIPE)
    p.await_event("filled")
    wait_for(lambda: shared.clients()[p.pid]["idle"], 20, "it to be idle")
    sleeps(p)
    p.finish()


PINNED = os.path.join(BUILD, "tests/pinning/libpinning.so")
CPUS = os.sched_getaffinity(0)


@pytest.mark.skipif(len(CPUS) < 2, reason="there is only one CPU to be on")
@pytest.mark.skipif(SANITIZER is not None, reason="a sanitizer's run time is set up before the library")
@pytest.mark.parametrize("allowed", [CPUS, {max(CPUS)}], ids=["all", "taskset"])
def test_the_agent_may_use_the_cpus_that_the_process_began_with_and_its_daemon_all(make_world, allowed):
    """When a thread first calls the driver, it is already pinned and has another scheduling policy (pinning.c)."""
    world = make_world()
    os.mkdir(world.dir, 0o700)  # where the library starts a daemon
    before = ("taskset", "-c", ",".join(map(str, allowed)))
    # The library that is preloaded last, here PINNED, is set up first.
    p = world.program("hold", "--bytes", "8MiB", stdin=subprocess.PIPE, before=before,
                      LD_PRELOAD=f"{LIBRARY} {PINNED}", SUBLET_REQUIRE="1",
                      SUBLET_DAEMON=f"{BUILD}/subletd")
    p.await_event("filled")
    agent = int(os.path.basename(os.path.dirname(agent_of(p))))
    assert (len(os.sched_getaffinity(p.pid)), os.sched_getscheduler(p.pid)) == (1, os.SCHED_BATCH)
    for task, cpus in ((agent, allowed), (world.worker(), CPUS)):
        assert (os.sched_getaffinity(task), os.sched_getscheduler(task)) == (cpus, os.SCHED_OTHER)
    p.finish()


def test_the_agent_of_a_program_without_its_daemon_sleeps(scripted):
    world, daemon, p = scripted("fill", "--bytes", "8MiB", "--block", "2MiB", "--until", "never")
    daemon.serve(lambda: p.events("filled"), "it to be filled")
    daemon.close()
    sleeps(p)
    assert p.running()


def test_the_agent_reports_idleness_once(scripted):
    world, daemon, p = scripted("hold", "--bytes", "8MiB", stdin=subprocess.PIPE)
    idle = False

    def hear(m):
        nonlocal idle
        if m["type"] in ("IDLE", "ACTIVE"):
            assert idle == (m["type"] == "ACTIVE"), f"{m['type']} once more"
            idle = not idle

    def expect(wanted, test=lambda m: True):
        while True:
            m = daemon.expect_any(wanted, "IDLE", "ACTIVE")
            hear(m)
            if m["type"] == wanted and test(m):
                return

    daemon.serve(lambda: p.events("filled"), "it to be filled", hear)
    for _ in range(20):  # each message makes the agent check everything
        daemon.say_limit()
        sequence = daemon.sequence
        expect("USAGE", lambda m: m["limit_sequence"] >= sequence)
        time.sleep(0.02)
    if not idle:
        expect("IDLE")
    p.process.stdin.write(b"touch\n")
    p.process.stdin.flush()
    expect("ACTIVE")
    expect("IDLE")
    p.await_event("done")


def test_room_that_is_granted_late_is_used(scripted):
    """The daemon grants the room only after a time in which the library gives unused room back."""
    world, daemon, p = scripted("hold", "--bytes", "12MiB", "--block", "12MiB", commit=0, stdin=subprocess.PIPE)
    wanted = daemon.expect("REQUEST", lambda m: m["commit"] >= 12 * MIB)
    time.sleep(1.5)
    daemon.say_limit(commit=wanted["commit"])
    daemon.expect("USAGE", lambda m: m["backed"] >= 12 * MIB)


def test_room_that_is_taken_back_before_it_is_used_is_asked_for_again(scripted):
    world, daemon, p = scripted("hold", "--bytes", "12MiB", "--block", "12MiB", commit=0, stdin=subprocess.PIPE)
    wanted = daemon.expect("REQUEST", lambda m: m["commit"] >= 12 * MIB)
    stop(p)
    daemon.say_limit(commit=wanted["commit"])
    daemon.say_limit(commit=2 * MIB)
    p.send(signal.SIGCONT)
    daemon.expect("REQUEST", lambda m: m["commit"] >= wanted["commit"])
    daemon.say_limit(commit=wanted["commit"])
    daemon.expect("USAGE", lambda m: m["backed"] >= 12 * MIB)


def test_a_running_program_that_waits_for_room_asks_again(scripted):
    """The daemon may have dropped the request, and its messages do not say so."""
    world, daemon, p = scripted("hold", "--bytes", "12MiB", "--block", "4MiB", stdin=subprocess.PIPE)
    daemon.say_limit(backed=8 * MIB)
    daemon.serve(lambda: daemon.lease, "it to run")
    daemon.expect("USAGE", lambda m: m["backed"] >= 8 * MIB)
    for _ in range(4):  # the program begins to wait with the first request
        daemon.expect("REQUEST", lambda m: m["flags"] & RUN and m["need"] >= 12 * MIB)
    daemon.say_limit(backed=24 * MIB)
    daemon.expect("USAGE", lambda m: m["backed"] >= 12 * MIB)


def test_a_refused_large_request_does_not_refuse_a_smaller_one(scripted):
    """Two threads ask in one message: a refusal of the larger request says nothing about the smaller request."""
    world, daemon, p = scripted("together", "--bytes", "24MiB", "--block", "4MiB", commit=0, stdin=subprocess.PIPE)
    daemon.expect("REQUEST", lambda m: m["commit"] >= 24 * MIB)
    p.process.stdin.write(b"now\n")
    p.process.stdin.flush()
    both = daemon.expect("REQUEST", lambda m: m["commit"] >= 24 * MIB)
    daemon.send("REFUSED", gpu=0, magic=MAGIC, code=REFUSED_COMMIT, of=both["sequence"])
    daemon.expect("REQUEST", lambda m: 4 * MIB <= m["commit"] < 24 * MIB)
    daemon.say_limit(commit=4 * MIB)
    answers = p.await_event("answers")
    assert (answers["bytes"], answers["block"]) == (OUT_OF_MEMORY, 0)


def test_a_client_sends_no_descriptors_to_a_daemon_that_refuses_them(scripted):
    """Before Linux 6.16 the kernel does not tell the sender that descriptors were refused, so the daemon tells it."""
    world, daemon, p = scripted("hold", "--bytes", "16MiB", "--block", "2MiB", stdin=subprocess.PIPE)
    daemon.serve(lambda: p.events("filled"), "it to be filled")
    daemon.send("REVOKE", lease=daemon.lease, patience_ns=10**10)
    daemon.expect("DRAINED")

    def evict_to(backed):
        daemon.grants = False
        daemon.say_limit(backed=backed)
        daemon.acknowledged()
        said = []
        daemon.expect("USAGE", lambda m: said.append(m["pass_bytes"]) or m["backed"] <= backed)
        return said

    assert any(evict_to(8 * MIB))
    daemon.send("REFUSED", gpu=0, magic=MAGIC, code=9, text="none are taken")
    assert not any(evict_to(0))
