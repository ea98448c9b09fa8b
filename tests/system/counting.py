"""Runs tests/programs/counts.c in a world: its kernels count until they are told to end, and a rival program takes the
card from them."""

import subprocess
import time

from test_oversubscription import touch
from world import MIB, wait_for

# The second contexts of several programs take more than 5 % of a card of 64 MiB. With a low floor, an important
# rival keeps the card: with the default the other program has a turn about every 2 s, and busy machines need longer.
QUICK = {"quantum": "150ms", "grace": "2s", "unevictable_share": "10%", "priority_floor": "0.1%"}


def counts(world, seed, *more, mib=32, **env):
    """Starts a program that is ready to run a kernel which counts until it is told to end."""
    p = world.program("counts", "--bytes", f"{mib}MiB", "--block", "4MiB", "--seed", seed, *more, stdin=subprocess.PIPE, **env)
    p.await_event("filled")
    return p


def count(program):
    return program.order("look")["count"]


def await_count(*programs, more=1000):
    """Waits until the kernel of each program has counted at least `more` further."""
    goal = {p: count(p) + more for p in programs}
    wait_for(lambda: all(count(p) >= n for p, n in goal.items()), 60, "kernels to go on",
             report=lambda: "\n".join(p.report() for p in programs))


def begin(program):
    """Starts the program's kernel. Waits until the kernel runs and the program has a second context, without which its
    memory cannot be moved while it is frozen."""
    program.order("start")
    await_count(program)
    world = program.world
    wait_for(lambda: world.clients()[program.pid]["unevictable"] > 2 * world.card()["context_bytes"], 60, "its second context",
             report=program.report)


def end(world, *programs, rounds=1):
    for p in programs:
        p.order("end")
    for p in programs:
        p.finish()
        assert world.check_sums(p) == rounds


def important(world, mib):
    """Starts a rival with a higher priority: once it has its memory, it keeps that memory until leave()."""
    return world.program("spin", "--bytes", f"{mib}MiB", "--block", "4MiB", "--ms", 5, "--until", world.path("leave"),
                         SUBLET_PRIORITY="1")


def take_the_card(world, mib=40):
    """Starts an important rival and waits until it runs with all its memory: if the daemon ends, it goes on only then."""
    p = important(world, mib)

    def has_the_card():
        c = world.clients().get(p.pid)
        return c and c["backed"] >= mib * MIB and c["state"] == "running"

    wait_for(has_the_card, 60, "the rival to have the card", report=p.report)
    return p


def leave(world, rival):
    touch(world.path("leave"))
    rival.ok()


def frozen_out(world, program):
    """True when the program is frozen and some of its memory is evicted."""
    c = world.clients().get(program.pid)
    return c and c["evicted"] > 0 and c["frozen"] and "away" in c["frozen"]["why"]


def assert_frozen(program, seconds=0.1):
    before = count(program)
    time.sleep(seconds)
    assert count(program) == before, "it runs"
