"""A toy of two jobs on one card, for tests of sublet train, predict and pair only: it makes job files and measured
pairs from a few rules of contention, with noise. No figure of it says anything about a real card.

    python3 toy_pairs.py DATA [JOBS [SEED]]     writes a data file as sublet bench pairs does"""

import json
import random
import sys

IDLE_W = 120
CARD = {"time": "2026-11-27T19:00:00Z", "seconds": 1.0, "gpu": "Toy GPU", "driver": "1.0", "sms": 132,
        "memory_bytes": 150 << 30, "l2_bytes": 60 << 20, "dram_gb_s": 4800.0, "bus_gb_s": 55.0, "clock_mhz": 1980}
# Family: (DRAM, tensor, FP32, FP64, integer, kernel's seconds, idle), each around this value
FAMILIES = {
    "stream": (0.85, 0, 0.1, 0, 0.1, 2e-4, 0.02), "gemm": (0.25, 0.7, 0.1, 0, 0.1, 4e-4, 0.02),
    "sgemm": (0.2, 0, 0.8, 0, 0.2, 6e-4, 0.02), "dgemm": (0.15, 0, 0.05, 0.8, 0.1, 1e-3, 0.02),
    "hash": (0.05, 0, 0.05, 0, 0.8, 2e-3, 0.01), "small": (0.1, 0.05, 0.1, 0, 0.05, 8e-6, 0.4),
    "attention": (0.5, 0.4, 0.2, 0, 0.1, 1e-4, 0.1), "resnet": (0.5, 0.2, 0.3, 0, 0.1, 5e-5, 0.05),
    "loader": (0.3, 0.3, 0.1, 0, 0.1, 2e-4, 0.6), "stencil": (0.7, 0, 0.3, 0.1, 0.2, 3e-3, 0.05),
    "decode": (0.6, 0.1, 0.1, 0, 0.05, 2e-5, 0.25), "sort": (0.6, 0, 0.05, 0, 0.5, 5e-4, 0.1),
}
USES = ("dram", "tensor", "fp32", "fp64", "integer")
HIDDEN = 0.12  # how far families differ in what no job file says, such as hits in L2


def job(family, number, rng, peak=None):
    middle = FAMILIES[family]
    near = [min(max(m * rng.uniform(0.6, 1.25), 0), 0.98) for m in middle[:5]]
    seconds, idle = middle[5] * rng.uniform(0.3, 3), min(middle[6] * rng.uniform(0.5, 1.5), 0.9)
    waves = rng.choice([0.2, 0.5, 1, 3, 10])
    near = [n * min(1, 0.3 + waves) * (1 - idle) for n in near]
    occupancy = rng.choice([0.125, 0.25, 0.5, 1.0])
    rate = rng.uniform(1, 40)
    return {"sublet_job": 1, "name": f"{family}-{number}", "command": ["toy", family], "measured": CARD,
            "steps": {"unit": "step", "count": 100, "per_second": rate, "spread": 0.01},
            "memory": {"peak_bytes": int(peak or rng.uniform(1, 40) * 2**30)},
            "gpu": dict(zip(USES, near)) | {"busy": 1 - idle, "sm": min(1, 0.5 + waves / 2) * (1 - idle), "fp16": 0.0,
                                             "occupancy": occupancy * min(1, waves) * (1 - idle),
                                             "power_w": 150 + 450 * max(near)},
            "launch": {"per_second": (1 - idle) / seconds, "graphs_per_second": 0, "idle": idle,
                       "host_s_per_step": idle / rate},
            "copies": {"to_device_gb_s": 0.1, "to_host_gb_s": 0.0, "device_gb_s": 1.0},
            "kernels": [{"name": family, "grid": [max(int(132 * waves), 1), 1, 1], "block": [256, 1, 1],
                         "registers": 64, "shared_bytes": 16384, "local_bytes": 0, "blocks_per_sm": 4,
                         "occupancy": occupancy, "waves": waves, "launches_per_step": 10, "seconds": seconds,
                         "share": 1.0, "graph": False}], "other_share": 0.0}


def stretch(a, b, shared):
    """How many times as long a's part on the card lasts while b is on the card, too."""
    if not shared:
        return 2.15
    worst = 1.0
    for use in USES:
        both = sum(j["gpu"][use] / (1 - j["launch"]["idle"]) for j in (a, b))
        worst = max(worst, both ** 1.1)
    ka, kb = a["kernels"][0], b["kernels"][0]
    slots = ka["occupancy"] * min(1, ka["waves"]) + kb["occupancy"] * min(1, kb["waves"])
    worst = max(worst, 0.8 + 0.5 * slots)
    if kb["waves"] >= 1 and kb["seconds"] > 5 * ka["seconds"]:  # short kernels wait for long ones
        worst *= 1.25
    return 1 + (worst - 1) * hidden(a) / hidden(b)


def hidden(j):
    return random.Random(j["command"][1]).uniform(1 - HIDDEN, 1 + HIDDEN)


def together(a, b, way, rng):
    """Returns the progress of both."""
    jobs, on_card, out = (a, b), [0.5, 0.5], [1, 1]
    for _ in range(40):
        for k in range(2):
            duty = 1 - jobs[k]["launch"]["idle"]
            card = duty * (1 + on_card[1 - k] * (stretch(jobs[k], jobs[1 - k], way == "shared") - 1))
            on_card[k], out[k] = card / (1 - duty + card), 1 / (1 - duty + card)
    return [round(max(p * rng.gauss(1, 0.02), 0.01), 4) for p in out]


def jobs(n, seed=1):
    rng = random.Random(seed)
    names = sorted(FAMILIES)
    return [(names[i % len(names)], job(names[i % len(names)], i, rng)) for i in range(n)]


def write(path, n=48, seed=1, ways=("sliced", "shared")):
    rng = random.Random(seed + 1)
    made = jobs(n, seed)
    with open(path, "w", encoding="utf-8") as f:
        print(json.dumps({"sublet_pairs": 2, "gpu": CARD["gpu"], "driver": CARD["driver"], "sms": 132,
                          "time": CARD["time"], "sublet": "toy", "idle_w": IDLE_W}), file=f)
        for family, j in made:
            print(json.dumps({"job": j, "family": family, "synthetic": True}), file=f)
        for way in ways:
            for i, (_, a) in enumerate(made):
                for _, b in made[i + 1:]:
                    print(json.dumps({"pair": [a["name"], b["name"]], "way": way, "seconds": 0.25,
                                      "progress": together(a, b, way, rng)}), file=f)
    return [j for _, j in made]


if __name__ == "__main__":
    write(sys.argv[1], *map(int, sys.argv[2:]))
