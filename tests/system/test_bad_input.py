"""Bad input gets one sentence that names it, and an exit status that tells a failure."""

import contextlib
import os
import socket
import subprocess

import pytest

import others
from others import BUILD, NOBODY
from test_faults import OtherRelease
from wireclient import MAGIC, encode
from world import GENEROUS_S, LIBRARY, SYSTEM_DAEMON

SUBLET = os.path.join(BUILD, "sublet")
SUBLETD = os.path.join(BUILD, "subletd")


def run(world, argv, user=None, **env):
    merged = {k: v for k, v in {**world.env, **env}.items() if v is not None}
    return subprocess.run(argv, env=merged, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=GENEROUS_S, user=user, group=user, extra_groups=[] if user is not None else None)


def one_sentence(done, status, *names):
    assert done.returncode == status, (done.returncode, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for name in names:
        assert name in lines[0], lines[0]


SUBLET_LINES = [
    (["frobnicate"], ["frobnicate", "sublet help"]),
    (["statsu"], ["statsu", "did you mean status?"]),
    (["help", "resmue"], ["did you mean resume?"]),
    (["x"], ["'x'", "sublet help"]),
    (["a" * 300], ["sublet help"]),
    (["run"], ["command"]),
    (["run", "--frobnicate", "true"], ["--frobnicate"]),
    (["run", "--name"], ["--name"]),
    (["run", "--name", "", "true"], ["--name"]),
    (["run", "--name", "x" * 200, "true"], ["--name"]),
    (["run", "--sim=memory=lots", "true"], ["memory", "lots"]),
    (["run", "--sim=memory=", "true"], ["memory"]),
    (["run", "--sim=colour=red", "true"], ["colour"]),
    (["run", "--sim=bus=12", "true"], ["bus", "12"]),
    (["run", "--sim=memory=200000", "true"], ["memory", "'200000'", "1GiB"]),
    (["run", "--memory-cap", "20", "true"], ["--memory-cap is a size such as 20GiB, not '20'"]),
    (["run", "--memory", "overflow", "--keep", "20", "true"], ["--keep is a size such as 20GiB, not '20'"]),
    (["submit", "--memory-cap", "20", "true"], ["--memory-cap is a size such as 20GiB, not '20'"]),
    (["submit", "--wait-at-most", "30", "true"], ["--wait-at-most is a time such as 30min, not '30'"]),
    (["bench", "--capacity", "40"], ["--capacity is a size such as 40GiB, not '40'"]),
    (["trace", "--last", "5"], ["--last is a duration such as 5min, not '5'"]),
    (["top", "--interval", "1"], ["--interval is a time from 100ms to 1h, not '1'"]),
    (["run", "--daemon", "", "true"], ["--daemon"]),
    (["run", "--daemon", "/tmp/" + "d" * 200, "true"], ["ddd"]),
    (["run", "--daemon", "/no/such/dir", "true"], ["no directory", "/no/such/dir"]),
    (["env", "--daemon", "no-such-dir"], ["no directory", "no-such-dir"]),
    (["status", "--daemon", "/no/such/dir"], ["no directory", "/no/such/dir"]),
    (["status", "--frobnicate"], ["--frobnicate"]),
    (["status", "surplus"], ["surplus"]),
    (["stop", "now"], ["now"]),
    (["reload", "now"], ["now"]),
    (["run", "--freeze", "sometimes", "true"], ["--freeze", "sometimes"]),
    (["pause"], ["pause which programs", "numbers or names"]),
    (["pause", "--mine", "12"], ["pause which programs", "--mine"]),
    (["pause", "12", "0"], ["'0'"]),
    (["resume", "--", "-1"], ["-1"]),
    (["resume", "99999999999"], ["99999999999"]),
    (["--version", "surplus"], ["--version", "surplus"]),
    (["--help", "surplus"], ["--help", "surplus"]),
]


@pytest.mark.parametrize("args,names", SUBLET_LINES, ids=[" ".join(a)[:40] for a, _ in SUBLET_LINES])
def test_sublet_names_the_bad_argument(shared, args, names):
    one_sentence(run(shared, [SUBLET, *args]), 2, *names)


@pytest.mark.parametrize("folder, names", [
    ("/etc/passwd", ["is no directory", "name another one"]),
    ("/no/such/dir", ["cannot be made (No such file or directory)", "name another one"]),
])
def test_a_folder_where_no_daemon_can_be_is_not_said_to_get_one(world, folder, names):
    one_sentence(run(world, [SUBLET, "status"], SUBLET_DIR=folder), 1, folder, *names)


DAEMON_LINES = [
    (["--frobnicate"], ["--frobnicate"]),
    (["surplus"], ["surplus"]),
    (["--dir"], ["--dir"]),
    (["--capacity", "lots"], ["lots"]),
    (["--capacity", "0=lots"], ["lots"]),
    (["--capacity", "-1"], ["-1"]),
    (["--capacity", "99999999999999999999GiB"], ["99999999999999999999GiB"]),
    (["--host-memory", "much"], ["much"]),
    (["--check", "--config", "/no/such/file"], ["/no/such/file"]),
    (["--check", "--config", "/tmp"], ["/tmp"]),
    (["--check", "--config", ""], ["''"]),
    (["--check", "--resource-config", "/no/such/file"], ["/no/such/file"]),
    (["--check", "--resource-config", "/tmp"], ["/tmp", "directory"]),
    (["--linger", "3s"], ["--linger", "--private"]),
    (["--dir", "/tmp/" + "d" * 200], ["ddd"]),
    (["--group", "no-such-group-here", "--shared"], ["no-such-group-here"]),
    (["--group", "12x", "--shared"], ["12x"]),
    (["--group", "4294967295", "--shared"], ["4294967295"]),
]


@pytest.mark.parametrize("args,names", DAEMON_LINES, ids=[" ".join(a)[:40] for a, _ in DAEMON_LINES])
def test_subletd_names_the_bad_argument(world, args, names):
    argv = [SUBLETD, *args] if "--dir" in args else [SUBLETD, "--dir", world.dir, *args]
    one_sentence(run(world, argv), 2, *names)


CONFIGURATIONS = [
    ("[daemon]\nquantum = soon\n", ["soon", "2"]),
    ("[daemon]\ncolour = red\n", ["colour", "2"]),
    ("[daemon]\ncapacity = 20\n", ['"20"', "20GiB", "2"]),
    ("[daemon]\ngrace = 5\n", ['"5"', "5s", "2"]),
    ("[default]\nmemory_cap = 20\n", ['"20"', "20GiB", "2"]),
    ("[other]\nmode = auto\n", ["other"]),
    ("mode auto\n", ["1", '"[section]"']),
    ("mode = auto\n", ["1", "before the first section", "[daemon]"]),
    ("[daemon]\nmode = sideways\n", ["sideways", "2"]),
]


@pytest.mark.parametrize("text,names", CONFIGURATIONS, ids=[t.replace("\n", " ") for t, _ in CONFIGURATIONS])
def test_subletd_names_the_bad_line_of_its_configuration(world, text, names):
    path = world.path("bad.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    one_sentence(run(world, [SUBLETD, "--check", "--dir", world.dir, "--config", path]), 2, path, *names)


def test_a_second_daemon_names_the_first_and_ends(shared):
    one_sentence(run(shared, [SUBLETD, "--dir", shared.dir]), 1, shared.dir, str(shared.daemon.pid))
    assert shared.daemon.running()
    assert shared.status()["gpus"] is not None


def test_a_stale_socket_is_replaced(world):
    os.mkdir(world.dir, 0o700)
    for name in ("client.sock", "control.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.bind(os.path.join(world.dir, name))
    done = run(world, [SUBLET, "status"])
    one_sentence(done, 1, world.dir)
    p = world.program("fill", "--bytes", "4MiB", "--block", "1MiB").ok()
    assert len(p.err().splitlines()) == 1  # no daemon answers, so the program prints one line and runs detached
    world.start([SUBLETD, "--dir", world.dir])
    p = world.program("fill", "--bytes", "4MiB", "--block", "1MiB", SUBLET_REQUIRE="1").ok()
    assert p.err() == ""


def test_a_file_in_the_sockets_place_is_named_and_kept(world):
    os.mkdir(world.dir, 0o700)
    path = os.path.join(world.dir, "client.sock")
    with open(path, "w", encoding="utf-8") as f:
        f.write("precious")
    one_sentence(run(world, [SUBLETD, "--dir", world.dir]), 2, path)
    with open(path, encoding="utf-8") as f:
        assert f.read() == "precious"


def test_subletd_refuses_a_directory_that_others_may_enter(world):
    os.mkdir(world.dir)
    os.chmod(world.dir, 0o755)
    one_sentence(run(world, [SUBLETD, "--dir", world.dir]), 2, world.dir)


@others.needed
def test_an_order_without_permission_says_so(shared):
    os.chmod(shared.root, 0o755)
    os.chmod(shared.dir, 0o755)
    for words, reason in ((["status"], "another user's"), (["set", "mode", "off"], "give orders"), (["stop"], "give orders")):
        one_sentence(run(shared, [SUBLET, *words], user=NOBODY), 1, shared.dir, reason)
    assert "does not let you in" in run(shared, [SUBLET, "doctor"], user=NOBODY).stdout


@others.needed
def test_subletd_refuses_another_users_directory(world):
    os.mkdir(world.dir, 0o700)
    os.chown(world.dir, NOBODY, NOBODY)
    one_sentence(run(world, [SUBLETD, "--dir", world.dir]), 2, world.dir)


@others.needed
def test_subletd_names_a_directory_that_it_may_not_create(world):
    os.chmod(world.root, 0o755)
    one_sentence(run(world, [SUBLETD, "--dir", os.path.join(world.root, "d")], user=NOBODY), 2, world.dir)


def test_an_order_without_a_daemon_names_the_directory(world):
    for order in (["status"], ["set", "mode", "auto"], ["stop"]):
        one_sentence(run(world, [SUBLET, *order]), 1, world.dir)


def private_environment(runtime):
    return {"SUBLET_DIR": None, "XDG_RUNTIME_DIR": runtime}


no_system_daemon = pytest.mark.skipif(SYSTEM_DAEMON is not None, reason=str(SYSTEM_DAEMON))


@no_system_daemon
def test_a_missing_runtime_directory_is_replaced_by_one_in_tmp(world):
    """The command line uses /tmp/sublet-UID instead."""
    done = run(world, [SUBLET, "status"], **private_environment(None))
    one_sentence(done, 1, f"/tmp/sublet-{os.getuid()}")


@no_system_daemon
@others.needed
def test_another_users_runtime_directory_is_not_used(world):
    """After `su` the variable XDG_RUNTIME_DIR still names the other user's directory."""
    runtime = world.path("runtime")
    os.mkdir(runtime, 0o700)
    os.chown(runtime, NOBODY, NOBODY)
    done = run(world, [SUBLET, "status"], **private_environment(runtime))
    one_sentence(done, 1, f"/tmp/sublet-{os.getuid()}")
    assert os.listdir(runtime) == []


@no_system_daemon
def test_a_runtime_directory_too_long_for_a_socket_is_not_used(world):
    """Command line and library both use /tmp/sublet-UID instead."""
    runtime = world.path("r" * 100)
    os.mkdir(runtime, 0o700)
    one_sentence(run(world, [SUBLET, "status"], **private_environment(runtime)), 1, f"/tmp/sublet-{os.getuid()}")
    p = world.program("fill", "--bytes", "4MiB", "--block", "1MiB", **private_environment(runtime)).ok()
    assert len(p.err().splitlines()) == 1 and f"/tmp/sublet-{os.getuid()}" in p.err(), p.err()


def test_subletd_refuses_a_library_of_another_protocol_version(shared):
    """The layout of HELLO never changes, so the refusal can name both releases."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(GENEROUS_S)
        s.connect(os.path.join(shared.dir, "client.sock"))
        s.send(encode("HELLO", magic=MAGIC, protocol=99, name="test", version="9.9.9"))
        answer = s.recv(4096)
    text = answer.decode("latin-1")
    assert int.from_bytes(answer[:2], "little") == 3, answer  # REFUSED
    assert "99." in text or "9.9.9" in text, text


def test_a_program_runs_unshared_under_a_daemon_of_another_protocol_version(world):
    """The library prints one message and lets the program run without sharing."""
    os.mkdir(world.dir, 0o700)
    with contextlib.closing(OtherRelease(world.dir)):
        p = world.program("fill", "--bytes", "8MiB", "--block", "1MiB").ok(60)
    lines = p.err().splitlines()
    assert len(lines) == 1 and "use one release of both" in lines[0], p.err()


VARIABLES = [("SUBLET_LOG", "loud"), ("SUBLET_MEMORY", "much"), ("SUBLET_KEEP", "20GiB"),
             ("SUBLET_PROFILE", "/tmp/no.profile"),
             ("SUBLET_PRIORITY", "21"), ("SUBLET_GROUP", "g" * 32), ("SUBLET_UNCHANGED", "maybe"), ("SUBLET_CACHES", "some"), ("SUBLET_TORTURE", "much"),
             ("SUBLET_TRACE", "/no/such/file")]


@pytest.mark.parametrize("name,value", VARIABLES, ids=[n for n, _ in VARIABLES])
def test_a_bad_variable_is_named_and_ignored(shared, name, value):
    """The program prints one sentence and runs as if the variable were not set."""
    untold = {"SIMCUDA_TRACE": None} if name == "SUBLET_TRACE" else {}  # the audit must not expect the library's lines
    p = shared.program("fill", "--bytes", "4MiB", "--block", "1MiB", **{name: value}, **untold).ok()
    lines = p.err().splitlines()
    assert len(lines) == 1 and (name in lines[0] or value in lines[0]), p.err()


@pytest.mark.parametrize("name, meant", [("SUBLET_PRIORTY", "SUBLET_PRIORITY"), ("SUBLET_MEMORY_CAPS", "SUBLET_MEMORY_CAP"),
                                         ("SUBLET_UNLIKE_ANY", None)])
def test_a_misspelt_variable_is_named_once_in_a_program(shared, name, meant):
    p = shared.program("fill", "--bytes", "4MiB", "--block", "1MiB", **{name: "1"}).ok()
    said = f"{name} is no variable of sublet, and does nothing: did you mean {meant}?"
    assert [line.split(": ", 2)[-1] for line in p.err().splitlines()] == ([said] if meant else []), p.err()


def test_a_misspelt_variable_is_not_named_in_a_program_that_uses_no_gpu(shared):
    p = shared.start(["true"], LD_PRELOAD=LIBRARY, SUBLET_PRIORTY="1")
    assert p.ok().err() == ""


SIMULATOR = [("SIMCUDA_MEMORY", "lots"), ("SIMCUDA_MEMORY", "200000"), ("SIMCUDA_BUS", "fast"), ("SIMCUDA_GPUS", "-3"), ("SIMCUDA_SESSION", "a/b"),
             ("SIMCUDA_FAIL", "cuMemAlloc_v2:0:2"), ("SIMCUDA_FAIL", "cuMemAllok:1:2")]


@pytest.mark.parametrize("name,value", SIMULATOR, ids=[f"{n}={v}" for n, v in SIMULATOR])
def test_the_simulator_names_a_bad_setting(world, name, value):
    p = world.program("fill", "--bytes", "4MiB", shared=False, **{name: value})
    assert p.wait() != 0
    assert name in p.err(), p.report()
