"""Two jobs of CPU parts and GPU parts that do not fit together, as in table 12.2 of the thesis (docs/benchmark.md), and their page."""

import os
import statistics
import sys
import time

import pages
import parts as of
import suite
from parts import size
from suite import Failure

EACH_GIB = 46
CAPACITY_GIB = 50  # what a plain process leaves of the card
# Name: CPU and GPU seconds of each part. The first two are half as long as the thesis's, the third has three phases.
PAIRS = {"90/10": [(2.5, 22.5)], "50/50": [(12.5, 12.5)], "in phases": [(5, 5)] * 3}
GOALS = {"90/10": 0.97, "50/50": 0.76, "in phases": 0.70}
ROUNDS = 1


def job(part, name, phases, steps_s, shared=True):
    argv = [sys.executable, os.path.join(suite.HERE, "phases.py"), "--gib", str(EACH_GIB)]
    for cpu, gpu in phases:
        argv += ["--parts", f"{cpu}:{int(gpu * steps_s)}"]
    return part.start(argv, name, shared)


def timed(part, names, phases, steps_s):
    """Runs such jobs at the same time. Returns the seconds from the first start to the last end."""
    began = time.monotonic()
    jobs = [job(part, name, phases, steps_s) for name in names]
    for p in jobs:
        p.wait(part.deadline)
    took = time.monotonic() - began
    wrong = sum(e["wrong"] for p in jobs for e in p.of("end"))
    if wrong:
        raise Failure(f"{wrong} wrong words")
    return took


def pairs(part, result):
    """Together against one after the other, starts counted in both, alternating."""
    card = suite.Card(part)
    part.daemon()
    held = int(card.total() / of.GIB) - CAPACITY_GIB - 1
    if held > 0:  # a plain process, so the daemon counts its memory as foreign
        p = part.program("hold", "--bytes", size(held), "--block", size(1), name="foreign", shared=False)
        p.expect("filled", part.deadline)
        time.sleep(3)  # the daemon believes what it saw for so long
    p = part.start([sys.executable, os.path.join(suite.HERE, "phases.py"), "--gib", str(EACH_GIB), "--calibrate", "4"],
                   "calibrate", True)
    steps_s = p.expect("calibrated", part.deadline)["steps_s"]
    result["capacity_gib"] = round(part.gpu()["capacity"] / of.GIB, 1)
    p.wait(part.deadline)
    result["steps_s"] = round(steps_s, 1)
    for n in range(ROUNDS):
        for name, phases in PAIRS.items():
            r = result.setdefault(name, {"alone_s": [], "together_s": [], "ratio": [], "handoffs": []})
            r["alone_s"].append(round(timed(part, [f"alone-{name[:2]}-{n}"], phases, steps_s), 2))
            before, from_ns = part.gpu()["handoffs"], time.monotonic_ns()
            r["together_s"].append(round(timed(part, [f"a-{name[:2]}-{n}", f"b-{name[:2]}-{n}"], phases, steps_s), 2))
            r["handoffs"].append(part.gpu()["handoffs"] - before)
            r["ratio"].append(round(r["together_s"][-1] / (2 * r["alone_s"][-1]), 3))
            r.setdefault("episodes", []).append(
                [[kind, round((b - from_ns) / 1e9, 2), round((e - b) / 1e9, 2), round(moved / of.GIB, 1)]
                 for kind in ("evict", "restore") for pid in pids(part, from_ns)
                 for b, e, moved in suite.episodes([x for x in part.traced() if x["t_ns"] > from_ns], pid, kind)])
            print(name, r["ratio"], r["handoffs"], flush=True)
    late = [name for name, goal in GOALS.items() if statistics.median(result[name]["ratio"]) > goal]
    result["missed"] = late


def pids(part, from_ns):
    return sorted({e["pid"] for e in part.traced() if e["t_ns"] > from_ns and "pid" in e})


ABOUT = ("What sharing gains two jobs that compute on the CPU and on the GPU, and do not fit the card together. Below 1 in the column *together /"
         " one after the other*, both are done earlier than one after the other.")


def figures(parts):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    out = []
    for name, goal in GOALS.items():
        r = parts.get("pairs", {}).get(name)
        if r:
            ratio = statistics.median(r["ratio"])
            out.append((f"two jobs past memory, CPU and GPU time {name}: together / one after the other", f"{ratio:.2f}",
                        f"at most {goal}", ratio <= goal))
    return out


PARTS = {"pairs": (pairs, 590)}


def page(results):
    r = results["parts"]["pairs"]
    lines = ["Two jobs of a CPU part and a GPU part each, in PyTorch, with "
             f"{EACH_GIB} GiB each, at the defaults. A plain process holds the rest of the card, so that {r.get('capacity_gib')} GiB "
             "are left. A job's start and its imports are counted. One after the other is twice the time of one alone.", "",
             "| CPU and GPU seconds | alone (s) | together (s) | together / one after the other | hand-offs |",
             "|---|---|---|---|---|"]
    for name, phases in PAIRS.items():
        if name in r:
            p = r[name]
            shown = ", then ".join(f"{c:g} + {g:g}" for c, g in phases[:1]) + (f", {len(phases)} times" if len(phases) > 1 else "")
            lines.append(f"| {shown} | {', '.join(map(str, p['alone_s']))} | {', '.join(map(str, p['together_s']))} | "
                         f"{', '.join(map(str, p['ratio']))} | {', '.join(map(str, p['handoffs']))} |")
    return [*lines, "", *pages.unfinished(results["parts"])]
