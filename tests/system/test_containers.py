"""A uid in a container is no proof: root of the container can take any."""

import json
import os
import subprocess
import sys

import pytest

import others
import wireclient
from others import SCRIPTS, as_user
from test_users import ALICE, BOB, EVE, GROUP, NO_USER_NAMESPACES, a_client_of_each, ask, machine, shared_daemon  # noqa: F401 (fixtures)
from world import NO_PID_NAMESPACES, wait_for

pytestmark = others.needed

ASK_EACH = """
import json, socket, sys
for path, order in json.loads(sys.argv[1]):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.settimeout(60)
        s.sendall(json.dumps(order).encode() + b"\\n")
        print(s.makefile().readline(), end="")
"""
CONTAINER = ["unshare", "--pid", "--fork", "--kill-child"]


def clients_in(status):
    return [row for gpu in status["gpus"] for row in gpu["clients"]]


def test_a_uid_that_root_of_a_container_has_taken_has_no_rights_outside(machine, shared_daemon):  # noqa: F811
    """Neither the uid of a daemon that is not root's, nor that of a user with programs."""
    directory = shared_daemon("--capacity", "1GiB", "--host-memory", "1GiB")
    control, status = (os.path.join(directory, name) for name in ("control.sock", "status.sock"))
    if machine.run_as(0, [*CONTAINER, "true"]).returncode:
        pytest.skip(NO_PID_NAMESPACES)

    def answers(uid, path, *orders):
        done = machine.run_as(0, [*CONTAINER, *as_user(uid, gid=GROUP), sys.executable, "-c", ASK_EACH,
                                  json.dumps([(path, order) for order in orders])])
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    for answer in answers(ALICE, control, {"order": "set", "grace": "60s"}, {"order": "stop"}):
        assert "both outside a container" in answer["error"]
    inside = wireclient.Client(directory, "inside", prefix=[*CONTAINER, *as_user(BOB, gid=GROUP)])
    with a_client_of_each(directory):
        try:
            inside.connect()
            inside.hello()
            inside.attach()
            rows = {row["name"]: row for row in clients_in(machine.status_of(directory))}
            pid = rows[f"of-{BOB}"]["pid"]
            *refused, seen = answers(BOB, status, *({"order": what, "pid": pid} for what in ("get", "pause", "resume", "evict")),
                                     {"order": "set_program", "pid": pid, "weight": "2"}, {"order": "status"})
            for answer in refused:
                assert f"process {pid} is another user's" in answer["error"]
            assert not {f"of-{BOB}", f"of-{ALICE}"} & {row["name"] for row in clients_in(seen)}
            # The user outside could signal the program in the container, too.
            paused = ask(machine, BOB, status, {"order": "pause", "pid": rows["inside"]["pid"]})
            assert json.loads(paused.stdout) == {"name": "inside", "already": False}
        finally:
            inside.end()


def test_notes_from_a_container_do_not_count(machine):  # noqa: F811
    """A user has thousands of uids in a user namespace, and could be another user with each note."""
    os.chmod(machine.root, 0o777)
    unshare = ["unshare", "--user", "--map-root-user"]
    if machine.run_as(EVE, [*unshare, "true"]).returncode:
        pytest.skip(NO_USER_NAMESPACES)
    alice = machine.user(ALICE, "hold", "--bytes", "8MiB", stdin=subprocess.PIPE)
    alice.await_event("filled")
    status = machine.status_of(machine.home(ALICE))
    uuid = status["gpus"][0]["uuid"].removeprefix("GPU-").replace("-", "")
    for uid, prefix in (EVE, unshare), (BOB, ()):
        done = machine.run_as(uid, [*prefix, sys.executable, os.path.join(SCRIPTS, "notes.py"), "sublet-daemon/" + status["instance"],
                                    uuid, "0", "100"])
        assert done.returncode == 0 and int(done.stdout) >= 100, done

    def log():
        with open(machine.path(f"home-{ALICE}/subletd.log"), encoding="utf-8") as f:
            return f.read()

    wait_for(lambda: f"a program of user {BOB}, under another daemon" in log(), 20, "Bob's notes", report=log)
    assert f"a program of user {EVE}, under another daemon" not in log(), "Eve's came before them"
    alice.finish()
