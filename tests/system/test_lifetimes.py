"""One thread makes an object while another destroys one of the same kind."""

import os
import subprocess

import pytest

from world import BUILD, MIB, wait_for


@pytest.mark.parametrize("kinds", [{}, {"PROGRAM_EARLY": "1"}], ids=["", "asked for before cuInit"])
def test_a_primary_context_retained_while_it_is_released(shared, kinds):
    """Memory allocated in it then is ours, as in any other context."""
    p = shared.program("revive", "--bytes", "8MiB", stdin=subprocess.PIPE, **kinds)
    p.await_event("filled")
    wait_for(lambda: shared.clients()[p.pid]["backed"] >= 8 * MIB, 20, "its memory to be in the books")
    p.finish()


def test_the_room_of_what_ends_with_its_context_is_nobodys_before(shared):
    """Arrays that a program never destroys; the accounts are compared after every change (sums.py)."""
    for _ in range(5):
        p = shared.program("hold", "--bytes", "8MiB", "--block", "4MiB", stdin=subprocess.PIPE)
        p.await_event("filled")
        p.order("array 16")
        p.finish()


def test_a_child_that_is_forked_while_the_driver_is_being_loaded(world):
    """The child has no CUDA, and its calls say so; nothing in it waits for the thread that it does not have."""
    world.program("early", LD_LIBRARY_PATH=os.path.join(BUILD, "tests", "slowdriver")).ok()


def test_threads_that_use_a_gpu_for_the_first_time_at_once(make_world):
    """The daemon gets one ATTACH for each GPU: a second one is invalid, and it would refuse the program."""
    w = make_world(gpus=8)
    w.start_daemon()
    p = w.program("crowd", stdin=subprocess.PIPE)
    p.await_event("filled")
    assert all([c["pid"] for c in g["clients"]] == [p.pid] for g in w.status()["gpus"])
    p.finish()
    assert p.err() == ""
