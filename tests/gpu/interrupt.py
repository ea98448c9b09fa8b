"""The part about Ctrl-C while a Python program waits for its turn, and its page."""

import os
import signal
import sys
import time

import pages
import suite
from parts import wait_until
from suite import Failure
from survives import spread

QUANTUM = "6s"
TIMES = 5           # interrupts for each kind of work
KINDS = ("multiply", "train")


def interrupted_job(part, kind, end, name):
    p = part.start([sys.executable, os.path.join(suite.HERE, "interrupted.py"), "--until", end,
                    *(["--train"] if kind == "train" else [])], name, True)
    p.expect("ready", part.deadline)
    return p


def interrupt(part, result):
    """Ctrl-C in PyTorch programs that wait for their turn behind a program that does not end soon."""
    part.daemon(mode="exclusive", quantum=QUANTUM, freeze="off")  # otherwise both have a lease
    result["quantum"] = QUANTUM
    for kind in KINDS:
        end = os.path.join(part.root, "end-" + kind)
        jobs = [interrupted_job(part, kind, end, f"{kind}-{i}") for i in range(2)]
        took, said = [], []
        for _ in range(TIMES):
            def waiting():
                states = {c["pid"]: c["state"] for c in part.gpu()["clients"]}
                return next((p for p in jobs if states.get(p.pid) == "waiting"), None)

            wait_until(part, waiting, "a program that waits")
            time.sleep(0.3)  # long enough for the program to wait at the gate
            p = waiting()
            if not p:
                continue
            heard, sent = len(p.events), time.monotonic_ns()
            os.kill(p.pid, signal.SIGINT)
            wait_until(part, lambda p=p, n=heard: len(p.events) > n or p.process.poll() is not None, f"the interrupt of {p.name}")
            if len(p.events) == heard:
                raise Failure(f"{p.name} ended: {p.tail()}")
            first = p.events[heard]
            took.append((first["t_ns"] - sent) / 1e6)
            said.append(first.get("text", "KeyboardInterrupt"))
        suite.touch(end)
        for p in jobs:
            if not p.expect("end", part.deadline)["right"]:
                raise Failure(f"{p.name} computes something else after its interrupts")
            p.wait(part.deadline)
        if len(took) < TIMES:
            raise Failure(f"only {len(took)} interrupts of {kind}")
        result[kind] = {"ms": spread(took), "all_ms": [round(t, 2) for t in took], "raised": said}


PARTS = {"interrupt": (interrupt, 120)}


ABOUT = ("A program that waits for its turn still reacts to Ctrl-C. This page says how soon.")


def figures(found):
    out = []
    for kind, what in zip(KINDS, ("multiplies matrices", "trains")):
        r = found.get("interrupt", {}).get(kind)
        if r:
            errors = len([text for text in r["raised"] if text != "KeyboardInterrupt"])
            out.append((f"Ctrl-C in a PyTorch program that {what} and waits for its turn, {r['ms']['n']} times: until Python raises"
                        " something", f"median {r['ms']['p50']} ms, most {r['ms']['max']} ms; KeyboardInterrupt"
                        + (f", {errors} times PyTorch's error for the call" if errors else ""), "at most 500 ms", r["ms"]["max"] <= 500))
    return out


def page(results):
    return [*pages.table(figures(results["parts"])), *pages.unfinished(results["parts"]),
            "`./dev gpu --only interrupt` runs this part (`tests/gpu/interrupt.py`): two PyTorch programs in exclusive mode with a"
            f" quantum of {results['parts'].get('interrupt', {}).get('quantum', QUANTUM)}. The waiting program gets SIGINT,"
            " catches the exception and goes on. At the end it computes a product of matrices, which is compared with the processor's result.", ""]
