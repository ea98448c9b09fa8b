"""The parts that ask the driver what its checkpoint of a whole process does, and their page. tests/programs/checkpoint.c is
the program."""

import time

import pages
import parts
import suite
from jobs import sublet
from parts import size
from suite import Failure

# (GiB of device memory, GiB of registered host memory)
SIZES = ((1, 0), (1, 8), (1, 48), (8, 0))
ROUNDS = 3


def asked(part, how, *args):
    """Runs the program. Returns what it said; it may end with an error or hang, which is an answer, too."""
    p = part.program("checkpoint", "--how", how, *args, name=f"checkpoint-{how}", shared=False)
    try:
        p.wait(min(part.deadline, time.monotonic() + 60))
    except Failure as e:
        return [*p.events, {"event": "ended", "how": str(e)}]
    return p.events


def calls(part, result):
    """Which calls wait while the process is locked for a checkpoint, and while it is away."""
    result["events"] = asked(part, "calls")


def objects(part, result):
    """Which threads make and free objects at the resource manager in each step."""
    result["events"] = asked(part, "objects")


def export(part, result):
    """Memory that one process has made and another has imported, over a checkpoint of each."""
    result["events"] = asked(part, "export")


def times(part, result):
    """How long each step takes, by device memory and by registered host memory."""
    card = suite.Card(part)
    for device, host in SIZES:
        p = part.program("checkpoint", "--how", "times", "--bytes", size(device), "--block", size(1 / 4), "--rounds", ROUNDS,
                         "--count", host if suite.rehearsing() else host * 1024, name=f"times-{device}-{host}", shared=False)
        found = {"used_mib": []}
        for _ in range(ROUNDS):
            p.expect("away", part.deadline)
            found["used_mib"].append(round(card.used() / 2**20))
            p.say("")
        p.expect("right", part.deadline)
        p.wait(part.deadline)
        for e in p.events:
            if e["event"] == "step":
                found.setdefault(e["step"], []).append(e["ms"])
            elif e["event"] in ("registered", "unregistered"):
                found[e["event"] + "_ms"] = e["ms"]
            elif e["event"] == "copied":
                found.setdefault("copy_gb_s", []).append(e["gb_s_at"])
        result[f"{device} GiB, {host} GiB"] = found
        print(device, host, found, flush=True)


def frozen(part, result):
    """A program that is paused in the middle of a kernel, and one that is paused at rest: does the driver save it?"""
    part.daemon()
    for name in ("in a kernel", "at rest"):
        p = part.program("counts", "--bytes", size(1), "--block", size(1 / 4), name="counts")
        p.expect("filled", part.deadline)

        def count(p=p):
            p.say("look")
            return p.expect("done", part.deadline)["count"]

        if name == "in a kernel":
            p.say("start")
            p.expect("done", part.deadline)
            parts.wait_until(part, lambda: count() > 1000, "kernel that counts")
        parts.wait_until(part, lambda p=p: next(c for c in part.gpu()["clients"] if c["pid"] == p.pid)["preempted"], "hand that knows it")
        sublet(part, "pause", "pause", str(p.pid)).wait(part.deadline)
        before = count()
        events = asked(part, "other", "--seed", p.pid)
        between = count()
        sublet(part, "resume", "resume", str(p.pid)).wait(part.deadline)
        found = {"before": before, "between": between, "events": events}
        if name == "in a kernel":
            parts.wait_until(part, lambda n=between: count() > n + 1000, "kernel that counts on")
            p.say("end")
            found["end"] = p.expect("done", part.deadline)
        p.close()
        p.wait(part.deadline)
        result[name] = found
        print(name, found, flush=True)


PARTS = {"checkpoint-calls": (calls, 90), "checkpoint-objects": (objects, 60), "checkpoint-export": (export, 90),
         "checkpoint-times": (times, 240), "checkpoint-frozen": (frozen, 120)}


# ---- the page ----

ABOUT = ("NVIDIA's driver can take a whole process off the card, and put it back (`cuCheckpointProcess…`). This page says what"
         " happens then. In most parts the process asks for its own checkpoint.")


def steps_of(events):
    return "; ".join(f"{e['step']} {e['result']} ({e['ms']:.0f} ms)" for e in events if e["event"] == "step")


def figures(found):
    out = []
    made = [e for e in found.get("checkpoint-calls", {}).get("events", []) if e["event"] == "call"]
    for when in ("locked", "saved"):
        names = [f"`{e['call']}`" + (f" ({e['result']})" if e["result"] else "") for e in made if e["when"] == when and e["returned"]]
        others = [f"`{e['call']}`" for e in made if e["when"] == when and not e["returned"]]
        if names or others:
            out.append((f"calls while the process is {when}", f"return: {', '.join(names) or 'none'}; wait: {', '.join(others) or 'none'}",
                        None, None))
    for e in found.get("checkpoint-objects", {}).get("events", []):
        if e["event"] == "objects":
            out.append((f"requests to RM until the end of *{e['when']}*: made, freed, controls", f"{e['by_caller']} by the thread that asks,"
                        f" {e['by_others']} by others", None, None))
    events = found.get("checkpoint-export", {}).get("events", [])
    for e in events:
        if e["event"] in ("look", "put"):
            out.append((f"shared memory: the {e['who']} reads" if e["event"] == "look" else "shared memory: a write",
                        f"{e['value']}, where {e['expected']} was written; result {e['result']}" if e["event"] == "look"
                        else f"{e['value']}; result {e['result']}", None, None))
    if events:
        out.append(("shared memory: steps of the maker and the importer", steps_of(events), None, None))
    for name, r in found.get("checkpoint-times", {}).items():
        if isinstance(r, dict):
            device, host = name.split(", ")
            out.append((f"{device} of device memory, {host} of registered host memory: lock, save, restore, unlock, ms",
                        ", ".join("/".join(f"{ms:.0f}" for ms in r.get(step, [])) for step in ("lock", "save", "restore", "unlock"))
                        + f"; the card has {max(r['used_mib'])} MiB in use", None, None))
    for name, r in found.get("checkpoint-frozen", {}).items():
        if isinstance(r, dict):
            out.append((f"a program that is paused {name}", steps_of(r["events"]), None, None))
    return out


def page(results):
    found = results["parts"]
    return [*pages.table(figures(found)), *pages.unfinished(found), "`./dev gpu --only checkpoint` runs these parts"
            " (`tests/gpu/checkpoint.py`). Results are the driver's error codes; 0 is success.", ""]
