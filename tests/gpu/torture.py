"""Plain against torture on a real GPU: the driver-API programs through every door, and programs of the runtime API with
the static and the shared runtime. The page also shows the frameworks' part."""

import concurrent.futures
import json
import math
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
EACH_S = 120  # limit of one program: while some are frozen, the kernel driver keeps others waiting
RUNTIME = os.path.join(suite.ROOT, "tests", "programs", "runtime")
RUNTIME_TORTURE = "calls=20,every=5ms"
# The result of a good run, by the outcome of the plain run; every other result is wrong.
GOOD = {"well": "equal", "sums recomputed": "sums right"}
PLAIN_FAILED = "plain failed: "
TOO_FEW = "fewer than two rounds"


def bytes_of(part, pid):
    return [e["bytes"] for e in part.traced() if e["event"] == "torture" and e["pid"] == pid]


def ended(part, p):
    """Waits for the end of a program. Returns None, or the reason why it did not end well."""
    p.close()
    try:
        p.wait(min(part.deadline, time.monotonic() + EACH_S))
    except Failure as e:
        p.kill()
        return str(e)
    return None


def compare(part, plain, others):
    """Returns {name of the run: its result, and how often and how much torture moved}."""
    error = ended(part, plain)
    out = {"plain": error or "well"}
    for name, p in others.items():
        wrong = ended(part, p)
        if not wrong and not error and without_volatile(p.events) != without_volatile(plain.events):
            wrong = "says something else: " + difference(plain.events, p.events)
        times = bytes_of(part, p.pid)
        if not wrong and not sum(times):
            wrong = "never tortured"
        if not wrong and error:
            wrong = PLAIN_FAILED + error
        out[name] = {"result": wrong or "equal", "times": len(times), "gib": round(sum(times) / suite.GIB, 3)}
    return out


def difference(one, other):
    for a, b in zip(without_volatile(one), without_volatile(other)):
        if a != b:
            return f"{json.dumps(a)} has become {json.dumps(b)}"
    return f"{len(one)} lines have become {len(other)}"


def driver_programs(part, result, **env):
    """Driver-API programs through every door, plain against torture."""
    part.daemon(quantum="500ms", unevictable_share="25%")
    end = os.path.join(part.root, "end")
    suite.touch(end)

    def through(door, name, seed, program, *args):
        return part.program(program if door == "linked" else "dl/" + program, *args, name=f"{name}-{door}", PROGRAM_DOOR=door,
                            SUBLET_TORTURE=torture_of(name, seed), **env)

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
                    wrong = TOO_FEW
            except Failure as e:
                wrong = str(e)
            times = bytes_of(part, p.pid)
            result[name][door] = {"result": wrong or ("sums right" if sum(times) else "never tortured"),
                                  "times": len(times), "gib": round(sum(times) / suite.GIB, 3)}

    with concurrent.futures.ThreadPoolExecutor(1 if parts.UNIT == "MiB" else TOGETHER) as pool:
        list(pool.map(lambda n: tangled(n) if n in TANGLED else one(n), [*PROGRAMS, *TANGLED]))


def build(part, source, result):
    """Builds a program with the static and the shared runtime; `threads` also with a default stream for each thread.
    Returns [(name, path without the ending)]."""
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


def runtime_programs(part, result, **env):
    """Programs of the runtime API, static and shared, plain against torture."""
    part.daemon(quantum="500ms", unevictable_share="25%")

    def run(name, stem):
        plain = part.start([stem + "-static"], name + "-plain", False)
        others = {kind: part.start([f"{stem}-{kind}"], f"{name}-{kind}", True,
                                   SUBLET_TORTURE=f"{seed},{RUNTIME_TORTURE}", **env)
                  for seed, kind in enumerate(("static", "shared"), 1)}
        result[name] = compare(part, plain, others)

    def all_of(source):
        for name, stem in build(part, source, result):
            run(name, stem)

    sources = sorted(n for n in os.listdir(RUNTIME) if n.endswith(".cu"))
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        list(pool.map(all_of, sources))


def drained(run):
    """Returns the part with drains only; freezes.py has the same part with freezing."""
    def part(*arguments):
        run(*arguments, SUBLET_FREEZE="off")
    part.__doc__ = run.__doc__
    return part


PARTS = {"torture-driver": (drained(driver_programs), 150), "torture-runtime": (drained(runtime_programs), 150),
         "frameworks": (drained(frameworks.frameworks), 360)}


