"""The part that compares the set-up of an earlier scheduler with sublet's default and the plain driver, and its page.
That scheduler, which sublet descends from, used managed memory, ran one program at a time with a quantum in seconds,
and changed its mode while programs ran. The two programs together stay well within the card."""

import os
import subprocess
import time

import pages
import parts
import suite
from suite import Failure

EACH_GIB = 24   # memory of each program, so that the card always has more free memory than is managed
SECONDS = 10    # length of each measurement
QUANTUM = "1s"
SETTLE_S = 2    # pause after a change of mode
# The measured rows: name, environment of the programs (None: without sublet), and the orders before the measurement.
ROWS = {
    "plain": (None, ()),
    "default": ({}, ()),
    "managed, exclusive": ({"SUBLET_MEMORY": "managed"}, (("mode", "exclusive"), ("quantum", QUANTUM))),
    "managed, auto": ({"SUBLET_MEMORY": "managed"}, (("mode", "auto"),)),  # the programs of the row before go on
}


def order(part, *words):
    """Gives an order by the command line, as a person does."""
    done = subprocess.run([os.path.join(part.build, "sublet"), "set", *words], env={**os.environ, "SUBLET_DIR": part.dir},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=max(part.left(), 5), check=False)
    if done.returncode != 0:
        raise Failure(f"sublet set {' '.join(words)}: {done.stderr.strip()}")


def figures_now(part, shared):
    gpu = part.gpu() if shared else {"clients": [], "handoffs": 0}
    return {"handoffs": gpu["handoffs"], "moved": sum(c["moved_out"] + c["moved_in"] for c in gpu["clients"])}


def start(part, label, env):
    end = os.path.join(part.root, "end-" + label)
    pair = [part.program("fill", "--bytes", parts.size(EACH_GIB), "--block", parts.size(1), "--seed", seed, "--until", end,
                         name=f"{label}-{seed}", shared=env is not None, **(env or {})) for seed in (1, 2)]
    for p in pair:
        p.expect("filled", part.deadline)
    return pair, end


def measure(part, pair, shared):
    rounds, before, began = [len(p.of("round")) for p in pair], figures_now(part, shared), time.monotonic()
    while time.monotonic() - began < SECONDS:
        gone = [p.tail() for p in pair if p.process.poll() is not None]
        if gone:
            raise Failure(f"ended early: {gone[0]}")
        time.sleep(0.05)
    took, now = time.monotonic() - began, figures_now(part, shared)
    rounds = [len(p.of("round")) - n for p, n in zip(pair, rounds)]
    return {"seconds_a_round": [round(took / n, 4) if n else None for n in rounds], "rounds": rounds,
            "handoffs": now["handoffs"] - before["handoffs"], "moved_gib": round((now["moved"] - before["moved"]) / parts.GIB, 2)}


def finish(part, pair, end):
    """Ends the programs. Returns the numbers of rounds whose sums were recomputed."""
    suite.touch(end)
    for p in pair:
        p.wait(part.deadline)
    return [part.check_sums(p, max(1, len(p.of("round")) // 2)) for p in pair]


def managed(part, result):
    """Two programs of 24 GiB: plain, in the default mode, and with managed memory in turns that are switched off as
    they run."""
    running, pair, end = None, (), None
    for name, (env, orders) in ROWS.items():
        label = name.split(",")[0]
        if label != running:
            if running:
                result[before]["recomputed"] = finish(part, pair, end)
            if env is not None and not os.path.exists(part.dir):
                part.daemon()
            pair, end = start(part, label, env)
            running = label
        for words in orders:
            order(part, *words)
        time.sleep(SETTLE_S)
        result[name] = measure(part, pair, env is not None)
        if env is not None:
            result[name]["mode"] = part.status()["mode"]
        before = name
    result[before]["recomputed"] = finish(part, pair, end)
    parts.wait_until(part, lambda: not part.gpu()["clients"], "empty ledger")
    if not result["managed, exclusive"]["handoffs"]:
        raise Failure("no turns in exclusive mode")
    if result["managed, auto"]["handoffs"] > 1:  # a single hand-off may have begun before the change of mode
        raise Failure("turns, though the mode was auto and both fit")


PARTS = {"managed": (managed, 150)}


ABOUT = ("The driver moves managed memory itself. Sublet can only give such programs turns (`--memory managed`). Turns can be switched off"
         " while programs run. This page says how long a round then takes.")


def figures(found):
    out = []
    for name in ROWS:
        r = found.get("managed", {}).get(name)
        if r:
            each = " and ".join("none" if s is None else f"{s:.3f} s" for s in r["seconds_a_round"])
            turns = "" if name == "plain" else f"; {r['handoffs']} hand-offs, {r['moved_gib']} GiB moved"
            checked = f"; sums of {' and '.join(map(str, r['recomputed']))} rounds recomputed" if "recomputed" in r else ""
            out.append((f"two programs of {EACH_GIB} GiB, {name}: a round of each", each + turns + checked, "", None))
    return out


def page(results):
    return [
        *pages.table(figures(results["parts"])),
        *pages.unfinished(results["parts"]),
        f"`./dev gpu --only {','.join(PARTS)}` runs this part (`tests/gpu/managed.py`). `programs/fill` runs twice at the same time. Each"
        f" program checks and rewrites all of its memory every round. Each row took {SECONDS} s.", "",
        "- *default*: `--memory swap`, mode *auto*.",
        f"- *managed*: `--memory managed`, first with `sublet set mode exclusive` and `sublet set quantum {QUANTUM}`. Then the same"
        " programs go on with `sublet set mode auto`.", "",
        "Bytes are those of `sublet status`, which does not count managed memory that the driver moves. Together the programs"
        " take less than half of the card, so nothing has to move.",
        "",
    ]
