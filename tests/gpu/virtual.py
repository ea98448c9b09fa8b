"""Programs that reserve, create and map memory themselves, on a real GPU, in pairs that do not fit together: driver-API
programs with handles of several sizes, PyTorch with expandable segments, JAX with its preallocation. Their results are
compared with undisturbed runs on the plain driver."""

import os
import statistics
import sys

import pages
import parts
import suite
from suite import Failure

EACH_GIB = 80  # memory of each of two programs
PAGES_GIB, PAGES_CAPACITY_GIB = 16, 24  # smaller, because each handle of 2 MiB costs the driver some calls
TORCH = {"steps": 240, "epoch": 40, "ballast_gib": 84}
JAX = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".6", "XLA_FLAGS": "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"}
JAX_GIB = 70  # memory of the arrays beside the training

# name: program and its arguments
LARGE = {
    "cuMemAlloc, 1 GiB": ("fill", lambda: ["--block", parts.size(1)]),
    "handles of 128 MiB": ("virtual", lambda: ["--how", "segments", "--block", "128MiB" if parts.UNIT == "GiB" else "8MiB"]),
    "handles of 20 MiB, as PyTorch": ("virtual", lambda: ["--how", "segments", "--block", "20MiB" if parts.UNIT == "GiB" else "4MiB"]),
    "one handle, mapped twice": ("virtual", lambda: ["--how", "one", "--block", parts.size(1)]),
}
SMALL = {
    "handles of 2 MiB that wander, as a cache of pages": ("virtual", lambda: ["--how", "pages", "--block", "2MiB"]),
}


def rates(events, programs, kind):
    """Returns the median GB/s of the larger episodes."""
    found = [b / (e - s) for p in programs for s, e, b in suite.episodes(events, p.pid, kind) if b > parts.GIB * 2 and e > s]
    return round(statistics.median(found), 1) if found else None


def compete(part, result, kinds, each_gib, **settings):
    part.daemon(quantum="1s", **settings)
    for name, (program, args) in kinds.items():
        label = f"{len(result)}"
        end = os.path.join(part.root, f"end-{label}")
        before, deadline = part.gpu()["handoffs"], part.left()
        pair = [part.program(program, *args(), "--bytes", parts.size(each_gib), "--seed", seed, "--until", end,
                             name=f"{label}-{seed}") for seed in (1, 2)]
        for p in pair:
            p.expect("filled", part.deadline)
        parts.wait_until(part, lambda: part.gpu()["handoffs"] >= before + 6 or part.left() < deadline - 25
                         or any(p.process.poll() is not None for p in pair), "six hand-offs")
        row = {"handoffs": part.gpu()["handoffs"] - before}
        suite.touch(end)
        for p in pair:
            p.wait(part.deadline)
        events = part.traced()
        row.update(rounds=[len(p.of("round")) for p in pair], out_gb_s=rates(events, pair, "evict"),
                   in_gb_s=rates(events, pair, "restore"),
                   moved_gib=round(sum(b for p in pair for _, _, b in suite.episodes(events, p.pid, "evict")) / parts.GIB, 1))
        # The programs check every byte on the GPU; the processors recompute one round independently.
        row["recomputed"] = part.check_sums(pair[0], len(pair[0].of("round")))
        result[name] = row
        if row["handoffs"] < 2:
            raise Failure(f"{name}: only {row['handoffs']} hand-offs")


def programs(part, result):
    """Two driver-API programs of 80 GiB each, for each way to get their memory."""
    compete(part, result, LARGE, EACH_GIB)


def many_pages(part, result):
    """Two driver-API programs with 8,192 pages of 2 MiB each, on a smaller card."""
    compete(part, result, SMALL, PAGES_GIB, capacity=parts.size(PAGES_CAPACITY_GIB))


def torch_segments(part, result):
    """PyTorch with expandable segments beside PyTorch without."""
    how = {"resnet50": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "transformer": {}}

    def trainer(net, shared, *more):
        seed = list(how).index(net) + 1
        return part.start([sys.executable, os.path.join(suite.HERE, "trainer.py"), "--net", net, "--seed", str(seed),
                           "--ballast-gib", str(TORCH["ballast_gib"]), *more], net + ("" if shared else "-alone"), shared,
                          **how[net])

    def go(p):
        p.say(f"train {TORCH['steps']} {TORCH['epoch']}")

    alone = {net: trainer(net, False, "--hold") for net in how}
    for p in alone.values():
        p.say("go")
        p.expect("ready", part.deadline)
        go(p)
        p.expect("trained", part.deadline)
        p.close()
        p.wait(part.deadline)
    part.daemon(quantum="1500ms")
    together = {net: trainer(net, True) for net in how}
    for p in together.values():
        p.expect("ready", part.deadline)
    for p in together.values():
        go(p)
    for p in together.values():
        p.expect("trained", part.deadline)
    status, events = part.gpu(), part.traced()
    result["handoffs"] = status["handoffs"]
    result["moved_out_gib"] = {c["name"]: round(c["moved_out"] / suite.GIB, 1) for c in status["clients"]}
    result["out_gb_s"] = {net: rates(events, [p], "evict") for net, p in together.items()}
    for net, p in together.items():
        p.close()
        p.wait(part.deadline)
        same = parts.losses(p) == parts.losses(alone[net])
        result.setdefault("equal", {})[net] = same
        if not same:
            raise Failure(f"{net}: not what its undisturbed run gave")
    if result["handoffs"] < 4:
        raise Failure(f"only {result['handoffs']} hand-offs")


