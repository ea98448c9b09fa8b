#!/usr/bin/env python3
"""Simulates a day of 30 notebooks on one card, and of 300 on ten, as sublet and two simple rules would share them.

    day.py SCHEDSIM FOLDER

Writes FOLDER/day.md and its plots, FOLDER/day-*.svg. Everything is a model, and nothing a measurement. Takes about
five minutes."""

import math
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from svg import line, svg, text

WORKLOAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workloads", "day-30.txt")
SYSTEMS = [("sublet", "sublet", "#1b6ca8"), ("turns", "turns of 30 s", "#d1722a"),
           ("fcfs", "first come, first served", "#5d8a3a")]
CARDS = 10
BATCH_WORK_H = 4  # the batch job's makespan is the time until so much of its work is done


class Run:
    """The report on one card."""

    def __init__(self, out):
        bursts = [line.split(",") for line in out.splitlines() if line.startswith("burst,")][1:]
        notebooks = [b for b in bursts if b[1] != "batch"]
        self.waits = [float(b[4]) for b in notebooks]
        self.slowdowns = [float(b[5]) / float(b[6]) for b in notebooks if b[5]]
        self.end_s = number(out, r"^makespan +([\d.]+)")
        self.lost_s = number(out, r"^lost +([\d.]+)")
        self.share_error = number(out, r"^share error +([\d.]+)")
        self.moved_tb = number(out, r"^moved in +([\d.]+)") / 1e3
        self.batch_s = number(out, r"^batch +\d+ +\d+ +\d+ +\S+ +([\d.]+)")
        self.notebooks_s = sum(float(s) for s in re.findall(r"^notebook-\d+ +\d+ +\d+ +\d+ +\S+ +([\d.]+)", out,
                                                            flags=re.M))
        self.batch_done_h = None
        work_s = 0
        for b in bursts:
            if b[1] == "batch" and b[5]:
                work_s += float(b[6])
                if work_s >= BATCH_WORK_H * 3600:
                    self.batch_done_h = (float(b[3]) + float(b[5])) / 3600
                    break


def number(text, pattern):
    return float(re.search(pattern, text, flags=re.M).group(1))


def run(schedsim, system, changes=()):
    with open(WORKLOAD, encoding="utf-8") as f:
        text = f.read()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write(text)
        f.flush()
        out = subprocess.check_output([schedsim, "--as", system, "--bursts", f.name], text=True)
    return Run(out)


def quantile(values, q):
    return sorted(values)[int((len(values) - 1) * q)]


# ---- tables ----

COLUMNS = ["", f"{BATCH_WORK_H} h of the batch job done after", "batch job", "notebooks", "bursts begun",
           "burst p50", "burst p99", "slowdown p50", "share error", "time lost", "moved in"]


def row(name, runs):
    cards = len(runs)
    waits = [w for r in runs for w in r.waits]
    done = [r.batch_done_h for r in runs]
    share = lambda what: f"{100 * sum(getattr(r, what) for r in runs) / sum(r.end_s for r in runs):.1f} %"
    return [name, "not in a day" if None in done else f"{sum(done) / cards:.1f} h", share("batch_s"),
            share("notebooks_s"), f"{len(waits):,}", f"{quantile(waits, 0.5):.2f} s", f"{quantile(waits, 0.99):.1f} s",
            f"{quantile([s for r in runs for s in r.slowdowns], 0.5):.1f}",
            f"{max(r.share_error for r in runs):.1f} %", share("lost_s"),
            f"{sum(r.moved_tb for r in runs) / cards:.0f} TB"]


def table(rows):
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    return "\n".join(lines + ["| " + " | ".join(r) + " |" for r in rows])


# ---- plots ----

