"""Managed memory in the simulator, compared with a study of Unified Memory on a P100 of 16 GiB: "Our study of Unified
Memory in multi-process scenarios", sections 10.3 to 10.8, of the work that sublet descends from. The tests repeat its
programs with 1/128 of its sizes: 8 MiB for each of its GiB. Bytes and counts must agree, times need not.

The study's card had a little less than 16 GiB for programs: 15.6 with one process, 15.4 with two. The card here has the
same. A figure that depends on this is derived from the card here, and compared with the study's to a fifth of a GiB."""

import random
import signal
import subprocess
import time

import pytest

from campaign import LONG
from test_oversubscription import run_until_handoffs
from world import MIB, wait_for

GIB = 8 * MIB  # stands for a GiB of the study
BLOCK = 2 * MIB
FAULTS = 6  # groups of faults for each block: 30,720 for the study's 10 GiB, which are 5,120 blocks
CLOSE = GIB // 5


@pytest.fixture
def card(make_world):
    """A card with contexts of 3 MiB: it leaves 125 MiB for one process and 122 MiB for two, that is, 62 and 61
    blocks."""
    w = make_world(memory="128MiB")
    w.env["SIMCUDA_CONTEXT"] = "3MiB"
    return w


def start(card, gib, until=None):
    p = card.program("managed", "--bytes", gib * GIB, "--block", 2 * GIB, "--seed", len(card.programs) + 1,
                     *(["--until", until] if until else []), shared=False, stdin=subprocess.PIPE)
    p.await_event("ready")
    p.order("init")
    return p


def moved(card, p):
    """Returns the card's counters for one process."""
    return next(q for q in card.card()["processes"] if q["pid"] == p.pid)


def room(processes):
    return (128 - 3 * processes) * MIB // BLOCK * BLOCK


def finish(*programs):
    """Ends the programs. At the end the processor compares every word, so all memory moves back to the host."""
    for p in programs:
        p.order("check")
        p.finish()


# ---- the study's 10.3, 10.4: one process ----

def test_one_process_that_fits_moves_everything_once(card):
    p = start(card, 10)
    n = moved(card, p)
    assert n["cpu_faults"] == 10 * GIB // BLOCK * FAULTS == 40 * FAULTS
    assert n["managed_h2d_bytes"] == 0
    p.order("run")
    first = moved(card, p)
    p.order("run")
    second = moved(card, p)
    assert first["managed_h2d_bytes"] == 10 * GIB
    assert first["gpu_faults"] == 10 * GIB // BLOCK * FAULTS
    assert first["managed_d2h_bytes"] == 0 and first["evictions"] == 0
    assert {k: second[k] for k in second if k != "launches"} == {k: first[k] for k in first if k != "launches"}
    finish(p)


@pytest.mark.parametrize("second, into, out", [("run", 36, 20.365), ("reverse", 22, 6.365)])
def test_one_process_of_18_of_16_gib_evicts_its_least_recently_used_chunks(card, second, into, out):
    """The second round uses the chunks in the same order or in reverse order. In the same order, each chunk has just
    been evicted when it is used. In reverse order only the two chunks used last have been evicted."""
    p = start(card, 18)
    p.order("run")
    first = moved(card, p)
    assert first["managed_h2d_bytes"] == 18 * GIB
    assert first["managed_d2h_bytes"] == 18 * GIB - room(1)
    p.order(second)
    n = moved(card, p)
    assert n["managed_h2d_bytes"] == into * GIB
    assert n["managed_d2h_bytes"] == into * GIB - room(1)
    assert abs(n["managed_d2h_bytes"] - out * GIB) < CLOSE
    # Evictions move whole blocks: "Avg Size 2.0000MB, Min 2.0000MB, Max 2.0000MB".
    assert n["managed_d2h_bytes"] == n["evictions"] * BLOCK == n["managed_d2h_moves"] * BLOCK
    assert n["gpu_faults"] == into * GIB // BLOCK * FAULTS
    assert n["cpu_faults"] == 18 * GIB // BLOCK * FAULTS  # the study's 55,296
    finish(p)


