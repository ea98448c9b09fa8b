"""The driver fails calls that the library makes to move memory, with every code (driver_errors.py). No program loses a
byte, and none stops sharing. `./dev soak` goes through all codes at all calls."""

import os
import random
import subprocess

import pytest

from counting import QUICK, await_count, counts, end
from driver_errors import Errors, codes
from world import wait_for

SEEDS = range(int(os.environ.get("ERROR_SEEDS", "3")))
UNKNOWN = 999


def hold(world, seed, **env):
    p = world.program("hold", "--bytes", "80MiB", "--block", "8MiB", "--seed", seed, stdin=subprocess.PIPE, **env)
    p.await_event("filled")
    return p


def check_silence(*programs):
    for p in programs:
        assert "failed" not in p.err() and "without sharing" not in p.err(), p.report()


@pytest.mark.freeze("off")
@pytest.mark.parametrize("seed", SEEDS)
def test_errors_while_memory_moves_lose_nothing(shared, seed):
    errors = Errors(seed)
    programs = [hold(shared, n, SIMCUDA_FAIL=errors.draw()) for n in ("1", "2")]
    for _ in range(4):
        for p in programs:
            p.order("touch")
    for p in programs:
        p.finish()
        assert shared.check_sums(p) == 1
    check_silence(*programs)


@pytest.mark.parametrize("seed", SEEDS)
def test_errors_while_a_program_is_frozen_lose_nothing(make_world, seed):
    world = make_world(memory="64MiB")
    world.env["SUBLET_FREEZE"] = "move"
    world.start_daemon(config=QUICK)
    errors = Errors(1000 + seed)
    programs = [counts(world, n, SIMCUDA_FAIL=errors.draw()) for n in (1, 2)]
    for p in programs:
        p.order("start")
    for _ in range(2):
        await_count(*programs)
    end(world, *programs)
    check_silence(*programs)


@pytest.mark.freeze("off")
@pytest.mark.parametrize("fault", [
    "cuMemUnmap:3:999", "cuMemRelease:3:999", "cuMemCreate:14:999", "cuMemMap:14:999", "cuMemSetAccess:14:304",
    "cuMemImportFromShareableHandle:2:999"])
def test_one_error_of_a_call_that_takes_or_brings_memory_loses_nothing(shared, fault):
    programs = [hold(shared, "1", SIMCUDA_FAIL=fault), hold(shared, "2")]
    for p in programs * 3:
        p.order("touch")
    for p in programs:
        p.finish()
        assert shared.check_sums(p) == 1
    check_silence(*programs)


@pytest.mark.freeze("off")
def test_a_gpu_that_passes_its_test_is_tried_until_it_works(shared):
    """The memory of the victim cannot come back for some seconds."""
    victim, other = hold(shared, "1", SIMCUDA_FAIL=f"cuMemMap@sublet-agent:1-8:{UNKNOWN}"), hold(shared, "2")
    for p in (victim, other, victim):
        p.order("touch")
    for p in (victim, other):
        p.finish()
        assert shared.check_sums(p) == 1
    check_silence(victim, other)


@pytest.mark.freeze("off")
def test_a_code_that_sticks_ends_the_program_with_that_error(shared):
    """No program goes on while its memory is away."""
    code = random.Random(1).choice(codes()[1])
    victim, other = hold(shared, "1", SIMCUDA_FAIL=f"cuMemcpyHtoDAsync@sublet-agent:1+:{code}"), hold(shared, "2")
    other.order("touch")
    victim.process.stdin.write(b"touch\n")
    victim.process.stdin.flush()
    wait_for(lambda: not victim.running(), 60, "the program to end", report=victim.report)
    assert victim.wait() == 4, victim.report()
    other.order("touch")
    other.finish()
    assert shared.check_sums(other) == 1
