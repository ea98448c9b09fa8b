"""`sublet bench` on one GPU, and its page: two programs at a time, alone, one after the other and together, and the time
to the first token of a server that has idled."""

import json
import os
import shutil
import statistics
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


ABOUT = ("[`sublet bench`](../benchmark.md) runs two programs alone, one after the other, and together. Below 1 in the column *of one after the"
         " other*, sharing gains time.")


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
    delays = "first, longest (s)" if any(r.get("first_s") for r in rows) else "longest (s)"
    size = found["settings"]["decoder"] if found["settings"]["program"] == "torch" and "token" in first["what"] else (
        f"{first['bytes_each'] / GIB:.1f} GiB")
    waiting = any(r.get("waiting") for r in rows)  # older figures do not say
    lines = [f"**{first['mix']}**: {first['what']}, {first['programs']} of {size}", "",
             f"| | median (s) | {delays if delay else 'of one after the other'} | hand-offs |{' waiting |' if waiting else ''}"
             " moved out / in (GiB) | results |", f"|---|---|---|---|{'---|' if waiting else ''}---|---|"]
    for r in rows:
        if r["median_s"] is None:
            lines.append(f"| {way(r)} | {pages.cell(r['note'])} | | |{' |' if waiting else ''} | {'**failed**' if r['state'] == 'failed' else ''} |")
            continue
        second = ", ".join(f"{max(r[s]):.2f}" for s in ("first_s", "longest_s") if r.get(s)) if delay else f"{r['median_s'] / than:.2f}" if than else ""
        handoffs = "" if r["handoffs"] is None else r["handoffs"]
        moved = f"{gib(r['moved_out'])} / {gib(r['moved_in'])}" if r["moved_out"] is not None else ""
        waited = f" {statistics.median(r['waiting']):.0%} |" if r.get("waiting") else " |" if waiting else ""
        lines.append(f"| {way(r)} | {r['median_s']:.2f} | {second} | {handoffs} |{waited} {moved} | {r['results']} |")
    return [*lines, ""]


def waits(row):
    """Says what the server's requests waited for."""
    if not row:
        return []
    each, median, longest = row["moved_in"] / row["handoffs"], row["median_s"], max(row["longest_s"])
    which = (f"The first request waited {max(row['first_s']):.2f} s." if row.get("first_s") else
             "This run did not record which request that was.")
    return [
        f"For each request {each / GIB:.1f} GiB of the server move in and as much of the batch job moves out. The median request waited"
        f" for this at {each / median / 1e9:.0f} GB/s, which is the speed of a [hand-off](h200-core.md). The longest one waited"
        f" {longest:.2f} s, at {each / longest / 1e9:.1f} GB/s. {which} For the first request"
        " the batch job pins host memory, which takes longer the first time.",
        "", "So after a batch job has taken the card, expect one late answer. Other answers come after a hand-off of the server's memory. A"
        " server beside a batch job that leaves room for both waits for no hand-off.", ""]


def page(results):
    parts, lines = results["parts"], []
    for found in runs(parts):
        s = found["settings"]
        lines += [f"## {'PyTorch' if s['program'] == 'torch' else 'Driver API'}: {', '.join(dict.fromkeys(r['mix'] for r in found['rows']))}", "",
                  f"{'Simulated: no figure of a GPU. ' if found['simulated'] else ''}{s['capacity'] / GIB:.1f} GiB of the card's"
                  f" {found['machine']['gpu_memory'] / GIB:.1f} GiB are used; the parts of one program take {s['duration_s']:g} s together; measured"
                  f" {'once' if s['repeat'] == 1 else str(s['repeat']) + ' times'}; seed {s['seed']}.", ""]
        keys = list(dict.fromkeys((r["mix"], r["what"]) for r in found["rows"]))
        for key in keys:
            lines += group(found, [r for r in found["rows"] if (r["mix"], r["what"]) == key])
            lines += waits(next((r for r in found["rows"] if r["mix"] == key[0] == "first_token" and r["handoffs"]), None))
    names = {"driver": "the driver-API program", "torch": "PyTorch", "server": "the first token"}
    lines += [f"![{names[name]}](h200-bench-{'first_token' if name == 'server' else name}.svg)" for part in parts.values() for name in names
              if name in part]
    return [*lines, "", *pages.unfinished(parts),
            "[benchmark.md](../benchmark.md) says what the mixes are and how they are measured. `./dev gpu --only bench` runs these parts"
            " (`tests/gpu/bench.py`).", ""]
