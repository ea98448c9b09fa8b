"""Real frameworks, plain against torture: each case of tests/gpu/workloads runs twice on the plain driver, once under
sublet and once under SUBLET_TORTURE. This part compares the results."""

import concurrent.futures
import importlib.metadata
import json
import math
import os
import sys
import time

import suite
from suite import Failure

TOGETHER = 5  # cases at a time; each has three processes at once, except in its first run
# Memory moves before one call in a thousand and every 20 ms: some dozen times a second at most.
TORTURE = "calls=1000,every=20ms"
# If the two plain runs of a case differ, another run may differ from the first plain run by CLOSE_FACTOR times that
# difference, or by CLOSE, whichever is larger.
CLOSE_FACTOR, CLOSE = 30, 1e-5
NOT_HERE = "not here: "  # begins the row of a case that cannot run

QUIET_JAX = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": "--xla_gpu_deterministic_ops=true"
             " --xla_gpu_autotune_level=0"}

# name: framework, script, case, environment, limit of one run in seconds
CASES = {
    "torch-fp32": ("PyTorch", "with_torch", "fp32", {}, 60),
    "torch-bf16": ("PyTorch", "with_torch", "bf16", {}, 60),
    "torch-compile": ("PyTorch", "with_torch", "compiled", {}, 110),
    "torch-compile-graphs": ("PyTorch", "with_torch", "compiled_graphs", {}, 110),
    "torch-graphs": ("PyTorch", "with_torch", "graphs", {}, 60),
    "torch-loader": ("PyTorch", "with_torch", "loader", {}, 80),
    "torch-expandable": ("PyTorch", "with_torch", "expandable", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, 60),
    "torch-async": ("PyTorch", "with_torch", "stream_ordered", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, 60),
    "torch-empty-cache": ("PyTorch", "with_torch", "sizes", {}, 60),
    "torch-oom": ("PyTorch", "with_torch", "out_of_memory", {}, 60),
    "torch-processes": ("PyTorch", "with_torch", "another_process", {}, 80),
    "torch-streams": ("PyTorch", "with_torch", "streams", {}, 60),
    "torch-libraries": ("PyTorch", "with_torch", "libraries", {}, 60),
    "jax": ("JAX", "with_jax", "training", QUIET_JAX, 80),
    "jax-arrays": ("JAX", "with_jax", "arrays", QUIET_JAX, 80),
    "jax-preallocated": ("JAX", "with_jax", "training", {**QUIET_JAX, "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
                                                         "XLA_PYTHON_CLIENT_MEM_FRACTION": ".02"}, 80),
    "jax-platform": ("JAX", "with_jax", "training", {**QUIET_JAX, "XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, 80),
    "jax-async": ("JAX", "with_jax", "training", {**QUIET_JAX, "XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}, 80),
    "cupy": ("CuPy", "with_cupy", "arrays", {}, 60),
    "cupy-async": ("CuPy", "with_cupy", "async_pool", {}, 60),
    "cupy-managed": ("CuPy", "with_cupy", "managed", {}, 60),
    "cupy-kernels": ("CuPy", "with_cupy", "kernels", {}, 60),
    "triton": ("Triton", "with_triton", "kernels", {}, 80),
    "numba": ("numba", "with_numba", "kernels", {}, 60),
    "numba-memory": ("numba", "with_numba", "memory", {}, 60),
    "onnxruntime": ("ONNX Runtime", "with_onnxruntime", "inference", {}, 60),
    "transformers-greedy": ("transformers", "with_transformers", "greedy", {}, 80),
    "transformers-sampled": ("transformers", "with_transformers", "sampled", {}, 80),
    "transformers-beams": ("transformers", "with_transformers", "beams", {}, 80),
    "transformers-static": ("transformers", "with_transformers", "static_cache", {}, 80),
}


def chosen():
    """Returns the chosen cases. FRAMEWORKS=PyTorch,jax-async names frameworks or cases; without it, all are chosen."""
    wanted = [w.lower() for w in os.environ.get("FRAMEWORKS", "").split(",") if w]
    return {n: c for n, c in CASES.items() if not wanted or n in wanted or c[0].lower() in wanted}


class Run:
    """One process of a case, and its outcome."""

    def __init__(self, part, name, how, torture=None, **more):
        _, script, case, env, seconds = CASES[name]
        self.name = f"{name}-{how}"
        self.trace = os.path.join(part.root, self.name + ".trace")
        cache = os.path.join(part.root, "cache")
        env = {**env, "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, name), "TRITON_CACHE_DIR": os.path.join(cache, name, "t"),
               "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "2", "SUBLET_TRACE": self.trace, **more}
        if torture:
            env["SUBLET_TORTURE"] = torture
        argv = [sys.executable, os.path.join(suite.HERE, "workloads", script + ".py"), case]
        self.process = part.start(argv, self.name, how != "plain" and how != "again", **env)
        self.deadline = min(part.deadline, time.monotonic() + seconds)
        self.error = None

    def finish(self):
        try:
            self.process.wait(self.deadline)
        except Failure as e:
            self.error = str(e)[-700:]
            self.process.kill()
        self.results = {e["name"]: e for e in self.process.of("result")}
        self.seconds = next((e["seconds"] for e in self.process.of("end")), None)
        if self.seconds is None and not self.error and not self.process.of("missing"):
            self.error = "it said nothing of its end"
        return self

    def torture(self):
        """Returns how often memory was evicted, and how many bytes."""
        found = []
        if os.path.exists(self.trace):
            with open(self.trace, encoding="utf-8") as f:
                for line in f:
                    try:
                        found.append(json.loads(line))
                    except json.JSONDecodeError:
                        continue
        times = [e["bytes"] for e in found if e["event"] == "torture"]
        return {"times": len(times), "gib": round(sum(times) / suite.GIB, 2), "frozen": sum(e["event"] == "frozen" for e in found),
                "drains_given_up": sum(e["event"] == "drain_failed" for e in found)}


def apart(one, other):
    """Returns the largest relative difference of any value; 0 if all bits are equal."""
    if set(one) != set(other):
        return float("inf")
    worst = 0.0
    for name, r in one.items():
        a, b = r["values"], other[name]["values"]
        if r["hash"] == other[name]["hash"]:
            continue
        if len(a) != len(b):
            return float("inf")
        found = [abs(x - y) / (abs(x) + abs(y) + 1e-9) for x, y in zip(a, b)]
        if any(map(math.isnan, found)):  # max() would ignore a NaN
            return float("inf")
        worst = max([worst, 1e-12] + found)
    return worst


def verdict(difference, usual, error):
    """Returns 'equal', 'close' (if plain runs are not equal either), or a description of the fault. usual: the
    difference of two plain runs, infinite if there are not two."""
    if error:
        return "fails: " + error
    if difference == 0:
        return "equal"
    if usual == 0:
        return f"differs by up to {difference:.1e}, where two plain runs are equal"
    if not math.isfinite(usual):
        return f"differs by up to {difference:.1e}, and there are no two plain runs to compare"
    most = max(CLOSE_FACTOR * usual, CLOSE)
    return "close" if difference <= most else f"differs by up to {difference:.1e}, two plain runs by {usual:.1e}"


def finite(difference):
    """Returns the difference, or None if it is no number, because results are missing or have another shape."""
    return difference if math.isfinite(difference) else None


def one(part, name, result, torture, **env):
    plain = Run(part, name, "plain").finish()
    r = result[name] = {"framework": CASES[name][0], "case": CASES[name][2], "environment": CASES[name][3]}
    missing = plain.process.of("missing")
    if plain.error or missing:
        r["plain"] = NOT_HERE + missing[0]["why"] if missing else "fails: " + plain.error
        return
    others = [Run(part, name, "again"), Run(part, name, "sublet", **env), Run(part, name, "torture", f"{len(name)},{torture}", **env)]
    again, under, torture = [o.finish() for o in others]
    usual = float("inf") if again.error else apart(plain.results, again.results)
    r["plain"] = ("fails the second time: " + again.error if again.error else "equal" if usual == 0
                  else f"within {usual:.1e}" if math.isfinite(usual) else "cannot be compared")
    r["apart"] = {"plain": finite(usual)}
    for kind, run in (("sublet", under), ("torture", torture)):
        difference = apart(plain.results, run.results)
        r[kind] = verdict(difference, usual, run.error)
        r["apart"][kind] = None if run.error else finite(difference)
    r["seconds"] = {"plain": again.seconds, "sublet": under.seconds, "torture": torture.seconds}
    r.update(torture.torture())
    if r["torture"] in ("equal", "close") and not r["times"]:
        r["torture"] = "never tortured: nothing of it was ours to move"


def versions():
    found = {}
    for name in ("torch", "jax", "cupy-cuda13x", "triton", "numba-cuda", "onnxruntime", "transformers"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def frameworks(part, result, torture=TORTURE, **env):
    """PyTorch, JAX, CuPy, Triton, numba, ONNX Runtime and transformers, plain against torture."""
    part.daemon(quantum="1s", unevictable_share="25%")
    result["versions"] = versions()
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        list(pool.map(lambda n: one(part, n, result, torture, **env), sorted(chosen(), key=lambda n: -CASES[n][4])))

