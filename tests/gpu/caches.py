"""The part about memory that frameworks keep unused, and its page: five inference jobs with pauses, on a card too small
for all the memory that they reserve."""

import os
import statistics
import sys
import time

import pages
import suite
from suite import GIB, Failure

JOBS, CAPACITY_GIB, SECONDS, PAUSE = 5, 14, 9, 0.5
ROUNDS = 3  # rounds of all modes, each in another order
MODES = ("plain", "keep", "give")  # the first mode runs without sublet, on all of the card


def run(part, mode, card, n):
    jobs, free = [], card.used()
    for i in range(JOBS):
        jobs.append(part.start([sys.executable, os.path.join(suite.HERE, "detector.py"), "--pause", str(PAUSE), "--seed",
                                str(i + 1)], f"job-{mode}-{n}-{i + 1}", mode != "plain",
                               **({} if mode == "plain" else {"SUBLET_CACHES": mode})))
    ready = [p.expect("ready", part.deadline) for p in jobs]
    before = {c["pid"]: c["moved_out"] + c["moved_in"] for c in part.gpu()["clients"]}
    for p in jobs:
        p.say("go")
    held, taken, until = [], [], time.monotonic() + SECONDS
    while time.monotonic() < until:
        held.append(sum(c["backed"] for c in part.gpu()["clients"]))
        taken.append(card.used() - free)
        time.sleep(0.2)
    moved = sum(c["moved_out"] + c["moved_in"] - before.get(c["pid"], 0) for c in part.gpu()["clients"])
    for p in jobs:
        p.say("stop")
    done = [p.expect("done", part.deadline) for p in jobs]
    for p in jobs:
        p.close()
        p.wait(part.deadline)
    return {"iterations_per_second": round(sum(d["iterations"] / d["seconds"] for d in done), 3),
            "reserved_gib": round(sum(d["reserved"] for d in done) / GIB, 1),
            "in_use_gib": round(sum(r["allocated"] for r in ready) / GIB, 1),
            "held_gib": round(statistics.mean(held) / GIB, 2), "card_gib": round(statistics.mean(taken) / GIB, 2),
            "moved_gib_per_second": round(moved / GIB / SECONDS, 3)}


def caches(part, result):
    """Five inference jobs with pauses on a small card, with and without their caches given back."""
    part.daemon(capacity=f"{CAPACITY_GIB}GiB")
    result.update({"jobs": JOBS, "pause_s": PAUSE, "capacity_gib": CAPACITY_GIB, "seconds_each": SECONDS})
    card, rounds, began = suite.Card(part), result.setdefault("rounds", {mode: [] for mode in MODES}), time.monotonic()
    for n in range(ROUNDS):
        took = time.monotonic() - began
        if n and took / n > part.left():
            raise Failure(f"no time for round {n + 1}")
        for mode in (*MODES[n % len(MODES):], *MODES[:n % len(MODES)]):
            rounds[mode].append(run(part, mode, card, n))
            result[mode] = {k: round(statistics.median(r[k] for r in rounds[mode]), 3) for k in rounds[mode][0]}


PARTS = {"caches": (caches, 175)}


ABOUT = ("A framework's cache is memory that nothing uses at the moment. Sublet lets the framework give it back before memory moves. This page"
         " compares the speed with caches given back and with caches that move.")


def figures(parts):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    p = parts.get("caches", {})
    names = {"keep": f"caches kept, a card of {CAPACITY_GIB} GiB", "give": f"caches given back, a card of {CAPACITY_GIB} GiB",
             "plain": "the plain driver, all of the card"}
    out = []
    for mode, name in names.items():
        if mode not in p:
            continue
        r, rounds = p[mode], p.get("rounds", {}).get(mode, [])
        best = p.get("keep", {}).get("iterations_per_second")
        each = f" (of each round {', '.join(str(x['iterations_per_second']) for x in rounds)})" if rounds else ""
        taken = f". {r['card_gib']} GiB of the card are in use on average, with contexts" if "card_gib" in r else ""
        shared = "" if mode == "plain" else (f"; {r['held_gib']} GiB of them are the detectors', and"
                                             f" {r['moved_gib_per_second']} GiB/s are moved")
        out.append((f"{p['jobs']} detectors, {name}", f"{r['iterations_per_second']} iterations/s{each}; the detectors reserve"
                    f" {r['reserved_gib']} GiB and use {r['in_use_gib']} GiB between batches{taken}{shared}",
                    "more than kept" if mode == "give" else "",
                    r["iterations_per_second"] > best if mode == "give" and best else None))
    return out


def page(results):
    p = results["parts"].get("caches", {})
    rounds = min((len(of_mode) for of_mode in p.get("rounds", {}).values()), default=0)
    how_long = (f"Each row ran for {p['seconds_each']} s in each of {rounds} rounds, and each round had another order. The figures are"
                " medians of the rounds." if "seconds_each" in p else "Each row ran for 20 s.")
    return [
        *pages.table(figures(results["parts"])),
        *pages.unfinished(results["parts"]),
        f"`./dev gpu --only caches` runs this part (`tests/gpu/caches.py`). {JOBS} processes run Faster R-CNN in PyTorch on batches"
        f" of four pictures of random sizes, with a pause of {PAUSE:g} s after each. {how_long} The daemon's `capacity` makes"
        " the card small.", "", "The experiment repeats that of Gemini_UM. Its authors used a card of 11 GB and Unified Memory."
        " They report 0.454 iterations a second with caches kept, and 0.962 with caches emptied after every iteration.",
        "",
    ]
