#!/usr/bin/env python3
"""Simulates classes with shares on one card: for a minute where all memory fits, and for five past memory.

    shares.py SCHEDSIM FOLDER

Writes FOLDER/shares.md. Everything is a model, and nothing a measurement. Takes some seconds."""

import os
import subprocess
import sys
import tempfile

FOREVER = "gpu 24h"
CARD_GIB, FITS_GIB, LARGE_GIB = 80, 5, 45


def weights(*of):
    return [{"weight": w} for w in of]


# Each case has a name, its classes, and the percent that each class should get. "body" is what a program does.
CASES = [
    ("weights 5 and 95", weights(5, 95), [5, 95]),
    ("2 equal", weights(1, 1), [50] * 2),
    ("4 equal", weights(1, 1, 1, 1), [25] * 4),
    ("8 equal", weights(*[1] * 8), [12.5] * 8),
    ("weights 1, 2 and 5", weights(1, 2, 5), [12.5, 25, 62.5]),
    ("one program against three", [{}, {"count": 3}], [50, 50]),
    ("a minimum of 50 % beside 3 others", [{"minimum": "50%"}, {}, {}, {}], [50, 50 / 3, 50 / 3, 50 / 3]),
    ("a minimum of 30 % below a higher priority", [{"minimum": "30%"}, {"priority": 5}], [30, 70]),
    ("programs of 8 s, one after the other", [{"count": 100, "every": "8s", "repeat": "1", "body": "gpu 8s"}, {}], [50, 50]),
]
RESIDENT = [
    ("computes 100 ms in each second, beside one that always does", [{"body": "gpu 100ms\n    think 900ms"}, {}], [10, 90]),
    ("kernels of 5 s against 1 ms", [{"kernel": "5s"}, {"kernel": "1ms"}], [50, 50]),
]
MAXIMA = [
    ("a maximum of 20 %, alone", [{"maximum": "20%"}], [20]),
    ("a maximum of 30 % beside another", [{"maximum": "30%"}, {}], [30]),
]


def simulated(schedsim, classes, gib, until, *words):
    """Returns the percent of the time in which each class computed, and for which it was billed."""
    lines = [f"card {CARD_GIB}GiB", "bus 50GB/s", f"until {until}", *words]
    for i, c in enumerate(classes):
        lines += ["", f"job class-{i}", f"  user {1000 + i}", f"  memory {gib}GiB"]
        lines += [f"  {word} {value}" for word, value in c.items() if word not in ("body", "repeat")]
        lines += [f"  repeat {c.get('repeat', 'forever')}", f"    {c.get('body', FOREVER)}"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write("\n".join(lines) + "\n")
        f.flush()
        out = subprocess.run([schedsim, f.name], check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = [line.split() for line in out.splitlines() if line.startswith("class-")]
    return [float(r[6]) for r in rows], [float(r[7]) for r in rows]


def table(schedsim, cases, title, gib, until, billed, *words):
    lines = [f"**{title}**", "", "| classes | asked % | got % | error, points |", "|---|---|---|---|"]
    for name, classes, asked in cases:
        got = simulated(schedsim, classes, gib, until, *words)[billed]
        whole = sum(got) if billed else 100
        percent = [100 * g / whole for g in got]
        error = max(abs(p - a) for p, a in zip(percent, asked))
        lines.append(f"| {name} | {' : '.join(f'{a:.3g}' for a in asked)} | {' : '.join(f'{p:.1f}' for p in percent)} | {error:.1f} |")
    return "\n".join(lines + [""])


def maxima(schedsim, gib, until, *words):
    lines = [f"**Maxima, {until}**", "", "| class | at most % | got % | above, points |", "|---|---|---|---|"]
    for name, classes, (most,) in MAXIMA:
        got = simulated(schedsim, classes, gib, until, *words)[0][0]
        lines.append(f"| {name} | {most} | {got:.1f} | {max(0, got - most):.1f} |")
    return "\n".join(lines + [""])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    schedsim, folder = sys.argv[1:]
    page = [
        "# Shares in the model", "",
        "How well classes get what their owner says, on the scheduler's own code in simulated time",
        "([scheduling.md](../scheduling.md#schedsim)). No figure here is the speed of a GPU; [h200-shares.md](h200-shares.md) is",
        "measured on one. `tools/schedsim/shares.py build/schedsim docs/measurements` writes this page.", "",
        "## All memory fits", "",
        f"A minute in exclusive mode, in which nothing moves. Programs have {FITS_GIB} GiB. The share is the time in which the class",
        "computed. The model cuts no kernel that runs, so kernels of 5 s show what happens without freezing.", "",
        table(schedsim, CASES + RESIDENT, "60 s", FITS_GIB, "60s", False, "mode exclusive"),
        maxima(schedsim, FITS_GIB, "60s", "mode exclusive"),
        "## Past memory", "",
        f"Five minutes. Programs have {LARGE_GIB} GiB of {CARD_GIB}, so one runs at a time, and a hand-off takes a second. The share is",
        "the time that the class is billed for: its turns, and the hand-offs that bring its memory. That is what the scheduler",
        "divides. What a class gets may be wrong by one or two turns, and automatic turns are long here: 19 s. Programs that live",
        "for less than a turn lose more, because each fills its memory first. For shares that hold within minutes, set `quantum`.", "",
        table(schedsim, CASES, "5 min, turns of 5 s", LARGE_GIB, "5min", True, "quantum 5s"),
        table(schedsim, CASES, "5 min, automatic turns", LARGE_GIB, "5min", True),
        "A maximum may be passed by what its class has saved: 1 s, or 5 s past memory. Hand-offs count towards it, so a class may",
        "compute less. Here *got* is the time in which it computed, with turns of 5 s.", "",
        maxima(schedsim, LARGE_GIB, "5min", "quantum 5s"),
    ]
    with open(os.path.join(folder, "shares.md"), "w", encoding="utf-8") as f:
        f.write("\n".join(page))


if __name__ == "__main__":
    main()
