"""The page of the parts about jobs of several ranks on one GPU (onecard.py)."""

import onecard
import pages

ABOUT = ("`sublet run --ranks N` lets N ranks of a job share one GPU, each with a device of its own. NCCL refuses this; sublet then serves"
         " the ranks' communicators itself. This page says whether training computes the same, how fast it is, and what follows when a"
         " rank dies.")
WAYS = {"sliced": "sliced by the driver", "exclusive": "in mode exclusive", "shared": "by MPS"}


def cases(parts, name):
    return parts.get(name, {}).get("cases", {})


def good(found, *keys):
    """Returns the cases that have these figures."""
    return {name: case for name, case in found.items() if all(key in case for key in keys)}


def wrong(found):
    return [name for name, case in found.items() if "error" in case]


def verdict(found, what, right, names=None):
    """Returns a row that tells whether all these cases are right; none if there are no such cases."""
    some = {name: case for name, case in found.items() if names is None or name in names}
    if not some:
        return []
    bad = wrong(some)
    return [(what, f"wrong: {pages.cell('; '.join(bad))}" if bad else f"{right} ({len(some)} cases)", "right", not bad)]


def figures(parts):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    found = cases(parts, "onecard-losses")
    out = verdict(found, f"losses of training on one GPU, against {'sums on the processors' if in_order(found) else 'Gloo'} and against one process",
                  f"equal within {onecard.TOLERANCE:g}, and bit by bit in a second run")
    for name, case in good(cases(parts, "onecard-speed"), "ratio").items():
        net, way = name.split(", ")
        out.append((f"two ranks of half the batch / one process, samples a second: {net}, {WAYS[way]}", f"{case['ratio']:.2f}", "", None))
    for name, case in good(cases(parts, "onecard-allreduce"), "alone_ms").items():
        if name.endswith(", 100 MiB, sliced"):
            out.append((f"one all-reduce: {name}", f"{case['alone_ms']:.2f} ms", "", None))
    out += [(f"{name}: memory at the end", f"{case['words']} words, {case['wrong']} wrong, after {case['handoffs']} hand-offs", "right",
             not case["wrong"]) for part in onecard.BIG for name, case in cases(parts, part).items()
            if "wrong" in case]
    out += verdict(cases(parts, "onecard-dies"), "ranks that die, stop or come late, and a daemon that is killed", "as they should")
    out += verdict(cases(parts, "onecard-graphs"), "collectives in replayed CUDA graphs", "right sums and contents")
    out += verdict(cases(parts, "onecard-groups"), "random schedules of sends and receives", "right contents")
    out += verdict(cases(parts, "onecard-checks"), "all types and operations of NCCL (`nccl_checks`)", "right")
    return out


def errors(found):
    return [f"- {name}: {pages.cell(case['error'], 500)}" for name, case in found.items() if "error" in case]


def in_order(found):
    """True if training is compared with sums in the order of the ranks. Runs before 2026-12 compare with Gloo's own order."""
    return any("same_bits" in case for case in found.values())


def losses_page(found):
    if in_order(found):
        other = "on the processors"
        how = (" ranks without sublet, whose gradients the processors add up in the order of the ranks: additions have the same bits there, so"
               " losses and parameters must have the same bits. *fsdp* (`fully_shard`) and *tp* (tensor parallelism) are compared with one"
               f" process, which adds up in another order, so {onecard.TOLERANCE:g} is allowed. The difference is the largest of any loss, as"
               " a part of it.")
    else:
        other = "with Gloo"
        how = (" ranks without sublet that add up by Gloo, rank by rank, with one batch for all ranks together. *fsdp* (`fully_shard`) and *tp*"
               " (tensor parallelism) are compared with one process. The difference is the largest of any loss, as a part of it. Another order"
               f" of the sums changes the last bits, so {onecard.TOLERANCE:g} is allowed. ResNet-50 enlarges such differences in each step, by"
               " its normalization and a loss that falls fast.")
    lines = ["## What training computes", "",
             f"{onecard.STEPS} steps in fp32 with deterministic algorithms and without TF32, on the same data. *ddp* is compared with the same"
             + how, "", f"| training | difference | equal bit by bit{' to Gloo' * (not in_order(found))} | second run | ms a step | {other} |",
             "|---|---|---|---|---|---|"]
    for name, case in good(found, "relative").items():
        bits = {True: "yes", False: "no", None: ""}[case.get("same_bits", case.get("as_gloo_bit_by_bit"))]
        repeats = {True: "same bits", False: "**other bits**", None: ""}[case.get("repeats")]
        lines.append(f"| {name} | {case['relative']:.1e} | {bits} | {repeats} | {case['step_ms']} | {case.get('gloo_step_ms', '')} |")
    return [*lines, ""]


