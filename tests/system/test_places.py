"""Where programs look for a daemon, on a machine with a /run of its own: one user's programs with different environments
find one daemon, and what follows if there are two, or if the machine's is gone. test_judge.py has what is said of it."""

import os
import shutil
import signal
import subprocess
import time

import pytest

import others
import world as world_module
from others import BUILD, as_user
from test_users import ALICE, EVE, Machine
from world import wait_for


def _namespaces():
    script = "mount -t tmpfs none /run"
    return subprocess.run(["unshare", "--mount", "sh", "-c", script], stderr=subprocess.DEVNULL, check=False).returncode == 0


pytestmark = [others.needed, pytest.mark.skipif(os.geteuid() == 0 and not _namespaces(), reason="no mount namespace can be made here")]

SUBLET = os.path.join(BUILD, "sublet")
NOWHERE = {"SUBLET_DIR": None, "XDG_RUNTIME_DIR": None}
REMEDY = "`sudo systemctl start subletd` starts the machine's daemon; if there is to be none, `sudo rm -r /run/sublet`"


class Place(Machine):
    """A machine whose processes share one mount namespace, with an empty /run and an empty /tmp but for this test."""

    def __init__(self):
        super().__init__()
        self.env["XDG_CACHE_HOME"] = self.path("home/cache")
        os.mkdir(self.path("home"))
        os.chmod(self.path("home"), 0o777)
        os.chmod(self.path("trace"), 0o666)
        self.holder = self.start(["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /run && mkdir /run/user && echo ready && "
                                  "exec sleep 100000"])
        wait_for(lambda: "ready" in self.holder.out(), 20, "the mount namespace")
        self.enter = ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt"]

    def inside(self, path):
        return f"/proc/{self.holder.pid}/root{path}"

    def login(self, uid):
        """Makes /run/user/UID, as for a user who logs in."""
        path = self.inside(f"/run/user/{uid}")
        os.mkdir(path, 0o700)
        os.chown(path, uid, uid)
        return f"/run/user/{uid}"

    def odd(self, name):
        path = self.path(name)
        os.mkdir(path, 0o700)
        os.chown(path, ALICE, ALICE)
        return path

    def hold(self, uid, **env):
        env = NOWHERE | {"LD_PRELOAD": os.path.join(BUILD, "libsublet.so")} | env
        return self.start([*self.enter, *as_user(uid), os.path.join(BUILD, "programs", "hold"), "--bytes", "8MiB"],
                          stdin=subprocess.PIPE, **env)

    def say(self, uid, *argv, **env):
        merged = {k: v for k, v in {**self.env, **NOWHERE, **env}.items() if v is not None}
        return subprocess.run([*self.enter, *as_user(uid), SUBLET, *argv], env=merged, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=world_module.GENEROUS_S)

    def pids(self, place):
        status = self.status(self.inside(place))
        return {c["pid"] for gpu in status["gpus"] for c in gpu["clients"]}

    def system(self):
        """The machine's daemon, started by root by hand."""
        daemon = self.start([*self.enter, os.path.join(BUILD, "subletd")], **NOWHERE)
        wait_for(lambda: self.say(0, "status").returncode == 0, 20, "subletd to listen")
        return daemon


@pytest.fixture
def place():
    tmp = f"/tmp/sublet-{ALICE}"
    assert not os.path.lexists(tmp), f"{tmp} is in the way"
    p = Place()
    try:
        yield p
    finally:
        p.close()
        if os.path.islink(tmp):
            os.unlink(tmp)
        shutil.rmtree(tmp, ignore_errors=True)


@pytest.mark.parametrize("first, second", [("login", "none"), ("none", "login"), ("late", "login"), ("odd", "none"),
                                           ("odd", "other")])
def test_programs_of_one_user_with_two_environments_share_one_daemon(place, first, second):
    """none: no variable. late: the user's folder is made, as for a login, after the first program has begun."""
    if "login" in (first, second) and first != "late":
        place.login(ALICE)
    folders = {"none": None, "late": None, "login": f"/run/user/{ALICE}", "odd": first == "odd" and place.odd("odd"),
               "other": second == "other" and place.odd("other")}
    one = place.hold(ALICE, XDG_RUNTIME_DIR=folders[first])
    one.await_event("filled")
    if first == "late":
        place.login(ALICE)
    two = place.hold(ALICE, XDG_RUNTIME_DIR=folders[second])
    two.await_event("filled")
    at = {"late": f"/tmp/sublet-{ALICE}", "odd": f"{folders['odd']}/sublet"}.get(first, f"/run/user/{ALICE}/sublet")
    assert place.pids(at) == {one.pid, two.pid}
    asked = place.say(ALICE, "status", XDG_RUNTIME_DIR=folders[second])
    assert asked.returncode == 0 and str(one.pid) in asked.stdout and str(two.pid) in asked.stdout
    # Where the environment names the place itself, nothing is said.
    for told in (two.err(), asked.stderr):
        assert (f"your daemon is in {at}; this environment names " in told) == (first in ("late", "odd")), told
        assert len(told.splitlines()) == (first in ("late", "odd")), told
    one.finish()
    two.finish()


