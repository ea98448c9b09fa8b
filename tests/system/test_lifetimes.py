"""One thread makes an object while another thread destroys one of the same kind."""

import os
import subprocess

import pytest

from world import BUILD, MIB, wait_for


@pytest.mark.parametrize("kinds", [{}, {"PROGRAM_EARLY": "1"}], ids=["", "asked for before cuInit"])
def test_memory_of_a_context_retained_during_its_release_is_counted(shared, kinds):
    """The library owns memory allocated in that context, as in any other context."""
    p = shared.program("revive", "--bytes", "8MiB", stdin=subprocess.PIPE, **kinds)
    p.await_event("filled")
    wait_for(lambda: shared.clients()[p.pid]["backed"] >= 8 * MIB, 20, "its memory to be in the ledger")
    p.finish()


def test_arrays_stay_charged_until_their_context_ends(shared):
    """The program never destroys its arrays; the audit compares the accounts after every change (audit.py)."""
    for _ in range(5):
        p = shared.program("hold", "--bytes", "8MiB", "--block", "4MiB", stdin=subprocess.PIPE)
        p.await_event("filled")
        p.order("array 16")
        p.finish()


def test_a_child_forked_while_the_driver_loads_does_not_hang(world):
    """The child has no CUDA, and its calls say so. It must not wait for the thread that loads the driver in its
    parent."""
    world.program("early", LD_LIBRARY_PATH=os.path.join(BUILD, "tests", "slowdriver")).ok()


def test_threads_that_first_use_a_gpu_at_once_attach_it_once(make_world):
    """The daemon must get one ATTACH for each GPU: a second ATTACH is invalid, and the daemon would refuse the
    program."""
    w = make_world(gpus=8)
    w.start_daemon()
    p = w.program("crowd", stdin=subprocess.PIPE)
    p.await_event("filled")
    assert all([c["pid"] for c in g["clients"]] == [p.pid] for g in w.status()["gpus"])
    p.finish()
    assert p.err() == ""
