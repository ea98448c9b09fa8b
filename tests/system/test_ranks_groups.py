"""Sends and receives of a group progress beside each other between ranks that share a card (nccl_schedules.py)."""

import os
import sys

import pytest

from campaign import LONG
from world import BUILD, MIB, NO_PYTHON, PATIENCE

pytestmark = pytest.mark.skipif(NO_PYTHON is not None, reason=str(NO_PYTHON))

LIBRARIES = ":".join(os.path.join(BUILD, name) for name in ("libsublet-ranks.so", "libsublet.so"))
PROGRAM = os.path.join(os.path.dirname(__file__), "nccl_schedules.py")


def make_card(make_world, memory="256MiB", **settings):
    """The rings of a rank have at most 1/64 of the card."""
    w = make_world(memory=memory, **settings)
    w.context = MIB
    w.start_daemon(config={"unevictable_share": "40%"})
    return w


def schedules(world, ranks, *args, **env):
    return world.start([sys.executable, PROGRAM, "--ranks", str(ranks), "--seconds", str(20 * PATIENCE), *map(str, args)],
                       LD_PRELOAD=LIBRARIES, SUBLET_RANKS=str(ranks), **env)


@pytest.mark.parametrize("connections", ["1", "8"])
@pytest.mark.parametrize("graph", [[], ["--graph"]], ids=["calls", "graph"])
@pytest.mark.parametrize("name, ranks, sizes", [
    ("request_and_reply", 2, (4, 5 * MIB)), ("two_requests_and_one_reply", 2, (400, 5 * MIB)),
    ("shift_with_one_group", 3, (40, 3 * MIB)), ("messages_for_a_later_group", 6, (100, 300000)), ("all_to_all", 5, (999, MIB))])
def test_calls_of_a_group_progress_beside_each_other(make_world, name, ranks, sizes, graph, connections):
    w = make_card(make_world)
    for size, count in zip(sizes, (10, 1)):  # some faults show only in one order of the ranks
        schedules(w, ranks, "--name", name, "--bytes", size, "--count", count, *graph, CUDA_DEVICE_MAX_CONNECTIONS=connections).ok()


def test_a_group_may_have_more_messages_than_the_table_of_a_ring(make_world):
    schedules(make_card(make_world), 2, "--name", "many_messages", "--bytes", 40, "--count", 1).ok()


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 11])
def test_random_schedules_that_nccl_completes_end_with_all_bytes(make_world, ranks):
    """More than nine ranks share bells."""
    count = 400 if LONG else {2: 25, 3: 20, 5: 10, 8: 5, 11: 3}[ranks]
    for graph in ([], ["--graph"]):
        schedules(make_card(make_world), ranks, "--seed", 1000 * ranks, "--count", count, *graph).ok(60 + 10 * count)


@pytest.mark.freeze("move")
@pytest.mark.parametrize("name, ranks, fill", [("request_and_reply", 2, 70 * MIB), ("shift_with_one_group", 3, 45 * MIB)])
def test_a_rank_that_waits_for_any_peer_gives_way(world, name, ranks, fill):
    """The ranks do not fit the card together, and no turn ends in the time of a test."""
    world.start_daemon(config={"quantum": "1h", "unevictable_share": "25%"})
    schedules(world, ranks, "--name", name, "--bytes", 2 * MIB, "--count", 3, "--fill", fill).ok()
    assert world.handoffs() >= 3, world.status_text()


def test_random_schedules_end_on_two_cards(make_world):
    """The rings are in host memory."""
    w = make_card(make_world, gpus=2)
    schedules(w, 4, "--seed", 77, "--count", 200 if LONG else 8).ok(2000 if LONG else 120)
