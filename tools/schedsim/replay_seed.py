#!/usr/bin/env python3
"""Replays the evaluation of the thesis that sublet descends from (its table 12.2) on the scheduler's model.

    replay_seed.py SCHEDSIM

Prints a Markdown table: the thesis's measurements on a Tesla P100 with Unified Memory, and the results of the model.
docs/measurements/schedsim.md explains where the two agree and where they differ."""

import os
import re
import subprocess
import sys
import tempfile

# From the thesis: the seconds of one program alone (stock driver), and of two with its scheduler, by time quantum.
SOLO = {"small_50": 1318, "small_90": 692, "big_50": 1383, "big_90": 719}
KUBESHARE = {"small_50": 1724, "small_90": 1078}
QUANTA = [1000, 500, 400, 300, 200, 100, 60, 50, 40, 30, 20, 15, 10, 5]
MEASURED = {
    "small_50": [2053, 2053, 2030, 2010, 2007, 2010, 2020, 1995, 1993, 2017, 2007, 1983, 2009, 1982],
    "small_90": [1361, 1363, 1352, 1354, 1360, 1351, 1348, 1351, 1343, 1366, 1360, 1341, 1360, 1334],
    "big_50": [2043, 2070, 2081, 2085, 2092, 2100, 2122, 2145, 2156, 2170, 2204, 2305, 2465, 3496],
    "big_90": [1380, 1400, 1405, 1418, 1423, 1435, 1468, 1473, 1485, 1521, 1583, 1668, 1821, 2788],
}
MEMORY = {"small": "7.2GB", "big": "15.3GB"}  # the working sets of the thesis's programs
SHARE = {"50": 0.5, "90": 0.9}  # the part of its time alone that a program spends on the GPU
# In the thesis page faults bring data in at 6 GB/s while other data goes out; a hand-off of 15.3 GB takes 2.55 s.
BUS = "6GB/s"
FAULTS = {"small": 0, "big": 15.3 / 6}
# A program uses the GPU for four fifths of its time on it, as two small programs under Kubeshare show.
BUSY = "81%"


def run(schedsim, program, mode, quantum):
    size, share = program.split("_")
    cpu = SOLO[program] * (1 - SHARE[share])
    text = f"""
card 16280MiB
context 300MiB
bus {BUS}
mode {mode}
quantum {quantum}
idle_release 5s
job {program}
  count 2
  memory {MEMORY[size]}
  busy {BUSY}
  kernel 200ms
  think {cpu}s
  gpu {SOLO[program] - cpu}s
"""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as f:
        f.write(text)
    try:
        out = subprocess.run([schedsim, f.name], check=True, capture_output=True, text=True).stdout
    finally:
        os.unlink(f.name)
    return float(re.search(r"makespan +([\d.]+)", out).group(1))


def row(name, measured, model):
    cell = "" if measured is None else f"{measured}"
    off = "" if measured is None else f"{100 * (model / measured - 1):+.1f} %"
    return f"| {name} | {cell} | {model:.0f} | {off} |"


def main():
    schedsim = sys.argv[1]
    for program in SOLO:
        size = program.split("_")[0]
        print(f"\n**{program}**, two programs at a time (one after the other they take {2 * SOLO[program]} s)\n")
        print("| | thesis s | model s | off |")
        print("|---|---|---|---|")
        print(row("auto mode" + (" (thesis: Kubeshare)" if program in KUBESHARE else ""), KUBESHARE.get(program),
                  run(schedsim, program, "auto", "auto")))
        for quantum, measured in zip(QUANTA, MEASURED[program]):
            # The thesis's quantum begins with the lock and includes the page faults; the model's begins when all is
            # resident.
            effective = quantum - FAULTS[size]
            print(row(f"exclusive, {quantum} s", measured, run(schedsim, program, "exclusive", f"{effective}s")))


if __name__ == "__main__":
    main()
