#!/usr/bin/env python3
"""Adds up the results of ctest and pytest; the last line is `N passed, N failed, N skipped`.

    count_tests.py JUNIT.xml...

A report that is missing or unreadable counts as a failure, as does a suite in which nothing ran: a suite that crashed must
not look like one without tests. Exits with 1 unless something passed and nothing failed."""

import sys
import xml.etree.ElementTree as ET


def outcome(case):
    # pytest says it with children; ctest with a status, and with the exit status of a skipped test as a message.
    status = case.get("status")
    skipped = case.find("skipped")
    if case.find("failure") is not None or case.find("error") is not None or status == "fail":
        return "failed"
    if skipped is not None or status in ("notrun", "disabled"):
        told = skipped is None or not status or "SKIP" in skipped.get("message", "") or status == "disabled"
        return "skipped" if told else "failed"
    return "passed"


def main():
    total = {"passed": 0, "failed": 0, "skipped": 0}
    for path in sys.argv[1:]:
        ran = 0
        try:
            for case in ET.parse(path).iter("testcase"):
                result = outcome(case)
                total[result] += 1
                ran += 1
                if result != "passed":
                    note = case.find("skipped")
                    why = f" ({note.get('message', '')})" if result == "skipped" and note is not None else ""
                    print(f"{result}: {case.get('name')}{why}")
        except (OSError, ET.ParseError) as error:
            print(f"failed: no result in {path}: {error}")
        if not ran:
            print(f"failed: nothing ran in {path}")
            total["failed"] += 1
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**total))
    return 0 if total["passed"] and not total["failed"] else 1


sys.exit(main())
