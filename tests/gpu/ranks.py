"""Two jobs of two ranks each on two GPUs, which do not fit together, and their page. Nobody names a group: the ranks have
what torchrun sets, and must be admitted on both GPUs at once or on none."""

import os
import socket
import sys
import time

import pages
import parts
import suite
from suite import Failure

EACH_GIB = 5          # memory of a rank, less its context, NCCL's buffers and what PyTorch keeps
CAPACITY_GIB = 12     # of both cards: room for one rank, and not for two
UNEVICTABLE = "35%"   # of that, for two contexts of each rank, and for NCCL's buffers, which other processes have open
STEPS, STEP_MS = 1400, 20
RANKS = 2
GOAL_RATIO, GOAL_HANDOFFS = 1.1, 50
BOTH = "0,1"
STUCK_S = 60          # no rank has done a step for so long: the jobs wait for each other
ALONE_S = 150         # limit of a job alone


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def rank(part, job, number, port, multiplications=0, **env):
    """Starts one rank, with the variables that torchrun sets. Without multiplications, the rank finds out how many a step takes."""
    return part.start([sys.executable, os.path.join(suite.HERE, "ranks_job.py"), "--gib", str(EACH_GIB), "--steps", str(STEPS),
                       "--ms", str(STEP_MS), "--multiplications", str(multiplications)], f"{job}-{number}", True,
                      RANK=str(number), LOCAL_RANK=str(number), GROUP_RANK="0", WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="none", CUDA_VISIBLE_DEVICES=BOTH,
                      NCCL_NVLS_ENABLE="0", NCCL_SOCKET_IFNAME="lo", **env)


def ended(part, ranks, limit, moved=None):
    """Waits until all ranks have ended. Fails if none of them does anything for long. moved: returns the hand-offs so far."""
    until = min(time.monotonic() + limit, part.deadline)
    seen, since = None, time.monotonic()
    while True:
        if all(p.process.poll() is not None for p in ranks):
            break
        for p in ranks:
            if p.process.poll() not in (None, 0):
                raise Failure(f"{p.name} ended with {p.process.poll()}: {p.tail()}")
        now = [len(p.events) for p in ranks]
        if now != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() > until or time.monotonic() - since > STUCK_S:
            what = "the time is up" if time.monotonic() > until else f"no rank has done anything for {STUCK_S} s"
            raise Failure(f"{what}, with {moved() if moved else 'no'} hand-offs: " + "; ".join(f"{p.name}: {p.tail()}" for p in ranks))
        time.sleep(0.05)
    for p in ranks:
        p.wait(part.deadline)
        end = p.of("end")
        if not end:
            raise Failure(f"{p.name} said no end: {p.tail()}")
        if end[0]["wrong"]:
            raise Failure(f"{p.name}: {end[0]['wrong']} of {end[0]['words']} words are wrong")


def handoffs(part):
    return [g["handoffs"] for g in part.status()["gpus"][:RANKS]]


def groups_of(part, ranks):
    """Returns {name: group} of these ranks, as the daemon has them."""
    pids = {p.pid: p.name for p in ranks}
    return {pids[c["pid"]]: c["group"] for g in part.status()["gpus"] for c in g["clients"] if c["pid"] in pids}


def grouped(part, ranks):
    """Waits until the daemon knows all ranks. Fails unless those of one job, and only those, have one group."""
    parts.wait_until(part, lambda: len(groups_of(part, ranks)) == len(ranks) or any(p.process.poll() for p in ranks),
                     f"{len(ranks)} ranks at the daemon")
    found = groups_of(part, ranks)
    jobs = {}
    for name, group in found.items():
        jobs.setdefault(name.rsplit("-", 1)[0], set()).add(group)
    of_jobs = [next(iter(some)) if len(some) == 1 else None for some in jobs.values()]
    if None in of_jobs or len(set(of_jobs)) < len(of_jobs) or len(found) < len(ranks):
        raise Failure(f"the ranks of a job are not one group: {found}")
    return found


def alone(part, job, multiplications=0):
    """Returns the seconds of a job without another one, its start counted, and the multiplications of each step."""
    port, began = free_port(), time.monotonic()
    ranks = [rank(part, job, n, port, multiplications) for n in range(RANKS)]
    ended(part, ranks, ALONE_S)
    return round(time.monotonic() - began, 2), ranks[0].of("ready")[0]["multiplications"]


