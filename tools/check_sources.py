#!/usr/bin/env python3
"""Checks the rules for every source file (CONTRIBUTING.md, "How the code reads") that a script can check.

    check_sources.py [ROOT]

A file opens with a comment that says what it owns. A header has a guard. No .c file of the product is longer than 800
lines. A name stands once in src, so that a name alone says which file is meant; only main.c may stand in each program. The
library, which lives in other programs' processes, calls no function that ends them. No file has a note of work left to do.
Prints one line for each breach. Exits with 1 if there is one or nothing was checked."""

import collections
import os
import re
import subprocess
import sys

LINES_MAX = 800
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# Functions that libsublet.so must not call: each ends the host program, or prints in its name.
NOT_FOR_GUESTS = re.compile(r"(?<![\w.>])(exit|abort|printf|puts|putchar|perror|assert|err|errx)\s*\(")


def strip_comments(text):
    return re.sub(r"/\*.*?\*/|\"(\\.|[^\"\\\n])*\"", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def look_at(path, text):
    name = os.path.basename(path)
    lines = text.splitlines()
    if len(lines) > LINES_MAX and name.endswith(".c") and path.startswith(("src/", "sim/")):
        yield f"{path}: {len(lines)} lines; past {LINES_MAX} there is a second thing in it"
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield f"{path}:{number}: unfinished: {line.strip()}"
    if name.endswith((".c", ".h")):
        if not lines or not lines[0].startswith("/* "):
            yield f"{path}: does not open with a comment that says what it owns and what it must never do"
        if name.endswith(".h") and "#pragma once" not in lines:
            yield f"{path}: no #pragma once"
    if path.startswith("src/preload/") and name.endswith(".c"):
        for number, line in enumerate(strip_comments(text).splitlines(), 1):
            if NOT_FOR_GUESTS.search(line):
                yield f"{path}:{number}: not in a library that lives in others' processes: {line.strip()}"


def names_twice(paths):
    places = collections.defaultdict(list)
    for path in paths:
        if path.startswith("src/") and path.endswith((".c", ".h")) and os.path.basename(path) != "main.c":
            places[os.path.basename(path)].append(path)
    return [f"{' and '.join(found)}: one name for {len(found)} files" for found in places.values() if len(found) > 1]


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), ".."))
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], check=True,
                            capture_output=True, text=True).stdout.split("\n")
    checked, findings = 0, names_twice(path for path in listed if os.path.exists(os.path.join(root, path)))
    for path in listed:
        if not path.startswith(("src/", "sim/", "bench/", "tests/", "tools/schedsim/", "include/")):
            continue
        if not path.endswith((".c", ".h", ".S", ".def", ".py")) or not os.path.exists(os.path.join(root, path)):
            continue
        checked += 1
        with open(os.path.join(root, path), encoding="utf-8") as f:
            findings += look_at(path, f.read())
    print("\n".join(findings) or f"sources: {checked} files read as they should")
    return 1 if findings or not checked else 0


sys.exit(main())
