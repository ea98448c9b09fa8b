"""Limits that hold: programs that try to get more memory than their cap and more time than their maximum. They allocate in
every way that the driver offers, exec, fork, connect again, start copies, and outlive the daemon."""

import signal
import subprocess
import time

import pytest

from campaign import LONG
from test_configuration import write
from wireclient import Client
from world import BUILD, GENEROUS_S, LIBRARY, MIB, wait_for

pytestmark = pytest.mark.freeze("park")  # without a second context the accounts equal the card's figures

CAP = 40 * MIB
ALL_USERS = "user = 0-4294967294\n"
CAPPED = f"[class capped]\n{ALL_USERS}memory_cap = 40MiB\n"
SLOW = f"[class slow]\n{ALL_USERS}maximum = 20%\n"
SECONDS = 8 if LONG else 4  # a full bucket, which holds 1 s, would be a quarter of it
MOST = 0.2 + 0.16 / SECONDS  # the maximum, and a kernel or two at the end
WAYS = ("alloc", "pitch", "async", "pool", "handles", "managed", "advised", "arrays", "mixed", "threads", "contexts")


@pytest.fixture
def start(world):
    path = world.path("s.conf")

    def started(text):
        write(path, text)
        return world.start_daemon("--config", path)

    return started


# ---- memory ----


def greedy(world, *args, **env):
    return world.program("greedy", *args, stdin=subprocess.PIPE, **env)


def within_cap(world, gpu=0, copies=1):
    """Checks the card's own figures. Beside the cap, each process may have a context."""
    card = world.driver()["devices"][gpu]
    assert card["used"] <= CAP + copies * card["context_bytes"], card
    return card["used"]


def no_more(world, p):
    """Lets the program try once more to pass the cap."""
    p.process.stdin.write(b"more\n")
    p.process.stdin.flush()
    wait_for(lambda: len(p.events("got")) == 2, GENEROUS_S, "the second attempt", report=p.report)
    assert p.events("got")[1]["bytes"] <= CAP
    within_cap(world)


@pytest.mark.parametrize("how", WAYS)
def test_a_cap_holds_for_every_way_to_allocate(world, start, how):
    start(CAPPED)
    p = greedy(world, "--how", how)
    assert 28 * MIB <= p.await_event("got")["bytes"] <= CAP, p.report()
    assert "memory cap" in p.err(), p.report()
    no_more(world, p)
    p.finish()


def test_a_cap_does_not_count_the_second_context_that_freezing_needs(world, start):
    start(CAPPED)
    p = greedy(world, SUBLET_FREEZE="move")
    assert p.await_event("got")["bytes"] == 38 * MIB, "the same as without freezing"
    wait_for(lambda: world.card()["processes"][0]["contexts"] == 2, GENEROUS_S, "the second context", report=world.status_text)
    p.finish()


@pytest.mark.parametrize("how", ("managed", "advised"))
def test_small_pieces_of_managed_memory_count_for_a_cap(world, start, how):
    start(CAPPED)
    p = greedy(world, "--how", how, "--block", "512KiB")
    assert 28 * MIB <= p.await_event("got")["bytes"] <= CAP, p.report()
    within_cap(world)
    p.finish()


@pytest.mark.parametrize("how", WAYS)
def test_a_cap_holds_for_four_copies_together(world, start, how):
    start(CAPPED)
    copies = [greedy(world, "--how", how) for _ in range(4)]
    for p in copies:
        p.await_event("got")
    assert sum(p.events("got")[-1]["bytes"] for p in copies) <= CAP, [p.out() for p in copies]
    within_cap(world, copies=4)
    for p in copies:
        p.finish()


def test_a_cap_holds_for_ten_copies_that_allocate_at_the_same_moment(world, start):
    start(CAPPED)
    copies = [greedy(world, "--bytes", "20MiB", "--block", "1MiB") for _ in range(10)]
    for p in copies:
        p.await_event("got")
    assert sum(p.events("got")[-1]["bytes"] for p in copies) <= CAP
    within_cap(world, copies=10)
    for p in copies:
        p.finish()


