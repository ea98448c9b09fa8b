"""Plain against torture on a real GPU: the driver-API programs through every door, and programs of the runtime API with
the static and the shared runtime. And the page, which shows the frameworks' part, too."""

import concurrent.futures
import json
import os
import subprocess
import sys
import time

import frameworks
import pages
import parts
import suite
from pages import cell
from suite import Failure

sys.path.insert(0, os.path.join(suite.ROOT, "tests", "programs"))

from families import DOORS, PROGRAMS, TANGLED, torture_of, without_volatile  # noqa: E402

TOGETHER = 6
EACH_S = 40  # what a program may take
RUNTIME = os.path.join(suite.ROOT, "tests", "programs", "runtime")
RUNTIME_TORTURE = "calls=20,every=5ms"


def bytes_of(part, pid):
    return [e["bytes"] for e in part.traced() if e["event"] == "torture" and e["pid"] == pid]


def ended(part, p):
    """None, or why not well."""
    p.close()
    try:
        p.wait(min(part.deadline, time.monotonic() + EACH_S))
    except Failure as e:
        p.kill()
        return str(e)
    return None


def compare(part, plain, others):
    """name -> what came of it, and how often it was tortured."""
    error = ended(part, plain)
    out = {"plain": error or "well"}
    for name, p in others.items():
        wrong = ended(part, p)
        if not wrong and not error and without_volatile(p.events) != without_volatile(plain.events):
            wrong = "says something else: " + difference(plain.events, p.events)
        times = bytes_of(part, p.pid)
        if not wrong and not sum(times):
            wrong = "never tortured"
        out[name] = {"result": wrong or "equal", "times": len(times), "gib": round(sum(times) / suite.GIB, 3)}
    return out


def difference(one, other):
    for a, b in zip(without_volatile(one), without_volatile(other)):
        if a != b:
            return f"{json.dumps(a)} has become {json.dumps(b)}"
    return f"{len(one)} lines have become {len(other)}"


def driver_programs(part, result):
    """Driver-API programs through every door, plain against torture."""
    part.daemon(quantum="500ms", fixed_share="25%")
    end = os.path.join(part.root, "end")
    suite.touch(end)

    def through(door, name, seed, program, *args):
        return part.program(program if door == "linked" else "dl/" + program, *args, name=f"{name}-{door}", PROGRAM_DOOR=door,
                            SUBLET_TORTURE=torture_of(name, seed))

    def one(name):
        args = [name, *PROGRAMS[name], "--seed", 11]
        plain = part.program(*args, name=f"{name}-plain", shared=False)
        others = {}
        for seed, door in enumerate(DOORS, 1):
            others[door] = through(door, name, seed, *args)
        result[name] = compare(part, plain, others)

    def tangled(name):
        result[name] = {"plain": "sums recomputed"}
        runs = {}
        for seed, door in enumerate(DOORS, 5):
            runs[door] = through(door, name, seed, *TANGLED[name], "--seed", seed, "--until", end)
        for door, p in runs.items():
            wrong = ended(part, p)
            try:
                if not wrong and part.check_sums(p, 1) < 2:
                    wrong = "fewer than two rounds"
            except Failure as e:
                wrong = str(e)
            times = bytes_of(part, p.pid)
            result[name][door] = {"result": wrong or ("equal" if sum(times) else "never tortured"),
                                  "times": len(times), "gib": round(sum(times) / suite.GIB, 3)}

    with concurrent.futures.ThreadPoolExecutor(1 if parts.UNIT == "MiB" else TOGETHER) as pool:
        list(pool.map(lambda n: tangled(n) if n in TANGLED else one(n), [*PROGRAMS, *TANGLED]))


def build(part, source, result):
    """[(what it is called, its path)]: with the static and the shared runtime, and where it is about that, with a default
    stream for each thread."""
    name, nvcc, built = os.path.splitext(source)[0], suite.nvcc(), []
    for streams in (("legacy", "per-thread") if name == "threads" else ("legacy",)):
        stem = os.path.join(part.root, f"{name}-{streams}")
        for argv in ([nvcc, "-O2", "-std=c++17", "-arch=native", "--default-stream", streams, "-c",
                      os.path.join(RUNTIME, source), "-o", stem + ".o"],
                     [nvcc, "-arch=native", "-cudart", "static", stem + ".o", "-o", stem + "-static"],
                     [nvcc, "-arch=native", "-cudart", "shared", stem + ".o", "-o", stem + "-shared"]):
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                  timeout=max(part.left(), 1))
            if done.returncode != 0:
                result[f"{name}-{streams}"] = {"plain": "does not build: " + done.stdout[-500:]}
                return built
        built += [(f"{name}-per-thread" if streams != "legacy" else name, stem)]
    return built


def runtime_programs(part, result):
    """Programs of the runtime API, static and shared, plain against torture."""
    part.daemon(quantum="500ms", fixed_share="25%")

    def run(name, stem):
        plain = part.start([stem + "-static"], name + "-plain", False)
        others = {kind: part.start([f"{stem}-{kind}"], f"{name}-{kind}", True,
                                   SUBLET_TORTURE=f"{seed},{RUNTIME_TORTURE}")
                  for seed, kind in enumerate(("static", "shared"), 1)}
        result[name] = compare(part, plain, others)

    def all_of(source):
        for name, stem in build(part, source, result):
            run(name, stem)

    sources = sorted(n for n in os.listdir(RUNTIME) if n.endswith(".cu"))
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        list(pool.map(all_of, sources))


