"""The parts about one process that uses more than the card, and their page: run time against the share kept on the
card, for several orders of its buffers.

The card is large, so most rows limit the share instead (SUBLET_KEEP): the memory beyond it lies in host memory, mapped
for the card. In one row the program really uses more than the card."""

import math
import os
import sys
import time

import pages
import parts
import suite
from suite import Failure

BUFFERS = 12     # buffers of each of the two driver-API programs
BUFFER_MIB = 512 # an allocation of this size on the host takes 0.1 s (H200)
HOT = 2          # buffers that are used again and again
HOT_TIMES = 8
JOB_MIB = 6144   # memory of the inference, of which half is an embedding
SHARES = (1.1, 0.75, 0.5, 0.25)  # shares of the program's allocations; above 1, no buffer is on the host
PROFILE_SHARE = SHARES[-1]
SET = ("default", "best", "worst")  # orders of buffers that are measured in one program, one after the other
ORDERS = ("default", "profiled", "best", "worst")
UNITS = 3
WHOLE_GIB = 4            # size of a buffer of the program that uses more than the card
FITS, MORE = 0.8, 1.1    # shares of the card: without and with memory on the host
PLACED_S = 2     # longer than the delay after which buffers begin to change sides
AGREE = 0.05     # a figure has settled if two medians in a row differ by at most this share
MEBIBYTE = 1 << 20


def rehearse():
    global BUFFERS, BUFFER_MIB, HOT, HOT_TIMES, SHARES, PROFILE_SHARE, AGREE
    BUFFERS, BUFFER_MIB, HOT, HOT_TIMES, AGREE = 4, 2, 1, 2, 1  # smaller buffers would share an extent
    SHARES = (1.1, 0.5)
    PROFILE_SHARE = SHARES[-1]