# ---- the study's 10.5, 10.6: two processes ----

def test_two_processes_that_fit_do_not_disturb_each_other(card):
    a, b = start(card, 6), start(card, 6)
    for order in ("run", "run"):
        for p in (a, b):
            p.order(order)
            n = moved(card, p)
            assert n["managed_h2d_bytes"] == 6 * GIB
            assert n["gpu_faults"] == 6 * GIB // BLOCK * FAULTS
            assert n["managed_d2h_bytes"] == 0
    finish(a, b)


def test_faults_of_one_process_evict_the_other(card):
    a, b = start(card, 10), start(card, 10)
    a.order("run")
    b.order("run")
    lost = 20 * GIB - room(2)
    n = moved(card, a)
    assert n["managed_h2d_bytes"] == 10 * GIB and n["managed_d2h_bytes"] == n["evictions"] * BLOCK == lost
    assert moved(card, b)["managed_d2h_bytes"] == 0
    finish(b)  # its memory has left the card
    a.order("run")
    n = moved(card, a)
    assert n["managed_h2d_bytes"] == 10 * GIB + lost and n["managed_d2h_bytes"] == lost
    assert abs(n["managed_h2d_bytes"] - 14.623 * GIB) < CLOSE
    assert abs(n["managed_d2h_bytes"] - 4.623 * GIB) < CLOSE
    finish(a)


# ---- the study's 10.7: thrashing ----

def test_two_processes_at_once_thrash(card):
    """The study stopped A after 6 rounds: A had moved 68.5 GiB in and 60.9 out, against 10 and 0 alone. Here both run
    until each has moved a quarter of that, which neither would do alone."""
    a, b = (start(card, 10, until=card.path("enough")) for _ in range(2))
    for p in (a, b):
        p.process.stdin.write(b"run 100000\n")
        p.process.stdin.flush()

    def enough(p):
        n = moved(card, p)
        return n["managed_h2d_bytes"] > 68.5 / 4 * GIB and n["managed_d2h_bytes"] > 60.9 / 4 * GIB

    wait_for(lambda: enough(a) and enough(b), 150, "both to move their memory in and out")
    with open(card.path("enough"), "w", encoding="ascii"):
        pass
    for p in (a, b):
        wait_for(lambda p=p: len(p.events("done")) == 2, 30, "the end of the rounds")
    finish(a, b)


# ---- the study's 10.8: prefetching ----

def test_prefetched_memory_causes_no_faults(card):
    p = start(card, 10)
    p.order("prefetch")
    n = moved(card, p)
    assert n["managed_h2d_bytes"] == 10 * GIB
    assert n["managed_h2d_moves"] == 10 * GIB // BLOCK  # the study's 5,120 of 2 MiB each
    p.order("run")
    assert moved(card, p)["gpu_faults"] == 0
    assert moved(card, p)["managed_h2d_bytes"] == 10 * GIB
    finish(p)


def test_a_prefetch_evicts_like_a_fault(card):
    a, b = start(card, 10), start(card, 10)
    a.order("run")
    b.order("prefetch")
    b.order("run")
    assert moved(card, b)["gpu_faults"] == 0
    a.order("run")
    n = moved(card, a)
    assert n["managed_h2d_bytes"] == 20 * GIB
    assert n["managed_d2h_bytes"] == 10 * GIB
    assert n["evictions"] == 10 * GIB // BLOCK  # the study's 5,120
    finish(a, b)


# ---- beyond the study ----

def test_memory_returns_to_the_host_by_prefetch_and_by_touch(card):
    p = start(card, 6)
    p.order("run")
    p.order("home")
    n = moved(card, p)
    faults = n["cpu_faults"]
    assert n["managed_d2h_bytes"] == 6 * GIB
    assert card.card()["used"] == 3 * MIB
    p.order("touch")
    assert moved(card, p)["cpu_faults"] == faults
    p.order("run")
    p.order("touch")
    n = moved(card, p)
    assert n["managed_d2h_bytes"] == 6 * GIB + 2 * GIB
    assert n["cpu_faults"] == faults + 2 * GIB // BLOCK * FAULTS
    finish(p)


