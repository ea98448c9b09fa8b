#!/usr/bin/env python3
"""Hostile: all habits of tests/system/habits.py against the programs of a cluster, in random order, several at a time, and
with sizes and splits that are drawn. Each program has a bystander, which asks all the time and must be answered rightly.

    python3 tests/hostile/hostile.py [SECONDS [SEED]]

Prints figures for each program at the end. Exit status: 0 nothing found, 1 something found. SUBLET_BUILD names the build.
Each program is attacked from a process of its own, with random choices of its own."""

import collections
import contextlib
import faulthandler
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "system"))

import habits  # noqa: E402
import hostile_node  # noqa: E402
import hostile_plugin  # noqa: E402
import hostile_servers  # noqa: E402
import hostile_slurm  # noqa: E402
import kubelet  # noqa: E402
from metrics import descriptors  # noqa: E402
from world import SANITIZER, World  # noqa: E402

PAUSE_S = 0.03  # of a bystander between two requests
PROBLEMS_MAX = 5  # of one program; then it is left alone
LOOK_S = 10.5  # the plugin looks at the processes each ten seconds


class Gate:
    """Many may pass at once, or one alone."""

    def __init__(self):
        self.changed, self.inside, self.alone = threading.Condition(), 0, False

    @contextlib.contextmanager
    def shared(self):
        with self.changed:
            self.changed.wait_for(lambda: not self.alone)
            self.inside += 1
        try:
            yield
        finally:
            with self.changed:
                self.inside -= 1
                self.changed.notify_all()

    @contextlib.contextmanager
    def exclusive(self):
        with self.changed:
            self.changed.wait_for(lambda: not self.alone)
            self.alone = True
            self.changed.wait_for(lambda: self.inside == 0)
        try:
            yield
        finally:
            with self.changed:
                self.alone = False
                self.changed.notify_all()


