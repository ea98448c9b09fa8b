"""Slurm's plugin without Slurm (programs/spank), what hostile jobs say to it, and those as rows of the table of habits.py."""

import contextlib
import os
import subprocess
import threading

import habits
from hostile_daemon import DAEMONS, FakeDaemon, good
from metrics import descriptors
from others import BUILD
from world import GENEROUS_S

PROGRAM, PLUGIN, LIBRARY = (os.path.join(BUILD, name) for name in ("programs/spank", "sublet_spank.so", "libsublet.so"))
WORDS = ("slurm_spank_", "log sublet: ", "log --sublet", "option ", "task ", "LD_PRELOAD ", "SUBLET_DIR ")
BYSTANDER = 900


class Step:
    """One step of a job. The daemon's directory is `folder`."""

    def __init__(self, folder, job, *words, config="none"):
        self.folder, self.job = folder, job
        argv = [PROGRAM, PLUGIN, f"arg=dir={folder}", f"arg=library={LIBRARY}", f"arg=config={os.path.join(folder, config)}", f"job={job}"]
        self.process = subprocess.Popen([*argv, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={"PATH": os.environ["PATH"]})
        self.lines = []

    def _read(self, until):
        while line := self.process.stdout.readline():
            self.lines.append(line.decode().rstrip("\n"))
            if self.lines[-1].startswith(until):
                return self
        raise AssertionError((self.process.wait(), self.lines, self.process.stderr.read()))

    def begun(self):
        """What slurmd sees: no function of the plugin fails, nothing crashes, and each word in the log is the plugin's."""
        timer = threading.Timer(GENEROUS_S, self.process.kill)
        timer.start()
        try:
            self._read("task ")
        finally:
            timer.cancel()
        assert self.lines[-1] == "task 0"
        self._check()
        return self

    def _check(self):
        assert all(line.startswith(WORDS) for line in self.lines), self.lines
        assert all(line.endswith(" 0") for line in self.lines if line.startswith("slurm_spank_")), self.lines

    def value(self, name):
        return next(line.partition(" ")[2] for line in self.lines if line.startswith(name + " "))

    def end(self):
        out, err = self.process.communicate(timeout=GENEROUS_S)
        self.lines += out.decode().splitlines()
        self._check()
        assert self.process.returncode == 0 and len(self.lines) >= 6
        return err.decode()

    def text(self):
        """Returns the text of the job's class."""
        try:
            with open(os.path.join(self.folder, "conf.d", f"60-slurm-{self.job}.conf"), encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return None


@contextlib.contextmanager
def bystander(folder):
    """A job that was there before, and ends after the others. It notices nothing."""
    step = Step(folder, BYSTANDER, "option=cap=1G").begun()
    text = step.text()
    assert "memory_cap = 1073741824B" in text
    yield step
    assert step.text() == text
    assert step.end() == "" and step.text() is None
    assert os.listdir(os.path.join(folder, "conf.d")) == []


OPTIONS = ["share=0.5," * 10000, "cap=1\nlog sublet: root\nforged", "\x1b]0;x\x07=1", "\n=\n", "=", ",,,", "off,cap=1G", "share=nan", "share=-1:2",
           "weight=1e999", "weight=0x1p9", "cap=99999999999999999999G", "cap=-1", "priority=99999999999", "priority=", "\udcff\udcfe=\udc80"]
# The number of the job, words, and the administrator's file.
ENVIRONMENTS = [
    (1, ["env=LD_PRELOAD=" + "/x/evil.so:" * 10000], "none"), (2, ["env=LD_PRELOAD= : ::"], "none"),
    (3, ["env=LD_PRELOAD=libsublet.so:/x/libsublet.so", "env=SUBLET_DIR=/x/evil", "env=NOTHING"], "none"),
    (4, ["account=x\n[class all]\nuser = 0-4294967294\nmemory_cap = 1MiB"], "accounts"),
    (5, ["account=" + "\x1b[31m" * 10000], "accounts"), (6, ["uid=4294967295"], "none"), (4294967295, [], "none"),
]


def write_accounts(folder):
    with open(os.path.join(folder, "accounts"), "w", encoding="utf-8") as f:
        os.chmod(f.name, 0o644)
        f.write("[account physics]\nminimum_most = 10%\n")


class Target(habits.Target):
    """A node with a daemon. Each step is a process of its own, so what they use is the most of all."""

    def __init__(self, world):
        super().__init__(("slurm",), None)
        self.world, self.folder, self.number = world, world.dir, 1000
        self.lock, self.memory_kib, self.descriptors = threading.Lock(), 0, 0
        write_accounts(world.dir)

    def step(self, *words, folder=None, **more):
        with self.lock:
            self.number += 1
        step = Step(folder or self.folder, self.number, *words, **more).begun()
        with open(f"/proc/{step.process.pid}/status", encoding="ascii") as f:
            resident = [int(line.split()[1]) for line in f if line.startswith("VmHWM")]
        with self.lock:
            self.memory_kib = max([self.memory_kib, *resident])
            self.descriptors = max(self.descriptors, descriptors(step.process.pid))
        return step

    def ask(self):
        step = self.step("option=cap=1G")
        assert "memory_cap = 1073741824B" in step.text()
        assert step.end() == "" and step.text() is None


for row_number, row_option in enumerate(OPTIONS):
    def attack(t, option=row_option):
        step = t.step("option=" + option)
        assert step.value("option") == "0" and "memory_cap" not in step.text()
        yield
        assert step.end() == ""
    habits.add(f"option_{row_number}", attack, "slurm")
for row_number, row_words, row_config in ENVIRONMENTS:
    def attack(t, words=row_words, config=row_config):
        step = t.step("option=", *words, config=config)
        assert step.value("LD_PRELOAD").startswith(LIBRARY) and step.text().count("\n[") == 1
        yield
        assert step.end() == ""
    habits.add(f"environment_{row_number}", attack, "slurm")
for row_name, (row_daemon, row_says) in DAEMONS.items():
    def attack(t, daemon=row_daemon, says=row_says):
        with t.lock:
            t.number += 1
            folder = t.world.path(f"daemon{t.number}")
        with contextlib.closing(FakeDaemon(folder)) as d:
            d.habit = daemon
            step = t.step("option=cap=2G", folder=folder)
            assert step.value("LD_PRELOAD") == LIBRARY
            yield
            d.habit = good
            said = step.end()
            assert says in said and said.count("\n") == bool(says), said
    habits.add("daemon_" + row_name.replace(" ", "_"), attack, "slurm")
