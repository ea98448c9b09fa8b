#!/usr/bin/env python3
"""Adds up the results of ctest and pytest. The last line is `N passed, N failed, N skipped`. Before it come a line for
each failed test, and a line for each reason to skip tests, which says where those tests run instead.

    count_tests.py JUNIT.xml... [--alone JUNIT.xml] [--steps FILE]
    count_tests.py --failed JUNIT.xml

--alone: the report of a second run of the system tests that failed. Those that passed in it count as passed, and a line
names each: a test that assumes something of the machine's speed should be seen, and mended, but must not stop everybody.
--steps: a file with a line for each step of the run: the second at which it began, and its name. How long the steps took is
printed before the last line, with the files whose tests took longest, and a warning if the whole took more than SLOW_S.
--failed: print the system tests of this report that failed, as pytest takes them; nothing if they are too many for
chance.

A missing or unreadable report counts as a failure, and so does a suite that ran no test: a suite that crashed must not
look like one without tests. Exits with 1 unless a test passed and none failed."""

import argparse
import collections
import os
import re
import sys
import time
import xml.etree.ElementTree as ET

CHANCE = 4  # more failures than these are no chance
SLOW_S = 1500  # a run that takes longer is started too seldom
SLOWEST = 10


def outcome(case):
    # pytest reports the outcome as child elements. ctest reports it as a status; if the test's exit status means
    # "skipped", a message says so. A test that ctest skipped with another message counts as failed.
    status = case.get("status")
    skipped = case.find("skipped")
    if case.find("failure") is not None or case.find("error") is not None or status == "fail":
        return "failed"
    if skipped is not None or status in ("notrun", "disabled"):
        told = skipped is None or not status or "SKIP" in skipped.get("message", "") or status == "disabled"
        return "skipped" if told else "failed"
    return "passed"


def file_of(case):
    """Returns the test's file. For pytest it is in the class name; a test of ctest is a file itself."""
    return case.get("classname", "").rpartition(".")[2] or case.get("name")


def reason(case):
    """Returns the reason for a skip: pytest's own, or the last line of the output of a test of ctest."""
    note = case.find("skipped")
    text = note.get("message", "") if note is not None else ""
    if "SKIP_RETURN_CODE" in text:
        text = (case.findtext("system-out") or "").strip().rpartition("\n")[2] or text
    return text


def cases(path):
    return [(case, outcome(case)) for case in ET.parse(path).iter("testcase")]


def identity(case):
    """Returns the test as pytest takes it. Where several workers ran, its group follows the name."""
    return f"{case.get('classname', '').replace('.', '/')}.py::{re.sub('@[a-z_]+$', '', case.get('name'))}"


def print_failed(path):
    failed = [case for case, result in cases(path) if result == "failed"]
    if len(failed) <= CHANCE:
        for case in failed:
            print(identity(case))


def print_steps(path, paths):
    with open(path, encoding="utf-8") as f:
        steps = [line.strip().split(" ", 1) for line in f]
    ends = [int(began) for began, _ in steps[1:]] + [int(time.time())]
    print("seconds of each step:")
    for (began, step), end in zip(steps, ends):
        print(f"{end - int(began):6} {step}")
    total = ends[-1] - int(steps[0][0])
    print(f"{total:6} together")
    files = collections.Counter()
    for path in paths:
        for case in ET.parse(path).iter("testcase"):
            files[file_of(case)] += float(case.get("time") or 0)
    print("seconds of the tests of the slowest files; several run at a time:")
    for name, seconds in files.most_common(SLOWEST):
        print(f"{seconds:6.0f} {name}")
    if total > SLOW_S:
        print(f"slow: this took {total} s, more than {SLOW_S} s: make what is slow above faster")


def count(paths, alone, steps):
    skips = {}
    total = {"passed": 0, "failed": 0, "skipped": 0}
    passed_alone = {identity(case) for case, result in (cases(alone) if alone and os.path.exists(alone) else ()) if result == "passed"}
    for path in paths:
        ran = 0
        try:
            for case, result in cases(path):
                if result == "failed" and identity(case) in passed_alone:
                    print(f"passed only when it ran alone: {file_of(case)}: {case.get('name')}")
                    result = "passed"
                total[result] += 1
                ran += 1
                if result == "failed":
                    print(f"failed: {file_of(case)}: {case.get('name')}")
                elif result == "skipped":
                    skips.setdefault(reason(case), collections.Counter())[file_of(case)] += 1
        except (OSError, ET.ParseError) as error:
            print(f"failed: no result in {path}: {error}")
        if not ran:
            print(f"failed: nothing ran in {path}")
            total["failed"] += 1
    for why, files in skips.items():
        print(f"skipped {files.total()}: {why} ({', '.join(f'{name}: {n}' for name, n in files.items())})")
    if steps:
        try:
            print_steps(steps, paths)
        except (OSError, ValueError, ET.ParseError) as error:
            print(f"the times are not known: {error}")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**total))
    return 0 if total["passed"] and not total["failed"] else 1


def main():
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("reports", nargs="*")
    options.add_argument("--alone")
    options.add_argument("--steps")
    options.add_argument("--failed")
    asked = options.parse_args()
    if asked.failed:
        print_failed(asked.failed)
        return 0
    return count(asked.reports, asked.alone, asked.steps)


sys.exit(main())
