"""Errors of the driver for calls that the library itself makes while it moves memory: every code at every call. The calls
and the codes are read from the sources."""

import glob
import os
import random
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROOMS = ("freeze", "heap", "move", "stream")  # what the agent's thread calls
AT_ONCE = 16  # errors for one process (SIMCUDA_FAIL)
CALLS_MAX = 24  # the error comes at one of so many first calls


def read(*path):
    with open(os.path.join(ROOT, "src", *path), encoding="utf-8") as f:
        return f.read()


def calls():
    """Returns the names of the library's own driver calls."""
    files = [path for room in ROOMS for path in sorted(glob.glob(os.path.join(ROOT, "src", "preload", room, "*.c")))]
    names = {name for path in files for name in re.findall(r"\breal\.(cu[A-Z]\w*)\(", read(path))}
    return sorted({re.sub(r"_v\d$", "", name) for name in names})


def codes():
    """Returns the codes of errors that may pass, and those after which the driver fails every call."""
    values = dict(re.findall(r"\b(CUDA_ERROR_\w+) = (\d+)", read("cuda", "cuda_enums.h")))
    sticky = re.findall(r"case (CUDA_ERROR_\w+):", read("preload", "state", "poison.c"))
    return sorted(int(v) for k, v in values.items() if k not in sticky), sorted(int(values[name]) for name in sticky)


# Answers to a question about a stream or an event that are believed: there is nothing to wait for.
BELIEVED = {4, 201, 400, 709, *range(900, 910)}
QUESTIONS = ("cuStreamQuery", "cuEventQuery", "cuStreamIsCapturing", "cuCtxPushCurrent", "cuCtxRecordEvent", "cuEventRecord",
             "cuEventCreate")


class Errors:
    """Hands out each code at each call once, in an order that the seed determines, and then again."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.all = [(call, code) for call in calls() for code in codes()[0]
                    if not (call in QUESTIONS and code in BELIEVED)]
        self.left, self.given = [], 0

    def draw(self, count=AT_ONCE):
        """Returns a list of faults for SIMCUDA_FAIL."""
        faults = []
        for _ in range(count):
            if not self.left:
                self.left = self.random.sample(self.all, len(self.all))
            call, code = self.left.pop()
            faults.append(f"{call}@sublet-agent:{self.random.randint(1, CALLS_MAX)}:{code}")
        self.given += count
        return ",".join(faults)
