"""The page of the core's parts (parts.py)."""

import pages
from parts import MAIN_QUANTUM

GOALS = {
    "handoff_first_gb_s": 15.0,
    "handoff_pinned_gb_s": 45.0,
    "resnet50_percent": 0.5,
    "transformer_percent": 0.5,
    "launch_percent": 2.0,
    "gate_ns": 20.0,
    "fit_ratio": 0.99,
}


def of_processes(r):
    """Returns the differences of each pair or group of processes, and of the fastest quarters, which nothing
    disturbed."""
    differ = ", ".join(f"{d:+.2f}" for d in r.get("of_processes_percent", ()))
    return ((f"; each pair of processes {differ} %" if differ else "")
            + (f"; the fastest quarters {r['quarter_percent']:+.2f} %" if "quarter_percent" in r else ""))


def of_processors(r):
    return f"; processor time {r['processors']['difference_percent']:+.2f} %" if "processors" in r else ""


ABOUT = ("What a program pays for sublet while it is alone, how fast memory moves when programs take turns, and whether results stay the"
         " same, bit for bit. A difference whose interval (95 %) contains 0 may be the machine's own variation.")


def figures(parts):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    out = []
    m = parts.get("main", {})
    d = m.get("defaults", {})
    for of, how in ((d, "at the defaults"), (m, f"turns forced to {MAIN_QUANTUM}")):
        if "losses_identical" not in of:
            continue
        same = all(of["losses_identical"].values()) and all(of["ballast_identical"].values())
        allocated = " and ".join(f"{v} GiB" for v in of["allocated_gib"].values())
        out.append((f"main job, {how}: ResNet-50 and a transformer of {allocated}", "losses and ballast "
                    + ("bit-identical to the undisturbed runs" if same else "DIFFER from the undisturbed runs"),
                    "bit-identical", same))
        out.append((f"… hand-offs of 20 GiB or more while both train, {how}", of["handoffs_of_20_gib"],
                    "" if of is d else "at least 10", None if of is d else of["handoffs_of_20_gib"] >= 10))
        out.append((f"… time together, {how} (each alone)",
                    f"{of['together_s']} s ({', '.join(str(v) for v in m['alone_s'].values())} s)", "", None))
    p = parts.get("programs", {})
    if "handoffs" in p:
        checked = "rounds_recomputed" in p
        out.append(("driver-API programs, 2 × 90 GiB", f"{p['handoffs']} hand-offs, {p.get('moved_gib', '?')} GiB moved"
                    f" out, contents {'right' if checked else 'not checked to the end'}", "right", checked))
    h = parts.get("handoff", {})
    for name, text in (("first", "first time"), ("pinned", "once pinned")):
        if name in h:
            goal = GOALS[f"handoff_{name}_gb_s"]
            out.append((f"hand-off of {h[name]['gib']} GiB each way, {text}",
                        f"{h[name]['out_gb_s']} GB/s out, {h[name]['in_gb_s']} GB/s in", f"{goal:.0f} GB/s each way",
                        min(h[name]["out_gb_s"], h[name]["in_gb_s"]) >= goal))
    if h.get("drain_ms") is not None:
        out.append(("drain before it, median", f"{h['drain_ms']} ms", "", None))
    if "bus" in h:
        out.append(("the bus's limit in the same run: two processes, copies alone; memory given back; memory handed over",
                    "; ".join(f"{h['bus'][way]['both_gb_s']}" for way in ("copies", "given back", "passed on"))
                    + " GB/s each way", "", None))
    o = parts.get("overhead", {})
    for name, text, unit, scale in (("resnet50", "ResNet-50, a step", "ms", 1e3),
                                    ("transformer", "transformer, a step", "ms", 1e3),
                                    ("launch", "500 tiny kernels in a row, a launch", "ns", 1)):
        if name in o:
            r, goal = o[name], GOALS[f"{name}_percent"]
            low, high = r["interval_percent"]
            out.append((f"{text}, alone, against the plain driver",
                        f"{r['difference_percent']:+.2f} % (95 %: {low:+.2f} to {high:+.2f}; {r['pairs']} pairs;"
                        f" {r['plain_median'] * scale:.2f} {unit} plain{of_processes(r)}{of_processors(r)})", f"within {goal:g} %",
                        pages.within(r["interval_percent"], goal)))
    for r in parts.get("gate", {}).get("results", []):
        a, b = r["median_ns"]["cost"], r["p99_ns"]["cost"]
        out.append((f"gate and wrapper, {r['threads']} thread{'s' if r['threads'] > 1 else ''}",
                    f"{a} ns median, {b} ns p99", f"at most {GOALS['gate_ns']:.0f} ns", max(a, b) <= GOALS["gate_ns"]))
    f = parts.get("fit", {})
    if "ratio" in f:
        low, high = f["steps_per_second"]["interval_percent"]
        out.append(("two ResNet-50 that fit, a third evicted and idle, total against the plain driver's two",
                    f"{f['ratio']:.3f} (95 %: {1 + low / 100:.3f} to {1 + high / 100:.3f}"
                    f"{of_processes(f['steps_per_second'])}; {f['idle_evicted_gib']} GiB of the third evicted)", "at least 0.99",
                    f["ratio"] >= GOALS["fit_ratio"]))
    return out


def page(results):
    touched = results["machine"].get("host_touched_gib", 0)
    found = figures(results["parts"])
    return [
        *pages.table(found),
        *pages.unfinished(results["parts"]),
        "## How it was measured",
        "",
        "- `./dev gpu` runs `tests/gpu/run.py`. Each part has a daemon of its own and leaves nothing running. The run took"
        f" {results['seconds']:.0f} s.",
        "- Programs: each word of memory is a function of address, round and seed. A kernel checks every word. Another process"
        " recomputes the sums and checks words that were copied out.",
        "- Main job: `tests/gpu/trainer.py`, with deterministic algorithms and no knowledge of sublet. The transformer reads the"
        " sources of Python's standard library. ResNet-50 trains on generated pictures. The rest of the memory is *ballast*:"
        " random words, changed every epoch. Their sum is compared with the sum of the epoch before and with that of the undisturbed run."
        f" Turns are forced to {MAIN_QUANTUM}, so that most of the time goes into moving memory: this row tests the contents. With the"
        " automatic quantum, turns are so long that moving takes a small part of the time; [h200-pairs.md](h200-pairs.md) has such jobs.",
        "- Hand-off: the rate is bytes divided by time. The time runs from the first byte out of one process to the last byte"
        " into the other (`SUBLET_TRACE`). It includes mapping, but not the drain before. [README.md](README.md#where-the-time-of-a-hand-off-goes)"
        " says where the time goes.",
        f"- Host memory touched before the first part (`--touch-host`): {touched} GiB. A virtual machine"
        " may get its memory from its host only on first use. That makes the first use many times slower.",
        "- Alone: one warm process under sublet and one without are measured in turn. The order changes from pair to pair. The"
        " figure is the median of the pairs' relative differences, with the interval of the sign test.",
        "- Fit: two processes of each kind are on the card, and each kind trains while the other waits. Then other processes do"
        " the same, with the other kind started first. This is needed because the speed also depends on where in the card a"
        " process's memory lies (`copy_gb_s` in the JSON).",
        "",
    ]