def plot_waits(results):
    left, top, width, height, low, high = 70, 50, 560, 300, 0.01, 1000.0
    at = lambda s: left + width * math.log(min(max(s, low), high) / low) / math.log(high / low)
    body = [text(left, 24, "How long a notebook's burst waits before it begins (300 notebooks, a model)", "start",
                 'font-weight="bold"')]
    for percent in range(0, 101, 20):
        y = top + height * (1 - percent / 100)
        body += [line(left, y, left + width, y, "#ddd"), text(left - 8, y + 4, f"{percent} %", "end")]
    for s, words in [(0.01, "0.01 s or less"), (0.1, "0.1 s"), (1, "1 s"), (10, "10 s"), (100, "100 s"),
                     (1000, "1000 s")]:
        body += [line(at(s), top, at(s), top + height, "#ddd"), text(at(s), top + height + 18, words)]
    body.append(text(left + width / 2, top + height + 40,
                     "wait; the line shows which share of the bursts waits no longer"))
    for i, (system, name, colour) in enumerate(SYSTEMS):
        waits = sorted(w for r in results[system] for w in r.waits)
        points = [(at(quantile_sorted(waits, k / 500)), top + height * (1 - k / 500)) for k in range(501)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        body += [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>',
                 line(left + 20, top + 20 + 20 * i, left + 44, top + 20 + 20 * i, colour),
                 text(left + 50, top + 24 + 20 * i, name, "start", f'fill="{colour}"')]
    return svg(680, 410, body)


def quantile_sorted(values, q):
    return values[int((len(values) - 1) * q)]


def plot_time(results):
    left, top, width, height = 170, 50, 460, 36
    # The batch job always wants to compute, so no time is left over.
    parts = [("notebooks compute", "#1b6ca8"), ("the batch job computes", "#8fbbd9"), ("lost", "#c0392b")]
    body = [text(20, 24, "Where the time of ten cards goes (a model)", "start", 'font-weight="bold"')]
    for i, (system, name, _) in enumerate(SYSTEMS):
        runs = results[system]
        total = sum(r.end_s for r in runs)
        shares = [sum(getattr(r, what) for r in runs) / total for what in ("notebooks_s", "batch_s", "lost_s")]
        y, x = top + 54 * i, left
        body.append(text(left - 10, y + 22, name, "end"))
        for (_, colour), share in zip(parts, shares):
            body.append(f'<rect x="{x:.1f}" y="{y}" width="{width * share:.1f}" height="{height}" fill="{colour}"/>')
            if share > 0.04:
                ink = "#111" if colour == "#8fbbd9" else "white"
                body.append(text(x + width * share / 2, y + 23, f"{100 * share:.0f} %", more=f'fill="{ink}"'))
            x += width * share
    x = 20
    for name, colour in parts:
        body += [f'<rect x="{x}" y="{top + 172}" width="14" height="14" fill="{colour}"/>',
                 text(x + 20, top + 184, name, "start")]
        x += 50 + 7 * len(name)
    return svg(680, 250, body)


# ---- the page ----

PAGE = """# A day of notebooks

This page is a model, not a measurement. It compares how three systems share a card between notebooks and a batch job.
`tools/schedsim/day.py build/schedsim docs/measurements` writes this page and its plots.

## The systems

| system | rule |
|---|---|
| sublet | the scheduler's own code in simulated time ([scheduling.md](../scheduling.md#schedsim)), with its defaults |
| turns of 30 s | One program computes at a time, even if several fit. After 30 s, or when it is idle, the next waiting program follows, in a circle. A turn begins with page faults. They bring in what others displaced |
| first come, first served | A burst runs to its end. The first burst in the queue begins as soon as it fits beside those that run. No burst overtakes another. Memory moves at the rate of the bus |

Turns model the system of the thesis that sublet descends from ([schedsim.md](schedsim.md)). Page faults bring in
9.8 GB/s. This is the upper end of 8.5 to 9.8 GB/s, measured on an H200 with one kernel alone on the card. Three choices
favour turns. A turn ends at once when a program is idle; the thesis's library waits for 5 s. Evicted memory goes out at
the full rate of the bus. The end of a turn waits for no kernel.

## The workload

`tools/schedsim/workloads/day-30.txt`: a card of 80 GiB, a bus of 25 GB/s in each direction, 24 hours.

- 30 notebooks of 30 users hold 5 to 30 GiB each, 525 GiB in all. Each process also holds a context of 512 MiB.
- A burst is lognormal: 98 % take 100 ms to 30 s, on average 3.5 s. A pause is Pareto, 35 s to 30 min, on average 141 s.
  So the notebooks use 72 % of the card as long as nobody waits.
- A batch job of one more user holds 40 GiB and never pauses. Its bursts, the epochs, take 5 min each.

A program has the same bursts and pauses under each system, because they are drawn from a seed of its own. It begins a
pause when its burst has ended. So a program that waits longer asks for less in a day.

The model has one card. 300 notebooks on ten cards are ten runs with the seeds 1 to 10. Sublet assigns a process to a
card, and processes do not move between cards. So a perfect balance of users over cards is assumed.

## The results

30 notebooks on one card:

{one}

300 notebooks on ten cards (times and shares of a card are averages, quantiles are over all bursts, the share error is
the largest of all users):

{ten}

![Waits of bursts](day-waits.svg)

![Where the time goes](day-time.svg)

The columns:

| column | meaning |
|---|---|
| {work} h of the batch job done after | the makespan of a batch job with that much work |
| batch job, notebooks | GPU time, as a share of the card's day |
| burst p50, p99 | time from when a notebook wants to compute to when it computes first. A burst that never began waited until the end of the day |
| slowdown | time from when a notebook wants to compute to the end of the burst, over its time alone |
| share error | the largest (F - G) / F of all users. G is the user's GPU time. F = min(A, L) is his max-min fair share of the GPU time of all; all weights are 1. A is the GPU time that his programs would get alone on the card. L is one level for all users, chosen so that the shares add up |
| time lost | the time in which a program waits and none computes. Time in which memory moves counts |

## What depends on an assumption

One card, with one assumption changed:

{changed}

- With turns, the notebooks need more time than the card has, even without the batch job. A notebook of 17.5 GiB needs
  1.9 s of page faults for an average burst of 3.5 s. That makes 112 % of the card. So the queue grows until the
  notebooks ask for less.
- Turns without slow page faults still let one program compute at a time, and a turn still lasts 30 s.
- The waits of *first come, first served* follow the batch job's epochs. This rule loses least time, because it
  interrupts no burst. But its users would have to agree on short bursts.
- Sublet moves the most bytes. It interrupts the batch job for each burst that does not fit beside it. The bus carries
  most of these bytes while another program computes.
"""


def changed_rows(schedsim):
    epoch = lambda words: [("gpu 5min", f"gpu {words}")]
    faults = lambda rate: [("bus 25GB/s", f"bus 25GB/s\nfaults {rate}")]
    runs = [("sublet, epochs of 1 h", "sublet", epoch("1h")),
            ("turns, page faults at 8.5 GB/s", "turns", faults("8.5GB/s")),
            ("turns, no page faults: the rate of the bus", "turns", faults("25GB/s")),
            ("first come, epochs of 10 s", "fcfs", epoch("10s")),
            ("first come, epochs of 1 min", "fcfs", epoch("1min")),
            ("first come, epochs of 1 h", "fcfs", epoch("1h"))]
    return [row(name, [run(schedsim, system, changes)]) for name, system, changes in runs]


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: day.py SCHEDSIM FOLDER")
    schedsim, folder = sys.argv[1:]
    results = {system: [run(schedsim, system, [("seed 1", f"seed {n}")]) for n in range(1, CARDS + 1)]
               for system, _, _ in SYSTEMS}
    page = PAGE.format(one=table([row(name, results[system][:1]) for system, name, _ in SYSTEMS]),
                       ten=table([row(name, results[system]) for system, name, _ in SYSTEMS]),
                       changed=table(changed_rows(schedsim)), work=BATCH_WORK_H)
    for name, content in [("day.md", page), ("day-waits.svg", plot_waits(results)),
                          ("day-time.svg", plot_time(results))]:
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(content)


if __name__ == "__main__":
    main()