def speed_page(found):
    rows = good(found, "ratio")
    if not rows:
        return []
    return ["## Two halves against one whole", "",
            "Two ranks with half of the batch each, by *ddp*, against one process with the whole batch. Both are under sublet. Samples a second,"
            " medians of alternating runs, at PyTorch's defaults; the transformer in bf16.", "",
            "| network and way | batch | one process | two ranks | two ranks / one process |", "|---|---|---|---|---|",
            *(f"| {net}, {WAYS[way]} | {case['batch']} | {case['one_process']} | {case['two_ranks']} | {case['ratio']:.2f} |"
              for name, case in rows.items() for net, way in [name.split(", ")]), ""]


def allreduce_page(found):
    rows = good(found, "alone_ms")
    if not rows:
        return []
    lines = ["## One all-reduce", "",
             f"Milliseconds of one all-reduce of otherwise idle ranks in fp32, of the slowest rank. *Alone*: from the call to the end of"
             f" `torch.cuda.synchronize()`, after a barrier; median of {onecard.TIMES} ({onecard.GLOO_TIMES} for Gloo). *Queued*: each of as"
             " many that are queued one after the other. Gloo adds up the same tensors in the same processes.", "",
             "| ranks | size | sliced: alone | queued | by MPS: alone | queued | Gloo: alone |", "|---|---|---|---|---|---|---|"]
    for n in onecard.RANKS:
        for size in onecard.SIZES:
            cells = [f"{rows[name][key]:.3f}" if (name := f"{n} ranks, {size}, {way}") in rows else ""
                     for way, key in [(way, key) for way in ("sliced", "shared") for key in ("alone_ms", "queued_ms")] + [("gloo", "alone_ms")]]
            if any(cells):
                lines.append(f"| {n} | {size} | {' | '.join(cells)} |")
    return [*lines, ""]


def epoch_page(found, r):
    rows = good(found, "samples_s")
    if not rows:
        return []
    workers = (1, *onecard.RANKS)
    lines = ["## An epoch", "",
             f"Seconds of ResNet-50 for {r.get('samples', onecard.SAMPLES)} samples, which lie on the GPU already, by the number of"
             " workers and the batch of all workers together. Workers are sliced by the driver.", "",
             "| batch | " + " | ".join("1 worker" if n == 1 else f"{n} workers" for n in workers) + " |", "|---" * (len(workers) + 1) + "|"]
    for batch in onecard.BATCHES:
        cells = [f"{rows[name]['seconds']:.2f}" if (name := f"{n} workers, batch {batch}") in rows else "" for n in workers]
        lines.append(f"| {batch} | {' | '.join(cells)} |")
    lines.append("")
    sums = good(found, "sums_ms")
    if sums:
        none = found.get("step without an exchange", {}).get("step_ms")
        lines += [f"With {onecard.BUCKET_RANKS} workers and a batch of 64, a step without an exchange of gradients takes {none} ms."
                  " *Exchange* is what a step with it takes longer; *sums* is the same bytes added up in pieces of that size and nothing else.", "",
                  "| DDP's buckets | ms a step | exchange, ms | sums, ms | pieces |", "|---|---|---|---|---|",
                  *(f"| {name.removeprefix('buckets of ')} | {case['step_ms']} | {'?' if case['exchange_ms'] is None else case['exchange_ms']}"
                    f" | {case['sums_ms']} | {case['pieces']} |" for name, case in sums.items()), ""]
    return lines


