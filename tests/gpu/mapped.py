"""The part about host memory that is mapped for the card, as in the memory mode overflow, and its page: which
operations work on it, and what they cost beside memory of the card (mapped.cu, on the plain driver)."""

import time

import pages
import suite
from suite import Failure

# Tests of mapped.cu, each run in a process of its own, and the limit of each in seconds.
TRIED = {"copies": 30, "bulk": 30, "atomics": 40, "graphs": 30, "speed": 40}


def mapped(part, result):
    """Copies, bulk copies, atomics and graphs on mapped host memory, and the cost of its use."""
    path, failed = suite.build_cuda(part, "mapped"), []
    for name, seconds in TRIED.items():
        p = part.start([path, name], name, False)
        try:
            p.wait(min(part.deadline, time.monotonic() + seconds))
        except Failure as e:
            p.kill()
            failed.append(str(e))
        result[name] = [{k: v for k, v in e.items() if k != "event"} for e in p.events
                        if e["event"] in ("finding", "atomic", "cost")]
    result["wrong"] = [e.get("what") or f"{e['kind']}: {e['shape']}" for name in TRIED for e in result[name] if not e.get("right", True)]
    if failed or result["wrong"]:
        raise Failure("; ".join(failed + [f"wrong: {w}" for w in result["wrong"]]))


PARTS = {"mapped": (mapped, 170)}


ABOUT = ("With `--memory overflow`, part of a program's memory is host memory that is mapped for the card. This page says what works on such"
         " memory, and how fast.")


def figures(found):
    m = found.get("mapped", {})
    for name, what in (("copies", "copies, fills, stream memory operations"), ("bulk", "bulk copies"), ("atomics", "atomics"),
                       ("graphs", "graphs, while the memory moves between host and card")):
        tried = [e for e in m.get(name, []) if "right" in e]
        if tried:
            well = sum(e["right"] for e in tried)
            yield f"{what}: right on mapped host memory", f"{well} of {len(tried)}", "all", well == len(tried)
    for e in m.get("speed", []):
        yield f"{e['what']}: mapped host memory, memory of the card", f"{e['host']:g} and {e['card']:g} {e['unit']}", "", None


def page(results):
    m = results["parts"].get("mapped", {})
    lines = pages.table(figures(results["parts"]))
    tried = [e for name in ("copies", "bulk", "graphs") for e in m.get(name, [])]
    if tried:
        lines += ["## What was tried", "", "| what | |", "|---|---|",
                  *(f"| {e['what']} | {'right' if e['right'] else '**wrong**'} |" for e in tried), ""]
    kinds = {}
    for e in m.get("atomics", []):
        kinds.setdefault(e["kind"], {})[e["shape"]] = e
    if kinds:
        shapes = list(next(iter(kinds.values())))
        lines += ["## Atomics", "", "Each cell gives nanoseconds for one operation, first on mapped host memory, then on memory of"
                  " the card. The time of the whole run is divided by all operations of all threads.", "",
                  f"| kind | {' | '.join(shapes)} | contents |", f"|---|{'---|' * len(shapes)}---|"]
        for kind, of in kinds.items():
            cells = [f"{of[s]['host_ns']:,.1f}, {of[s]['card_ns']:,.1f}" if s in of else "" for s in shapes]
            right = all(e["right"] for e in of.values())
            lines.append(f"| {kind} | {' | '.join(cells)} | {'right' if right else '**wrong**'} |")
        lines.append("")
    return [*lines, *pages.unfinished(results["parts"]),
            f"`./dev gpu --only {','.join(PARTS)}` runs this part (`tests/gpu/mapped.cu`), without sublet. `cuMemCreate` makes"
            " memory on the host's node, which is then mapped, as with `--memory overflow`. Rates are for 1 GiB, by the GPU's clock.", ""]
