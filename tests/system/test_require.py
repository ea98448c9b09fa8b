"""The owner's setting `require` in /etc/sublet/subletd.conf: programs that have the library wait for a daemon and never run
unshared. The file is root's, and no variable of a user's leads away from it."""

import errno
import os
import signal
import subprocess
import time

import pytest

from world import BUILD

FILE = "/etc/sublet/subletd.conf"
YES = "[daemon]\nrequire = yes\n"
SPACES = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
pytestmark = pytest.mark.skipif(subprocess.run([*SPACES, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0,
                                reason="no mount namespaces can be made here; as root outside of a container they run")
FILL = ("fill", "--bytes", "8MiB", "--block", "4MiB")


class Machine:
    """A machine with an /etc of its own, for programs that are started through it."""

    def __init__(self, world):
        self.world, self.etc = world, world.path("etc")
        os.makedirs(os.path.join(self.etc, "sublet"))
        self.before = [*SPACES, "sh", "-c", f'mount --bind {self.etc} /etc && exec "$@"', "sh"]

    def write(self, text, mode=0o644):
        path = os.path.join(self.etc, "sublet", "subletd.conf")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def program(self, *argv, **env):
        return self.world.program(*argv, before=self.before, **env)

    def daemon(self, *args):
        """Lets subletd read its configuration, and returns its stderr."""
        done = subprocess.run([*self.before, f"{BUILD}/subletd", "--check", "--dir", self.world.dir, *args], env=self.world.env, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        assert done.returncode == 2, done
        return done.stderr


@pytest.fixture
def machine(world):
    return Machine(world)


@pytest.mark.parametrize("variables", [{}, {"SUBLET_REQUIRE": "0"}, {"SUBLET_REQUIRE": ""}])
def test_a_program_waits_for_a_daemon_where_the_owner_requires_one(machine, variables):
    machine.write(YES)
    p = machine.program(*FILL, **variables)
    time.sleep(1)
    assert p.running() and p.events() == [] and p.err() == "", p.report()
    machine.world.start_daemon()
    p.ok()
    machine.world.check_sums(p)
    assert p.err() == ""


def test_a_program_starts_no_private_daemon_where_the_owner_requires_sharing(machine):
    """Programs of two private daemons would not share. A start does not take a second."""
    machine.write(YES)
    runtime = machine.world.path("runtime")
    os.mkdir(runtime, 0o700)
    variables = {"SUBLET_DIR": None, "XDG_RUNTIME_DIR": runtime, "SUBLET_DAEMON": f"{BUILD}/subletd"}
    p = machine.program(*FILL, **variables)
    time.sleep(1)
    assert p.running() and p.events() == [] and os.listdir(runtime) == [], p.report()
    p.send(signal.SIGKILL)
    machine.write("")
    p = machine.program(*FILL, **variables).ok()
    assert os.listdir(runtime) == ["sublet"] and p.err() == ""
    machine.world.sublet("stop", "--daemon", f"{runtime}/sublet")


@pytest.mark.parametrize("text", ["", "[daemon]\nrequire = no\n", "[daemon]\n#require = yes\n", "[default]\nrequire = yes\n"])
def test_a_program_runs_unshared_where_the_owner_does_not_require_a_daemon(machine, text):
    machine.write(text)
    p = machine.program(*FILL).ok()
    assert "runs without sharing" in p.err() and len(p.err().splitlines()) == 1, p.err()


@pytest.mark.parametrize("mode", [0o646, 0o664])
def test_a_file_that_others_may_write_requires_nothing_and_the_program_says_so(machine, mode):
    machine.write(YES, mode)
    p = machine.program(*FILL).ok()
    first, second = p.err().splitlines()
    assert f"{FILE}: `require` does not hold" in first and "chmod go-w" in first
    assert "runs without sharing" in second


def test_another_users_file_requires_nothing(machine):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(machine.write(YES), 65534, 65534)
    p = machine.program(*FILL).ok()
    assert "`require` does not hold" in p.err()


def test_a_program_in_a_sandbox_gets_an_error_where_the_owner_requires_sharing(machine):
    machine.write(YES)
    machine.world.start_daemon()
    p = machine.program("refused", "--how", "init", "--until", f"errno:{errno.EPERM}:{41 if os.uname().machine == 'x86_64' else 198}").ok()
    assert [(e["call"], e["result"]) for e in p.events("answer")] == [("init", 304)], p.report()
    assert f"because the owner of this machine requires sharing ({FILE})" in p.err() and "socket failed" in p.err()


def test_the_daemon_takes_the_key_in_the_machines_file(machine):
    machine.write(YES)
    daemon = machine.world.start_daemon("--config", FILE, prefix=machine.before)
    shown = machine.world.sublet("set", "require")
    assert shown.stdout == "yes\n", shown
    changed = machine.world.sublet("set", "require", "no")
    assert changed.returncode != 0 and "sublet reload" in changed.stderr, "programs read the file alone"
    assert daemon.running()


@pytest.mark.parametrize("mode", [0o640, 0o664, 0o646])
def test_the_daemon_refuses_the_key_in_a_file_that_programs_do_not_obey(machine, mode):
    machine.write(YES, mode)
    assert f"{FILE}: programs obey the key require only if" in machine.daemon("--config", FILE)


def test_the_daemon_refuses_the_key_in_any_other_file(machine):
    with open(machine.world.path("own.conf"), "w", encoding="utf-8") as f:
        f.write(YES)
    assert f"programs read this key in {FILE} alone" in machine.daemon("--config", machine.world.path("own.conf"))
    machine.write("[daemon]\n")
    os.mkdir(os.path.join(machine.etc, "sublet", "subletd.conf.d"))
    with open(os.path.join(machine.etc, "sublet", "subletd.conf.d", "10-require.conf"), "w", encoding="utf-8") as f:
        f.write(YES)
    assert f"programs read this key in {FILE} alone" in machine.daemon("--config", FILE)