def test_the_copy_engine_uses_managed_memory_in_place(card):
    p = start(card, 18)
    p.order("run")
    p.order("copies")
    finish(p)


def test_ordinary_memory_evicts_managed_memory(card):
    p = start(card, 14)
    p.order("run")
    assert moved(card, p)["evictions"] == 0
    p.order("alloc 60MiB")
    n = moved(card, p)
    assert n["evictions"] * BLOCK == 14 * GIB + 60 * MIB - room(1)
    p.order("run")
    finish(p)


def test_a_killed_process_leaves_its_room_to_other_processes(card):
    a, b = start(card, 10), start(card, 10)
    a.process.stdin.write(b"run 1000\n")
    a.process.stdin.flush()
    b.order("run 2")
    a.process.kill()
    a.process.wait()
    b.order("run 2")
    assert card.card()["used"] == 10 * GIB + 3 * MIB
    before = moved(card, b)["managed_h2d_bytes"]
    b.order("run 2")
    assert moved(card, b)["managed_h2d_bytes"] == before
    finish(b)


def test_processes_killed_while_they_evict_cost_other_processes_no_byte(card):
    """Processes that are killed at any point of their work evict B's blocks."""
    b = start(card, 12)
    for n in range(5 if LONG else 3):
        a = start(card, 10)
        a.process.stdin.write(b"run 1000\n")
        a.process.stdin.flush()
        b.order("run 1")
        wait_for(lambda: moved(card, b)["evictions"] > 0, 30, "an eviction")
        time.sleep(random.Random(n).random() * 0.05)  # varies the point of the kill
        a.process.kill()
        a.process.wait()
        b.order("run 1")
    finish(b)
    assert card.card()["used"] == 0


def test_the_memory_of_a_stopped_process_makes_way(card):
    a, b = start(card, 10), start(card, 10)
    a.order("run")
    a.send(signal.SIGSTOP)
    b.order("run 2")
    assert moved(card, b)["managed_h2d_bytes"] == 10 * GIB
    assert moved(card, a)["evictions"] * BLOCK == 20 * GIB - room(2)
    a.send(signal.SIGCONT)
    a.order("run")
    finish(a, b)


# ---- under sublet: programs that use managed memory themselves ----

def test_a_programs_own_managed_memory_gives_way_like_any_other(shared):
    """The memory is promised, counted, and moved to the host in bulk when a turn ends; no fault evicts other memory."""
    others = [shared.program("fill", "--bytes", "70MiB", "--block", "4MiB", "--seed", n, "--ms", "200", "--until",
                             shared.path("end")) for n in ("1", "2")]
    for p in others:
        p.await_event("round")
    p = shared.program("managed", "--bytes", 12 * GIB, "--block", 2 * GIB, stdin=subprocess.PIPE)
    p.await_event("ready")
    p.order("init")
    for _ in range(2):
        p.order("run")
        assert shared.clients()[p.pid]["allocated"] >= 12 * GIB
        p.order("copies")
    wait_for(lambda: shared.clients()[p.pid]["evicted"] > 0, 60, "it to have given way")
    with open(shared.path("end"), "w", encoding="ascii"):
        pass
    for q in others:
        q.ok()
        shared.check_sums(q)
    n = moved(shared, p)
    # On a busy machine a program may make its second context beside a full card, which takes the place of some blocks.
    assert n["evictions"] <= 12 * GIB // BLOCK // 8 and n["managed_d2h_bytes"] > 0
    p.order("prefetch")
    wait_for(lambda: shared.status()["gpus"][0]["foreign"] == 0, 30, "its memory not to count as foreign")
    finish(p)
    assert shared.card()["peak"] <= 128 * MIB


