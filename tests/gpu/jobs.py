"""Jobs of `sublet submit`, which `sublet measure` has described, on one GPU: what measuring costs, which jobs the queue
pairs, and what comes of it; and their page. Needs PyTorch, MPS and a model of the card in .gpu/models."""

import json
import os
import statistics
import sys
import time

import pages
import suite
from parts import wait_until
from suite import Failure

QOS = 0.5
ALONE_S = 15  # how long each job of the queue would run alone
MEASURED_S = 4
BUILD_S = 10  # from the first kernel until a model is built and warm
ROUNDS = 2
COSTS = ("resnet50-train-b32-bf16", "dlrm-train-b4096-fp32-eager")
QUEUE = ("vit-infer-b1-fp32", "lstm-infer-b16-fp16", "lstm-train-b64-fp32", "unet-train-b1-bf16")
SETTINGS = {"mps": "yes", "quantum": "200ms"}


def command(part, name, *steps):
    return [sys.executable, os.path.join(suite.HERE, "model.py"), part.build, name, *map(str, steps)]


def sublet(part, name, *args):
    """Starts the command line, whose program prints JSON lines."""
    return part.start([os.path.join(part.build, "sublet"), *args], name, False, SUBLET_DIR=part.dir, CUDA_VISIBLE_DEVICES=str(suite.GPU))


def rate(events):
    """Returns steps a second: the median of those of each second."""
    rates = [e["steps"] / e["seconds"] for e in events if e["event"] == "rate"]
    if not rates:
        raise Failure("no rate was printed")
    return statistics.median(rates)


def rate_plain(part, name, label):
    p = sublet(part, label, "run", "--", *command(part, name))
    p.expect("ready", part.deadline)
    for _ in range(MEASURED_S + 2):
        p.expect("rate", part.deadline)
    p.kill()
    return rate(p.events[-MEASURED_S:])


def rate_measured(part, name, label, path, *options):
    """Measures a job. Returns its rate meanwhile, as its program saw it in its first run."""
    p = sublet(part, label, "measure", "-o", path, "--warm-up", f"{BUILD_S}s", "--seconds", str(MEASURED_S), *options, "--", *command(part, name))
    p.wait(part.deadline)
    second = [i for i, e in enumerate(p.events) if e["event"] == "ready"][1:]
    rates = [e for e in (p.events[:second[0]] if second else p.events) if e["event"] == "rate"]
    return rate(rates[-MEASURED_S:])


def cost(part, result):
    """What `sublet measure` costs the program that it measures."""
    part.daemon(**SETTINGS)
    for name in COSTS:
        plain, measured = [], []
        for i in range(ROUNDS):
            plain.append(rate_plain(part, name, f"plain-{name}-{i}"))
            measured.append(rate_measured(part, name, f"measured-{name}-{i}", os.path.join(part.root, "cost.job.json")))
            result[name] = {"plain": [round(x, 2) for x in plain], "measured": [round(x, 2) for x in measured],
                            "difference_percent": round(100 * (statistics.median(measured) / statistics.median(plain) - 1), 2)}
        print(name, result[name], flush=True)


def measure_all(part, result):
    """Measures the jobs of the queue. Returns their rates alone."""
    alone = {}
    for name in QUEUE:
        alone[name] = rate_measured(part, name, f"measure-{name}", os.path.join(part.root, name + ".json"), "--mps")
        with open(os.path.join(part.root, name + ".json"), encoding="utf-8") as f:
            described = json.load(f)
        result["jobs"][name] = {"alone": round(alone[name], 2), "measured": described["steps"]["per_second"],
                                "half": described["steps"].get("half_per_second"), "gpu": described["gpu"]}
    return alone


def watch(part, running):
    """Looks at the queue until all have ended. Returns for each job what was predicted and observed of it, by partner."""
    seen = {}
    while any(p.process.poll() is None for p in running.values()):
        if part.left() < 5:
            raise Failure("the jobs did not end in time")
        jobs = part.status()["jobs"]
        names = {j["id"]: j["name"] for j in jobs}
        for j in jobs:
            if j["beside"] and j["observed"] is not None:
                key = (j["name"], names.get(j["beside"]), j["way"])
                seen.setdefault(key, {"predicted": j["predicted"], "observed": []})["observed"].append(j["observed"])
        time.sleep(0.5)
    return seen


