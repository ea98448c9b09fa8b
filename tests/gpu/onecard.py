"""The parts about jobs of several ranks on one GPU (`sublet run --ranks`): what training computes, how fast it is, and what
follows when a rank dies. report_onecard.py makes the page. Needs PyTorch with torchvision, NCCL, and MPS for some cases."""

import contextlib
import json
import os
import queue
import re
import signal
import statistics
import sys
import time

import mps
import suite
from onecard_team import ORDER_S, Cases, Team
from parts import wait_until
from suite import GIB, Failure

RANKS = (2, 4, 8)
# Two contexts of each of eight ranks, and their staging rings, must stay on the card.
SETTINGS = {"unevictable_share": "20%"}
MPS = {"mps": "yes", "linger": "2s"}
MIB = 1 << 20


def rehearse():
    global RANKS, ROUNDS, SPEED, NETS, STEPS, SAME, SAMPLES, BATCHES, SIZES, BIG_SECONDS, GLOO_MOST, GOES_ON_STEPS
    RANKS, ROUNDS, BIG_SECONDS, STEPS, GOES_ON_STEPS = (2, 4), 1, 2, 3, 40
    SPEED = {net: {**some, "batch": 8, "steps": 2, "warm": 1} for net, some in SPEED.items()}
    NETS, SAME = {net: {**some, "batch": 8} for net, some in NETS.items()}, {**SAME, "steps": STEPS}
    SAMPLES, BATCHES, GLOO_MOST = 32, (8, 16), 1 << 16
    SIZES = {"1 KiB": 1 << 10, "64 KiB": 1 << 16}


def numbers(answer):
    return [float.fromhex(x) for x in answer["losses"]]


def relative(ours, want):
    """Returns the largest difference, as a part of the wanted number."""
    if len(ours) != len(want) or not want:
        raise Failure(f"{len(ours)} numbers instead of {len(want)}")
    return max(abs(a - b) / abs(b) if a == a else float("inf") for a, b in zip(ours, want))


# ---- what training computes ----

STEPS = 10
# Sums of the same gradients in another order differ in the last bits of a 24-bit fraction, and ten steps enlarge that.
TOLERANCE = 1e-4
SAME = {"steps": STEPS, "exact": 1, "dtype": "fp32"}
NETS = {"resnet50": {"model": "resnet50", "batch": 64}, "transformer": {"model": "transformer", "batch": 16}}
SPLITS = ("fsdp", "tp")
SPLIT_RANKS = (2, 4)  # the transformer has twelve heads


def as_gloo(ours, gloo):
    """Compares data-parallel training with the same ranks whose gradients the processors add up in the same order."""
    found = {"relative": max(relative(numbers(a), numbers(b)) for a, b in zip(ours, gloo)),
             "norm_relative": abs(ours[0]["norm"] / gloo[0]["norm"] - 1),
             "same_bits": [(a["losses"], a["hash"]) for a in ours] == [(b["losses"], b["hash"]) for b in gloo],
             "ranks_agree": len({a["hash"] for a in ours}) == 1,
             "first_and_last_loss": [round(numbers(ours[0])[0], 4), round(numbers(ours[0])[-1], 4)],
             "step_ms": round(1e3 * max(a["step_s"] for a in ours), 1), "gloo_step_ms": round(1e3 * max(b["step_s"] for b in gloo), 1)}
    if not found["same_bits"]:
        found["error"] = f"not the bits of sums in the order of the ranks: {found['relative']:.2g}"
    elif not found["ranks_agree"]:
        found["error"] = "the ranks have different parameters"
    return found


def as_single(mode, ours, single):
    """Compares training whose network is split with that of one process."""
    losses = [numbers(a) for a in ours]
    found = {"first_and_last_loss": [round(losses[0][0], 4), round(losses[0][-1], 4)], "step_ms": round(1e3 * max(a["step_s"] for a in ours), 1)}
    if mode == "fsdp":  # each rank has the loss of its own part of the batch, and a part of the parameters
        found["relative"] = relative([statistics.mean(some) for some in zip(*losses)], numbers(single))
        found["norm_relative"] = abs(sum(a["norm"] ** 2 for a in ours) ** 0.5 / single["norm"] - 1)
    else:
        found["relative"] = max(relative(some, numbers(single)) for some in losses)
    if not max(found["relative"], found.get("norm_relative", 0)) <= TOLERANCE:
        found["error"] = f"not as one process: {found['relative']:.2g}"
    return found