@pytest.mark.parametrize("mode", ("overflow", "managed"))
def test_a_memory_mode_gives_no_more_of_the_card_than_the_cap(world, start, mode):
    start(CAPPED)
    p = greedy(world, SUBLET_MEMORY=mode)
    p.await_event("got")
    within_cap(world)
    p.finish()


def test_a_cap_holds_on_each_card_for_itself(make_world):
    world = make_world(gpus=2)
    write(world.path("s.conf"), CAPPED)
    world.start_daemon("--config", world.path("s.conf"))
    copies = [greedy(world, "--gpu", n % 2) for n in range(4)]
    for p in copies:
        p.await_event("got")
    for gpu in range(2):
        assert 28 * MIB <= within_cap(world, gpu, copies=2)
    for p in copies:
        p.finish()


@pytest.mark.parametrize("change", ("", "SUBLET_NAME=another", "SUBLET_SHARE=0.9:1", "SUBLET_MEMORY_CAP=120MiB", "SUBLET_GROUP=new",
                                    "SUBLET_MEMORY=managed", "SUBLET_PRIORITY=20", "-u SUBLET_QUIET"))
def test_exec_gives_no_second_cap(world, start, change):
    start(CAPPED)
    p, beside = greedy(world, "--bytes", "24MiB"), greedy(world, "--bytes", "4MiB")
    beside.await_event("got")
    p.await_event("got")
    for n in range(2, 4):
        p.become("env", change, *p.argv[:1])
        wait_for(lambda: len(p.events("got")) == n, GENEROUS_S, "the program after exec", report=p.report)
        assert 20 * MIB <= p.events("got")[-1]["bytes"] <= CAP - 4 * MIB, p.report()
        within_cap(world, copies=2)
    p.finish()
    beside.finish()


def test_a_program_leaves_a_class_that_goes_by_name_alone_with_another_name(world, start):
    """The owner's own programs choose their names. A shared daemon refuses such a class."""
    start("[class capped]\nname = greedy\nmemory_cap = 40MiB\n")
    p = greedy(world, "--bytes", "60MiB")
    assert p.await_event("got")["bytes"] <= CAP
    p.become("env", "SUBLET_NAME=another", *p.argv)
    wait_for(lambda: len(p.events("got")) == 2, GENEROUS_S, "the program after exec", report=p.report)
    assert p.events("got")[1]["bytes"] == 60 * MIB
    p.finish()


def test_memory_that_another_process_keeps_open_counts_for_the_cap(world, start):
    start(CAPPED)
    exporter, importer = (world.program("share", "--bytes", f"{mib}MiB", "--block", "4MiB", "--count", "0", stdin=subprocess.PIPE)
                          for mib in (20, 1))
    exporter.await_event("filled")
    importer.await_event("filled")
    exporter.order("export " + world.path("handles"))
    assert importer.order("import " + world.path("handles"))["result"] == 0
    exporter.send(signal.SIGKILL)
    exporter.wait()
    wait_for(lambda: list(world.clients()) == [importer.pid], GENEROUS_S, "the exporter to be gone", report=world.status_text)
    wait_for(lambda: world.clients()[importer.pid]["unevictable"] >= 20 * MIB, GENEROUS_S, "the heir", report=world.status_text)
    p = greedy(world)
    assert p.await_event("got")["bytes"] <= CAP - 20 * MIB
    within_cap(world, copies=3)
    p.finish()
    importer.finish()


def test_a_cap_outlives_the_daemon(world, start):
    daemon = start(CAPPED)
    p = greedy(world, "--bytes", "36MiB")
    p.await_event("got")
    for _ in range(2):
        daemon.send(signal.SIGKILL)
        daemon.wait()
        daemon = world.start_daemon("--config", world.path("s.conf"))
        wait_for(lambda: p.pid in world.clients(), GENEROUS_S, "the program to be back", report=world.status_text)
        assert world.clients()[p.pid]["allocated"] >= 36 * MIB, world.status_text()
        other = greedy(world)
        assert other.await_event("got")["bytes"] <= 4 * MIB, other.report()
        within_cap(world, copies=2)
        other.finish()
    p.finish()