def test_a_daemon_that_sublet_dir_names_is_left_to_the_programs_that_name_it(place):
    own = place.odd("own")
    one = place.hold(ALICE, SUBLET_DIR=own)
    one.await_event("filled")
    two = place.hold(ALICE)
    two.await_event("filled")
    assert place.pids(own) == {one.pid}
    assert place.pids(f"/tmp/sublet-{ALICE}") == {two.pid}
    one.finish()
    two.finish()


def private(place, folder):
    done = subprocess.run([*place.enter, *as_user(ALICE), os.path.join(BUILD, "subletd"), "--private", "--dir", folder],
                          env=place.env, check=False, timeout=60)
    assert done.returncode == 0


def test_a_program_of_a_user_with_two_daemons_joins_the_first_and_the_advice_makes_them_one(place):
    two = place.hold(ALICE)  # began before its user logged in
    two.await_event("filled")
    runtime = place.login(ALICE)
    private(place, f"{runtime}/sublet")
    one = place.hold(ALICE)
    one.await_event("filled")
    asked = place.say(ALICE, "status")
    assert asked.returncode == 0 and str(one.pid) in asked.stdout and str(two.pid) in asked.stdout, asked.stdout
    stop = f"sublet stop --daemon /tmp/sublet-{ALICE}"
    assert stop in asked.stderr and len(asked.stderr.splitlines()) == 1, asked.stderr
    three = place.hold(ALICE, XDG_RUNTIME_DIR="")  # the first place that answers
    three.await_event("filled")
    assert place.pids(f"{runtime}/sublet") == {one.pid, three.pid}
    # The advice of status works: the programs join the other daemon.
    assert place.say(ALICE, *stop.split()[1:]).returncode == 0
    wait_for(lambda: place.say(ALICE, "status").stderr == "", 30, "one daemon to be left")
    wait_for(lambda: place.pids(f"{runtime}/sublet") == {one.pid, two.pid, three.pid}, 30, "all programs to be under it")
    for p in (one, two, three):
        p.finish()


def test_a_usual_place_that_a_program_names_is_not_advised_to_be_stopped(place):
    """The program would start another daemon there at once."""
    runtime = place.login(ALICE)
    one = place.hold(ALICE)
    one.await_event("filled")
    two = place.hold(ALICE, SUBLET_DIR=f"/tmp/sublet-{ALICE}")
    two.await_event("filled")
    assert place.pids(f"{runtime}/sublet") == {one.pid}
    for command in ("status", "doctor"):
        asked = place.say(ALICE, command)
        said = asked.stdout + asked.stderr
        assert "start all of your programs with the same SUBLET_DIR, or all without it" in said and "sublet stop" not in said, said
    one.finish()
    two.finish()


def test_a_daemon_that_no_program_uses_any_more_is_not_reported(place):
    """It ends by itself, after its `linger`."""
    one = place.hold(ALICE)
    one.await_event("filled")
    one.finish()
    place.system()
    wait_for(lambda: not place.pids(f"/tmp/sublet-{ALICE}"), 20, "the program to have left")
    for command in ("status", "doctor"):
        asked = place.say(ALICE, command)
        assert "two daemons" not in asked.stdout + asked.stderr, asked


def test_programs_of_a_stopped_daemon_join_the_other_one(place):
    odd = place.odd("odd")
    one = place.hold(ALICE, XDG_RUNTIME_DIR=odd)
    one.await_event("filled")
    private(place, f"/tmp/sublet-{ALICE}")
    assert place.say(ALICE, "stop", "--daemon", f"{odd}/sublet").returncode == 0
    wait_for(lambda: place.pids(f"/tmp/sublet-{ALICE}") == {one.pid}, 30, "the program to join the other daemon")
    one.finish()


def test_a_daemon_whose_folder_is_removed_leaves_its_programs_to_the_next_one(place):
    """As when the user logs out, and the system removes /run/user/UID, while a program runs on."""
    place.login(ALICE)
    one = place.hold(ALICE)
    one.await_event("filled")
    shutil.rmtree(place.inside(f"/run/user/{ALICE}"))
    two = place.hold(ALICE)
    two.await_event("filled")
    wait_for(lambda: place.pids(f"/tmp/sublet-{ALICE}") == {one.pid, two.pid}, 30, "both programs to have one daemon")
    one.finish()
    two.finish()


