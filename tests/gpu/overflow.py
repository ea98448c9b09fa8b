"""The part about one process that uses more than the card: run time against the share kept on the card, and its page.

The card is large, so the share is bounded instead (SUBLET_KEEP): what is more than it lies in host memory, mapped."""

import os
import sys
import time

import suite
from report import row
from suite import Failure

SIZES_GIB = 24   # of the two driver-API programs: buffers of 1 GiB
HOT = 3          # of them, used again and again
HOT_TIMES = 16
SHARES = (1.1, 0.75, 0.5, 0.25)  # of what the program allocates; more than all of it: nothing is on the host
ORDERS = ("default", "best", "worst")
UNITS = 3
PLACED_S = 2     # longer than it takes until buffers begin to change sides
AGREE = 0.05     # medians in a row that settle a figure
MEBIBYTE = 1 << 20
UNIT = MEBIBYTE * 1024


def rehearse():
    global UNIT, SIZES_GIB, HOT, HOT_TIMES, AGREE
    UNIT, SIZES_GIB, HOT, HOT_TIMES, AGREE = 2 * MEBIBYTE, 6, 1, 3, 1  # smaller ones share memory


def environment(share, total):
    return {"SUBLET_MEMORY": "overflow", "SUBLET_KEEP": str(int(share * total) // (2 * MEBIBYTE) * 2 * MEBIBYTE)}


def settled(part, measure):
    """Buffers change sides some time after the last change, and nothing runs meanwhile: once two medians in a row agree
    after that, all lie where they shall."""
    began, before = time.monotonic(), measure()
    while part.left() > 3:
        now = measure()
        if time.monotonic() - began > PLACED_S and abs(now - before) <= AGREE * max(now, before):
            return min(now, before)
        before = now
    raise Failure("the time of a unit does not settle")


def buffers(part, name, share, order):
    """Streaming: each buffer once a unit. Hot: a few of them, the last to be allocated, many times."""
    hot = range(SIZES_GIB - HOT, SIZES_GIB) if name == "hot" else ()
    p = part.program("buffers", "--seed", 1, name=f"{name}-{share}-{order}", **environment(share, SIZES_GIB * UNIT))
    p.expect("ready", part.deadline)

    def say(line):
        p.say(line)
        return p.expect("done", part.deadline)

    for n in range(SIZES_GIB):
        say(f"alloc {n} {UNIT // MEBIBYTE}MiB")
    if order != "default":
        for n in range(SIZES_GIB):
            say(f"priority {n} {(1 if order == 'best' else -1) * (n in hot)}")
    pairs = " ".join(f"{n}:{HOT_TIMES if n in hot else 1}" for n in range(SIZES_GIB))
    ms = settled(part, lambda: say(f"cycle {UNITS} {pairs}")["ms"])
    say("check")
    p.close()
    p.wait(part.deadline)
    return ms


def inference(part, _, share, order):
    """PyTorch: an embedding that is hardly touched, and layers that are read as a whole with every token."""
    p = part.start([sys.executable, os.path.join(suite.HERE, "overflow_job.py"), order], f"inference-{share}-{order}", True,
                   PYTHONPATH=os.path.join(suite.ROOT, "python"), **environment(share, 24 * UNIT))
    p.expect("ready", part.deadline)

    def measure():
        p.say("run")
        return p.expect("done", part.deadline)["ms"]

    ms = settled(part, measure)
    p.close()
    p.wait(part.deadline)
    return ms


PROGRAMS = {"streaming": buffers, "hot": buffers, "inference": inference}


def overflow(part, result):
    """Run time of three programs against the share of their memory that is kept on the card."""
    part.daemon(quantum="60s")
    for name, run in PROGRAMS.items():
        for share in SHARES:
            for order in ORDERS:
                if share > 1 and order != "default":
                    continue
                ms = run(part, name, share, order)
                result.setdefault(name, {}).setdefault(str(share), {})[order] = round(ms, 2)


PARTS = {"overflow": (overflow, 420)}


def figures(parts):
    p = parts.get("overflow", {})
    for name in PROGRAMS:
        for share in SHARES[1:]:
            times, all_there = p.get(name, {}).get(str(share)), p.get(name, {}).get(str(SHARES[0]), {}).get("default")
            if times and all_there:
                text = ", ".join(f"{o} {t / all_there:.2f}" for o, t in times.items())
                yield f"{name}, {share:.0%} of its memory on the card: time over that with all of it there", text, "", None


def page(results):
    m = results["machine"]
    lines = [
        "# More than the card, on one H200",
        "",
        f"{m['gpu']}, {m['gpu_memory']}, driver {m['driver']}; {m['processors']} processors, kernel {m['kernel']}. Commit"
        f" {m['commit']}, {m['date']}. Every figure is from this run; [h200-overflow.json](h200-overflow.json) holds all of"
        " them.",
        "",
        "| what | measured | goal | |",
        "|---|---|---|---|",
    ]
    lines += [row(*f) for f in figures(results["parts"])]
    lines += [f"- Part `{n}` did not finish: {p['error']}" for n, p in results["parts"].items() if "error" in p]
    lines += [
        "",
        "`./dev gpu --only overflow` runs it (`tests/gpu/overflow.py`): medians of units of work of one process, with so much"
        " of the card kept for it (`SUBLET_KEEP`). *streaming* uses each of its 24 buffers of 1 GiB once a unit; *hot* uses"
        f" three of them {HOT_TIMES} times; *inference* is PyTorch, an embedding that is hardly touched beside layers that are"
        " read whole. *best* and *worst*: the priorities set by hand, by what is known of the program.",
        "",
    ]
    return "\n".join(lines)
