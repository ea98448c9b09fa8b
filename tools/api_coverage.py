#!/usr/bin/env python3
"""Makes docs/api-coverage.md from the tables of src/cuda: what sublet does with each entry point of the driver, and
why.

    api_coverage.py                 writes the page
    api_coverage.py --check         checks that the page agrees with the tables, and that the tables are complete
    api_coverage.py --stub FILE     lists the exports of a libcuda.so that the tables do not know

Exits with 1 if the tables or the page must be changed."""

import argparse
import os
import re
import subprocess
import sys
import textwrap

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
PAGE = os.path.join(ROOT, "docs", "api-coverage.md")
ROW = re.compile(r"^CU\((\w+),\s*(\w+),\s*(\d+),\s*(\w+),\s*(\w+),\s*([^,]+?),\s*\(", re.M)
UNCAUGHT = re.compile(r"^CU_UNCAUGHT\((\w+),\s*(\w+)\)", re.M)
REASON = re.compile(r"^CU_REASON\((\w+),\s*\"(.*)\"\)", re.M)
FAMILY = re.compile(r"^/\* ---- (.*?) ---- \*/", re.M)

# The meaning of each behaviour, in the order in which the page lists them.
BEHAVIOURS = {
    "SUBMIT": "**Gate**: waits until all of the program's memory is on the card",
    "CUSTOM": "**Hook**",
    "RETRY": "**Room**",
    "PASS": "**Passed**",
}


def read(name):
    with open(os.path.join(ROOT, "src", "cuda", name), encoding="utf-8") as f:
        return f.read()


def families(text, pattern):
    """Splits a table at its titles. Returns [(title, matches of the pattern below it)], in the order of the file."""
    parts = FAMILY.split(text)[1:]
    return [(title, pattern.findall(part)) for title, part in zip(parts[::2], parts[1::2])]


class Tables:
    def __init__(self):
        self.reasons = dict(REASON.findall(read("cuda_reasons.def")))
        self.families = [(title, [(symbol, *(("SUBMIT", None) if behaviour in ("SUBMIT", "UNIFIED") else (behaviour, detail)))
                                  for _, symbol, _, _, behaviour, detail in rows])
                         for title, rows in families(read("cuda_api.def"), ROW)]
        self.uncaught = families(read("cuda_uncaught.def"), UNCAUGHT)
        self.families += [(title, [(symbol, "PASS", reason) for symbol, reason in rows])
                          for title, rows in self.uncaught]
        self.rows = [row for _, rows in self.families for row in rows]

    def findings(self):
        # Without this check, rows that the patterns miss would be missing from the page without a message.
        for name, start in (("cuda_api.def", r"^CU\("), ("cuda_uncaught.def", r"^CU_UNCAUGHT\("),
                            ("cuda_reasons.def", r"^CU_REASON\(")):
            pattern = {"cuda_api.def": ROW, "cuda_uncaught.def": UNCAUGHT, "cuda_reasons.def": REASON}[name]
            if len(re.findall(start, read(name), re.M)) != len(pattern.findall(read(name))):
                yield f"{name}: a row that this script cannot read"
        used, seen = set(), set()
        for symbol, behaviour, reason in self.rows:
            if symbol in seen:
                yield f"{symbol}: two rows"
            seen.add(symbol)
            if behaviour not in BEHAVIOURS:
                yield f"{symbol}: unknown behaviour {behaviour}"
            if reason is not None and reason not in self.reasons:
                yield f"{symbol}: no reason {reason} in cuda_reasons.def"
            used.add(reason)
        for name in self.reasons.keys() - used:
            yield f"cuda_reasons.def: {name} is no row's reason"

    def page(self):
        caught = sum(behaviour != "PASS" for _, behaviour, _ in self.rows)
        out = ["# What sublet does with each entry point of the CUDA driver", ""]
        out += textwrap.wrap(
            f"This page lists every function that the driver of CUDA 13.0 exports: {len(self.rows)} entry points. That includes all "
            f"versions and the variants for per-thread default streams (`_ptsz`, `_ptds`). Sublet intercepts {caught} of them and "
            f"deliberately passes {len(self.rows) - caught} on. The list comes from the toolkit's stub library and, for OpenGL, EGL "
            f"and VDPAU, its headers. The functions of CUDA 13.1 to 13.4 come from their documentation.", 118)
        out += ["", *textwrap.wrap(
            "A function that is not listed passes through; with `SUBLET_LOG=debug` the library names it. If a program looks up an "
            "unlisted version of an intercepted function, it is told that the version does not exist. `tools/api_coverage.py` "
            "generates this page from the tables in `src/cuda`. One test compares the page with the tables, and the tables with the "
            "stub library.", 118)]
        out += ["", "- **Gate**: the call waits until all of the program's memory is on the card. Such a call submits work, or",
                "  makes the driver read the memory behind a device pointer. If the driver then runs out of memory, sublet makes",
                "  room and repeats the call.",
                "- **Hook**: sublet does the work of the call itself, or does something before or after the driver's call.",
                "- **Room**: the call does not wait at the gate. If the driver runs out of memory, sublet makes room and repeats it.",
                "- **Passed**: the call goes to the driver untouched."]
        for title, rows in self.families:
            out += ["", f"## {title[0].upper()}{title[1:]}", "", "| what, and why | entry points |", "|---|---|"]
            groups = {}
            for symbol, behaviour, reason in rows:
                groups.setdefault((behaviour, reason), []).append(symbol)
            for behaviour in BEHAVIOURS:
                for (b, reason), symbols in groups.items():
                    if b == behaviour:
                        why = BEHAVIOURS[b] + (f": {self.reasons[reason]}" if reason else "")
                        out.append(f"| {why} | {', '.join(f'`{s}`' for s in symbols)} |")
        return "\n".join(out) + "\n"


def check(tables):
    findings = list(tables.findings())
    if not findings:
        with open(PAGE, encoding="utf-8") as f:
            if f.read() != tables.page():
                findings.append("docs/api-coverage.md is not what the tables say: run tools/api_coverage.py")
    return findings


def exported(path):
    done = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines() if " T " in line}


def compare(tables, stub):
    known = {symbol for symbol, _, _ in tables.rows}
    names = {n for n in exported(stub) if n.startswith("cu")}
    if not names:
        yield f"{stub}: exports nothing of CUDA's"
    for name in sorted(names - known):
        yield f"{name}: exported by {stub}, and in neither table of src/cuda"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--stub")
    args = parser.parse_args()
    tables = Tables()
    if args.stub:
        findings = list(compare(tables, args.stub))
    elif args.check:
        findings = check(tables)
    else:
        findings = list(tables.findings())
        if not findings:
            with open(PAGE, "w", encoding="utf-8") as f:
                f.write(tables.page())
    print("\n".join(findings) or f"{len(tables.rows)} entry points, each with what is done and why")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