def devices_of(team):
    """Each rank sees as many devices as there are ranks."""
    team.ready()
    found = {"devices": team.devices}
    return found if set(team.devices) == {team.ranks} else {**found, "error": f"ranks see {sorted(set(team.devices))} devices"}


def again(first, second):
    if [(a["losses"], a["hash"]) for a in first] != [(b["losses"], b["hash"]) for b in second]:
        return {"repeats": False, "error": "a second run gave other bits"}
    return {"repeats": True}


def losses(part, result):
    """Training by NCCL's ranks on one GPU against Gloo and against one process."""
    part.daemon(**SETTINGS)
    cases = Cases(part, result)
    single = Team(part, "single", 1, sublet=False)
    alone = {}

    def reference():
        alone["transformer"] = single.ask("train", mode="single", **NETS["transformer"], **SAME)[0]
        single.end()
        return {"step_ms": round(1e3 * alone["transformer"]["step_s"], 1)}

    single.start()
    for n in RANKS:
        gloo = Team(part, f"gloo-{n}", n, backend="gloo", sublet=False)
        first, second = (Team(part, f"{name}-{n}", n) for name in ("first", "second"))
        gloo.start()  # starts overlap
        first.start()
        if n == RANKS[0]:
            cases.attempt("transformer, one process", reference)
        if not suite.rehearsing():
            cases.attempt(f"devices of {n} ranks", devices_of, first)
        once = {}
        for net, settings in NETS.items():
            def compared(net=net, settings=settings, first=first, gloo=gloo, once=once):
                once[net] = first.ask("train", mode="ddp", **settings, **SAME)
                return as_gloo(once[net], gloo.ask("train", mode="ddp", ordered=1, **settings, **SAME))

            cases.attempt(f"{net}, ddp, {n} ranks", compared)
        cases.end(gloo)
        for mode in SPLITS if n in SPLIT_RANKS else ():
            def split(mode=mode, first=first):
                if "transformer" not in alone:
                    raise Failure("there is no run of one process to compare with")
                return as_single(mode, first.ask("train", mode=mode, **NETS["transformer"], **SAME), alone["transformer"])

            cases.attempt(f"transformer, {mode}, {n} ranks", split)
        cases.end(first)
        for net, settings in NETS.items():
            if net in once:
                cases.attempt(f"{net}, ddp, {n} ranks", lambda net=net, settings=settings, second=second, once=once: again(
                    once[net], second.ask("train", mode="ddp", **settings, **SAME)))
        cases.end(second)
    cases.finish()


# ---- how fast two halves are ----

ROUNDS = 3
SPEED = {"resnet50": {"model": "resnet50", "batch": 128, "steps": 30},
         "transformer": {"model": "transformer", "batch": 32, "steps": 40, "dtype": "bf16"}}
TURN = "200ms"
MODES = {"sliced": "auto", "exclusive": "exclusive"}


def rate(team, net, mode):
    """Returns samples a second."""
    s = SPEED[net]
    return round(s["batch"] * s["steps"] / max(a["seconds"] for a in team.ask("measure", mode=mode, **s)), 1)


def must_share(part, team):
    """Fails unless all ranks take part in MPS."""
    if suite.rehearsing():
        return
    rows = {c["pid"]: c for c in part.gpu()["clients"]}
    apart = [rank for rank, pid in team.pids.items() if rows.get(pid, {}).get("way") != "shared"]
    if apart:
        raise Failure(f"ranks {apart} do not take part in MPS: {mps.last_words(part)}")


def measure_ways(part, cases, single, pair, ways):
    """Measures one process and a pair in each way, in turns."""
    for n in range(ROUNDS):
        for net in SPEED:
            def once(net=net):
                found = {"one process": rate(single, net, "single")}
                for way, mode in ways.items():
                    part.reload(quantum=TURN, mode=mode, **SETTINGS, **MPS)
                    found[way] = rate(pair, net, "ddp")
                    if way == "shared":
                        must_share(part, pair)
                part.reload(quantum=TURN, mode="auto", **SETTINGS, **MPS)
                return found

            cases.attempt(f"{net}, {' and '.join(ways)}, round {n + 1}", once, needs=30)