# ---- the page ----


def said_of(row, run):
    """Returns the result of a run. Earlier measurements say "equal" also for recomputed sums and after a failed plain
    run."""
    if run["result"] not in GOOD.values():
        return run["result"]
    return GOOD.get(row["plain"], PLAIN_FAILED + row["plain"])


def runs_of(row):
    return {w: r for w, r in row.items() if isinstance(r, dict)}


def programs_of(parts, name):
    """Returns {program: (its row, {run: result})}. Only the plain run is in it if the program has no other run."""
    rows = {n: r for n, r in parts.get(name, {}).items() if isinstance(r, dict) and "plain" in r}
    return {n: (r, {w: said_of(r, x) for w, x in runs_of(r).items()}
                or {"plain": "no runs" if r["plain"] in GOOD else r["plain"]}) for n, r in rows.items()}


def workloads_of(parts):
    """Returns {workload: {run: result}} for the workloads that can run here."""
    rows = {n: r for n, r in parts.get("frameworks", {}).items() if n in frameworks.CASES}
    return {n: {w: r[w] for w in ("sublet", "torture")} if "torture" in r else {"plain": r.get("plain", "no runs")}
            for n, r in rows.items() if not r.get("plain", "").startswith(frameworks.NOT_HERE)}


def wrongs(said, good=tuple(GOOD.values())):
    """Returns {fault: the runs that show it}."""
    found = {}
    for run, text in said.items():
        if text not in good:
            found.setdefault(text, []).append(run)
    return found


def workload_wrongs(said):
    return wrongs(said, ("equal", "close"))


ABOUT = ("Are results right, wherever in a program its memory moves? `SUBLET_TORTURE` evicts and restores the memory before random"
         " calls and at random moments ([operations.md](../operations.md#torture)). A program must compute the same as on the plain"
         " driver.")


def figures(parts):
    out = []
    for name, plain, what in (("torture-driver", True, "driver-API programs, by each way to the driver: equal to the plain driver's"),
                              ("torture-driver", False, "driver-API programs, by each way to the driver: recomputed sums right"),
                              ("torture-runtime", True, "runtime-API programs, static and shared: equal to the plain driver's")):
        programs = {n: p for n, p in programs_of(parts, name).items() if (p[0]["plain"] != "sums recomputed") == plain}
        if programs:
            said = [text for _, runs in programs.values() for text in runs.values()]
            well = sum(text in GOOD.values() for text in said)
            moved = sum(x["times"] for row, _ in programs.values() for x in runs_of(row).values())
            out.append((what, f"{well} of {len(said)} runs of {len(programs)} programs, tortured {moved:,} times", "all",
                        well == len(said)))
    f = workloads_of(parts)
    if f:
        well = sum(not workload_wrongs(said) for said in f.values())
        rows = [parts["frameworks"][n] for n in f if "torture" in parts["frameworks"][n]]
        out.append(("frameworks, under sublet and under torture: equal to the plain driver's, or close",
                    f"{well} of {len(f)} workloads, tortured {sum(r['times'] for r in rows):,} times,"
                    f" {math.fsum(r['gib'] for r in rows):.0f} GiB moved out", "all", well == len(f)))
    return out


def programs_table(parts, name):
    lines = ["| program | result | tortured, times | moved out, GiB |", "|---|---|---|---|"]
    for n, (row, said) in sorted(programs_of(parts, name).items()):
        runs, bad = runs_of(row).values(), "; ".join(f"{', '.join(w)}: {text}" for text, w in wrongs(said).items())
        result = f"**{cell(bad, 90)}**" if bad else f"{GOOD[row['plain']]}: {', '.join(said)}"
        lines.append(f"| {n} | {result} | {sum(x['times'] for x in runs)} | {math.fsum(x['gib'] for x in runs):.2f} |")
    return lines


def frameworks_table(parts):
    lines = ["| workload | two plain runs | under sublet | under torture | times | moved out, GiB | seconds: plain, sublet,"
             " torture |", "|---|---|---|---|---|---|---|"]
    for n in frameworks.CASES:
        r = parts["frameworks"].get(n)
        if not isinstance(r, dict):
            continue
        if "torture" not in r:
            lines.append(f"| {n} | {cell(r.get('plain', 'no runs'))} | | | | | |")
            continue
        far = {w: f" ({r['apart'][w]:.1e})" if r.get("apart", {}).get(w) else "" for w in ("sublet", "torture")}
        marks = {w: r[w] + far[w] if r[w] in ("equal", "close") else f"**{cell(r[w])}**" for w in far}
        seconds = ", ".join("–" if s is None else f"{s:.1f}" for s in r["seconds"].values())
        lines.append(f"| {n} | {cell(r['plain'])} | {marks['sublet']} | {marks['torture']} | {r['times']} | {r['gib']} |"
                     f" {seconds} |")
    return lines