def test_managed_memory_that_cannot_be_promised_is_left_to_the_driver(shared):
    """A program with the card to itself may use more managed memory than the card has. That memory also makes room
    for ordinary memory, and is not taken for foreign memory."""
    p = shared.program("managed", "--bytes", 18 * GIB, "--block", 2 * GIB, stdin=subprocess.PIPE)
    p.await_event("ready")
    p.order("init")
    p.order("run")
    p.order("reverse")
    time.sleep(4)  # the daemon looks three times at the card, and believes what it saw each time
    p.order("alloc 60MiB")
    p.order("run")
    assert shared.clients()[p.pid]["allocated"] < 128 * MIB
    assert shared.status()["gpus"][0]["foreign"] < GIB
    finish(p)


def test_managed_memory_is_not_given_up_for_an_impossible_request(shared):
    p = shared.program("managed", "--bytes", 12 * GIB, "--block", 2 * GIB, stdin=subprocess.PIPE)
    p.await_event("ready")
    p.order("init")
    p.order("run")
    p.order("refuse 1024TiB")
    p.order("run")
    assert shared.clients()[p.pid]["allocated"] >= 12 * GIB
    finish(p)


def test_read_mostly_managed_memory_is_left_to_the_driver(shared):
    """A prefetch to the host would leave the card's copy where it is. So memory with that advice is not counted; all
    other managed memory gives way as before."""
    p = shared.program("managed", "--bytes", 10 * GIB, "--block", 2 * GIB, stdin=subprocess.PIPE)
    p.await_event("ready")
    p.order("init")
    p.order("run")
    wait_for(lambda: shared.clients()[p.pid]["allocated"] == 10 * GIB, 20, "all of it to be in the ledger")
    p.order("mostly")
    wait_for(lambda: shared.clients()[p.pid]["allocated"] == 6 * GIB, 20, "two chunks of five to be out of the ledger")
    wait_for(lambda: shared.status()["gpus"][0]["foreign"] == 4 * GIB, 20, "these chunks to count as foreign")
    q = shared.program("fill", "--bytes", "70MiB", "--block", "4MiB", "--rounds", "4").ok()
    shared.check_sums(q)
    n = moved(shared, p)
    assert n["evictions"] == 0 and 0 < n["managed_d2h_bytes"] <= 6 * GIB
    p.order("run")
    finish(p)


# ---- under sublet: the mode that makes all memory managed ----

@pytest.fixture
def small(make_world):
    w = make_world(memory="64MiB")
    w.start_daemon(config={"quantum": "200ms"})
    return w


def hold(world, seed, mode, **env):
    return world.program("hold", "--bytes", "40MiB", "--block", "4MiB", "--seed", seed, stdin=subprocess.PIPE,
                         SUBLET_MEMORY=mode, **env)


@pytest.mark.freeze("park")  # without a second context the accounts equal the card's figures
def test_mode_managed_keeps_every_byte_within_the_granted_room(small):
    """Two programs of 40 MiB on a card of 64: the bytes are right, no handle is made, and no more is on the card than
    granted."""
    pair = [small.program("fill", "--bytes", "40MiB", "--block", "4MiB", "--seed", n, "--until", small.path("end"),
                          SUBLET_MEMORY="managed") for n in (1, 2)]
    run_until_handoffs(small, pair, 4, small.path("end"))
    for p in pair:
        small.check_sums(p)
    card = small.card()
    assert card["creates"] == 0 and card["evictions"] == 0
    assert card["managed_d2h_bytes"] > 0


