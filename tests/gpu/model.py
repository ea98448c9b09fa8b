#!/usr/bin/env python3
"""Runs one of the models of `sublet bench pairs` (pairs_torch.py) as a program of its own, which knows nothing of
sublet. Prints a JSON line about each second, and one at its end.

  model.py FOLDER NAME [STEPS]      FOLDER: where pairs_torch.py is; without STEPS it runs until it is ended"""

import json
import os
import sys
import time

TOGETHER_S = 0.05  # steps are submitted for about so long before they are awaited


def say(event, **fields):
    print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **fields}), flush=True)


def run(torch, model, steps):
    """Returns how many steps it did, and in how many seconds."""
    group = max(1, round(TOGETHER_S / model.seconds)) if not model.interval else 1
    began = said = asked = time.monotonic()
    done = before = 0
    while not steps or done < steps:
        if model.interval:
            asked += model.interval
            time.sleep(max(0.0, asked - time.monotonic()))
        for _ in range(group):
            model.step()
        torch.cuda.synchronize()
        done += group
        now = time.monotonic()
        if now - said >= 1:
            say("rate", steps=done - before, seconds=now - said)
            said, before = now, done
    return done, time.monotonic() - began


def main(folder, name, steps="0"):
    sys.path.insert(0, folder)
    import pairs_torch
    import torch

    with open(os.devnull, "w", encoding="ascii") as nowhere:
        worker = pairs_torch.Worker(0, nowhere)
        model = worker.make(name)
        if worker.jobs[name].share:
            model.interval = model.seconds / worker.jobs[name].share
    say("ready", graph=model.is_graph, step_s=model.seconds)
    done, seconds = run(torch, model, int(steps))
    say("end", steps=done, seconds=seconds)


main(*sys.argv[1:])
