#!/usr/bin/env python3
"""Soak: programs start at random, grow, shrink, rest and end. Some of them are frozen instead of drained, and some are
killed, stopped or paused for a while. On the simulated driver, calls that the library makes to move memory of half of
them fail now and then, in time with every code. The daemon is killed now and then, and its mode and quantum change. Each
program's memory is a function of address and round, and the program checks it before every change. At the end card and
ledger must be empty.

Runs on the simulated driver unless --gpu. Prints its progress, then the figures; --json FILE keeps the figures. Exit
status: 0 nothing found, 1 something found, 3 no end within the hard limit (--minutes and some more)."""

import argparse
import collections
import glob
import json
import os
import queue
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "gpu"))

import suite  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(HERE), "system"))

import driver_errors  # noqa: E402

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
OUT_OF_MEMORY, WRONG = 5, 1  # exit statuses of the test programs


def size_of(text):
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(KiB|MiB|GiB)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 96MiB")
    return int(float(found[1]) * UNITS[found[2]])


def range_of(text):
    low, dots, high = text.partition("..")
    unit = re.search(r"[KMG]iB$", high)
    if not dots or not unit:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range such as 8..96MiB")
    return size_of(low if low.endswith("iB") else low + unit[0]), size_of(high)


class Job:
    """One program, from its start until its exit status has been collected."""

    def __init__(self, process, kind, seconds):
        self.process, self.kind = process, kind
        self.ends = time.monotonic() + seconds
        self.heard, self.events = time.monotonic(), 0
        self.continue_at = None  # the moment at which a stopped program goes on
        self.resume_at = None  # the moment at which a paused program is resumed
        self.killed = False
        self.checked = 0

    def listen(self):
        """Notes the program's output since the last call."""
        new = self.process.events[self.events:]
        if new:
            self.events += len(new)
            self.heard = time.monotonic()
        return new


def threads_of(pid):
    """Describes each thread: its name, the call in which it waits, and its stack if there is a debugger."""
    found = []
    for task in sorted(glob.glob(f"/proc/{pid}/task/*")):
        try:
            with open(f"{task}/comm", encoding="ascii") as name, open(f"{task}/wchan", encoding="ascii") as wchan:
                found.append(f"{name.read().strip()}: {wchan.read()}")
        except OSError:
            continue
    return found + suite.run_text("gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12").splitlines()[-80:]


