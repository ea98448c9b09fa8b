"""Programs that reserve, create and map memory themselves: their memory is evicted and restored like all other memory,
wherever and however often it is mapped."""

import os
import signal

import pytest

from world import MIB, go_on, wait_for

WAYS = ("segments", "pages", "sleep", "one", "export", "threads")
HANDOFFS = 4
MOST = {"export": 64}  # MiB on a card of 128: exported memory stays on the card


def virtual(world, how, mib, seed, *more, block="4MiB", **kinds):
    sample = world.path(f"sample-{seed}")
    return world.program("virtual", "--how", how, "--bytes", f"{mib}MiB", "--block", block, "--seed", seed, "--sample",
                         sample, "--sample-bytes", "64KiB", *more, **kinds)


def touch(path):
    with open(path, "w", encoding="utf-8"):
        pass


def check(world, program):
    assert world.check_sums(program) >= 2
    assert world.check_sample(program.argv[program.argv.index("--sample") + 1])["words"] > 0


def until_handoffs(world, programs, handoffs):
    def enough():
        for p in programs:
            assert p.running() or p.process.returncode == 0, "ended early\n" + p.report()
        return world.handoffs() >= handoffs

    wait_for(enough, 120, f"{handoffs} hand-offs", interval=0.1)


def all_is_given_back(world):
    """Waits until nothing is left on the card or in the ledger."""
    def empty():
        gpus = world.status()["gpus"]
        return world.card()["used"] == 0 and not (gpus and gpus[0]["clients"])

    wait_for(empty, 20, "an empty card and an empty ledger")


@pytest.mark.parametrize("how", WAYS)
def test_mapping_programs_give_equal_results_with_and_without_sublet(shared, how):
    block = "16MiB" if how == "export" else "2MiB"  # larger or smaller than our extents of 8 MiB
    args = (how, 32 if how == "export" else 12, "11", "--rounds", "3")
    plain = virtual(shared, *args, block=block, shared=False).ok()
    ours = virtual(shared, *args, block=block).ok()
    assert plain.result() == ours.result()
    assert ours.err() == ""
    for door in ("dlsym", "getproc", "getproc1") if how == "pages" else ():
        assert virtual(shared, *args, block=block, door=door).ok().result() == plain.result()


@pytest.mark.parametrize("ways", (("segments", "pages"), ("sleep", "one"), ("export", "threads")))
def test_mapped_memory_survives_evictions(shared, ways):
    """The two programs do not fit together; every hand-off moves memory that they have mapped."""
    end = shared.path("end")
    programs = [virtual(shared, how, MOST.get(how, 88), seed, "--until", end, block=block)
                for how, seed, block in zip(ways, ("1", "2"), ("4MiB", "8MiB"))]
    until_handoffs(shared, programs, HANDOFFS)
    touch(end)
    for p in programs:
        p.ok()
        check(shared, p)
    card = shared.card()
    assert card["d2h_bytes"] > HANDOFFS * (10 if "export" in ways else 30) * MIB
    assert card["peak"] <= card["total"]
    all_is_given_back(shared)


@pytest.mark.freeze("park")  # without a second context the accounts equal the card's figures
def test_a_page_mapped_at_many_addresses_stays_on_the_card(shared):
    """The program maps its page of zeros at 44 addresses, and every hand-off would have to map it there again."""
    end = shared.path("end")
    programs = [virtual(shared, how, 88, seed, "--until", end, block="2MiB") for how, seed in (("pages", "1"),
                                                                                              ("segments", "2"))]
    until_handoffs(shared, programs, 2)

    def stays():
        clients = shared.clients()
        return clients[programs[0].pid]["unevictable"] == clients[programs[1].pid]["unevictable"] + 2 * MIB

    wait_for(stays, 20, "the page to count once as unevictable", report=shared.status_text)
    touch(end)
    for p in programs:
        p.ok()
        check(shared, p)
    all_is_given_back(shared)


def test_mapped_memory_survives_the_daemon(world):
    """Both programs come back with their memory, and no byte of it is lost."""
    world.start_daemon(config={"quantum": "200ms"})
    end = world.path("end")
    programs = [virtual(world, how, 80, seed, "--until", end) for how, seed in (("pages", "1"), ("segments", "2"))]
    until_handoffs(world, programs, 2)
    for _ in range(2):
        world.daemon.send(signal.SIGKILL)
        world.daemon.wait()
        world.start_daemon(config={"quantum": "200ms"})
        go_on(programs)
    touch(end)
    for p in programs:
        p.ok()
        check(world, p)
    all_is_given_back(world)


def test_a_killed_program_leaves_nothing_behind(shared):
    end = shared.path("end")
    programs = [virtual(shared, how, 80, seed, "--until", end) for how, seed in (("export", "1"), ("pages", "2"))]
    until_handoffs(shared, programs, 1)
    programs[0].process.kill()
    programs[0].wait()
    go_on(programs[1:])
    touch(end)
    programs[1].ok()
    check(shared, programs[1])
    all_is_given_back(shared)
