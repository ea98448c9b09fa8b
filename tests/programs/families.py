"""The driver-API programs, one for each family of calls, with arguments for a small card. The system tests run them on
the simulator, and the suite for real GPUs runs them on the card. Their output, except for the volatile fields, must be
the same with sublet, through every door, and under torture."""

DOORS = ("linked", "dlsym", "getproc", "getproc1")

PROGRAMS = {
    "fill": ["--bytes", "8MiB", "--block", "1MiB"],
    "churn": ["--bytes", "8MiB", "--block", "1MiB", "--rounds", "12", "--ms", "3"],
    "threads": ["--bytes", "8MiB", "--block", "1MiB"],
    "graph": ["--bytes", "4MiB"],
    "graphbuild": ["--bytes", "4MiB"],
    "ptds": ["--bytes", "4MiB", "--block", "1MiB", "--ms", "3"],
    "launchex": ["--bytes", "2MiB", "--block", "512KiB"],
    "cooperative": ["--bytes", "2MiB", "--block", "512KiB"],
    "copies": ["--bytes", "1MiB", "--rounds", "2"],
    "small": ["--count", "500", "--rounds", "3"],
    "contexts": ["--bytes", "1MiB"],
    "spin": ["--ms", "5"],
    "fork": ["--bytes", "4MiB", "--block", "1MiB"],
    "launches": ["--rounds", "3"],
    "surface": [],
    "ordered": ["--rounds", "2", "--ms", "1"],
    "late": ["--bytes", "4MiB", "--block", "1MiB"],
}

# Programs that connect through a daemon (CUDA IPC).
NEED_A_DAEMON = ("surface",)

# Programs with work in flight that waits for later work, with long captures, or with memory that they map themselves.
# They check their memory and print sums that can be recomputed. `depend --how inside` is left out, because a real GPU
# never finishes it, with sublet or without.
TANGLED = {
    **{f"depend-{how}": ["depend", "--how", how, "--bytes", "16MiB", "--block", "2MiB", "--ms", "30", "--rounds", "2"]
       for how in ("value", "write", "kernel", "host", "function")},
    **{f"captures-{how}": ["captures", "--how", how, "--bytes", "16MiB", "--block", "2MiB", "--count", "4", "--ms", "30",
                           "--rounds", "2"] for how in ("global", "local", "relaxed", "free")},
    **{f"virtual-{how}": ["virtual", "--how", how, "--bytes", "12MiB", "--block", "2MiB", "--rounds", "6"]
       for how in ("segments", "pages", "sleep", "one", "export", "threads")},
}

# How often torture moves memory: often enough for a short program, less often for programs with thousands of calls.
TORTURE = "calls=5,every=2ms"
TORTURE_OF = {"small": "calls=50,every=2ms", "launches": "calls=50,every=2ms"}

# Fields of a program's output that depend on the run or on its speed.
VOLATILE = ("pid", "ms", "at", "median_ns", "p99_ns", "min_ns")


def torture_of(name, seed):
    return f"{seed},{TORTURE_OF.get(name, TORTURE)}"


def without_volatile(events):
    return [{k: v for k, v in e.items() if k not in VOLATILE} for e in events]
