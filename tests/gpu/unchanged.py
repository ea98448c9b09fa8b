"""The part about memory that a hand-off does not copy because it is all zero or unchanged, and its page."""

import os
import statistics
import sys
import time

import pages
import suite
from suite import GIB, Failure

WEIGHTS_GIB = 60
RIVAL_GIB = 118  # the rival never writes to its memory, so that no hand-off copies it
CYCLES = 5       # the first cycle is not counted
MODES = ("never", "auto")
JAX = {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.45"}


def tenant(part, name, role, gib=0, **env):
    return part.start([sys.executable, os.path.join(suite.HERE, "tenant.py"), "--role", role, "--gib", str(gib)], name,
                      True, **env)


def work(part, process, order):
    process.say(order)
    return process.expect("done", part.deadline)


def moved(part, process):
    for c in part.gpu()["clients"]:
        if c["pid"] == process.pid:
            return c["moved_out"], c["moved_in"]
    raise Failure(f"{process.name} is no client")


def settle(part, process, from_ns, cache):
    """Waits for the end of an eviction of the process. Returns the events since `from_ns`, and the eviction's
    episodes."""
    while part.left() > 0:
        events = [e for e in part.traced() if e["t_ns"] >= from_ns]
        out = suite.episodes(events, process.pid, "evict")
        if out and sum(e["event"] == "evict_begin" and e["pid"] == process.pid for e in events) == len(out):
            return events, out
        given = [e["t_ns"] for e in events if e["event"] == "caches" and e["pid"] == process.pid]
        if cache and given and not out:
            return events, [(given[0], given[0], 0)]
        time.sleep(0.02)
    raise Failure(f"{process.name} was not evicted")


def cycle(part, subject, rival, order, cache):
    """The rival takes the card, and the subject takes it back. Measures the seconds from the first byte that leaves, or
    is found unchanged, until the other program can run."""
    out_before, in_before = moved(part, subject)
    found = {}
    for who, old, what in ((rival, subject, "work"), (subject, rival, order)):
        from_ns = time.monotonic_ns()
        work(part, who, what)
        events, out = settle(part, old, from_ns, cache)
        into = suite.episodes(events, who.pid, "restore")
        if not into and not cache:
            raise Failure(f"{who.name} ran without having been restored")
        begin, end = min(b for b, _, _ in out), max((e for _, e, _ in into), default=0)
        spared = sum(e["bytes"] for e in events if e["event"] == "evict_spared" and e["pid"] == old.pid)
        found[who] = {"seconds": round((end - begin) / 1e9, 4) if end > begin else None,
                      "left_gib": sum(n for _, _, n in out) / GIB, "spared_gib": spared / GIB}
        time.sleep(0.5)
    out_after, in_after = moved(part, subject)
    return {"give_way_s": found[rival]["seconds"], "come_back_s": found[subject]["seconds"],
            "left_gib": round(found[rival]["left_gib"], 2), "spared_gib": round(found[rival]["spared_gib"], 2),
            "out_gib": round((out_after - out_before) / GIB, 2), "in_gib": round((in_after - in_before) / GIB, 2)}


def cycles(part, subject, rival, order, cache=False):
    """Runs the cycles and takes medians. cache: most of the subject's memory is cache. The subject may give it up
    instead of being evicted. It then needs new memory, so there is no restore to measure."""
    for _ in range(2):  # allocates all memory that the order needs, and takes the card
        work(part, subject, order)
    time.sleep(0.5)
    found = [cycle(part, subject, rival, order, cache) for _ in range(CYCLES)][1:]
    medians = {}
    for key in found[0]:
        known = [c[key] for c in found if c[key] is not None]
        medians[key] = round(statistics.median(known), 4) if known else None
    return {"medians": medians, "cycles": found}


def end(part, processes):
    for p in processes:
        p.close()
    for p in processes:
        p.wait(part.deadline)


def weights(part, result):
    """Inference and the training of an adapter on 60 GiB of weights: once all memory is copied, once only changed
    memory."""
    part.daemon(quantum="100ms")
    result.update({"weights_gib": WEIGHTS_GIB, "rival_gib": RIVAL_GIB})
    for mode in MODES:
        subject = tenant(part, f"weights-{mode}", "weights", WEIGHTS_GIB, SUBLET_UNCHANGED=mode)
        subject.expect("ready", part.deadline)
        rival = tenant(part, f"rival-{mode}", "zeros", RIVAL_GIB)
        rival.expect("ready", part.deadline)
        for order in ("infer", "train"):
            result.setdefault(order, {})[mode] = cycles(part, subject, rival, order)
        end(part, [subject, rival])


def preallocated(part, result):
    """A JAX process that has just preallocated its memory."""
    part.daemon(quantum="100ms")
    for mode in MODES:
        subject = tenant(part, f"jax-{mode}", "jax", SUBLET_UNCHANGED=mode, **JAX)
        subject.expect("ready", part.deadline)
        rival = tenant(part, f"rival-{mode}", "zeros", RIVAL_GIB)
        rival.expect("ready", part.deadline)
        result.setdefault("work", {})[mode] = cycles(part, subject, rival, "work")
        end(part, [subject, rival])


PARTS = {
    "unchanged": (weights, 170),
    "preallocated": (preallocated, 100),
}
SUBJECTS = {"infer": f"inference, {WEIGHTS_GIB} GiB of weights", "train": f"an adapter trained on {WEIGHTS_GIB} GiB",
            "work": "JAX, just preallocated"}


def seconds(mode, key):
    """Returns the median, the least and the greatest value as text."""
    every = [c[key] for c in mode["cycles"] if c[key] is not None]
    return f"{mode['medians'][key]:.3f} s ({min(every):.3f} to {max(every):.3f})"


ABOUT = ("Memory that is zero, or unchanged since it was last in host memory, leaves without a copy. So a program gives way faster: in each"
         " row the first time is with this, the second one with everything copied.")


def figures(parts):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    out = []
    for part in PARTS:
        for order, modes in parts.get(part, {}).items():
            if order not in SUBJECTS or any(m not in modes for m in MODES):
                continue
            never, auto = (modes[m]["medians"] for m in MODES)
            for what, key, copied in (("gives way", "give_way_s", "out_gib"), ("comes back", "come_back_s", "in_gib")):
                left = f", of {auto['left_gib']:.1f} that leave" if copied == "out_gib" else ""
                out.append((f"{SUBJECTS[order]}: {what}",
                            f"{seconds(modes['auto'], key)} and {auto[copied]:.1f} GiB copied, against"
                            f" {seconds(modes['never'], key)} and {never[copied]:.1f} GiB{left}",
                            *pages.no_slower(auto[key], never[key])))
    return out


def page(results):
    return [
        *pages.table(figures(results["parts"])),
        *pages.unfinished(results["parts"]),
        "`./dev gpu --only unchanged,preallocated` runs these parts (`tests/gpu/unchanged.py`). The figures are medians of"
        f" {CYCLES - 1} hand-offs each way (smallest and largest in brackets), with `SUBLET_UNCHANGED=auto` against `never`. The other"
        f" process holds {RIVAL_GIB} GiB that it has never written to. {CYCLES - 1} hand-offs are too few to show differences below"
        f" {pages.SLOWER_PERCENT} %.", "",
        "Giving way lasts from the first extent that leaves until the other process can run. Coming back is measured in the same"
        " way. Contents are compared at the end.",
        "",
    ]