def test_evicted_memory_above_a_cap_that_a_new_daemon_brings_is_kept(world, start):
    """An earlier daemon allowed it, and nobody can lose memory that he has."""
    daemon = start(CAPPED.replace("40MiB", "200MiB"))
    programs = [world.program("hold", "--bytes", "80MiB", stdin=subprocess.PIPE) for _ in range(2)]
    for p in programs:
        p.await_event("filled")
    programs[0].order("touch")  # so the other's memory is evicted
    daemon.send(signal.SIGTERM)
    daemon.wait()
    start(CAPPED)
    wait_for(lambda: len(world.clients()) == 2, GENEROUS_S, "both to be back", report=world.status_text)
    for p in reversed(programs):
        p.order("touch")
        p.order("verify")
    assert all(c["allocated"] >= 80 * MIB for c in world.clients().values()), world.status_text()
    for p in programs:
        p.finish()


def test_a_program_gets_no_more_while_its_daemon_is_dead(world, start):
    daemon = start(CAPPED)
    p = greedy(world, "--bytes", "100MiB")
    p.await_event("got")
    daemon.send(signal.SIGKILL)
    daemon.wait()
    no_more(world, p)
    p.finish()


def test_a_program_that_allocated_without_a_daemon_keeps_that_and_gets_no_more(world, start):
    """Nobody was there to hold it (docs/configuration.md)."""
    p = greedy(world, "--bytes", "60MiB")
    assert p.await_event("got")["bytes"] == 60 * MIB
    start(CAPPED)
    wait_for(lambda: p.pid in world.clients(), GENEROUS_S, "the program to register", report=world.status_text)
    other = greedy(world)
    assert other.await_event("got")["bytes"] == 0, "the class has used its cap"
    other.finish()
    p.finish()


def test_a_program_without_the_library_is_not_held_and_counts_as_foreign(world, start):
    start(CAPPED)
    beside = greedy(world, "--bytes", "4MiB")
    beside.await_event("got")
    p = greedy(world, "--bytes", "60MiB", LD_PRELOAD=None, shared=False)
    assert p.await_event("got")["bytes"] == 60 * MIB
    assert list(world.clients()) == [beside.pid]
    wait_for(lambda: world.status()["gpus"][0]["foreign"] >= 60 * MIB, GENEROUS_S, "the bytes to count", report=world.status_text)
    p.finish()
    beside.finish()


# ---- memory, by messages that no library sends ----


@pytest.fixture
def client(world):
    made = []

    def make(name):
        made.append(Client(world.dir, name, env=world.env))
        return made[-1]

    yield make
    for c in made:
        c.end()


@pytest.fixture
def attach(world):
    """Connects a client on the simulated card, so that NVML's figures count."""
    def attached(c, **fields):
        wait_for(lambda: world.status()["gpus"][0]["measured_s_ago"] is not None, GENEROUS_S, "NVML's figures")
        card = bytes.fromhex(world.status()["gpus"][0]["uuid"].removeprefix("GPU-").replace("-", ""))
        c.connect()
        c.hello()
        c.attach(total=128 * MIB, card=card, **fields)
        return c

    return attached


def leave(c, bye):
    """Ends the connection: the daemon does after BYE."""
    if bye:
        c.send("BYE")
        c.expect("closed")
    else:
        c.disconnect()


def test_a_new_connection_brings_no_second_cap(world, start, client, attach):
    start(CAPPED)
    c, other = client("again"), client("other")
    for n in range(5):
        attach(c)
        assert c.ask(36 * MIB) and not c.ask(44 * MIB)
        attach(other)
        assert other.ask(4 * MIB) and not other.ask(8 * MIB)
        leave(other, True)
        leave(c, n % 2)
        left = {other.process.pid, *([c.process.pid] if n % 2 else [])}
        wait_for(lambda: not left & set(world.clients()), GENEROUS_S, "the daemon to read BYE", report=world.status_text)


@pytest.mark.parametrize("claim", ({"allocated": 100 * MIB}, {"allocated": 100 * MIB, "backed": 100 * MIB}))
def test_a_claim_to_have_allocated_more_than_the_cap_is_not_believed(world, start, client, attach, claim):
    start(CAPPED)
    c = client("claims")
    for _ in range(3):
        attach(c, **claim)
        c.wants_run = True
        assert c.limit["commit"] <= CAP and c.limit["backed"] <= CAP, c.limit
        c.disconnect()