def jax_preallocated(part, result):
    """Two JAX processes, each of which takes 60 % of the card when it begins."""
    def start(name, shared):
        return part.start([sys.executable, os.path.join(suite.HERE, "workloads", "with_jax.py"), "large"], name, shared,
                          **JAX, LARGE_GIB=str(JAX_GIB))

    alone = start("alone", False)
    alone.wait(part.deadline)
    want = alone.of("result")
    if not want:
        raise Failure("no result without sublet: " + alone.tail())
    part.daemon(quantum="1s")
    pair = [start(f"jax-{i}", True) for i in (1, 2)]
    for p in pair:
        p.wait(part.deadline)
    status = part.gpu()
    result["handoffs"] = status["handoffs"]
    result["moved_out_gib"] = round(sum(b for p in pair for _, _, b in suite.episodes(part.traced(), p.pid, "evict"))
                                    / suite.GIB, 1)
    result["took_s"] = {"alone": alone.of("end")[0]["seconds"], "together": [p.of("end")[0]["seconds"] for p in pair]}
    result["equal"] = [p.of("result") == want for p in pair]
    if not all(result["equal"]):
        raise Failure("not what the undisturbed run gave")
    if result["handoffs"] < 2:
        raise Failure(f"only {result['handoffs']} hand-offs")


PARTS = {"virtual-programs": (programs, 170), "virtual-pages": (many_pages, 120), "virtual-torch": (torch_segments, 150),
         "virtual-jax": (jax_preallocated, 110)}


ABOUT = ("Programs may create and map memory themselves (`cuMemCreate`, `cuMemMap`), as PyTorch does with expandable segments. This"
         " memory moves, too. This page says how fast, and whether results stay right.")


def figures(found):
    return pages.equal_or_not(PARTS, found, "programs that map memory themselves")


def page(results):
    found = results["parts"]
    lines = []
    rows = {n: r for part in ("virtual-programs", "virtual-pages") for n, r in found.get(part, {}).items()
            if isinstance(r, dict)}
    if rows:
        lines += [f"## Two programs of {EACH_GIB} GiB each", "",
                  f"The programs of the last row have {PAGES_GIB} GiB each, on a card of {PAGES_CAPACITY_GIB} GiB. Every round of a program"
                  " checks and rewrites all of its memory. Rates are medians over whole evictions and restores,"
                  " including the time spent waiting for the other program.", "",
                  "| memory by | hand-offs | moved out, GiB | out, GB/s | in, GB/s |", "|---|---|---|---|---|"]
        lines += [f"| {n} | {r['handoffs']} | {r['moved_gib']} | {r['out_gb_s']} | {r['in_gb_s']} |" for n, r in rows.items()]
        lines.append("")
    t = found.get("virtual-torch", {})
    if "equal" in t:
        lines += ["## PyTorch with expandable segments", "",
                  "ResNet-50 trains with `expandable_segments:True` and a transformer without. Each holds"
                  f" {TORCH['ballast_gib']} GiB of random words beside the model, for {TORCH['steps']} steps. There were"
                  f" {t['handoffs']} hand-offs.", "",
                  "| program | moved out, GiB | losses bit-identical to undisturbed runs on the plain driver |", "|---|---|---|",
                  *(f"| {k} | {v} | {'yes' if t['equal'][k] else '**no**'} |" for k, v in t["moved_out_gib"].items()), ""]
    j = found.get("virtual-jax", {})
    if "equal" in j:
        lines += ["## JAX with its preallocation", "",
                  f"Each of two processes takes 60 % of the card when it begins, and fills {JAX_GIB} GiB of it. There were {j['handoffs']}"
                  f" hand-offs, and {j['moved_out_gib']} GiB moved out. Are the results equal to those of an undisturbed run on the plain"
                  f" driver? {'Yes' if all(j['equal']) else '**No**'}.", ""]
    return [*lines, *pages.unfinished(found), f"`./dev gpu --only {','.join(PARTS)}` runs these parts (`tests/gpu/virtual.py`).", ""]