def queue(part, result):
    """Four jobs for one GPU: the queue pairs them, within their bound. They wait for a job that only keeps the GPU, because jobs share
    by MPS only if they start together. The other GPUs stay taken."""
    result["jobs"], result["pairs"] = {}, []
    part.daemon(**SETTINGS)
    alone = measure_all(part, result)
    keepers = [sublet(part, f"keeper-{i}", "submit", "--name", f"keeper-{i}", "--", "cat") for i in range(len(part.status()["gpus"]))]
    wait_until(part, lambda: [j["state"] for j in part.status()["jobs"]].count("running") == len(keepers), "jobs that keep the GPUs")
    gpu_of = {j["name"]: j["gpu"] for j in part.status()["jobs"]}
    running = {}
    for name in QUEUE:
        running[name] = sublet(part, name, "submit", "--name", name, "--qos", str(QOS), "--job", os.path.join(part.root, name + ".json"), "--",
                               *command(part, name, round(alone[name] * ALONE_S)))
    wait_until(part, lambda: [j["state"] for j in part.status()["jobs"]].count("waiting") == len(QUEUE), "queue of all jobs")
    began = time.monotonic()
    next(p for i, p in enumerate(keepers) if gpu_of[f"keeper-{i}"] == suite.GPU).close()
    seen = watch(part, running)
    result["all_s"] = round(time.monotonic() - began, 1)
    for (name, beside, way), what in seen.items():
        observed = what["observed"][4:] or what["observed"]  # the first seconds build the model
        result["pairs"].append({"job": name, "beside": beside, "way": way, "predicted": what["predicted"],
                                "observed": round(statistics.median(observed), 3), "looks": len(what["observed"])})
    for name, p in running.items():
        p.wait(part.deadline)
        end = p.of("end")[-1]
        result["jobs"][name].update(ran_s=round(end["seconds"], 1), progress=round(end["steps"] / end["seconds"] / alone[name], 3))
    result["alone_s"] = round(sum(j["ran_s"] * j["progress"] for j in result["jobs"].values()), 1)


ABOUT = ("Models of PyTorch as jobs: what `sublet measure` costs them, and four that `sublet submit` starts on one GPU, alone or in "
         "pairs.")
PARTS = {"jobs-cost": (cost, 240), "jobs-queue": (queue, 360)}


def figures(parts):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    out = []
    costs = [c["difference_percent"] for c in parts.get("jobs-cost", {}).values() if isinstance(c, dict) and "difference_percent" in c]
    if costs:
        out.append(("what measuring costs a program, at most", f"{max(0.0, -min(costs)):.1f} %", "at most 3 %", -min(costs) <= 3))
    pairs = parts.get("jobs-queue", {}).get("pairs", [])
    if pairs:
        kept = sum(p["observed"] >= QOS for p in pairs)
        out.append((f"jobs that kept their bound of {QOS} beside another", f"{kept} of {len(pairs)}", "at least 97 %", kept >= 0.97 * len(pairs)))
    return out


def cost_page(r):
    rows = [(name, c) for name, c in r.items() if isinstance(c, dict) and "difference_percent" in c]
    if not rows:
        return []
    return ["## What measuring costs", "",
            f"Steps a second, {MEASURED_S} s of each of {ROUNDS} alternating runs, medians.", "",
            "| model | under sublet | measured | difference |", "|---|---|---|---|",
            *(f"| {name} | {statistics.median(c['plain']):.1f} | {statistics.median(c['measured']):.1f} | {c['difference_percent']} % |"
              for name, c in rows), ""]


def queue_page(r):
    if not r.get("pairs"):
        return []
    lines = ["## A queue", "",
             f"Four jobs with a bound of {QOS} waited when one GPU became free. Each would have run {ALONE_S} s alone. Progress is that of the "
             "whole run, also while alone; observed is the median of what the daemon saw while two ran.", "",
             "| job | beside | way | predicted | observed |", "|---|---|---|---|---|",
             *(f"| {p['job']} | {p['beside']} | {p['way']} | {p['predicted']:.2f} | {p['observed']:.2f} |" for p in r["pairs"] if p["predicted"] is not None),
             ""]
    if "all_s" in r:
        lines += [f"All had ended after {r['all_s']} s, with starting PyTorch and building the models; their work alone takes {r['alone_s']} s one after "
                  "the other, without that.", ""]
    return lines


def page(results):
    found = results["parts"]
    return [*cost_page(found.get("jobs-cost", {})), *queue_page(found.get("jobs-queue", {})), *pages.unfinished(found)]
