"""The parts about stream-ordered memory and many small allocations, and their page.

Frameworks may use pools by default only if nothing is lost. That means: the 95 % interval of a step's difference stays
below PACE_PERCENT for both networks, their losses are the same, JAX's steps pass the same test, and the frameworks' own
tests pass. These parts test only the first two conditions, for PyTorch."""

import os
import statistics
import sys
import time

import pages
import suite
import unchanged
from suite import GIB

COUNT = 1_000_000
PAIRS = 3  # pairs of runs at most; fewer if time is short, because some drivers take minutes
CACHE_GIB, WEIGHTS_GIB = 48, 4
POOLS = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
# Treatments of the memory that PyTorch keeps unused.
CACHES = {"keep": ({"SUBLET_CACHES": "keep"}, "which is moved"),
          "give": ({"SUBLET_CACHES": "give"}, "which is given back first"),
          "pools": (POOLS, "in pools")}
# Allocators of JAX, which never gives unused memory back by itself.
JAX = {"own": ({}, "with its own allocator"), "pools": ({"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}, "in pools")}
PACE_PERCENT = 0.5
PACE_PAIRS = 12


def count():
    return 2000 if suite.rehearsing() else COUNT


def small_run(part, card, how, shared):
    p = part.program("many", "--count", count(), "--block", 16384 if shared is not None else 0, "--how", how,
                     name=f"many-{how}-{'sublet' if shared else 'plain'}", shared=shared)
    p.expect("ready", part.deadline)
    before = card.used()
    p.say("take")
    found = {"alloc_ns": p.expect("held", part.deadline)["ns"]}
    p.expect("touched", part.deadline)
    found["mib"] = round((card.used() - before) / (1 << 20), 1)
    p.say("churn")
    found["churn_ns"] = p.expect("churned", part.deadline)["ns"]
    p.say("free")
    found["free_ns"] = p.expect("freed", part.deadline)["ns"]
    p.close()
    p.wait(part.deadline)
    return found


def small(part, result):
    """A million small allocations: memory and time against the plain driver."""
    part.daemon()
    card = suite.Card(part)
    result["allocations"] = count()
    for how, share in (("async", 0.4), ("alloc", 1)):
        runs = {shared: [] for shared in (False, True)}
        began, may_take = time.monotonic(), part.left() * share
        for pair in range(PAIRS):
            took = time.monotonic() - began
            if pair and took / pair > may_take - took:
                break
            for shared in ((False, True) if pair % 2 == 0 else (True, False)):
                runs[shared].append(small_run(part, card, how, shared))
        result[how] = {name: {"runs": len(runs[shared]),
                              **{k: statistics.median(r[k] for r in runs[shared]) for k in runs[shared][0]}}
                       for name, shared in (("plain", False), ("sublet", True))}


def cacher(part, name, **env):
    p = part.start([sys.executable, os.path.join(suite.HERE, "cacher.py"), "--gib", str(CACHE_GIB), "--weights",
                    str(WEIGHTS_GIB)], name, True, **env)
    return p, p.expect("ready", part.deadline)


def cache(part, result):
    """Hand-offs of a PyTorch process whose large cache is moved, given back first, or in pools."""
    part.daemon(quantum="100ms")
    result.update({"cache_gib": CACHE_GIB, "weights_gib": WEIGHTS_GIB})
    for kind, (env, _) in CACHES.items():
        subject, ready = cacher(part, f"cacher-{kind}", **env)
        rival = unchanged.tenant(part, f"rival-{kind}", "zeros", unchanged.RIVAL_GIB)
        rival.expect("ready", part.deadline)
        result[kind] = {"backend": ready["backend"], "allocated_gib": round(ready["allocated"] / GIB, 1),
                        "reserved_gib": round(ready["reserved"] / GIB, 1),
                        **unchanged.cycles(part, subject, rival, "work", cache=True)}
        result[kind]["step_s"] = round(statistics.median(e["seconds"] for e in subject.of("done")), 4)
        unchanged.end(part, [subject, rival])


def cache_jax(part, result):
    """Hand-offs of a JAX process with a large cache, by the figures of `sublet status` and of its steps."""
    part.daemon(quantum="100ms")
    result.update({"cache_gib": CACHE_GIB, "weights_gib": WEIGHTS_GIB})
    for kind, (env, _) in JAX.items():
        subject = part.start([sys.executable, os.path.join(suite.HERE, "cacher_jax.py"), "--gib", str(CACHE_GIB), "--weights",
                              str(WEIGHTS_GIB)], f"jax-{kind}", True, XLA_PYTHON_CLIENT_PREALLOCATE="false", **env)
        subject.expect("ready", part.deadline)
        rival = unchanged.tenant(part, f"rival-{kind}", "zeros", unchanged.RIVAL_GIB)
        rival.expect("ready", part.deadline)
        found = []
        for _ in range(unchanged.CYCLES):
            cycle, before = {}, unchanged.moved(part, subject)
            for who, key in ((rival, "other_s"), (subject, "step_s")):
                cycle[key] = round(unchanged.work(part, who, "work")["seconds"], 4)
                time.sleep(0.5)
            cycle.update(zip(("out_gib", "in_gib"), (round((b - a) / GIB, 2)
                                                     for a, b in zip(before, unchanged.moved(part, subject)))))
            found.append(cycle)
        found = found[1:]  # the first cycle allocates memory
        result[kind] = {"medians": {k: round(statistics.median(c[k] for c in found), 4) for k in found[0]}, "cycles": found}
        unchanged.end(part, [subject, rival])


def pace(part, result):
    """Step time of two networks with PyTorch's own allocator and with pools, alternating, under sublet."""
    part.daemon()
    arguments = ["--net", "resnet50", "--net", "transformer", "--warm-up", "10"]
    trainers = {kind: part.start([sys.executable, os.path.join(suite.HERE, "trainer.py"), *arguments], f"trainer-{kind}",
                                 True, **env) for kind, env in (("own", {}), ("pools", POOLS))}
    for p in trainers.values():
        p.expect("ready", part.deadline)
    # Both train before the measurements. A measurement takes as many steps as time allows, so its losses cannot be
    # compared.
    for kind, p in trainers.items():
        p.say("train 20 10")
        p.expect("trained", part.deadline)
        result.setdefault("losses", {})[kind] = [x for e in p.of("epoch") for x in e["losses"]]
    result["losses_identical"] = result["losses"]["own"] == result["losses"]["pools"]
    for net in ("resnet50", "transformer"):
        times = {kind: [] for kind in trainers}
        for pair in range(PACE_PAIRS + 1):
            for kind in (("own", "pools") if pair % 2 == 0 else ("pools", "own")):
                trainers[kind].say(f"measure {net} 0.7")
                found = trainers[kind].expect("measured", part.deadline)["median_s"]
                if pair:  # the first measurement only warms up clocks and caches
                    times[kind].append(found)
        result[net] = suite.paired(times["own"], times["pools"])
    for p in trainers.values():
        p.close()


PARTS = {
    "small": (small, 150),
    "cache": (cache, 170),
    "cache-jax": (cache_jax, 120),
    "pace": (pace, 140),
}


ABOUT = ("What a million small allocations cost, and what a framework's cache costs at a hand-off: moved, given back first, or kept in"
         " pools.")


def figures(parts):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    out = []
    for how, text in (("alloc", "cuMemAlloc"), ("async", "cuMemAllocAsync")):
        if how in parts.get("small", {}):
            plain, ours = (parts["small"][how][k] for k in ("plain", "sublet"))
            n = f"{parts['small']['allocations']:,}"
            out.append((f"{n} allocations by `{text}`: memory of the card",
                        f"{ours['mib']:,.0f} MiB, plain {plain['mib']:,.0f}", "at most 10 % more",
                        ours["mib"] <= plain["mib"] * 1.1))
            for key, what in (("alloc_ns", "to allocate one"), ("churn_ns", "to free and allocate one"),
                              ("free_ns", "to free one")):
                out.append((f"… {what}", f"{ours[key] / 1000:.2f} µs, plain {plain[key] / 1000:.2f}",
                            *pages.no_slower(ours[key], plain[key])))
    for kind, (_, text) in CACHES.items():
        if kind in parts.get("cache", {}):
            c = parts["cache"][kind]
            out.append((f"PyTorch, {parts['cache']['weights_gib']} GiB in use and {parts['cache']['cache_gib']} GiB of cache,"
                        f" {text}: gives way", f"{c['medians']['give_way_s']:.3f} s, {c['medians']['out_gib']:.1f} GiB copied out",
                        "", None))
            out.append(("… its next step, with the hand-off before it",
                        f"{c['step_s']:.3f} s, {c['medians']['in_gib']:.1f} GiB copied in", "", None))
    for kind, (_, text) in JAX.items():
        if kind in parts.get("cache-jax", {}):
            c = parts["cache-jax"]
            m = c[kind]["medians"]
            out.append((f"JAX, {c['weights_gib']} GiB in use and {c['cache_gib']} GiB between its steps, {text}: another's step that"
                        " needs the room", f"{m['other_s']:.3f} s, {m['out_gib']:.1f} GiB copied out", "", None))
            out.append(("… its next step, with the hand-off before it", f"{m['step_s']:.3f} s, {m['in_gib']:.1f} GiB copied in", "",
                        None))
    for net in ("resnet50", "transformer"):
        if net in parts.get("pace", {}):
            p = parts["pace"][net]
            out.append((f"{net}, a step with pools", f"{p['difference_percent']:+.2f} % ({p['interval_percent'][0]:+.2f} to"
                        f" {p['interval_percent'][1]:+.2f}), {p['pairs']} pairs", f"below {PACE_PERCENT} % to be the default",
                        pages.within(p["interval_percent"], PACE_PERCENT)))
    if "losses_identical" in parts.get("pace", {}):
        out.append(("… the same losses, bit by bit", "yes" if parts["pace"]["losses_identical"] else "no", "yes",
                    parts["pace"]["losses_identical"]))
    return out


def page(results):
    return [
        *pages.table(figures(results["parts"])),
        *pages.unfinished(results["parts"]),
        "Small allocations have random sizes from 1 byte to 16 KiB. *Gives way* is a hand-off to a process that"
        " holds nearly all of the card and has written nothing to it. A step with pools is given as the median of the pairs'"
        " differences, with its 95 % interval: below 0, pools are faster."
        " JAX's steps without hand-offs were not measured. The frameworks' own tests were not run with pools.",
        "",
    ]
