"""What the library's books say that a process has on a card, against what the simulated driver says.

Both write into one file: the driver a line (`card`) before each call returns that made or released memory, the library two
(`created`, `on_card`) whenever nothing comes or goes. So what the library says is about what the driver said last, and
holds at that moment, not only at the end."""

import collections
import json

# By how much `on_card` may differ from the driver's figure. Above it: contexts on their way. Below it: memory that only the
# driver knows, such as variables of modules; and the memory of graphs, which comes in steps of 32 MiB.
MORE, LESS = 2 << 20, 8 << 20

NOTHING = {"bytes": 0, "created": 0, "imported": 0, "graphs": 0}


def agrees(said, card, context):
    if said["event"] == "created":
        return said["bytes"] == card["created"]
    # When a process ends, memory that it shared changes from its figure to another's, on both sides, in no fixed order.
    return card["bytes"] - card["graphs"] - max(LESS, context) <= said["bytes"] <= card["bytes"] + card["imported"] + max(MORE, context)


def lines(path):
    """Pairs: line number, contents. A line that is being written may be incomplete; if its process was killed, it stays so,
    and another process's line follows it directly."""
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
    """Nothing is reported of a card that has vanished: its driver takes nothing back, and no figure can be checked."""
    lost = set()
    for number, e in lines(path):
        if e["event"] == "lost":
            lost.add(e["gpu"])
        elif e["event"] in ("card", "created", "on_card") and e["gpu"] not in lost:
            yield number, e


def wrong(path, told, context=0):
    """Returns a sentence for each place in the file where the two do not agree, and for each process of `told` that created
    memory without a line of the library. context: bytes of a context, if the driver counts more for it than the simulator's
    default."""
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
