#!/usr/bin/env python3
"""The whole list for an H200: driver-API programs, the main job in PyTorch, hand-offs, overhead, the gate, and two
programs that fit.

Needs a GPU that no other program uses, PyTorch with torchvision for three of the parts, and the built files in --build
(.gpu, made by pack.sh, or build). Writes h200-core.json and h200-core.md into --out after every part, so that results
before a failure are kept. All other parts run only if --only names them, and have pages of their own (PAGES). The parts
devices-... use two GPUs if the machine has two. Exit status: 0 if all parts finished, otherwise 1."""

import argparse
import json
import os
import re
import sys
import tempfile
import time
import traceback

import as_driver
import audit
import bench
import caches
import checkpoint
import devices
import drains
import freezes
import interrupt
import ipc
import jobs
import managed
import mapped
import mps
import onecard
import overflow
import pages
import pairs
import parts
import pools
import preempt
import ranks
import report
import report_onecard
import report_survives
import shares
import suite
import survives
import torture
import unchanged
import virtual

# Each page: its file (.md, and .json with all results), its title, the parts that it shows, and the module that writes
# it.
PAGES = (
    ("h200-core", "The core on one H200", parts.PARTS, report),
    ("h200-survives", "Sharing over time on one H200", survives.PARTS, report_survives),
    ("h200-drain", "Draining on one H200", drains.PARTS, drains),
    ("h200-freeze", "Freezing on one H200", freezes.PARTS, freezes),
    ("h200-torture", "Torture against the plain driver on one H200", torture.PARTS, torture),
    ("h200-unchanged", "Memory that needs no copy, on one H200", unchanged.PARTS, unchanged),
    ("h200-virtual", "Programs that map memory themselves, on one H200", virtual.PARTS, virtual),
    ("h200-caches", "Caches given back, on one H200", caches.PARTS, caches),
    ("h200-overflow", "More than the card, on one H200", overflow.PARTS, overflow),
    ("h200-ipc", "Memory shared by CUDA IPC, on one H200", ipc.PARTS, ipc),
    ("h200-pools", "Pools and small allocations on one H200", pools.PARTS, pools),
    ("h200-as-driver", "The driver's answers under sublet, on one H200", as_driver.PARTS, as_driver),
    ("h200-audit", "The library's accounts against the card, on one H200", audit.PARTS, audit),
    ("h200-managed", "Managed memory in turns, on one H200", managed.PARTS, managed),
    ("h200-mapped", "Host memory mapped for the card, on one H200", mapped.PARTS, mapped),
    ("h200-interrupt", "Ctrl-C while a program waits, on one H200", interrupt.PARTS, interrupt),
    ("h200-pairs", "Pairs of jobs past memory, on one GPU", pairs.PARTS, pairs),
    ("h200-mps", "Programs that share a GPU through MPS", mps.PARTS, mps),
    ("h200-jobs", "Jobs that are measured, paired and run", jobs.PARTS, jobs),
    ("h200-ranks", "Jobs of several ranks, on two GPUs of one machine", ranks.PARTS, ranks),
    ("h200-onecard", "Many ranks on one card", onecard.PARTS, report_onecard),
    ("h200-checkpoint", "The driver's checkpoint of a process, on one H200", checkpoint.PARTS, checkpoint),
    ("h200-preempt", "Programs taken off the GPU, on one H200", preempt.PARTS, preempt),
    ("h200-shares", "Shares of classes past memory, on one GPU", shares.PARTS, shares),
    ("h200-bench", "`sublet bench` on one GPU", bench.PARTS, bench),
    ("h200-devices", "Memory used by other GPUs and devices, on H200s", devices.PARTS, devices),
)
PARTS = {name: part for _, _, shown, _ in PAGES for name, part in shown.items()}


def with_earlier(path, own):
    """Adds the parts of an existing page that are not in these results."""
    if not os.path.exists(path):
        return own
    with open(path, encoding="utf-8") as f:
        old = json.load(f)
    kept = {n: p for n, p in old["parts"].items() if n not in own["parts"]}
    runs = {n: old.get("earlier", {}).get(n, old["machine"]) for n in kept}
    return {**own, "parts": {**kept, **own["parts"]}, "earlier": runs} if kept else own


def dumped(results):
    """Returns JSON with each innermost list or object on one line."""
    return re.sub(r"[{[][^][{}]*[]}]", lambda m: re.sub(r"\n *", " ", m.group()), json.dumps(results, indent=1)) + "\n"