def test_unevictable_bytes_pass_no_cap(world, start, client, attach):
    start(CAPPED)
    c = attach(client("fixed"))
    c.send("REQUEST", 0, unevictable=30 * MIB)
    assert c.expect("LIMIT")["unevictable"] >= 30 * MIB
    assert not c.ask(20 * MIB)
    of = c.send("REQUEST", 0, unevictable=60 * MIB)
    assert c.expect("REFUSED")["of"] == of
    c.send("REQUEST", 0, commit=2**64 - 1, unevictable=2**64 - 1)
    assert c.expect("REFUSED", "closed")["type"] == "REFUSED"


def test_a_request_for_a_context_at_the_beginning_passes_no_cap(world, start, client, attach):
    start(CAPPED)
    c = client("fixed")
    assert attach(c, unevictable_requested=60 * MIB).limit["unevictable"] == 0
    assert c.expect("REFUSED")["code"] == 3


# ---- time ----


def union_s(intervals, begin, end):
    """Returns the seconds between begin and end that are in any of the intervals; all figures are ns."""
    busy, reached = 0, begin
    for a, b in sorted(intervals):
        a, b = max(a, reached), min(b, end)
        if b > a:
            busy, reached = busy + b - a, b
    return busy / 1e9


def share_of_kernels(programs, seconds):
    """Returns the part of so many seconds in which a kernel of any of them ran, by their own stamps. The
    simulated GPU's clock is the machine's."""
    begin = time.time_ns()
    time.sleep(seconds)
    end = time.time_ns()
    ran = [e["at"] for p in programs for e in p.events("ran")]
    return union_s(ran, begin, end) * 1e9 / (end - begin)


@pytest.mark.parametrize("how, copies", (("stays", 1), ("stays", 10 if LONG else 4), ("forks", 1), ("execs", 1), ("renames", 1)))
def test_a_maximum_holds_whatever_the_program_does(world, start, how, copies):
    start(SLOW)
    programs = [world.program("busy", "--how", how, "--until", world.path("end"), "--count", 20) for _ in range(copies)]
    for p in programs:
        p.await_event("ran")
    wait_for(lambda: any(c["held"] for c in world.clients().values()), GENEROUS_S, "the maximum", report=world.status_text)
    share = share_of_kernels(programs, SECONDS)
    assert 0.05 <= share <= MOST, (share, world.status_text())
    write(world.path("end"), "")
    for p in programs:
        p.ok()


def test_a_maximum_holds_for_programs_that_start_again_and_again(world, start):
    start(SLOW)
    end = world.path("end")
    busy = f"LD_PRELOAD={LIBRARY} {BUILD}/programs/busy --ms 5 --seconds 0.3"
    loop = world.start(["/bin/sh", "-c", f"while [ ! -e {end} ]; do {busy} & {busy}; wait; done"])
    loop.await_event("ran")
    wait_for(lambda: any(c["held"] for c in world.clients().values()), GENEROUS_S, "the maximum", report=world.status_text)
    share = share_of_kernels([loop], SECONDS)
    assert 0.05 <= share <= MOST, (share, world.status_text())
    write(end, "")
    loop.ok()


@pytest.mark.parametrize("bye", (True, False))
def test_a_new_connection_fills_no_bucket(world, start, client, attach, bye):
    start(SLOW)
    c, leases, since = client("again"), [], None

    def connect():
        attach(c)
        c.want_run()

    def run_until(ends):
        nonlocal since
        while not ends():
            had = c.lease
            c.obey(0.01)
            if c.lease and not had:
                since = time.time_ns()
            # It leaves when it is asked for its lease, and also on its own after half a second.
            if had and (not c.lease or time.time_ns() - since > 0.5e9):
                leases.append((since, time.time_ns()))
                leave(c, bye)
                connect()

    connect()
    run_until(lambda: len(leases) >= 3)
    begin = time.time_ns()
    run_until(lambda: time.time_ns() - begin > SECONDS * 1e9)
    share = union_s(leases, begin, time.time_ns()) / SECONDS
    assert share <= MOST, (share, leases)
