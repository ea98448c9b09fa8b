"""Programs that take themselves off the card by the driver's own checkpoint, as some engines do when they sleep."""

import subprocess

from world import wait_for


def checkpoints(world, mib):
    """Starts a program that is off the card, and waits for a line on stdin to come back."""
    p = world.program("checkpoint", "--bytes", f"{mib}MiB", "--block", "4MiB", stdin=subprocess.PIPE)
    p.await_event("away")
    return p


def come_back(program):
    program.process.stdin.write(b"\n")
    program.process.stdin.flush()
    program.finish()


def test_a_program_leaves_the_card_and_comes_back(make_world):
    world = make_world(memory="128MiB")
    world.start_daemon()
    p = checkpoints(world, 64)
    assert world.card()["used"] == 0
    come_back(p)


def test_others_wait_for_its_memory_until_it_is_back_and_can_give_way(make_world):
    world = make_world(memory="128MiB")
    world.start_daemon(config={"unevictable_share": "20%", "grace": "1s", "patience": "1s"})
    p = checkpoints(world, 64)
    other = world.program("fill", "--bytes", "80MiB", "--block", "4MiB", "--rounds", 3)
    wait_for(lambda: "overdue" in world.clients()[p.pid]["flags"], 60, "the program to be overdue")
    assert world.clients()[p.pid]["backed"] > 0  # the driver will put it back without asking anybody
    come_back(p)
    other.ok()
