"""What a card has answered about pools, memory of graphs, green contexts and memory of the host (pool_facts.txt), asked
through libsublet.so: a program must not be able to tell, but for what docs/operations.md lists."""

import os
import re

from world import BUILD, MIB, ROOT

# Lines in which the answers differ, and why (docs/operations.md, "Pools").
DIFFERENT = {
    r"pool\w*: .*: reserved \d+, (high \d+; )?used \d+(, high \d+)?": "pages of the heap, given back whole, and not used once freed",
    r"pool_frees: cuMem(setD8|setD8Async|cpyDtoD)(_v2)?\(p, .*\) = 1": "past the end, or freed: only where nothing is",
    r"pool_pointers: cuMemcpyDtoH_v2\(host, p, 64\) = 1": "freed: only where nothing is",
    r"pool_frees_in_flight: (cuMemAlloc's: range: .*|cuPointerGetAttribute\(.*, q\) = 0)": "unknown at once",
    r"pool_reuses: q == p = 1": "an event waited for does not make it usable",
    r"pool_beside_capture: cuMem(AllocAsync\(&p, 4 \* MIB|FreeAsync\(x), (second|NULL)\) = 900.*": "not refused",
}


def recorded():
    """The lines of each group."""
    groups = {}
    with open(os.path.join(ROOT, "tests", "unit", "sim", "pool_facts.txt"), encoding="ascii") as f:
        for line in f.read().splitlines():
            groups.setdefault(line.split(":")[0], []).append(line)
    return groups


def test_what_the_driver_answers_is_answered_under_sublet(make_world):
    world = make_world(memory="1GiB")
    world.context = 4 * MIB
    world.start_daemon()
    wrong, met = [], set()
    for group, want in recorded().items():
        asked = world.start([os.path.join(BUILD, "tests", "unit", "pool_facts"), group], SIMCUDA_MEMORY=None,
                            LD_PRELOAD=os.path.join(BUILD, "libsublet.so")).ok()
        got = asked.out().splitlines()
        assert len(got) == len(want), asked.report()
        for card, here in zip(want, got):
            known = [p for p in DIFFERENT if re.fullmatch(p, card)]
            if card != here and known:
                met.add(known[0])
            elif card != here:
                wrong.append(f"a card: {card}\n  here: {here}")
    assert not wrong, "\n".join(wrong)
    assert met == set(DIFFERENT), "no longer different: " + ", ".join(set(DIFFERENT) - met)
