"""Memory that other processes have open (CUDA IPC), on a real GPU: driver-API programs and PyTorch give the results of
the plain driver, also if the programs do not fit the card together."""

import os
import sys

import pages
import parts
import suite
from suite import Failure

SHARED_GIB, PRIVATE_GIB, OTHER_GIB = 24, 40, 86  # the first two for each of two programs; the last for a third program
TORCH_BALLAST_GIB = 60


def ended(part):
    """Waits until the ledger is empty."""
    parts.wait_until(part, lambda: not part.gpu()["clients"], "empty ledger")


def share(part, name, shared_gib, private_gib, shared=True):
    p = part.program("share", "--bytes", parts.size(shared_gib), "--block", parts.size(4), "--count",
                     int(private_gib / 4), name=name, shared=shared)
    p.expect("filled", part.deadline)
    return p


def order(part, p, line):
    p.say(line)
    return p.expect("done", part.deadline)


def exchange(part, label, shared, private=0, between=lambda: None):
    """Returns both programs, and the results of both sides in each round."""
    handles = os.path.join(part.root, "handles-" + label)
    giver = share(part, "giver-" + label, SHARED_GIB, private, shared)
    taker = share(part, "taker-" + label, 1, private, shared)
    order(part, giver, "export " + handles)
    if order(part, taker, "import " + handles)["result"] != 0:
        raise Failure("cuIpcOpenMemHandle failed")
    sums = []
    for n in range(0, 8, 2):
        if private:
            order(part, taker, "touch")
        sums.append(order(part, taker, f"theirs {n}")["sum"])
        between()
        if private:
            order(part, giver, "touch")
        sums.append(order(part, giver, f"own {n + 1}")["sum"])
    order(part, taker, "again")
    order(part, taker, "close")
    sums.append(order(part, taker, "theirs 8")["sum"])
    return giver, taker, sums


def programs(part, result):
    """Two driver-API programs write to each other's memory: plain, alone under sublet, and beside a third program."""
    def finish(*programs_):
        for p in programs_:
            p.close()
        for p in programs_:
            p.wait(part.deadline)

    giver, taker, plain = exchange(part, "plain", False)
    finish(taker, giver)
    part.daemon(quantum="500ms")
    giver, taker, sums = exchange(part, "alone", True)
    result["equal_alone"] = sums == plain
    finish(taker, giver)
    ended(part)
    third = part.program("hold", "--bytes", parts.size(OTHER_GIB), "--block", parts.size(2), name="third")
    third.expect("filled", part.deadline)
    before = part.gpu()["handoffs"]
    giver, taker, sums = exchange(part, "beside", True, PRIVATE_GIB, lambda: order(part, third, "touch"))
    result["equal_beside"] = sums == plain
    result["handoffs"] = part.gpu()["handoffs"] - before
    # The exporter is killed: its memory stays with the importer that has it open, and the importer is charged.
    giver.kill()
    parts.wait_until(part, lambda: giver.pid not in [c["pid"] for c in part.gpu()["clients"]], "end of the exporter")
    parts.wait_until(part, lambda: any(c["pid"] == taker.pid and c["unevictable"] >= SHARED_GIB * parts.GIB
                                       for c in part.gpu()["clients"]), "charge of the importer")
    order(part, taker, "theirs 9")
    order(part, third, "touch")
    result["charged_after_the_exporter"] = round(next(c["unevictable"] for c in part.gpu()["clients"] if c["pid"] == taker.pid)
                                                 / parts.GIB, 2)
    finish(taker, third)
    ended(part)
    if not (result["equal_alone"] and result["equal_beside"]):
        raise Failure("other contents than on the plain driver")
    if result["handoffs"] < 4:
        raise Failure(f"only {result['handoffs']} hand-offs")


def torch_exchange(part, result):
    """Two PyTorch processes send tensors to each other: plain, and under sublet beside a program that needs the
    room."""
    def start(name, shared):
        return part.start([sys.executable, os.path.join(suite.HERE, "workloads", "with_torch_ipc.py"), "exchange"], name,
                          shared, BALLAST_GIB=str(TORCH_BALLAST_GIB))

    alone = start("alone", False)
    alone.wait(part.deadline)
    want = alone.of("result")
    if not want:
        raise Failure("no result without sublet: " + alone.tail())
    part.daemon(quantum="500ms")
    end = os.path.join(part.root, "end")
    third = part.program("fill", "--bytes", parts.size(OTHER_GIB), "--block", parts.size(2), "--until", end, name="third")
    third.expect("filled", part.deadline)
    pair = start("exchange", True)
    pair.wait(part.deadline)
    result.update(other_gib=OTHER_GIB, handoffs=part.gpu()["handoffs"], results=len(want), equal=pair.of("result") == want,
                  seconds={"alone": alone.of("end")[0]["seconds"], "beside another": pair.of("end")[0]["seconds"]})
    suite.touch(end)
    third.wait(part.deadline)
    ended(part)
    if not result["equal"]:
        raise Failure("not what the undisturbed run gave")
    if result["handoffs"] < 4:
        raise Failure(f"only {result['handoffs']} hand-offs")


PARTS = {"ipc-programs": (programs, 150), "ipc-torch": (torch_exchange, 150)}


ABOUT = ("Processes may share memory by CUDA IPC. This page says whether it stays right while a third program takes turns with them.")


def figures(found):
    return pages.equal_or_not(PARTS, found, "memory that other processes have open")


def page(results):
    found = results["parts"]
    lines = []
    p = found.get("ipc-programs", {})
    if "charged_after_the_exporter" in p:
        lines += ["## Driver-API programs", "",
                  f"One program, the exporter, shares {SHARED_GIB} GiB with another, the importer. Each checks and rewrites what the other"
                  " wrote. When the exporter was killed, the importer went on. The importer's unevictable bytes were then"
                  f" {p['charged_after_the_exporter']} GiB.", "",
                  "| run | hand-offs | contents as on the plain driver |", "|---|---|---|",
                  f"| alone | | {'yes' if p['equal_alone'] else '**no**'} |",
                  f"| with {PRIVATE_GIB} GiB more in each program, beside a third program of {p.get('other_gib', 90)} GiB | {p['handoffs']} |"
                  f" {'yes' if p['equal_beside'] else '**no**'} |", ""]
    t = found.get("ipc-torch", {})
    if "equal" in t:
        lines += ["## PyTorch", "",
                  f"A process sends {t['results']} tensors of 1 to 50 million numbers, and parts of them, to a second process. The"
                  f" second process changes them in place and sends others back. The first also holds {TORCH_BALLAST_GIB} GiB of random words.", "",
                  f"Beside a program of {t.get('other_gib', 90)} GiB there were {t['handoffs']} hand-offs. Are all values equal, bit for"
                  f" bit, to those of an undisturbed run on the plain driver? {'Yes' if t['equal'] else '**No**'}.", ""]
    return [*lines, *pages.unfinished(found), f"`./dev gpu --only {','.join(PARTS)}` runs these parts (`tests/gpu/ipc.py`).", ""]
