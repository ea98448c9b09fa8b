"""The parts about the daemon's hand, which takes programs off the GPU in the middle of a kernel, and their page with its
plots. preempt.cu is the program; the GPU's clock tells who had the GPU when."""

import math
import os
import random
import signal
import subprocess
import time

import pages
import suite
from drains import spread
from suite import Failure

BIN_MS = 5
LENGTHS_MS = (1, 10, 100, 1000, 20000)
CARD_PERCENT = (1, 25, 50, 100)
IN_PLACE_PERCENT = (0, 50, 100)
REQUESTS, REQUESTS_LONG = 150, 1000
BETWEEN_MS = 25      # on average
SHARES = ((5, 95), (20, 80), (50, 50))
SHARES_S, EXCLUSIVE_REQUESTS, MAXIMUM, MAXIMUM_S = 32, 200, 20, 310
OFF = {"SUBLET_FREEZE": "off"}


class Program:
    """A program of preempt.cu, which is ready."""

    def __init__(self, part, name, *args, shared=True, known=True, **env):
        if not hasattr(part, "preempt_cu"):
            part.preempt_cu = suite.build_cuda(part, "preempt")
        self.part = part
        self.p = part.start([part.preempt_cu, *map(str, args)], name, shared, **env)
        self.ready = self.p.expect("ready", part.deadline)
        if shared and known and env.get("SUBLET_FREEZE") != "off":
            self.await_known()

    def client(self):
        return next((c for c in self.part.gpu()["clients"] if c["pid"] == self.p.pid), {})

    def await_known(self):
        while not self.client().get("preempted"):
            if self.part.left() < 0:
                raise Failure("the hand does not know the program")
            time.sleep(0.02)

    def go(self, seconds, base_ns=0):
        self.p.say(f"go {base_ns} {seconds}")

    def done(self):
        self.result = self.p.expect("done", self.part.deadline)
        self.p.wait(self.part.deadline)
        return self.result

    def progress(self, begin_ms, end_ms):
        """Returns the GPU's time that it had from begin_ms to end_ms after its base, in ms."""
        return sum(self.result["bins"][int(begin_ms / BIN_MS):int(end_ms / BIN_MS)]) / self.ready["blocks"] / self.ready["steps_ms"]


def base_of(program):
    """Returns a moment shortly from now by the GPU's clock."""
    return program.ready["gpu_ns"] + time.monotonic_ns() - program.ready["host_ns"]


def requests_beside(part, load, n, env, at=0, gap_ms=BETWEEN_MS, request_ms=0.02):
    """Makes n requests beside a load, which is an argument list. Returns their delays, and what the load had."""
    low = Program(part, "load", *load, **env)
    high = Program(part, "asks", "--ms", request_ms, "--blocks", 1, "--requests", n, "--gap-ms", gap_ms, SUBLET_PRIORITY=str(at), **env)
    took_s = n * (gap_ms + 8) / 1000 + 1
    base = base_of(low)
    low.go(took_s + 1, base)
    time.sleep(0.5)
    high.go(120)
    began_ms = (base_of(low) - base) / 1e6
    took = high.done()["took_ms"]
    ended_ms = (base_of(low) - base) / 1e6
    low.done()
    return {**spread(took), "all_ms": took, "request_alone_ms": high.ready["alone_ms"],
            "load_percent": round(100 * low.progress(began_ms, ended_ms) / (ended_ms - began_ms), 2)}


