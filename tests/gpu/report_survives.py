"""The page of the parts about sharing over time (survives.py)."""

import pages

GOALS = {"half_percent": 2.0, "wake_more_ms": 100.0}


ABOUT = ("How equally two busy programs share the GPU in exclusive mode, and how long an idle program waits when it wakes up beside a"
         " batch job.")


def figures(parts):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    out = []
    e = parts.get("exclusive", {})
    for name, text in (("by_status", "as `sublet status` counts"), ("by_the_programs", "by the programs' own clocks"),
                       ("of_kernels", "kernels finished")):
        if f"share_percent_{name}" in e:
            shares = e[f"share_percent_{name}"]
            out.append((f"exclusive mode, two busy programs, {e['turns_of_each']} quanta of {e['quantum']} each: share of the"
                        f" GPU, {text}", " and ".join(f"{s:.2f} %" for s in shares),
                        f"half within {GOALS['half_percent']:g} %",
                        all(abs(s - 50) <= GOALS["half_percent"] for s in shares)))
    if "overlap_ns" in e:
        out.append(("time in which both had a kernel running", f"{e['overlap_ns']} ns", "0", e["overlap_ns"] == 0))
        pause = e["pause_between_turns_ms"]
        out.append(("from one program's last kernel to the other's first",
                    f"median {pause['p50']} ms, p99 {pause['p99']} ms", "", None))
    w = parts.get("wake", {})
    if "waited_ms" in w:
        more = w["waited_more_than_its_restore_ms"]
        out.append((f"coming back from idle beside a batch job, {w['wake_ups']} times: waited more than its own restore",
                    f"median {more['p50']} ms, p99 {more['p99']} ms, most {more['max']} ms",
                    f"p99 at most {GOALS['wake_more_ms']:.0f} ms", more["p99"] <= GOALS["wake_more_ms"]))
        for name, text in (("waited_ms", "waited in all"), ("own_restore_ms", "of it, its own restore"),
                           ("drain_of_the_batch_job_ms", "of it, until the batch job had drained")):
            s = w[name]
            out.append((f"… {text}", f"median {s['p50']} ms, p99 {s['p99']} ms, most {s['max']} ms", "", None))
        first = [f["waited_more_than_its_restore_ms"] for f in w["the_first"] if f]
        out.append(("… the first wake-ups before these, which pin host memory: waited more than the restore",
                    ", ".join(f"{f} ms" for f in first), "", None))
        out.append(("… restored at each wake-up", f"median {w['restored_mib']['p50'] / 1024:.1f} GiB", "", None))
    return out


def page(results):
    found = figures(results["parts"])
    return [
        *pages.table(found),
        *pages.unfinished(results["parts"]),
        "## How it was measured",
        "",
        "- `./dev gpu --only exclusive,wake` runs these parts (`tests/gpu/survives.py`).",
        "- Exclusive mode: two programs fit the card together. Each runs kernels of 2 ms, one after the other"
        " (`tests/programs/turns.c`). Each kernel records its begin and end, by the GPU's own clock. Turns, busy time and overlap"
        " are computed from these times, over whole turns, with as many turns of one program as of the other. `sublet status`"
        " counts from the grant of a lease to its end.",
        "- Coming back from idle: an interactive program at normal priority rewrites and checks all of its memory, and then"
        " rests. A batch job with `sublet run --priority -1` rewrites all of its memory without a pause. Together they need more"
        " than the card has. With equal priorities the batch job's quantum would protect it. The interactive program is woken when the"
        " batch job has had the card again for 0.1 to 0.3 s.",
        "- Waited: the time for the request, less the median time of the same request with everything on the card. The program's"
        " own restore lasts from the first byte in to the last (`SUBLET_TRACE`), beside the batch job's eviction.",
        "- The 99th percentile of 50 or fewer values is the greatest value.",
        "",
    ]
