"""Jobs of several ranks on one GPU for onecard.py, which carry out orders, and the cases of a part.

A case prints its figures as soon as it has them. One that fails does not end its part, which says at its end which cases
were wrong."""

import json
import os
import queue
import sys
import time

import suite
from suite import Failure

START_S = 75            # until all ranks of a job are ready: eight processes load PyTorch at once
FAILED_STARTS_MOST = 2  # in a row; a GPU's time is dear
ORDER_S = 60            # limit of an order
PATIENCE_S = 45         # until a collective fails: below the limit of an order, so that NCCL's word comes first


class Team:
    """A job of some ranks (onecard_job.py), which starts at its first order, and again at the first order after a failure."""

    def __init__(self, part, name, ranks, *, backend="nccl", sublet=True, options=(), timeout=PATIENCE_S, torchrun=True, **env):
        self.part, self.name, self.ranks, self.sublet, self.env = part, name, ranks, sublet, env
        self.p, self.pids, self.devices, self.runs, self.failed_starts = None, {}, [], 0, 0
        job = [os.path.join(suite.HERE, "onecard_job.py"), "--backend", "gloo" if suite.rehearsing() else backend, "--timeout", str(timeout)]
        if suite.rehearsing():  # small networks on the processors, because PyTorch cannot use the simulated driver
            self.sublet, torchrun = False, False
            job += ["--device", "cpu"]
        self.job, self.torchrun = job, torchrun
        self.options = [*(["--ranks", str(ranks)] if ranks > 1 else []), *options]

    def command(self, name):
        job = [sys.executable, *self.job]
        if self.ranks > 1 and self.torchrun:
            beside = os.path.join(os.path.dirname(sys.executable), "torchrun")
            torchrun = [beside] if os.path.exists(beside) else [sys.executable, "-m", "torch.distributed.run"]
            job = [*torchrun, "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(self.ranks), *self.job]
        elif self.ranks > 1:
            job = [sys.executable, os.path.join(suite.HERE, "onecard_ranks.py"), "--ranks", str(self.ranks), "--logs",
                   os.path.join(self.part.root, name), "--", *job]
        return [os.path.join(self.part.build, "sublet"), "run", *self.options, "--", *job] if self.sublet else job

    def start(self):
        self.runs += 1
        name = f"{self.name}-{self.runs}"
        env = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "2"}
        if not suite.rehearsing() and suite.Card(self.part).cards() > 1:
            env["CUDA_VISIBLE_DEVICES"] = str(suite.GPU)
        if self.sublet:
            env.update(suite.ALWAYS, SUBLET_DIR=self.part.dir, SUBLET_TRACE=self.part.trace, SUBLET_NAME=name, SUBLET_REQUIRE="1",
                       SUBLET_QUIET="1")
        self.pids = {}
        self.p = self.part.start(self.command(name), name, False, **{**env, **self.env})

    def next(self, until):
        """Returns the next event of any rank."""
        try:
            event = self.p.fresh.get(timeout=max(until - time.monotonic(), 0.01))
        except queue.Empty:
            raise Failure(f"{self.name}: nothing in time: {self.p.tail()}") from None
        if event is None:
            raise Failure(f"{self.name} ended: {self.p.tail()}")
        if event["event"] == "failed":
            raise Failure(f"{self.name}, rank {event['rank']}: {event['error']}")
        return event

    def from_all(self, kind, limit, ranks=None):
        """Returns one event of that kind of each rank, in the order of ranks. A failure ends the job."""
        until = min(time.monotonic() + limit, self.part.deadline)
        got, ranks = {}, range(self.ranks) if ranks is None else ranks
        try:
            while not all(r in got for r in ranks):
                event = self.next(until)
                if event["event"] == "done" and kind != "done":
                    raise Failure(f"{self.name}: done before {kind!r}")
                if event["event"] == kind:
                    got[event["rank"]] = event
        except Failure:
            self.kill()
            raise
        return [got[r] for r in ranks]

    def ready(self):
        if self.p is not None and self.p.process.poll() is not None:
            self.kill()
        if self.failed_starts == FAILED_STARTS_MOST:
            raise Failure(f"{self.name} does not start")
        if self.p is None:
            self.start()
        if not self.pids:
            try:
                ready = self.from_all("ready", START_S)
            except Failure:
                self.failed_starts += 1
                raise
            self.failed_starts = 0
            self.pids, self.devices = {e["rank"]: e["pid"] for e in ready}, [e["devices"] for e in ready]

    def tell(self, name, **settings):
        self.ready()
        self.p.say(" ".join([name, *(f"{key}={value}" for key, value in settings.items())]))

    def ask(self, name, limit=ORDER_S, **settings):
        """Has all ranks carry out an order. Returns their answers, in the order of ranks."""
        self.tell(name, **settings)
        return self.from_all("done", limit)

    def after_step(self, step, limit=ORDER_S):
        """Waits until all ranks have said that they are past this step of an order with say=..."""
        until = min(time.monotonic() + limit, self.part.deadline)
        past = set()
        try:
            while len(past) < self.ranks:
                event = self.next(until)
                if event["event"] == "done":
                    raise Failure(f"{self.name}: done before step {step}")
                if event["event"] == "step" and event["step"] >= step:
                    past.add(event["rank"])
        except Failure:
            self.kill()
            raise

    def end(self):
        """Ends the job in an orderly way. Raises Failure if it does not end well."""
        if self.p is None:
            return
        p, self.p = self.p, None
        p.close()
        try:
            p.wait(min(self.part.deadline, time.monotonic() + 30))
        finally:
            p.kill()

    def kill(self):
        if self.p is not None:
            self.p.kill()
        self.p, self.pids = None, {}


class Cases:
    """The figures of a part, by case."""

    def __init__(self, part, result):
        self.part, self.of = part, result.setdefault("cases", {})

    def note(self, name, **figures):
        self.of.setdefault(name, {}).update(figures)
        print(json.dumps({"part": self.part.name, "case": name, **figures}), flush=True)

    def attempt(self, name, function, *args, needs=15, **more):
        """Notes the figures that the function returns; they may have an error of their own. Returns them, or None."""
        found = {"error": "no time was left for it"}
        if self.part.left() >= needs:
            try:
                found = function(*args, **more)
            except Failure as e:
                found = {"error": str(e)}
            except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError) as e:
                found = {"error": f"{type(e).__name__}: {e}"}
        self.note(name, **(found or {}))
        return None if "error" in (found or {}) else found

    def end(self, *teams):
        for team in teams:
            try:
                team.end()
            except Failure as e:
                self.note(f"end of {team.name}", error=str(e))

    def finish(self, *teams):
        """Ends teams, and raises Failure if a case was wrong."""
        self.end(*teams)
        wrong = [name for name, found in self.of.items() if "error" in found]
        if wrong:
            raise Failure("wrong: " + "; ".join(wrong))
