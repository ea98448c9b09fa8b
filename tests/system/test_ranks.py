"""Ranks of one job that share cards (libsublet-ranks.so): NCCL's functions give right results, also when the ranks exceed
the card, when some of them stop or end, and when the daemon ends. tests/programs/nccl judges the results."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from campaign import LONG
from world import BUILD, GENEROUS_S, LIBRARY, MIB, NO_PYTHON, PATIENCE, wait_for

FRONT = os.path.join(BUILD, "libsublet-ranks.so")
# Another library takes the place of the machine's NCCL, if it has one.
STUB = os.path.join(BUILD, "tests", "nccl")
SMALL = ["--counts", "0,1,37,1000"]
# These checks each need new processes.
FAILURES = ["absent-at-init", "absent", "abort-idle", "abort-often", "killed", "killed-amid", "left", "shrink-absent",
            "shrink-killed"]
# These cannot be done by the stub, whose calls wait until they are done.
ONLY_ASYNCHRONOUS = ["graph", "graph-mixed", "wait-is-idle", *FAILURES]


def checks(world, ranks, *args, shared=True, front=True, **env):
    """Starts the checks. front: with the library that lets ranks share cards."""
    if front:
        env.update(LD_PRELOAD=f"{FRONT} {LIBRARY}", SUBLET_RANKS=str(ranks))
    os.makedirs(world.path("nccl"), exist_ok=True)
    return world.program("nccl_checks", "--ranks", ranks, "--patience", PATIENCE, *args, shared=shared, door="dlsym",
                         LD_LIBRARY_PATH=f"{STUB}:{world.env['LD_LIBRARY_PATH']}",
                         NCCL_STUB_DIR=world.path("nccl"), NCCL_STUB_LOG=world.path("nccl.log"), **env)


def calls_of_the_real_nccl(world):
    """Returns the functions that the stub's log names, with the communicator's number of ranks."""
    try:
        with open(world.path("nccl.log"), encoding="ascii") as f:
            return [(line.split()[1], int(line.split()[2])) for line in f]
    except FileNotFoundError:
        return []


def wrong(p):
    p.wait()
    return {e["name"]: e["text"] for e in p.events("check") if e["result"] == "wrong"}


def right(p, *names):
    """Checks that the program found nothing wrong, and did not skip the checks of these names."""
    assert not wrong(p), p.report()
    p.ok(600)  # each collective of ranks in turns takes a hand-off of each, which waits for busy processors
    done = {e["name"] for e in p.events("check") if e["result"] == "right"}
    assert done and done.issuperset(names), p.report()
    return done


def pids(p):
    return p.await_event("ranks")["pids"]


# ---- the checks themselves ----


@pytest.mark.parametrize("fault, seen", [("element", {"all-reduce", "reduce-scatter"}), ("beyond", {"all-reduce"}),
                                         ("input", {"all-reduce"}), ("order", {"all-gather"}), ("code", {"arguments"})])
def test_the_checks_find_each_fault(world, fault, seen):
    p = checks(world, 2, "--only", "all-reduce,reduce-scatter,all-gather,ring,arguments", "--counts", "0,5",
               "--types", "int8,float32", front=False, shared=False, NCCL_STUB_FAULT=fault)
    assert seen <= wrong(p).keys() <= seen | {"arguments"}, p.report()
    assert p.process.returncode == 1


def test_the_checks_find_nothing_wrong_with_a_right_nccl(world):
    p = checks(world, 3, "--without", ",".join(ONLY_ASYNCHRONOUS), "--counts", "0,37", front=False, shared=False)
    right(p, "all-reduce", "mixture", "split", "shrink", "special-numbers", "arguments")


# ---- results ----


def make_cards(make_world, gpus=1, **config):
    w = make_world(memory="1GiB", gpus=gpus)
    w.context = 4 * MIB  # on cards of 1 GiB
    w.start_daemon(config={"unevictable_share": "40%", **config})
    return w


@pytest.fixture
def roomy(make_world):
    """A card with room for all ranks."""
    return make_cards(make_world)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_results_are_right(roomy, ranks):
    """Outside of a campaign, one rank and three ranks make all checks, the others those that depend most on the ranks."""
    names = ["all-reduce", "all-gather", "graph", "mixture", "split", "wait-is-idle"]
    which = ["--without", ",".join(["arguments", *FAILURES])] if LONG or ranks in (1, 3) else ["--only", ",".join(names)]
    p = checks(roomy, ranks, *which, *(["--counts", "0,3,1000"] if ranks > 4 else SMALL))
    right(p, *names)
    assert not [call for call, n in calls_of_the_real_nccl(roomy) if n > 1], "the real NCCL would have refused"
    wait_for(lambda: roomy.card()["used"] == 0, 20, "the card to be empty")


def test_each_function_of_nccl_is_exported_under_both_names():
    """A program that is linked with NCCL must not call the real library with a communicator of sublet's."""
    listed = subprocess.run(["nm", "-D", "--defined-only", FRONT], stdout=subprocess.PIPE, text=True, timeout=GENEROUS_S, check=True)
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    public = {name for name in exported if name.startswith("nccl")}
    assert len(public) >= 50 and {name for name in exported if name.startswith("pnccl")} == {"p" + name for name in public}


