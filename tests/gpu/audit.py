"""Compares the library's accounts of a process with NVML's figure for that process, each time that the programs rest.
Writes the page."""

import os
import sys
import time

import pages
import parts
import suite
from suite import Failure

MIB = 1 << 20
HOLD_GIB = 80    # memory of each of two programs; the card is too small for both
TOUCHES = 6      # every touch after the first needs a hand-off
REST_S = 0.4     # a process rests when neither figure has changed for this time
# The accounts estimate a context as a 256th of the card, and NVML alone knows what the driver takes for itself. Both
# differences are constant while a process runs, so the drift may be smaller than the difference.
APART_MIB, DRIFT_MIB = 128, 8


def traced_bytes(part, p):
    """Returns the bytes on the card that the process traced last."""
    found = [e["bytes"] for e in part.traced() if e["pid"] == p.pid and e["event"] == "on_card"]
    return found[-1] if found else None


def at_rest(part, card, processes):
    """Returns {process: (bytes by its accounts, bytes by NVML)} once neither figure changes any more."""
    before, since = None, time.monotonic()
    while part.left() > 0:
        by_nvml = card.of_processes()
        now = {p: (traced_bytes(part, p), by_nvml.get(p.pid)) for p in processes}
        if now != before:
            before, since = now, time.monotonic()
        if time.monotonic() - since >= REST_S and all(accounts is not None for accounts, _ in now.values()):
            missing = [p.name for p, (_, nvml) in now.items() if nvml is None]
            if missing:
                raise Failure(f"NVML does not say what {', '.join(missing)} has")
            return now
        time.sleep(0.05)
    raise Failure("the processes do not come to rest")


class Ledger:
    """Notes both figures of the processes in `result`, in MiB."""

    def __init__(self, part, result):
        self.part, self.result, self.card = part, result, suite.Card(part)

    def look(self, name, processes, after):
        for p, (accounts, nvml) in at_rest(self.part, self.card, processes).items():
            rests = self.result.setdefault("rests", {}).setdefault(name, {}).setdefault(p.name, [])
            rests.append({"after": after, "accounts_mib": round(accounts / MIB, 2), "nvml_mib": round(nvml / MIB, 2)})

    def order(self, p, line):
        p.say(line)
        return p.expect("done", self.part.deadline)

    def end(self, *processes):
        for p in processes:
            p.close()
            p.wait(self.part.deadline)


def audit(part, result):
    """Compares the accounts of programs at rest with NVML's figure of each."""
    part.daemon(quantum="100ms")
    ledger = Ledger(part, result)

    for name, env in (("allocations", {}), ("overflow", {"SUBLET_MEMORY": "overflow", "SUBLET_KEEP": parts.size(3)})):
        p = part.program("buffers", name=name, **env)
        p.expect("ready", part.deadline)
        for line in (f"alloc 0 {parts.size(2)}", f"alloc 1 {parts.size(5)}", "alloc 2 20KiB", f"alloc 3 {parts.size(0.3)}", "free 1",
                     f"alloc 4 {parts.size(1)}", "free 0", "free 2"):
            ledger.order(p, line)
            ledger.look(name, [p], line)
        ledger.end(p)

    # At a hand-off half of the memory is handed over as handles, and then belongs to the other process.
    pair = [part.program("hold", "--bytes", parts.size(HOLD_GIB), "--block", parts.size(2), "--seed", seed, name=f"hold-{seed}")
            for seed in (1, 2)]
    for p in pair:
        p.expect("filled", part.deadline)
    for n in range(TOUCHES):
        ledger.order(pair[n % 2], "touch")
        ledger.look("hand-offs", pair, f"touch {n + 1}")
    result["handoffs"] = part.gpu()["handoffs"]
    ledger.end(*pair)

    if not suite.rehearsing():
        p = part.start([sys.executable, os.path.join(suite.HERE, "cacher.py"), "--gib", "8", "--weights", "2"], "torch", True)
        p.expect("ready", part.deadline)
        for n in range(3):
            ledger.look("PyTorch", [p], f"work {n}")
            ledger.order(p, "work")
        ledger.look("PyTorch", [p], "work 3")
        ledger.end(p)
    if result["handoffs"] < TOUCHES - 2:
        raise Failure(f"only {result['handoffs']} hand-offs")


PARTS = {"audit": (audit, 150)}

NAMES = {"allocations": "a program that allocates and frees", "overflow": "the same with part of its memory on the host",
         "hand-offs": f"two programs of {HOLD_GIB} GiB that take turns", "PyTorch": "PyTorch, allocating"}


def compared(processes):
    """Returns the number of rests, the largest difference, and the largest change of the difference within one
    process."""
    apart = [[r["accounts_mib"] - r["nvml_mib"] for r in rests] for rests in processes.values()]
    return (sum(map(len, apart)), max((d for one in apart for d in one), key=abs), max(max(one) - min(one) for one in apart))


ABOUT = ("Sublet counts what each process has on the card. This page compares these accounts with NVML's. A constant difference comes from"
         " contexts and from what the driver keeps for itself. A change of the difference would mean that sublet loses count.")


def figures(found):
    out = []
    for name, processes in found.get("audit", {}).get("rests", {}).items():
        n, apart, drift = compared(processes)
        out.append((f"{NAMES[name]}, {n} times at rest: largest difference of the library's accounts from NVML's figure of the process",
                    f"{apart:+.1f} MiB", f"at most {APART_MIB} MiB", abs(apart) <= APART_MIB))
        out.append(("… change of this difference while a process runs", f"{drift:.1f} MiB", f"at most {DRIFT_MIB} MiB",
                    drift <= DRIFT_MIB))
    return out


def page(results):
    return [
        *pages.table(figures(results["parts"])),
        *pages.unfinished(results["parts"]),
        f"`./dev gpu --only {','.join(PARTS)}` runs this part (`tests/gpu/audit.py`). The accounts are the last"
        " `on_card` of `SUBLET_TRACE`. NVML's figure is that of `nvmlDeviceGetComputeRunningProcesses`. The accounts estimate a context as"
        " a 256th of the card. They do not include memory that the driver takes for modules and for itself. *At rest* means that neither"
        f" figure changed for {REST_S:g} s.",
        "",
    ]