def delays(part, result):
    """Requests of a higher priority beside a program of a lower one: by the kernels' length, by how much of the GPU they
    fill, and by whether they could begin again; with the hand, and with the driver's slices."""
    part.daemon()
    whole = None
    for way, env in (("hand", {}), ("slices", OFF)):
        for ms in LENGTHS_MS:
            result[f"{way}, kernels of {ms} ms"] = requests_beside(part, ["--ms", ms], REQUESTS, env, at=1)
            print(way, ms, {k: v for k, v in result[f"{way}, kernels of {ms} ms"].items() if k != "all_ms"}, flush=True)
        if not whole:
            whole = Program(part, "whole", shared=False).p
            whole_blocks = whole.events[-1]["resident"]
            whole.kill()
        for percent in CARD_PERCENT[:-1]:
            result[f"{way}, {percent} % of the GPU"] = requests_beside(
                part, ["--ms", 100, "--blocks", max(1, whole_blocks * percent // 100)], REQUESTS, env, at=1)
        for percent in IN_PLACE_PERCENT:
            result[f"{way}, {percent} % in place"] = requests_beside(part, ["--ms", 20, "--in-place", percent], REQUESTS, env, at=1)


def first_kernels(part, result):
    """A thousand requests of a higher priority beside kernels of 20 s that fill the GPU; some beside a program that maps
    and frees memory, and others that begin and end; and a busy program of a higher priority."""
    part.daemon()
    low = ["--ms", 20000]
    result["requests"] = requests_beside(part, low, REQUESTS_LONG, {}, at=1)
    print({k: v for k, v in result["requests"].items() if k != "all_ms"}, flush=True)
    stop = time.monotonic() + 20
    churn = Program(part, "maps", "--maps", 1, "--gap-ms", 20, SUBLET_PRIORITY="1", known=False)
    churn.go(18)
    beginner = subprocess.Popen(["/bin/sh", "-c", f"while [ ! -e {part.root}/end-begins ]; do echo go 0 0.1 |"
                                 f" {part.preempt_cu} --ms 1 >/dev/null; done"],
                                env={**os.environ, **dict(LD_PRELOAD=os.path.join(part.build, "libsublet.so"), SUBLET_DIR=part.dir)},
                                start_new_session=True)
    result["beside_others"] = requests_beside(part, low, 300, {}, at=2)
    suite.touch(os.path.join(part.root, "end-begins"))
    beginner.wait(max(part.left(), 1))
    churn.done()
    del stop
    print({k: v for k, v in result["beside_others"].items() if k != "all_ms"}, flush=True)
    high, low = Program(part, "high", "--ms", 2, SUBLET_PRIORITY="1"), Program(part, "low", *low)
    base = base_of(high)
    low.go(8, base)
    high.go(7, base)
    high.done(), low.done()
    result["busy"] = {"high_percent": round(high.progress(1000, 6000) / 50, 2), "low_percent": round(low.progress(1000, 6000) / 50, 2)}
    print(result["busy"], flush=True)


def exclusive(part, result):
    """Mode exclusive: requests after each 0.1 s beside kernels of 4 s."""
    part.daemon(mode="exclusive")
    result["requests"] = requests_beside(part, ["--ms", 4000], EXCLUSIVE_REQUESTS, {}, gap_ms=100, request_ms=1)


def windows(program, begin_ms, end_ms, window_ms, step_ms):
    """Returns the parts of windows, in percent of the GPU alone."""
    out, at = [], begin_ms
    while at + window_ms <= end_ms:
        out.append(100 * program.progress(at, at + window_ms) / window_ms)
        at += step_ms
    return out


def two_shares(part, asked, kernels_ms, seconds):
    # One block on each multiprocessor: when some of more blocks have ended, the others go on faster.
    a = Program(part, "a", "--ms", kernels_ms[0], "--blocks", 132, SUBLET_SHARE=f"{asked[0] / 100}:1")
    b = Program(part, "b", "--ms", kernels_ms[1], "--blocks", 132, SUBLET_SHARE=f"{asked[1] / 100}:1")
    base = base_of(a)
    for p in (a, b):
        p.go(seconds, base)
    for p in (a, b):
        p.done()
    found = {}
    parts = [windows(p, 1000, (seconds - 1) * 1000, 1000, 100) for p in (a, b)]
    share = [100 * x / (x + y) for x, y in zip(*parts)]
    off = sorted(abs(s - asked[0]) for s in share)
    found["share_percent"] = round(sum(share) / len(share), 2)
    found["points_off_99"] = round(off[int(len(off) * 0.99)], 2)
    found["points_off_most"] = round(off[-1], 2)
    found["windows"] = len(off)
    found["total_percent"] = round(sum(map(sum, parts)) / len(parts[0]), 2)
    return found


def shares(part, result):
    """Two programs with shares of the time, with kernels of 1 ms and of 5 s."""
    part.daemon()
    for asked in SHARES:
        result[f"{asked[0]}:{asked[1]}"] = two_shares(part, asked, (1, 5000), SHARES_S)
        print(asked, result[f"{asked[0]}:{asked[1]}"], flush=True)
    result["95:5"] = two_shares(part, (95, 5), (1, 5000), SHARES_S)
    print(result["95:5"], flush=True)


def maximum(part, result):
    """A program with a maximum share, in each of 3,000 windows."""
    part.daemon()
    p = Program(part, "most", "--ms", 10, "--blocks", 132, SUBLET_SHARE=f"0:{MAXIMUM / 100}")
    # The daemon's windows begin at multiples of their length by the monotonic clock.
    begin = (time.monotonic_ns() // 10**8 + 5) * 10**8
    seconds = min(MAXIMUM_S, part.left() - 15)
    p.go(seconds, p.ready["gpu_ns"] + begin - p.ready["host_ns"])
    p.done()
    parts = sorted(windows(p, 1000, (seconds - 1) * 1000, 100, 100))
    tens = windows(p, 1000, (seconds - 1) * 1000, 10000, 1000)
    result.update(windows=len(parts), median_percent=round(parts[len(parts) // 2], 2), p99_percent=round(parts[int(len(parts) * 0.99)], 2),
                  most_percent=round(parts[-1], 2), most_in_10_s_percent=round(max(tens), 2))


def stopped(part, result):
    """A program that is stopped inside a kernel of 20 s, and must give way: when others have the GPU."""
    part.daemon(capacity="20GiB", grace="2s")
    a = Program(part, "stands", "--ms", 20000, "--gib", 11)
    b = Program(part, "goes-on", "--ms", 5, "--gib", 1)
    base = base_of(b)
    a.go(8, base)
    b.go(9, base)
    time.sleep(1)
    os.kill(a.p.pid, signal.SIGSTOP)
    c = part.start([part.preempt_cu, "--ms", "5", "--gib", "11"], "wants", True)
    seen = []
    until = time.monotonic() + 6
    while time.monotonic() < until:
        now = {x["name"]: (x["state"], bool(x.get("overdue")), (x.get("preempted") or {}).get("for_s")) for x in part.gpu()["clients"]}
        if not seen or seen[-1][1] != now.get("stands"):
            seen.append((round((base_of(b) - base) / 1e6, 1), now.get("stands")))
        time.sleep(0.002)
    os.kill(a.p.pid, signal.SIGCONT)
    a.done(), b.done()
    result["states"] = seen
    result["rate_percent"] = [round(x) for x in windows(b, 0, 9000, 10, 10)]
    c.kill()


PARTS = {"preempt-delays": (delays, 300), "preempt-first": (first_kernels, 120), "preempt-exclusive": (exclusive, 60),
         "preempt-shares": (shares, 200), "preempt-maximum": (maximum, 340), "preempt-stopped": (stopped, 40)}
ABOUT = ("The daemon's [hand](../freezing.md#the-daemons-hand) takes programs off the GPU in the middle of a kernel. This page says"
         " how soon others have the GPU, and how exactly shares are kept.")


def figures(found):
    return []


def page(results):
    return [*pages.unfinished(results["parts"]), ""]
