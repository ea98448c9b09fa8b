"""Slurm's plugin among hostile jobs and beside hostile daemons, without Slurm (programs/spank). The step goes on within
seconds and with at most one sentence, and another job of the node, the bystander, keeps what it has."""

import contextlib
import os
import subprocess
import sys

import pytest

import others
from hostile_daemon import DAEMONS, FakeDaemon, good
from hostile_slurm import ENVIRONMENTS, LIBRARY, OPTIONS, PROGRAM, Step, bystander, write_accounts
from wireclient import order

pytestmark = pytest.mark.skipif(not os.path.exists(PROGRAM),
                                reason="this build has no sublet_spank.so; with libslurm-dev, and without a sanitizer, they run")


def classes(folder):
    return order(folder, order="reload")["classes"]


def test_options_that_no_srun_lets_pass_ask_for_nothing(world):
    """A user can bypass srun, and so its look at the option."""
    world.start_daemon()
    with bystander(world.dir):
        steps = [Step(world.dir, number, f"option={text}") for number, text in enumerate(OPTIONS, 1)]
        for step in steps:
            step.begun()
            assert sum("log --sublet" in line for line in step.lines) == 1, step.lines
            assert step.value("option") == "0" and step.value("LD_PRELOAD") == LIBRARY
            assert "memory_cap" not in step.text() and "priority = 0" in step.text()
        assert classes(world.dir) == 1 + len(steps)
        for step in steps:
            assert step.end() == ""


def test_hostile_environments_and_numbers_concern_one_job(world):
    world.start_daemon()
    write_accounts(world.dir)
    with bystander(world.dir):
        steps = [Step(world.dir, job, "option=", *words, config=config) for job, words, config in ENVIRONMENTS]
        for step in steps:
            step.begun()
            assert step.value("LD_PRELOAD").startswith(LIBRARY) and step.value("SUBLET_DIR") == world.dir
            assert step.text().count("\n[") == 1 and step.text().replace("\n", "").isprintable()
        assert steps[1].value("LD_PRELOAD") == steps[2].value("LD_PRELOAD") == LIBRARY
        extern = Step(world.dir, 7, "option=", "step=4294967292").begun()  # Slurm's own step, which runs no program of the user
        assert extern.text() is None and extern.value("LD_PRELOAD") == ""
        assert classes(world.dir) == 1 + len(steps)
        for step in (*steps, extern):
            assert step.end() == ""


def test_an_administrators_file_that_cannot_be_read_gives_the_defaults(world):
    world.start_daemon()
    files = {"garbage": os.urandom(4096), "long": b"[default]\n" + b"x" * (1 << 20), "nul": b"[default]\0minimum_most = 90%\n",
             "many": b"".join(b"[account %d]\nmaximum = 50%%\n" % n for n in range(5000))}
    for name, text in files.items():
        with open(os.path.join(world.dir, name), "wb") as f:
            os.chmod(f.name, 0o644)
            f.write(text)
    os.mkfifo(os.path.join(world.dir, "fifo"))
    with bystander(world.dir):
        steps = [Step(world.dir, n, "option=share=0.9", config=name) for n, name in enumerate((*files, "fifo", "conf.d"), 1)]
        for step in steps:
            step.begun()
            assert "minimum" not in step.text() and "maximum = 100.0%" in step.text()
        for step in steps:
            assert "gets a minimum of 0% instead of 90%" in step.end()


@others.needed
def test_a_user_cannot_lock_what_the_plugin_locks(world):
    world.start_daemon("--shared")
    for path in world.root, world.dir:
        os.chmod(path, 0o755)  # as /run/sublet
    hold = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX); print('locked', flush=True); input()"
    with bystander(world.dir):
        p = subprocess.Popen([*others.as_user(others.NOBODY), sys.executable, "-c", hold, os.path.join(world.dir, "conf.d")],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert p.stdout.readline() == "" and "Permission denied" in p.stderr.read()
            step = Step(world.dir, 1, "option=").begun()
            assert step.text() and step.end() == ""
        finally:
            p.communicate()


# ---- daemons ----


def test_a_daemon_that_answers_wrongly_or_never_holds_up_one_step_for_seconds(world):
    """All at the same time, because two of them cost the plugin's patience."""
    with contextlib.ExitStack() as stack:
        steps = {}
        for number, (name, (habit, _)) in enumerate(DAEMONS.items()):
            folder = world.path(str(number))
            d = FakeDaemon(folder)
            stack.callback(d.close)
            stack.enter_context(bystander(folder))
            stack.callback(setattr, d, "habit", good)  # before the bystander ends
            d.habit = habit
            steps[name] = (d, Step(folder, 1, "option=cap=2G"))
        for name, (d, step) in steps.items():
            step.begun()
            assert step.value("LD_PRELOAD") == LIBRARY, (name, "the job runs under sublet")
            d.habit = good
            refused = "refuses" in DAEMONS[name][1]
            assert (step.text() is None) == refused, name
            said = step.end()
            assert DAEMONS[name][1] in said and said.count("\n") == bool(DAEMONS[name][1]) and "\x1b" not in said, (name, said)