def test_a_daemon_in_another_mount_namespace_is_reported_and_not_joined(place):
    script = 'mount -t tmpfs -o mode=1777 none /run && mkdir -m 700 /run/own && chown "$0" /run/own && exec "$@"'
    env = NOWHERE | {"LD_PRELOAD": os.path.join(BUILD, "libsublet.so"), "XDG_RUNTIME_DIR": "/run/own"}
    away = place.start([*place.enter, "env", "-u", "LD_PRELOAD", "unshare", "--mount", "sh", "-c", script, str(ALICE),
                        *as_user(ALICE), "env", f"LD_PRELOAD={env['LD_PRELOAD']}", os.path.join(BUILD, "programs", "hold"),
                        "--bytes", "8MiB"], stdin=subprocess.PIPE, **env)
    away.await_event("filled")
    here = place.hold(ALICE)
    here.await_event("filled")
    assert place.pids(f"/tmp/sublet-{ALICE}") == {here.pid}
    doctor = place.say(ALICE, "doctor").stdout
    assert "is in another mount namespace (a container?) and under a daemon in /run/own/sublet there" in doctor, doctor
    away.finish()
    here.finish()


LISTENER = """
import os, signal, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1] + ".new")
os.chmod(sys.argv[1] + ".new", 0o777)
s.listen(5)
os.rename(sys.argv[1] + ".new", sys.argv[1])
signal.pause()
"""


def listening(place, directory, uid):
    """A socket of another user, in the place of a daemon's."""
    path = os.path.join(directory, "client.sock")
    place.start([*as_user(uid), "/usr/bin/python3", "-c", LISTENER, path])
    wait_for(lambda: os.path.exists(path), 20, "the socket")


@pytest.mark.parametrize("what", ["another user's folder", "a link", "another user's socket"])
def test_a_planted_place_is_passed_over(place, what):
    """The place comes before one where a daemon of the user's own answers."""
    odd = place.odd("odd")
    one = place.hold(ALICE, XDG_RUNTIME_DIR=odd)
    one.await_event("filled")
    planted, target = f"/tmp/sublet-{ALICE}", place.path("planted")
    os.mkdir(target, 0o777)
    os.chmod(target, 0o777)
    if what == "a link":
        listening(place, target, EVE)
        os.symlink(target, planted)
    else:
        os.mkdir(planted)
        os.chmod(planted, 0o777)
        listening(place, planted, EVE)
        if what == "another user's socket":
            os.chmod(planted, 0o700)
        os.chown(planted, *[ALICE if what == "another user's socket" else EVE] * 2)
    two = place.hold(ALICE)
    two.await_event("filled")
    assert place.pids(f"{odd}/sublet") == {one.pid, two.pid}
    assert str(two.pid) in place.say(ALICE, "status").stdout
    two.finish()
    one.finish()


def test_a_program_waits_for_a_killed_daemon_of_the_machine_and_the_advice_helps(place):
    daemon = place.system()
    daemon.send(signal.SIGKILL)
    daemon.process.wait(30)
    assert os.path.exists(place.inside("/run/sublet/client.sock"))
    began = time.monotonic()
    p = place.hold(ALICE, SUBLET_QUIET="")
    p.await_event("filled")
    assert time.monotonic() - began > 4.5, "the program has waited"
    warnings = [line for line in p.err().splitlines() if "warning" in line]
    assert len(warnings) == 1, p.err()
    assert not os.path.lexists(f"/tmp/sublet-{ALICE}"), "no private daemon beside the machine's folder"
    ran = place.say(ALICE, "run", "-v", os.path.join(BUILD, "programs", "hold"), "--bytes", "1MiB")
    assert REMEDY in ran.stderr, ran.stderr
    # What the message advises works.
    shutil.rmtree(place.inside("/run/sublet"))
    q = place.hold(ALICE)
    q.await_event("filled")
    assert place.pids(f"/tmp/sublet-{ALICE}") >= {q.pid}
    p.finish()
    q.finish()


def test_a_program_waits_for_a_daemon_of_the_machine_that_starts_again(place):
    daemon = place.system()
    daemon.send(signal.SIGKILL)
    daemon.process.wait(30)
    p = place.hold(ALICE)
    time.sleep(1.0)
    assert not p.events("filled")
    daemon = place.system()
    p.await_event("filled")
    assert place.pids("/run/sublet") == {p.pid} and p.err() == "", p.err()
    p.finish()
    daemon.send(signal.SIGTERM)
    assert daemon.wait(30) == 0


def test_a_clean_end_of_the_machines_daemon_leaves_nothing(place):
    daemon = place.system()
    assert os.path.isdir(place.inside("/run/sublet/public"))
    daemon.send(signal.SIGTERM)
    assert daemon.wait(30) == 0
    assert os.listdir(place.inside("/run")) == ["user"]
    p = place.hold(ALICE)
    p.await_event("filled")
    assert place.pids(f"/tmp/sublet-{ALICE}") == {p.pid} and p.err() == ""
    p.finish()


def test_a_folder_that_the_machines_daemon_left_behind_keeps_nobody_from_sharing(place):
    """An earlier release left its folder after a clean end."""
    os.makedirs(place.inside("/run/sublet/conf.d"), 0o755)
    with open(place.inside("/run/sublet/lock"), "w", encoding="ascii"):
        pass
    p = place.hold(ALICE)
    p.await_event("filled")
    assert place.pids(f"/tmp/sublet-{ALICE}") == {p.pid}
    p.finish()
