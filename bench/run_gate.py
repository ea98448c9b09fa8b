#!/usr/bin/env python3
"""Measures the time that sublet's gate and wrapper add to a kernel launch. Runs the benchmark on the no-op driver,
alternately with and without libsublet.so. With --measured the library also counts and
times launches, as under `sublet measure`. Usage: run_gate.py BUILD [--pairs N] [--launches N] [--measured] [--json FILE]"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

GOAL_NS = 20.0


def run(build, threads, launches, preload, directory, measured=False):
    environment = dict(os.environ, LD_LIBRARY_PATH=f"{build}/bench/noop", SUBLET_DIR=directory, SUBLET_QUIET="1",
                       SUBLET_FREEZE="off")  # the freezing test needs a driver that computes
    for name in ("LD_PRELOAD", "SUBLET_DAEMON", "SUBLET_REQUIRE", "SUBLET_MEASURE"):
        environment.pop(name, None)
    if preload and measured:
        environment["SUBLET_MEASURE"] = directory
    if preload:
        environment["LD_PRELOAD"] = f"{build}/libsublet.so"
    done = subprocess.run([f"{build}/bench/gate", "--threads", str(threads), "--launches", str(launches)],
                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"run_gate.py: gate failed with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(build, threads, pairs, launches, measured):
    plain, preloaded = [], []
    with tempfile.TemporaryDirectory(prefix="sublet-gate-") as directory:
        for pair in range(pairs):
            order = (False, True) if pair % 2 == 0 else (True, False)
            for preload in order:
                (preloaded if preload else plain).append(run(build, threads, launches, preload, directory, measured))
    result = {"threads": threads, "pairs": pairs}
    for figure in ("median_ns", "p99_ns"):
        a = [r[figure] for r in plain]
        b = [r[figure] for r in preloaded]
        result[figure] = {
            "plain": round(statistics.median(a), 2),
            "sublet": round(statistics.median(b), 2),
            "cost": round(statistics.median(y - x for x, y in zip(a, b)), 2),
        }
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--launches", type=int, default=4000000)
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    build = os.path.abspath(arguments.build)
    results = [measure(build, threads, arguments.pairs, arguments.launches, arguments.measured) for threads in (1, 8)]
    print(f"gate and wrapper, nanoseconds a launch against the no-op driver (goal {GOAL_NS:.0f}),"
          f" {arguments.pairs} alternating pairs")
    print(f"{'threads':>8} {'':>8} {'plain':>8} {'sublet':>8} {'cost':>8}")
    for r in results:
        for figure in ("median_ns", "p99_ns"):
            v = r[figure]
            print(f"{r['threads']:>8} {figure[:-3]:>8} {v['plain']:>8} {v['sublet']:>8} {v['cost']:>8}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump({"goal_ns": GOAL_NS, "processors": os.cpu_count(), "results": results}, f, indent=1)


if __name__ == "__main__":
    main()
