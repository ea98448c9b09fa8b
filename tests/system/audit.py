"""Compares the library's accounts of a process's memory on a card with the figures of the simulated driver.

Both write into one file. When a call has made or released memory, the driver writes a line (`card`) before the call
returns. The library writes two lines (`created`, `on_card`) at moments at which it neither makes nor releases memory.
So each line of the library is compared with the driver's last line before it."""

import collections
import json

# How much more, and how much less, than the driver's figure the library's `on_card` may be. It is more while a context
# is being made. It is less because only the driver knows some memory: variables of modules, and the memory of graphs,
# which comes in steps of 32 MiB.
MORE, LESS = 2 << 20, 8 << 20

NOTHING = {"bytes": 0, "created": 0, "imported": 0, "graphs": 0}


def agrees(said, card, context):
    if said["event"] == "created":
        return said["bytes"] == card["created"]
    # When a process ends, the memory that it shared is counted for another process. Driver and library change their
    # figures in no fixed order.
    return card["bytes"] - card["graphs"] - max(LESS, context) <= said["bytes"] <= card["bytes"] + card["imported"] + max(MORE, context)


def lines(path):
    """Yields pairs of line number and contents. A line may be incomplete: it is being written, or its process was
    killed and another process's line follows it directly."""
    try:
        with open(path, encoding="ascii") as f:
            text = f.readlines()
    except FileNotFoundError:
        return
    for number, line in enumerate(text, 1):
        try:
            yield number, json.loads(line[line.rindex("{"):])
        except ValueError:
            continue


def read(path):
    """Yields the lines to compare. Leaves out a card that has vanished: its driver frees nothing, so no figure
    is valid."""
    lost = set()
    for number, e in lines(path):
        if e["event"] == "lost":
            lost.add(e["gpu"])
        elif e["event"] in ("card", "created", "on_card") and e["gpu"] not in lost:
            yield number, e


def wrong(path, told, context=0):
    """Returns a sentence for each line where library and driver disagree, and for each process of `told` that created
    memory and never reported its accounts. context: bytes of a context, if the driver counts more for one than the
    simulator's default."""
    card, looks, created, found = {}, collections.Counter(), set(), []
    for number, e in read(path):
        key = e["pid"], e["gpu"]
        if e["event"] == "card":
            card[key] = e
            if e["created"]:
                created.add(e["pid"])
            continue
        looks[e["pid"]] += 1
        there = card.get(key, NOTHING)
        if not agrees(e, there, context):
            found.append(f"line {number}: process {e['pid']}, GPU {e['gpu']}: {e['event']} {e['bytes']} by its accounts; by "
                         f"the driver " + ", ".join(f"{name} {there[name]}" for name in NOTHING))
    return found + [f"process {pid} never reported its accounts" for pid in told if pid in created and not looks[pid]]
