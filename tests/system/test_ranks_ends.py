"""Communicators of ranks that share cards, when they are made, end and fail in ways that nccl_checks does not try."""

import collections
import os
import re
import sys

import pytest

from test_group import rank_of
from world import BUILD, MIB, NO_PYTHON

pytestmark = pytest.mark.skipif(NO_PYTHON is not None, reason=str(NO_PYTHON))

LIBRARIES = ":".join(os.path.join(BUILD, name) for name in ("libsublet-ranks.so", "libsublet.so"))
PROGRAM = os.path.join(os.path.dirname(__file__), "nccl_ranks.py")


@pytest.fixture
def card(make_world):
    w = make_world(memory="1GiB")
    w.context = 4 * MIB
    w.start_daemon(config={"unevictable_share": "40%"})
    return w


def ranks(world, scenario, n, **env):
    return world.start([sys.executable, PROGRAM, scenario, str(n)], LD_PRELOAD=LIBRARIES, SUBLET_RANKS=str(n), **env)


@pytest.mark.parametrize("scenario, n", [
    ("nothing", 2), ("a_communicator_in_progress_is_no_communicator", 2), ("a_thread_is_not_taken_for_another_one", 3),
    ("a_configuration_may_end_before_its_group", 2), ("a_root_is_one_of_the_ranks", 2),
    ("a_rank_that_exits_is_an_error_only_for_later_operations", 2), ("a_rank_that_exits_amid_its_work_is_an_error", 3),
    ("a_rank_may_end_by_os_exit", 2), ("os_exit_amid_work_is_an_error", 3),
    ("abort_is_an_error_for_others", 3), ("abort_without_work_is_no_error", 2), ("abort_ends_a_graph", 2),
    ("abort_ends_a_group", 3), ("communicators_of_a_group_may_have_any_order", 3),
    ("a_pair_may_have_a_communicator_of_its_own", 4), ("abort_ends_a_split", 3), ("abort_ends_a_shrink", 3),
    ("shrink_ends_what_waits", 3), ("splits_and_shrinks_follow_one_another", 3),
    ("an_operation_that_is_half_submitted_is_the_last_one", 3), ("events_order_streams_that_come_and_go", 3)])
def test_ranks_of_one_card(card, scenario, n):
    ranks(card, scenario, n, MALLOC_PERTURB_="165").ok()


def test_a_stream_that_waits_for_another_rank_waits_for_a_value(card):
    p = ranks(card, "streams_wait_for_events", 2, SUBLET_LOG="debug")
    p.ok()
    called = collections.Counter(re.findall(r"\b(cuStreamWaitValue64|cuStreamWriteValue64)_v2\b", p.err()))
    # Each rank writes a value behind its operation, and rank 0 one more for its event.
    assert called == {"cuStreamWriteValue64": 3, "cuStreamWaitValue64": 1}, p.report()


def test_the_gpu_runs_each_rank_for_longer_while_no_other_program_works(card):
    p = ranks(card, "events_order_streams_that_come_and_go", 2, SUBLET_LOG="debug", **rank_of("torchrun", 2, 0))
    p.ok()
    assert p.err().count("time slice: 10000 us") == 2, p.report()


def test_ranks_with_cards_of_their_own(make_world):
    w = make_world(memory="1GiB", gpus=2)
    w.context = 4 * MIB
    w.start_daemon()
    os.makedirs(w.path("nccl"), exist_ok=True)
    stub = os.path.join(BUILD, "tests", "nccl")  # in place of the machine's NCCL, if it has one
    ranks(w, "a_communicator_of_the_real_nccl_need_not_block", 2, MALLOC_PERTURB_="165", NCCL_STUB_DIR=w.path("nccl"),
          LD_LIBRARY_PATH=f"{stub}:{w.env['LD_LIBRARY_PATH']}").ok()
