"""The parts about freezing programs with work in flight, on a real GPU, and their page."""

import importlib.util
import mmap
import os
import random
import select
import socket
import time

import frameworks
import pages
import parts
import suite
import torture
from drains import spread
from suite import GIB, Failure

# wireclient is loaded by its path, because the system tests' folder has modules of the same names as this folder.
_spec = importlib.util.spec_from_file_location("wireclient", os.path.join(suite.ROOT, "tests", "system", "wireclient.py"))
wire = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(wire)
BY_NUMBER = {number: (name, layout, fields) for name, (number, _, layout, fields, _) in wire.MESSAGES.items()}
TIMES, TIMES_ALONE = 1000, 300  # repetitions beside another process's kernels, and without them
FRAMEWORKS_TORTURE = "calls=0,every=2ms"
STANDING_S = 10
HANDOFF_GIB = 32
HELD_GIB = 102  # memory of a third program, which leaves room for one of the two


class Daemon:
    """The daemon of one client: it grants all requests, and the client freezes at each REVOKE."""

    def __init__(self, part):
        os.mkdir(part.dir, 0o700)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(os.path.join(part.dir, "client.sock"))
        self.socket.listen(1)
        self.socket.settimeout(60)
        self.total = self.lease = self.sequence = 0
        self.held = False
        self.limit = {"commit": 0, "backed": 0, "unevictable": 0}
        self.client = None
        self.frozen = {}

    def send(self, name, gpu=wire.NO_GPU, sequence=1, **fields):
        self.client.send(wire.encode(name, gpu, sequence, **fields))

    def say_limit(self):
        self.sequence += 1
        self.send("LIMIT", gpu=0, sequence=self.sequence, visible_bytes=self.total, **self.limit)

    def receive(self):
        packet = self.client.recv(4096)
        if not packet:
            raise Failure("the client has closed the connection")
        name, layout, fields = BY_NUMBER[int.from_bytes(packet[:2], "little")]
        _, _, sequence, *values = layout.unpack(packet)
        return {"type": name, "sequence": sequence, **{field: value for (_, field), value in zip(fields, values)}}

    def answer(self, m):
        if m["type"] == "HELLO":
            self.send("WELCOME", magic=wire.MAGIC, instance=1, protocol=1, version="test")
        elif m["type"] == "ATTACH":
            self.total = m["total_bytes"]
            self.limit = {"commit": m["allocated"], "backed": self.total, "unevictable": m["unevictable_requested"]}
            self.send("ATTACHED", gpu=0, visible_bytes=self.total, context_bytes=600 << 20, block_bytes=32 << 20, bound_ns=10**7)
            self.say_limit()
        elif m["type"] == "REQUEST":
            self.limit |= {what: max(m[what], self.limit[what]) for what in ("commit", "unevictable")}
            self.say_limit()
            if m["flags"] & 1 and not self.held:
                self.grant()
        elif m["type"] == "HOST":
            self.send("HOST_LIMIT", bytes=m["wanted"], most=1 << 40, of=m["sequence"])
        elif m["type"] == "FROZEN":
            self.frozen = {field: value for field, value in m.items() if not isinstance(value, bytes)}

    def grant(self):
        self.lease += 1
        self.held = True
        self.send("GRANT", lease=self.lease)

    def serve(self, seconds, until=lambda: False):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            if not self.client:
                self.client, _ = self.socket.accept()
            if select.select([self.client], [], [], 0.005)[0]:
                self.answer(self.receive())

    def serve_to_the_end(self, p, seconds):
        try:
            self.serve(seconds, lambda: p.process.poll() is not None)
        except (Failure, ConnectionError):
            if p.process.wait(timeout=30) != 0:
                raise


def now():
    return time.perf_counter_ns()


def stop_once(d, counter):
    """Sends REVOKE, watches the counter and waits for DRAINED. Returns (ms until the last step, ms until DRAINED)."""
    poll, seen, steps = select.poll(), counter.value, 0
    poll.register(d.client, select.POLLIN)
    began = last = now()
    d.send("REVOKE", lease=d.lease, patience_ns=2 * 10**9)
    while True:
        value = counter.value
        if value != seen:
            seen, last = value, now()
        steps += 1
        if steps % 16 == 0 and poll.poll(0):
            m = d.receive()
            if m["type"] == "DRAINED":
                d.held = False
                return (last - began) / 1e6, (now() - began) / 1e6
            if m["type"] == "DRAIN_FAILED":
                raise Failure("the drain has failed")
            if m["type"] != "REQUEST":
                d.answer(m)