PARTS = {"torture-driver": (driver_programs, 150), "torture-runtime": (runtime_programs, 150), **frameworks.PARTS}


# ---- the page ----


def counted(parts, name):
    """(well, all, those that are not) of a part with programs."""
    rows = {n: r for n, r in parts.get(name, {}).items() if isinstance(r, dict) and "plain" in r}
    runs = {(n, w): r[w] for n, r in rows.items() for w in r if isinstance(r[w], dict)}
    return rows, runs


def figures(parts):
    out = []
    for name, what in (("torture-driver", "driver-API programs through their doors"),
                       ("torture-runtime", "runtime-API programs, static and shared")):
        rows, runs = counted(parts, name)
        if rows:
            well = sum(r["result"] == "equal" for r in runs.values())
            moved = sum(r["times"] for r in runs.values())
            out.append((f"{what}: equal to the plain driver's", f"{well} of {len(runs)} runs of {len(rows)} programs,"
                        f" tortured {moved} times", "all", well == len(runs)))
    f = [r for r in parts.get("frameworks", {}).values() if isinstance(r, dict) and "torture" in r]
    if f:
        well = sum(r["torture"] in ("equal", "close") for r in f)
        out.append(("frameworks: equal to the plain driver's", f"{well} of {len(f)} workloads, tortured"
                    f" {sum(r['times'] for r in f)} times, {sum(r['gib'] for r in f):.0f} GiB moved out", "all", well == len(f)))
    return out


def programs_table(parts, name):
    rows, _ = counted(parts, name)
    lines = ["| program | result | tortured, times | moved out, GiB |", "|---|---|---|---|"]
    for n, r in sorted(rows.items()):
        runs = {w: x for w, x in r.items() if isinstance(x, dict)}
        wrong = {w: x["result"] for w, x in runs.items() if x["result"] != "equal"}
        said = "; ".join(f"{w}: {cell(x)}" for w, x in wrong.items()) or ("equal: " + ", ".join(runs) if runs else r["plain"])
        lines.append(f"| {n} | {'**' + said + '**' if wrong else cell(said)} | {sum(x['times'] for x in runs.values())} |"
                     f" {sum(x['gib'] for x in runs.values()):.2f} |")
    return lines


def frameworks_table(parts):
    lines = ["| workload | two plain runs | under sublet | under torture | times | moved out, GiB | seconds: plain, sublet,"
             " torture |", "|---|---|---|---|---|---|---|"]
    for n in frameworks.CASES:
        r = parts["frameworks"].get(n)
        if not isinstance(r, dict):
            continue
        if "torture" not in r:
            lines.append(f"| {n} | {cell(r['plain'])} | | | | | |")
            continue
        far = {w: f" ({r['apart'][w]:.1e})" if r.get("apart", {}).get(w) else "" for w in ("sublet", "torture")}
        marks = {w: r[w] + far[w] if r[w] in ("equal", "close") else f"**{cell(r[w])}**" for w in far}
        seconds = ", ".join("–" if s is None else f"{s:.1f}" for s in r["seconds"].values())
        lines.append(f"| {n} | {cell(r['plain'])} | {marks['sublet']} | {marks['torture']} | {r['times']} | {r['gib']} |"
                     f" {seconds} |")
    return lines


def page(results):
    parts = results["parts"]
    lines = [
        "`SUBLET_TORTURE` evicts and restores a program's memory before random calls and at random moments"
        " ([operations.md](../operations.md#torture)). What a program computes must be what it computes on the plain driver.",
        "",
    ]
    for name, title in (("torture-driver", "Driver-API programs"), ("torture-runtime", "Runtime-API programs")):
        if counted(parts, name)[0]:
            lines += [f"## {title}", "", *programs_table(parts, name), ""]
    if "frameworks" in parts:
        versions = ", ".join(f"{k} {v}" for k, v in parts["frameworks"].get("versions", {}).items())
        lines += ["## Frameworks", "", f"{versions}. *Equal*: all bits of all results. *Close*: two plain runs are not equal"
                  " either, and none of the values compared (of the first 20 arrays of a result the mean, the mean of magnitudes and the element in the"
                  " middle; the difference by the sum of both magnitudes) is further from the first of them than"
                  f" {frameworks.CLOSE_FACTOR} times what the two are apart, or than {frameworks.CLOSE:g} where that is less"
                  f"{'; how far is said' if any(isinstance(r, dict) and 'apart' in r for r in parts['frameworks'].values()) else ''}."
                  " Several workloads run at the same time, so the seconds compare only roughly.", "", *frameworks_table(parts), ""]
        wrong = {n: r for n, r in parts["frameworks"].items()
                 if isinstance(r, dict) and r.get("torture", "equal") not in ("equal", "close")}
        if wrong:
            lines += ["### What breaks", ""] + [f"- `{n}`: {cell(r['torture'], 900)}" for n, r in wrong.items()] + [""]
    return lines + [
        *pages.unfinished(parts),
        f"`./dev gpu --only {','.join(PARTS)}` runs these parts (`tests/gpu/torture.py`, `tests/gpu/frameworks.py`,"
        " `tests/gpu/workloads`). The programs are `tests/programs/*.c` (`families.py` lists them with their arguments) and"
        " `tests/programs/runtime/*.cu`.",
        "",
    ]