def big_page(found, more):
    rows = {**good(found, "step_s"), **good(more, "step_s")}
    if not rows:
        return []
    return ["## More than the card", "",
            f"Each step computes for {onecard.BIG_MS} ms, adds up 64 MiB of all ranks and changes all memory. Each rank needs its memory in"
            " each step, so nearly all of it moves. All words are compared at the end.", "",
            "| ranks | filled, s | steps | a step, s | hand-offs | freezes | out, GiB | GB/s | in, GiB | GB/s | words | wrong |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|",
            *("| " + " | ".join(str(cell) for cell in (name, case["filled_s"], case["steps"], case["step_s"], case["handoffs"], case["frozen"],
                                                    case["out"]["gib"], case["out"]["gb_s"], case["in"]["gib"], case["in"]["gb_s"],
                                                    case["words"], case["wrong"])) + " |" for name, case in rows.items()), ""]


def dies_page(found):
    if not found:
        return []
    lines = ["## Ranks that die, and others", "",
             "Four ranks train the transformer. *Same* means: all losses and parameters equal an undisturbed run's,"
             " bit by bit.", "", "| what happened | what followed |", "|---|---|"]
    for name, case in found.items():
        if "same" in case:
            lines.append(f"| {name} | {'same' if case['same'] else '**other losses**'}, {case['seconds_to_the_end']} s later |")
        if "ranks" in case:
            ends = "; ".join(f"rank {rank} after {f['seconds']} s with status {f['status']}" for rank, f in case["ranks"].items())
            said = next((f["said"] for f in case["ranks"].values() if f["said"]), "")
            lines.append(f"| {name} | {ends}. {pages.cell(said, 240)} |")
    return [*lines, ""]


def graphs_page(found):
    rows = good(found, "replays")
    return ["## CUDA graphs", "",
            f"{onecard.GRAPH_RANKS} ranks replay a graph with one collective, with other inputs each time, and compare every word.", "",
            "| in the graph | replays | words | wrong |", "|---|---|---|---|",
            *(f"| {name} | {case['replays']} | {case['words']} | {case['wrong']} |" for name, case in rows.items()), ""] if rows else []


def checks_page(found):
    rows = good(found, "cases", "right")
    return ["## Types and operations", "",
            "`nccl_checks` runs each operation of NCCL's with each type, and compares the results with the processor's.", "",
            "| ranks | checks: right | wrong | skipped | results compared |", "|---|---|---|---|---|",
            *(f"| {name.split()[0]} | {case['right']} | {case['wrong']} | {case['skipped']} | {case['cases']} |" for name, case in rows.items()), "",
            *(f"- {name}: {pages.cell(text, 300)}" for name, case in rows.items() for text in case["not_right"]), ""] if rows else []


def page(results):
    found = results["parts"]
    of = {name.removeprefix("onecard-"): cases(found, name) for name in found}
    lines = pages.table(figures(found))
    lines += losses_page(of["losses"]) if good(of.get("losses", {}), "relative") else []
    lines += [*speed_page(of.get("speed", {})), *allreduce_page(of.get("allreduce", {})),
              *epoch_page(of.get("epoch", {}), found.get("onecard-epoch", {})),
              *big_page(of.get("big", {}), of.get("past", {})), *dies_page(of.get("dies", {})), *graphs_page(of.get("graphs", {})),
              *checks_page(of.get("checks", {}))]
    lines += [line for name, r in found.items() if "skipped" in r for line in (f"Part `{name}` was not run: {r['skipped']}.", "")]
    wrongs = [line for some in of.values() for line in errors(some)]
    lines += ["Wrong:", "", *wrongs, ""] if wrongs else []
    return [*lines, *pages.unfinished(found), "`./dev gpu --only onecard` runs these parts (`tests/gpu/onecard.py`). The daemon keeps"
            f" {onecard.SETTINGS['unevictable_share']} of the card for contexts and rings.", ""]
