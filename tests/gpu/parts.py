"""The parts of the GPU suite. Each takes a suite.Part and a dictionary that it fills while it runs, so that results
before a failure are kept. A part that fails raises suite.Failure with one sentence."""

import json
import os
import statistics
import subprocess
import sys
import time

import suite
from suite import Failure

# Sizes are in GiB. In a rehearsal on the simulated card they are in MiB: it tries this code and measures nothing.
UNIT, GIB = "GiB", suite.GIB


def rehearse():
    global UNIT, GIB
    UNIT, GIB = "MiB", 1 << 20


def size(n):
    return f"{n * 1024:.0f}{ {'GiB': 'MiB', 'MiB': 'KiB'}[UNIT]}"


def wait_until(part, condition, what):
    while not condition():
        if part.left() < 0:
            raise Failure(f"no {what} in time")
        time.sleep(0.05)


# ---- driver-API programs ----


def programs(part, result):
    """Two processes of 90 GiB, contents checked."""
    part.daemon(quantum="1s")
    end = os.path.join(part.root, "end")
    pair = []
    for seed in (1, 2):
        sample = os.path.join(part.root, f"sample-{seed}")
        pair.append(part.program("fill", "--bytes", size(90), "--block", size(1), "--seed", seed, "--rounds", 3,
                                 "--until", end, "--sample", sample, name=f"fill-{seed}"))
    for p in pair:
        p.expect("filled", part.deadline)
    wait_until(part, lambda: part.gpu()["handoffs"] >= 6 or part.left() < 25, "six hand-offs")
    result["handoffs"] = part.gpu()["handoffs"]
    suite.touch(end)
    for p in pair:
        p.wait(part.deadline)
    result["gib_each"] = 90
    result["rounds"] = [len(p.of("round")) for p in pair]
    result["rounds_recomputed"] = [part.check_sums(p, max(1, len(p.of("round")) // 3)) for p in pair]
    result["words_compared"] = [part.check_sample(os.path.join(part.root, f"sample-{s}")) for s in (1, 2)]
    result["moved_gib"] = round(sum(b for p in pair for _, _, b in suite.episodes(part.traced(), p.pid, "evict")) / GIB,
                                1)
    if result["handoffs"] < 2:
        raise Failure(f"only {result['handoffs']} hand-offs")
    for name, args in (("churn", ["--bytes", size(8), "--block", size(0.5)]),
                       ("threads", ["--bytes", size(8), "--block", size(0.5)]),
                       ("graph", ["--bytes", "64MiB"]), ("graphbuild", ["--bytes", "64MiB"]),
                       ("ptds", ["--bytes", size(1)]), ("launchex", ["--bytes", "64MiB"]),
                       ("cooperative", ["--bytes", "64MiB"]), ("copies", []), ("small", []), ("contexts", []),
                       ("fork", ["--bytes", size(1), "--block", size(0.125)])):
        began = time.monotonic()
        p = part.program(name, *args)
        p.close()
        p.wait(min(part.deadline, began + 15))
        result.setdefault("others", []).append(name)


# ---- the main job ----

MAIN = {"resnet50": {"steps": 700, "epoch": 50}, "transformer": {"steps": 500, "epoch": 50}}
MAIN_BALLAST_GIB = 86
MAIN_QUANTUM = "1500ms"


def losses(process):
    return [x for e in process.of("epoch") for x in e["losses"]]


def main_job(part, result):
    """Two PyTorch processes of more than 85 GiB each, bit-identical to their undisturbed runs: at the defaults, and in
    short turns, so that much is moved."""
    result["ballast_gib"] = MAIN_BALLAST_GIB
    undisturbed = {}
    # Imports overlap; the second program uses the GPU after the first.
    for seed, net in enumerate(MAIN, 1):
        undisturbed[net] = part.trainer("--net", net, "--seed", seed, "--ballast-gib", MAIN_BALLAST_GIB, "--hold",
                                        name=f"{net}-alone", shared=False)
    for net, p in undisturbed.items():
        p.say("go")
        p.expect("ready", part.deadline)
        began = time.monotonic()
        p.say(f"train {MAIN[net]['steps']} {MAIN[net]['epoch']}")
        p.expect("trained", part.deadline)
        result.setdefault("alone_s", {})[net] = round(time.monotonic() - began, 2)
        p.close()
        p.wait(part.deadline)

    part.daemon()
    part.sample()
    train_together(part, undisturbed, result.setdefault("defaults", {}))
    part.reload(quantum=MAIN_QUANTUM)
    train_together(part, undisturbed, result)
    if result["handoffs_of_20_gib"] < 10:
        raise Failure(f"only {result['handoffs_of_20_gib']} hand-offs of 20 GiB or more while both trained")


def train_together(part, undisturbed, result):
    together, before = {}, part.gpu()["handoffs"]
    for seed, net in enumerate(MAIN, 1):
        together[net] = part.trainer("--net", net, "--seed", seed, "--ballast-gib", MAIN_BALLAST_GIB, name=net)
    for net, p in together.items():
        result.setdefault("allocated_gib", {})[net] = round(p.expect("ready", part.deadline)["allocated"] / GIB, 1)
    began = time.monotonic()
    for net, p in together.items():
        p.say(f"train {MAIN[net]['steps']} {MAIN[net]['epoch']}")
    begin_ns = time.monotonic_ns()
    for p in together.values():
        p.expect("trained", part.deadline)
    # Both programs trained until the first of them was done.
    both_ns = min(p.of("trained")[0]["t_ns"] for p in together.values())
    result["together_s"] = round(time.monotonic() - began, 2)
    events = part.traced()
    evictions = sorted(e for p in together.values() for e in suite.episodes(events, p.pid, "evict"))
    handoffs = group_handoffs([e for e in evictions if begin_ns < e[0] < both_ns])
    result["handoffs_while_both_train"] = len(handoffs)
    result["handoffs_of_20_gib"] = sum(1 for b in handoffs if b >= 20 * GIB)
    result["handoff_gib"] = [round(b / GIB, 1) for b in handoffs]
    gpu = part.gpu()
    result["status_handoffs"] = gpu["handoffs"] - before
    result["moved_gib_by_status"] = {
        c["name"]: {"out": round(c["moved_out"] / GIB, 1), "in": round(c["moved_in"] / GIB, 1)} for c in gpu["clients"]}
    drains = [(e - b) / 1e6 for p in together.values() for b, e, _ in suite.episodes(events, p.pid, "drain")]
    if drains:
        result["drain_ms"] = {"median": round(statistics.median(drains), 1), "max": round(max(drains), 1)}
    for net, p in together.items():
        p.close()
        p.wait(part.deadline)
        same = losses(p) == losses(undisturbed[net])
        ballast = [e["ballast"] for e in p.of("epoch")] == [e["ballast"] for e in undisturbed[net].of("epoch")]
        result.setdefault("losses_identical", {})[net] = same
        result.setdefault("ballast_identical", {})[net] = ballast
        result.setdefault("steps", {})[net] = len(losses(p))
        result.setdefault("first_and_last_loss", {})[net] = [
            struct_float(losses(p)[0]), struct_float(losses(p)[-1])]
        if not same or not ballast:
            raise Failure(f"{net}: not what its undisturbed run gave")


def struct_float(text):
    import struct

    return round(struct.unpack(">f", bytes.fromhex(text))[0], 4)


def group_handoffs(evictions, gap_ns=300_000_000):
    """Joins evictions that follow one another closely into hand-offs. Returns the bytes of each hand-off."""
    groups, last_end = [], None
    for begin, end, count in evictions:
        if last_end is None or begin - last_end > gap_ns:
            groups.append(0)
        groups[-1] += count
        last_end = end
    return [g for g in groups if g]


# ---- one hand-off, timed ----

HANDOFFS = 9 # the first hand-off, then four each way
HANDOFF_GIB = 86  # memory of each of two programs; together some 34 GiB more than the card's 139.8 GiB


def handoff(part, result):
    """32 GiB or more of random data each way: the first hand-off, and those with pinned memory."""
    part.daemon(quantum="100ms")
    pair = [part.program("hold", "--bytes", size(HANDOFF_GIB), "--block", size(0.5), "--seed", seed, name=f"hold-{seed}")
            for seed in (1, 2)]
    for p in pair:
        p.expect("filled", part.deadline)
    time.sleep(0.3)
    series = []
    for i in range(HANDOFFS):
        new, old = pair[i % 2], pair[1 - i % 2]
        if part.left() < 18:
            break
        from_ns = time.monotonic_ns()
        new.say("touch")
        answer = new.expect("done", part.deadline)
        to_ns = time.monotonic_ns()
        time.sleep(0.2)
        events = [e for e in part.traced() if from_ns <= e["t_ns"] <= to_ns + 200_000_000]
        out = suite.episodes(events, old.pid, "evict")
        into = suite.episodes(events, new.pid, "restore")
        if not out or not into:
            continue
        begin, end = min(b for b, _, _ in out), max(e for _, e, _ in into)
        bytes_out, bytes_in = sum(n for _, _, n in out), sum(n for _, _, n in into)
        seconds = (end - begin) / 1e9
        drain = [e - b for b, e, _ in suite.episodes(events, old.pid, "drain")]
        series.append({"gib_out": round(bytes_out / GIB, 2), "gib_in": round(bytes_in / GIB, 2),
                       "seconds": round(seconds, 3), "out_gb_s": round(bytes_out / seconds / 1e9, 1),
                       "in_gb_s": round(bytes_in / seconds / 1e9, 1),
                       "drain_ms": round(sum(drain) / 1e6, 2) if drain else None,
                       "touch_ms": answer["ms"]})
        result["series"] = series
    for p in pair:
        p.close()
        p.wait(part.deadline)
    if len(series) < 4:
        raise Failure(f"only {len(series)} hand-offs seen in the trace")
    # A program's arena grows when it is first evicted. The first program was evicted before, while the second one
    # filled.
    first, pinned = series[:1], series[1:]
    # The two directions differ, because a program gives back at one hand-off the memory that it got at the last one.
    # So the figure is all bytes divided by all time, with as many hand-offs in one direction as in the other.
    pinned = pinned[:len(pinned) // 2 * 2]
    for name, some in (("first", first), ("pinned", pinned)):
        seconds = sum(s["seconds"] for s in some)
        result[name] = {"out_gb_s": round(sum(s["gib_out"] for s in some) * GIB / seconds / 1e9, 1),
                        "in_gb_s": round(sum(s["gib_in"] for s in some) * GIB / seconds / 1e9, 1),
                        "gib": round(statistics.median(s["gib_out"] for s in some), 1), "handoffs": len(some)}
    drains = [s["drain_ms"] for s in series if s["drain_ms"] is not None]
    result["drain_ms"] = round(statistics.median(drains), 2) if drains else None
    result["bus"] = bus(part)


def bus(part):
    """Moves the same bytes without sublet on the same card in the same run (bench/bus.c)."""
    done = subprocess.run([os.path.join(part.build, "bench", "bus"), "--gib", "34" if UNIT == "GiB" else "1"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=max(part.left(), 5),
                          check=False)
    if done.returncode != 0:
        raise Failure(f"bus: {done.stderr.strip()}")
    return {row["way"]: row for row in map(json.loads, done.stdout.splitlines())}


# ---- alone, against the plain driver ----

STEPS = ("resnet50", "transformer")
PROCESS_PAIRS = 4  # several pairs of processes, because differences between processes do not show within one pair
PAIRS = 10         # short measurements of each process: many, because a shared machine sometimes stalls one
MEASURED_S = 0.25  # length of each measurement
LAUNCH_PAIRS = 40   # measurements of each process
LAUNCH_GROUPS = 8   # groups of processes, one after the other: two processes with the same code differ by up to 8 %
LAUNCH_ROUNDS = 20
LAUNCH_PROCESSOR = max(os.sched_getaffinity(0))  # one for all launches, because processors differ in speed


def launches(part, kinds):
    """Returns {kind: nanoseconds a launch, for each of several processes}. A kind's environment is None without
    sublet."""
    times = {kind: [] for kind in kinds}
    for n in range(LAUNCH_GROUPS):
        order_of = list(kinds)[n % len(kinds):] + list(kinds)[:n % len(kinds)]
        for kind, found in launches_in_turns(part, {kind: kinds[kind] for kind in order_of}, n).items():
            times[kind].append(statistics.median(found))
    return times


def launches_in_turns(part, kinds, n):
    argv = ["taskset", "-c", str(LAUNCH_PROCESSOR), os.path.join(part.build, "programs", "launches"), "--rounds", str(LAUNCH_ROUNDS)]
    running = {kind: part.start(argv, f"launches-{kind}-{n}", env is not None, **env or {}) for kind, env in kinds.items()}
    for p in running.values():
        p.expect("launches", part.deadline)
    times = {kind: [] for kind in kinds}
    for pair in range(LAUNCH_PAIRS):
        for kind in (list(kinds) if pair % 2 == 0 else reversed(kinds)):
            running[kind].say("again")
            times[kind].append(running[kind].expect("launches", part.deadline)["median_ns"])
    for p in running.values():
        p.close()
        p.wait(part.deadline)
    return times


def overhead(part, result):
    """Training steps and launches of an undisturbed program, under sublet and without, in alternating pairs."""
    part.daemon()
    # Launches come first: a trainer is another context that the card switches to, even if it is idle.
    times = launches(part, {"plain": None, "sublet": {}})
    result["launch"] = suite.paired(times["plain"], times["sublet"])
    times, copies = {net: [] for net in STEPS}, []  # figures of each pair of processes
    processors = {net: {False: [], True: []} for net in STEPS}
    for n in range(PROCESS_PAIRS):
        if n and part.left() < 40:
            break
        steps(part, n, times, processors, copies)
    for net, found in times.items():
        result[net] = among(found)
        result[net]["processors"] = suite.paired(processors[net][False], processors[net][True])
    result["copy_gb_s"] = copies


def among(found, rates=False):
    """Returns the figures of plain processes and of processes under sublet, also for each pair or group of
    processes."""
    plain, shared = ([x for one in found for x in one[kind]] for kind in (False, True))
    return {**suite.paired(plain, shared, rates),
            "of_processes_percent": [round(100 * statistics.median(b / a - 1 for a, b in zip(one[False], one[True])), 3)
                                     for one in found],
            "of_processes": [{"plain": one[False], "sublet": one[True]} for one in found]}


def ready(part, p):
    """Waits until the trainer is ready. Returns the gigabytes a second that it copies in."""
    return p.expect("ready", part.deadline)["copy_gb_s"][0]


def steps(part, n, times, processors, copies):
    """Measures steps of two processes in turns, one under sublet and one without."""
    nets = [argument for net in STEPS for argument in ("--net", net)]
    trainers = {shared: part.trainer(*nets, "--warm-up", 10, name=f"{'shared' if shared else 'plain'}-{n}", shared=shared)
                for shared in order(n)}
    copies.append({"sublet" if shared else "plain": ready(part, p) for shared, p in trainers.items()})
    for net in STEPS:
        found = {False: [], True: []}
        for pair in range(-1, PAIRS):
            if part.left() < 4:
                break
            for shared in order(pair):
                trainers[shared].say(f"measure {net} {MEASURED_S}")
                took = trainers[shared].expect("measured", part.deadline)
                if pair >= 0:  # the first measurement only warms up clocks and caches
                    found[shared].append(took["median_s"])
                    processors[net][shared].append(took["cpu_s"])
        times[net].append(found)
    for p in trainers.values():
        p.close()
        p.wait(part.deadline)


def order(pair):
    return (False, True) if pair % 2 == 0 else (True, False)


# ---- the gate by itself ----


def gate(part, result):
    """Nanoseconds of a launch, against a driver that does nothing."""
    path = os.path.join(part.root, "gate.json")
    done = subprocess.run([sys.executable, os.path.join(suite.ROOT, "bench", "run_gate.py"), part.build, "--json", path],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=max(part.left(), 5),
                          check=False)
    if done.returncode != 0:
        raise Failure(f"run_gate.py: {done.stderr.strip()}")
    with open(path, encoding="utf-8") as f:
        result.update(json.load(f))


# ---- two programs that fit, beside one that is evicted ----


FIT_GROUPS = 2  # groups of processes, one after the other
FIT_PAIRS = 5


def fit(part, result):
    """Two trainings at once, with a third client evicted and idle, against two trainings on the plain driver."""
    part.daemon(capacity=size(120))  # leaves memory for the plain programs, for which no client makes room
    idle = part.program("hold", "--bytes", size(90), "--block", size(1), name="idle")
    idle.expect("filled", part.deadline)
    found, copies = [], []
    for n in range(FIT_GROUPS):
        if n and part.left() < 50:
            break
        handoffs = fit_group(part, n, found, copies)
        result["handoffs_of_the_two"] = result.get("handoffs_of_the_two", 0) + handoffs
    result["idle_evicted_gib"] = round(next(c["evicted"] for c in part.gpu()["clients"] if c["name"] == "idle") / GIB, 1)
    result["steps_per_second"] = among(found, rates=True)
    result["copy_gb_s"] = copies
    result["ratio"] = round(1 + result["steps_per_second"]["difference_percent"] / 100, 4)
    idle.say("verify")
    idle.expect("done", part.deadline)
    result["idle_unharmed"] = True
    if result["idle_evicted_gib"] <= 0:
        raise Failure("the third client was not evicted")


def fit_group(part, n, found, copies):
    """Measures two processes of each kind. Returns the hand-offs of the processes under sublet."""
    groups = {}
    for shared in order(n):
        # The shared pair's ballast evicts the idle client; the plain pair needs no ballast for its speed.
        ballast = 32 if shared else 0
        groups[shared] = [part.trainer("--net", "resnet50", "--warm-up", 10, "--ballast-gib", ballast, "--seed", seed,
                                       name=f"fit-{'shared' if shared else 'plain'}-{n}-{seed}", shared=shared)
                          for seed in (1, 2)]
    copies.append({"sublet" if shared else "plain": [ready(part, p) for p in group] for shared, group in groups.items()})
    totals = {False: [], True: []}
    for pair in range(-1, FIT_PAIRS):
        if part.left() < 8:
            break
        for shared in order(pair):
            for p in groups[shared]:
                p.say("measure resnet50 2")
            answers = [p.expect("measured", part.deadline) for p in groups[shared]]
            if pair >= 0:  # the first pair only warms up the clocks
                totals[shared].append(sum(1 / a["mean_s"] for a in answers))
    found.append(totals)
    handoffs = sum(c["handoffs"] for c in part.gpu()["clients"] if c["name"].startswith("fit-shared"))
    for p in (*groups[False], *groups[True]):
        p.close()
        p.wait(part.deadline)
    return handoffs


# name -> (function, limit in seconds)
PARTS = {
    "programs": (programs, 75),
    "main": (main_job, 330),
    "handoff": (handoff, 60),
    "overhead": (overhead, 180),
    "gate": (gate, 20),
    "fit": (fit, 130),
}