class Job:
    """A program that does units of work, and changes the order of its buffers when told to."""

    def __init__(self, part, name, share, total_mib, argv, **env):
        self.part = part
        if share is not None:  # without a share the program may use all of the card
            # Small allocations have 2 MiB of their own, and the buffers of a rehearsal are no larger than that.
            env["SUBLET_KEEP"] = str((int(share * total_mib) // 2 * 2 + 2) * MEBIBYTE) + "B"
        self.p = part.start(argv, name, True, SUBLET_MEMORY="overflow", **env)
        self.p.expect("ready", part.deadline)

    def say(self, line):
        self.p.say(line)
        return self.p.expect("done", self.part.deadline)

    def settled(self):
        """Works until the time of a unit has settled. Buffers begin to change sides some time after a change of their
        order. Two medians that agree after that time mean that every buffer has arrived on its side."""
        began, before = time.monotonic(), self.unit()
        while self.part.left() > 3:
            now = self.unit()
            if time.monotonic() - began > PLACED_S and abs(now - before) <= AGREE * max(now, before):
                return min(now, before)
            before = now
        raise Failure(f"{self.p.name}: the time of a unit does not settle")

    def profiled(self):
        """Works until the profile exists. Returns the seconds that this took."""
        began = time.monotonic()
        while "the profile is in " not in self.p.tail():
            if "no profile" in self.p.tail() or self.part.left() < 3:
                raise Failure(f"{self.p.name}: no profile in time: {self.p.tail()}")
            self.unit()
        return round(time.monotonic() - began, 1)

    def end(self):
        self.p.close()
        self.p.wait(self.part.deadline)


class Buffers(Job):
    """A driver-API program. A unit uses each buffer once; if the name is "hot", it uses the last buffers many times."""

    def __init__(self, part, name, share, label, **env):
        self.hot = range(BUFFERS - HOT, BUFFERS) if name == "hot" else ()
        self.pairs = []
        super().__init__(part, label, share, BUFFERS * BUFFER_MIB,
                         [os.path.join(part.build, "programs", "buffers"), "--seed", "1"], **env)
        if share is not None:  # otherwise whole() allocates the buffers
            self.allocate(BUFFERS, f"{BUFFER_MIB}MiB")

    def allocate(self, up_to, size):
        for n in range(len(self.pairs), up_to):
            self.say(f"alloc {n} {size}")
            self.pairs.append(f"{n}:{HOT_TIMES if n in self.hot else 1}")

    def unit(self):
        return self.say(f"cycle {UNITS} {' '.join(self.pairs)}")["ms"]

    def on_card(self):
        return next(c["backed"] for c in self.part.gpu()["clients"] if c["pid"] == self.p.pid)

    def order(self, order):
        for n in range(BUFFERS):
            self.say(f"priority {n} {(1 if order == 'best' else -1) * (n in self.hot)}")

    def end(self):
        self.say("check")
        super().end()


class Inference(Job):
    """PyTorch: an embedding that is hardly used, and layers that are read in full for every token."""

    def __init__(self, part, _, share, label, **env):
        super().__init__(part, label, share, JOB_MIB,
                         [sys.executable, os.path.join(suite.HERE, "overflow_job.py"), str(JOB_MIB)],
                         PYTHONPATH=os.path.join(suite.ROOT, "python"), **env)

    def unit(self):
        return self.say("run")["ms"]

    def order(self, order):
        self.say(order)


def measure(part, result, name, make):
    """Measures one program: its profile, then each share with each order."""
    result = result.setdefault(name, {})
    path = os.path.join(part.root, f"{name}.profile")
    job = make(part, name, PROFILE_SHARE, f"{name}-profile", SUBLET_PROFILE=path)
    result["profile_s"] = job.profiled()
    job.end()
    with open(path, encoding="utf-8") as f:
        result["profile"] = f.read().splitlines()
    for share in SHARES:
        times = result.setdefault(str(share), {})
        job = make(part, name, share, f"{name}-{share}")
        for order in SET if share < 1 else SET[:1]:
            if order != "default":
                job.order(order)
            times[order] = round(job.settled(), 2)
        job.end()
        if share < 1:
            job = make(part, name, share, f"{name}-{share}-profiled", SUBLET_PROFILE_FILE=path)
            times["profiled"] = round(job.settled(), 2)
            job.end()


def overflow(part, result):
    """Run time of two driver-API programs against the share of their memory that is kept on the card."""
    part.daemon(quantum="60s")
    for name in ("streaming", "hot"):
        measure(part, result, name, Buffers)


def inference(part, result):
    """Run time of an inference in PyTorch against the share of its memory that is kept on the card."""
    part.daemon(quantum="60s")
    measure(part, result, "inference", Inference)


def whole(part, result):
    """One program that uses a tenth more than the card has."""
    part.daemon(quantum="60s")
    total, job = suite.Card(part).total(), Buffers(part, "whole", None, "whole")
    for name, share in (("fits", FITS), ("more", MORE)):
        n = math.ceil(share * total / (WHOLE_GIB * parts.GIB))
        job.allocate(n, parts.size(WHOLE_GIB))
        result[name] = {"gib": n * WHOLE_GIB, "of_the_card": round(n * WHOLE_GIB * parts.GIB / total, 3),
                        "unit_ms": round(job.settled(), 2), "on_card_gib": round(job.on_card() / parts.GIB, 2)}
    result["ms_a_gib"] = {k: round(result[k]["unit_ms"] / result[k]["gib"], 3) for k in ("fits", "more")}
    job.end()
    result["checked"] = True
    if result["more"]["gib"] * parts.GIB <= total:
        raise Failure("not more than the card")


PROFILED = ("overflow", "overflow-inference")
PARTS = {"overflow": (overflow, 400), "overflow-inference": (inference, 300), "overflow-whole": (whole, 150)}


ABOUT = ("One program may have more memory than the card. The rest lies in host memory, where the GPU uses it over the bus"
         " (`--memory overflow`). This page says how much longer a program takes. That depends on the share of its memory on the card,"
         " and on which buffers are there.")


def figures(found):
    for name, p in [(n, p) for part in PROFILED for n, p in found.get(part, {}).items() if isinstance(p, dict)]:
        all_there = p.get(str(SHARES[0]), {}).get("default")
        for share in SHARES[1:]:
            times = p.get(str(share), {})
            if times and all_there:
                text = ", ".join(f"{o} {times[o] / all_there:.2f}" for o in ORDERS if o in times)
                yield (f"{name}, {share:.0%} of its memory on the card: run time, as a multiple of the time with all memory on the card",
                       text, "", None)
        if "profile_s" in p:
            yield f"{name}: time until its profile was written", f"{p['profile_s']} s", "", None
    w = found.get("overflow-whole", {})
    if "ms_a_gib" in w:
        fits, more = w["fits"], w["more"]
        yield (f"whole: {more['gib']} GiB, {more['of_the_card']:.0%} of the card, of which it has {more['on_card_gib']} GiB: a unit",
               f"{more['unit_ms'] / 1e3:.2f} s, {w['ms_a_gib']['more']} ms a GiB; with {fits['gib']} GiB, which fit,"
               f" {fits['unit_ms'] / 1e3:.2f} s, {w['ms_a_gib']['fits']} ms a GiB;"
               f" contents {'right' if w.get('checked') else 'not checked'}", "right", bool(w.get("checked")))


def page(results):
    names = [name for name in PARTS if name in results["parts"]]
    whole_too = (["| *whole* | does as *streaming*, without `SUBLET_KEEP`, with more memory than the card has |"]
                 if "overflow-whole" in names else [])
    return [
        *pages.table(figures(results["parts"])),
        *pages.unfinished(results["parts"]),
        f"`./dev gpu --only {','.join(names)}` runs these parts (`tests/gpu/overflow.py`). The figures are medians over units of work of"
        " one process. `SUBLET_KEEP` sets the share of its memory on the card.", "",
        "| program | what it does |", "|---|---|",
        f"| *streaming* | uses each of its {BUFFERS} buffers of {BUFFER_MIB} MiB once a unit |",
        f"| *hot* | has the same buffers, and uses {HOT} of them {HOT_TIMES} times a unit |",
        "| *inference* | PyTorch: an embedding that is hardly touched, and layers that are read whole |",
        *whole_too, "",
        "| order of the buffers | by |", "|---|---|",
        "| *default* | size |",
        f"| *profiled* | the file that one run with `--profile` wrote, with {PROFILE_SHARE:.0%} on the card |",
        "| *best*, *worst* | priorities set by hand, from knowledge of the program |",
        "",
    ]