def go_on_once(d, counter, most_s=5):
    """Sends GRANT. Returns the ms until the counter moves."""
    seen, began = counter.value, now()
    d.grant()
    while counter.value == seen:
        if now() - began > most_s * 1e9:
            raise Failure("it does not go on")
    return (now() - began) / 1e6


def stands(counter, ns):
    seen, end = counter.value, now() + ns
    while now() < end:
        if counter.value != seen:
            return False
    return True


def latency(part, result):
    """Measures the time from REVOKE to frozen and from GRANT to progress, many times, while a kernel fills the GPU,
    copies run, and another process computes."""
    path, d = suite.build_cuda(part, "standing"), Daemon(part)
    other = part.program("burst", "--bytes", "64MiB", "--ms", 2, "--count", 50, "--seed", 2, "--until",
                         os.path.join(part.root, "end"), name="other", shared=False)
    file = f"/dev/shm/standing-{os.getpid()}"  # the driver cannot register pages of a file on disk
    argv = [path, "--gib", 2, "--copies", 100, "--counter", file]
    plain = part.start([*map(str, argv), "--seconds", str(STANDING_S), "--rounds", "1"], "standing-plain", False)
    steps = plain.expect("ready", part.deadline)
    plain.wait(part.deadline)
    p = part.start([*map(str, argv), "--steps", str(steps["steps"]), "--until", os.path.join(part.root, "end-standing")],
                   "standing", True, SUBLET_FREEZE="move")
    d.serve(60, lambda: any(e["event"] == "ready" for e in p.events))
    d.serve(2)  # long enough to make the second context
    with open(file, "rb") as f:
        m = mmap.mmap(f.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ)
    os.unlink(file)
    view = memoryview(m).cast("I")

    class Counter:
        @property
        def value(self):
            return view[0]

    counter, rng = Counter(), random.Random(1)

    def series(times):
        stop, drained, go = [], [], []
        ran_on = 0
        while len(stop) < times and part.left() > 30:
            d.serve(rng.random() * 0.006)
            if stands(counter, 2 * 10**6):  # the program is between two kernels, so a freeze would show nothing
                d.serve(0.01)
                continue
            one = stop_once(d, counter)
            ran_on += not stands(counter, 300 * 10**3)
            stop.append(one[0])
            drained.append(one[1])
            go.append(go_on_once(d, counter))
        return {"n": len(stop), "revoke_to_last_step_ms": spread(stop), "revoke_to_drained_ms": spread(drained),
                "grant_to_progress_ms": spread(go), "ran_on": ran_on}

    result.update(steps=steps, beside=series(TIMES))
    suite.touch(os.path.join(part.root, "end"))
    other.wait(part.deadline)
    result.update(without=series(TIMES_ALONE), frozen=d.frozen)
    suite.touch(os.path.join(part.root, "end-standing"))
    d.serve_to_the_end(p, max(part.left() - 5, 1))
    sums = {e["sum"] for e in (*plain.events, *p.events) if e["event"] == "round"}
    result.update(rounds=len(p.of("round")), sums=len(sums), wrong=sum(e["wrong"] for e in p.of("round")))
    if len(sums) != 1 or result["wrong"] or p.process.poll() != 0:
        raise Failure(f"not as without sublet: {p.tail()}")


