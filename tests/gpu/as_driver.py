"""The part about answers: programs that make calls which the driver refuses, or answers in a way of its own, get the same
answers on the plain driver and under sublet."""

import pages
from suite import Failure

# Programs that print one event for each call. To compare more calls, add a program.
PROGRAMS = {"past_end": "copies and fills within and past the end of an allocation"}
VOLATILE = ("pid", "ms", "at")
BATCH = "Batch"  # the driver makes the copies of a batch that come before the refused one; sublet makes none
INVALID_VALUE = 1


def answers(part, program, shared):
    p = part.program(program, name=f"{program}-{'sublet' if shared else 'plain'}", shared=shared)
    p.close()
    p.wait(part.deadline)
    return [{k: v for k, v in e.items() if k not in VOLATILE and not (k == "changed" and BATCH in e.get("call", ""))}
            for e in p.events if e["event"] != "failed"]


def as_driver(part, result):
    """Compares the answers to the same calls on the plain driver and under sublet."""
    part.daemon()
    for program in PROGRAMS:
        plain, ours = (answers(part, program, shared) for shared in (False, True))
        differ = [{"plain": a, "sublet": b} for a, b in zip(plain, ours) if a != b]
        refused = [e for e in plain if e.get("result") == INVALID_VALUE]
        result[program] = {"answers": len(plain), "refused": len(refused),
                           "changed_by_refused": sum(e.get("changed", 0) for e in refused), "differ": differ[:20]}
        if len(plain) != len(ours) or differ:
            raise Failure(f"{program}: {len(differ)} of {len(plain)} answers differ; first: {differ[:1]}")


PARTS = {"as-driver": (as_driver, 60)}

ABOUT = ("Programs make calls that the driver refuses, or whose answer one would not guess. This page counts the answers"
         " that differ under sublet.")


def figures(found):
    return [(f"{PROGRAMS[program]}: answers that differ under sublet",
             f"{len(r['differ'])} of {r['answers']}; the driver refuses {r['refused']}", "0", not r["differ"])
            for program, r in found.get("as-driver", {}).items() if program in PROGRAMS]


def page(results):
    return [
        *pages.table(figures(results["parts"])),
        *pages.unfinished(results["parts"]),
        f"`./dev gpu --only {','.join(PARTS)}` runs this part (`tests/gpu/as_driver.py`). A refused call must leave all"
        " bytes of the neighbours as they were.",
        "",
    ]
