"""The files of settings, and reading them again: the real daemon, by signal and by order. A reload applies the whole, or
nothing."""

import os
import signal
import subprocess

import pytest

import others
from world import BUILD, GENEROUS_S, wait_for

BASE = "[daemon]\nquantum = 2s\n"


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


@pytest.fixture
def main(world):
    """The name of a file with settings; the file exists."""
    path = world.path("s.conf")
    write(path, BASE)
    return path


def start(world, path, *more):
    return world.start_daemon("--config", path, *more, SUBLET_LOG="info")


def quantum(world):
    return world.status()["quantum"]


def reload_ok(world):
    done = world.sublet("reload")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.splitlines()


def refused(world, *names):
    done = world.sublet("reload")
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and len(lines) == 1 and done.stdout == "", done
    for name in names:
        assert name in lines[0], lines[0]


def test_drop_ins_override_the_file_in_the_order_of_their_names(world, main):
    write(main + ".d/20-b.conf", "[daemon]\nquantum = 4s\n")
    write(main + ".d/10-a.conf", "[daemon]\nquantum = 3s\nmode = exclusive\n")
    write(main + ".d/30-c.conf.bak", "no settings")
    start(world, main)
    assert quantum(world) == 4 and world.status()["mode"] == "exclusive"
    os.unlink(main + ".d/20-b.conf")
    assert reload_ok(world) == ["reloaded: 0 classes"]
    assert quantum(world) == 3


def test_an_order_reads_everything_again_and_names_what_needs_a_restart(world, main):
    start(world, main, "--host-memory", "1GiB")
    write(main, "[daemon]\nquantum = 5s\nclients_max = 7\nhost_memory = 2GiB\ncapacity = 64MiB\nmode = exclusive\n"
                "[class a]\nuser = 1\nminimum = 50%\n[class b]\nuser = 2\n[class c]\nuser = 3\n")
    assert reload_ok(world) == ["reloaded: 3 classes", "restart the daemon for: capacity, clients_max"]
    assert quantum(world) == 5 and world.status()["mode"] == "exclusive"
    assert world.status()["host_memory"]["budget"] == 1 << 30, "the command line wins"
    assert reload_ok(world)[1:] == ["restart the daemon for: capacity, clients_max"], "they still wait"
    write(main, BASE)
    assert reload_ok(world) == ["reloaded: 0 classes"]


def test_sighup_reads_everything_again(world, main):
    daemon = start(world, main)
    write(main, "[daemon]\nquantum = 5s\n[class a]\nuser = 1\n")
    daemon.send(signal.SIGHUP)
    wait_for(lambda: quantum(world) == 5, 20, "the new quantum")
    write(main, "[daemon]\nquantum = soon\n")
    daemon.send(signal.SIGHUP)
    wait_for(lambda: f"the settings stay as they are: {main}:2: malformed quantum" in daemon.err(), 20, "the reason in the log")
    assert quantum(world) == 5


def test_an_ordered_setting_wins_until_the_file_changes_the_same_key(world, main):
    start(world, main)
    assert world.sublet("set", "quantum", "7s").returncode == 0
    write(main, BASE + "mode = exclusive\n")
    reload_ok(world)
    assert quantum(world) == 7 and world.status()["mode"] == "exclusive"
    write(main, "[daemon]\nquantum = 3s\n")
    reload_ok(world)
    assert quantum(world) == 3 and world.status()["mode"] == "auto"


MALFORMED = [
    ("[daemon]\ncolour = red\n", ":2:", '"colour"'),
    ("[colour]\nmode = auto\n", ":2:", '"colour"'),
    ("[daemon]\ngrace = 5\n", ":2:", 'duration "5"'),
    ("[daemon]\nmode\n", ":2:", "key = value"),
    ("[class a]\nuser = 1\nminimum = 60%\n[class b]\nuser = 2\nminimum = 36%\n", ":6:", "96.0%", "95.0%"),
    ("[class a]\nuser = 1\nmaximum = 10%\nminimum = 20%\n", ":4:", "minimum is above maximum"),
    ("[class a]\nuser = no-such-user-here\n", ":2:", '"no-such-user-here"'),
    ("[daemon]\nquantum_min = 5s\nquantum_max = 1s\n", "", "quantum_min is above quantum_max"),
]


@pytest.mark.parametrize("text,line,names", [(t, line, names) for t, line, *names in MALFORMED], ids=[m[2] for m in MALFORMED])
def test_a_wrong_file_changes_nothing_and_is_named_with_its_line(world, main, text, line, names):
    start(world, main)
    write(main, text)
    refused(world, main + line, *names)
    assert quantum(world) == 2
    write(main, "[daemon]\nquantum = 3s\n")
    write(main + ".d/x.conf", text)
    refused(world, main + ".d/x.conf" + line, *names)
    assert quantum(world) == 2


