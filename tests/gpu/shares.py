"""Programs of classes with shares of the time, which do not fit together, and their page: how far from its share each
class is, by the daemon's figures and by the steps that the programs did."""

import os
import time

import pages
import parts
import suite
from parts import size
from suite import Failure

EACH_GIB = 12
CAPACITY_GIB = 20
UNEVICTABLE = "25%"   # of the capacity: each of up to four programs has two contexts
# Name: what its page calls it, and the share that each class asks for in percent. These are the classes' weights.
SCENARIOS = {"two": ("5:95", (5, 95)), "four": ("four equal", (25, 25, 25, 25))}
# Shorter turns come first: what a class is ahead or behind at the end of a window counts in the next one, too.
QUANTA = ("2s", "auto")
# At first, until each program has pinned its host memory. Pinning makes a hand-off slow, and a class with a small share takes
# long to pay for it.
WARM_QUANTUM, WARM_HANDOFFS, WARM_MOST_S = "200ms", 2, 20
WINDOW_S, ALONE_S = 60, 4
GOAL_POINTS = 3


def seconds(n):
    return n / 20 if suite.rehearsing() else n


def room(gib):
    """Returns a size. The contexts of a simulated card are larger in proportion."""
    return size(gib * 5 if suite.rehearsing() else gib)


def names(label):
    return [f"{label}-{i}" for i in range(len(SCENARIOS[label][1]))]


def settings(quantum):
    """Returns the daemon's settings, and a class for each program, which its name tells."""
    classes = {name: {"name": name, "weight": weight}
               for label, (_, asked) in SCENARIOS.items() for name, weight in zip(names(label), asked)}
    return {"classes": classes, "capacity": room(CAPACITY_GIB), "unevictable_share": UNEVICTABLE, "quantum": quantum}


def steps(p, begin_ns, end_ns):
    return sum(1 for e in p.of("round") if begin_ns <= e.get("at", 0) < end_ns)


def rest(part, programs, period):
    """Lets the programs run for so long. Fails if one ends."""
    until = time.monotonic() + period
    while time.monotonic() < until:
        gone = [p.tail() for p in programs if p.process.poll() is not None]
        if gone:
            raise Failure(f"ended early: {gone[0]}")
        if part.left() < 0:
            raise Failure("the time is up")
        time.sleep(max(min(0.2, until - time.monotonic()), 0))


def now(part, programs):
    """Returns the moment, the card's figures, and those of each program."""
    t_ns, gpu = time.monotonic_ns(), part.gpu()
    clients = {c["pid"]: c for c in gpu["clients"]}
    return t_ns, gpu, [clients[p.pid] for p in programs]


def percent(values):
    total = sum(values)
    return [round(100 * n / total, 2) if total else None for n in values]


def error(got, asked):
    return None if None in got else round(max(abs(g - a) for g, a in zip(got, asked)), 2)


def window(part, programs, asked, alone):
    """Measures what each program gets for a while. alone: steps a second of a program that is alone."""
    begin_ns, gpu, before = now(part, programs)
    rest(part, programs, seconds(WINDOW_S))
    end_ns, gpu_then, after = now(part, programs)
    took = (end_ns - begin_ns) / 1e9
    time_s = [b["gpu_time_s"] - a["gpu_time_s"] for a, b in zip(before, after)]
    done = [steps(p, begin_ns, end_ns) for p in programs]
    by_time, by_steps = percent(time_s), percent(done)
    return {"seconds": round(took, 2), "turn_s": round(gpu_then["quantum_s"], 2), "asked_percent": list(asked),
            "gpu_time_s": [round(s, 3) for s in time_s], "steps": done, "time_percent": by_time, "steps_percent": by_steps,
            "speed_percent_of_alone": [round(100 * n / took / alone, 2) for n in done],
            "handoffs": gpu_then["handoffs"] - gpu["handoffs"], "lost_s": round(took - sum(time_s), 2) + 0.0,
            "moved_out_gib": round(sum(b["moved_out"] - a["moved_out"] for a, b in zip(before, after)) / parts.GIB, 1),
            "error_points": {"time": error(by_time, asked), "steps": error(by_steps, asked)}}


def warmed(part, programs):
    """Waits until each program has given way twice, or once if that takes long. Returns the seconds."""
    began = time.monotonic()

    def enough():
        least = min(c["handoffs"] for c in now(part, programs)[2])
        return least >= WARM_HANDOFFS or (least and time.monotonic() - began > WARM_MOST_S)

    parts.wait_until(part, enough, "hand-offs of each program")
    return round(time.monotonic() - began, 1)


def fill(part, name, seed, end):
    return part.program("fill", "--bytes", room(EACH_GIB), "--block", size(1), "--seed", seed, "--until", end, "--sample",
                        os.path.join(part.root, f"sample-{name}"), name=name)