class Soak:
    def __init__(self, arguments, part):
        self.a, self.part = arguments, part
        self.random = random.Random(arguments.seed)
        self.errors = driver_errors.Errors(arguments.seed)
        self.jobs, self.problems = [], []
        self.count = collections.Counter()
        self.killed_while, self.actions_ms = collections.Counter(), []
        self.daemon = self.daemon_back_at = None
        self.instances = {}  # instance of the daemon -> hand-offs
        self.status = {"gpus": []}
        self.waits_since, self.longest_wait_s = {}, 0.0
        self.began = time.monotonic()
        self.state = "starting"

    # ---- the daemon ----

    def start_daemon(self):
        config = os.path.join(self.part.root, "subletd.conf")
        settings = {"quantum": "300ms", "quantum_max": "1s", "grace": "2s"}
        if self.a.host_memory:
            settings["host_memory"] = self.a.host_memory
        with open(config, "w", encoding="utf-8") as f:
            f.write("[daemon]\n" + "".join(f"{k} = {v}\n" for k, v in settings.items()))
        self.daemon = self.part.start([os.path.join(self.part.build, "subletd"), "--dir", self.part.dir, "--config",
                                       config], "subletd", False, SUBLET_LOG="warning")
        self.daemon_back_at = None

    def await_daemon(self):
        while not self.look():
            if self.daemon.process.poll() is not None or self.part.left() < 0:
                raise suite.Failure(f"subletd does not serve: {self.daemon.tail()}")
            time.sleep(0.02)

    def look(self):
        try:
            self.status = self.part.status()
        except (OSError, ValueError):
            return False
        self.instances[self.status["instance"]] = sum(g["handoffs"] for g in self.status["gpus"])
        for client in self.clients():
            for flag in client["flags"]:
                self.count[f"seen_{flag}"] += 1
        self.note_waits()
        return True

    def note_waits(self):
        """Notes how long each program that could run has waited for its turn. Two looks are half a second apart."""
        now, stopped = time.monotonic(), {j.process.pid for j in self.jobs
                                        if j.continue_at is not None or j.resume_at is not None or j.killed}
        waiting = {c["pid"] for c in self.clients() if c["state"] in ("waiting", "restoring")} - stopped
        self.waits_since = {pid: self.waits_since.get(pid, now) for pid in waiting}
        self.longest_wait_s = max([self.longest_wait_s, *(now - since for since in self.waits_since.values())])

    def clients(self):
        return [c for g in self.status["gpus"] for c in g["clients"]]

    def footprint(self):
        """Measures the daemon after it has answered twice on one connection: by then it has closed all earlier
        connections."""
        pid = self.daemon.pid
        with socket.socket(socket.AF_UNIX) as s, s.makefile("rb") as answers:
            s.settimeout(30)
            s.connect(os.path.join(self.part.dir, "control.sock"))
            for _ in range(2):
                s.sendall(b'{"order":"status"}\n')
                answers.readline()
            with open(f"/proc/{pid}/status", encoding="ascii") as f:
                rss = int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])
            return {"rss_kib": rss, "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}

    def set(self, name, value):
        done = subprocess.run([os.path.join(self.part.build, "sublet"), "set", "--daemon", self.part.dir, name, value],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False)
        self.count["settings"] += done.returncode == 0

    def order(self, what, pid):
        """Sends an order. Returns the answer, or None if no daemon answers."""
        try:
            with socket.socket(socket.AF_UNIX) as s, s.makefile("rb") as answers:
                s.settimeout(30)
                s.connect(os.path.join(self.part.dir, "control.sock"))
                s.sendall(json.dumps({"order": what, "pid": pid}).encode() + b"\n")
                return json.loads(answers.readline() or b"null")
        except (OSError, ValueError):
            return None

    # ---- programs ----

    def start_job(self):
        low, high = self.a.job
        seconds = self.random.uniform(1, self.a.job_seconds)
        seed = str(self.random.randrange(1 << 30))
        kind = "roam" if self.random.random() < 0.75 else self.random.choice(sorted(OTHERS))
        if kind == "roam":
            size = int(self.random.triangular(low, high))
            args = ["--bytes", size, "--block", max(size // self.random.choice((4, 8, 16)), 1 << 20), "--ms",
                    self.random.choice((50, 500, 2000))]
        else:
            args = OTHERS[kind](low)
        self.count["programs"] += 1
        name = f"{kind}-{self.count['programs']}"
        env = {"SUBLET_FREEZE": self.random.choice(("off", "park", "move", "move", "move"))}
        if not self.a.gpu and self.random.random() < 0.5:
            env["SIMCUDA_FAIL"] = self.errors.draw()
        if self.random.random() > 0.7:
            env["SUBLET_PRIORITY"] = str(self.random.choice((-1, 1)))
        process = self.part.program(kind, *args, "--seconds", f"{seconds:.1f}", "--seed", seed, name=name, **env)
        self.jobs.append(Job(process, kind, seconds))

    def running(self):
        return [j for j in self.jobs if not j.killed and j.continue_at is None and j.resume_at is None]

    def kill_job(self):
        """Kills a program of a random state, so that programs in rare states are killed, too."""
        self.look()
        states = {c["pid"]: c["state"] for c in self.clients()}
        by_state = {}
        for job in self.running():
            by_state.setdefault(states.get(job.process.pid, "not attached"), []).append(job)
        if not by_state:
            return
        state = self.random.choice(sorted(by_state))
        job = self.random.choice(by_state[state])
        self.killed_while[state] += 1
        job.killed = True
        os.kill(job.process.pid, signal.SIGKILL)
        self.count["programs_killed"] += 1

    def stop_job(self):
        if len(self.running()) < 2:
            return
        job = self.random.choice(self.running())
        os.kill(job.process.pid, signal.SIGSTOP)
        job.continue_at = time.monotonic() + self.random.uniform(0.1, 5)
        self.count["programs_stopped"] += 1

    def pause_job(self):
        if len(self.running()) < 2:
            return
        job = self.random.choice(self.running())
        answer = self.order("pause", job.process.pid)
        if answer and "error" not in answer:
            job.resume_at = time.monotonic() + self.random.uniform(0.1, 5)
            self.count["programs_paused"] += 1

    def resume_job(self, job):
        answer = self.order("resume", job.process.pid)
        if answer is not None:  # the answer is an error if the program has ended or the daemon does not know it yet
            job.resume_at = None if "error" not in answer else time.monotonic() + 0.2
            job.heard = time.monotonic()

    def kill_daemon(self):
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.forget(self.daemon)
        self.count["daemons_killed"] += 1
        self.daemon_back_at = time.monotonic() + self.random.uniform(0, 2)

    def forget(self, process):
        """Forgets a process, because its number may belong to another process from now on."""
        self.part.processes.remove(process)
        process.close()
        if process.log.endswith(f"{process.name}.log") and process is not self.daemon:
            os.unlink(process.log)

    def problem(self, text):
        self.problems.append(text)
        print(f"PROBLEM {text}", flush=True)

    def hear(self, job):
        for event in job.listen():
            if event["event"] in ("progress", "roamed"):
                job.checked = event["checked"]
                if event["worst_ms"]:
                    self.actions_ms.append(event["worst_ms"])
            if event["event"] == "roamed":
                self.count["growths_refused"] += event["refused"]

    def collect(self, job):
        status = job.process.process.poll()
        try:  # reads the program's last lines
            while job.process.fresh.get(timeout=10) is not None:
                pass
        except queue.Empty:
            self.problem(f"{job.process.name}: its output does not end")
        self.hear(job)
        self.count["bytes_checked"] += job.checked
        if job.killed and status == -signal.SIGKILL:
            pass
        elif status == 0:
            self.count["programs_ended_well"] += 1
        elif status == OUT_OF_MEMORY:
            self.count["programs_refused"] += 1
        else:
            words = re.search(r"(\d+) words wrong", job.process.tail())
            if status == WRONG:
                self.count["bytes_wrong"] += 8 * int(words[1]) if words else 1
            self.problem(f"{job.process.name} ended with {status}: {job.process.tail()}")
        self.jobs.remove(job)
        self.forget(job.process)

    def care(self):
        """Collects ended programs, wakes stopped ones, finds stuck ones, brings the daemon back."""
        now = time.monotonic()
        for job in list(self.jobs):
            self.hear(job)
            if job.process.process.poll() is not None:
                self.collect(job)
            elif job.continue_at is not None and now >= job.continue_at:
                os.kill(job.process.pid, signal.SIGCONT)
                job.continue_at, job.heard = None, now
            elif job.resume_at is not None and now >= job.resume_at and not job.killed:
                self.resume_job(job)
            elif not job.killed and job.resume_at is None and now - (job.heard if job.kind == "roam" else max(job.ends, job.heard)) > self.a.stall:
                self.count["stuck"] += 1
                self.look()
                self.problem(f"{job.process.name} (pid {job.process.pid}) is stuck for {self.a.stall} s: "
                             f"{job.process.tail()}; status {json.dumps(self.status)}; threads {threads_of(job.process.pid)}")
                job.killed = True
                os.kill(job.process.pid, signal.SIGKILL)
        if self.daemon_back_at is not None:
            if now >= self.daemon_back_at:
                self.start_daemon()
        elif self.daemon.process.poll() is not None:
            self.problem(f"subletd ended by itself: {self.daemon.tail()}")
            self.forget(self.daemon)
            self.daemon_back_at = now

    # ---- the course of the run ----

    def soak(self, seconds):
        def after(mean):
            return time.monotonic() + self.random.expovariate(1 / mean)

        def settings():
            self.set(*self.random.choice((("mode", "auto"), ("mode", "auto"), ("mode", "exclusive"), ("quantum", "auto"),
                                          ("quantum", "100ms"), ("quantum", "300ms"), ("quantum", "1s"))))

        def population():
            nonlocal wanted
            wanted = self.random.randint(2, max(2, self.a.programs))

        # Each event with the mean seconds between two of its kind. The daemon is killed less often than programs.
        events = {self.kill_job: self.a.kill_every, self.stop_job: 1.5 * self.a.kill_every,
                  self.pause_job: 1.5 * self.a.kill_every, settings: 5,
                  population: 7, self.kill_daemon: 6 * self.a.kill_every}
        # The first event of each kind comes early, so that a short run has some of all kinds.
        due = {event: time.monotonic() + mean * self.random.uniform(0.3, 1) for event, mean in events.items()}
        end, looked, told = time.monotonic() + seconds, 0.0, time.monotonic()
        wanted = self.a.programs
        while time.monotonic() < end:
            self.care()
            if len(self.jobs) < wanted:
                self.start_job()
            now = time.monotonic()
            for event, mean in events.items():
                if now >= due[event] and self.daemon_back_at is None:
                    event()
                    due[event] = after(mean)
            if now - looked > 0.5:
                looked = now
                self.look()
            if now - told > self.a.tell:
                told = now
                self.tell()
            time.sleep(0.05)

    def finish(self):
        """Ends all programs, and checks that nothing is left."""
        self.state = "ending"
        for job in self.jobs:
            if job.continue_at is not None:
                job.continue_at = 0.0
            if job.resume_at is not None:
                job.resume_at = 0.0
        while self.jobs or self.daemon_back_at is not None:
            self.care()
            time.sleep(0.05)
        self.await_daemon()
        deadline = time.monotonic() + 60

        def empty():
            return self.look() and all(g["charged"] == 0 and g["committed"] == 0 and not g["clients"]
                                       for g in self.status["gpus"])

        while not empty():
            if time.monotonic() > deadline:
                self.problem(f"the daemon's ledger is not empty: {json.dumps(self.status['gpus'])}")
                break
            time.sleep(0.1)
        while self.card_used() > self.used_before:
            if time.monotonic() > deadline:
                self.problem(f"{self.card_used()} bytes of the card are used, {self.used_before} were before")
                break
            time.sleep(0.2)

    def driver(self):
        done = subprocess.run([os.path.join(self.part.build, "sim", "simcuda-stat"), "--json"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60, check=True)
        return json.loads(done.stdout)["devices"][0]

    def card_used(self):
        if not self.a.gpu:
            return self.driver()["used"]
        text = suite.run_text("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits").splitlines()
        return int(text[0]) << 20 if text else 0

    def tell(self):
        c = self.count
        print(f"{time.monotonic() - self.began:6.0f} s  {c['programs']} programs, {len(self.jobs)} now, "
              f"{sum(self.instances.values())} hand-offs, {c['programs_killed']} killed, {c['daemons_killed']} daemons, "
              f"{c['bytes_checked'] / suite.GIB:.1f} GiB checked, {c['bytes_wrong']} bytes wrong, "
              f"{len(self.problems)} problems", flush=True)

    def moved(self):
        events = self.part.traced()
        out = {kind: sum(e["bytes"] for e in events if e["event"] == f"{kind}_end") for kind in ("evict", "restore")}
        figures = {"out_as_traced": out["evict"], "in_as_traced": out["restore"]}
        if not self.a.gpu:
            card = self.driver()
            figures.update(out_as_driver_counted=card["d2h_bytes"], in_as_driver_counted=card["h2d_bytes"])
        return figures

    def run(self):
        os.mkdir(self.part.dir, 0o700)
        self.start_daemon()
        self.await_daemon()
        self.used_before = self.card_used() + (64 << 20 if self.a.gpu else 0)
        self.state = "soaking"
        self.soak(self.a.minutes * 60)
        self.finish()
        # Compares the footprint of the present daemon with that of a fresh one. The present daemon has not lived
        # through the whole run, because daemons are killed now and then, but it has lived long enough.
        used = self.footprint()
        self.kill_daemon()
        self.count["daemons_killed"] -= 1  # this kill is not one of the faults
        self.start_daemon()
        self.await_daemon()
        fresh = self.footprint()
        self.count["daemon_rss_kib_more_than_fresh"] = used["rss_kib"] - fresh["rss_kib"]
        self.count["daemon_descriptors_more_than_fresh"] = used["descriptors"] - fresh["descriptors"]
        if used["descriptors"] > fresh["descriptors"] + 1:  # the hand stays for 10 s after the last program
            self.problem(f"the daemon's descriptors: {used['descriptors']}, a fresh one has {fresh['descriptors']}")
        if used["rss_kib"] > fresh["rss_kib"] + 4096 and not sanitized(self.part.build):
            self.problem(f"the daemon's resident memory: {used['rss_kib']} KiB, a fresh one has {fresh['rss_kib']}")
        self.state = "done"

    def figures(self):
        waits = sorted(self.actions_ms)
        return {
            "on": "GPU" if self.a.gpu else "simulated driver",
            "seed": self.a.seed,
            "seconds": round(time.monotonic() - self.began, 1),
            "state": self.state,
            "card_bytes": self.a.card,
            "program_bytes": list(self.a.job),
            "programs_at_most": self.a.programs,
            "handoffs": sum(self.instances.values()),
            "moved_bytes": self.moved(),
            "faults": {k: self.count[k] for k in ("programs_killed", "programs_stopped", "programs_paused", "daemons_killed")},
            "errors": {"planned": self.errors.given, "kinds": len(self.errors.all)},
            "killed_while": dict(self.killed_while),
            **{k: self.count[k] for k in ("programs", "programs_ended_well", "programs_refused", "growths_refused",
                                          "settings", "bytes_checked", "bytes_wrong", "stuck",
                                          "daemon_rss_kib_more_than_fresh", "daemon_descriptors_more_than_fresh")},
            "seen": {k[5:]: v for k, v in self.count.items() if k.startswith("seen_")},
            "longest_wait_for_a_turn_s": round(self.longest_wait_s, 1),
            # How long a program takes for one action, including its own kernels and all waits for its turn.
            "action_ms": {"median_of_the_longest_in_half_a_second": round(statistics.median(waits), 1) if waits else None,
                          "p99": waits[(len(waits) - 1) * 99 // 100] if waits else None,
                          "longest": waits[-1] if waits else None},
            "problems": self.problems,
        }


# Arguments of further programs, by the least memory that a program has.
OTHERS = {
    "churn": lambda low: ["--bytes", low, "--block", max(low // 8, 1 << 20), "--ms", 5],
    "threads": lambda low: ["--bytes", low, "--block", max(low // 8, 1 << 20)],
    "fill": lambda low: ["--bytes", low, "--block", max(low // 8, 1 << 20)],
    "graph": lambda low: ["--bytes", min(low, 64 << 20), "--block", 1 << 20],
    "ptds": lambda low: ["--bytes", min(low, 1 << 30), "--block", max(min(low, 1 << 30) // 8, 1 << 20)],
    "small": lambda low: ["--count", 1000],
}


def text_of(figures):
    """Returns the figures as text for people."""
    def human(n):
        return f"{n / (1 << 30):.1f} GiB"

    f, m = figures, figures["moved_bytes"]
    out = m.get("out_as_driver_counted", m["out_as_traced"])
    into = m.get("in_as_driver_counted", m["in_as_traced"])
    by = "as the driver counted" if "out_as_driver_counted" in m else "as the library traced where it came to an end"
    rows = [
        ("on", f"{f['on']}, {f['seconds']:.0f} s, seed {f['seed']}"),
        ("programs", f"{f['programs']}, {f['programs_ended_well']} ended by themselves, {f['programs_refused']} for want of"
                     " memory"),
        ("faults", ", ".join(f"{v} {k.replace('_', ' ')}" for k, v in f["faults"].items())),
        ("errors", f"{f['errors']['planned']} planned for calls of the library's own; each code at each call makes"
                   f" {f['errors']['kinds']}"),
        ("killed while", ", ".join(f"{k} {v}" for k, v in sorted(f["killed_while"].items())) or "-"),
        ("hand-offs", f["handoffs"]),
        ("moved", f"{human(out)} out, {human(into)} in, {by}"),
        ("checked", f"{human(f['bytes_checked'])}, {f['bytes_wrong']} bytes wrong"),
        ("stuck", f["stuck"]),
        ("longest wait", f"{f['longest_wait_for_a_turn_s']} s for a turn"),
        ("longest action", f"{f['action_ms']['longest']} ms, its own kernels included (99 % of the longest of each half second"
                           f" below {f['action_ms']['p99']} ms)"),
        ("left at the end", "nothing" if not f["problems"] else f"{len(f['problems'])} problems"),
    ]
    return "\n".join(f"{name:16} {value}" for name, value in rows)


def sanitized(build):
    """True for a build with a sanitizer, which keeps freed memory for a while, so that resident memory tells
    nothing."""
    with open(os.path.join(build, "subletd"), "rb") as f:
        return re.search(rb"__[at]san_init", f.read()) is not None


def watchdog(soak, seconds, part):
    """Ends the run after that many seconds, whatever happens."""
    def bite():
        soak.problem(f"hard limit of {seconds:.0f} s while {soak.state}: {json.dumps(soak.status)[:4000]}")
        try:
            keep(soak.figures(), soak.a.json)
        except Exception as e:  # a failure here must not keep the run from ending
            print(f"no figures: {e!r}", flush=True)
        soak.problem = lambda text: None
        for process in list(part.processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except OSError:
                pass
        forget_card(soak.a)
        os._exit(3)

    timer = threading.Timer(seconds, bite)
    timer.daemon = True
    timer.start()
    return timer


def forget_card(a):
    """Removes the simulated card's shared memory."""
    if a.gpu:
        return
    subprocess.run([os.path.join(a.build, "sim", "simcuda-stat"), "--remove", "--force"], timeout=60, check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for path in glob.glob(f"/dev/shm/*{os.environ['SIMCUDA_SESSION']}*"):
        os.unlink(path)


def keep(figures, path):
    if path:
        with open(path, "w", encoding="utf-8") as f:
            json.dump(figures, f, indent=1)
            f.write("\n")
    print(text_of(figures), flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--gpu", action="store_true", help="on a real GPU that nobody else uses")
    parser.add_argument("--card", type=size_of, help="128MiB on the simulated driver; a GPU's is asked for")
    parser.add_argument("--job", type=range_of, metavar="LOW..HIGH", help="memory of a program, such as 10..80GiB")
    parser.add_argument("--programs", type=int, help="at the same time, at most")
    parser.add_argument("--job-seconds", type=float, default=20, help="a program lives for at most about this")
    parser.add_argument("--kill-every", type=float, default=4, help="seconds between two programs killed, on average")
    parser.add_argument("--stall", type=float, default=120, help="seconds of silence after which a program is stuck")
    parser.add_argument("--host-memory", help="what the daemon may promise of the host's memory; half of it by default")
    parser.add_argument("--limit", type=float, help="hard limit of the whole in seconds; by default some minutes more")
    parser.add_argument("--tell", type=float, default=10, help="seconds between two lines of how it goes")
    parser.add_argument("--build", help="default: .gpu with --gpu, else build")
    parser.add_argument("--json", help="where to keep the figures")
    a = parser.parse_args()
    if not a.build:
        a.build = os.environ.get("SUBLET_BUILD", os.path.join(suite.ROOT, ".gpu" if a.gpu else "build"))
    a.build = os.path.abspath(a.build)
    for name in ("libsublet.so", "subletd", "sublet", "programs/roam") + (() if a.gpu else ("sim/libcuda.so.1",)):
        if not os.path.exists(os.path.join(a.build, name)):
            parser.error(f"{a.build}/{name} is not there: build first ({'tests/gpu/pack.sh' if a.gpu else './dev build'})")
    if a.gpu and not a.card:
        text = suite.run_text("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits").splitlines()
        if not text:
            parser.error("nvidia-smi shows no GPU: give --card")
        a.card = int(text[0]) << 20
    a.card = a.card or 128 << 20
    a.job = a.job or (a.card // 16, a.card * 3 // 4)
    a.programs = a.programs or (4 if a.gpu else 5)
    return a


def main():
    a = parse()
    if not a.gpu:
        os.environ.update(SIMCUDA_MEMORY=str(a.card), SIMCUDA_SESSION=f"soak-{os.getpid()}",
                          LD_LIBRARY_PATH=os.path.join(a.build, "sim"))
    seconds = a.minutes * 60
    limit = a.limit or seconds + 2 * a.stall + a.job_seconds + 90
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"soak: {a.minutes:g} minutes, seed {a.seed}, card {a.card >> 20} MiB, programs of {a.job[0] >> 20} to "
          f"{a.job[1] >> 20} MiB, at most {a.programs} at a time, hard limit {limit:.0f} s", flush=True)
    logs = tempfile.mkdtemp(prefix="soak-")
    try:
        with suite.Part("soak", a.build, limit, logs) as part:
            soak = Soak(a, part)
            timer = watchdog(soak, limit, part)
            try:
                soak.run()
            except suite.Failure as e:
                soak.problem(str(e))
            figures = soak.figures()
            timer.cancel()
    finally:
        forget_card(a)
    keep(figures, a.json)
    if figures["problems"]:
        print(f"logs: {logs}")
        return 1
    shutil.rmtree(logs, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
