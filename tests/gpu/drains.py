"""The parts about draining programs with work in flight, and their page."""

import os

import pages
import suite
from parts import size, wait_until
from suite import Failure

LENGTHS_MS = (1, 5, 20, 50)
EACH_GIB = 72  # two of these take little more than the card, so that hand-offs are short and many
SECONDS_EACH = 18
BEYOND_MS = 10.0
# "inside" is left out: on an H200 it waits for ever without sublet, too.
ENTANGLED = ("value", "write", "kernel", "host", "function", "fullhost", "full")
ENTANGLED_SECONDS = 14


def spread(values):
    """Returns the median, the 99th percentile (the greatest of fewer than a hundred) and the greatest of a list."""
    v = sorted(values)
    return {"n": len(v), "p50": round(v[len(v) // 2], 2), "p99": round(v[min(len(v) - 1, int(len(v) * 0.99))], 2),
            "max": round(v[-1], 2)}


def drains(part, result):
    """Measures how much longer than the longest kernel a drain takes, beside a program that competes."""
    part.daemon(quantum="200ms")
    for ms in LENGTHS_MS:
        end = os.path.join(part.root, f"end-{ms}")
        until = part.left() - SECONDS_EACH
        if until < 10:
            raise Failure(f"no time left for kernels of {ms} ms")
        # Each program submits a second of work at a time: far more than the throttle allows in flight.
        pair = [part.program("burst", "--bytes", size(EACH_GIB), "--block", size(1), "--ms", ms, "--count",
                             max(20, 1000 // ms), "--seed", seed, "--until", end, name=f"burst-{ms}-{seed}",
                             SUBLET_FREEZE="off")
                for seed in (1, 2)]
        from_ns = max(p.expect("filled", part.deadline)["at"] for p in pair)
        wait_until(part, lambda u=until: part.left() < u, "end of the time")
        events = [e for e in part.traced() if e["t_ns"] > from_ns]
        suite.touch(end)
        for p in pair:
            p.wait(part.deadline)
            part.check_sums(p, 1)
        took = [(e - b) / 1e6 for p in pair for b, e, _ in suite.episodes(events, p.pid, "drain")]
        if len(took) < 10:
            raise Failure(f"only {len(took)} drains of kernels of {ms} ms")
        result[f"{ms}_ms"] = {"drain_ms": spread(took), "beyond_ms": spread([t - ms for t in took]),
                              "failed": sum(e["event"] == "drain_failed" for e in events),
                              "all_ms": [round(t, 2) for t in took]}


def entangled(part, result):
    """Programs with captures, or with work in flight that waits for work held at the gate, are frozen."""
    part.daemon(quantum="300ms", patience="500ms")
    programs = [("depend", 48, ("--how", how, "--ms", 50)) for how in ENTANGLED]
    programs += [("captures", 48, ("--how", how, "--count", 4, "--ms", 100)) for how in ("global", "local", "relaxed")]
    programs += [("captures", 24, ("--how", "free", "--count", 12, "--ms", 100))]  # allocates the same bytes again
    rival_end = os.path.join(part.root, "end")
    rival = part.program("fill", "--bytes", size(100), "--block", size(1), "--seed", 9, "--until", rival_end)
    rival.expect("filled", part.deadline)
    for program, gib, args in programs:
        end = os.path.join(part.root, f"end-{program}-{args[1]}")
        name = f"{program}-{args[1]}"
        if part.left() < ENTANGLED_SECONDS + 5:
            raise Failure(f"no time left for {name}")
        p = part.program(program, *args, "--bytes", size(gib), "--block", size(1), "--seed", 5, "--rounds", 2, "--until",
                         end, name=name, SUBLET_FREEZE="move")
        p.expect("filled", part.deadline)
        until = part.left() - ENTANGLED_SECONDS / 2
        wait_until(part, lambda u=until: part.left() < u, "end of the time")
        suite.touch(end)
        p.wait(part.deadline)
        events = [e for e in part.traced() if e["pid"] == p.pid]
        result[name] = {"rounds_recomputed": part.check_sums(p, 1), "drains": len(suite.episodes(events, p.pid, "drain")),
                        "failed": sum(e["event"] == "drain_failed" for e in events),
                        "frozen": sum(e["event"] == "frozen" for e in events)}
    suite.touch(rival_end)
    rival.wait(part.deadline)
    part.check_sums(rival, max(1, len(rival.of("round")) // 3))


PARTS = {
    "drains": (drains, 150),
    "entangled": (entangled, 240),
}


ABOUT = ("A program that cannot be frozen is *drained* at the end of its turn: what it has submitted runs to its end. So the next program"
         " waits for the longest kernel, and for the time shown here. A program that is [frozen](../freezing.md) stops at once.")


def figures(parts):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    out = []
    for name, r in parts.get("drains", {}).items():
        if isinstance(r, dict) and "beyond_ms" in r:
            b = r["beyond_ms"]
            out.append((f"kernels of {name.replace('_', ' ')} back to back, beside a competitor, {b['n']} drains: drain time beyond the longest"
                        " kernel", f"median {b['p50']} ms, p99 {b['p99']} ms, most {b['max']} ms",
                        f"at most {BEYOND_MS:g} ms", b["p99"] <= BEYOND_MS))
    for name, r in parts.get("entangled", {}).items():
        if isinstance(r, dict):
            out.append((f"`{name}`",
                        f"{r['drains'] + r['failed']} drains, {r['failed']} of them failed; {r.get('frozen', 0)} times frozen;"
                        f" {r['rounds_recomputed']} rounds compared", "", None))
    return out


def page(results):
    return [
        *pages.table(figures(results["parts"])),
        *pages.unfinished(results["parts"]),
        "`./dev gpu --only drains,entangled` runs these parts (`tests/gpu/drains.py`). A drain lasts from REVOKE to DRAINED"
        " (`SUBLET_TRACE`). For the rows with kernels, `tests/programs/burst.c` runs twice, with"
        f" {EACH_GIB} GiB each, and submits a second of work at a time. A drain may begin in the middle of a kernel, so the figure may be"
        " negative.", "",
        "The `depend-…` programs have work in flight that waits for later calls (`tests/programs/depend.c`). The `captures-…`"
        " programs capture graphs slowly, by several threads at once (`tests/programs/captures.c`).",
        "",
        "The throttle learns from the last submissions how many may be in flight. Here, programs go from short work (filling"
        " their memory) to kernels of 20 or 50 ms. At that moment, about twenty long kernels are in flight. Each program's first"
        " drain waits for them, and gives the longest time of its row. A program that is frozen needs no throttle.",
        "",
    ]
