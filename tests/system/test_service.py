"""The units for systemd: systemd accepts them, they confine the daemon, and they allow the daemon all that the daemon
needs. The daemon takes the sockets that systemd made, and reports to systemd."""

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import pytest

import others
from others import as_user
from test_daemon import CARD, SUBLETD, Daemon, environment, place, run, wait_for  # noqa: F401
from test_meet import ask, named
from test_users import BOB, EVE
from wireclient import GENEROUS_S, MIB, Client, obey_until, order
from world import BUILD, NO_LEAKS, ROOT

UNIT = pathlib.Path(BUILD, "subletd.service")


def setting(name):
    return re.search(rf"^{name}=(.*)$", UNIT.read_text(), re.M)[1]


needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")


@needs_systemd
def test_systemd_accepts_the_units_and_the_confinement(tmp_path):
    unit = tmp_path / "subletd.service"
    unit.write_text(re.sub(r"(?<=ExecStart=|xecReload=).*/bin", BUILD, UNIT.read_text()))
    sockets = [shutil.copy(path, tmp_path) for path in pathlib.Path(ROOT, "deploy").glob("*.socket")]
    assert len(sockets) == 2
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit, *sockets], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)
    assert "subletd" not in done.stdout, done.stdout
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=25", unit], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


KINDS = {"control.sock": socket.SOCK_STREAM, "status.sock": socket.SOCK_STREAM, "client.sock": socket.SOCK_SEQPACKET}


@contextlib.contextmanager
def service_manager(directory, *names):
    """Makes these sockets. Gives a function that starts the daemon with them, as systemd does."""
    with contextlib.ExitStack() as stack:
        passed = []
        for name in names:
            s = stack.enter_context(socket.socket(socket.AF_UNIX, KINDS[name]))
            s.bind(f"{directory}/{name}")
            s.listen()
            passed.append(fcntl.fcntl(s, fcntl.F_DUPFD, 20))
            stack.callback(os.close, passed[-1])

        def start(*options, **env):
            places = " ".join(f"{3 + n}<&{fd}" for n, fd in enumerate(passed))
            p = subprocess.Popen(["bash", "-c", f'LISTEN_PID=$$ LISTEN_FDS={len(passed)} exec "$@" {places}', "bash", SUBLETD,
                                  "--dir", directory, *options], env=environment() | env, pass_fds=passed)
            stack.callback(p.wait, GENEROUS_S)
            stack.callback(p.terminate)
            return p

        yield start


@pytest.mark.parametrize("given", [("client.sock", "status.sock", "control.sock"), ("client.sock",)])
def test_a_daemon_serves_the_sockets_it_is_given_and_leaves_their_names(place, given):  # noqa: F811
    os.chmod(place, 0o755)
    before = {}
    with service_manager(place, *given) as start:
        for _ in range(2):
            p = start("--shared", *CARD)
            c = Client(place).connect().start()
            assert order(place, order="status")["gpus"][0]["clients"][0]["pid"] == c.process.pid
            c.end()
            assert {name for name in KINDS if os.path.exists(f"{place}/{name}")} == set(KINDS)
            now = {name: os.stat(f"{place}/{name}").st_ino for name in given}
            assert before in ({}, now), "a restart keeps the sockets"
            before = now
            p.terminate()
            assert p.wait(GENEROUS_S) == 0
            assert {name for name in KINDS if os.path.exists(f"{place}/{name}")} == set(given)


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="no systemd-socket-activate here")
def test_the_first_client_starts_the_daemon(place):  # noqa: F811
    p = subprocess.Popen(["systemd-socket-activate", "--seqpacket", "-l", f"{place}/client.sock", SUBLETD, "--dir", place, *CARD],
                         env=environment(), stderr=subprocess.PIPE, text=True)
    try:
        assert "Listening" in p.stderr.readline()
        assert not os.path.exists(f"{place}/control.sock"), "no daemon yet"
        c = Client(place).connect().start()
        assert order(place, order="status")["gpus"][0]["clients"][0]["pid"] == c.process.pid
        c.end()
    finally:
        p.terminate()
        p.communicate(timeout=GENEROUS_S)


