"""The parts about the daemon's hand, which takes programs off the GPU in the middle of a kernel, and their page with its
plots. preempt.cu is the program; the GPU's clock tells who had the GPU when."""

import math
import os
import signal
import statistics
import subprocess
import sys
import time

import pages
import parts
import suite
from drains import spread
from parts import size
from shares import rest, steps
from suite import Failure

sys.path.insert(0, os.path.join(suite.ROOT, "tools"))
from svg import line, svg, text

BIN_MS = 1
LENGTHS_MS = (1, 10, 100, 1000, 20000)
CARD_PERCENT = (1, 25, 50)
IN_PLACE_PERCENT = (0, 50, 100)
OFF = {"SUBLET_FREEZE": "off"}
WAYS = (("hand", {}), ("slices", OFF))
REQUESTS, REQUEST_MS = 40, 5
REQUESTS_LONG, REQUESTS_BESIDE, BETWEEN_MS = 1000, 300, 25
EXCLUSIVE_REQUESTS, EXCLUSIVE_BETWEEN_MS = 200, 100
SHARES, SHARES_S = ((5, 95), (20, 80), (50, 50)), 16
GAP_MS = 3
MAXIMUM, MAXIMUM_S = 20, 156
GRACE_S, STOPPED_S = 2, 9
TIMING_S = 4
NETWORKS_ROUNDS, PAUSES_ROUNDS, NETWORKS_S, NETWORKS_AFTER_S = 3, 8, 6, 2
NETWORKS_BATCH, NETWORKS_PAUSE_S, NETWORKS_REQUESTS = 128, 0.042, 1000
BEHIND_GIB, BEHIND_CAPACITY_GIB, BEHIND_S = 20, 46, 40
COST_PAIRS, COST_S = 24, 1
# Blocks of one kernel end at different times, and then those that are left go on faster. One block has no such end, and its
# context has the whole GPU's time all the same.
ONE_BLOCK = ("--blocks", 1)