def write(out, results, add=False):
    for name, title, shown, how in PAGES:
        own = {**results, "parts": {n: p for n, p in results["parts"].items() if n in shown}}
        if not own["parts"]:
            continue
        if add:
            own = with_earlier(os.path.join(out, name + ".json"), own)
        page = "\n".join(pages.wrapped([*pages.head(title, name, own, how.ABOUT), *how.page(own)]))
        plots = how.plots(own) if hasattr(how, "plots") else {}
        for file, text in ((name + ".json", dumped(own)), (name + ".md", page), *plots.items()):
            path = os.path.join(out, file)
            with open(path + ".new", "w", encoding="utf-8") as f:
                f.write(text)
            os.replace(path + ".new", path)


def run_part(name, build, out, limit):
    function, seconds = PARTS[name]
    result = {}
    began = time.monotonic()
    if limit < 10:
        return {"error": "no time left for it"}
    print(f"== {name} (at most {min(seconds, limit):.0f} s): {function.__doc__.splitlines()[0]}", flush=True)
    try:
        with suite.Part(name, build, min(seconds, limit), out) as part:
            function(part, result)
    except suite.Failure as e:
        result["error"] = str(e)
    except Exception:  # a part that crashes must not lose the results of the others
        result["error"] = traceback.format_exc(limit=4)
    result["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(result)[:1500], flush=True)
    return result


def default_build():
    for name in (".gpu", "build"):
        path = os.path.join(suite.ROOT, name)
        if os.path.exists(os.path.join(path, "libsublet.so")):
            return path
    return os.path.join(suite.ROOT, "build")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="parts, or the names of pages for all their parts (core, torture, ...), by commas: " + ",".join(PARTS))
    parser.add_argument("--out", help="default: docs/measurements; of a rehearsal, nowhere that stays")
    parser.add_argument("--build", default=default_build())
    parser.add_argument("--touch-host", type=int, default=0, metavar="GIB",
                        help="touch and pin so much host memory first, where a virtual machine gets it on first use")
    parser.add_argument("--limit", type=float, default=570, help="seconds for everything")
    parser.add_argument("--freeze", choices=("off", "park", "move"), help="SUBLET_FREEZE of all programs; default: unset")
    parser.add_argument("--render", metavar="JSON", help="only write the page of an earlier run")
    parser.add_argument("--add", action="store_true", help="keep what the pages in --out have of parts that are not run;"
                        " they say of which run that is")
    parser.add_argument("--rehearse", action="store_true", help="on the simulated driver of --build, a card of 140 MiB;"
                        " no figure of it means anything")
    arguments = parser.parse_args()
    if not arguments.out:
        arguments.out = tempfile.mkdtemp() if arguments.rehearse else os.path.join(suite.ROOT, "docs", "measurements")
    os.makedirs(arguments.out, exist_ok=True)
    if arguments.render:
        with open(arguments.render, encoding="utf-8") as f:
            write(arguments.out, json.load(f), arguments.add)
        return 0
    chosen = []
    for name in arguments.only.split(",") if arguments.only else parts.PARTS:
        of_page = next((shown for page, _, shown, _ in PAGES if page == f"h200-{name}"), ())
        if name not in PARTS and not of_page:
            parser.error(f"no part or page {name!r}; there are {', '.join(PARTS)}")
        chosen += [name] if name in PARTS else of_page
    build = os.path.abspath(arguments.build)
    if arguments.rehearse:
        parts.rehearse()
        overflow.rehearse()
        onecard.rehearse()
        os.environ.update(SIMCUDA_MEMORY="140MiB", SIMCUDA_GPUS="2", SIMCUDA_SESSION=f"rehearsal-{os.getpid()}",
                          LD_LIBRARY_PATH=os.path.join(build, "sim"), PATH=os.path.join(build, "sim", "mps") + ":" + os.environ["PATH"])
    began = time.monotonic()
    results = {"machine": suite.machine(build), "parts": {}, "seconds": 0.0}
    if arguments.touch_host:
        suite.touch_host(arguments.touch_host)
        results["machine"]["host_touched_gib"] = arguments.touch_host
    if arguments.freeze:
        suite.ALWAYS["SUBLET_FREEZE"] = results["machine"]["freeze"] = arguments.freeze
    for name in chosen:
        results["parts"][name] = run_part(name, build, arguments.out, arguments.limit - (time.monotonic() - began))
        results["seconds"] = round(time.monotonic() - began, 1)
        write(arguments.out, results, arguments.add)
    figures = [f for *_, how in PAGES for f in how.figures(results["parts"])]
    for what, measured, goal, met in figures:
        print(f"{pages.MARKS[met].strip('*'):<6}{what}: {measured}" + (f" ({goal})" if goal else ""))
    return 1 if any("error" in p for p in results["parts"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