@contextlib.contextmanager
def told(place):  # noqa: F811
    """A socket for what services report to systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(f"{place}/notify")
        s.settimeout(GENEROUS_S)
        yield s


def test_the_daemon_reports_readiness_and_its_running_loop(place):  # noqa: F811
    with told(place) as s:
        d = Daemon(place, *CARD, NOTIFY_SOCKET=f"{place}/notify", WATCHDOG_USEC="100000")
        try:
            words = [s.recv(100)]
            while words.count(b"WATCHDOG=1") < 3:
                words.append(s.recv(100))
            assert words.count(b"READY=1") == 1
        finally:
            assert d.end()[0] == 0
        while words[-1] != b"STOPPING=1":
            words.append(s.recv(100))


def test_a_private_daemon_does_not_report_for_the_service_that_started_it(place):  # noqa: F811
    with told(place) as s:
        s.setblocking(False)
        done = subprocess.run([SUBLETD, "--private", "--dir", place], timeout=GENEROUS_S, check=False,
                              env=environment(NOTIFY_SOCKET=f"{place}/notify", WATCHDOG_USEC="10000"))
        assert done.returncode == 0
        order(place, order="status")
        order(place, order="stop")
        wait_for(lambda: not os.path.exists(f"{place}/client.sock"), what="the end")
        with pytest.raises(BlockingIOError):
            s.recv(100)


def confined():
    """Returns a prefix that confines a command like the unit, as far as this works without systemd: capabilities,
    privileges, and no code made at run time."""
    capabilities = ",".join("+" + name.removeprefix("CAP_").lower() for name in setting("CapabilityBoundingSet").split())
    no_new_code = "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])"
    return ["setpriv", f"--bounding-set=-all,{capabilities}", "--no-new-privs", "/usr/bin/python3", "-c", no_new_code]


def allowed_calls():
    """Returns the system calls of the unit's filter, with its groups resolved."""
    found, groups = set(), [word.strip() for word in setting("SystemCallFilter").split()]
    while groups:
        name = groups.pop()
        if not name.startswith("@"):
            found.add(name)
            continue
        said = subprocess.run(["systemd-analyze", "syscall-filter", name], stdout=subprocess.PIPE, text=True, check=True,
                              timeout=60).stdout
        names = [line.strip() for line in said.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
        groups += [name for name in names if name.startswith("@")]
        found |= set(names)
    return found


@others.needed
def test_the_daemon_works_within_the_units_confinement(place, tmp_path, monkeypatch):  # noqa: F811
    """The test uses two processes of one user that share memory, and an overdue process of another
    user."""
    monkeypatch.setenv("ASAN_OPTIONS", NO_LEAKS["ASAN_OPTIONS"])
    traced = tmp_path / "calls"
    tracing = ["strace", "-f", "-qq", "-o", str(traced)] if shutil.which("strace") else []
    config = tmp_path / "conf"
    config.write_text("[daemon]\nkill_overdue = yes\ngrace = 3s\npatience = 100ms\nquantum = 100ms\n")
    os.chmod(place, 0o755)
    d = Daemon(place, "--shared", "--config", str(config), *CARD, prefix=[*tracing, *confined()])
    made = []
    try:
        def of(uid, name):
            made.append(Client(place, name, prefix=as_user(uid)))
            return made[-1]

        exporter, importer = named(of(BOB, "exporter"), b"e" * 16), named(of(BOB, "importer"), b"i" * 16)
        importer.attach()
        assert ask(importer, b"e" * 16)
        holder = of(EVE, "holder").start()
        assert holder.allocate(600 * MIB)
        obey_until([holder], lambda: holder.lease)
        importer.allocate(600 * MIB)
        obey_until([importer], lambda: importer.lease)  # the holder does not obey, so the daemon kills it
        assert holder.process.wait(60) == -signal.SIGKILL
    finally:
        for c in made:
            c.end()
        if d.process.poll() is None:
            order(place, order="stop")
    assert d.process.wait(60) == 0
    if tracing and shutil.which("systemd-analyze"):
        of_the_daemon = traced.read_text().split("/subletd\", [", 1)[1]
        used = set(re.findall(r"^\d+ +(\w+)\(", of_the_daemon, re.M))
        assert {"pidfd_send_signal", "fork", "clone", "clone3"} & used and len(used) > 20
        assert not used - allowed_calls()