class Attack:
    """A campaign against one program. most_kib: what it may use of memory."""

    def __init__(self, name, target, seconds, seed, workers, most_kib=None):
        self.name, self.target, self.seed, self.workers, self.most_kib = name, target, f"{name} {seed}", workers, most_kib
        self.end = time.monotonic() + seconds
        self.inputs, self.times, self.problems = collections.Counter(), [], []
        self.memory_kib = self.descriptors = 0
        self.gate, self.state, self.client = Gate(), threading.Lock(), threading.Lock()
        self.rows = [(name, kinds, f) for name, kinds, f in habits.HABITS if kinds <= target.kinds]

    def problem(self, what, error):
        self.problems.append(f"{what}: {error!r}"[:2000])
        print(f"{self.name}: {self.problems[-1]}", flush=True)
        if not isinstance(error, (AssertionError, OSError)):
            traceback.print_exception(error)

    def goes_on(self):
        return time.monotonic() < self.end and len(self.problems) < PROBLEMS_MAX

    @contextlib.contextmanager
    def turn(self, kinds):
        """What changes the whole node waits for others that do; what takes the socket away, for all."""
        with contextlib.ExitStack() as stack:
            if kinds & {"api", "daemon", "folder"}:
                stack.enter_context(self.state)
            if "client" in kinds:
                stack.enter_context(self.client)
            stack.enter_context(self.gate.exclusive() if "folder" in kinds else self.gate.shared())
            yield

    def attack(self, number):
        rng = random.Random(f"{self.seed} {number}")
        habits.vary(rng)
        target = self.target
        if hasattr(target, "attacker"):  # each from an address of its own: servers bound what one address may hold
            target = type(target)(target.port, target.kinds, target.path, target.ask, target.process, target.context, target.good,
                                  f"127.0.0.{number + 2}")
        while self.goes_on():
            name, kinds, f = rng.choice(self.rows)
            with self.turn(kinds):
                try:
                    with contextlib.closing(f(target)) as habit:
                        next(habit)
                        time.sleep(rng.random() ** 4)  # the harm lasts, seldom for long
                        next(habit, None)
                    if kinds & {"api", "daemon", "folder"}:
                        target.settle()
                except OSError as e:
                    if "http" not in kinds:
                        self.problem(name, e)
                    # else the server has had enough of this address: that is its right
                except Exception as e:  # pylint: disable=broad-except
                    self.problem(name, e)
            self.inputs[name] += 1

    def add_processes(self):
        rng = random.Random(f"{self.seed} processes")
        habits.vary(rng)
        node = self.target.node
        while self.goes_on():
            number = 1000
            for name, f in rng.sample(hostile_node.PROCESSES, 4):
                try:
                    f(node, number)
                except FileExistsError:
                    pass
                self.inputs[name] += 1
                number += 1000
            time.sleep(min(LOOK_S, max(self.end - time.monotonic(), 0)))
            shutil.rmtree(node.world.path("proc"), ignore_errors=True)
            os.makedirs(node.world.path("proc"), exist_ok=True)

    def ask(self):
        while self.goes_on():
            with self.gate.shared():
                began = time.monotonic()
                try:
                    self.target.ask()
                    self.times.append(time.monotonic() - began)
                except Exception as e:  # pylint: disable=broad-except
                    self.problem(f"the bystander, after {time.monotonic() - began:.1f} s", e)
            time.sleep(PAUSE_S)

    def look(self):
        """Notes what the program uses. A target without a process notes that itself."""
        while self.goes_on():
            if self.target.process:
                if not self.target.is_alive():
                    self.problem(self.name, AssertionError(f"it ended with {self.target.process.returncode}"))
                    return
                pid = self.target.process.pid
                with open(f"/proc/{pid}/status", encoding="ascii") as f:
                    self.memory_kib = max([self.memory_kib, *(int(line.split()[1]) for line in f if line.startswith("VmHWM"))])
                self.descriptors = max(self.descriptors, descriptors(pid))
            time.sleep(0.1)

    def run(self):
        jobs = [self.ask, self.look, *([self.add_processes] if hasattr(self.target, "node") else [])]
        threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        threads += [threading.Thread(target=self.attack, args=(n,), daemon=True) for n in range(self.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(self.end - time.monotonic(), 0) + 120)
            if thread.is_alive():
                faulthandler.dump_traceback(all_threads=True)
                self.problem(self.name, AssertionError("it hangs"))
                break
        if not self.target.process:
            self.memory_kib, self.descriptors = self.target.memory_kib, self.target.descriptors
        if self.most_kib and not SANITIZER and self.memory_kib > self.most_kib:
            self.problem(self.name, AssertionError(f"{self.memory_kib} KiB of memory are more than {self.most_kib}"))

    def figures(self):
        left = sum(name not in self.inputs for name, _, _ in self.rows)
        return {"program": self.name, "inputs": sum(self.inputs.values()), "habits": len(self.inputs), "left_out": left,
                "requests": len(self.times), "median_ms": round(1000 * statistics.median(self.times or [0]), 1),
                "greatest_ms": round(1000 * max(self.times, default=0), 1), "memory_kib": self.memory_kib,
                "descriptors": self.descriptors, "problems": self.problems}


# ---- the programs ----


@contextlib.contextmanager
def a_world():
    world = World()
    try:
        yield world
    finally:
        world.close()


@contextlib.contextmanager
def webhook():
    with tempfile.TemporaryDirectory() as folder, hostile_servers.webhook(pathlib.Path(folder)) as (_, target):
        yield target


@contextlib.contextmanager
def extender():
    with tempfile.TemporaryDirectory() as folder, hostile_servers.extender(pathlib.Path(folder)) as (_, target):
        yield target


@contextlib.contextmanager
def metrics():
    with a_world() as world:
        yield hostile_servers.metrics(world)


@contextlib.contextmanager
def plugin():
    with a_world() as world, contextlib.closing(hostile_plugin.Target(world)) as target:
        yield target


@contextlib.contextmanager
def slurm():
    with a_world() as world:
        world.start_daemon()
        yield hostile_slurm.Target(world)


# The program, how it is started, how many attack it at a time, and the memory that the manifests give it.
PROGRAMS = [("webhook", webhook, 3, 64 << 10), ("extender", extender, 3, 512 << 10), ("metrics", metrics, 2, None),
            ("plugin", plugin, 4, 64 << 10), ("slurm", slurm, 2, None)]


def attack(row, seconds, seed, results):
    """In a process of its own."""
    name, start, workers, most_kib = row
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    figures = {"program": name, "inputs": 0, "problems": ["it did not start"]}
    try:
        with start() as target:
            target.ask()
            one = Attack(name, target, seconds, seed, workers, most_kib)
            one.run()
            figures = one.figures()
            target.ask()
    except BaseException as e:  # pylint: disable=broad-except
        traceback.print_exc()
        figures["problems"].append(repr(e)[:2000])
    results.put(figures)


def main():
    seconds, seed = ([int(a) for a in sys.argv[1:3]] + [600, int.from_bytes(os.urandom(3), "big")][len(sys.argv[1:3]):])
    programs = [row for row in PROGRAMS if row[0] != "plugin" or not kubelet.MISSING]
    if kubelet.MISSING:
        print(f"hostile: without the device plugin: {kubelet.MISSING}")
    print(f"hostile: {seconds} s, seed {seed}, {len(habits.HABITS) + len(hostile_node.PROCESSES)} habits", flush=True)
    results = multiprocessing.Queue()
    running = [multiprocessing.Process(target=attack, args=(row, seconds, seed, results)) for row in programs]
    for one in running:
        one.start()
    found = sorted((results.get(timeout=seconds + 600) for _ in running), key=lambda figures: figures["program"])
    for one in running:
        one.join()
    print(f"{'':10}{'inputs':>8}{'habits':>8}{'requests':>10}{'median':>10}{'greatest':>11}{'memory':>10}{'descriptors':>13}{'problems':>10}")
    for f in found:
        print(f"{f['program']:10}{f['inputs']:8}" + (f"{f['habits']:8}{f['requests']:10}{f['median_ms']:7.1f} ms{f['greatest_ms']:8.0f} ms"
                                                     f"{f['memory_kib'] / 1024:6.0f} MiB{f['descriptors']:13}" if f["inputs"] else "") +
              f"{len(f['problems']):10}")
    print(json.dumps(found))
    return 1 if any(f["problems"] for f in found) else 0


if __name__ == "__main__":
    sys.exit(main())
