"""Functions for the pages of docs/measurements that this suite writes. A figure is (what, measured, goal, met); met is
True, False, OPEN, or None if there is no goal. The suite prints goals at the end of a run. Pages show what was measured:
a reader has goals of his own."""

import textwrap

OPEN = "open"  # the interval contains the goal, so it is not known whether the goal is met
MARKS = {None: "", True: "met", False: "**short**", OPEN: "open"}
SLOWER_PERCENT = 3  # counts as equally fast: medians of a few runs differ by this much among themselves


def within(interval, goal):
    """Tells whether a difference in percent is at most the goal, as far as its interval can tell."""
    low, high = interval
    return True if high <= goal else False if low > goal else OPEN


def no_slower(ours, other):
    """Returns the goal for a time, and whether the time meets it."""
    return f"at most {SLOWER_PERCENT} % slower", ours <= other * (1 + SLOWER_PERCENT / 100)


def wrapped(lines):
    """Breaks lines longer than 118 characters, except rows of tables."""
    for line in lines:
        if line.startswith("|") or len(line) <= 118:
            yield line
        else:
            yield from textwrap.wrap(line, 118, subsequent_indent="  " if line.startswith("- ") else "",
                                     break_long_words=False, break_on_hyphens=False)


def where(m):
    others = f" (one of the machine's {m['gpus']})" if m.get("gpus", 1) > 1 else ""
    return (f"{m['gpu']}{others}, {m['gpu_memory']}, driver {m['driver']}; {m['processors']} processors, {m['host_memory_gib']} GiB of"
            f" RAM, kernel {m['kernel']}, glibc {m['libc']}. Commit {m['commit']}, {m['date']}."
            + (f" `SUBLET_FREEZE={m['freeze']}`." if "freeze" in m else ""))


def head(title, file, results, about):
    runs = {}  # earlier runs, each with the parts kept of it
    for name, machine in results.get("earlier", {}).items():
        runs.setdefault(where(machine), []).append(f"`{name}`")
    but = f", except those of {', '.join(n for names in runs.values() for n in names)}" if runs else ""
    return [f"# {title}", "", about, "",
            f"Machine: {where(results['machine'])} Every figure is from this run{but}. [{file}.json]({file}.json) contains all figures.", "",
            *(line for run, names in runs.items() for line in (f"{', '.join(names)}: {run}", ""))]


def table(figures):
    return ["| what | measured |", "|---|---|", *(f"| {what} | {measured} |" for what, measured, _, _ in figures), ""]


def cell(text, most=160):
    """Returns the text as a cell of a table: on one line, and cut if it is too long."""
    text = " ".join(str(text).split()).replace("|", "/")
    return text if len(text) <= most else text[:most - 2] + " …"


def failed(parts):
    return [f"- Part `{name}` did not finish: {cell(p['error'], 900)}" for name, p in parts.items() if "error" in p]


def unfinished(parts):
    return [*failed(parts), ""] if failed(parts) else []


def equal_or_not(parts, found, what):
    """Returns figures of parts that compare results with undisturbed runs; a part fails if they differ."""
    return [(f"{what}, {name}", cell(found[name].get("error", "equal")), "equal, after hand-offs", "error" not in found[name])
            for name in parts if name in found]