def not_equal(parts):
    """Returns every wrong run, with all that is known of it."""
    said = [(n, wrongs(runs)) for name in ("torture-driver", "torture-runtime")
            for n, (_, runs) in sorted(programs_of(parts, name).items())]
    said += [(n, workload_wrongs(runs)) for n, runs in workloads_of(parts).items()]
    lines = [f"- `{n}` ({', '.join(w)}): {cell(text, 900)}" for n, bad in said for text, w in bad.items()]
    short = ("*Fewer than two rounds* means that the program ended before two of its rounds could be recomputed. No word of it was wrong.", "")
    few = any(TOO_FEW in bad for _, bad in said)
    return ["## What is not equal, or was not checked", "", *lines, "", *(short if few else ())] if lines else []


# Programs of tests/programs that are tortured on the simulator, but not by this suite.
NOT_TORTURED = {
    "managed": "managed memory of its own", "edit": "contents that hardly change",
    "revive": "a primary context that is released and retained", "pair": "two processes that wait for each other",
    "broken": "a context that fails", "oom": "a full card", "roam": "random calls",
    "leave": "threads and processes that leave", "share": "CUDA IPC", "buffers": "overflow, priorities",
}
ELSEWHERE = (
    "Some programs were tortured on the simulator only (`tests/system/test_torture.py`), not on a GPU:", "",
    "| program | what it has |", "|---|---|", *(f"| `{n}` | {what} |" for n, what in NOT_TORTURED.items()), "",
    "The memory modes *overflow* and *managed* were tortured only on the simulator, too. So were programs beside hand-offs, beside"
    " crashes of the daemon, and without a daemon.", "",
    "Programs with managed memory and CUDA IPC were tortured on a GPU, too: the runtime-API programs `managed` and `ipc`, and some"
    " workloads, below."
    " [The page on devices](h200-devices.md) has `peers` (two GPUs) and `share` with memory for a device (dma-buf).")


def page(results):
    parts = results["parts"]
    lines = pages.table(figures(parts))
    if programs_of(parts, "torture-driver"):
        lines += ["## Driver-API programs", "", "*Equal* means that the program's output is the same as on the plain driver. *Sums"
                  " right* means that the program"
                  " does not run on the plain driver. It checks its memory itself, and its sums are recomputed on the processor. The"
                  " words after the colon say how the program finds the driver.", "",
                  *programs_table(parts, "torture-driver"), "", *ELSEWHERE, ""]
    if programs_of(parts, "torture-runtime"):
        lines += ["## Runtime-API programs", "", *programs_table(parts, "torture-runtime"), ""]
    if "frameworks" in parts:
        versions = ", ".join(f"{k} {v}" for k, v in parts["frameworks"].get("versions", {}).items())
        lines += ["## Frameworks", "", f"{versions}.", "",
                  "*Equal* means that all bits of all results are equal. *Close* means that two plain runs differ, too. A value"
                  f" differs from the first plain run by at most {frameworks.CLOSE_FACTOR} times the difference of the plain runs"
                  f" (or {frameworks.CLOSE:g} if that is more)."
                  f"{' In brackets: how far.' if any(isinstance(r, dict) and 'apart' in r for r in parts['frameworks'].values()) else ''}",
                  "", "Three values of the first 20 arrays of a result are compared: the mean, the mean of magnitudes and the middle element."
                  " A difference is relative to the sum of both magnitudes. Several workloads run at the same time, so the"
                  " seconds can be compared only roughly.", "", *frameworks_table(parts), ""]
    return lines + [
        *not_equal(parts),
        *pages.unfinished(parts),
        f"`./dev gpu --only {','.join(PARTS)}` runs these parts (`tests/gpu/torture.py`, `tests/gpu/frameworks.py`,"
        " `tests/gpu/workloads`). The programs are `tests/programs/*.c` (`families.py` lists them with their arguments) and"
        " `tests/programs/runtime/*.cu`.",
        "",
    ]
