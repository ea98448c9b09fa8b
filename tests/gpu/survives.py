"""The parts of the GPU suite about sharing over time: turns in exclusive mode, and waking up from idle beside a batch
job. As in parts.py, each takes a suite.Part and fills a dictionary; report_survives.py makes the page."""

import math
import os
import time

import suite
from parts import size, wait_until
from suite import Failure


def percentile(values, percent):
    """Returns the percentile by nearest rank: of 50 values the 99th percentile is the greatest."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def spread(values):
    return {"n": len(values), **{f"p{p}": round(percentile(values, p), 2) for p in (50, 90, 99)},
            "max": round(max(values), 2)}


# ---- exclusive mode ----

EXCLUSIVE_QUANTUM = "600ms"
EXCLUSIVE_QUANTA = 50  # quanta of each program


def turns_of(programs):
    """Returns the turns in order of time. All that a program did before the other's turn is one turn, even with
    pauses."""
    merged = []
    for turn in sorted(({**t, "whose": i} for i, p in enumerate(programs) for t in p.of("turn")), key=lambda t: t["begin"]):
        if merged and merged[-1]["whose"] == turn["whose"]:
            merged[-1]["end"] = turn["end"]
            merged[-1]["busy_ns"] += turn["busy_ns"]
            merged[-1]["kernels"] += turn["kernels"]
        else:
            merged.append(turn)
    return merged


def exclusive(part, result):
    """Exclusive mode: two busy programs that both fit, 50 quanta each. Freezing is off, because the programs tell their
    turns apart by the pauses between their kernels, and a frozen kernel would span two turns."""
    part.daemon(mode="exclusive", quantum=EXCLUSIVE_QUANTUM, freeze="off")
    end = os.path.join(part.root, "end")
    pair = [part.program("turns", "--bytes", size(1), "--block", size(0.25), "--seed", seed, "--until", end,
                         name=f"turns-{seed}") for seed in (1, 2)]
    for p in pair:
        p.expect("filled", part.deadline)

    def handoffs_reach(n):
        wait_until(part, lambda: part.gpu()["handoffs"] >= n, f"{n} hand-offs")
        gpu = part.gpu()
        return {c["pid"]: c["gpu_time_s"] for c in gpu["clients"]}, gpu["handoffs"], time.monotonic()

    first, begun, began = handoffs_reach(part.gpu()["handoffs"] + 4)
    last, done, ended = handoffs_reach(begun + 2 * EXCLUSIVE_QUANTA)
    suite.touch(end)
    for p in pair:
        p.wait(part.deadline)
    by_status = [last[p.pid] - first[p.pid] for p in pair]
    # Uses the programs' own records of whole turns, as many of one program as of the other.
    turns = turns_of(pair)[4:-1]
    n = min(EXCLUSIVE_QUANTA, len(turns) // 2)
    turns = turns[:2 * n]
    busy = [sum(t["busy_ns"] for t in turns if t["whose"] == i) / 1e9 for i in range(2)]
    kernels = [sum(t["kernels"] for t in turns if t["whose"] == i) for i in range(2)]
    between = [b["begin"] - a["end"] for a, b in zip(turns, turns[1:])]
    overlaps = [-x for x in between if x < 0]
    pauses = [max(x, 0) / 1e6 for x in between]
    result.update({
        "quantum": EXCLUSIVE_QUANTUM, "quanta": done - begun, "turns_of_each": n, "wall_s": round(ended - began, 2),
        "gpu_time_s_by_status": [round(s, 3) for s in by_status],
        "share_percent_by_status": [round(100 * s / sum(by_status), 2) for s in by_status],
        "gpu_time_s_by_the_programs": [round(s, 3) for s in busy],
        "share_percent_by_the_programs": [round(100 * s / sum(busy), 2) for s in busy],
        "share_percent_of_kernels": [round(100 * k / sum(kernels), 2) for k in kernels],
        "overlap_ns": sum(overlaps), "pause_between_turns_ms": spread(pauses),
    })
    if n < EXCLUSIVE_QUANTA:
        raise Failure(f"only {n} whole turns of each")
    if sum(overlaps):
        raise Failure(f"both had kernels running for {sum(overlaps)} ns")


# ---- waking up from idle ----

WAKE_UPS = 50
WARM_UPS = 3  # wake-ups before the measurement, because host memory is pinned when it is first needed
WAKE_GIB, BATCH_GIB = 24, 120  # with two contexts some 6 GiB more than programs can have on an H200


def wake(part, result):
    """An interactive program wakes up 50 times beside a batch job of a lower priority that leaves it no room."""
    part.daemon()
    interactive = part.program("hold", "--bytes", size(WAKE_GIB), "--block", size(2), name="interactive")
    interactive.expect("filled", part.deadline)
    alone = []
    for _ in range(8):
        interactive.say("touch")
        alone.append(interactive.expect("done", part.deadline)["ms"])
    computes = percentile(alone[2:], 50)
    end = os.path.join(part.root, "end")
    batch = part.program("fill", "--bytes", size(BATCH_GIB), "--block", size(2), "--seed", 2, "--until", end, name="batch",
                         SUBLET_PRIORITY="-1")
    batch.expect("round", part.deadline)
    result.update({"interactive_gib": WAKE_GIB, "batch_gib": BATCH_GIB, "computes_ms": round(computes, 2)})

    def state(name):
        return next(c for c in part.gpu()["clients"] if c["name"] == name)

    def batch_has_it():
        return state("batch")["state"] == "running" and state("interactive")["evicted"] > 0

    wakes, rounds = [], len(batch.of("round"))
    for i in range(WARM_UPS + WAKE_UPS):
        wait_until(part, batch_has_it, "turn of the batch job")
        time.sleep(0.1 + 0.01 * (i % 20))  # wakes up at another point of the batch job's rounds each time
        from_ns = time.monotonic_ns()
        interactive.say("touch")
        answer = interactive.expect("done", part.deadline)
        wakes.append((from_ns, time.monotonic_ns(), answer["ms"]))
        if part.left() < 8:
            break
    result["rounds_of_the_batch_job_meanwhile"] = len(batch.of("round")) - rounds
    suite.touch(end)
    interactive.close()
    for p in (interactive, batch):
        p.wait(part.deadline)
    events = part.traced()
    figures = [look_at(events, w, interactive.pid, batch.pid, computes) for w in wakes]
    result["the_first"] = figures[:WARM_UPS]
    figures = [f for f in figures[WARM_UPS:] if f]
    result["wake_ups"] = len(figures)
    if not figures:
        raise Failure("no wake-up had anything to restore")
    for name in figures[0]:
        result[name] = spread([f[name] for f in figures])
    result["each"] = figures
    part.check_sums(batch, max(1, len(batch.of("round")) // 3))
    if len(figures) < WAKE_UPS:
        raise Failure(f"only {len(figures)} wake-ups")


def look_at(events, wake_up, pid, other, computes):
    """Returns what one wake-up waited for, in ms and MiB; None if no memory had to be restored."""
    begin, end, took = wake_up
    mine = [e for e in events if begin <= e["t_ns"] <= end]
    restores, drains = suite.episodes(mine, pid, "restore"), suite.episodes(mine, other, "drain")
    if not restores:
        return None
    waited = max(took - computes, 0.0)
    restored = sum(e - b for b, e, _ in restores) / 1e6
    return {"waited_ms": round(waited, 2), "own_restore_ms": round(restored, 2),
            "waited_more_than_its_restore_ms": round(waited - restored, 2),
            "drain_of_the_batch_job_ms": round(sum(e - b for b, e, _ in drains) / 1e6, 2),
            "restored_mib": round(sum(n for _, _, n in restores) / (1 << 20), 1)}


# name -> (function, limit in seconds)
PARTS = {
    "exclusive": (exclusive, 95),
    "wake": (wake, 90),
}
