#!/usr/bin/env python3
"""Adds up the results of ctest and pytest; the last line is `N passed, N failed, N skipped`. Before it is a line for each test
that failed, and one for each reason to skip, which says where the tests run that it is about.

    count_tests.py JUNIT.xml...

A report that is missing or unreadable counts as a failure, as does a suite in which nothing ran: a suite that crashed must
not look like one without tests. Exits with 1 unless something passed and nothing failed."""

import collections
import sys
import xml.etree.ElementTree as ET


def outcome(case):
    # pytest reports it with children; ctest with a status, and with the exit status of a skipped test as a message.
    status = case.get("status")
    skipped = case.find("skipped")
    if case.find("failure") is not None or case.find("error") is not None or status == "fail":
        return "failed"
    if skipped is not None or status in ("notrun", "disabled"):
        told = skipped is None or not status or "SKIP" in skipped.get("message", "") or status == "disabled"
        return "skipped" if told else "failed"
    return "passed"


def file_of(case):
    """The test's file: for pytest the file's name; a test of ctest is a file itself."""
    return case.get("classname", "").rpartition(".")[2] or case.get("name")


def reason(case):
    """pytest's own reason; for a test of ctest the last line of its output."""
    note = case.find("skipped")
    text = note.get("message", "") if note is not None else ""
    if "SKIP_RETURN_CODE" in text:
        text = (case.findtext("system-out") or "").strip().rpartition("\n")[2] or text
    return text


def main():
    skips = {}
    total = {"passed": 0, "failed": 0, "skipped": 0}
    for path in sys.argv[1:]:
        ran = 0
        try:
            for case in ET.parse(path).iter("testcase"):
                result = outcome(case)
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
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**total))
    return 0 if total["passed"] and not total["failed"] else 1


sys.exit(main())
