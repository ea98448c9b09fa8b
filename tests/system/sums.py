"""What the library's books say that a process has on a card, against what the simulated driver says.

Both write into one file: the driver a line (`card`) before each call returns that made or released memory, the library two
(`created`, `on_card`) whenever nothing comes or goes. So what the library says is about what the driver said last, and
holds at that moment, not only at the end."""

import collections
import json

# What `on_card` may be away from the driver's figure. More: contexts on their way. Less: what only the driver knows, the
# variables of modules; and the memory of graphs, which comes in steps of 32 MiB.
MORE, LESS = 2 << 20, 8 << 20

NOTHING = {"bytes": 0, "created": 0, "imported": 0, "graphs": 0}


def agrees(said, card, context):
    if said["event"] == "created":
        return said["bytes"] == card["created"]
    # Whose figure memory of several processes is in changes when one of them ends, on both sides, in no order.
    return card["bytes"] - card["graphs"] - max(LESS, context) <= said["bytes"] <= card["bytes"] + card["imported"] + max(MORE, context)


def lines(path):
    """(number, what it says). Of a line that is being written a part may be there; where its process was killed that is all,
    and what another one says follows it."""
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
    """Of a card that has vanished nothing more is said: its driver takes nothing back, and nobody can tell what is there."""
    lost = set()
    for number, e in lines(path):
        if e["event"] == "lost":
            lost.add(e["gpu"])
        elif e["event"] in ("card", "created", "on_card") and e["gpu"] not in lost:
            yield number, e


def wrong(path, told, context=0):
    """A sentence for each place in the file where the two do not agree, and for each process of `told` that created
    memory and whose books say nothing. context: bytes of one, where that is more than is made nothing of."""
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
            found.append(f"line {number}: process {e['pid']}, GPU {e['gpu']}: {e['event']} {e['bytes']} by its books; by "
                         f"the driver " + ", ".join(f"{name} {there[name]}" for name in NOTHING))
    return found + [f"the books of process {pid} say nothing" for pid in told if pid in created and not looks[pid]]