def test_a_long_mixture_of_operations_ends(roomy):
    """Two communicators in three streams, with and without groups, in the same order on all ranks."""
    p = checks(roomy, 3, "--only", "mixture", "--counts", "0,1,7,1000,9000", "--rounds", 8, "--seconds", 15 * PATIENCE)
    right(p, "mixture")


def test_results_are_right_with_sublet_run(roomy):
    program = os.path.join(BUILD, "programs", "dl", "nccl_checks")
    right(roomy.start([os.path.join(BUILD, "sublet"), "run", "--ranks", "3", "--", program, "--ranks", "3", "--only",
                       "properties,all-reduce", "--counts", "0,37", "--types", "int32,float16"]), "properties", "all-reduce")


def test_kernels_are_loaded_before_ranks_of_a_process_wait_for_each_other(roomy):
    names = ["devices", "devices-and-processes"]
    right(checks(roomy, 3, "--only", ",".join(names), "--seconds", 30 * PATIENCE, SIMCUDA_LOAD_WAITS="1"), *names)


def test_wrong_arguments_have_nccls_answers(roomy):
    right(checks(roomy, 2, "--only", "arguments"), "arguments")


def test_results_are_right_when_data_exceed_the_rings(roomy):
    """On this card the rings of a process have at most 16 MiB."""
    p = checks(roomy, 2, "--only", "big", "--big", 17 * MIB // 4)
    right(p, "big")


@pytest.mark.parametrize("check", FAILURES)
def test_ranks_go_on_when_another_one_ends_or_stays_away(roomy, check):
    right(checks(roomy, 3, "--only", check), check)


def test_an_error_says_which_rank_has_ended(roomy):
    p = checks(roomy, 3, "--only", "killed")
    right(p, "killed")
    assert re.search(r"error 6 after \d+ ms: rank [01] of 3: the process of rank 2 has ended", p.out()), p.report()


@pytest.mark.parametrize("refusals, last", [("1-1", "trying 2 MiB of it"), ("1-1000", "trying 6 MiB of host memory")])
def test_rings_for_which_the_card_has_no_room_are_smaller_or_in_host_memory(roomy, refusals, last):
    p = checks(roomy, 3, "--only", "all-reduce,ring", *SMALL, SIMCUDA_FAIL=f"cuMemExportToShareableHandle:{refusals}:2",
               SUBLET_LOG="info")
    right(p, "all-reduce", "ring")
    tries = re.findall(r"rank 0 of 3: the card has no room for its ring; (.*)", p.err())
    assert tries and tries[-1] == last, tries


@pytest.mark.parametrize("ranks", [4])
def test_results_are_right_on_two_cards(make_world, ranks):
    """Two ranks on each card. The real NCCL could not serve a communicator of all four."""
    w = make_cards(make_world, gpus=2)
    names = ["all-reduce", "all-gather", "reduce-scatter", "ring", "graph", "mixture", "split"]
    which = ["--without", ",".join(["arguments", *FAILURES])] if LONG else ["--only", ",".join(names)]
    p = checks(w, ranks, *which, *SMALL)
    right(p, *names)
    assert not [call for call, n in calls_of_the_real_nccl(w) if n == ranks]


def test_a_communicator_on_different_cards_is_the_real_nccls(make_world):
    w = make_cards(make_world, gpus=2)
    right(checks(w, 2, "--only", "all-reduce,properties,ring,config,finalize,split,shrink,devices,devices-and-processes", "--counts", "0,37"),
          "all-reduce", "ring", "shrink", "devices", "devices-and-processes")
    called = {call for call, n in calls_of_the_real_nccl(w) if n == 2}
    assert {"ncclCommInitRank", "ncclAllReduce", "ncclSend", "ncclRecv", "ncclCommSplit", "ncclCommShrink", "ncclCommFinalize",
            "ncclCommDestroy"} <= called


# ---- turns ----


@pytest.mark.freeze("move")
@pytest.mark.parametrize("ranks, fill, names", [(2, "70MiB", ["all-reduce", "ring", "killed"]),
                                                (3, "45MiB", [*(["all-reduce", "ring"] if LONG else []), "mixture", "graph", "killed"])])
def test_ranks_that_do_not_fit_together_take_turns(world, ranks, fill, names):
    world.start_daemon(config={"quantum": "200ms", "unevictable_share": "25%"})
    p = checks(world, ranks, "--only", ",".join(names), "--counts", "1000", "--types", "float32", "--fill", fill)
    right(p, *names)
    assert world.handoffs() >= 2, world.status_text()


@pytest.mark.freeze("move")
@pytest.mark.parametrize("ranks, ratio", [(8, 1.1), *([(4, 1.1), (2, 1.1), (8, 1.5), (4, 1.5), (2, 1.5)] if LONG else [])])
def test_ranks_of_a_card_of_ours_in_small_take_turns(make_world, ranks, ratio):
    """An H200 by 256, with the settings of `./dev gpu --only onecard-big`. Contexts and rings are larger than on it."""
    w = make_world(memory="560MiB")
    w.context = 4 * MIB
    w.start_daemon(config={"quantum": "200ms", "unevictable_share": "20%"})
    p = checks(w, ranks, "--only", "all-reduce", "--counts", "1000", "--types", "float32", "--fill", f"{int(560 * ratio / ranks)}MiB")
    right(p, "all-reduce")
    assert w.handoffs() >= ranks, w.status_text()


# ---- ranks and the daemon while collectives go on ----


def endless(world, ranks, **env):
    p = checks(world, ranks, "--only", "endless", "--until", world.path("end"), "--counts", "1000", **env)
    wait_for(lambda: rounds(p) >= 2, GENEROUS_S, "two rounds", report=p.report)
    return p


def rounds(p):
    assert p.running(), p.report()
    return len(p.events("round"))


def goes_on(p):
    before = rounds(p)
    wait_for(lambda: rounds(p) >= before + 3, GENEROUS_S, "three more rounds", report=p.report)


def finish(world, p):
    goes_on(p)
    with open(world.path("end"), "w", encoding="ascii"):
        pass
    right(p, "endless")


def test_ranks_wait_for_a_rank_that_is_stopped(roomy):
    p = endless(roomy, 3)
    stopped = pids(p)[1]
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(0.5)  # a round that is nearly over may end
    before = rounds(p)
    time.sleep(1.5)
    assert rounds(p) <= before + 1
    os.kill(stopped, signal.SIGCONT)
    finish(roomy, p)


def test_collectives_go_on_without_and_with_a_new_daemon(roomy):
    p = endless(roomy, 3)
    roomy.daemon.send(signal.SIGKILL)
    roomy.daemon.wait()
    goes_on(p)
    roomy.start_daemon()
    wait_for(lambda: set(pids(p)) <= roomy.clients().keys(), GENEROUS_S, "the ranks to find the new daemon",
             report=roomy.status_text)
    finish(roomy, p)


def test_status_shows_what_ranks_export(roomy):
    """What is exported cannot be evicted. It is bounded, however many communicators a process has (here two)."""
    p = endless(roomy, 4)
    clients = roomy.clients()
    ranks = [clients[pid] for pid in pids(p)]
    for c in ranks:
        # On this card at most 16 MiB of rings, at least 2 MiB for each of two communicators; and the context.
        assert 8 * MIB <= c["unevictable"] <= 26 * MIB, c
    finish(roomy, p)


def test_a_rank_that_is_killed_leaves_nothing_on_the_card(roomy):
    p = endless(roomy, 3)
    os.kill(pids(p)[2], signal.SIGKILL)
    assert "endless" in wrong(p)  # its parent notices, and ends the others
    wait_for(lambda: not roomy.clients(), 20, "the ledger to be empty")
    wait_for(lambda: roomy.card()["used"] == 0, 20, "the card to be empty")


@pytest.mark.skipif(NO_PYTHON is not None, reason=str(NO_PYTHON))
def test_a_program_may_begin_with_communicators_of_all_its_devices(roomy):
    start = """if True:
        import ctypes, sys
        comms, device = (ctypes.c_void_p * 2)(), ctypes.c_int()
        nccl = ctypes.CDLL(None)
        if nccl.ncclCommInitAll(comms, 2, None):
            sys.exit(1)
        for i, comm in enumerate(comms):
            if nccl.ncclCommCuDevice(ctypes.c_void_p(comm), ctypes.byref(device)) or device.value != i:
                sys.exit(2)
        """
    roomy.start([sys.executable, "-c", start], LD_PRELOAD=f"{FRONT} {LIBRARY}", SUBLET_RANKS="2").ok()


def test_nvshmem_is_refused_with_a_sentence():
    start = "import ctypes, sys; sys.exit(ctypes.CDLL(None).nvshmemx_hostlib_init_attr(0, None))"
    p = subprocess.run([sys.executable, "-c", start], env={**os.environ, "LD_PRELOAD": FRONT, "SUBLET_RANKS": "2"},
                       stderr=subprocess.PIPE, text=True, check=False)
    assert p.returncode == 1
    assert "NVSHMEM does not work between ranks that share a card" in p.stderr