def test_a_file_that_cannot_be_read_changes_nothing(world, main):
    start(world, main)
    os.unlink(main)
    refused(world, main, "No such file")
    os.mkdir(main)
    refused(world, main, "directory")
    os.rmdir(main)
    os.mkfifo(main)
    refused(world, main, "not a regular file")
    os.unlink(main)
    write(main + ".d", "a file in the place of the folder")
    write(main, BASE)
    refused(world, main + ".d", "Not a directory")
    assert quantum(world) == 2


@others.needed
def test_an_unreadable_file_is_named(world, main):
    os.chmod(world.root, 0o777)
    daemon = world.path("n")
    os.mkdir(daemon, 0o700)
    os.chown(daemon, others.NOBODY, others.NOBODY)
    os.chmod(main, 0o600)
    done = subprocess.run([*others.as_user(others.NOBODY), f"{others.BUILD}/subletd", "--check", "--dir", daemon, "--config", main],
                          env=world.env, capture_output=True, text=True, timeout=GENEROUS_S, check=False)
    assert done.returncode == 1 and f"{main}: Permission denied" in done.stderr, done.stderr


@others.needed
def test_a_shared_daemon_reads_no_file_of_another_user(world, main):
    os.mkdir(world.dir, 0o755)
    start(world, main, "--shared")
    os.chmod(main, 0o666)
    refused(world, main, "chmod o-w")
    os.chmod(main, 0o644)
    os.chown(main, others.NOBODY, others.NOBODY)
    refused(world, main, "another user owns it")
    assert quantum(world) == 2


def test_only_the_daemon_of_one_user_takes_a_class_by_name_alone(world, main):
    os.mkdir(world.dir, 0o755)
    start(world, main, "--shared")
    write(main, BASE + "[class a]\nname = train*\n")
    refused(world, main + ":4:", "class a", "user, cgroup, pod or slurm_job")
    assert quantum(world) == 2
    write(main, BASE + "[class a]\nname = train*\nuser = 0-60000\n")
    assert reload_ok(world) == ["reloaded: 1 class"]


def test_a_name_alone_is_enough_in_an_unshared_daemon(world, main):
    write(main, BASE + "[class a]\nname = train*\n")
    start(world, main)
    assert reload_ok(world) == ["reloaded: 1 class"]


def test_a_resource_file_makes_classes_and_is_read_again(world, main):
    resources = world.path("resources")
    write(resources, "2\nspace/pod-1 0.3 1.0 0\npod-2 0.2 0.5 1073741824\n")
    start(world, main, "--resource-config", resources)
    assert reload_ok(world) == ["reloaded: 2 classes"]
    write(resources, "1\nspace/pod-1 0.3 1.0 0\n")
    assert reload_ok(world) == ["reloaded: 1 class"]
    for text, line in (("2\na 0.1 1 0\n", 2), ("1\na 0.1 1 0\nb 0.1 1 0\n", 3), ("1\na 2 1 0\n", 2), ("x\n", 1),
                       ("2\na 0.5 1 0\nb 0.5 1 0\n", 3)):
        write(resources, text)
        refused(world, f"{resources}:{line}:")
    os.unlink(resources)
    refused(world, resources, "No such file")


def private(world):
    env = {"SUBLET_DIR": None, "XDG_RUNTIME_DIR": world.root}
    done = subprocess.run([os.path.join(BUILD, "subletd"), "--private", "--dir", world.dir],
                          env={k: v for k, v in {**world.env, **env}.items() if v is not None}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=GENEROUS_S, check=False)
    assert done.returncode == 0, done.stderr


def log(world):
    with open(os.path.join(world.dir, "subletd.log"), encoding="utf-8") as f:
        return f.read()


def test_a_private_daemon_reads_its_users_file(world):
    own = world.path("config/sublet/subletd.conf")
    write(own, BASE)
    write(own + ".d/a.conf", "[daemon]\nmode = exclusive\n")
    private(world)
    assert quantum(world) == 2 and world.status()["mode"] == "exclusive"
    write(own, "[daemon]\nquantum = 3s\n[class a]\nname = x\n")
    assert reload_ok(world) == ["reloaded: 1 class"]
    os.unlink(own)
    assert reload_ok(world) == ["reloaded: 0 classes"], "the user's file may be missing"
    assert quantum(world) == "auto"


def test_the_supervisor_passes_sighup_on_and_a_new_worker_reads_the_files(world):
    own = world.path("config/sublet/subletd.conf")
    write(own, BASE)
    private(world)
    with open(os.path.join(world.dir, "lock"), encoding="ascii") as f:
        supervisor = int(f.read())
    write(own, "[daemon]\nquantum = 3s\n")
    os.kill(supervisor, signal.SIGHUP)
    wait_for(lambda: quantum(world) == 3, 20, "the new quantum")

    def next_worker():
        worker = world.worker()
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: world.worker() not in (worker, supervisor) and world.sublet("status").returncode == 0, 20,
                 "another worker")

    write(own, "[daemon]\nquantum = 4s\n")
    next_worker()
    assert quantum(world) == 4
    write(own, "[daemon]\nquantum = soon\n")
    next_worker()
    assert quantum(world) == 4 and f"{own}:2: malformed quantum" in log(world)
