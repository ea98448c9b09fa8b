"""Questions whose answers were recorded on a real card (tests/unit/sim/*_facts.txt), asked through libsublet.so. A
program must get the same answers, except for those listed here and in docs/limits.md."""

import os
import re

import pytest

from world import BUILD, LIBRARY, MIB, ROOT, wait_for

# Lines in which the answers differ, and why.
DIFFERENT = {
    "driver_facts": {
        r"(after|beside)_illegal_address: cuMemAlloc_v2\(&(va2|q), 64\) = 700": "the context was not asked since",
    },
    "ipc_facts": {
        r"alone_small exporter: same\(&a, &b\) = 1": "each allocation has a handle of its own",
    },
    "pool_facts": {
        r"pool_reuses: q == p = 1": "a wait for an event does not make freed memory usable",
        r"pool_until_awaited: a stream awaited that waits for it: .*": "nor is it a wait of the program",
    },
}
WITHOUT_DAEMON = {
    "driver_facts": {r"pointers: cuMemAlloc( \+ 10)?: attributes = .*": "CUDA IPC needs a daemon"},
}
# Groups in which a context fails. Memory that a failed context creates is in no account, so there is no audit; nor is
# there one without a daemon, because then nobody says how much a context takes.
FAILS = {"after_illegal_address", "beside_illegal_address"}


def by_group(lines):
    """Returns the lines of each group and process, in order."""
    groups = {}
    for line in lines:
        groups.setdefault(line.split(":")[0], []).append(line)
    return groups


@pytest.mark.parametrize("facts, daemon", [*((facts, True) for facts in DIFFERENT), ("driver_facts", False), ("pool_facts", False)])
def test_programs_under_sublet_get_the_drivers_answers(make_world, facts, daemon):
    world = make_world(memory="1GiB")
    world.context = 4 * MIB
    if daemon:
        world.start_daemon()
    with open(os.path.join(ROOT, "tests", "unit", "sim", facts + ".txt"), encoding="ascii") as f:
        recorded = by_group(f.read().splitlines())
    different, met = DIFFERENT[facts] | ({} if daemon else WITHOUT_DAEMON.get(facts, {})), set()

    def differing(want, got):
        """Returns the lines that differ from a card's, and notes those that may."""
        wrong = []
        for card, here in zip(want, got):
            known = [p for p in different if re.fullmatch(p, card)]
            if card != here and known:
                met.add(known[0])
            elif card != here:
                wrong.append(f"a card: {card}\n  here: {here}")
        return wrong

    def ask(group):
        untold = {"SIMCUDA_TRACE": None, "SUBLET_TRACE": None} if group in FAILS or not daemon else {}
        asked = world.start([os.path.join(BUILD, "tests", "unit", facts), group], SIMCUDA_MEMORY=None,
                            LD_PRELOAD=LIBRARY, **untold).ok()
        got = by_group(asked.out().splitlines())
        wanted = {name: lines for name, lines in recorded.items() if name.split()[0] == group}
        assert got.keys() == wanted.keys()
        for name, want in wanted.items():
            assert len(got[name]) == len(want), name
        return [line for name, want in wanted.items() for line in differing(want, got[name])]

    wrong = []
    for group in dict.fromkeys(name.split()[0] for name in recorded):
        found = ask(group)
        if found:  # free memory rises when the context of the last process has gone, and the daemon has seen that
            if daemon:
                wait_for(lambda: world.status()["gpus"][0]["foreign"] == 0, 20, "the card to be free")
            found = ask(group)
        wrong += found
    assert not wrong, "\n".join(wrong)
    assert met == set(different), "no longer different: " + ", ".join(set(different) - met)
