"""The driver-API programs, one a family of calls, with arguments for a small card: the system tests run them on the
simulator, the suite for real GPUs there. What they say, less what differs from run to run, must be the same with sublet,
through every door, and under torture."""

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

# These connect through a daemon (CUDA IPC).
NEED_A_DAEMON = ("surface",)

# Programs whose work in flight waits for what comes later, or whose captures take long, or that map their memory
# themselves. They check their memory themselves, and say sums that can be recomputed. "inside" is not among them: a real GPU does not finish it, with
# sublet or without.
TANGLED = {
    **{f"depend-{how}": ["depend", "--how", how, "--bytes", "16MiB", "--block", "2MiB", "--ms", "30", "--rounds", "2"]
       for how in ("value", "write", "kernel", "host", "function")},
    **{f"captures-{how}": ["captures", "--how", how, "--bytes", "16MiB", "--block", "2MiB", "--count", "4", "--ms", "30",
                           "--rounds", "2"] for how in ("global", "local", "relaxed", "free")},
    **{f"virtual-{how}": ["virtual", "--how", how, "--bytes", "12MiB", "--block", "2MiB", "--rounds", "6"]
       for how in ("segments", "pages", "sleep", "one", "export", "threads")},
}

# Torture so hard that even a short program meets it; less for programs that make thousands of calls.
TORTURE = "calls=5,every=2ms"
TORTURE_OF = {"small": "calls=50,every=2ms", "launches": "calls=50,every=2ms"}

# Parts of a program's output that belong to this run alone, or to its speed.
VOLATILE = ("pid", "ms", "at", "median_ns", "p99_ns", "min_ns")


def torture_of(name, seed):
    return f"{seed},{TORTURE_OF.get(name, TORTURE)}"


def without_volatile(events):
    return [{k: v for k, v in e.items() if k not in VOLATILE} for e in events]