@pytest.mark.parametrize("mode", ["exclusive", "auto"])
def test_mode_managed_moves_only_touched_memory(small, mode):
    """Each program uses a fifth of its memory in turn. If sublet moves the programs, at least 17 MiB move each way at
    every turn; the driver moves only memory that was used and had to leave."""
    assert small.sublet("set", "mode", mode).returncode == 0
    figures = {}
    for memory in ("swap", "managed"):
        pair = [hold(small, n, memory) for n in (1, 2)]
        for p in pair:
            p.await_event("filled")
            c = wait_for(lambda p=p: (c := small.clients()[p.pid])["allocated"] >= 40 * MIB and c, 20, "its figures")
            assert c["memory"] == memory and (c["managed"] >= 40 * MIB) == (memory == "managed")
        pair[0].order("verify")  # from now on no program has memory that was never on the card
        pair[1].order("look 2")
        before = small.card()
        for _ in range(3):
            for p in pair:
                p.order("look 2")
        after = small.card()
        figures[memory] = (after["h2d_bytes"] - before["h2d_bytes"], after["d2h_bytes"] - before["d2h_bytes"])
        for p in pair:
            p.finish()
    assert figures["swap"][0] >= 6 * 15 * MIB
    assert figures["managed"][0] < figures["swap"][0] / 2
    assert figures["managed"][1] < figures["swap"][1] / 2


@pytest.mark.parametrize("own", [True, False])
def test_a_failed_try_to_free_the_card_is_repeated_when_room_is_needed(small, own):
    """The library tries at an allocation whether a prefetch to the host frees the card. Here the try fails for want of
    room: the answer is still unknown, so the library tries again later."""
    if own:
        first = small.program("managed", "--bytes", "40MiB", "--block", "40MiB", stdin=subprocess.PIPE,
                              SIMCUDA_FAIL="cuMemAllocManaged:2:2")
        first.await_event("ready")
        first.order("init")
        first.order("run")
    else:
        first = hold(small, 1, "managed", SIMCUDA_FAIL=",".join(f"cuMemPrefetchAsync:{n}:2" for n in range(1, 13)))
        first.await_event("filled")
    second = hold(small, 2, "swap")
    second.await_event("filled")
    assert small.card()["managed_d2h_bytes"] >= 15 * MIB
    first.order("run" if own else "touch")
    for p in (first, second):
        p.finish()
    assert small.card()["evictions"] == 0


@pytest.mark.parametrize("own", [True, False])
def test_managed_memory_that_may_keep_its_pages_stays_counted(small, own):
    """Memory stays counted if a prefetch to the host does not visibly free the card (an H200's driver keeps the pages).
    Programs that need its room wait until it is freed; the driver never has to take pages back itself."""
    fails = {"SIMCUDA_FAIL": "cuMemPrefetchAsync:1+:801"}
    if own:
        first = small.program("managed", "--bytes", "40MiB", "--block", "8MiB", stdin=subprocess.PIPE, **fails)
        first.await_event("ready")
        first.order("init")
        work = "run"
    else:
        first = small.program("hold", "--bytes", "40MiB", "--block", "4MiB", stdin=subprocess.PIPE,
                              SUBLET_MEMORY="managed", **fails)
        first.await_event("filled")
        work = "touch"
    first.order(work)
    second = small.program("hold", "--bytes", "40MiB", "--block", "4MiB", "--seed", "2", stdin=subprocess.PIPE)
    wait_for(lambda: small.clients().get(second.pid, {}).get("state") in ("waiting", "restoring"), 30,
             "the second to wait")
    first.order(work)  # the first goes on with its memory
    assert not second.events("filled")
    first.finish()
    second.await_event("filled", timeout=60)
    second.finish()
    card = small.card()
    assert card["evictions"] == 0 and card["managed_d2h_bytes"] <= 40 * MIB  # moved by the processor's check


def test_a_bad_mode_is_named_and_the_default_holds(small):
    p = small.program("fill", "--bytes", "8MiB", "--block", "4MiB", "--rounds", "1", SUBLET_MEMORY="lots")
    p.ok()
    assert "SUBLET_MEMORY is swap, overflow or managed, not 'lots'" in p.err()
    assert small.card()["creates"] > 0
    done = small.sublet("run", "--memory", "lots", "--", "true")
    assert done.returncode == 2 and "--memory is swap, overflow or managed, not 'lots'" in done.stderr
    done = small.sublet("run", "--memory", "managed", "--", "sh", "-c", "echo $SUBLET_MEMORY")
    assert done.stdout == "managed\n"