def scenario(part, label, result):
    asked, end = SCENARIOS[label][1], os.path.join(part.root, f"end-{label}")
    part.reload(**settings(WARM_QUANTUM))
    programs = []
    for seed, name in enumerate(names(label), 1):
        programs.append(fill(part, name, seed, end))
        if seed == 1:  # the programs are alike, so one tells how fast each of them is alone
            programs[0].expect("round", part.deadline)
            begin_ns = time.monotonic_ns()
            rest(part, programs, seconds(ALONE_S))
            end_ns = time.monotonic_ns()
            alone = steps(programs[0], begin_ns, end_ns) * 1e9 / (end_ns - begin_ns)
            result["steps_s_alone"] = round(alone, 2)
            if not alone:
                raise Failure(f"no step of {name} in {seconds(ALONE_S):g} s")
    for p in programs:
        p.expect("round", part.deadline)
    for name, c in zip(names(label), now(part, programs)[2]):
        if c["class"] != name:
            raise Failure(f"{name} is in class {c['class']}")
    result["warm_s"] = warmed(part, programs)
    for quantum in QUANTA:
        part.reload(**settings(quantum))
        result[quantum] = window(part, programs, asked, alone)
        print(SCENARIOS[label][0], quantum, result[quantum]["error_points"], flush=True)
    suite.touch(end)
    for p in programs:
        p.wait(part.deadline)
    result["rounds_recomputed"] = [part.check_sums(p, max(1, len(p.of("round")) // 2)) for p in programs]
    result["words_compared"] = [part.check_sample(os.path.join(part.root, f"sample-{name}")) for name in names(label)]


def shares(part, result):
    """Two classes with shares of 5 and 95, and four equal ones, past memory, at two lengths of turns."""
    part.daemon(**settings(WARM_QUANTUM))
    result.update(each_gib=EACH_GIB, capacity_gib=CAPACITY_GIB)
    for label in SCENARIOS:
        scenario(part, label, result.setdefault(label, {}))
    for label, (what, _) in SCENARIOS.items():  # a window of long turns may have none
        if not result[label][QUANTA[0]]["handoffs"]:
            raise Failure(f"classes {what}, `quantum = {QUANTA[0]}`: no hand-off")


PARTS = {"shares": (shares, 420)}


def measured(found):
    """Returns (name of the scenario, quantum, its figures) of all windows."""
    r = found.get("shares", {})
    return [(SCENARIOS[label][0], quantum, r[label][quantum]) for label in SCENARIOS for quantum in QUANTA
            if quantum in r.get(label, {})]


ABOUT = ("Classes may have [shares](../configuration.md) of the GPU's time. This page says how near to its share each class comes within a"
         " minute, if memory has to move at each turn. Shorter turns come nearer, and lose more time.")


def figures(found):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    out = []
    for name, quantum, w in measured(found):
        errors = [e for e in w["error_points"].values() if e is not None]
        out.append((f"classes {name} for {w['seconds']:.0f} s, `quantum = {quantum}`: largest error of a share",
                    f"{w['error_points']['time']} points of the time, {w['error_points']['steps']} of the steps",
                    f"at most {GOAL_POINTS} points", len(errors) == 2 and max(errors) <= GOAL_POINTS))
    checked = [found["shares"][label] for label in SCENARIOS if "words_compared" in found.get("shares", {}).get(label, {})]
    if checked:
        out.append(("memory of all programs at the end", f"{sum(sum(r['words_compared']) for r in checked)} words right, sums of"
                    f" {sum(sum(r['rounds_recomputed']) for r in checked)} steps recomputed", "right", len(checked) == len(SCENARIOS)))
    return out


def listed(values):
    return ", ".join(f"{v:g}" if v is not None else "none" for v in values)


def page(results):
    found = results["parts"]
    lines = pages.table(figures(found))
    windows = measured(found)
    if windows:
        lines += ["| shares asked (%) | quantum | a turn | share of the time (%) | share of the steps (%) | speed, of that alone (%) |"
                  " hand-offs | lost (s) |", "|---|---|---|---|---|---|---|---|"]
        lines += [f"| {listed(w['asked_percent'])} | {quantum} | {w['turn_s']:g} s, {100 * w['turn_s'] / w['seconds']:.1f} points |"
                  f" {listed(w['time_percent'])} | {listed(w['steps_percent'])} | {listed(w['speed_percent_of_alone'])} |"
                  f" {w['handoffs']} | {w['lost_s']:g} |" for _, quantum, w in windows]
        lines += ["", f"Each class has one program of {EACH_GIB} GiB, which checks and rewrites all of its memory in every step"
                  f" (`tests/programs/fill.c`). The daemon may use {CAPACITY_GIB} GiB of the card, so one program runs at a time. The shares"
                  " are the classes' weights. A program's time is `gpu_time_s` of `sublet status`, in which hand-offs are not counted."
                  " *Lost* is the time in which no program had its turn. The speed alone is that of the first program before the others"
                  " start.", "",
                  "A window has few turns. So each share may be wrong by about one turn, which the column *a turn* gives in points of the"
                  " window, too. Hand-offs are billed to the program that they serve, so a class with many of them gets a little less"
                  " time.", ""]
    return [*lines, *pages.unfinished(found), "`./dev gpu --only shares` runs this part (`tests/gpu/shares.py`).", ""]
