#!/usr/bin/env python3
"""Measures `sublet top` with many programs: how long a redraw takes after a key, and its processor time. The goal is a
redraw within 50 ms and below 1 % of a core with 200 programs. A daemon of this script answers with figures that all
change at each look. Prints a readable line and a JSON line.

    top.py BUILD [--programs N] [--size 200x50] [--seconds S]
"""

import argparse
import json
import os
import random
import select
import socket
import sys
import tempfile
import threading
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "tests", "system"))
from terminal import Terminal  # noqa: E402

KEYS = 100
STATES = ["running", "waiting", "restoring", "idle", "evicting", "draining"]


def filled(part, number):
    """Returns an object with every field that the schema requires."""
    made = {}
    for name in part["required"]:
        kinds = part["properties"][name].get("type", "null")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        made[name] = (random.randrange(1, 10**10) if "integer" in kinds else random.random() * 100 if "number" in kinds
                      else random.random() < 0.5 if "boolean" in kinds else [] if "array" in kinds
                      else "0" if kinds == ["string"] else None)
    return made


def status(schema, programs, began):
    gpu = filled(schema["$defs"]["gpu"], 0) | {"index": 0, "uuid": "GPU-0", "name": "Card", "total": 10**11,
                                               "utilization": random.random()}
    gpu["clients"] = [filled(schema["$defs"]["client"], i) |
                      {"pid": 10000 + i, "uid": 0, "name": f"train-{i}.py", "state": random.choice(STATES),
                       "charge": random.randrange(10**9), "memory": "swap", "priority": 0, "frozen": None}
                      for i in range(programs)]
    return filled(schema, 0) | {"instance": "0", "uptime_s": time.monotonic() - began, "mode": "auto", "quantum": "auto",
                                "host_memory": {"budget": 10**11, "committed": 10**10}, "gpus": [gpu]}


def serve(listener, schema, programs):
    began = time.monotonic()
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(json.dumps(status(schema, programs, began)).encode() + b"\n")


def redraw_ms(terminal, key):
    """Returns the time from a key until the last byte of the picture that follows. The terminal takes its time after
    that, so that it is not measured."""
    while terminal.feed(0.05):
        pass  # of the look before
    begun = last = time.perf_counter()
    terminal.type(key)
    parts = []
    while select.select([terminal.master], [], [], 0.05)[0]:
        parts.append(os.read(terminal.master, 65536))
        last = time.perf_counter()
    terminal.take(b"".join(parts))
    return 1000 * (last - begun)


def cpu_s(pid):
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as f:
        return int(f.read().split()[0]) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--size", default="200x50")
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    columns, lines = map(int, given.size.split("x"))
    with open(os.path.join(SOURCE, "docs", "status.schema.json"), encoding="utf-8") as f:
        schema = json.load(f)
    with tempfile.TemporaryDirectory(prefix="slt-", dir="/tmp") as folder:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.path.join(folder, "control.sock"))
        listener.listen()
        threading.Thread(target=serve, args=(listener, schema, given.programs), daemon=True).start()
        argv = [os.path.join(os.path.abspath(given.build), "sublet"), "top", "--daemon", folder]
        env = {**os.environ, "TERM": Terminal.TERM, "LC_ALL": "C.UTF-8"}
        terminal = Terminal([*argv, "--interval", "1h"], env, columns, lines)  # so that no look disturbs a redraw
        terminal.until("train-", "program")
        before = cpu_s(terminal.process.pid)
        took = sorted(redraw_ms(terminal, "j" if i % 2 else "i") for i in range(KEYS))
        each = 1000 * (cpu_s(terminal.process.pid) - before) / KEYS
        terminal.close()
        terminal = Terminal(argv, env, columns, lines)
        terminal.until("train-", "program")
        before, began, sent = cpu_s(terminal.process.pid), time.monotonic(), len(terminal.sent)
        while time.monotonic() - began < given.seconds:
            terminal.feed(0.1)
        passed = time.monotonic() - began
        used = 100 * (cpu_s(terminal.process.pid) - before) / passed
        terminal.close()
        result = {"programs": given.programs, "size": given.size, "redraw_median_ms": round(took[KEYS // 2], 1),
                  "redraw_95_ms": round(took[KEYS * 95 // 100], 1), "redraw_worst_ms": round(took[-1], 1),
                  "redraw_cpu_ms": round(each, 1), "cpu_percent": round(used, 2),
                  "bytes_a_second": round((len(terminal.sent) - sent) / passed)}
    print(f"with {given.programs} programs in {given.size}: redrawn {result['redraw_median_ms']} ms after a key (95 of 100 within "
          f"{result['redraw_95_ms']} ms, worst {result['redraw_worst_ms']} ms; {result['redraw_cpu_ms']} ms of the processor), "
          f"{result['cpu_percent']} % of a core, {result['bytes_a_second']} bytes a second")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