def ratios(cases, ways):
    for net in SPEED:
        rounds = [r for name, r in cases.of.items() if name.startswith(net + ",") and "round" in name and all(way in r for way in ways)]
        for way in ways if rounds else ():
            alone, both = (statistics.median(r[of] for r in rounds) for of in ("one process", way))
            cases.note(f"{net}, {way}", batch=SPEED[net]["batch"], one_process=alone, two_ranks=both,
                       ratio=round(both / alone, 3), rounds=len(rounds))


@mps.leaves_nothing
def speed(part, result):
    """Two ranks of half a batch each against one process with the whole batch: sliced by the driver, in mode exclusive, and by MPS."""
    part.daemon(quantum=TURN, **SETTINGS, **MPS)
    cases = Cases(part, result)
    single, pair, shared = (Team(part, name, n, options=o) for name, n, o in (("single", 1, ()), ("pair", 2, ()), ("mps", 2, ("--way", "shared"))))
    single.start()
    pair.start()
    measure_ways(part, cases, single, pair, MODES)
    ratios(cases, MODES)
    pair.kill()
    measure_ways(part, cases, single, shared, {"shared": "auto"})
    ratios(cases, ["shared"])
    cases.finish(single, shared)


# ---- one all-reduce ----

SIZES = {"1 KiB": 1 << 10, "64 KiB": 1 << 16, "1 MiB": MIB, "10 MiB": 10 * MIB, "100 MiB": 100 * MIB, "512 MiB": 512 * MIB}
TIMES, GLOO_TIMES, GLOO_MOST = 20, 3, 100 * MIB


def summed(team, count, times, backend="nccl"):
    answers = team.ask("allreduce", bytes=count, times=times, backend=backend)
    found = {"alone_ms": round(1e3 * max(a["median_s"] for a in answers), 4), "least_ms": round(1e3 * min(a["min_s"] for a in answers), 4),
             "queued_ms": round(1e3 * max(a["queued_s"] for a in answers), 4), "times": times}
    wrong = sum(a["wrong"] for a in answers)
    return {**found, "error": f"{wrong} words are wrong"} if wrong else found


@mps.leaves_nothing
def allreduce(part, result):
    """One all-reduce of idle ranks, by size: sliced, with Gloo, and by MPS."""
    part.daemon(**SETTINGS, **MPS)
    cases = Cases(part, result)
    for n in RANKS:
        team = Team(part, f"sliced-{n}", n)
        for size, count in SIZES.items():
            cases.attempt(f"{n} ranks, {size}, sliced", summed, team, count, TIMES)
        for size, count in SIZES.items():
            if count <= GLOO_MOST:
                cases.attempt(f"{n} ranks, {size}, gloo", summed, team, count, GLOO_TIMES, "gloo")
        team.kill()
        team = Team(part, f"mps-{n}", n, options=("--way", "shared"))

        def by_mps(count, team=team):
            found = summed(team, count, TIMES)
            must_share(part, team)
            return found

        for size, count in SIZES.items():
            cases.attempt(f"{n} ranks, {size}, shared", by_mps, count)
        cases.end(team)  # a client of an MPS server that is killed would be a case of its own
    cases.finish()


# ---- the time of an epoch ----

SAMPLES = 64 * 64
BATCHES = (64, 128, 256)
BUCKETS_MIB = (1, 5, 25, 100, 400)
BUCKET_RANKS = 4
RESNET50_BYTES = 25_557_032 * 4  # its parameters


def epoch_of(team, n, batch):
    steps = SAMPLES // batch
    answers = team.ask("measure", model="resnet50", mode="ddp" if n > 1 else "single", batch=batch, steps=steps, warm=3)
    seconds = max(a["seconds"] for a in answers)
    return {"seconds": round(seconds, 3), "step_ms": round(1e3 * seconds / steps, 2), "samples_s": round(batch * steps / seconds, 1)}


def step_of(team, **settings):
    answers = team.ask("measure", model="resnet50", mode="ddp", batch=64, steps=20, warm=5, **settings)
    return round(1e3 * max(a["seconds"] / a["steps"] for a in answers), 3)


def epoch(part, result):
    """An epoch of ResNet-50 by workers and batch, and the exchange of gradients by the size of DDP's buckets."""
    part.daemon(**SETTINGS)
    cases = Cases(part, result)
    result["samples"] = SAMPLES
    for n in (1, *RANKS):
        team = Team(part, f"workers-{n}", n)
        for batch in BATCHES:
            cases.attempt(f"{n} workers, batch {batch}", epoch_of, team, n, batch)
        if n == BUCKET_RANKS:
            buckets(cases, team)
        team.kill()
    cases.finish()