class Program:
    """A program of preempt.cu that is ready, and that the hand knows."""

    def __init__(self, part, name, *args, shared=True, **env):
        self.part, self.bin = part, 0  # bin: what it does in a bin that it has whole; 0: not known
        self.p = part.start([suite.build_cuda(part, "preempt"), *map(str, args)], name, shared, **env)
        self.ready = self.p.expect("ready", part.deadline)
        if shared and env.get("SUBLET_FREEZE") != "off":
            parts.wait_until(part, lambda: self.client().get("preempted"), f"hand that knows {name}")

    def client(self):
        return next((c for c in self.part.gpu()["clients"] if c["pid"] == self.p.pid), {})

    def base(self):
        """Returns the present moment by the GPU's clock."""
        return self.ready["gpu_ns"] + time.monotonic_ns() - self.ready["host_ns"]

    def go(self, seconds, base_ns=0):
        self.p.say(f"go {base_ns} {seconds}")

    def done(self):
        """Waits until it has worked. Its speed is that of its whole bins, unless alone() has found it: the GPU's clock changes, so
        its speed before it began may be another."""
        self.result = self.p.expect("done", self.part.deadline)
        bins = sorted(self.result["bins"])
        if not self.bin and any(bins):
            top = bins[-max(len(bins) // 100, 1)]
            whole = [n for n in bins if n > 0.9 * top]
            self.bin = whole[len(whole) // 2]
        return self.result

    def alone(self, seconds=1.5):
        """Finds its speed while nobody else works. Kernels of many blocks need this: their bins are not alike."""
        self.go(seconds, self.base())
        bins = self.p.expect("done", self.part.deadline)["bins"]
        if not bins:
            raise Failure("a program did nothing while it was alone")
        some = bins[len(bins) // 4:len(bins) * 3 // 4]
        self.bin = sum(some) / len(some)

    def end(self):
        self.p.close()
        self.p.wait(self.part.deadline)

    def progress(self, begin_ms, end_ms):
        """Returns the GPU's time that it had from begin_ms to end_ms after its base, in ms."""
        return BIN_MS * sum(self.result["bins"][round(begin_ms / BIN_MS):round(end_ms / BIN_MS)]) / (self.bin or 1)

    def windows(self, begin_ms, end_ms, window_ms, step_ms):
        """Returns its parts of the GPU in windows, in percent."""
        n = int((end_ms - begin_ms - window_ms) // step_ms) + 1
        return [100 * self.progress(at, at + window_ms) / window_ms for at in (begin_ms + i * step_ms for i in range(n))]


# ---- requests beside other work ----

def requests_beside(part, load, n, env, priority=1, gap_ms=BETWEEN_MS, request_ms=0.02):
    """Makes n requests beside a load, which is an argument list. Returns their delays, and what the load had."""
    low = Program(part, "load", *load, **env)
    low.alone()
    high = Program(part, "asks", "--ms", request_ms, "--blocks", 1, "--requests", n, "--gap-ms", gap_ms,
                   SUBLET_PRIORITY=str(priority), **env)
    base = low.base()
    low.go(n * (gap_ms + 3 * request_ms + 3) / 1000 + 2, base)
    time.sleep(0.5)
    began_ms = (low.base() - base) / 1e6
    high.go(120)
    took = high.done()["took_ms"]
    ended_ms = (low.base() - base) / 1e6
    low.done()
    switched = low.client().get("preempted") or {}
    low.end(), high.end()
    found = {**spread(took), "all_ms": took, "load_percent": round(100 * low.progress(began_ms, ended_ms) / (ended_ms - began_ms), 2)}
    if env is not OFF and not switched.get("times"):
        raise Failure("the load was never taken off the GPU")
    print(load, env, {k: v for k, v in found.items() if k != "all_ms"}, flush=True)
    return found


def delays(part, result):
    """Requests of a higher priority beside a program of a lower one: by the kernels' length, by how much of the GPU they
    fill, and by whether they could begin again; with the hand, and with the driver's slices."""
    part.daemon()
    blocks = Program(part, "whole", shared=False)
    blocks.end()
    for way, env in WAYS:
        for ms in LENGTHS_MS:
            result[f"{way}, {ms} ms"] = requests_beside(part, ["--ms", ms], REQUESTS, env, request_ms=REQUEST_MS)
        for percent in CARD_PERCENT:
            result[f"{way}, {percent} % of the GPU"] = requests_beside(
                part, ["--ms", 100, "--blocks", max(1, blocks.ready["resident"] * percent // 100)], REQUESTS, env, request_ms=REQUEST_MS)
        for percent in IN_PLACE_PERCENT:
            result[f"{way}, {percent} % in place"] = requests_beside(part, ["--ms", 20, "--in-place", percent], REQUESTS, env, request_ms=REQUEST_MS)


def first_kernels(part, result):
    """A thousand requests of a higher priority beside kernels of 20 s that fill the GPU; some beside programs that map
    memory, begin and end; and a busy program of a higher priority."""
    part.daemon()
    load = ["--ms", 20000]
    result["requests"] = requests_beside(part, load, REQUESTS_LONG, {})
    maps = Program(part, "maps", "--maps", 1, "--gap-ms", 20)
    maps.go(REQUESTS_BESIDE * (BETWEEN_MS + 8) / 1000 + 5)
    end = os.path.join(part.root, "end-begins")
    begins = subprocess.Popen(["/bin/sh", "-c", f"while [ ! -e {end} ]; do echo go 0 0.1 | {suite.build_cuda(part, 'preempt')} --ms 1 >/dev/null; done"],
                              env={**os.environ, "LD_PRELOAD": os.path.join(part.build, "libsublet.so"), "SUBLET_DIR": part.dir})
    result["beside_others"] = requests_beside(part, load, REQUESTS_BESIDE, {}, priority=2)
    suite.touch(end)
    maps.done(), maps.end()
    begins.wait(max(part.left(), 1))
    high, low = Program(part, "high", "--ms", 2, SUBLET_PRIORITY="1"), Program(part, "low", *load)
    high.alone(), low.alone()
    base = high.base()
    low.go(8, base), high.go(7, base)
    high.done(), low.done()
    result["busy"] = {"high_percent": round(high.progress(1000, 6000) / 50, 2), "low_percent": round(low.progress(1000, 6000) / 50, 2)}
    high.end(), low.end()
    print(result["busy"], flush=True)


def exclusive(part, result):
    """Mode exclusive: a request after each 0.1 s beside kernels of 4 s."""
    part.daemon(mode="exclusive")
    result["requests"] = requests_beside(part, ["--ms", 4000], EXCLUSIVE_REQUESTS, {}, 0, EXCLUSIVE_BETWEEN_MS, 1)


# ---- parts of the time ----

def two_shares(part, asked, kernels_ms, seconds, gap_ms=0):
    pair = [Program(part, name, "--ms", ms, "--gap-ms", gap, *ONE_BLOCK, SUBLET_SHARE=f"{percent / 100}:1")
            for name, ms, gap, percent in zip("ab", kernels_ms, (gap_ms, 0), asked)]
    base = pair[0].base()
    for p in pair:
        p.go(seconds, base)
    for p in pair:
        p.done()
    for p in pair:
        p.end()
    a, b = (p.windows(1000, (seconds - 1) * 1000, 1000, 100) for p in pair)
    got = [100 * x / (x + y) for x, y in zip(a, b)]
    off = sorted(abs(g - asked[0]) for g in got)
    return {"share_percent": round(sum(got) / len(got), 2), "windows": len(off), "off_p99": round(off[int(len(off) * 0.99)], 2),
            "off_most": round(off[-1], 2), "total_percent": round((sum(a) + sum(b)) / len(a), 2)}


def time_shares(part, result):
    """Two programs with minima of the time, one with kernels of 1 ms, the other with kernels of 5 s."""
    part.daemon()
    for asked in SHARES:
        result[f"{asked[0]}:{asked[1]}"] = two_shares(part, asked, (1, 5000), SHARES_S)
        print(asked, result[f"{asked[0]}:{asked[1]}"], flush=True)
    result["gaps"] = two_shares(part, (50, 50), (5, 5000), SHARES_S, GAP_MS)
    print("gaps", result["gaps"], flush=True)


def maximum(part, result):
    """Two programs with maxima, in each of the hand's windows."""
    part.daemon()
    both = [Program(part, name, "--ms", ms, *ONE_BLOCK, SUBLET_SHARE=f"0:{MAXIMUM / 100}") for name, ms in (("a", 10), ("b", 3000))]
    seconds = min(MAXIMUM_S, part.left() - 15)
    for p in both:  # the daemon's windows begin at multiples of their length by the monotonic clock
        begin = (time.monotonic_ns() // 10**8 + 5) * 10**8
        p.go(seconds, p.ready["gpu_ns"] + begin - p.ready["host_ns"])
    for p in both:
        p.done(), p.end()
    end_ms = (seconds - 1.5) * 1000
    each = sorted(w for p in both for w in p.windows(1000, end_ms, 100, 100))
    result.update(windows=len(each), median_percent=round(each[len(each) // 2], 2), p99_percent=round(each[int(len(each) * 0.99)], 2),
                  most_percent=round(each[-1], 2),
                  most_in_10_s_percent=round(max(w for p in both for w in p.windows(1000, end_ms, 10000, 1000)), 2))


def timing(part, result):
    """A program that times kernels of 0.1 ms by events, as autotuners do, beside one that is always busy."""
    part.daemon()
    for way, env in WAYS:
        busy = Program(part, "busy", "--ms", 5, *ONE_BLOCK, **env)
        times = Program(part, "times", "--ms", 0.1, *ONE_BLOCK, "--requests", 100000, "--events", 1, **env)
        busy.go(TIMING_S + 4), times.go(TIMING_S + 3)
        took = times.done()["took_ms"]
        busy.done()
        busy.end(), times.end()
        took = sorted(took[len(took) // 3:])  # a program gets long slices after a second without gaps
        alone = times.ready["alone_ms"]
        result[way] = {"n": len(took), "median_ms": took[len(took) // 2], "alone_ms": alone,
                       "disturbed_percent": round(100 * sum(t > 1.5 * took[len(took) // 4] for t in took) / len(took), 2)}
        print(way, result[way], flush=True)


# ---- networks ----

def two_networks(part, way, env):
    return [part.trainer("--net", "resnet50", "--batch", NETWORKS_BATCH, "--warm-up", 10, "--seed", seed, name=f"{way}-{seed}", **env)
            for seed in (1, 2)]


def networks(part, result):
    """Two trainings of ResNet-50 beside each other, alternating with two that the driver slices: without pauses, and with pauses
    as long as a step."""
    part.daemon()
    pairs = {way: two_networks(part, way, env) for way, env in WAYS}
    for pair in pairs.values():
        for p in pair:
            p.expect("ready", part.deadline)

    def rates(programs, seconds, pause, n):
        """The pauses of round n are the same for all ways."""
        for i, p in enumerate(programs):
            p.say(f"measure resnet50 {seconds} {pause} {NETWORKS_AFTER_S} {2 * n + i}")
        return [1 / p.expect("measured", part.deadline)["mean_s"] for p in programs]

    def rounds(count, pause):
        alone = [rates(pairs["hand"][:1], NETWORKS_S / 2, pause, n)[0] for n in range(NETWORKS_ROUNDS)]
        found = {"hand": [], "slices": []}
        for n in range(count):
            for way in ("hand", "slices") if n % 2 else ("slices", "hand"):
                found[way].append(rates(pairs[way], NETWORKS_S, pause, n))
        totals = {way: [sum(pair) for pair in found[way]] for way in found}
        one = {"rounds": count, "alone": round(statistics.median(alone), 2), "steps_s": {k: [[round(x, 3) for x in r] for r in v] for k, v in found.items()},
               **{way: round(statistics.median(totals[way]) / statistics.median(alone), 4) for way in totals},
               "unequal_percent": round(max(100 * abs(2 * a / (a + b) - 1) for a, b in found["hand"]), 2)}
        if count >= PAUSES_ROUNDS:
            one["to_slices"] = suite.paired(totals["slices"], totals["hand"], rates=True)
        print(one, flush=True)
        return one

    result["busy"] = rounds(NETWORKS_ROUNDS, 0)
    result["pauses"] = rounds(PAUSES_ROUNDS, NETWORKS_PAUSE_S)
    for pair in pairs.values():
        for p in pair:
            p.kill()


def requests(part, result):
    """Requests of 5 ms beside two trainings of ResNet-50."""
    part.daemon()
    pair = two_networks(part, "trains", {})
    for p in pair:
        p.expect("ready", part.deadline)
    asks = Program(part, "asks", "--ms", REQUEST_MS, "--blocks", 1, "--requests", NETWORKS_REQUESTS, "--gap-ms", BETWEEN_MS)
    for p in pair:
        p.say(f"measure resnet50 {NETWORKS_REQUESTS * (BETWEEN_MS + 8) / 1000}")
    time.sleep(2)
    asks.go(120)
    result["requests"] = spread(asks.done()["took_ms"])
    for p in (asks.p, *pair):
        p.kill()


# ---- a stopped program, moves behind the back, the cost alone ----

def stopped(part, result):
    """A program that is stopped inside a kernel of 20 s, and must give way: when others have the GPU."""
    part.daemon(capacity="20GiB", grace=f"{GRACE_S}s", patience="10ms")  # what asks for memory without a turn has no patience
    a, b = (Program(part, name, "--ms", ms, "--gib", gib, *ONE_BLOCK) for name, ms, gib in (("stands", 20000, 11), ("goes-on", 5, 1)))
    base = b.base()
    a.go(STOPPED_S, base), b.go(STOPPED_S, base)
    time.sleep(1)
    os.kill(a.p.pid, signal.SIGSTOP)
    c = part.start([suite.build_cuda(part, "preempt"), "--ms", "5", "--gib", "11"], "wants", True)
    before, asked, off = a.client(), 0, 0
    while not off and b.base() - base < (STOPPED_S - 1) * 1e9:
        now = a.client()
        if now["state"] == "draining" or now["limit"] < before["limit"]:
            asked = asked or b.base()
        off = b.base() if "overdue" in now["flags"] and now["preempted"]["for_s"] else 0  # before, the two take turns
        time.sleep(0.001)
    time.sleep(1)
    os.kill(a.p.pid, signal.SIGCONT)
    a.done(), b.done()
    c.kill()
    if not asked or not off:
        raise Failure(f"the stopped program was not asked to give way, or not taken off the GPU: {before}, {now}, {b.client()}")
    due_ms = (asked - base) / 1e6 + GRACE_S * 1000
    result["grace_end_ms"], result["off_ms"] = round(due_ms, 1), round((off - base) / 1e6, 1)
    result["before_percent"] = round(b.progress(due_ms - 500, due_ms - 50) / 4.5, 1)
    result["after_percent"] = [round(w, 1) for w in b.windows(due_ms + 10, due_ms + 150, 10, 10)]


def behind(part, result):
    """Three programs of which two fit: how much is done in all while the memory of the third goes out and in."""
    settings = {"capacity": size(BEHIND_CAPACITY_GIB), "unevictable_share": "25%"}
    part.daemon(**settings)
    end = os.path.join(part.root, "end-behind")
    programs = []
    for seed in (1, 2, 3):
        programs.append(part.program("fill", "--bytes", size(BEHIND_GIB), "--block", size(1), "--seed", seed, "--until", end,
                                     name=f"fill-{seed}"))
        programs[-1].expect("round", part.deadline)
        if seed == 1:
            begin_ns = time.monotonic_ns()
            rest(part, programs, 4)
            alone = steps(programs[0], begin_ns, time.monotonic_ns()) / 4
            result["steps_s_alone"] = round(alone, 2)
    for mode in ("auto", "exclusive"):
        part.reload(**settings, mode=mode)
        before = part.gpu()["handoffs"]
        parts.wait_until(part, lambda n=before: part.gpu()["handoffs"] >= n + 6, "six hand-offs")
        clients = part.gpu()["clients"]
        moved, handoffs = sum(c["moved_in"] for c in clients), part.gpu()["handoffs"]
        begin_ns = time.monotonic_ns()
        rest(part, programs, BEHIND_S)
        took = (time.monotonic_ns() - begin_ns) / 1e9
        did = [steps(p, begin_ns, begin_ns + int(took * 1e9)) for p in programs]
        result[mode] = {"total_percent": round(100 * sum(did) / took / alone, 2), "steps": did, "seconds": round(took, 2),
                        "handoffs": part.gpu()["handoffs"] - handoffs,
                        "moved_gib": round((sum(c["moved_in"] for c in part.gpu()["clients"]) - moved) / parts.GIB, 1)}
        print(mode, result[mode], flush=True)
    suite.touch(end)
    for p in programs:
        p.wait(part.deadline)


def cost(part, result):
    """A program that is alone on the GPU, under sublet with its hand and without sublet, alternating."""
    part.daemon()
    pair = {shared: Program(part, f"alone-{shared}", "--ms", 1, "--depth", 4, *ONE_BLOCK, shared=shared) for shared in (False, True)}
    rates = {False: [], True: []}
    for n in range(COST_PAIRS):
        for shared in (False, True) if n % 2 else (True, False):
            pair[shared].go(COST_S)
            did = pair[shared].done()
            rates[shared].append(did["kernels"] / did["seconds"])
    result.update(suite.paired(rates[False], rates[True], rates=True))
    for p in pair.values():
        p.end()


PARTS = {"preempt-networks": (networks, 270), "preempt-requests": (requests, 75), "preempt-delays": (delays, 320), "preempt-first": (first_kernels, 120), "preempt-exclusive": (exclusive, 60),
         "preempt-shares": (time_shares, 200), "preempt-maximum": (maximum, 200), "preempt-stopped": (stopped, 40),
         "preempt-behind": (behind, 200), "preempt-timing": (timing, 60), "preempt-cost": (cost, 90)}


# ---- the page ----

ABOUT = ("The daemon's [hand](../freezing.md#the-daemons-hand) takes programs off the GPU in the middle of a kernel. This page says"
         " how soon others have the GPU, and how exactly shares are kept. A *request* is a kernel of 0.02 ms, from its launch to the"
         " end of the wait, unless said.")


def in_words(r):
    return f"median {r['p50']} ms, 99 of 100 at most {r['p99']} ms, most {r['max']} ms"


def figures(found):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    out = []
    r = found.get("preempt-networks", {})
    if "busy" in r:
        one = r["busy"]
        out.append((f"two ResNet-50 beside each other, {NETWORKS_ROUNDS} rounds; alone: {one['alone']} steps/s",
                    f"together {one['hand']} of one alone, each within {one['unequal_percent']} % of half; with the driver's slices"
                    f" {one['slices']}", "0.98 of one alone", one["hand"] >= 0.98 and one["unequal_percent"] <= 5))
    if "pauses" in r:
        one, to = r["pauses"], r["pauses"]["to_slices"]
        low, high = to["interval_percent"]
        out.append((f"… that sleep for 21 to 63 ms after each step, {one['rounds']} rounds; alone: {one['alone']} steps/s",
                    f"together {one['hand']} of one alone, with the driver's slices {one['slices']} (medians); round by round"
                    f" {to['difference_percent']:+} % steps (95 %: {low:+} to {high:+})", "at most 1 % fewer", pages.within((-high, -low), 1)))
    if "requests" in found.get("preempt-requests", {}):
        r = found["preempt-requests"]["requests"]
        out.append((f"requests of {REQUEST_MS} ms beside two ResNet-50, {r['n']} times", in_words(r), "p99 at most 20 ms", r["p99"] <= 20))
    first = found.get("preempt-first", {})
    if "requests" in first:
        r = first["requests"]
        out.append((f"requests of a higher priority beside kernels of 20 s that fill the GPU, {r['n']} times", in_words(r),
                    "p99 at most 5 ms", r["p99"] <= 5))
    if "beside_others" in first:
        r = first["beside_others"]
        out.append((f"… beside a program that maps memory, and programs that begin and end, {r['n']} times", in_words(r), None, None))
    if "busy" in first:
        r = first["busy"]
        out.append(("a program of a higher priority that is always busy; the lower one", f"{r['high_percent']} % of its speed alone;"
                    f" {r['low_percent']} %", "at least 95 %", r["high_percent"] >= 95))
    if "requests" in found.get("preempt-exclusive", {}):
        r = found["preempt-exclusive"]["requests"]
        out.append((f"mode *exclusive*: a request of 1 ms after each {EXCLUSIVE_BETWEEN_MS / 1000} s beside kernels of 4 s, {r['n']} times",
                    in_words(r), "median at most 10 ms, p99 50 ms", r["p50"] <= 10 and r["p99"] <= 50))
    gaps = found.get("preempt-shares", {}).get("gaps")
    if gaps:
        out.append((f"minima of 50:50, the first with kernels of 5 ms and gaps of {GAP_MS / 2} to {GAP_MS * 1.5} ms, {gaps['windows']} windows"
                    " of 1 s", f"{gaps['share_percent']} % on average; {gaps['total_percent']} % in all", None, None))
    for asked, r in found.get("preempt-shares", {}).items():
        if isinstance(r, dict) and asked != "gaps":
            out.append((f"minima of {asked}, kernels of 1 ms and of 5 s, {r['windows']} windows of 1 s",
                        f"{r['share_percent']} % on average; 99 of 100 windows within {r['off_p99']} points, all within"
                        f" {r['off_most']}; {r['total_percent']} % in all", "within 1 point in 99 of 100", r["off_p99"] <= 1))
    r = found.get("preempt-maximum", {})
    if "windows" in r:
        out.append((f"maxima of {MAXIMUM} %, two programs, {r['windows']} windows of 0.1 s", f"median {r['median_percent']} %, 99 of 100"
                    f" at most {r['p99_percent']} %, most {r['most_percent']} %; in 10 s at most {r['most_in_10_s_percent']} %",
                    "99 of 100 at most 23 %, 10 s 20.3 %", r["p99_percent"] <= 23 and r["most_in_10_s_percent"] <= 20.3))
    r = found.get("preempt-stopped", {})
    if "off_ms" in r:
        out.append((f"a program stopped by `SIGSTOP` in a kernel, grace {GRACE_S} s: off the GPU after its end",
                    f"{r['off_ms'] - r['grace_end_ms']:.1f} ms; the others' part is {r['before_percent']} % before, in turns, and"
                    f" {min(r['after_percent'])} % at least from 10 ms on", "10 ms", r["off_ms"] - r["grace_end_ms"] <= 10))
    for mode in ("auto", "exclusive"):
        r = found.get("preempt-behind", {}).get(mode)
        if r:
            out.append((f"three programs of {BEHIND_GIB} GiB on {BEHIND_CAPACITY_GIB} GiB, mode *{mode}*, {r['seconds']:.0f} s",
                        f"{r['total_percent']} % of one alone in all; {r['handoffs']} hand-offs, {r['moved_gib']} GiB moved in", None, None))
    for way, name in (("hand", "with the hand"), ("slices", "with the driver's slices")):
        r = found.get("preempt-timing", {}).get(way)
        if r:
            out.append((f"kernels of 0.1 ms timed by events beside a busy program, {name}, {r['n']} times",
                        f"median {r['median_ms']:.3f} ms; {r['disturbed_percent']} % take more than 1.5 times as long as a quarter does", None, None))
    r = found.get("preempt-cost", {})
    if "pairs" in r:
        low, high = r["interval_percent"]
        out.append((f"a program alone on the GPU, against the plain driver, {r['pairs']} pairs of {COST_S} s",
                    f"{r['difference_percent']:+} % kernels a second (95 %: {low:+} to {high:+})", "-0.3 %", pages.within((-high, -low), 0.3)))
    return out


def rows_of(delay, labels, what):
    lines = [f"| {what} | with the hand | the load's part | with the driver's slices | the load's part |", "|---|---|---|---|---|"]
    for label in labels:
        cells = [label]
        for way, _ in WAYS:
            r = delay.get(f"{way}, {label}")
            cells += [f"{r['p50']}, {r['p99']}, {r['max']}", f"{r['load_percent']} %"] if r else ["", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def plot(delay):
    """Returns the plot of the delays by the kernels' length, and beside it of the load's part."""
    top, width, height, colours = 50, 270, 260, {"hand": "#1b6ca8", "slices": "#d1722a"}
    x = lambda left, ms: left + width * math.log10(ms) / math.log10(LENGTHS_MS[-1])
    low, high = 0.1, 100.0
    delay_y = lambda ms: top + height * (1 - math.log(min(max(ms, low), high) / low) / math.log(high / low))
    part_y = lambda percent: top + height * (1 - percent / 100)
    body = [text(70, 24, f"A request of {REQUEST_MS} ms takes (median)", "start", 'font-weight="bold"'),
            text(430, 24, "What the other program has meanwhile", "start", 'font-weight="bold"')]
    for ms in (0.1, 1, 10, 100):
        body += [line(70, delay_y(ms), 70 + width, delay_y(ms), "#ddd"), text(62, delay_y(ms) + 4, f"{ms:g} ms", "end")]
    for percent in range(0, 101, 20):
        body += [line(430, part_y(percent), 430 + width, part_y(percent), "#ddd"), text(422, part_y(percent) + 4, f"{percent} %", "end")]
    for left in (70, 430):
        body.append(text(left + width / 2, top + height + 40, "length of the other program's kernels"))
        for ms in LENGTHS_MS:
            body.append(text(x(left, ms), top + height + 18, f"{ms:g} ms" if ms < 1000 else f"{ms // 1000:g} s"))
    for i, (way, colour) in enumerate(colours.items()):
        found = [(ms, delay[f"{way}, {ms} ms"]) for ms in LENGTHS_MS if f"{way}, {ms} ms" in delay]
        for left, points in ((70, [(ms, delay_y(r["p50"])) for ms, r in found]), (430, [(ms, part_y(r["load_percent"])) for ms, r in found])):
            path = " ".join(f"{x(left, ms):.1f},{y:.1f}" for ms, y in points)
            body += [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>',
                     *(f'<circle cx="{x(left, ms):.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for ms, y in points)]
        body += [line(90, top + height - 40 + 20 * i, 114, top + height - 40 + 20 * i, colour),
                 text(120, top + height - 36 + 20 * i, f"with the {way if way == 'hand' else 'driver&#8217;s slices'}", "start", f'fill="{colour}"')]
    return svg(740, 370, body)


def plots(results):
    """Returns {name: content} of the files beside the page."""
    delay = results["parts"].get("preempt-delays", {})
    return {"h200-preempt.svg": plot(delay)} if any(isinstance(r, dict) for r in delay.values()) else {}


def page(results):
    found = results["parts"]
    lines = pages.table(figures(found))
    delay = found.get("preempt-delays", {})
    if any(isinstance(r, dict) for r in delay.values()):
        lines += [f"## {REQUESTS} requests of {REQUEST_MS} ms with a higher priority, {BETWEEN_MS} ms apart", "",
                  "Times of a request, from its launch to the end of the wait, are the median, 99 of 100, and the longest, in ms. The load's part is of its speed alone.", "",
                  *rows_of(delay, [f"{ms} ms" for ms in LENGTHS_MS], "the load's kernels, which fill the GPU, take"),
                  "![Delays and the load's part, by the length of kernels](h200-preempt.svg)", "",
                  *rows_of(delay, [f"{percent} % of the GPU" for percent in CARD_PERCENT], "kernels of 100 ms, whose blocks fill"),
                  *rows_of(delay, [f"{percent} % in place" for percent in IN_PLACE_PERCENT],
                           "kernels of 20 ms, of which so many change memory in place"),
                  "A kernel that changes memory in place could not begin again; the others could. The hand needs neither: a kernel goes on"
                  " where it was.", ""]
    return [*lines, *pages.unfinished(found),
            "`./dev gpu --only preempt` runs these parts (`tests/gpu/preempt.py`). The kernels compute in registers, and count"
            " their steps by the GPU's clock. Parts of the time are the steps done, against the program's own speed: of kernels with one block,"
            " what they do in each millisecond that they have whole; of others, what they do alone. The moment at which"
            " a program is asked to give way is known to some milliseconds. If all threads of a kernel read the host's memory, "
            "it takes 9 to 45 ms to preempt it, also for the driver.", ""]
