"""What doctor, status and top say of programs that hold memory of the card without sublet, beyond the table of
test_judge.py."""

import os
import re
import signal
import subprocess

import pytest

import others
from test_users import ALICE, BOB, GROUP, machine, shared_daemon  # noqa: F401
from world import BUILD, MIB, is_stopped, wait_for

HOLD = [os.path.join(BUILD, "programs", "hold"), "--bytes", "48MiB", "--block", "4MiB", "--seed", "7"]


def hold(world, *before):
    p = world.start([*before, *HOLD], stdin=subprocess.PIPE)
    p.await_event("filled")
    return p


def by_a_script(world, script):
    return hold(world, os.path.join(BUILD, "sublet"), "run", "--daemon", world.dir, "--", "sh", "-c", f'{script} "$@"', "sh")


def findings(world, *args, **env):
    done = world.sublet("doctor", "--sim", "--daemon", world.dir, *args, **env)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split(" -> ") for line in lines if line.startswith("warn "))


@pytest.mark.parametrize("script, remedy", [
    ("LD_PRELOAD=libpthread.so.0 exec", "its LD_PRELOAD is 'libpthread.so.0'"),
    ("exec env -u LD_PRELOAD", "behind env -i or env -u LD_PRELOAD put sublet run after them"),
    ("exec env -i LD_LIBRARY_PATH=$LD_LIBRARY_PATH SIMCUDA_SESSION=$SIMCUDA_SESSION SIMCUDA_MEMORY=$SIMCUDA_MEMORY",
     "start it with sublet run"),
], ids=["another", "unset", "cleared"])
def test_doctor_names_a_program_that_lost_the_library_on_its_way(shared, script, remedy):
    p = by_a_script(shared, script)
    found = findings(shared)
    line = f"warn  process {p.pid} (hold) of root uses the driver without libsublet.so: it runs without sharing"
    assert line in found and remedy in found[line], found
    p.finish()
    assert not any(str(p.pid) in line for line in findings(shared))


def test_doctor_does_not_name_a_program_that_is_shared_nor_one_of_another_session(shared, make_world):
    p = hold(shared, os.path.join(BUILD, "sublet"), "run", "--daemon", shared.dir, "--")
    other = make_world()
    other.start_daemon()
    stray = hold(other)
    assert not any("without libsublet.so" in line for line in findings(shared))
    assert any(f"process {stray.pid} (hold)" in line for line in findings(other))
    for program in p, stray:
        program.finish()


def test_status_names_programs_outside_of_the_daemon(shared):
    p = by_a_script(shared, "LD_PRELOAD= exec")
    shared.sublet("status")  # makes the daemon look at the card
    gpu = wait_for(lambda: next((g for g in shared.status()["gpus"] if g["foreign"] >= 48 * MIB), None), 20, "the foreign bytes")
    assert [(o["pid"], o["uid"], o["name"]) for o in gpu["others"]] == [(p.pid, os.getuid(), "hold")]
    assert gpu["others"][0]["bytes"] >= 48 * MIB
    text = shared.sublet("status").stdout
    assert f"    others: pid {p.pid}, hold of root, " in text, text
    assert f"others: pid {p.pid}, hold of root, " in shared.sublet("top", "--snapshot").stdout
    q = hold(shared, os.path.join(BUILD, "sublet"), "run", "--daemon", shared.dir, "--")
    assert [o["pid"] for o in shared.status()["gpus"][0]["others"]] == [p.pid], "a client is none of the others"
    for program in p, q:
        program.finish()


@others.needed
def test_status_names_the_programs_of_others_only_to_those_who_may_know(machine, shared_daemon):  # noqa: F811
    directory = shared_daemon()
    p = machine.user(BOB, "hold", *HOLD[1:], stdin=subprocess.PIPE, LD_PRELOAD=None)
    p.await_event("filled")

    def seen(uid):
        done = machine.run_as(uid, [os.path.join(others.BUILD, "sublet"), "status", "--daemon", directory], groups=[GROUP])
        return [line for line in done.stdout.splitlines() if line.startswith("    others: ")]

    assert wait_for(lambda: seen(ALICE), 20, "the program to be seen")[0].startswith(f"    others: pid {p.pid}, hold of {BOB}, ")
    assert seen(BOB)[0].startswith(f"    others: pid {p.pid}, hold of {BOB}, ")
    assert seen(others.NOBODY)[0].startswith(f"    others: pid {p.pid}, hold of {BOB}, ")
    assert machine.sublet("set", "--daemon", directory, "names", "own").returncode == 0
    assert seen(others.NOBODY)[0].startswith(f"    others: pid {p.pid}, another user's, ")
    assert seen(BOB)[0].startswith(f"    others: pid {p.pid}, hold of {BOB}, ")
    p.finish()


@others.needed
def test_doctor_counts_the_processes_that_it_may_not_look_at(machine):  # noqa: F811
    done = machine.run_as(BOB, [os.path.join(others.BUILD, "sublet"), "doctor", "--sim"])
    assert re.search(r"^ok +doctor may not look at [1-9][0-9]* process(?:es)? of other users, which may run without sublet; run as root$",
                     done.stdout, re.M), done.stdout


# ---- programs that stand still ----


def test_a_pause_of_a_program_that_is_stopped_says_so(shared):
    p = hold(shared, os.path.join(BUILD, "sublet"), "run", "--daemon", shared.dir, "--")
    assert shared.clients()[p.pid]["stopped"] is None
    p.send(signal.SIGSTOP)
    wait_for(lambda: is_stopped(p.pid), 20, "the program to be stopped")
    assert shared.clients()[p.pid]["stopped"] == "signal"
    paused = shared.sublet("pause", str(p.pid))
    assert paused.returncode == 1 and f"it is stopped (Ctrl-Z): `fg`, or `kill -CONT {p.pid}`; the order is withdrawn" in paused.stderr
    p.send(signal.SIGCONT)
    wait_for(lambda: shared.clients()[p.pid]["stopped"] is None, 20, "the program to go on")
    p.finish()