def buckets(cases, team):
    """A step with and without the exchange of gradients, and the sums alone in pieces of the size of a bucket."""
    none = cases.attempt("step without an exchange", lambda: {"step_ms": step_of(team, exchange=0)})
    for mib in BUCKETS_MIB:
        def one(mib=mib):
            step = step_of(team, bucket=mib)
            sums = team.ask("exchange", bytes=RESNET50_BYTES, bucket=mib, times=5)
            return {"step_ms": step, "exchange_ms": round(step - none["step_ms"], 3) if none else None,
                    "sums_ms": round(1e3 * max(a["queued_s"] for a in sums), 3), "pieces": sums[0]["pieces"]}

        cases.attempt(f"buckets of {mib} MiB", one)


# ---- more than the card ----

BIG_SECONDS, BIG_MS = 15, 20
BIG = {"onecard-big": 1.1, "onecard-past": 1.5}  # memory of all ranks as a multiple of the card
HOST_SHARE = 0.8      # of the host's memory at most
OTHER_GIB = 1         # of each rank: what it multiplies, and sums


def host_bytes():
    with open("/proc/meminfo", encoding="ascii") as f:
        return int(f.readline().split()[1]) * 1024


def moved(events, pids):
    """Returns GiB, seconds and GB/s of what was evicted and restored."""
    found = {}
    for kind, name in (("evict", "out"), ("restore", "in")):
        some = [e for pid in pids for e in suite.episodes(events, pid, kind)]
        count, seconds = sum(n for _, _, n in some), sum(e - b for b, e, _ in some) / 1e9
        found[name] = {"gib": round(count / GIB, 1), "seconds": round(seconds, 2), "gb_s": round(count / seconds / 1e9, 1) if seconds else None}
    return found


def big(part, result):
    """Ranks that together need more than the card, and change all of it in each step."""
    ratio, card, of, settings = BIG[part.name], 2 * GIB, "the card", {}
    if not suite.rehearsing():
        card, host = suite.Card(part).total(), int(HOST_SHARE * host_bytes() / GIB)
        settings = {"host_memory": f"{host}GiB"}
        if part.name == "onecard-past" and ratio * card > host * GIB:  # ranks in turns keep host memory for all that they have
            card = int(host / ratio) * GIB
            of = settings["capacity"] = f"{card // GIB}GiB"
    part.daemon(**SETTINGS, **settings)
    cases = Cases(part, result)
    for ranks in sorted(RANKS, reverse=True):
        gib = 2 if suite.rehearsing() else int(ratio * card / ranks / GIB - OTHER_GIB)
        team = Team(part, f"big-{ranks}-{ratio}", ranks, timeout=500)
        cases.attempt(f"{ranks} ranks of {gib} GiB, {ratio} of {of}", changes_all, part, team, gib, needs=60)
        cases.end(team)
    cases.finish()


def changes_all(part, team, gib):
    before = part.gpu()["handoffs"]
    team.tell("big", gib=gib, seconds=BIG_SECONDS, steps=2000, ms=BIG_MS)
    filled = team.from_all("filled", part.left())
    from_ns = max(e["t_ns"] for e in filled)
    p = team.p
    answers = team.from_all("done", part.left())
    steps = [e["seconds"] for e in p.of("step") if e["rank"] == 0]
    last_ns = max(e["t_ns"] for e in p.of("step")) if steps else from_ns
    events = [e for e in part.traced() if from_ns <= e["t_ns"] <= last_ns]
    found = {"filled_s": round(max(e["seconds"] for e in filled), 1), "steps": len(steps),
             "step_s": round(statistics.median(steps), 2) if steps else None,
             "seconds": round((last_ns - from_ns) / 1e9, 1), "handoffs": part.gpu()["handoffs"] - before, **moved(events, team.pids.values()),
             "frozen": sum(e["event"] == "frozen" for e in events),
             "words": sum(a["words"] for a in answers), "wrong": sum(a["wrong"] for a in answers)}
    if found["wrong"]:
        found["error"] = f"{found['wrong']} words are wrong"
    elif not suite.rehearsing() and not found["handoffs"]:
        found["error"] = "no hand-off"
    return found


