"""A process that may not make a system call that sharing needs, in a sandbox or at a limit. A program that must not run
without sharing is told so by the driver's answer and one line, and lives; any other is told once, and runs."""

import errno
import os
import platform
import sys

import pytest

import others
from world import LIBRARY, MIB, NO_PYTHON

if platform.machine() == "x86_64":
    NUMBERS = {"eventfd": (290,), "ppoll": (271,), "socket": (41,), "connect": (42,), "sendmsg": (46,), "recvmsg": (47,),
               "clone": (56, 435)}
else:  # the kernel's table for all newer machines
    NUMBERS = {"eventfd": (19,), "ppoll": (73,), "socket": (198,), "connect": (203,), "sendmsg": (211,), "recvmsg": (212,),
               "clone": (220, 435)}
ERRORS = (errno.EPERM, errno.ENOSYS, errno.EMFILE, errno.EAGAIN)
NOTHING_HAPPENS = "errno:0:999999"

OUT_OF_MEMORY, OPERATING_SYSTEM = 2, 304
FORBIDDEN = {"a memory cap": ({"SUBLET_MEMORY_CAP": "16MiB"}, "because a memory cap is set"),
             "SUBLET_REQUIRE": ({"SUBLET_REQUIRE": "1"}, "because SUBLET_REQUIRE=1 is set")}


def refused(world, how, what, **env):
    """Returns the driver's answers and the lines on stderr."""
    p = world.program("refused", "--how", how, "--until", what, **env).ok()
    assert p.events("end"), p.report()
    return {e["call"]: e["result"] for e in p.events("answer")}, p.err().splitlines()


def of_calls(call, error):
    return f"errno:{error}:{','.join(map(str, NUMBERS[call]))}"


def test_nothing_is_refused_to_a_program_that_may_make_all_calls(shared):
    for env in ({}, {"SUBLET_REQUIRE": "1"}, {"SUBLET_MEMORY_CAP": "64MiB"}):
        answers, lines = refused(shared, "init", NOTHING_HAPPENS, **env)
        assert set(answers.values()) == {0} and lines == [], (answers, lines)


@pytest.mark.parametrize("how, fails_at", [("init", "init"), ("context", "retain")])
@pytest.mark.parametrize("call", NUMBERS)
def test_a_program_that_must_be_shared_gets_an_error_and_lives(shared, call, how, fails_at):
    for name, (env, because) in FORBIDDEN.items():
        for error in ERRORS:
            answers, lines = refused(shared, how, of_calls(call, error), **env)
            case = (call, how, name, errno.errorcode[error], answers, lines)
            assert answers[fails_at] == OPERATING_SYSTEM and "alloc" not in answers, case
            assert len(lines) == 1 and because in lines[0] and f"{call} failed ({os.strerror(error)})" in lines[0], case


@pytest.mark.parametrize("call", NUMBERS)
def test_a_program_that_need_not_be_shared_is_told_once_and_runs(shared, call):
    for how in ("init", "context"):
        for error in ERRORS:
            answers, lines = refused(shared, how, of_calls(call, error))
            case = (call, how, errno.errorcode[error], answers, lines)
            assert set(answers.values()) == {0}, case
            assert len(lines) == 1 and "runs without sharing" in lines[0] and os.strerror(error) in lines[0], case


@pytest.mark.parametrize("left", [0, 1])
def test_a_program_without_free_descriptors_is_told_its_limit(shared, left):
    for how, fails_at in (("init", "init"), ("context", "retain")):
        for env, because in FORBIDDEN.values():
            answers, lines = refused(shared, how, f"files:{left}", **env)
            assert answers[fails_at] == OPERATING_SYSTEM, (answers, lines)
            assert len(lines) == 1 and because in lines[0] and "limit of open files is 64: raise it (ulimit -n)" in lines[0], lines
    answers, lines = refused(shared, "context", f"files:{left}")  # the driver's own cuInit() needs descriptors
    assert set(answers.values()) == {0}, answers
    assert len(lines) == 1 and "runs without sharing: " in lines[0] and "limit of open files is 64" in lines[0], lines


COUNT = """
import ctypes, os
r = ctypes.CDLL("libcuda.so.1").cuInit(0)
print(r, *(len(os.listdir(f"/proc/self/{what}")) for what in ("task", "fd")))
"""