def two_jobs(part, result):
    """Two jobs together, started interleaved, against one after the other."""
    if suite.Card(part).cards() < RANKS:
        result["skipped"] = "this machine has one GPU"
        return
    part.daemon(capacity=f"{CAPACITY_GIB}GiB", unevictable_share=UNEVICTABLE, quantum="1s")
    alone_a, n = alone(part, "alone-a")
    alone_b, _ = alone(part, "alone-b", n)
    result.update(alone_s=[alone_a, alone_b], multiplications=n)
    result["serial_s"] = round(sum(result["alone_s"]), 2)
    result["handoffs_alone"] = max(handoffs(part), default=0)

    before, from_ns = handoffs(part), time.monotonic_ns()
    ports = {"a": free_port(), "b": free_port()}
    began = time.monotonic()
    # Each job is first on one GPU, and has filled its memory there before its other rank starts.
    ranks = [rank(part, "a", 0, ports["a"], n), rank(part, "b", 1, ports["b"], n)]
    for p in ranks:
        p.expect("filled", min(part.deadline, began + ALONE_S))
    ranks += [rank(part, "b", 0, ports["b"], n), rank(part, "a", 1, ports["a"], n)]

    def so_far():
        return [now - then for now, then in zip(handoffs(part), before)]

    result["groups"] = grouped(part, ranks)
    ended(part, ranks, part.left() - 5, so_far)
    result["together_s"] = round(time.monotonic() - began, 2)
    result["handoffs"] = so_far()
    result["ratio"] = round(result["together_s"] / result["serial_s"], 3)
    events = [e for e in part.traced() if e["t_ns"] >= from_ns]
    moved = [suite.episodes(events, p.pid, "evict") for p in ranks]
    result["moved_gib"] = round(sum(n for some in moved for _, _, n in some) / suite.GIB, 1)
    result["evict_s"] = round(sum(e - b for some in moved for b, e, _ in some) / 1e9, 2)
    result["words_checked"] = sum(e["words"] for p in ranks for e in p.of("end"))
    if sum(result["handoffs"]) < GOAL_HANDOFFS:
        raise Failure(f"only {result['handoffs']} hand-offs")


PARTS = {"ranks": (two_jobs, 400)}


ABOUT = ("The ranks of a job wait for each other (NCCL), so a turn must be for all of them, on all GPUs. Two jobs of two ranks take turns"
         " here. Neither fits beside the other.")


def figures(found):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    r, what = found.get("ranks", {}), "two jobs of two ranks each on two GPUs, started interleaved"
    if "skipped" in r:
        return [(what, f"not run: {r['skipped']}", "", None)]
    if "ratio" not in r:
        return [(what, pages.cell(r["error"]), "no deadlock", False)] if "error" in r else []
    return [(f"{what}: together / one after the other", f"{r['ratio']:.2f} ({r['together_s']} s, {r['serial_s']} s)",
             f"at most {GOAL_RATIO}", r["ratio"] <= GOAL_RATIO),
            ("hand-offs of both GPUs meanwhile", f"{sum(r['handoffs'])}", f"at least {GOAL_HANDOFFS}", sum(r["handoffs"]) >= GOAL_HANDOFFS),
            ("memory of all ranks at the end", f"{r['words_checked']} words right", "right", True)]


def page(results):
    found = results["parts"]
    lines = pages.table(figures(found))
    if "ratio" in found.get("ranks", {}):
        r = found["ranks"]
        lines += [f"Each job has two ranks in PyTorch, one on each GPU, with {EACH_GIB} GiB each, and what torchrun sets in their environment."
                  f" Nobody names a group. Each of {STEPS} steps computes for {STEP_MS} ms, adds up 64 MiB of both ranks by NCCL and"
                  f" changes all memory. The daemon may use {CAPACITY_GIB} GiB of each card, which is room for one rank, and turns have"
                  f" a length of 1 s. Each job starts first on one GPU. There were {r['handoffs'][0]} and {r['handoffs'][1]} hand-offs,"
                  f" which moved {r['moved_gib']} GiB out. Alone, the jobs took {r['alone_s'][0]} and {r['alone_s'][1]} s. Starts are counted.", ""]
    return [*lines, *pages.unfinished(found), "`./dev gpu --only ranks` runs this part (`tests/gpu/ranks.py`).", ""]