# ---- ends and stops ----

DIES_RANKS = 4
TRAINING = {"model": "transformer", "mode": "ddp", "batch": 16, "exact": 1, "dtype": "fp32", "say": 5}
GOES_ON_STEPS = 120
SOON_S, STOPPED_S, LATE_S = 30, 5, 20
OF_NCCL = re.compile(r"ncclRemoteError|remote process|NCCL error|DistBackendError")
OF_THE_WATCHDOG = re.compile(r"Watchdog caught collective operation timeout|ran for \d+ milliseconds before timing out")


def logs_of(part, team, rank):
    path = os.path.join(part.root, f"{team.name}-{team.runs}-{rank}.log")
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as f:
        return f.read()
    return ""


def what_ranks_say(part, team, p, ranks, since_ns, limit, error):
    """Waits until these ranks have ended. Returns for each the seconds until then, its status, and its line with the error."""
    def ended():
        return {e["rank"]: e for e in p.of("ended")}

    until = time.monotonic() + limit
    while not all(r in ended() for r in ranks) and time.monotonic() < min(until, part.deadline):
        time.sleep(0.05)
    found = {}
    for r in ranks:
        words = " ".join([*(e["error"] for e in p.of("failed") if e["rank"] == r), logs_of(part, team, r)])
        line = next((line for line in words.splitlines() if error.search(line)), "")
        e = ended().get(r)
        found[str(r)] = {"seconds": round((e["t_ns"] - since_ns) / 1e9, 2) if e else None, "status": e["status"] if e else None,
                         "said": line.strip()[-300:]}
    return found


def judged(found, within):
    """Adds what is wrong with ranks that must have ended with an error of NCCL's within that time."""
    wrong = [f"rank {r} is still there" for r, f in found.items() if f["status"] is None]
    wrong += [f"rank {r} ended well" for r, f in found.items() if f["status"] == 0]
    wrong += [f"rank {r} ended after {f['seconds']} s" for r, f in found.items() if f["seconds"] is not None and f["seconds"] > within]
    wrong += [f"rank {r} did not name the error" for r, f in found.items() if f["status"] not in (None, 0) and not f["said"]]
    return {"ranks": found, **({"error": "; ".join(wrong)} if wrong else {})}


def killed(part):
    """Kills a rank in mid-training. The others must end with an error, and the next job must work."""
    team, victim = Team(part, "killed", DIES_RANKS, torchrun=False), 2
    try:
        team.tell("train", **TRAINING, steps=100000)
        team.after_step(20)
        p, at_ns = team.p, time.monotonic_ns()
        os.kill(team.pids[victim], signal.SIGKILL)
        return judged(what_ranks_say(part, team, p, [r for r in range(DIES_RANKS) if r != victim], at_ns, SOON_S + 10, OF_NCCL), SOON_S)
    finally:
        team.kill()


def late(part):
    """A rank that does not take part in a sum. The others must fail after the timeout."""
    team = Team(part, "late", DIES_RANKS, torchrun=False, timeout=LATE_S)
    try:
        team.tell("absent", seconds=90)
        team.after_step(1)
        p, at_ns = team.p, time.monotonic_ns()
        found = what_ranks_say(part, team, p, range(DIES_RANKS - 1), at_ns, LATE_S + 50, OF_THE_WATCHDOG)
        early = [r for r, f in found.items() if f["seconds"] is not None and f["seconds"] < LATE_S - 2]
        judgement = judged(found, LATE_S + 40)
        return {**judgement, "error": f"ranks {early} ended before the timeout"} if early else judgement
    finally:
        team.kill()


def trained(team):
    return [(a["losses"], a["hash"]) for a in team.from_all("done", ORDER_S + 30)]


