"""Every program gives the same result with and without sublet, through every door, alone on the card."""

import pytest

PROGRAMS = {
    "fill": ["--bytes", "8MiB", "--block", "1MiB"],
    "churn": ["--bytes", "8MiB", "--block", "1MiB", "--rounds", "12", "--ms", "3"],
    "threads": ["--bytes", "8MiB", "--block", "1MiB"],
    "graph": ["--bytes", "4MiB"],
    "graphbuild": ["--bytes", "4MiB"],
    "ptds": ["--bytes", "4MiB", "--block", "1MiB", "--ms", "3"],
    "launchex": ["--bytes", "2MiB", "--block", "512KiB"],
    "cooperative": ["--bytes", "2MiB", "--block", "512KiB"],
    "copies": ["--bytes", "1MiB", "--rounds", "2"],
    "small": ["--count", "500", "--rounds", "3"],
    "contexts": ["--bytes", "1MiB"],
    "spin": ["--ms", "5"],
    "fork": ["--bytes", "4MiB", "--block", "1MiB"],
    "launches": ["--rounds", "3"],
}

# What a program says of its speed.
SPEED = ("median_ns", "p99_ns", "min_ns")


def result(program):
    return [{k: v for k, v in e.items() if k not in SPEED} for e in program.result()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_with_and_without_sublet(shared, name):
    args = [name, *PROGRAMS[name], "--seed", "11"]
    plain = shared.program(*args, shared=False).ok()
    with_sublet = shared.program(*args).ok()
    assert plain.events("end")
    assert result(plain) == result(with_sublet)
    assert with_sublet.err() == ""


DOORS = ("dlsym", "getproc", "getproc1")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", ["fill", "graph", "ptds", "launchex", "copies", "contexts"])
def test_equal_through_every_door(shared, name, door):
    args = [name, *PROGRAMS[name], "--seed", "11"]
    linked = shared.program(*args, shared=False).ok()
    through = shared.program(*args, door=door).ok()
    assert result(linked) == result(through)


@pytest.mark.parametrize("door", ("linked",) + DOORS)
def test_no_door_leads_past_the_gate(shared, door):
    """Seen from the daemon: the program's memory is ours to move, through whichever door it came."""
    import subprocess

    p = shared.program("hold", "--bytes", "32MiB", "--block", "4MiB", door=door, stdin=subprocess.PIPE)
    p.await_event("filled")
    c = shared.clients()[p.pid]
    assert c["allocated"] >= 32 << 20
    assert c["backed"] >= 32 << 20
    p.finish()


def test_a_program_without_cuda_is_left_alone(shared):
    p = shared.program("nocuda").ok()
    assert p.events("end")
    assert p.err() == ""
    assert shared.clients() == {}


def test_a_debugging_program_says_what_happens_on_stderr_alone(shared):
    plain = shared.program("fill", *PROGRAMS["fill"], shared=False).ok()
    noisy = shared.program("fill", *PROGRAMS["fill"], SUBLET_LOG="debug").ok()
    assert result(plain) == result(noisy)
    assert "libsublet[" in noisy.err()