def handoff(part, result):
    """Two programs in kernels that fill the GPU take turns, and do not fit together."""
    path = suite.build_cuda(part, "standing")
    part.daemon(quantum="2s", unevictable_share="25%")
    end = os.path.join(part.root, "end")
    filler = part.program("hold", "--bytes", f"{HELD_GIB}GiB", "--block", "1GiB", name="filler", shared=False)
    filler.expect("filled", part.deadline)
    plain = part.start([path, "--gib", "1", "--seconds", "3"], "standing-plain", False)
    steps = plain.expect("ready", part.deadline)["steps"]
    plain.wait(part.deadline)
    pair = [part.start([path, "--gib", str(HANDOFF_GIB), "--steps", str(steps * STANDING_S // 3), "--until", end], f"pair-{i}", True,
                       SUBLET_FREEZE="move", SUBLET_UNCHANGED="never") for i in (1, 2)]
    until = part.left() - part.left() * 0.6
    parts.wait_until(part, lambda: part.left() < until, "end of the time")
    events = part.traced()
    suite.touch(end)
    for p in pair:
        p.wait(part.deadline)
    filler.say("exit")
    filler.wait(part.deadline)
    result["bus"] = parts.bus(part)
    out, back, begun, frozen = [], [], [], []
    for p in pair:
        own = [e for e in events if e["pid"] == p.pid]
        moved = min(e["t_ns"] for e in own if e["event"] == "evict_begin")  # before that no hand-off moved memory
        for kind, to in (("evict", out), ("restore", back)):
            to += [b / 1e9 / ((e - s) / 1e9) for s, e, b in suite.episodes(own, p.pid, kind) if b > HANDOFF_GIB * GIB // 2 and e > moved]
        drains = [e["t_ns"] for e in own if e["event"] == "drain_begin" and e["t_ns"] > moved]  # the kernel runs by then
        for t in drains:
            first = next((e["t_ns"] for e in own if e["event"] == "evict_begin" and e["t_ns"] > t), None)
            if first:
                begun.append((first - t) / 1e6)
        frozen += [e["bytes"] / 1e6 for e in own if e["event"] == "frozen"]
    wrong = sum(e["wrong"] for p in pair for e in p.of("round"))
    result.update(out_gbs=spread(out) if out else None, in_gbs=spread(back) if back else None, begun_ms=spread(begun) if begun else None,
                  freeze_ms=spread(frozen) if frozen else None, rounds=sum(len(p.of("round")) for p in pair), wrong=wrong,
                  drain_failed=sum(e["event"] == "drain_failed" for e in events))
    if wrong or not out:
        raise Failure(f"{wrong} wrong words, {len(out)} hand-offs")


def programs(part, result):
    """Driver-API programs by every way into the driver, plain against torture by freezing."""
    torture.driver_programs(part, result, SUBLET_FREEZE="move")


def workloads(part, result):
    """Frameworks, plain against torture by freezing at short intervals."""
    frameworks.frameworks(part, result, FRAMEWORKS_TORTURE, SUBLET_FREEZE="move")


def alone(part, result):
    """Launches of an undisturbed program, by mode, against the plain driver."""
    part.daemon()
    times = parts.launches(part, {"plain": None, **{mode: {"SUBLET_FREEZE": mode} for mode in ("off", "park", "move")}})
    plain = times.pop("plain")
    result.update({mode: suite.paired(plain, found) for mode, found in times.items()})


PARTS = {
    "freezes-alone": (alone, 110),
    "freezes-latency": (latency, 150),
    "freezes-handoff": (handoff, 80),
    "freezes-programs": (programs, 300),
    "freezes-workloads": (workloads, 400),
}


def shown(s, unit="ms"):
    return f"median {s['p50']} {unit}, p99 {s['p99']} {unit}, most {s['max']} {unit}"


ABOUT = ("A [frozen](../freezing.md) program stops in the middle of its kernels, so that its memory can leave at once. This page says how fast a"
         " program freezes and goes on, how fast its memory moves, and whether results stay right.")


def figures(found):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    out = []
    for mode, r in found.get("freezes-alone", {}).items():
        if isinstance(r, dict) and "difference_percent" in r:
            low, high = r["interval_percent"]
            out.append((f"alone, `SUBLET_FREEZE={mode}`: a launch against the plain driver's {r['plain_median']:.0f} ns",
                        f"{r['difference_percent']:+} % (95 %: {low:+} to {high:+})", "within 0.5 %", pages.within((low, high), 0.5)))
    r = found.get("freezes-latency", {})
    for key, where in (("beside", "beside another process's kernels"), ("without", "alone on the GPU")):
        if key not in r:
            continue
        series = r[key]
        s = series["revoke_to_last_step_ms"]
        out.append((f"{where}, {series['n']} times: `REVOKE` until the kernel's last step", shown(s), "median 2 ms, p99 3 ms",
                    s["p50"] <= 2 and s["p99"] <= 3))
        out.append(("… until the process reports that it is frozen, after a test of its second context",
                    shown(series["revoke_to_drained_ms"]), "", None))
        s = series["grant_to_progress_ms"]
        # Beside other processes the kernel waits for the GPU's own time slices of 2 ms.
        out.append(("… `GRANT` until the kernel's next step", shown(s), *(("p99 1 ms", s["p99"] <= 1) if key == "without" else ("", None))))
        out.append(("… the kernel went on after that report", f"{series['ran_on']} times", "never", series["ran_on"] == 0))
    r = found.get("freezes-handoff", {})
    if r.get("out_gbs") and r.get("in_gbs"):
        slower = min(r["out_gbs"]["p50"], r["in_gbs"]["p50"])
        out.append((f"a hand-off of {HANDOFF_GIB} GiB between two kernels that fill the GPU, {r['out_gbs']['n']} out, {r['in_gbs']['n']} in",
                    f"out {r['out_gbs']['p50']} GB/s, in {r['in_gbs']['p50']} GB/s (medians)", "48 GB/s", slower >= 48))
        bus = r.get("bus", {}).get("copies")
        if bus:
            out.append(("… copies of the same size both ways at once without sublet, in the same run", f"{bus['both_gb_s']} GB/s each way", "",
                        None))
        given = r.get("bus", {}).get("given back")
        if given:
            out.append(("… the same, but each piece goes back to the driver, which clears it (in every second hand-off)",
                        f"{given['both_gb_s']} GB/s each way", "", None))
        out.append(("… the first byte after `REVOKE`", shown(r["begun_ms"]), "5 ms", r["begun_ms"]["p99"] <= 5))
        out.append(("… wrong words", f"{r['wrong']} in {r['rounds']} rounds", "0", r["wrong"] == 0))
    rows = {n: r for n, r in found.get("freezes-programs", {}).items() if isinstance(r, dict) and "plain" in r}
    runs = [x for r in rows.values() for k, x in r.items() if isinstance(x, dict)]
    if runs:
        good = sum(x["result"] in torture.GOOD.values() for x in runs)
        out.append(("driver-API programs under torture by freezing: equal, or sums right", f"{good} of {len(runs)}, "
                    f"{sum(x['times'] for x in runs)} times frozen with memory out", "all", good == len(runs)))
    said = torture.workloads_of({"frameworks": found.get("freezes-workloads", {})})
    if said:
        rows = [found["freezes-workloads"][n] for n in said]
        frozen = sorted(r.get("frozen", 0) for r in rows)
        good = sum(not torture.workload_wrongs(s) for s in said.values())
        out.append(("frameworks under torture by freezing: equal to the plain driver's, or close",
                    f"{good} of {len(said)}, {sum(frozen):,} times frozen with work in flight ({frozen[0]} to {frozen[-1]} a workload),"
                    f" {sum(r.get('gib', 0) for r in rows):.0f} GiB moved out", "all", good == len(said)))
    return out


def page(results):
    rows = {n: r for n, r in results["parts"].get("freezes-programs", {}).items() if isinstance(r, dict) and "plain" in r}
    bad = [f"- `{n}` ({k}): {x['result']}." for n, r in rows.items() for k, x in r.items()
           if isinstance(x, dict) and x["result"] not in torture.GOOD.values()]
    return [
        *pages.table(figures(results["parts"])),
        *(["## What is not equal, or did not end", "", *bad, "", f"A run may take {torture.EACH_S} s.", ""] if bad else []),
        *pages.unfinished(results["parts"]),
        f"`./dev gpu --only {','.join(PARTS)}` runs these parts (`tests/gpu/freezes.py`).", "",
        "The frozen kernel (`tests/gpu/standing.cu`) has a block on each processor. Each thread keeps 200 values in registers, and each"
        " block uses all the shared memory that it can have. Copies of 1 GiB and another process's kernels run beside it.",
        "",
    ]
