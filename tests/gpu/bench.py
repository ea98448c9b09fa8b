"""`sublet bench` on one GPU, and its page: two programs at a time, alone, one after the other and together, and the time
to the first token of a server that has idled."""

import json
import os
import shutil
import sys

import pages
import suite
from suite import GIB, Failure

MIXES, TORCH_MIX, QUANTA = "small_50,big_50", "big_50", "auto,2s,5s"
# Of a rehearsal: a small card, short programs, and no PyTorch, which the simulated driver cannot run.
REHEARSAL = ("--sim=memory=128MiB", "--duration", "400ms")
WAYS = {"alone": "alone, plain driver", "serial": "one after the other", "alone_sublet": "alone, sublet",
        "plain": "together, time slicing", "managed": "together, Unified Memory", "sublet": "together, sublet"}


def bench(part, name, *options):
    """Runs sublet bench. Returns its figures; its picture goes to the folder of the pages."""
    figures, picture = (os.path.join(part.root, f"{name}.{ending}") for ending in ("json", "svg"))
    p = part.start([os.path.join(part.build, "sublet"), "bench", *options, *(REHEARSAL if suite.rehearsing() else ()), "--json", figures,
                    "--plot", picture], name, False)
    try:
        p.wait(part.deadline)
    finally:
        print("\n".join(e.get("text", "") for e in p.of("text")), flush=True)
        if os.path.exists(picture):
            shutil.copy(picture, os.path.join(part.out, f"h200-bench-{name}.svg"))
        found = {}
        if os.path.exists(figures):
            with open(figures, encoding="utf-8") as f:
                found = json.load(f)
    return found


def torch_bench(part, name, *options):
    if suite.rehearsing():
        return bench(part, name, *options)
    return bench(part, name, *options, "--program", "torch", "--python", sys.executable)


def mixes(part, result):
    """Two mixes of the driver-API program at three lengths of turns, and one of them in PyTorch."""
    result["driver"] = bench(part, "driver", "--mix", MIXES, "--quanta", QUANTA)
    if part.left() < 60:
        raise Failure("no time left for PyTorch")
    result["torch"] = torch_bench(part, "torch", "--mix", TORCH_MIX, "--quanta", "auto")


def first_token(part, result):
    """A server of 24 billion parameters that idles beside a batch job, and is asked five times."""
    result["server"] = torch_bench(part, "first_token", "--mix", "first_token", "--quanta", "auto")


PARTS = {"bench": (mixes, 560), "first_token": (first_token, 300)}


def runs(parts):
    """Returns what each run of sublet bench gave."""
    return [found for part in parts.values() for found in part.values() if isinstance(found, dict) and "rows" in found]


def figures(parts):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    out = []
    for found in runs(parts):
        for row in found["rows"]:
            shown = f"{row['median_s']:.2f} s, results {row['results']}" if row["median_s"] is not None else row["note"]
            out.append((f"{found['settings']['program']}, {row['mix']}, {way(row)}: {row['what']}", shown, "", None))
    return out


def way(row):
    return WAYS[row["way"]] + (f" ({row['quantum']})" if row["quantum"] else "")


def gib(count):
    return "" if count is None else f"{count / GIB:.1f}"


def group(found, rows):
    first = rows[0]
    than = next((r["median_s"] for name in ("serial", "alone") for r in rows if r["way"] == name and r["median_s"]), None)
    delay = any(r["longest_s"] for r in rows)
    size = found["settings"]["decoder"] if found["settings"]["program"] == "torch" and "token" in first["what"] else (
        f"{first['bytes_each'] / GIB:.1f} GiB")
    lines = [f"**{first['mix']}**: {first['what']}, {first['programs']} of {size}", "",
             f"| | median (s) | {'longest (s)' if delay else 'of one after the other'} | hand-offs | moved out / in (GiB) | results |",
             "|---|---|---|---|---|---|"]
    for r in rows:
        if r["median_s"] is None:
            lines.append(f"| {way(r)} | {pages.cell(r['note'])} | | | | {'**failed**' if r['state'] == 'failed' else ''} |")
            continue
        second = f"{max(r['longest_s']):.2f}" if delay else f"{r['median_s'] / than:.2f}" if than else ""
        handoffs = "" if r["handoffs"] is None else r["handoffs"]
        moved = f"{gib(r['moved_out'])} / {gib(r['moved_in'])}" if r["moved_out"] is not None else ""
        lines.append(f"| {way(r)} | {r['median_s']:.2f} | {second} | {handoffs} | {moved} | {r['results']} |")
    return [*lines, ""]


def page(results):
    parts, lines = results["parts"], []
    for found in runs(parts):
        s = found["settings"]
        lines += [f"## {'PyTorch' if s['program'] == 'torch' else 'Driver API'}: {', '.join(dict.fromkeys(r['mix'] for r in found['rows']))}", "",
                  f"{'Simulated: no figure of a GPU. ' if found['simulated'] else ''}{s['capacity'] / GIB:.1f} GiB of the card's"
                  f" {found['machine']['gpu_memory'] / GIB:.1f} GiB are used; one program alone takes about {s['duration_s']:g} s; measured"
                  f" {s['repeat']} times; seed {s['seed']}.", ""]
        keys = list(dict.fromkeys((r["mix"], r["what"]) for r in found["rows"]))
        for key in keys:
            lines += group(found, [r for r in found["rows"] if (r["mix"], r["what"]) == key])
    names = {"driver": "the driver-API program", "torch": "PyTorch", "server": "the first token"}
    lines += [f"![{names[name]}](h200-bench-{'first_token' if name == 'server' else name}.svg)" for part in parts.values() for name in names
              if name in part]
    return [*lines, "", *pages.unfinished(parts),
            "[benchmark.md](../benchmark.md) says what the mixes are and how they are measured. `./dev gpu --only bench` runs these parts"
            " (`tests/gpu/bench.py`).", ""]
