"""The unit for systemd: systemd accepts it, it confines the daemon, and it allows the daemon all that the daemon
needs."""

import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

import others
from others import as_user
from test_daemon import CARD, Daemon, place  # noqa: F401
from test_meet import ask, named
from test_users import BOB, EVE
from wireclient import MIB, Client, obey_until, order
from world import BUILD, NO_LEAKS

UNIT = pathlib.Path(BUILD, "subletd.service")


def setting(name):
    return re.search(rf"^{name}=(.*)$", UNIT.read_text(), re.M)[1]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_systemd_accepts_the_unit_and_its_confinement(tmp_path):
    unit = tmp_path / "subletd.service"
    unit.write_text(re.sub(r"^ExecStart=.*$", f"ExecStart={BUILD}/subletd",
                           UNIT.read_text().replace("ExecReload=/usr/local/bin/", f"ExecReload={BUILD}/"), flags=re.M))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=60)
    assert "subletd" not in done.stdout, done.stdout
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=25", unit], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


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
        said = subprocess.run(["systemd-analyze", "syscall-filter", groups.pop()], stdout=subprocess.PIPE, text=True, check=True,
                              timeout=60).stdout
        names = [line.strip() for line in said.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
        groups += [name for name in names if name.startswith("@")]
        found |= set(names)
    return found


@others.needed
def test_the_daemon_works_within_the_units_confinement(place, tmp_path, monkeypatch):  # noqa: F811
    """The test uses a group's socket, two processes of one user that share memory, and an overdue process of another
    user."""
    monkeypatch.setenv("ASAN_OPTIONS", NO_LEAKS["ASAN_OPTIONS"])
    traced = tmp_path / "calls"
    tracing = ["strace", "-f", "-qq", "-o", str(traced)] if shutil.which("strace") else []
    config = tmp_path / "conf"
    config.write_text("[daemon]\nkill_overdue = yes\ngrace = 3s\npatience = 100ms\nquantum = 100ms\n")
    os.chmod(place, 0o755)
    d = Daemon(place, "--shared", "--group", str(BOB), "--config", str(config), *CARD, prefix=[*tracing, *confined()])
    made = []
    try:
        def of(uid, name):
            made.append(Client(place, name, prefix=as_user(uid, gid=BOB)))
            return made[-1]

        assert os.stat(f"{place}/client.sock").st_gid == BOB
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