@pytest.mark.skipif(NO_PYTHON is not None, reason=str(NO_PYTHON))
def test_the_attempt_in_cuinit_leaves_no_thread_and_no_descriptor(shared):
    """Many programs only count the GPUs, and then fork or enter a namespace."""
    said = [shared.start([sys.executable, "-c", COUNT], LD_PRELOAD=LIBRARY, **env).ok().out()
            for env in ({}, {"SUBLET_REQUIRE": "1"})]
    assert said[0] == said[1] and said[0].split()[0] == "0", said


@others.needed
def test_a_user_without_free_threads_is_told_the_limit(shared):
    """Root has no such limit, so another user runs the program. It fails before it looks for the daemon or the card."""
    os.chmod(shared.root, 0o755)
    for env, because in FORBIDDEN.values():
        p = shared.start([*others.as_user(others.LAST - 3), "prlimit", "--nproc=1:1", f"{others.BUILD}/programs/refused"],
                         LD_PRELOAD=f"{others.BUILD}/libsublet.so", LD_LIBRARY_PATH=f"{others.BUILD}/sim", **env).ok()
        assert [e["result"] for e in p.events("answer")] == [OPERATING_SYSTEM], p.report()
        line, = p.err().splitlines()
        assert because in line and "clone failed" in line and "its user's limit of threads is 1: raise it (ulimit -u)" in line


def test_two_free_descriptors_are_enough(shared):
    answers, lines = refused(shared, "context", "files:2", SUBLET_MEMORY_CAP=str(16 * MIB))
    assert (answers["retain"], answers["alloc"]) == (0, OUT_OF_MEMORY), (answers, lines)


@pytest.mark.parametrize("cap", ["20", "0", "lots", "20GiB,"])
def test_a_cap_that_cannot_be_read_is_not_taken_for_none(shared, cap):
    answers, lines = refused(shared, "init", NOTHING_HAPPENS, SUBLET_MEMORY_CAP=cap)
    assert answers["init"] == OPERATING_SYSTEM and "alloc" not in answers, answers
    assert len(lines) == 1 and f"because SUBLET_MEMORY_CAP is a size such as 20GiB, not '{cap}': correct it" in lines[0], lines


@pytest.mark.parametrize("share", ["0.2-0.8", ":80%", "0.8:0.2", "0.2:0.8 ", "x:0.8", "0.2:", "much"])
def test_a_maximum_share_that_cannot_be_read_is_not_taken_for_none(shared, share):
    answers, lines = refused(shared, "init", NOTHING_HAPPENS, SUBLET_SHARE=share)
    assert answers["init"] == OPERATING_SYSTEM and "alloc" not in answers, answers
    assert len(lines) == 1 and f"because SUBLET_SHARE is MIN:MAX such as 0.2:0.8, not '{share}': correct it" in lines[0], lines


@pytest.mark.parametrize("share", ["30%", "2", "0.1.2"])
def test_a_malformed_share_without_a_maximum_has_no_effect_and_the_program_says_so(shared, share):
    answers, lines = refused(shared, "init", NOTHING_HAPPENS, SUBLET_SHARE=share)
    assert set(answers.values()) == {0}, answers
    assert len(lines) == 1 and f"SUBLET_SHARE is MIN:MAX such as 0.2:0.8, not '{share}': it has no effect" in lines[0], lines


def test_a_cap_without_a_daemon_is_an_error(world):
    answers, lines = refused(world, "context", NOTHING_HAPPENS, SUBLET_MEMORY_CAP="16MiB")
    assert answers["init"] == 0 and answers["retain"] == OPERATING_SYSTEM and "alloc" not in answers, answers
    assert len(lines) == 1 and f"a memory cap is set, which only a daemon keeps, and no daemon answers in {world.dir}" in lines[0], lines
    world.start_daemon()
    answers, lines = refused(world, "context", NOTHING_HAPPENS, SUBLET_MEMORY_CAP="64MiB")
    assert set(answers.values()) == {0} and lines == [], (answers, lines)


def test_a_private_daemon_that_cannot_be_started_is_an_error_too(world):
    """The thread could be started, but the daemon's process cannot: only clone() of the two calls is refused."""
    os.mkdir(world.dir, 0o700)
    for env, because in FORBIDDEN.values():
        answers, lines = refused(world, "context", f"errno:{errno.EAGAIN}:{NUMBERS['clone'][0]}",
                                 SUBLET_DAEMON="/bin/true", **env)
        assert answers["retain"] == OPERATING_SYSTEM, (answers, lines)
        assert len(lines) == 1 and because in lines[0] and "clone failed" in lines[0], lines
