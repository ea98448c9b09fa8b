"""Every entry point that sublet intercepts is called by a test. src/cuda/cuda_api.def lists the entry points;
surface.txt lists those that no test calls, with the reason."""

import os
import subprocess
import sys

import pytest

from world import BUILD, LIBRARY, ROOT, wait_for

sys.path.insert(0, os.path.join(ROOT, "tools"))

import api_coverage  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
DOORS = ("linked", "dlsym", "getproc", "getproc1")


def unreached():
    with open(os.path.join(HERE, "surface.txt"), encoding="utf-8") as f:
        rows = [line.split(None, 1) for line in f if line.strip() and not line.startswith("#")]
    assert all(len(row) == 2 for row in rows), "a name without a reason"
    return {name for name, _ in rows}


@pytest.mark.skipif("watched" not in LIBRARY, reason="the library that counts is not built; without a sanitizer they run")
def test_every_intercepted_entry_point_is_called(shared):
    path = shared.path("doors")
    for door in DOORS:
        shared.program("surface", door=door, SUBLET_DOOR_COUNT=path).ok()
    with open(path, encoding="ascii") as f:
        called = set(f.read().split())
    intercepted = {symbol for symbol, behaviour, _ in api_coverage.Tables().rows if behaviour != "PASS"}
    assert called <= intercepted
    missing, listed = intercepted - called, unreached()
    new, done = sorted(missing - listed), sorted(listed - missing)
    assert not new, f"intercepted, and called by no test: {' '.join(new)}; call them, or say in surface.txt why not"
    assert not done, f"called, or not intercepted: {' '.join(done)}; remove them from surface.txt"


def test_the_product_counts_no_calls(shared):
    path = shared.path("doors")
    shared.program("surface", LD_PRELOAD=os.path.join(BUILD, "libsublet.so"), SUBLET_DOOR_COUNT=path).ok()
    assert not os.path.exists(path)


@pytest.mark.freeze("park")  # without a second context the accounts equal the card's figures
def test_arrays_are_counted_and_given_back(shared):
    p = shared.program("hold", "--bytes", "1MiB", stdin=subprocess.PIPE)
    p.await_event("filled")
    before = shared.clients()[p.pid]["unevictable"]
    said = p.order("info")["free"]
    p.order("array 8")
    wait_for(lambda: shared.clients()[p.pid]["unevictable"] == before + (8 << 20), 20, "the array to be counted")
    assert p.order("info")["free"] == said - (8 << 20)
    p.order("array 0")
    wait_for(lambda: shared.clients()[p.pid]["unevictable"] == before, 20, "the array's room to be given back")
    assert p.order("info")["free"] == said
    p.finish()