def disturbed(part, team, want, disturb):
    """Trains, disturbs the training in its middle, and compares the losses and parameters."""
    team.tell("train", **TRAINING, steps=GOES_ON_STEPS)
    team.after_step(GOES_ON_STEPS // 4)
    began = time.monotonic()
    try:
        disturb()
    except Failure:
        team.kill()  # its answer would be taken for that of the next order
        raise
    same = trained(team) == want
    return {"same": same, "seconds_to_the_end": round(time.monotonic() - began, 1), **({} if same else {"error": "other losses or parameters"})}


def stop_and_go_on(team, rank):
    os.kill(team.pids[rank], signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(team.pids[rank], signal.SIGCONT)


def kill_daemon(part):
    """Kills the daemon, and starts it again after two seconds."""
    part.processes[0].process.kill()
    part.processes[0].process.wait()
    time.sleep(2)
    p = part.start([os.path.join(part.build, "subletd"), "--dir", part.dir, "--config", os.path.join(part.root, "subletd.conf")], "subletd-again",
                   False, SUBLET_LOG="info")

    def answers():
        if p.process.poll() is not None:
            raise Failure(f"subletd does not start again: {p.tail()}")
        with contextlib.suppress(OSError, ValueError):
            return "gpus" in part.status()
        return False

    wait_until(part, answers, "answer of the daemon")


def dies(part, result):
    """A rank that is killed, one that is stopped for a while, one that is late, and a daemon that is killed."""
    part.daemon(**SETTINGS)
    cases = Cases(part, result)
    team = Team(part, "goes-on", DIES_RANKS)
    want = []

    def undisturbed():
        answers = team.ask("train", **TRAINING, steps=GOES_ON_STEPS, limit=ORDER_S + 30)
        want.extend((a["losses"], a["hash"]) for a in answers)
        return {"step_ms": round(1e3 * max(a["step_s"] for a in answers), 1), "last_loss": round(answers[0]["last"], 4)}

    cases.attempt("undisturbed", undisturbed)
    cases.attempt(f"a rank is stopped for {STOPPED_S} s", disturbed, part, team, want, lambda: stop_and_go_on(team, 1), needs=40)
    cases.attempt("the daemon is killed", disturbed, part, team, want, lambda: kill_daemon(part), needs=40)

    def known():
        wait_until(part, lambda: set(team.pids.values()) <= {c["pid"] for c in part.gpu()["clients"]}, "ranks at the next daemon")
        return {"clients": len(part.gpu()["clients"])}

    if not suite.rehearsing():
        cases.attempt("the next daemon knows the ranks", known)
    cases.end(team)
    cases.attempt("a rank is killed", killed, part, needs=60)
    cases.attempt("a rank is late", late, part, needs=90)
    after = Team(part, "after", DIES_RANKS)
    cases.attempt("the next job", summed, after, MIB, 3)
    cases.finish(after)


# ---- graphs ----

GRAPH_RANKS, REPLAYS = 4, 100


def graphs(part, result):
    """Collectives in CUDA graphs that are replayed with other inputs."""
    part.daemon(**SETTINGS)
    cases = Cases(part, result)
    team = Team(part, "graphs", GRAPH_RANKS)

    def replayed(operation, capture):
        answers = team.ask("graphs", operation=operation, capture=capture, times=REPLAYS)
        wrong = sum(a["wrong"] for a in answers)
        found = {"replays": REPLAYS, "words": sum(a["words"] for a in answers), "wrong": wrong,
                 "seconds": round(max(a["seconds"] for a in answers), 3)}
        return {**found, "error": f"{wrong} words are wrong"} if wrong else found

    for operation in ("all_reduce", "all_gather", "reduce_scatter"):
        if not cases.attempt(operation, replayed, operation, "global"):
            cases.attempt(f"{operation}, thread-local capture", replayed, operation, "thread_local")  # tells whether the mode is the cause
    cases.finish(team)


# ---- all types and operations ----


CHECK_S, CHECKS_S = 30, 110  # limits of one check, and of all with one number of ranks


def nvidia_folders():
    """Returns the folders of NVIDIA's libraries that come with PyTorch, where a C program does not look."""
    found = []
    for path in sys.path:
        top = os.path.join(path, "nvidia")
        for name in sorted(os.listdir(top)) if os.path.isdir(top) else ():
            folder = os.path.join(top, name, "lib")
            found += [folder] if os.path.isdir(folder) else []
    return found


def checked(part, program, n):
    """Runs nccl_checks with so many ranks. Prints what each check found at once."""
    libraries = ":".join([*nvidia_folders(), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    argv = [os.path.join(part.build, "sublet"), "run", "--ranks", str(n), "--", program, "--ranks", str(n), "--seconds", str(CHECK_S)]
    p = part.start(argv, f"nccl-checks-{n}", False, **suite.ALWAYS, SUBLET_DIR=part.dir, SUBLET_TRACE=part.trace, SUBLET_REQUIRE="1",
                   NCCL_SOCKET_IFNAME="lo", NCCL_NVLS_ENABLE="0", LD_LIBRARY_PATH=libraries)
    until, error = min(part.deadline, time.monotonic() + CHECKS_S), None
    try:
        while (event := p.fresh.get(timeout=max(until - time.monotonic(), 0.01))) is not None:
            if event["event"] == "check":
                said = {key: event.get(key) for key in ("name", "result", "rank", "text", "note", "cases", "ms")}
                print(json.dumps({"ranks": n, **said}), flush=True)
        p.wait(until)
    except queue.Empty:
        error = f"not done in time: {p.tail()}"
    except Failure as e:
        error = str(e)
    finally:
        p.kill()
    results = p.of("check")
    found = {result: sum(e["result"] == result for e in results) for result in ("right", "wrong", "skipped")}
    found.update(cases=sum(e.get("cases", 0) for e in results),
                 not_right=[f"{e['name']}: {e['result']}: {e.get('text', '')}"[:300] for e in results if e["result"] != "right"])
    if not error and (found["wrong"] or not found["right"]):
        error = f"{found['wrong']} checks are wrong, {found['right']} are right"
    return {**found, "error": error} if error else found


def checks(part, result):
    """All types and operations of NCCL, by a program in C."""
    program = os.path.join(part.build, "programs", "nccl_checks")
    if not os.path.exists(program):
        result["skipped"] = "the build has no nccl_checks"
        return
    part.daemon(**SETTINGS)
    cases = Cases(part, result)
    for n in RANKS:
        cases.attempt(f"{n} ranks", checked, part, program, n)
    cases.finish()


# ---- sends and receives ----

SCHEDULES, SCHEDULES_S = os.path.join(suite.ROOT, "tests", "system", "nccl_schedules.py"), 45
SCHEDULES_EACH = 12  # of each case


def scheduled(part, ranks, connections, graph):
    """Runs random schedules of sends and receives, which NCCL would complete, and compares all bytes."""
    argv = [os.path.join(part.build, "sublet"), "run", "--ranks", str(ranks), "--", sys.executable, SCHEDULES, "--ranks", str(ranks),
            "--seed", str(1000 * ranks + 100 * connections + graph), "--count", str(SCHEDULES_EACH), *(["--graph"] if graph else [])]
    p = part.start(argv, f"schedules-{ranks}-{connections}-{graph:d}", False, **suite.ALWAYS, SUBLET_DIR=part.dir,
                   SUBLET_TRACE=part.trace, SUBLET_REQUIRE="1", CUDA_DEVICE_MAX_CONNECTIONS=str(connections))
    error = None
    try:
        p.wait(min(part.deadline, time.monotonic() + SCHEDULES_S))
    except Failure as e:
        error = str(e)
    finally:
        p.kill()
    found = {"right": sum(e["result"] == "ok" for e in p.of("schedule")),
             "wrong": [f"seed {e['seed']}: {e.get('text', e['result'])}" for e in p.of("schedule") if e["result"] != "ok"]}
    if not error and (found["wrong"] or found["right"] < SCHEDULES_EACH):
        error = f"{found['right']} of {SCHEDULES_EACH} are right: {'; '.join(found['wrong'])}"
    return {**found, "error": error} if error else found


def groups(part, result):
    """Groups of sends and receives, as NCCL orders them, with one queue of the GPU for all streams, and captured."""
    part.daemon(**SETTINGS)
    cases = Cases(part, result)
    for ranks in RANKS:
        for connections, graph in ((8, False), (1, False), (1, True)):
            cases.attempt(f"{ranks} ranks, CUDA_DEVICE_MAX_CONNECTIONS={connections}{', in a graph' * graph}", scheduled, part, ranks,
                          connections, graph)
    cases.finish()


# name -> (function, limit in seconds)
PARTS = {
    "onecard-checks": (checks, 340),
    "onecard-graphs": (graphs, 120),
    "onecard-groups": (groups, 200),
    "onecard-losses": (losses, 330),
    "onecard-allreduce": (allreduce, 280),
    "onecard-speed": (speed, 300),
    "onecard-epoch": (epoch, 260),
    "onecard-big": (big, 300),
    "onecard-past": (big, 300),
    "onecard-dies": (dies, 330),
}
