"""A short soak: some seconds of the load that `./dev soak` runs for twenty minutes."""

import json
import os
import subprocess
import sys

from campaign import LONG
from world import BUILD, ROOT


def soak(path, minutes):
    done = subprocess.run(
        [sys.executable, os.path.join(ROOT, "tests", "soak", "soak.py"), "--build", BUILD, "--minutes", str(minutes), "--seed", "7",
         "--card", "64MiB", "--kill-every", "2" if LONG else "1", "--job-seconds", "8", "--json", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout
    figures = json.loads(path.read_text())
    assert figures["state"] == "done" and figures["bytes_wrong"] == 0 and not figures["problems"]
    return figures


def test_programs_survive_some_seconds_of_everything(tmp_path):
    for minutes in (0.4,) if LONG else (0.25, 0.5, 1, 2):  # on a busy machine little happens in a short time
        figures = soak(tmp_path / "soak.json", minutes)
        # The run moved memory, checked bytes and killed processes.
        if figures["handoffs"] >= 3 and figures["bytes_checked"] > 1 << 27 and \
                figures["faults"]["programs_killed"] >= 2 and figures["faults"]["daemons_killed"] >= 1:
            return
    raise AssertionError(figures)
