"""The simulated driver as people use it: sessions of several users, settings that come too late, and what the command line
says there."""

import os
import pty
import subprocess

import pytest

import others
from others import BUILD, as_user
from world import World, wait_for

SUBLET = os.path.join(BUILD, "sublet")
JOB = os.path.join(BUILD, "sublet-demo-job")
ALICE, BOB = others.LAST - 20001, others.LAST - 20002


@pytest.fixture
def machine():
    m = World(memory="256MiB")
    os.chmod(m.root, 0o755)
    m.env["XDG_RUNTIME_DIR"] = m.path("runtime")
    os.mkdir(m.path("runtime"), 0o700)
    del m.env["LD_LIBRARY_PATH"], m.env["SUBLET_DIR"], m.env["SIMCUDA_SESSION"]
    yield m
    m.env["SIMCUDA_SESSION"] = m.session
    m.env["LD_LIBRARY_PATH"] = os.path.join(BUILD, "sim")
    m.close()


@others.needed
def test_two_users_take_turns_on_a_session_of_all_users(machine):
    machine.session = "+" + machine.session
    sim, place = f"--sim=session={machine.session}", machine.path("lab")
    daemon = machine.start([SUBLET, "run", sim, "--", os.path.join(BUILD, "subletd"), "--shared", "--dir", place])
    wait_for(lambda: os.path.exists(os.path.join(place, "client.sock")), 30, "the daemon", report=daemon.report)
    programs = [machine.start([*as_user(uid), SUBLET, "run", sim, "--daemon", place, "--", JOB, "140MiB", "1", "3", ".3"])
                for uid in (ALICE, BOB)]
    assert all("done" in p.ok().out() for p in programs)
    gpu = machine.status(place)["gpus"][0]
    assert gpu["handoffs"] > 0
    machine.sublet("stop", "--daemon", place)
    assert daemon.wait() == 0


def test_a_setting_that_comes_too_late_is_said_to_be_ignored(machine):
    sim = f"--sim=session={machine.session}"
    first = machine.start([SUBLET, "run", sim, "--", JOB, "10MiB"])
    wait_for(lambda: "pause" in first.out(), 30, "the first program", report=first.report)
    done = machine.sublet("run", f"{sim},memory=1GiB", "--", JOB, "10MiB", "1", "1", "0")
    assert done.returncode == 0 and "SIMCUDA_MEMORY=1GiB is ignored" in done.stderr
    assert "1 x 256 MiB" in done.stderr and len(done.stderr.splitlines()) == 1
    assert machine.sublet("run", sim, "--", JOB, "10MiB", "1", "1", "0").stderr == ""
    assert str(first.pid) in machine.sublet("status", sim).stdout
    assert machine.sublet("stop", sim).returncode == 0


def test_env_speaks_to_a_terminal_and_doctor_knows_the_simulator_afterwards(machine):
    sim = f"--sim=session={machine.session}"
    lines = machine.sublet("env", sim)
    assert lines.returncode == 0 and lines.stderr == "", "a script gets nothing but the variables"
    done = subprocess.run(["sh", "-c", f"{lines.stdout}\n{SUBLET} doctor"], env=machine.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, timeout=60)
    assert "simulated driver" in done.stdout and "NVIDIA driver" not in done.stdout
    assert "warn  no daemon" not in done.stdout
    master, slave = pty.openpty()
    done = subprocess.run([SUBLET, "env", sim], env=machine.env, stdout=slave, stderr=subprocess.PIPE, text=True,
                          timeout=60)
    os.close(slave)
    os.close(master)
    assert 'eval "$(sublet env' in done.stderr and "    unset " in done.stderr and " LD_PRELOAD " in done.stderr
    assert "musl programs then run unshared" in done.stderr
    assert "sublet doctor names those" in machine.sublet("help", "env").stdout
