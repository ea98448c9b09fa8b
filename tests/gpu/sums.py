"""What the library's books say that a process has on the card, against what NVML says of that process, each time that the
programs rest. And its page."""

import os
import sys
import time

import pages
import parts
import suite
from suite import Failure

MIB = 1 << 20
HOLD_GIB = 80    # of each of two, so that they do not fit together
TOUCHES = 6      # of which every one after the first is a hand-off
REST_S = 0.4     # neither figure has changed for so long
# What the books count for a context is an estimate, a 256th of the card; what else a process has besides memory that it
# was given is known to NVML alone. From one rest of a process to another both stay, and the books must follow.
APART_MIB, DRIFT_MIB = 128, 8


def said(part, p):
    """The last that the process traced of what it has on the card."""
    found = [e["bytes"] for e in part.traced() if e["pid"] == p.pid and e["event"] == "on_card"]
    return found[-1] if found else None


def at_rest(part, card, processes):
    """{process: (by its books, by NVML)} once nothing changes any more."""
    before, since = None, time.monotonic()
    while part.left() > 0:
        by_nvml = card.of_processes()
        now = {p: (said(part, p), by_nvml.get(p.pid)) for p in processes}
        if now != before:
            before, since = now, time.monotonic()
        if time.monotonic() - since >= REST_S and all(books is not None for books, _ in now.values()):
            missing = [p.name for p, (_, nvml) in now.items() if nvml is None]
            if missing:
                raise Failure(f"NVML does not say what {', '.join(missing)} has")
            return now
        time.sleep(0.05)
    raise Failure("the processes do not come to rest")


class Books:
    """The differences of one process after the other, in MiB."""

    def __init__(self, part, result):
        self.part, self.result, self.card = part, result, suite.Card(part)

    def look(self, name, processes, after):
        for p, (books, nvml) in at_rest(self.part, self.card, processes).items():
            rests = self.result.setdefault("rests", {}).setdefault(name, {}).setdefault(p.name, [])
            rests.append({"after": after, "books_mib": round(books / MIB, 2), "nvml_mib": round(nvml / MIB, 2)})

    def order(self, p, line):
        p.say(line)
        return p.expect("done", self.part.deadline)

    def end(self, *processes):
        for p in processes:
            p.close()
            p.wait(self.part.deadline)


def sums(part, result):
    """The books of programs at rest against NVML's figure of each."""
    part.daemon(quantum="100ms")
    books = Books(part, result)

    for name, env in (("allocations", {}), ("overflow", {"SUBLET_MEMORY": "overflow", "SUBLET_KEEP": parts.size(3)})):
        p = part.program("buffers", name=name, **env)
        p.expect("ready", part.deadline)
        for line in (f"alloc 0 {parts.size(2)}", f"alloc 1 {parts.size(5)}", "alloc 2 20KiB", f"alloc 3 {parts.size(0.3)}", "free 1",
                     f"alloc 4 {parts.size(1)}", "free 0", "free 2"):
            books.order(p, line)
            books.look(name, [p], line)
        books.end(p)

    # Half of what they exchange is passed on, and then another process's.
    pair = [part.program("hold", "--bytes", parts.size(HOLD_GIB), "--block", parts.size(2), "--seed", seed, name=f"hold-{seed}")
            for seed in (1, 2)]
    for p in pair:
        p.expect("filled", part.deadline)
    for n in range(TOUCHES):
        books.order(pair[n % 2], "touch")
        books.look("hand-offs", pair, f"touch {n + 1}")
    result["handoffs"] = part.gpu()["handoffs"]
    books.end(*pair)

    if not suite.rehearsing():
        p = part.start([sys.executable, os.path.join(suite.HERE, "cacher.py"), "--gib", "8", "--weights", "2"], "torch", True)
        p.expect("ready", part.deadline)
        for n in range(3):
            books.look("PyTorch", [p], f"work {n}")
            books.order(p, "work")
        books.look("PyTorch", [p], "work 3")
        books.end(p)
    if result["handoffs"] < TOUCHES - 2:
        raise Failure(f"only {result['handoffs']} hand-offs")


PARTS = {"sums": (sums, 150)}

NAMES = {"allocations": "a program that allocates and frees", "overflow": "the same with part of its memory on the host",
         "hand-offs": f"two programs of {HOLD_GIB} GiB that take turns", "PyTorch": "PyTorch, allocating"}


def compared(processes):
    """Over all rests of some processes: how often, how far apart at most, and how far that wanders within one of them."""
    apart = [[r["books_mib"] - r["nvml_mib"] for r in rests] for rests in processes.values()]
    return (sum(map(len, apart)), max((d for one in apart for d in one), key=abs), max(max(one) - min(one) for one in apart))


def figures(found):
    out = []
    for name, processes in found.get("sums", {}).get("rests", {}).items():
        n, apart, drift = compared(processes)
        out.append((f"{NAMES[name]}, {n} times at rest: the library's accounts less NVML's figure of the process, the largest difference",
                    f"{apart:+.1f} MiB", f"at most {APART_MIB} MiB", abs(apart) <= APART_MIB))
        out.append(("… and its change while a process runs", f"{drift:.1f} MiB", f"at most {DRIFT_MIB} MiB",
                    drift <= DRIFT_MIB))
    return out


def page(results):
    return [
        *pages.table(figures(results["parts"])),
        *pages.unfinished(results["parts"]),
        f"`./dev gpu --only {','.join(PARTS)}` runs this part (`tests/gpu/sums.py`). The accounts are the last `on_card` of"
        " `SUBLET_TRACE`. NVML's figure is that of `nvmlDeviceGetComputeRunningProcesses`. The accounts estimate a context as"
        " a 256th of the card. They do not hold what the driver takes for modules and for itself. *At rest* means that neither"
        f" figure changed for {REST_S:g} s.",
        "",
    ]
